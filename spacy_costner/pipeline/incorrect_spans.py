"""Spans that are known not to be entities, as a chain with more tags.

That tokens s to e are no entity of a label is not a matter of single tags or of pairs. So
each forbidden start gets tags of its own, a track: an entity of that label that begins at s
has to take them and keeps to them to its end. AugmentedTags score as the tags that they stand for,
so that the chain is the same; but where a path has a forbidden span, and there only, the last
tag of a track stands where the span ends. Right paths don't have it; no algorithm knows more.
"""

from typing import Dict, Iterator, List, NamedTuple, Tuple

import numpy
from thinc.types import Array2d, Ints1d
from thinc.util import get_array_module

from ..tags import Tags
from ..types import Constraints, Potentials

BEGIN, INSIDE, LAST, UNIT = range(4)
"""The tags of a label on a track."""


class IncorrectSpan(NamedTuple):
    """Tokens that are no entity.

    sequence (int): The sequence.
    begin (int): The first token, counted over the batch.
    end (int): The token after the last.
    label (int): The label, as an index.
    """

    sequence: int
    begin: int
    end: int
    label: int


class AugmentedTags(NamedTuple):
    """A tag set with tracks for the forbidden spans of a batch. K' is the larger K.

    tied_to (Ints1d): The tag that each tag scores as. Shape: (K',)
    constraints (Constraints): What the paths of the larger chain may do; K' for K.
    right (Array2d): False for the tags that end a forbidden span. Shape: (N, K')
    n_tags (int): K.
    """

    tied_to: Ints1d
    constraints: Constraints
    right: Array2d
    n_tags: int

    def expand(self, potentials: Potentials) -> Potentials:
        """The same scores for the larger chain, without its constraints."""
        columns = get_array_module(potentials.emissions).asarray(self.tied_to)
        return Potentials(
            emissions=potentials.emissions[:, columns],
            transitions=potentials.transitions[columns][:, columns],
            start=potentials.start[columns],
            end=potentials.end[columns],
            lengths=potentials.lengths,
        )

    def collapse(self, gradient: Potentials) -> Potentials:
        """The gradient of the larger chain as that of the chain it was made of."""
        xp = get_array_module(gradient.emissions)
        sums = xp.asarray(self.tied_to)[:, None] == xp.arange(self.n_tags)
        sums = sums.astype(gradient.emissions.dtype)
        return Potentials(
            emissions=gradient.emissions @ sums,
            transitions=sums.T @ gradient.transitions @ sums,
            start=gradient.start @ sums,
            end=gradient.end @ sums,
            lengths=gradient.lengths,
        )


def augment_tags(tags: Tags, spans: List[IncorrectSpan], n_tokens: int) -> AugmentedTags:
    """Plan the tracks of a batch.

    tags (Tags): The tag set.
    spans (List[IncorrectSpan]): The forbidden spans, one at least.
    n_tokens (int): N.
    RETURNS (AugmentedTags): The larger tag set.
    """
    blocks = _blocks(tags, spans)
    parts = (tags.scheme.begin, tags.scheme.inside, tags.scheme.last, tags.scheme.unit)
    tied_to = list(range(len(tags)))
    for label, _ in blocks:
        tied_to += [int(tags.index(part, label)) for part in parts]
    constraints = _constraints(tags, len(blocks))
    possible, right = _possible(tags, spans, blocks, n_tokens)
    constraints = constraints._replace(emissions=possible)
    return AugmentedTags(numpy.asarray(tied_to), constraints, right, n_tags=len(tags))


Blocks = Dict[Tuple[int, int], int]
"""Label and number of a track, to the first of its four tags."""


def _blocks(tags: Tags, spans: List[IncorrectSpan]) -> Blocks:
    """Lay the tracks behind the tags: as many of a label as a sequence has starts of it."""
    tracks = sorted({(span.label, number) for span, number in _numbered(spans)})
    return {track: len(tags) + 4 * i for i, track in enumerate(tracks)}


def _numbered(spans: List[IncorrectSpan]) -> Iterator[Tuple[IncorrectSpan, int]]:
    """The spans, each with the number of its track among those of its sequence and label."""
    starts: Dict[Tuple[int, int], List[int]] = {}
    for span in spans:
        known = starts.setdefault((span.sequence, span.label), [])
        if span.begin not in known:
            known.append(span.begin)
        yield span, known.index(span.begin)


def _constraints(tags: Tags, n_tracks: int) -> Constraints:
    scheme = tags.constraints
    opens = numpy.concatenate([scheme.start, numpy.tile([True, False, False, True], n_tracks)])
    closes = numpy.concatenate([scheme.end, numpy.tile([False, False, True, True], n_tracks)])
    transitions = closes[:, None] & opens[None, :]
    transitions[: len(tags), : len(tags)] = scheme.transitions
    for first in range(len(tags), len(opens), 4):
        for part in (BEGIN, INSIDE):
            transitions[first + part, [first + INSIDE, first + LAST]] = True
    return Constraints(transitions=transitions, start=opens, end=closes)


def _possible(
    tags: Tags, spans: List[IncorrectSpan], blocks: Blocks, n_tokens: int
) -> Tuple[Array2d, Array2d]:
    """Where the tracks begin, in place of the tags that they stand for; and where they end
    without ending a forbidden span. Shapes: (N, K')"""
    possible, right = numpy.ones((2, n_tokens, len(tags) + 4 * len(blocks)), dtype=bool)
    firsts = numpy.asarray(list(blocks.values()))
    possible[:, firsts + BEGIN] = possible[:, firsts + UNIT] = False
    numbered = [(span, blocks[span.label, number]) for span, number in _numbered(spans)]
    for span, first in numbered:
        possible[span.begin, tags.index(tags.scheme.begin, span.label)] = False
        possible[span.begin, tags.index(tags.scheme.unit, span.label)] = False
        possible[span.begin, [first + BEGIN, first + UNIT]] = True
    for span, first in numbered:
        part = UNIT if span.end - span.begin == 1 else LAST
        right[span.end - 1, first + part] = False
    return possible, right
