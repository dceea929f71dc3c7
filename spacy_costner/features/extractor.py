"""Extract features of docs as rows of weights, with an exact vocabulary."""

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

import numpy
import srsly
from spacy.strings import StringStore
from spacy.tokens import Doc
from thinc.api import Optimizer
from thinc.shims import Shim
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from .. import sparse
from .clusters import words_of_clusters
from .collecting import collect_vocabulary
from .lookup import Lookup
from .template import Form, Template
from .tokens import read_tokens
from .vocabulary import Vocabulary


class TokenValues(NamedTuple):
    """The numbers of the values of tokens in each column, -1 for none, shape (N, C), from which
    `FeatureBatch` is gathered; and what else it has."""

    values: Ints2d
    lengths: Ints1d
    groups: Sequence[Ints1d] = ()
    text_ids: Optional[Array1d] = None


class FeatureBatch(NamedTuple):
    """The features of the tokens of a batch.

    rows (Ints2d): The rows of weights of each token: one per slot, -1 for none. Shape: (N, S)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    groups (Sequence[Ints1d]): See `number_occurrences`. Shapes: (N,)
    text_ids (Optional[Array1d]): In training the hash of each doc. Shape: (B,)
    """

    rows: Ints2d
    lengths: Ints1d
    groups: Sequence[Ints1d] = ()
    text_ids: Optional[Array1d] = None


