"""Minimum classification error (MCE): a smooth count of the sequences with any mistake. With the
logistic smoothing, a sequence counts more the further competitors are above gold.

A competitor is a path that is not gold. In shapes, B is the number of sequences.
"""

import math
from functools import partial

from thinc.types import Floats1d
from thinc.util import get_array_module

from .. import chain
from ..types import Gold, Loss, LossResult, Potentials
from ..validation import above, as_number, finite, one_of
from .composition import (
    best_competitor,
    best_gold,
    difference_of_scores,
    gold_score,
    sharpen,
    uniform_over_legal,
)


def make_mce(
    *,
    smoothing: str = "sigmoid",
    slope: float = 1.0,
    offset: float = 0.0,
    psi: float = 1.0,
    normalise: bool = False,
) -> Loss:
    """Build the minimum classification error: see `mce`.

    smoothing (str): "sigmoid" or "logistic".
    slope (float): How steep the smoothing is. It has to be above 0.
    offset (float): Moves the place where the smoothing is steep. With 0 it is where gold and its
        competitors have the same score.
    psi (float): How much more better competitors count, above 0. With 1 competitors count by
        their probability, with "inf" only the best one counts.
    normalise (bool): Whether competitors are averaged. Otherwise they are summed.
    RAISES (ValueError): If a parameter is out of its range.
    """
    only_best = as_number(psi) == math.inf  # in a config, "inf" is a string
    compute = partial(
        mce,
        smoothing=one_of(SMOOTHINGS, "MCE", "smoothing", smoothing),
        slope=above(0, "MCE", "slope", slope),
        offset=finite("MCE", "offset", offset),
        psi=math.inf if only_best else above(0, "MCE", "psi", psi),
        normalise=normalise,
    )
    # With the best competitor alone, the loss has a kink where another path becomes the best one.
    # The sigmoid is not convex, so the loss needs a start.
    return Loss(compute, is_smooth=not only_best, needs_start=True)


def mce(
    potentials: Potentials,
    gold: Gold,
    *,
    smoothing: str = "sigmoid",
    slope: float = 1.0,
    offset: float = 0.0,
    psi: float = 1.0,
    normalise: bool = False,
) -> LossResult:
    """A smooth count of the sequences with any mistake.

        loss = l(d),  d = -g(y*) + (1 / psi) log(1 / (|Y| - 1) sum_{y != y*} exp(psi g(y)))

    g is the score of a path, y* the gold path and Y the set of all legal paths. With
    x = slope d + offset, l is either the sigmoid, 1 / (1 + exp(-x)), or the logistic,
    log(1 + exp(x)) / slope. The factor 1 / (|Y| - 1) is there only with `normalise`. With
    psi = inf, d compares gold with the best competitor. With partial annotation, the paths that
    agree with it are summed in the same way as competitors, with their number instead of
    |Y| - 1. The sigmoid is not convex, so start from a model that was trained with the
    likelihood.

    Suzuki, McDermott & Isozaki (2006), eq 5 to 10.
    """
    transform = partial(SMOOTHINGS[smoothing], slope=slope, offset=offset)
    if psi == math.inf:
        _, best_wrong = best_competitor(potentials, gold)
        _, best_right = best_gold(potentials, gold)
        return difference_of_scores(best_wrong, best_right, gold, transform)

    # The log-sums of psi times the scores, over the wrong paths and over the right ones.
    right_paths = gold.paths
    sharpened = potentials
    if psi != 1:
        sharpened = sharpen(potentials, psi)
    wrong_sum, backprop_wrong = chain.log_partition_excluding(sharpened, right_paths)
    right_sum, backprop_right = gold_score(sharpened, gold)
    if normalise:
        # To count paths, set all scores to 0: then the log-sum is the logarithm of their number.
        zeros = uniform_over_legal(potentials)
        log_n_wrong, _ = chain.log_partition_excluding(zeros, right_paths)
        log_n_right, _ = gold_score(zeros, gold)
        # If there is no wrong path, both are minus infinity, and their difference would be NaN.
        # With `clip` it stays minus infinity.
        wrong_sum = wrong_sum - log_n_wrong.clip(0)
        right_sum = right_sum - log_n_right
    # The callbacks return gradients with respect to psi times the scores. With respect to the
    # scores they are psi times as large. But the log-sum is divided by psi, so the two factors
    # cancel out, and the callbacks can be used as they are.
    wrong_score = (wrong_sum / psi, backprop_wrong)
    right_score = (right_sum / psi, backprop_right)
    return difference_of_scores(wrong_score, right_score, gold, transform)


def sigmoid(d: Floats1d, *, slope: float, offset: float) -> tuple[Floats1d, Floats1d]:
    """Compute 1 / (1 + exp(-x)) of x = slope d + offset, and its derivative with respect to d.
    Shapes: (B,)"""
    x = slope * d + offset
    return _sigmoid(x), slope * _sigmoid(x) * _sigmoid(-x)


def logistic(d: Floats1d, *, slope: float, offset: float) -> tuple[Floats1d, Floats1d]:
    """Compute the logistic loss (softplus), log(1 + exp(x)) / slope of x = slope d + offset, and
    its derivative with respect to d. For d, how far the competitors are above gold, see `mce`.
    Shapes: (B,)"""
    xp = get_array_module(d)
    x = slope * d + offset
    return xp.logaddexp(0, x) / slope, _sigmoid(x)


SMOOTHINGS = {"sigmoid": sigmoid, "logistic": logistic}
"""The functions l of `mce`, keyed by the value of the setting."""


def _sigmoid(x: Floats1d) -> Floats1d:
    """Compute 1 / (1 + exp(-x)) without overflow. It is exactly 0 at minus infinity."""
    xp = get_array_module(x)
    return xp.exp(-xp.logaddexp(0, -x))
