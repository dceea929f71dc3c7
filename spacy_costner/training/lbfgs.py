"""Training of the linear model on all examples at once: the loss over them, minimised by L-BFGS.

All weights are one vector of D numbers, which `TotalLoss` takes to the loss and its gradient. In
shapes, V is the number of features, G of groups of features that always occur together, M of rows
of static vectors, and K of tags.
"""

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
from ..ml import find_features, linear_part, vector_inputs_of
from ..progress import progress
from ..tags import Tags
from ..types import Potentials, Progress, map_scores
from .objective import Objective
from .online import INTERRUPTED, Trained
from .targets import Targets

BATCH_SIZE = 256
"""Number of docs that are scored together, to bound the memory of the chain's messages."""

MEMORIES = 6
"""Earlier steps that L-BFGS remembers: CRFsuite's default, too."""

PERIOD = 10
"""The iterations over which improvement is measured: CRFsuite's default, too."""

ENOUGH = 1e-4
"""The share of the expected decrease that a step has to make (Armijo)."""

MOST_HALVES = 20
"""How often a step is halved until it makes that decrease."""

MANY_LABELS = 20
"""Above this number of labels the penalties are `PENALTY_OF_MANY` in place of `PENALTY`."""

TOLERANCE = 1e-3
"""Where `train_at_once` ends: see `minimise_by_lbfgs`. Less makes no model better: see
docs/linear.md."""

MOST_ITERATIONS = 60
"""Of `train_at_once`. More make no model better."""

AT_ONCE = "trained on all docs at once, as they are few"

MEMINFO = Path("/proc/meminfo")


class Penalty(NamedTuple):
    """What the square of a weight costs, c2: the weight of a feature or of the chain; and that of a
    number of a static vector. Chosen on development data: see docs/linear.md."""

    features: float
    vectors: float


PENALTY = Penalty(features=0.1, vectors=0.3)

PENALTY_OF_MANY = Penalty(features=1.0, vectors=1.0)


class BatchTargets(NamedTuple):
    """The targets of a batch in one segmentation of its docs.

    rows (Ints2d): The rows of `TotalLoss.table` that tokens have, -1 for none. Shape: (N, S)
    targets (Targets): The targets.
    share (float): How much their loss counts: 1, or less if there are two segmentations. See
        `Segmentations.shares`.
    """

    rows: Ints2d
    targets: Targets
    share: float


