"""Config blocks, and the short names of their registered functions."""

import re
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any, Literal

Block = dict[str, Any]
"""A block of a config."""


def find_name(
    kind: Literal["Loss", "Cost"],
    text: str,
    *,
    other_choices: Sequence[str] = (),
    option: str | None = None,
) -> str:
    """Find the short name of a registered loss or cost. For example, softmax_margin, softmax-margin
    and spacy_costner.SoftmaxMargin.v1 all have the short name SoftmaxMargin.

    kind (Literal["Loss", "Cost"]): Whether to search for a loss or a cost.
    text (str): The name provided by the user.
    other_choices (Sequence[str]): Other values that the parameter accepts, for the error message.
    option (str | None): The name of the parameter, for the error message. Defaults to `loss` or
        `cost`.
    RETURNS (str): The short name.
    RAISES (ValueError): If no loss or cost has this name. The message lists all names.
    """
    # The patterns capture the short name. They exclude functions that are set in other ways:
    # schedules, which are given as several losses, and costs that are created from files or from
    # several costs.
    if kind == "Loss":
        group = "thinc_losses"
        pattern = r"spacy_costner\.(?!Schedule)(\w+)\.v1"
    else:
        group = "spacy_misc"
        pattern = r"spacy_costner\.((?!Hierarchical|Matrix|Sum)\w+)Cost\.v1"
    short_names: dict[str, str] = {}  # keyed by the name in lower case
    for entry_point in entry_points(group=group):
        match = re.fullmatch(pattern, entry_point.name)
        if match is not None:
            short_name = match[1]
            short_names[short_name.lower()] = short_name

    # Remove the prefix "spacy_costner.", the suffix "Cost.v1", and separators between words.
    typed_name = re.sub(r"^spacy_costner\.|(cost)?(\.v1)?$|[ _-]", "", text.strip().lower())
    if typed_name not in short_names:
        if option is None:
            option = f"`{kind.lower()}`"
        choices = ", ".join([*short_names.values(), *other_choices])
        message = f"{option}: expected one of {choices}, got {text!r}"
        if typed_name == "schedule":
            message += ": separate losses by commas for a schedule"
        raise ValueError(message)
    return short_names[typed_name]
