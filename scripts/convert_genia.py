"""The GENIA corpus, as published in XML, to columns: a word and an IOB2 tag on each line; and with
all of its nested terms to JSONL.

    python scripts/convert_genia.py assets/genia/GENIAcorpus3.02.tgz corpus/genia

Terms stand in terms; in columns an entity is an outermost one. A coordination ("CD4 and CD8 cells")
is one entity if all that it joins is of one category. If not, what is inside of it counts.
"""

import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple
from typing import cast as as_type
from xml.etree import ElementTree

import typer

SECTIONS = ("title", "abstract")
CATEGORY = re.compile(r"G#([^\s()]+)")

PLAIN, GOLD, NESTED = "genia", "genia_gold_tokens", "genia_nested"
"""The two tokenizations, and the names of the files."""

RUN = r"[^\W_]+"
PLAIN_TOKEN = re.compile(rf"\d+(?:[.,]\d+)+(?!{RUN})|{RUN}|\S")
"""A number, a run of letters and digits, or any other character by itself."""

JOINED_TOKEN = re.compile(rf"{RUN}(?:(?:[-'.]|(?<=\d),(?=\d)){RUN})*|\S")
"""The same, but hyphens, apostrophes and full stops between letters or digits join them."""

Span = tuple[int, int]
"""The first character and the one behind the last."""


class Entity(NamedTuple):
    """An entity of a sentence: its characters, from and to, and its category."""

    begin: int
    end: int
    label: str


class Sentence(NamedTuple):
    """A sentence of the corpus."""

    abstract: str  # its number
    section: str  # "title" or "abstract"
    text: str  # without mark-up
    entities: list[Entity]  # in their order; they don't overlap
    terms: Sequence[Entity] = ()  # all, nested ones, too


def read_sentences(archive: Path) -> Iterator[Sentence]:
    """Read the corpus from the published .tgz: the sentences, with the title before the abstract.
    Of abstracts that are in it twice, the first counts."""
    seen = set()
    with tarfile.open(archive) as files:
        name = next(name for name in files.getnames() if name.endswith(".xml"))
        articles = ElementTree.parse(as_type(IO[bytes], files.extractfile(name))).iter("article")
    for article in articles:
        abstract = article.findtext("articleinfo/bibliomisc", "").strip()
        if abstract in seen:
            continue
        seen.add(abstract)
        for section in SECTIONS:
            for element in article.iterfind(f"{section}/sentence"):
                terms = read_terms(element, nested=True)[1]
                yield Sentence(abstract, section, *read_terms(element), terms)


def read_terms(
    element: ElementTree.Element, begin: int = 0, *, nested: bool = False
) -> tuple[str, list[Entity]]:
    """Read the text of an element, which begins somewhere in the sentence, and the outermost
    entities below it; nested ones, too, if asked for."""
    text, entities = element.text or "", []
    for child in element:
        start = begin + len(text)
        inner, below = read_terms(child, start, nested=nested)
        labels = set(CATEGORY.findall(child.get("sem", "")))
        own = [Entity(start, start + len(inner), *labels)] if len(labels) == 1 else []
        entities += own + (below if nested or not own else [])
        text += inner + (child.tail or "")
    return text, entities


def tokenize(text: str, pattern: "re.Pattern[str]", borders: Iterable[int] = ()) -> list[Span]:
    """Cut a text into tokens that match a pattern, and before some characters, the borders."""
    places = sorted(set(borders))
    tokens: list[Span] = []
    for match in pattern.finditer(text):
        begin, end = match.span()
        cuts = [begin, *(place for place in places if begin < place < end), end]
        tokens += pairwise(cuts)
    return tokens


def encode(tokens: Sequence[Span], entities: Sequence[Entity]) -> list[str]:
    """Write entities, in their order, as the IOB2 tags of tokens. One that begins or ends within a
    token has the whole of it; of two that meet in a token, the first has it."""
    tags = ["O"] * len(tokens)
    for entity in entities:
        prefix = "B"
        for i, (begin, end) in enumerate(tokens):
            if begin < entity.end and end > entity.begin and tags[i] == "O":
                tags[i] = f"{prefix}-{entity.label}"
                prefix = "I"
    return tags


def tag(sentence: Sentence, tokenization: str) -> tuple[list[str], list[str]]:
    """The words of a sentence and their tags. PLAIN tokens are those of its text; GOLD ones are cut
    where entities begin and end, as in the papers, which gives away a part of the answer."""
    tokens = tokenize(sentence.text, PLAIN_TOKEN)
    if tokenization == GOLD:
        borders = [place for entity in sentence.entities for place in (entity.begin, entity.end)]
        tokens = tokenize(sentence.text, JOINED_TOKEN, borders)
    words = [sentence.text[begin:end] for begin, end in tokens]
    return words, encode(tokens, sentence.entities)


def nested_task(sentence: Sentence) -> dict[str, Any]:
    """A sentence with all of its terms, for JSONL. A term that begins or ends within a PLAIN token
    has the whole of it."""
    tokens = tokenize(sentence.text, PLAIN_TOKEN)
    spans = set()
    for begin, end, label in sentence.terms:
        own = [token for token in tokens if token[0] < end and token[1] > begin]
        if own:
            spans.add((own[0][0], own[-1][1], label))
    return {
        "text": sentence.text,
        "tokens": [{"start": begin, "end": end} for begin, end in tokens],
        "spans": sorted(spans),
        "abstract": sentence.abstract,
    }


def convert(archive: Path, output: Path) -> dict[str, Counter]:
    """Write the corpus in both tokenizations, and of which abstract each sentence is.

    archive (Path): The .tgz as published.
    output (Path): The folder of genia.iob2, genia_gold_tokens.iob2, genia_nested.jsonl and
        sentences.tsv.
    RETURNS (dict[str, Counter]): For each tokenization what there is: "sentences", "tokens",
        "entities", and "marked", what the entities were before tokens came in their way.
    """
    sentences = [sentence for sentence in read_sentences(archive) if sentence.text.strip()]
    output.mkdir(parents=True, exist_ok=True)
    index = (f"{i}\t{one.abstract}\t{one.section}\n" for i, one in enumerate(sentences))
    _write(output / "sentences.tsv", index)
    tasks = [nested_task(one) for one in sentences]
    _write(output / f"{NESTED}.jsonl", (json.dumps(task) + "\n" for task in tasks))
    counts = {}
    for name in (PLAIN, GOLD):
        tagged = [tag(sentence, name) for sentence in sentences]
        rows = ([f"{word}\t{iob}\n" for word, iob in zip(*one)] for one in tagged)
        _write(output / f"{name}.iob2", ("".join([*lines, "\n"]) for lines in rows))
        counts[name] = Counter(
            sentences=len(tagged),
            tokens=sum(len(words) for words, _ in tagged),
            entities=sum(iob.startswith("B-") for _, tags in tagged for iob in tags),
            marked=sum(len(sentence.entities) for sentence in sentences),
        )
    return counts


def _write(path: Path, blocks: Iterable[str]) -> None:
    path.write_text("".join(blocks), encoding="utf8", newline="\n")


def main(archive: Path, output: Path) -> None:
    """Convert GENIA 3.02 from XML to columns, in two tokenizations."""
    for name, counts in convert(archive, output).items():
        numbers = ", ".join(f"{count:,} {what}" for what, count in counts.items())
        typer.echo(f"{output / name}.iob2: {numbers}")


if __name__ == "__main__":
    typer.run(main)
