"""Corpora of any format to docs, and docs to files.

`corpus` reads a file as `columns`, as tokens and tags (`sentences`) or as texts and spans (`tasks`,
`task_docs`).
"""

from .columns import write_columns
from .context import DEFAULTS, Context, CorpusInfo, ReadOptions
from .corpus import examples_to_measure, make_copies, make_reader, read_docs
from .files import CorpusError, corpus_files
from .inputs import as_spacy_applies, as_spacy_evaluates
from .sentences import copy_tokens
from .task_docs import doc_to_task, task_to_doc
from .tasks import (
    TASK_FORMS,
    Task,
    TaskSpan,
    check_task_form,
    read_tasks,
    save_tasks,
    task_from_json,
    task_to_json,
    write_tasks,
)
from .texts import read_texts

__all__ = [
    "DEFAULTS",
    "TASK_FORMS",
    "Context",
    "CorpusError",
    "CorpusInfo",
    "ReadOptions",
    "Task",
    "TaskSpan",
    "as_spacy_applies",
    "as_spacy_evaluates",
    "check_task_form",
    "copy_tokens",
    "corpus_files",
    "doc_to_task",
    "examples_to_measure",
    "make_copies",
    "make_reader",
    "read_docs",
    "read_tasks",
    "read_texts",
    "save_tasks",
    "task_from_json",
    "task_to_doc",
    "task_to_json",
    "write_columns",
    "write_tasks",
]
