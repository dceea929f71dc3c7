"""Training of the linear model on all examples at once, using L-BFGS to minimise the total loss.

All weights form one vector of D numbers. `TotalLoss` is the function to minimise: it maps the
vector to the loss and its gradient. `train_at_once` trains a model.

In shapes, V is the number of features, G the number of groups of features that always occur
together, M the number of weight rows for static vectors (see `ml.weights`), N the number of tokens,
S the number of table rows per token, and K the number of tags. There are U distinct static vectors
at O offsets (see `ml.vector_inputs`).
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
from ..ml import VectorInputs, find_features, linear_part, vector_inputs_of
from ..progress import progress
from ..tags import Tags
from ..types import Potentials, Progress, map_scores
from .objective import Objective
from .online import INTERRUPTED, TrainingResult
from .targets import Targets

GRADIENT_BATCH_SIZE = 256
"""The number of docs scored together, which limits the memory needed for the chain's messages."""

N_REMEMBERED_STEPS = 6
"""The number of previous steps used to estimate the Hessian. CRFsuite uses the same default."""

PERIOD = 10
"""The number of iterations over which `has_settled` measures the decrease. CRFsuite uses the same
default."""

LEAST_DECREASE = 1e-4
"""A step has to achieve at least this fraction of the decrease that the slope predicts. This is the
Armijo condition, equation 3.4 of Nocedal & Wright (2006)."""

MOST_STEP_SIZES = 20
"""The maximum number of step sizes to try in a line search. Each is half the previous one."""

LEAST_CURVATURE = 1e-10
"""A step is stored only if its curvature s y is above this fraction of y y: see `Step`. Otherwise,
the estimate of the Hessian would not be positive definite."""

MANY_LABELS = 20
"""With more labels than this, `PENALTY_OF_MANY_LABELS` is used instead of `PENALTY`."""

TOLERANCE = 1e-3
"""The tolerance of `train_at_once`: see `minimise_by_lbfgs`. Lower values don't improve the model:
see docs/linear.md."""

MOST_ITERATIONS = 60
"""The maximum number of iterations of `train_at_once`. More iterations don't improve the model."""

AT_ONCE = "trained on all docs at once, as they are few"
"""The value of `TrainingResult.reason` after `train_at_once`, unless it was interrupted."""

MEMINFO = Path("/proc/meminfo")
"""The file in which Linux reports the amount of free memory."""


class Penalty(NamedTuple):
    """The coefficients c2 in the penalty c2 w^2 on a weight w. The values were chosen on
    development data: see docs/linear.md.

    features (float): The coefficient for the weights of features and of the chain.
    vectors (float): The coefficient for the weights of static vectors.
    """

    features: float
    vectors: float


PENALTY = Penalty(features=0.1, vectors=0.3)

PENALTY_OF_MANY_LABELS = Penalty(features=1.0, vectors=1.0)


class BatchTargets(NamedTuple):
    """The targets of a batch in one segmentation of its docs.

    rows (Ints2d): For each token, the rows of the table from `TotalLoss.make_table` that add up to
        its scores, padded with -1. Shape: (N, S)
    targets (Targets): The targets.
    share (float): The weight of the loss: 1, or less if there are two segmentations. See
        `Segmentations.shares`.
    """

    rows: Ints2d
    targets: Targets
    share: float


class Inputs(NamedTuple):
    """The features and static vectors of the tokens of all examples.

    merged (Merged): The features, in groups.
    vectors (VectorInputs | None): The static vectors in each token's window. None if the model
        doesn't use static vectors.
    """

    merged: sparse.Merged
    vectors: VectorInputs | None


def find_inputs(model: Model, examples: Sequence[Example]) -> Inputs:
    """Extract the features and static vectors of the examples' tokens."""
    _, weights = linear_part(model)
    feature_batch = find_features(model, [eg.predicted for eg in examples], is_train=True)
    # Group features that always occur together.
    merged = sparse.merge_equal(feature_batch.rows, weights.n_features)
    return Inputs(merged, vector_inputs_of(feature_batch))


