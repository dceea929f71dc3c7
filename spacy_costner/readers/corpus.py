"""Read corpora of any format as docs, and as the examples that a config asks for.

`read_docs` reads a corpus, file by file. `read_file` finds the format of a file and calls the
reader of that format. The readers of .spacy files and of Hugging Face datasets are in this file,
the others in files of their own.

`AnyCorpus` makes spaCy's examples of the docs. An example has two docs of the same text: the
*reference* has the annotation, and the *predicted* doc is given to the pipeline.
"""

import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy
import srsly
from spacy.errors import Errors
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Corpus, Example

from ..annotation.sentence_starts import WITHOUT_SENTENCES
from ..annotation.spans import entities_as_spans
from ..files.compression import inflate
from ..validation import require
from .alignment import Alignment
from .brat import read_brat
from .columns import read_columns, read_tokens
from .conflicts import merge_texts, report_conflicts
from .context import DEFAULTS, Context, CorpusInfo, Places, Predicted, ReadOptions
from .csv_tables import is_csv, read_csv
from .documents import join_documents, with_metadata
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
from .inputs import as_spacy_applies, as_spacy_evaluates
from .label_studio import is_label_studio, read_label_studio
from .rasa import is_rasa, is_rasa_text, read_rasa, read_rasa_text
from .schemes import TagCounts, TagScheme, find_scheme
from .sentences import (
    copy_sentences,
    copy_without_annotation,
    find_tag_key,
    find_tag_names,
    read_tagged,
)
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
"""Formats of JSON by their names, each with a function that knows it by the first record of a file
and one that reads its records as tasks."""


DOCBIN = ".spacy"
DATASET = "Hugging Face dataset"

SMALL_DOCBIN = 1 << 28
"""The number of bytes up to which a file of DocBin may be compressed as far as zlib can, in
memory."""

MOST_COMPRESSED = 100
"""How many bytes each byte of larger files may become. Those of corpora become 10 to 20."""


def read_docs(
    nlp: Language,
    path: str | Path,
    options: ReadOptions = DEFAULTS,
    info: CorpusInfo | None = None,
    predicted: Predicted | None = None,
) -> Iterator[Doc]:
    """Read the docs of a corpus. The format of each file is found from its name and its content.

    nlp (Language): The pipeline. Its tokenizer is used for texts without tokens.
    path (str | Path): A file, a folder of files, or a Hugging Face dataset on disk.
    options (ReadOptions): How to read the files, where there are several ways.
    info (CorpusInfo | None): Formats, schemes and problems are added to it. None: problems become
        warnings.
    predicted (Predicted | None): The docs that the tokenizer makes are added to it: see `Context`.
    YIELDS (Doc): The docs, without empty ones.
    RAISES (CorpusError): If a file can't be read; the message names it and, if there are lines, the
        line. After the last doc: if most spans don't begin and end with tokens.
    RAISES (ImportError): If there is a dataset, and `datasets` isn't installed.
    """
    corpus_info = CorpusInfo() if info is None else info
    places = Places()
    alignment = Alignment()
    context = Context(nlp, options, corpus_info, predicted, alignment, places=places)
    docs = _read_files(corpus_files(Path(path)), context)
    # Files of one corpus are read together: annotators may have a file each for the same texts.
    spans_key = options.spans_key
    if options.conflicts is None:
        docs = report_conflicts(docs, spans_key, places, corpus_info)
    else:
        docs = merge_texts(docs, options.conflicts, spans_key, places, corpus_info)
    for doc in docs:
        corpus_info.add_doc(doc, spans_key)
        yield doc
    if info is None:
        for problem in corpus_info.problems:
            warnings.warn(problem.as_text(), stacklevel=2)
    alignment.check(nlp.lang or "xx")


def _read_files(files: list[Path], context: Context) -> Iterator[Doc]:
    """Read the docs of several files, without those that have no tokens."""
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
    """Find the scheme of the tags in all files of columns of a corpus, which are read once for
    this. A file alone may not show it: it may have one tag, such as S-LOC.

    RETURNS (TagScheme | None): The scheme. None: there are fewer than two files of columns, so the
        scheme is found when the file is read.
    RAISES (CorpusError): If one of the files can't be read, or the tags aren't of one scheme.
    """
    files = [file for file in files if _has_columns(file)] if len(files) > 1 else []
    if len(files) < 2:
        return None
    counts = TagCounts()
    for file in files:
        tokens, place_of, *_ = read_tokens(file, options, CorpusInfo())
        counts.add(tokens.tags, tokens.sent_start, place_of)
    return find_scheme(counts, options.scheme)


