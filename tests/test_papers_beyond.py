"""Beyond the papers: what is trained, counted and compared."""

from pathlib import Path
from typing import List

import numpy
import pytest
import spacy
from spacy.util import registry

from papers import beyond
from papers.beyond import CORPORA, COUNTS, SCORES, Outcome, compare, describe_best, score_table
from papers.cells import Runner
from papers.corpora import read_docs

from .test_papers import CORPUS


def outcome(method: str, is_new: bool, dev: List[int], test: List[int]) -> Outcome:
    """Two seeds, 30 docs with an entity each: so many, by seed, are found, the others missed."""

    def counts(right: List[int]) -> numpy.ndarray:
        found = numpy.zeros((2, 30, len(COUNTS)))
        for seed, n_right in enumerate(right):
            found[seed, :, 0] = numpy.arange(30) < n_right
        found[:, :, 2] = found[:, :, 3] = 1 - found[:, :, 0]
        found[:, :, 4] = 2
        found[:, :, 5], found[:, :, 6] = found[:, :, 0], 1
        return found

    return Outcome(method, "best path", is_new, counts(dev), counts(test))


GOOD, BAD = outcome("good", True, [30, 30], [30, 24]), outcome("bad", True, [10, 10], [30, 30])
KNOWN = outcome("known", False, [20, 20], [15, 15])


def test_scores_are_those_of_the_counts() -> None:
    f, cost, whole = (GOOD.on("test", score) for score in SCORES)
    assert f.tolist() == pytest.approx([100, 100 * 48 / 54])
    assert cost.tolist() == pytest.approx([0, 0.1])
    assert whole.tolist() == pytest.approx([100, 80])


def test_the_best_are_chosen_on_dev_and_judged_on_test() -> None:
    text = describe_best([GOOD, BAD, KNOWN], SCORES[0])
    assert "others on the dev set: good; best path" in text and "papers: known" in text
    value = 200 * 54 / 114 - 200 * 30 / 90
    assert f"difference on the test set: {value:+.2f}" in text
    assert compare(GOOD, KNOWN, SCORES[0]).p < 0.01
    assert compare(KNOWN, KNOWN, SCORES[0]).p == 1
    assert "good; best path" in describe_best([GOOD, BAD, KNOWN], SCORES[1])


def test_a_row_for_each_method() -> None:
    lines = score_table([GOOD, KNOWN], SCORES[2]).splitlines()
    assert lines[0] == "| sentences right | best path |"
    assert lines[2:] == ["| good | 90.00 ± 14.14 |", "| known | 50.00 ± 0.00 |"]


@pytest.mark.parametrize("name", CORPORA)
def test_all_blocks_of_the_grid_are_those_of_the_registry(name: str) -> None:
    for method in beyond.methods(CORPORA[name]).values():
        for block in method.losses:
            assert registry.resolve({"loss": block})["loss"].compute
    for block in beyond.decodings(CORPORA[name]).values():
        assert registry.resolve({"decoding": block})["decoding"].decode


def test_the_grid_of_a_small_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text(CORPUS)
    docs = read_docs(path, spacy.blank("xx").vocab)
    small = CORPORA["Spanish entities"]._replace(
        read=lambda vocab, quick: {"train": docs, "dev": docs, "test": docs}
    )
    monkeypatch.setitem(CORPORA, "small", small)
    outcomes = beyond.run_corpus(Runner(tmp_path / "cells"), "small", quick=True)
    assert len(outcomes) == 9 * 4 and sum(not one.is_new for one in outcomes) == 6
    assert len(list((tmp_path / "cells").iterdir())) == 9
    assert all(one.test.shape == (1, 2, len(COUNTS)) for one in outcomes)
    by_name = {one.name: one.on("test", SCORES[0])[0] for one in outcomes}
    assert by_name["Sequential; best path"] == 100
