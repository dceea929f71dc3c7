"""Linear chains on arrays, for what the paper of the Z-score does without entities: labels of any
kind, every sequence of which is possible; the Z-score in closed form, also with the Hamming loss,
the margin method, the likelihood; hidden Markov models to draw sequences from."""

from collections.abc import Callable
from typing import NamedTuple

import numpy
from numpy.random import Generator
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from spacy.training import Example
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, Ints1d, Ints2d

from spacy_costner import chain
from spacy_costner.losses import max_margin, sequential
from spacy_costner.losses.composition import uniform_over_legal, zero_forbidden
from spacy_costner.pipeline.component import CostSensitiveNER
from spacy_costner.training.lbfgs import Minimum, TotalLoss, has_settled, minimise_by_lbfgs
from spacy_costner.types import Constraints, Gold, LossResult, Potentials

MOST_PLANES = 1000
"""Cutting planes after which the margin's optimum is given up."""

NO_SHARE = 1e-9
"""Cutting planes with no more of a share are dropped."""

SETTLED, ROUNDING = 1e-5, 4 * float(numpy.finfo("float64").eps)
"""Where conjugate gradient ends: see `solve`. scipy's `cg` ends by the residual alone."""

Objective = Callable[[Floats1d], tuple[float, Floats1d]]
"""Takes a vector to value and gradient."""


class Sequences(NamedTuple):
    """Labelled sequences.

    seen (csr_matrix): The features of each token, as ones. Shape: (N, V)
    tags (Ints1d): The gold tag of each token. Shape: (N,)
    lengths (Ints1d): Tokens of each sequence. Shape: (B,)
    steps (Floats2d): The value of each transition as a feature: 1, less where its weight is
        to be penalised more, 0 where it has none. Shape: (K, K)
    constraints (Constraints): The possible paths; all, if nothing is said.
    """

    seen: csr_matrix
    tags: Ints1d
    lengths: Ints1d
    steps: Floats2d
    constraints: Constraints = Constraints()

    @property
    def size(self) -> int:
        """How many weights there are: D = (V + K) K."""
        return (self.seen.shape[1] + len(self.steps)) * len(self.steps)

    @property
    def gold(self) -> Gold:
        """Gold with the Hamming cost."""
        cost = numpy.arange(len(self.steps)) != self.tags[:, None]
        return Gold(tags=self.tags, cost=cost.astype("float64"))

    def score(self, vector: Floats1d) -> Potentials:
        """The scores under some weights: those of the features, then of the steps. Shape: (D,)"""
        k = len(self.steps)
        weights = vector.reshape(-1, k)
        emissions, transitions = self.seen @ weights[:-k], self.steps * weights[-k:]
        scores = Potentials(emissions, transitions, numpy.zeros(k), numpy.zeros(k), self.lengths)
        return chain.constrain(scores, self.constraints)

    def weight_gradient(self, gradient: Potentials) -> Floats1d:
        """The derivative with respect to scores as one with respect to weights. Shape: (D,)"""
        transitions = self.steps * gradient.transitions
        return numpy.concatenate([self.seen.T @ gradient.emissions, transitions]).reshape(-1)

    def error(self, vector: Floats1d) -> float:
        """How many tags are wrong under some weights, in per cent."""
        return 100 * float((chain.best_path(self.score(vector)).tags != self.tags).mean())


def features_as_matrix(rows: Ints2d, n_features: int) -> csr_matrix:
    """The features of each token, (N, S) with -1 for none, as zeros and ones. Shape: (N, V)"""
    token, slot = numpy.nonzero(rows >= 0)
    ones = numpy.ones(len(token))
    return csr_matrix((ones, (token, rows[token, slot])), shape=(len(rows), n_features))


class OfComponent:
    """Examples with the features and the legal paths of a component, with starts and ends."""

    def __init__(self, ner: CostSensitiveNER, examples: list[Example]) -> None:
        """Read the examples; all in one batch, as the loss is the Z-score."""
        self.total = TotalLoss(ner.model, ner.objective, ner.chain_tags, examples, c2=0.0)
        (batch,) = self.total.batches
        self.targets = batch.targets
        self.tags, self.size = self.targets.gold.tags, int(numpy.prod(self.total.shape))

    def score(self, vector: Floats1d) -> Potentials:
        return chain.constrain(next(self.total.score(vector)), self.targets.constraints)

    def weight_gradient(self, gradient: Potentials) -> Floats1d:
        return self.total.sum_gradients([gradient])


