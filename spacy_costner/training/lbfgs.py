"""Batch training of the linear model: the loss over all examples, minimised by L-BFGS."""

import warnings
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy
from spacy.training import Example
from thinc.api import Model
from thinc.types import Floats1d, Ints2d

from .. import sparse
from ..ml import find_features, linear_part
from ..progress import progress
from ..tags import Tags
from ..types import Potentials, Progress
from ..validation import require
from .objective import Objective
from .targets import Targets

BATCH_SIZE = 256
"""Number of docs that are scored together, to bound the memory of the chain's messages."""

MEMORIES, PERIOD = 6, 10
"""Earlier steps that L-BFGS remembers, and the iterations over which improvement is measured;
CRFsuite's defaults, too."""

VECTORS, COPIES = 22, 4
"""About the vectors of all weights that L-BFGS keeps, in float64, and the arrays of all features
while those that occur together are merged, in int32."""

MEMINFO = Path("/proc/meminfo")


class TotalLoss:
    """The loss over all examples with a penalty, as a function of one vector of D numbers.

        f(w) = sum over the examples of the loss + c2 |w|^2

    The penalty is that of CRFsuite. Docs are read once. Features that always occur together share a
    part of the vector: see `sparse.Merged`. The vector is in float64, scores are in float32.
    """

    def __init__(
        self,
        model: Model,
        objective: Objective,
        tags: Tags,
        examples: Sequence[Example],
        *,
        c2: float,
    ) -> None:
        """Read the examples. The model is linear and knows its features."""
        self.objective, self.tags, self.c2 = objective, tags, c2
        self.features, self.weights = linear_part(model)
        rows = find_features(model, [eg.predicted for eg in examples], is_train=True).rows
        self.merged = sparse.merge_equal(rows, self.weights.n_features)
        self.shape = (len(self.merged.roots) + self.weights.n_tags + 2, self.weights.n_tags)
        self.batches: List[Tuple[Ints2d, Targets]] = []
        is_ratio, end = objective.loss.at(Progress()).is_ratio, 0
        size = len(examples) if is_ratio else BATCH_SIZE
        for i in range(0, len(examples), size):
            targets = objective.targets(examples[i : i + size], tags)
            begin, end = end, end + int(targets.lengths.sum())
            self.batches.append((self.merged.rows[begin:end], targets))

    def __call__(self, vector: Floats1d) -> Tuple[float, Floats1d]:
        """Compute the function and its gradient, (D,), in float64."""
        self.objective.loss.at(Progress()).forget()
        value = self.c2 * float(vector @ vector)

        def gradients() -> Iterator[Potentials]:
            nonlocal value
            for scores, (_, targets) in zip(self.score(vector), self.batches):
                result, _ = self.objective.evaluate(targets, scores, Progress())
                value += result.value
                yield result.gradient

        gradient = self.sum_gradients(gradients()) + 2 * self.c2 * vector
        return value, gradient

    def score(self, vector: Floats1d) -> Iterator[Potentials]:
        """Compute the scores of each batch with the weights of a vector, (D,)."""
        n_groups = len(self.merged.roots)
        weights = vector.reshape(self.shape).astype("float32")
        weights[:n_groups] *= self.merged.roots[:, None]
        for rows, targets in self.batches:
            yield Potentials(
                emissions=sparse.sum_rows(rows, weights),
                transitions=weights[n_groups:-2],
                start=weights[-2],
                end=weights[-1],
                lengths=targets.lengths,
            )

    def sum_gradients(self, gradients: Iterable[Potentials]) -> Floats1d:
        """Sum the gradients with respect to the scores of batches into one for the vector, (D,)."""
        n_groups, sums = len(self.merged.roots), numpy.zeros(self.shape)
        for (rows, _), gradient in zip(self.batches, gradients):
            emissions = numpy.ascontiguousarray(gradient.emissions, dtype="float32")
            sparse.add_rows(rows, emissions, sums)
            sums[n_groups:-2] += gradient.transitions
            sums[-2] += gradient.start
            sums[-1] += gradient.end
        sums[:n_groups] *= self.merged.roots[:, None]
        return sums.reshape(-1)

    def read_weights(self) -> Floats1d:
        """The vector that is closest to the weights of the model, (D,)."""
        n_features, rows = self.weights.n_features, self.weights.rows.astype("float64")
        groups = self.merged.merge(rows[:n_features])
        return numpy.concatenate([groups, rows[n_features:]]).reshape(-1)

    def write_weights(self, vector: Floats1d) -> None:
        """Set the weights of the model from a vector, (D,)."""
        n_groups, vectors = len(self.merged.roots), vector.reshape(self.shape)
        features = self.merged.spread(vectors[:n_groups])
        self.weights.rows[:] = numpy.concatenate([features, vectors[n_groups:]])


