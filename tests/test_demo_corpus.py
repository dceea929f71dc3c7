"""The demo corpus is the same everywhere, and its labels are the leaves of its tree."""

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
import spacy
from make_demo_corpus import SIZES, make_corpus
from make_pii_corpus import SIZES as LETTERS
from make_pii_corpus import make_corpus as make_letters
from spacy.tokens import Doc

TREE = Path(__file__).parent.parent / "configs" / "demo_tree.json"


@pytest.fixture(scope="module")
def corpus() -> Dict[str, List[Doc]]:
    vocab = spacy.blank("en").vocab
    return {name: list(make_corpus(name).get_docs(vocab)) for name in SIZES}


def leaves(tree: Dict[str, Any]) -> Iterator[str]:
    for label, below in tree.items():
        if below:
            yield from leaves(below)
        else:
            yield label


def test_same_seed_makes_same_corpus() -> None:
    assert make_corpus("dev").to_bytes() == make_corpus("dev").to_bytes()
    assert make_corpus("dev").to_bytes() != make_corpus("dev", seed=1).to_bytes()


@pytest.mark.parametrize("name", SIZES)
def test_labels_are_the_leaves_of_the_tree(name: str, corpus: Dict[str, List[Doc]]) -> None:
    labels = {ent.label_ for doc in corpus[name] for ent in doc.ents}
    assert labels == set(leaves(json.loads(TREE.read_text(encoding="utf8"))))


def test_sizes(corpus: Dict[str, List[Doc]]) -> None:
    assert {name: len(docs) for name, docs in corpus.items()} == SIZES


@pytest.mark.parametrize("name", ["dev", "test"])
def test_has_names_that_training_lacks(name: str, corpus: Dict[str, List[Doc]]) -> None:
    known = {token.text for doc in corpus["train"] for token in doc}
    ents = [ent for doc in corpus[name] for ent in doc.ents]
    new = [ent for ent in ents if any(token.text not in known for token in ent)]
    assert 0.1 < len(new) / len(ents) < 0.6


def test_has_names_of_several_labels(corpus: Dict[str, List[Doc]]) -> None:
    ents = {(ent.text, ent.label_) for doc in corpus["train"] for ent in doc.ents}
    assert len({label for text, label in ents if text == "Lincoln"}) >= 4


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
