"""Incorrect spans: spans that are known not to be entities, as a chain with more tags.

One tag or two don't show whether tokens s to e are an entity. So each token s where incorrect spans
of a label start gets its own copies of the label's tags. An entity of that label that starts at s
has to use these copies to its end. Copies have the scores of their originals, so the paths and
their scores stay the same. But a path has an incorrect span if and only if it has the last tag of a
copy where that span ends. Gold excludes these tags, and no algorithm of the chain has to know of
incorrect spans.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.training import Example
from thinc.types import Array2d, Ints1d
from thinc.util import get_array_module

from .. import chain
from ..tags import Tags
from ..types import Constraints, Gold, Potentials

FIRST, MIDDLE, LAST, ONLY = range(4)
"""The order of the four tags in a copy, by the token of the entity that has the tag."""

N_COPIED = 4
"""The number of tags in a copy."""


class IncorrectSpan(NamedTuple):
    """Tokens that are not an entity of a label.

    sequence (int): The sequence in the batch.
    begin (int), end (int): The first token and the one after the last, counted over the batch.
    label (int): The label, as an index.
    """

    sequence: int
    begin: int
    end: int
    label: int


def read_incorrect_spans(
    examples: Sequence[Example], key: str, tags: Tags, lengths: Ints1d
) -> list[IncorrectSpan]:
    """Read the spans that are known not to be entities, one for each label. A span without a label
    is not an entity of any label.

    examples (Sequence[Example]): The examples.
    key (str): The key of the spans in `doc.spans` of the reference docs.
    tags (Tags): The tags of the chain.
    lengths (Ints1d): The number of tokens of each predicted doc. Shape: (D,)
    RETURNS (list[IncorrectSpan]): The spans that align with tokens of the predicted docs.
    """
    first_tokens = (numpy.cumsum(lengths) - lengths).tolist()
    incorrect_spans: list[IncorrectSpan] = []
    for i, eg in enumerate(examples):
        spans = list(eg.reference.spans.get(key, ()))
        if not spans:
            continue
        for span in eg.get_aligned_spans_y2x(spans, allow_overlap=True):
            begin = first_tokens[i] + span.start
            end = first_tokens[i] + span.end
            for number, label in enumerate(tags.labels):
                if span.label_ in ("", label):
                    incorrect_spans.append(IncorrectSpan(i, begin, end, number))
    return incorrect_spans


def exclude(
    spans: Sequence[IncorrectSpan], gold: Gold, constraints: Constraints, tags: Tags
) -> tuple[Gold, Constraints]:
    """Make paths wrong that have an incorrect span. They stay possible.

    spans (Sequence[IncorrectSpan]): The spans, at least one.
    gold (Gold): The gold paths, over the K tags of the chain.
    constraints (Constraints): The possible paths, over the same tags.
    tags (Tags): These tags.
    RETURNS (tuple[Gold, Constraints]): Both over K' tags, whose scores are those of tags of the
        chain: see `Gold.tied_to`.
    """
    tied_to, augmented, is_correct = augment_tags(tags, spans, len(gold.tags))
    allowed = chain.to_mask(gold.token_tags, len(tags))
    gold = gold._replace(
        allowed=allowed[:, tied_to] & is_correct,
        opening=tags.opening[tied_to],
        continuing=tags.continuing[tied_to],
        tied_to=tied_to,
        collapsed_of=tags.collapsed_of[tied_to],
    )
    possible = augmented.emissions
    if constraints.emissions is not None:
        possible = possible & constraints.emissions[:, tied_to]
    return gold, augmented._replace(emissions=possible)


def augment_tags(
    tags: Tags, spans: Sequence[IncorrectSpan], n_tokens: int
) -> tuple[Ints1d, Constraints, Array2d]:
    """Make the copies of tags for the incorrect spans of a batch. A label has as many copies as its
    incorrect spans have starts in one sequence.

    tags (Tags): The K tags of the chain.
    spans (Sequence[IncorrectSpan]): The spans, at least one.
    n_tokens (int): N, the number of tokens of the batch.
    RETURNS (tuple[Ints1d, Constraints, Array2d]): The tag of the model that each of K' tags has its
        scores from, (K',); their possible paths; and False for the tags that end an incorrect span,
        (N, K').
    """
    # The i-th start of a label in a sequence has the i-th copy of the label's tags.
    copy_of_start: dict[tuple[int, int, int], int] = {}
    n_starts: Counter[tuple[int, int]] = Counter()
    n_copies: Counter[int] = Counter()
    for span in spans:
        start = (span.sequence, span.label, span.begin)
        if start not in copy_of_start:
            copy_of_start[start] = n_starts[span.sequence, span.label]
            n_starts[span.sequence, span.label] += 1
            n_copies[span.label] = max(n_copies[span.label], copy_of_start[start] + 1)

    # Behind the original tags the copies, label by label. `first_of` is the first tag of a copy.
    scheme = tags.scheme
    tied_to = list(range(len(tags)))
    first_of: dict[tuple[int, int], int] = {}
    for label in sorted(n_copies):
        for copy in range(n_copies[label]):
            first_of[label, copy] = len(tied_to)
            for prefix in (scheme.begin, scheme.inside, scheme.last, scheme.unit):
                tied_to.append(int(tags.index(prefix, label)))

    possible = numpy.ones((n_tokens, len(tied_to)), dtype=bool)
    allowed = numpy.ones((n_tokens, len(tied_to)), dtype=bool)
    for first in first_of.values():
        possible[:, [first + FIRST, first + ONLY]] = False
    for span in spans:
        first = first_of[span.label, copy_of_start[span.sequence, span.label, span.begin]]
        # The copy begins where its spans start, in place of the original.
        possible[span.begin, tags.index(scheme.begin, span.label)] = False
        possible[span.begin, tags.index(scheme.unit, span.label)] = False
        possible[span.begin, [first + FIRST, first + ONLY]] = True
        # Gold doesn't end there.
        last = ONLY if span.end - span.begin == 1 else LAST
        allowed[span.end - 1, first + last] = False
    constraints = _constraints(tags, numpy.asarray(tied_to))._replace(emissions=possible)
    return numpy.asarray(tied_to), constraints, allowed


def _constraints(tags: Tags, tied_to: Ints1d) -> Constraints:
    """The transitions, starts and ends of K' tags, (K',). Between entities a copy goes where its
    original goes; within one, it stays in its copy."""
    constraints = tags.constraints
    assert constraints.transitions is not None
    assert constraints.start is not None and constraints.end is not None
    n_tags = len(tags)
    place = numpy.arange(len(tied_to) - n_tags) % N_COPIED
    opens_copy = (place == FIRST) | (place == ONLY)
    closes_copy = (place == LAST) | (place == ONLY)
    # What may stand at the begin and at the end of an entity, or outside of one. Shape: (K',)
    opens = numpy.append(~tags.continuing, opens_copy)
    closes = numpy.append(numpy.ones(n_tags, dtype=bool), closes_copy)
    between = closes[:, None] & opens
    transitions = constraints.transitions[numpy.ix_(tied_to, tied_to)] & between
    # The original tags keep all their transitions; a copy gets those within an entity.
    transitions[:n_tags, :n_tags] = constraints.transitions
    for first in range(n_tags, len(tied_to), N_COPIED):
        for from_place in (FIRST, MIDDLE):
            transitions[first + from_place, [first + MIDDLE, first + LAST]] = True
    return Constraints(
        transitions=transitions,
        start=constraints.start[tied_to] & opens,
        end=constraints.end[tied_to] & closes,
    )


def expand(potentials: Potentials, tied_to: Ints1d) -> Potentials:
    """Copy scores to tags that are tied to those of the model.

    potentials (Potentials): The scores of K tags, without constraints.
    tied_to (Ints1d): The tag that each of K' tags has its scores from. Shape: (K',)
    RETURNS (Potentials): The scores of K' tags.
    """
    columns = get_array_module(potentials.emissions).asarray(tied_to)
    return Potentials(
        emissions=potentials.emissions[:, columns],
        transitions=potentials.transitions[columns][:, columns],
        start=potentials.start[columns],
        end=potentials.end[columns],
        lengths=potentials.lengths,
    )


def collapse(gradient: Potentials, tied_to: Ints1d, n_tags: int) -> Potentials:
    """Sum a gradient over the tags that are tied to each tag of the model: backprop of `expand`.

    gradient (Potentials): The gradient with respect to the scores of K' tags.
    tied_to (Ints1d): As in `expand`. Shape: (K',)
    n_tags (int): K, the number of tags of the model.
    RETURNS (Potentials): The gradient with respect to the scores of K tags.
    """
    xp = get_array_module(gradient.emissions)
    # 1 where a tag, (K',), is tied to a tag of the model, (K,): products with it are sums.
    is_tied = xp.asarray(tied_to)[:, None] == xp.arange(n_tags)
    is_tied = is_tied.astype(gradient.emissions.dtype)
    return Potentials(
        emissions=gradient.emissions @ is_tied,
        transitions=is_tied.T @ gradient.transitions @ is_tied,
        start=gradient.start @ is_tied,
        end=gradient.end @ is_tied,
        lengths=gradient.lengths,
    )
