"""Incorrect spans: spans that are known not to be entities, as a chain with more tags.

One tag or two don't show whether tokens s to e are an entity. So each token s where incorrect spans
of a label start gets its own copies of the label's tags. An entity of that label that starts at s
has to use these copies to its end. Copies have the scores of their originals, so the paths and
their scores stay the same. But a path has an incorrect span if and only if it has the last tag of a
copy where that span ends. Gold excludes these tags, and no algorithm of the chain has to know of
incorrect spans.

For example, "New York City" is no LOC. B-LOC, I-LOC, L-LOC and U-LOC are copied as b, i, l and u.
At "New" a LOC may begin with b or u alone; b goes on to i or l. Gold excludes l at "City".
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
"""The order of the four tags in a copy, by the token of the entity that has the tag."""

N_COPIED = 4
"""The number of tags in a copy."""


class IncorrectSpan(NamedTuple):
    """Tokens that are not an entity of a label.

    doc (int): The doc in the batch.
    begin (int), end (int): The first token and the one after the last, counted over the batch.
    label (int): The label, as an index.
    """

    doc: int
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
    first_tokens = (numpy.cumsum(lengths) - lengths).tolist()  # of the docs, over the batch
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
    augmented = augment_tags(tags, spans, len(gold.tags))
    tied_to = augmented.tied_to
    # What is known of a tag of the chain holds for its copies: indexing with `tied_to` copies it.
    allowed = chain.to_mask(gold.token_tags, len(tags))
    gold = gold._replace(
        allowed=allowed[:, tied_to] & augmented.is_correct,
        opening=tags.opening[tied_to],
        continuing=tags.continuing[tied_to],
        tied_to=tied_to,
        collapsed_of=tags.collapsed_of[tied_to],
    )
    possible = augmented.constraints.emissions
    if constraints.emissions is not None:
        possible = possible & constraints.emissions[:, tied_to]
    return gold, augmented.constraints._replace(emissions=possible)


class AugmentedTags(NamedTuple):
    """The K tags of the chain, and behind them copies for incorrect spans: K' tags.

    tied_to (Ints1d): The tag of the chain that each tag has its scores from. Shape: (K',)
    constraints (Constraints): The possible paths, which have a copy where a span starts.
    is_correct (Array2d): False for the tags that end an incorrect span. Shape: (N, K')
    """

    tied_to: Ints1d
    constraints: Constraints
    is_correct: Array2d


def augment_tags(tags: Tags, spans: Sequence[IncorrectSpan], n_tokens: int) -> AugmentedTags:
    """Make the copies of tags for the incorrect spans of a batch. A label has as many copies as its
    incorrect spans have starts in one doc.

    tags (Tags): The K tags of the chain.
    spans (Sequence[IncorrectSpan]): The spans, at least one.
    n_tokens (int): N, the number of tokens of the batch.
    RETURNS (AugmentedTags): The K' tags.
    """
    copy_of_start = _choose_copies(spans)
    n_copies: Counter[int] = Counter()  # of each label
    for (label, _), copy in copy_of_start.items():
        n_copies[label] = max(n_copies[label], copy + 1)
    tied_to, first_tag_of = _number_copies(tags, n_copies)

    # A copy can't begin an entity, but where its spans start, in place of the original tags.
    possible = numpy.ones((n_tokens, len(tied_to)), dtype=bool)
    is_correct = numpy.ones((n_tokens, len(tied_to)), dtype=bool)
    for first_tag in first_tag_of.values():
        possible[:, [first_tag + FIRST, first_tag + ONLY]] = False
    for span in spans:
        copy = copy_of_start[span.label, span.begin]
        first_tag = first_tag_of[span.label, copy]
        for place in (FIRST, ONLY):
            original_tag = tied_to[first_tag + place]
            possible[span.begin, original_tag] = False
            possible[span.begin, first_tag + place] = True
        has_one_token = span.end - span.begin == 1
        last_place = ONLY if has_one_token else LAST
        is_correct[span.end - 1, first_tag + last_place] = False

    constraints = _copy_constraints(tags, numpy.asarray(tied_to))
    constraints = constraints._replace(emissions=possible)
    return AugmentedTags(numpy.asarray(tied_to), constraints, is_correct)


def _number_copies(
    tags: Tags, n_copies: Mapping[int, int]
) -> tuple[list[int], dict[tuple[int, int], int]]:
    """Number the tags of copies, behind the K tags of the chain, label by label.

    tags (Tags): The tags of the chain.
    n_copies (Mapping[int, int]): The number of copies of each label that has some.
    RETURNS (tuple[list[int], dict[tuple[int, int], int]]): The tag of the chain that each tag has
        its scores from, (K',); and the first of the four tags of each copy, by its label and its
        number.
    """
    tied_to = list(range(len(tags)))
    first_tag_of: dict[tuple[int, int], int] = {}
    for label in sorted(n_copies):
        for copy in range(n_copies[label]):
            first_tag_of[label, copy] = len(tied_to)
            for prefix in tags.scheme.prefixes:
                tied_to.append(int(tags.index(prefix, label)))
    return tied_to, first_tag_of


def _choose_copies(spans: Iterable[IncorrectSpan]) -> dict[tuple[int, int], int]:
    """Choose the copy for each label and token where incorrect spans of the label start: the first
    copy for the first start in a doc, and so on, so that docs share the copies."""
    copy_of_start: dict[tuple[int, int], int] = {}
    n_starts: Counter[tuple[int, int]] = Counter()
    for span in spans:
        start = (span.label, span.begin)
        if start not in copy_of_start:
            copy_of_start[start] = n_starts[span.doc, span.label]
            n_starts[span.doc, span.label] += 1
    return copy_of_start


def _copy_constraints(tags: Tags, tied_to: Ints1d) -> Constraints:
    """The transitions, starts and ends that K' tags allow. From tag K on they are copies;
    `tied_to` has their originals, (K',). Between entities a copy goes where its original goes;
    within one, it stays in its copy."""
    constraints = tags.constraints
    assert constraints.transitions is not None
    assert constraints.start is not None and constraints.end is not None
    n_tags = len(tags)
    # The place of each copied tag in its copy: FIRST, MIDDLE, LAST, ONLY, and again. (K' - K,)
    place = numpy.arange(len(tied_to) - n_tags) % N_COPIED
    opens_copy = (place == FIRST) | (place == ONLY)
    closes_copy = (place == LAST) | (place == ONLY)
    # The tags that may stand after an entity or O, and those that an entity or O may stand after.
    # Any original tag may be before: transitions between these are set below. Shapes: (K',)
    opens = numpy.append(~tags.continuing, opens_copy)
    closes = numpy.append(numpy.ones(n_tags, dtype=bool), closes_copy)
    is_between_entities = closes[:, None] & opens  # (K', K')
    transitions = constraints.transitions[numpy.ix_(tied_to, tied_to)] & is_between_entities

    # The original tags keep all their transitions; a copy gets those within an entity.
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


def expand(potentials: Potentials, tied_to: Ints1d) -> Potentials:
    """Give tags that are tied to those of the model the scores of these.

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
    """Sum a gradient over the tags that have their scores from the same tag of the model: the
    backward pass of `expand`.

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
