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
from ..ragged import first_tokens, last_tokens, ranges
from ..tags import runs
from ..types import Gold, Loss, LossResult, Potentials, map_scores
from ..validation import above, finite, number, one_of, within
from .composition import can_continue, sequence_weights, sequences_of_tokens
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
    denominator = (gamma**2 + 1) * tp
    value = (gamma**2 * fn + fp) / denominator
    # The derivatives of the ratio with respect to TP, FP and FN
    d_counts = (-value / tp, 1 / denominator, gamma**2 / denominator)
    return LossResult(value, backprop(d_counts)), counts


Derivatives = tuple[float, float, float]
"""With respect to TP, FP and FN."""

CountsWithVjp = tuple[Floats1d, Callable[[Derivatives], Potentials]]
"""TP, FP and FN of a batch, shape (3,), and the callback from the derivatives with respect to them
to that with respect to the potentials."""


def expected_counts(potentials: Potentials, gold: Gold) -> CountsWithVjp:
    """The exact expected counts.

    TP = sum over gold entities of p(entity),  FN = sum of 1 - p(entity)
    FP = expected number of entities - TP
    """
    gold_entities = _entities(to_numpy(gold.tags), gold, potentials)
    sequence_weight, entity_weight = _weights(gold, potentials, gold_entities)
    paths = chain.forward_backward(potentials)
    log_p, backprop_log_p = paths.segment_log_probs(gold_entities)
    xp = get_array_module(log_p)
    p = xp.exp(log_p)
    # The expected number of entities is that of tags that open one, at annotated tokens.
    is_opening = (gold.tags >= 0)[:, None] & xp.asarray(gold.opening)
    zeros = map_scores(xp.zeros_like, potentials)
    opens = zeros._replace(emissions=is_opening.astype(potentials.emissions.dtype))
    n_opened, backprop_opened = paths.expectation(opens)
    tp = float((entity_weight * p).sum())
    fn = float((entity_weight * (1 - p)).sum())
    n_predicted = float((sequence_weight * n_opened).sum())
    fp = max(n_predicted - tp, 0.0)  # below 0 by rounding alone

    def backprop(derivatives: Derivatives) -> Potentials:
        d_tp, d_fp, d_fn = derivatives
        d_p = entity_weight * (d_tp - d_fp - d_fn)
        d_opened = d_fp * sequence_weight
        return paths.backprop((backprop_log_p, d_p * p), (backprop_opened, d_opened))

    return numpy.asarray([tp, fp, fn]), backprop


def best_counts(
    potentials: Potentials, gold: Gold, *, slope: float, offset: float
) -> CountsWithVjp:
    """The counts of the best paths, smoothed.

        TP = sum of 1 - l(d),  FN = sum of l(d)    over gold entities
        FP = sum of l(d)    over the places of false positives of the best competitor
        d = without - with

    with and without are the scores of the best path that has an entity, or that has gold's
    tags in a place, and of the best that has not.
    """
    gold_entities = _entities(to_numpy(gold.tags), gold, potentials)
    false_positives = wrong_entities(gold, potentials, gold_entities)
    segments, group = segments_in_places(false_positives, gold, potentials)
    # The first row has the score of the best path with a segment, the second without it.
    # Shape: (2, gold entities + segments)
    scores, backprop_scores = chain.segment_max_scores(potentials, _join(gold_entities, segments))
    xp = get_array_module(scores)
    n_gold = len(gold_entities.begin)
    n_wrong = len(false_positives.begin)
    best = n_gold + _best_of_groups(to_numpy(scores)[0, n_gold:], group, 2 * n_wrong)
    # Of a place, "with" is the best path with gold's tags, "without" that with other tags.
    best = xp.asarray(best.reshape(2, n_wrong))
    with_and_without = xp.concatenate([scores[:, :n_gold], scores[0, best]], axis=1)
    lead = with_and_without[1] - with_and_without[0]
    losses, slopes = sigmoid(lead, slope=slope, offset=offset)
    _, gold_weight = _weights(gold, potentials, gold_entities)
    _, wrong_weight = _weights(gold, potentials, false_positives)
    weights = xp.concatenate([gold_weight, wrong_weight])
    fn = float((weights * losses)[:n_gold].sum())
    fp = float((weights * losses)[n_gold:].sum())
    tp = float(gold_weight.sum()) - fn

    def backprop(derivatives: Derivatives) -> Potentials:
        d_tp, d_fp, d_fn = derivatives
        is_gold = xp.arange(n_gold + n_wrong) < n_gold
        d_lead = xp.where(is_gold, d_fn - d_tp, d_fp) * weights * slopes
        d_with_and_without = xp.stack([-d_lead, d_lead])
        d_scores = xp.zeros_like(scores)
        d_scores[:, :n_gold] = d_with_and_without[:, :n_gold]
        d_scores[0, best] = d_with_and_without[:, n_gold:]
        return backprop_scores(d_scores)

    return numpy.asarray([tp, fp, fn]), backprop


def _best_of_groups(scores: Floats1d, group: Ints1d, n_groups: int) -> Ints1d:
    """The index of the highest score of each group, the last one of equal ones. No group is empty.
    Shapes: (R,), (R,) to (G,)"""
    # Sorted by group, then by score, the best of a group is the last before the next group.
    order = numpy.lexsort((scores, group))
    ends = numpy.searchsorted(group[order], numpy.arange(n_groups), side="right")
    return order[ends - 1]


