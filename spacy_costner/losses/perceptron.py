"""Mistake-driven losses: the structured perceptron and MIRA."""

from collections.abc import Sequence
from functools import partial

import numpy
from thinc.types import Array1d, Floats1d, Ints1d, Ints2d
from thinc.util import get_array_module

from ..costs.tables import hamming_cost
from ..ragged import first_tokens, last_tokens
from ..types import Cost, Gold, Loss, LossResult, Potentials
from ..validation import above, at_least
from .composition import (
    best_competitor,
    best_gold,
    cost_augment,
    difference,
    hinge,
    sequences_of_tokens,
)
from .margin import max_margin

NO_DISTANCE = 1e-9
"""Less than the distance of any two paths with different features."""


def make_perceptron(*, cost: Cost | None = None, alpha: float = 0.0) -> Loss:
    """Build the cost-sensitive structured perceptron: see `perceptron`.

    cost (Cost | None): What each mistake costs. Defaults to the Hamming cost, unless alpha is
        0.
    alpha (float): Score per unit of cost, 0 or more. 0 is the structured
        perceptron of Collins (2002).
    RAISES (ValueError): If alpha is negative or not finite, or 0 with a cost.
    """
    alpha = at_least(0, "Perceptron", "alpha", alpha)
    if cost is not None and alpha == 0:
        raise ValueError(
            f"spacy_costner.Perceptron: alpha: expected a number above 0 with a cost, got {alpha!r}"
        )
    if cost is None and alpha > 0:
        cost = hamming_cost
    compute = partial(perceptron, alpha=alpha)
    return Loss(compute, cost, is_smooth=False, has_probabilities=False)


def make_mira(
    *, cost: Cost | None = None, multiplier: float = 1.0, aggressiveness: float = 0.01
) -> Loss:
    """Build 1-best MIRA: see `mira`.

    cost (Cost | None): What each mistake costs. Defaults to the Hamming cost.
    multiplier (float): Score per unit of cost, 0 or more.
    aggressiveness (float): The maximum size of an update, above 0.
    RAISES (ValueError): If a number is out of its range.
    """
    multiplier = at_least(0, "MIRA", "multiplier", multiplier)
    aggressiveness = above(0, "MIRA", "aggressiveness", aggressiveness)
    compute = partial(mira, multiplier=multiplier, aggressiveness=aggressiveness)
    return Loss(
        compute, cost or hamming_cost, uses_features=True, is_smooth=False, has_probabilities=False
    )


def perceptron(potentials: Potentials, gold: Gold, *, alpha: float = 0.0) -> LossResult:
    """The structured perceptron with cost-augmented inference.

        loss = s(y^) + alpha C(y*, y^) - s(y*),  y^ = argmax_y s(y) + alpha C(y*, y)

    Its gradient is the perceptron's update; with a cost it is `max_margin`. The paper uses
    plain SGD with a learning rate of 1 and averaged weights.

    Higashiyama et al., eq 5 to 7; Collins (2002).
    """
    return max_margin(potentials, gold, multiplier=alpha)


def mira(
    potentials: Potentials, gold: Gold, *, multiplier: float = 1.0, aggressiveness: float = 0.01
) -> LossResult:
    """1-best MIRA, also called PA-I: the smallest update that corrects a mistake, up to a limit.

        loss = h^2 / (2 n)           if h < a n
               a h - a^2 n / 2       otherwise

    a is the aggressiveness, and h the value of `max_margin`. n is the squared distance between the
    features of its path and those of gold. The features of a path are each feature of a token with
    the tag there, each transition, the start and the end. If gold has no features, each token has
    one of its own. The gradient is min(a, h / n) times the difference of the features.

    Crammer et al. (2006), PA-I; Gimpel & Smith (2010), section 4.1; Higashiyama et al., tau.
    """
    raised = cost_augment(potentials, gold, multiplier)
    competitor, competitor_score = best_competitor(raised, gold)
    gold_path, gold_path_score = best_gold(potentials, gold)
    n = squared_distance(potentials, competitor, gold_path, gold.features)

    def step(violation: Floats1d) -> tuple[Floats1d, Floats1d]:
        """The loss of each sequence, and the size of its update: min(a, h / n)."""
        h, _ = hinge(violation)
        xp = get_array_module(h)
        steps = xp.minimum(aggressiveness, h / xp.maximum(n, NO_DISTANCE))
        return steps * h - steps**2 * n / 2, steps

    return difference(competitor_score, gold_path_score, gold, step)


