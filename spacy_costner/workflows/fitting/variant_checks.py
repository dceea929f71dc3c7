"""Check that the variants of `compare` differ as their names say.

Overrides apply to all variants, and swept settings to all losses, so they can replace the settings
in which the variants differ.
"""

from collections.abc import Mapping, Sequence
from typing import Any

SEED_SETTINGS = ("system.seed", "training.seed")
"""The settings of the random seed. Each variant sets them to its seed."""


def check_seeds(overrides: Mapping[str, Any], sweep: Mapping[str, Sequence[Any]]) -> None:
    """Check that no setting replaces the seeds of the variants. For the arguments, see
    `make_variants`."""
    for setting, value in [*overrides.items(), *sweep.items()]:
        if setting in SEED_SETTINGS:
            raise ValueError(f"{setting}: expected random seeds in `seeds`, got {value!r}")


def check_sweep(overrides: Mapping[str, Any], sweep: Mapping[str, Sequence[Any]]) -> None:
    """Check that swept settings, their blocks and their subsections aren't overridden. For the
    arguments, see `make_variants`."""
    for setting, value in overrides.items():
        for swept_setting in sweep:
            if _overlap(setting, swept_setting):
                raise ValueError(
                    f"{setting}: expected either one value for all variants, or values in `sweep` "
                    f"({swept_setting}), got both: {value!r}"
                )


def check_loss(
    loss_block: str, overrides: Mapping[str, Any], sweep: Mapping[str, Sequence[Any]]
) -> None:
    """Check that no setting replaces all compared losses with the same loss. Other settings of
    losses can be changed. `loss_block` is the name of the block, such as "components.ner.loss". For
    the other arguments, see `make_variants`."""
    for setting, value in [*overrides.items(), *sweep.items()]:
        if setting in (loss_block, f"{loss_block}.@losses"):
            raise ValueError(f"{setting}: expected losses in `losses`, got {value!r}")


def _overlap(setting: str, other: str) -> bool:
    """Whether two settings are the same, or one of them is in the block of the other."""
    return f"{setting}.".startswith(f"{other}.") or f"{other}.".startswith(f"{setting}.")