class Features(Shim):
    """The features of tokens.

    A column is one kind of value of a token. Its values that are frequent enough in training are
    numbered. A slot is a column at some offset. Each slot and value is one feature with a row of
    its own:

        row = first row of the slot + number of the value

    Features of a word are computed once and cached.

    template (Template): The template of the features.
    dropout (float): The share of features that tokens lose in training.
    """

    def __init__(self, template: Template, dropout: float = 0.0) -> None:
        super().__init__(None)
        self.template = template
        self.dropout = dropout
        self._vocabulary: Optional[Vocabulary] = None
        self._lookup: Optional[Lookup] = None

    @property
    def has_vocab(self) -> bool:
        return self._vocabulary is not None

    @property
    def text_ids(self) -> Array1d:
        """The hashes of the training docs, if there is label memory: see `text_id`. Shape: (D,)"""
        memory = None if self._vocabulary is None else self._vocabulary.memory
        return numpy.zeros(0, dtype="uint64") if memory is None else memory.text_ids

    def __len__(self) -> int:
        """V, the number of features."""
        if self._vocabulary is None:
            return 0
        sizes = [(len(each.offsets), self._vocabulary.size(each)) for each in self.template.columns]
        return sum(n_offsets * size for n_offsets, size in sizes)

    def find(self, docs: Sequence[Doc], *, is_train: bool = False) -> FeatureBatch:
        """The features of tokens. If the model learns from the labels of these docs, `is_train`,
        the memory leaves out what it has from them."""
        return self.gather(self.find_values(docs, is_train=is_train))

    def find_values(self, docs: Sequence[Doc], *, is_train: bool = False) -> TokenValues:
        """Find the values of tokens, from which `gather` makes features: see `find`."""
        lookup = self.lookup
        tokens = read_tokens(docs, lookup.attributes, lookup.gazetteers, in_training=is_train)
        vocab = docs[0].vocab if docs else None
        values, groups = lookup.values(tokens, vocab), lookup.occurrences(tokens, vocab)
        return TokenValues(values, tokens.lengths, groups, tokens.text_ids)

    def gather(self, seen: TokenValues) -> FeatureBatch:
        """The features of tokens, from the values in their windows: see `find_values`."""
        lookup = self.lookup
        slots = (lookup.slot_columns, lookup.slot_offsets, lookup.first_rows)
        return FeatureBatch(sparse.gather_window(seen.values, seen.lengths, *slots), *seen[1:])

    @property
    def n_slots(self) -> int:
        """S, the number of slots."""
        return len(self.lookup.slot_offsets)

    @property
    def reach(self) -> int:
        """The number of tokens to either side that features of a token come from."""
        return int(numpy.abs(self.lookup.slot_offsets).max(initial=0))

    def add_labels(
        self, seen: FeatureBatch, probabilities: Floats2d, labels: Sequence[str]
    ) -> FeatureBatch:
        """Add the features of the labels that a first pass predicts: see `label_values`."""
        lookup, rows = self.lookup, seen.rows.copy()
        values = self.label_values(seen, probabilities, labels)
        which = lookup.is_of_labels
        slots = (lookup.slot_columns[which], lookup.slot_offsets[which], lookup.first_rows[which])
        rows[:, which] = sparse.gather_window(values, seen.lengths, *slots)
        return seen._replace(rows=rows)

    def label_values(
        self, seen: FeatureBatch, probabilities: Floats2d, labels: Sequence[str]
    ) -> Ints2d:
        """The values of the labels that a first pass predicts, in their columns; -1 in the others.
        A label that the vocabulary lacks has no values. Shapes: (N, L + 1) to (N, C)"""
        names, known = ["O", *labels], self.lookup.vocabulary.labels
        of_known = numpy.zeros((len(probabilities), len(known)), dtype="float32")
        for i, name in enumerate(known):
            if name in names:
                of_known[:, i] = probabilities[:, names.index(name)]
        return self.lookup.labels_elsewhere(of_known, seen.groups)

    def names(self, strings: Optional[StringStore] = None) -> List[str]:
        """The names of the V features, such as "LOWER[-1]=of". With a string store, clusters are
        followed by some of their words in it: "clusters:own=64:17 (Rome Oslo)"."""
        names, vocabulary = [], self.lookup.vocabulary
        for column, offset in self.lookup.slots:
            place = f"[{offset:+d}]" if offset else ""
            if column.form == Form.PAIR:
                place = f"[{offset:+d},{offset + 1:+d}]"
            values = vocabulary.names(column)
            if column.form == Form.CLUSTER and strings is not None:
                shown = words_of_clusters(vocabulary.clusters[column.name], strings)
                values = [
                    f"{name} ({shown[i]})" if shown[i] else name for i, name in enumerate(values)
                ]
            names += [f"{column.name}{place}={name}" for name in values]
        return names

    def build_vocab(self, docs: Iterable[Doc]) -> None:
        """Build the vocabulary of features from docs with their entities."""
        self._set(collect_vocabulary(docs, self.template))

    def _set(self, vocabulary: Optional[Vocabulary]) -> None:
        self._vocabulary, self._lookup = vocabulary, None

    @property
    def lookup(self) -> Lookup:
        """The lookup in the vocabulary. Threads that ask at once for the first time each make one;
        any of them will do."""
        lookup = self._lookup
        if lookup is None:
            if self._vocabulary is None:
                raise ValueError(
                    "features of a linear CRF: expected a vocabulary, made by `nlp.initialize` "
                    "or loaded, there is none"
                )
            lookup = self._lookup = Lookup(self.template.columns, self._vocabulary)
        return lookup

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_lookup": None}

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Features":
        return Features(self.template, self.dropout).from_bytes(self.to_bytes())

    def finish_update(self, optimizer: Optimizer) -> None:
        """Do nothing: features are not trained."""

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing: features are extracted on the CPU."""

    def to_bytes(self) -> bytes:
        """Save the vocabulary."""
        vocabulary = self._vocabulary
        saved: Dict[str, Any] = {"values": None} if vocabulary is None else vocabulary.to_dict()
        return srsly.msgpack_dumps({"columns": self._columns(), **saved})

    def _columns(self) -> List[List[Any]]:
        """What of the template says which feature a row is."""
        return [
            [column.name, list(column.offsets), *([column.n_nearest] if column.n_nearest else [])]
            for column in self.template.columns
        ]

    def from_bytes(self, data: bytes) -> "Features":
        """Load the vocabulary. Raises a ValueError if it is damaged, or of another template."""
        expected: List[Any] = self._columns()
        try:
            saved = srsly.msgpack_loads(data)
            columns = saved["columns"]
            is_empty = saved["values"] is None
            if is_empty:
                self._set(None)
            elif columns == expected:
                self._set(Vocabulary.from_dict(saved, self.template.columns))
        except Exception as error:
            raise ValueError(
                f"features of a linear CRF: expected what was saved of them, found damage: {error}"
            ) from error
        if columns != expected and not is_empty:
            raise ValueError(
                f"features of a linear CRF: expected those of the config, {expected}, got {columns}"
            )
        return self
