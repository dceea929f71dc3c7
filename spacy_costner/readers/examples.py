"""Create spaCy examples from a corpus of any format, as specified in a config.

An example contains two docs with the same text: the *reference* doc with the annotation, and the
*predicted* doc, which is passed to the pipeline. `AnyCorpus` creates the examples, and the
registered function `make_reader` creates the `AnyCorpus`.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import islice
from pathlib import Path
from typing import Any

from spacy.errors import Errors
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Corpus, Example

from ..annotation.equal_texts import AUGMENTED
from ..annotation.sentence_starts import WITHOUT_SENTENCES
from ..annotation.user_data import values_of_doc
from .context import CorpusInfo, Predicted, ReadOptions
from .corpus import read_docs
from .documents import split_into_sentences, with_metadata
from .inputs import as_spacy_applies, as_spacy_evaluates
from .sentences import copy_sentences, copy_without_annotation


class KeptDocs:
    """Docs of a corpus that are shared by two functions, so that the corpus is only read once. The
    first function, such as `init`, reads the docs and must not modify them. The second one, a
    reader of examples, takes them instead of reading the corpus again.

    in_memory (bool): Whether to keep the docs in memory. Otherwise, only the info is kept.
    nlp (Language | None): The pipeline that the docs were read with, or None if no docs are kept.
    info (CorpusInfo): The information that was reported when the docs were read.
    predicted (Predicted): The docs that the tokenizer created from the same texts.
    """

    def __init__(self, *, in_memory: bool = True) -> None:
        self.in_memory = in_memory
        self.nlp: Language | None = None
        self.info = CorpusInfo()
        self.predicted: Predicted = Predicted()
        self._docs: list[Doc] = []
        self._source: tuple[Path, dict[str, Any]] | None = None

    def read(self, nlp: Language, path: Path, options: ReadOptions) -> Iterable[Doc]:
        """Read a corpus and keep its docs. For the arguments, see `read_docs`."""
        docs = read_docs(nlp, path, options, self.info, self.predicted)
        if not self.in_memory:
            return docs
        self.nlp = nlp
        self._source = path, options.settings()
        self._docs = list(docs)
        return self._docs

    def take(self, nlp: Language, path: Path, options: ReadOptions) -> list[Doc] | None:
        """Return the docs and stop keeping them. Returns None if they have already been taken,
        belong to another corpus or vocab, or were read with other options."""
        docs, source = self._docs, self._source
        self._docs, self._source = [], None
        has_vocab = self.nlp is not None and self.nlp.vocab is nlp.vocab
        is_same = has_vocab and source == (path, options.settings())
        return docs if is_same else None


class AnyCorpus(Corpus):
    """Iterate over the examples of a corpus of any format: see `make_reader`.

    options (ReadOptions): Options for reading the files.
    predicted (Predicted): The docs created by the tokenizer. Each of them is removed when it is
        used in an example.
    info (CorpusInfo | None): Collects formats, counts and problems. Reset each time the corpus is
        read. If None, a warning is issued for each problem.
    kept (KeptDocs | None): The docs, if the corpus has already been read: see `with_info`.
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

        nlp (Language): The pipeline, which provides the tokenizer and the vocab.
        YIELDS (Example): The examples, after augmentation: see `make_reader`.
        """
        docs = self._read_docs(nlp)

        if self.gold_preproc:
            examples = self.make_examples_gold_preproc(nlp, docs)
        else:
            examples = self.make_examples(nlp, docs)

        for eg in examples:
            for augmented in self.augmenter(nlp, eg):
                # Augmenters discard the file's tokens and sentences, unless they return the
                # original example.
                if augmented is not eg:
                    self._restore_tokens(eg, augmented)
                yield augmented

    def _read_docs(self, nlp: Language) -> Iterable[Doc]:
        """Read the annotated docs, or return the docs that have already been read."""
        if self.kept is not None:
            docs = self.kept.take(nlp, self.path, self.options)
            # With a limit, fewer docs have to be read and reported.
            if docs is not None and self.limit < 1:
                return docs
        if self.info is not None:
            self.info.clear()  # it may contain the results of an earlier pass
        docs_of_files = read_docs(nlp, self.path, self.options, self.info, self.predicted)
        return islice(docs_of_files, self.limit) if self.limit >= 1 else docs_of_files

    def make_examples(self, nlp: Language, reference_docs: Iterable[Doc]) -> Iterator[Example]:
        """Create an example from each doc. Docs that are too long are split into sentences.
        Overrides spaCy's method, which loses span groups and the `user_data` of these docs, and
        tokenizes their words again."""
        for reference in reference_docs:
            if self._is_short(reference):
                yield self._make_example(nlp, reference, False)
            elif reference.has_annotation("SENT_START"):
                for sentence in split_into_sentences(reference):
                    if self._is_short(sentence):
                        yield self._make_example(nlp, sentence, False)

    def _is_short(self, doc: Doc) -> bool:
        """Check whether a doc has fewer tokens than `max_length`. If it is 0, there is no limit."""
        return self.max_length == 0 or len(doc) < self.max_length

    def make_examples_gold_preproc(
        self, nlp: Language, reference_docs: Iterable[Doc]
    ) -> Iterator[Example]:
        """Create an example from each sentence, with the tokens of the annotation: see
        `make_examples`."""
        for reference in reference_docs:
            sentences: Iterable[Doc] = [reference]
            if reference.has_annotation("SENT_START"):
                sentences = split_into_sentences(reference)
            for sentence in sentences:
                yield self._make_example(nlp, sentence, True)

    def _restore_tokens(self, eg: Example, augmented: Example) -> None:
        """Restore the tokens, sentence starts and `user_data` of an augmented example, in place.
        For the predicted doc, spaCy's augmenters tokenize the text of the example `eg` again. They
        also drop the sentence starts and the `user_data` of both docs."""
        if eg.reference.has_unknown_spaces:
            # The file only contains tokens, so there is no text to tokenize.
            augmented.predicted = copy_without_annotation(augmented.reference)
            augmented.reference.has_unknown_spaces = True
        # Sentence starts, and values in `user_data` that belong to tokens, can only be copied if
        # the augmenter hasn't moved any characters or tokens.
        user_data = values_of_doc(eg.reference.user_data)
        if len(augmented.text) == len(eg.text):
            copy_sentences(eg.reference, augmented.reference)
            if len(augmented.reference) == len(eg.reference):
                user_data = eg.reference.user_data
        augmented.reference.user_data = {**user_data, **augmented.reference.user_data}
        with_metadata(augmented.predicted, augmented.reference.user_data)
        self._add_sentences(augmented.reference, augmented.predicted)

    def _add_sentences(self, reference: Doc, predicted: Doc) -> None:
        """Copy the sentence starts of the reference to the predicted doc if the settings request
        it. If the option `sentences` is False, mark the doc with `WITHOUT_SENTENCES`."""
        if self.file_tokens or self.options.sentences:
            copy_sentences(reference, predicted)
        elif self.options.sentences is False:
            predicted.user_data[WITHOUT_SENTENCES] = True

    def _make_example(self, nlp: Language, reference: Doc, gold_preproc: bool) -> Example:
        """Create an example from an annotated doc. Overrides spaCy's method of the same name to
        avoid tokenizing a text again and looping over tokens in Python. With `gold_preproc`, the
        predicted doc has the tokens of the annotation."""
        # If the file contains no tokens, the reader has stored the doc that the tokenizer created.
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
        # Components may use the metadata in `user_data`, such as the group of a doc.
        return Example(with_metadata(predicted, reference.user_data), reference)


def examples_to_measure(
    nlp: Language, corpus: Callable[[Language], Iterable[Example]], *, file_tokens: bool = False
) -> Iterator[Example]:
    """Read the examples of a corpus to evaluate a pipeline on them.

    nlp (Language): The pipeline, which provides the tokenizer and the vocab.
    corpus (Callable): The reader of the corpus. If its settings request sentence starts, these are
        kept.
    file_tokens (bool): Whether to create predicted docs from the tokens and sentence starts of the
        file, as in `spacy apply` (see `as_spacy_applies`). Otherwise, they are created from the
        text, as in `spacy evaluate` (see `as_spacy_evaluates`).
    YIELDS (Example): The examples. The predicted docs contain no entities.
    """
    if isinstance(corpus, AnyCorpus):
        corpus = copy(corpus)  # the original may also be used for training
        corpus.file_tokens = file_tokens
        yield from corpus(nlp)
        return
    for eg in corpus(nlp):  # from another reader, such as spaCy's reader of .spacy files
        if file_tokens:
            eg = Example(as_spacy_applies(eg.reference), eg.reference)
        yield eg


def with_info(
    corpus: Callable[[Language], Iterable[Example]],
    spans_key: str | None = None,
    kept: KeptDocs | None = None,
) -> tuple[Callable[[Language], Iterable[Example]], CorpusInfo]:
    """Attach a `CorpusInfo` to a reader of examples, to collect information about the corpus.

    corpus (Callable): The reader: an `AnyCorpus`, or a different one such as spaCy's `Corpus`.
    spans_key (str | None): The key in `doc.spans` of the spans to count as entities, if the reader
        isn't an `AnyCorpus`. If None, the spans in `doc.ents` are counted.
    kept (KeptDocs | None): Docs that have already been read. An `AnyCorpus` uses them and their
        info if it would read the same docs.
    RETURNS (tuple[Callable, CorpusInfo]): A reader of the same examples, and its info, which is
        reset each time the corpus is read.
    """
    info = CorpusInfo()
    if isinstance(corpus, AnyCorpus):
        corpus = copy(corpus)  # the original may also be used for training
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
    """Create the corpus reader "spacy_costner.read.v1". It has the same settings as spaCy's
    "spacy.Corpus.v1" and reads .spacy files in the same way, but also supports other formats.

    path (Path | None): A file, a folder, or a Hugging Face dataset on disk.
    gold_preproc (bool): Whether to create one example per annotated sentence, with the tokens of
        the annotation.
    max_length (int): Docs with this many tokens or more are split into sentences. Sentences that
        are still this long are skipped, and so are docs that are this long and have no sentence
        starts. Defaults to 0, which indicates no limit.
    limit (int): The maximum number of docs to read. Defaults to 0, which indicates no limit.
    augmenter (Callable | None): Optional function that replaces each example with one or more
        augmented examples.
    n_sents, token_column, tag_column, scheme, column, tag_names, incorrect_spans_key, spans_key,
        text_key, doc_id, conflicts, sentences: See `ReadOptions`.
    RETURNS (Callable[[Language], Iterator[Example]]): The corpus reader.
    RAISES (ValueError): If the path is None, a number is out of range, or an option has an invalid
        value. The reader raises one if a doc with soft targets would be split into sentences.
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


def make_copies_augmenter(
    augmenter: Callable[[Language, Example], Iterable[Example]],
) -> Callable[[Language, Example], Iterator[Example]]:
    """Create the augmenter "spacy_costner.copies.v1". It yields each example, followed by the
    examples that another augmenter creates from it. In contrast, spaCy's augmenters may replace the
    example.

    augmenter (Callable): The other augmenter.
    RETURNS (Callable[[Language, Example], Iterator[Example]]): The augmenter.
    """

    def augment(nlp: Language, example: Example) -> Iterator[Example]:
        yield example
        for augmented in augmenter(nlp, example):
            if augmented is not example:
                augmented.reference.user_data[AUGMENTED] = True
                yield augmented

    return augment
