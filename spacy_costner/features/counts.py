"""Count words and values in the training docs, from which columns take their values.

They are counted by their hashes. A *word key* is the hash of a word, a *value key* is the hash of a
value.
"""

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
    """How often words and values occur in the training docs. Docs are counted batch by batch, and
    not kept.

    labels (LabelCounts): How often values had each label, if a column wants labels.
    strings (StringStore): The strings of values that the vocabs of docs may not have.
    vocabs (list[Vocab]): The vocabs of the docs. Usually they share one.
    word_counts (Counter[int]): How often each word occurs, keyed by its word key: see `Tokens`.
    lexemes (dict[int, Lexeme]): The lexeme of each word, by its word key.
    value_counts (dict[str, Counter[int]]): How often each value occurs, keyed by its value key: for
        each attribute or column in `Tokens.keys`.
    tokens (Tokens | None): All training tokens, if a column wants them.
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
        self.word_counts.update(count_hashes(tokens.word_keys))

        # A new word has the lexeme of its first token.
        word_keys, first_tokens = numpy.unique(tokens.word_keys, return_index=True)
        is_new = [word_key not in self.lexemes for word_key in word_keys.tolist()]
        new_words = numpy.flatnonzero(is_new)
        new_lexemes = tokens.lexemes(first_tokens[new_words])
        self.lexemes.update(zip(word_keys[new_words].tolist(), new_lexemes))

        for name, value_keys in tokens.keys.items():
            counts = self.value_counts.setdefault(name, Counter())
            counts.update(count_hashes(value_keys))

        # Vocabs are compared by identity, as they don't define equality.
        for vocab in tokens.vocabs:
            if not any(vocab is known_vocab for known_vocab in self.vocabs):
                self.vocabs.append(vocab)

    def count_strings(self, name: str) -> Counter[str]:
        """How often each value of an attribute or column occurs, keyed by the text of the value.

        name (str): The name of the attribute or column in `Tokens.keys`.
        RETURNS (Counter[str]): The counts. Tokens without a value, whose key is 0, don't count.
        """
        stores = [self.strings]
        for vocab in self.vocabs:
            stores.append(vocab.strings)
        string_counts: Counter[str] = Counter()
        for value_key, count in self.value_counts.get(name, Counter()).items():
            if value_key:
                string_counts[string_of(value_key, stores)] += count
        return string_counts


def count_hashes(hashes: Array1d) -> dict[int, int]:
    """Count how often each hash occurs in an array, (N,)."""
    distinct_hashes, counts = numpy.unique(hashes, return_counts=True)
    return dict(zip(distinct_hashes.tolist(), counts.tolist()))
