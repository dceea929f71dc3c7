"""Read the corpora of the papers, with a doc for each sentence or, if the spec has "documents", for
each document. GENIA is also divided into folds.

A corpus has parts: "train", "dev" and "test". A group is the number or name of the article or
abstract that contains a sentence.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any

import spacy
from spacy.tokens import Doc
from spacy.training import Example
from spacy.vocab import Vocab

from spacy_costner.costs.tables import HAMMING
from spacy_costner.readers.documents import join

ROOT = Path(__file__).parent.parent
ASSETS = ROOT / "assets"
GENIA = ROOT / "corpus" / "genia"
SEED = 0
N_FOLDS = 10
HELD_OUT = 4
"""One in this many sentences or abstracts of the training data is held out for tuning."""

TREE: dict[str, Any] = json.loads((ROOT / "experiments" / "genia_tree.json").read_text())
"""The categories of GENIA 3.0 (Kim et al., 2003), by their names in 3.02."""

COSTS: dict[str, Mapping[str, Any]] = {
    "hamming": HAMMING,
    "tree": {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TREE},
    "zero_one": {"@misc": "spacy_costner.ZeroOneCost.v1"},
}
"""The costs of mistakes, by name in the specs."""


def parts_of(path: str, limit: int | None = None) -> dict[str, Any]:
    """Get the parts of a corpus of the CoNLL shared tasks of 2002 and 2003, for `read`.

    path (str): The path of its files, without ".train", ".testa" and ".testb".
    limit (int | None): The number of sentences of "train" to use. Defaults to all.
    """
    return {
        "train": [f"{path}.train", 0, limit],
        "dev": [f"{path}.testa", 0, None],
        "test": [f"{path}.testb", 0, None],
    }


@lru_cache(maxsize=1)
def read(data: str) -> dict[str, list[Doc]]:
    """Read the parts of a corpus. The last corpus stays in memory for the next run.

    data (str): JSON, so that it can be a cache key. Either the file of each part, relative to the
        repository, with the start and end of a slice of sentences, and optionally "documents", one
        of DOCUMENTS, to join sentences into docs; or the arguments of `divide`.
    RETURNS (dict[str, list[Doc]]): The docs of "train", and of "dev" or "test" or both.
    """
    parts = json.loads(data)
    if "fold" in parts:
        return divide(**parts)
    # None: each sentence is a doc.
    document_of_sentence = DOCUMENTS[parts.pop("documents", None)]
    vocab = spacy.blank("xx").vocab
    docs_of_part: dict[str, list[Doc]] = {}
    for part, (file, begin, end) in parts.items():
        docs = read_docs(ROOT / file, vocab, begin, end)
        if document_of_sentence is not None:
            docs = join_groups(docs, document_of_sentence(docs, begin, end))
        docs_of_part[part] = docs
    return docs_of_part


def join_groups(docs: Sequence[Doc], groups: Sequence[Any]) -> list[Doc]:
    """Join consecutive docs of the same group. `groups` contains the group of each doc."""
    joined: list[Doc] = []
    for _, pairs in groupby(zip(groups, docs), key=lambda pair: pair[0]):
        joined.append(join([doc for _, doc in pairs]))
    return joined


def by_dateline(docs: Sequence[Doc], begin: int = 0, end: int | None = None) -> list[int]:
    """Number the articles of the Spanish news in CoNLL-2002. Returns the article of each sentence.
    An article starts with a dateline: its first 14 tokens contain "(", followed by a token that
    starts with EFE, the agency. `begin` and `end` are unused: `by_abstract` has the same
    arguments."""
    n_articles = 0
    articles: list[int] = []
    for doc in docs:
        words = [token.text for token in doc[:14]]
        if any(word == "(" and after.startswith("EFE") for word, after in pairwise(words)):
            n_articles += 1
        articles.append(n_articles)
    return articles


def by_abstract(docs: Sequence[Doc], begin: int = 0, end: int | None = None) -> list[str]:
    """Get the abstract of each sentence of GENIA from `begin` to `end`."""
    return read_abstracts()[begin:end]


DOCUMENTS = {None: None, "datelines": by_dateline, "abstracts": by_abstract}
"""Functions that return the document of each sentence of a part, by name in the specs."""


def read_columns(path: Path) -> Iterator[list[list[str]]]:
    """Read a file of the CoNLL shared tasks: one token per line, columns separated by spaces, an
    empty line after each sentence. Yields the columns of each token, sentence by sentence. Raises
    an error if the file doesn't exist."""
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: expected the corpus; `python -m spacy project assets --extra` fetches what "
            "may be fetched, `scripts/convert_genia.py` converts GENIA"
        )
    rows: list[list[str]] = []
    for line in [*path.read_text(encoding="utf8").splitlines(), ""]:
        columns = line.split()
        if columns and columns[0] != "-DOCSTART-":
            rows.append(columns)
        elif rows:
            yield rows
            rows = []


