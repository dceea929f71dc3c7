"""Texts that are to be annotated: corpora without their annotation, and text files."""

from pathlib import Path
from typing import Iterator, Union

from spacy.language import Language
from spacy.tokens import Doc

from .corpus import read_file
from .files import Place, corpus_files, read_text
from .found import DEFAULTS, Context, Found, Predicted
from .sentences import copy_tokens

LINES_OF_TEXT = ".txt"


def read_texts(nlp: Language, path: Union[str, Path]) -> Iterator[Doc]:
    """Read docs without annotation. A .txt file has a text on each line.

    nlp (Language): The pipeline. Its tokenizer is used for texts without tokens.
    path (Union[str, Path]): A text file or any corpus: see `read_docs`.
    YIELDS (Doc): The docs.
    RAISES (CorpusError): If a file can't be read; the message names file and line.
    """
    for file in corpus_files(Path(path)):
        predicted = Predicted()
        if file.suffix == LINES_OF_TEXT:
            yield from _read_lines(nlp, file)
            continue
        for doc in read_file(file, Context(nlp, DEFAULTS, Found(), predicted)):
            yield predicted[doc] if doc in predicted else copy_tokens(doc)


def _read_lines(nlp: Language, path: Path) -> Iterator[Doc]:
    for i, line in enumerate(read_text(path).split("\n")):
        try:
            if line.strip():
                yield nlp.make_doc(line.strip())
        except ValueError as error:  # The text is too long.
            message = f"expected a text that spaCy can read: {error}"
            raise Place(path, i + 1).refuse(message) from None
