"""The progress and the stopping rule of a minimisation."""

from typing import List, NamedTuple, Optional

from thinc.types import Floats1d

from ..progress import progress
from .online import OnStep, Step

PERIOD = 10
"""Iterations over which improvement is measured; CRFsuite's default, too."""


class Minimum(NamedTuple):
    """The result of a minimisation.

    vector (Floats1d): The best vector found.
    value (float): The objective there.
    n_iterations (int): Iterations.
    n_evaluations (int): How often the objective was computed, or its matrix multiplied.
    reason (str): Why it ended.
    """

    vector: Floats1d
    value: float
    n_iterations: int
    n_evaluations: int
    reason: str

    def describe(self) -> str:
        """In words."""
        return (
            f"{self.reason}: {self.n_iterations} iterations, {self.n_evaluations} evaluations, "
            f"objective {self.value:.6g}"
        )


class Convergence:
    """The iterations so far."""

    def __init__(self, tolerance: float, on_step: OnStep, max_iter: Optional[int] = None) -> None:
        """Begin.

        tolerance (float): Improvement counts as none when the last ten iterations made the
            value smaller by less than this share of it; CRFsuite's `delta`.
        on_step (Callable): Called after each iteration.
        max_iter (Optional[int]): The maximum number of iterations, to show progress.
        """
        self.tolerance = tolerance
        self.on_step = on_step
        self.values: List[float] = []
        self.bar = progress(desc="fit", unit="it", total=max_iter)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def value(self) -> float:
        """The objective after the last iteration."""
        return self.values[-1] if self.values else float("nan")

    def add(self, value: float, slope: float) -> None:
        """Record an iteration."""
        self.values.append(value)
        self.bar.set_postfix(objective=f"{value:.6g}", slope=f"{slope:.2g}", refresh=False)
        self.bar.update()
        self.on_step(Step(len(self.values), value, slope))

    @property
    def has_settled(self) -> bool:
        """Whether the last iterations improved nothing."""
        if len(self.values) <= PERIOD:
            return False
        return self.values[-1 - PERIOD] - self.value < self.tolerance * abs(self.value)
