"""Clusters of words, from files or by the k-means of static vectors."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from spacy.strings import StringStore
from spacy.vocab import Vocab
from thinc.api import to_numpy
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from .. import sparse
from .memory import pack, unpack

PREFIXES = (20, 10, 6, 4)
"""Of the path of a Brown cluster, these first bits are clusters, too (Ratinov & Roth, 2009)."""

N_SHOWN = 4
"""Words that stand for a cluster."""

N_ITER = 15
PER_CLUSTER = 50
"""Centres are learned from at most this number of words for each."""

CHUNK = 1 << 14
"""Words whose distances are computed at a time."""


class Clusters(NamedTuple):
    """The clusters of D words, as the numbers of the values of a column.

    keys (Array1d): The hashes of the words. Shape: (D,)
    numbers (Ints2d): Their clusters, -1 for none. Shape: (D, width)
    """

    keys: Array1d
    numbers: Ints2d

    def to_dict(self) -> dict[str, Any]:
        """What is saved."""
        keys, width = self.keys.astype("<u8").tobytes(), self.numbers.shape[1]
        return {"keys": keys, "width": width, "numbers": pack(self.numbers.T.reshape(-1))}

    @classmethod
    def from_dict(cls, saved: dict[str, Any], n_values: int) -> "Clusters":
        """Load the clusters of a column with this number of values."""
        keys = numpy.frombuffer(saved["keys"], dtype="<u8").astype("uint64")
        numbers = unpack(saved["numbers"]).reshape(saved["width"], len(keys)).T
        if numbers.shape[1] < 1 or (numbers < -1).any() or (numbers >= n_values).any():
            raise ValueError(f"clusters: expected some of {n_values} for each word")
        return cls(keys, numpy.ascontiguousarray(numbers))


def find_words(words: sparse.IdMap, orth: Array1d, lower: Array1d) -> Ints1d:
    """The numbers of words by the hash of the word or, if it has none, of the lower-case word; -1
    for none. Shapes: (N,)"""
    found = words.find(orth)
    return numpy.where(found < 0, words.find(lower), found)


def read_clusters(path: str | Path) -> dict[str, list[str]]:
    """Read the clusters of words.

    path (str | Path): A file in UTF-8: JSON, an object of words with the number or the path
        of their cluster, or the names of their clusters, as `costner clusters` writes them; or
        lines of the path, the word and more, separated by tabs, as Brown clustering does.
    RETURNS (dict[str, list[str]]): The clusters of each word: of a path of bits, its prefixes
        from the longest.
    RAISES (ValueError): If it can't be read.
    """
    try:
        text = Path(path).read_text(encoding="utf8")
        if text.lstrip()[:1] == "{":
            pairs = list(json.loads(text).items())
        else:
            lines = [line.split("\t") for line in text.splitlines() if line.strip()]
            pairs = [(line[1], line[0]) for line in lines]
        clusters = [(word, _values(cluster)) for word, cluster in pairs]
        if wrong := [pair for pair, (_, names) in zip(pairs, clusters) if not names]:
            raise ValueError(f"expected a number or a path for each word, got {wrong[0]}")
    except (OSError, ValueError, IndexError) as error:
        raise ValueError(
            "spacy_costner.Features: clusters: expected JSON of words and clusters, or lines of "
            f"paths and words, in {path}: {error}"
        ) from error
    return dict(clusters)


def _values(cluster: Any) -> list[str]:
    """The names of the clusters of a word; none if this is not a cluster."""
    if isinstance(cluster, int) and not isinstance(cluster, bool):
        cluster = str(cluster)
    names = cluster if isinstance(cluster, list) else [cluster]
    if not all(isinstance(name, str) and name for name in names):
        return []
    if names is not cluster and set(cluster) <= {"0", "1"} and len(cluster) > 1:
        return [*dict.fromkeys(cluster[:size] for size in PREFIXES)]
    return names


def collect_clusters(
    words: Mapping[int, list[str]], n_times: Mapping[int, int], vocab: Vocab, least: int
) -> tuple[list[str], Clusters]:
    """Number the clusters that are in a corpus often enough. `words` has the clusters of words by
    hash, `n_times` how often each word is in the corpus."""
    counts: Counter[str] = Counter()
    for lexeme, n in ((vocab[key], n) for key, n in n_times.items()):
        for name in words.get(lexeme.orth) or words.get(lexeme.lower) or []:  # as in `find_words`
            counts[name] += n
    values = sorted(name for name, n in counts.items() if n >= least)
    number = {value: i for i, value in enumerate(values)}
    known = [[number[x] for x in names if x in number] for names in words.values()]
    numbers = numpy.full((len(words), max(map(len, known), default=0) or 1), -1, dtype="int32")
    for row, found in zip(numbers, known):
        row[: len(found)] = found
    kept = numbers[:, 0] >= 0
    return values, Clusters(numpy.asarray([*words], dtype="uint64")[kept], numbers[kept])


def words_of_clusters(clusters: Clusters, strings: StringStore) -> dict[int, str]:
    """Some words of each cluster, of those that a string store has."""
    found: dict[int, list[str]] = defaultdict(list)
    for key, numbers in zip(clusters.keys.tolist(), clusters.numbers.tolist()):
        for number in numbers if key in strings else ():
            if number >= 0 and len(found[number]) < N_SHOWN:
                found[number].append(strings[key])
    return {number: " ".join(words) for number, words in found.items()}


def cluster_vectors(vocab: Vocab, sizes: Sequence[int], seed: int = 0) -> dict[int, list[str]]:
    """Cluster the words that have a vector into each of some numbers of clusters, such as "64:12".
    Returns the clusters of each word, by hash. Raises a ValueError if there are no vectors."""
    rows = {key: row for key, row in vocab.vectors.key2row.items() if row >= 0}
    if not (rows and vocab.vectors.size):
        raise ValueError(
            "spacy_costner.Features: vectors: expected static vectors of words in the pipeline, "
            "as initialize.vectors has, there are none"
        )
    points = to_unit_length(to_numpy(vocab.vectors.data)[[*rows.values()]])
    names = {size: [f"{size}:{i}" for i in range(size)] for size in sizes}
    clusters = [[names[n][i] for i in k_means(points, n, seed=seed).tolist()] for n in sizes]
    return dict(zip(rows, map(list, zip(*clusters))))


def k_means(points: Floats2d, n_clusters: int, *, seed: int = 0) -> Ints1d:
    """Cluster points of unit length, (D, W), by the angle between them (spherical k-means). The
    first centres are random points. Returns the cluster of each point, (D,).

    Dhillon & Modha (2001), Concept decompositions for large sparse text data using clustering.
    """
    rng = numpy.random.default_rng(seed)
    sample = points[rng.permutation(len(points))[: PER_CLUSTER * n_clusters]]
    centres = sample[:n_clusters]
    for _ in range(N_ITER):
        nearest = nearest_centres(sample, centres)
        sums = numpy.zeros_like(centres)
        numpy.add.at(sums, nearest, sample)
        is_used = sums.any(axis=1)
        sums[~is_used] = centres[~is_used]
        centres = to_unit_length(sums)
    return nearest_centres(points, centres)


def nearest_centres(points: Floats2d, centres: Floats2d) -> Ints1d:
    """The centre of the largest cosine, the first of equal ones. Shape: (D,)"""
    starts = range(0, len(points), CHUNK)
    return numpy.concatenate([(points[i : i + CHUNK] @ centres.T).argmax(axis=1) for i in starts])


def to_unit_length(rows: Floats2d) -> Floats2d:
    """Rows divided by their length; those of 0 stay so."""
    lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / numpy.where(lengths, lengths, 1)).astype("float32")
