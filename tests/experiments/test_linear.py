"""The linear model on documents: corpora and the grid."""

from pathlib import Path

import pytest
from spacy.tokens import Doc
from spacy.util import registry

from experiments import corpora, linear
from experiments.runner import Runner, size_of

from ..support.vocabs import blank_vocab

VOCAB = blank_vocab()


def tagged_doc(text: str) -> Doc:
    """A sentence of words with the part of speech "X"."""
    words = text.split()
    return Doc(VOCAB, words=words, tags=["X"] * len(words))


SENTENCES = [
    "Before it .",
    "Roma , 3 may ( EFE ) .",
    "More .",
    "Lima ( EFECOM ) .",
    "( AP ) EFE",
]
"""Of three articles: what is before the first dateline, and two that begin with a dateline of
EFE, the agency of CoNLL-2002 Spanish."""


def test_articles_begin_with_datelines() -> None:
    """A dateline has a parenthesis and then a word that begins with EFE. In the last sentence EFE
    comes later, so it is none."""
    docs = [tagged_doc(text) for text in SENTENCES]
    assert corpora.by_dateline(docs) == [0, 1, 1, 2, 2]


def test_a_dateline_is_at_the_beginning_of_a_sentence() -> None:
    """Only the first 14 words count. Here the parenthesis is the last of them, and EFE comes
    after."""
    late = tagged_doc("a " * 13 + "( EFE")
    assert corpora.by_dateline([late]) == [0]


def test_joined_articles_keep_their_sentences_and_parts_of_speech() -> None:
    docs = [tagged_doc(text) for text in SENTENCES]

    articles = corpora.join_groups(docs, groups=[0, 1, 1, 2, 2])

    assert [len(list(article.sents)) for article in articles] == [1, 2, 2]
    for article in articles:
        assert {token.tag_ for token in article} == {"X"}


@pytest.mark.parametrize("corpus", linear.CORPORA, ids=lambda corpus: corpus["title"])
def test_all_blocks_are_those_of_the_registry(corpus: linear.Corpus) -> None:
    for name in corpus["systems"]:
        for loss in corpus["losses"]:
            stage = linear.stage(corpus, name, loss, 0, 1)
            blocks = registry.resolve({"model": stage["model"], "loss": stage["loss"]})
            assert blocks["model"].name == "sparse_crf"
            assert blocks["loss"].compute


@pytest.mark.parametrize("corpus", linear.CORPORA, ids=lambda corpus: corpus["title"])
def test_two_passes_have_features_of_other_docs_and_of_the_doc(corpus: linear.Corpus) -> None:
    assert {"memory", "document"} <= linear.features(corpus, "two passes").keys()


def test_a_row_for_each_system(root: Path, tmp_path: Path) -> None:
    (corpus,) = [corpus for corpus in linear.CORPORA if corpus["documents"] == "datelines"]
    size = size_of(linear.SPEC, quick=True)

    table = linear.table(Runner(tmp_path / "runs"), corpus, size)

    rows = [line.split(" | ") for line in table.splitlines()[2:]]  # after the head and its line
    assert [row[0] for row in rows] == ["| windows only", "| one pass", "| two passes"]
    f_scores = [float(row[4]) for row in rows]  # the column "F on test"
    assert all(0 <= f <= 100 for f in f_scores)
