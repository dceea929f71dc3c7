"""What is counted in the training docs, for columns to take their values from."""

from collections import Counter
from dataclasses import dataclass, field

import numpy
from spacy.lexeme import Lexeme
from spacy.strings import StringStore
from spacy.vocab import Vocab
from thinc.types import Array1d

from .label_counts import LabelCounts
from .tokens import Tokens, string_of


@dataclass
class TrainingCounts:
    """What is counted in the training docs.

    labels (LabelCounts): The labels of values, if a column wants them.
    strings (StringStore): The values that docs don't have as hashes.
    vocabs (list[Vocab]): The vocabs of the docs, mostly a single one.
    word_counts (Counter[int]): How often each word is there, by its word key: see `Tokens`.
    lexemes (dict[int, Lexeme]): The lexemes of these words.
    value_counts (dict[str, Counter[int]]): How often the hash of each value is there, by the names
        of `Tokens.keys`.
    tokens (Tokens | None): All tokens, if a column wants them.
    """

    labels: LabelCounts
    strings: StringStore
    vocabs: list[Vocab] = field(default_factory=list)
    word_counts: Counter[int] = field(default_factory=Counter)
    lexemes: dict[int, Lexeme] = field(default_factory=dict)
    value_counts: dict[str, Counter[int]] = field(default_factory=dict)
    tokens: Tokens | None = None

    def add(self, tokens: Tokens) -> None:
        """Count the words and the values of a batch."""
        word_keys, first_tokens = numpy.unique(tokens.word_keys, return_index=True)
        is_new = [key not in self.lexemes for key in word_keys.tolist()]
        new_words = numpy.flatnonzero(is_new)
        new_lexemes = tokens.lexemes(first_tokens[new_words])
        self.lexemes.update(zip(word_keys[new_words].tolist(), new_lexemes))
        self.word_counts.update(count_hashes(tokens.word_keys))
        for name, value_keys in tokens.keys.items():
            counts = self.value_counts.setdefault(name, Counter())
            counts.update(count_hashes(value_keys))
        for vocab in tokens.vocabs:
            if not any(vocab is known_vocab for known_vocab in self.vocabs):
                self.vocabs.append(vocab)

    def count_strings(self, name: str) -> Counter[str]:
        """How often each value is there, of those of a name of `Tokens.keys`."""
        stores = [self.strings, *(vocab.strings for vocab in self.vocabs)]
        counts: Counter[str] = Counter()
        for key, n in self.value_counts.get(name, Counter()).items():
            if key:
                counts[string_of(key, stores)] += n
        return counts


def count_hashes(hashes: Array1d) -> dict[int, int]:
    """How often each hash is there. Shape: (N,)"""
    distinct_hashes, n_times = numpy.unique(hashes, return_counts=True)
    return dict(zip(distinct_hashes.tolist(), n_times.tolist()))