class TotalLoss:
    """The loss over all examples with a penalty, as a function of one vector of D numbers.

        f(w) = sum over the examples of the loss + sum over the weights w_i of c2_i w_i^2

    The penalty is that of CRFsuite, but for the weights of static vectors, whose c2 is their own.
    The loss of a doc with borders is a weighted mean over both of its segmentations: see
    `Segmentations.shares`. Docs are read once. The vector is in float64, scores are in float32.

    The vector is a table of K columns. Its rows are G groups of features that always occur
    together, see `sparse.Merged`; M of static vectors, if they are inputs; and K + 2 of the chain.

    model (Model): A linear model that knows its features.
    objective (Objective): The training objective.
    tags (Tags): The tags of the chain, or the same with a single O.
    examples (Sequence[Example]): The examples.
    c2 (float): The weight of the penalty.
    c2_of_vectors (float | None): The same for the weights of static vectors. None: `c2`.
    """

    def __init__(
        self,
        model: Model,
        objective: Objective,
        tags: Tags,
        examples: Sequence[Example],
        *,
        c2: float,
        c2_of_vectors: float | None = None,
    ) -> None:
        self.objective = objective
        self.tags = tags
        self.features, self.weights = linear_part(model)
        feature_batch = find_features(model, [eg.predicted for eg in examples], is_train=True)
        self.merged = sparse.merge_equal(feature_batch.rows, self.weights.n_features)
        self.inputs = vector_inputs_of(feature_batch)
        self.n_groups = len(self.merged.roots)
        self.first_chain_row = self.n_groups + self.weights.n_vector_rows
        self.shape = (self.first_chain_row + len(tags) + 2, len(tags))
        # The penalty of each row of the vector. Shape: (G + M + K + 2, 1)
        self.c2 = numpy.full((self.shape[0], 1), c2)
        if c2_of_vectors is not None:
            self.c2[self.n_groups : self.first_chain_row] = c2_of_vectors
        self.batches = self._make_batches(examples, self._table_rows())

    def _table_rows(self) -> Ints2d:
        """The rows of `table` that tokens have: their groups of features and, below all groups, the
        products of the static vectors in their windows. Shape: (N, S)"""
        if self.inputs is None:
            return self.merged.rows
        # Products are numbered from 0; in `table` they stand below the groups. -1 is for none.
        rows_of_products = numpy.where(self.inputs.rows < 0, -1, self.inputs.rows + self.n_groups)
        return numpy.concatenate([self.merged.rows, rows_of_products.astype("int32")], axis=1)

    def _make_batches(self, examples: Sequence[Example], rows: Ints2d) -> list[BatchTargets]:
        """Divide examples, whose tokens have these rows of `table`, (N, S), into batches."""
        batch_size = BATCH_SIZE
        if self.objective.loss.stage_at(Progress()).is_ratio:
            # A ratio over the batch is not the sum of those of parts of it.
            batch_size = len(examples)
        batches: list[BatchTargets] = []
        end_token = 0
        for i in range(0, len(examples), batch_size):
            batch = examples[i : i + batch_size]
            first_token = end_token
            end_token += sum(len(eg.predicted) for eg in batch)
            rows_of_batch = rows[first_token:end_token]
            segmentations = self.objective.targets(batch, self.tags)
            for targets, share in zip(segmentations.to_list(), segmentations.shares):
                batches.append(BatchTargets(rows_of_batch, targets, share))
        return batches

    def __call__(self, vector: Floats1d) -> tuple[float, Floats1d]:
        """Compute the function and its gradient, (D,), in float64."""
        # A loss may keep counts of earlier batches; the function must not depend on earlier calls.
        self.objective.loss.stage_at(Progress()).forget()
        weights = vector.reshape(self.shape)
        value = float((self.c2 * weights**2).sum())
        sums = self._no_gradient()
        # One batch after another, so that the scores and gradients of one are in memory.
        for batch, scores in zip(self.batches, self.score(vector)):
            result, _ = self.objective.evaluate(batch.targets, scores, Progress())
            value += batch.share * result.value
            gradient = map_scores(partial(numpy.multiply, batch.share), result.gradient)
            self._add_gradient(sums, batch, gradient)
        d_penalty = 2 * self.c2 * weights
        return value, self._to_vector(sums) + d_penalty.reshape(-1)

    def score(self, vector: Floats1d) -> Iterator[Potentials]:
        """Compute the scores of each batch with the weights of a vector, (D,)."""
        weights = vector.reshape(self.shape).astype("float32")
        table = self.table(weights)
        for batch in self.batches:
            yield Potentials(
                emissions=sparse.sum_rows(batch.rows, table),
                transitions=weights[self.first_chain_row : -2],
                start=weights[-2],
                end=weights[-1],
                lengths=batch.targets.lengths,
            )

    def table(self, weights: Floats2d) -> Floats2d:
        """The rows that add up to the scores of tokens: one for each group of features and, below
        them, one for each product of a static vector: see `VectorInputs`. Shape: (G + U O, K)"""
        # A group of c features, whose row of the vector is v, adds sqrt(c) v to the scores.
        groups = weights[: self.n_groups] * self.merged.roots[:, None].astype("float32")
        if self.inputs is None:
            return groups
        products = self.inputs.products(weights[self.n_groups : self.first_chain_row])
        return numpy.concatenate([groups, products])

    def sum_gradients(self, gradients: Iterable[Potentials]) -> Floats1d:
        """Sum the gradients with respect to the scores of batches into one for the vector, (D,)."""
        sums = self._no_gradient()
        for batch, gradient in zip(self.batches, gradients):
            self._add_gradient(sums, batch, gradient)
        return self._to_vector(sums)

    def _no_gradient(self) -> Floats2d:
        """A gradient of 0: a row for each row of `table`, for the transitions from each tag, for
        the start and for the end."""
        n_tags = len(self.tags)
        n_products = 0
        if self.inputs is not None:
            n_products = self.inputs.n_products
        return numpy.zeros((self.n_groups + n_products + n_tags + 2, n_tags))

    def _add_gradient(self, sums: Floats2d, batch: BatchTargets, gradient: Potentials) -> None:
        """Add the gradient with respect to the scores of a batch to sums, in place: see
        `_no_gradient`."""
        n_tags = len(self.tags)
        emissions = numpy.ascontiguousarray(gradient.emissions, dtype="float32")
        sparse.add_rows(batch.rows, emissions, sums)
        sums[-2 - n_tags : -2] += gradient.transitions
        sums[-2] += gradient.start
        sums[-1] += gradient.end

    def _to_vector(self, sums: Floats2d) -> Floats1d:
        """The gradient for the vector, (D,), from these sums: see `_no_gradient`."""
        first_chain_row = len(sums) - len(self.tags) - 2
        # The backward pass of `table`: a score has sqrt(c) times the row of a group of c features.
        parts = [sums[: self.n_groups] * self.merged.roots[:, None]]
        if self.inputs is not None:
            d_products = sums[self.n_groups : first_chain_row]
            parts.append(self.inputs.backprop_products(d_products))
        parts.append(sums[first_chain_row:])
        return numpy.concatenate(parts).reshape(-1)

    def read_weights(self) -> Floats1d:
        """The vector that is closest to the weights of the model, (D,)."""
        n_features = self.weights.n_features
        rows = self.weights.rows.astype("float64")
        groups = self.merged.merge(rows[:n_features])
        return numpy.concatenate([groups, rows[n_features:]]).reshape(-1)

    def write_weights(self, vector: Floats1d) -> None:
        """Set the weights of the model from a vector, (D,)."""
        self.weights.rows[:] = self.to_rows(vector)

    def to_rows(self, vector: Floats1d) -> Floats2d:
        """The weights that a vector, (D,), stands for. Shape: (V + M + K + 2, K)"""
        rows = vector.reshape(self.shape)
        features = self.merged.spread(rows[: self.n_groups])
        return numpy.concatenate([features, rows[self.n_groups :]])


