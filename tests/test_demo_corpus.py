"""The demo corpus is the same everywhere, and its labels are the leaves of its tree."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spacy
from make_demo_corpus import SIZES, make_corpus
from make_pii_corpus import SIZES as LETTERS
from make_pii_corpus import make_corpus as make_letters

TREE = Path(__file__).parent.parent / "configs" / "demo_tree.json"


def leaves(tree: dict[str, Any]) -> Iterator[str]:
    """The labels of a tree that have no others below them."""
    for label, below in tree.items():
        if below:
            yield from leaves(below)
        else:
            yield label


def test_the_demo_corpus_depends_on_its_seed_only() -> None:
    assert make_corpus("dev").to_bytes() == make_corpus("dev").to_bytes()
    assert make_corpus("dev").to_bytes() != make_corpus("dev", seed=1).to_bytes()


def test_labels_of_the_demo_corpus_are_the_leaves_of_its_tree() -> None:
    vocab = spacy.blank("en").vocab
    tree_labels = set(leaves(json.loads(TREE.read_text(encoding="utf8"))))
    for name, size in SIZES.items():
        docs = list(make_corpus(name).get_docs(vocab))
        assert len(docs) == size
        assert {ent.label_ for doc in docs for ent in doc.ents} == tree_labels


@pytest.mark.parametrize("name", sorted(SIZES.keys() - {"train"}))
def test_some_entities_of_the_demo_corpus_have_words_that_training_lacks(name: str) -> None:
    """More than a tenth, but less than six tenths."""
    vocab = spacy.blank("en").vocab
    training_words = set()
    for doc in make_corpus("train").get_docs(vocab):
        training_words.update(token.text for token in doc)

    ents = [ent for doc in make_corpus(name).get_docs(vocab) for ent in doc.ents]

    new_ents = [ent for ent in ents if any(token.text not in training_words for token in ent)]
    assert 0.1 < len(new_ents) / len(ents) < 0.6


def test_a_name_of_the_demo_corpus_has_several_labels() -> None:
    """As Lincoln is a person, a city, …"""
    docs = make_corpus("train").get_docs(spacy.blank("en").vocab)
    ents = [ent for doc in docs for ent in doc.ents]
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
