"""The GENIA corpus, as published in XML, to columns: a word and an IOB2 tag on each line.

    python -m experiments.genia

Terms stand in terms; an entity is an outermost one. A coordination ("CD4 and CD8 cells") is one
entity if all that it joins is of one category. If not, what is inside of it counts.
"""

import json
import re
import tarfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import (
    IO,
    Annotated,
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Sequence,
    Tuple,
    cast,
)
from xml.etree import ElementTree

import typer
from spacy.tokens import Doc
from spacy.vocab import Vocab
from typer import Option

from .cells import ROOT
from .corpora import ASSETS, read_docs

ARCHIVE = ASSETS / "genia" / "GENIAcorpus3.02.tgz"
CORPUS = ROOT / "corpus" / "genia"
INDEX = "sentences.tsv"
SECTIONS = ("title", "abstract")
CATEGORY = re.compile(r"G#([^\s()]+)")

PLAIN, GOLD = "genia", "genia_gold_tokens"
"""The two tokenizations, and what their files are called."""

RUN = r"[^\W_]+"
PLAIN_TOKEN = re.compile(rf"\d+(?:[.,]\d+)+(?!{RUN})|{RUN}|\S")
"""A number, a run of letters and digits, or any other character by itself."""

JOINED_TOKEN = re.compile(rf"{RUN}(?:(?:[-'.]|(?<=\d),(?=\d)){RUN})*|\S")
"""The same, but hyphens, apostrophes and full stops between letters or digits join them."""

TREE: Dict[str, Any] = json.loads((ROOT / "experiments" / "genia_tree.json").read_text())
"""The categories of GENIA 3.0 (Kim et al., 2003), by the names that they have in 3.02."""

Span = Tuple[int, int]
"""The first character and the one behind the last."""


class Entity(NamedTuple):
    """An entity of a sentence.

    begin, end (int): Its first character, and the one behind its last.
    label (str): Its category.
    """

    begin: int
    end: int
    label: str


class Sentence(NamedTuple):
    """A sentence of the corpus.

    abstract (str): The number of its abstract.
    section (str): "title" or "abstract".
    text (str): Its text, without mark-up.
    entities (List[Entity]): Its entities, in their order; they don't overlap.
    """

    abstract: str
    section: str
    text: str
    entities: List[Entity]


class Tagged(NamedTuple):
    """A sentence in tokens.

    words (List[str]): Its tokens.
    tags (List[str]): Their IOB2 tags.
    """

    words: List[str]
    tags: List[str]


def read_sentences(archive: Path) -> Iterator[Sentence]:
    """Read the corpus. Of abstracts that are in it twice, the first counts.

    archive (Path): The .tgz as published.
    RETURNS (Iterator[Sentence]): The sentences, with the title before the abstract.
    RAISES (FileNotFoundError): If it isn't there.
    """
    seen = set()
    with tarfile.open(archive) as files:
        name = next(name for name in files.getnames() if name.endswith(".xml"))
        articles = ElementTree.parse(cast(IO[bytes], files.extractfile(name))).iter("article")
    for article in articles:
        abstract = article.findtext("articleinfo/bibliomisc", "").strip()
        if abstract in seen:
            continue
        seen.add(abstract)
        for section in SECTIONS:
            for element in article.iterfind(f"{section}/sentence"):
                yield Sentence(abstract, section, *read_terms(element))


def read_terms(element: ElementTree.Element, begin: int = 0) -> Tuple[str, List[Entity]]:
    """Read the text of an element, and the outermost entities below it.

    element (Element): The element.
    begin (int): Where its text begins in that of the sentence.
    RETURNS (Tuple[str, List[Entity]]): Those.
    """
    text, entities = element.text or "", []
    for child in element:
        start = begin + len(text)
        inner, below = read_terms(child, start)
        labels = set(CATEGORY.findall(child.get("sem", "")))
        entities += [Entity(start, start + len(inner), *labels)] if len(labels) == 1 else below
        text += inner + (child.tail or "")
    return text, entities


def tokenize(text: str, pattern: "re.Pattern[str]", borders: Iterable[int] = ()) -> List[Span]:
    """Cut a text into tokens.

    text (str): The text.
    pattern (re.Pattern): What a token is.
    borders (Iterable[int]): Characters before which tokens are cut, whatever they are.
    RETURNS (List[Span]): The tokens.
    """
    places = sorted(set(borders))
    tokens: List[Span] = []
    for match in pattern.finditer(text):
        begin, end = match.span()
        cuts = [begin, *(place for place in places if begin < place < end), end]
        tokens += pairwise(cuts)
    return tokens


