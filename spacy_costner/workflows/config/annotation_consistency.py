"""Check that the same words are annotated consistently in all docs of a corpus."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy
from spacy.attrs import ENT_IOB, ORTH
from spacy.tokens import Doc
from thinc.types import Array1d, Ints1d

from ...annotation import iob as ent_iob
from .findings import WARNING, DocPlace, Finding, place_in_doc

SHIFT_RATIO = 1.1
"""Warn if shifting all entities by one token would make the annotation more consistent by more than
this factor: see `check_shift`. The ratio is 0.5 in the Spanish corpus of CoNLL-2002 and 0.8 in
GENIA."""

MIN_NAME_TOKENS = 3
"""Words with fewer occurrences aren't considered names: see `check_lost_annotation`."""

MIN_NAME_SHARE = 0.9
"""A word is considered a name if at least this share of its occurrences is in entities."""

MAX_LOST_SHARE = 0.08
"""Warn if more than this share of docs contain names but no entities. The share is 0.2 % in
CoNLL-2002 and 0.5 % in GENIA."""


class EntityWords(NamedTuple):
    """The words of all docs with entities, and the tokens that are in entities. The tokens of the
    docs are concatenated, with a placeholder before and after each doc.

    words (Array1d): The hashes of the W distinct words. The first one is 0, the placeholder. Shape:
        (W,)
    n_tokens (Ints1d): The number of occurrences of each word. Shape: (W,)
    word_of_token (Ints1d): The word of each of the N tokens, as an index into `words`. Shape: (N,)
    entity_tokens (Ints1d): The tokens in entities, as indices into `word_of_token`.
    """

    words: Array1d
    n_tokens: Ints1d
    word_of_token: Ints1d
    entity_tokens: Ints1d

    def count_in_entities(self, shift: int = 0) -> Ints1d:
        """Count the occurrences of each word that are in entities or, with a shift, that would be
        in entities if all entities were moved by `shift` tokens. Shape: (W,)"""
        shifted_words = self.word_of_token[self.entity_tokens + shift]
        n_in_entities = numpy.bincount(shifted_words, minlength=len(self.words))
        # Word 0 is the placeholder, which entities at the edge of a doc may have been shifted to.
        n_in_entities[0] = 0
        return n_in_entities

    def share_elsewhere(self, n_in_entities: Ints1d) -> float:
        """Compute the consistency of the annotation: the probability that another occurrence of the
        same word is also in an entity, averaged over all tokens in entities. `n_in_entities` is the
        number of occurrences of each word that are in entities. Shape: (W,)"""
        # If n of the m occurrences of a word are in entities, then for each of these n occurrences,
        # a share of (n - 1) / (m - 1) of the other occurrences is in entities. If m is 1, n (n - 1)
        # is 0, so any nonzero divisor works.
        n_other_tokens = numpy.maximum(self.n_tokens - 1, 1)
        sums_of_shares = n_in_entities * (n_in_entities - 1) / n_other_tokens
        return float(sums_of_shares.sum() / max(n_in_entities.sum(), 1))


def check_words(corpus: str, docs: Sequence[Doc]) -> Iterator[Finding]:
    """Check that the same words are annotated consistently in all docs. Otherwise, all entities may
    be shifted by one token, or some docs may have lost their annotation."""
    entity_words = find_entity_words(docs)
    yield from check_shift(corpus, entity_words)
    yield from check_lost_annotation(corpus, docs, entity_words)


def find_entity_words(docs: Iterable[Doc]) -> EntityWords:
    """Collect the words of all docs with entities: see `EntityWords`."""
    # The word hash and ENT_IOB value of each token. Shape: (N, 2). Each doc is padded with a row of
    # zeros (the placeholder) on both sides, so that shifting an entity by one token never reaches
    # another doc. The initial row ensures that the array isn't empty if no doc has entities.
    token_arrays = [numpy.zeros((1, 2), "uint64")]
    for doc in docs:
        if doc.ents:
            token_array = doc.to_array([ORTH, ENT_IOB])
            token_arrays.append(numpy.pad(token_array, ((1, 1), (0, 0))))
    word_hashes, iob = numpy.concatenate(token_arrays).T
    words, word_of_token, n_tokens = numpy.unique(
        word_hashes, return_inverse=True, return_counts=True
    )
    is_in_entity = (iob == ent_iob.INSIDE) | (iob == ent_iob.BEGIN)
    return EntityWords(words, n_tokens, word_of_token, numpy.flatnonzero(is_in_entity))


def check_shift(corpus: str, entity_words: EntityWords) -> Iterator[Finding]:
    """Warn if all entities may be shifted by one token: moving them back would make the annotation
    more consistent by more than the factor `SHIFT_RATIO`. For the definition of consistency, see
    `EntityWords.share_elsewhere`."""
    share = entity_words.share_elsewhere(entity_words.count_in_entities())
    for shift, direction in ((-1, "earlier"), (1, "later")):
        shifted_share = entity_words.share_elsewhere(entity_words.count_in_entities(shift))
        if shifted_share > SHIFT_RATIO * share:
            message = (
                f"if a word is in an entity, {share:.0%} of its other occurrences are, too, on "
                f"average; it would be {shifted_share:.0%} if entities began one token {direction}"
            )
            yield Finding(WARNING, corpus, message)


def check_lost_annotation(
    corpus: str, docs: Sequence[Doc], entity_words: EntityWords
) -> Iterator[Finding]:
    """Warn if many docs may have lost their annotation. These are docs without entities that
    contain a name: a word that is nearly always part of an entity in other docs. `entity_words`
    contains the words of the docs with entities."""
    n_tokens = entity_words.n_tokens
    is_mostly_in_entities = entity_words.count_in_entities() >= MIN_NAME_SHARE * n_tokens
    is_frequent = n_tokens >= MIN_NAME_TOKENS
    names = entity_words.words[is_frequent & is_mostly_in_entities]  # hashes of words
    places: list[DocPlace] = []
    for i, doc in enumerate(docs):
        is_outside = doc.to_array(ENT_IOB) == ent_iob.OUTSIDE
        if not len(doc) or not is_outside.all():
            continue
        is_name = numpy.isin(doc.to_array(ORTH), names)
        if is_name.any():
            first_name = doc[int(is_name.argmax())]  # `argmax` returns the first True
            places.append(place_in_doc(i, doc, first_name.text))
    if len(places) > MAX_LOST_SHARE * len(docs):
        message = "docs have no entities, but have words that are in entities in other docs"
        yield Finding(WARNING, corpus, message, places)
