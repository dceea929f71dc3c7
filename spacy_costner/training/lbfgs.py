"""Training of the linear model on all examples at once: the loss over them, minimised by L-BFGS."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy
from spacy.training import Example
from thinc.api import Model
from thinc.types import Floats1d, Floats2d, Ints2d

from .. import sparse
from ..ml import find_features, linear_part
from ..progress import progress
from ..tags import Tags
from ..types import Potentials, Progress, map_scores
from .objective import Objective
from .online import INTERRUPTED, Trained
from .targets import Targets

BATCH_SIZE = 256
"""Number of docs that are scored together, to bound the memory of the chain's messages."""

MEMORIES, PERIOD = 6, 10
"""Earlier steps that L-BFGS remembers, and the iterations over which improvement is measured;
CRFsuite's defaults, too."""

ENOUGH, MOST_HALVES = 1e-4, 20
"""The share of the expected decrease that a step has to make (Armijo), and how often it is halved
until it does."""

MANY_LABELS, C2, C2_OF_MANY = 20, 0.1, 1.0
"""Above this number of labels the penalty is the second one."""

TOLERANCE, MOST_ITERATIONS = 1e-3, 60
"""Where `train_at_once` ends. More makes no model better: see docs/linear.md."""

AT_ONCE = "trained on all docs at once, as they are few"

MEMINFO = Path("/proc/meminfo")