class AllPaths:
    """All legal paths, each with the same probability."""

    def __init__(self, legal: Potentials) -> None:
        self.ones = numpy.ones(len(legal.lengths))
        self.messages = chain.forward_backward(legal)

    def average(self) -> Potentials:
        """The mean counts of tags and transitions, summed over sequences."""
        return self.messages.log_partition()[1](self.ones)

    def covariance(self, values: Potentials) -> Potentials:
        """The covariances of these counts with the value of a path, summed over sequences."""
        return self.messages.expectation(values)[1](self.ones)


class SampledPaths:
    """n legal paths of each sequence: see `AllPaths`."""

    def __init__(self, legal: Potentials, n: int, rng: Generator) -> None:
        """Draw them, and find their tags and transitions."""
        n_tags, lengths = len(legal.start), legal.lengths
        self.tags = chain.sample_paths(legal, n, rng).astype("int64")
        self.n_tags, self.lengths = n_tags, lengths
        ends = numpy.cumsum(lengths)
        self.first, self.last = (ends - lengths)[lengths > 0], ends[lengths > 0] - 1
        self.later = numpy.ones(self.tags.shape[1], dtype=bool)
        self.later[self.first] = False
        self.at = self.tags + n_tags * numpy.arange(self.tags.shape[1])
        self.pairs = (n_tags * self.tags[:, :-1] + self.tags[:, 1:])[:, self.later[1:]]

    def average(self) -> Potentials:
        n = len(self.tags)
        return self._count(numpy.full((n, len(self.lengths)), 1 / n))

    def covariance(self, values: Potentials) -> Potentials:
        steps = values.emissions.ravel()[self.at].astype("float64")
        steps[:, self.later] += values.transitions.ravel()[self.pairs]
        steps[:, self.first] += values.start[self.tags[:, self.first]]
        steps[:, self.last] += values.end[self.tags[:, self.last]]
        sums, ends = numpy.pad(steps.cumsum(axis=1), ((0, 0), (1, 0))), numpy.cumsum(self.lengths)
        of_path = sums[:, ends] - sums[:, ends - self.lengths]
        return self._count((of_path - of_path.mean(axis=0)) * (1 / len(self.tags)))

    def _count(self, of_path: Floats2d) -> Potentials:
        """How often the paths take each step, if each counts so much. Shape of `of_path`: (n, B)"""
        k, of_token = self.n_tags, numpy.repeat(of_path, self.lengths, axis=1)

        def count(steps: Array2d, columns: Array1d, size: int) -> Floats1d:
            return numpy.bincount(steps.ravel(), of_token[:, columns].ravel(), minlength=size)

        return Potentials(
            emissions=count(self.at, slice(None), k * self.tags.shape[1]).reshape(-1, k),
            transitions=count(self.pairs, self.later, k * k).reshape(k, k),
            start=count(self.tags[:, self.first], self.first, k),
            end=count(self.tags[:, self.last], self.last, k),
            lengths=self.lengths,
        )


class Moments:
    """The linear equations whose solution has the best Z-score.

        (C* + 2 c2 I) theta = b*

    b* is the sum over the sequences of gold's feature counts minus their mean over all legal
    paths. C* is the sum of the covariances of these counts. Without a penalty the scale of
    theta doesn't matter. C* is never formed: its product with a vector is the gradient of the
    expected score of a path, at scores of 0.

    Ricci, De Bie & Cristianini, sections 3 to 5; the penalty is ours.
    """

    def __init__(
        self,
        sequences: Sequences | OfComponent,
        *,
        c2: float,
        n_sampled: int | None = None,
        seed: int = 0,
    ) -> None:
        """Find b*, `right`.

        sequences (Sequences | OfComponent): The sequences.
        c2 (float): Weight of the penalty.
        n_sampled (int | None): How many paths to draw once for each sequence, in place of all
            legal paths (section 6). None: all legal paths.
        seed (int): The seed of the draws.
        """
        self.sequences, self.c2 = sequences, c2
        legal = uniform_over_legal(sequences.score(numpy.zeros(sequences.size)))
        self.paths: AllPaths | SampledPaths = AllPaths(legal)
        if n_sampled is not None:
            self.paths = SampledPaths(legal, n_sampled, numpy.random.default_rng(seed))
        self.average = self.paths.average()
        gold = chain.path_score(legal, sequences.tags)[1](numpy.ones(len(legal.lengths)))
        self.right = sequences.weight_gradient(gold) - sequences.weight_gradient(self.average)

    def __call__(self, vector: Floats1d) -> Floats1d:
        """(C* + 2 c2 I) times a vector."""
        return self.covariance(self.sequences.score(vector)) + 2 * self.c2 * vector

    def covariance(self, values: Potentials) -> Floats1d:
        """The covariance of the features with the value of a path."""
        return self.sequences.weight_gradient(self.paths.covariance(zero_forbidden(values)))


