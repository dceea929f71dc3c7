"""Find the features of the tokens of docs, as rows of weights.

A *column* is a kind of value of tokens, such as the word in lower case. A *slot* is a column at
some offset from the token. A slot and a value are one feature, such as "LOWER[-1]=of". It has a row
of weights: one for each tag. The vocabulary of features is exact: no two features share a row by
hashing.

*Label memory* is a kind of column: how often a word had each label in the training docs (see
`memory`).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy
import srsly
from spacy.strings import StringStore
from spacy.tokens import Doc
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
    """The features of the tokens of a batch.

    rows (Ints2d): The rows of weights of each token, one for each slot; -1 for none. Shape: (N, S)
    lengths (Ints1d): The number of tokens of each doc. Shape: (B,)
    groups (Sequence[Ints1d]): For each column whose values come from the labels of a first pass,
        the group of each token: see `LabelColumn.group_tokens`. Shapes: (N,)
    text_ids (Array1d | None): In training, the hash of the text of each doc. Shape: (B,)
    value_ids (Ints2d | None): The ids of the values of tokens in all columns, -1 for none. `rows`
        was made of them. Shape: (N, C)
    word_cache (WordCache | None): The words that were looked up so far, for models that keep the
        sum of the weights of each word. `rows` is then without the slots that depend on the word
        alone.
    word_ids (Ints1d | None): The id of each token's word in `word_cache`. Shape: (N,)
    vectors (StaticVectors | None): The static word vectors, if they are inputs.
    vector_ids (Ints2d | None): For each of O offsets, the id in `vectors` of the static vector of
        the word there; -1 for none. None: there are no vectors, or `word_cache` has their ids.
        Shape: (N, O)
    hidden_ids (Ints2d | None): The same for the offsets of a hidden layer. None also if there is no
        such layer.
    hidden_rows (Ints2d | None): The types of the words at these offsets, as rows of weights of the
        hidden layer. Shape: (N, O)
    linear_scores (Potentials | None): The scores by weights that don't change, if a hidden layer is
        trained to add to them.
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
        """A batch with the rows and the vectors of some of the tokens, for which the mask is True,
        (N,). In training, scores of single tokens are computed from these alone. Other fields, such
        as `lengths`, `groups` and `word_ids`, still describe all tokens."""
        selected_arrays = {"rows": self.rows[is_selected]}
        for name in ("vector_ids", "hidden_ids", "hidden_rows"):
            array = getattr(self, name)
            if array is not None:
                selected_arrays[name] = array[is_selected]
        return self._replace(**selected_arrays)


