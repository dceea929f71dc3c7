"""Convert the GENIA corpus from its published XML to columns, with a word and an IOB2 tag on each
line, and to JSONL with all nested terms.

    python scripts/convert_genia.py assets/genia/GENIAcorpus3.02.tgz corpus/genia

Terms may be nested in other terms. In columns, entities are outermost terms. A coordination ("CD4
and CD8 cells") is one entity if all of its parts have the same category. Otherwise, the terms
inside it are used. Positions are start and end characters in the sentence.
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

# The names of the files: two tokenizations, and nested terms.
PLAIN = "genia"
GOLD = "genia_gold_tokens"
NESTED = "genia_nested"

RUN = r"[^\W_]+"
PLAIN_TOKEN = re.compile(rf"\d+(?:[.,]\d+)+(?!{RUN})|{RUN}|\S")
"""A number such as 3,000 or 1.5, a run of letters and digits, or any other single character."""

JOINED_TOKEN = re.compile(rf"{RUN}(?:(?:[-'.]|(?<=\d),(?=\d)){RUN})*|\S")
"""The same, but letters or digits joined by a hyphen, apostrophe or full stop are one token, and so
are digits joined by a comma."""

Span = tuple[int, int]
"""The start and end (exclusive) characters."""


class Entity(NamedTuple):
    """An entity in a sentence: its start and end characters, and its category."""

    begin: int
    end: int
    label: str


class Sentence(NamedTuple):
    """A sentence of the corpus."""

    abstract: str  # its number
    section: str  # "title" or "abstract"
    text: str  # without mark-up
    entities: list[Entity]  # in order; they don't overlap
    terms: Sequence[Entity] = ()  # all terms, including nested ones


def read_sentences(archive: Path) -> Iterator[Sentence]:
    """Read the sentences of the corpus from the published .tgz, first the title of an abstract,
    then its text. If an abstract occurs twice, the first one is used."""
    read_abstracts = set()
    with tarfile.open(archive) as files:
        name = next(name for name in files.getnames() if name.endswith(".xml"))
        file = as_type(IO[bytes], files.extractfile(name))
        corpus = ElementTree.parse(file)
    for article in corpus.iter("article"):
        abstract = article.findtext("articleinfo/bibliomisc", "").strip()
        if abstract in read_abstracts:
            continue
        read_abstracts.add(abstract)
        for section in SECTIONS:
            for element in article.iterfind(f"{section}/sentence"):
                text, entities = read_terms(element)
                _, terms = read_terms(element, nested=True)
                yield Sentence(abstract, section, text, entities, terms)


def read_terms(
    element: ElementTree.Element, begin: int = 0, *, nested: bool = False
) -> tuple[str, list[Entity]]:
    """Read the text of an element and its outermost entities, or with `nested` all of its entities.

    element (Element): A sentence, or a term in a sentence.
    begin (int): The start character of the element in its sentence.
    nested (bool): Whether to include entities inside entities.
    RETURNS (tuple[str, list[Entity]]): The text, and the entities in order.
    """
    text = element.text or ""
    entities: list[Entity] = []
    for child in element:
        child_begin = begin + len(text)
        child_text, entities_below = read_terms(child, child_begin, nested=nested)
        # A coordination lists the categories of all its parts.
        labels = set(CATEGORY.findall(child.get("sem", "")))
        is_entity = len(labels) == 1
        if is_entity:
            (label,) = labels
            entities.append(Entity(child_begin, child_begin + len(child_text), label))
        if nested or not is_entity:
            entities += entities_below
        text += child_text + (child.tail or "")
    return text, entities


def tokenize(text: str, pattern: "re.Pattern[str]", borders: Iterable[int] = ()) -> list[Span]:
    """Tokenize a text into matches of a pattern, which are also split before the characters in
    `borders`."""
    sorted_borders = sorted(set(borders))
    tokens: list[Span] = []
    for match in pattern.finditer(text):
        begin, end = match.span()
        cuts = [border for border in sorted_borders if begin < border < end]
        tokens += pairwise([begin, *cuts, end])
    return tokens


def encode(tokens: Sequence[Span], entities: Sequence[Entity]) -> list[str]:
    """Encode entities, given in order, as the IOB2 tags of tokens. An entity that starts or ends
    inside a token gets the whole token. If two entities share a token, the first one gets it."""
    tags = ["O"] * len(tokens)
    for entity in entities:
        prefix = "B"
        for i, (begin, end) in enumerate(tokens):
            overlaps = begin < entity.end and end > entity.begin
            if overlaps and tags[i] == "O":
                tags[i] = f"{prefix}-{entity.label}"
                prefix = "I"
    return tags


def tag(sentence: Sentence, tokenization: str) -> tuple[list[str], list[str]]:
    """Get the words of a sentence and their tags. PLAIN tokens only depend on the text. GOLD tokens
    are also split where entities start and end, as in the papers, which gives away part of the
    annotation."""
    tokens = tokenize(sentence.text, PLAIN_TOKEN)
    if tokenization == GOLD:
        borders: list[int] = []
        for entity in sentence.entities:
            borders += [entity.begin, entity.end]
        tokens = tokenize(sentence.text, JOINED_TOKEN, borders)
    words = [sentence.text[begin:end] for begin, end in tokens]
    return words, encode(tokens, sentence.entities)


def nested_task(sentence: Sentence) -> dict[str, Any]:
    """Convert a sentence with all of its terms for JSONL. A term that starts or ends inside a PLAIN
    token gets the whole token."""
    tokens = tokenize(sentence.text, PLAIN_TOKEN)
    # Two terms may have the same tokens.
    spans: set[tuple[int, int, str]] = set()
    for term in sentence.terms:
        tokens_of_term: list[Span] = []
        for begin, end in tokens:
            if begin < term.end and end > term.begin:
                tokens_of_term.append((begin, end))
        if tokens_of_term:
            first_begin, _ = tokens_of_term[0]
            _, last_end = tokens_of_term[-1]
            spans.add((first_begin, last_end, term.label))

    return {
        "text": sentence.text,
        "tokens": [{"start": begin, "end": end} for begin, end in tokens],
        "spans": sorted(spans),
        "abstract": sentence.abstract,
    }


def convert(archive: Path, output: Path) -> dict[str, Counter]:
    """Write the corpus in both tokenizations, its nested terms, and the abstract of each sentence.
    Sentences without text are left out.

    archive (Path): The published .tgz.
    output (Path): The folder for genia.iob2, genia_gold_tokens.iob2, genia_nested.jsonl and
        sentences.tsv.
    RETURNS (dict[str, Counter]): The counts of each tokenization: "sentences", "tokens",
        "entities", and "marked", the entities in the XML, a few of which share all of their tokens
        with another entity.
    """
    sentences = [sentence for sentence in read_sentences(archive) if sentence.text.strip()]
    output.mkdir(parents=True, exist_ok=True)

    index: list[str] = []
    tasks: list[str] = []
    for i, sentence in enumerate(sentences):
        index.append(f"{i}\t{sentence.abstract}\t{sentence.section}")
        tasks.append(json.dumps(nested_task(sentence)))
    _write_lines(output / "sentences.tsv", index)
    _write_lines(output / f"{NESTED}.jsonl", tasks)

    counts: dict[str, Counter] = {}
    for name in (PLAIN, GOLD):
        counts[name] = Counter(sentences=len(sentences))
        lines: list[str] = []
        for sentence in sentences:
            words, tags = tag(sentence, name)
            lines += [f"{word}\t{iob}" for word, iob in zip(words, tags)]
            lines.append("")  # an empty line after each sentence
            counts[name]["tokens"] += len(words)
            counts[name]["entities"] += sum(iob.startswith("B-") for iob in tags)
            counts[name]["marked"] += len(sentence.entities)
        _write_lines(output / f"{name}.iob2", lines)
    return counts


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a file, with a line end after each."""
    text = "".join(f"{line}\n" for line in lines)
    path.write_text(text, encoding="utf8", newline="\n")


def main(archive: Path, output: Path) -> None:
    """Convert GENIA 3.02 from XML to columns, in two tokenizations, and to JSONL with nested
    terms."""
    for name, counts in convert(archive, output).items():
        text = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
        typer.echo(f"{output / name}.iob2: {text}")


if __name__ == "__main__":
    typer.run(main)
