"""Write the demo corpus: made-up news sentences with entities, from a small grammar.

A sentence pattern has slots. A slot with a label, such as {city}, or with several labels of which
one is drawn, such as {doctor|politician}, becomes an entity. Any other slot becomes plain words.
The corpus is not trivial: the same names have several labels ("Lincoln", "Jordan"), and a part of
every word list is kept out of the training sentences, so that a model needs the context.
"""

import json
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import spacy
import typer
from spacy.language import Language
from spacy.tokens import Doc, DocBin

GRAMMAR = Path(__file__).with_name("demo_grammar.json")
SIZES = {"train": 1500, "dev": 300, "test": 300}
HELD_OUT = 0.25
"""The share of each word list that training sentences don't have."""

SLOT = re.compile(r"{([^{}]+)}")

Entity = tuple[int, int, str]
"""First character, end, label."""


class Grammar(NamedTuple):
    """The parts that sentences are made of. Every pattern is a text with slots."""

    entities: dict[str, list[str]]  # the patterns of each label's names
    words: dict[str, list[str]]  # lists of plain words
    sentences: list[str]  # patterns


def read_grammar(path: Path = GRAMMAR) -> Grammar:
    """Read a JSON file with the fields of `Grammar`."""
    return Grammar(**json.loads(path.read_text(encoding="utf8")))


def without_held_out(grammar: Grammar) -> Grammar:
    """Leave out the end of every word list, for the training sentences."""
    words: dict[str, list[str]] = {}
    for name, word_list in grammar.words.items():
        n_for_training = round(len(word_list) * (1 - HELD_OUT))
        words[name] = word_list[:n_for_training]
    return grammar._replace(words=words)


def expand(pattern: str, grammar: Grammar, rng: random.Random) -> str:
    """Replace every slot of a pattern by a word list's word or by a name, at random, and the slots
    of these, too."""
    patterns_of_slot = {**grammar.words, **grammar.entities}

    def replace(slot: re.Match) -> str:
        return expand(rng.choice(patterns_of_slot[slot[1]]), grammar, rng)

    return SLOT.sub(replace, pattern)


def make_sentence(grammar: Grammar, rng: random.Random) -> tuple[str, list[Entity]]:
    """Make the text and the entities of a sentence."""
    text = ""
    entities: list[Entity] = []
    pattern = rng.choice(grammar.sentences)
    # `split` gives plain text and slots in turn. After the last text comes an empty slot.
    parts = [*SLOT.split(pattern), ""]
    plain_texts = parts[::2]
    slots = parts[1::2]
    for plain_text, slot in zip(plain_texts, slots):
        text += plain_text
        name = rng.choice(slot.split("|"))  # of a word list, or a label
        if name:
            words = expand(f"{{{name}}}", grammar, rng)
            if name in grammar.entities:
                entities.append((len(text), len(text) + len(words), name))
            text += words
    return text, entities


def make_doc(nlp: Language, text: str, entities: list[Entity]) -> Doc:
    """Make an annotated doc. Raises an error if an entity does not begin and end with a token."""
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


def save(make: Callable[..., DocBin], names: Iterable[str], output_dir: Path, seed: int) -> None:
    """Save the parts of a corpus in a folder, as .spacy files. `make` takes the name of a part and
    the seed, and makes its docs."""
    output_dir.mkdir(parents=True, exist_ok=True)
    for name in names:
        make(name, seed=seed).to_disk(output_dir / f"{name}.spacy")


def main(output_dir: Path, seed: int = 0) -> None:
    """Write train.spacy, dev.spacy and test.spacy to a folder."""
    save(make_corpus, SIZES, output_dir, seed)


if __name__ == "__main__":
    typer.run(main)
