"""Convert a corpus, and print what is in it.

The command gets `run`: the function `convert` with the values of all options that the command
doesn't declare itself. See `command_line.command`.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ..analysis.conversion import Converted, convert
from .command_line import command
from .output import JsonOption, errors_shown, print_result


@command(
    convert,
    options={
        "n_sents": Option("--n-sents", "-n", min=0),
        "column": Option(show_default="the last"),
        "lang": Option("--lang", "-l"),
    },
    without=("tag_names",),
)
def convert_cli(
    run: partial[Converted],  # `convert` with the options that `command` adds
    input_path: Annotated[Path, Argument(help="Annotated corpus: a file or folder", exists=True)],
    output_path: Annotated[
        Path, Argument(help="Output file: .spacy, .jsonl or, for columns, .conll, .iob or .tsv")
    ],
    *,
    tag_names: Annotated[
        str | None, Option("--tag-names", help="Comma-separated names of tags that are numbers")
    ] = None,
    print_json: JsonOption = False,
) -> None:
    """
    Convert an annotated corpus, and show what it contains. The format is found from the content:
    .spacy; CoNLL columns in any tag scheme; JSONL of Prodigy, doccano and Hugging Face; Label
    Studio's JSON export; brat standoff; WebAnno TSV; training data of GLiNER, Rasa and spaCy 2;
    CSV; a Hugging Face dataset on disk; a folder of these. All commands, and configs with the
    reader spacy_costner.read.v1, read these formats without conversion, too.
    """
    names = None
    if tag_names:
        names = [name.strip() for name in tag_names.split(",")]
    with errors_shown():
        converted = run(input_path, output_path, tag_names=names)
    print_result(converted, converted_text(converted), print_json, output_path)


def converted_text(converted: Converted) -> str:
    """Say what was read: the formats of the files, the size of the corpus, the number of entities
    of each label, and what couldn't be read as it stands."""
    forms: list[str] = []
    for form, n_files in converted.found.formats.items():
        if n_files > 1:
            form = f"{n_files} x {form}"
        forms.append(form)
    forms += [f"{scheme} tags" for scheme in converted.found.schemes]
    lines = [
        ", ".join(forms),
        f"{converted.docs:,} docs",
        f"{converted.sentences:,} sentences",
        f"{converted.tokens:,} tokens",
        f"{sum(converted.labels.values()):,} entities",
    ]
    lines += [f"  {label}: {n_spans:,}" for label, n_spans in converted.labels.items()]
    if converted.missing:
        lines.append(f"{converted.missing:,} tokens without annotation")
    lines += [f"warning: {problem.as_text()}" for problem in converted.found.problems]
    return "\n".join(lines)
