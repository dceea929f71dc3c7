"""The corpora of the papers, as docs: one for each sentence. GENIA has folds, too."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
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
SEED, N_FOLDS = 0, 10
HELD_OUT = 4
"""One in so many sentences or abstracts of the training data is held out for tuning."""

TREE: dict[str, Any] = json.loads((ROOT / "experiments" / "genia_tree.json").read_text())
"""The categories of GENIA 3.0 (Kim et al., 2003), by the names that they have in 3.02."""

COSTS: dict[str, Mapping[str, Any]] = {
    "hamming": HAMMING,
    "tree": {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TREE},
    "zero_one": {"@misc": "spacy_costner.ZeroOneCost.v1"},
}
"""What mistakes cost, by the name that specs have for it."""


def parts_of(path: str, limit: int | None = None) -> dict[str, Any]:
    """The parts of a corpus of the CoNLL shared tasks of 2002 and 2003, for `read`: the path of its
    files without ".train" and so on, and the most sentences of "train"."""
    suffixes = {"train": "train", "dev": "testa", "test": "testb"}
    ends = {"train": limit}
    return {part: [f"{path}.{end}", 0, ends.get(part)] for part, end in suffixes.items()}


@lru_cache(maxsize=1)
def read(data: str) -> dict[str, list[Doc]]:
    """Read the parts of a corpus.

    data (str): In JSON, the file of each part, below the repository, and the first and the last
        sentence, as in a slice, and perhaps "documents", how sentences of one doc are found, one of
        DOCUMENTS; or the arguments of `divide`.
    RETURNS (dict[str, list[Doc]]): The docs of "train", and of "dev" or "test" or both.
    """
    parts = json.loads(data)
    if "fold" in parts:
        return divide(**parts)
    group, vocab = DOCUMENTS[parts.pop("documents", None)], spacy.blank("xx").vocab
    found = {}
    for part, (file, *ends) in parts.items():
        docs = read_docs(ROOT / file, vocab, *ends)
        found[part] = join_groups(docs, group(docs, *ends)) if group else docs
    return found


def join_groups(docs: Sequence[Doc], groups: Sequence[Any]) -> list[Doc]:
    """Join docs that follow each other in the same group."""
    pairs = groupby(zip(groups, docs), key=lambda pair: pair[0])
    return [join([doc for _, doc in own]) for _, own in pairs]


def by_dateline(docs: Sequence[Doc], *ends: int | None) -> list[int]:
    """The number of the article of each sentence: one begins where "(" and a token that begins with
    EFE follow each other in the first 14 tokens."""
    words = [[token.text for token in doc[:14]] for doc in docs]
    opens = [any(a == "(" and b[:3] == "EFE" for a, b in pairwise(some)) for some in words]
    return [*accumulate(map(int, opens))]


def by_abstract(docs: Sequence[Doc], *ends: int | None) -> list[str]:
    """The abstract of each sentence of a part of GENIA."""
    return read_abstracts()[slice(*ends)]


DOCUMENTS = {None: None, "datelines": by_dateline, "abstracts": by_abstract}
"""How the sentences of a document are found."""


def read_columns(path: Path) -> Iterator[list[list[str]]]:
    """Read a file of the CoNLL shared tasks: a token on each line, columns separated by blanks,
    an empty line after each sentence.

    RETURNS (Iterator[list[list[str]]]): For each sentence the columns of its tokens.
    RAISES (FileNotFoundError): If it isn't there.
    """
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
    """Read annotated sentences: words in the first column, IOB2 tags in the last and, if there
    are three or more, parts of speech in the second, which become `token.tag_`. An I- tag that
    continues nothing begins an entity, as in conlleval. Begin and end are as in a slice."""
    docs: list[Doc] = []
    for rows in list(read_columns(path))[begin:end]:
        pos = [row[1] for row in rows] if len(rows[0]) > 2 else None
        tags = [row[-1] for row in rows]
        begins = [t[:1] == "I" and before[1:] != t[1:] for t, before in zip(tags, ["O", *tags])]
        ents = [f"B{tag[1:]}" if is_first else tag for tag, is_first in zip(tags, begins)]
        docs.append(Doc(vocab, words=[row[0] for row in rows], tags=pos, ents=ents))
    return docs


def as_examples(docs: Sequence[Doc]) -> list[Example]:
    """Examples of docs: what is predicted has their words and parts of speech, no entities."""
    return [Example(bare(doc), doc) for doc in docs]


def bare(doc: Doc) -> Doc:
    """A doc with the same words and parts of speech, without entities."""
    return Doc(doc.vocab, words=[t.text for t in doc], tags=[t.tag_ for t in doc])


def tags_of(doc: Doc) -> list[str]:
    """The IOB2 tag of each token."""
    return [f"{t.ent_iob_}-{t.ent_type_}" if t.ent_type_ else "O" for t in doc]


@lru_cache
def read_genia(tokenization: str, folder: Path = GENIA) -> tuple[list[Doc], list[str]]:
    """GENIA in one of the tokenizations of scripts/convert_genia.py: a doc for each sentence, and
    its abstract."""
    docs = read_docs(folder / f"{tokenization}.iob2", spacy.blank("xx").vocab)
    return docs, read_abstracts(folder)


def read_abstracts(folder: Path = GENIA) -> list[str]:
    """The abstract of each sentence of GENIA."""
    lines = (folder / "sentences.tsv").read_text(encoding="utf8").splitlines()
    return [line.split("\t")[1] for line in lines]


def deal(groups: Sequence[Any], n_folds: int, seed: int = SEED) -> list[list[int]]:
    """Deal out a corpus by chance: the sentences of each fold. The groups to which sentences belong
    stay together."""
    names = sorted(set(groups))
    random.Random(seed).shuffle(names)
    fold_of = {name: i % n_folds for i, name in enumerate(names)}
    folds: list[list[int]] = [[] for _ in range(n_folds)]
    for i, group in enumerate(groups):
        folds[fold_of[group]].append(i)
    return folds


def take_out(groups: Sequence[Any], n_folds: int, fold: int) -> tuple[list[int], list[int]]:
    """The sentences that are not in a fold, and those that are."""
    folds = deal(groups, n_folds)
    rest = sorted(i for number, some in enumerate(folds) if number != fold for i in some)
    return rest, folds[fold]


def divide(
    tokenization: str, by_abstract: bool, limit: int | None, fold: int, held_out: bool = False
) -> dict[str, list[Doc]]:
    """Divide GENIA.

    tokenization (str): See `read_genia`.
    by_abstract (bool): Whether the sentences of an abstract stay together.
    limit (int | None): The most sentences.
    fold (int): The fold that is tested.
    held_out (bool): Whether a part of its training data is taken for development in its place.
    RETURNS (dict[str, list[Doc]]): "train", and "test" or "dev".
    """
    docs, abstracts = read_genia(tokenization)
    groups: Sequence[Any] = abstracts[:limit] if by_abstract else range(len(docs[:limit]))
    train, test = take_out(groups, N_FOLDS, fold)
    if held_out:
        learn, held = take_out([groups[i] for i in train], HELD_OUT, 0)
        train, test = [train[i] for i in learn], [train[i] for i in held]
    part = "dev" if held_out else "test"
    return {"train": [docs[i] for i in train], part: [docs[i] for i in test]}
