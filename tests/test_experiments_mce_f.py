"""The experiments with MCE and MCE-F: their data, how they choose, their tables."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import mce_f
from experiments.corpora import read
from experiments.mce_f import TASKS, data_of
from experiments.runner import Runner

WORDS = ["Ana NN B-NP", "Lee NN I-NP", "sees VB B-VP", "Rome NN B-NP", ". . O"]
LIMIT = 12


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A task with 12 sentences to learn from and 2 to score."""
    for file, n_sentences in (("train", LIMIT), ("test", 2)):
        text = "".join("\n".join(WORDS[i % 3 :]) + "\n\n" for i in range(n_sentences))
        (tmp_path / file).write_text(text)
    for module in ("mce_f", "corpora"):
        monkeypatch.setattr(f"experiments.{module}.ROOT", tmp_path)
    small = {"title": "Small", "files": {"train": "train", "test": "test"}}
    monkeypatch.setitem(TASKS, "small", {**TASKS["conll2000"], **small})
    monkeypatch.setitem(
        mce_f.SPEC["features"], "chunks", {"windows": {"ORTH": 1, "TAG": 1}, "bigrams": {}}
    )
    monkeypatch.setattr(mce_f, "DEVELOPMENT", 3)
    read.cache_clear()
    return "small"


@pytest.mark.parametrize("limit", [LIMIT, None])
def test_the_development_part_is_held_out(task: str, limit: Any) -> None:
    dev, test = (
        read.__wrapped__(json.dumps(data_of(TASKS[task], part, limit))) for part in ("dev", "test")
    )
    found = [dev["train"], dev["dev"], test["train"], test["test"]]
    assert [len(docs) for docs in found] == [9, 3, 12, 2]
    assert [d.text for d in dev["train"] + dev["dev"]] == [d.text for d in test["train"]]
    assert data_of(TASKS[task], "test", 4)["train"] == ["train", 0, 4]
    assert data_of(TASKS["conll2002_es"], "dev", None)["dev"][0].endswith("esp.testa")


def test_a_task_without_files_says_what_it_takes(task: str, tmp_path: Path) -> None:
    (tmp_path / "test").unlink()
    text = mce_f.section(Runner(tmp_path / "runs"), task, {})
    assert text == "### Small\n\nNot run: it takes `test`."


def test_the_table(task: str, tmp_path: Path) -> None:
    """Steps of nothing from MAP have its weights, and its scores."""
    size = {"exponents": [0, 1], "groups": ["stopped", "from 0", "from MAP"], "seeds": [0, 1]}
    size = {"tasks": [task], task: {**size, "steps": [1e-6], "limit": LIMIT}}
    text = mce_f.experiment(Runner(tmp_path / "runs"), size)["tasks"]
    assert text.startswith("### Small\n\n| criterion | setting | F, development | F, paper |")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]
    of_name = {row[0].removeprefix("| "): row for row in rows}
    assert set(of_name) == set(mce_f.criteria(size[task]))
    by_map = rows[0]
    assert by_map[0] == "| MAP" and by_map[4] == "100.00"
    from_map = [row for row in rows if "± 0.00" in row[4]]
    assert from_map and all(row[4].startswith(by_map[4]) for row in from_map)
