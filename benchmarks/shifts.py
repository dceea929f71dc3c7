"""Make docs with changed words, to measure how much worse a model performs on them."""

import random

from spacy.tokens import Doc, Span

AS_IT_IS = "as it is"
LOWER_CASE = "lower case"
GARBLED = "garbled"
CAPITALS = "capitals"
SHIFTS = (AS_IT_IS, LOWER_CASE, GARBLED)

GARBLED_SHARE = 0.05
"""The proportion of characters that are replaced in garbled text."""


def shift_doc(doc: Doc, shift: str, rng: random.Random) -> Doc:
    """Convert an annotated doc to lower case or capitals, or garble it."""
    words: list[str] = []
    for token in doc:
        word = token.text
        if shift == LOWER_CASE:
            word = word.lower()
        elif shift == CAPITALS:
            word = word.upper()
        elif shift == GARBLED:
            word = "".join(garble(character, rng) for character in word)
        words.append(word)
    shifted = Doc(doc.vocab, words=words, spaces=[bool(token.whitespace_) for token in doc])
    shifted.set_ents([Span(shifted, ent.start, ent.end, ent.label_) for ent in doc.ents])
    for token, original in zip(shifted, doc):
        token.is_sent_start = original.is_sent_start
    return shifted


def garble(character: str, rng: random.Random) -> str:
    """Replace a character by a letter, with the probability `GARBLED_SHARE`."""
    if rng.random() < GARBLED_SHARE:
        return rng.choice("abcdefghijklmnopqrstuvwxyz")
    return character
