"""Are neighbouring docs parts of the same text, such as the sentences of an article?

Then they share names, and held-out docs are easier than new ones, because the names in them occur
in the training docs, too.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from spacy.tokens import Doc

LEAST_RATIO = 2.0
"""Docs are parts of the same texts only if neighbours share entities this many times as often as
other docs."""

LEAST_DEVIATIONS = 3.0
"""They also have to share them more often by this number of standard deviations."""


class SharedEntities(NamedTuple):
    """How often docs have an entity in common, with the same text.

    n_docs (int): The number of docs with entities.
    n_neighbours (int): How many of these have an entity of the next one.
    n_distant (int): How many of these have an entity of a doc half of the corpus away.
    """

    n_docs: int
    n_neighbours: int
    n_distant: int

    @property
    def are_parts(self) -> bool:
        """Whether neighbouring docs seem to be parts of the same texts."""
        # If neighbours are like other docs, both counts are about as large, and the standard
        # deviation of their difference is about the square root of their sum.
        difference = self.n_neighbours - self.n_distant
        deviation = (self.n_neighbours + self.n_distant) ** 0.5
        return (
            self.n_neighbours > LEAST_RATIO * self.n_distant
            and difference > LEAST_DEVIATIONS * deviation
        )


def count_shared_entities(docs: Iterable[Doc]) -> SharedEntities:
    """Count how often a doc has an entity in common with the next one, and with a distant one. Docs
    without entities don't count.

    docs (Iterable[Doc]): Annotated docs, in the order of the corpus.
    RETURNS (SharedEntities): The counts.
    """
    entities_by_doc: list[set[str]] = []
    for doc in docs:
        entities = {ent.text for ent in doc.ents}
        if entities:
            entities_by_doc.append(entities)
    n_docs = len(entities_by_doc)
    return SharedEntities(
        n_docs,
        n_neighbours=_count_sharing(entities_by_doc, distance=1),
        n_distant=_count_sharing(entities_by_doc, distance=n_docs // 2),
    )


def _count_sharing(entities_by_doc: Sequence[set[str]], distance: int) -> int:
    """Count the docs that share an entity with the doc at a distance from them. After the last doc
    comes the first one."""
    n_docs = len(entities_by_doc)
    n_sharing = 0
    for i, entities in enumerate(entities_by_doc):
        other_entities = entities_by_doc[(i + distance) % n_docs]
        n_sharing += not entities.isdisjoint(other_entities)
    return n_sharing
