"""MCE-F: the F-score of whole entities itself as a loss, smoothed so that it has a gradient.

The F-score comes from the numbers of true positives (TP), false positives (FP) and false negatives
(FN). There are two ways to count them. With psi = 1, they are the numbers that the model expects.
With psi = inf, they are counted on the best paths, and smoothed by a sigmoid.

For the chain, entities are segments (see `chain.Segments`): `begin` has the first token of each,
`end` the one after its last, `tags` the tags of all of them, concatenated, and `after` the tags
that may follow each of them.

In shapes, B is the number of sequences, N of tokens, K of tags, and S of segments.
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
from ..validation import above, as_number, finite, one_of, within
from .composition import can_continue, sequence_weights, sequences_of_tokens
from .mce import sigmoid

ONE_TRUE_POSITIVE = numpy.asarray([1.0, 0.0, 0.0])
"""The least that is added to TP, FP and FN. Without any true positive the loss would be
infinite."""


def make_mce_f(
    *,
    gamma: float = 1.0,
    psi: float = 1.0,
    slope: float = 1.0,
    offset: float = 0.0,
    decay: float = 0.9,
) -> Loss:
    """Build the F-score loss: see `mce_f`.

    gamma (float): How much more recall counts than precision. It has to be above 0.
    psi (float): 1 for expected counts, "inf" for counts on the best paths.
    slope (float): With psi = inf, how steep the sigmoid is. It has to be above 0.
    offset (float): With psi = inf, moves the place where the sigmoid is steep. With 0 it is where
        the path with the right entity and the path without it have the same score.
    decay (float): The factor from 0 to 1 that the counts of earlier batches are multiplied by at
        each batch.
    RAISES (ValueError): If a parameter is out of its range, or if slope or offset is set and psi
        is 1.
    """
    # `one_of`, `above` and others return a number, or raise an error that names loss and parameter.
    checked_psi = one_of((1.0, math.inf), "MCEF", "psi", as_number(psi))
    # With psi = inf the loss has a kink where another path becomes the best one.
    is_smooth = checked_psi == 1
    compute = partial(
        mce_f,
        gamma=above(0, "MCEF", "gamma", gamma),
        psi=checked_psi,
        slope=above(0, "MCEF", "slope", slope),
        offset=finite("MCEF", "offset", offset),
    )
    if is_smooth and (as_number(slope), as_number(offset)) != (1, 0):
        expected = "slope, offset: expected 1 and 0, as psi is 1"
        raise ValueError(f"spacy_costner.MCEF: {expected}, got {slope!r}, {offset!r}")
    totals = RunningTotals(compute, within(0, 1, "MCEF", "decay", decay))
    # The loss is one ratio over the batch, not a sum over sequences. It is not convex, so training
    # needs a model to start from. When training restarts, the totals are forgotten.
    return Loss(totals, is_ratio=True, is_smooth=is_smooth, needs_start=True, forget=totals.forget)


@dataclass
class RunningTotals:
    """The F-score loss of a batch together with the batches before it.

    An F-score is not a sum over sentences. The F-score of a small batch says little, and the loss
    of a batch without entities would be infinite. So the counts of earlier batches are added to the
    counts of each batch, and so is one true positive.

    compute (partial): The function `mce_f` with all parameters but `before`.
    decay (float): The factor that the totals are multiplied by at each batch.
    totals (Floats1d): TP, FP and FN of the batches so far, of earlier ones times powers of `decay`.
        Shape: (3,)
    """

    compute: "partial[tuple[LossResult, Floats1d]]"
    decay: float
    totals: Floats1d = field(default_factory=partial(numpy.zeros, 3))

    def forget(self) -> None:
        """Forget all batches, as training restarts."""
        self.totals = numpy.zeros(3)

    def __call__(self, potentials: Potentials, gold: Gold) -> LossResult:
        """Compute the loss of a batch and its gradient, as `Loss.compute` does, and add the counts
        of the batch to the totals."""
        counts_before = self.decay * self.totals
        result, counts = self.compute(potentials, gold, before=counts_before + ONE_TRUE_POSITIVE)
        self.totals = counts_before + counts
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
    """A loss that falls as the F-score of whole entities rises.

        loss = (gamma^2 FN + FP) / ((gamma^2 + 1) TP),  F_gamma = 1 / (1 + loss)

    With psi = 1 the counts are those that the model expects, exactly: see `expected_counts`. With
    psi = inf they are counts on the best paths, smoothed by a sigmoid: see `best_counts`.

    The loss is not convex, so start from a model that was trained with the likelihood. Tokens that
    are not annotated don't count.

    potentials (Potentials), gold (Gold): The batch.
    gamma (float): How much more recall counts than precision.
    psi (float): 1 for expected counts, infinite for counts on the best paths.
    slope (float), offset (float): With psi = inf, the parameters of the sigmoid.
    before (Floats1d): TP, FP and FN of earlier batches, which are added to the counts of this
        batch. They are constants. Shape: (3,)
    RETURNS (tuple[LossResult, Floats1d]): The loss, with its gradient through the counts of this
        batch; and TP, FP and FN of this batch. Shape: (3,)

    Suzuki, McDermott & Isozaki (2006), eq 13 to 16.
    """
    if psi == 1:
        counts, backprop = expected_counts(potentials, gold)
    else:
        counts, backprop = best_counts(potentials, gold, slope=slope, offset=offset)
    tp, fp, fn = (before + counts).tolist()
    denominator = (gamma**2 + 1) * tp
    value = (gamma**2 * fn + fp) / denominator
    # The derivatives of the loss with respect to TP, FP and FN.
    d_counts = (-value / tp, 1 / denominator, gamma**2 / denominator)
    return LossResult(value, backprop(d_counts)), counts


Derivatives = tuple[float, float, float]
"""The derivatives of the loss with respect to TP, FP and FN."""

CountsWithVjp = tuple[Floats1d, Callable[[Derivatives], Potentials]]
"""TP, FP and FN of a batch, (3,), and the callback that takes the derivatives with respect to them
to the gradient with respect to the potentials."""


def expected_counts(potentials: Potentials, gold: Gold) -> CountsWithVjp:
    """Compute the counts of `mce_f` with psi = 1: those that the model expects.

        TP = sum over gold entities of p(entity)
        FN = sum over gold entities of 1 - p(entity)
        FP = expected number of predicted entities - TP

    RETURNS (CountsWithVjp): The counts, and their vector-Jacobian product.
    """
    gold_entities = _find_entities(to_numpy(gold.tags), gold, potentials)
    sequence_weight, entity_weight = _find_weights(gold, potentials, gold_entities)
    paths = chain.forward_backward(potentials)
    log_p, backprop_log_p = paths.segment_log_probs(gold_entities)
    xp = get_array_module(log_p)
    p = xp.exp(log_p)
    # Each entity has one tag that opens it. So the expected number of predicted entities is the
    # expected number of such tags, counted at annotated tokens.
    is_opening = (gold.tags >= 0)[:, None] & xp.asarray(gold.opening)
    zeros = map_scores(xp.zeros_like, potentials)
    counts_opening = zeros._replace(emissions=is_opening.astype(potentials.emissions.dtype))
    n_opened, backprop_opened = paths.expectation(counts_opening)
    tp = float((entity_weight * p).sum())
    fn = float((entity_weight * (1 - p)).sum())
    n_predicted = float((sequence_weight * n_opened).sum())
    fp = max(n_predicted - tp, 0.0)  # rounding can make it smaller than 0

    def backprop(derivatives: Derivatives) -> Potentials:
        """Compute the gradient with respect to the potentials."""
        d_tp, d_fp, d_fn = derivatives
        # What p adds to TP, it takes from FP and FN.
        d_p = entity_weight * (d_tp - d_fp - d_fn)
        d_log_p = d_p * p  # as p = exp(log p)
        d_opened = d_fp * sequence_weight
        return paths.backprop((backprop_log_p, d_log_p), (backprop_opened, d_opened))

    return numpy.asarray([tp, fp, fn]), backprop


def best_counts(
    potentials: Potentials, gold: Gold, *, slope: float, offset: float
) -> CountsWithVjp:
    """Compute the counts of `mce_f` with psi = inf: those on the best paths, smoothed.

    A place is where the best path that is not gold has a wrong entity: the tokens of the entity
    (see `segments_in_places`). Each gold entity and each place has a difference d of two scores:

        d = (score of the best path without it) - (score of the best path with it)

    "With it" means that the path has the gold entity or, for a place, that it has gold's tags in
    the place. The sigmoid l makes counts of these differences:

        TP = sum over gold entities of 1 - l(d)
        FN = sum over gold entities of l(d)
        FP = sum over places of l(d)
    """
    gold_entities = _find_entities(to_numpy(gold.tags), gold, potentials)
    false_positives = wrong_entities(gold, potentials, gold_entities)
    segments, group_of_segment = segments_in_places(false_positives, gold, potentials)
    # Row 0 has the score of the best path with each segment, row 1 the score of the best path
    # without it. The columns of the gold entities come first. Shape: (2, gold entities + segments)
    scores, backprop_scores = chain.segment_max_scores(
        potentials, _concatenate(gold_entities, segments)
    )
    xp = get_array_module(scores)
    n_gold = len(gold_entities.begin)
    n_wrong = len(false_positives.begin)

    # For a place, both scores are of paths *with* a segment (row 0): one of the segments with
    # gold's tags, or one of the segments with other tags. `best_columns` has the columns of the
    # best segments: row 0 for gold's tags, row 1 for others. Shape: (2, places)
    scores_with = to_numpy(scores)[0, n_gold:]
    best_of_group = _best_of_groups(scores_with, group_of_segment, n_groups=2 * n_wrong)
    best_columns = xp.asarray(n_gold + best_of_group.reshape(2, n_wrong))
    # The scores with it (row 0) and without it (row 1). Shape: (2, gold entities + places)
    with_and_without = xp.concatenate([scores[:, :n_gold], scores[0, best_columns]], axis=1)
    d = with_and_without[1] - with_and_without[0]
    losses, slopes = sigmoid(d, slope=slope, offset=offset)

    _, gold_weight = _find_weights(gold, potentials, gold_entities)
    _, wrong_weight = _find_weights(gold, potentials, false_positives)
    weights = xp.concatenate([gold_weight, wrong_weight])
    fn = float((weights * losses)[:n_gold].sum())
    fp = float((weights * losses)[n_gold:].sum())
    tp = float(gold_weight.sum()) - fn

    def backprop(derivatives: Derivatives) -> Potentials:
        """Compute the gradient with respect to the potentials."""
        d_tp, d_fp, d_fn = derivatives
        is_gold = xp.arange(n_gold + n_wrong) < n_gold
        # The derivative with respect to d, and from it the derivatives with respect to the two
        # scores. They are added to the columns of the best segments. Other columns have no part in
        # the loss.
        d_of_d = xp.where(is_gold, d_fn - d_tp, d_fp) * weights * slopes
        d_with_and_without = xp.stack([-d_of_d, d_of_d])
        d_scores = xp.zeros_like(scores)
        d_scores[:, :n_gold] = d_with_and_without[:, :n_gold]
        d_scores[0, best_columns] = d_with_and_without[:, n_gold:]
        return backprop_scores(d_scores)

    return numpy.asarray([tp, fp, fn]), backprop


def _best_of_groups(scores: Floats1d, group: Ints1d, n_groups: int) -> Ints1d:
    """Find the highest score of each of G groups, or the last of several equal ones, and return its
    index. `group` has the group of each score, from 0 to G - 1. No group may be empty.
    Shapes: (R,), (R,) to (G,)"""
    # Sort by group, then by score. The highest score of a group comes just before the next group.
    order = numpy.lexsort((scores, group))
    ends = numpy.searchsorted(group[order], numpy.arange(n_groups), side="right")
    return order[ends - 1]


def wrong_entities(gold: Gold, potentials: Potentials, gold_entities: Segments) -> Segments:
    """Find the false positives of the best competitor, which is the best path that is not gold.
    They are its entities that gold doesn't have. Entities that begin at a token without annotation
    are left out, as it is unknown whether they are wrong."""
    path, scores = chain.best_path_excluding(potentials, gold.paths)
    tags = to_numpy(path)
    n_tokens = len(tags)
    # If gold is the only possible path of a sequence, there is no competitor: its tags are -1.
    has_competitor = numpy.isfinite(to_numpy(scores))
    is_known = numpy.repeat(has_competitor, potentials.lengths)
    predicted = _find_entities(numpy.where(is_known, tags, -1), gold, potentials)
    # The numbers of two entities are equal if these have the same tokens and the same first tag.
    predicted_numbers = _number_entities(predicted, n_tokens)
    gold_numbers = _number_entities(gold_entities, n_tokens)
    is_gold = numpy.isin(predicted_numbers, gold_numbers)
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
    """List what paths can have in the places of wrong entities, as segments: gold's tags, or other
    tags.

    A place has the tokens of the wrong entity, as far as they are annotated. If an entity may
    continue after its last tag, as in IOB2, the next token says whether it ends there. Then this
    token is a part of the place, too.

    There are too many ways to have other tags in a place to list all of them. But each way agrees
    with gold at some first tokens, and then has a wrong tag. So segments end just before the first
    wrong tag, with a condition on the tag that follows. If the first tag of the place is wrong, the
    segment is that tag. For example, gold has O O in a place. Then the segment with gold's tags is
    O O. The segments with other tags are O, followed by any tag but O, and each single tag but O.
    Returns the segments, each of which begins where a place begins; and the group of each, from 0
    to 2S - 1. Group i has the segments with gold's tags in the whole of place i. (There may be
    several, as several tags of the chain may count as the same gold tag.) Group S + i has the
    segments with other tags in place i. Shapes: (segments,)
    """
    gold_tags = to_numpy(gold.tags)
    begin = wrong.begin
    end = _find_ends_of_places(wrong, gold, potentials)
    is_legal = numpy.isfinite(to_numpy(potentials.transitions))
    # The tag of the annotation that each tag of the chain counts as. Shape: (K,)
    counts_as = numpy.arange(len(is_legal))
    if gold.collapsed_of is not None:
        counts_as = to_numpy(gold.collapsed_of)
    segments: list[Segments] = []
    groups: list[Ints1d] = []

    def agrees_with_gold(tokens: Ints1d) -> Array2d:
        """For each of R tokens, return True at the tags that count as its gold tag.
        Shapes: (R,) to (R, K)"""
        return counts_as[gold_tags[tokens]][:, None] == counts_as

    def add_segments(
        places: Ints1d, paths: Ints2d, after: Array2d | None = None, *, is_gold: bool
    ) -> None:
        """Add R segments of T tokens each, with their places and their tags. `after` is True at the
        tags that may follow each segment. None: all may follow. `is_gold` says whether the segments
        have gold's tags in the whole of their places. Shapes: (R,), (R, T), (R, K)"""
        if after is None:
            after = numpy.ones((len(places), len(is_legal)), dtype=bool)
        first_token = begin[places]
        segments.append(
            Segments(first_token, first_token + paths.shape[1], paths.reshape(-1), after)
        )
        group = places
        if not is_gold:
            group = len(begin) + places
        groups.append(group)

    # Grow paths that agree with gold by one token at a time, in all places at once. Row r of
    # `paths` is the beginning of a path, in the place `places[r]`. Start with one tag.
    places, tags = numpy.nonzero(~agrees_with_gold(begin))
    add_segments(places, tags[:, None], is_gold=False)
    places, tags = numpy.nonzero(agrees_with_gold(begin))
    paths = tags[:, None]
    while len(places):
        # A path that agrees with gold up to the end of its place is complete.
        is_complete = begin[places] + paths.shape[1] == end[places]
        add_segments(places[is_complete], paths[is_complete], is_gold=True)
        places = places[~is_complete]
        paths = paths[~is_complete]
        # Each other path is added once, for all wrong tags that may come next. It also grows by
        # each tag that agrees.
        agrees_next = agrees_with_gold(begin[places] + paths.shape[1])
        add_segments(places, paths, ~agrees_next, is_gold=False)
        rows, tags = numpy.nonzero(agrees_next & is_legal[paths[:, -1]])
        places = places[rows]
        paths = numpy.column_stack([paths[rows], tags])
    return _concatenate(*segments), numpy.concatenate(groups)


