"""`python -m spacy costner convert`."""

from pathlib import Path
from typing import Annotated, Optional

from typer import Argument, Option

from ..commands.convert import convert, describe_conversion
from ..readers import ReadOptions
from .output import JsonOption, errors_shown, print_result


def convert_cli(
    input_path: Annotated[Path, Argument(help="Annotated corpus: a file or folder", exists=True)],
    output_path: Annotated[
        Path, Argument(help="Output file: .spacy, .jsonl or, for columns, .conll, .iob or .tsv")
    ],
    n_sents: Annotated[
        Optional[int],
        Option("--n-sents", "-n", help="Sentences per doc, 0 for all of a file", min=0),
    ] = None,
    column: Annotated[
        Optional[int],
        Option("--column", help="Column of the tags, from 2 or from -1", show_default="the last"),
    ] = None,
    tag_names: Annotated[
        Optional[str], Option("--tag-names", help="Comma-separated names of tags that are numbers")
    ] = None,
    incorrect_spans_key: Annotated[
        Optional[str], Option("--incorrect-spans-key", help="Span group for rejected spans")
    ] = None,
    doc_id: Annotated[
        Optional[str],
        Option("--doc-id", help="Key of the id of the document that a text or sentence is from"),
    ] = None,
    lang: Annotated[
        str, Option("--lang", "-l", help="Language of the tokenizer for texts without tokens")
    ] = "xx",
    print_json: JsonOption = False,
) -> None:
    """
    Convert an annotated corpus, and show what it contains. The format is found from the content:
    .spacy; CoNLL columns in any tag scheme; JSONL of Prodigy, doccano and Hugging Face; Label
    Studio's JSON export; a Hugging Face dataset on disk; a folder of these. All commands, and
    configs with the reader spacy_costner.read.v1, read these formats without conversion, too.
    """
    names = None if tag_names is None else [name.strip() for name in tag_names.split(",")]
    options = ReadOptions(n_sents, column, names, incorrect_spans_key, doc_id)
    with errors_shown():
        found = convert(input_path, output_path, options=options, lang=lang)
    of_files = {name: getattr(found.found, name) for name in ("formats", "schemes", "problems")}
    result = {**found._asdict(), "found": of_files}
    print_result(result, describe_conversion(found), print_json, output_path)
