"""Features of attributes of tokens, of spaCy and of users.

A key is the hash of the value that a token has, 0 for none. A column maps keys to the ids of its
values.
"""

from collections.abc import Sequence

import numpy
from spacy.attrs import LOWER
from spacy.tokens import Doc
from thinc.types import Array1d, Ints2d

from .column import BatchColumn, StringColumn, Window
from .counts import TrainingCounts
from .ids import string_id_map
from .tokens import HashOf, TokenBatch


class KeyColumn(StringColumn, BatchColumn):
    """Values that `TokenReader` reads as one hash for each token, in `Tokens.keys[name]`. A class
    that derives from it says what is read."""

    def set_values(self, values: list[str]) -> None:
        """Set the values, and make the map from their hashes to their ids."""
        super().set_values(values)
        self._ids = string_id_map(values)

    def collect(self, counts: TrainingCounts) -> None:
        """Take the frequent values from the counts of what was read under its name."""
        self.collect_frequent(counts.count_strings(self.name))

    def find_values(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Look the hashes of the values of tokens up. Shape: (N, 1)"""
        value_ids[:, 0] = self._ids.find(batch.tokens.keys[self.name])


class AttributeColumn(KeyColumn):
    """An attribute of spaCy's tokens, such as POS, or an extension attribute, "_.name"."""

    def __init__(self, attribute: str, window: Window) -> None:
        super().__init__(attribute, window)
        self.attributes = (attribute,)


class CaselessColumn(KeyColumn):
    """The word in lower case, in docs all in lower case or all in capitals."""

    reads_docs = True

    def read(self, docs: Sequence[Doc], hash_of: HashOf) -> Array1d:
        """The hashes of words in lower case; 0 in docs with both cases.
        Shape: (N,)"""
        # The first array is empty, for a batch without docs.
        keys_of_docs = [numpy.zeros(0, dtype="uint64")]
        for doc in docs:
            if doc.text.islower() or doc.text.isupper():
                keys_of_docs.append(doc.to_array(LOWER))
            else:
                keys_of_docs.append(numpy.zeros(len(doc), dtype="uint64"))
        return numpy.concatenate(keys_of_docs)
