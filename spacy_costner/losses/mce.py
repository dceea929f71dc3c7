"""Minimum classification error (MCE): a smoothed count of sequences with mistakes or of wrong tags.
With logistic smoothing, the further the competitors score above gold, the more a sequence counts.

A competitor is a path that is not gold. In shapes, B is the number of sequences, N the number of
tokens, and K the number of tags.
"""

import math
from functools import partial

import numpy
from thinc.api import to_numpy
from thinc.types import Floats1d
from thinc.util import get_array_module

from .. import chain
from ..types import Gold, Loss, LossResult, Potentials, ScoreWithVjp, add_to
from ..validation import above, as_number, finite, one_of
from .composition import (
    Transform,
    best_competitor,
    best_gold,
    difference_of_scores,
    gold_score,
    sequence_weights,
    sharpen,
    uniform_over_legal,
)
from .likelihood import weights_of_tokens


def make_mce(
    *,
    smoothing: str = "sigmoid",
    slope: float = 1.0,
    offset: float = 0.0,
    psi: float = 1.0,
    normalise: bool = False,
    distance: str = "log-ratio",
    unit: str = "sequence",
) -> Loss:
    """Create the minimum classification error loss: see `mce`.

    smoothing (str): The smoothing function, "sigmoid" or "logistic".
    slope (float): The slope of the smoothing function. Must be above 0.
    offset (float): Shifts the steepest point of the smoothing function. With 0, it is steepest if
        gold and its competitors have the same score.
    psi (float): How strongly better competitors outweigh worse ones. Must be above 0. With 1,
        competitors are weighted by probability. With "inf", only the best competitor is used.
    normalise (bool): Whether to average competitors instead of summing them.
    distance (str): How to compare gold with its competitors: "log-ratio" is the difference between
        their scores, "ratio" the ratio of exp(score), and "difference" the difference between
        their probabilities.
    unit (str): What to count: each "sequence" with a mistake, or each "token" with a wrong tag.
        "token" requires psi = inf, which uses only the best competitor.
    RAISES (ValueError): If a parameter is out of range, or incompatible with another parameter.
    """
    only_best = as_number(psi) == math.inf  # in a config, "inf" is a string
    one_of(DISTANCES, "MCE", "distance", distance)
    one_of(UNITS, "MCE", "unit", unit)
    # exp(score) would overflow as the argument of another exp.
    if distance == "ratio" and smoothing == "logistic":
        expected = "smoothing: expected 'sigmoid', as distance is 'ratio'"
        raise ValueError(f"spacy_costner.MCE: {expected}, got {smoothing!r}")
    counts_tokens = unit == "token"
    if counts_tokens and not only_best:
        raise ValueError(f"spacy_costner.MCE: psi: expected inf, as unit is 'token', got {psi!r}")
    if counts_tokens and distance != "log-ratio":
        expected = "distance: expected 'log-ratio', as unit is 'token'"
        raise ValueError(f"spacy_costner.MCE: {expected}, got {distance!r}")
    compute = partial(
        mce,
        smoothing=one_of(SMOOTHINGS, "MCE", "smoothing", smoothing),
        slope=above(0, "MCE", "slope", slope),
        offset=finite("MCE", "offset", offset),
        psi=math.inf if only_best else above(0, "MCE", "psi", psi),
        normalise=normalise,
        distance=distance,
        unit=unit,
    )
    # If only the best competitor is used, the loss has a kink where the best path changes. The
    # sigmoid isn't convex, so training needs an initial model.
    return Loss(compute, is_smooth=not only_best, needs_start=True, weighs_tokens=counts_tokens)


