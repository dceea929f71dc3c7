"""Texts that are to be annotated: corpora without their annotation, and text files."""

import re
from pathlib import Path
from typing import Iterator, Union

from spacy.language import Language
from spacy.tokens import Doc

from .context import DEFAULTS, Context, CorpusInfo, Predicted
from .corpus import read_file
from .files import Place, corpus_files, looks_like_json, read_head, read_text
from .sentences import copy_tokens

CORPORA = (".spacy", ".conll", ".iob", ".tsv", ".json", ".jsonl")
TAGGED = re.compile(r"-DOCSTART-.*|\S+\s(.*\s)?(O|[A-Z]-\S+)")
"""A line of a corpus in columns."""


def read_texts(nlp: Language, path: Union[str, Path]) -> Iterator[Doc]:
    """Read docs without annotation. A file of text has a doc on each line: see `is_text`.

    nlp (Language): The pipeline. Its tokenizer is used for texts without tokens.
    path (Union[str, Path]): A text file or any corpus: see `read_docs`.
    YIELDS (Doc): The docs.
    RAISES (CorpusError): If a file can't be read; the message names file and line.
    """
    for file in corpus_files(Path(path)):
        if is_text(file):
            yield from read_lines(nlp, file)
            continue
        predicted = Predicted()
        for doc in read_file(file, Context(nlp, DEFAULTS, CorpusInfo(), predicted)):
            yield predicted[doc] if doc in predicted else copy_tokens(doc)


def is_text(path: Path) -> bool:
    """Whether a file has only text: neither JSON nor columns of words and tags."""
    if path.is_dir() or path.suffix in CORPORA or looks_like_json(read_head(path)):
        return False
    lines = [line.strip() for line in read_head(path).splitlines() if line.strip()]
    return sum(bool(TAGGED.fullmatch(line)) for line in lines) * 2 <= len(lines)


def read_lines(nlp: Language, path: Path) -> Iterator[Doc]:
    """Read a file with a text on each line.

    nlp (Language): The pipeline whose tokenizer is used.
    path (Path): The file.
    YIELDS (Doc): A doc for each line that isn't empty.
    RAISES (CorpusError): If the file can't be read; the message names file and line.
    """
    for i, line in enumerate(read_text(path).split("\n")):
        try:
            if line.strip():
                yield nlp.make_doc(line.strip())
        except ValueError as error:  # The text is too long.
            message = f"expected a text that spaCy can read: {error}"
            raise Place(path, i + 1).refuse(message) from None
