"""MCE-F: the segmentation F-score itself, smoothed.

It is computed from the true positives (TP), false positives (FP) and false negatives (FN) of whole
entities. These are expected counts (psi = 1), or they are counted on the best paths and smoothed by
a sigmoid (psi = inf). Entities are segments: `begin` is their first token, `end` the one after the
last, `tags` has the tags of all of them, concatenated, and `after` the tags that may follow.
"""

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
    # Each entity has one tag that opens it. So the expected number of predicted entities is that
    # of such tags, at annotated tokens.
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

    A place is the tokens of a false positive: see `segments_in_places`. "with" is the score of the
    best path that has the gold entity or, in a place, that has gold's tags. "without" is the score
    of the best path that has not.
    """
    # All segments whose scores are needed
    gold_entities = _entities(to_numpy(gold.tags), gold, potentials)
    false_positives = wrong_entities(gold, potentials, gold_entities)
    segments, group_of_segment = segments_in_places(false_positives, gold, potentials)
    # The first row has the score of the best path with a segment, the second without it. The gold
    # entities come first. Shape: (2, gold entities + segments)
    scores, backprop_scores = chain.segment_max_scores(potentials, _join(gold_entities, segments))
    xp = get_array_module(scores)
    n_gold = len(gold_entities.begin)
    n_wrong = len(false_positives.begin)

    # "with" and "without" of a place are the scores of two columns: of the best segment with gold's
    # tags (first row), and of the best one with other tags (second row). Shape: (2, places)
    scores_with = to_numpy(scores)[0, n_gold:]
    best_of_group = _best_of_groups(scores_with, group_of_segment, 2 * n_wrong)
    best_columns = xp.asarray(n_gold + best_of_group.reshape(2, n_wrong))
    # Shape: (2, gold entities + places)
    with_and_without = xp.concatenate([scores[:, :n_gold], scores[0, best_columns]], axis=1)
    d = with_and_without[1] - with_and_without[0]
    losses, slopes = sigmoid(d, slope=slope, offset=offset)

    # The smoothed counts
    _, gold_weight = _weights(gold, potentials, gold_entities)
    _, wrong_weight = _weights(gold, potentials, false_positives)
    weights = xp.concatenate([gold_weight, wrong_weight])
    fn = float((weights * losses)[:n_gold].sum())
    fp = float((weights * losses)[n_gold:].sum())
    tp = float(gold_weight.sum()) - fn

    def backprop(derivatives: Derivatives) -> Potentials:
        """From the derivatives with respect to the counts to that of the potentials."""
        d_tp, d_fp, d_fn = derivatives
        is_gold = xp.arange(n_gold + n_wrong) < n_gold
        # The derivative with respect to d, and from it those with respect to "with" and "without".
        # They belong to the best segments: others have no part in the loss.
        d_of_d = xp.where(is_gold, d_fn - d_tp, d_fp) * weights * slopes
        d_with_and_without = xp.stack([-d_of_d, d_of_d])
        d_scores = xp.zeros_like(scores)
        d_scores[:, :n_gold] = d_with_and_without[:, :n_gold]
        d_scores[0, best_columns] = d_with_and_without[:, n_gold:]
        return backprop_scores(d_scores)

    return numpy.asarray([tp, fp, fn]), backprop


def _best_of_groups(scores: Floats1d, group: Ints1d, n_groups: int) -> Ints1d:
    """The index of the highest score of each group. Of equal scores the last one counts. No group
    is empty.

    scores (Floats1d): The scores of all groups. Shape: (R,)
    group (Ints1d): The group of each score, from 0 to G - 1. Shape: (R,)
    RETURNS (Ints1d): The indices. Shape: (G,)
    """
    # In the order by group, then by score, the best of a group comes just before the next group.
    order = numpy.lexsort((scores, group))
    ends = numpy.searchsorted(group[order], numpy.arange(n_groups), side="right")
    return order[ends - 1]


def wrong_entities(gold: Gold, potentials: Potentials, gold_entities: Segments) -> Segments:
    """The false positives of the best competitor, which is the best path that is not gold: its
    entities that gold doesn't have. Those that begin at a token without annotation don't count."""
    path, scores = chain.best_path_excluding(potentials, gold.paths)
    tags = to_numpy(path)
    n_tokens = len(tags)
    # If gold is the only path of a sequence, there is no competitor: its tags are unknown, -1.
    has_competitor = numpy.isfinite(to_numpy(scores))
    is_known = numpy.repeat(has_competitor, potentials.lengths)
    predicted = _entities(numpy.where(is_known, tags, -1), gold, potentials)
    is_gold = numpy.isin(
        _entity_numbers(predicted, n_tokens), _entity_numbers(gold_entities, n_tokens)
    )
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
    """What paths can have in the places of wrong entities. `best_counts` compares the best path
    with gold's tags in a place with the best one with other tags.

    A place is the tokens of the entity, as far as they are annotated. If an entity may go on after
    its last tag, as with IOB2, only the next token says where it ends: it is part of the place.

    wrong (Segments): The S wrong entities.
    RETURNS (tuple[Segments, Ints1d]): Segments that begin where a place begins; and the group of
        each, from 0 to 2S - 1. Group i has gold's tags in the whole of place i. Several tags of the
        chain may count as the same gold tag, so there may be several such segments. Group S + i has
        segments that agree with gold up to their last tag, or to the tag after it.
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

    def agrees(tokens: Ints1d) -> Array2d:
        """Whether each tag counts as the gold tag of each of these tokens. Shape: (R, K)"""
        return counts_as[gold_tags[tokens]][:, None] == counts_as

    def add(places: Ints1d, paths: Ints2d, after: Array2d | None = None, *, is_gold: bool) -> None:
        """Add segments of the same length.

        places (Ints1d): The index of the place of each. Shape: (R,)
        paths (Ints2d): The tags of each. Shape: (R, T)
        after (Array2d | None): Whether each tag may follow. None: all may. Shape: (R, K)
        is_gold (bool): Whether they have gold's tags in the whole of their places.
        """
        if after is None:
            after = numpy.ones((len(places), len(is_legal)), dtype=bool)
        first = begin[places]
        segments.append(Segments(first, first + paths.shape[1], paths.reshape(-1), after))
        group = places
        if not is_gold:
            group = len(begin) + places
        groups.append(group)

    # Paths of tags that agree with gold grow by a token at a time, in all places at once. Row r is
    # a path so far, paths[r], in the place places[r]. First the paths of a single tag:
    places, tags = numpy.nonzero(~agrees(begin))
    add(places, tags[:, None], is_gold=False)
    places, tags = numpy.nonzero(agrees(begin))
    paths = tags[:, None]
    while len(places):
        # A path that agrees up to the end of its place is complete.
        is_complete = begin[places] + paths.shape[1] == end[places]
        add(places[is_complete], paths[is_complete], is_gold=True)
        places = places[~is_complete]
        paths = paths[~is_complete]
        # The others either leave gold with the next tag, or grow by one that agrees.
        agrees_next = agrees(begin[places] + paths.shape[1])
        add(places, paths, ~agrees_next, is_gold=False)
        rows, tags = numpy.nonzero(agrees_next & is_legal[paths[:, -1]])
        places = places[rows]
        paths = numpy.column_stack([paths[rows], tags])
    return _join(*segments), numpy.concatenate(groups)


