"""Memory, disk and time of training on large corpora, in memory and with `--cache`.

    python benchmarks/large.py train.spacy dev.spacy folder [5,20,50] [config.cfg]

The corpora, of so many million tokens, are the training corpus again and again, in files of one
copy. In each copy 3 % of the words have another letter, and one word of each doc at least. They are
made in the folder, as is the cache. Memory is the most that isn't a file's (`RssAnon`), seconds are
those of the processor. Linux only.
"""

import json
import os
import string
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

import numpy
from spacy.attrs import ORTH
from spacy.strings import StringStore
from spacy.tokens import DocBin

CONFIG = Path(__file__).parent.parent / "configs" / "sparse.cfg"
SHARE = 0.03
LETTERS = string.ascii_lowercase
MILLION = 1_000_000


class Row(NamedTuple):
    """What a training took.

    tokens (int), epochs (int): Of the corpus, and how often it was used.
    cached (bool): Whether there was a cache.
    seconds (float): Of the processor.
    memory (int), disk (int): The most bytes, of the process and of the cache.
    weights (int): The number of weights.
    """

    tokens: int
    epochs: int
    cached: bool
    seconds: float
    memory: int
    disk: int
    weights: int


def make_corpus(source: Path, folder: Path, n_tokens: int) -> int:
    """Write files of altered copies until there are enough tokens, and return their number."""
    docs, total, copy = DocBin().from_disk(source), 0, 0
    folder.mkdir(parents=True, exist_ok=True)
    size = sum(map(len, docs.tokens))
    while total < n_tokens:
        path = folder / f"{copy:04}.spacy"
        if not path.exists():
            altered(docs, copy).to_disk(path)
        total, copy = total + size, copy + 1
    return total


def altered(docs: DocBin, seed: int) -> DocBin:
    """A copy in which some words have another letter."""
    rng, strings = numpy.random.default_rng(seed), StringStore(docs.strings)
    copied = DocBin(store_user_data=False)
    copied.attrs, copied.spaces, copied.cats = docs.attrs, docs.spaces, docs.cats
    copied.flags, copied.span_groups = docs.flags, docs.span_groups
    copied.strings, column = set(docs.strings), docs.attrs.index(ORTH)
    for table in docs.tokens:
        table = table.copy()
        chosen = rng.random(len(table)) < SHARE
        chosen[rng.integers(len(table))] = True
        for i in numpy.flatnonzero(chosen).tolist():
            word = strings[int(table[i, column])]
            at = int(rng.integers(len(word)))
            word = word[:at] + LETTERS[rng.integers(len(LETTERS))] + word[at + 1 :]
            table[i, column] = strings.add(word)
            copied.strings.add(word)
        copied.tokens.append(table)
    return copied