class Minimum(NamedTuple):
    """The result of a minimisation: the best vector, the objective there, and why it ended."""

    vector: Floats1d
    value: float
    n_iterations: int
    n_evaluations: int
    reason: str

    def describe(self) -> str:
        """A line of text."""
        return (
            f"{self.reason}: {self.n_iterations} iterations, {self.n_evaluations} evaluations, "
            f"objective {self.value:.6g}"
        )


def minimise(
    function: Callable[[Floats1d], Tuple[float, Floats1d]],
    start: Floats1d,
    *,
    max_iter: Optional[int] = None,
    tolerance: float = 1e-5,
) -> Minimum:
    """Minimise a function by L-BFGS, from a start, (D,), until it converges or is stopped: after
    a KeyboardInterrupt the best vector so far is returned.

    function (Callable): Takes a vector to value and gradient.
    tolerance (float): It ends when the last ten iterations made the value smaller by less than this
        share of it; CRFsuite's `delta`.
    RAISES (ImportError): If SciPy is missing.

    Liu & Nocedal (1989).
    """
    solve = require_scipy().minimize
    best, values, n_evaluations, slope, at_start = start, [], 0, 0.0, float("nan")
    bar = progress(desc="fit", unit="it", total=max_iter)

    def evaluate(vector: Floats1d) -> Tuple[float, Floats1d]:
        nonlocal n_evaluations, slope, at_start
        value, gradient = function(vector)
        at_start = at_start if n_evaluations else value
        n_evaluations += 1
        slope = float(numpy.abs(gradient).max(initial=0))
        return value, gradient

    def after_iteration(intermediate_result: Any) -> None:
        nonlocal best
        best = intermediate_result.x.copy()
        values.append(float(intermediate_result.fun))
        bar.set_postfix(objective=f"{values[-1]:.6g}", slope=f"{slope:.2g}", refresh=False)
        bar.update()
        if has_settled(values, tolerance):
            raise StopIteration

    reason, most = "interrupted", 10**9 if max_iter is None else max_iter
    options = {"maxcor": MEMORIES, "ftol": 0.0, "maxfun": 10**9, "maxiter": most}
    try:
        result = solve(
            evaluate, start, jac=True, method="L-BFGS-B", callback=after_iteration, options=options
        )
        reason = str(result.message)
        if len(values) >= most:
            reason = "iterations used up"
        elif "ABNORMAL" in reason:
            reason = "converged as far as the scores are exact"
        elif "StopIteration" in reason or "CONVERGENCE" in reason:
            reason = "converged"
    except KeyboardInterrupt:
        pass
    bar.close()
    return Minimum(best, values[-1] if values else at_start, len(values), n_evaluations, reason)


def has_settled(values: Sequence[float], tolerance: float) -> bool:
    """Whether the last iterations made the value smaller by less than a share of it."""
    return len(values) > PERIOD and values[-1 - PERIOD] - values[-1] < tolerance * abs(values[-1])


def require_scipy() -> Any:
    """SciPy's `optimize`."""
    return require("scipy.optimize", "fit", "fit: expected SciPy, it is not installed")


def batch_memory(model: Model, n_tokens: int) -> int:
    """About the most bytes that training on all examples at once needs besides the docs."""
    features, weights = linear_part(model)
    of_features = 4 * features.n_slots * n_tokens
    return max(COPIES * of_features, of_features + 8 * VECTORS * weights.rows.size)


def warn_of_memory(model: Model, n_tokens: int) -> None:
    """Warn if less memory is free or can be freed than training needs, where the system tells."""
    n_bytes, available = batch_memory(model, n_tokens), available_memory()
    if available is not None and available < n_bytes:
        warnings.warn(
            f"fit: expected {n_bytes / 1e9:.1f} GB of memory to train on all examples at once, got "
            f"{available / 1e9:.1f} GB: --online needs less, and --online --cache least",
            stacklevel=2,
        )


def check_memory(model: Model, tags: Tags, name: str) -> None:
    """Raise a ValueError if weights don't fit in memory and swap, where the system tells, before
    they are made. Each has four numbers in float32: itself, and what an optimizer keeps of it."""
    n_features = len(linear_part(model)[0]) if "build_vocab" in model.attrs else 0
    n_tags = len(tags)
    n_bytes = 16 * (n_features + n_tags + 2) * n_tags
    available = available_memory("SwapFree")
    if available is not None and available < n_bytes:
        raise ValueError(
            f"{name}: labels: expected weights that fit in {available / 1e9:.1f} GB of memory, got "
            f"{len(tags.labels):,} labels, that is {n_tags:,} tags, and {n_features:,} features, "
            f"whose weights need {n_bytes / 1e9:.1f} GB"
        )


def available_memory(*others: str) -> Optional[int]:
    """The bytes of memory that are free or can be freed, and those of other kinds such as free
    swap. None if the system doesn't tell."""
    lines = MEMINFO.read_text().splitlines() if MEMINFO.exists() else []
    sizes = dict(line.split(":", 1) for line in lines)
    if "MemAvailable" not in sizes:
        return None
    return 1024 * sum(int(sizes.get(k, "0 kB").split()[0]) for k in ("MemAvailable", *others))
