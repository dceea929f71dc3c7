"""Extract the features of tokens and look up their weight rows.

A *column* is a property of tokens, such as the lowercase form. A *slot* is a column at an offset
from the token. Each combination of slot and value is a feature, such as "LOWER[-1]=of". Its weight
row contains one weight per tag. The feature vocabulary is exact: there is no feature hashing, so
two features never share a row.

*Label memory* is a kind of column that counts how often each word had each label in the training
docs (see `memory`).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy
import srsly
from spacy.strings import StringStore
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.api import Optimizer
from thinc.shims import Shim
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from ..types import Potentials
from .collecting import collect_columns, load_columns, recount_labels, save_columns
from .column import Column
from .lookup import Lookup, WordCache
from .selecting import select_values
from .static_vectors import StaticVectors, VectorCoverage
from .template import Template


class FeatureBatch(NamedTuple):
    """The features of the tokens in a batch.

    rows (Ints2d): The weight row for each token and slot, or -1. Shape: (N, S)
    lengths (Ints1d): The number of tokens in each doc. Shape: (B,)
    groups (Sequence[Ints1d]): The group of each token, for each column whose values depend on the
        labels of a first pass: see `LabelColumn.group_tokens`. Shapes: (N,)
    text_ids (Array1d | None): In training, the hash of each doc's text. Shape: (B,)
    value_ids (Ints2d | None): The ids of the tokens' values in all columns, -1 for no value. `rows`
        was computed from these ids. Shape: (N, C)
    word_cache (WordCache | None): The words that have been looked up so far, for models that cache
        the weight sum of each word. If set, `rows` doesn't include the slots that depend only on
        the word.
    word_ids (Ints1d | None): The id of each token's word in `word_cache`. Shape: (N,)
    vectors (StaticVectors | None): The static word vectors, if they're used as inputs.
    vector_ids (Ints2d | None): The id in `vectors` of the static vector at each of O offsets, or
        -1. None if there are no vectors or if their ids are in `word_cache`. Shape: (N, O)
    hidden_ids (Ints2d | None): Like `vector_ids`, but for the offsets of a hidden layer. Also None
        if there is no hidden layer.
    hidden_rows (Ints2d | None): The hidden layer's weight rows for the word types at its offsets.
        Shape: (N, O)
    linear_scores (Potentials | None): The fixed scores of the linear model, if only the hidden
        layer is trained.
    """

    rows: Ints2d
    lengths: Ints1d
    groups: Sequence[Ints1d] = ()
    text_ids: Array1d | None = None
    value_ids: Ints2d | None = None
    word_cache: WordCache | None = None
    word_ids: Ints1d | None = None
    vectors: StaticVectors | None = None
    vector_ids: Ints2d | None = None
    hidden_ids: Ints2d | None = None
    hidden_rows: Ints2d | None = None
    linear_scores: Potentials | None = None

    def select_tokens(self, is_selected: Array1d) -> "FeatureBatch":
        """Return a batch with the rows and vectors of the tokens for which the mask, of shape (N,),
        is True. Training uses this to score individual tokens. Other fields, such as `lengths`,
        `groups` and `word_ids`, still describe all tokens."""
        selected_arrays = {"rows": self.rows[is_selected]}
        for name in ("vector_ids", "hidden_ids", "hidden_rows"):
            array = getattr(self, name)
            if array is not None:
                selected_arrays[name] = array[is_selected]
        return self._replace(**selected_arrays)


class Features(Shim):
    """The feature vocabulary of a linear model, which extracts the features of docs. Implemented as
    a Thinc shim, so that the vocabulary is saved and copied together with the model.

    The values of a column that are frequent enough in the training docs are assigned ids. Each
    combination of slot and value is a feature with its own weight row:

        row = first row of the slot + id of the value

    Features that depend only on the word are computed once per word and cached.

    template (Template): The feature template.
    dropout (float): The proportion of a token's features that is dropped at random in training.
    """

    def __init__(self, template: Template, dropout: float = 0.0) -> None:
        super().__init__(None)  # unlike most shims, this one doesn't wrap another model
        self.template = template
        self.dropout = dropout
        self._columns: list[Column] | None = None
        self._lookup: Lookup | None = None

    @property
    def has_vocab(self) -> bool:
        """Whether the columns have values, from training docs or a saved model."""
        return self._columns is not None

    @property
    def text_ids(self) -> Array1d:
        """The hashes of the training docs' texts if there is label memory, otherwise empty: see
        `text_id`. Shape: (D,)"""
        if self._columns is not None:
            for column in self._columns:
                if len(column.text_ids):
                    return column.text_ids  # the same in all label memory columns
        return numpy.zeros(0, dtype="uint64")

    def __len__(self) -> int:
        """The number of features, V. 0 before the columns have values."""
        if not self.has_vocab:
            return 0
        return self.lookup.n_rows

    @property
    def n_vector_rows(self) -> int:
        """The number of weight rows for static vectors, M. There is one row for each offset and
        dimension, ordered by offset."""
        if not self.has_vocab or self.lookup.vector_column is None:
            return 0
        return self.lookup.vector_column.n_rows

    @property
    def n_hidden_rows(self) -> int:
        """The number of weight rows of a hidden layer, or 0 if there is no hidden layer or no
        static vectors. The rows for word types come before the rows for static vectors."""
        if not self.has_vocab or self.lookup.vector_column is None:
            return 0
        return self.lookup.n_type_rows + self.lookup.vector_column.n_hidden_rows

    @property
    def vector_coverage(self) -> VectorCoverage | None:
        """How many words in the training docs have a static vector. None if vectors aren't inputs,
        or if the model was loaded and hasn't been trained since."""
        if not self.has_vocab or self.lookup.vector_column is None:
            return None
        return self.lookup.vector_column.coverage

    def find(
        self, docs: Sequence[Doc], *, is_train: bool = False, by_word: bool = False
    ) -> FeatureBatch:
        """Extract the features of the tokens in docs.

        docs (Sequence[Doc]): The docs, with all attributes that the template uses.
        is_train (bool): Whether the model is being trained on the labels of these docs. If so,
            label memory ignores the labels counted in the token's own unit, such as its doc.
        by_word (bool): Whether the model caches the weight sum of each word. If so, the batch
            contains word ids instead of the rows that depend only on the word.
        RETURNS (FeatureBatch): The features of all tokens in the docs.
        RAISES (ValueError): If there is no vocabulary yet, an extension attribute isn't registered,
            or the docs don't have the static vectors that the model requires.
        """
        lookup = self.lookup
        tokens = lookup.reader.read(docs, in_training=is_train)
        word_cache, word_ids = lookup.find_words(tokens)
        token_batch = lookup.find_values_of_words(tokens, word_cache, word_ids)
        value_ids = token_batch.value_ids

        batch = FeatureBatch(
            rows=self.gather(value_ids, tokens.lengths, by_word=by_word),
            lengths=tokens.lengths,
            groups=[column.group_tokens(token_batch) for column in lookup.label_columns],
            text_ids=tokens.text_ids,
            value_ids=value_ids,
            word_cache=word_cache if by_word else None,
            word_ids=word_ids if by_word else None,
            vectors=word_cache.vectors,
        )
        # With `by_word`, vector ids and word types are in the cache.
        if word_cache.vectors is None or by_word:
            return batch
        return self.add_vectors(batch, value_ids, tokens.lengths)

    def gather(self, value_ids: Ints2d, lengths: Ints1d, *, by_word: bool = False) -> Ints2d:
        """Look up the weight rows of tokens.

        value_ids (Ints2d): The ids of the tokens' values, -1 for no value. Shape: (N, C)
        lengths (Ints1d): The number of tokens in each doc. Shape: (B,)
        by_word (bool): Whether to leave out the slots that depend only on the word.
        RETURNS (Ints2d): The row for each token and slot, or -1. Shape: (N, S)
        """
        slots = self.lookup.slots
        if by_word:
            slots = self.lookup.batch_slots  # slots that depend on more than the word
        return slots.gather(value_ids, lengths)

    def add_vectors(self, batch: FeatureBatch, value_ids: Ints2d, lengths: Ints1d) -> FeatureBatch:
        """Add the ids of the static vectors in the tokens' windows and, if there is a hidden layer,
        its inputs.

        batch (FeatureBatch): The batch, which isn't modified.
        value_ids (Ints2d): The ids of the tokens' values, -1 for no value. Shape: (N, C)
        lengths (Ints1d): The number of tokens in each doc. Shape: (B,)
        RETURNS (FeatureBatch): A copy of the batch with the ids.
        """
        lookup = self.lookup
        batch = batch._replace(vector_ids=lookup.vector_slots.gather(value_ids, lengths))
        if not len(lookup.hidden_slots.offsets):
            return batch
        return batch._replace(
            hidden_ids=lookup.hidden_slots.gather(value_ids, lengths),
            hidden_rows=lookup.type_slots.gather(value_ids, lengths),
        )

    @property
    def reach(self) -> int:
        """The largest offset, in absolute value, at which tokens use the values or static vectors
        of other tokens."""
        lookup = self.lookup
        # `type_slots` have the same offsets as `hidden_slots`.
        slots_of_kinds = (lookup.slots, lookup.vector_slots, lookup.hidden_slots)
        offsets = numpy.concatenate([slots.offsets for slots in slots_of_kinds])
        return int(numpy.abs(offsets).max(initial=0))

    def need_labels(self, batch: FeatureBatch) -> bool:
        """Check whether any token in the batch has features that depend on the labels of a first
        pass. In a batch of one sentence, this is usually False, because words are rarely repeated
        within a sentence."""
        return any((groups >= 0).any() for groups in batch.groups)

    def add_labels(
        self, batch: FeatureBatch, probabilities: Floats2d, labels: Sequence[str]
    ) -> FeatureBatch:
        """Add features based on the labels that a first pass predicted for other occurrences of the
        same word.

        batch (FeatureBatch): The batch, which isn't modified.
        probabilities (Floats2d): The probabilities of O and of each label for each token.
            Shape: (N, L + 1)
        labels (Sequence[str]): The L labels. Labels that weren't in the training docs are ignored.
        RETURNS (FeatureBatch): A copy of the batch with the features.
        """
        assert batch.value_ids is not None
        lookup = self.lookup
        value_ids = batch.value_ids.copy()
        for column, groups in zip(lookup.label_columns, batch.groups):
            column_places = lookup.places[column.name]  # the column's places
            value_ids[:, column_places] = column.find_label_values(probabilities, labels, groups)
        # The batch only has a word cache if it was created with `by_word`.
        by_word = batch.word_cache is not None
        rows = self.gather(value_ids, batch.lengths, by_word=by_word)
        return batch._replace(rows=rows, value_ids=value_ids)

    def names(self, strings: StringStore | None = None) -> list[str]:
        """Return the names of the V features in row order, such as "LOWER[-1]=of". If a string
        store is provided, the names of clusters include example words:
        "clusters:own=64:17 (Rome Oslo)"."""
        names: list[str] = []
        for column in self.lookup.columns:
            value_names = list(column.value_names)
            if strings is not None:
                for i, examples in column.examples_of_values(strings).items():
                    value_names[i] = f"{value_names[i]} ({examples})"
            for offset in column.offsets:
                slot_name = column.slot_name(offset)
                for value_name in value_names:
                    names.append(f"{slot_name}={value_name}")
        return names

    def words_in(self, strings: StringStore) -> Iterator[str]:
        """Yield the words in a string store that can appear in feature names: see `names`."""
        for column in self._columns or []:
            yield from column.words_in(strings)

    def vector_names(self) -> list[str]:
        """Return the name of the static vectors at each offset, such as "static_vectors[-1]". Empty
        if vectors aren't inputs."""
        column = self.lookup.vector_column
        if column is None:
            return []
        return [column.slot_name(offset) for offset in column.offsets]

    def build_vocab(self, docs: Iterable[Doc], vocab: Vocab | None = None) -> None:
        """Build the feature vocabulary from docs with entity annotations. `vocab` contains the
        static vectors: see `collect_columns`."""
        self._set_columns(collect_columns(docs, self.template, vocab))

    def recount(self, docs: Sequence[Doc]) -> "Features":
        """Create a copy whose label memory only counts the given subset of the training docs, for a
        model that is trained on these docs. Returns itself if there are no docs, no label memory or
        no vocabulary."""
        if not docs or not self.template.memory or self._columns is None:
            return self
        columns = recount_labels(docs, self.template, self._columns)
        features = Features(self.template, self.dropout)
        features._set_columns(columns)
        features._lookup = self.lookup.with_memory(columns)
        return features

    def select(self, has_weights: Array1d) -> tuple["Features", Ints1d]:
        """Create a copy with only the values that have weights: see `select_values`.

        has_weights (Array1d): Whether each weight row has a nonzero weight. Shape: (V,)
        RETURNS (tuple[Features, Ints1d]): The V' remaining features, and the original row of each.
            Shape: (V',)
        """
        assert self._columns is not None
        columns, rows = select_values(self._columns, has_weights)
        features = Features(self.template, self.dropout)
        features._set_columns(columns)
        return features, rows

    def _set_columns(self, columns: list[Column] | None) -> None:
        """Set the columns and reset the lookup, which is recreated when it's needed."""
        self._columns = columns
        self._lookup = None

    @property
    def lookup(self) -> Lookup:
        """The lookup for the columns. If several threads access it for the first time at once, each
        creates a lookup. The lookups are identical, so it doesn't matter which one is kept.

        RAISES (ValueError): If the columns don't have values yet.
        """
        lookup = self._lookup
        if lookup is None:
            if self._columns is None:
                expected = "a vocabulary, made by `nlp.initialize` or loaded, found none"
                raise ValueError(f"features of a linear CRF: expected {expected}")
            lookup = Lookup(self._columns)
            self._lookup = lookup
        return lookup

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling. Id maps can't be pickled, so the columns are replaced with
        the result of `to_bytes`. The lookup is rebuilt from the columns."""
        state = {**self.__dict__, "saved": self.to_bytes()}
        del state["_columns"]
        del state["_lookup"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state.pop("saved")
        self.__dict__.update(state)
        self.from_bytes(saved)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Features":
        features = Features(self.template, self.dropout)
        # Columns are immutable once they have values, so the copy can share them.
        features._set_columns(self._columns)
        return features

    def finish_update(self, optimizer: Optimizer) -> None:
        """Do nothing, because features aren't trained."""

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing, because features are extracted on the CPU."""

    def to_bytes(self) -> bytes:
        """Serialize the vocabulary to a bytestring."""
        saved: dict[str, Any] = {"columns": self._layouts()}
        if self._columns is None:
            saved["values"] = None
        else:
            saved.update(save_columns(self._columns))
        return srsly.msgpack_dumps(saved)

    def _layouts(self) -> list[list[Any]]:
        """Return the layout of each column in the template. A saved vocabulary can only be loaded
        if its layouts are the same: see `Column.layout`."""
        return [column.layout for column in self.template.make_columns()]

    def from_bytes(self, data: bytes) -> "Features":
        """Load the vocabulary from a bytestring.

        data (bytes): The bytestring returned by `to_bytes`.
        RETURNS (Features): The modified object.
        RAISES (ValueError): If the data is damaged or was saved with a different template.
        """
        layouts = self._layouts()
        try:
            saved = srsly.msgpack_loads(data)
            saved_layouts = saved["columns"]
            # Without a vocabulary, there are no weight rows, so any template is compatible.
            has_vocab = saved["values"] is not None
            columns = None
            if has_vocab and saved_layouts == layouts:
                columns = load_columns(saved, self.template)
        except Exception as error:
            message = f"expected saved features, got damaged data: {error}"
            raise ValueError(f"features of a linear CRF: {message}") from error
        # Outside of `try`, because a different template doesn't mean that the data is damaged.
        if has_vocab and saved_layouts != layouts:
            message = f"expected the columns of the config, {layouts}, got {saved_layouts}"
            raise ValueError(f"features of a linear CRF: {message}")
        self._set_columns(columns)
        return self
