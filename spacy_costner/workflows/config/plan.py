"""All choices for a config."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .corpus_statistics import TrainingCorpus
from .cost_blocks import Costs
from .init_options import Decoding, Model
from .loss_blocks import build_loss


@dataclass(frozen=True)
class Plan:
    """All choices for a config: those that the arguments of `init` make, and those that they leave
    open. The template uses the fields of `Plan` and `Settings` by their names."""

    # The file, and the command that makes it
    config_path: Path
    command: str

    # The corpora
    train_path: Path | None
    dev_path: Path | None
    corpus: TrainingCorpus
    reading: Mapping[str, Any]  # the settings of the readers

    # The pipeline
    lang: str
    model: Model
    transformer: str | None  # None: the one that spaCy recommends for the language
    vectors: str | None  # a package or folder with static vectors
    groups: Mapping[str, list[str]]  # the labels of each component; empty if no spans may overlap
    spans_key: str | None  # the key of `doc.spans` for spans that may overlap

    # Training and decoding
    aim: str
    costs: Costs
    losses: Sequence[str]
    has_loss_option: bool  # whether an option names the losses
    decoding: Decoding
    inner_nodes: bool


def check_choices(
    aim: str, losses: Sequence[str], decoding: str, costs: Costs, *, inner_nodes: bool
) -> None:
    """Check that no choice makes another one pointless or impossible.

    aim (str): What should be best: see `init`.
    losses (Sequence[str]): The names of the losses, in order.
    decoding (str): How entities are chosen: see `Decoding`.
    costs (Costs): What mistakes cost.
    inner_nodes (bool): Whether inner nodes of the label tree are predicted, too.
    RAISES (ValueError): If a choice does so.
    """
    if decoding == "min-cost" and aim != "cost":
        raise ValueError(
            "`decoding`: expected min-cost with `aim` cost only: `costner tune` would replace it, "
            "and `costner guarantee` chooses a set of spans"
        )

    # Some options are pointless if scores are not probabilities after training.
    option_of_probabilities = None
    if aim == "guarantee":
        option_of_probabilities = "`aim` guarantee"
    elif decoding != "viterbi":
        option_of_probabilities = f"`decoding` {decoding}"
    if option_of_probabilities is not None and not build_loss(losses[-1]).has_probabilities:
        raise ValueError(
            f"`loss`: expected a loss such as Sequential with {option_of_probabilities}, got "
            f"{losses[-1]}: its scores are not probabilities"
        )

    # A cost is used by a loss or by the aim. A tree is used by the scorer, whatever the loss.
    has_cost_in_training = any(build_loss(name).cost for name in losses)
    is_cost_used = has_cost_in_training or aim == "cost" or "tree" in costs.blocks
    if costs.blocks and not is_cost_used:
        raise ValueError(
            f"`loss`: expected a loss that takes a cost, or `aim` cost, got {', '.join(losses)}: "
            "nothing would use what you say mistakes cost"
        )

    if inner_nodes and (decoding != "min-cost" or "tree" not in costs.blocks):
        raise ValueError("`inner_nodes`: expected `tree_path` and `decoding` min-cost with it")
