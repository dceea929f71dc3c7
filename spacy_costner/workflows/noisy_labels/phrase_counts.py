"""Count how often phrases are annotated as entities in a corpus."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from spacy.matcher import PhraseMatcher
from spacy.tokens import Doc
from spacy.vocab import Vocab

from ...annotation.iob import MISSING
from ...pipeline.scorers import Entity

Phrase = tuple[str, ...]
"""The words of consecutive tokens."""


def count_annotations(
    phrases: Collection[Phrase], docs: Iterable[Doc]
) -> Counter[tuple[Phrase, str]]:
    """Count how often each phrase is annotated as an entity, by label.

    phrases (Collection[Phrase]): The phrases.
    docs (Iterable[Doc]): The annotated docs.
    RETURNS (Counter[tuple[Phrase, str]]): The counts by phrase and label. The label is "" for
        occurrences where the whole phrase isn't an entity, even if a part of it is. Occurrences
        with tokens that aren't annotated don't count. As in training, whitespace at the ends of
        entities is removed.
    """
    # The matcher compares token texts, so it doesn't need to share a vocab with the docs.
    vocab = Vocab()
    matcher = PhraseMatcher(vocab)
    matcher.add("words", [Doc(vocab, words=list(words)) for words in phrases])
    counts: Counter[tuple[Phrase, str]] = Counter()
    for doc in docs:
        label_of_span = label_by_span(trimmed_entities(doc))
        for _, begin, end in matcher(doc):
            if any(token.ent_iob == MISSING for token in doc[begin:end]):
                continue  # whether the phrase is an entity isn't annotated
            label = label_of_span.get((begin, end), "")
            counts[words_between(doc, begin, end), label] += 1
    return counts


def words_between(doc: Doc, begin: int, end: int) -> Phrase:
    """Return the words of a doc from token `begin` to `end` (exclusive)."""
    return tuple(token.text for token in doc[begin:end])


def trimmed_entities(doc: Doc) -> Iterator[Entity]:
    """Yield the entities of a doc without whitespace tokens at their ends. Entities that only
    consist of whitespace are skipped."""
    for ent in doc.ents:
        words = [token.i for token in ent if not token.is_space]
        if words:
            yield words[0], words[-1] + 1, ent.label_


def label_by_span(entities: Iterable[Entity]) -> dict[tuple[int, int], str]:
    """Return a dictionary that maps the (begin, end) of each entity to its label."""
    return {(begin, end): label for begin, end, label in entities}
