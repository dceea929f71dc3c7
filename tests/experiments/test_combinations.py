"""Beyond the papers: trainings, counts and comparisons."""

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


@pytest.mark.slow
def test_the_grid_of_a_small_corpus(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linear models have 9 methods, CNN and hybrid have 7, as they do without the two with Mixed.
    Each has 4 decodings. Of the methods 6 and twice 5 are in a paper for the Hamming cost, with the
    best path alone. A run is one loss, and the methods whose second loss comes after it: 5 losses
    come first with linear models, and 3 with the others."""
    monkeypatch.setitem(CORPORA, "small", CORPORA["Spanish entities"])
    size = size_of(combinations.SPEC, quick=True)

    systems: list[System] = combinations.run_corpus(Runner(tmp_path / "runs"), "small", size)

    assert len(systems) == (9 + 7 + 7) * 4
    published = [system for system in systems if not system.settings["is_new"]]
    assert len(published) == 6 + 5 + 5
    assert len(list((tmp_path / "runs").iterdir())) == 5 + 3 + 3
    assert all(system.test[0].shape == (2, 7) for system in systems)  # two docs, seven counts
    f_of_system = {system.name: system.on("test", F)[0] for system in systems}
    assert f_of_system["linear: Sequential; best path"] == 100
    check_tables(combinations.scores_text(systems, F, COST))


def check_tables(text: str) -> None:
    """Check the table of scores, and the table of the best systems against published ones."""
    scores, best = (table.splitlines() for table in text.split("\n\n"))
    # What is before the first line and behind the last; architecture and loss; four scores
    assert len(scores[0].split("|")) == 2 + 2 + 4
    # F with two decodings, then the average cost.
    assert scores[2] == "| linear | Sequential | 100.00 | 100.00 | 0.0000 | 0.0000 |"
    # The best of each architecture, then of all, against what the papers have: linear models.
    published_architectures = []
    for line in best[2:]:
        _, _, published, *_ = line.split(" | ")
        published_architectures.append(published.split(":")[0])
    assert published_architectures == ["linear", "CNN", "hybrid", "linear"] * 2
