"""Learn clusters, and print some of them."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import spacy
from spacy.language import Language
from spacy.tokens import Span
from typer import Argument, Option

from ..analysis.clusters import SIZES, learn_clusters
from ..progress import progress
from ..readers import read_texts
from ..saving import check_file, save_text
from ..training.word_vectors import require_scipy
from .command_line import command
from .options import LangOption
from .output import JsonOption, errors_shown, print_result

N_WORDS = 6
"""Words of a cluster that are printed."""


@command(
    learn_clusters,
    options={"min_count": Option("--min-count", min=1), "dim": Option("--dim", min=1)},
    without=("sizes",),
)
def clusters_cli(
    run: partial[tuple[int, dict[str, list[str]]]],
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
) -> None:
    """
    Learn clusters of words from text, as features of a linear model: words that occur beside
    the same words are in the same cluster. Entities of annotated corpora are not used.
    Requires SciPy: pip install 'spacy-costner[vectors]'.
    """
    with errors_shown():
        numbers_of_clusters = read_sizes(sizes)
        require_scipy()  # an error if SciPy is missing: before all texts are read in vain
        check_file(output_path, input_paths)
        nlp = spacy.blank(lang)
        sentences = progress(read_sentences(nlp, input_paths), desc="clusters", unit="sent")
        n_tokens, clusters_of_word = run(sentences, sizes=numbers_of_clusters)
        save_text(output_path, json.dumps(clusters_of_word, ensure_ascii=False))
    examples: dict[int, list[list[str]]] = {}
    for i, n_clusters in enumerate(numbers_of_clusters):
        cluster_of_word = {word: names[i] for word, names in clusters_of_word.items()}
        examples[n_clusters] = choose_examples(cluster_of_word)
    result = {
        "tokens": n_tokens,
        "words": len(clusters_of_word),
        "examples": examples,
        "path": output_path,
    }
    text = clusters_text(n_tokens, len(clusters_of_word), examples)
    print_result(result, text, print_json, output_path)


def read_sizes(text: str) -> list[int]:
    """Read numbers of clusters, separated by commas."""
    sizes: list[int] = []
    for part in text.split(","):
        size = part.strip()
        if not size.isdecimal() or int(size) == 0:
            raise ValueError(f"clusters: sizes: expected numbers such as 64,256, got {text!r}")
        sizes.append(int(size))
    return sizes


def read_sentences(nlp: Language, paths: Sequence[Path]) -> Iterator[list[str]]:
    """The words of each sentence. A doc without sentence starts is one sentence."""
    for path in paths:
        for doc in read_texts(nlp, path):
            sentences: Iterable[Span] = [doc[:]]
            if doc.has_annotation("SENT_START"):
                sentences = doc.sents
            for sentence in sentences:
                yield [token.text for token in sentence if not token.is_space]


def choose_examples(cluster_of_word: Mapping[str, str]) -> list[list[str]]:
    """Choose about four clusters to show, of frequent and of rare words: the first words of each.

    cluster_of_word (Mapping[str, str]): The name of the cluster of each word, from the most
        frequent word.
    """
    words = list(cluster_of_word)
    words_at_equal_distances = words[:: max(len(words) // 4, 1)]
    # Without repetition: two of these words may be in the same cluster.
    clusters = dict.fromkeys(cluster_of_word[word] for word in words_at_equal_distances)
    examples: list[list[str]] = []
    for cluster in clusters:
        members = [word for word in words if cluster_of_word[word] == cluster]
        examples.append(members[:N_WORDS])
    return examples


def clusters_text(n_tokens: int, n_words: int, examples: Mapping[int, Sequence[list[str]]]) -> str:
    """How much was read, and for each number of clusters the words of its examples."""
    lines = [f"{n_tokens:,} tokens, {n_words:,} words in clusters", "", f"{'of':>6}  examples"]
    for n_clusters, clusters in examples.items():
        for words in clusters:
            lines.append(f"{n_clusters:>6}  {' '.join(words)}")
    return "\n".join([*lines, ""])
