"""Count words and values in the training docs. Columns collect their values from the counts.

Counts are keyed by hash. A *word key* is the hash of a word, and a *value key* is the hash of a
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
    """The counts of words and values in the training docs. Docs are counted in batches and not kept
    in memory.

    labels (LabelCounts): How often each value had each label, if a column requires labels.
    strings (StringStore): The strings of values that may not be in the docs' vocabs.
    pipeline_vocab (Vocab | None): The vocab of the pipeline, which contains its static vectors. The
        docs may have other vocabs, without vectors. None if there is no pipeline.
    vocabs (list[Vocab]): The distinct vocabs of the docs, usually only one.
    word_counts (Counter[int]): How often each word occurs, by word key: see `Tokens`.
    lexemes (dict[int, Lexeme]): The lexeme of each word, by word key.
    value_counts (dict[str, Counter[int]]): How often each value occurs, by value key, for each
        attribute or column in `Tokens.keys`.
    tokens (Tokens | None): All training tokens, if a column requires them.
    """

    labels: LabelCounts
    strings: StringStore
    pipeline_vocab: Vocab | None = None
    vocabs: list[Vocab] = field(default_factory=list)
    word_counts: Counter[int] = field(default_factory=Counter)
    lexemes: dict[int, Lexeme] = field(default_factory=dict)
    value_counts: dict[str, Counter[int]] = field(default_factory=dict)
    tokens: Tokens | None = None

    def add(self, tokens: Tokens) -> None:
        """Count the words and values in a batch."""
        self.word_counts.update(count_hashes(tokens.word_keys))

        # For a new word, use the lexeme of its first token.
        word_keys, first_tokens = numpy.unique(tokens.word_keys, return_index=True)
        is_new = [word_key not in self.lexemes for word_key in word_keys.tolist()]
        new_words = numpy.flatnonzero(is_new)
        new_lexemes = tokens.lexemes(first_tokens[new_words])
        self.lexemes.update(zip(word_keys[new_words].tolist(), new_lexemes))

        for name, value_keys in tokens.keys.items():
            counts = self.value_counts.setdefault(name, Counter())
            counts.update(count_hashes(value_keys))

        # Compare vocabs by identity, because they don't define equality.
        for vocab in tokens.vocabs:
            if not any(vocab is known_vocab for known_vocab in self.vocabs):
                self.vocabs.append(vocab)

    @property
    def vocab_with_vectors(self) -> Vocab:
        """The vocab that contains the static vectors: the vocab of the pipeline or, without a
        pipeline, of the first doc. There has to be at least one doc."""
        if self.pipeline_vocab is not None:
            return self.pipeline_vocab
        return self.vocabs[0]

    def count_strings(self, name: str) -> Counter[str]:
        """Return how often each value of an attribute or column occurs, keyed by the value's text.

        name (str): The name of the attribute or column in `Tokens.keys`.
        RETURNS (Counter[str]): The counts. Tokens without a value, whose key is 0, are excluded.
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
    """Count the occurrences of each hash in an array of shape (N,)."""
    distinct_hashes, counts = numpy.unique(hashes, return_counts=True)
    return dict(zip(distinct_hashes.tolist(), counts.tolist()))