class TotalLoss:
    """The loss over all examples plus a penalty, as a function of one vector of D numbers.

        f(w) = sum over the examples of the loss + sum over the weights w_i of c2_i w_i^2

    The penalty is the same as in CRFsuite, but with a separate c2 for the weights of static
    vectors. The loss of a doc with borders is a weighted mean over both of its segmentations: see
    `Segmentations.shares`. Docs are read once, when the object is created. The vector is in
    float64, and scores are in float32.

    The vector w is a flattened table with K columns: one row for each of the G groups of features
    that always occur together (see `sparse.Merged`), M rows for static vectors, if the model uses
    them, and K + 2 rows for the chain.

    model (Model): A linear model whose feature vocabulary has been built.
    objective (Objective): The training objective.
    tags (Tags): The tags of the chain, or `Tags.collapsed`, with a single O.
    examples (Sequence[Example]): The training examples.
    c2 (float): The penalty coefficient of the weights.
    c2_of_vectors (float | None): The penalty coefficient of the weights of static vectors. Defaults
        to `c2`.
    inputs (Inputs | None): The features and vectors of the examples. If None, they are extracted
        when the object is created.
    RAISES (ValueError): See `Objective.targets`.
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
        inputs: Inputs | None = None,
    ) -> None:
        self.objective = objective
        self.tags = tags
        self.features, self.weights = linear_part(model)
        if inputs is None:
            inputs = find_inputs(model, examples)
        self.merged = inputs.merged
        self.vectors = inputs.vectors
        # The layout of the table: feature groups, then static vectors, then the chain.
        self.n_groups = len(self.merged.roots)  # `roots` contains one factor per group
        self.first_chain_row = self.n_groups + self.weights.n_vector_rows
        self.shape = (self.first_chain_row + len(tags) + 2, len(tags))
        # The penalty coefficient of each row of the table. Shape: (G + M + K + 2, 1)
        self.c2 = numpy.full((self.shape[0], 1), c2)
        if c2_of_vectors is not None:
            self.c2[self.n_groups : self.first_chain_row] = c2_of_vectors
        self.batches = self._make_batches(examples, self._find_table_rows())

    def _find_table_rows(self) -> Ints2d:
        """Return, for each token, the rows of the table from `make_table` that add up to its
        scores: the rows of its feature groups and of the static vectors in its window, padded with
        -1. Shape: (N, S)"""
        if self.vectors is None:
            return self.merged.rows
        # The products of vectors follow the groups in the table: product 0 is row `n_groups`.
        rows_of_products = numpy.where(self.vectors.rows < 0, -1, self.vectors.rows + self.n_groups)
        rows_of_products = rows_of_products.astype("int32")  # the only type that `sum_rows` accepts
        return numpy.concatenate([self.merged.rows, rows_of_products], axis=1)

    def _make_batches(self, examples: Sequence[Example], rows: Ints2d) -> list[BatchTargets]:
        """Divide the examples into batches. `rows` contains the table rows of all tokens, as
        returned by `_find_table_rows`. Shape: (N, S)"""
        batch_size = GRADIENT_BATCH_SIZE
        # Training at once always uses the first stage of the loss: `Progress()` is the beginning of
        # training.
        if self.objective.loss.stage_at(Progress()).is_ratio:
            # A ratio over all examples is not the sum of the ratios of batches.
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
        """Compute the value and gradient of the function at a vector of weights, in float64.
        Shapes of the vector and the gradient: (D,)"""
        loss = self.objective.loss.stage_at(Progress())
        weights = vector.reshape(self.shape)
        value = float((self.c2 * weights**2).sum())
        sums = self._zero_gradient()
        # Score one batch at a time, to keep only its scores in memory.
        for batch, scores in zip(self.batches, self.score(vector)):
            # Reset losses that keep counts of earlier batches. These counts depend on the weights,
            # but the gradient would treat them as constants. So the value of a ratio is the
            # weighted mean of the ratios of the two segmentations.
            loss.forget()
            # The second value is the divisor of the mean loss. Here, losses are summed.
            result, _ = self.objective.evaluate(batch.targets, scores, Progress())
            value += batch.share * result.value
            # Multiply all arrays of the gradient by the weight of the batch.
            gradient = map_scores(partial(numpy.multiply, batch.share), result.gradient)
            self._add_gradient(sums, batch, gradient)
        d_penalty = 2 * self.c2 * weights
        return value, self._gradient_of_vector(sums) + d_penalty.reshape(-1)

    def score(self, vector: Floats1d) -> Iterator[Potentials]:
        """Yield the scores of each batch for a vector of weights. The scores are in float32. Shape
        of the vector: (D,)"""
        weights = vector.reshape(self.shape).astype("float32")
        table = self.make_table(weights)
        for batch in self.batches:
            yield Potentials(
                emissions=sparse.sum_rows(batch.rows, table),
                transitions=weights[self.first_chain_row : -2],
                start=weights[-2],
                end=weights[-1],
                lengths=batch.targets.lengths,
            )

    def make_table(self, weights: Floats2d) -> Floats2d:
        """Create the table whose rows add up to the scores of tokens: one row for each group of
        features, followed by one row for each product of a static vector and the weights of an
        offset (see `VectorInputs`). Shapes: (G + M + K + 2, K) to (G + U O, K)"""
        # A group of c features with the weights v adds sqrt(c) v to the scores: see `Merged`.
        groups = weights[: self.n_groups] * self.merged.roots[:, None].astype("float32")
        if self.vectors is None:
            return groups
        products = self.vectors.products(weights[self.n_groups : self.first_chain_row])
        return numpy.concatenate([groups, products])

    def sum_gradients(self, gradients: Iterable[Potentials]) -> Floats1d:
        """Compute the gradient with respect to the vector from the gradients with respect to the
        scores of each batch. Shape: (D,)"""
        sums = self._zero_gradient()
        for batch, gradient in zip(self.batches, gradients):
            self._add_gradient(sums, batch, gradient)
        return self._gradient_of_vector(sums)

    def _zero_gradient(self) -> Floats2d:
        """Create a gradient of zeros, with a row for each row of `make_table`, followed by K + 2
        rows for the chain. Shape: (G + U O + K + 2, K)"""
        n_tags = len(self.tags)
        n_products = 0
        if self.vectors is not None:
            n_products = self.vectors.n_products
        return numpy.zeros((self.n_groups + n_products + n_tags + 2, n_tags))

    def _add_gradient(self, sums: Floats2d, batch: BatchTargets, gradient: Potentials) -> None:
        """Add the gradient with respect to the scores of a batch to `sums`, in place. `sums` has
        the rows of `_zero_gradient`: the rows of `make_table`, one row of transitions for each tag,
        one row for the start and one for the end."""
        n_tags = len(self.tags)
        emissions = numpy.ascontiguousarray(gradient.emissions, dtype="float32")
        # Add the gradient of a token's emissions to each table row that the token uses.
        sparse.add_rows(batch.rows, emissions, sums)
        sums[-2 - n_tags : -2] += gradient.transitions
        sums[-2] += gradient.start
        sums[-1] += gradient.end

    def _gradient_of_vector(self, sums: Floats2d) -> Floats1d:
        """Compute the gradient with respect to the vector from the sums over all batches. `sums`
        has the rows of `_zero_gradient`. Shape: (D,)"""
        first_chain_row = len(sums) - len(self.tags) - 2
        # The backward pass of `make_table`, with the same factor sqrt(c).
        parts = [sums[: self.n_groups] * self.merged.roots[:, None]]
        if self.vectors is not None:
            d_products = sums[self.n_groups : first_chain_row]  # (U O, K)
            parts.append(self.vectors.backprop_products(d_products))
        parts.append(sums[first_chain_row:])
        return numpy.concatenate(parts).reshape(-1)

    def read_weights(self) -> Floats1d:
        """Return the model's weights as a vector. If the features of a group have different
        weights, their mean is used. Shape: (D,)"""
        n_features = self.weights.n_features
        rows = self.weights.rows.astype("float64")
        groups = self.merged.merge(rows[:n_features])
        return numpy.concatenate([groups, rows[n_features:]]).reshape(-1)

    def write_weights(self, vector: Floats1d) -> None:
        """Set the model's weights from a vector. Shape: (D,)"""
        self.weights.rows[:] = self.to_rows(vector)

    def to_rows(self, vector: Floats1d) -> Floats2d:
        """Convert a vector to the weights of the model. Shapes: (D,) to (V + M + K + 2, K)"""
        rows = vector.reshape(self.shape)
        features = self.merged.spread(rows[: self.n_groups])
        return numpy.concatenate([features, rows[self.n_groups :]])


