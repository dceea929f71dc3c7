"""The probability of segments, and the best paths with and without them.

A segment is a sequence of tokens with given tags, and the tags allowed after it. A path shares
a prefix with the segment, up to some token p where it has a tag k. It has the segment if p is
the token after it and k is allowed there; otherwise it deviates from the segment at p. The
total of the paths with prefix p and tag k is

    prefix_p exp(transitions[tag_{p-1}, k]) exp(emissions[p, k]) beta_p[k]
    prefix_p = alpha_begin[tag_begin] prod_{begin < q < p} exp(transitions[tag_{q-1}, tag_q])
                                                           exp(emissions[q, tag_q])

and, at the first token, alpha_begin[k] beta_begin[k]. Each path has one p and k, so that sums
and maxima over them are exact without any subtraction. `Deviations` lists the tokens p: those
of each segment and the one after.
"""

from typing import Callable, NamedTuple, Optional, Tuple

import numpy
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, Ints1d
from thinc.util import get_array_module

from ...types import Potentials
from ..validation import check_derivatives, check_segments
from .log_domain import log_sum_exp, zero_if_infinite
from .messages import MAX, SUM, BothMessages, Semiring
from .packing import (
    add_to_transitions,
    add_up,
    fold_ends,
    pack,
    running_sum,
    sum_by_group,
    unpack,
)


class Segments(NamedTuple):
    """Spans of tokens with given tags, each within one sequence. NumPy arrays.

    begin (Ints1d): The first token of each segment. Shape: (S,)
    end (Ints1d): The token after its last one. Shape: (S,)
    tags (Ints1d): The tags of the tokens of the first segment, then of the second, and so
        on; in all as many as the segments have tokens.
    after (Optional[Array2d]): True for the tags allowed at the token after the segment,
        if the sequence has one; None: all. Shape: (S, K)
    """

    begin: Ints1d
    end: Ints1d
    tags: Ints1d
    after: Optional[Array2d] = None


class Deviations(NamedTuple):
    """The tokens at which a path can deviate from a segment, segment after segment.

    segment (Ints1d): The segment of each deviation. Shape: (R,)
    first (Ints1d): The first deviation of that segment. Shape: (R,)
    row (Ints1d): The packed row of the token; arbitrary after the end of the sequence. Shape: (R,)
    tag (Ints1d): The tag of the segment there; arbitrary after it. Shape: (R,)
    tag_before (Ints1d): The tag of the segment at the token before. Shape: (R,)
    opens (Array1d): True at the first token. Shape: (R,)
    inside (Array1d): True at a token of the segment. Shape: (R,)
    over (Array1d): True after a segment that ends its sequence. Shape: (R,)
    """

    segment: Ints1d
    first: Ints1d
    row: Ints1d
    tag: Ints1d
    tag_before: Ints1d
    opens: Array1d
    inside: Array1d
    over: Array1d


class SegmentPaths(NamedTuple):
    """The paths of a batch, by the deviation at which they leave a segment.

    messages (BothMessages): The messages of both directions.
    deviations (Deviations): The tokens at which paths can deviate.
    scores (Floats2d): The total of the paths with each tag at each deviation and the tags of
        the segment before it. Shape: (R, K)
    unconditional (Floats2d): The total of all paths with each tag at the token of each
        deviation. Shape: (R, K)
    has (Array2d): True if the paths of `scores` have the segment. Shape: (R, K)
    misses (Array2d): True if they do not; neither for its own tag. Shape: (R, K)
    """

    messages: BothMessages
    deviations: Deviations
    scores: Floats2d
    unconditional: Floats2d
    has: Array2d
    misses: Array2d


