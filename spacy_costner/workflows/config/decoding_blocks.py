"""The decoding of a config: the recommended decoding and its block."""

from collections.abc import Mapping
from typing import Any

from ...types import Loss
from .blocks import Block
from .init_options import Decoding


def choose_decoding(model: str, aim: str, last_loss: Loss, *, inner_nodes: bool) -> Decoding:
    """Choose the decoding. Returns "min-cost" (the lowest expected cost) if the aim is the lowest
    cost and scores are probabilities after training, and "viterbi" (the best path) otherwise. A
    linear model also uses "viterbi" if its last loss adds costs to the scores, unless inner nodes
    are predicted.

    model (str): The type of model.
    aim (str): The aim: see `InitOptions`.
    last_loss (Loss): The last loss used during training.
    inner_nodes (bool): Whether to also predict inner nodes of the label tree.
    """
    if aim != "cost" or not last_loss.has_probabilities:
        return "viterbi"
    # Losses that add the cost to the scores during training shift the probabilities. Linear models
    # learn the cost well with these losses: the best path has a lower cost than the entities with
    # the lowest expected cost under the shifted probabilities. See docs/init.md.
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
    """Create the decoding block.

    If the aim is the lowest cost, the threshold of threshold decoding is derived from the costs of
    mistakes: predicting an entity pays off if its probability exceeds 1 - c(miss) / (c(miss) +
    c(false alarm)). See docs/decoding.md.

    decoding (Decoding): How entities are chosen.
    aim (str): The aim: see `InitOptions`.
    mistakes (Mapping[str, float]): The given costs, keyed by kind of mistake.
    cost (Any): The block of the cost, or a variable that refers to it: see `make_loss`.
    inner_nodes (bool): Whether to also predict inner nodes of the label tree.
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