def train_at_once(
    model: Model,
    objective: Objective,
    tags: Tags,
    examples: Sequence[Example],
    *,
    max_iterations: int = MOST_ITERATIONS,
) -> TrainingResult:
    """Train the weights of a linear model on all examples at once, starting from zero.

    If the chain has several tags for O (see `Tags.is_split`), training runs twice: with these tags,
    and with a single O. The resulting weights are averaged.

    model (Model): A linear model whose feature vocabulary has been built.
    objective (Objective): The training objective.
    tags (Tags): The tags of the chain.
    examples (Sequence[Example]): The training examples.
    max_iterations (int): The maximum number of iterations per run.
    RETURNS (TrainingResult): The result of training. Each evaluation of the loss counts as an epoch
        of one step. The value is the loss per token, including the penalty, at the end of the last
        run whose weights are used.
    RAISES (ValueError): See `Objective.targets`.
    """
    penalty = PENALTY if len(tags.labels) <= MANY_LABELS else PENALTY_OF_MANY_LABELS
    n_tokens = sum(len(eg.predicted) for eg in examples)
    rows_of_trainings: list[Floats2d] = []
    n_evaluations = 0
    value = 0.0
    reason = AT_ONCE
    tag_sets = [tags]
    if tags.is_split:
        tag_sets.append(tags.collapsed)

    inputs = find_inputs(model, examples)
    for trained_tags in tag_sets:
        total = TotalLoss(
            model,
            objective,
            trained_tags,
            examples,
            c2=penalty.features,
            c2_of_vectors=penalty.vectors,
            inputs=inputs,
        )
        start = numpy.zeros(total.shape).reshape(-1)
        minimum = minimise_by_lbfgs(total, start, max_iter=max_iterations, tolerance=TOLERANCE)
        n_evaluations += minimum.n_evaluations
        is_interrupted = minimum.reason == INTERRUPTED
        # If the second run is interrupted, use only the weights of the first one.
        if not (is_interrupted and rows_of_trainings):
            rows = total.to_rows(minimum.vector)
            if trained_tags is not tags:
                rows = spread_over_split(rows, tags)
            rows_of_trainings.append(rows)
            value = minimum.value / max(n_tokens, 1)
        if is_interrupted:
            reason = INTERRUPTED
            break

    # Set the model's weights, from which any later training starts.
    _, weights = linear_part(model)
    weights.restart(numpy.mean(rows_of_trainings, axis=0))
    return TrainingResult(
        value,
        n_epochs=n_evaluations,
        n_steps=n_evaluations,
        reason=reason,
        progress=Progress(steps=n_evaluations, epochs=n_evaluations),
    )


