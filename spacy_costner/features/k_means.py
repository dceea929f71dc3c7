"""Clusters of words by the k-means of static vectors."""

from typing import List, Sequence, Tuple

import numpy
from spacy.vocab import Vocab
from thinc.api import to_numpy
from thinc.types import Floats2d, Ints1d

from .clusters import Clusters

N_ITER = 15
PER_CLUSTER = 50
"""Centres are learned from at most this number of words for each."""

CHUNK = 1 << 14
"""Words whose distances are computed at a time."""


def cluster_vectors(
    vocab: Vocab, sizes: Sequence[int], seed: int = 0
) -> Tuple[Clusters, List[str]]:
    """Cluster the words that have a vector.

    vocab (Vocab): The vocab with the vectors.
    sizes (Sequence[int]): Numbers of clusters.
    seed (int): The seed of the first centres.
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
