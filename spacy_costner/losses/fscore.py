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

ONE_TRUE_POSITIVE = numpy.asarray([1.0, 0.0, 0.0])
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
    # With psi = inf, another path may become the best one: a kink.
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

    compute (partial): `mce_f` with its parameters, but for the counts of earlier batches.
    decay (float): What the totals are multiplied by at each batch.
    totals (Floats1d): TP, FP and FN of the batches so far. Shape: (3,)
    """

    compute: "partial[tuple[LossResult, Floats1d]]"
    decay: float
    totals: Floats1d = field(default_factory=partial(numpy.zeros, 3))

    def forget(self) -> None:
        """Forget all batches: training starts anew."""
        self.totals = numpy.zeros(3)

    def __call__(self, potentials: Potentials, gold: Gold) -> LossResult:
        """The loss of a batch and its gradient: this is `Loss.compute`."""
        before = self.decay * self.totals
        result, counts = self.compute(potentials, gold, before=before + ONE_TRUE_POSITIVE)
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
    before: Floats1d = ONE_TRUE_POSITIVE,
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
    if psi == 1:
        counts, backprop = expected_counts(potentials, gold)
    else:
        counts, backprop = best_counts(potentials, gold, slope=slope, offset=offset)
    tp, fp, fn = (before + counts).tolist()
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
    """The counts of `mce_f` with psi = 1: those that the model expects.

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
    """The counts of `mce_f` with psi = inf: those of the best paths, smoothed.

        TP = sum of 1 - l(d),  FN = sum of l(d)    over gold entities
        FP = sum of l(d)    over the places of false positives of the best competitor
        d = without - with

    with and without are the scores of the best path that has an entity, or that has gold's
    tags in a place, and of the best that has not.
    """
    gold_entities = _entities(to_numpy(gold.tags), gold, potentials)
    false_positives = wrong_entities(gold, potentials, gold_entities)
    segments, group_of_segment = segments_in_places(false_positives, gold, potentials)
    # The first row has the score of the best path with a segment, the second without it. The gold
    # entities come first. Shape: (2, gold entities + segments)
    scores, backprop_scores = chain.segment_max_scores(potentials, _join(gold_entities, segments))
    xp = get_array_module(scores)
    n_gold = len(gold_entities.begin)
    n_wrong = len(false_positives.begin)
    # For each place, the column of the best segment with gold's tags (first row), and of the best
    # one with other tags (second row): "with" and "without". Shape: (2, places)
    scores_with = to_numpy(scores)[0, n_gold:]
    best_of_group = _best_of_groups(scores_with, group_of_segment, 2 * n_wrong)
    best_columns = xp.asarray(n_gold + best_of_group.reshape(2, n_wrong))
    # Shape: (2, gold entities + places)
    with_and_without = xp.concatenate([scores[:, :n_gold], scores[0, best_columns]], axis=1)
    d = with_and_without[1] - with_and_without[0]
    losses, slopes = sigmoid(d, slope=slope, offset=offset)
    _, gold_weight = _weights(gold, potentials, gold_entities)
    _, wrong_weight = _weights(gold, potentials, false_positives)
    weights = xp.concatenate([gold_weight, wrong_weight])
    fn = float((weights * losses)[:n_gold].sum())
    fp = float((weights * losses)[n_gold:].sum())
    tp = float(gold_weight.sum()) - fn

    def backprop(derivatives: Derivatives) -> Potentials:
        d_tp, d_fp, d_fn = derivatives
        is_gold = xp.arange(n_gold + n_wrong) < n_gold
        # With respect to d, and to the scores with and without. The scores of other segments
        # than the best ones have no part in the loss.
        d_d = xp.where(is_gold, d_fn - d_tp, d_fp) * weights * slopes
        d_with_and_without = xp.stack([-d_d, d_d])
        d_scores = xp.zeros_like(scores)
        d_scores[:, :n_gold] = d_with_and_without[:, :n_gold]
        d_scores[0, best_columns] = d_with_and_without[:, n_gold:]
        return backprop_scores(d_scores)

    return numpy.asarray([tp, fp, fn]), backprop


def _best_of_groups(scores: Floats1d, group: Ints1d, n_groups: int) -> Ints1d:
    """The index of the highest score of each group, the last one of equal ones. No group is empty.
    `group` has the group of each score. Shapes: (R,), (R,) to (G,)"""
    # Sorted by group, then by score, the best of a group is the last before the next group.
    order = numpy.lexsort((scores, group))
    ends = numpy.searchsorted(group[order], numpy.arange(n_groups), side="right")
    return order[ends - 1]


