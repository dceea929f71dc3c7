"""Detect corpora in which neighbouring docs are parts of the same text, such as the sentences of an
article.

In such corpora, neighbouring docs share names. Held-out docs are then easier than new docs, because
their names also occur in the training docs.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from spacy.tokens import Doc

LEAST_RATIO = 2.0
"""Neighbouring docs are considered parts of the same text only if they share entities more than
this many times as often as distant docs."""

LEAST_DEVIATIONS = 3.0
"""The difference must also exceed this number of standard deviations."""


class SharedEntities(NamedTuple):
    """Counts of docs that share an entity with another doc. Entities are compared by their text.

    n_docs (int): The number of docs with entities.
    n_neighbours (int): The number of these docs that share an entity with the next doc.
    n_distant (int): The number of these docs that share an entity with the doc half a corpus away.
    """

    n_docs: int
    n_neighbours: int
    n_distant: int

    @property
    def are_parts(self) -> bool:
        """Whether neighbouring docs appear to be parts of the same texts."""
        # If neighbours aren't related, the two counts are similar, and the standard deviation of
        # their difference is about the square root of their sum.
        difference = self.n_neighbours - self.n_distant
        deviation = (self.n_neighbours + self.n_distant) ** 0.5
        return (
            self.n_neighbours > LEAST_RATIO * self.n_distant
            and difference > LEAST_DEVIATIONS * deviation
        )


def count_shared_entities(docs: Iterable[Doc]) -> SharedEntities:
    """Count the docs that share an entity with the next doc, and with a distant doc. Docs without
    entities are ignored.

    docs (Iterable[Doc]): Annotated docs, in corpus order.
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
    """Count the docs that share an entity with the doc at a given distance. The distance wraps
    around at the end of the corpus."""
    n_docs = len(entities_by_doc)
    n_sharing = 0
    for i, entities in enumerate(entities_by_doc):
        other_entities = entities_by_doc[(i + distance) % n_docs]
        n_sharing += not entities.isdisjoint(other_entities)
    return n_sharing
