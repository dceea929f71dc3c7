"""Extract features of docs as rows of weights, with an exact vocabulary."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy
import srsly
from spacy.strings import StringStore
from spacy.tokens import Doc
from thinc.api import Optimizer
from thinc.shims import Shim
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from .. import sparse
from .clusters import words_of_clusters
from .collecting import collect_vocabulary, count_labels
from .elsewhere import find_labels_elsewhere
from .lookup import Lookup, SeenWords
from .template import Form, Template
from .tokens import read_tokens
from .vocabulary import Vocabulary


class FeatureBatch(NamedTuple):
    """The features of the tokens of a batch.

    rows (Ints2d): The rows of weights of each token: one per slot, -1 for none. Shape: (N, S)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    groups (Sequence[Ints1d]): See `number_occurrences`. Shapes: (N,)
    text_ids (Array1d | None): In training the hash of each doc. Shape: (B,)
    values (Ints2d | None): The numbers of the values of tokens in each column, -1 for none, from
        which rows were gathered. Shape: (N, C)
    words (tuple[SeenWords, Ints1d] | None): All words and the numbers of the tokens' words, if
        `rows` lacks the slots that depend on the word alone. Shape: (N,)
    """

    rows: Ints2d
    lengths: Ints1d
    groups: Sequence[Ints1d] = ()
    text_ids: Array1d | None = None
    values: Ints2d | None = None
    words: tuple[SeenWords, Ints1d] | None = None


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
        self._vocabulary: Vocabulary | None = None
        self._lookup: Lookup | None = None

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
        return self.lookup.n_rows if self.has_vocab else 0

    def find(
        self, docs: Sequence[Doc], *, is_train: bool = False, by_word: bool = False
    ) -> FeatureBatch:
        """The features of tokens. If the model learns from the labels of these docs, `is_train`,
        the memory leaves out what it has from them. With `by_word`, those of words are not in the
        rows."""
        lookup = self.lookup
        tokens = read_tokens(docs, lookup.attributes, lookup.gazetteers, in_training=is_train)
        words, numbers = lookup.words(tokens.orth, [*dict.fromkeys(doc.vocab for doc in docs)])
        of_words = words.table[numbers]
        values, groups = lookup.values(tokens, of_words), lookup.occurrences(tokens, of_words)
        seen = FeatureBatch(values, tokens.lengths, groups, tokens.text_ids, values)
        return self._gather(seen._replace(words=(words, numbers) if by_word else None))

    def _gather(self, seen: FeatureBatch) -> FeatureBatch:
        slots = self.lookup.all_slots if seen.words is None else self.lookup.other_slots
        return seen._replace(rows=sparse.gather_window(seen.values, seen.lengths, *slots))

    def gather(self, values: Ints2d, lengths: Ints1d) -> Ints2d:
        """The features of tokens, from the values in their windows. Shapes: (N, C) to (N, S)"""
        return sparse.gather_window(values, lengths, *self.lookup.all_slots)

    @property
    def reach(self) -> int:
        """The number of tokens to either side that features of a token come from."""
        return int(numpy.abs(self.lookup.all_slots[1]).max(initial=0))

    def add_labels(
        self, seen: FeatureBatch, probabilities: Floats2d, labels: Sequence[str]
    ) -> FeatureBatch:
        """Add the features of the labels that a first pass predicts for other occurrences, from the
        probabilities of O and of these labels, (N, L + 1). A label that the vocabulary lacks has
        none."""
        lookup, number = self.lookup, {name: i for i, name in enumerate(["O", *labels])}
        known = [number.get(name, -1) for name in lookup.vocabulary.labels]
        of_known = numpy.pad(probabilities, ((0, 0), (0, 1)))[:, known].astype("float32")
        values = cast(Ints2d, seen.values).copy()
        for column, group in zip(lookup.of_documents, seen.groups):
            values[:, lookup.places[column.name]] = find_labels_elsewhere(of_known, group)
        return self._gather(seen._replace(values=values))

    def names(self, strings: StringStore | None = None) -> list[str]:
        """The names of the V features, such as "LOWER[-1]=of". With a string store, clusters are
        followed by some of their words in it: "clusters:own=64:17 (Rome Oslo)"."""
        names, vocabulary = [], self.lookup.vocabulary
        for column, offset in self.lookup.slots:
            place = f"[{offset:+d}]" if offset else ""
            if column.form == Form.PAIR:
                place = f"[{offset:+d},{offset + 1:+d}]"
            shown: dict[int, str] = {}
            if column.form == Form.CLUSTER and strings is not None:
                shown = words_of_clusters(vocabulary.clusters[column.name], strings)
            for i, name in enumerate(vocabulary.names(column)):
                words = f" ({shown[i]})" if i in shown else ""
                names.append(f"{column.name}{place}={name}{words}")
        return names

    def build_vocab(self, docs: Iterable[Doc]) -> None:
        """Build the vocabulary of features from docs with their entities."""
        self._set(collect_vocabulary(docs, self.template))

    def recount(self, docs: Sequence[Doc]) -> "Features":
        """The same features with the label memory of some of the training docs, or of all."""
        if not (docs and self.template.memory and self._vocabulary):
            return self
        memory = count_labels(docs, self.template, self._vocabulary)
        other = Features(self.template, self.dropout)
        other._set(self._vocabulary._replace(memory=memory))
        return other

    def _set(self, vocabulary: Vocabulary | None) -> None:
        self._vocabulary, self._lookup = vocabulary, None

    @property
    def lookup(self) -> Lookup:
        """The lookup in the vocabulary. Threads that ask at once for the first time each make one;
        any of them will do."""
        lookup = self._lookup
        if lookup is None:
            if self._vocabulary is None:
                expected = "a vocabulary, made by `nlp.initialize` or loaded, there is none"
                raise ValueError(f"features of a linear CRF: expected {expected}")
            lookup = self._lookup = Lookup(self.template.columns, self._vocabulary)
        return lookup

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lookup": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Features":
        return Features(self.template, self.dropout).from_bytes(self.to_bytes())

    def finish_update(self, optimizer: Optimizer) -> None:
        """Do nothing: features are not trained."""

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing: features are extracted on the CPU."""

    def to_bytes(self) -> bytes:
        """Save the vocabulary."""
        vocabulary = self._vocabulary
        saved: dict[str, Any] = {"values": None} if vocabulary is None else vocabulary.to_dict()
        return srsly.msgpack_dumps({"columns": self._columns(), **saved})

    def _columns(self) -> list[list[Any]]:
        """What of the template says which feature a row is."""
        return [
            [column.name, list(column.offsets), *([column.n_nearest] if column.n_nearest else [])]
            for column in self.template.columns
        ]

    def from_bytes(self, data: bytes) -> "Features":
        """Load the vocabulary. Raises a ValueError if it is damaged, or of another template."""
        expected: list[Any] = self._columns()
        try:
            saved = srsly.msgpack_loads(data)
            columns, is_empty = saved["columns"], saved["values"] is None
            if is_empty or columns == expected:
                of = self.template.columns
                self._set(None if is_empty else Vocabulary.from_dict(saved, of))
        except Exception as error:
            message = f"expected what was saved of them, found damage: {error}"
            raise ValueError(f"features of a linear CRF: {message}") from error
        if columns != expected and not is_empty:
            message = f"expected those of the config, {expected}, got {columns}"
            raise ValueError(f"features of a linear CRF: {message}")
        return self