def mce(
    potentials: Potentials,
    gold: Gold,
    *,
    smoothing: str = "sigmoid",
    slope: float = 1.0,
    offset: float = 0.0,
    psi: float = 1.0,
    normalise: bool = False,
    distance: str = "log-ratio",
    unit: str = "sequence",
) -> LossResult:
    """A smoothed count of sequences with mistakes, or of tokens with wrong tags.

        loss = l(d),  d = -g(y*) + (1 / psi) log(1 / (|Y| - 1) sum_{y != y*} exp(psi g(y)))

    g is the score of a path, y* the gold path and Y the set of all legal paths. l is either the
    sigmoid, 1 / (1 + exp(-x)), or the logistic, log(1 + exp(x)) / slope, with x = slope d + offset.
    The factor 1 / (|Y| - 1) is used only with `normalise`. With psi = inf, d compares gold with the
    best competitor. With partial annotation, the paths that agree with it are summed like the
    competitors, with their number in place of |Y| - 1. The sigmoid isn't convex, so start from a
    model that was trained with the likelihood.

    The distance d can also take other forms:

        G = (1 / (|Y| - 1) sum_{y != y*} exp(psi g(y)))^(1 / psi)
        d = G / exp(g(y*))          "ratio"
        d = (G - exp(g(y*))) / Z    "difference", of probabilities

    The ratio is 1 if gold and its competitors have the same score. In this case, the sigmoid is
    steepest with an offset of -slope.

    With the unit "token" and psi = inf, the loss is the sum of w_t l(d_t). d_t compares the best
    path that has the correct tag at token t to the best path that has another tag there. w_t is the
    weight of the token.

    Suzuki, McDermott & Isozaki (2006), eq 5 to 10; eq 14 for tokens; the appendix for distances.
    For "difference", the paper's g is replaced by exp(g) / Z, because g has to be positive to be
    raised to a power.
    """
    transform = partial(SMOOTHINGS[smoothing], slope=slope, offset=offset)
    if unit == "token":
        return mce_of_tokens(potentials, gold, transform)
    wrong_score, right_score = competitors_and_gold(potentials, gold, psi=psi, normalise=normalise)
    if distance == "difference":
        log_z = chain.log_partition(potentials)
        return difference_of_probabilities(wrong_score, right_score, log_z, gold, transform)
    if distance == "ratio":
        transform = partial(_of_exponential, transform)
    return difference_of_scores(wrong_score, right_score, gold, transform)


def competitors_and_gold(
    potentials: Potentials, gold: Gold, *, psi: float, normalise: bool
) -> tuple[ScoreWithVjp, ScoreWithVjp]:
    """Compute the total score of all competitors, log G in `mce`, and the score of gold."""
    if psi == math.inf:
        _, best_wrong = best_competitor(potentials, gold)
        _, best_right = best_gold(potentials, gold)
        return best_wrong, best_right

    # The log-sums of psi times the scores, over the wrong paths and over the correct paths.
    right_paths = gold.paths
    sharpened = potentials
    if psi != 1:
        sharpened = sharpen(potentials, psi)
    wrong_sum, backprop_wrong = chain.log_partition_excluding(sharpened, right_paths)
    right_sum, backprop_right = gold_score(sharpened, gold)
    if normalise:
        # To count paths, set all scores to 0, so that the log-sum is the logarithm of their number.
        zeros = uniform_over_legal(potentials)
        log_n_wrong, _ = chain.log_partition_excluding(zeros, right_paths)
        log_n_right, _ = gold_score(zeros, gold)
        # If there are no wrong paths, both numbers are minus infinity, and their difference would
        # be NaN. With `clip`, it is minus infinity.
        wrong_sum = wrong_sum - log_n_wrong.clip(0)
        right_sum = right_sum - log_n_right
    # The callbacks return gradients with respect to psi times the scores. The gradients with
    # respect to the scores are psi times as large, but the log-sum is divided by psi. The two
    # factors cancel out, so the callbacks can be used without changes.
    return (wrong_sum / psi, backprop_wrong), (right_sum / psi, backprop_right)


def difference_of_probabilities(
    wrong_score: ScoreWithVjp,
    right_score: ScoreWithVjp,
    log_z: ScoreWithVjp,
    gold: Gold,
    transform: Transform,
) -> LossResult:
    """Compute the weighted sum of l(d) over sequences, with d = (exp(wrong score) - exp(right
    score)) / Z. `transform` is l."""
    wrong, backprop_wrong = wrong_score
    right, backprop_right = right_score
    log_normalizer, backprop_log_z = log_z
    xp = get_array_module(right)
    p_wrong = xp.exp(wrong - log_normalizer)
    p_right = xp.exp(right - log_normalizer)
    d = p_wrong - p_right
    # Without a competitor, there is no mistake to count.
    losses, slopes = transform(xp.where(xp.isneginf(wrong), wrong, d))
    weights = sequence_weights(gold, losses)
    d_of_d = weights * slopes
    gradient = add_to(backprop_wrong(d_of_d * p_wrong), backprop_right(-d_of_d * p_right))
    # The probabilities also depend on the scores through Z.
    gradient = add_to(gradient, backprop_log_z(-d_of_d * d))
    return LossResult(float((weights * losses).sum()), gradient)


