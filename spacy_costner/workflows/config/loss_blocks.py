"""The loss of a config: which one is recommended, and its block."""

import math
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from spacy.util import registry

from ...costs.tables import HAMMING
from ...types import Loss
from .blocks import Block, find_name
from .corpus_statistics import CorpusStatistics
from .cost_blocks import find_highest_cost
from .sizes import Sizes

RECOMMENDED = {"Mixed": {"k": 3.0}, "Perceptron": {"alpha": 1.0}, "ZScore": {"multiplier": 20.0}}
"""The settings of losses for which a value other than the default is recommended."""

LATER_EPOCHS = 2
"""The number of epochs for each loss in a schedule, except the first."""

FIRST_STEPS = 500
"""The approximate number of steps for the first loss in a schedule, if training has no last
epoch."""

HIGHEST_SCORE = 5
"""Some losses turn costs into scores by a factor. It is chosen so that no mistake has a higher
score than this, except with ZScore, whose recommended factor is larger."""


def choose_losses(model: str, aim: str, costs: Mapping[str, Any], *, is_small: bool) -> list[str]:
    """Choose the loss that docs/which-loss.md recommends.

    model (str): The kind of model.
    aim (str): What should be best: see `InitOptions`.
    costs (Mapping[str, Any]): The blocks of the given costs: see `GivenCosts.blocks`.
    is_small (bool): Whether there are few training sentences.
    RETURNS (list[str]): The name of the loss, or the names of the losses of a schedule.
    """
    if aim == "guarantee":
        return ["Sequential"]
    has_tree = "tree" in costs
    if has_tree and aim != "cost":
        if model == "linear":
            return ["SoftmaxMargin", "MCEF"]
        return ["Sequential"]
    if has_tree and model != "linear":
        return ["SoftmaxMargin", "Risk"]
    if costs or aim == "cost":
        return ["SoftmaxMargin"]
    if model == "linear" and is_small:
        return ["SoftmaxMargin"]  # Its cost is `HIGH_COST_OF_MISSES`.
    return ["Sequential"]


def parse_losses(text: str, option: str = "`loss`") -> list[str]:
    """Read the names of losses that are separated by commas. If the first loss needs a trained
    model to start from, Sequential is put before it.

    option (str): The parameter with the text, for errors.
    RETURNS (list[str]): The short names of the losses: see `find_name`.
    RAISES (ValueError): If there is no such loss.
    """
    losses = [find_name("Loss", name, option=option) for name in text.split(",")]
    if build_loss(losses[0]).needs_start:
        losses.insert(0, "Sequential")
    return losses


def build_loss(name: str) -> Loss:
    """Make the loss with a short name, such as SoftmaxMargin. If it takes a cost, it gets the
    Hamming cost."""
    block = make_loss([name], HAMMING)
    loss: Loss = registry.resolve({"loss": block})["loss"]
    return loss


def make_loss(
    losses: Sequence[str],
    cost: Any = None,
    *,
    multiplier: float = 1.0,
    epochs: Sequence[float] = (5.0,),
) -> Block:
    """Make the block of a loss, or of a schedule of losses, with the recommended settings.

    losses (Sequence[str]): The short name of the loss, or of each loss of the schedule.
    cost (Any): The block of the cost, or a variable such as ${components.ner.scorer.cost}
        instead. None: the Hamming cost.
    multiplier (float): The recommended setting of the score per unit of cost is multiplied by this.
    epochs (Sequence[float]): After how many epochs each loss of a schedule but the last ends. The
        default is for two losses.
    """
    blocks = [make_single_loss(name, cost, multiplier) for name in losses]
    if len(blocks) == 1:
        return blocks[0]
    # Each loss of a schedule is a section of its block. The sections run in order.
    stage_names = ["first", "then"]
    if len(blocks) > 2:
        stage_names = [f"loss_{i}" for i in range(1, len(blocks) + 1)]
    stages = dict(zip(stage_names, blocks))
    return {"@losses": "spacy_costner.Schedule.v1", "epochs": [*epochs], "*": stages}


def make_single_loss(loss: str, cost: Any, multiplier: float) -> Block:
    """Make the block of a loss that isn't a schedule. It has the defaults of its factory or, where
    another value is recommended, that value. The setting that says what a unit of cost adds to a
    score is multiplied by `multiplier`. Without a cost, a loss that needs one has the Hamming cost.
    """
    name = f"spacy_costner.{loss}.v1"
    parameters = signature(registry.losses.get(name)).parameters
    block: Block = {"@losses": name}
    for parameter in parameters.values():
        # None is the default of the cost, which is added below, and of the two settings of Mixed,
        # of which only one may be set: `RECOMMENDED` has it.
        if parameter.default is not None:
            block[parameter.name] = parameter.default
    block.update(RECOMMENDED.get(loss, {}))
    # The score per unit of cost is named "multiplier" in some losses, and "alpha" in others.
    for setting in ("multiplier", "alpha"):
        if setting in block:
            block[setting] = round_to_two_digits(block[setting] * multiplier)
    if "cost" in parameters:
        if cost is not None:
            block["cost"] = cost
        elif loss != "Mixed":  # The loss Mixed needs no cost.
            block["cost"] = HAMMING
    return block


def round_to_two_digits(value: float) -> float:
    """Round to two significant digits: 0.0123 to 0.012."""
    return float(f"{value:.2g}")


def choose_multiplier(
    cost: Block | None, files: Mapping[str, str], corpus: CorpusStatistics
) -> float:
    """Choose a factor for the setting of a loss that scales its costs. The factor is 1, or 0.5
    with a label tree. It is lower if the worst mistake would otherwise have a score above
    `HIGHEST_SCORE`.

    cost (Block | None): The block of the cost. None: mistakes have no cost.
    files (Mapping[str, str]): The files of the cost: see `GivenCosts`.
    corpus (CorpusStatistics): The training corpus, whose labels may be confused.
    """
    multiplier = 0.5 if "tree" in files else 1.0
    if cost is None:
        return multiplier
    highest_cost = find_highest_cost(cost, files, corpus.label_counts)
    if multiplier * highest_cost > HIGHEST_SCORE:
        return round_to_two_digits(HIGHEST_SCORE / highest_cost)
    return multiplier


def choose_epochs(losses: Sequence[str], sizes: Sizes) -> list[float]:
    """Choose after how many epochs each loss of a schedule ends. The last loss has no end, so there
    is one number less than there are losses.

    Each loss except the first has `LATER_EPOCHS`. If training has a last epoch, the first loss has
    the rest. Otherwise it ends after about `FIRST_STEPS`, but after at least five epochs.
    """
    n_later_losses = len(losses) - 1
    if sizes.max_epochs > 0:
        first_end = max(1, sizes.max_epochs - LATER_EPOCHS * n_later_losses)
    else:
        # An epoch has at least `eval_frequency` steps, as it is evaluated at least once.
        first_end = max(5, math.ceil(FIRST_STEPS / sizes.eval_frequency))
    return [float(first_end + LATER_EPOCHS * i) for i in range(n_later_losses)]
