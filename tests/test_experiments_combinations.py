"""Beyond the papers: what is trained, counted and compared."""

from pathlib import Path
from typing import Any

import pytest
from spacy.util import registry

from experiments.combinations import (
    ARCHITECTURES,
    CORPORA,
    Outcome,
    best_row,
    decodings,
    describe,
    methods,
    run_corpus,
    score_table,
)
from experiments.runner import Runner
from experiments.scores import COST, WHOLE, F, compare

from .support.papers import CORPUS, system_of


def outcome(
    method: str, is_new: bool, dev: Any, test: Any, architecture: str = "linear"
) -> Outcome:
    name = f"{architecture}: {method}; best path"
    return Outcome(architecture, method, "best path", is_new, system_of(name, dev, test))


GOOD, BAD = outcome("good", True, [30, 30], [30, 24]), outcome("bad", True, [10, 10], [30, 30])
KNOWN = outcome("known", False, [20, 20], [15, 15])


def test_the_best_are_chosen_on_dev_and_judged_on_test() -> None:
    good, bad, known = GOOD.system, BAD.system, KNOWN.system
    ours, theirs, value, _, p = best_row([good, bad], [known], F)
    assert (ours, theirs) == ("linear: good; best path", "linear: known; best path")
    assert value == f"{200 * 54 / 114 - 200 * 30 / 90:+.2f}"
    assert p == f"{compare([good.added()], known.added())[0][0].p:.2g}" and float(str(p)) < 0.01
    assert best_row([known], [known], F)[-1] == "1"
    assert best_row([good, bad], [known], COST)[0] == "linear: good; best path"


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
    lines = score_table([GOOD, KNOWN], WHOLE).splitlines()
    assert lines[0] == "|  | sentences right | best path |"
    assert lines[2:] == [
        "| linear | good | 90.00 ± 14.14 |",
        "| linear | known | 50.00 ± 0.00 |",
    ]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", CORPORA)
def test_all_blocks_of_the_grid_are_those_of_the_registry(name: str, architecture: str) -> None:
    for method in methods(CORPORA[name], architecture).values():
        for block in method.losses:
            assert registry.resolve({"loss": dict(block)})["loss"].compute
    for block in decodings(CORPORA[name]).values():
        assert registry.resolve({"decoding": dict(block)})["decoding"].decode


def test_the_grid_of_a_small_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text(CORPUS)
    data = {part: (str(path), 0, None) for part in ("train", "dev", "test")}
    monkeypatch.setitem(CORPORA, "small", CORPORA["Spanish entities"]._replace(data=data))
    outcomes = run_corpus(Runner(tmp_path / "runs"), "small", quick=True)
    assert len(outcomes) == (9 + 7 + 7) * 4
    assert sum(not one.is_new for one in outcomes) == 6 + 5 + 5
    assert len(list((tmp_path / "runs").iterdir())) == 5 + 3 + 3
    assert all(one.system.test[0].shape == (2, 7) for one in outcomes)
    by_name = {one.system.name: one.system.on("test", F)[0] for one in outcomes}
    assert by_name["linear: Sequential; best path"] == 100
