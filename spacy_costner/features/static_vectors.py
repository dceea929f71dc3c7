"""Static word vectors, as inputs of the linear model next to its features.

A static vector is the vector of D numbers that a word has in the vocab of the pipeline. The words
of tokens are looked up once, and after that a vector is known by its id (`StaticVectors`).
`VectorColumn` says at which offsets from a token vectors are inputs, and how they are scaled.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.attrs import NAMES, ORTH
from spacy.lexeme import Lexeme
from spacy.vectors import BaseVectors, Mode, Vectors
from thinc.api import to_numpy
from thinc.types import Floats2d, Ints1d

from ..locks import make_lock
from .column import Column, SavedColumns, Window
from .counts import TrainingCounts

STANDARD_DEVIATION = 0.5
"""Vectors are scaled, so that their numbers have this standard deviation. So their weights can have
the same penalty and learning rate for all vectors."""

WHERE = "spacy_costner.Features: include_static_vectors"
"""The setting that error messages name."""

FLORET_SETTINGS = ("minn", "maxn", "hash_count", "hash_seed", "bow", "eow", "attr")
"""The attributes of spaCy's vectors that say which rows of floret's table a word has."""

_ADDING = make_lock()
"""The lock that a thread holds while it looks up words and adds their vectors, so that no other
thread gives new words the same ids."""


class StaticVectors(ABC):
    """The static vectors of a vocab, multiplied by a number. `find_ids` gives the ids of the
    vectors of words, and `read` the vectors of ids. Threads can share it.

    source (BaseVectors): The vectors of the vocab.
    scale (float): The number by which they are multiplied.
    """

    def __init__(self, source: BaseVectors, scale: float) -> None:
        self.source = source
        self.scale = numpy.float32(scale)

    @abstractmethod
    def find_ids(self, lexemes: Sequence[Lexeme]) -> Ints1d:
        """The id of the vector of each word, -1 for none. Shape: (W,)"""

    @property
    @abstractmethod
    def n_vectors(self) -> int:
        """The number of vectors, or more: all ids are below it."""

    @abstractmethod
    def _rows(self, ids: Ints1d) -> Floats2d:
        """The vectors of ids, not yet multiplied. For the id -1 any vector may be returned.
        Shapes: (W,) to (W, D)"""

    def read(self, ids: Ints1d) -> Floats2d:
        """The vectors of ids, multiplied. The id -1, for no vector, gives zeros.
        Shapes: (W,) to (W, D)"""
        vectors = self._rows(ids) * self.scale
        vectors[ids < 0] = 0
        return vectors


class KeyedVectors(StaticVectors):
    """The vectors of spaCy's default mode, in which only some words have a vector. A word has the
    vector of its text or, if its text has none, of its text in lower case. The id of a vector is
    its row in spaCy's table."""

    def find_ids(self, lexemes: Sequence[Lexeme]) -> Ints1d:
        """Look each word up in spaCy's table: first its text, and then its text in lower case.
        Returns the row of its vector, -1 for none. Shape: (W,)"""
        row_of_key = self.source.key2row
        ids: list[int] = []
        for lexeme in lexemes:
            row = row_of_key.get(lexeme.orth, -1)
            if row < 0:
                row = row_of_key.get(lexeme.lower, -1)
            ids.append(row)
        return numpy.asarray(ids, dtype="int32")

    @property
    def n_vectors(self) -> int:
        """The number of rows of spaCy's table."""
        return len(self.source.data)

    def _rows(self, ids: Ints1d) -> Floats2d:
        """The rows of spaCy's table."""
        # `data` is not kept here: when spaCy's table grows, it is another array.
        return to_numpy(self.source.data[ids])


