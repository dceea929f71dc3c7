"""Beyond the papers: what is trained, counted and compared."""

from pathlib import Path
from typing import List

import numpy
import pytest
import spacy
from spacy.util import registry

from experiments.cells import Runner
from experiments.combinations import grid, study
from experiments.combinations.grid import CORPORA
from experiments.combinations.page import best_row, describe, score_table
from experiments.combinations.study import ARCHITECTURES, COUNTS, SCORES, Outcome, compare
from experiments.corpora import as_examples, read_docs
from experiments.linear import make_linear
from experiments.scores import sentence_counts
from experiments.tagger import answers

from .test_experiments import CORPUS


def outcome(
    method: str, is_new: bool, dev: List[int], test: List[int], architecture: str = "linear"
) -> Outcome:
    """Two seeds, 30 docs with an entity each: so many, by seed, are found, the others missed."""

    def counts(right: List[int]) -> numpy.ndarray:
        found = numpy.zeros((2, 30, len(COUNTS)))
        for seed, n_right in enumerate(right):
            found[seed, :, 0] = numpy.arange(30) < n_right
        found[:, :, 2] = found[:, :, 3] = 1 - found[:, :, 0]
        found[:, :, 4] = 2
        found[:, :, 5], found[:, :, 6] = found[:, :, 0], 1
        return found

    return Outcome(architecture, method, "best path", is_new, counts(dev), counts(test))


GOOD, BAD = outcome("good", True, [30, 30], [30, 24]), outcome("bad", True, [10, 10], [30, 30])
KNOWN = outcome("known", False, [20, 20], [15, 15])


def test_scores_are_those_of_the_counts() -> None:
    f, cost, whole = (GOOD.on("test", score) for score in SCORES)
    assert f.tolist() == pytest.approx([100, 100 * 48 / 54])
    assert cost.tolist() == pytest.approx([0, 0.1])
    assert whole.tolist() == pytest.approx([100, 80])


def test_the_best_are_chosen_on_dev_and_judged_on_test() -> None:
    ours, theirs, value, _, p = best_row([GOOD, BAD], [KNOWN], SCORES[0])
    assert (ours, theirs) == ("linear: good; best path", "linear: known; best path")
    assert value == f"{200 * 54 / 114 - 200 * 30 / 90:+.2f}"
    assert p == f"{compare(GOOD, KNOWN, SCORES[0]).p:.2g}" and float(str(p)) < 0.01
    assert compare(KNOWN, KNOWN, SCORES[0]).p == 1
    assert best_row([GOOD, BAD], [KNOWN], SCORES[1])[0] == "linear: good; best path"


def test_the_papers_have_linear_models() -> None:
    cnn = [
        outcome("known", False, [30, 30], [30, 30], "CNN"),
        outcome("good", True, [29, 29], [30, 30], "CNN"),
    ]
    table = describe([BAD, KNOWN, *cnn]).split("\n\n")[1].splitlines()
    assert [line.split(" | ")[:2] for line in table[2:]] == [
        ["| linear: bad; best path", "linear: known; best path"],
        ["| CNN: good; best path", "CNN: known; best path"],
        ["| CNN: known; best path", "linear: known; best path"],
    ]


def test_a_row_for_each_method() -> None:
    lines = score_table([GOOD, KNOWN], SCORES[2]).splitlines()
    assert lines[0] == "|  | sentences right | best path |"
    assert lines[2:] == [
        "| linear | good | 90.00 ± 14.14 |",
        "| linear | known | 50.00 ± 0.00 |",
    ]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", CORPORA)
def test_all_blocks_of_the_grid_are_those_of_the_registry(name: str, architecture: str) -> None:
    for method in grid.methods(CORPORA[name], architecture).values():
        for block in method.losses:
            assert registry.resolve({"loss": block})["loss"].compute
    for block in grid.decodings(CORPORA[name]).values():
        assert registry.resolve({"decoding": block})["decoding"].decode


def test_what_is_decoded_in_many_ways_is_what_the_pipeline_answers(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text(CORPUS)
    docs = read_docs(path, spacy.blank("xx").vocab)
    corpus = CORPORA["Spanish entities"]
    tagger = make_linear(as_examples(docs), features=corpus.features)
    tagger.rows[:] = numpy.random.default_rng(0).normal(size=tagger.rows.shape)
    found = study.answers_by_decoding(tagger, docs, corpus)
    for name, block in grid.decodings(corpus).items():
        tagger.ner.set_decoding(registry.resolve({"decoding": block})["decoding"])
        assert sentence_counts(found[name]) == sentence_counts(answers(tagger, docs))


def test_the_grid_of_a_small_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text(CORPUS)
    docs = read_docs(path, spacy.blank("xx").vocab)
    small = CORPORA["Spanish entities"]._replace(
        read=lambda vocab, quick: {"train": docs, "dev": docs, "test": docs}
    )
    monkeypatch.setitem(CORPORA, "small", small)
    outcomes = study.run_corpus(Runner(tmp_path / "cells"), "small", quick=True)
    assert len(outcomes) == (9 + 7 + 7) * 4
    assert sum(not one.is_new for one in outcomes) == 6 + 5 + 5
    assert len(list((tmp_path / "cells").iterdir())) == 5 + 3 + 3
    assert all(one.test.shape == (1, 2, len(COUNTS)) for one in outcomes)
    by_name = {one.name: one.on("test", SCORES[0])[0] for one in outcomes}
    assert by_name["linear: Sequential; best path"] == 100
