"""Read corpora of any format as docs, and write docs to files.

`read_docs` lists the files of a corpus, finds the format of each (`read_file`), and calls its
reader:

columns            reads and writes files with a line for each token, as in CoNLL
sentences          reads sentences in JSON; makes docs from tokens and tags, which columns have, too
layout             finds out which column of such a file has what
schemes            finds the entities of tags in any scheme
brat               reads a .txt and an .ann file for each text
webanno            reads WebAnno TSV, a file for each text
tasks, task_forms  read and write texts with spans, as annotation tools have them
task_docs          converts them to docs and back
task_merging       merges all annotations of one text
token_spans        finds the tokens of spans
label_studio       reads Label Studio's export: studio_regions, html_text
gliner, spacy2     read JSON of words and their entities
rasa               reads examples of intents with entities, in JSON, YAML and Markdown
csv_tables         reads CSV of tokens and tags, and of texts and spans
docbin             reads .spacy files
corpus             chooses the reader of a file; reads Hugging Face datasets
examples           makes spaCy's examples of a corpus, as a config requests them
texts              reads texts without annotation
file_parts         divides large files into parts, and reads the texts of each part
raw_text           reads more text than fits in memory

All of them use these:

alignment          refuses a corpus most of whose spans don't fit the tokens
context            what a reader is given, and where it reports problems
files              names, text and JSON of files; places and errors
conflicts          finds texts that are annotated in several ways, and makes one doc from each
documents          copies metadata to docs, and joins the sentences of a document to one doc
offsets            converts UTF-16 code units to characters
inputs             makes the doc that a pipeline gets from a doc of a file

How a new format is added is in docs/develop.md.
"""

from .columns import write_columns
from .context import DEFAULTS, Context, CorpusInfo, CorpusSummary, ReadOptions
from .corpus import read_docs
from .examples import KeptDocs, examples_to_measure, make_copies_augmenter, make_reader, with_info
from .files import CorpusError, corpus_files
from .inputs import as_spacy_applies, as_spacy_evaluates
from .sentences import copy_without_annotation
from .task_docs import doc_to_task, task_to_doc
from .task_forms import TASK_FORMS, check_task_form, save_tasks, task_to_json, write_tasks
from .tasks import Task, TaskSpan, read_tasks, task_from_json
from .texts import read_texts

__all__ = [
    "DEFAULTS",
    "TASK_FORMS",
    "Context",
    "CorpusError",
    "CorpusInfo",
    "CorpusSummary",
    "KeptDocs",
    "ReadOptions",
    "Task",
    "TaskSpan",
    "as_spacy_applies",
    "as_spacy_evaluates",
    "check_task_form",
    "copy_without_annotation",
    "corpus_files",
    "doc_to_task",
    "examples_to_measure",
    "make_copies_augmenter",
    "make_reader",
    "read_docs",
    "read_tasks",
    "read_texts",
    "save_tasks",
    "task_from_json",
    "task_to_doc",
    "task_to_json",
    "with_info",
    "write_columns",
    "write_tasks",
]
