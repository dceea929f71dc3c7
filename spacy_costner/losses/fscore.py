"""MCE-F: a smoothed, differentiable F-score of whole entities as a loss.

The F-score is computed from the numbers of true positives (TP), false positives (FP) and false
negatives (FN). There are two ways to count them. With psi = 1, they are the model's expected
counts. With psi = inf, they are counted on the best paths, and smoothed by a sigmoid.

In the chain, entities are represented as segments (see `chain.Segments`): `begin` and `end` are the
start and end (exclusive) of each segment, `tags` contains the concatenated tags of all segments,
and `after` the tags that may follow each segment.

In shapes, B is the number of sequences, N the number of tokens, K the number of tags, and S the
number of segments.
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
"""Always added to TP, FP and FN, because the loss would be infinite without true positives."""


def make_mce_f(
    *,
    gamma: float = 1.0,
    psi: float = 1.0,
    slope: float = 1.0,
    offset: float = 0.0,
    decay: float = 0.9,
) -> Loss:
    """Create the F-score loss: see `mce_f`.

    gamma (float): The weight of recall relative to precision. Must be above 0.
    psi (float): 1 for expected counts, "inf" for counts on the best paths.
    slope (float): The slope of the sigmoid, if psi is inf. Must be above 0.
    offset (float): Shifts the steepest point of the sigmoid, if psi is inf. With 0, the sigmoid is
        steepest if the paths with and without the correct entity have the same score.
    decay (float): The factor by which the counts of earlier batches are multiplied at each batch,
        from 0 to 1.
    RAISES (ValueError): If a parameter is out of range, or if slope or offset is set and psi is 1.
    """
    # `one_of`, `above` etc. return a number, or raise an error with the names of the loss and the
    # parameter.
    checked_psi = one_of((1.0, math.inf), "MCEF", "psi", as_number(psi))
    # With psi = inf, the loss has a kink where the best path changes.
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
    # The loss is a ratio over the batch instead of a sum over sequences. It isn't convex, so
    # training needs an initial model. The totals are reset when training restarts.
    return Loss(totals, is_ratio=True, is_smooth=is_smooth, needs_start=True, forget=totals.forget)


@dataclass
class RunningTotals:
    """The F-score loss of a batch, including the counts of earlier batches.

    The F-score isn't a sum over sentences. The F-score of a small batch is not meaningful, and the
    loss of a batch without entities would be infinite. So the counts of earlier batches, and one
    true positive, are added to the counts of each batch.

    compute (partial): The function `mce_f`, with all parameters except `before`.
    decay (float): The factor by which the totals are multiplied at each batch.
    totals (Floats1d): The totals of TP, FP and FN. The counts of earlier batches are multiplied by
        powers of `decay`. Shape: (3,)
    """

    compute: "partial[tuple[LossResult, Floats1d]]"
    decay: float
    totals: Floats1d = field(default_factory=partial(numpy.zeros, 3))

    def forget(self) -> None:
        """Reset the totals. Called when training restarts."""
        self.totals = numpy.zeros(3)

    def __call__(self, potentials: Potentials, gold: Gold) -> LossResult:
        """Compute the loss of a batch and its gradient, as in `Loss.compute`, and add the counts of
        the batch to the totals."""
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
    """A loss that decreases as the F-score of whole entities increases.

        loss = (gamma^2 FN + FP) / ((gamma^2 + 1) TP),  F_gamma = 1 / (1 + loss)

    With psi = 1, the counts are the model's exact expected counts: see `expected_counts`. With psi
    = inf, they are counted on the best paths and smoothed by a sigmoid: see `best_counts`.

    The loss isn't convex, so start from a model that was trained with the likelihood. Tokens
    without annotation are ignored.

    potentials (Potentials), gold (Gold): The batch.
    gamma (float): The weight of recall relative to precision.
    psi (float): 1 for expected counts, infinity for counts on the best paths.
    slope (float), offset (float): The parameters of the sigmoid, if psi is infinity.
    before (Floats1d): TP, FP and FN of earlier batches, which are added to the counts of this batch
        as constants. Shape: (3,)
    RETURNS (tuple[LossResult, Floats1d]): The loss with its gradient through the counts of this
        batch, and TP, FP and FN of this batch. Shape: (3,)

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
"""TP, FP and FN of a batch, (3,), and a callback that converts the derivatives with respect to
these counts to the gradient with respect to the potentials."""