def train_at_once(
    model: Model, objective: Objective, tags: Tags, examples: Sequence[Example]
) -> Trained:
    """Train the weights of a linear model on all examples at once, from weights of 0. If O is
    split, they are trained a second time with a single O, and become the mean of both.

    model (Model): A linear model that knows its features.
    objective (Objective): The training objective.
    tags (Tags): The tags of the chain.
    examples (Sequence[Example]): The examples.
    RETURNS (Trained): How training ended. Each evaluation of the loss is an epoch of one step. The
        value is the objective of the last training, per token.
    """
    penalty = PENALTY if len(tags.labels) <= MANY_LABELS else PENALTY_OF_MANY
    n_tokens = sum(len(eg.predicted) for eg in examples)
    rows: list[Floats2d] = []
    n_evaluations = 0
    value = 0.0
    reason = AT_ONCE
    tag_sets = [tags]
    if tags.is_split:
        tag_sets.append(tags.collapsed)

    for trained_tags in tag_sets:
        total = TotalLoss(
            model,
            objective,
            trained_tags,
            examples,
            c2=penalty.features,
            c2_of_vectors=penalty.vectors,
        )
        start = numpy.zeros(total.shape).reshape(-1)
        minimum = minimise_by_lbfgs(total, start, max_iter=MOST_ITERATIONS, tolerance=TOLERANCE)
        n_evaluations += minimum.n_evaluations
        is_interrupted = minimum.reason == INTERRUPTED
        # A second training counts only if it comes to its end.
        if not (is_interrupted and rows):
            trained_rows = total.to_rows(minimum.vector)
            if trained_tags is not tags:
                trained_rows = spread_over_split(trained_rows, tags)
            rows.append(trained_rows)
            value = minimum.value / max(n_tokens, 1)
        if is_interrupted:
            reason = INTERRUPTED
            break

    _, weights = linear_part(model)
    weights.restart(numpy.mean(rows, axis=0))
    return Trained(
        value,
        n_epochs=n_evaluations,
        n_steps=n_evaluations,
        reason=reason,
        progress=Progress(steps=n_evaluations, epochs=n_evaluations),
    )


def spread_over_split(rows: Floats2d, tags: Tags) -> Floats2d:
    """Weights with a single O as weights of tags that split it: scores of paths are the same.
    Shape: (V + M + L + 2, L) to (V + M + K + 2, K)"""
    first_chain_row = len(rows) - len(tags.collapsed) - 2
    emissions = rows[:first_chain_row]
    # The rows below: transitions from each of L tags, the start and the end.
    transitions = rows[first_chain_row:-2][tags.collapsed_of]
    start_and_end = rows[-2:]
    return numpy.concatenate([emissions, transitions, start_and_end])[:, tags.collapsed_of]


class Minimum(NamedTuple):
    """The result of a minimisation: the best vector, (D,), its value, and why it ended."""

    vector: Floats1d
    value: float
    n_iterations: int
    n_evaluations: int
    reason: str


Step = tuple[Floats1d, Floats1d]
"""The change s of the vector in an iteration, and the change y of the gradient. Shapes: (D,)"""


