"""Beyond the papers: what is trained, counted and compared."""

from pathlib import Path
from typing import Any, List

import pytest
from spacy.util import registry

from experiments import combinations
from experiments.combinations import ARCHITECTURES, CORPORA, best_row, describe, score_table
from experiments.runner import Runner, size_of
from experiments.scores import COST, WHOLE, F, System, compare

from .support.papers import system_of


def outcome(method: str, is_new: bool, dev: Any, test: Any, architecture: str = "linear") -> System:
    facts = {"architecture": architecture, "method": method, "is_new": is_new}
    return system_of(f"{architecture}: {method}; best path", dev, test, **facts)


GOOD, BAD = outcome("good", True, [30, 30], [30, 24]), outcome("bad", True, [10, 10], [30, 30])
KNOWN = outcome("known", False, [20, 20], [15, 15])


def test_the_best_are_chosen_on_dev_and_judged_on_test() -> None:
    ours, theirs, value, _, p = best_row([GOOD, BAD], [KNOWN], F)
    assert (ours, theirs) == ("linear: good; best path", "linear: known; best path")
    assert value == f"{200 * 54 / 114 - 200 * 30 / 90:+.2f}"
    assert p == f"{compare([GOOD.added()], KNOWN.added())[0][0].p:.2g}" and float(str(p)) < 0.01
    assert best_row([KNOWN], [KNOWN], F)[-1] == "1"
    assert best_row([GOOD, BAD], [KNOWN], COST)[0] == "linear: good; best path"


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
    ways = ["best path", "least cost", "threshold 0.3", "threshold 0.4"]
    assert lines[0] == f"|  | sentences right | {' | '.join(ways)} |"
    assert lines[2:] == [
        "| linear | good | 90.00 ± 14.14 |",
        "| linear | known | 50.00 ± 0.00 |",
    ]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", CORPORA)
def test_all_blocks_of_the_grid_are_those_of_the_registry(name: str, architecture: str) -> None:
    losses = combinations.blocks("losses", CORPORA[name], architecture)
    for method in combinations.methods(architecture).values():
        for loss in method["losses"]:
            assert registry.resolve({"loss": dict(losses[loss])})["loss"].compute
    for block in combinations.blocks("decodings", CORPORA[name]).values():
        assert registry.resolve({"decoding": dict(block)})["decoding"].decode


def test_the_grid_of_a_small_corpus(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CORPORA, "small", CORPORA["Spanish entities"])
    size = size_of(combinations.SPEC, quick=True)
    systems: List[System] = combinations.run_corpus(Runner(tmp_path / "runs"), "small", size)
    assert len(systems) == (9 + 7 + 7) * 4
    assert sum(not one.settings["is_new"] for one in systems) == 6 + 5 + 5
    assert len(list((tmp_path / "runs").iterdir())) == 5 + 3 + 3
    assert all(one.test[0].shape == (2, 7) for one in systems)
    by_name = {one.name: one.on("test", F)[0] for one in systems}
    assert by_name["linear: Sequential; best path"] == 100
