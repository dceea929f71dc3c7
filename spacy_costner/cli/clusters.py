"""The command `clusters`."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import spacy
from typer import Argument, Option

from ..analysis.clusters import SIZES, learn_clusters, scipy_sparse
from ..progress import progress
from ..readers import read_texts
from ..saving import check_file, save_text
from .command_line import command
from .options import LangOption
from .output import JsonOption, errors_shown, print_result


@command(
    learn_clusters,
    options={"min_count": Option("--min-count", min=1), "dim": Option("--dim", min=1)},
    without=("sizes",),
)
def clusters_cli(
    run: partial[Any],
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
        n_tokens, learned = run(bar, sizes=numbers)
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
