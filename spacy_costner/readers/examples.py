"""Make spaCy's examples from a corpus of any format, as a config requests them.

An example has two docs of the same text: the *reference* has the annotation, and the *predicted*
doc is given to the pipeline. `AnyCorpus` makes them, and `make_reader` is its registered function.
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

from ..annotation.sentence_starts import WITHOUT_SENTENCES
from .context import CorpusInfo, Predicted, ReadOptions
from .corpus import read_docs
from .documents import with_metadata
from .inputs import as_spacy_applies, as_spacy_evaluates
from .sentences import copy_sentences, copy_without_annotation


class KeptDocs:
    """The docs of a corpus that two functions need one after the other, so that it is read only
    once. The first function, such as `init`, must not change them: the second one, a reader of
    examples, takes them as if it had read them.

    in_memory (bool): Whether docs are kept in memory. Otherwise only what was reported is kept.
    nlp (Language | None): The pipeline that the docs were read with. None: no docs are kept.
    info (CorpusInfo): What was reported when they were read.
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
    info (CorpusInfo | None): It is cleared before each reading, and then gets what is read and the
        problems. None: problems become warnings.
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

        nlp (Language): The pipeline, for its tokenizer and its vocab.
        YIELDS (Example): The examples from the augmenter: see `make_reader`.
        """
        docs = self._read_docs(nlp)

        # spaCy's methods call `_make_example` for each doc, or for each sentence.
        if self.gold_preproc:
            examples = self.make_examples_gold_preproc(nlp, docs)
        else:
            examples = self.make_examples(nlp, docs)

        for eg in examples:
            for augmented in self.augmenter(nlp, eg):
                # Augmenters lose the tokens and sentences of the file: see `_restore_tokens`. If
                # one returns the example itself, nothing is lost.
                if augmented is not eg:
                    self._restore_tokens(eg, augmented)
                yield augmented

    def _read_docs(self, nlp: Language) -> Iterable[Doc]:
        """Read the annotated docs, or take docs that were read before."""
        if self.kept is not None:
            docs = self.kept.take(nlp, self.path, self.options)
            # With a limit fewer docs are read, and reported.
            if docs is not None and self.limit < 1:
                return docs
        if self.info is not None:
            self.info.clear()  # it may have an earlier reading
        docs_of_files = read_docs(nlp, self.path, self.options, self.info, self.predicted)
        return islice(docs_of_files, self.limit) if self.limit >= 1 else docs_of_files

    def _restore_tokens(self, eg: Example, augmented: Example) -> None:
        """Restore the tokens and sentence starts of an augmented example, in place. spaCy's
        augmenters tokenize the text of the example `eg` again for the predicted doc, and drop the
        sentence starts of both docs."""
        if eg.reference.has_unknown_spaces:
            # The file has only tokens, so there is no text to tokenize: see `as_spacy_evaluates`.
            augmented.predicted = copy_without_annotation(augmented.reference)
        # Sentences can be found again only if the augmenter moved no characters.
        if len(augmented.text) == len(eg.text):
            copy_sentences(eg.reference, augmented.reference)
        self._add_sentences(augmented.reference, augmented.predicted)

    def _add_sentences(self, reference: Doc, predicted: Doc) -> None:
        """Copy the sentence starts of the reference to the predicted doc if the settings request
        them. If the option `sentences` is False, mark the doc: see `WITHOUT_SENTENCES`."""
        if self.file_tokens or self.options.sentences:
            copy_sentences(reference, predicted)
        elif self.options.sentences is False:
            predicted.user_data[WITHOUT_SENTENCES] = True

    def _make_example(self, nlp: Language, reference: Doc, gold_preproc: bool) -> Example:
        """Make an example from an annotated doc. This replaces spaCy's method of the same name: it
        doesn't tokenize a text again that the reader has tokenized, and it doesn't loop over tokens
        in Python. With `gold_preproc`, the predicted doc has the tokens of the annotation."""
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

    nlp (Language): The pipeline, for its tokenizer and its vocab.
    corpus (Callable): The reader of the corpus. Sentence starts that its settings request are kept.
    file_tokens (bool): Whether predicted docs have the tokens and sentence starts of the file, as
        in `spacy apply` (see `as_spacy_applies`). Otherwise they are made of its text, as in `spacy
        evaluate` (see `as_spacy_evaluates`).
    YIELDS (Example): The examples, whose predicted docs have no entities.
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
    """Give a reader of examples a report, `CorpusInfo`, of the corpus that it reads.

    corpus (Callable): The reader: ours or a different one, such as spaCy's.
    spans_key (str | None): The key of `doc.spans` whose spans count as entities, if the reader
        isn't our own. None: the spans of `doc.ents` count.
    kept (KeptDocs | None): Docs that were read before. Our own reader takes them with their report
        if it would read the same docs.
    RETURNS (tuple[Callable, CorpusInfo]): A reader of the same examples, and its report. The report
        starts over each time that the corpus is read.
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
    max_length (int): Docs that have at least this number of tokens are split into sentences.
        Sentences of this length, and such docs without sentence starts, are left out. 0: no limit.
    limit (int): The number of docs that are read. 0: all.
    augmenter (Callable | None): Makes one or more examples from each example, which replace it.
        None: examples stay as they are.
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


def make_copies_augmenter(
    augmenter: Callable[[Language, Example], Iterable[Example]],
) -> Callable[[Language, Example], Iterator[Example]]:
    """Build the augmenter "spacy_costner.copies.v1". It keeps each example, and adds the examples
    that another augmenter makes from it. spaCy's own augmenters replace the example.

    augmenter (Callable): The other augmenter.
    RETURNS (Callable[[Language, Example], Iterator[Example]]): Yields the example and its copies.
    """

    def augment(nlp: Language, example: Example) -> Iterator[Example]:
        yield example
        for augmented in augmenter(nlp, example):
            if augmented is not example:
                yield augmented

    return augment