class Features(Shim):
    """The vocabulary of features of a linear model, which finds the features of docs. It is a Thinc
    shim, so that the model saves and copies the vocabulary together with its weights.

    The values of a column that are frequent enough in the training docs get ids. Each slot and
    value is one feature with its own row of weights:

        row = first row of the slot + id of the value

    The features that depend on a word alone are computed once for each word, and cached.

    template (Template): The template of the features.
    dropout (float): The share of the features of a token that is left out at random in training.
    """

    def __init__(self, template: Template, dropout: float = 0.0) -> None:
        super().__init__(None)  # A shim may wrap a model of another library; this one doesn't.
        self.template = template
        self.dropout = dropout
        self._columns: list[Column] | None = None
        self._lookup: Lookup | None = None

    @property
    def has_vocab(self) -> bool:
        """Whether the columns have their values, from training docs or from a saved model."""
        return self._columns is not None

    @property
    def text_ids(self) -> Array1d:
        """The hashes of the texts of the training docs, if there is label memory: see `text_id`.
        Empty otherwise. Shape: (D,)"""
        if self._columns is not None:
            for column in self._columns:
                if len(column.text_ids):
                    return column.text_ids  # All columns of label memory have the same.
        return numpy.zeros(0, dtype="uint64")

    def __len__(self) -> int:
        """The number of features, V. 0 before the columns have values."""
        if not self.has_vocab:
            return 0
        return self.lookup.n_rows

    @property
    def n_vector_rows(self) -> int:
        """The number of weight rows for static vectors, M. The D numbers of a vector have a row
        each at the first offset, then at the next, and so on."""
        if not self.has_vocab or self.lookup.vector_column is None:
            return 0
        return self.lookup.vector_column.n_rows

    @property
    def n_hidden_rows(self) -> int:
        """The number of weight rows of a hidden layer, 0 if the model has none, as without static
        vectors. The rows of the types of words come first, then the rows of static vectors."""
        if not self.has_vocab or self.lookup.vector_column is None:
            return 0
        return self.lookup.n_type_rows + self.lookup.vector_column.n_hidden_rows

    @property
    def vector_coverage(self) -> VectorCoverage | None:
        """The number of words of the training docs with a static vector. None: vectors are no
        inputs, or the model was loaded, and has not been trained since."""
        if not self.has_vocab or self.lookup.vector_column is None:
            return None
        return self.lookup.vector_column.coverage

    def find(
        self, docs: Sequence[Doc], *, is_train: bool = False, by_word: bool = False
    ) -> FeatureBatch:
        """Find the features of the tokens of docs.

        docs (Sequence[Doc]): The docs, with the attributes that the template reads.
        is_train (bool): Whether the model learns from the labels of these docs. Label memory then
            ignores the labels that it has counted in the unit of a token, such as its doc.
        by_word (bool): Whether the model keeps the sum of the weights of each word. The batch then
            has the ids of words instead of the rows that depend on the word alone.
        RETURNS (FeatureBatch): The features.
        RAISES (ValueError): If there is no vocabulary yet, an extension attribute isn't set, or the
            docs don't have the static vectors that the model needs.
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
        # With `by_word` the cache has the ids of vectors and the types of words.
        if word_cache.vectors is None or by_word:
            return batch
        return self.add_vectors(batch, value_ids, tokens.lengths)

    def gather(self, value_ids: Ints2d, lengths: Ints1d, *, by_word: bool = False) -> Ints2d:
        """Find the rows of weights of tokens.

        value_ids (Ints2d): The ids of the values of tokens, -1 for none. Shape: (N, C)
        lengths (Ints1d): The number of tokens of each doc. Shape: (B,)
        by_word (bool): Whether to leave out the slots that depend on the word alone.
        RETURNS (Ints2d): The rows, -1 for none. Shape: (N, S)
        """
        slots = self.lookup.slots
        if by_word:
            slots = self.lookup.batch_slots  # slots that depend on more than the word
        return slots.gather(value_ids, lengths)

    def add_vectors(self, batch: FeatureBatch, value_ids: Ints2d, lengths: Ints1d) -> FeatureBatch:
        """Add the ids of the static vectors in the windows of tokens and, if there is a hidden
        layer, its inputs.

        batch (FeatureBatch): The features so far. It isn't changed.
        value_ids (Ints2d): The ids of the values of tokens, -1 for none. Shape: (N, C)
        lengths (Ints1d): The number of tokens of each doc. Shape: (B,)
        RETURNS (FeatureBatch): The batch with these ids.
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
        """The largest offset, in tokens, from which a token takes values or static vectors."""
        lookup = self.lookup
        # `type_slots` have the offsets of `hidden_slots`.
        slots_of_kinds = (lookup.slots, lookup.vector_slots, lookup.hidden_slots)
        offsets = numpy.concatenate([slots.offsets for slots in slots_of_kinds])
        return int(numpy.abs(offsets).max(initial=0))

    def need_labels(self, batch: FeatureBatch) -> bool:
        """Whether any token of the batch has features of the labels of a first pass. In a single
        sentence usually no token has any, as hardly any word occurs twice in it."""
        return any((groups >= 0).any() for groups in batch.groups)

    def add_labels(
        self, batch: FeatureBatch, probabilities: Floats2d, labels: Sequence[str]
    ) -> FeatureBatch:
        """Add the features of the labels that a first pass predicts for the other occurrences of
        words.

        batch (FeatureBatch): The features so far. It isn't changed.
        probabilities (Floats2d): The probabilities of O and of the labels at each token.
            Shape: (N, L + 1)
        labels (Sequence[str]): The L labels. A label that was not in the training docs has no
            features.
        RETURNS (FeatureBatch): The batch with these features.
        """
        assert batch.value_ids is not None
        lookup = self.lookup
        value_ids = batch.value_ids.copy()
        for column, groups in zip(lookup.label_columns, batch.groups):
            column_places = lookup.places[column.name]  # where the column has its ids in a row
            value_ids[:, column_places] = column.find_label_values(probabilities, labels, groups)
        # The batch has a cache of words if it was made with `by_word`.
        by_word = batch.word_cache is not None
        rows = self.gather(value_ids, batch.lengths, by_word=by_word)
        return batch._replace(rows=rows, value_ids=value_ids)

    def names(self, strings: StringStore | None = None) -> list[str]:
        """The names of the V features, such as "LOWER[-1]=of", in the order of their rows. If a
        string store is given, a cluster has some of its words in its name:
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
        """Yield the words of a string store that names of features can show: see `names`."""
        for column in self._columns or []:
            yield from column.words_in(strings)

    def vector_names(self) -> list[str]:
        """The name of the static vectors at each offset, such as "static_vectors[-1]". Empty if
        vectors are no inputs."""
        column = self.lookup.vector_column
        if column is None:
            return []
        return [column.slot_name(offset) for offset in column.offsets]

    def build_vocab(self, docs: Iterable[Doc]) -> None:
        """Build the vocabulary of features from docs with their entities: see `collect_columns`."""
        self._set_columns(collect_columns(docs, self.template))

    def recount(self, docs: Sequence[Doc]) -> "Features":
        """Make features whose label memory has counted only some of the training docs, for a model
        that is trained on these docs. Without docs, label memory or a vocabulary, the same features
        are returned."""
        if not docs or not self.template.memory or self._columns is None:
            return self
        features = Features(self.template, self.dropout)
        features._set_columns(recount_labels(docs, self.template, self._columns))
        return features

    def select(self, has_weights: Array1d) -> tuple["Features", Ints1d]:
        """Leave out the values that have no weights: see `select_values`.

        has_weights (Array1d): Whether each row of weights has a weight other than 0. Shape: (V,)
        RETURNS (tuple[Features, Ints1d]): The V' features that are left; and for each of them its
            row among the V. Shape: (V',)
        """
        assert self._columns is not None
        columns, rows = select_values(self._columns, has_weights)
        features = Features(self.template, self.dropout)
        features._set_columns(columns)
        return features, rows

    def _set_columns(self, columns: list[Column] | None) -> None:
        """Set the columns. The lookup of the old columns is dropped, and a new one is made when it
        is needed."""
        self._columns = columns
        self._lookup = None

    @property
    def lookup(self) -> Lookup:
        """The lookup of the columns. Several threads that need the first one at the same moment
        each make one. They are alike, so it doesn't matter which of them is kept.

        RAISES (ValueError): If the columns have no values yet.
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
        """The state to pickle. The maps of ids in columns can't be pickled, so the bytes of
        `to_bytes` replace the columns. The lookup is made again from the columns."""
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
        # Columns that have their values don't change, so both can share them.
        features._set_columns(self._columns)
        return features

    def finish_update(self, optimizer: Optimizer) -> None:
        """Do nothing: features are not trained."""

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing: features are extracted on the CPU."""

    def to_bytes(self) -> bytes:
        """Save the vocabulary."""
        saved: dict[str, Any] = {"columns": self._layouts()}
        if self._columns is None:
            saved["values"] = None
        else:
            saved.update(save_columns(self._columns))
        return srsly.msgpack_dumps(saved)

    def _layouts(self) -> list[list[Any]]:
        """The layout of each column of the template, by which a saved vocabulary is compared with
        the template: see `Column.layout`."""
        return [column.layout for column in self.template.make_columns()]

    def from_bytes(self, data: bytes) -> "Features":
        """Load the vocabulary.

        data (bytes): The bytes that `to_bytes` returned.
        RETURNS (Features): These features.
        RAISES (ValueError): If the data is damaged, or was saved with another template.
        """
        layouts = self._layouts()  # of the columns of the template
        try:
            saved = srsly.msgpack_loads(data)
            saved_layouts = saved["columns"]
            # Without a vocabulary there are no rows of weights, so that any template fits.
            has_vocab = saved["values"] is not None
            columns = None
            if has_vocab and saved_layouts == layouts:
                columns = load_columns(saved, self.template)
        except Exception as error:
            message = f"expected saved features, got damaged data: {error}"
            raise ValueError(f"features of a linear CRF: {message}") from error
        # This comes after `except`, as another template is no damage.
        if has_vocab and saved_layouts != layouts:
            message = f"expected the columns of the config, {layouts}, got {saved_layouts}"
            raise ValueError(f"features of a linear CRF: {message}")
        self._set_columns(columns)
        return self
