"""The corpora of the papers, as docs: one for each sentence."""

from pathlib import Path
from typing import Iterator, List, Optional, Sequence

from spacy.tokens import Doc
from spacy.training import Example
from spacy.vocab import Vocab

from .runner import ROOT

ASSETS = ROOT / "assets"
SPANISH = {"train": "esp.train", "dev": "esp.testa", "test": "esp.testb"}
"""The files of CoNLL-2002 Spanish, in assets/conll2002_es."""


def read_columns(path: Path) -> Iterator[List[List[str]]]:
    """Read a file of the CoNLL shared tasks: a token on each line, columns separated by blanks,
    an empty line after each sentence.

    path (Path): The file.
    RETURNS (Iterator[List[List[str]]]): For each sentence the columns of its tokens.
    RAISES (FileNotFoundError): If it isn't there.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: expected the corpus; `python -m spacy project assets` "
            "fetches what may be fetched"
        )
    rows: List[List[str]] = []
    for line in [*path.read_text(encoding="utf8").splitlines(), ""]:
        columns = line.split()
        if columns and columns[0] != "-DOCSTART-":
            rows.append(columns)
        elif rows:
            yield rows
            rows = []


def read_docs(
    path: Path, vocab: Vocab, begin: Optional[int] = None, end: Optional[int] = None
) -> List[Doc]:
    """Read annotated sentences: words in the first column, IOB2 tags in the last and, if there
    are three or more, parts of speech in the second, which become `token.tag_`.

    path (Path): The file.
    vocab (Vocab): The vocab of the docs.
    begin, end (Optional[int]): Which sentences, as in a slice.
    RETURNS (List[Doc]): The docs. An I- tag that continues nothing begins an entity, as in
        conlleval.
    """
    docs: List[Doc] = []
    for rows in list(read_columns(path))[begin:end]:
        tags = [row[1] for row in rows] if len(rows[0]) > 2 else None
        ents = _repaired([row[-1] for row in rows])
        docs.append(Doc(vocab, words=[row[0] for row in rows], tags=tags, ents=ents))
    return docs


def _repaired(tags: Sequence[str]) -> List[str]:
    repaired: List[str] = []
    for tag, before in zip(tags, ["O", *tags]):
        goes_on = tag[:1] != "I" or before[1:] == tag[1:]
        repaired.append(tag if goes_on else f"B{tag[1:]}")
    return repaired


def as_examples(docs: Sequence[Doc]) -> List[Example]:
    """Examples of docs: what is predicted has their words and parts of speech, no entities."""
    return [Example(bare(doc), doc) for doc in docs]


def bare(doc: Doc) -> Doc:
    """A doc with the same words and parts of speech, without entities."""
    return Doc(doc.vocab, words=[t.text for t in doc], tags=[t.tag_ for t in doc])
