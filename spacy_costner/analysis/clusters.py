"""Learn clusters of words from text: words that occur beside the same words are alike."""

from collections.abc import Iterable, Sequence

from ..features.clusters import k_means
from ..training.word_vectors import learn_word_vectors

SIZES = (64, 256, 1024)


def learn_clusters(
    sentences: Iterable[Sequence[str]],
    *,
    sizes: Sequence[int] = SIZES,
    min_count: int = 3,
    dim: int = 100,
    seed: int = 0,
) -> tuple[int, dict[str, list[str]]]:
    """Learn clusters of words that occur beside the same words: spherical k-means of the vectors
    that `learn_word_vectors` makes of them.

    sentences (Iterable[Sequence[str]]): The words of each sentence.
    sizes (Sequence[int]): Numbers of clusters.
    min_count (int): Minimum number of times that a word occurs.
    dim (int): Length of the vectors of words.
    seed (int): Seed of the singular value decomposition and of the first centres.
    RETURNS (tuple[int, dict[str, list[str]]]): The number of tokens, and the names of the clusters
        of each word, one for each size, from the most frequent word.
    RAISES (ValueError): If too few words are left.
    RAISES (ImportError): If SciPy is missing.
    """
    vectors = learn_word_vectors(sentences, dim=dim, min_count=min_count, seed=seed)
    clusters_of_word: dict[str, list[str]] = {word: [] for word in vectors.words}
    for size in sizes:
        cluster_of_row = k_means(vectors.data, size, seed=seed)
        for word, cluster in zip(vectors.words, cluster_of_row):
            clusters_of_word[word].append(f"{size}:{cluster}")
    return vectors.n_tokens, clusters_of_word
