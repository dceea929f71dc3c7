"""Annotate texts in batches. A text that fails doesn't stop the others."""

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
    """Load a pipeline for `annotate_texts`: it raises the errors of its components.

    model (str | Path): The pipeline, a package or a folder.
    code_path (str | Path | None): Python file with registered functions to be imported.
    use_gpu (int): GPU ID or -1 for CPU.
    RETURNS (Language): The pipeline.
    RAISES (ValueError): If the pipeline is a file.
    """
    nlp = loading.load_pipeline(model, code_path, use_gpu)
    # That is spaCy's default, but the code of the user may have set another handler.
    nlp.set_error_handler(raise_error)
    return nlp


def annotate_texts(nlp: Language, ids: Iterable[Any], texts: Iterable[Any]) -> Iterator[Record]:
    """Annotate texts, such as columns of a table. One that fails doesn't stop the others.

    nlp (Language): The pipeline: see `load_annotator`.
    ids (Iterable[Any]): The ids of the texts, one for each.
    texts (Iterable[Any]): The texts.
    YIELDS (dict[str, Any]): For each text, in their order, the record that `annotate` would write,
        without the text.
    """
    rows = (TextRow(id, text, partial(make_doc, nlp, text)) for id, text in zip(ids, texts))
    span_lists = span_lists_of(nlp)
    for answer in annotate_rows(nlp, rows):
        yield to_record(answer, span_lists, with_text=False)


def annotate_rows(nlp: Language, rows: Iterable[TextRow]) -> Iterator[AnnotatedRow]:
    """Annotate rows in batches. Yields each row with its doc or its error. The pipeline must raise
    the errors of its components, as a pipeline from `load_annotator` does."""
    for batch in minibatch(rows, nlp.batch_size):
        yield from zip(batch, annotate_batch(nlp, batch))


def annotate_batch(nlp: Language, rows: Sequence[TextRow]) -> list[Doc | Exception]:
    """Annotate rows together. Returns the doc or the error of each row; no error is raised.

    If the pipeline fails, the first half of the rows is annotated by itself, and then the second,
    and so on, until the row that fails is alone. The halves get new docs, as the old ones may be
    half annotated.
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
        if len(results) < len(rows):  # A component of the user has left docs out.
            raise ValueError("expected the pipeline to return a doc, got none")
        return [results[i] for i in range(len(rows))]
    except Exception as error:
        if len(rows) == 1:
            return [error]
    n_in_first_half = len(rows) // 2
    return annotate_batch(nlp, rows[:n_in_first_half]) + annotate_batch(nlp, rows[n_in_first_half:])
