"""A schedule of losses: training minimises one loss first, then another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..types import Loss, Progress


def make_schedule(
    *losses: Loss, steps: Sequence[int] = (), epochs: Sequence[float] = ()
) -> "LossSchedule":
    """Build a schedule of losses, for example a likelihood first, then a loss that is not convex.
    Set either steps or epochs.

    *losses (Loss): The losses, two or more, in the order of training.
    steps (Sequence[int]): For each loss but the last one the number of updates, counted from the
        beginning of training, after which it ends.
    epochs (Sequence[float]): The same in passes over the training data.
    RAISES (ValueError): If an argument is not a loss (or is a schedule), if there are fewer than
        two losses, if there isn't one end for each loss but the last one, if ends don't increase
        from above 0 or aren't finite, or if both steps and epochs are set.
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
    """A sequence of losses, used instead of a `Loss`.

    stages (tuple[Loss, ...]): The losses, in the order of training.
    ends (tuple[float, ...]): Where each loss but the last one ends, counted from the beginning of
        training.
    unit (str): What `ends` counts: "steps" or "epochs".
    """

    stages: tuple[Loss, ...]
    ends: tuple[float, ...]
    unit: str

    def stage_at(self, progress: Progress) -> Loss:
        """Return the loss to minimise at this point of training."""
        n_done: float = progress.passes
        if self.unit == "steps":
            n_done = progress.steps
        n_ended_stages = sum(end <= n_done for end in self.ends)
        return self.stages[n_ended_stages]
