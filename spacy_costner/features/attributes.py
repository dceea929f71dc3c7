"""Features of attributes of tokens: spaCy's, such as POS, and extension attributes of users.

A *key* is the hash of the value that a token has, 0 for none. A column maps keys to the ids of its
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
    """A column whose values `TokenReader` reads, as one hash for each token. They are in
    `Tokens.keys` under the name of the column. Subclasses define what is read."""

    def set_values(self, values: list[str]) -> None:
        """Set the values, and make the map from their hashes to their ids."""
        super().set_values(values)
        self._ids = string_id_map(values)

    def collect(self, counts: TrainingCounts) -> None:
        """Collect the values that are frequent in the training docs."""
        self.collect_frequent(counts.count_strings(self.name))

    def write_value_ids(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Look up the values of tokens by their hashes, and write their ids to `value_ids`."""
        value_ids[:, 0] = self._ids.find(batch.tokens.keys[self.name])


class AttributeColumn(KeyColumn):
    """The column of an attribute of tokens, such as POS, or of an extension attribute, "_.name"."""

    def __init__(self, attribute: str, window: Window) -> None:
        super().__init__(attribute, window)
        self.attributes = (attribute,)


class CaselessColumn(KeyColumn):
    """The column of words in docs that are all in lower case or all in capitals. The value of a
    token is its word in lower case. In other docs tokens have no value."""

    reads_docs = True

    def read(self, docs: Sequence[Doc], hash_of: HashOf) -> Array1d:
        """Read the hash of each word in lower case; 0 in docs that aren't all in lower case or all
        in capitals. Shape: (N,)"""
        # The first array is empty, so that there is one even in a batch without docs.
        keys_of_docs = [numpy.zeros(0, dtype="uint64")]
        for doc in docs:
            if doc.text.islower() or doc.text.isupper():
                keys_of_docs.append(doc.to_array(LOWER))
            else:
                keys_of_docs.append(numpy.zeros(len(doc), dtype="uint64"))
        return numpy.concatenate(keys_of_docs)
