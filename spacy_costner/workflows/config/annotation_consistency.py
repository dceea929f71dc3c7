"""Check that the same words are annotated in the same way in all docs of a corpus."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy
from spacy.attrs import ENT_IOB, ORTH
from spacy.tokens import Doc
from thinc.types import Array1d, Ints1d

from ...annotation import iob as ent_iob
from .findings import WARNING, DocPlace, Finding, place_in_doc

SHIFT_RATIO = 1.1
"""A warning is given if the annotation would be more consistent by this factor if all entities were
one token earlier or later: see `check_shift`. In the Spanish corpus of CoNLL-2002 the ratio is 0.5,
in GENIA 0.8."""

MIN_NAME_TOKENS = 3
"""A word that occurs less often isn't taken for a name: see `check_lost_annotation`."""

MIN_NAME_SHARE = 0.9
"""A word is taken for a name if at least this share of its tokens is in entities."""

MAX_LOST_SHARE = 0.08
"""A warning is given if more than this share of docs have names and no entities. In CoNLL-2002 it
is 0.2 %, in GENIA 0.5 %."""


class EntityWords(NamedTuple):
    """The words of all docs with entities, and whether each token is in an entity. The tokens of
    the docs are concatenated, with a placeholder before and after each doc.

    words (Array1d): The W distinct words, as hashes. The first is 0, the placeholder. Shape: (W,)
    n_tokens (Ints1d): How many of the N tokens have each word. Shape: (W,)
    word_of_token (Ints1d): The word of each token, as an index of `words`. Shape: (N,)
    entity_tokens (Ints1d): The tokens in entities, as indices of `word_of_token`.
    """

    words: Array1d
    n_tokens: Ints1d
    word_of_token: Ints1d
    entity_tokens: Ints1d

    def count_in_entities(self, shift: int = 0) -> Ints1d:
        """Count the tokens of each word that are in entities or, with a shift, that would be in
        entities if all entities were `shift` tokens later. Shape: (W,)"""
        shifted_words = self.word_of_token[self.entity_tokens + shift]
        n_in_entities = numpy.bincount(shifted_words, minlength=len(self.words))
        # Word 0 is the placeholder. An entity at the end of a doc may have been shifted to it.
        n_in_entities[0] = 0
        return n_in_entities

    def share_elsewhere(self, n_in_entities: Ints1d) -> float:
        """Compute how consistent the annotation is: if a token is in an entity, how probably
        another token with the same word is in an entity, too. This is the mean over all tokens in
        entities. Shape of the counts of tokens in entities, by word: (W,)"""
        # A word has m tokens, and n of them are in entities. For each of these n tokens there are
        # m - 1 others, of which n - 1 are in entities: the share is (n - 1) / (m - 1).
        # If m is 1, n (n - 1) is 0, so any divisor but 0 will do.
        n_other_tokens = numpy.maximum(self.n_tokens - 1, 1)
        sums_of_shares = n_in_entities * (n_in_entities - 1) / n_other_tokens
        return float(sums_of_shares.sum() / max(n_in_entities.sum(), 1))


def check_words(corpus: str, docs: Sequence[Doc]) -> Iterator[Finding]:
    """Check that the same words are annotated in the same way in all docs. If they aren't, all
    entities may be one token away from their place, or some docs may have lost their annotation."""
    entity_words = find_entity_words(docs)
    yield from check_shift(corpus, entity_words)
    yield from check_lost_annotation(corpus, docs, entity_words)


def find_entity_words(docs: Iterable[Doc]) -> EntityWords:
    """Collect the words of all docs with entities: see `EntityWords`."""
    # For each token the hash of its word and its ENT_IOB. Shape: (N, 2). Before and after each doc
    # is a row of zeros, the placeholder. So an entity that is shifted by one token never reaches
    # the words of another doc. There is one such row even if no doc has entities.
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
    """Check that entities are not shifted: the annotation must not be more consistent, by the
    factor `SHIFT_RATIO`, if all entities are moved by one token. It is consistent if the other
    tokens with the word of an entity's token are in entities, too."""
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
    """Check that not too many docs have lost their annotation. A doc may have lost it if it has no
    entity, but has a name: a word that is nearly always in an entity in the docs with entities.
    `entity_words` has the words of these docs."""
    n_tokens = entity_words.n_tokens
    is_mostly_in_entities = entity_words.count_in_entities() >= MIN_NAME_SHARE * n_tokens
    is_frequent = n_tokens >= MIN_NAME_TOKENS
    names = entity_words.words[is_frequent & is_mostly_in_entities]  # as hashes
    places: list[DocPlace] = []
    for i, doc in enumerate(docs):
        is_outside = doc.to_array(ENT_IOB) == ent_iob.OUTSIDE
        if not len(doc) or not is_outside.all():
            continue
        is_name = numpy.isin(doc.to_array(ORTH), names)
        if is_name.any():
            first_name = doc[int(is_name.argmax())]  # `argmax` finds the first True.
            places.append(place_in_doc(i, doc, first_name.text))
    if len(places) > MAX_LOST_SHARE * len(docs):
        message = "docs have no entities, but have words that are in entities in other docs"
        yield Finding(WARNING, corpus, message, places)