def spread_over_split(rows: Floats2d, tags: Tags) -> Floats2d:
    """Convert the weights of a chain with a single O and L tags to the weights of a chain with
    several tags for O. Each of these tags gets the weights of O, so the scores of paths don't
    change. Shapes: (V + M + L + 2, L) to (V + M + K + 2, K)"""
    first_chain_row = len(rows) - len(tags.collapsed) - 2
    emissions = rows[:first_chain_row]
    # Copy the transitions from O for each of its tags: (L, L) to (K, L).
    transitions = rows[first_chain_row:-2][tags.collapsed_of]
    start_and_end = rows[-2:]
    new_rows = numpy.concatenate([emissions, transitions, start_and_end])
    # Copy the column of O for each of its tags: L columns to K.
    return new_rows[:, tags.collapsed_of]


class Minimum(NamedTuple):
    """The result of a minimisation.

    vector (Floats1d): The best vector. Shape: (D,)
    value (float): The value of the function at this vector.
    n_iterations (int): The number of iterations.
    n_evaluations (int): The number of evaluations of the function.
    reason (str): Why the minimisation ended.
    """

    vector: Floats1d
    value: float
    n_iterations: int
    n_evaluations: int
    reason: str


class Iterate(NamedTuple):
    """A vector, with the value and the gradient of the function at this vector. Shapes: (D,)"""

    vector: Floats1d
    value: float
    gradient: Floats1d


