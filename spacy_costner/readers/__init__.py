"""What people's files become: docs of any annotated corpus, and files of docs.

Each format has a module: `columns`, `jsonl` and `tasks`, `tagged`, `label_studio`, `dataset`.
"""

from .columns import write_columns
from .corpus import make_reader, read_docs
from .files import CorpusError, corpus_files
from .forms import FORMS, check_form, save_tasks
from .found import DEFAULTS, Found, ReadOptions, check_options
from .jsonl import Task, TaskSpan, TaskToken, read_tasks, task_to_json, write_tasks
from .offsets import doc_to_task, task_to_doc
from .texts import read_texts

__all__ = [
    "DEFAULTS",
    "FORMS",
    "CorpusError",
    "Found",
    "ReadOptions",
    "Task",
    "TaskSpan",
    "TaskToken",
    "check_form",
    "check_options",
    "corpus_files",
    "doc_to_task",
    "make_reader",
    "read_docs",
    "read_tasks",
    "read_texts",
    "save_tasks",
    "task_to_doc",
    "task_to_json",
    "write_columns",
    "write_tasks",
]
