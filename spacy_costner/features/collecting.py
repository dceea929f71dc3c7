"""Columns get their values: from training docs, or from a saved model.

Values are collected in two steps. First the training docs are counted once, for all columns
together; then each column takes its values from the counts.
"""

from collections.abc import Iterable, Sequence

from spacy.strings import StringStore
from spacy.tokens import Doc
from spacy.util import minibatch

from .column import Column, Saved, reader_of
from .counts import TrainingCounts
from .label_counts import LabelCounts
from .template import Template
from .tokens import join_tokens

N_DOCS = 256
"""Number of docs that are read together."""

ALWAYS_SAVED = ("values", "pairs", "phrases")
SAVED_IF_ANY = ("memory", "clusters", "labels", "static_vectors")
"""The parts of a saved model. Those of the second kind are left out where no column has one."""


def collect_columns(docs: Iterable[Doc], template: Template) -> list[Column]:
    """Make the columns of a template, with their values from docs with their entities. Docs are
    read once, and not kept."""
    columns = template.make_columns()
    for column in columns:
        column.prepare()

    counts = _count(docs, template, columns)
    # In this order: some columns are made of values of columns before them.
    for column in columns:
        column.collect(counts)
    return columns


def _count(docs: Iterable[Doc], template: Template, columns: Sequence[Column]) -> TrainingCounts:
    """Count what columns need of docs, a batch at a time."""
    wants_labels = any(column.wants_labels for column in columns)
    wants_all_tokens = any(column.wants_all_tokens for column in columns)
    counts = TrainingCounts(LabelCounts([*template.memory], template.memory_unit), StringStore())
    reader = reader_of(columns)

    token_batches = [reader.read([])]  # for a corpus without docs
    for batch in minibatch(docs, N_DOCS):
        tokens = reader.read(batch, strings=counts.strings)
        counts.add(tokens)
        if wants_labels:
            counts.labels.add(batch, tokens)
        if wants_all_tokens:
            token_batches.append(tokens)
    if wants_all_tokens:
        counts.tokens = join_tokens(token_batches)
    return counts


def recount_labels(
    docs: Sequence[Doc], template: Template, columns: Sequence[Column]
) -> list[Column]:
    """The same columns, of which label memory is that of some docs, not of all training docs."""
    labels = LabelCounts([*template.memory], template.memory_unit)
    reader = reader_of([column for column in columns if column.wants_labels])
    for batch in minibatch(docs, N_DOCS):
        labels.add(batch, reader.read(batch))
    return [column.recount(labels) for column in columns]


def save_columns(columns: Sequence[Column]) -> Saved:
    """What is saved of the values of columns: see `Saved`."""
    saved: Saved = {part: {} for part in (*ALWAYS_SAVED, *SAVED_IF_ANY)}
    for column in columns:
        column.save(saved)
    for part in SAVED_IF_ANY:
        if not saved[part]:
            del saved[part]
    return saved


def load_columns(saved: Saved, template: Template) -> list[Column]:
    """Make the columns of a template, with saved values. Raises an error if they are damaged."""
    columns = template.make_columns()
    for column in columns:
        column.load(saved)
    return columns
