"""Convert annotated corpora of any format to .spacy, JSONL or columns."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Callable, Dict, List, NamedTuple, Optional, Sequence

import spacy
from spacy.tokens import Doc, DocBin
from typer import Argument, Option

from ..readers import (
    DEFAULTS,
    CorpusInfo,
    ReadOptions,
    doc_to_task,
    read_docs,
    write_columns,
    write_tasks,
)
from ..saving import check_file, save_file
from .output import JsonOption, errors_shown, print_result


class Conversion(NamedTuple):
    """A corpus that was read.

    found (CorpusInfo): Its formats, schemes and problems.
    docs (int): Number of docs.
    sentences (int): Number of sentences. A doc without sentence starts counts as one.
    tokens (int): Number of tokens.
    labels (Dict[str, int]): The number of entities of each label, in alphabetical order.
    missing (int): Number of tokens without annotation.
    """

    found: CorpusInfo
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
    check_file(output_path, [input_path])
    found = CorpusInfo()
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


def count(docs: Sequence[Doc], found: CorpusInfo) -> Conversion:
    """Count what there is in a corpus.

    docs (Sequence[Doc]): The docs.
    found (CorpusInfo): What was found while they were read.
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
    with errors_shown():
        options = ReadOptions(n_sents, column, names, incorrect_spans_key, doc_id)
        found = convert(input_path, output_path, options=options, lang=lang)
    of_files = {name: getattr(found.found, name) for name in ("formats", "schemes", "problems")}
    result = {**found._asdict(), "found": of_files}
    print_result(result, describe_conversion(found), print_json, output_path)
