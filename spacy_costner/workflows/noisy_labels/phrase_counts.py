"""Count how often phrases are annotated as entities in a corpus."""

from collections import Counter
from collections.abc import Collection, Iterable

from spacy.matcher import PhraseMatcher
from spacy.tokens import Doc
from spacy.vocab import Vocab

from ...pipeline.scorers import Entity, as_entity

Phrase = tuple[str, ...]
"""The words of tokens that follow each other."""


def count_annotations(
    phrases: Collection[Phrase], docs: Iterable[Doc]
) -> Counter[tuple[Phrase, str]]:
    """Count how often each phrase is annotated as an entity of each label in docs.

    phrases (Collection[Phrase]): The phrases.
    docs (Iterable[Doc]): The docs.
    RETURNS (Counter[tuple[Phrase, str]]): The counts by phrase and label. Occurrences
        where the phrase as a whole is not an entity, though a part of it may be one, have the
        label "".
    """
    # The matcher compares the texts of tokens, so it needs no vocab in common with the docs.
    vocab = Vocab()
    matcher = PhraseMatcher(vocab)
    matcher.add("words", [Doc(vocab, words=list(words)) for words in phrases])
    counts: Counter[tuple[Phrase, str]] = Counter()
    for doc in docs:
        label_of_span = label_by_span(map(as_entity, doc.ents))
        for _, begin, end in matcher(doc):
            label = label_of_span.get((begin, end), "")
            counts[words_between(doc, begin, end), label] += 1
    return counts


def words_between(doc: Doc, begin: int, end: int) -> Phrase:
    """The words of the tokens of a doc from `begin` to `end` (exclusive)."""
    return tuple(token.text for token in doc[begin:end])


def label_by_span(entities: Iterable[Entity]) -> dict[tuple[int, int], str]:
    """A dictionary from (begin, end) of each entity to its label."""
    return {(begin, end): label for begin, end, label in entities}
