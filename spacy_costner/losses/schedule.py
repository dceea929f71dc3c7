"""One loss first, then another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..types import Loss, Progress


def make_schedule(
    *losses: Loss, steps: Sequence[int] = (), epochs: Sequence[float] = ()
) -> "LossSchedule":
    """Build a schedule of losses, for example a likelihood first, then a loss that is not convex.

    *losses (Loss): The losses, first to last.
    steps (Sequence[int]): Number of updates after which each loss but the last ends.
    epochs (Sequence[float]): Number of passes over the training data after which each loss but
        the last ends, in place of steps.
    RAISES (ValueError): If an argument is not a loss (or is a schedule), if the number of ends
        is not that of the losses minus 1, if they don't increase, or if both kinds are given.
    """
    where = "spacy_costner.Schedule"
    for loss in losses:
        if not isinstance(loss, Loss):
            raise ValueError(f"{where}: expected losses, got {loss!r}")
    unit = "steps"
    ends: Sequence[float] = steps
    if epochs:
        unit = "epochs"
        ends = epochs
    if len(losses) < 2 or (steps and epochs) or len(ends) != len(losses) - 1:
        expected = "two losses or more, and either steps or epochs with one number less"
        got = f"{len(losses)} losses, steps={steps!r}, epochs={epochs!r}"
        raise ValueError(f"{where}: expected {expected}, got {got}")
    is_growing = all(begin < end < math.inf for begin, end in pairwise([0, *ends]))
    if not is_growing:
        raise ValueError(f"{where}: {unit}: expected growing numbers above 0, got {ends!r}")
    return LossSchedule(losses, tuple(ends), unit)


@dataclass(frozen=True)
class LossSchedule:
    """A sequence of losses, used in place of a `Loss`.

    stages (tuple[Loss, ...]): The losses, first to last.
    ends (tuple[float, ...]): Where each but the last one ends.
    unit (str): What `ends` counts: "steps" or "epochs".
    """

    stages: tuple[Loss, ...]
    ends: tuple[float, ...]
    unit: str

    def stage_at(self, progress: Progress) -> Loss:
        """The loss to minimise at this point of training."""
        n_done: float = progress.passes
        if self.unit == "steps":
            n_done = progress.steps
        n_ended = sum(end <= n_done for end in self.ends)
        return self.stages[n_ended]
