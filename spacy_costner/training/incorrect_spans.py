"""Incorrect spans: spans that are known not to be entities. They are excluded by a chain with
additional tags.

A chain scores single tags and pairs of consecutive tags. These don't determine whether exactly the
tokens s to e are an entity. So the four tags of the span's label (begin, inside, last and unit,
as in BILUO) are copied for each token s at which an incorrect span starts. An entity of this label
that starts at s must use the copies for all of its tokens. A copy has the same scores as its
original, so the scores of paths don't change. However, a single tag now identifies paths with the
incorrect span: the copy of "last" at e. Gold excludes this tag. The chain's algorithms don't need
to handle incorrect spans.

For example, "New York City" is not a LOC. The tags B-LOC, I-LOC, L-LOC and U-LOC are copied as b,
i, l and u. At "New", a LOC can only begin with b or u, and b can only be followed by i or l. Gold
excludes l at "City".

In shapes, D is the number of docs, N the number of tokens, K the number of tags of the chain, and
K' the number of these tags and their copies.
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
"""The positions of the four tags in a copy: the tags of the first token, a middle token, the last
token and the only token of an entity."""

N_COPIED = 4
"""The number of tags per copy."""


class IncorrectSpan(NamedTuple):
    """A span that is known not to be an entity with a given label.

    doc (int): The index of the doc in the batch.
    begin (int), end (int): The start and end (exclusive) of the span, as token indices in the
        batch.
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
    any label, so it is converted to one incorrect span per label.

    examples (Sequence[Example]): The batch, with incorrect spans in the reference docs.
    key (str): The key of the spans in `doc.spans` of the reference docs.
    tags (Tags): The tags of the chain.
    lengths (Ints1d): The number of tokens in each predicted doc. Shape: (D,)
    RETURNS (list[IncorrectSpan]): The spans. Spans that don't align with tokens of the predicted
        docs are skipped, as are spans with unknown labels.
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
    """Exclude paths with an incorrect span from gold. These paths remain possible, so that a loss
    can make them less likely.

    spans (Sequence[IncorrectSpan]): At least one incorrect span.
    gold (Gold): The gold paths, using the K tags of the chain, without costs.
    constraints (Constraints): The possible paths, using the same tags.
    tags (Tags): The tags of the chain.
    RETURNS (tuple[Gold, Constraints]): The gold paths and the possible paths, using the K' tags of
        the chain with copies. `Gold.tied_to` contains the corresponding tag of the original chain
        for each tag.
    """
    augmented = augment_tags(tags, spans, len(gold.tags))
    tied_to = augmented.tied_to
    # Indexing with `tied_to` gives each copy the value of its original: (K,) to (K',). If gold is
    # O, all tags for O are allowed, and the constraints determine which of them are possible.
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
    """The K' tags of a chain with incorrect spans: the K tags of the original chain, followed by
    four tags for each copy.

    tied_to (Ints1d): For each tag, the corresponding tag of the original chain. Shape: (K',)
    constraints (Constraints): The possible paths. Entities that start at the same token as an
        incorrect span must use a copy.
    is_correct (Array2d): False for the tag and token that identify an incorrect span: the last tag
        of a copy, at the last token of the span. Shape: (N, K')
    """

    tied_to: Ints1d
    constraints: Constraints
    is_correct: Array2d


def augment_tags(tags: Tags, spans: Sequence[IncorrectSpan], n_tokens: int) -> AugmentedTags:
    """Create the copies of tags for the incorrect spans of a batch. Copies are shared between docs:
    the number of copies per label is the maximum number of tokens in a doc at which incorrect spans
    of the label start. `spans` must not be empty."""
    copy_of_start = _choose_copies(spans)
    n_copies: Counter[int] = Counter()  # the number of copies per label
    for (label, _), copy in copy_of_start.items():
        n_copies[label] = max(n_copies[label], copy + 1)
    tied_to, first_tag_of = _number_copies(tags, n_copies)

    # Entities can't begin with a copy ...
    is_possible = numpy.ones((n_tokens, len(tied_to)), dtype=bool)
    is_correct = numpy.ones((n_tokens, len(tied_to)), dtype=bool)
    for first_tag in first_tag_of.values():
        is_possible[:, [first_tag + FIRST, first_tag + ONLY]] = False
    for span in spans:
        # ... except at the start of an incorrect span, where they can't begin with the original
        # tag.
        copy = copy_of_start[span.label, span.begin]
        first_tag = first_tag_of[span.label, copy]
        for place in (FIRST, ONLY):
            original_tag = tied_to[first_tag + place]
            is_possible[span.begin, original_tag] = False
            is_possible[span.begin, first_tag + place] = True
        # Exclude the tag of an entity that ends at the same token as this span.
        has_one_token = span.end - span.begin == 1
        last_place = ONLY if has_one_token else LAST
        is_correct[span.end - 1, first_tag + last_place] = False

    constraints = _copy_constraints(tags, numpy.asarray(tied_to))
    constraints = constraints._replace(emissions=is_possible)
    return AugmentedTags(numpy.asarray(tied_to), constraints, is_correct)


