"""Extract features of docs as rows of weights, with an exact vocabulary.

A column is a kind of value of tokens, such as the word in lower case. A slot is a column at some
offset from the token. A slot and a value are one feature, such as "LOWER[-1]=of". It has a row of
weights: one for each tag.
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

    rows (Ints2d): The rows of weights of each token: one per slot, -1 for none. Shape: (N, S)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    groups (Sequence[Ints1d]): For each column that waits for the labels of a first pass, which
        tokens see each other's labels: see `LabelColumn.group_tokens`. Shapes: (N,)
    text_ids (Array1d | None): In training the hash of each doc. Shape: (B,)
    value_ids (Ints2d | None): The ids of the values of tokens in each column, -1 for none. Rows are
        gathered from them. Shape: (N, C)
    word_cache (WordCache | None): All words so far, if `rows` lacks the slots that depend on the
        word alone.
    word_ids (Ints1d | None): The words of tokens in `word_cache`. Shape: (N,)
    vectors (StaticVectors | None): The static vectors of words, if they are inputs.
    vector_ids (Ints2d | None): The static vector of the word at each of O offsets from a token, by
        its id in `vectors`; -1 for none. None if `word_cache` has them. Shape: (N, O)
    hidden_ids (Ints2d | None): The same for a hidden layer, at its own offsets. None if there is no
        such layer, too.
    hidden_rows (Ints2d | None): The types of the words there, as rows of weights of the layer.
        Shape: (N, O)
    linear_scores (Potentials | None): The scores of the docs by weights that don't change, where a
        hidden layer is trained on top of them.
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
        """The rows and the vectors of some tokens. Lengths are not changed. Shape: (N,)"""
        selected = {"rows": self.rows[is_selected]}
        for name in ("vector_ids", "hidden_ids", "hidden_rows"):
            array = getattr(self, name)
            if array is not None:
                selected[name] = array[is_selected]
        return self._replace(**selected)


class Features(Shim):
    """Extracts the features of tokens as rows of weights. It is a shim, so that the model saves and
    copies the vocabulary of features with its weights.

    The values of a column that are frequent enough in training have ids. Each slot and value is one
    feature with a row of its own:

        row = first row of the slot + id of the value

    Features of a word are computed once and cached.

    template (Template): The template of the features.
    dropout (float): The share of features that tokens lose in training.
    """

    def __init__(self, template: Template, dropout: float = 0.0) -> None:
        super().__init__(None)
        self.template = template
        self.dropout = dropout
        self._columns: list[Column] | None = None
        self._lookup: Lookup | None = None

    @property
    def has_vocab(self) -> bool:
        """Whether columns have values, from training docs or a saved model."""
        return self._columns is not None

    @property
    def text_ids(self) -> Array1d:
        """The hashes of the training docs, if there is label memory: see `text_id`. Shape: (D,)"""
        if self._columns is not None:
            for column in self._columns:
                if len(column.text_ids):
                    return column.text_ids
        return numpy.zeros(0, dtype="uint64")

    def __len__(self) -> int:
        """V, the number of features."""
        if not self.has_vocab:
            return 0
        return self.lookup.n_rows

    @property
    def n_vector_rows(self) -> int:
        """M, the number of rows of weights that static vectors have: one for each offset and each
        of the D numbers of a vector, in this order."""
        if not self.has_vocab or self.lookup.vector_column is None:
            return 0
        return self.lookup.vector_column.n_rows

    @property
    def n_hidden_rows(self) -> int:
        """The number of rows of weights of a hidden layer: those of the types of words, then those
        of static vectors, at its own offsets. 0 if the model has no such layer."""
        if not self.has_vocab or self.lookup.vector_column is None:
            return 0
        return self.lookup.n_type_rows + self.lookup.vector_column.n_hidden_rows

    @property
    def vector_coverage(self) -> VectorCoverage | None:
        """How many words of the training docs have a static vector. None if vectors are no inputs,
        or the model was loaded."""
        if not self.has_vocab or self.lookup.vector_column is None:
            return None
        return self.lookup.vector_column.coverage

    def find(
        self, docs: Sequence[Doc], *, is_train: bool = False, by_word: bool = False
    ) -> FeatureBatch:
        """Find the features of the tokens of docs.

        docs (Sequence[Doc]): The docs.
        is_train (bool): Whether the model learns from the labels of these docs. Label memory then
            leaves out what it has from them.
        by_word (bool): Whether to leave out of the rows those that depend on the word alone. The
            batch then has the words, for models that keep the sum of the weights of each word.
        RETURNS (FeatureBatch): The features.
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
        if word_cache.vectors is None or by_word:
            return batch
        return self.add_vectors(batch, value_ids, tokens.lengths)

    def gather(self, value_ids: Ints2d, lengths: Ints1d, *, by_word: bool = False) -> Ints2d:
        """The rows of tokens, from the ids of the values in their windows; with `by_word`, without
        those that depend on the word alone. Shapes: (N, C), (B,) to (N, S)"""
        slots = self.lookup.slots
        if by_word:
            slots = self.lookup.batch_slots
        return slots.gather(value_ids, lengths)

    def add_vectors(self, batch: FeatureBatch, value_ids: Ints2d, lengths: Ints1d) -> FeatureBatch:
        """A batch with the static vectors in the windows of tokens, by their ids, and with what a
        hidden layer sees, if there is one, from the ids of the values of tokens. Shapes: (N, C),
        (B,)"""
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
        """The largest number of tokens to either side from which a token has features or static
        vectors."""
        lookup = self.lookup
        slots = (lookup.slots, lookup.vector_slots, lookup.hidden_slots)
        offsets = numpy.concatenate([some.offsets for some in slots])
        return int(numpy.abs(offsets).max(initial=0))

    def need_labels(self, batch: FeatureBatch) -> bool:
        """Whether a token of the batch sees labels of a first pass. In a single sentence, where
        hardly any word occurs twice, mostly none does."""
        return any((groups >= 0).any() for groups in batch.groups)

    def add_labels(
        self, batch: FeatureBatch, probabilities: Floats2d, labels: Sequence[str]
    ) -> FeatureBatch:
        """Add the features of the labels that a first pass predicts for the other occurrences of
        words.

        batch (FeatureBatch): The features so far. It isn't changed.
        probabilities (Floats2d): The probabilities of O and of the labels at each token.
            Shape: (N, L + 1)
        labels (Sequence[str]): The L labels. One that was not in the training docs has no features.
        RETURNS (FeatureBatch): The batch with these features.
        """
        assert batch.value_ids is not None
        lookup = self.lookup
        value_ids = batch.value_ids.copy()
        for column, groups in zip(lookup.label_columns, batch.groups):
            column_places = lookup.places[column.name]
            value_ids[:, column_places] = column.find_label_values(probabilities, labels, groups)
        by_word = batch.word_cache is not None  # as the batch was
        rows = self.gather(value_ids, batch.lengths, by_word=by_word)
        return batch._replace(rows=rows, value_ids=value_ids)

    def names(self, strings: StringStore | None = None) -> list[str]:
        """The names of the V features, such as "LOWER[-1]=of". With a string store, clusters are
        followed by some of their words in it: "clusters:own=64:17 (Rome Oslo)"."""
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
        """The words of a string store that names of features can show: see `names`."""
        for column in self._columns or []:
            yield from column.words_in(strings)

    def vector_names(self) -> list[str]:
        """The names of the static vectors at each offset, such as "static_vectors[-1]"; none if
        they are no inputs."""
        column = self.lookup.vector_column
        if column is None:
            return []
        return [column.slot_name(offset) for offset in column.offsets]

    def build_vocab(self, docs: Iterable[Doc]) -> None:
        """Build the vocabulary of features from docs with their entities."""
        self._set_columns(collect_columns(docs, self.template))

    def recount(self, docs: Sequence[Doc]) -> "Features":
        """The same features with the label memory of some of the training docs, for a model that is
        trained on these only. Without docs or memory, these features themselves."""
        if not docs or not self.template.memory or self._columns is None:
            return self
        features = Features(self.template, self.dropout)
        features._set_columns(recount_labels(docs, self.template, self._columns))
        return features

    def select(self, has_weights: Array1d) -> tuple["Features", Ints1d]:
        """Leave out the values that have no weights: see `select_values`. Returns the features that
        are left, and the rows of weights, among those before, that they have. Shapes: (V,) to
        (V',)"""
        assert self._columns is not None
        columns, rows = select_values(self._columns, has_weights)
        features = Features(self.template, self.dropout)
        features._set_columns(columns)
        return features, rows

    def _set_columns(self, columns: list[Column] | None) -> None:
        """Set the columns. The lookup, which was made of the old ones, is made when needed."""
        self._columns = columns
        self._lookup = None

    @property
    def lookup(self) -> Lookup:
        """The lookup in the vocabulary. Threads that ask at once for the first time each make one;
        any of them will do."""
        lookup = self._lookup
        if lookup is None:
            if self._columns is None:
                expected = "a vocabulary, made by `nlp.initialize` or loaded, there is none"
                raise ValueError(f"features of a linear CRF: expected {expected}")
            lookup = Lookup(self._columns)
            self._lookup = lookup
        return lookup

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: in place of the columns, whose maps of ids can't be, their bytes."""
        state = {**self.__dict__, "saved": self.to_bytes()}
        del state["_columns"]
        del state["_lookup"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state.pop("saved")
        self.__dict__.update(state)
        self.from_bytes(saved)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Features":
        return Features(self.template, self.dropout).from_bytes(self.to_bytes())

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
        """What in the template decides which feature a row is: see `Column.layout`."""
        return [column.layout for column in self.template.make_columns()]

    def from_bytes(self, data: bytes) -> "Features":
        """Load the vocabulary. Raises a ValueError if it is damaged, or of another template."""
        layouts = self._layouts()
        try:
            saved = srsly.msgpack_loads(data)
            saved_layouts = saved["columns"]
            has_vocab = saved["values"] is not None
            columns = None
            if has_vocab and saved_layouts == layouts:
                columns = load_columns(saved, self.template)
        except Exception as error:
            message = f"expected what was saved of them, found damage: {error}"
            raise ValueError(f"features of a linear CRF: {message}") from error
        if has_vocab and saved_layouts != layouts:
            message = f"expected those of the config, {layouts}, got {saved_layouts}"
            raise ValueError(f"features of a linear CRF: {message}")
        self._set_columns(columns)
        return self
