"""Set the values of columns from training docs or a saved model.

Values are collected from the training docs in two steps. First, everything that the columns require
is counted in a single pass over the docs. Then, each column collects its values from the counts.
"""

from collections.abc import Iterable, Sequence

from spacy.strings import StringStore
from spacy.tokens import Doc
from spacy.util import minibatch
from spacy.vocab import Vocab

from .column import Column, SavedColumns, reader_of
from .counts import TrainingCounts
from .label_counts import LabelCounts
from .template import Template
from .tokens import join_tokens

N_DOCS = 256
"""The number of docs to read per batch."""

ALWAYS_SAVED = ("values", "pairs", "phrases")
"""The parts of saved columns that are always included: see `SavedColumns`."""

SAVED_IF_ANY = ("memory", "clusters", "labels", "static_vectors")
"""The parts that are left out if they're empty."""


def collect_columns(
    docs: Iterable[Doc], template: Template, vocab: Vocab | None = None
) -> list[Column]:
    """Create the columns of a template and collect their values.

    docs (Iterable[Doc]): The training docs, with entity annotations. They're read once and not kept
        in memory.
    template (Template): The template of the columns.
    vocab (Vocab | None): The vocab with the static vectors. If None, the vocab of the docs.
    RETURNS (list[Column]): The columns with their values.
    RAISES (ValueError): If a file in the template can't be read, or if static vectors or extension
        attributes that the template requires are missing.
    """
    columns = template.make_columns()
    for column in columns:
        column.prepare()  # read its file, such as a gazetteer

    counts = _count(docs, template, columns, vocab)
    # The order matters, because some columns depend on the values of earlier columns.
    for column in columns:
        column.collect(counts)
    return columns


def _count(
    docs: Iterable[Doc], template: Template, columns: Sequence[Column], vocab: Vocab | None
) -> TrainingCounts:
    """Count everything that the columns require from the docs, in batches. `vocab` contains the
    static vectors: see `collect_columns`."""
    wants_labels = any(column.wants_labels for column in columns)
    wants_all_tokens = any(column.wants_all_tokens for column in columns)
    label_counts = LabelCounts(attributes=[*template.memory], unit=template.memory_unit)
    counts = TrainingCounts(labels=label_counts, strings=StringStore(), pipeline_vocab=vocab)
    reader = reader_of(columns)

    token_batches = [reader.read([])]  # so that there is at least one batch to join
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
    """Create columns whose label memory (see `label_counts`) only counts a subset of the training
    docs. A model that is trained on these docs must not have access to the labels of the other
    docs.

    docs (Sequence[Doc]): The docs to count.
    template (Template): The template of the columns.
    columns (Sequence[Column]): The columns for all training docs. They aren't modified.
    RETURNS (list[Column]): The columns with the new counts.
    """
    labels = LabelCounts([*template.memory], template.memory_unit)
    # Label memory only requires the attributes of its columns.
    reader = reader_of([column for column in columns if column.wants_labels])
    for batch in minibatch(docs, N_DOCS):
        labels.add(batch, reader.read(batch))
    return [column.recount(labels) for column in columns]


def save_columns(columns: Sequence[Column]) -> SavedColumns:
    """Collect the data to save for all columns: see `SavedColumns`."""
    saved: SavedColumns = {part: {} for part in (*ALWAYS_SAVED, *SAVED_IF_ANY)}
    for column in columns:
        column.save(saved)
    for part in SAVED_IF_ANY:
        if not saved[part]:
            del saved[part]
    return saved


def load_columns(saved: SavedColumns, template: Template) -> list[Column]:
    """Create the columns of a template and load their saved values.

    RAISES (Exception): Any exception, if the values are damaged.
    """
    columns = template.make_columns()
    for column in columns:
        column.load(saved)
    return columns
