"""The decoding of a config: which one is recommended, and its block."""

from collections.abc import Mapping
from typing import Any

from ...types import Loss
from .blocks import Block
from .init_options import Decoding


def choose_decoding(model: str, aim: str, last_loss: Loss, *, inner_nodes: bool) -> Decoding:
    """Choose the decoding. It is the best path ("viterbi") or, if the aim is the lowest cost and
    scores are probabilities after training, the lowest expected cost ("min-cost"). But a linear
    model that has learned the costs keeps the best path.

    model (str): The kind of model.
    aim (str): What should be best: see `InitOptions`.
    last_loss (Loss): The loss that training ends with.
    inner_nodes (bool): Whether inner nodes of the label tree are predicted, too.
    """
    if aim != "cost" or not last_loss.has_probabilities:
        return "viterbi"
    # A loss that adds the cost to the scores in training shifts the probabilities. A linear model
    # learns the cost well by it: its best path costs less than what the lowest expected cost by
    # these probabilities chooses. See docs/init.md.
    if model == "linear" and last_loss.shifts_probabilities and not inner_nodes:
        return "viterbi"
    return "min-cost"


def make_decoding(
    decoding: Decoding,
    aim: str,
    mistakes: Mapping[str, float],
    cost: Any,
    *,
    inner_nodes: bool,
) -> Block:
    """Make the block of the decoding.

    If the aim is the lowest cost, the threshold of threshold decoding follows from the costs of
    mistakes: it pays to predict an entity if its probability is above
    1 - c(miss) / (c(miss) + c(false alarm)). See docs/decoding.md.

    decoding (Decoding): How entities are chosen.
    aim (str): What should be best: see `InitOptions`.
    mistakes (Mapping[str, float]): The given costs of kinds of mistakes.
    cost (Any): The block of the cost, or a variable instead: see `make_loss`.
    inner_nodes (bool): Whether inner nodes of the label tree are predicted, too.
    """
    if decoding == "viterbi":
        return {"@misc": "spacy_costner.ViterbiDecoding.v1", "bias": 0.0, "labels": {}}
    if decoding == "min-cost":
        block = {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": cost}
        if inner_nodes:
            block["tree"] = "${paths.tree}"
        return block
    threshold = 0.5
    cost_of_miss = mistakes.get("miss", 1.0)
    total_cost = cost_of_miss + mistakes.get("false_alarm", 1.0)
    if aim == "cost" and total_cost > 0:
        threshold = round(1 - cost_of_miss / total_cost, 4)
    return {
        "@misc": "spacy_costner.ThresholdDecoding.v1",
        "threshold": threshold,
        "labels": {},
    }
