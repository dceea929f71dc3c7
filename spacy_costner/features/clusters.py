"""Features of clusters of words. Clusters are read from a file, or made from static vectors by
k-means.

A column gives each token its values, which become features: see `column.py`. Here they are the
clusters of its word. A cluster has a name, such as "64:12" for the cluster 12 of 64. The names are
the values of the column, and the id of a cluster is the index of its name. A *word key* is the
lowest 32 bits of the hash of a word.
"""

import json
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy
from spacy.strings import StringStore, get_string_id
from spacy.vocab import Vocab
from thinc.api import to_numpy
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from .column import BatchColumn, SavedColumns, Selection, StringColumn, Window
from .counts import TrainingCounts
from .ids import LOWEST_32_BITS, id_map, most_numbers, pack, pack_hashes, unpack, unpack_hashes
from .tokens import TokenBatch

PREFIXES = (20, 10, 6, 4)
"""A Brown cluster is a path of bits in a binary tree. Its prefixes of these lengths are coarser
clusters, which become features, too (Ratinov & Roth, 2009)."""

N_SHOWN = 4
"""The number of words that are shown as examples of a cluster."""

N_ITER = 15
"""The number of steps of k-means. It stops then, even if words still change their cluster."""

PER_CLUSTER = 50
"""The maximum number of words for each cluster from which k-means learns the centres."""

FEW_CLUSTERS = 16
"""Words usually have at most this number of clusters. See `ClusterColumn.load`."""

CHUNK = 1 << 14
"""The number of words whose distances to centres are computed at once. It limits the memory."""


