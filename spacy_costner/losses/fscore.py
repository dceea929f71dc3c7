"""MCE-F: the segmentation F-score itself, smoothed."""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Callable, NamedTuple, Tuple, cast

import numpy
from thinc.api import to_numpy
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, Ints1d
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


class Counts(NamedTuple):
    """Smoothed counts of entities."""

    tp: float
    fp: float
    fn: float

    def plus(self, other: "Counts", decay: float = 1.0) -> "Counts":
        """These, multiplied by a factor, and others."""
        return Counts(*(decay * mine + theirs for mine, theirs in zip(self, other)))


NOTHING_YET = Counts(0.0, 0.0, 0.0)
ONE_TP = Counts(1.0, 0.0, 0.0)
"""What there always is on top: with no true positives the loss would be infinite."""


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
    compute = partial(
        mce_f,
        gamma=above(0, "MCEF", "gamma", gamma),
        psi=one_of((1.0, math.inf), "MCEF", "psi", number(psi)),
        slope=above(0, "MCEF", "slope", slope),
        offset=finite("MCEF", "offset", offset),
    )
    if number(psi) == 1 and (number(slope), number(offset)) != (1, 0):
        raise ValueError(
            "spacy_costner.MCEF: slope, offset: expected 1 and 0, as psi is 1, got "
            f"{slope!r}, {offset!r}"
        )
    totals = RunningTotals(compute, within(0, 1, "MCEF", "decay", decay))
    is_smooth = number(psi) == 1
    return Loss(totals, is_ratio=True, is_smooth=is_smooth, needs_start=True, forget=totals.forget)


@dataclass
class RunningTotals:
    """The F-score loss of a batch on top of those before it.

    An F-score is no sum over sentences: that of a small batch says little, and that of one
    without entities is not even finite. One true positive is never forgotten, however many
    batches without entities there are.
    """

    compute: "partial[Tuple[LossResult, Counts]]"
    decay: float
    totals: Counts = field(default=NOTHING_YET)

    def forget(self) -> None:
        self.totals = NOTHING_YET

    def __call__(self, potentials: Potentials, gold: Gold) -> LossResult:
        before = self.totals.plus(ONE_TP, self.decay)
        result, counts = self.compute(potentials, gold, before=before)
        self.totals = self.totals.plus(counts, self.decay)
        return result


def mce_f(
    potentials: Potentials,
    gold: Gold,
    *,
    gamma: float = 1.0,
    psi: float = 1.0,
    slope: float = 1.0,
    offset: float = 0.0,
    before: Counts = ONE_TP,
) -> Tuple[LossResult, Counts]:
    """How much better the F-score of whole entities could be.

        loss = (gamma^2 FN + FP) / ((gamma^2 + 1) TP),  F_gamma = 1 / (1 + loss)

    With psi = 1 the counts are the exact expected ones of the model, by the probability of
    each gold entity. With psi = inf they are sums of l(d), the sigmoid of how far the best
    path without something that is right is ahead of the best one with it: without an entity
    of gold (TP, FN), and without gold's tags in the place of a wrong entity of the best wrong
    path (FP). Not convex: start from a model of the likelihood. Tokens that are not annotated
    don't count.

    potentials (Potentials): The scores of a batch.
    gold (Gold): Gold tags, and which tags begin and go on with an entity.
    gamma (float), psi (float), slope (float), offset (float): As above.
    before (Counts): What is added to the counts, as a constant: those of earlier batches.
    RETURNS (Tuple[LossResult, Counts]): The ratio, its gradient with respect to the counts
        of this batch; and these.

    Suzuki, McDermott & Isozaki (2006), eq 13 to 16.
    """
    count = expected_counts if psi == 1 else partial(best_counts, slope=slope, offset=offset)
    counts, backprop = count(potentials, gold)
    tp, fp, fn = before.plus(counts)
    scale = (gamma**2 + 1) * tp
    value = (gamma**2 * fn + fp) / scale
    gradient = backprop(Counts(-value / tp, 1 / scale, gamma**2 / scale))
    return LossResult(value, gradient), counts


