"""Beyond the papers: what is trained, counted and compared."""

from pathlib import Path

import pytest
from spacy.util import registry

from experiments import combinations
from experiments.combinations import ARCHITECTURES, CORPORA
from experiments.runner import Runner, size_of
from experiments.scores import COST, F, System


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
    systems: list[System] = combinations.run_corpus(Runner(tmp_path / "runs"), "small", size)
    assert len(systems) == (9 + 7 + 7) * 4
    assert sum(not one.settings["is_new"] for one in systems) == 6 + 5 + 5
    assert len(list((tmp_path / "runs").iterdir())) == 5 + 3 + 3
    assert all(one.test[0].shape == (2, 7) for one in systems)
    by_name = {one.name: one.on("test", F)[0] for one in systems}
    assert by_name["linear: Sequential; best path"] == 100
    tables = combinations.scores_text(systems, F, COST).split("\n\n")
    scores, best = (table.splitlines() for table in tables)
    assert len(scores[0].split("|")) == 2 + 2 + 4
    found = [*2 * ["100.00"], *2 * ["0.0000"]]  # F, average cost
    assert scores[2] == f"| linear | Sequential | {' | '.join(found)} |"
    # The best of each architecture, then of all, against what the papers have: linear models.
    known = [line.split(" | ")[2].split(":")[0] for line in best[2:]]
    assert known == 2 * ["linear", "CNN", "hybrid", "linear"]