def _entity_numbers(entities: Segments, n_tokens: int) -> Ints1d:
    """A number for each entity: those with the same tokens and first tag have the same number.
    Shape: (S,)"""
    n_tokens_of_entity = entities.end - entities.begin
    first_tag = entities.tags[first_tokens(n_tokens_of_entity)].astype("int64")
    # First tag, begin and end are the digits of one number. A begin is below N, an end up to N.
    tag_and_begin = first_tag * n_tokens + entities.begin
    return tag_and_begin * (n_tokens + 1) + entities.end


def _entities(tags: Ints1d, gold: Gold, potentials: Potentials) -> Segments:
    """The entities of a path as segments. No tag that continues the entity may follow, so that a
    segment ends where its entity ends.

    tags (Ints1d): The tags of the path; -1 where it is unknown. Shape: (N,)
    """
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
    """Concatenate several groups of segments, in their order."""
    columns = zip(*segments)  # `begin` of all groups, then `end`, `tags` and `after`
    return Segments._make(numpy.concatenate(column) for column in columns)


def _weights(gold: Gold, potentials: Potentials, entities: Segments) -> tuple[Floats1d, Floats1d]:
    """The weight of each sequence; and of each entity, that of its sequence. Shapes: (B,), (S,)"""
    xp = get_array_module(potentials.emissions)
    weights = sequence_weights(gold, xp.ones(len(potentials.lengths)))
    sequence_of_entity = sequences_of_tokens(potentials)[xp.asarray(entities.begin)]
    return weights, weights[sequence_of_entity]