class ClusterColumn(StringColumn, BatchColumn):
    """The column of the clusters of words. A word has the clusters of its text or, if its text has
    none, of its text in lower case. The model saves all words that have clusters. Subclasses define
    where the clusters come from."""

    attributes = ("LOWER",)

    def __init__(self, name: str, window: Window) -> None:
        super().__init__(name, window)
        no_words = numpy.zeros(0, dtype="uint64")
        self._set_words(no_words, numpy.full((0, 1), -1, dtype="int32"))

    def _set_words(self, word_keys: Array1d, cluster_ids: Ints2d) -> None:
        """Set the words that have clusters. `cluster_ids` has the ids of the clusters of each word,
        -1 for none. `select` may leave -1 between other ids. Shapes: (D,), (D, width)"""
        self._word_keys = word_keys
        self._word_ids = id_map(word_keys)
        # A row of -1 is added for unknown words, which have the id -1. Shape: (D + 1, width)
        self._cluster_ids = numpy.pad(cluster_ids, ((0, 1), (0, 0)), constant_values=-1)

    @abstractmethod
    def read_words(self, counts: TrainingCounts) -> dict[int, list[str]]:
        """Get the words that have clusters.

        counts (TrainingCounts): The counts of the training docs.
        RETURNS (dict[int, list[str]]): The names of the clusters of each word, keyed by the hash of
            the word.
        RAISES (ValueError): If the file can't be read, or there are no vectors.
        """

    def collect(self, counts: TrainingCounts) -> None:
        """Collect the clusters whose words are frequent in the training docs, with all their words.
        Most of these words are in no training doc."""
        clusters_of_word = self.read_words(counts)
        self.collect_frequent(count_clusters(clusters_of_word, counts))
        id_of_cluster = {cluster: i for i, cluster in enumerate(self.values)}
        ids_of_word: dict[int, list[int]] = {}
        for word_key, clusters in clusters_of_word.items():
            ids = []
            for cluster in clusters:
                if cluster in id_of_cluster:  # the cluster is frequent
                    ids.append(id_of_cluster[cluster])
            if ids:
                ids_of_word[word_key] = ids

        # Make an array with a row for each word, which ends with -1 if the word has fewer clusters
        # than others.
        width = max(map(len, ids_of_word.values()), default=1)
        cluster_ids = numpy.full((len(ids_of_word), width), -1, dtype="int32")
        for row, ids in zip(cluster_ids, ids_of_word.values()):
            row[: len(ids)] = ids
        word_keys = numpy.asarray(list(ids_of_word), dtype="uint64")
        self._set_words(word_keys & LOWEST_32_BITS, cluster_ids)

    def select(self, selection: Selection) -> "ClusterColumn":
        """A copy of the column with only the clusters that are kept. It has all words, even those
        without clusters: otherwise they would get the clusters of their text in lower case."""
        kept_ids = selection.ids[self.name]
        column = copy(self)
        column.set_values([self.values[i] for i in kept_ids.tolist()])
        # The new id of each cluster, -1 for clusters that are left out. The last entry is the new
        # id of -1.
        new_ids = numpy.full(self.n_values + 1, -1, dtype="int32")
        new_ids[kept_ids] = numpy.arange(column.n_values)
        cluster_ids = self._cluster_ids[:-1]  # without the row for unknown words
        column._set_words(self._word_keys, new_ids[cluster_ids])
        return column

    def save(self, saved: SavedColumns) -> None:
        """Write the values and, for each word, its hash and the ids of its clusters."""
        super().save(saved)
        # The row for unknown words is left out. The array is saved column after column, so that
        # `pack` compresses the differences between numbers of the same column.
        cluster_ids = self._cluster_ids[:-1].T.reshape(-1)
        saved["clusters"][self.name] = {
            "short_keys": pack_hashes(self._word_keys),
            "width": self.width,
            "numbers": pack(cluster_ids),
        }

    def load(self, saved: SavedColumns) -> None:
        """Load the result of `save`, and check it."""
        super().load(saved)
        saved_words = saved["clusters"][self.name]
        word_keys = unpack_hashes(saved_words["short_keys"]).astype("uint64")
        width = saved_words["width"]
        packed = saved_words["numbers"]
        most = most_numbers(packed, n_alike=FEW_CLUSTERS * len(word_keys))
        # The array was saved column after column. Shape: (D, width)
        cluster_ids = unpack(packed, most).reshape(width, len(word_keys)).T
        is_id = (cluster_ids >= -1) & (cluster_ids < self.n_values)
        if width < 1 or not is_id.all():
            raise ValueError(f"clusters: expected numbers below {self.n_values} for each word")
        self._set_words(word_keys, cluster_ids)

    @property
    def words(self) -> tuple[Array1d, Ints2d]:
        """The keys of the D words that have clusters, and the ids of the clusters of each, -1 for
        none: see `_set_words`. Shapes: (D,), (D, width)"""
        return self._word_keys, self._cluster_ids[:-1]

    @property
    def width(self) -> int:
        """The maximum number of clusters that a word has."""
        return self._cluster_ids.shape[1]

    def write_value_ids(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Write the clusters of each token's word to `value_ids`: the clusters of its text or, if
        its text has none, of its text in lower case."""
        ids_of_text = self._find_words(batch.tokens.orth)
        ids_of_lower = self._find_words(batch.tokens.keys["LOWER"])
        word_ids = numpy.where(ids_of_text < 0, ids_of_lower, ids_of_text)
        value_ids[:] = self._cluster_ids[word_ids]  # the id -1 finds the last row

    def _find_words(self, hashes: Array1d) -> Ints1d:
        """Look words up by their hashes. Returns the index of each, -1 if it has no clusters.
        Shape: (N,)"""
        return self._word_ids.find(hashes & LOWEST_32_BITS)

    def examples_of_values(self, strings: StringStore) -> dict[int, str]:
        """The first few words of each cluster, keyed by cluster id. The column knows only the
        hashes of words, so the words come from a string store, such as the string store of the
        pipeline."""
        words_of_cluster: dict[int, list[str]] = defaultdict(list)
        for word, row in self._rows_of_words(strings):
            for cluster_id in self._cluster_ids[row].tolist():
                # -1 stands for no cluster.
                if cluster_id >= 0 and len(words_of_cluster[cluster_id]) < N_SHOWN:
                    words_of_cluster[cluster_id].append(word)
        return {cluster_id: " ".join(words) for cluster_id, words in words_of_cluster.items()}

    def words_in(self, strings: StringStore) -> list[str]:
        """The words of a string store that have clusters."""
        return [word for word, _ in self._rows_of_words(strings)]

    def _rows_of_words(self, strings: StringStore) -> Iterator[tuple[str, int]]:
        """Yield the words of a string store that have clusters, each with its row in
        `_cluster_ids`, in the order of the rows."""
        bits_of_keys = int(LOWEST_32_BITS)
        word_of_key = {get_string_id(word) & bits_of_keys: word for word in strings}
        for row, key in enumerate(self._word_keys.tolist()):
            if key in word_of_key:
                yield word_of_key[key], row


class FileClusterColumn(ClusterColumn):
    """The column of the clusters in a file.

    path (str): The file. It is needed in training only.
    """

    def __init__(self, name: str, window: Window, path: str) -> None:
        super().__init__(name, window)
        self.path = path

    def read_words(self, counts: TrainingCounts) -> dict[int, list[str]]:
        """Read the clusters of words from the file."""
        clusters_of_word = read_clusters(self.path)
        return {get_string_id(word): clusters for word, clusters in clusters_of_word.items()}


class VectorClusterColumn(ClusterColumn):
    """The column of clusters that k-means makes from the words with a static vector.

    sizes (Sequence[int]): The numbers of clusters. The words are divided once for each number, so a
        word has one cluster for each.
    """

    def __init__(self, name: str, window: Window, sizes: Sequence[int]) -> None:
        super().__init__(name, window)
        self.sizes = sizes

    def read_words(self, counts: TrainingCounts) -> dict[int, list[str]]:
        """Divide all words with a vector into clusters. The vectors come from the vocab of the
        first training doc."""
        if not counts.word_counts:
            return {}  # there may be no docs, and so no vocab
        return cluster_vectors(counts.vocabs[0], self.sizes)


def count_clusters(clusters_of_word: dict[int, list[str]], counts: TrainingCounts) -> Counter[str]:
    """Count how often words of each cluster occur in the training docs. As in
    `ClusterColumn.write_value_ids`, a word has the clusters of its text or, if its text has none,
    of its text in lower case."""
    cluster_counts: Counter[str] = Counter()
    for word_key, word_count in counts.word_counts.items():
        lexeme = counts.lexemes[word_key]
        clusters = clusters_of_word.get(lexeme.orth)
        if not clusters:
            clusters = clusters_of_word.get(lexeme.lower, [])
        for cluster in clusters:
            cluster_counts[cluster] += word_count
    return cluster_counts


def read_clusters(path: str | Path) -> dict[str, list[str]]:
    """Read the clusters of words from a file in one of two forms:

    - JSON: an object whose keys are words. The value of a word is the number of its cluster, the
      path of its Brown cluster, or a list with the names of its clusters.
    - Lines, as programs for Brown clustering write them: the path of bits, a TAB and the word. The
      rest of a line is ignored.

    path (str | Path): The file, in UTF-8.
    RETURNS (dict[str, list[str]]): The names of the clusters of each word: see `cluster_names`.
    RAISES (ValueError): If the file can't be read, or has another form.
    """
    try:
        text = Path(path).read_text(encoding="utf8")
        words_and_clusters: list[tuple[str, Any]] = []
        if text.lstrip().startswith("{"):
            words_and_clusters.extend(json.loads(text).items())
        else:
            # `splitlines` would also split words from the web, which may have U+0085 or U+2028.
            for line in text.split("\n"):
                if line.strip():
                    bit_path, word = line.split("\t")[:2]
                    words_and_clusters.append((word, bit_path))

        clusters_of_word = {}
        for word, cluster in words_and_clusters:
            clusters_of_word[word] = cluster_names(cluster)
            if not clusters_of_word[word]:
                expected = "expected a number or a path for each word"
                raise ValueError(f"{expected}, got {(word, cluster)}")
    except (OSError, ValueError) as error:
        raise ValueError(
            "spacy_costner.Features: clusters: expected a JSON file of words and clusters, or "
            f"lines with a bit path and a word, but could not read {path}: {error}"
        ) from error
    return clusters_of_word


def cluster_names(cluster: Any) -> list[str]:
    """Name the clusters of a word, from the entry of the word in a file: a list of names, a number,
    or a path of bits. The names of a path of bits are its first bits, as many as `PREFIXES` lists,
    the longest first. If the file has anything else, no names are returned."""
    if isinstance(cluster, list):
        if all(isinstance(name, str) and name for name in cluster):
            return cluster
        return []
    if isinstance(cluster, int) and not isinstance(cluster, bool):
        return [str(cluster)]
    if not isinstance(cluster, str) or not cluster:
        return []
    is_path = set(cluster) <= {"0", "1"}
    if is_path:
        # A short path has the same prefix for several sizes. Each prefix is one cluster.
        return list(dict.fromkeys(cluster[:size] for size in PREFIXES))
    return [cluster]


def cluster_vectors(vocab: Vocab, sizes: Sequence[int], seed: int = 0) -> dict[int, list[str]]:
    """Divide the words that have a static vector into clusters, once for each number of clusters.

    vocab (Vocab): The vocab with the vectors.
    sizes (Sequence[int]): The numbers of clusters.
    seed (int): The seed of k-means.
    RETURNS (dict[int, list[str]]): The names of the clusters of each word, keyed by the hash of the
        word: "64:12" is cluster 12 of 64.
    RAISES (ValueError): If there are no vectors.
    """
    clusters_of_word: dict[int, list[str]] = {}
    rows = []
    for word_key, row in vocab.vectors.key2row.items():
        if row >= 0:  # -1 stands for no vector
            clusters_of_word[word_key] = []
            rows.append(row)
    if not rows or not vocab.vectors.size:  # no rows, or rows of 0 numbers
        raise ValueError(
            "spacy_costner.Features: vectors: expected static word vectors in the pipeline, as "
            "initialize.vectors sets them, found none"
        )

    # A point for each of D words, in the order of `clusters_of_word`. Shape: (D, W)
    points = to_unit_length(to_numpy(vocab.vectors.data)[rows])
    for size in sizes:
        number_of_word = k_means(points, size, seed=seed).tolist()
        for cluster_names_of_word, number in zip(clusters_of_word.values(), number_of_word):
            cluster_names_of_word.append(f"{size}:{number}")
    return clusters_of_word


def k_means(points: Floats2d, n_clusters: int, *, seed: int = 0) -> Ints1d:
    """Divide points into clusters by the angles between them (spherical k-means). The first centres
    are random points. Points have unit length. `seed` is the seed of these random points. Returns
    the index of the cluster of each point. Shapes: (D, W) to (D,)

    Dhillon & Modha (2001), Concept decompositions for large sparse text data using clustering.
    """
    rng = numpy.random.default_rng(seed)
    order = rng.permutation(len(points))
    # To save time, the centres are learned from some of the points only.
    sample = points[order[: PER_CLUSTER * n_clusters]]
    centres = sample[:n_clusters]  # the sample is in random order
    for _ in range(N_ITER):
        nearest = nearest_centres(sample, centres)
        # The new centre of a cluster has the direction of the sum of its points.
        sums = numpy.zeros_like(centres)
        numpy.add.at(sums, nearest, sample)
        # A cluster without points keeps its centre.
        is_used = sums.any(axis=1)
        sums[~is_used] = centres[~is_used]
        centres = to_unit_length(sums)
    return nearest_centres(points, centres)


def nearest_centres(points: Floats2d, centres: Floats2d) -> Ints1d:
    """Find the centre that is nearest to each point: the one with the largest cosine, or the first
    of several. Points and centres have unit length, so that a cosine is a scalar product.
    Shapes: (D, W), (number of clusters, W) to (D,)"""
    nearest = []
    # The cosines of all points at once would take too much memory.
    for start in range(0, len(points), CHUNK):
        cosines = points[start : start + CHUNK] @ centres.T
        nearest.append(cosines.argmax(axis=1))
    return numpy.concatenate(nearest)


def to_unit_length(rows: Floats2d) -> Floats2d:
    """Divide rows by their lengths, in float32. Rows of zeros stay as they are. Shape: (D, W)"""
    lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    return (rows / lengths).astype("float32")
