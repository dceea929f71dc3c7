"""Write a made-up corpus of letters with personal data: names, places, organisations and ids.

Each doc is a letter of several sentences, from a grammar like the demo corpus, with its words.
Names have several labels, the same names and numbers are personal data or not, and some sentences
have no capitals. A part of every word list is kept out of the training letters.
"""

import random
import re
from pathlib import Path

import spacy
import typer
from make_demo_corpus import (
    Entity,
    Grammar,
    make_doc,
    make_sentence,
    read_grammar,
    save,
    without_held_out,
)
from spacy.tokens import DocBin

GRAMMAR = Path(__file__).with_name("pii_grammar.json")
SIZES = {"train": 400, "dev": 100, "calibration": 500, "test": 1000}
SENTENCES = (3, 9)
"""The least and the most sentences of a letter, without opening and closing."""

LOWER_CASE = 0.15
"""The share of sentences without capitals."""


def make_letter(grammar: Grammar, rng: random.Random) -> tuple[str, list[Entity]]:
    """Make the text and the entities of a letter. "#" in patterns is a digit, but not 0."""
    text = rng.choice(grammar.words["opening"])
    entities: list[Entity] = []
    least, most = SENTENCES
    for _ in range(rng.randint(least, most)):
        sentence, sentence_entities = make_sentence(grammar, rng)
        text += " "
        sentence_begin = len(text)
        for begin, end, label in sentence_entities:
            entities.append((sentence_begin + begin, sentence_begin + end, label))
        if rng.random() < LOWER_CASE:
            sentence = sentence.lower()
        text += sentence
    text += " " + rng.choice(grammar.words["closing"])
    # Now, as names have digits, too. A digit is as long as "#", so entities stay where they are.
    text = re.sub("#", lambda _: str(rng.randint(1, 9)), text)
    return text, entities


def make_corpus(name: str, *, seed: int = 0) -> DocBin:
    """Make one part of the corpus.

    name (str): "train", "dev", "calibration" or "test".
    seed (int): The same seed makes the same corpus.
    RETURNS (DocBin): One doc a letter.
    """
    grammar = read_grammar(GRAMMAR)
    grammar = grammar._replace(words={**read_grammar().words, **grammar.words})
    if name == "train":
        grammar = without_held_out(grammar)
    rng = random.Random(f"{seed} {name}")
    nlp = spacy.blank("en")
    letters = (make_letter(grammar, rng) for _ in range(SIZES[name]))
    return DocBin(docs=[make_doc(nlp, text, entities) for text, entities in letters])


def main(output_dir: Path, seed: int = 0) -> None:
    """Write train, dev, calibration and test letters to a folder, as .spacy files."""
    save(make_corpus, SIZES, output_dir, seed)


if __name__ == "__main__":
    typer.run(main)
