"""The command `convert`."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ..analysis.conversion import convert
from .options import LangOption
from .output import JsonOption, errors_shown, print_result


def convert_cli(
    input_path: Annotated[Path, Argument(help="Annotated corpus: a file or folder", exists=True)],
    output_path: Annotated[
        Path, Argument(help="Output file: .spacy, .jsonl or, for columns, .conll, .iob or .tsv")
    ],
    n_sents: Annotated[
        int | None,
        Option("--n-sents", "-n", help="Sentences per doc, 0 for all of a file", min=0),
    ] = None,
    column: Annotated[
        int | None,
        Option("--column", help="Column of the tags, from 2 or from -1", show_default="the last"),
    ] = None,
    tag_names: Annotated[
        str | None, Option("--tag-names", help="Comma-separated names of tags that are numbers")
    ] = None,
    incorrect_spans_key: Annotated[
        str | None, Option("--incorrect-spans-key", help="Span group for rejected spans")
    ] = None,
    spans_key: Annotated[
        str | None,
        Option("--spans-key", help="Span group for entities, which may overlap, and not doc.ents"),
    ] = None,
    doc_id: Annotated[
        str | None,
        Option("--doc-id", help="Key of the id of the document that a text or sentence is from"),
    ] = None,
    lang: LangOption = "xx",
    print_json: JsonOption = False,
) -> None:
    """
    Convert an annotated corpus, and show what it contains. The format is found from the content:
    .spacy; CoNLL columns in any tag scheme; JSONL of Prodigy, doccano and Hugging Face; Label
    Studio's JSON export; a Hugging Face dataset on disk; a folder of these. All commands, and
    configs with the reader spacy_costner.read.v1, read these formats without conversion, too.
    """
    names = [name.strip() for name in tag_names.split(",")] if tag_names else None
    keys = {"incorrect_spans_key": incorrect_spans_key, "spans_key": spans_key, "doc_id": doc_id}
    options: Any = {"n_sents": n_sents, "column": column, "tag_names": names, **keys}
    with errors_shown():
        result = convert(input_path, output_path, lang=lang, **options)
    print_result(result, describe(result), print_json, output_path)


def describe(result: dict[str, Any]) -> str:
    """Describe what a corpus is."""
    formats, schemes, problems = result["found"].values()
    files = [f"{n} x {form}" if n > 1 else form for form, n in formats.items()]
    lines = [", ".join([*files, *(f"{scheme} tags" for scheme in schemes)])]
    lines += [f"{result[name]:,} {name}" for name in ("docs", "sentences", "tokens")]
    lines.append(f"{sum(result['labels'].values()):,} entities")
    lines += [f"  {label}: {n:,}" for label, n in result["labels"].items()]
    if result["missing"]:
        lines.append(f"{result['missing']:,} tokens without annotation")
    return "\n".join([*lines, *(f"warning: {problem.describe()}" for problem in problems)])