class TotalLoss:
    """The loss over all examples with a penalty, as a function of one vector of D numbers.

        f(w) = sum over the examples of the loss + c2 |w|^2

    The penalty is that of CRFsuite. The loss of a doc with borders is the mean of two: as one
    sequence, and as those between its borders. Docs are read once. Features that always occur
    together share a part of the vector: see `sparse.Merged`. The vector is in float64, scores are
    in float32.
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
        """Read the examples for a linear model that knows its features, with the tags of the chain,
        or the same with a single O."""
        self.objective, self.tags, self.c2 = objective, tags, c2
        self.features, self.weights = linear_part(model)
        rows = find_features(model, [eg.predicted for eg in examples], is_train=True).rows
        self.merged = sparse.merge_equal(rows, self.weights.n_features)
        self.shape = (len(self.merged.roots) + len(tags) + 2, len(tags))
        self.batches: list[tuple[Ints2d, Targets, float]] = []
        is_ratio, end = objective.loss.stage_at(Progress()).is_ratio, 0
        size = len(examples) if is_ratio else BATCH_SIZE
        for i in range(0, len(examples), size):
            turns = objective.turns(examples[i : i + size], tags)
            begin, end = end, end + int(turns[0].lengths.sum())
            batch = self.merged.rows[begin:end]
            self.batches += [(batch, targets, 1 / len(turns)) for targets in turns]

    def __call__(self, vector: Floats1d) -> tuple[float, Floats1d]:
        """Compute the function and its gradient, (D,), in float64."""
        self.objective.loss.stage_at(Progress()).forget()
        value = self.c2 * float(vector @ vector)

        def gradients() -> Iterator[Potentials]:
            nonlocal value
            for scores, (_, targets, share) in zip(self.score(vector), self.batches):
                result, _ = self.objective.evaluate(targets, scores, Progress())
                value += share * result.value
                yield map_scores(partial(numpy.multiply, share), result.gradient)

        gradient = self.sum_gradients(gradients()) + 2 * self.c2 * vector
        return value, gradient

    def score(self, vector: Floats1d) -> Iterator[Potentials]:
        """Compute the scores of each batch with the weights of a vector, (D,)."""
        n_groups = len(self.merged.roots)
        weights = vector.reshape(self.shape).astype("float32")
        weights[:n_groups] *= self.merged.roots[:, None]
        others = weights[n_groups:-2], weights[-2], weights[-1]
        for rows, targets, _ in self.batches:
            yield Potentials(sparse.sum_rows(rows, weights), *others, targets.lengths)

    def sum_gradients(self, gradients: Iterable[Potentials]) -> Floats1d:
        """Sum the gradients with respect to the scores of batches into one for the vector, (D,)."""
        n_groups, sums = len(self.merged.roots), numpy.zeros(self.shape)
        for (rows, _, _), gradient in zip(self.batches, gradients):
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
        self.weights.rows[:] = self.to_rows(vector)

    def to_rows(self, vector: Floats1d) -> Floats2d:
        """The weights that a vector, (D,), stands for. Shape: (V + K + 2, K)"""
        n_groups, vectors = len(self.merged.roots), vector.reshape(self.shape)
        features = self.merged.spread(vectors[:n_groups])
        return numpy.concatenate([features, vectors[n_groups:]])


def train_at_once(
    model: Model, objective: Objective, tags: Tags, examples: Sequence[Example]
) -> Trained:
    """Train the weights of a linear model on all examples at once, from weights of 0. If O is
    split, they are trained a second time with a single O, and become the mean of both. Each
    evaluation of the loss is an epoch of one step. The value is the objective of the last training,
    per token."""
    c2 = C2 if len(tags.labels) <= MANY_LABELS else C2_OF_MANY
    rows: list[Floats2d] = []
    n_epochs, value = 0, 0.0
    for own in [tags, tags.collapsed] if tags.is_split else [tags]:
        total = TotalLoss(model, objective, own, examples, c2=c2)
        start = numpy.zeros(total.shape).reshape(-1)
        found = minimise_by_lbfgs(total, start, max_iter=MOST_ITERATIONS, tolerance=TOLERANCE)
        n_epochs += found.n_evaluations
        if found.reason != INTERRUPTED or not rows:
            own_rows = total.to_rows(found.vector)
            rows.append(own_rows if own is tags else of_split(own_rows, tags))
            value = found.value / max(sum(len(eg.predicted) for eg in examples), 1)
        if found.reason == INTERRUPTED:
            break
    linear_part(model)[1].restart(numpy.mean(rows, axis=0))
    reason = INTERRUPTED if found.reason == INTERRUPTED else AT_ONCE
    return Trained(value, n_epochs, n_epochs, reason, Progress(n_epochs, n_epochs))


def of_split(rows: Floats2d, tags: Tags) -> Floats2d:
    """Weights with a single O as weights of tags that split it: scores of paths are the same.
    Shape: (V + L + 2, L) to (V + K + 2, K)"""
    of = tags.collapsed_of
    n_features = len(rows) - len(tags.collapsed) - 2
    below = rows[n_features:]
    return numpy.concatenate([rows[:n_features], below[of], below[-2:]])[:, of]


class Minimum(NamedTuple):
    """The result of a minimisation: the best vector, the objective there, and why it ended."""

    vector: Floats1d
    value: float
    n_iterations: int
    n_evaluations: int
    reason: str


def minimise_by_lbfgs(
    function: Callable[[Floats1d], tuple[float, Floats1d]],
    start: Floats1d,
    *,
    max_iter: int | None = None,
    tolerance: float = 1e-5,
) -> Minimum:
    """Minimise a function by L-BFGS, from a start, (D,), until it converges or is stopped: after
    a KeyboardInterrupt the best vector so far is returned.

    A direction is the gradient times an estimate of the inverse Hessian, from the last steps s and
    the changes y of the gradient (two loops). Steps are halved until they make the value smaller.
    It ends when the last ten iterations made the value smaller by less than the share `tolerance`
    of it; CRFsuite's `delta`.

    Nocedal & Wright (2006), algorithms 7.4 and 3.1.
    """
    vector, values, n_evaluations, reason = start, [float("nan")], 0, "converged"
    steps: list[tuple[Floats1d, Floats1d]] = []
    bar = progress(desc="train", unit="it", total=max_iter)
    try:
        values[0], gradient = function(vector)
        n_evaluations = 1
        while gradient.any() and not has_settled(values, tolerance):
            if max_iter is not None and len(values) > max_iter:
                reason = "iterations used up"
                break
            direction, shares = -gradient, []
            for s, y in reversed(steps):
                shares.append(float(s @ direction) / float(s @ y))
                direction -= shares[-1] * y
            if steps:
                s, y = steps[-1]
                direction *= float(s @ y) / float(y @ y)
            else:
                direction /= max(1.0, float(numpy.linalg.norm(direction)))
            for s, y in steps:
                direction += (shares.pop() - float(y @ direction) / float(s @ y)) * s
            slope = float(gradient @ direction)
            for size in 0.5 ** numpy.arange(MOST_HALVES):
                after = vector + size * direction
                value, new_gradient = function(after)
                n_evaluations += 1
                if value <= values[-1] + ENOUGH * size * slope:
                    break
            else:
                reason = "converged as far as the scores are exact"
                break
            s, y = after - vector, new_gradient - gradient
            if s @ y > 1e-10 * (y @ y):  # otherwise the estimate would not be positive definite
                steps = [*steps[1 - MEMORIES :], (s, y)]
            vector, gradient = after, new_gradient
            values.append(value)
            bar.set_postfix(objective=f"{value:.6g}", refresh=False)
            bar.update()
    except KeyboardInterrupt:
        reason = INTERRUPTED
    bar.close()
    return Minimum(vector, values[-1], len(values) - 1, n_evaluations, reason)


def has_settled(values: Sequence[float], tolerance: float) -> bool:
    """Whether the last iterations made the value smaller by less than a share of it."""
    return len(values) > PERIOD and values[-1 - PERIOD] - values[-1] < tolerance * abs(values[-1])


def check_memory(model: Model, tags: Tags, name: str) -> None:
    """Raise a ValueError if weights don't fit in memory and swap, where the system tells, before
    they are made. Each has four numbers in float32: itself, and what an optimizer keeps of it."""
    n_features = len(linear_part(model)[0]) if "build_vocab" in model.attrs else 0
    n_tags = len(tags)
    n_bytes = 16 * (n_features + n_tags + 2) * n_tags
    text = MEMINFO.read_text() if MEMINFO.exists() else ""
    sizes = dict(re.findall(r"^(MemAvailable|SwapFree): *(\d+) kB", text, re.MULTILINE))
    if "MemAvailable" not in sizes:
        return
    available = 1024 * sum(map(int, sizes.values()))
    if available < n_bytes:
        raise ValueError(
            f"{name}: labels: expected weights that fit in {available / 1e9:.1f} GB of memory, got "
            f"{len(tags.labels):,} labels, that is {n_tags:,} tags, and {n_features:,} features, "
            f"whose weights need {n_bytes / 1e9:.1f} GB"
        )