def expected_counts(potentials: Potentials, gold: Gold) -> CountsWithVjp:
    """Compute the counts of `mce_f` for psi = 1, i.e. the model's expected counts.

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
    # Each entity has exactly one opening tag, so the expected number of predicted entities is the
    # expected number of opening tags, counted at annotated tokens.
    is_opening = (gold.tags >= 0)[:, None] & xp.asarray(gold.opening)
    zeros = map_scores(xp.zeros_like, potentials)
    counts_opening = zeros._replace(emissions=is_opening.astype(potentials.emissions.dtype))
    n_opened, backprop_opened = paths.expectation(counts_opening)
    tp = float((entity_weight * p).sum())
    fn = float((entity_weight * (1 - p)).sum())
    n_predicted = float((sequence_weight * n_opened).sum())
    fp = max(n_predicted - tp, 0.0)  # may be below 0 due to rounding

    def backprop(derivatives: Derivatives) -> Potentials:
        """Compute the gradient with respect to the potentials."""
        d_tp, d_fp, d_fn = derivatives
        # p is added to TP, and subtracted from FP and FN.
        d_p = entity_weight * (d_tp - d_fp - d_fn)
        d_log_p = d_p * p  # because p = exp(log p)
        d_opened = d_fp * sequence_weight
        return paths.backprop((backprop_log_p, d_log_p), (backprop_opened, d_opened))

    return numpy.asarray([tp, fp, fn]), backprop


def best_counts(
    potentials: Potentials, gold: Gold, *, slope: float, offset: float
) -> CountsWithVjp:
    """Compute the counts of `mce_f` for psi = inf, i.e. smoothed counts on the best paths.

    A place consists of the tokens of a wrong entity in the best path that is not gold (see
    `segments_in_places`). For each gold entity and each place, d is the difference between two
    scores:

        d = (score of the best path without it) - (score of the best path with it)

    A path "with it" contains the gold entity or, for a place, has the gold tags in the place. The
    sigmoid l converts these differences to counts:

        TP = sum over gold entities of 1 - l(d)
        FN = sum over gold entities of l(d)
        FP = sum over places of l(d)
    """
    gold_entities = _find_entities(to_numpy(gold.tags), gold, potentials)
    false_positives = wrong_entities(gold, potentials, gold_entities)
    segments, group_of_segment = segments_in_places(false_positives, gold, potentials)
    # The scores of the best path with each segment (row 0) and without it (row 1). The columns of
    # the gold entities come first. Shape: (2, gold entities + segments)
    scores, backprop_scores = chain.segment_max_scores(
        potentials, _concatenate(gold_entities, segments)
    )
    xp = get_array_module(scores)
    n_gold = len(gold_entities.begin)
    n_wrong = len(false_positives.begin)

    # For a place, both scores are scores of paths *with* a segment (row 0): one of the segments
    # with the gold tags, or one of the segments with other tags. `best_columns` contains the
    # columns of the best segments: row 0 for the gold tags, row 1 for other tags.
    # Shape: (2, places)
    scores_with = to_numpy(scores)[0, n_gold:]
    best_of_group = _best_of_groups(scores_with, group_of_segment, n_groups=2 * n_wrong)
    best_columns = xp.asarray(n_gold + best_of_group.reshape(2, n_wrong))
    # The scores of paths with it (row 0) and without it (row 1). Shape: (2, gold entities + places)
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
        # Compute the derivative with respect to d, and then the derivatives with respect to the two
        # scores. For places, assign the latter to the columns of the best segments. Other columns
        # don't affect the loss.
        d_of_d = xp.where(is_gold, d_fn - d_tp, d_fp) * weights * slopes
        d_with_and_without = xp.stack([-d_of_d, d_of_d])
        d_scores = xp.zeros_like(scores)
        d_scores[:, :n_gold] = d_with_and_without[:, :n_gold]
        d_scores[0, best_columns] = d_with_and_without[:, n_gold:]
        return backprop_scores(d_scores)

    return numpy.asarray([tp, fp, fn]), backprop


def _best_of_groups(scores: Floats1d, group: Ints1d, n_groups: int) -> Ints1d:
    """Return the index of the highest score in each of G groups. In case of a tie, the last
    index is returned. `group` contains the group of each score, from 0 to G - 1. Groups can't be
    empty. Shapes: (R,), (R,) to (G,)"""
    # Sort by group, then by score. The highest score of a group directly precedes the next group.
    order = numpy.lexsort((scores, group))
    ends = numpy.searchsorted(group[order], numpy.arange(n_groups), side="right")
    return order[ends - 1]


def wrong_entities(gold: Gold, potentials: Potentials, gold_entities: Segments) -> Segments:
    """Return the false positives in the best competitor, i.e. the entities in the best path that is
    not gold, except for gold entities. Entities that begin at a token without annotation are
    skipped, because they may be correct."""
    path, scores = chain.best_path_excluding(potentials, gold.paths)
    tags = to_numpy(path)
    n_tokens = len(tags)
    # If gold is the only possible path of a sequence, there is no competitor: set its tags to -1.
    has_competitor = numpy.isfinite(to_numpy(scores))
    is_known = numpy.repeat(has_competitor, potentials.lengths)
    predicted = _find_entities(numpy.where(is_known, tags, -1), gold, potentials)
    # Two entities have the same number if they have the same tokens and the same first tag.
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
    """Return the possible tags in the places of wrong entities as segments: either the gold tags or
    other tags.

    A place consists of the annotated tokens of a wrong entity. If an entity may continue after its
    last tag, as in IOB2, the next token determines whether the entity ends, so it is included in
    the place.

    There are too many combinations of other tags in a place to list them all. However, each
    combination agrees with gold up to a token and then has a wrong tag. So segments end directly
    before the first wrong tag, with a condition on the next tag. If the first tag in the place is
    wrong, the segment consists of that tag. For example, if gold is O O in a place, the segment
    with the gold tags is O O. The segments with other tags are O, followed by any tag except O, and
    each single tag except O.

    Returns the segments, each starting at the beginning of a place, and the group of each segment,
    from 0 to 2S - 1. Group i contains the segments with the gold tags in all of place i. (There may
    be several, because several tags of the chain may correspond to the same gold tag.) Group S + i
    contains the segments with other tags in place i. Shapes: (segments,)
    """
    gold_tags = to_numpy(gold.tags)
    begin = wrong.begin
    end = _find_ends_of_places(wrong, gold, potentials)
    is_legal = numpy.isfinite(to_numpy(potentials.transitions))
    # The tag of the annotation that corresponds to each tag of the chain. Shape: (K,)
    counts_as = numpy.arange(len(is_legal))
    if gold.collapsed_of is not None:
        counts_as = to_numpy(gold.collapsed_of)
    segments: list[Segments] = []
    groups: list[Ints1d] = []

    def agrees_with_gold(tokens: Ints1d) -> Array2d:
        """Return, for each of R tokens, a mask that is True for the tags that correspond to its
        gold tag. Shapes: (R,) to (R, K)"""
        return counts_as[gold_tags[tokens]][:, None] == counts_as

    def add_segments(
        places: Ints1d, paths: Ints2d, after: Array2d | None = None, *, is_gold: bool
    ) -> None:
        """Add R segments of T tokens each, given their places and tags. `after` is True for the
        tags that may follow each segment. If None, all tags may follow. `is_gold` determines
        whether the segments have the gold tags in all of their places.
        Shapes: (R,), (R, T), (R, K)"""
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

    # Extend paths that agree with gold by one token at a time, in all places at once. Row r of
    # `paths` is the beginning of a path in the place `places[r]`. Start with single tags.
    places, tags = numpy.nonzero(~agrees_with_gold(begin))
    add_segments(places, tags[:, None], is_gold=False)
    places, tags = numpy.nonzero(agrees_with_gold(begin))
    paths = tags[:, None]
    while len(places):
        # Paths that agree with gold up to the end of their place are complete.
        is_complete = begin[places] + paths.shape[1] == end[places]
        add_segments(places[is_complete], paths[is_complete], is_gold=True)
        places = places[~is_complete]
        paths = paths[~is_complete]
        # Add all other paths once, for all wrong tags that may come next, and extend them by each
        # tag that agrees with gold.
        agrees_next = agrees_with_gold(begin[places] + paths.shape[1])
        add_segments(places, paths, ~agrees_next, is_gold=False)
        rows, tags = numpy.nonzero(agrees_next & is_legal[paths[:, -1]])
        places = places[rows]
        paths = numpy.column_stack([paths[rows], tags])
    return _concatenate(*segments), numpy.concatenate(groups)


def _find_ends_of_places(wrong: Segments, gold: Gold, potentials: Potentials) -> Ints1d:
    """Return the end (exclusive) of each place: see `segments_in_places`. Shape: (S,)"""
    last_tags = wrong.tags[last_tokens(wrong.end - wrong.begin)]
    # 1 if the place includes the token after the entity, otherwise 0.
    goes_on = to_numpy(can_continue(potentials, gold))[last_tags]
    # A place ends before the next token without annotation, and at the end of its sequence.
    ends_of_sequences = numpy.cumsum(potentials.lengths)
    unannotated = numpy.flatnonzero(to_numpy(gold.tags) < 0)
    stops = numpy.unique(numpy.concatenate([ends_of_sequences, unannotated]))
    next_stop = stops[numpy.searchsorted(stops, wrong.begin, side="right")]
    return numpy.minimum(wrong.end + goes_on, next_stop)


def _number_entities(entities: Segments, n_tokens: int) -> Ints1d:
    """Number entities, so that entities with the same tokens and the same first tag get the same
    number. Shape: (S,)"""
    n_tokens_of_entity = entities.end - entities.begin
    first_tag = entities.tags[first_tokens(n_tokens_of_entity)].astype("int64")
    # The number consists of three digits: the first tag, the start (below N), and the end (at most
    # N).
    tag_and_begin = first_tag * n_tokens + entities.begin
    return tag_and_begin * (n_tokens + 1) + entities.end


def _find_entities(tags: Ints1d, gold: Gold, potentials: Potentials) -> Segments:
    """Return the entities of a path as segments. The tag after a segment can't be a tag that
    continues an entity, because the entity would then be longer. `tags` is -1 for tokens with
    unknown tags. Shape: (N,)"""
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
    # The `begin` arrays of all groups, followed by the `end`, `tags` and `after` arrays.
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