def segment_log_probs(
    potentials: Potentials, segments: Segments
) -> Tuple[Floats1d, Callable[[Floats1d], Potentials]]:
    """The log-probability of each segment.

        log p(y_begin = tag_begin, ..., y_{end-1} = tag_{end-1}, y_end in after)

    potentials (Potentials): The scores of a batch.
    segments (Segments): The segments.
    RETURNS (Tuple): The log-probabilities, minus infinity where no legal path has the
        segment, in float64, shape (S,); and the callback that takes the derivative with
        respect to them, shape (S,), to that of the potentials.
    """
    messages, deviations, scores, unconditional, has, _ = _segment_paths(potentials, segments, SUM)
    xp = get_array_module(scores)
    totals, shares = SUM.choose(
        xp.where(has, scores, -xp.inf), deviations.segment, len(segments.begin)
    )
    log_z = zero_if_infinite(log_sum_exp(unconditional, axis=1))

    def backprop(d_log_p: Floats1d) -> Potentials:
        check_derivatives(d_log_p, totals.shape, "segments")
        weights = xp.where(xp.isfinite(totals), xp.asarray(d_log_p), 0.0)[deviations.segment, None]
        mass = shares * weights
        return _propagate(
            messages, deviations, mass, xp.exp(unconditional - log_z[:, None]) * weights
        )

    return totals - log_z[deviations.opens], backprop


def segment_max_scores(
    potentials: Potentials, segments: Segments
) -> Tuple[Floats2d, Callable[[Floats2d], Potentials]]:
    """The scores of the best path with each segment and of the best path without it.

    potentials (Potentials): The scores of a batch.
    segments (Segments): The segments.
    RETURNS (Tuple): The scores with each segment and the scores without it, minus infinity
        where there is no legal path, in float64, shape (2, S); and the callback that takes
        the derivative with respect to them, shape (2, S), to that of the potentials,
        the number of times that the best path uses each potential.
    """
    messages, deviations, scores, _, has, misses = _segment_paths(potentials, segments, MAX)
    xp = get_array_module(scores)
    chosen = [
        MAX.choose(xp.where(which, scores, -xp.inf), deviations.segment, len(segments.begin))
        for which in (has, misses)
    ]

    def backprop(d_scores: Floats2d) -> Potentials:
        check_derivatives(d_scores, (2, len(segments.begin)), "segments")
        mass = xp.zeros_like(scores)
        for d_score, (_, shares) in zip(xp.asarray(d_scores), chosen):
            mass += shares * d_score[deviations.segment, None]
        return _propagate(messages, deviations, mass, xp.zeros_like(mass))

    return xp.stack([totals for totals, _ in chosen]), backprop


def _segment_paths(potentials: Potentials, segments: Segments, semiring: Semiring) -> SegmentPaths:
    packing = pack(potentials)
    xp = get_array_module(potentials.emissions)
    check_segments(segments, potentials)
    begin, end, tags = (places.astype("int64") for places in segments[:3])
    segments = segments._replace(begin=begin, end=end, tags=tags)
    messages = semiring.both(potentials, packing)
    deviations = _deviations(segments, messages)
    tags = xp.arange(len(potentials.transitions))
    prefix = deviations.inside[:, None] & (tags == deviations.tag[:, None])
    has = xp.repeat((~deviations.inside)[:, None], len(tags), axis=1)
    if segments.after is not None:
        has &= xp.asarray(segments.after)[deviations.segment] | deviations.over[:, None]
    return SegmentPaths(messages, deviations, *_scores(deviations, messages), has, ~has & ~prefix)


def _deviations(segments: Segments, messages: BothMessages) -> Deviations:
    n_tokens = segments.end - segments.begin
    segment = numpy.repeat(numpy.arange(len(n_tokens)), n_tokens + 1)
    first = (numpy.cumsum(n_tokens + 1) - n_tokens - 1)[segment]
    position = numpy.arange(len(segment)) - first
    inside = position < n_tokens[segment]
    sequence_ends = numpy.cumsum(messages.potentials.lengths, dtype="int64")
    over = ~inside & numpy.isin(segments.end, sequence_ends)[segment]
    tag = numpy.zeros(len(segment), dtype="int64")
    tag[inside] = segments.tags
    xp = get_array_module(messages.potentials.emissions)
    row_of_token = unpack(xp.arange(len(messages.packing.tokens)), messages.packing)
    return Deviations(
        segment=xp.asarray(segment),
        first=xp.asarray(first),
        row=row_of_token[xp.asarray(numpy.where(over, 0, segments.begin[segment] + position))],
        tag=xp.asarray(tag),
        tag_before=xp.asarray(numpy.roll(tag, 1)),
        opens=xp.asarray(position == 0),
        inside=xp.asarray(inside),
        over=xp.asarray(over),
    )


