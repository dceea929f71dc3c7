"""Annotate texts in batches. If a text fails, the others are still annotated."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch, raise_error

from ...readers.file_parts import TextRow, make_doc
from ..config import loading
from .records import AnnotatedRow, Record, span_lists_of, to_record


def load_annotator(
    model: str | Path, code_path: str | Path | None = None, use_gpu: int = -1
) -> Language:
    """Load a pipeline for `annotate_texts`. Errors raised by its components are not suppressed.

    model (str | Path): Package name or path of the pipeline.
    code_path (str | Path | None): Python file with registered functions to be imported.
    use_gpu (int): GPU ID or -1 for CPU.
    RETURNS (Language): The loaded pipeline.
    RAISES (ValueError): If `model` is a file.
    """
    nlp = loading.load_pipeline(model, code_path, use_gpu)
    # This is spaCy's default, but user code may have set a different error handler.
    nlp.set_error_handler(raise_error)
    return nlp


def annotate_texts(nlp: Language, ids: Iterable[Any], texts: Iterable[Any]) -> Iterator[Record]:
    """Annotate texts, for example a column of a table. If a text fails, its record contains the
    error.

    nlp (Language): The pipeline. See `load_annotator`.
    ids (Iterable[Any]): The IDs of the texts.
    texts (Iterable[Any]): The texts, aligned with `ids`.
    YIELDS (dict[str, Any]): The record for each text, as written by `annotate` but without the
        text.
    """
    rows = (TextRow(id, text, partial(make_doc, nlp, text)) for id, text in zip(ids, texts))
    span_lists = span_lists_of(nlp)
    for answer in annotate_rows(nlp, rows):
        yield to_record(answer, span_lists, with_text=False)


def annotate_rows(nlp: Language, rows: Iterable[TextRow]) -> Iterator[AnnotatedRow]:
    """Annotate rows in batches. Yields each row and its doc or error. The pipeline must not
    suppress the errors of its components. See `load_annotator`."""
    for batch in minibatch(rows, nlp.batch_size):
        yield from zip(batch, annotate_batch(nlp, batch))


def annotate_batch(nlp: Language, rows: Sequence[TextRow]) -> list[Doc | Exception]:
    """Annotate a batch of rows. Return the doc or the error for each row instead of raising errors.

    If the pipeline fails, the batch is split in half recursively to isolate the rows that fail. The
    docs are created again for each half, because they may be partially annotated.
    """
    results: dict[int, Doc | Exception] = {}  # keyed by the index of the row
    docs_and_indices: list[tuple[Doc, int]] = []
    for i, row in enumerate(rows):
        try:
            docs_and_indices.append((row.make_doc(), i))
        except Exception as error:
            results[i] = error
    try:
        for doc, i in nlp.pipe(docs_and_indices, as_tuples=True):
            results[i] = doc
        if len(results) < len(rows):  # a custom component has dropped docs
            raise ValueError("expected the pipeline to return a doc, got none")
        return [results[i] for i in range(len(rows))]
    except Exception as error:
        if len(rows) == 1:
            return [error]
    n_in_first_half = len(rows) // 2
    return annotate_batch(nlp, rows[:n_in_first_half]) + annotate_batch(nlp, rows[n_in_first_half:])
