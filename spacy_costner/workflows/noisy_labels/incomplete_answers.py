"""Answers of a teacher that finds only some of the entities, as rules and gazetteers do.

A token without an entity may then be in an entity that no rule matched. If all these tokens were O,
a student would learn to miss what the rules miss; if none was, it would learn to tag everything. So
a token is O only if its word is almost never in entities, and otherwise missing annotation. Such a
word is in entities at most half as often as words are on average, and it is one of these:

- A word without capital letters that is often enough in the texts.
- A token without letters and digits, such as a sign of punctuation.
"""

from collections import Counter
from collections.abc import Iterable

from spacy.tokens import Doc

from ...annotation.iob import MISSING, OUTSIDE
from ...annotation.spans import missing_spans

MIN_COUNT = 3
"""The minimum number of occurrences of a word in the texts."""

MOST_IN_ENTITIES = 0.5
"""The maximum share of a word's occurrences in entities, relative to the average of all words, up
to which the word is outside."""


def find_outside_words(docs: Iterable[Doc]) -> set[str]:
    """Find the words that are almost never in entities: see the head of this file.

    docs (Iterable[Doc]): The answers to all texts.
    RETURNS (set[str]): The words.
    """
    n_by_word: Counter[str] = Counter()
    n_in_entities: Counter[str] = Counter()
    for doc in docs:
        n_by_word.update(token.text for token in doc)
        for ent in doc.ents:
            n_in_entities.update(token.text for token in ent)
    # The share of all tokens that are in entities
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
    """Replace the annotation that an incomplete answer leaves open with missing annotation, from
    which a student learns nothing. The doc is changed.

    doc (Doc): The answer.
    outside_words (set[str]): The words that are outside of entities.
    RETURNS (int): The number of tokens that have become missing annotation.
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
