"""Convert annotated corpora of any format to .spacy, JSONL or columns (a token and its tag on each
line)."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import spacy
from spacy.tokens import Doc, DocBin

from ..ent_iob import MISSING
from ..readers import CorpusInfo, ReadOptions, doc_to_task, read_docs, write_columns, write_tasks
from ..readers.context import Problem
from ..saving import check_file, save_file
from ..spans import is_missing

SUFFIXES = (".spacy", ".jsonl", ".conll", ".iob", ".tsv")
"""The suffixes of output files. The last three are columns."""


class FilesRead(NamedTuple):
    """What the files of a corpus are."""

    formats: dict[str, int]  # the number of files of each format
    schemes: dict[str, int]  # the number of files of each tag scheme
    problems: list[Problem]  # what couldn't be read as it stands in a file


class Converted(NamedTuple):
    """What a converted corpus has."""

    found: FilesRead  # what its files are
    docs: int
    sentences: int
    tokens: int
    labels: dict[str, int]  # the number of entities of each label
    missing: int  # the number of tokens without annotation


def convert(
    input_path: Path,
    output_path: Path,
    *,
    n_sents: int | None = None,
    column: int | None = None,
    tag_names: list[str] | None = None,
    incorrect_spans_key: str | None = None,
    spans_key: str | None = None,
    doc_id: str | None = None,
    layer: str | None = None,
    conflicts: str | None = None,
    lang: str = "xx",
) -> Converted:
    """Read a corpus and write it in the format of the output's suffix.

    input_path (Path): Annotated corpus: a file or folder.
    output_path (Path): Output file: .spacy, .jsonl or, for columns, .conll, .iob or .tsv.
    n_sents (int | None): Sentences per doc, 0 for all of a file.
    column (int | None): Column of the tags, from 2 or from -1.
    tag_names (list[str] | None): The names of tags that are numbers, in their order.
    incorrect_spans_key (str | None): Span group for rejected spans.
    spans_key (str | None): Span group for entities, which may overlap, and not doc.ents.
    doc_id (str | None): Key of the id of the document that a text or sentence is from.
    layer (str | None): WebAnno TSV: layer or feature of the labels.
    conflicts (str | None): One doc of each text: first, last, agree or majority.
    lang (str): Language of the tokenizer for texts without tokens.
    RETURNS (Converted): What the corpus has.
    RAISES (ValueError): If there is no such output format, the format can't have the annotation,
        the output is a file of the input, or a file can't be read.
    """
    check_suffix(output_path)
    if spans_key is not None and output_path.suffix not in (".spacy", ".jsonl"):
        raise ValueError(f"{output_path}: expected .spacy or .jsonl with --spans-key, not columns")
    check_file(output_path, [input_path])
    options = ReadOptions(
        n_sents=n_sents,
        column=column,
        tag_names=tag_names,
        incorrect_spans_key=incorrect_spans_key,
        spans_key=spans_key,
        doc_id=doc_id,
        layer=layer,
        conflicts=conflicts,
    )
    info = CorpusInfo()
    docs = list(read_docs(spacy.blank(lang), input_path, options, info))
    if not docs:
        raise ValueError(f"{input_path}: expected annotated docs, got none")
    n_left_out = write_corpus(output_path, docs, spans_key)
    if n_left_out > 0:
        message = "white-space tokens can't be written in columns: they are left out"
        # The problem itself counts as one, and `more` is how many there are beside it.
        info.add_problem(message, place=None, more=n_left_out - 1)

    files = FilesRead(info.formats, info.schemes, info.problems)
    return count_annotation(docs, spans_key, files)


def count_annotation(docs: Sequence[Doc], spans_key: str | None, files: FilesRead) -> Converted:
    """Count the sentences, tokens, entities and missing values of a corpus.

    docs (Sequence[Doc]): The docs, none of them empty.
    spans_key (str | None): The key of `doc.spans` whose spans count as entities. None: those of
        `doc.ents` count.
    files (FilesRead): What the files of the corpus are.
    """
    labels: Counter[str] = Counter()
    n_sentences = 0
    n_tokens = 0
    n_missing = 0
    for doc in docs:
        n_tokens += len(doc)
        # The first token always begins a sentence, even if the doc has no sentence starts.
        begins_sentence = doc.to_array("SENT_START")[1:] == 1
        n_sentences += 1 + int(begins_sentence.sum())
        if spans_key is None:
            labels.update(ent.label_ for ent in doc.ents)
            n_missing += int((doc.to_array("ENT_IOB") == MISSING).sum())
        else:
            labels.update(span.label_ for span in doc.spans.get(spans_key, ()))
            n_missing += int(is_missing(doc, spans_key).sum())
    return Converted(
        found=files,
        docs=len(docs),
        sentences=n_sentences,
        tokens=n_tokens,
        labels=dict(sorted(labels.items())),
        missing=n_missing,
    )


def check_suffix(path: Path) -> None:
    """Check that a corpus can be written to a file with this suffix.

    RAISES (ValueError): If there is no such format.
    """
    if path.suffix not in SUFFIXES:
        suffix = path.suffix or "no suffix"
        raise ValueError(
            f"{path}: expected a name that ends in {', '.join(SUFFIXES)}, got {suffix!r}"
        )


def write_corpus(path: Path, docs: Sequence[Doc], spans_key: str | None = None) -> int:
    """Write docs in the format of the file's suffix.

    path (Path): The file.
    docs (Sequence[Doc]): The docs.
    spans_key (str | None): The key of `doc.spans` whose spans are written to JSONL. None: those of
        `doc.ents` are written.
    RETURNS (int): The number of tokens that are left out: columns can't have tokens of white space.
    RAISES (ValueError): If columns can't have a token or a label.
    """
    n_left_out = 0

    def write(new_path: Path) -> None:
        """Write the docs to a temporary file, which `save_file` then moves to `path`."""
        nonlocal n_left_out
        if path.suffix == ".spacy":
            DocBin(docs=docs).to_disk(new_path)
        elif path.suffix == ".jsonl":
            write_tasks(new_path, (doc_to_task(doc, spans_key=spans_key) for doc in docs))
        else:
            n_left_out = write_columns(new_path, docs)

    save_file(path, write)
    return n_left_out
