"""Convert annotated corpora of any format to .spacy, JSONL or columns."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import spacy
from spacy.tokens import Doc, DocBin
from typer import Argument, Option

from ..readers import CorpusInfo, ReadOptions, doc_to_task, read_docs, write_columns, write_tasks
from ..saving import check_file, save_file
from ..spans import is_missing
from .options import LangOption
from .output import JsonOption, errors_shown, print_result

SUFFIXES = (".spacy", ".jsonl", ".conll", ".iob", ".tsv")
"""Of output files. The last three are columns."""


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


def convert(
    input_path: Path, output_path: Path, *, lang: str = "xx", **options: Any
) -> dict[str, Any]:
    """Read a corpus and write it in the format of the output's suffix.

    lang (str): The language whose tokenizer is used for texts without tokens.
    **options (Any): See `readers.ReadOptions`.
    RETURNS (dict[str, Any]): The numbers of "docs", "sentences", "tokens", of entities of each of
        the "labels", and of tokens without annotation, "missing"; "found": the formats, schemes and
        problems of the files.
    RAISES (ValueError): If there is no such output format, or a file can't be read.
    """
    check_suffix(output_path)
    if (key := options.get("spans_key")) and output_path.suffix not in SUFFIXES[:2]:
        raise ValueError(f"{output_path}: expected .spacy or .jsonl with --spans-key, not columns")
    check_file(output_path, [input_path])
    info = CorpusInfo()
    docs = list(read_docs(spacy.blank(lang), input_path, ReadOptions(**options), info))
    if not docs:
        raise ValueError(f"{input_path}: expected annotated docs, got none")
    if n_left_out := write_corpus(output_path, docs, key):
        message = "white-space tokens can't be written in columns: they are left out"
        info.add_problem(message, None, more=n_left_out - 1)
    spans = (span for doc in docs for span in (doc.spans.get(key, ()) if key else doc.ents))
    labels = Counter(span.label_ for span in spans)
    missing = (is_missing(doc, key) if key else doc.to_array("ENT_IOB") == 0 for doc in docs)
    return {
        "found": {name: getattr(info, name) for name in ("formats", "schemes", "problems")},
        "docs": len(docs),
        # A doc without sentence starts counts as one sentence.
        "sentences": sum(1 + int((doc.to_array("SENT_START")[1:] == 1).sum()) for doc in docs),
        "tokens": sum(map(len, docs)),
        "labels": dict(sorted(labels.items())),
        "missing": sum(int(each.sum()) for each in missing),
    }


def check_suffix(path: Path) -> None:
    """Check that the output file has a format."""
    if path.suffix not in SUFFIXES:
        expected, got = ", ".join(SUFFIXES), path.suffix or "no suffix"
        raise ValueError(f"{path}: expected a name that ends in {expected}, got {got!r}")


def write_corpus(path: Path, docs: Sequence[Doc], spans_key: str | None = None) -> int:
    """Write docs in the format of the file's suffix. Returns the number of white-space tokens that
    the format can't have."""
    left_out = 0

    def write(new: Path) -> None:
        nonlocal left_out
        if path.suffix == ".spacy":
            DocBin(docs=docs).to_disk(new)
        elif path.suffix == ".jsonl":
            write_tasks(new, (doc_to_task(doc, spans_key=spans_key) for doc in docs))
        else:
            left_out = write_columns(new, docs)

    save_file(path, write)
    return left_out


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
