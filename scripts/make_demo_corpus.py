"""Write the demo corpus: made-up news sentences with entities, from a small grammar.

A sentence pattern has slots. A slot such as {city} or {doctor|politician} becomes an
entity, any other one plain words. Two things make it less than trivial: the same names
serve several labels ("Lincoln", "Jordan"), and a part of every word list is kept out of
the training sentences, so that the context has to tell.
"""

import json
import random
import re
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple

import spacy
import typer
from spacy.language import Language
from spacy.tokens import Doc, DocBin

GRAMMAR = Path(__file__).with_name("demo_grammar.json")
SIZES = {"train": 1500, "dev": 300, "test": 300}
HELD_OUT = 0.25
SLOT = re.compile(r"{([^{}]+)}")

Entity = Tuple[int, int, str]
"""First character, end, label."""


class Grammar(NamedTuple):
    """What sentences are made of; every pattern is a text with slots.

    entities (Dict[str, List[str]]): The patterns of each label's names.
    words (Dict[str, List[str]]): Lists of plain words.
    sentences (List[str]): The patterns of sentences.
    """

    entities: Dict[str, List[str]]
    words: Dict[str, List[str]]
    sentences: List[str]


def read_grammar(path: Path = GRAMMAR) -> Grammar:
    """Read a grammar.

    path (Path): A JSON file with the fields of `Grammar`.
    RETURNS (Grammar): The grammar.
    """
    return Grammar(**json.loads(path.read_text(encoding="utf8")))


def without_held_out(grammar: Grammar) -> Grammar:
    """Leave out the end of every word list.

    grammar (Grammar): The whole grammar.
    RETURNS (Grammar): The grammar of the training sentences.
    """
    words = {
        name: some[: round(len(some) * (1 - HELD_OUT))] for name, some in grammar.words.items()
    }
    return grammar._replace(words=words)


def expand(pattern: str, grammar: Grammar, rng: random.Random) -> str:
    """Replace every slot of a pattern, and the slots of what replaces it.

    pattern (str): A text with slots.
    grammar (Grammar): Where the replacements come from.
    rng (random.Random): Chooses.
    RETURNS (str): A text without slots.
    """
    rules = {**grammar.words, **grammar.entities}
    return SLOT.sub(lambda slot: expand(rng.choice(rules[slot[1]]), grammar, rng), pattern)


def make_sentence(grammar: Grammar, rng: random.Random) -> Tuple[str, List[Entity]]:
    """Make one sentence.

    grammar (Grammar): What it is made of.
    rng (random.Random): Chooses.
    RETURNS (Tuple[str, List[Entity]]): Its text and entities.
    """
    text, entities = "", []
    for literal, slot in pieces(rng.choice(grammar.sentences)):
        text += literal
        symbol = rng.choice(slot.split("|"))
        words = expand(f"{{{symbol}}}", grammar, rng) if symbol else ""
        if symbol in grammar.entities:
            entities.append((len(text), len(text) + len(words), symbol))
        text += words
    return text, entities


def pieces(pattern: str) -> Iterator[Tuple[str, str]]:
    """Cut a pattern into pairs of literal text and the slot after it, the last one empty."""
    parts = [*SLOT.split(pattern), ""]
    return zip(parts[::2], parts[1::2])


def make_doc(nlp: Language, text: str, entities: List[Entity]) -> Doc:
    """Make an annotated doc.

    nlp (Language): The tokenizer's pipeline.
    text (str): The text.
    entities (List[Entity]): Its entities.
    RETURNS (Doc): The doc.
    RAISES (ValueError): If an entity does not begin and end with a token.
    """
    doc = nlp.make_doc(text)
    spans = [doc.char_span(start, end, label=label) for start, end, label in entities]
    doc.ents = [span for span in spans if span is not None]
    if len(doc.ents) < len(entities):
        raise ValueError(f"expected entities that begin and end with tokens, got {text!r}")
    return doc


def make_corpus(name: str, *, seed: int = 0) -> DocBin:
    """Make one part of the corpus.

    name (str): "train", "dev" or "test".
    seed (int): The same seed makes the same corpus.
    RETURNS (DocBin): One doc a sentence.
    """
    grammar = read_grammar()
    if name == "train":
        grammar = without_held_out(grammar)
    rng = random.Random(f"{seed} {name}")
    nlp = spacy.blank("en")
    sentences = (make_sentence(grammar, rng) for _ in range(SIZES[name]))
    return DocBin(docs=[make_doc(nlp, text, entities) for text, entities in sentences])


def main(output_dir: Path, seed: int = 0) -> None:
    """Write train.spacy, dev.spacy and test.spacy to a folder."""
    output_dir.mkdir(parents=True, exist_ok=True)
    for name in SIZES:
        make_corpus(name, seed=seed).to_disk(output_dir / f"{name}.spacy")


if __name__ == "__main__":
    typer.run(main)
