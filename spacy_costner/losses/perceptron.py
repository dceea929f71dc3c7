"""Losses that use only the best wrong path: the structured perceptron and MIRA.

In shapes, B is the number of sequences, N the number of tokens, K the number of tags, and S the
number of features per token.
"""

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
    difference_of_scores,
    hinge,
    sequences_of_tokens,
)
from .margin import max_margin

NO_DISTANCE = 1e-9
"""The divisor to use if the squared distance is 0. (The squared distance between two paths with
different features is at least 1.)"""


def make_perceptron(*, cost: Cost | None = None, alpha: float = 0.0) -> Loss:
    """Create the cost-sensitive structured perceptron: see `perceptron`.

    cost (Cost | None): The cost of each mistake. Defaults to the Hamming cost, unless alpha is 0.
    alpha (float): The amount added to a score per unit of cost, at least 0. With 0, the loss is the
        structured perceptron of Collins (2002).
    RAISES (ValueError): If alpha is negative, not finite in float32, or 0 with a cost.
    """
    alpha = at_least(0, "Perceptron", "alpha", alpha)
    if cost is not None and alpha == 0:
        raise ValueError(
            f"spacy_costner.Perceptron: alpha: expected a number above 0 with a cost, got {alpha!r}"
        )
    if cost is None and alpha > 0:
        cost = hamming_cost
    compute = partial(perceptron, alpha=alpha)
    # The loss has kinks where the best path changes. The scores of other paths are not trained, so
    # they can't be converted to probabilities.
    return Loss(compute, cost, is_smooth=False, has_probabilities=False)


def make_mira(
    *, cost: Cost | None = None, multiplier: float = 1.0, aggressiveness: float = 0.01
) -> Loss:
    """Create the 1-best MIRA loss: see `mira`.

    cost (Cost | None): The cost of each mistake. Defaults to the Hamming cost.
    multiplier (float): The amount added to a score per unit of cost, at least 0.
    aggressiveness (float): The maximum size of an update, above 0.
    RAISES (ValueError): If a number is out of range.
    """
    multiplier = at_least(0, "MIRA", "multiplier", multiplier)
    aggressiveness = above(0, "MIRA", "aggressiveness", aggressiveness)
    compute = partial(mira, multiplier=multiplier, aggressiveness=aggressiveness)
    # The size of an update depends on the tokens' features. Like the perceptron, MIRA has kinks and
    # doesn't provide probabilities.
    return Loss(
        compute, cost or hamming_cost, uses_features=True, is_smooth=False, has_probabilities=False
    )


def perceptron(potentials: Potentials, gold: Gold, *, alpha: float = 0.0) -> LossResult:
    """The structured perceptron with cost-augmented inference.

        loss = s(y^) + alpha C(y*, y^) - s(y*),  y^ = argmax_y s(y) + alpha C(y*, y)

    y* is the gold path, and y^ the best path after adding costs to the scores. The gradient is the
    perceptron update. With a cost, the loss is the same as `max_margin`. The paper uses plain SGD
    with a learning rate of 1 and averaged weights.

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
    features of the best wrong path and the features of the gold path. The features of a path are
    the features of each token combined with the token's tag, each transition, the start and the
    end. If `Gold.features` is None, each token has a single unique feature. The gradient is the
    size of the update, min(a, h / n), multiplied by the difference between the features.

    Crammer et al. (2006), PA-I; Gimpel & Smith (2010), section 4.1; Higashiyama et al., tau.
    """
    augmented = cost_augment(potentials, gold, multiplier)
    competitor, competitor_score = best_competitor(augmented, gold)
    gold_path, gold_path_score = best_gold(potentials, gold)
    n = squared_distance(potentials, competitor, gold_path, gold.features)

    def step(violation: Floats1d) -> tuple[Floats1d, Floats1d]:
        """Compute the loss of each sequence and the size of its update, min(a, h / n), which is the
        derivative of the loss. Shapes: (B,)"""
        h, _ = hinge(violation)
        xp = get_array_module(h)
        steps = xp.minimum(aggressiveness, h / xp.maximum(n, NO_DISTANCE))
        return steps * h - steps**2 * n / 2, steps

    return difference_of_scores(competitor_score, gold_path_score, gold, step)