def _has_columns(path: Path) -> bool:
    """Whether `read_file` reads a file as columns."""
    if path.is_dir() or path.suffix in (DOCBIN, BRAT_ANNOTATION) or is_text_of_brat(path):
        return False
    if is_csv(path) or is_rasa_text(path):
        return False
    return not (_is_webanno(path) or is_json(path))


def _is_webanno(path: Path) -> bool:
    """Whether a file is WebAnno TSV."""
    return path.suffix != DOCBIN and path.is_file() and is_webanno(read_head(path))


def _read_nonempty(path: Path, context: Context) -> Iterator[Doc]:
    """Read the docs of a file, without those that have no tokens. If the option `spans_key` is set
    and a doc has no spans under this key, its entities are written there."""
    spans_key = context.options.spans_key
    for doc in read_file(path, context):
        if not len(doc):
            continue
        if spans_key is not None:
            entities_as_spans(doc, spans_key)
        yield doc


def read_file(path: Path, context: Context) -> Iterator[Doc]:
    """Read the docs of a file, with the reader of its format.

    path (Path): The file, or the folder of a Hugging Face dataset.
    context (Context): What the reader needs.
    RETURNS (Iterator[Doc]): The docs.
    RAISES (CorpusError): If the file can't be read.
    RAISES (ImportError): If it is a dataset, and `datasets` isn't installed.
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


def read_docbin(path: Path, context: Context) -> Iterator[Doc]:
    """Read a .spacy file.

    path (Path): The file.
    context (Context): What the reader needs.
    YIELDS (Doc): The docs.
    RAISES (CorpusError): If it is damaged.
    """
    try:
        docbin = _load_docbin(path.read_bytes())
        context.info.add_file("spaCy's binary format")
        for number, doc in enumerate(docbin.get_docs(context.nlp.vocab), start=1):
            for group in doc.spans.values():
                # spaCy makes the spans of a group when they are asked for. Only then it refuses
                # spans outside of the doc.
                list(group)
            yield context.placed(doc, FilePlace(path, number, "doc"))
    except (ValueError, LookupError, TypeError, AttributeError, zlib.error) as error:
        expected = "a file that spaCy's DocBin has saved"
        raise CorpusError(f"{path}: expected {expected}: {error}") from error


def _load_docbin(data: bytes) -> DocBin:
    """Load a DocBin from the bytes of a file, and check that its parts fit together: spaCy doesn't
    check this.

    RAISES (ValueError): If they don't. Other damage raises errors of other types: see
        `read_docbin`.
    """
    most_bytes = max(SMALL_DOCBIN, MOST_COMPRESSED * len(data))
    saved = srsly.msgpack_loads(inflate(data, most_bytes))
    if not saved["attrs"]:
        raise ValueError("expected attributes of tokens, got none")
    docbin = DocBin().from_bytes(data)

    # "lengths" has the number of tokens of each doc, "spaces" a truth value for each token.
    lengths = numpy.frombuffer(saved["lengths"], dtype="int32")
    n_tokens = len(saved["spaces"])
    if (lengths < 0).any() or lengths.sum(dtype="int64") != n_tokens:
        got = shown(lengths.tolist())
        raise ValueError(f"expected lengths of docs that sum to {n_tokens} tokens, got {got}")

    # Each of these lists has an item for each doc.
    n_docs_of_lists = {
        len(docbin.tokens),
        len(docbin.spaces),
        len(docbin.cats),
        len(docbin.flags),
        len(docbin.span_groups),
        len(docbin.user_data),
    }
    if len(n_docs_of_lists) > 1:
        raise ValueError(f"expected as many of each part as docs, got {sorted(n_docs_of_lists)}")

    for tokens, spaces in zip(docbin.tokens, docbin.spaces):
        if len(tokens) != len(spaces):
            raise ValueError("expected a space or none for each token")
    return docbin


def read_dataset(path: Path, context: Context) -> Iterator[Doc]:
    """Read a dataset that `Dataset.save_to_disk` has saved.

    path (Path): Its folder.
    context (Context): What the reader needs.
    RETURNS (Iterator[Doc]): The docs.
    RAISES (ImportError): If `datasets` isn't installed.
    RAISES (CorpusError): If it is no dataset, a dataset of several splits, or one without rows.
        The docs are read one after another, and errors in rows raised only then.
    """
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
        # In a dataset a column is a "feature". The feature of tags is a Sequence, whose attribute
        # `feature` is a ClassLabel. If tags are numbers, the ClassLabel has their names.
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
    """Make docs of the records of a JSON file or a dataset. The first record shows the format:
    tokens and tags, tasks of Label Studio, or texts and spans.

    records (Values): The records, each with its place.
    begin (FilePlace): The beginning of the file, for error messages.
    format_name (str): "JSON", "JSONL" or "Hugging Face dataset".
    find_names (Callable[[str], list[str] | None]): Takes the key of the tags, and returns the names
        of tags that are numbers, if it finds them.
    context (Context): What the reader needs.
    RETURNS (Iterator[Doc]): The docs.
    RAISES (CorpusError): If there are no records, or they can't be read.
    """
    first_item = next(records, None)
    if first_item is None:
        raise begin.refuse("expected texts, got nothing in it")
    _place, first_record = first_item
    # The reader of the format gets all records again, from the first on.
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
    return tasks_to_docs(_read_tasks(records), context)


def _read_tasks(records: Values) -> Iterator[AnnotatedTask]:
    """Read texts and spans. In Prodigy's export, all annotations of a text have the same
    "_input_hash"."""
    for place, record in records:
        task = task_from_json(record, place)
        input_hash = task.extra.get("_input_hash")
        text_key = input_hash if isinstance(input_hash, int) else None
        yield AnnotatedTask(place, text_key, task)


class KeptDocs:
    """The docs of a corpus that two users need one after another, so that it is read only once. The
    first one, such as `init`, must not change them: the second one, a reader of examples, takes
    them as if it had read them.

    in_memory (bool): Whether docs are kept in memory. Otherwise only what was reported is kept.
    nlp (Language | None): The pipeline that the docs were read with. None: there are none.
    info (CorpusInfo): What readers reported of them.
    predicted (Predicted): The docs that the tokenizer made of their texts.
    """

    def __init__(self, *, in_memory: bool = True) -> None:
        self.in_memory = in_memory
        self.nlp: Language | None = None
        self.info = CorpusInfo()
        self.predicted: Predicted = Predicted()
        self._docs: list[Doc] = []
        self._source: tuple[Path, dict[str, Any]] | None = None

    def read(self, nlp: Language, path: Path, options: ReadOptions) -> Iterable[Doc]:
        """Read a corpus, and keep its docs. For the arguments see `read_docs`."""
        docs = read_docs(nlp, path, options, self.info, self.predicted)
        if not self.in_memory:
            return docs
        self.nlp = nlp
        self._source = path, options.settings()
        self._docs = list(docs)
        return self._docs

    def take(self, nlp: Language, path: Path, options: ReadOptions) -> list[Doc] | None:
        """Take the docs, which are no longer kept then. None: they were taken before, are of
        another corpus or another vocab, or were read with other options."""
        docs, source = self._docs, self._source
        self._docs, self._source = [], None
        has_vocab = self.nlp is not None and self.nlp.vocab is nlp.vocab
        is_same = has_vocab and source == (path, options.settings())
        return docs if is_same else None


class AnyCorpus(Corpus):
    """Iterate over examples of a corpus of any format: see `make_reader`.

    options (ReadOptions): How to read the files, where there are several ways.
    predicted (Predicted): The docs that the tokenizer has made, until an example takes them.
    info (CorpusInfo | None): What is read and the problems are added to it, after it was cleared.
        None: problems become warnings.
    kept (KeptDocs | None): The docs, if they were read before: see `with_info`.
    file_tokens (bool): Whether predicted docs have the tokens and sentence starts of the file: see
        `examples_to_measure`.
    """

    def __init__(self, path: str | Path, options: ReadOptions, **settings: Any) -> None:
        super().__init__(path, **settings)
        self.options = options
        self.predicted: Predicted = Predicted()
        self.info: CorpusInfo | None = None
        self.kept: KeptDocs | None = None
        self.file_tokens = False

    def __call__(self, nlp: Language) -> Iterator[Example]:
        """Read the examples of the corpus.

        nlp (Language): The pipeline.
        YIELDS (Example): What the augmenter makes of the examples: see `make_reader`.
        """
        docs = self._read_docs(nlp)

        # spaCy's methods call `_make_example` for each doc, or for each sentence.
        if self.gold_preproc:
            examples = self.make_examples_gold_preproc(nlp, docs)
        else:
            examples = self.make_examples(nlp, docs)

        for eg in examples:
            for augmented in self.augmenter(nlp, eg):
                # An augmenter may also return the example itself, which has lost nothing.
                if augmented is not eg:
                    self._restore_tokens(eg, augmented)
                yield augmented

    def _read_docs(self, nlp: Language) -> Iterable[Doc]:
        """Read the annotated docs, or take those that were read before."""
        if self.kept is not None:
            docs = self.kept.take(nlp, self.path, self.options)
            # With a limit fewer docs are read, and reported.
            if docs is not None and self.limit < 1:
                return docs
        if self.info is not None:
            self.info.clear()  # of an earlier reading
        docs_of_files = read_docs(nlp, self.path, self.options, self.info, self.predicted)
        return islice(docs_of_files, self.limit) if self.limit >= 1 else docs_of_files

    def _restore_tokens(self, eg: Example, augmented: Example) -> None:
        """Restore what an augmented example has lost. spaCy's augmenters tokenize its text again
        for the predicted doc, and drop the sentence starts of both docs.

        eg (Example): The example that the augmenter was given.
        augmented (Example): The example that it has made, which is changed.
        """
        if eg.reference.has_unknown_spaces:
            # The file has only tokens, so there is no text to tokenize: see `as_spacy_evaluates`.
            augmented.predicted = copy_without_annotation(augmented.reference)
        # Sentences can be found again only if the augmenter moved no characters.
        if len(augmented.text) == len(eg.text):
            copy_sentences(eg.reference, augmented.reference)
        self._add_sentences(augmented.reference, augmented.predicted)

    def _add_sentences(self, reference: Doc, predicted: Doc) -> None:
        """Copy the sentence starts of the reference to the predicted doc if the settings ask for
        them. If the option `sentences` is False, mark the doc: see `WITHOUT_SENTENCES`."""
        if self.file_tokens or self.options.sentences:
            copy_sentences(reference, predicted)
        elif self.options.sentences is False:
            predicted.user_data[WITHOUT_SENTENCES] = True

    def _make_example(self, nlp: Language, reference: Doc, gold_preproc: bool) -> Example:
        """Make an example of an annotated doc. This replaces spaCy's method of the same name. It
        doesn't tokenize a text again that the reader has tokenized, and it doesn't loop over tokens
        in Python.

        nlp (Language): The pipeline.
        reference (Doc): The annotated doc.
        gold_preproc (bool): Whether the predicted doc has the tokens of the annotation.
        RETURNS (Example): The example.
        """
        # If the file has no tokens, the reader has kept the doc that the tokenizer made.
        tokenized = self.predicted.pop(reference, None)
        if gold_preproc:
            predicted = copy_without_annotation(reference)
        elif tokenized is not None:
            predicted = tokenized
        elif self.file_tokens:
            predicted = as_spacy_applies(reference)
        else:
            predicted = as_spacy_evaluates(nlp, reference)
        self._add_sentences(reference, predicted)
        # Components may read the metadata of a doc, such as its group, from its `user_data`.
        return Example(with_metadata(predicted, reference.user_data), reference)


def examples_to_measure(
    nlp: Language, corpus: Callable[[Language], Iterable[Example]], *, file_tokens: bool = False
) -> Iterator[Example]:
    """Read the examples of a corpus that a pipeline is measured on.

    nlp (Language): The pipeline.
    corpus (Callable): The reader of the corpus. Sentence starts that its settings ask for are kept.
    file_tokens (bool): Whether predicted docs have the tokens and sentence starts of the file, as
        in `spacy apply` (see `as_spacy_applies`). Otherwise they are made of its text, as in `spacy
        evaluate` (see `as_spacy_evaluates`).
    YIELDS (Example): The examples.
    """
    if isinstance(corpus, AnyCorpus):
        corpus = copy(corpus)  # training may use the reader, too
        corpus.file_tokens = file_tokens
        yield from corpus(nlp)
        return
    for eg in corpus(nlp):  # another reader of examples, such as spaCy's of .spacy files
        if file_tokens:
            eg = Example(as_spacy_applies(eg.reference), eg.reference)
        yield eg


def with_info(
    corpus: Callable[[Language], Iterable[Example]],
    spans_key: str | None = None,
    kept: KeptDocs | None = None,
) -> tuple[Callable[[Language], Iterable[Example]], CorpusInfo]:
    """Let a reader of examples report what it reads.

    corpus (Callable): The reader: our own, or another one, such as spaCy's.
    spans_key (str | None): The key of `doc.spans` whose spans count as entities, if the reader
        isn't our own. None: those of `doc.ents` count.
    kept (KeptDocs | None): Docs that were read before. Our own reader takes them if they are those
        that it would read, and their report.
    RETURNS (tuple[Callable, CorpusInfo]): A reader of the same examples, and what it reports. With
        every reading the report begins anew.
    """
    info = CorpusInfo()
    if isinstance(corpus, AnyCorpus):
        corpus = copy(corpus)  # training may use the reader, too
        if kept is not None:
            corpus.kept = kept
            corpus.predicted = kept.predicted
            info = kept.info
        corpus.info = info
        return corpus, info

    def read(nlp: Language) -> Iterator[Example]:
        info.clear()
        info.add_file("another reader")
        for eg in corpus(nlp):
            info.add_doc(eg.reference, spans_key)
            yield eg

    return read, info


def make_reader(
    path: Path | None,
    gold_preproc: bool = False,
    max_length: int = 0,
    limit: int = 0,
    augmenter: Callable[[Language, Example], Iterable[Example]] | None = None,
    n_sents: int | None = None,
    token_column: int | str | None = None,
    tag_column: int | str | None = None,
    scheme: str | None = None,
    column: int | None = None,
    tag_names: list[str] | None = None,
    incorrect_spans_key: str | None = None,
    doc_id: str | None = None,
    sentences: bool | None = None,
    spans_key: str | None = None,
    text_key: str | None = None,
    conflicts: str | None = None,
) -> Callable[[Language], Iterator[Example]]:
    """Make a reader of a corpus: "spacy_costner.read.v1". It takes the settings of spaCy's
    "spacy.Corpus.v1", reads .spacy files in the same way, and other formats, too.

    path (Path | None): A file, a folder, or a Hugging Face dataset on disk.
    gold_preproc (bool): Whether each sentence of the annotation becomes an example, with the tokens
        of the annotation.
    max_length (int): Docs that don't have fewer tokens than this are split into sentences.
        Sentences that don't, either, and such docs without sentence starts are left out. 0: no
        limit.
    limit (int): The number of docs that are read. 0: all.
    augmenter (Callable | None): Makes one or more examples of each example, which replace it. None:
        examples stay as they are.
    n_sents, token_column, tag_column, scheme, column, tag_names, incorrect_spans_key, spans_key,
        text_key, doc_id, conflicts, sentences: See `ReadOptions`.
    RETURNS (Callable[[Language], Iterator[Example]]): Reads the corpus.
    RAISES (ValueError): If there is no path, a number is out of its range, or there is no such
        scheme.
    """
    if path is None:
        raise ValueError(Errors.E913)
    options = ReadOptions(
        n_sents=n_sents,
        token_column=token_column,
        tag_column=tag_column,
        scheme=scheme,
        column=column,
        tag_names=tag_names,
        incorrect_spans_key=incorrect_spans_key,
        spans_key=spans_key,
        doc_id=doc_id,
        sentences=sentences,
        text_key=text_key,
        conflicts=conflicts,
    )
    return AnyCorpus(
        path,
        options,
        gold_preproc=gold_preproc,
        max_length=max_length,
        limit=limit,
        augmenter=augmenter,
    )


def make_copies(
    augmenter: Callable[[Language, Example], Iterable[Example]],
) -> Callable[[Language, Example], Iterator[Example]]:
    """Make an augmenter that keeps each example, and adds the examples that another augmenter makes
    of it: "spacy_costner.copies.v1". spaCy's own augmenters replace the example.

    augmenter (Callable): The other augmenter.
    RETURNS (Callable[[Language, Example], Iterator[Example]]): The augmenter.
    """

    def augment(nlp: Language, example: Example) -> Iterator[Example]:
        yield example
        for augmented in augmenter(nlp, example):
            if augmented is not example:
                yield augmented

    return augment
