"""Read corpora of any format as docs.

`read_docs` reads a corpus file by file. `read_file` detects the format of a file and calls its
reader. The reader of Hugging Face datasets is defined here. All other readers have their own
modules.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from spacy.language import Language
from spacy.tokens import Doc

from ..annotation.spans import entities_as_spans
from ..validation import require
from .alignment import Alignment
from .brat import read_brat
from .columns import read_columns, read_tokens
from .conflicts import merge_texts, report_conflicts
from .context import DEFAULTS, Context, CorpusInfo, Places, Predicted, ReadOptions, SpanScores
from .csv_tables import is_csv, read_csv
from .docbin import DOCBIN, read_docbin
from .documents import join_documents
from .files import (
    BRAT_ANNOTATION,
    CorpusError,
    FilePlace,
    Values,
    corpus_files,
    is_json,
    is_text_of_brat,
    read_head,
    read_values,
    shown,
)
from .gliner import is_gliner, read_gliner
from .label_studio import is_label_studio, read_label_studio
from .layout import InferredTags, check_inferred
from .rasa import is_rasa, is_rasa_text, read_rasa, read_rasa_text
from .schemes import TagCounts, TagScheme, find_scheme
from .sentences import find_tag_key, find_tag_names, read_tagged
from .spacy2 import is_spacy2, is_train_data, read_spacy2, read_train_data
from .task_docs import tasks_to_docs
from .tasks import AnnotatedTask, task_from_json
from .webanno import find_label_feature, is_webanno, read_webanno

JSON_FORMATS = {
    "GLiNER's training data": (is_gliner, read_gliner),
    "spaCy 2's training data": (is_spacy2, read_spacy2),
    "spaCy 2's TRAIN_DATA": (is_train_data, read_train_data),
    "Rasa's training data": (is_rasa, read_rasa),
}
"""JSON formats, keyed by name. Each has a function that detects it from the first record of a file,
and a function that reads its records as tasks."""

WITHOUT_TEXT = "rows that `annotate` couldn't read have no text: they are left out"

DATASET = "Hugging Face dataset"


def read_docs(
    nlp: Language,
    path: str | Path,
    options: ReadOptions = DEFAULTS,
    info: CorpusInfo | None = None,
    predicted: Predicted | None = None,
    scores: SpanScores | None = None,
) -> Iterator[Doc]:
    """Read the docs of a corpus. The format of each file is detected from its name and content.

    nlp (Language): The pipeline, which provides the tokenizer for texts without tokens.
    path (str | Path): A file, a folder of files, or a Hugging Face dataset on disk.
    options (ReadOptions): Options for reading the files.
    info (CorpusInfo | None): Collects formats, schemes and problems. If None, a warning is issued
        for each problem.
    predicted (Predicted | None): Collects the docs created by the tokenizer: see `Context`.
    scores (SpanScores | None): Collects the scores of the spans in texts and spans. If None, scores
        are ignored.
    YIELDS (Doc): The docs. Docs without tokens are skipped.
    RAISES (CorpusError): If a file can't be read, or a collected score isn't a number from 0 to 1.
        The message contains the file and, if available, the line. Also raised after the last doc if
        most spans don't match token boundaries.
    RAISES (ImportError): If the corpus contains a dataset, and `datasets` isn't installed.
    """
    corpus_info = CorpusInfo() if info is None else info
    places = Places()
    alignment = Alignment()
    context = Context(nlp, options, corpus_info, predicted, alignment, places=places, scores=scores)
    files = _leave_out_unannotated(corpus_files(Path(path)), corpus_info)
    docs = _read_files(files, context)
    # Detect conflicts across files, because annotators may have separate files with the same texts.
    spans_key = options.spans_key
    if options.conflicts is None:
        docs = report_conflicts(docs, spans_key, places, corpus_info)
    else:
        docs = merge_texts(
            docs,
            options.conflicts,
            spans_key,
            places,
            corpus_info,
            incorrect_spans_key=options.incorrect_spans_key,
            scores=scores,
        )
    for doc in docs:
        corpus_info.add_doc(doc, spans_key)
        yield doc
    if info is None:
        for problem in corpus_info.problems:
            warnings.warn(problem.as_text(), stacklevel=2)
    alignment.check(nlp.lang or "xx")


def _leave_out_unannotated(files: list[Path], info: CorpusInfo) -> list[Path]:
    """Leave out .txt files without an .ann file in folders of brat standoff, and report them. They
    aren't annotated yet."""
    brat_folders = {file.parent for file in files if file.suffix == BRAT_ANNOTATION}
    annotated_files: list[Path] = []
    for file in files:
        if file.suffix == ".txt" and file.parent in brat_folders:
            info.add_problem("texts without an .ann file are left out", FilePlace(file, 1))
        else:
            annotated_files.append(file)
    return annotated_files


