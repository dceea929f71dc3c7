"""Incorrect spans: spans that are known not to be entities. A chain with more tags excludes them.

A chain sees one tag, or two tags that follow each other. These don't show whether exactly the
tokens s to e are an entity. So the four tags of the label (begin, inside, last and unit, as in
BILUO) are copied for each token s where an incorrect span starts. An entity of this label that
starts at s has to use the copies, up to its end. A copy has the same scores as its original, so the
paths have the same scores as before. But now one tag shows that a path has the incorrect span: the
copy of "last" at e. Gold excludes this tag. The algorithms of the chain need not know of incorrect
spans.

For example, "New York City" is not a LOC. The tags B-LOC, I-LOC, L-LOC and U-LOC are copied as b,
i, l and u. At "New" a LOC can only begin with b or u, and after b only i or l can follow. Gold
excludes l at "City".

In shapes, D is the number of docs, N of tokens, K of tags of the chain, and K' of these tags and
their copies.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy
from spacy.training import Example
from thinc.types import Array2d, Ints1d
from thinc.util import get_array_module

from .. import chain
from ..tags import Tags
from ..types import Constraints, Gold, Potentials

FIRST, MIDDLE, LAST, ONLY = range(4)
"""The places of the four tags in a copy: the tags of the first, a middle, the last and the only
token of an entity."""

N_COPIED = 4
"""The number of tags in a copy."""


class IncorrectSpan(NamedTuple):
    """Tokens that are not an entity of a label.

    doc (int): The index of the doc in the batch.
    begin (int), end (int): The first token and the one after the last, counted over the batch.
    label (int): The index of the label in `Tags.labels`.
    """

    doc: int
    begin: int
    end: int
    label: int


def read_incorrect_spans(
    examples: Sequence[Example], key: str, tags: Tags, lengths: Ints1d
) -> list[IncorrectSpan]:
    """Read the spans that are known not to be entities. A span without a label is not an entity of
    any label: it becomes one incorrect span for each label of the tags.

    examples (Sequence[Example]): The batch. Its incorrect spans are in the reference docs.
    key (str): The key of the spans in `doc.spans` of the reference docs.
    tags (Tags): The tags of the chain.
    lengths (Ints1d): The number of tokens of each predicted doc. Shape: (D,)
    RETURNS (list[IncorrectSpan]): The spans. Spans that don't align with tokens of the predicted
        docs are left out, as are spans whose labels the tags don't have.
    """
    # The first token of each doc, counted over the batch.
    first_tokens = (numpy.cumsum(lengths) - lengths).tolist()
    incorrect_spans: list[IncorrectSpan] = []
    for i, eg in enumerate(examples):
        spans = list(eg.reference.spans.get(key, ()))
        if not spans:
            continue
        for span in eg.get_aligned_spans_y2x(spans, allow_overlap=True):
            begin = first_tokens[i] + span.start
            end = first_tokens[i] + span.end
            for label_number, label in enumerate(tags.labels):
                if span.label_ in ("", label):
                    incorrect_spans.append(IncorrectSpan(i, begin, end, label_number))
    return incorrect_spans


def exclude_spans(
    spans: Sequence[IncorrectSpan], gold: Gold, constraints: Constraints, tags: Tags
) -> tuple[Gold, Constraints]:
    """Exclude the paths with an incorrect span from gold. They stay possible paths, which a loss
    makes less likely.

    spans (Sequence[IncorrectSpan]): The spans, at least one.
    gold (Gold): The gold paths, in the K tags of the chain, without costs.
    constraints (Constraints): The possible paths, in the same tags.
    tags (Tags): The tags of the chain.
    RETURNS (tuple[Gold, Constraints]): The gold paths and the possible paths, in the K' tags of the
        chain with copies. `Gold.tied_to` has, for each copy, the tag from which it takes its
        scores.
    """
    augmented = augment_tags(tags, spans, len(gold.tags))
    tied_to = augmented.tied_to
    # `[tied_to]` gives each copy the value of its original: (K,) to (K',).
    # Where gold is O, all tags for O are allowed: the constraints choose among them.
    is_allowed = chain.to_mask(gold.token_tags, len(tags))
    gold = gold._replace(
        allowed=is_allowed[:, tied_to] & augmented.is_correct,
        opening=tags.opening[tied_to],
        continuing=tags.continuing[tied_to],
        tied_to=tied_to,
        collapsed_of=tags.collapsed_of[tied_to],
    )
    is_possible = augmented.constraints.emissions
    if constraints.emissions is not None:
        is_possible = is_possible & constraints.emissions[:, tied_to]
    return gold, augmented.constraints._replace(emissions=is_possible)


class AugmentedTags(NamedTuple):
    """The K' tags of a chain for incorrect spans: first the K tags of the original chain, then the
    copies, four tags for each.

    tied_to (Ints1d): For each tag the tag of the original chain from which it takes its scores.
        Shape: (K',)
    constraints (Constraints): The possible paths. An entity that starts where an incorrect span
        starts has to use a copy.
    is_correct (Array2d): False at the tag and token that show an incorrect span: the last tag of a
        copy, where the span ends. Shape: (N, K')
    """

    tied_to: Ints1d
    constraints: Constraints
    is_correct: Array2d


def augment_tags(tags: Tags, spans: Sequence[IncorrectSpan], n_tokens: int) -> AugmentedTags:
    """Make the copies of tags for the incorrect spans of a batch. Docs share them: a label has as
    many copies as there are tokens at which its incorrect spans start, in the doc with the most of
    them. There has to be at least one span."""
    copy_of_start = _choose_copies(spans)
    n_copies: Counter[int] = Counter()  # the number of copies of each label
    for (label, _), copy in copy_of_start.items():
        n_copies[label] = max(n_copies[label], copy + 1)
    tied_to, first_tag_of = _number_copies(tags, n_copies)

    # No entity begins with a copy, ...
    is_possible = numpy.ones((n_tokens, len(tied_to)), dtype=bool)
    is_correct = numpy.ones((n_tokens, len(tied_to)), dtype=bool)
    for first_tag in first_tag_of.values():
        is_possible[:, [first_tag + FIRST, first_tag + ONLY]] = False
    for span in spans:
        # ... except where an incorrect span starts. There it can't begin with the original tag.
        copy = copy_of_start[span.label, span.begin]
        first_tag = first_tag_of[span.label, copy]
        for place in (FIRST, ONLY):
            original_tag = tied_to[first_tag + place]
            is_possible[span.begin, original_tag] = False
            is_possible[span.begin, first_tag + place] = True
        # The tag that shows that an entity ends where this span ends.
        has_one_token = span.end - span.begin == 1
        last_place = ONLY if has_one_token else LAST
        is_correct[span.end - 1, first_tag + last_place] = False

    constraints = _copy_constraints(tags, numpy.asarray(tied_to))
    constraints = constraints._replace(emissions=is_possible)
    return AugmentedTags(numpy.asarray(tied_to), constraints, is_correct)


def _number_copies(
    tags: Tags, n_copies: Mapping[int, int]
) -> tuple[list[int], dict[tuple[int, int], int]]:
    """Number the tags of copies, label by label. Their indices come after the indices of the K tags
    of the chain. Returns, for each of the K' tags, the tag of the chain from which it takes its
    scores; and, by label and index of the copy, the index of the first of its four tags."""
    tied_to = list(range(len(tags)))
    first_tag_of: dict[tuple[int, int], int] = {}
    for label in sorted(n_copies):
        for copy in range(n_copies[label]):
            first_tag_of[label, copy] = len(tied_to)
            # The prefixes of the scheme are in the order FIRST, MIDDLE, LAST, ONLY.
            for prefix in tags.scheme.prefixes:
                tied_to.append(int(tags.index(prefix, label)))
    return tied_to, first_tag_of


def _choose_copies(spans: Iterable[IncorrectSpan]) -> dict[tuple[int, int], int]:
    """Choose a copy for each token at which incorrect spans of a label start. The first such token
    of a doc gets the first copy of the label, the next one the second copy, and so on. So the docs
    of a batch share copies. Returns the index of the copy, by label and token."""
    copy_of_start: dict[tuple[int, int], int] = {}
    n_starts: Counter[tuple[int, int]] = Counter()  # by doc and label
    for span in spans:
        start = (span.label, span.begin)
        if start not in copy_of_start:
            copy_of_start[start] = n_starts[span.doc, span.label]
            n_starts[span.doc, span.label] += 1
    return copy_of_start


def _copy_constraints(tags: Tags, tied_to: Ints1d) -> Constraints:
    """Make the constraints of transitions, start and end for the tags of the chain and their
    copies. Between two entities, a copy has the transitions of its original. Within an entity, a
    tag of a copy is only followed by a tag of the same copy. `tied_to` has, for each tag, the tag
    of the chain from which it takes its scores. Shape: (K',)"""
    constraints = tags.constraints
    assert constraints.transitions is not None
    assert constraints.start is not None and constraints.end is not None
    n_tags = len(tags)
    # The place of each copied tag in its copy: FIRST, MIDDLE, LAST, ONLY, FIRST, MIDDLE, ...
    # Shape: (K' - K,)
    place = numpy.arange(len(tied_to) - n_tags) % N_COPIED
    opens_copy = (place == FIRST) | (place == ONLY)
    closes_copy = (place == LAST) | (place == ONLY)

    # First the transitions between entities: the transitions that the originals allow, from a tag
    # that may end an entity to a tag that may begin another one. (All original tags count as ends
    # here. A copy only follows them as FIRST or ONLY, and transitions between them are set below.)
    opens = numpy.append(~tags.continuing, opens_copy)  # (K',)
    closes = numpy.append(numpy.ones(n_tags, dtype=bool), closes_copy)  # (K',)
    is_between_entities = closes[:, None] & opens  # (K', K')
    transitions = constraints.transitions[numpy.ix_(tied_to, tied_to)] & is_between_entities

    # Then the original tags get all their transitions, and each copy gets the transitions within an
    # entity.
    transitions[:n_tags, :n_tags] = constraints.transitions
    for first_tag in range(n_tags, len(tied_to), N_COPIED):
        for place_before in (FIRST, MIDDLE):
            next_tags = [first_tag + MIDDLE, first_tag + LAST]
            transitions[first_tag + place_before, next_tags] = True
    return Constraints(
        transitions=transitions,
        start=constraints.start[tied_to] & opens,
        end=constraints.end[tied_to] & closes,
    )


def copy_scores(potentials: Potentials, tied_to: Ints1d) -> Potentials:
    """Make the scores of the tags of the chain and their copies. A copy has the scores of its
    original.

    potentials (Potentials): The scores of the K tags of the chain, without constraints.
    tied_to (Ints1d): For each tag the tag of the chain from which it takes its scores. Shape: (K',)
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


def sum_over_copies(gradient: Potentials, tied_to: Ints1d, n_tags: int) -> Potentials:
    """Compute the gradient of the scores of the chain from the gradient of the scores with copies:
    the backward pass of `copy_scores`. The gradients of a tag and of its copies are summed.

    gradient (Potentials): The gradient with respect to the scores of K' tags.
    tied_to (Ints1d): As in `copy_scores`. Shape: (K',)
    n_tags (int): The number of tags of the chain, K.
    RETURNS (Potentials): The gradient with respect to the scores of K tags.
    """
    xp = get_array_module(gradient.emissions)
    # 1 where one of the K' tags is one of the K tags or a copy of it. A product with this matrix
    # sums over the copies. Shape: (K', K)
    is_tied = xp.asarray(tied_to)[:, None] == xp.arange(n_tags)
    is_tied = is_tied.astype(gradient.emissions.dtype)
    return Potentials(
        emissions=gradient.emissions @ is_tied,
        transitions=is_tied.T @ gradient.transitions @ is_tied,
        start=gradient.start @ is_tied,
        end=gradient.end @ is_tied,
        lengths=gradient.lengths,
    )
