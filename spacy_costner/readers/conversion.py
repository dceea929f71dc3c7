"""Convert annotated corpora of any format to .spacy, JSONL or column files."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import spacy
import srsly
from spacy.tokens import Doc, DocBin

from ..annotation.iob import MISSING
from ..annotation.spans import is_missing
from ..files.saving import check_file, save_file
from . import (
    CorpusInfo,
    CorpusSummary,
    ReadOptions,
    Task,
    TaskSpan,
    doc_to_task,
    read_docs,
    write_columns,
    write_tasks,
)
from .columns import count_starts_in_entities
from .context import SpanScores
from .documents import metadata_of
from .task_docs import SCORE_KEY

SUFFIXES = (".spacy", ".jsonl", ".conll", ".iob", ".tsv")
"""The suffixes of output files. The last three are column files."""

JOINED_SENTENCES = "entities in columns can't cross sentences: their sentences are joined"


class Converted(NamedTuple):
    """Statistics of a converted corpus.

    corpus (CorpusSummary): How the corpus was read, and the number of docs and entities.
    sentences (int): The number of sentences.
    tokens (int): The number of tokens.
    missing (int): The number of tokens with missing annotation.
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
    """Convert a corpus to the format that the suffix of the output file specifies.

    input_path (Path): Annotated corpus: a file or folder.
    output_path (Path): Output file: .spacy, .jsonl or, for columns, .conll, .iob or .tsv.
    n_sents (int | None): Sentences per doc. If 0, one doc per file.
    token_column (int | str | None): Token column: its name, or its number, counted from 1 on the
        left or from -1 on the right.
    tag_column (int | str | None): Tag column, specified in the same way, or a key in the MISC
        column.
    scheme (str | None): Tag scheme. Inferred from the tags by default: see docs/data.md.
    tag_names (list[str] | None): Names of numeric tags, in numerical order.
    incorrect_spans_key (str | None): Span group for rejected spans.
    spans_key (str | None): Span group for entities, which may overlap, instead of doc.ents.
    text_key (str | None): Key of the text in the data of Label Studio's tasks.
    doc_id (str | None): Key of the document's ID. Texts or sentences with the same ID become one
        doc.
    conflicts (str | None): How to merge docs with the same text: first, last, agree or majority.
    lang (str): Language of the tokenizer for texts without tokens.
    RETURNS (Converted): Statistics of the corpus.
    RAISES (ValueError): If the output format is unknown or can't represent the annotation, the
        output file is one of the input files, or a file can't be read.
    """
    check_suffix(output_path)
    for name, key in (("spans_key", spans_key), ("incorrect_spans_key", incorrect_spans_key)):
        if key is not None and output_path.suffix not in (".spacy", ".jsonl"):
            raise ValueError(f"{output_path}: expected .spacy or .jsonl with `{name}`, not columns")
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
    n_left_out = write_corpus(output_path, docs, spans_key, incorrect_spans_key=incorrect_spans_key)
    if n_left_out > 0:
        message = "whitespace tokens can't be written in columns: they are left out"
        # The call itself counts one occurrence, and `more` counts the others.
        info.add_problem(message, place=None, more=n_left_out - 1)
    if output_path.suffix not in (".spacy", ".jsonl"):
        n_joined = sum(map(count_starts_in_entities, docs))
        if n_joined > 0:
            info.add_problem(JOINED_SENTENCES, place=None, more=n_joined - 1)

    return count_tokens(docs, spans_key, info.summary())


def count_tokens(docs: Sequence[Doc], spans_key: str | None, corpus: CorpusSummary) -> Converted:
    """Count the sentences, tokens, and tokens with missing annotation in a corpus. The docs must
    not be empty. The entities are in `doc.ents` or, if `spans_key` is set, in `doc.spans`."""
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
    """Check that the suffix of an output file is supported.

    RAISES (ValueError): If it isn't supported.
    """
    if path.suffix not in SUFFIXES:
        suffix = path.suffix or "no suffix"
        raise ValueError(
            f"{path}: expected a name that ends in {', '.join(SUFFIXES)}, got {suffix!r}"
        )


def write_corpus(
    path: Path,
    docs: Sequence[Doc],
    spans_key: str | None = None,
    scores: SpanScores | None = None,
    incorrect_spans_key: str | None = None,
) -> int:
    """Write docs in the format that the file's suffix specifies. Their metadata is written to
    .spacy and JSONL: see `metadata_of`.

    path (Path): The output file.
    docs (Sequence[Doc]): The docs to write.
    spans_key (str | None): The key in `doc.spans` of the spans to write to JSONL. If None, the
        spans in `doc.ents` are written.
    scores (SpanScores | None): The scores of spans, which are written to JSONL.
    incorrect_spans_key (str | None): The key in `doc.spans` of the incorrect spans to write to
        JSONL.
    RETURNS (int): The number of omitted tokens. Whitespace tokens can't be written in columns.
    RAISES (ValueError): If a token or label can't be written in columns, or an incorrect span
        without a label can't be written to JSONL.
    """
    n_left_out = 0

    def write(new_path: Path) -> None:
        """Write the docs to a temporary file, which `save_file` then moves to `path`."""
        nonlocal n_left_out
        if path.suffix == ".spacy":
            _docbin_with_metadata(docs).to_disk(new_path)
        elif path.suffix == ".jsonl":
            to_task = partial(
                doc_to_task, spans_key=spans_key, incorrect_spans_key=incorrect_spans_key
            )
            tasks = (to_task(doc, _json_metadata(doc)) for doc in docs)
            if scores is not None:
                tasks = (_with_scores(task, doc, scores) for task, doc in zip(tasks, docs))
            write_tasks(new_path, tasks)
        else:
            n_left_out = write_columns(new_path, docs)

    save_file(path, write)
    return n_left_out


def _docbin_with_metadata(docs: Sequence[Doc]) -> DocBin:
    """Create a DocBin with docs and their metadata, but without other data in `doc.user_data`."""
    docbin = DocBin(docs=docs)
    metadata = [metadata_of(doc) for doc in docs]
    if any(metadata):
        # With `store_user_data`, DocBin would have saved all user data when the docs were added.
        docbin.user_data = [srsly.msgpack_dumps(metadata_of_doc) for metadata_of_doc in metadata]
        docbin.store_user_data = True
    return docbin


def _json_metadata(doc: Doc) -> dict[str, Any]:
    """Return the metadata of a doc under the key "meta", where readers and annotation tools expect
    it. An extension attribute is written under its name. Empty without metadata."""
    metadata = metadata_of(doc)
    names = [key if isinstance(key, str) else key[1] for key in metadata]
    meta = dict(zip(names, metadata.values()))
    return {"meta": meta} if meta else {}


def _with_scores(task: Task, doc: Doc, scores: SpanScores) -> Task:
    """Write the scores of a doc's spans to the equal spans of its task."""
    score_of_span: dict[tuple[int, int, str], float] = {}  # by character offsets and label
    for (start, end, label), score in scores.get(doc, {}).items():
        tokens = doc[start:end]
        score_of_span[tokens.start_char, tokens.end_char, label] = score
    if task.spans is None or not score_of_span:
        return task
    spans: list[TaskSpan] = []
    for span in task.spans:
        key = (span.start, span.end, span.label)
        if key in score_of_span:
            span = span._replace(extra={**span.extra, SCORE_KEY: score_of_span[key]})
        spans.append(span)
    return task._replace(spans=spans)