def _scores(deviations: Deviations, messages: BothMessages) -> Tuple[Floats2d, Floats2d]:
    """The totals `scores` and `unconditional` of `SegmentPaths`."""
    xp = get_array_module(deviations.row)
    emissions = fold_ends(messages.potentials, messages.packing)[deviations.row]
    onwards = emissions + messages.after.predicted[deviations.row]
    to_here = messages.before.predicted[deviations.row]
    from_before = messages.potentials.transitions[deviations.tag_before].astype("float64")
    to_tag = xp.where(deviations.opens[:, None], to_here, from_before)
    at_tag = xp.arange(len(deviations.row)), deviations.tag
    step = xp.where(deviations.inside, to_tag[at_tag] + emissions[at_tag], 0.0)
    possible = xp.isfinite(step)
    prefix = running_sum(xp.where(possible, step, 0.0), deviations.first)
    prefix = xp.where(running_sum(~possible, deviations.first) > 0, -xp.inf, prefix)[:, None]
    if_over = xp.where(xp.arange(emissions.shape[1]) == 0, prefix, -xp.inf)
    scores = xp.where(deviations.over[:, None], if_over, prefix + to_tag + onwards)
    return scores, to_here + onwards


def _propagate(
    messages: BothMessages, deviations: Deviations, mass: Floats2d, unconditional: Floats2d
) -> Potentials:
    """The gradient: mass of the paths that deviate, minus mass of all paths at those tokens.

    mass (Floats2d): Mass on each tag at each deviation. Shape: (R, K)
    unconditional (Floats2d): Mass to subtract at each tag of each deviation. Shape: (R, K)
    """
    opens, inside, continues = (
        each[:, None] for each in (deviations.opens, deviations.inside, ~deviations.over)
    )
    prefix = _prefix_mass(mass, deviations)
    stays, leaves = (prefix - unconditional) * inside, (mass - unconditional * ~inside) * continues
    gradient = messages.propagate(
        to_left=_on_rows((stays + leaves) * opens, deviations, messages),
        to_right=_on_rows(leaves, deviations, messages),
        surplus=_on_rows(leaves * opens - stays * ~opens, deviations, messages),
    )
    n_tags = mass.shape[1]
    places = deviations.tag_before[:, None] * n_tags + get_array_module(mass).arange(n_tags)
    d_transitions = add_up(places, (prefix + mass) * (continues & ~opens), (n_tags, n_tags))
    d_transitions -= messages.before.expected_transitions(
        _on_rows(unconditional * (continues & ~opens), deviations, messages)
    )
    return _zero_if_forbidden(add_to_transitions(gradient, d_transitions), messages.potentials)


def _zero_if_forbidden(gradient: Potentials, potentials: Potentials) -> Potentials:
    """The gradient, exactly 0 on forbidden potentials, where rounding errors may remain."""
    xp = get_array_module(potentials.emissions)
    arrays = [
        xp.where(xp.isneginf(scores), xp.zeros_like(array), array)
        for array, scores in zip(gradient[:4], potentials[:4])
    ]
    return Potentials._make([*arrays, gradient.lengths])


def _prefix_mass(mass: Floats2d, deviations: Deviations) -> Floats2d:
    """The mass on the tag of the segment at each token, to deviate later. Shape: (R, K)"""
    xp = get_array_module(mass)
    here = mass.sum(axis=1)
    in_all = sum_by_group(here, deviations.segment, len(here))
    later = in_all[deviations.segment] - running_sum(here, deviations.first) - here
    prefix = xp.zeros_like(mass)
    prefix[xp.arange(len(here)), deviations.tag] = xp.where(deviations.inside, later, 0.0)
    return prefix


def _on_rows(mass: Floats2d, deviations: Deviations, messages: BothMessages) -> Floats2d:
    """Add up mass of deviations by the rows of their tokens. Shape: (R, K) to (N, K)"""
    n_tags = mass.shape[1]
    places = deviations.row[:, None] * n_tags + get_array_module(mass).arange(n_tags)
    return add_up(places, mass, messages.potentials.emissions.shape)
