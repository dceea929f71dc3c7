"""Linear chains on arrays, for the experiments without entities in the Z-score paper: any labels,
in any sequence. The module contains the Z-score in closed form, also with the Hamming loss or with
constraints; the margin methods, the perceptron and the likelihood; and hidden Markov models to
sample sequences from.

The weights of a chain are a single vector, theta, of D numbers: a row of K for each of the V
features, then a row for each tag with its transitions (steps). N is the number of tokens, B the
number of sequences.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy
from numpy.random import Generator
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from spacy.training import Example
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, Ints1d, Ints2d

from spacy_costner import chain
from spacy_costner.losses import max_margin, perceptron, sequential
from spacy_costner.losses.composition import (
    best_competitor,
    best_gold,
    difference_of_scores,
    hinge,
    uniform_over_legal,
    zero_forbidden,
)
from spacy_costner.pipeline.component import CostSensitiveNER
from spacy_costner.training.lbfgs import Minimum, TotalLoss, has_settled, minimise_by_lbfgs
from spacy_costner.types import Constraints, Gold, LossResult, Potentials

MOST_PLANES = 1000
"""The maximum number of cutting planes for the optimum of the margin method."""

NO_SHARE = 1e-9
"""Cutting planes with a share up to this value are dropped."""

# When conjugate gradient stops: see `solve`. scipy's `cg` only checks the residual.
SETTLED = 1e-5
ROUNDING = 4 * float(numpy.finfo("float64").eps)

Objective = Callable[[Floats1d], tuple[float, Floats1d]]
"""Maps a vector to a value and its gradient."""

LossFunction = Callable[[Potentials, Gold], LossResult]
"""A loss of this package without settings."""


class Sequences(NamedTuple):
    """Labelled sequences with their features, as arrays.

    features (csr_matrix): The features of each token, as ones. Shape: (N, V)
    tags (Ints1d): The gold tag of each token. Shape: (N,)
    lengths (Ints1d): The number of tokens in each sequence. Shape: (B,)
    steps (Floats2d): The value of each transition as a feature: 1; less if its weight is to be
        penalised more; 0 if it has no weight. Shape: (K, K)
    constraints (Constraints): The possible paths; all by default.
    """

    features: csr_matrix
    tags: Ints1d
    lengths: Ints1d
    steps: Floats2d
    constraints: Constraints = Constraints()

    @property
    def size(self) -> int:
        """D, the number of weights: (V + K) K."""
        n_features = self.features.shape[1]
        n_tags = len(self.steps)
        return (n_features + n_tags) * n_tags

    @property
    def gold(self) -> Gold:
        """Gold with the Hamming cost: 1 for each tag except the gold one."""
        is_wrong = numpy.arange(len(self.steps)) != self.tags[:, None]  # (N, K)
        return Gold(tags=self.tags, costs=is_wrong.astype("float64"))

    def apart(self) -> list["Sequences"]:
        """Split into single sequences."""
        each_sequence: list[Sequences] = []
        ends = numpy.cumsum(self.lengths)
        for begin, end in zip(ends - self.lengths, ends):
            one = self._replace(
                features=self.features[begin:end],
                tags=self.tags[begin:end],
                lengths=numpy.asarray([end - begin], dtype="int32"),
            )
            each_sequence.append(one)
        return each_sequence

    def score(self, vector: Floats1d) -> Potentials:
        """Compute the scores for a vector of weights: first of the features, then of the steps.
        Shape: (D,)"""
        n_tags = len(self.steps)
        weights = vector.reshape(-1, n_tags)  # (V + K, K)
        feature_weights = weights[:-n_tags]
        step_weights = weights[-n_tags:]
        scores = Potentials(
            emissions=self.features @ feature_weights,
            transitions=self.steps * step_weights,
            start=numpy.zeros(n_tags),
            end=numpy.zeros(n_tags),
            lengths=self.lengths,
        )
        return chain.constrain(scores, self.constraints)

    def weight_gradient(self, gradient: Potentials) -> Floats1d:
        """Turn the derivative with respect to scores into the derivative with respect to weights.
        Shape: (D,)"""
        d_feature_weights = self.features.T @ gradient.emissions
        d_step_weights = self.steps * gradient.transitions
        return numpy.concatenate([d_feature_weights, d_step_weights]).reshape(-1)

    def error(self, vector: Floats1d) -> float:
        """Compute the percentage of wrong tags in the best paths with these weights."""
        predicted = chain.best_path(self.score(vector)).tags
        return 100 * float((predicted != self.tags).mean())


def features_as_matrix(rows: Ints2d, n_features: int) -> csr_matrix:
    """Convert the features of each token, (N, S) with -1 for none, to zeros and ones. Shape: (N,
    V)"""
    token, slot = numpy.nonzero(rows >= 0)
    ones = numpy.ones(len(token))
    return csr_matrix((ones, (token, rows[token, slot])), shape=(len(rows), n_features))


class ComponentSequences:
    """Examples with the features and the legal paths of a component. Unlike in `Sequences`, paths
    also have start and end scores."""

    def __init__(self, ner: CostSensitiveNER, examples: list[Example]) -> None:
        """Read the examples, all in one batch because the loss is the Z-score."""
        self.total = TotalLoss(ner.model, ner.objective, ner.chain_tags, examples, c2=0.0)
        (batch,) = self.total.batches
        self.targets = batch.targets
        self.tags = self.targets.gold.tags
        self.size = int(numpy.prod(self.total.shape))

    def score(self, vector: Floats1d) -> Potentials:
        """Compute the scores for a vector of weights: see `Sequences.score`."""
        scores = next(self.total.score(vector))
        return chain.constrain(scores, self.targets.constraints)

    def weight_gradient(self, gradient: Potentials) -> Floats1d:
        """Compute the derivative with respect to the weights: see `Sequences.weight_gradient`."""
        return self.total.sum_gradients([gradient])


class AllPaths:
    """All legal paths, with equal probabilities. Computes the mean and the covariance of the counts
    of their tags and transitions for the Z-score."""

    def __init__(self, legal: Potentials) -> None:
        """Initialize. The scores in `legal` are equal for all legal paths, and minus infinity for
        others."""
        self.ones = numpy.ones(len(legal.lengths))
        self.messages = chain.forward_backward(legal)

    def average(self) -> Potentials:
        """Compute the mean counts of tags and transitions, summed over sequences."""
        # They are the gradient of log Z.
        _, backprop = self.messages.log_partition()
        return backprop(self.ones)

    def covariance(self, values: Potentials) -> Potentials:
        """Compute the covariances of these counts with the value of a path, summed over sequences.
        `values` contains what each tag and transition adds to the value of a path."""
        # They are the gradient of the expected value.
        _, backprop = self.messages.expectation(values)
        return backprop(self.ones)


class SampledPaths:
    """A sample of n legal paths for each sequence, as an alternative to `AllPaths` with the same
    methods."""

    def __init__(self, legal: Potentials, n: int, rng: Generator) -> None:
        """Sample the paths, and look up their tags and transitions."""
        self.n_tags = len(legal.start)
        self.lengths = legal.lengths
        self.tags = chain.sample_paths(legal, n, rng).astype("int64")  # (n, N)
        n_tokens = self.tags.shape[1]

        # The first and the last token of each non-empty sequence, and all tokens except the first
        # ones.
        ends = numpy.cumsum(self.lengths)
        has_tokens = self.lengths > 0
        self.first = (ends - self.lengths)[has_tokens]
        self.last = ends[has_tokens] - 1
        self.is_later = numpy.ones(n_tokens, dtype=bool)
        self.is_later[self.first] = False

        # A cell of the emissions, (N, K), as one number: K times the token + its tag, for each
        # token of each path, (n, N). A cell of the transitions, (K, K), is numbered in the same
        # way: K times the tag of the previous token + the tag of the token, (n, later tokens).
        self.emission_cells = self.tags + self.n_tags * numpy.arange(n_tokens)
        pairs = self.n_tags * self.tags[:, :-1] + self.tags[:, 1:]
        self.transition_cells = pairs[:, self.is_later[1:]]

    def average(self) -> Potentials:
        """See `AllPaths.average`."""
        n_paths = len(self.tags)
        return self._count(numpy.full((n_paths, len(self.lengths)), 1 / n_paths))

    def covariance(self, values: Potentials) -> Potentials:
        """See `AllPaths.covariance`."""
        # What each token adds to the value of its path. Shape: (n, N)
        values_of_tokens = values.emissions.ravel()[self.emission_cells].astype("float64")
        values_of_tokens[:, self.is_later] += values.transitions.ravel()[self.transition_cells]
        values_of_tokens[:, self.first] += values.start[self.tags[:, self.first]]
        values_of_tokens[:, self.last] += values.end[self.tags[:, self.last]]

        # The value of each path: a difference between cumulative sums. Shape: (n, B)
        sums = numpy.pad(values_of_tokens.cumsum(axis=1), ((0, 0), (1, 0)))
        ends = numpy.cumsum(self.lengths)
        path_values = sums[:, ends] - sums[:, ends - self.lengths]
        deviations = path_values - path_values.mean(axis=0)
        return self._count(deviations * (1 / len(self.tags)))

    def _count(self, path_weights: Floats2d) -> Potentials:
        """Count each tag and transition in the paths, weighted by path. Shape of the weights: (n,
        B)"""
        n_tags = self.n_tags
        n_tokens = self.tags.shape[1]
        token_weights = numpy.repeat(path_weights, self.lengths, axis=1)

        def count(cells: Array2d, tokens: Array1d, n_cells: int) -> Floats1d:
            """Sum the weights in each cell. `tokens` contains the token of each column of
            `cells`."""
            weights = token_weights[:, tokens]
            return numpy.bincount(cells.ravel(), weights.ravel(), minlength=n_cells)

        all_tokens = slice(None)
        return Potentials(
            emissions=count(self.emission_cells, all_tokens, n_tokens * n_tags).reshape(-1, n_tags),
            transitions=count(self.transition_cells, self.is_later, n_tags**2).reshape(-1, n_tags),
            start=count(self.tags[:, self.first], self.first, n_tags),
            end=count(self.tags[:, self.last], self.last, n_tags),
            lengths=self.lengths,
        )


class Moments:
    """The linear equations whose solution has the best Z-score.

        (C* + 2 c2 I) theta = b*

    b* is the sum over the sequences of gold's feature counts minus their mean over all legal paths.
    C* is the sum of the covariances of these counts. Without a penalty, the scale of theta doesn't
    matter. C* is never formed: its product with a vector is the gradient of the expected score of a
    path, at scores of 0.

    Ricci, De Bie & Cristianini, sections 3 to 5; the penalty is ours.
    """

    def __init__(
        self,
        sequences: Sequences | ComponentSequences,
        *,
        c2: float,
        n_sampled: int | None = None,
        seed: int = 0,
    ) -> None:
        """Initialize, and compute b* as `right`.

        sequences (Sequences | ComponentSequences): The sequences.
        c2 (float): Weight of the penalty.
        n_sampled (int | None): How many paths to sample for each sequence, once (section 6). None:
            use all legal paths.
        seed (int): The seed for sampling.
        """
        self.sequences = sequences
        self.c2 = c2
        legal = uniform_over_legal(sequences.score(numpy.zeros(sequences.size)))
        self.paths: AllPaths | SampledPaths = AllPaths(legal)
        if n_sampled is not None:
            self.paths = SampledPaths(legal, n_sampled, numpy.random.default_rng(seed))
        self.average = self.paths.average()

        # The counts of gold are the gradient of its score.
        _, backprop_gold = chain.path_score(legal, sequences.tags)
        gold_counts = backprop_gold(numpy.ones(len(legal.lengths)))
        gold_features = sequences.weight_gradient(gold_counts)
        self.right = gold_features - sequences.weight_gradient(self.average)

    def __call__(self, vector: Floats1d) -> Floats1d:
        """Multiply (C* + 2 c2 I) by a vector."""
        return self.covariance(self.sequences.score(vector)) + 2 * self.c2 * vector

    def covariance(self, values: Potentials) -> Floats1d:
        """Compute the covariance of the features with the value of a path. For the scores of the
        weights theta, this is C* theta."""
        # The derivative of scores with respect to weights is the feature counts of a path, so
        # `weight_gradient` turns covariances of tags and transitions into covariances of features.
        covariance_of_counts = self.paths.covariance(zero_forbidden(values))
        return self.sequences.weight_gradient(covariance_of_counts)


def solve(multiply: Callable[[Floats1d], Floats1d], right: Floats1d) -> Floats1d:
    """Solve A x = b by conjugate gradient from 0, which finds the shortest solution if A is
    singular. Stop when the last ten steps have decreased x'A x / 2 - b'x by less than a fraction of
    its value, or when the residual is only rounding error.

    multiply (Callable[[Floats1d], Floats1d]): Multiplies A by a vector.
    right (Floats1d): The right-hand side, b. Shape: (D,)

    Hestenes & Stiefel (1952).
    """
    solution = numpy.zeros_like(right)
    residual = right
    direction = right
    values: list[float] = []
    least_length = ROUNDING**2 * float(right @ right)
    while residual.any() and not has_settled(values, SETTLED):
        product = multiply(direction)
        curvature = float(direction @ product)
        squared_length = float(residual @ residual)
        can_improve = curvature > 0 and squared_length > least_length
        if not can_improve:
            break
        # Move along the direction to the minimum, then continue in a conjugate direction.
        step = squared_length / curvature
        solution = solution + step * direction
        residual = residual - step * product
        direction = residual + float(residual @ residual) / squared_length * direction
        # x'A x / 2 - b'x, with A x = b - residual
        values.append(-0.5 * float(solution @ (right + residual)))
    return solution


def best_z_score(
    sequences: Sequences | ComponentSequences,
    *,
    c2: float,
    n_sampled: int | None = None,
    seed: int = 0,
) -> Floats1d:
    """Compute the weights with the best Z-score, theta, up to scale: section 5. See `Moments` for
    the arguments. Shape: (D,)"""
    moments = Moments(sequences, c2=c2, n_sampled=n_sampled, seed=seed)
    return solve(moments, moments.right)


def best_hamming_z_score(sequences: Sequences, *, c2: float) -> Floats1d:
    """Compute the weights with the best Z-score under the Hamming loss: section 5.1. Shape: (D,)

        theta = C*^-1 (alpha b* - c_l),  alpha = max(0, 1 + mu_l + b*'C*^-1 c_l) / b*'C*^-1 b*

    This minimises the variance of theta'f(y) + l(y), given that gold leads its mean by 1. (The
    paper has 1 - mu_l - b*'C*^-1 c_l.)
    """
    moments = Moments(sequences, c2=c2)
    without_constraints = sequences._replace(constraints=Constraints())
    zeros = without_constraints.score(numpy.zeros(sequences.size))
    cost = sequences.gold.costs
    mean_loss = float((moments.average.emissions * cost).sum())  # mu_l
    c_l = moments.covariance(zeros._replace(emissions=cost))

    # C*^-1 b* and C*^-1 c_l
    theta_of_gold = solve(moments, moments.right)
    theta_of_loss = solve(moments, c_l)
    margin = max(0.0, 1 + mean_loss + float(moments.right @ theta_of_loss))
    alpha = margin / float(moments.right @ theta_of_gold)
    return alpha * theta_of_gold - theta_of_loss


def best_constrained_z_score(
    sequences: Sequences, *, c2: float, c: float, tolerance: float
) -> Minimum:
    """Compute the weights with the best Z-score under the constraints (3): gold must have the
    highest score. Constraints are added one at a time, as in Altun, Tsochantaridis & Hofmann
    (2003). Shape: (D,)

        min theta'(C* + 2 c2 I) theta / 2 + c f(theta)   with b*'theta >= L

    f is the sum of `losses.perceptron`, the difference between the highest score of each sequence
    and the score of gold. It is 0 if all constraints hold. L is the lead of `best_z_score`, which
    is the solution for c = 0. If all constraints can hold, they do for a large c.

    f is never below its planes, f(theta) >= s_p'theta, where s_p is its slope at earlier weights:
    the features of the highest-scoring paths minus the features of gold. With A = C* + 2 c2 I, the
    minimum with planes instead of f is theta = A^-1 (a_0 b* - sum_p a_p s_p), with the multipliers
    a_p from `best_multipliers`. As in `cutting_planes`, its value is a lower bound. The search ends
    when the lowest value so far exceeds the bound by less than the tolerance, as a fraction of the
    value.
    """
    moments = Moments(sequences, c2=c2)
    violation = loss_of_weights(sequences, perceptron)
    # The lead and the planes: b*, then -s_p for each plane; and A^-1 times these. Shapes: (P, D)
    rows = moments.right[None]
    solutions = solve(moments, moments.right)[None]
    lead = float(moments.right @ solutions[0])
    multipliers = numpy.ones(1)
    best_vector = solutions[0]
    least_value = float("inf")
    for n_evaluations in range(1, MOST_PLANES + 1):
        vector = multipliers @ solutions
        value, slope = violation(vector)
        spread = float(multipliers @ (rows @ vector))  # theta'A theta
        objective = spread / 2 + c * value
        if objective < least_value:
            best_vector = vector
            least_value = objective
        # Without planes, the bound is the value of the closed form.
        bound = float(multipliers[0]) * lead - spread / 2
        if least_value - bound <= tolerance * least_value:
            return Minimum(best_vector, least_value, n_evaluations, n_evaluations, "converged")

        # Planes without a multiplier are dropped.
        is_kept = multipliers > NO_SHARE
        is_kept[0] = True
        rows = numpy.concatenate([rows[is_kept], -slope[None]])
        solutions = numpy.concatenate([solutions[is_kept], solve(moments, -slope)[None]])
        offsets = numpy.zeros(len(rows))
        offsets[0] = lead
        multipliers = best_multipliers(
            rows @ solutions.T,
            offsets,
            start=numpy.append(multipliers[is_kept], 0.0),
            constraint={"type": "ineq", "fun": lambda a: c - a[1:].sum()},
        )
    return Minimum(best_vector, least_value, MOST_PLANES, MOST_PLANES, "iterations used up")


def most_likely(sequences: Sequences, *, c2: float) -> Floats1d:
    """Train a CRF: minimise the negative log-likelihood plus c2 times the sum of squared weights.
    Returns the weights. Shape: (D,)"""
    total = loss_of_weights(sequences, sequential)

    def penalised(vector: Floats1d) -> tuple[float, Floats1d]:
        value, gradient = total(vector)
        return value + c2 * float(vector @ vector), gradient + 2 * c2 * vector

    return minimise_by_lbfgs(penalised, numpy.zeros(sequences.size)).vector


def largest_margin(
    sequences: Sequences, *, c: float, tolerance: float, loss: LossFunction = max_margin
) -> Minimum:
    """Train by a margin method: minimise C times its loss plus half the sum of squared weights. The
    loss is `losses.max_margin` with the Hamming loss, or `sequence_margin`. See
    `cutting_planes`."""
    total = loss_of_weights(sequences, loss)
    return cutting_planes(total, sequences.size, c=c, tolerance=tolerance)


def sequence_margin(potentials: Potentials, gold: Gold) -> LossResult:
    """Compute the hinge loss of whole sequences: gold must lead every other path by 1, no matter
    how many of the other path's tags are wrong.

        loss = max(0, 1 + max_{y != y*} s(y) - s(y*))

    Altun, Tsochantaridis & Hofmann (2003).
    """
    _, competitor_score = best_competitor(potentials, gold)
    _, gold_path_score = best_gold(potentials, gold)
    return difference_of_scores(
        competitor_score, gold_path_score, gold, lambda violation: hinge(1 + violation)
    )


def hidden_markov_perceptron(
    sequences: Sequences, *, n_epochs: int, averaged: bool = False
) -> Floats1d:
    """Train the perceptron, with steps of 1 for each sequence whose best path is wrong. It stops
    after `n_epochs`, or after an epoch without a mistake. Returns the last weights or, if
    `averaged`, the mean of the weights after each sequence. Shape: (D,)

    Collins (2002).
    """
    vector = numpy.zeros(sequences.size)
    total = numpy.zeros(sequences.size)
    each_sequence = sequences.apart()
    for _ in range(n_epochs):
        is_perfect = True
        for sequence in each_sequence:
            _, gradient = perceptron(sequence.score(vector), sequence.gold)
            step = sequence.weight_gradient(gradient)
            if step.any():
                is_perfect = False
                vector = vector - step
            total += vector
        if is_perfect:
            break
    # The scale of the weights doesn't matter, so the sum can replace the mean.
    return total if averaged else vector


def loss_of_weights(sequences: Sequences, loss: LossFunction) -> Objective:
    """Make a function that maps weights to the loss of all sequences and its gradient."""

    def evaluate(vector: Floats1d) -> tuple[float, Floats1d]:
        value, gradient = loss(sequences.score(vector), sequences.gold)
        return value, sequences.weight_gradient(gradient)

    return evaluate


def cutting_planes(function: Objective, size: int, *, c: float, tolerance: float) -> Minimum:
    """Minimise a convex function with kinks, times C, plus half the sum of the squares of its
    argument.

    Each evaluation gives a plane that is never above the function. The maximum of all planes plus
    the squares is never above the objective, so its minimum is a lower bound, and the function is
    evaluated there next. At that minimum, each plane has a share in balancing the squares. Planes
    without a share are dropped. The search ends when the lowest value so far exceeds the bound by
    less than the tolerance, as a fraction of the value.

    Teo, Vishwanathan, Smola & Le (2010), algorithm 3."""
    # The planes: w'slope + offset. Shapes: (P, D), (P,), (P,)
    slopes = numpy.zeros((0, size))
    offsets = numpy.zeros(0)
    shares = numpy.zeros(0)
    vector = numpy.zeros(size)
    best_vector = vector
    least_value = float("inf")
    for n_evaluations in range(1, MOST_PLANES + 1):
        value, slope = function(vector)
        objective = c * value + float(vector @ vector) / 2
        if objective < least_value:
            best_vector = vector
            least_value = objective

        # The new plane touches C times the function at the vector.
        has_share = shares > NO_SHARE
        slopes = numpy.concatenate([slopes[has_share], c * slope[None]])
        offsets = numpy.append(offsets[has_share], c * (value - float(slope @ vector)))

        # The minimum of the planes and the squares, and the value there.
        shares = best_shares(slopes @ slopes.T, offsets)
        vector = -shares @ slopes
        bound = float(shares @ offsets) - float(vector @ vector) / 2
        if least_value - bound <= tolerance * least_value:
            return Minimum(best_vector, least_value, n_evaluations, n_evaluations, "converged")
    return Minimum(best_vector, least_value, MOST_PLANES, MOST_PLANES, "iterations used up")


def best_shares(products: Floats2d, offsets: Floats1d) -> Floats1d:
    """Compute the shares of planes in the bound of `cutting_planes`: multipliers that sum to 1. See
    `best_multipliers`. Shape: (P,)"""
    n_planes = len(offsets)
    ones = numpy.ones(n_planes)
    shares = best_multipliers(
        products,
        offsets,
        start=ones / n_planes,
        constraint={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": lambda a: ones},
    )
    return shares / shares.sum()


def best_multipliers(
    products: Floats2d, offsets: Floats1d, *, start: Floats1d, constraint: Mapping[str, Any]
) -> Floats1d:
    """Find the non-negative a that maximises b'a - a'G a / 2, for the products G, (P, P), and the
    offsets b, (P,). The search starts at `start`. The constraint is in the format of
    `scipy.optimize.minimize`. Shape: (P,)"""
    # Scaled, because SLSQP stops by absolute differences.
    scale = float(numpy.abs(products).max())
    if scale == 0:
        scale = 1.0
    g = products / scale
    b = offsets / scale

    def objective(a: Floats1d) -> tuple[float, Floats1d]:
        """Compute the objective to minimise, a'G a / 2 - b'a, and its gradient."""
        return float(a @ g @ a) / 2 - float(a @ b), g @ a - b

    optimum = minimize(
        objective,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0, None)] * len(b),
        constraints=constraint,
        options={"ftol": 1e-14, "maxiter": 300},
    )
    return optimum.x.clip(0)  # rounding may leave them below 0


class HMM(NamedTuple):
    """A hidden Markov model whose first states are equally probable.

    transitions (Floats2d): The probability of each state after each state. Shape: (K, K)
    emissions (Floats2d): The probability of each symbol in each state. Shape: (K, V)
    """

    transitions: Floats2d
    emissions: Floats2d

    @property
    def weights(self) -> Floats1d:
        """The logarithms of its probabilities, as weights of `Sequences`. Shape: (D,)"""
        probabilities = numpy.concatenate([self.emissions.T, self.transitions])
        return numpy.log(probabilities).ravel()

    def sample(self, n: int, length: int, rng: Generator) -> Sequences:
        """Sample n sequences of the given length. The tags are the states, the features the
        symbols."""
        n_states, n_symbols = self.emissions.shape
        states = numpy.empty((n, length), dtype="int32")
        states[:, 0] = rng.integers(n_states, size=n)
        for t in range(1, length):
            probabilities = self.transitions[states[:, t - 1]]  # of the next states, (n, K)
            states[:, t] = draw_columns(probabilities, rng)
        tags = states.ravel()
        symbols = draw_columns(self.emissions[tags], rng)
        return Sequences(
            features=features_as_matrix(symbols[:, None], n_symbols),
            tags=tags,
            lengths=numpy.full(n, length, dtype="int32"),
            steps=numpy.ones((n_states, n_states)),
        )


def draw_columns(probabilities: Floats2d, rng: Generator) -> Ints1d:
    """Sample a column for each row by the row's probabilities. Shape: (R, C) to (R,)"""
    # The index is the number of columns whose cumulative probability is below a random number from
    # 0 to 1. The last column is left out, because rounding may leave the total below 1.
    is_passed = probabilities.cumsum(axis=1) < rng.random((len(probabilities), 1))
    return is_passed[:, :-1].sum(axis=1)


def random_hmm(
    n_states: int,
    n_symbols: int,
    rng: Generator,
    *,
    transitions: float = 1.0,
    emissions: float = 1.0,
    balanced: bool = False,
) -> HMM:
    """Draw a random HMM. The probabilities of each state come from a Dirichlet distribution.

    n_states (int), n_symbols (int): K and V.
    transitions (float), emissions (float): The concentration of the Dirichlet distribution. At 1,
        all distributions are equally likely. Higher values make the probabilities more even, lower
        values concentrate them on few outcomes.
    balanced (bool): Whether all states have the same transition probabilities relative to the
        state. All states are then equally frequent.
    """
    after_state = rng.dirichlet(numpy.full(n_states, transitions), size=n_states)
    if balanced:
        after_state = numpy.stack([numpy.roll(after_state[0], i) for i in range(n_states)])
    symbols_of_state = rng.dirichlet(numpy.full(n_symbols, emissions), size=n_states)
    return HMM(transitions=after_state, emissions=symbols_of_state)