def solve(multiply: Callable[[Floats1d], Floats1d], right: Floats1d) -> Floats1d:
    """Solve A x = b by conjugate gradient from 0, which finds the shortest solution if A is
    singular. `multiply` takes a vector to A times it, `right` is b, (D,). It ends where the last
    ten steps made x'A x / 2 - b'x smaller by less than a share of it, or where all of the residual
    is rounding.

    Hestenes & Stiefel (1952).
    """
    residual = direction = right
    solution, values = numpy.zeros_like(right), list[float]()
    while residual.any() and not has_settled(values, SETTLED):
        product = multiply(direction)
        curvature, length = float(direction @ product), float(residual @ residual)
        if not (curvature > 0 and length > ROUNDING**2 * float(right @ right)):
            break
        solution = solution + length / curvature * direction
        residual = residual - length / curvature * product
        direction = residual + float(residual @ residual) / length * direction
        values.append(-0.5 * float(solution @ (right + residual)))
    return solution


def best_z_score(
    sequences: Sequences | OfComponent,
    *,
    c2: float,
    n_sampled: int | None = None,
    seed: int = 0,
) -> Floats1d:
    """The weights of the best Z-score, theta, up to their scale: section 5. For the arguments see
    `Moments`. Shape: (D,)"""
    moments = Moments(sequences, c2=c2, n_sampled=n_sampled, seed=seed)
    return solve(moments, moments.right)


def best_hamming_z_score(sequences: Sequences, *, c2: float) -> Floats1d:
    """The weights of the best Z-score with the Hamming loss: section 5.1. Shape: (D,)

        theta = C*^-1 (alpha b* - c_l),  alpha = max(0, 1 + mu_l + b*'C*^-1 c_l) / b*'C*^-1 b*

    which is the least variance of theta'f(y) + l(y) at which gold leads its mean by 1. (The
    paper has 1 - mu_l - b*'C*^-1 c_l.)
    """
    moments = Moments(sequences, c2=c2)
    zeros = sequences._replace(constraints=Constraints()).score(numpy.zeros(sequences.size))
    cost = sequences.gold.cost
    mean = float((moments.average.emissions * cost).sum())
    of_gold = solve(moments, moments.right)
    of_loss = solve(moments, moments.covariance(zeros._replace(emissions=cost)))
    margin = max(0.0, 1 + mean + float(moments.right @ of_loss))
    return margin / float(moments.right @ of_gold) * of_gold - of_loss


def most_likely(sequences: Sequences, *, c2: float) -> Floats1d:
    """The weights of the CRF: the most likely ones, less c2 times the sum of their squares."""
    total = summed(sequences, sequential)

    def penalised(vector: Floats1d) -> tuple[float, Floats1d]:
        value, gradient = total(vector)
        return value + c2 * float(vector @ vector), gradient + 2 * c2 * vector

    return minimise_by_lbfgs(penalised, numpy.zeros(sequences.size)).vector


def largest_margin(sequences: Sequences, *, c: float, tolerance: float) -> Minimum:
    """The weights of the margin method with the Hamming loss: the least of C times
    `losses.max_margin` and half the sum of their squares. See `cutting_planes`."""
    return cutting_planes(summed(sequences, max_margin), sequences.size, c=c, tolerance=tolerance)


def summed(sequences: Sequences, loss: Callable[[Potentials, Gold], LossResult]) -> Objective:
    """A loss as a function of the weights."""

    def evaluate(vector: Floats1d) -> tuple[float, Floats1d]:
        value, gradient = loss(sequences.score(vector), sequences.gold)
        return value, sequences.weight_gradient(gradient)

    return evaluate