class Step(NamedTuple):
    """A previous step of L-BFGS. The variable names follow Nocedal & Wright (2006).

    s (Floats1d): The change in the vector. Shape: (D,)
    y (Floats1d): The change in the gradient. Shape: (D,)
    curvature (float): The inner product s y, used as a divisor when computing later directions.
    """

    s: Floats1d
    y: Floats1d
    curvature: float


def minimise_by_lbfgs(
    function: Callable[[Floats1d], tuple[float, Floats1d]],
    start: Floats1d,
    *,
    max_iter: int | None = None,
    tolerance: float = 1e-5,
) -> Minimum:
    """Minimise a function by L-BFGS. A KeyboardInterrupt ends the minimisation, and the best vector
    so far is returned.

    Each iteration takes a step in the direction given by `descent_direction`. The step is halved
    until the value decreases sufficiently.

    function (Callable): Returns the value and the gradient for a vector. Shapes: (D,) to (D,)
    start (Floats1d): The initial vector. Shape: (D,)
    max_iter (int | None): The maximum number of iterations. None means no limit.
    tolerance (float): The minimisation ends when the relative decrease of the value over the last
        `PERIOD` iterations is below this number. CRFsuite calls it `delta`.
    RETURNS (Minimum): The best vector, its value, and why the minimisation ended.

    Nocedal & Wright (2006), algorithms 7.4 and 3.1.
    """
    n_evaluations = 0

    def evaluate(vector: Floats1d) -> Iterate:
        """Evaluate the function and count the evaluation."""
        nonlocal n_evaluations
        value, gradient = function(vector)
        n_evaluations += 1
        return Iterate(vector, value, gradient)

    # Returned if interrupted before the first evaluation. The gradient isn't used.
    point = Iterate(start, float("nan"), gradient=start)
    values: list[float] = []  # at the start and after each iteration
    reason = "converged"
    steps: list[Step] = []
    bar = progress(desc="train", unit="it", total=max_iter)
    try:
        point = evaluate(start)
        values.append(point.value)
        while point.gradient.any() and not has_settled(values, tolerance):
            if max_iter is not None and len(values) > max_iter:
                reason = "reached max_iter"
                break

            direction = descent_direction(point.gradient, steps)
            new_point = search_line(evaluate, point, direction)
            if new_point is None:
                # The value still decreases in this direction, but by less than the rounding error.
                reason = "converged as far as the scores are exact"
                break

            steps = remember_step(steps, point, new_point)
            point = new_point
            values.append(point.value)
            bar.set_postfix(objective=f"{point.value:.6g}", refresh=False)
            bar.update()
    except KeyboardInterrupt:
        reason = INTERRUPTED
    bar.close()
    return Minimum(
        point.vector,
        point.value,
        n_iterations=max(len(values) - 1, 0),
        n_evaluations=n_evaluations,
        reason=reason,
    )


def remember_step(steps: list[Step], point: Iterate, new_point: Iterate) -> list[Step]:
    """Append the step from `point` to `new_point` to the list of previous steps. Only the last
    `N_REMEMBERED_STEPS` are kept. Steps with too little curvature are skipped, because they would
    corrupt the estimate of the Hessian."""
    s = new_point.vector - point.vector
    y = new_point.gradient - point.gradient
    curvature = float(s @ y)
    if curvature <= LEAST_CURVATURE * (y @ y):
        return steps
    return [*steps, Step(s, y, curvature)][-N_REMEMBERED_STEPS:]


