"""The loss of a config: the recommended loss and its block."""

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from spacy.util import registry

from ...costs.tables import HAMMING
from ...types import Loss
from .blocks import Block, find_name
from .corpus_statistics import CorpusStatistics
from .cost_blocks import find_highest_cost

RECOMMENDED = {"Mixed": {"k": 3.0}, "Perceptron": {"alpha": 1.0}, "ZScore": {"multiplier": 20.0}}
"""The recommended loss settings that differ from the defaults."""

SCHEDULE = "spacy_costner.Schedule.v1"
"""The registered name of `losses.make_schedule`."""

FIRST_EPOCHS = 5
"""The least number of epochs of training and, if it is long enough, of the first loss in a
schedule."""

LATER_EPOCHS = 2
"""The number of epochs for each loss after the first in a schedule, if training is long enough."""

HIGHEST_SCORE = 5
"""Some losses convert costs to scores with a multiplier. The multiplier is chosen so that no
mistake has a score above this value, except for ZScore, whose recommended multiplier is larger."""


def choose_losses(model: str, aim: str, costs: Mapping[str, Any], *, is_small: bool) -> list[str]:
    """Choose the loss recommended in docs/which-loss.md.

    model (str): The type of model.
    aim (str): The aim: see `InitOptions`.
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
        return ["SoftmaxMargin"]  # with `HIGH_COST_OF_MISSES` as cost
    return ["Sequential"]


def parse_losses(text: str, option: str = "`loss`") -> list[str]:
    """Parse a comma-separated list of losses. Sequential is prepended if the first loss requires a
    trained model to start from.

    option (str): The name of the parameter, for error messages.
    RETURNS (list[str]): The short names of the losses: see `find_name`.
    RAISES (ValueError): If a loss is unknown.
    """
    losses = [find_name("Loss", name, option=option) for name in text.split(",")]
    if build_loss(losses[0]).needs_start:
        losses.insert(0, "Sequential")
    return losses


def build_loss(name: str) -> Loss:
    """Create a loss from its short name, e.g. SoftmaxMargin, with the Hamming cost if it uses a
    cost."""
    block = make_loss([name], HAMMING)
    loss: Loss = registry.resolve({"loss": block})["loss"]
    return loss


def make_loss(
    losses: Sequence[str],
    cost: Any = None,
    *,
    multiplier: float = 1.0,
    epochs: Sequence[float] = (),
) -> Block:
    """Create the block of a loss or of a schedule of losses, with the recommended settings.

    losses (Sequence[str]): The short name of the loss, or of each loss of the schedule.
    cost (Any): The block of the cost, or a variable such as ${components.ner.scorer.cost}. If None,
        the Hamming cost is used.
    multiplier (float): Factor for the recommended score per unit of cost.
    epochs (Sequence[float]): The epochs after which each loss of a schedule except the last ends:
        see `choose_epochs`.
    """
    blocks = [make_single_loss(name, cost, multiplier) for name in losses]
    if len(blocks) == 1:
        return blocks[0]
    # Each loss of a schedule is a subsection of the schedule's block. The losses run in order.
    stage_names = ["first", "then"]
    if len(blocks) > 2:
        stage_names = [f"loss_{i}" for i in range(1, len(blocks) + 1)]
    stages = dict(zip(stage_names, blocks))
    return {"@losses": SCHEDULE, "epochs": [*epochs], "*": stages}


def make_single_loss(loss: str, cost: Any, multiplier: float) -> Block:
    """Create the block of a single loss, with the recommended settings and the defaults of its
    factory. The score per unit of cost is multiplied by `multiplier`. If no cost is given, losses
    that require one use the Hamming cost."""
    name = f"spacy_costner.{loss}.v1"
    parameters = signature(registry.losses.get(name)).parameters
    block: Block = {"@losses": name}
    for parameter in parameters.values():
        # The default is None for the cost, which is added below, and for two settings of Mixed,
        # only one of which may be set (see `RECOMMENDED`).
        if parameter.default is not None:
            block[parameter.name] = parameter.default
    block.update(RECOMMENDED.get(loss, {}))
    # The score per unit of cost is called "multiplier" in some losses and "alpha" in others.
    for setting in ("multiplier", "alpha"):
        if setting in block:
            block[setting] = round_to_two_digits(block[setting] * multiplier)
    if "cost" in parameters:
        if cost is not None:
            block["cost"] = cost
        elif loss != "Mixed":  # the cost is optional for Mixed
            block["cost"] = HAMMING
    return block


def round_to_two_digits(value: float) -> float:
    """Round to two significant digits, e.g. 0.0123 to 0.012."""
    return float(f"{value:.2g}")


def choose_multiplier(
    cost: Block | None, files: Mapping[str, str], corpus: CorpusStatistics
) -> float:
    """Choose a factor for the loss setting that scales the costs: 0.5 with a label tree, and 1
    otherwise. The factor is reduced if the score of the most expensive mistake would exceed
    `HIGHEST_SCORE`.

    cost (Block | None): The block of the cost. None if mistakes have no cost.
    files (Mapping[str, str]): The cost files: see `GivenCosts`.
    corpus (CorpusStatistics): The statistics of the training corpus, which determine the labels.
    """
    multiplier = 0.5 if "tree" in files else 1.0
    if cost is None:
        return multiplier
    highest_cost = find_highest_cost(cost, files, corpus.label_counts)
    if multiplier * highest_cost > HIGHEST_SCORE:
        return round_to_two_digits(HIGHEST_SCORE / highest_cost)
    return multiplier


def count_needed_epochs(n_losses: int, first_epochs: int = FIRST_EPOCHS) -> int:
    """Return the number of epochs that the losses of a schedule need, or a single loss."""
    return first_epochs + LATER_EPOCHS * (n_losses - 1)


def choose_epochs(losses: Sequence[str], n_epochs: float) -> list[float]:
    """Choose the epochs after which each loss of a schedule ends. The last loss has no end, so the
    result contains one value fewer than `losses`.

    Each loss after the first is used for `LATER_EPOCHS`, and the first loss for the remaining
    epochs. If training is too short for that, all losses are used equally long.

    losses (Sequence[str]): The short names of the losses.
    n_epochs (float): The number of epochs in training, above 0.
    """
    later_epochs = min(LATER_EPOCHS, n_epochs / len(losses))
    n_later_losses = len(losses) - 1
    first_end = n_epochs - later_epochs * n_later_losses
    # Round to avoid values such as 2.6666666666666665.
    return [round(float(first_end + later_epochs * i), 6) for i in range(n_later_losses)]
