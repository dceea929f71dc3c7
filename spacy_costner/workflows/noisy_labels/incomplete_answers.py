"""Handle answers of a teacher that only finds some of the entities, such as rules or gazetteers.

A token outside of the teacher's entities may be part of an entity that no rule matched. If all
these tokens were O, the student would learn to miss the same entities as the rules. If none were O,
it would learn to predict entities everywhere. So a token is O only if its word almost never occurs
in entities. Otherwise, its annotation is missing. The share of the word's occurrences that are in
entities must be at most half the average over all words, and the word must be one of the following:

- A word without capital letters that is frequent enough in the texts.
- A token without letters or digits, such as a punctuation mark.
"""

from collections import Counter
from collections.abc import Iterable

from spacy.tokens import Doc

from ...annotation.iob import MISSING, OUTSIDE
from ...annotation.spans import missing_spans

MIN_COUNT = 3
"""The minimum number of occurrences of a word in the texts."""

MOST_IN_ENTITIES = 0.5
"""The maximum share of an outside word's occurrences that are in entities, relative to the average
over all words."""


def find_outside_words(docs: Iterable[Doc]) -> set[str]:
    """Return the words that almost never occur in entities: see the module docstring.

    docs (Iterable[Doc]): The answers for all texts.
    RETURNS (set[str]): The words.
    """
    n_by_word: Counter[str] = Counter()
    n_in_entities: Counter[str] = Counter()
    for doc in docs:
        n_by_word.update(token.text for token in doc)
        for ent in doc.ents:
            n_in_entities.update(token.text for token in ent)
    # The share of tokens in entities
    mean_share = n_in_entities.total() / max(n_by_word.total(), 1)
    outside_words: set[str] = set()
    for word, n in n_by_word.items():
        is_rarely_inside = n_in_entities[word] <= MOST_IN_ENTITIES * mean_share * n
        is_frequent_and_lower = n >= MIN_COUNT and word == word.lower()
        has_letters_or_digits = any(character.isalnum() for character in word)
        if is_rarely_inside and (is_frequent_and_lower or not has_letters_or_digits):
            outside_words.add(word)
    return outside_words


def leave_out_unknown(doc: Doc, outside_words: set[str]) -> int:
    """Set the annotation of tokens outside of entities to missing, unless their words are known to
    be outside. The student doesn't learn from missing annotation. The doc is modified in place.

    doc (Doc): The answer.
    outside_words (set[str]): The words that are outside of entities.
    RETURNS (int): The number of tokens with annotation set to missing.
    """
    iob = doc.to_array("ENT_IOB")
    is_missing = iob == MISSING
    n_unknown = 0
    for token in doc:
        if iob[token.i] == OUTSIDE and token.text not in outside_words:
            is_missing[token.i] = True
            n_unknown += 1
    doc.set_ents(list(doc.ents), missing=missing_spans(doc, is_missing))
    return n_unknown
