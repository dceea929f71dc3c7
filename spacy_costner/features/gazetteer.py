"""Gazetteers: find the phrases of a file in docs."""

from pathlib import Path
from typing import Optional, Sequence, Tuple, Union

import numpy
from spacy.matcher import PhraseMatcher
from spacy.strings import get_string_id
from spacy.tokens import Doc
from spacy.util import filter_spans
from spacy.vocab import Vocab
from thinc.types import Array1d

BEGIN, INSIDE, LAST, UNIT = PLACES = ("B", "I", "L", "U")


class Gazetteer:
    """A list of phrases. Of phrases that overlap in a doc, the longest is found."""

    def __init__(self, phrases: Sequence[str]) -> None:
        """Initialize the gazetteer.

        phrases (Sequence[str]): The phrases, their tokens separated by white space.
        """
        self.phrases = list(phrases)
        self._made: Optional[Tuple[Vocab, PhraseMatcher]] = None

    @classmethod
    def from_file(cls, path: Union[str, Path]) -> "Gazetteer":
        """Read a file in UTF-8 with a phrase on each line.

        path (Union[str, Path]): The file.
        RETURNS (Gazetteer): Its phrases.
        RAISES (ValueError): If it can't be read.
        """
        try:
            lines = Path(path).read_text(encoding="utf8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"spacy_costner.Features: gazetteers: expected a text file in UTF-8: {error}"
            ) from error
        return cls([line.strip() for line in lines if line.strip()])

    def find(self, docs: Sequence[Doc]) -> Array1d:
        """Find the positions of tokens in phrases.

        docs (Sequence[Doc]): The docs.
        RETURNS (Array1d): The hash of one of `PLACES` for each token in one, otherwise 0.
            Shape: (N,)
        """
        found = [self._find(doc) for doc in docs]
        return numpy.concatenate([numpy.zeros(0, dtype="uint64"), *found])

    def _find(self, doc: Doc) -> Array1d:
        places = numpy.zeros(len(doc), dtype="uint64")
        for span in filter_spans(self._matcher_of(doc.vocab)(doc, as_spans=True)):
            if len(span) == 1:
                places[span.start] = get_string_id(UNIT)
                continue
            places[span.start : span.end] = get_string_id(INSIDE)
            places[span.start] = get_string_id(BEGIN)
            places[span.end - 1] = get_string_id(LAST)
        return places

    def _matcher_of(self, vocab: Vocab) -> PhraseMatcher:
        """The matcher for a vocab. Other threads see it when it is whole; two may make it."""
        made = self._made
        if made is None or made[0] is not vocab:
            made = vocab, PhraseMatcher(vocab, attr="LOWER")
            made[1].add("phrase", [Doc(vocab, words=phrase.split()) for phrase in self.phrases])
            self._made = made
        return made[1]
