"""MCE-F: the segmentation F-score itself, smoothed."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import numpy
from thinc.api import to_numpy
from thinc.types import Array2d, Floats1d, Ints1d, Ints2d
from thinc.util import get_array_module

from .. import chain
from ..chain import Segments
from ..tags import runs
from ..types import (
    Gold,
    Loss,
    LossResult,
    Potentials,
    first_tokens,
    last_tokens,
    map_scores,
    ranges,
)
from ..validation import above, finite, number, one_of, within
from .composition import can_continue, sequence_of, sequence_weights
from .mce import sigmoid

ONE_TP = numpy.asarray([1.0, 0.0, 0.0])
"""What is added to TP, FP and FN: with no true positives the loss would be infinite."""


def make_mce_f(
    *,
    gamma: float = 1.0,
    psi: float = 1.0,
    slope: float = 1.0,
    offset: float = 0.0,
    decay: float = 0.9,
) -> Loss:
    """Build the F-score loss: see `mce_f`.

    gamma (float): How much more recall counts than precision, above 0.
    psi (float): 1 for exact expected counts, "inf" for the best paths alone.
    slope (float): With psi = inf, how steep the sigmoid is, above 0.
    offset (float): With psi = inf, where it is steep.
    decay (float): What running totals are multiplied by at each batch, 0 to 1.
    RAISES (ValueError): If a parameter is out of its range.
    """
    is_smooth = one_of((1.0, math.inf), "MCEF", "psi", number(psi)) == 1
    compute = partial(
        mce_f,
        gamma=above(0, "MCEF", "gamma", gamma),
        psi=number(psi),
        slope=above(0, "MCEF", "slope", slope),
        offset=finite("MCEF", "offset", offset),
    )
    if is_smooth and (number(slope), number(offset)) != (1, 0):
        expected = "slope, offset: expected 1 and 0, as psi is 1"
        raise ValueError(f"spacy_costner.MCEF: {expected}, got {slope!r}, {offset!r}")
    totals = RunningTotals(compute, within(0, 1, "MCEF", "decay", decay))
    return Loss(totals, is_ratio=True, is_smooth=is_smooth, needs_start=True, forget=totals.forget)


@dataclass
class RunningTotals:
    """The F-score loss of a batch on top of those before it.

    An F-score is no sum over sentences: that of a small batch says little, and that of one
    without entities is not even finite. One true positive is never forgotten, however many
    batches without entities there are.
    """

    compute: "partial[tuple[LossResult, Floats1d]]"
    decay: float
    totals: Floats1d = field(default_factory=partial(numpy.zeros, 3))

    def forget(self) -> None:
        self.totals = numpy.zeros(3)

    def __call__(self, potentials: Potentials, gold: Gold) -> LossResult:
        before = self.decay * self.totals
        result, counts = self.compute(potentials, gold, before=before + ONE_TP)
        self.totals = before + counts
        return result


def mce_f(
    potentials: Potentials,
    gold: Gold,
    *,
    gamma: float = 1.0,
    psi: float = 1.0,
    slope: float = 1.0,
    offset: float = 0.0,
    before: Floats1d = ONE_TP,
) -> tuple[LossResult, Floats1d]:
    """How much better the F-score of whole entities could be.

        loss = (gamma^2 FN + FP) / ((gamma^2 + 1) TP),  F_gamma = 1 / (1 + loss)

    With psi = 1 the counts are the exact expected ones of the model, by the probability of
    each gold entity. With psi = inf they are sums of l(d), the sigmoid of how far the best
    path without something that is right is ahead of the best one with it: without an entity
    of gold (TP, FN), and without gold's tags in the place of a wrong entity of the best wrong
    path (FP). Not convex: start from a model of the likelihood. Tokens that are not annotated
    don't count.

    before (Floats1d): What is added to TP, FP and FN, as a constant: those of earlier batches.
    RETURNS (tuple[LossResult, Floats1d]): The ratio, its gradient with respect to the counts
        of this batch; and these: TP, FP, FN.

    Suzuki, McDermott & Isozaki (2006), eq 13 to 16.
    """
    count = expected_counts if psi == 1 else partial(best_counts, slope=slope, offset=offset)
    counts, backprop = count(potentials, gold)
    tp, fp, fn = map(float, before + counts)
    scale = (gamma**2 + 1) * tp
    value = (gamma**2 * fn + fp) / scale
    gradient = backprop((-value / tp, 1 / scale, gamma**2 / scale))
    return LossResult(value, gradient), counts


Derivatives = tuple[float, float, float]

Counted = tuple[Floats1d, Callable[[Derivatives], Potentials]]
"""TP, FP and FN of a batch, and the callback from the derivatives with respect to them to that with
respect to the potentials."""


def expected_counts(potentials: Potentials, gold: Gold) -> Counted:
    """The exact expected counts.

    TP = sum over gold entities of p(entity),  FN = sum of 1 - p(entity)
    FP = expected number of entities - TP
    """
    entities = _entities(to_numpy(gold.tags), gold, potentials)
    weights, of_entity = _weights(gold, potentials, entities)
    paths = chain.forward_backward(potentials)
    log_p, backprop_log_p = paths.segment_log_probs(entities)
    xp = get_array_module(log_p)
    p = xp.exp(log_p)
    opening = (gold.tags >= 0)[:, None] & xp.asarray(gold.opening)
    ones = opening.astype(potentials.emissions.dtype)
    n_opened, backprop_opened = paths.expectation(
        map_scores(xp.zeros_like, potentials)._replace(emissions=ones)
    )
    tp, n_predicted = float((of_entity * p).sum()), float((weights * n_opened).sum())
    fn = float((of_entity * (1 - p)).sum())

    def backprop(d: Derivatives) -> Potentials:
        d_tp, d_fp, d_fn = d
        d_p = of_entity * (d_tp - d_fp - d_fn)
        return paths.backprop((backprop_log_p, d_p * p), (backprop_opened, d_fp * weights))

    return numpy.asarray([tp, max(n_predicted - tp, 0.0), fn]), backprop


def best_counts(potentials: Potentials, gold: Gold, *, slope: float, offset: float) -> Counted:
    """The counts of the best paths, smoothed.

        TP = sum of 1 - l(d),  FN = sum of l(d)    over gold entities
        FP = sum of l(d)    over the places of false positives of the best competitor
        d = without - with

    with and without are the scores of the best path that has an entity, or that has gold's
    tags in a place, and of the best that has not.
    """
    right = _entities(to_numpy(gold.tags), gold, potentials)
    wrong = wrong_entities(gold, potentials, right)
    places, group = right_in_place(wrong, gold, potentials)
    scores, backprop_scores = chain.segment_max_scores(potentials, _join(right, places))
    xp, n_right, n = get_array_module(scores), len(right.begin), len(right.begin) + len(wrong.begin)
    of_places = to_numpy(scores)[0, n_right:]
    order = numpy.lexsort((of_places, group))
    best = order[numpy.searchsorted(group[order], numpy.arange(2 * (n - n_right)), "right") - 1]
    best = xp.asarray(n_right + best.reshape(2, -1))
    with_and_without = xp.concatenate([scores[:, :n_right], scores[0, best]], axis=1)
    is_right = xp.arange(n) < n_right
    lead = with_and_without[1] - with_and_without[0]
    losses, slopes = sigmoid(lead, slope=slope, offset=offset)
    weights = xp.concatenate([_weights(gold, potentials, some)[1] for some in (right, wrong)])
    fn = float((weights * losses)[is_right].sum())
    fp = float((weights * losses)[~is_right].sum())
    total = float(weights[is_right].sum())

    def backprop(d: Derivatives) -> Potentials:
        d_tp, d_fp, d_fn = d
        d_lead = xp.where(is_right, d_fn - d_tp, d_fp) * weights * slopes
        d_both, d_scores = xp.stack([-d_lead, d_lead]), xp.zeros_like(scores)
        d_scores[:, :n_right] = d_both[:, :n_right]
        d_scores[0, best] = d_both[:, n_right:]
        return backprop_scores(d_scores)

    return numpy.asarray([total - fn, fp, fn]), backprop


def wrong_entities(gold: Gold, potentials: Potentials, right: Segments) -> Segments:
    """The entities of the best path that is not gold, but for those that are gold's or that
    begin where gold is not annotated."""
    path, scores = chain.best_path_excluding(potentials, gold.paths)
    tags, known = to_numpy(path), to_numpy(gold.tags) >= 0
    has_path = numpy.repeat(numpy.isfinite(to_numpy(scores)), potentials.lengths)
    found = _entities(numpy.where(has_path, tags, -1), gold, potentials)
    which = known[found.begin] & ~numpy.isin(_numbers(found, len(tags)), _numbers(right, len(tags)))
    of_token = numpy.repeat(which, found.end - found.begin)
    after = cast(Array2d, found.after)[which]
    return Segments(found.begin[which], found.end[which], found.tags[of_token], after)


def right_in_place(wrong: Segments, gold: Gold, potentials: Potentials) -> tuple[Segments, Ints1d]:
    """What paths have in the places of S wrong entities: segments that begin there, and the group
    of each, from 0 to 2S - 1. Group i has gold's tags in the i-th place, in all ways in which tags
    of the chain count as these. Group S + i has other tags, up to the first of them.

    A place is the tokens of the entity, as far as they are annotated. Where an entity may go on
    behind its last tag (IOB2), only the token after says where it ends: that is part of the place.
    """
    tags, begin = to_numpy(gold.tags), wrong.begin
    goes_on = to_numpy(can_continue(potentials, gold))[wrong.tags[last_tokens(wrong.end - begin)]]
    stops = numpy.unique([*numpy.cumsum(potentials.lengths), *numpy.flatnonzero(tags < 0)])
    stop = stops[numpy.searchsorted(stops, begin, side="right")]
    end = numpy.minimum(wrong.end + goes_on, stop)

    legal = numpy.isfinite(to_numpy(potentials.transitions))
    counts_as = numpy.arange(len(legal))
    if gold.collapsed_of is not None:
        counts_as = to_numpy(gold.collapsed_of)
    any_tag, segments, groups = numpy.ones_like(legal), [], []

    def fits(token: Ints1d) -> Array2d:
        return counts_as[tags[token]][:, None] == counts_as

    def add(place: Ints1d, path: Ints2d, after: Array2d, is_right: bool) -> None:
        first = begin[place]
        segments.append(Segments(first, first + path.shape[1], path.reshape(-1), after))
        groups.append(place if is_right else len(begin) + place)

    place, tag = numpy.nonzero(~fits(begin))
    add(place, tag[:, None], any_tag[tag], is_right=False)
    place, tag = numpy.nonzero(fits(begin))
    path = tag[:, None]
    while len(place):
        is_over = begin[place] + path.shape[1] == end[place]
        add(place[is_over], path[is_over], any_tag[path[is_over, 0]], is_right=True)
        place, path = place[~is_over], path[~is_over]
        fits_next = fits(begin[place] + path.shape[1])
        add(place, path, ~fits_next, is_right=False)
        row, tag = numpy.nonzero(fits_next & legal[path[:, -1]])
        place, path = place[row], numpy.column_stack([path[row], tag])
    return _join(*segments), numpy.concatenate(groups)


def _numbers(entities: Segments, n_tokens: int) -> Ints1d:
    """A number for each entity: equal ones have the same tokens and first tag."""
    first_tags = entities.tags[first_tokens(entities.end - entities.begin)].astype("int64")
    return (first_tags * n_tokens + entities.begin) * (n_tokens + 1) + entities.end


def _entities(tags: Ints1d, gold: Gold, potentials: Potentials) -> Segments:
    """The entities of a path, -1 where it is unknown."""
    known = tags >= 0
    opening, continuing = to_numpy(gold.opening), to_numpy(gold.continuing)
    begin, end = runs(known & opening[tags], known & continuing[tags], potentials.lengths)
    after = numpy.repeat(~continuing[None], len(begin), axis=0)
    return Segments(begin, end, tags[ranges(begin, end)[1]], after)


def _join(*segments: Segments) -> Segments:
    return Segments._make(numpy.concatenate(columns) for columns in zip(*segments))


def _weights(gold: Gold, potentials: Potentials, entities: Segments) -> tuple[Floats1d, Floats1d]:
    """How much each sequence counts, and each entity. Shapes: (B,), (S,)"""
    xp = get_array_module(potentials.emissions)
    weights = sequence_weights(gold, xp.ones(len(potentials.lengths)))
    return weights, weights[sequence_of(potentials)[xp.asarray(entities.begin)]]
