"""Neighbouring docs that are parts of the same text."""

from collections.abc import Sequence

import pytest
from spacy.tokens import Doc

from spacy_costner.annotation.neighbouring_docs import SharedEntities, count_shared_entities

from ..support.vocabs import blank_vocab

VOCAB = blank_vocab()


def make_docs(names: Sequence[str]) -> list[Doc]:
    """A doc for each name, which is its only entity. An empty name: a doc without entities."""
    docs: list[Doc] = []
    for name in names:
        docs.append(Doc(VOCAB, words=["saw", name or "it"], ents=["O", "B-PER" if name else "O"]))
    return docs


def test_sentences_of_an_article_share_names() -> None:
    """Each article has four sentences with its name, and one without entities."""
    names: list[str] = []
    for i in range(20):
        names += [f"Ana{i}", f"Ana{i}", "", f"Ana{i}", f"Ana{i}"]

    shared = count_shared_entities(make_docs(names))

    assert shared == SharedEntities(n_docs=80, n_neighbours=60, n_distant=0)
    assert shared.are_parts


@pytest.mark.parametrize("n_names", [1, 3, 1000])
@pytest.mark.parametrize("n_docs", [0, 1, 2, 3, 100])
def test_names_that_recur_everywhere_say_nothing(n_docs: int, n_names: int) -> None:
    """Neither do names of which none recurs, nor a few docs."""
    # A step of 7 names is a different one next door, and half of the corpus away.
    shared = count_shared_entities(make_docs([f"Ana{i * 7 % n_names}" for i in range(n_docs)]))

    assert shared.n_docs == n_docs
    assert not shared.are_parts


def test_a_few_neighbours_may_share_names_by_chance() -> None:
    assert not SharedEntities(n_docs=100, n_neighbours=10, n_distant=1).are_parts
    assert SharedEntities(n_docs=100, n_neighbours=30, n_distant=1).are_parts


def test_frequent_words_may_recur_a_little_more_often_in_neighbours() -> None:
    """As the pronouns among chunks do. That is no chance, but F is hardly higher for it."""
    assert not SharedEntities(n_docs=1000, n_neighbours=550, n_distant=400).are_parts
