"""Features based on token attributes: spaCy's, such as POS, and custom extension attributes.

A *key* is the hash of a token's value, or 0 if the token has no value. A column maps keys to the
ids of its values.
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
    """Base class for columns whose values are read by `TokenReader`, as one hash per token. The
    hashes are stored in `Tokens.keys` under the name of the column. Subclasses define what to
    read."""

    def set_values(self, values: list[str]) -> None:
        """Set the values and build the map from hashes to ids."""
        super().set_values(values)
        self._ids = string_id_map(values)

    def collect(self, counts: TrainingCounts) -> None:
        """Collect the values that are frequent enough in the training docs."""
        self.collect_frequent(counts.count_strings(self.name))

    def write_value_ids(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Look up the tokens' values by hash and write the value ids to `value_ids`."""
        value_ids[:, 0] = self._ids.find(batch.tokens.keys[self.name])


class AttributeColumn(KeyColumn):
    """Column for a token attribute, such as POS, or an extension attribute, "_.name"."""

    def __init__(self, attribute: str, window: Window) -> None:
        super().__init__(attribute, window)
        self.attributes = (attribute,)


class CaselessColumn(KeyColumn):
    """Column of words in docs that are all lowercase or all uppercase. The value of a token is its
    lowercase form. Tokens in other docs have no value."""

    reads_docs = True

    def read(self, docs: Sequence[Doc], hash_of: HashOf) -> Array1d:
        """Read the hash of each token's lowercase form, or 0 in docs that aren't all lowercase or
        all uppercase. Shape: (N,)"""
        # Start with an empty array, so that there is something to concatenate even without docs.
        keys_of_docs = [numpy.zeros(0, dtype="uint64")]
        for doc in docs:
            if doc.text.islower() or doc.text.isupper():
                keys_of_docs.append(doc.to_array(LOWER))
            else:
                keys_of_docs.append(numpy.zeros(len(doc), dtype="uint64"))
        return numpy.concatenate(keys_of_docs)
