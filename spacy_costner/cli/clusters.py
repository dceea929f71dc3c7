"""Learn clusters, and print some of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import spacy
from spacy.language import Language
from typer import Argument, Option

from ..analysis.clusters import SIZES, learn_clusters, scipy_sparse
from ..progress import progress
from ..readers import read_texts
from ..saving import check_file, save_text
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
    Requires SciPy: pip install 'spacy-costner[clusters]'.
    """
    with errors_shown():
        numbers = read_sizes(sizes)
        scipy_sparse()  # before texts are read, which would be in vain
        check_file(output_path, input_paths)
        nlp = spacy.blank(lang)
        sentences = progress(read_sentences(nlp, input_paths), desc="clusters", unit="sent")
        n_tokens, names = run(sentences, sizes=numbers)
        save_text(output_path, json.dumps(names, ensure_ascii=False))
    examples = {size: choose_examples(names, i) for i, size in enumerate(numbers)}
    lines = [f"{n_tokens:,} tokens, {len(names):,} words in clusters", "", f"{'of':>6}  examples"]
    for size, clusters in examples.items():
        lines += [f"{size:>6}  {' '.join(words)}" for words in clusters]
    result = {
        "tokens": n_tokens,
        "words": len(names),
        "examples": examples,
        "path": output_path,
    }
    print_result(result, "\n".join([*lines, ""]), print_json, output_path)


def read_sizes(text: str) -> list[int]:
    """Read numbers of clusters, separated by commas."""
    sizes = [int(size) if size.strip().isdecimal() else 0 for size in text.split(",")]
    if 0 in sizes:
        raise ValueError(f"clusters: sizes: expected numbers such as 64,256, got {text!r}")
    return sizes


def read_sentences(nlp: Language, paths: Sequence[Path]) -> Iterator[list[str]]:
    """The words of each sentence. A doc without sentence starts is one sentence."""
    for path in paths:
        for doc in read_texts(nlp, path):
            spans = doc.sents if doc.has_annotation("SENT_START") else [doc[:]]
            for span in spans:
                yield [token.text for token in span if not token.is_space]


def choose_examples(names: Mapping[str, Sequence[str]], i: int) -> list[list[str]]:
    """The first words of some clusters of a size, the i-th: those of words at equal distances in
    the list, from the most frequent."""
    step = max(len(names) // 4, 1)
    shown = dict.fromkeys(clusters[i] for clusters in list(names.values())[::step])
    examples: list[list[str]] = []
    for name in shown:
        members = [word for word, clusters in names.items() if clusters[i] == name]
        examples.append(members[:N_WORDS])
    return examples