def _find_ends_of_places(wrong: Segments, gold: Gold, potentials: Potentials) -> Ints1d:
    """Find the token after the last one of each place: see `segments_in_places`. Shape: (S,)"""
    last_tags = wrong.tags[last_tokens(wrong.end - wrong.begin)]
    # 1 if the place has the token after the entity, too, else 0.
    goes_on = to_numpy(can_continue(potentials, gold))[last_tags]
    # A place ends before the next token without annotation, and where its sequence ends.
    ends_of_sequences = numpy.cumsum(potentials.lengths)
    unannotated = numpy.flatnonzero(to_numpy(gold.tags) < 0)
    stops = numpy.unique(numpy.concatenate([ends_of_sequences, unannotated]))
    next_stop = stops[numpy.searchsorted(stops, wrong.begin, side="right")]
    return numpy.minimum(wrong.end + goes_on, next_stop)


def _number_entities(entities: Segments, n_tokens: int) -> Ints1d:
    """Compute a number for each entity. Entities with the same tokens and the same first tag have
    the same number. Shape: (S,)"""
    n_tokens_of_entity = entities.end - entities.begin
    first_tag = entities.tags[first_tokens(n_tokens_of_entity)].astype("int64")
    # Like three digits of one number: the first tag, the begin (below N), and the end (up to N).
    tag_and_begin = first_tag * n_tokens + entities.begin
    return tag_and_begin * (n_tokens + 1) + entities.end


