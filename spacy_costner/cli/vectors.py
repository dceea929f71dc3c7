"""Learn word vectors from raw text and print words with similar vectors."""

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ..readers import ReadOptions
from ..workflows.vectors import LearnedVectors, learn_vectors
from .command_line import command, reads_corpora
from .output import JsonOption, errors_shown, print_result


@command(
    learn_vectors,
    options={
        "lang": Option("--lang", "-l"),
        "dim": Option(
            "--dim", help="Length of the vectors. It is less if there are fewer words", min=1
        ),
        "min_count": Option("--min-count", help="Minimum frequency of a word", min=1),
    },
    without=("reading", "corpora"),
)
@reads_corpora
def vectors_cli(
    run: partial[LearnedVectors],  # `learn_vectors` with its options set by `command`
    raw_paths: Annotated[
        list[Path],
        Argument(
            metavar="RAW...",
            help="Text, a sentence or paragraph per line; corpora: see `costner convert`; folders "
            "of these; or - for standard input",
            exists=True,
            allow_dash=True,
        ),
    ],
    output_path: Annotated[
        Path, Option("--output", "-o", help="Output folder for the pipeline with the vectors")
    ],
    *,
    reading: ReadOptions,
    print_json: JsonOption = False,
) -> None:
    """
    Learn static word vectors from unannotated text: words that occur in similar contexts get
    similar vectors. Use them with `fit --vectors FOLDER`, or in any spaCy config with
    include_static_vectors. Entities of annotated corpora are not used. Requires SciPy: pip install
    'spacy-costner[vectors]'.
    """
    with errors_shown():
        learned = run(raw_paths, output_path)
    print_result(learned, learned.as_text(), print_json, output_path)