class ComputedVectors(StaticVectors):
    """Vectors that are computed from the text of a word, such as floret's. Every word has one,
    which is computed once. Words are numbered in the order in which they come, and the id of a
    vector is the index of its word.

    A vector is kept before `find_ids` returns its id, and is never changed. So threads can read
    vectors without waiting.
    """

    def __init__(self, source: BaseVectors, scale: float) -> None:
        super().__init__(source, scale)
        # The attribute of lexemes whose text vectors are computed from: "orth", "lower" or another.
        self._attribute = NAMES[getattr(source, "attr", ORTH)].lower()
        self._id_of_key: dict[int, int] = {}
        self._data: Floats2d = numpy.zeros((0, source.shape[1]), dtype="float32")

    def find_ids(self, lexemes: Sequence[Lexeme]) -> Ints1d:
        """Number the words, and compute the vectors of new words. Returns the number of each.
        Shape: (W,)"""
        keys = [getattr(lexeme, self._attribute) for lexeme in lexemes]
        distinct_keys = dict.fromkeys(keys)
        with _ADDING:  # one thread at a time
            new_keys = [key for key in distinct_keys if key not in self._id_of_key]
            if new_keys:
                first_id = len(self._id_of_key)
                self._add_rows(to_numpy(self.source.get_batch(new_keys)), first_id)
                for i, key in enumerate(new_keys, start=first_id):
                    self._id_of_key[key] = i
        return numpy.asarray([self._id_of_key[key] for key in keys], dtype="int32")

    @property
    def n_vectors(self) -> int:
        """The number of rows that there is room for. The last ones may be unused."""
        return len(self._data)

    def _add_rows(self, rows: Floats2d, first_id: int) -> None:
        """Keep the vectors of W new words, (W, D). The first of them has the id `first_id`."""
        end_id = first_id + len(rows)
        if end_id > len(self._data):
            # The new array is twice as large as needed, so that it seldom has to grow.
            n_more = 2 * end_id - len(self._data)
            self._data = numpy.pad(self._data, ((0, n_more), (0, 0)))
        self._data[first_id:end_id] = rows

    def _rows(self, ids: Ints1d) -> Floats2d:
        """The vectors that `find_ids` has computed."""
        return self._data[ids]


def scaled_vectors(source: BaseVectors, scale: float) -> StaticVectors:
    """Make the `StaticVectors` of a vocab, of the class for its kind of vectors."""
    if isinstance(source, Vectors) and source.mode == Mode.default:
        return KeyedVectors(source, scale)
    return ComputedVectors(source, scale)


class VectorCoverage(NamedTuple):
    """The number of words of docs with a static vector. A word counts as often as it occurs.

    n_words (int): The number of words.
    n_with_vector (int): The number of words that have a vector.
    """

    n_words: int
    n_with_vector: int

    @property
    def share(self) -> float:
        """The share of words that have a vector; 0 if there are no words."""
        return self.n_with_vector / max(self.n_words, 1)

    def as_text(self) -> str:
        """The coverage as a line for people."""
        return (
            f"{self.n_with_vector:,} of {self.n_words:,} words ({self.share:.0%}) have a static "
            "vector"
        )


def measure_coverage(
    vectors: StaticVectors, lexemes: Sequence[Lexeme], n_times: Sequence[int]
) -> VectorCoverage:
    """Count the words of docs that have a vector.

    vectors (StaticVectors): The vectors.
    lexemes (Sequence[Lexeme]): The distinct words. Length: W
    n_times (Sequence[int]): How often each of them occurs. Length: W
    RETURNS (VectorCoverage): The numbers of words.
    """
    has_vector = vectors.find_ids(lexemes) >= 0
    counts = numpy.asarray(n_times, dtype="int64")
    return VectorCoverage(n_words=int(counts.sum()), n_with_vector=int(counts[has_vector].sum()))


