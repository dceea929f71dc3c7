"""Static word vectors, which the linear model uses as inputs in addition to its features.

A static vector is a word's vector of D dimensions in the pipeline's vocab. `StaticVectors` maps
each word to a vector id, which is then used to refer to the vector. `VectorColumn` defines the
offsets from a token at which vectors are used and how they're scaled.
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
"""Vectors are scaled to this standard deviation, so that the same regularisation and learning rate
work for any vectors."""

WHERE = "spacy_costner.Features: include_static_vectors"
"""The name of the setting in error messages."""

FLORET_SETTINGS = ("minn", "maxn", "hash_count", "hash_seed", "bow", "eow", "attr")
"""The attributes of spaCy's vectors that determine which rows of the floret table a word is hashed
to."""

_ADDING = make_lock()
"""Held by a thread while it looks up words and adds their vectors, so that threads don't assign the
same ids to different words."""


class StaticVectors(ABC):
    """The scaled static vectors of a vocab. `find_ids` returns the vector ids of words, and `read`
    returns the vectors for the given ids. Can be shared between threads.

    source (BaseVectors): The vectors of the vocab.
    scale (float): The factor by which the vectors are multiplied.
    """

    def __init__(self, source: BaseVectors, scale: float) -> None:
        self.source = source
        self.scale = numpy.float32(scale)

    @abstractmethod
    def find_ids(self, lexemes: Sequence[Lexeme]) -> Ints1d:
        """Return the vector id of each word, or -1 if it has no vector. Shape: (W,)"""

    @property
    @abstractmethod
    def n_vectors(self) -> int:
        """An upper bound on the vector ids. It may be larger than the number of vectors."""

    @abstractmethod
    def _rows(self, ids: Ints1d) -> Floats2d:
        """Return the unscaled vectors for the given ids. The vector for the id -1 is undefined.
        Shapes: (W,) to (W, D)"""

    def read(self, ids: Ints1d) -> Floats2d:
        """Return the scaled vectors for the given ids. The vector for the id -1 is all zeros.
        Shapes: (W,) to (W, D)"""
        vectors = self._rows(ids) * self.scale
        vectors[ids < 0] = 0
        return vectors


class KeyedVectors(StaticVectors):
    """Vectors in spaCy's default mode, where only some words have a vector. Vectors are looked up
    by the text of the word. If the text has no vector, its lowercase form is used. The id of a
    vector is its row in spaCy's table."""

    def find_ids(self, lexemes: Sequence[Lexeme]) -> Ints1d:
        """Look up each word in spaCy's table, first by its text and then by its lowercase form.
        Returns the row of its vector, or -1. Shape: (W,)"""
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
        """The number of rows in spaCy's table."""
        return len(self.source.data)

    def _rows(self, ids: Ints1d) -> Floats2d:
        """Return rows of spaCy's table."""
        # Don't keep a reference to `data`, because spaCy replaces the array when the table grows.
        return to_numpy(self.source.data[ids])


