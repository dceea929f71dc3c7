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
        # The first, second or third word and those after it, in turn.
        sentences = ["\n".join(WORDS[i % 3 :]) for i in range(n_sentences)]
        (tmp_path / file).write_text("".join(f"{sentence}\n\n" for sentence in sentences))
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


def texts(docs: list[Any]) -> list[str]:
    """The texts of docs."""
    return [doc.text for doc in docs]


@pytest.mark.parametrize("limit", [LIMIT, None])
def test_the_development_part_is_held_out(task: str, limit: Any) -> None:
    """For the test, training is on all 12 sentences; for development the last 3 are held out: with
    a limit a quarter of it, else DEVELOPMENT, which is 3 here."""
    for_dev = read.__wrapped__(json.dumps(data_of(TASKS[task], "dev", limit)))
    for_test = read.__wrapped__(json.dumps(data_of(TASKS[task], "test", limit)))

    assert len(for_dev["train"]) == 9
    assert len(for_dev["dev"]) == 3
    assert len(for_test["test"]) == 2
    assert texts(for_dev["train"] + for_dev["dev"]) == texts(for_test["train"])


def test_a_limit_is_of_the_first_sentences(task: str) -> None:
    assert data_of(TASKS[task], "test", 4)["train"] == ["train", 0, 4]


def test_a_corpus_with_a_development_part_holds_nothing_out() -> None:
    file, *_ = data_of(TASKS["conll2002_es"], "dev", None)["dev"]
    assert file.endswith("esp.testa")


def test_a_task_without_files_says_what_it_takes(task: str, tmp_path: Path) -> None:
    (tmp_path / "test").unlink()
    text = mce_f.section(Runner(tmp_path / "runs"), task, {})
    assert text == "### Small\n\nNot run: it takes `test`."


@pytest.mark.slow
def test_the_table(task: str, tmp_path: Path) -> None:
    """Training from the weights of MAP, by steps of almost nothing, keeps them and their scores.
    With the first C, 10^-60, nothing is learned, so that the best C is not the first."""
    size_of_task = {
        "exponents": [-60, 0, 1],
        "groups": ["stopped", "from 0", "from MAP"],
        "seeds": [0, 1],
        "steps": [1e-6],
        "limit": LIMIT,
    }
    size = {"tasks": [task], task: size_of_task}

    text = mce_f.experiment(Runner(tmp_path / "runs"), size)["tasks"]

    assert text.startswith("### Small\n\n| criterion | setting | F, development | F, paper |")
    lines_of_table = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [line.split(" | ") for line in lines_of_table[2:]]  # after the head and its line
    names = {row[0].removeprefix("| ") for row in rows}
    assert names == set(mce_f.criteria(size_of_task))
    assert rows[0][0] == "| MAP"
    # The fifth column is F on test. MAP is trained once. All seeds that start from its weights,
    # and hardly leave them, have its F, so their deviation is 0.
    f_on_test = [row[4] for row in rows]
    f_of_map = f_on_test[0]
    assert f_of_map == "100.00"  # the test sentences are also training sentences
    f_from_map = [f for f in f_on_test if "±" in f]  # only these rows have several seeds
    assert f_from_map
    assert {*f_from_map} == {f"{f_of_map} ± 0.00"}
    # The last two columns are McNemar's test, against MAP: all are right.
    assert [row[-2:] for row in rows] == [["", " |"], *([["1", "1 |"]] * (len(rows) - 1))]
    # MCE-F is compared with the likelihood from the same start, MAP or 0.
    assert "F above that of ML, online: MCE-F +" in text
    assert "F above that of ML, online, from 0: MCE-F, from 0 +" in text
