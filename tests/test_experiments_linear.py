"""The linear model on documents: corpora and the grid."""

from pathlib import Path

import pytest
import spacy
from spacy.tokens import Doc
from spacy.util import registry

from experiments import corpora, linear
from experiments.runner import Runner, size_of

VOCAB = spacy.blank("xx").vocab


def test_articles_begin_with_datelines() -> None:
    lines = ("Before it .", "Roma , 3 may ( EFE ) .", "More .", "Lima ( EFECOM ) .", "( AP ) EFE")
    docs = [Doc(VOCAB, words=line.split(), tags=["X"] * len(line.split())) for line in lines]
    assert corpora.by_dateline(docs) == [0, 1, 1, 2, 2]
    joined = corpora.join_groups(docs, corpora.by_dateline(docs))
    assert [len(list(doc.sents)) for doc in joined] == [1, 2, 2]
    assert {token.tag_ for doc in joined for token in doc} == {"X"}
    late = Doc(VOCAB, words=["a"] * 13 + ["(", "EFE"])
    assert corpora.by_dateline([late]) == [0]


@pytest.mark.parametrize("corpus", linear.CORPORA, ids=lambda corpus: corpus["title"])
def test_all_blocks_are_those_of_the_registry(corpus: linear.Corpus) -> None:
    for name in corpus["systems"]:
        for loss in corpus["losses"]:
            one = linear.stage(corpus, name, loss, 0, 1)
            assert registry.resolve({"model": one["model"]})["model"].name == "sparse_crf"
            assert registry.resolve({"loss": one["loss"]})["loss"].compute
    assert {"memory", "document"} <= {*linear.features(corpus, "two passes")}


def test_a_row_for_each_system(root: Path, tmp_path: Path) -> None:
    corpus = next(each for each in linear.CORPORA if each["documents"] == "datelines")
    size = size_of(linear.SPEC, quick=True)
    lines = linear.table(Runner(tmp_path / "runs"), corpus, size).splitlines()
    names = ["| windows only", "| one pass", "| two passes"]
    assert [line.split(" | ")[0] for line in lines[2:]] == names
    assert all(0 <= float(line.split(" | ")[4]) <= 100 for line in lines[2:])
