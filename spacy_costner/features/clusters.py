"""Clusters of words, from files or by the k-means of static vectors."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple, Union

import numpy
from spacy.strings import StringStore, get_string_id
from spacy.vocab import Vocab
from thinc.api import to_numpy
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from .. import sparse
from .memory import number_keys, pack, unpack

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

    def to_dict(self) -> Dict[str, Any]:
        """What is saved: of this type, and of bytes."""
        keys, width = self.keys.astype("<u8").tobytes(), self.numbers.shape[1]
        return {"keys": keys, "width": width, "numbers": pack(self.numbers.T.reshape(-1))}

    @classmethod
    def from_dict(cls, saved: Dict[str, Any], n_values: int) -> "Clusters":
        """Load the clusters of a column with this number of values.

        RAISES (ValueError): If they are damaged.
        """
        keys = numpy.frombuffer(saved["keys"], dtype="<u8").astype("uint64")
        numbers = unpack(saved["numbers"]).reshape(saved["width"], len(keys)).T
        if numbers.shape[1] < 1 or (numbers < -1).any() or (numbers >= n_values).any():
            raise ValueError(f"clusters: expected some of {n_values} for each word")
        return cls(keys, numpy.ascontiguousarray(numbers))


def find_words(words: sparse.IdMap, orth: Array1d, lower: Array1d) -> Ints1d:
    """The numbers of words as they are written or, if there are none, in lower case; -1 for none.
    `words` has the numbers by hash; orth and lower are the hashes of words. Shapes: (N,)"""
    found = words.find(orth)
    return numpy.where(found < 0, words.find(lower), found)


def read_clusters(path: Union[str, Path]) -> Dict[str, List[str]]:
    """Read the clusters of words.

    path (Union[str, Path]): A file in UTF-8: JSON, an object of words with the number or the path
        of their cluster, or the names of their clusters, as `costner clusters` writes them; or
        lines of the path, the word and more, separated by tabs, as Brown clustering does.
    RETURNS (Dict[str, List[str]]): The clusters of each word: of a path of bits, its prefixes
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
        if wrong := [pair for pair in pairs if not _is_cluster(pair[1])]:
            raise ValueError(f"expected a number or a path for each word, got {wrong[0]}")
    except (OSError, ValueError, IndexError) as error:
        raise ValueError(
            "spacy_costner.Features: clusters: expected JSON of words and clusters, or lines of "
            f"paths and words, in {path}: {error}"
        ) from error
    return {word: _values(cluster) for word, cluster in pairs}


def _is_cluster(value: Any) -> bool:
    if isinstance(value, list) and value:
        return all(isinstance(cluster, str) and cluster for cluster in value)
    return isinstance(value, (int, str)) and not isinstance(value, bool) and value != ""


def _values(cluster: Union[int, str, List[str]]) -> List[str]:
    if isinstance(cluster, list):
        return cluster
    cluster = str(cluster)
    if set(cluster) <= {"0", "1"} and len(cluster) > 1:
        return [*dict.fromkeys(cluster[:size] for size in PREFIXES)]
    return [cluster]


def number_clusters(words: Dict[str, List[str]]) -> Tuple[Clusters, List[str]]:
    """The clusters of words as numbers, and the names of all clusters."""
    names = sorted({name for found in words.values() for name in found})
    number = {name: i for i, name in enumerate(names)}
    width = max((len(found) for found in words.values()), default=1)
    numbers = numpy.full((len(words), width), -1, dtype="int32")
    for row, found in zip(numbers, words.values()):
        row[: len(found)] = [number[name] for name in found]
    keys = numpy.asarray([get_string_id(word) for word in words], dtype="uint64")
    return Clusters(keys, numbers), names


def count_clusters(
    clusters: Clusters, names: Sequence[str], words: Mapping[int, int], lower: Sequence[int]
) -> Dict[str, int]:
    """How often each cluster is in a corpus, if it is.

    words (Mapping[int, int]): How often each word is there, by hash.
    lower (Sequence[int]): The hash of each of them in lower case: see `find_words`.
    """
    orth, n_times = (numpy.asarray([*some], dtype="uint64") for some in (words, words.values()))
    found = find_words(number_keys(clusters.keys), orth, numpy.asarray(lower, dtype="uint64"))
    numbers = clusters.numbers[found[found >= 0]]
    n_times = numpy.repeat(n_times[found >= 0], numbers.shape[1]).reshape(numbers.shape)
    there = numbers >= 0
    counts = numpy.bincount(numbers[there], n_times[there], minlength=len(names))
    return {name: int(n) for name, n in zip(names, counts.tolist()) if n}


def keep_clusters(clusters: Clusters, names: Sequence[str], values: Sequence[str]) -> Clusters:
    """Number clusters of these names anew. Those whose names are not among the values go, and words
    that then have none."""
    new = {value: i for i, value in enumerate(values)}
    numbers = numpy.asarray([*(new.get(name, -1) for name in names), -1], dtype="int32")
    numbers = numbers[clusters.numbers]  # the last is for none
    is_known = (numbers >= 0).any(axis=1)
    return Clusters(clusters.keys[is_known], numbers[is_known])


def words_of_clusters(clusters: Clusters, strings: StringStore) -> Dict[int, str]:
    """Some words of each cluster, of those that a string store has."""
    found: Dict[int, List[str]] = defaultdict(list)
    for key, numbers in zip(clusters.keys.tolist(), clusters.numbers.tolist()):
        for number in numbers if key in strings else ():
            if number >= 0 and len(found[number]) < N_SHOWN:
                found[number].append(strings[key])
    return defaultdict(str, {number: " ".join(words) for number, words in found.items()})


def cluster_vectors(
    vocab: Vocab, sizes: Sequence[int], seed: int = 0
) -> Tuple[Clusters, List[str]]:
    """Cluster the words that have a vector, into each of some numbers of clusters.

    RETURNS (Tuple[Clusters, List[str]]): The cluster of each word for each size, and the names of
        all clusters, such as "64:12".
    RAISES (ValueError): If there are no vectors with words.
    """
    vectors, numbers = vocab.vectors, []
    names: List[str] = []
    keys = numpy.asarray([key for key, row in vectors.key2row.items() if row >= 0], dtype="uint64")
    if not (len(keys) and vectors.size):
        raise ValueError(
            "spacy_costner.Features: vectors: expected static vectors of words in the pipeline, "
            "as initialize.vectors has, there are none"
        )
    rows = [vectors.key2row[key] for key in keys.tolist()]
    points = to_unit_length(to_numpy(vectors.data)[rows])
    for size in sizes:
        numbers.append(k_means(points, size, seed=seed) + len(names))
        names += [f"{size}:{i}" for i in range(size)]
    return Clusters(keys, numpy.stack(numbers, axis=1).astype("int32")), names


def k_means(points: Floats2d, n_clusters: int, *, seed: int = 0) -> Ints1d:
    """Cluster points of unit length by the angle between them (spherical k-means).

    points (Floats2d): Shape: (D, W)
    n_clusters (int): The number of clusters. Fewer are used if there are fewer points.
    seed (int): The seed of the first centres, which are points.
    RETURNS (Ints1d): The cluster of each point. Shape: (D,)

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
    parts = [
        (points[i : i + CHUNK] @ centres.T).argmax(axis=1) for i in range(0, len(points), CHUNK)
    ]
    return numpy.concatenate(parts)


def to_unit_length(rows: Floats2d) -> Floats2d:
    """Rows divided by their length; those of 0 stay so."""
    lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / numpy.where(lengths, lengths, 1)).astype("float32")
