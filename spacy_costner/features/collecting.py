"""Give columns their values, from training docs or from a saved model.

Values are collected from training docs in two steps. First the docs are read once, and everything
that any column needs is counted. Then each column takes its values from the counts.
"""

from collections.abc import Iterable, Sequence

from spacy.strings import StringStore
from spacy.tokens import Doc
from spacy.util import minibatch

from .column import Column, SavedColumns, reader_of
from .counts import TrainingCounts
from .label_counts import LabelCounts
from .template import Template
from .tokens import join_tokens

N_DOCS = 256
"""The number of docs that are read at once."""

ALWAYS_SAVED = ("values", "pairs", "phrases")
"""The parts of saved columns that are always present: see `SavedColumns`."""

SAVED_IF_ANY = ("memory", "clusters", "labels", "static_vectors")
"""The parts that are left out if no column has saved anything in them."""


def collect_columns(docs: Iterable[Doc], template: Template) -> list[Column]:
    """Make the columns of a template, and collect their values.

    docs (Iterable[Doc]): The training docs with their entities. They are read once, and not kept.
    RETURNS (list[Column]): The columns.
    RAISES (ValueError): If a file of the template can't be read, or if it needs static vectors or
        an extension attribute that are missing.
    """
    columns = template.make_columns()
    for column in columns:
        column.prepare()  # reads its file, such as the phrases of a gazetteer

    counts = _count(docs, template, columns)
    # The order matters: some columns are made of the values of columns before them.
    for column in columns:
        column.collect(counts)
    return columns


def _count(docs: Iterable[Doc], template: Template, columns: Sequence[Column]) -> TrainingCounts:
    """Count everything in docs that columns need, batch by batch."""
    wants_labels = any(column.wants_labels for column in columns)
    wants_all_tokens = any(column.wants_all_tokens for column in columns)
    label_counts = LabelCounts(attributes=[*template.memory], unit=template.memory_unit)
    counts = TrainingCounts(labels=label_counts, strings=StringStore())
    reader = reader_of(columns)

    token_batches = [reader.read([])]  # one without docs, so that there is always one to join
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
    """Make columns whose label memory (see `label_counts`) has counted only some of the training
    docs. A model that is trained on these docs must not know the labels of the other docs.

    docs (Sequence[Doc]): The docs that are counted.
    template (Template): The template of the columns.
    columns (Sequence[Column]): The columns of all training docs. They aren't changed.
    RETURNS (list[Column]): The columns.
    """
    labels = LabelCounts([*template.memory], template.memory_unit)
    # Label memory needs only the attributes of its columns.
    reader = reader_of([column for column in columns if column.wants_labels])
    for batch in minibatch(docs, N_DOCS):
        labels.add(batch, reader.read(batch))
    return [column.recount(labels) for column in columns]


def save_columns(columns: Sequence[Column]) -> SavedColumns:
    """Collect the saved data of columns: see `SavedColumns`."""
    saved: SavedColumns = {part: {} for part in (*ALWAYS_SAVED, *SAVED_IF_ANY)}
    for column in columns:
        column.save(saved)
    for part in SAVED_IF_ANY:
        if not saved[part]:
            del saved[part]
    return saved


def load_columns(saved: SavedColumns, template: Template) -> list[Column]:
    """Make the columns of a template, with the values that were saved.

    RAISES (Exception): If the values are damaged: an error of any kind.
    """
    columns = template.make_columns()
    for column in columns:
        column.load(saved)
    return columns
