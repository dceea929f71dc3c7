"""Features based on word clusters, which are read from a file or computed from static vectors with
k-means.

A token's values in a cluster column are the clusters of its word: see `column.py`. A cluster has a
name, such as "64:12" for cluster 12 of 64. The names are the values of the column, and the id of a
cluster is the index of its name. A *word key* is the lowest 32 bits of a word's hash.
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
"""The lengths of the Brown cluster prefixes to use as features. A Brown cluster is identified by
its path in a binary tree, a string of bits. Prefixes of the path are coarser clusters (Ratinov &
Roth, 2009)."""

N_SHOWN = 4
"""The number of example words to show for a cluster."""

N_ITER = 15
"""The number of k-means iterations. There is no check for convergence."""

PER_CLUSTER = 50
"""The maximum number of words per cluster that k-means uses to compute the centres."""

FEW_CLUSTERS = 16
"""The maximum number of clusters that a word is expected to have: see `ClusterColumn.load`."""

CHUNK = 1 << 14
"""The number of words to compare with the centres at a time, to limit memory usage."""


class ClusterColumn(StringColumn, BatchColumn):
    """Base class for columns of word clusters. Clusters are looked up by the text of the word. If
    the text has no clusters, its lowercase form is used. All words with clusters are saved with the
    model. Subclasses define where the clusters come from."""

    attributes = ("LOWER",)

    def __init__(self, name: str, window: Window) -> None:
        super().__init__(name, window)
        no_words = numpy.zeros(0, dtype="uint64")
        self._set_words(no_words, numpy.full((0, 1), -1, dtype="int32"))

    def _set_words(self, word_keys: Array1d, cluster_ids: Ints2d) -> None:
        """Set the words with clusters. `cluster_ids` contains the ids of each word's clusters, -1
        for none. After `select`, -1 can also occur between other ids. Shapes: (D,), (D, width)"""
        self._word_keys = word_keys
        self._word_ids = id_map(word_keys)
        # Add a row of -1 at the end, which unknown words (id -1) refer to. Shape: (D + 1, width)
        self._cluster_ids = numpy.pad(cluster_ids, ((0, 1), (0, 0)), constant_values=-1)

    @abstractmethod
    def read_words(self, counts: TrainingCounts) -> dict[int, list[str]]:
        """Get the words with clusters.

        counts (TrainingCounts): The counts of the training docs.
        RETURNS (dict[int, list[str]]): The names of each word's clusters, keyed by the hash of the
            word.
        RAISES (ValueError): If the file can't be read, or if there are no vectors.
        """

    def collect(self, counts: TrainingCounts) -> None:
        """Collect the clusters that are frequent enough in the training docs. All of their words
        are included, even words that don't occur in the training docs."""
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

        # Create an array with one row per word. If a word has fewer clusters than others, the rest
        # of its row is -1.
        width = max(map(len, ids_of_word.values()), default=1)
        cluster_ids = numpy.full((len(ids_of_word), width), -1, dtype="int32")
        for row, ids in zip(cluster_ids, ids_of_word.values()):
            row[: len(ids)] = ids
        word_keys = numpy.asarray(list(ids_of_word), dtype="uint64")
        self._set_words(word_keys & LOWEST_32_BITS, cluster_ids)

    def select(self, selection: Selection) -> "ClusterColumn":
        """Create a copy of the column with only the clusters to keep. Words that have no clusters
        left aren't removed, because they would otherwise get the clusters of their lowercase
        form."""
        kept_ids = selection.ids[self.name]
        column = copy(self)
        column.set_values([self.values[i] for i in kept_ids.tolist()])
        # Map old ids to new ids, or to -1 if the cluster is removed. The last entry maps -1 to -1.
        new_ids = numpy.full(self.n_values + 1, -1, dtype="int32")
        new_ids[kept_ids] = numpy.arange(column.n_values)
        cluster_ids = self._cluster_ids[:-1]  # without the row for unknown words
        column._set_words(self._word_keys, new_ids[cluster_ids])
        return column

    def save(self, saved: SavedColumns) -> None:
        """Write the values, the hashes of the words and the ids of their clusters."""
        super().save(saved)
        # Leave out the row for unknown words. The array is saved in column order, because `pack`
        # compresses differences between adjacent numbers.
        cluster_ids = self._cluster_ids[:-1].T.reshape(-1)
        saved["clusters"][self.name] = {
            "short_keys": pack_hashes(self._word_keys),
            "width": self.width,
            "numbers": pack(cluster_ids),
        }

    def load(self, saved: SavedColumns) -> None:
        """Read the saved data and validate it."""
        super().load(saved)
        saved_words = saved["clusters"][self.name]
        word_keys = unpack_hashes(saved_words["short_keys"]).astype("uint64")
        width = saved_words["width"]
        packed = saved_words["numbers"]
        most = most_numbers(packed, n_alike=FEW_CLUSTERS * len(word_keys))
        # The array was saved in column order. Shape: (D, width)
        cluster_ids = unpack(packed, most).reshape(width, len(word_keys)).T
        is_id = (cluster_ids >= -1) & (cluster_ids < self.n_values)
        if width < 1 or not is_id.all():
            raise ValueError(f"clusters: expected numbers below {self.n_values} for each word")
        self._set_words(word_keys, cluster_ids)

    @property
    def words(self) -> tuple[Array1d, Ints2d]:
        """The keys of the D words with clusters, and the ids of their clusters, -1 for none: see
        `_set_words`. Shapes: (D,), (D, width)"""
        return self._word_keys, self._cluster_ids[:-1]

    @property
    def width(self) -> int:
        """The maximum number of clusters per word."""
        return self._cluster_ids.shape[1]

    def write_value_ids(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Write the cluster ids of each token's word to `value_ids`. If the word's text has no
        clusters, its lowercase form is used."""
        ids_of_text = self._find_words(batch.tokens.orth)
        ids_of_lower = self._find_words(batch.tokens.keys["LOWER"])
        word_ids = numpy.where(ids_of_text < 0, ids_of_lower, ids_of_text)
        value_ids[:] = self._cluster_ids[word_ids]  # -1 is the last row

    def _find_words(self, hashes: Array1d) -> Ints1d:
        """Look up words by their hashes. Returns the index of each word, or -1 if it has no
        clusters. Shape: (N,)"""
        return self._word_ids.find(hashes & LOWEST_32_BITS)

    def examples_of_values(self, strings: StringStore) -> dict[int, str]:
        """Return the first few words of each cluster, keyed by cluster id. Only word hashes are
        saved, so the words are looked up in a string store, such as the pipeline's."""
        words_of_cluster: dict[int, list[str]] = defaultdict(list)
        for word, row in self._rows_of_words(strings):
            for cluster_id in self._cluster_ids[row].tolist():
                # -1 means no cluster.
                if cluster_id >= 0 and len(words_of_cluster[cluster_id]) < N_SHOWN:
                    words_of_cluster[cluster_id].append(word)
        return {cluster_id: " ".join(words) for cluster_id, words in words_of_cluster.items()}

    def words_in(self, strings: StringStore) -> list[str]:
        """Return the words in a string store that have clusters."""
        return [word for word, _ in self._rows_of_words(strings)]

    def _rows_of_words(self, strings: StringStore) -> Iterator[tuple[str, int]]:
        """Yield the words in a string store that have clusters, together with their rows in
        `_cluster_ids`, in row order."""
        bits_of_keys = int(LOWEST_32_BITS)
        word_of_key = {get_string_id(word) & bits_of_keys: word for word in strings}
        for row, key in enumerate(self._word_keys.tolist()):
            if key in word_of_key:
                yield word_of_key[key], row


class FileClusterColumn(ClusterColumn):
    """Column of word clusters from a file.

    path (str): The path to the file. Only required for training.
    """

    def __init__(self, name: str, window: Window, path: str) -> None:
        super().__init__(name, window)
        self.path = path

    def read_words(self, counts: TrainingCounts) -> dict[int, list[str]]:
        """Read the clusters of words from the file."""
        clusters_of_word = read_clusters(self.path)
        return {get_string_id(word): clusters for word, clusters in clusters_of_word.items()}


class VectorClusterColumn(ClusterColumn):
    """Column of clusters that k-means computes from the static vectors of words.

    sizes (Sequence[int]): The numbers of clusters. The words are clustered once for each number, so
        each word has one cluster per number.
    """

    def __init__(self, name: str, window: Window, sizes: Sequence[int]) -> None:
        super().__init__(name, window)
        self.sizes = sizes

    def read_words(self, counts: TrainingCounts) -> dict[int, list[str]]:
        """Cluster all words with a vector."""
        if not counts.word_counts:
            return {}  # no docs, so there is no vocab
        return cluster_vectors(counts.vocab_with_vectors, self.sizes)


def count_clusters(clusters_of_word: dict[int, list[str]], counts: TrainingCounts) -> Counter[str]:
    """Count the occurrences of each cluster's words in the training docs. As in
    `ClusterColumn.write_value_ids`, a word without clusters gets the clusters of its lowercase
    form."""
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
    """Read the clusters of words from a file in one of two formats:

    - JSON: an object that maps each word to the number of its cluster, the bit path of its Brown
      cluster, or a list of cluster names.
    - Text, as written by tools for Brown clustering: one word per line in the form "path TAB word".
      The rest of the line is ignored.

    path (str | Path): The path to the file, in UTF-8.
    RETURNS (dict[str, list[str]]): The names of each word's clusters: see `cluster_names`.
    RAISES (ValueError): If the file can't be read or has a different format.
    """
    try:
        # "utf-8-sig" skips a byte order mark, which would become part of the first path.
        text = Path(path).read_text(encoding="utf-8-sig")
        words_and_clusters: list[tuple[str, Any]] = []
        if text.lstrip().startswith("{"):
            words_and_clusters.extend(json.loads(text).items())
        else:
            # Don't use `splitlines`, which also splits at U+0085 and U+2028. Words from the web can
            # contain these characters.
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
    """Convert a word's entry in a cluster file to the names of its clusters. The entry is a list of
    names, a single name, a number, or a bit path. A bit path is converted to its prefixes with the
    lengths in `PREFIXES`, longest first. Returns an empty list for any other entry."""
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
        # A short path has the same prefix for several lengths, so remove duplicates.
        return list(dict.fromkeys(cluster[:size] for size in PREFIXES))
    return [cluster]


def cluster_vectors(vocab: Vocab, sizes: Sequence[int], seed: int = 0) -> dict[int, list[str]]:
    """Cluster the words with static vectors, once for each number of clusters.

    vocab (Vocab): The vocab that contains the vectors.
    sizes (Sequence[int]): The numbers of clusters.
    seed (int): The random seed for k-means.
    RETURNS (dict[int, list[str]]): The names of each word's clusters, keyed by the hash of the
        word. For example, "64:12" is cluster 12 of 64.
    RAISES (ValueError): If there are no vectors.
    """
    clusters_of_word: dict[int, list[str]] = {}
    rows = []
    for word_key, row in vocab.vectors.key2row.items():
        if row >= 0:  # -1 means no vector
            clusters_of_word[word_key] = []
            rows.append(row)
    if not rows or not vocab.vectors.size:  # no rows or empty rows
        raise ValueError(
            "spacy_costner.Features: vectors: expected static word vectors in the pipeline, as "
            "initialize.vectors sets them, found none"
        )

    # One point for each of D words, in the same order as `clusters_of_word`. Shape: (D, W)
    points = to_unit_length(to_numpy(vocab.vectors.data)[rows])
    for size in sizes:
        number_of_word = k_means(points, size, seed=seed).tolist()
        for cluster_names_of_word, number in zip(clusters_of_word.values(), number_of_word):
            cluster_names_of_word.append(f"{size}:{number}")
    return clusters_of_word


def k_means(points: Floats2d, n_clusters: int, *, seed: int = 0) -> Ints1d:
    """Cluster points by the angles between them (spherical k-means). Points must have unit length.
    The initial centres are random points, drawn with `seed`. Returns the index of each point's
    cluster. Shapes: (D, W) to (D,)

    Dhillon & Modha (2001), Concept decompositions for large sparse text data using clustering.
    """
    rng = numpy.random.default_rng(seed)
    order = rng.permutation(len(points))
    # Compute the centres from a sample of the points to save time.
    sample = points[order[: PER_CLUSTER * n_clusters]]
    centres = sample[:n_clusters]  # the sample is in random order
    for _ in range(N_ITER):
        nearest = nearest_centres(sample, centres)
        # The new centre is the normalized sum of the points in the cluster.
        sums = numpy.zeros_like(centres)
        numpy.add.at(sums, nearest, sample)
        # Keep the centres of empty clusters.
        is_used = sums.any(axis=1)
        sums[~is_used] = centres[~is_used]
        centres = to_unit_length(sums)
    return nearest_centres(points, centres)


def nearest_centres(points: Floats2d, centres: Floats2d) -> Ints1d:
    """Find the nearest centre for each point: the centre with the largest cosine, or the first one
    if there is a tie. Points and centres have unit length, so the cosine is the dot product.
    Shapes: (D, W), (number of clusters, W) to (D,)"""
    nearest = []
    # Process the points in chunks, because all cosines at once would use too much memory.
    for start in range(0, len(points), CHUNK):
        cosines = points[start : start + CHUNK] @ centres.T
        nearest.append(cosines.argmax(axis=1))
    return numpy.concatenate(nearest)


def to_unit_length(rows: Floats2d) -> Floats2d:
    """Normalize rows to unit length, in float32. Rows of zeros are left unchanged. Shape: (D, W)"""
    lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    return (rows / lengths).astype("float32")