def search_line(
    evaluate: Callable[[Floats1d], Iterate], point: Iterate, direction: Floats1d
) -> Iterate | None:
    """Take a step in a direction, and halve the step until the value decreases sufficiently. Return
    the new point, or None if no step achieves this. Shape of the direction: (D,)"""
    slope = float(point.gradient @ direction)
    for size in 0.5 ** numpy.arange(MOST_STEP_SIZES):  # 1, 1/2, 1/4, 1/8, ...
        new_point = evaluate(point.vector + size * direction)
        # The slope is negative and predicts the decrease. A small fraction of it is sufficient.
        if new_point.value <= point.value + LEAST_DECREASE * size * slope:
            return new_point
    return None


def descent_direction(gradient: Floats1d, steps: Sequence[Step]) -> Floats1d:
    """Compute the direction of the next step, -H g, where g is the gradient and H is an estimate of
    the inverse Hessian from the previous steps. H is never computed explicitly. The first
    direction, without previous steps, is -g, scaled to length 1 if it is longer.

    Algorithm 7.4 of Nocedal & Wright (2006). The variable names follow the book.

    gradient (Floats1d): The gradient, g. Shape: (D,)
    steps (Sequence[Step]): The previous steps, from oldest to latest.
    RETURNS (Floats1d): The direction. Shape: (D,)
    """
    direction = -gradient
    if not steps:
        direction /= max(1.0, float(numpy.linalg.norm(direction)))
        return direction
    alphas = []
    for s, y, curvature in reversed(steps):
        alpha = float(s @ direction) / curvature
        direction -= alpha * y
        alphas.append(alpha)
    # The initial estimate of H is a multiple of the identity matrix: equation 7.20.
    _, y, curvature = steps[-1]
    direction *= curvature / float(y @ y)
    for s, y, curvature in steps:
        alpha = alphas.pop()
        beta = float(y @ direction) / curvature
        direction += (alpha - beta) * s
    return direction


def has_settled(values: Sequence[float], tolerance: float) -> bool:
    """Check whether the relative decrease of the value over the last `PERIOD` iterations is below
    `tolerance`. `values` contains the initial value and the value after each iteration."""
    if len(values) <= PERIOD:
        return False
    decrease = values[-1 - PERIOD] - values[-1]
    return decrease < tolerance * abs(values[-1])


def check_memory(model: Model, tags: Tags, name: str) -> None:
    """Check whether the weights of a model fit in memory and swap, before allocating them. Nothing
    is checked on systems that don't report free memory.

    model (Model): A model. If it is linear, its feature vocabulary must have been built.
    tags (Tags): The tags of the chain.
    name (str): The name of the component, for the error message.
    RAISES (ValueError): If the weights don't fit.
    """
    if not MEMINFO.exists():
        return
    fields = re.findall(r"^(MemAvailable|SwapFree): *(\d+) kB", MEMINFO.read_text(), re.MULTILINE)
    kilobytes = {field: int(size) for field, size in fields}
    if "MemAvailable" not in kilobytes:
        return
    available = 1024 * sum(kilobytes.values())

    n_features = 0
    n_vector_rows = 0
    if "build_vocab" in model.attrs:  # a linear model, or a hybrid with a linear part
        features, _ = linear_part(model)
        n_features = len(features)
        n_vector_rows = features.n_vector_rows
    n_tags = len(tags)
    n_weights = (n_features + n_vector_rows + n_tags + 2) * n_tags
    # Each weight takes four floats of 4 bytes: the weight and the state of the optimizer.
    n_bytes = 4 * 4 * n_weights
    if available < n_bytes:
        raise ValueError(
            f"{name}: labels: expected weights that fit in {available / 1e9:.1f} GB of memory, got "
            f"{len(tags.labels):,} labels, that is {n_tags:,} tags, and {n_features:,} features, "
            f"whose weights need {n_bytes / 1e9:.1f} GB"
        )