def minimise_by_lbfgs(
    function: Callable[[Floats1d], tuple[float, Floats1d]],
    start: Floats1d,
    *,
    max_iter: int | None = None,
    tolerance: float = 1e-5,
) -> Minimum:
    """Minimise a function by L-BFGS until it converges or is stopped: after a KeyboardInterrupt the
    best vector so far is returned.

    A direction is the gradient times an estimate of the inverse Hessian: see `descent_direction`.
    Steps are halved until they make the value smaller.

    function (Callable): Takes a vector to a value and its gradient. Shapes: (D,) to (D,)
    start (Floats1d): The vector to start from. Shape: (D,)
    max_iter (int | None): The most iterations. None: no limit.
    tolerance (float): It ends when the last ten iterations made the value smaller by less than this
        share of it; CRFsuite's `delta`.
    RETURNS (Minimum): The best vector.

    Nocedal & Wright (2006), algorithms 7.4 and 3.1.
    """
    vector = start
    values = [float("nan")]
    n_evaluations = 0
    reason = "converged"
    steps: list[Step] = []
    bar = progress(desc="train", unit="it", total=max_iter)
    try:
        values[0], gradient = function(vector)
        n_evaluations = 1
        while gradient.any() and not has_settled(values, tolerance):
            if max_iter is not None and len(values) > max_iter:
                reason = "iterations used up"
                break

            direction = descent_direction(gradient, steps)
            slope = float(gradient @ direction)
            for size in 0.5 ** numpy.arange(MOST_HALVES):  # 1, 1/2, 1/4, …
                new_vector = vector + size * direction
                new_value, new_gradient = function(new_vector)
                n_evaluations += 1
                if new_value <= values[-1] + ENOUGH * size * slope:
                    break
            else:  # no size made the value smaller by enough
                reason = "converged as far as the scores are exact"
                break

            s = new_vector - vector
            y = new_gradient - gradient
            if s @ y > 1e-10 * (y @ y):  # otherwise the estimate would not be positive definite
                steps = [*steps, (s, y)][-MEMORIES:]
            vector = new_vector
            gradient = new_gradient
            values.append(new_value)
            bar.set_postfix(objective=f"{new_value:.6g}", refresh=False)
            bar.update()
    except KeyboardInterrupt:
        reason = INTERRUPTED
    bar.close()
    return Minimum(vector, values[-1], len(values) - 1, n_evaluations, reason)


def descent_direction(gradient: Floats1d, steps: Sequence[Step]) -> Floats1d:
    """The direction in which the function should decrease: - H g, where g is the gradient and H an
    estimate of the inverse Hessian that is never made. Algorithm 7.4 of Nocedal & Wright (2006),
    with two loops over the last steps. Without steps: - g, of length 1 at most. Shape: (D,)"""
    direction = -gradient
    if not steps:
        direction /= max(1.0, float(numpy.linalg.norm(direction)))
        return direction
    alphas = []
    for s, y in reversed(steps):
        alpha = float(s @ direction) / float(s @ y)
        direction -= alpha * y
        alphas.append(alpha)
    # The first estimate is a multiple of the unit matrix: equation 7.20.
    s, y = steps[-1]
    direction *= float(s @ y) / float(y @ y)
    for s, y in steps:
        alpha = alphas.pop()
        beta = float(y @ direction) / float(s @ y)
        direction += (alpha - beta) * s
    return direction


def has_settled(values: Sequence[float], tolerance: float) -> bool:
    """Whether the last iterations made the value smaller by less than a share of it."""
    if len(values) <= PERIOD:
        return False
    decrease = values[-1 - PERIOD] - values[-1]
    return decrease < tolerance * abs(values[-1])


def check_memory(model: Model, tags: Tags, name: str) -> None:
    """Raise a ValueError if weights don't fit in memory and swap, where the system tells, before
    they are made. Each has four numbers in float32: itself, and what an optimizer keeps of it."""
    if not MEMINFO.exists():
        return
    fields = re.findall(r"^(MemAvailable|SwapFree): *(\d+) kB", MEMINFO.read_text(), re.MULTILINE)
    kilobytes = {name: int(size) for name, size in fields}
    if "MemAvailable" not in kilobytes:
        return
    available = 1024 * sum(kilobytes.values())

    n_features = 0
    n_vector_rows = 0
    if "build_vocab" in model.attrs:
        features, _ = linear_part(model)
        n_features = len(features)
        n_vector_rows = features.n_vector_rows
    n_tags = len(tags)
    n_weights = (n_features + n_vector_rows + n_tags + 2) * n_tags
    n_bytes = 16 * n_weights  # four numbers of 4 bytes each
    if available < n_bytes:
        raise ValueError(
            f"{name}: labels: expected weights that fit in {available / 1e9:.1f} GB of memory, got "
            f"{len(tags.labels):,} labels, that is {n_tags:,} tags, and {n_features:,} features, "
            f"whose weights need {n_bytes / 1e9:.1f} GB"
        )
