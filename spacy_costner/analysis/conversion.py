"""Convert annotated corpora of any format to .spacy, JSONL or columns."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import spacy
from spacy.tokens import Doc, DocBin

from ..readers import CorpusInfo, ReadOptions, doc_to_task, read_docs, write_columns, write_tasks
from ..saving import check_file, save_file
from ..spans import is_missing

SUFFIXES = (".spacy", ".jsonl", ".conll", ".iob", ".tsv")
"""Of output files. The last three are columns."""


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