class VectorColumn(Column):
    """The column of static vectors. Unlike other columns it has no values that are features.
    Instead, each of the D numbers of a vector has a row of weights at each offset: see
    `SparseWeights`.

    The model saves D, the scale and the digest of the vectors, not the vectors: these are in the
    vocab of the pipeline.

    name (str): The name of the column.
    window (Window): The offsets at which vectors are inputs.
    hidden_offsets (tuple[int, ...]): The offsets at which they are inputs of a hidden layer, if the
        model has one: see `HiddenLayer`.
    coverage (VectorCoverage | None): How many words of the training docs have a vector. None if the
        model was loaded, as the coverage isn't saved.
    """

    lexeme_attributes = ("LOWER",)

    def __init__(self, name: str, window: Window, hidden_offsets: tuple[int, ...] = ()) -> None:
        super().__init__(name, window)
        self.hidden_offsets = hidden_offsets
        self.dim = 0
        self.scale = 1.0
        self.digest = ""  # in models that 0.3.0 saved, and for vectors without a table
        self.coverage: VectorCoverage | None = None

    @property
    def value_names(self) -> Sequence[str]:
        """Empty, as there are no values that are features."""
        return ()

    @property
    def n_rows(self) -> int:
        """The number of rows of weights: D for each offset."""
        return len(self.offsets) * self.dim

    @property
    def n_hidden_rows(self) -> int:
        """The number of weight rows of a hidden layer: D for each of its offsets."""
        return len(self.hidden_offsets) * self.dim

    def collect(self, counts: TrainingCounts) -> None:
        """Choose the scale, so that the vectors of words in the training docs have the standard
        deviation `STANDARD_DEVIATION`. The vectors come from the vocab of the first doc.

        RAISES (ValueError): If there are no such vectors, or they are not finite or all the same.
        """
        if not counts.word_counts:
            return  # there are no training docs
        vectors = scaled_vectors(counts.vocabs[0].vectors, scale=1.0)
        check_vectors(vectors.source)
        lexemes = list(counts.lexemes.values())
        n_times = [counts.word_counts[key] for key in counts.lexemes]
        self.coverage = measure_coverage(vectors, lexemes, n_times)

        # Several words may have the same vector, which counts once.
        ids = vectors.find_ids(lexemes)
        distinct_ids = numpy.unique(ids[ids >= 0])
        # In float64, as the standard deviation is a sum over many numbers.
        rows = vectors.read(distinct_ids).astype("float64")
        if not len(rows):
            raise ValueError(
                f"{WHERE}: expected static vectors for words of the training docs, got none "
                f"for their {len(ids):,} words"
            )
        if not rows.std(axis=0).any():
            raise ValueError(
                f"{WHERE}: expected vectors that differ between words of the training docs, got "
                f"the same one for all, {rows[0]}"
            )
        self.dim = rows.shape[1]
        self.scale = STANDARD_DEVIATION / float(rows.std())
        self.digest = digest_of_vectors(vectors.source)

    def save(self, saved: SavedColumns) -> None:
        """Write D, the scale and the digest."""
        saved["static_vectors"][self.name] = {
            "dim": self.dim,
            "scale": self.scale,
            "digest": self.digest,
        }

    def load(self, saved: SavedColumns) -> None:
        """Read D, the scale and the digest, and check them."""
        settings = saved["static_vectors"][self.name]
        dim = settings["dim"]
        scale = settings["scale"]
        if isinstance(dim, bool) or not isinstance(dim, int) or dim < 0:
            raise ValueError(f"{self.name}: expected a dimension of at least 0, got {dim!r}")
        if not isinstance(scale, float) or not 0 < scale < numpy.inf:
            raise ValueError(f"{self.name}: expected a finite scale above 0, got {scale!r}")
        digest = settings.get("digest", "")
        if not isinstance(digest, str):
            raise ValueError(f"{self.name}: expected a digest, got {digest!r}")
        self.dim = dim
        self.scale = scale
        self.digest = digest

    def read_vectors(self, source: BaseVectors) -> StaticVectors:
        """Make the scaled vectors of a vocab.

        RAISES (ValueError): If the vectors are not the vectors of training. If their digest isn't
            known, only their length is compared.
        """
        dim = dimension(source)
        if dim != self.dim:
            message = f"expected vectors of {self.dim} numbers in the vocab of docs"
            if not dim:
                raise ValueError(f"{WHERE}: {message}, as in training, got none")
            raise ValueError(f"{WHERE}: {message}, as in training, got {dim}")
        digest = digest_of_vectors(source) if self.digest else ""
        if digest != self.digest:
            raise ValueError(
                f"{WHERE}: expected the vectors of training in the vocab of docs, digest "
                f"{self.digest!r}, got different ones of the same length, digest {digest!r}: load "
                "the vectors that were saved with the pipeline, or train again"
            )
        return scaled_vectors(source, self.scale)


def digest_of_vectors(source: BaseVectors) -> str:
    """Hash the vectors of a vocab: their table, the rows of its keys and, in floret mode, how words
    are hashed to rows. Vectors of other classes, which may have no table, have the digest ""."""
    if not isinstance(source, Vectors):
        return ""
    table = numpy.ascontiguousarray(to_numpy(source.data))
    # The order in which keys were added doesn't matter.
    n_keys = len(source.key2row)
    keys = numpy.fromiter(source.key2row, dtype="uint64", count=n_keys)
    rows = numpy.fromiter(source.key2row.values(), dtype="int64", count=n_keys)
    order = numpy.argsort(keys)
    settings = [Mode(source.mode).value, table.dtype.str, table.shape]
    if source.mode == Mode.floret:
        settings += [getattr(source, name) for name in FLORET_SETTINGS]

    digest = hashlib.blake2b(repr(settings).encode("utf8"), digest_size=16)
    for array in (table, keys[order], rows[order]):
        digest.update(array.data)
    return digest.hexdigest()


def dimension(source: BaseVectors) -> int:
    """D, the length of the vectors of a vocab; 0 if it has none."""
    n_rows, dim = source.shape
    return dim if n_rows else 0


def check_vectors(source: BaseVectors) -> None:
    """Check that a vocab has vectors, and that they are finite.

    RAISES (ValueError): If it hasn't, or they aren't.
    """
    if not dimension(source):
        raise ValueError(
            f"{WHERE}: expected static word vectors in the pipeline, as initialize.vectors sets "
            "them, found none"
        )
    data = getattr(source, "data", None)  # vectors of other classes may have no table
    # If any number is NaN, the least and the largest number are NaN, too. No array is copied.
    if data is not None and not numpy.isfinite([data.min(), data.max()]).all():
        raise ValueError(f"{WHERE}: expected finite vectors, got NaN or infinity in them")
