"""Features based on gazetteers, which are lists of phrases, such as the names of cities.

The value of a token is its position in a matched phrase: "B" for the first token, "I" for a token
inside, "L" for the last token, or "U" for the only token.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy
from spacy.matcher import PhraseMatcher
from spacy.tokens import Doc
from spacy.util import filter_spans
from spacy.vocab import Vocab
from thinc.types import Array1d

from .attributes import KeyColumn
from .column import SavedColumns, Window, check_strings
from .tokens import HashOf

BEGIN = "B"
INSIDE = "I"
LAST = "L"
UNIT = "U"
"""The positions of tokens in a phrase. These are the values of the column."""

MATCH_ID = "ENT_ID"
"""The id of all phrases in a matcher. It's a symbol of spaCy, because every string store contains
symbols. If a matcher is created in a memory zone, other strings may be removed from the string
store at the end of the zone."""


class GazetteerColumn(KeyColumn):
    """Gazetteer column. Its values are the positions of tokens in the gazetteer's phrases.

    path (str): The path to the phrase file. Only required for training, because the phrases are
        saved with the model.
    """

    reads_docs = True

    def __init__(self, name: str, window: Window, path: str) -> None:
        super().__init__(name, window)
        self.path = path
        self.gazetteer = Gazetteer([])

    def prepare(self) -> None:
        """Read the phrases from the file: see `Gazetteer.from_file`."""
        self.gazetteer = Gazetteer.from_file(self.path)

    def read(self, docs: Sequence[Doc], hash_of: HashOf) -> Array1d:
        """Find the phrases in docs and return the hash of each token's position: see
        `Gazetteer.find`."""
        return self.gazetteer.find(docs, hash_of)

    def save(self, saved: SavedColumns) -> None:
        """Write the values (the positions) and the phrases."""
        super().save(saved)
        saved["phrases"][self.name] = self.gazetteer.phrases

    def load(self, saved: SavedColumns) -> None:
        """Read the saved data and validate it."""
        super().load(saved)
        if self.name not in saved["phrases"]:
            raise ValueError(f"{self.name}: expected phrases, found none")
        phrases = saved["phrases"][self.name]
        check_strings(self.name, phrases)
        self.gazetteer = Gazetteer(phrases)


class Gazetteer:
    """A list of phrases to match in docs. Matching is case-insensitive. If matches overlap, the
    longest one is used."""

    def __init__(self, phrases: Sequence[str]) -> None:
        self.phrases = list(phrases)
        self._matcher: tuple[Vocab, PhraseMatcher] | None = None

    @classmethod
    def from_file(cls, path: str | Path) -> "Gazetteer":
        """Read a UTF-8 file with one phrase per line. The tokens of a phrase are separated by
        spaces.

        RAISES (ValueError): If the file can't be read.
        """
        try:
            # "utf-8-sig" skips a byte order mark, which would become part of the first phrase.
            lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(
                "spacy_costner.Features: gazetteers: expected a UTF-8 text file, but could not "
                f"read {path}: {error}"
            ) from error
        phrases = []
        for line in lines:
            phrase = line.strip()
            if phrase:
                phrases.append(phrase)
        return cls(phrases)

    def find(self, docs: Sequence[Doc], hash_of: HashOf) -> Array1d:
        """Find the phrases in docs.

        hash_of (HashOf): Function to hash a position.
        RETURNS (Array1d): The hash of each token's position in its phrase, such as "B" for the
            first token, or 0 for tokens outside of phrases. Shape: (N,)
        """
        n_tokens = sum(len(doc) for doc in docs)
        positions = numpy.zeros(n_tokens, dtype="uint64")

        first_of_doc = 0  # the batch index of the doc's first token
        for doc in docs:
            matcher = self._matcher_of(doc.vocab)
            spans = matcher(doc, as_spans=True)
            for span in filter_spans(spans):  # keep the longest of overlapping spans
                # The batch indices of the span's first and last token.
                first_token = first_of_doc + span.start
                last_token = first_of_doc + span.end - 1
                if first_token == last_token:
                    positions[first_token] = hash_of(UNIT)
                else:
                    positions[first_token : last_token + 1] = hash_of(INSIDE)
                    positions[first_token] = hash_of(BEGIN)
                    positions[last_token] = hash_of(LAST)
            first_of_doc += len(doc)
        return positions

    def _matcher_of(self, vocab: Vocab) -> PhraseMatcher:
        """Return the matcher for a vocab. The last matcher is cached, because most docs share a
        vocab. Threads may create matchers at the same time, so a matcher is only cached when it's
        complete."""
        if self._matcher is not None:
            matcher_vocab, matcher = self._matcher
            if matcher_vocab is vocab:
                return matcher
        matcher = PhraseMatcher(vocab, attr="LOWER")
        matcher.add(MATCH_ID, [Doc(vocab, words=phrase.split()) for phrase in self.phrases])
        self._matcher = (vocab, matcher)
        return matcher