def mce_of_tokens(potentials: Potentials, gold: Gold, transform: Transform) -> LossResult:
    """Compute the sum of w_t l(d_t) over tokens: see `mce`. `transform` is l."""
    xp = get_array_module(potentials.emissions)
    n_tokens, n_tags = potentials.emissions.shape
    messages = chain.max_messages(potentials)
    # The score of the best path with each tag at each token, and whether the tag is correct.
    # Shapes: (N, K)
    best_with_tag = messages.max_marginals()
    is_right = gold.token_tags
    if is_right.ndim == 1:  # the index of each token's correct tag
        is_right = is_right[:, None] == xp.arange(n_tags)
    # The correct tag and the wrong tag with the highest-scoring paths. Shapes: (N,)
    right_tags = xp.where(is_right, best_with_tag, -xp.inf).argmax(axis=1)
    wrong_tags = xp.where(is_right, -xp.inf, best_with_tag).argmax(axis=1)
    # The scores of the best paths with these tags, represented as segments of one token: first the
    # correct tags, then the wrong tags. Shape: (2 N,)
    tags = to_numpy(xp.concatenate([right_tags, wrong_tags])).astype("int32")
    begin = numpy.tile(numpy.arange(n_tokens, dtype="int32"), 2)
    scores, backprop = messages.segment_max_scores(chain.Segments(begin, begin + 1, tags))
    right, wrong = scores[0].reshape(2, n_tokens)
    # There can't be mistakes at tokens without annotation, where no tag is wrong, or in sequences
    # whose gold is impossible.
    is_counted = ~is_right[xp.arange(n_tokens), wrong_tags] & xp.isfinite(right)
    d = xp.where(is_counted, wrong, -xp.inf) - xp.where(is_counted, right, 0)
    losses, slopes = transform(d)
    weights = weights_of_tokens(potentials, gold)
    d_of_d = weights * slopes
    d_scores = xp.zeros_like(scores)
    d_scores[0] = xp.concatenate([-d_of_d, d_of_d])
    return LossResult(float((weights * losses).sum()), backprop(d_scores))


def _of_exponential(transform: Transform, x: Floats1d) -> tuple[Floats1d, Floats1d]:
    """Compute l(exp(x)) and its derivative with respect to x. `transform` is l. Shapes: (B,)"""
    xp = get_array_module(x)
    # The sigmoid of exp(MOST_LOG_RATIO) is exactly 1, and its derivative 0.
    d = xp.exp(xp.minimum(x, MOST_LOG_RATIO))
    # Without a competitor, there is no mistake to count.
    losses, slopes = transform(xp.where(xp.isneginf(x), x, d))
    return losses, slopes * d


def sigmoid(d: Floats1d, *, slope: float, offset: float) -> tuple[Floats1d, Floats1d]:
    """Compute 1 / (1 + exp(-x)) with x = slope d + offset, and its derivative with respect to d.
    Shapes: (B,)"""
    x = slope * d + offset
    return _sigmoid(x), slope * _sigmoid(x) * _sigmoid(-x)


def logistic(d: Floats1d, *, slope: float, offset: float) -> tuple[Floats1d, Floats1d]:
    """Compute the logistic loss (softplus), log(1 + exp(x)) / slope with x = slope d + offset, and
    its derivative with respect to d. For the distance d, see `mce`. Shapes: (B,)"""
    xp = get_array_module(d)
    x = slope * d + offset
    return xp.logaddexp(0, x) / slope, _sigmoid(x)


DISTANCES = ("log-ratio", "ratio", "difference")
"""The forms of d in `mce`."""

UNITS = ("sequence", "token")
"""The units that `mce` can count."""

MOST_LOG_RATIO = 100.0
"""Log-ratios are clipped to this maximum, because larger exponentials would overflow."""

SMOOTHINGS = {"sigmoid": sigmoid, "logistic": logistic}
"""The smoothing functions l of `mce`, keyed by the value of the setting."""


def _sigmoid(x: Floats1d) -> Floats1d:
    """Compute 1 / (1 + exp(-x)) without overflow. The result is exactly 0 for minus infinity."""
    xp = get_array_module(x)
    return xp.exp(-xp.logaddexp(0, -x))