def squared_distance(
    potentials: Potentials, path: Ints1d, other_path: Ints1d, features: Ints2d | None = None
) -> Floats1d:
    """Compute the squared distance between two paths for each sequence:

        n = || f(y) - f(y') ||^2

    f(y) contains the number of times each feature occurs in path y. For the features of a path, see
    `mira`. For `features`, see `Gold.features`. Shapes: (N,), (N,), (N, S) to (B,)
    """
    xp = get_array_module(potentials.emissions)
    n_tags = len(potentials.transitions)
    lengths = potentials.lengths
    sequence = sequences_of_tokens(potentials)
    differs = path != other_path

    # Transitions: there is one at each token except the first token of a sequence. Its number is
    # (from tag) * K + (to tag).
    first = first_tokens(lengths)
    all_tokens = numpy.arange(len(sequence))  # on the host, like the lengths
    later_tokens = xp.asarray(numpy.delete(all_tokens, first))
    transitions = [
        tags[later_tokens - 1] * n_tags + tags[later_tokens] for tags in (path, other_path)
    ]
    distance = _squared_differences(sequence[later_tokens], transitions, len(lengths))

    # Start and end: if the tags differ, each path has a feature that the other path doesn't have,
    # so the squared distance is 1 + 1.
    first_and_last = xp.asarray(numpy.concatenate([first, last_tokens(lengths)]))
    n_different = _sum_by_group(sequence[first_and_last], differs[first_and_last], len(lengths))
    distance += 2 * n_different

    if features is None:
        # Each token has a single unique feature, so it counts like the start and the end.
        return distance + 2 * _sum_by_group(sequence, differs, len(lengths))

    # Features of tokens, combined with their tags. Only tokens with different tags contribute to
    # the distance. The number of a feature with a tag is feature * K + tag.
    different_tokens = xp.flatnonzero(differs)
    token_features = features[different_tokens].astype("int64")
    row, slot = xp.nonzero(token_features >= 0)  # -1: no feature
    token = different_tokens[row]
    feature = token_features[row, slot]
    emissions = [feature * n_tags + tags[token] for tags in (path, other_path)]
    return distance + _squared_differences(sequence[token], emissions, len(lengths))


def _squared_differences(groups: Ints1d, pair: Sequence[Ints1d], n_groups: int) -> Floats1d:
    """Count the features of two arrays in each group, and sum the squared differences of the
    counts:

        sum_f (n_f - n'_f)^2

    For each group, n_f and n'_f are the counts of feature f in the first and the second array.
    `groups` contains the group of each position in both arrays, and `pair` contains the two
    arrays. Shapes: (R,), (R,) and (R,) to (G,)
    """
    xp = get_array_module(groups)
    if len(groups) == 0:  # an empty array has no maximum
        return xp.zeros(n_groups)
    features = xp.concatenate(pair)
    # Combine a group and a feature in one number, the key: group * base + feature.
    base = int(features.max()) + 1
    key_at_place = xp.tile(groups, 2) * base + features
    keys, index_at_place = xp.unique(key_at_place, return_inverse=True)
    # n_f - n'_f of each key: features in the first array add 1, features in the second array add
    # -1.
    signs = xp.repeat(xp.asarray([1.0, -1.0]), len(groups))
    differences = _sum_by_group(index_at_place, signs, len(keys))
    group_of_key = keys // base
    return _sum_by_group(group_of_key, differences**2, n_groups)


def _sum_by_group(groups: Ints1d, weights: Array1d, n_groups: int) -> Floats1d:
    """Sum the weights of each group. Shapes: (R,) and (R,) to (G,)"""
    xp = get_array_module(weights)
    if len(weights) == 0:  # CuPy's `bincount` doesn't accept empty arrays
        return xp.zeros(n_groups)
    return xp.bincount(groups, weights=weights.astype("float64"), minlength=n_groups)
