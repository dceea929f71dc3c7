"""Incorrect spans: spans that are known not to be entities, as a chain with more tags.

One tag or two don't show whether tokens s to e are an entity. So each token s where incorrect spans
of a label start gets its own copies of the label's tags. An entity of that label that starts at s
has to use these copies to its end. Copies have the scores of their originals, so the paths and
their scores stay the same. But a path has an incorrect span if and only if it has the last tag of a
copy where that span ends. Gold excludes these tags, and no algorithm of the chain has to know of
incorrect spans.
"""

from collections.abc import Sequence

import numpy
from thinc.types import Array2d, Ints1d
from thinc.util import get_array_module

from ..tags import Tags
from ..types import Constraints, Potentials

BEGIN, INSIDE, LAST, UNIT = range(4)
"""The order of the four tags in a copy."""


IncorrectSpan = tuple[int, int, int, int]
"""A sequence, the begin and end of tokens, counted over the batch, that are not an entity of a
label, and the label, as an index."""


def expand(potentials: Potentials, tied_to: Ints1d) -> Potentials:
    """Copy the scores of K tags to K' tags, without constraints. `tied_to` is the tag that each has
    its scores from, (K',)."""
    columns = get_array_module(potentials.emissions).asarray(tied_to)
    return Potentials(
        emissions=potentials.emissions[:, columns],
        transitions=potentials.transitions[columns][:, columns],
        start=potentials.start[columns],
        end=potentials.end[columns],
        lengths=potentials.lengths,
    )


def collapse(gradient: Potentials, tied_to: Ints1d, n_tags: int) -> Potentials:
    """Sum the gradient with respect to K' tags over the copies of each of K tags."""
    xp = get_array_module(gradient.emissions)
    sums = xp.asarray(tied_to)[:, None] == xp.arange(n_tags)
    sums = sums.astype(gradient.emissions.dtype)
    return Potentials(
        emissions=gradient.emissions @ sums,
        transitions=sums.T @ gradient.transitions @ sums,
        start=gradient.start @ sums,
        end=gradient.end @ sums,
        lengths=gradient.lengths,
    )


def augment_tags(
    tags: Tags, spans: Sequence[IncorrectSpan], n_tokens: int
) -> tuple[Ints1d, Constraints, Array2d]:
    """Make the copies of tags for the incorrect spans, at least one, of a batch of N tokens. A
    label has as many copies as its incorrect spans have starts in one sequence. Returns the tag of
    the model that each of K' tags has its scores from, (K',); their possible paths; and False for
    the tags that end an incorrect span, (N, K')."""
    starts: dict[tuple[int, int], list[int]] = {}
    for sequence, begin, _, label in spans:
        known = starts.setdefault((sequence, label), [])
        known += [begin] * (begin not in known)
    copies = sorted({(label, i) for (_, label), known in starts.items() for i in range(len(known))})
    first_of = {copy: len(tags) + 4 * i for i, copy in enumerate(copies)}
    parts = (tags.scheme.begin, tags.scheme.inside, tags.scheme.last, tags.scheme.unit)
    copied = [tags.index(part, label) for label, _ in copies for part in parts]
    tied_to = numpy.asarray([*range(len(tags)), *copied])

    # A copy begins where its spans start, in place of the original. Gold doesn't end there.
    possible, allowed = numpy.ones((2, n_tokens, len(tied_to)), dtype=bool)
    firsts = numpy.asarray(list(first_of.values()))
    possible[:, firsts + BEGIN] = possible[:, firsts + UNIT] = False
    for sequence, begin, end, label in spans:
        first = first_of[label, starts[sequence, label].index(begin)]
        possible[begin, tags.index(tags.scheme.begin, label)] = False
        possible[begin, tags.index(tags.scheme.unit, label)] = False
        possible[begin, [first + BEGIN, first + UNIT]] = True
        allowed[end - 1, first + (UNIT if end - begin == 1 else LAST)] = False
    return tied_to, _constraints(tags, tied_to)._replace(emissions=possible), allowed


def _constraints(tags: Tags, tied_to: Ints1d) -> Constraints:
    """The paths of K' tags. Between entities a copy goes where its original goes; within one, it
    stays in its copy."""
    scheme, n_tags = tags.constraints, len(tags)
    assert scheme.transitions is not None and scheme.start is not None and scheme.end is not None
    part = numpy.arange(len(tied_to) - n_tags) % 4
    opens = numpy.append(~tags.continuing, (part == BEGIN) | (part == UNIT))
    closes = numpy.append(numpy.ones(n_tags, dtype=bool), (part == LAST) | (part == UNIT))
    transitions = scheme.transitions[numpy.ix_(tied_to, tied_to)] & closes[:, None] & opens
    transitions[:n_tags, :n_tags] = scheme.transitions
    for first in range(n_tags, len(tied_to), 4):
        for from_part in (BEGIN, INSIDE):
            transitions[first + from_part, [first + INSIDE, first + LAST]] = True
    start, end = scheme.start[tied_to] & opens, scheme.end[tied_to] & closes
    return Constraints(transitions=transitions, start=start, end=end)
