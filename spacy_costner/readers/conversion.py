"""Convert annotated corpora of any format to .spacy, JSONL or columns (a token and its tag on each
line)."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import spacy
from spacy.tokens import Doc, DocBin

from ..annotation.iob import MISSING
from ..annotation.spans import is_missing
from ..files.saving import check_file, save_file
from . import (
    CorpusInfo,
    CorpusSummary,
    ReadOptions,
    doc_to_task,
    read_docs,
    write_columns,
    write_tasks,
)

SUFFIXES = (".spacy", ".jsonl", ".conll", ".iob", ".tsv")
"""The suffixes of output files. The last three are columns."""


class Converted(NamedTuple):
    """The content of a converted corpus.

    corpus (CorpusSummary): How it was read, with the numbers of its docs and entities.
    sentences (int): The number of sentences.
    tokens (int): The number of tokens.
    missing (int): The number of tokens whose annotation is missing.
    """

    corpus: CorpusSummary
    sentences: int
    tokens: int
    missing: int


def convert(
    input_path: Path,
    output_path: Path,
    *,
    n_sents: int | None = None,
    token_column: int | str | None = None,
    tag_column: int | str | None = None,
    scheme: str | None = None,
    tag_names: list[str] | None = None,
    incorrect_spans_key: str | None = None,
    spans_key: str | None = None,
    text_key: str | None = None,
    doc_id: str | None = None,
    conflicts: str | None = None,
    lang: str = "xx",
) -> Converted:
    """Read a corpus and write it in the format of the output's suffix.

    input_path (Path): Annotated corpus: a file or folder.
    output_path (Path): Output file: .spacy, .jsonl or, for columns, .conll, .iob or .tsv.
    n_sents (int | None): Sentences per doc, 0 for all of a file.
    token_column (int | str | None): Column of the tokens: a number from 1, or from -1 at the end,
        or a name.
    tag_column (int | str | None): Column of the tags, given in the same way, or a key of the column
        MISC.
    scheme (str | None): Tag scheme, if it isn't to be found from the tags: see docs/data.md.
    tag_names (list[str] | None): The names of tags that are numbers, in their order.
    incorrect_spans_key (str | None): Span group for rejected spans.
    spans_key (str | None): Span group for entities, which may overlap, and not doc.ents.
    text_key (str | None): Key of the text in the data of Label Studio's tasks.
    doc_id (str | None): Key of the id of the document that a text or sentence is from.
    conflicts (str | None): One doc of each text: first, last, agree or majority.
    lang (str): Language of the tokenizer for texts without tokens.
    RETURNS (Converted): What the corpus has.
    RAISES (ValueError): If there is no such output format, the format can't have the annotation,
        the output is a file of the input, or a file can't be read.
    """
    check_suffix(output_path)
    if spans_key is not None and output_path.suffix not in (".spacy", ".jsonl"):
        raise ValueError(f"{output_path}: expected .spacy or .jsonl with `spans_key`, not columns")
    check_file(output_path, [input_path])
    options = ReadOptions(
        n_sents=n_sents,
        token_column=token_column,
        tag_column=tag_column,
        scheme=scheme,
        tag_names=tag_names,
        incorrect_spans_key=incorrect_spans_key,
        spans_key=spans_key,
        text_key=text_key,
        doc_id=doc_id,
        conflicts=conflicts,
    )
    info = CorpusInfo()
    docs = list(read_docs(spacy.blank(lang), input_path, options, info))
    if not docs:
        raise ValueError(f"{input_path}: expected annotated docs, got none")
    n_left_out = write_corpus(output_path, docs, spans_key)
    if n_left_out > 0:
        message = "whitespace tokens can't be written in columns: they are left out"
        # The problem itself counts as one, and `more` is how many others there are.
        info.add_problem(message, place=None, more=n_left_out - 1)

    return count_tokens(docs, spans_key, info.summary())


def count_tokens(docs: Sequence[Doc], spans_key: str | None, corpus: CorpusSummary) -> Converted:
    """Count the sentences, the tokens and the missing values of a corpus, whose docs aren't empty.
    The entities are in `doc.ents` or, with a `spans_key`, in `doc.spans`."""
    n_sentences = 0
    n_tokens = 0
    n_missing = 0
    for doc in docs:
        n_tokens += len(doc)
        # The first token always begins a sentence, even if the doc has no sentence starts.
        begins_sentence = doc.to_array("SENT_START")[1:] == 1
        n_sentences += 1 + int(begins_sentence.sum())
        if spans_key is None:
            n_missing += int((doc.to_array("ENT_IOB") == MISSING).sum())
        else:
            n_missing += int(is_missing(doc, spans_key).sum())
    return Converted(corpus, n_sentences, n_tokens, n_missing)


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

    path (Path): The output file.
    docs (Sequence[Doc]): The docs to write.
    spans_key (str | None): The key of `doc.spans` whose spans are written to JSONL. None: the spans
        of `doc.ents` are written.
    RETURNS (int): The number of tokens that are left out: columns can't have whitespace tokens.
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
