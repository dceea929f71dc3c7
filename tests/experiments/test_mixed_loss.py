"""The experiment of Tsuboi & Kashima: features, tuning, tables."""

from pathlib import Path
from typing import Any

import pytest

from experiments import mixed_loss
from experiments.mixed_loss import LOSSES, PAPER_1, PAPER_2
from experiments.runner import Runner, size_of
from experiments.scores import train_all

from ..support.slow import slow_but


def test_the_published_figures_agree_with_each_other() -> None:
    """F is the harmonic mean of precision and recall. All three are rounded to two digits, hence
    the tolerance. Each row has a figure for each loss."""
    figures_by_score = [row.values() for row in PAPER_1.values()]
    for p, r, f in zip(*figures_by_score):
        assert 2 * p * r / (p + r) == pytest.approx(f, abs=0.011)
    assert {len(row) for row in [*PAPER_1.values(), *PAPER_2.values()]} == {len(LOSSES)}


@pytest.fixture
def train(root: Any) -> Any:
    """Trains with a loss, on a small corpus: a look for each of the settings."""
    run = Runner(root / "runs")
    return lambda *arguments: train_all(run, [mixed_loss.trial("", *arguments)])[0]


@pytest.mark.parametrize("loss", slow_but(LOSSES, "k=1"))
def test_each_training_goes_on_where_the_last_one_ended(train: Any, loss: str) -> None:
    """A third training with the settings of the second has little to do. The corpus is learned by
    heart: its first sentence has two entities and its second one has one."""
    strong_penalty = {"c2": 0.5, "tolerance": 1e-3}
    weak_penalty = {"c2": 0.05, "tolerance": 1e-3}

    first, second, third = train(loss, None, [strong_penalty, weak_penalty, weak_penalty], "batch")
    (from_zero,) = train(loss, None, [weak_penalty], "batch")

    assert second["objective"] < first["objective"]
    assert second["objective"] == pytest.approx(from_zero["objective"], rel=1e-3)
    assert third["iterations"] < from_zero["iterations"]
    tp_fp_fn_of_docs = [counts[:3] for counts in second["test"]["best path"]]
    assert tp_fp_fn_of_docs == [[2, 0, 0], [1, 0, 0]]


@pytest.mark.slow
def test_the_tables(root: Path) -> None:
    """Our figures next to the paper's, for a corpus that is learned by heart: F is 100 with each
    loss, so no loss differs from "seq" (p = 1). A quick run has the losses point, k=2 and seq, and
    in table 2 the sizes 100 and 200."""
    size = size_of(mixed_loss.SPEC, quick=True)

    figures = mixed_loss.experiment(Runner(root / "runs"), {**size, "n_samples": 100})

    table_1 = figures["table_1"].splitlines()
    assert table_1[0] == "| all sentences | point | k=2 | seq |"
    for score in ("precision", "recall", "F"):
        paper = [f"{PAPER_1[score][loss]:.2f}" for loss in ("point", "k=2", "seq")]
        assert f"| {score}, paper | {' | '.join(paper)} |" in table_1
        assert f"| {score}, here | 100.00 | 100.00 | 100.00 |" in table_1
    assert "| p of F against seq | 1.00 | 1.00 |  |" in table_1
    assert table_1[-1].startswith("| variance of the prior |")
    rows = [line.split(" | ")[0] for line in figures["table_2"].splitlines()[2:]]
    of_sizes = [f"| {n}, {whose}" for n in (100, 200, "mean") for whose in ("paper", "here")]
    assert rows == of_sizes
