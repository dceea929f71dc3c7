"""Blocks of a config, and the short names of the registered functions in them."""

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
    """Find the short name of a registered loss or cost. For example, it is SoftmaxMargin for
    softmax_margin, softmax-margin and spacy_costner.SoftmaxMargin.v1.

    kind (Literal["Loss", "Cost"]): Whether it is a loss or a cost.
    text (str): The name as the user typed it.
    other_choices (Sequence[str]): What the parameter also takes, for the error.
    option (str | None): The parameter with the text, for the error. None: `loss` or `cost`.
    RETURNS (str): The short name.
    RAISES (ValueError): If there is no such loss or cost. The message has all names.
    """
    # The patterns capture the short name. They leave out what can't be named here: a schedule,
    # which is given as several losses, and costs with files, which have their own parameters.
    if kind == "Loss":
        group = "thinc_losses"
        pattern = r"spacy_costner\.(?!Schedule)(\w+)\.v1"
    else:
        group = "spacy_misc"
        pattern = r"spacy_costner\.((?!Hierarchical|Matrix|Sum)\w+)Cost\.v1"
    short_names: dict[str, str] = {}  # The keys are in lower case.
    for entry_point in entry_points(group=group):
        match = re.fullmatch(pattern, entry_point.name)
        if match is not None:
            short_name = match[1]
            short_names[short_name.lower()] = short_name

    # Remove "spacy_costner." and "Cost.v1" around the name, and what separates its words.
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
