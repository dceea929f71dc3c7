"""Comparisons: rows counted by hand, and a small one from end to end."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from signal import SIGKILL
from threading import Thread
from time import sleep
from typing import Any, List

import numpy
import pytest

from spacy_costner.cli.compare import Finished, compare, describe, summarise, table
from spacy_costner.cli.runs import Done, Failed
from spacy_costner.pipeline.scorers import DocCounts

from .support.experiment import SHORT, Experiment


def finished(loss: str, *docs: List[float], seed: int = 0, seconds: float = 10) -> Finished:
    """A variant with these counts of right, wrong, missed, cost and tokens for each doc."""
    columns = numpy.asarray(docs, dtype="float64").T
    return Finished(loss, seed, seconds, DocCounts(*columns))


POOR = [[1, 1, 1, 4, 10], [2, 0, 0, 0, 10], [0, 2, 1, 6, 20]]
GOOD = [[2, 0, 0, 0, 10], [2, 0, 0, 0, 10], [1, 1, 0, 2, 20]]


def test_scores_counted_by_hand() -> None:
    (row,) = summarise([finished("poor", *POOR)], n_samples=10)
    assert row.scores == pytest.approx(
        {
            "ents_f": 2 * 3 / (2 * 3 + 3 + 2),
            "ents_p": 3 / 6,
            "ents_r": 3 / 5,
            "ents_cost": 10 / 40,
            "ents_sent_acc": 1 / 3,
        }
    )


def test_nothing_right_scores_0() -> None:
    (row,) = summarise([finished("none", [0, 0, 0, 0, 5])], n_samples=10)
    assert row.scores["ents_f"] == row.scores["ents_p"] == 0.0
    assert row.scores["ents_sent_acc"] == 1.0


def test_rows_are_means_over_seeds() -> None:
    one, other = finished("a", *POOR), finished("a", *GOOD, seed=1, seconds=20)
    (row,) = summarise([one, other], n_samples=10)
    (first,), (second,) = summarise([one], n_samples=10), summarise([other], n_samples=10)
    for name, score in row.scores.items():
        assert row.by_seed[name] == [first.scores[name], second.scores[name]]
        assert score == pytest.approx((first.scores[name] + second.scores[name]) / 2)
    assert row.seconds == 15


def f_of(docs: List[List[float]]) -> float:
    right, wrong, missed = (sum(doc[i] for doc in docs) for i in range(3))
    return 2 * right / (2 * right + wrong + missed) if right else 0.0


def test_significance_against_a_loop() -> None:
    both = [finished("poor", *POOR), finished("good", *GOOD)]
    found = summarise(both, n_samples=200)[1].differences["ents_f"]
    drawn = numpy.random.default_rng(0).integers(3, size=(200, 3))
    samples = [f_of([GOOD[i] for i in ids]) - f_of([POOR[i] for i in ids]) for ids in drawn]
    not_better = sum(sample <= 0 for sample in samples)
    assert found.value == pytest.approx(f_of(GOOD) - f_of(POOR))
    assert found.p == pytest.approx(2 * (1 + not_better) / 201)
    assert found.low == pytest.approx(numpy.percentile(samples, 2.5))
    assert found.high == pytest.approx(numpy.percentile(samples, 97.5))


def test_the_first_is_compared_with_itself() -> None:
    rows = summarise([finished("good", *GOOD), finished("poor", *POOR)], n_samples=50)
    assert {found.p for found in rows[0].differences.values()} == {1.0}
    assert rows[1].differences["ents_cost"].value == pytest.approx((10 - 2) / 40)


def test_seeds_count_together() -> None:
    """What one seed wins and the other loses is no difference."""
    rows = summarise(
        [
            finished("a", *POOR),
            finished("a", *GOOD, seed=1),
            finished("b", *GOOD),
            finished("b", *POOR, seed=1),
        ],
        n_samples=50,
    )
    assert rows[1].differences["ents_f"] == pytest.approx((0.0, 0.0, 0.0, 1.0))


def untrained(loss: str, seed: int = 0) -> Finished:
    return finished(loss, *GOOD, seed=seed)._replace(is_trained=False)


def test_untrained_models_are_not_reported() -> None:
    runs = [finished("a", *GOOD), untrained("b"), finished("c", *POOR)]
    more = [finished(loss, *GOOD, seed=1) for loss in "abc"]
    rows = summarise([*runs, *more], n_samples=9)
    assert [row.untrained for row in rows] == [[], [0], []]
    assert rows[1].scores == rows[1].by_seed == rows[1].differences == {}
    alone = summarise([runs[0], runs[2], more[0], more[2]], n_samples=9)
    assert [rows[0], rows[2]] == alone
    *_, note = table(rows).splitlines()
    assert note.startswith("b: the best model was not trained past the first step, with seed 0")
    cells = [cell.strip() for cell in table(rows).splitlines()[3].split("|")[1:-1]]
    assert cells == ["b", *["-"] * 5, "10", "-", "-"]
    assert describe("b, seed 0", Done(runs[1], 10.0)) == (
        "b, seed 0: the best model was not trained past the first step, 10 s"
    )


def test_nothing_is_compared_with_an_untrained_model() -> None:
    rows = summarise([untrained("a"), finished("b", *GOOD), finished("c", *POOR)], n_samples=9)
    assert [bool(row.scores) for row in rows] == [False, True, True]
    assert all(row.differences == {} for row in rows)
    assert table(rows).splitlines()[3].split("|")[8:10] == ["      - ", "         - "]
    assert rows[1].as_json()["differences"] == {}
    (row,) = summarise([untrained("a")])
    assert row.scores == {}


def test_no_docs_are_no_comparison() -> None:
    empty = Finished("a", 0, 1.0, DocCounts(*numpy.zeros((5, 0))))
    with pytest.raises(ValueError, match="test: expected docs with annotated entities, got none"):
        summarise([empty])


def test_table() -> None:
    rows = summarise([finished("poor", *POOR), finished("good", *GOOD)], n_samples=99)
    head, rule, poor, good = table(rows).splitlines()
    assert len({len(line) for line in (head, rule, poor, good)}) == 1
    assert head.split("|")[1:3] == [" loss ", "     F "]
    cells = [cell.strip() for cell in poor.split("|")[1:-1]]
    assert cells[:7] == ["poor", "54.55", "50.00", "60.00", "0.2500", "33.33", "10"]
    assert cells[7:] == ["1.0000", "1.0000"]


def test_table_of_several_seeds_shows_how_they_scatter() -> None:
    rows = summarise([finished("a", *POOR), finished("a", *GOOD, seed=1)], n_samples=9)
    assert "| 72.73 ± 25.71 |" in table(rows)


def test_outcomes_in_a_line() -> None:
    good = Done(finished("good", *GOOD), seconds=9.0)
    assert describe("good, seed 0", good) == "good, seed 0: F 90.91, 10 s"
    assert describe("bad, seed 1", Failed("ValueError: no", "")) == "bad, seed 1: failed"


@pytest.mark.parametrize("argument", ["seeds", "n_samples", "jobs"])
def test_sizes_are_checked(experiment: Experiment, argument: str) -> None:
    value: Any = () if argument == "seeds" else 0
    with pytest.raises(ValueError, match=r"expected at least 1, got 0"):
        compare(*experiment, **{argument: value})


def test_a_comparison_is_written_down_and_taken_up_again(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: List[str] = []
    rows = compare(
        *experiment, seeds=[0, 1], n_samples=20, on_end=lambda name, _: seen.append(name)
    )
    assert [row.loss for row in rows] == ["sequential", "risk"]
    assert seen == [f"{loss}, seed {seed}" for seed in (0, 1) for loss in ("sequential", "risk")]
    record = json.loads((experiment.output_path / "comparison.json").read_text())
    assert record["seeds"] == [0, 1]
    for row, written in zip(rows, record["losses"]):
        assert written["scores"] == pytest.approx(row.scores)
        assert written["differences"]["ents_f"]["p"] == pytest.approx(row.differences["ents_f"].p)
    monkeypatch.delattr("spacy_costner.cli.compare.train")
    threads = partial(ThreadPoolExecutor, 2)
    settings = {"seeds": [0, 1], "n_samples": 20}
    for row, again in zip(rows, compare(*experiment, make_executor=threads, **settings)):
        assert again.as_json() == row._replace(seconds=again.seconds).as_json()


def test_one_failure_does_not_stop_the_others(experiment: Experiment) -> None:
    bad = experiment.output_path.parent / "bad.cfg"
    bad.write_text(
        SHORT.replace("spacy_costner.Risk.v1", "spacy_costner.MaxMargin.v1").replace(
            '"spacy_costner.HammingCost.v1"',
            '"spacy_costner.HierarchicalCost.v1"\ntree = {"city": {}}',
        )
    )
    seen: List[bool] = []
    paths = [bad, *experiment.loss_paths]
    with pytest.raises(ValueError, match=r"1 of 3 failed\nbad, seed 0: ValueError: .*'country'"):
        compare(
            *experiment._replace(loss_paths=paths),
            on_end=lambda _, ended: seen.append(isinstance(ended, Done)),
        )
    assert seen == [False, True, True]
    log = experiment.output_path / "bad" / "seed-0" / "log.txt"
    assert "Traceback" in log.read_text()


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_model_of_the_first_step_is_found(experiment: Experiment, accumulate: int) -> None:
    """With a score that falls, the best model is that of the first step."""
    code = experiment.output_path.parent / "code.py"
    code.write_text(
        "import spacy\n\n"
        "@spacy.registry.scorers('falling.v1')\ndef make():\n"
        "    scores = [2.0]\n\n"
        "    def score(examples, **_):\n"
        "        scores[0] -= 0.5\n"
        "        return {'ents_f': scores[0]}\n\n"
        "    return score\n"
    )
    settings = {
        "components.ner.scorer": {"@scorers": "falling.v1"},
        "training.accumulate_gradient": accumulate,
    }
    rows = compare(*experiment, overrides=settings, code_path=code, n_samples=9)
    assert [row.untrained for row in rows] == [[0], [0]]
    (again, _) = compare(*experiment, n_samples=9)
    assert again.untrained == [] and again.scores


def test_a_killed_worker_changes_nothing(experiment: Experiment) -> None:
    """It is killed while it trains; its variants are trained again."""
    compare(*experiment, seeds=[0, 1], n_samples=20)
    killed: List[int] = []
    again = experiment._replace(output_path=experiment.output_path.parent / "again")

    def kill() -> None:
        while not list(again.output_path.glob("*/*/training")):
            sleep(0.01)
        killed.append(active_children()[0].pid or 0)
        os.kill(killed[0], SIGKILL)

    killer = Thread(target=kill, daemon=True)
    killer.start()
    compare(*again, seeds=[0, 1], n_samples=20, jobs=2)
    assert killed
    for name in ("model-best/ner/model", "counts.json", "comparison.json"):
        first = sorted(experiment.output_path.rglob(name))
        second = sorted(again.output_path.rglob(name))
        assert len(first) == len(second) == (1 if name == "comparison.json" else 4)
        for one, other in zip(first, second):
            assert results(one) == results(other)


def results(path: Path) -> Any:
    """What a file has, but for seconds and paths."""
    if path.name == "comparison.json":
        losses = json.loads(path.read_text())["losses"]
        return [{**row, "seconds": 0} for row in losses]
    return json.loads(path.read_text())["value"] if path.suffix else path.read_bytes()