def _read_files(files: list[Path], context: Context) -> Iterator[Doc]:
    """Read the docs of several files. Docs without tokens are skipped."""
    options = context.options
    context = context._replace(
        scheme=_find_scheme_of_columns(files, options),
        label_feature=find_label_feature(filter(_is_webanno, files), options),
    )
    for file in files:
        docs = _read_nonempty(file, context)
        if options.doc_id is not None:
            docs = join_documents(docs, options.doc_id, FilePlace(file, 1), context)
        yield from docs


def _find_scheme_of_columns(files: Sequence[Path], options: ReadOptions) -> TagScheme | None:
    """Find the tag scheme of all column files in a corpus, and check their tag columns. This
    requires an additional pass over the files, because a single file may be ambiguous, for example
    if its only tag is S-LOC. Returns None if there are fewer than two column files. The scheme is
    then inferred when the file is read."""
    files = [file for file in files if _has_columns(file)] if len(files) > 1 else []
    if len(files) < 2:
        return None
    counts = TagCounts()
    inferred: list[InferredTags] = []
    for file in files:
        columns_file = read_tokens(file, options, CorpusInfo())
        tokens = columns_file.tokens
        counts.add(tokens.tags, tokens.sent_start, columns_file.place_of)
        if columns_file.inferred is not None:
            inferred.append(columns_file.inferred)
    check_inferred(inferred)
    return find_scheme(counts, options.scheme)


def _has_columns(path: Path) -> bool:
    """Check whether `read_file` reads a file as a column file."""
    if path.is_dir() or path.suffix in (DOCBIN, BRAT_ANNOTATION) or is_text_of_brat(path):
        return False
    if is_csv(path) or is_rasa_text(path):
        return False
    return not (_is_webanno(path) or is_json(path))


def _is_webanno(path: Path) -> bool:
    """Check whether a file is WebAnno TSV."""
    return path.suffix != DOCBIN and path.is_file() and is_webanno(read_head(path))


def _read_nonempty(path: Path, context: Context) -> Iterator[Doc]:
    """Read the docs of a file. Docs without tokens are skipped. If the option `spans_key` is set
    and a doc has no spans under this key, its entities are copied there."""
    spans_key = context.options.spans_key
    for doc in read_file(path, context):
        if not len(doc):
            continue
        if spans_key is not None:
            entities_as_spans(doc, spans_key)
        yield doc


def read_file(path: Path, context: Context) -> Iterator[Doc]:
    """Read the docs of a file with the reader of its format.

    path (Path): The file, or the folder of a Hugging Face dataset.
    context (Context): The pipeline, the options, and the info that collects problems.
    RETURNS (Iterator[Doc]): The annotated docs, including empty ones.
    RAISES (CorpusError): If the file can't be read.
    RAISES (ImportError): If the path is a dataset, and `datasets` isn't installed.
    """
    if path.is_dir():
        return read_dataset(path, context)
    if path.suffix == DOCBIN:
        return read_docbin(path, context)
    if path.suffix == BRAT_ANNOTATION or is_text_of_brat(path):
        return read_brat(path, context)
    if is_csv(path):
        return read_csv(path, context)
    if is_rasa_text(path):
        context.info.add_file("Rasa's training data")
        return tasks_to_docs(read_rasa_text(path), context)
    if is_webanno(read_head(path)):
        return read_webanno(path, context)
    if is_json(path):
        format_name, records = read_values(path)
        find_names = partial(find_tag_names, path)
        return _read_records(records, FilePlace(path, 1), format_name, find_names, context)
    return read_columns(path, context)