Counted = Tuple[Counts, Callable[[Counts], Potentials]]
"""Counts of a batch, and the callback from the derivative with respect to them to that with
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
    counts = Counts(tp, max(n_predicted - tp, 0.0), float((of_entity * (1 - p)).sum()))

    def backprop(d: Counts) -> Potentials:
        d_p = of_entity * (d.tp - d.fp - d.fn)
        return paths.backprop((backprop_log_p, d_p * p), (backprop_opened, d.fp * weights))

    return counts, backprop


def best_counts(potentials: Potentials, gold: Gold, *, slope: float, offset: float) -> Counted:
    """The counts of the best paths, smoothed.

        TP = sum of 1 - l(d),  FN = sum of l(d)    over gold entities
        FP = sum of l(d)    over the places of false positives of the best competitor
        d = without - with

    with and without are the scores of the best path that has an entity, or that has gold's
    tags in a place, and of the best that has not.
    """
    right = _entities(to_numpy(gold.tags), gold, potentials)
    wrong, n_open = right_in_place(wrong_entities(gold, potentials, right), gold, potentials)
    scores, backprop_scores = _max_scores(potentials, gold, _join(right, wrong), n_open)
    xp = get_array_module(scores)
    is_right = xp.arange(scores.shape[1]) < len(right.begin)
    losses, slopes = sigmoid(scores[1] - scores[0], slope=slope, offset=offset)
    weights = xp.concatenate([_weights(gold, potentials, found)[1] for found in (right, wrong)])
    fn = float((weights * losses)[is_right].sum())
    fp = float((weights * losses)[~is_right].sum())
    n_right = float(weights[is_right].sum())

    def backprop(d: Counts) -> Potentials:
        d_losses = xp.where(is_right, d.fn - d.tp, d.fp)
        d_lead = d_losses * weights * slopes
        return backprop_scores(xp.stack([-d_lead, d_lead]))

    return Counts(n_right - fn, fp, fn), backprop


def wrong_entities(gold: Gold, potentials: Potentials, right: Segments) -> Segments:
    """The entities of the best path that is not gold, but for those that are gold's or that
    begin where gold is not annotated."""
    path, scores = chain.best_path_excluding(potentials, gold.paths)
    tags, known = to_numpy(path), to_numpy(gold.tags) >= 0
    has_path = numpy.repeat(numpy.isfinite(to_numpy(scores)), potentials.lengths)
    found = _entities(numpy.where(has_path, tags, -1), gold, potentials)
    end_of, first_tag_of = numpy.zeros((2, len(tags)), dtype="int64")
    end_of[right.begin], first_tag_of[right.begin] = right.end, _first_tags(right)
    same_end = end_of[found.begin] == found.end
    is_right = same_end & (first_tag_of[found.begin] == _first_tags(found))
    return _take(found, known[found.begin] & ~is_right)


def right_in_place(wrong: Segments, gold: Gold, potentials: Potentials) -> Tuple[Segments, int]:
    """What is right in the place of wrong entities: gold's tags of their tokens, as far as these
    are annotated. Where an entity may go on behind its last tag (IOB2), only the token after
    says where it ends: there its tag belongs to the place. The last segments, as many as the
    number says, are tokens that any tag outside of entities may have."""
    tags, begin = to_numpy(gold.tags), wrong.begin
    end_of_sequence = numpy.cumsum(potentials.lengths)
    which = numpy.searchsorted(end_of_sequence, begin, side="right")
    goes_on = to_numpy(can_continue(potentials, gold))
    last_tag = wrong.tags[last_tokens(wrong.end - begin)]
    end = numpy.minimum(wrong.end + goes_on[last_tag], end_of_sequence[which])
    unknown = numpy.flatnonzero(tags < 0)
    if len(unknown):
        next_unknown = numpy.append(unknown, len(tags))[numpy.searchsorted(unknown, begin)]
        end = numpy.minimum(end, next_unknown)
    inside = tags[ranges(begin, end)[1]]
    places = Segments(begin, end, inside, numpy.ones_like(cast(Array2d, wrong.after)))
    return (places, 0) if gold.collapsed_of is None else _end_in_any_outside(places, gold)


def _end_in_any_outside(places: Segments, gold: Gold) -> Tuple[Segments, int]:
    """The same places if O is split: which O their last tag is, only the token after them says.
    It becomes the tag after the segment. If there is no other tag, the segment stays, as one of
    the last."""
    outside, lengths = _is_outside(gold), places.end - places.begin
    lasts = last_tokens(lengths)
    is_open = outside[places.tags[lasts]]
    shorter, alone = is_open & (lengths > 1), is_open & (lengths == 1)
    segments = Segments(
        places.begin,
        places.end - shorter,
        numpy.delete(places.tags, lasts[shorter]),
        cast(Array2d, places.after) & (outside | ~shorter[:, None]),
    )
    return _join(_take(segments, ~alone), _take(segments, alone)), int(alone.sum())


def _is_outside(gold: Gold) -> Array1d:
    """True for the tags outside of entities. Shape: (K,)"""
    return ~(to_numpy(gold.opening) | to_numpy(gold.continuing))


def _max_scores(
    potentials: Potentials, gold: Gold, segments: Segments, n_open: int
) -> Tuple[Floats2d, Callable[[Floats2d], Potentials]]:
    """`chain.segment_max_scores`, where the last segments are tokens that any tag outside of
    entities may have: each is scored with every tag. Shape: (2, S)"""
    if not n_open:
        return chain.segment_max_scores(potentials, segments)
    n, outside = len(segments.begin) - n_open, _is_outside(gold)
    n_tags, tokens = len(outside), numpy.repeat(segments.begin[n:], len(outside))
    one_tag = numpy.tile(numpy.arange(n_tags), n_open)
    every = Segments(tokens, tokens + 1, one_tag, numpy.ones((len(tokens), n_tags), dtype=bool))
    first = _take(segments, numpy.arange(len(segments.begin)) < n)
    scores, backprop = chain.segment_max_scores(potentials, _join(first, every))
    xp = get_array_module(scores)
    kinds = xp.asarray(numpy.stack([outside, ~outside]))
    by_kind = xp.where(kinds[:, None], scores[0, n:].reshape(n_open, n_tags), -xp.inf)
    chosen = by_kind.argmax(axis=2)[:, :, None] == xp.arange(n_tags)

    def backprop_chosen(d_scores: Floats2d) -> Potentials:
        d_by_tag = (chosen * d_scores[:, n:, None]).sum(axis=0).reshape(-1)
        d_every = xp.stack([d_by_tag, xp.zeros_like(d_by_tag)])
        return backprop(xp.concatenate([d_scores[:, :n], d_every], axis=1))

    return xp.concatenate([scores[:, :n], by_kind.max(axis=2)], axis=1), backprop_chosen


def _first_tags(entities: Segments) -> Ints1d:
    return entities.tags[first_tokens(entities.end - entities.begin)]


def _entities(tags: Ints1d, gold: Gold, potentials: Potentials) -> Segments:
    """The entities of a path, -1 where it is unknown."""
    known = tags >= 0
    opening, continuing = to_numpy(gold.opening), to_numpy(gold.continuing)
    begin, end = runs(known & opening[tags], known & continuing[tags], potentials.lengths)
    after = numpy.repeat(~continuing[None], len(begin), axis=0)
    return Segments(begin, end, tags[ranges(begin, end)[1]], after)


def _take(entities: Segments, which: Array1d) -> Segments:
    of_token = numpy.repeat(which, entities.end - entities.begin)
    begin, end, tags, after = entities
    return Segments(begin[which], end[which], tags[of_token], cast(Array2d, after)[which])


def _join(one: Segments, other: Segments) -> Segments:
    return Segments._make(numpy.concatenate(columns) for columns in zip(one, other))


def _weights(gold: Gold, potentials: Potentials, entities: Segments) -> Tuple[Floats1d, Floats1d]:
    """How much each sequence counts, and each entity. Shapes: (B,), (S,)"""
    xp = get_array_module(potentials.emissions)
    weights = sequence_weights(gold, xp.ones(len(potentials.lengths)))
    return weights, weights[sequence_of(potentials)[xp.asarray(entities.begin)]]
