"""A schedule of losses: training minimises several losses, one after another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..types import Loss, Progress


def make_schedule(
    *losses: Loss, steps: Sequence[int] = (), epochs: Sequence[float] = ()
) -> "LossSchedule":
    """Create a schedule of losses, for example a likelihood followed by a non-convex loss. Either
    steps or epochs must be set.

    *losses (Loss): Two or more losses, in training order.
    steps (Sequence[int]): For each loss except the last one, the number of updates after which it
        ends, counted from the beginning of training.
    epochs (Sequence[float]): For each loss except the last one, the number of passes over the
        training data after which it ends, counted from the beginning of training.
    RAISES (ValueError): If an argument is not a loss (or is a schedule), if there are fewer than
        two losses, if the number of ends isn't one less than the number of losses, if the ends
        aren't finite, positive and increasing, or if both steps and epochs are set.
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
        expected = "at least two losses, and either steps or epochs with one number fewer"
        got = f"{len(losses)} losses, steps={steps!r}, epochs={epochs!r}"
        raise ValueError(f"{where}: expected {expected}, got {got}")
    is_growing = all(begin < end < math.inf for begin, end in pairwise([0, *ends]))
    if not is_growing:
        raise ValueError(f"{where}: {unit}: expected increasing numbers above 0, got {ends!r}")
    return LossSchedule(losses, tuple(ends), unit)


@dataclass(frozen=True)
class LossSchedule:
    """A sequence of losses that can be used instead of a single `Loss`.

    stages (tuple[Loss, ...]): The losses, in training order.
    ends (tuple[float, ...]): The end of each loss except the last one, counted from the beginning
        of training.
    unit (str): The unit of `ends`: "steps" or "epochs".
    """

    stages: tuple[Loss, ...]
    ends: tuple[float, ...]
    unit: str

    def stage_at(self, progress: Progress) -> Loss:
        """Return the loss to minimise at this point in training."""
        n_done: float = progress.passes
        if self.unit == "steps":
            n_done = progress.steps
        n_ended_stages = sum(end <= n_done for end in self.ends)
        return self.stages[n_ended_stages]