def read_dataset(path: Path, context: Context) -> Iterator[Doc]:
    """Read a dataset that was saved by `Dataset.save_to_disk`. Raises an ImportError if the
    `datasets` library isn't installed, and a CorpusError if the dataset has several splits or no
    rows. Errors in a row are raised when its doc is read."""
    message = f"{path}: a {DATASET} requires the library `datasets`"
    datasets = require("datasets", extra="datasets", missing=message)
    try:
        dataset = datasets.load_from_disk(str(path))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise CorpusError(f"{path}: expected a {DATASET}, got: {error}") from error
    if not isinstance(dataset, datasets.Dataset):
        splits = " or ".join(str(path / name) for name in dataset)
        raise CorpusError(f"{path}: expected one split, got {len(dataset)}: give {splits}")

    def read_rows() -> Values:
        for number, row in enumerate(dataset, start=1):
            yield FilePlace(path, number, "row"), row

    def find_names(key: str) -> list[str] | None:
        # `datasets` calls columns "features". The feature for the tags is a Sequence whose
        # `feature` attribute is a ClassLabel. If the tags are numeric, the ClassLabel stores their
        # names.
        feature = dataset.features[key]
        while feature is not None and not hasattr(feature, "names"):
            feature = getattr(feature, "feature", None)
        return None if feature is None else list(feature.names)

    return _read_records(read_rows(), FilePlace(path, 1, "row"), DATASET, find_names, context)


def _read_records(
    records: Values,
    begin: FilePlace,
    format_name: str,
    find_names: Callable[[str], list[str] | None],
    context: Context,
) -> Iterator[Doc]:
    """Create docs from the records of a JSON file or a dataset. The format is detected from the
    first record: tokens and tags, Label Studio tasks, texts and spans, or one of `JSON_FORMATS`.
    `find_names` takes the key of the tags and returns the names of numeric tags, if available. If
    there are no records, an error at the location `begin` is raised."""
    first_item = next(records, None)
    if first_item is None:
        raise begin.refuse("expected texts, found none")
    _place, first_record = first_item
    # Put the first record back, because the reader of the format needs all records.
    records = chain([first_item], records)

    tag_key = find_tag_key(first_record)
    if tag_key is not None:
        tag_names = context.options.tag_names
        if not tag_names:
            tag_names = find_names(tag_key)
        return read_tagged(records, tag_key, format_name, tag_names, context)
    for name, (is_format, read_format) in JSON_FORMATS.items():
        if is_format(first_record):
            context.info.add_file(name)
            return tasks_to_docs(read_format(records), context)
    if is_label_studio(first_record):
        context.info.add_file("Label Studio's JSON export")
        text_key = context.options.text_key
        tasks = read_label_studio(records, text_key=text_key, info=context.info)
        return tasks_to_docs(tasks, context)
    context.info.add_file(f"{format_name} of texts and spans")
    return tasks_to_docs(_read_tasks(records, context.info), context)


def _read_tasks(records: Values, info: CorpusInfo) -> Iterator[AnnotatedTask]:
    """Read texts and spans. In Prodigy's export, all annotations of a text have the same
    "_input_hash". Rows in the output of `annotate` that have an error and no text are skipped and
    reported."""
    for place, record in records:
        if isinstance(record, dict) and record.get("text", "") is None and "error" in record:
            info.add_problem(WITHOUT_TEXT, place, shown(record["error"]))
            continue
        task = task_from_json(record, place)
        input_hash = task.extra.get("_input_hash")
        text_key = input_hash if isinstance(input_hash, int) else None
        yield AnnotatedTask(place, text_key, task)
