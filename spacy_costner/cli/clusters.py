"""`python -m spacy costner clusters`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Dict, List

import numpy
from typer import Argument, Option

from ..commands.clusters import SIZES, Learned, clusters
from ..progress import progress
from .output import JsonOption, errors_shown, print_result

N_CLUSTERS, N_WORDS = 4, 6
"""Clusters that are shown of each number of clusters, and words of each."""


def clusters_cli(
    input_paths: Annotated[
        List[Path],
        Argument(help="Text, a sentence per line, or corpora: see `costner convert`", exists=True),
    ],
    output_path: Annotated[Path, Option("--output", "-o", help="Output file: JSON")],
    sizes: Annotated[
        str, Option("--sizes", "-s", help="Comma-separated numbers of clusters")
    ] = ",".join(map(str, SIZES)),
    min_count: Annotated[
        int, Option("--min-count", help="Minimum number of times that a word occurs", min=1)
    ] = 3,
    dim: Annotated[int, Option("--dim", help="Length of the vectors of words", min=1)] = 100,
    seed: Annotated[int, Option("--seed", help="Random seed")] = 0,
    lang: Annotated[
        str, Option("--lang", "-l", help="Language of the tokenizer for texts without tokens")
    ] = "xx",
    print_json: JsonOption = False,
) -> None:
    """
    Learn clusters of words from text, as features of a linear model: words that occur beside
    the same words are in the same cluster. Entities of annotated corpora are not used.
    Requires SciPy: pip install 'spacy-costner[fit]'.
    """
    with errors_shown():
        if not all(size.strip().isdecimal() for size in sizes.split(",")):
            raise ValueError(f"clusters: sizes: expected numbers such as 64,256, got {sizes!r}")
        numbers = [int(size) for size in sizes.split(",")]
        settings = {"sizes": numbers, "min_count": min_count, "dim": dim, "seed": seed}
        watch = partial(progress, desc="clusters", unit="sent")
        learned = clusters(input_paths, output_path, lang=lang, watch=watch, **settings)
    found = summary(learned)
    rows = [(size, " ".join(words)) for size, some in found["examples"].items() for words in some]
    lines = [f"{size:>6}  {words}" for size, words in [("of", "examples"), *rows]]
    counts = f"{learned.n_tokens:,} tokens, {len(learned.words):,} words in clusters\n"
    print_result(
        {**found, "path": output_path}, "\n".join([counts, *lines, ""]), print_json, output_path
    )


def summary(learned: Learned) -> Dict[str, Any]:
    """The numbers of tokens and words, and the most frequent words of some clusters: those of
    words at equal distances in the list of all words, from the most frequent."""
    examples: Dict[int, List[List[str]]] = {}
    for size, found in learned.numbers.items():
        some = dict.fromkeys(found[:: max(len(found) // N_CLUSTERS, 1)].tolist())
        members = [numpy.flatnonzero(found == i)[:N_WORDS] for i in some]
        examples[size] = [[learned.words[i] for i in own] for own in members]
    return {"tokens": learned.n_tokens, "words": len(learned.words), "examples": examples}
