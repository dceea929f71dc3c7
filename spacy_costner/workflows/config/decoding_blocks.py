"""The decoding of a config: the recommended decoding and its block."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...types import Loss
from ...validation import check_config_names
from .blocks import Block
from .cost_blocks import find_label_costs
from .init_options import Decoding

EVEN_THRESHOLD = 0.5
"""The threshold if misses and false alarms cost the same, or the aim isn't the lowest cost."""


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


def choose_thresholds(
    cost: Block, files: Mapping[str, str], label_counts: Mapping[str, int]
) -> dict[str, float]:
    """Choose the threshold of each label for the lowest cost. Predicting an entity pays off if its
    probability exceeds 1 - c(miss) / (c(miss) + c(false alarm)): see docs/decoding.md. Other
    mistakes aren't taken into account. If neither a miss nor a false alarm of a label has a cost,
    its threshold is `EVEN_THRESHOLD`.

    cost (Block): The block of the cost.
    files (Mapping[str, str]): The cost files: see `GivenCosts`.
    label_counts (Mapping[str, int]): The number of spans of each label in the corpus. If empty, the
        labels are read from the cost files.
    RETURNS (dict[str, float]): The thresholds, keyed by label.
    RAISES (ValueError): If a file can't be read or doesn't include all labels.
    """
    thresholds: dict[str, float] = {}
    for label, (miss, false_alarm) in find_label_costs(cost, files, label_counts).items():
        thresholds[label] = EVEN_THRESHOLD
        if miss + false_alarm > 0:
            thresholds[label] = round(1 - miss / (miss + false_alarm), 4)
    return thresholds


def make_decoding(
    decoding: Decoding, cost: Any, thresholds: Mapping[str, float], *, inner_nodes: bool
) -> Block:
    """Create the decoding block.

    decoding (Decoding): How entities are chosen.
    cost (Any): The block of the cost, or a variable that refers to it: see `make_loss`.
    thresholds (Mapping[str, float]): The threshold of each label, used by threshold decoding. If
        empty, all labels have `EVEN_THRESHOLD`.
    inner_nodes (bool): Whether to also predict inner nodes of the label tree.
    RAISES (ValueError): If the thresholds differ, and a label can't be a name in a config.
    """
    if decoding == "viterbi":
        return {"@misc": "spacy_costner.ViterbiDecoding.v1", "bias": 0.0, "labels": {}}
    if decoding == "min-cost":
        block = {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": cost}
        if inner_nodes:
            block["tree"] = "${paths.tree}"
        return block
    # The block has the most frequent threshold, and those of the other labels.
    threshold = EVEN_THRESHOLD
    if thresholds:
        ((threshold, _),) = Counter(thresholds.values()).most_common(1)
    other_thresholds = {label: other for label, other in thresholds.items() if other != threshold}
    check_config_names(other_thresholds, "`decoding` threshold: labels with different thresholds")
    return {
        "@misc": "spacy_costner.ThresholdDecoding.v1",
        "threshold": threshold,
        "labels": other_thresholds,
    }