def squared_distance(
    potentials: Potentials, path: Ints1d, other_path: Ints1d, features: Ints2d | None = None
) -> Floats1d:
    """How far apart two paths are in the features of the model: the squared distance of their
    counts of features, a whole number for each sequence. See `mira` for the features.

        n = || f(y) - f(y') ||^2

    path, other_path (Ints1d): The tags of both paths. Shapes: (N,)
    features (Ints2d | None): The features of each token: see `Gold`. Shape: (N, S)
    RETURNS (Floats1d): The distance of each sequence. Shape: (B,)
    """
    xp = get_array_module(potentials.emissions)
    n_tags = len(potentials.transitions)
    lengths = potentials.lengths
    sequence = sequences_of_tokens(potentials)
    differs = path != other_path

    # Transitions. The number of each is (from tag) * K + (to tag). They are at all tokens but the
    # first of each sequence.
    first = first_tokens(lengths)
    later = xp.asarray(numpy.delete(numpy.arange(len(sequence)), first))
    transitions = [tags[later - 1] * n_tags + tags[later] for tags in (path, other_path)]
    distance = _squared_differences(sequence[later], transitions, len(lengths))

    # Start and end. Where the tags differ, each path has a feature that the other has not: 1 + 1.
    first_and_last = xp.asarray(numpy.concatenate([first, last_tokens(lengths)]))
    n_different = _sum_by_group(sequence[first_and_last], differs[first_and_last], len(lengths))
    distance += 2 * n_different

    if features is None:
        # Each token has a feature that no other token has: the same as at start and end.
        return distance + 2 * _sum_by_group(sequence, differs, len(lengths))

    # Emissions, of the tokens whose tags differ. The number of each is feature * K + tag.
    different = xp.flatnonzero(differs)
    features_of_different = features[different].astype("int64")
    row, slot = xp.nonzero(features_of_different >= 0)  # -1 stands for no feature
    token = different[row]
    feature = features_of_different[row, slot]
    emissions = [feature * n_tags + tags[token] for tags in (path, other_path)]
    return distance + _squared_differences(sequence[token], emissions, len(lengths))


def _squared_differences(groups: Ints1d, pair: Sequence[Ints1d], n_groups: int) -> Floats1d:
    """The squared distance of the counts of features in two arrays, in each group:

        sum_f (n_f - n'_f)^2

    where n_f and n'_f are how often the first and the second array have the feature f.

    groups (Ints1d): The group of each place in both arrays. Shape: (R,)
    pair (Sequence[Ints1d]): The two arrays, with a feature at each place. Shapes: (R,)
    n_groups (int): The number of groups, G.
    RETURNS (Floats1d): The distances. Shape: (G,)
    """
    xp = get_array_module(groups)
    features = xp.concatenate(pair)
    # Group and feature are digits of one key, group * base + feature.
    base = int(features.max(initial=0)) + 1
    keys, index_of_key = xp.unique(xp.tile(groups, 2) * base + features, return_inverse=True)
    # n_f - n'_f of each key: a feature of the first array adds 1, of the second -1.
    signs = xp.repeat(xp.asarray([1.0, -1.0]), len(groups))
    differences = _sum_by_group(index_of_key, signs, len(keys))
    group_of_key = keys // base
    return _sum_by_group(group_of_key, differences**2, n_groups)


def _sum_by_group(groups: Ints1d, weights: Array1d, n_groups: int) -> Floats1d:
    """The sum of the weights of each group. Shapes: (R,) and (R,) to (G,)"""
    xp = get_array_module(weights)
    if len(weights) == 0:
        return xp.zeros(n_groups)
    return xp.bincount(groups, weights=weights.astype("float64"), minlength=n_groups)