def _find_entities(tags: Ints1d, gold: Gold, potentials: Potentials) -> Segments:
    """Find the entities of a path, as segments. The tag after a segment may not be one that
    continues an entity: the entity would be longer. `tags` is -1 where the path is unknown.
    Shape: (N,)"""
    is_known = tags >= 0
    opening = to_numpy(gold.opening)
    continuing = to_numpy(gold.continuing)
    opens = is_known & opening[tags]
    continues = is_known & continuing[tags]
    begin, end = runs(opens, continues, potentials.lengths)
    _, tokens = ranges(begin, end)
    may_follow = numpy.repeat(~continuing[None], len(begin), axis=0)  # (entities, K)
    return Segments(begin, end, tags[tokens], may_follow)


def _concatenate(*segments: Segments) -> Segments:
    """Concatenate several groups of segments."""
    # The arrays `begin` of all groups, then the arrays `end`, `tags` and `after`.
    columns = zip(*segments)
    return Segments._make(numpy.concatenate(column) for column in columns)


def _find_weights(
    gold: Gold, potentials: Potentials, entities: Segments
) -> tuple[Floats1d, Floats1d]:
    """Return the weight of each sequence, and the weight of each entity, which is the weight of its
    sequence. Shapes: (B,), (S,)"""
    xp = get_array_module(potentials.emissions)
    weights = sequence_weights(gold, xp.ones(len(potentials.lengths)))
    sequence_of_entity = sequences_of_tokens(potentials)[xp.asarray(entities.begin)]
    return weights, weights[sequence_of_entity]
