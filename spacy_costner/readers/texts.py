"""Read texts for annotation by a pipeline.

`read_texts` reads the docs of any corpus without their annotation. `is_text` checks whether a file
is plain text. Large files are read in parts: see `file_parts`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from spacy.lang.char_classes import CONCAT_QUOTES
from spacy.language import Language
from spacy.pipeline import Sentencizer
from spacy.tokens import Doc

from .columns import BLANKS, COLUMN_NAMES, DOCSTART
from .context import DEFAULTS, Context, CorpusInfo, Predicted, ReadOptions
from .corpus import read_file
from .csv_tables import is_csv
from .documents import extension_key, join_documents, with_metadata
from .files import (
    BRAT_ANNOTATION,
    HEAD,
    FilePlace,
    corpus_files,
    is_json,
    read_head,
    read_text,
)
from .inputs import as_spacy_applies
from .rasa import is_rasa_text
from .schemes import LABELS, PREFIXED
from .webanno import is_webanno

CORPORA = (".spacy", ".conll", ".conllu", ".conllup", ".iob", ".tsv", BRAT_ANNOTATION)
"""Suffixes of files that are never plain text."""

TAGGED = re.compile(r"-DOCSTART-.*|\S+\s(.*\s)?(O|[A-Z]-\S+)")
"""Matches a line of a column file, which begins with a token and ends with a tag."""

CONLLU_ROW = re.compile(r"\d+([-.]\d+)?(\t[^\t]+){9}")
"""Matches a line of CoNLL-U, which has ten columns and begins with a number. The tags may be among
the keys and values of the last column."""

TAB = re.compile(r" *\t *")
"""Matches the separator of columns, with padding."""

SENTENCE_ENDS = frozenset([*Sentencizer.default_punct_chars, "…", ":", ";"])
"""The characters that may end the last line of a sentence or clause."""

CLOSING = CONCAT_QUOTES + ")]"
"""The characters that may follow the end of a sentence."""

MIN_PAIRS = 3
"""The minimum number of pairs of lines needed to detect whether lines are wrapped."""


def read_texts(nlp: Language, path: str | Path, options: ReadOptions = DEFAULTS) -> Iterator[Doc]:
    """Read texts for annotation by a pipeline. The docs have no annotation, except for the sentence
    starts of the corpus, if available.

    nlp (Language): The pipeline, which provides the tokenizer for texts without tokens.
    path (str | Path): A text file, each line of which becomes a doc, or any corpus: see
        `read_docs`.
    options (ReadOptions): Options for reading a corpus.
    YIELDS (Doc): The docs. Docs without tokens are skipped.
    RAISES (CorpusError): If a file can't be read. The message contains the file and, if available,
        the line.
    RAISES (ImportError): If the corpus contains a dataset, and `datasets` isn't installed.
    """
    for file in corpus_files(Path(path)):
        if is_text(file):
            yield from _read_lines_of_text(nlp, file)
        else:
            yield from _read_without_annotation(nlp, file, options)


def _read_lines_of_text(nlp: Language, path: Path) -> Iterator[Doc]:
    """Create a doc from each non-empty line of a file."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        text = line.strip()
        if not text:
            continue
        try:
            doc = nlp.make_doc(text)
        except ValueError as error:  # the text is too long
            message = f"expected a text that spaCy can read: {error}"
            raise FilePlace(path, number).refuse(message) from None
        yield doc


def _read_without_annotation(nlp: Language, path: Path, options: ReadOptions) -> Iterator[Doc]:
    """Read the docs of a corpus as in `spacy apply`, with their tokens and sentence starts, but
    without entities."""
    predicted = Predicted()
    # The tag scheme is irrelevant. Read tags as labels, so that none are rejected.
    options = replace(options, scheme=LABELS)
    context = Context(nlp, options=options, info=CorpusInfo(), predicted=predicted)
    docs = _remove_annotation(read_file(path, context), predicted, options.doc_id)
    if options.doc_id is not None:
        docs = join_documents(docs, options.doc_id, FilePlace(path, 1), context)
    yield from docs


def _remove_annotation(
    docs: Iterable[Doc], predicted: Predicted, doc_id: str | None
) -> Iterator[Doc]:
    """Copy docs without their entities. Docs without tokens are skipped. `predicted` contains the
    docs that the tokenizer created from the same texts. `doc_id` is the name of the extension
    attribute with the document ID, which is copied."""
    for doc in docs:
        if not len(doc):
            continue
        text_doc = predicted.get(doc)
        if text_doc is None:
            text_doc = as_spacy_applies(doc)
        if doc_id is not None and extension_key(doc_id) in doc.user_data:
            text_doc.user_data[extension_key(doc_id)] = doc.user_data[extension_key(doc_id)]
        yield with_metadata(text_doc, doc.user_data)


def is_text(path: Path) -> bool:
    """Check whether a file is plain text rather than a corpus, such as a JSON or column file."""
    if path.is_dir() or path.suffix in CORPORA or is_json(path):
        return False
    if is_csv(path) or is_rasa_text(path):
        return False
    head = read_head(path)
    if is_webanno(head):
        return False
    lines = head.splitlines()
    if path.stat().st_size > HEAD:
        lines = lines[:-1]  # the last line may be incomplete
    lines = [line.strip() for line in lines if line.strip()]
    if lines and COLUMN_NAMES.fullmatch(lines[0]):
        return False
    n_comments = 0
    n_tagged = 0
    for line in lines:
        if TAGGED.fullmatch(line) or CONLLU_ROW.fullmatch(line):
            n_tagged += 1
        elif line.startswith("#"):
            n_comments += 1
    # Some lines of a text may look like a token and its tag, such as "I saw O".
    if n_tagged > (len(lines) - n_comments) / 2:
        return False
    return not _has_tag_column(lines)


def _has_tag_column(lines: Sequence[str]) -> bool:
    """Check whether lines are the rows of a table in which a column after the first one contains
    tags. Blank lines have been removed. Comments and -DOCSTART- lines aren't rows."""
    rows = [line for line in lines if not line.startswith(("#", DOCSTART))]
    if len(rows) < 2:  # a single line would always be a table
        return False
    separator = TAB if "\t" in rows[0] else BLANKS
    table = [separator.split(row) for row in rows]
    if len({len(fields) for fields in table}) > 1:
        return False
    for column in [*zip(*table, strict=True)][1:]:
        # Lines of a text may have the same number of words, and the same word at the same position,
        # such as B-12. O is the most frequent tag, and it is rarely a word.
        n_tags = sum(field == "O" or PREFIXED.fullmatch(field) is not None for field in column)
        if "O" in column and n_tags > len(rows) / 2:
            return True
    return False


def has_wrapped_lines(path: Path) -> bool:
    """Check whether the first lines of a .txt file look like the wrapped lines of one text: most
    lines don't end with sentence punctuation, and the next line begins with a letter that isn't
    uppercase."""
    if path.suffix != ".txt":
        return False
    lines = [line.strip() for line in read_head(path).split("\n")]
    n_pairs = 0  # the number of pairs of consecutive non-empty lines
    n_wrapped = 0
    for line, next_line in pairwise(lines):
        if not line or not next_line:
            continue
        n_pairs += 1
        goes_on = next_line[0].isalpha() and not next_line[0].isupper()
        last_character = line.rstrip(CLOSING)[-1:]
        if goes_on and last_character not in SENTENCE_ENDS:
            n_wrapped += 1
    return n_pairs >= MIN_PAIRS and n_wrapped > n_pairs / 2