def wrong_entities(gold: Gold, potentials: Potentials, gold_entities: Segments) -> Segments:
    """The false positives of the best competitor: the entities of the best path that is not gold,
    but for those that are gold's or that begin where gold is not annotated."""
    path, scores = chain.best_path_excluding(potentials, gold.paths)
    tags = to_numpy(path)
    n_tokens = len(tags)
    # Where gold is the only path, there is no competitor: its tags are unknown, -1.
    has_competitor = numpy.isfinite(to_numpy(scores))
    is_known = numpy.repeat(has_competitor, potentials.lengths)
    predicted = _entities(numpy.where(is_known, tags, -1), gold, potentials)
    is_gold = numpy.isin(_numbers(predicted, n_tokens), _numbers(gold_entities, n_tokens))
    is_annotated = to_numpy(gold.tags) >= 0
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
    """What paths can have in the places of S wrong entities, for `best_counts`, which compares the
    best path with gold's tags in a place with the best one with other tags: segments that begin
    there, and the group of each, from 0 to 2S - 1. Group i has gold's tags in the i-th place, in
    all ways in which tags of the chain count as these. Group S + i has other tags, up to the first
    of them.

    A place is the tokens of the entity, as far as they are annotated. Where an entity may go on
    behind its last tag (IOB2), only the token after says where it ends: that is part of the place.
    """
    gold_tags = to_numpy(gold.tags)
    begin = wrong.begin
    last_tags = wrong.tags[last_tokens(wrong.end - begin)]
    # 1 if the place has the token after the entity, else 0.
    goes_on = to_numpy(can_continue(potentials, gold))[last_tags]
    # A place ends before the next token without annotation, and with its sequence.
    ends_of_sequences = numpy.cumsum(potentials.lengths)
    unannotated = numpy.flatnonzero(gold_tags < 0)
    stops = numpy.unique(numpy.concatenate([ends_of_sequences, unannotated]))
    next_stop = stops[numpy.searchsorted(stops, begin, side="right")]
    end = numpy.minimum(wrong.end + goes_on, next_stop)

    is_legal = numpy.isfinite(to_numpy(potentials.transitions))
    # The tag of the annotation that each tag of the chain counts as. Shape: (K,)
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
        group = place
        if not is_right:
            group = len(begin) + place
        groups.append(group)

    # All paths of agreeing tags grow by a token at a time: a row is a place and a path so far. What
    # leaves gold at a token becomes a segment of the second group, what agrees up to the end of its
    # place one of the first.
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
    n_tokens_of_entity = entities.end - entities.begin
    first_tag = entities.tags[first_tokens(n_tokens_of_entity)].astype("int64")
    # The first tag, the first token and the end are digits of one number.
    tag_and_begin = first_tag * n_tokens + entities.begin
    return tag_and_begin * (n_tokens + 1) + entities.end


def _entities(tags: Ints1d, gold: Gold, potentials: Potentials) -> Segments:
    """The entities of a path as segments that end where the entity ends: no tag that continues it
    may follow. `tags` (int[N]) is -1 where the path is unknown."""
    is_known = tags >= 0
    opening = to_numpy(gold.opening)
    continuing = to_numpy(gold.continuing)
    opens = is_known & opening[tags]
    continues = is_known & continuing[tags]
    begin, end = runs(opens, continues, potentials.lengths)
    _, tokens = ranges(begin, end)
    may_follow = numpy.repeat(~continuing[None], len(begin), axis=0)  # (entities, K)
    return Segments(begin, end, tags[tokens], may_follow)


def _join(*segments: Segments) -> Segments:
    """Several groups of segments as one, in their order."""
    columns = zip(*segments)  # the begins of all groups, their ends, tags, and what may follow
    return Segments._make(numpy.concatenate(column) for column in columns)


def _weights(gold: Gold, potentials: Potentials, entities: Segments) -> tuple[Floats1d, Floats1d]:
    """The weight of each sequence; and of each entity, that of its sequence. Shapes: (B,), (S,)"""
    xp = get_array_module(potentials.emissions)
    weights = sequence_weights(gold, xp.ones(len(potentials.lengths)))
    sequence_of_entity = sequences_of_tokens(potentials)[xp.asarray(entities.begin)]
    return weights, weights[sequence_of_entity]
