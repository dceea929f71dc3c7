"""Convert a corpus and print a summary of its contents.

The decorator `command` adds the options of `convert`. `run` is `convert` with these options set.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ..readers import ReadOptions
from ..readers.context import MAX_LABELS
from ..readers.conversion import Converted, convert
from .command_line import command, reads_corpora
from .output import LANGUAGE_OPTION, JsonOption, errors_shown, print_result


@command(
    convert,
    options={
        "n_sents": Option("--n-sents", "-n", help="Sentences per doc. 0: one doc per file", min=0),
        "spans_key": Option(
            "--spans-key",
            help="Span group for entities, which may overlap, instead of doc.ents",
        ),
        "lang": Option("--lang", "-l"),
    },
    without=("token_column", "tag_column", "scheme", "text_key", "conflicts", "tag_names"),
)
@reads_corpora
def convert_cli(
    run: partial[Converted],  # `convert` with its options set by `command`
    input_path: Annotated[Path, Argument(help="Annotated corpus: a file or folder", exists=True)],
    output_path: Annotated[
        Path, Argument(help="Output file: .spacy, .jsonl or, for columns, .conll, .iob or .tsv")
    ],
    *,
    reading: ReadOptions,
    tag_names: Annotated[
        str | None, Option("--tag-names", help="Comma-separated names of tags, if tags are numbers")
    ] = None,
    print_json: JsonOption = False,
) -> None:
    """
    Convert an annotated corpus, and show what it contains. The format is detected from the content:
    .spacy; CoNLL columns in any tag scheme; JSONL of Prodigy, doccano and Hugging Face; Label
    Studio's JSON export; brat standoff; WebAnno TSV; training data of GLiNER, Rasa and spaCy 2;
    CSV; a Hugging Face dataset on disk; or a folder of these. All commands, and configs with the
    reader spacy_costner.read.v1, also read these formats directly.
    """
    names = None
    if tag_names:
        names = [name.strip() for name in tag_names.split(",")]
    with errors_shown(language_setting=LANGUAGE_OPTION):
        converted = run(
            input_path,
            output_path,
            token_column=reading.token_column,
            tag_column=reading.tag_column,
            scheme=reading.scheme,
            text_key=reading.text_key,
            conflicts=reading.conflicts,
            tag_names=names,
        )
    text = converted_text(converted, input_path.name)
    print_result(converted, text, print_json, output_path)


def converted_text(converted: Converted, name: str) -> str:
    """Format a summary of the corpus as text: how it was read, its size, and any problems."""
    corpus = converted.corpus
    lines = [
        corpus.as_text(name),
        f"{converted.sentences:,} sentences",
        f"{converted.tokens:,} tokens",
    ]
    if converted.missing:
        lines.append(f"{converted.missing:,} tokens without annotation")
    if len(corpus.labels) > MAX_LABELS:
        lines += [f"  {label}: {n_spans:,}" for label, n_spans in corpus.labels.items()]
    lines += [f"warning: {problem.as_text()}" for problem in corpus.problems]
    return "\n".join(lines)
