"""The demo corpus is the same everywhere, and its labels are the leaves of its tree."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import spacy
from make_demo_corpus import SIZES, make_corpus
from make_pii_corpus import SIZES as LETTERS
from make_pii_corpus import make_corpus as make_letters

TREE = Path(__file__).parent.parent / "configs" / "demo_tree.json"


def leaves(tree: dict[str, Any]) -> Iterator[str]:
    for label, below in tree.items():
        yield from leaves(below) if below else [label]


def test_the_demo_corpus() -> None:
    """Some entities of dev and test have words that training lacks; some names have two labels."""
    assert make_corpus("dev").to_bytes() == make_corpus("dev").to_bytes()
    assert make_corpus("dev").to_bytes() != make_corpus("dev", seed=1).to_bytes()
    vocab = spacy.blank("en").vocab
    corpus = {name: list(make_corpus(name).get_docs(vocab)) for name in SIZES}
    assert {name: len(docs) for name, docs in corpus.items()} == SIZES
    labels = {*leaves(json.loads(TREE.read_text(encoding="utf8")))}
    known = {token.text for doc in corpus["train"] for token in doc}
    for name, docs in corpus.items():
        ents = [ent for doc in docs for ent in doc.ents]
        assert {ent.label_ for ent in ents} == labels
        new = [ent for ent in ents if any(token.text not in known for token in ent)]
        assert name == "train" or 0.1 < len(new) / len(ents) < 0.6
    ents = [ent for doc in corpus["train"] for ent in doc.ents]
    assert len({ent.label_ for ent in ents if ent.text == "Lincoln"}) >= 4


def test_letters_have_personal_data_and_the_same_words_without() -> None:
    assert make_letters("dev").to_bytes() == make_letters("dev").to_bytes()
    docs = list(make_letters("dev").get_docs(spacy.blank("en").vocab))
    assert len(docs) == LETTERS["dev"]
    assert {ent.label_ for doc in docs for ent in doc.ents} == {"PER", "LOC", "ORG", "ID"}
    assert not any(char in doc.text for doc in docs for char in "#{}")
    names = {ent.text for doc in docs for ent in doc.ents if ent.label_ == "PER"}
    assert any(name.islower() for name in names) and not all(name.islower() for name in names)
    numbers = [token for doc in docs for token in doc if token.text.startswith("C-")]
    assert {token.ent_type_ for token in numbers} == {"ID", ""}
