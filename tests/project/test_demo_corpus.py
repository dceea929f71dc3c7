"""The demo corpus is the same everywhere, and its labels are the leaves of its tree."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from make_demo_corpus import SIZES, make_corpus
from make_pii_corpus import SIZES as LETTER_SIZES
from make_pii_corpus import make_corpus as make_letters
from spacy.tokens import Doc

from ..support.vocabs import blank_vocab

TREE = Path(__file__).parents[2] / "configs" / "demo_tree.json"


demo_corpus = cache(make_corpus)
"""A part of the corpus, made once for all tests."""


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
    vocab = blank_vocab()
    tree_labels = set(leaves(json.loads(TREE.read_text(encoding="utf8"))))
    for name, size in SIZES.items():
        docs = list(demo_corpus(name).get_docs(vocab))
        assert len(docs) == size
        ents = [ent for doc in docs for ent in doc.ents]
        assert {ent.label_ for ent in ents} == tree_labels


@pytest.mark.parametrize("name", sorted(SIZES.keys() - {"train"}))
def test_some_entities_of_the_demo_corpus_have_words_that_training_lacks(name: str) -> None:
    """More than a tenth, but less than six tenths."""
    vocab = blank_vocab()
    training_words = set()
    for doc in demo_corpus("train").get_docs(vocab):
        training_words.update(token.text for token in doc)

    ents = [ent for doc in demo_corpus(name).get_docs(vocab) for ent in doc.ents]

    new_ents = [ent for ent in ents if any(token.text not in training_words for token in ent)]
    assert 0.1 < len(new_ents) / len(ents) < 0.6


def test_a_name_of_the_demo_corpus_has_several_labels() -> None:
    """An example is Lincoln: a person, a city, …"""
    docs = demo_corpus("train").get_docs(blank_vocab())
    ents = [ent for doc in docs for ent in doc.ents]

    labels_of_lincoln = {ent.label_ for ent in ents if ent.text == "Lincoln"}

    assert len(labels_of_lincoln) >= 4


@pytest.fixture(scope="module")
def letters() -> list[Doc]:
    """The development part of the corpus of letters with personal data."""
    return list(make_letters("dev").get_docs(blank_vocab()))


def test_the_letters_are_the_same_each_time() -> None:
    assert make_letters("dev").to_bytes() == make_letters("dev").to_bytes()


def test_letters_have_personal_data(letters: list[Doc]) -> None:
    labels = set()
    for doc in letters:
        labels.update(ent.label_ for ent in doc.ents)

    assert len(letters) == LETTER_SIZES["dev"]
    assert labels == {"PER", "LOC", "ORG", "ID"}


def test_all_slots_of_letters_are_filled(letters: list[Doc]) -> None:
    """The templates have "{name}" where a name goes, and "#" where a digit goes."""
    for doc in letters:
        assert not set("#{}") & set(doc.text)


def test_names_in_letters_are_not_told_by_a_capital(letters: list[Doc]) -> None:
    """Some are written small, and others not."""
    is_lower = set()
    for doc in letters:
        is_lower.update(ent.text.islower() for ent in doc.ents if ent.label_ == "PER")
    assert is_lower == {True, False}


def test_numbers_in_letters_are_not_told_by_their_form(letters: list[Doc]) -> None:
    """Some of the words that begin with "C-" are annotated as ID, and others are not."""
    labels = set()
    for doc in letters:
        labels.update(token.ent_type_ for token in doc if token.text.startswith("C-"))
    assert labels == {"ID", ""}