class ComputedVectors(StaticVectors):
    """Vectors that are computed from the text of a word, such as floret vectors. Every word has a
    vector, which is only computed once. Words are numbered in the order in which they're added, and
    the id of a vector is the number of its word.

    A vector is stored before `find_ids` returns its id, and it never changes. Threads can therefore
    read vectors without locking.
    """

    def __init__(self, source: BaseVectors, scale: float) -> None:
        super().__init__(source, scale)
        # The lexeme attribute that vectors are computed from, such as "orth" or "lower".
        self._attribute = NAMES[getattr(source, "attr", ORTH)].lower()
        self._id_of_key: dict[int, int] = {}
        self._data: Floats2d = numpy.zeros((0, source.shape[1]), dtype="float32")

    def find_ids(self, lexemes: Sequence[Lexeme]) -> Ints1d:
        """Number the words and compute the vectors of new words. Returns the number of each word.
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
        """The number of allocated rows. The last ones may be unused."""
        return len(self._data)

    def _add_rows(self, rows: Floats2d, first_id: int) -> None:
        """Store the vectors of W new words. The id of the first one is `first_id`. Shape: (W, D)"""
        end_id = first_id + len(rows)
        if end_id > len(self._data):
            # Make the new array twice as large as needed, so that it rarely has to grow.
            n_more = 2 * end_id - len(self._data)
            self._data = numpy.pad(self._data, ((0, n_more), (0, 0)))
        self._data[first_id:end_id] = rows

    def _rows(self, ids: Ints1d) -> Floats2d:
        """Return vectors that `find_ids` has computed."""
        return self._data[ids]


def scaled_vectors(source: BaseVectors, scale: float) -> StaticVectors:
    """Create an instance of the `StaticVectors` subclass for the kind of vectors in a vocab."""
    if isinstance(source, Vectors) and source.mode == Mode.default:
        return KeyedVectors(source, scale)
    return ComputedVectors(source, scale)


class VectorCoverage(NamedTuple):
    """How many of the words in docs have a static vector. Repeated words are counted each time.

    n_words (int): The number of words.
    n_with_vector (int): The number of words that have a vector.
    """

    n_words: int
    n_with_vector: int

    @property
    def share(self) -> float:
        """The proportion of words that have a vector, or 0 if there are no words."""
        return self.n_with_vector / max(self.n_words, 1)

    def as_text(self) -> str:
        """Return the coverage as a human-readable string."""
        return (
            f"{self.n_with_vector:,} of {self.n_words:,} words ({self.share:.0%}) have a static "
            "vector"
        )


def measure_coverage(
    vectors: StaticVectors, lexemes: Sequence[Lexeme], n_times: Sequence[int]
) -> VectorCoverage:
    """Count the words in docs that have a vector.

    vectors (StaticVectors): The static vectors of the vocab.
    lexemes (Sequence[Lexeme]): The distinct words in the docs. Length: W
    n_times (Sequence[int]): The number of times each word occurs. Length: W
    RETURNS (VectorCoverage): The number of words, and how many have a vector.
    """
    has_vector = vectors.find_ids(lexemes) >= 0
    counts = numpy.asarray(n_times, dtype="int64")
    return VectorCoverage(n_words=int(counts.sum()), n_with_vector=int(counts[has_vector].sum()))


class VectorColumn(Column):
    """Static vector column. Unlike other columns, it has no values that are used as features.
    Instead, each of the D dimensions of a vector has a weight row at each offset: see
    `SparseWeights`.

    The model saves D, the scale and the digest of the vectors, but not the vectors themselves,
    which are stored in the pipeline's vocab.

    name (str): The name of the column.
    window (Window): The offsets at which vectors are used as inputs.
    hidden_offsets (tuple[int, ...]): The offsets at which vectors are used as inputs to the hidden
        layer, if any: see `HiddenLayer`.
    coverage (VectorCoverage | None): How many words in the training docs have a vector. None if the
        model was loaded, because the coverage isn't saved.
    """

    lexeme_attributes = ("LOWER",)

    def __init__(self, name: str, window: Window, hidden_offsets: tuple[int, ...] = ()) -> None:
        super().__init__(name, window)
        self.hidden_offsets = hidden_offsets
        self.dim = 0
        self.scale = 1.0
        self.digest = ""  # empty in models saved by v0.3.0 and for vectors without a table
        self.coverage: VectorCoverage | None = None

    @property
    def value_names(self) -> Sequence[str]:
        """Empty, because there are no values that are used as features."""
        return ()

    @property
    def n_rows(self) -> int:
        """The number of weight rows: D for each offset."""
        return len(self.offsets) * self.dim

    @property
    def n_hidden_rows(self) -> int:
        """The number of weight rows in the hidden layer: D for each of its offsets."""
        return len(self.hidden_offsets) * self.dim

    def collect(self, counts: TrainingCounts) -> None:
        """Set the scale, so that the vectors of words in the training docs have the standard
        deviation `STANDARD_DEVIATION`.

        RAISES (ValueError): If there are no such vectors, they aren't finite, or they're all the
            same.
        """
        if not counts.word_counts:
            return  # no training docs
        vocab = counts.vocab_with_vectors
        vectors = scaled_vectors(vocab.vectors, scale=1.0)
        check_vectors(vectors.source)
        # Floret vectors are computed from the strings in the vocab with the vectors.
        lexemes = [vocab[lexeme.orth_] for lexeme in counts.lexemes.values()]
        n_times = [counts.word_counts[key] for key in counts.lexemes]
        self.coverage = measure_coverage(vectors, lexemes, n_times)

        # Only count a vector once if several words share it.
        ids = vectors.find_ids(lexemes)
        distinct_ids = numpy.unique(ids[ids >= 0])
        # Use float64, because the standard deviation sums over many numbers.
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
        """Read D, the scale and the digest and validate them."""
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
        """Create the scaled vectors of a vocab.

        RAISES (ValueError): If the vectors differ from the vectors used in training. If the digest
            is unknown, only the number of dimensions is compared.
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
    """Hash the vectors of a vocab: the table, the row of each key and, in floret mode, the settings
    that determine how words are hashed to rows. Returns "" for other vector classes, which may not
    have a table."""
    if not isinstance(source, Vectors):
        return ""
    table = numpy.ascontiguousarray(to_numpy(source.data))
    # Sort by key, so that the digest doesn't depend on the order in which keys were added.
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
    """Return the number of dimensions of a vocab's vectors, D, or 0 if it has no vectors."""
    n_rows, dim = source.shape
    return dim if n_rows else 0


def check_vectors(source: BaseVectors) -> None:
    """Check that a vocab has vectors and that they're finite.

    RAISES (ValueError): If it has no vectors or they aren't finite.
    """
    if not dimension(source):
        raise ValueError(
            f"{WHERE}: expected static word vectors in the pipeline, as initialize.vectors sets "
            "them, found none"
        )
    data = getattr(source, "data", None)  # other vector classes may not have a table
    # If any number is NaN, the minimum and maximum are NaN, too. This doesn't copy the array.
    if data is not None and not numpy.isfinite([data.min(), data.max()]).all():
        raise ValueError(f"{WHERE}: expected finite vectors, got NaN or infinity in them")