def wrong_entities(gold: Gold, potentials: Potentials, gold_entities: Segments) -> Segments:
    """The entities of the best path that is not gold, but for those that are gold's or that
    begin where gold is not annotated."""
    path, scores = chain.best_path_excluding(potentials, gold.paths)
    tags = to_numpy(path)
    is_annotated = to_numpy(gold.tags) >= 0
    # Where gold is the only path, there is no other: its tags are unknown.
    has_path = numpy.repeat(numpy.isfinite(to_numpy(scores)), potentials.lengths)
    predicted = _entities(numpy.where(has_path, tags, -1), gold, potentials)
    is_gold = numpy.isin(_numbers(predicted, len(tags)), _numbers(gold_entities, len(tags)))
    is_wrong = is_annotated[predicted.begin] & ~is_gold
    is_tag_of_wrong = numpy.repeat(is_wrong, predicted.end - predicted.begin)
    return Segments(
        predicted.begin[is_wrong],
        predicted.end[is_wrong],
        predicted.tags[is_tag_of_wrong],
        cast(Array2d, predicted.after)[is_wrong],
    )


def segments_in_places(
    wrong: Segments, gold: Gold, potentials: Potentials
) -> tuple[Segments, Ints1d]:
    """What paths have in the places of S wrong entities: segments that begin there, and the group
    of each, from 0 to 2S - 1. Group i has gold's tags in the i-th place, in all ways in which tags
    of the chain count as these. Group S + i has other tags, up to the first of them.

    A place is the tokens of the entity, as far as they are annotated. Where an entity may go on
    behind its last tag (IOB2), only the token after says where it ends: that is part of the place.
    """
    gold_tags = to_numpy(gold.tags)
    begin = wrong.begin
    last_tags = wrong.tags[last_tokens(wrong.end - begin)]
    goes_on = to_numpy(can_continue(potentials, gold))[last_tags]
    # A place ends before the next token without annotation, and with its sequence.
    stops = numpy.unique(
        [*numpy.cumsum(potentials.lengths), *numpy.flatnonzero(gold_tags < 0)],
    )
    next_stop = stops[numpy.searchsorted(stops, begin, side="right")]
    end = numpy.minimum(wrong.end + goes_on, next_stop)

    is_legal = numpy.isfinite(to_numpy(potentials.transitions))
    counts_as = numpy.arange(len(is_legal))
    if gold.collapsed_of is not None:
        counts_as = to_numpy(gold.collapsed_of)
    segments: list[Segments] = []
    groups: list[Ints1d] = []

    def agrees(token: Ints1d) -> Array2d:
        """True for the tags that count as the gold tag of a token. Shape: (R, K)"""
        return counts_as[gold_tags[token]][:, None] == counts_as

    def add(place: Ints1d, path: Ints2d, after: Array2d | None = None, *, is_right: bool) -> None:
        """Add segments: the place of each, (R,), its tags, (R, T), and the mask of the tags that
        may follow, (R, K); None: all may."""
        if after is None:
            after = numpy.ones((len(place), len(is_legal)), dtype=bool)
        first = begin[place]
        segments.append(Segments(first, first + path.shape[1], path.reshape(-1), after))
        groups.append(place if is_right else len(begin) + place)

    # All paths of agreeing tags grow by a token at a time. A row is a place and a path so far.
    place, tag = numpy.nonzero(~agrees(begin))
    add(place, tag[:, None], is_right=False)
    place, tag = numpy.nonzero(agrees(begin))
    path = tag[:, None]
    while len(place):
        is_over = begin[place] + path.shape[1] == end[place]
        add(place[is_over], path[is_over], is_right=True)
        place = place[~is_over]
        path = path[~is_over]
        agrees_next = agrees(begin[place] + path.shape[1])
        add(place, path, ~agrees_next, is_right=False)
        row, tag = numpy.nonzero(agrees_next & is_legal[path[:, -1]])
        place = place[row]
        path = numpy.column_stack([path[row], tag])
    return _join(*segments), numpy.concatenate(groups)


def _numbers(entities: Segments, n_tokens: int) -> Ints1d:
    """A number for each entity: equal ones have the same tokens and first tag. Shape: (S,)"""
    first_tags = entities.tags[first_tokens(entities.end - entities.begin)].astype("int64")
    # The first tag, the first token and the end are digits of one number.
    return (first_tags * n_tokens + entities.begin) * (n_tokens + 1) + entities.end


def _entities(tags: Ints1d, gold: Gold, potentials: Potentials) -> Segments:
    """The entities of a path, -1 where it is unknown. No tag after them continues them."""
    is_known = tags >= 0
    opening = to_numpy(gold.opening)
    continuing = to_numpy(gold.continuing)
    begin, end = runs(is_known & opening[tags], is_known & continuing[tags], potentials.lengths)
    _, tokens = ranges(begin, end)
    after = numpy.repeat(~continuing[None], len(begin), axis=0)
    return Segments(begin, end, tags[tokens], after)


def _join(*segments: Segments) -> Segments:
    """Segments, one group after another."""
    return Segments._make(numpy.concatenate(columns) for columns in zip(*segments))


def _weights(gold: Gold, potentials: Potentials, entities: Segments) -> tuple[Floats1d, Floats1d]:
    """How much each sequence counts, and each entity. Shapes: (B,), (S,)"""
    xp = get_array_module(potentials.emissions)
    weights = sequence_weights(gold, xp.ones(len(potentials.lengths)))
    sequence = sequences_of_tokens(potentials)[xp.asarray(entities.begin)]
    return weights, weights[sequence]