def encode(tokens: Sequence[Span], entities: Sequence[Entity]) -> List[str]:
    """Write entities as tags. One that begins or ends within a token has the whole of it; of two
    that meet in a token, the first has it.

    tokens (Sequence[Span]): The tokens.
    entities (Sequence[Entity]): The entities, in their order.
    RETURNS (List[str]): The IOB2 tag of each token.
    """
    tags = ["O"] * len(tokens)
    for entity in entities:
        prefix = "B"
        for i, (begin, end) in enumerate(tokens):
            if begin < entity.end and end > entity.begin and tags[i] == "O":
                tags[i] = f"{prefix}-{entity.label}"
                prefix = "I"
    return tags


def tag_plain(sentence: Sentence) -> Tagged:
    """A sentence in the tokens that its text has."""
    return _tagged(sentence, tokenize(sentence.text, PLAIN_TOKEN))


def tag_gold(sentence: Sentence) -> Tagged:
    """A sentence in words that are cut where entities begin and end, as in the papers. They give
    away a part of the answer."""
    borders = [place for entity in sentence.entities for place in (entity.begin, entity.end)]
    return _tagged(sentence, tokenize(sentence.text, JOINED_TOKEN, borders))


def _tagged(sentence: Sentence, tokens: Sequence[Span]) -> Tagged:
    words = [sentence.text[begin:end] for begin, end in tokens]
    return Tagged(words, encode(tokens, sentence.entities))


TOKENIZATIONS = {PLAIN: tag_plain, GOLD: tag_gold}


def convert(archive: Path, output: Path) -> Dict[str, Counter]:
    """Write the corpus in both tokenizations, and of which abstract each sentence is.

    archive (Path): The .tgz as published.
    output (Path): The folder of genia.iob2, genia_gold_tokens.iob2 and sentences.tsv.
    RETURNS (Dict[str, Counter]): For each tokenization what there is: "sentences", "tokens",
        "entities", and "marked", what the entities were before tokens came in their way.
    """
    sentences = [sentence for sentence in read_sentences(archive) if sentence.text.strip()]
    output.mkdir(parents=True, exist_ok=True)
    index = [f"{i}\t{s.abstract}\t{s.section}\n" for i, s in enumerate(sentences)]
    _write(output / INDEX, index)
    counts = {}
    for name, tag in TOKENIZATIONS.items():
        tagged = [tag(sentence) for sentence in sentences]
        _write(output / f"{name}.iob2", map(_columns, tagged))
        counts[name] = Counter(
            sentences=len(tagged),
            tokens=sum(len(words) for words, _ in tagged),
            entities=sum(tag.startswith("B-") for _, tags in tagged for tag in tags),
            marked=sum(len(sentence.entities) for sentence in sentences),
        )
    return counts


def _columns(tagged: Tagged) -> str:
    lines = [f"{word}\t{tag}\n" for word, tag in zip(*tagged)]
    return "".join([*lines, "\n"])


def _write(path: Path, blocks: Iterable[str]) -> None:
    path.write_text("".join(blocks), encoding="utf8", newline="\n")


def genia(tokenization: str, vocab: Vocab, folder: Path = CORPUS) -> Tuple[List[Doc], List[str]]:
    """GENIA, as `python -m experiments.genia` wrote it.

    tokenization (str): PLAIN or GOLD.
    vocab (Vocab): The vocab of the docs.
    folder (Path): Where it is.
    RETURNS (Tuple[List[Doc], List[str]]): A doc for each sentence, and its abstract.
    RAISES (FileNotFoundError): If it isn't there.
    """
    if not (folder / INDEX).exists():
        raise FileNotFoundError(
            f"{folder}: expected GENIA; `python -m experiments.genia` writes it"
        )
    lines = (folder / INDEX).read_text(encoding="utf8").splitlines()
    docs = read_docs(folder / f"{tokenization}.iob2", vocab)
    return docs, [line.split("\t")[1] for line in lines]


def main(
    archive: Annotated[Path, Option(help="The corpus as published")] = ARCHIVE,
    output: Annotated[Path, Option(help="The folder to write to")] = CORPUS,
) -> None:
    """Convert GENIA 3.02 from XML to columns, in two tokenizations."""
    for name, counts in convert(archive, output).items():
        numbers = ", ".join(f"{count:,} {what}" for what, count in counts.items())
        typer.echo(f"{output / name}.iob2: {numbers}")


if __name__ == "__main__":
    typer.run(main)