def cutting_planes(function: Objective, size: int, *, c: float, tolerance: float) -> Minimum:
    """Minimise a convex function with kinks, times C, and half the sum of the squares.

    Each evaluation gives a plane that the function is nowhere below. The least of all planes
    and the squares is a bound from below, and where it is the function is evaluated next. A plane's
    share is how much it holds that up. It ends when the best value is above the bound by less than
    a share of it, the tolerance.

    Teo, Vishwanathan, Smola & Le (2010), algorithm 3.
    """
    slopes, offsets, shares = numpy.zeros((0, size)), numpy.zeros(0), numpy.zeros(0)
    vector = best = numpy.zeros(size)
    least = float("inf")
    for n in range(1, MOST_PLANES + 1):
        value, slope = function(vector)
        objective = c * value + float(vector @ vector) / 2
        if objective < least:
            best, least = vector, objective
        held = shares > NO_SHARE
        slopes = numpy.concatenate([slopes[held], c * slope[None]])
        offsets = numpy.append(offsets[held], c * (value - float(slope @ vector)))
        shares = best_shares(slopes @ slopes.T, offsets)
        vector = -shares @ slopes
        bound = float(shares @ offsets) - float(vector @ vector) / 2
        if least - bound <= tolerance * least:
            return Minimum(best, least, n, n, "converged")
    return Minimum(best, least, MOST_PLANES, MOST_PLANES, "iterations used up")


def best_shares(products: Floats2d, offsets: Floats1d) -> Floats1d:
    """The a of all that are at least 0 and add up to 1 with the largest b'a - a'G a / 2, for
    the products G, (P, P), and the offsets b, (P,). Shape: (P,)"""
    scale = float(numpy.abs(products).max()) or 1.0
    g, b = products / scale, offsets / scale
    ones = numpy.ones(len(b))
    found = minimize(
        lambda a: (float(a @ g @ a) / 2 - float(a @ b), g @ a - b),
        ones / len(b),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * len(b),
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": lambda a: ones},
        options={"ftol": 1e-14, "maxiter": 300},
    )
    shares = found.x.clip(0)
    return shares / shares.sum()


class HMM(NamedTuple):
    """A hidden Markov model whose first state is any, each as probable as the other.

    transitions (Floats2d): The probability of each state after each. Shape: (K, K)
    emissions (Floats2d): That of each symbol in each state. Shape: (K, V)
    """

    transitions: Floats2d
    emissions: Floats2d

    @property
    def weights(self) -> Floats1d:
        """Its logarithms, as weights of `Sequences`. Shape: (D,)"""
        return numpy.concatenate([numpy.log(self.emissions.T), numpy.log(self.transitions)]).ravel()

    def sample(self, n: int, length: int, rng: Generator) -> Sequences:
        """Draw n sequences of a length."""
        k, v = self.emissions.shape
        states = numpy.empty((n, length), dtype="int32")
        states[:, 0] = rng.integers(k, size=n)
        for t in range(1, length):
            states[:, t] = drawn(self.transitions[states[:, t - 1]], rng)
        seen = features_as_matrix(drawn(self.emissions[states.ravel()], rng)[:, None], v)
        lengths = numpy.full(n, length, dtype="int32")
        return Sequences(seen, states.ravel(), lengths, numpy.ones((k, k)))


def drawn(probabilities: Floats2d, rng: Generator) -> Ints2d:
    """One of the columns of each row, drawn by its probabilities. Shape: (R, C) to (R,)"""
    passed = probabilities.cumsum(axis=1) < rng.random((len(probabilities), 1))
    return passed[:, :-1].sum(axis=1)


def random_hmm(
    n_states: int,
    n_symbols: int,
    rng: Generator,
    *,
    transitions: float = 1.0,
    emissions: float = 1.0,
    balanced: bool = False,
) -> HMM:
    """Draw an HMM, the probabilities of each state from a Dirichlet distribution.

    n_states (int), n_symbols (int): K and V.
    transitions (float), emissions (float): Its concentration: 1 for the uniform distribution;
        the higher, the more even they are, the lower, the fewer are probable.
    balanced (bool): Whether all states have the same probabilities of what comes after, each
        counted from itself; then they are equally frequent.
    """
    after = rng.dirichlet(numpy.full(n_states, transitions), size=n_states)
    if balanced:
        after = numpy.stack([numpy.roll(after[0], i) for i in range(n_states)])
    return HMM(after, rng.dirichlet(numpy.full(n_symbols, emissions), size=n_states))
