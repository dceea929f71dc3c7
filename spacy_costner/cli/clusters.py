"""Learn clusters of words from text."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy
import spacy
from thinc.types import Floats2d, Ints1d
from typer import Argument, Option

from ..features.clusters import k_means, to_unit_length
from ..progress import progress
from ..readers import read_texts
from ..saving import check_file
from ..validation import require
from .options import LangOption, options_of
from .output import JsonOption, errors_shown, print_result, save_text

SIZES = (64, 256, 1024)
WINDOW = 2
"""Contexts are the words up to this number of tokens to either side."""

MAX_CONTEXTS = 20_000
"""Of the most frequent words."""

SMOOTHING = 0.75
"""The power of the counts of contexts."""

POWER = 0.5
"""The power of the singular values."""

CHUNK = 1 << 22
"""Tokens whose contexts are counted at a time."""


def learn_clusters(
    sentences: Iterable[Sequence[str]],
    *,
    sizes: Sequence[int] = SIZES,
    min_count: Annotated[
        int, Option("--min-count", help="Minimum number of times that a word occurs", min=1)
    ] = 3,
    dim: Annotated[int, Option("--dim", help="Length of the vectors of words", min=1)] = 100,
    seed: Annotated[int, Option("--seed", help="Random seed")] = 0,
) -> tuple[int, dict[str, list[str]]]:
    """Learn clusters of words that occur beside the same words: spherical k-means of the vectors
    that `embed` makes of them.

    sentences (Iterable[Sequence[str]]): The words of each sentence.
    sizes (Sequence[int]): Numbers of clusters.
    seed (int): The seed of the singular value decomposition and of the first centres.
    RETURNS (tuple[int, dict[str, list[str]]]): The number of tokens, and the names of the clusters
        of each word, one for each size, from the most frequent word.
    RAISES (ValueError): If too few words are left.
    RAISES (ImportError): If SciPy is missing.
    """
    words, tokens, n_tokens = number_words(sentences, min_count)
    if len(words) <= dim:
        raise ValueError(
            f"clusters: expected more than {dim} words that occur {min_count} times or more, got "
            f"{len(words)}: use more text, or lower dim or min_count"
        )
    vectors = embed(tokens, len(words), dim=dim, seed=seed)
    names = [[f"{size}:{i}" for i in k_means(vectors, size, seed=seed)] for size in sizes]
    return n_tokens, dict(zip(words, map(list, zip(*names))))


@options_of(learn_clusters)
def clusters_cli(
    input_paths: Annotated[
        list[Path],
        Argument(help="Text, a sentence per line, or corpora: see `costner convert`", exists=True),
    ],
    output_path: Annotated[Path, Option("--output", "-o", help="Output file: JSON")],
    sizes: Annotated[
        str, Option("--sizes", "-s", help="Comma-separated numbers of clusters")
    ] = ",".join(map(str, SIZES)),
    *,
    lang: LangOption = "xx",
    print_json: JsonOption = False,
    **options: Any,
) -> None:
    """
    Learn clusters of words from text, as features of a linear model: words that occur beside
    the same words are in the same cluster. Entities of annotated corpora are not used.
    Requires SciPy: pip install 'spacy-costner[clusters]'.
    """
    with errors_shown():
        numbers = [int(size) if size.strip().isdecimal() else 0 for size in sizes.split(",")]
        if not all(numbers):
            raise ValueError(f"clusters: sizes: expected numbers such as 64,256, got {sizes!r}")
        scipy_sparse()
        check_file(output_path, input_paths)
        nlp = spacy.blank(lang)
        sentences = (
            [token.text for token in span if not token.is_space]
            for path in input_paths
            for doc in read_texts(nlp, path)
            for span in (doc.sents if doc.has_annotation("SENT_START") else [doc[:]])
        )
        bar = progress(sentences, desc="clusters", unit="sent")
        n_tokens, learned = learn_clusters(bar, sizes=numbers, **options)
        save_text(output_path, json.dumps(learned, ensure_ascii=False))
    # Of each size some clusters: of words at equal distances in the list, from the most frequent.
    examples: dict[int, list[list[str]]] = {}
    for i, size in enumerate(numbers):
        some = [names[i] for names in list(learned.values())[:: max(len(learned) // 4, 1)]]
        examples[size] = [
            [word for word, names in learned.items() if names[i] == name][:6]
            for name in dict.fromkeys(some)
        ]
    result = {"tokens": n_tokens, "words": len(learned), "examples": examples}
    lines = [f"{size:>6}  {' '.join(words)}" for size in examples for words in examples[size]]
    text = f"{n_tokens:,} tokens, {len(learned):,} words in clusters\n\n"
    text += "\n".join([f"{'of':>6}  examples", *lines, ""])
    print_result({**result, "path": output_path}, text, print_json, output_path)


def number_words(
    sentences: Iterable[Sequence[str]], min_count: int
) -> tuple[list[str], Ints1d, int]:
    """Number words from the most frequent: the words; the number of each token, with -1 for rare
    words and, `WINDOW` times, before and after each sentence; and the number of tokens."""
    ids: dict[str, int] = defaultdict(lambda: len(ids))
    gap = [-1] * WINDOW
    parts = [numpy.asarray(gap, dtype="int32")]
    parts += [numpy.asarray([*map(ids.__getitem__, s), *gap], dtype="int32") for s in sentences]
    tokens, names = numpy.concatenate(parts), [*ids]
    n_times = numpy.bincount(tokens[tokens >= 0], minlength=len(names))
    order = numpy.argsort(-n_times, kind="stable")
    order = order[n_times[order] >= min_count]
    new = numpy.full(len(names) + 1, -1, dtype="int32")  # the last is for -1
    new[order] = numpy.arange(len(order))
    return [names[i] for i in order], new[tokens], int(n_times.sum())


def embed(tokens: Ints1d, n_words: int, *, dim: int, seed: int) -> Floats2d:
    """Make vectors of words from n(w, c), how often word w has context c: a frequent word at an
    offset of up to `WINDOW`.

        M[w, c] = max(0, log(n(w, c) sum_c' n(c')^.75 / (n(w) n(c)^.75)))    M ~ U S V'    U S^.5

    tokens (Ints1d): The number of each token: see `number_words`. Shape: (N,)
    RETURNS (Floats2d): The vectors of D words, of unit length. W is `dim`. Shape: (D, W)

    Levy, Goldberg & Dagan (2015), Improving distributional similarity with lessons learned from
    word embeddings: smoothed positive PMI, and eigenvalue weighting.
    """
    shape = (n_words, 2 * WINDOW * min(n_words, MAX_CONTEXTS))
    n_times = scipy_sparse().csr_matrix(shape)
    for begin in range(0, len(tokens), CHUNK):
        chunk = tokens[max(begin - WINDOW, 0) : begin + CHUNK + WINDOW]
        n_times += count_contexts(chunk, shape)
    of_word, of_context = (numpy.asarray(n_times.sum(axis=i)).ravel() for i in (1, 0))
    of_context = of_context**SMOOTHING
    pmi = n_times.tocoo()
    pmi.data = numpy.log(pmi.data * of_context.sum() / (of_word[pmi.row] * of_context[pmi.col]))
    pmi.data = numpy.maximum(pmi.data, 0)
    start = numpy.random.default_rng(seed).normal(size=min(pmi.shape))
    left, values, _ = scipy_sparse().linalg.svds(pmi.tocsr(), k=dim, v0=start)
    return to_unit_length(left * values**POWER)


def count_contexts(tokens: Ints1d, shape: tuple[int, int]) -> Any:
    """Count the contexts of the tokens between the first and the last `WINDOW`: see `embed`. The
    shape of the result, `shape`, has the numbers of words and of contexts."""
    words, n_contexts = tokens[WINDOW:-WINDOW], shape[1] // (2 * WINDOW)
    rows, columns = [], []
    for i in range(2 * WINDOW + 1):
        there = tokens[i : i + len(words)]
        counts = (words >= 0) & (there >= 0) & (there < n_contexts) & (i != WINDOW)
        rows.append(words[counts])
        columns.append(there[counts] + (i - (i > WINDOW)) * n_contexts)
    places = numpy.concatenate(rows), numpy.concatenate(columns)
    return scipy_sparse().csr_matrix((numpy.ones(len(places[0])), places), shape=shape)


def scipy_sparse() -> Any:
    """The module `scipy.sparse`, with `linalg`."""
    missing = "clusters: expected SciPy, it is not installed"
    require("scipy.sparse.linalg", "clusters", missing)
    return require("scipy.sparse", "clusters", missing)
