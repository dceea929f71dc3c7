"""The experiments with MCE and MCE-F: their scores, their tables and how they choose."""

from pathlib import Path
from typing import Any, Dict, List

import numpy
import pytest
from numpy.testing import assert_allclose

from experiments.cells import Cell, Runner
from experiments.mce_f import page, plans, study
from experiments.mce_f.page import line, section
from experiments.mce_f.plans import (
    EXPECTED_F,
    MCE_F,
    TASKS,
    Batch,
    Criterion,
    Online,
    Plan,
    Task,
    grid,
    make_map,
)
from experiments.mce_f.study import Row, Study, columns, compared, scores_of, sentences

WORDS = ["Ana NN B-NP", "Lee NN I-NP", "sees VB B-VP", "Rome NN B-NP", ". . O"]
FEATURES = {"@misc": "spacy_costner.Features.v1", "windows": {"ORTH": 1, "TAG": 1}}


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A task with 12 sentences to learn from and 2 to score, and a folder for weights."""
    for file, n_sentences in (("train", 12), ("test", 2)):
        text = "".join("\n".join(WORDS[i % 3 :]) + "\n\n" for i in range(n_sentences))
        (tmp_path / file).write_text(text)
    for module in (page, plans):
        monkeypatch.setattr(module, "ASSETS", tmp_path)
    monkeypatch.setattr(study, "WEIGHTS", tmp_path / "weights")
    monkeypatch.setitem(TASKS, "small", Task("Small", "", "train", None, "test", FEATURES))
    study.read_once.cache_clear()
    return "small"


def result(*counts: List[int]) -> Dict[str, Any]:
    return {"counts": list(counts)}


def test_f_and_right_sentences() -> None:
    one, other = result([2, 2, 2], [3, 1, 1]), result([2, 3, 2], [3, 3, 3])
    table = columns([one, other])
    assert table.shape == (2, 2, 5)
    f, right = scores_of(table.sum(axis=0))
    assert_allclose(f, [200 * 3 / 8, 200 * 5 / 11])
    assert_allclose(right, [50, 50])


def test_the_bootstrap_is_paired() -> None:
    rng = numpy.random.default_rng(0)
    found = rng.integers(0, 4, size=60).tolist()
    worse = result(*([4, 4, both] for both in found))
    better = result(*([4, 4, both + 1] for both in found))
    gap, _ = compared([better, better], [worse])
    # Each sentence has one entity more, in whatever sample.
    assert_allclose([gap.value, gap.low, gap.high], 25)
    assert gap.p < 0.001
    assert compared([worse], [worse])[0].p == 1


def test_the_development_part_is_held_out(task: str) -> None:
    train, held_out = sentences(task, "development", None)
    all_of_it, test = sentences(task, "test", None)
    assert [len(docs) for docs in (train, held_out, all_of_it, test)] == [9, 3, 12, 2]
    assert [d.text for d in train + held_out] == [d.text for d in all_of_it]
    assert len(sentences(task, "test", 4)[0]) == 4


def test_a_task_without_files_says_what_it_takes(task: str, tmp_path: Path) -> None:
    (tmp_path / "test").unlink()
    text = section(Runner(tmp_path / "cells"), task, Plan(make_map((0,)), []))
    assert "Not run" in text and f"{tmp_path.name}/test`" in text


def test_settings_are_chosen_on_the_development_part(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: List[Dict[str, Any]] = []

    def runner(cells: List[Cell]) -> List[Dict[str, Any]]:
        asked.extend(cell.settings for cell in cells)
        is_best = [
            cell.settings["part"] == "test" or cell.settings["setting"] == online[1]._asdict()
            for cell in cells
        ]
        return [result([2, 2, 1 + best]) for best in is_best]

    online = grid((0.1, 0.2), (3,))
    others = [
        Criterion("MCE-F", MCE_F, online, from_map=True, seeds=(0, 1)),
        Criterion("from 0", MCE_F, [Batch(None, 5)]),
    ]
    by_map, by_f, from_0 = Study(runner, task, Plan(make_map((0, 1)), others)).rows()
    assert [row.setting for row in (by_map, by_f, from_0)] == [Batch(0), online[1], Batch(None, 5)]
    assert [row.development for row in (by_map, by_f, from_0)] == [50, 100, None]
    assert [len(row.results) for row in (by_map, by_f, from_0)] == [1, 2, 1]
    kept = {settings["keep"] for settings in asked if "keep" in settings}
    starts = [settings["start"] for settings in asked if "start" in settings]
    assert len(kept) == 3 and set(starts) <= kept and len(starts) == 4
    assert all(("start" in s) <= (s["loss"] == MCE_F) for s in asked)
    of_part = {(s["part"], s["start"]) for s in asked if "start" in s}
    assert all(part in start for part, start in of_part)


def test_map_goes_on_from_one_penalty_to_the_next(task: str) -> None:
    asked: List[Dict[str, Any]] = []

    def runner(cells: List[Cell]) -> List[Dict[str, Any]]:
        asked.extend(cell.settings for cell in cells)
        return [result([2, 2, int(cell.settings["setting"]["n"] == 1)]) for cell in cells]

    (row,) = Study(runner, task, Plan(make_map((0, 1, 2)), [])).rows()
    assert (row.setting, row.development) == (Batch(1), 50)
    on_test = [settings for settings in asked if settings["part"] == "test"]
    assert [settings["setting"]["n"] for settings in on_test] == [0, 1]
    assert "start" not in on_test[0] and on_test[1]["start"] == on_test[0]["keep"]
    assert not any("start" in settings for settings in asked if settings["part"] == "development")


def test_what_starts_from_map_has_its_weights(task: str, tmp_path: Path) -> None:
    tiny = [Online(1e-6, 1)]
    others = [
        Criterion("from MAP", EXPECTED_F, tiny, from_map=True),
        Criterion("from 0", EXPECTED_F, tiny),
    ]
    rows = Study(Runner(tmp_path / "cells"), task, Plan(make_map((0,)), others)).rows()
    by_map, from_map, from_0 = [row.results[0]["counts"] for row in rows]
    assert len(by_map) == 2
    assert from_map == by_map != from_0


def test_a_line_of_the_table() -> None:
    by_map = Row("MAP", Batch(0), 93.0, [result([2, 2, 1])])
    by_f = Row("MCE-F", Online(0.1, 3), 94.0, [result([2, 2, 2]), result([2, 2, 1])])
    published = {"MCE-F": (94.03, 60.74)}
    cells = line(by_f, by_map, published)
    assert cells[:5] == ["MCE-F", "steps of 0.1, 3 epochs", 94.0, "94.03", "75.00 ± 35.36"]
    assert cells[7] == "+25.00 [+25.00, +25.00]"
    assert line(by_map, by_map, published)[-4:] == ["", "", "", ""]
