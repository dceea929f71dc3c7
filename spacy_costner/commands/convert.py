"""Convert annotated corpora of any format to .spacy, JSONL or columns."""

from collections import Counter
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Sequence

import spacy
from spacy.tokens import Doc, DocBin

from ..readers import (
    DEFAULTS,
    Found,
    ReadOptions,
    check_options,
    doc_to_task,
    read_docs,
    write_columns,
    write_tasks,
)
from ..saving import check_file, save_file


class Conversion(NamedTuple):
    """A corpus that was read.

    found (Found): Its formats, schemes and problems.
    docs (int): Number of docs.
    sentences (int): Number of sentences. A doc without sentence starts counts as one.
    tokens (int): Number of tokens.
    labels (Dict[str, int]): The number of entities of each label, in alphabetical order.
    missing (int): Number of tokens without annotation.
    """

    found: Found
    docs: int
    sentences: int
    tokens: int
    labels: Dict[str, int]
    missing: int


SPACE_LEFT_OUT = "white-space tokens can't be written in columns: they are left out"


def write_docbin(path: Path, docs: Sequence[Doc]) -> int:
    """Write docs to a .spacy file."""
    DocBin(docs=docs).to_disk(path)
    return 0


def write_jsonl(path: Path, docs: Sequence[Doc]) -> int:
    """Write docs to a JSONL file, in Prodigy's form."""
    write_tasks(path, map(doc_to_task, docs))
    return 0


WRITERS: Dict[str, Callable[[Path, Sequence[Doc]], int]] = {
    ".spacy": write_docbin,
    ".jsonl": write_jsonl,
    ".conll": write_columns,
    ".iob": write_columns,
    ".tsv": write_columns,
}


def convert(
    input_path: Path,
    output_path: Path,
    *,
    options: ReadOptions = DEFAULTS,
    lang: str = "xx",
) -> Conversion:
    """Read a corpus and write it in the format of the output's suffix.

    input_path (Path): A file, a folder, or a Hugging Face dataset on disk.
    output_path (Path): The output file: .spacy, .jsonl, or .conll, .iob or .tsv for columns.
    options (ReadOptions): Choices that the input leaves open.
    lang (str): The language whose tokenizer is used for texts without tokens.
    RETURNS (Conversion): What the corpus is.
    RAISES (ValueError): If there is no such output format, or a file can't be read.
    """
    check_suffix(output_path)
    check_options(options)
    check_file(output_path, [input_path])
    found = Found()
    docs = list(read_docs(spacy.blank(lang), input_path, options, found))
    if not docs:
        raise ValueError(f"{input_path}: expected annotated docs, got none")
    if n_left_out := write_corpus(output_path, docs):
        found.add_problem(SPACE_LEFT_OUT, None, more=n_left_out - 1)
    return count(docs, found)


def check_suffix(path: Path) -> None:
    """Check the format of an output file.

    RAISES (ValueError): If there is no such format.
    """
    if path.suffix not in WRITERS:
        raise ValueError(
            f"{path}: expected a name that ends in {', '.join(WRITERS)}, got "
            f"{path.suffix or 'no suffix'!r}"
        )


def write_corpus(path: Path, docs: Sequence[Doc]) -> int:
    """Write docs to a file in the format of its suffix.

    RETURNS (int): The number of white-space tokens that the format can't have.
    """
    left_out: List[int] = []
    save_file(path, lambda new: left_out.append(WRITERS[path.suffix](new, docs)))
    return left_out[0]


def count(docs: Sequence[Doc], found: Found) -> Conversion:
    """Count what there is in a corpus.

    docs (Sequence[Doc]): The docs.
    found (Found): What was found while they were read.
    RETURNS (Conversion): The numbers.
    """
    labels = Counter(ent.label_ for doc in docs for ent in doc.ents)
    iob = [doc.to_array("ENT_IOB") for doc in docs]
    sent_start = [doc.to_array("SENT_START")[1:] == 1 for doc in docs]
    return Conversion(
        found=found,
        docs=len(docs),
        sentences=len(docs) + sum(int(starts.sum()) for starts in sent_start),
        tokens=sum(map(len, docs)),
        labels=dict(sorted(labels.items())),
        missing=sum(int((values == 0).sum()) for values in iob),
    )


def describe_conversion(conversion: Conversion) -> str:
    """Describe what a corpus is."""
    found, docs, sentences, tokens, labels, missing = conversion
    files = [f"{n} x {form}" if n > 1 else form for form, n in found.formats.items()]
    schemes = [f"{scheme} tags" for scheme in found.schemes]
    lines = [", ".join([*files, *schemes])]
    numbers = (("docs", docs), ("sentences", sentences), ("tokens", tokens))
    lines += [f"{n:,} {name}" for name, n in numbers]
    lines.append(f"{sum(labels.values()):,} entities")
    lines += [f"  {label}: {n:,}" for label, n in labels.items()]
    if missing:
        lines.append(f"{missing:,} tokens without annotation")
    lines += [f"warning: {problem.describe()}" for problem in found.problems]
    return "\n".join(lines)