def _number_copies(
    tags: Tags, n_copies: Mapping[int, int]
) -> tuple[list[int], dict[tuple[int, int], int]]:
    """Number the tags of copies, label by label. Their indices follow the indices of the K tags of
    the chain. Returns the corresponding tag of the original chain for each of the K' tags, and the
    index of the first of the four tags for each copy, keyed by the copy's label and index."""
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
    in a doc gets the first copy of the label, the next one gets the second copy, and so on, so that
    the docs of a batch share copies. Returns the index of the copy, by label and token."""
    copy_of_start: dict[tuple[int, int], int] = {}
    n_starts: Counter[tuple[int, int]] = Counter()  # by doc and label
    for span in spans:
        start = (span.label, span.begin)
        if start not in copy_of_start:
            copy_of_start[start] = n_starts[span.doc, span.label]
            n_starts[span.doc, span.label] += 1
    return copy_of_start


def _copy_constraints(tags: Tags, tied_to: Ints1d) -> Constraints:
    """Create the transition, start and end constraints for the tags of the chain and their copies.
    Between entities, a copy has the same transitions as its original. Within an entity, a copy's
    tag can only be followed by a tag of the same copy. `tied_to` contains the corresponding tag of
    the original chain for each tag. Shape: (K',)"""
    constraints = tags.constraints
    assert constraints.transitions is not None
    assert constraints.start is not None and constraints.end is not None
    n_tags = len(tags)
    # The position of each copied tag: FIRST, MIDDLE, LAST, ONLY, FIRST, MIDDLE, ...
    # Shape: (K' - K,)
    place = numpy.arange(len(tied_to) - n_tags) % N_COPIED
    opens_copy = (place == FIRST) | (place == ONLY)
    closes_copy = (place == LAST) | (place == ONLY)

    # First, set the transitions between entities: all transitions of the originals from a tag that
    # may end an entity to a tag that may begin another one. (All original tags count as ends here,
    # because they are only followed by FIRST or ONLY of a copy. Transitions between original tags
    # are set below.)
    opens = numpy.append(~tags.continuing, opens_copy)  # (K',)
    closes = numpy.append(numpy.ones(n_tags, dtype=bool), closes_copy)  # (K',)
    is_between_entities = closes[:, None] & opens  # (K', K')
    transitions = constraints.transitions[numpy.ix_(tied_to, tied_to)] & is_between_entities

    # Then, set all transitions between original tags, and the transitions of each copy within an
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
    """Create the scores of the chain's tags and their copies. A copy has the same scores as its
    original.

    potentials (Potentials): The scores of the K tags of the chain, without constraints.
    tied_to (Ints1d): For each tag, the corresponding tag of the original chain. Shape: (K',)
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
    """Compute the gradient with respect to the scores of the chain, given the gradient with respect
    to the scores with copies. This is the backward pass of `copy_scores`: the gradients of a tag
    and its copies are summed.

    gradient (Potentials): The gradient with respect to the scores of K' tags.
    tied_to (Ints1d): See `copy_scores`. Shape: (K',)
    n_tags (int): The number of tags of the chain, K.
    RETURNS (Potentials): The gradient with respect to the scores of K tags.
    """
    xp = get_array_module(gradient.emissions)
    # 1 if a row's tag is the same as a column's tag or a copy of it. Multiplying by this matrix
    # sums over copies. Shape: (K', K)
    is_tied = xp.asarray(tied_to)[:, None] == xp.arange(n_tags)
    is_tied = is_tied.astype(gradient.emissions.dtype)
    return Potentials(
        emissions=gradient.emissions @ is_tied,
        transitions=is_tied.T @ gradient.transitions @ is_tied,
        start=gradient.start @ is_tied,
        end=gradient.end @ is_tied,
        lengths=gradient.lengths,
    )
