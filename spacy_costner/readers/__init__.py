"""Read corpora of any format as docs, and write docs to files.

`read_docs` lists the files of a corpus. For each file, `read_file` detects the format and calls the
corresponding reader:

columns            reads and writes files with one token per line, as in CoNLL
sentences          reads sentences in JSON; converts tokens and tags to docs, also for columns
layout             infers what each column of a column file contains
schemes            decodes tags of any scheme into entities
brat               reads brat standoff: a .txt and an .ann file for each text
webanno            reads WebAnno TSV: one file per text
tasks, task_forms  read and write texts with spans in the formats of annotation tools
task_docs          converts tasks to docs and back
task_merging       merges all annotations of a text
token_spans        aligns spans with tokens
label_studio       reads Label Studio's export, with studio_regions and html_text
gliner, spacy2     read JSON with words and their entities
rasa               reads training examples with intents and entities in JSON, YAML and Markdown
csv_tables         reads CSV files with tokens and tags, or with texts and spans
docbin             reads .spacy files
corpus             selects the reader of each file; reads Hugging Face datasets
examples           creates spaCy examples from a corpus for training
texts              reads texts without annotation
file_parts         splits large files into parts, and reads the texts of each part
raw_text           reads raw text that doesn't fit in memory

They share these modules:

alignment          raises an error if most spans don't match the tokens
context            provides options to readers and collects problems
files              lists and reads files; defines file locations and errors
conflicts          reports or merges texts that are annotated more than once
documents          copies metadata to docs, and joins the sentences of a document
offsets            converts offsets from UTF-16 code units to characters
inputs             converts docs of a corpus to the input of a pipeline

To add a format, see docs/develop.md.
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