def read_docs(
    path: Path, vocab: Vocab, begin: int | None = None, end: int | None = None
) -> list[Doc]:
    """Read annotated sentences: words in the first column, IOB2 tags in the last and, if there are
    three or more, parts of speech in the second, which become `token.tag_`. An I- tag that
    continues no entity starts one, as in conlleval. `begin` and `end` are as in a slice."""
    docs: list[Doc] = []
    for rows in list(read_columns(path))[begin:end]:
        words = [row[0] for row in rows]
        pos = None
        if len(rows[0]) > 2:
            pos = [row[1] for row in rows]

        ents: list[str] = []  # the tags, in spaCy's format
        tag_before = "O"
        for row in rows:
            tag = row[-1]
            # Without their prefix ("-LOC"), the tags of an entity are equal.
            if tag.startswith("I") and tag_before[1:] != tag[1:]:
                ents.append(f"B{tag[1:]}")
            else:
                ents.append(tag)
            tag_before = tag
        docs.append(Doc(vocab, words=words, tags=pos, ents=ents))
    return docs


def as_examples(docs: Sequence[Doc]) -> list[Example]:
    """Make examples from annotated docs. The predicted docs contain the words and parts of speech,
    but no entities."""
    return [Example(bare(doc), doc) for doc in docs]


def bare(doc: Doc) -> Doc:
    """Copy a doc with its words and parts of speech, but without entities."""
    return Doc(doc.vocab, words=[t.text for t in doc], tags=[t.tag_ for t in doc])


def tags_of(doc: Doc) -> list[str]:
    """Get the IOB2 tag of each token."""
    tags: list[str] = []
    for token in doc:
        if token.ent_type_:
            tags.append(f"{token.ent_iob_}-{token.ent_type_}")
        else:
            tags.append("O")
    return tags


@lru_cache
def read_genia(tokenization: str, folder: Path = GENIA) -> tuple[list[Doc], list[str]]:
    """Read GENIA in one of the tokenizations of scripts/convert_genia.py. Returns a doc for each
    sentence, and the abstract of each sentence."""
    docs = read_docs(folder / f"{tokenization}.iob2", spacy.blank("xx").vocab)
    return docs, read_abstracts(folder)


def read_abstracts(folder: Path = GENIA) -> list[str]:
    """Read the abstract of each sentence of GENIA."""
    lines = (folder / "sentences.tsv").read_text(encoding="utf8").splitlines()
    return [line.split("\t")[1] for line in lines]


def deal(groups: Sequence[Any], n_folds: int, seed: int = SEED) -> list[list[int]]:
    """Assign the sentences of a corpus to folds at random. Sentences of the same group are in the
    same fold.

    groups (Sequence[Any]): The group of each sentence.
    n_folds (int): The number of folds.
    seed (int): The same seed gives the same folds.
    RETURNS (list[list[int]]): The indices of the sentences in each fold, in ascending order.
    """
    shuffled_groups = sorted(set(groups))
    random.Random(seed).shuffle(shuffled_groups)
    fold_of_group = {group: i % n_folds for i, group in enumerate(shuffled_groups)}
    folds: list[list[int]] = [[] for _ in range(n_folds)]
    for i, group in enumerate(groups):
        folds[fold_of_group[group]].append(i)
    return folds


def take_out(groups: Sequence[Any], n_folds: int, fold: int) -> tuple[list[int], list[int]]:
    """Get the indices of the sentences outside a fold, and of the sentences in it: see `deal`."""
    folds = deal(groups, n_folds)
    in_fold = folds.pop(fold)
    not_in_fold = sorted(chain.from_iterable(folds))
    return not_in_fold, in_fold


def divide(
    tokenization: str, by_abstract: bool, limit: int | None, fold: int, held_out: bool = False
) -> dict[str, list[Doc]]:
    """Divide GENIA.

    tokenization (str): See `read_genia`.
    by_abstract (bool): Whether the sentences of an abstract stay together.
    limit (int | None): The maximum number of sentences.
    fold (int): The test fold.
    held_out (bool): Whether to hold out part of the training data for development, and leave out
        the test fold.
    RETURNS (dict[str, list[Doc]]): "train", and "test" or "dev".
    """
    docs, abstracts = read_genia(tokenization)
    docs = docs[:limit]
    # The groups of sentences that stay together: abstracts or single sentences.
    groups: Sequence[Any] = range(len(docs))
    if by_abstract:
        groups = abstracts[:limit]
    train, test = take_out(groups, N_FOLDS, fold)
    if not held_out:
        return {"train": [docs[i] for i in train], "test": [docs[i] for i in test]}
    # These are indices into `train`, not into `docs`.
    to_learn, to_tune = take_out([groups[i] for i in train], HELD_OUT, fold=0)
    return {
        "train": [docs[train[i]] for i in to_learn],
        "dev": [docs[train[i]] for i in to_tune],
    }
