"""The experiments with MCE and MCE-F: their data, how they choose, their tables."""

import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from experiments import mce_f
from experiments.corpora import read
from experiments.mce_f import TASKS, batch, data_of, online, systems_of
from experiments.runner import Runner
from experiments.scores import F
from experiments.training import SEQUENTIAL, loss_block

WORDS = ["Ana NN B-NP", "Lee NN I-NP", "sees VB B-VP", "Rome NN B-NP", ". . O"]
MCE_F, EXPECTED_F = loss_block("MCEF", psi="inf"), loss_block("MCEF", psi=1)
LIMIT = 12


def row(tried: Any, loss: Any = SEQUENTIAL, from_map: bool = False, seeds: Any = (0,)) -> Any:
    return {"loss": loss, "tried": tried, "from_map": from_map, "seeds": seeds}


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


def asked(answer: Callable[[Any], float]) -> Any:
    """A runner that answers with so many right entities, of two and two predicted, and what it
    was asked."""
    seen: List[Dict[str, Any]] = []

    def run(runs: Any) -> List[Any]:
        seen.extend(one.settings for one in runs)
        found = [answer(one.settings) for one in runs]
        rows = [[r, 2 - r, 2 - r, 0, 1, r == 2, 1] for r in found]
        looks = [{"dev": {"best path": r}, "test": {"best path": [r]}} for r in rows]
        return [[{"stage": 0, **look}] for look in looks]

    return run, seen


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


def test_settings_are_chosen_on_the_development_part(task: str) -> None:
    tried = [online(0.1, 3), online(0.2, 3)]
    best = tried[1]["optimizer"]["learn_rate"]
    run, seen = asked(
        lambda s: 1 + ("test" in s["data"] or s["stages"][0]["model"].get("learn_rate") == best)
    )
    rows = {
        "MAP": row([batch(0), batch(1)]),
        "MCE-F": row(tried, MCE_F, from_map=True, seeds=(0, 1)),
        "from 0": row([batch(None, 5)], MCE_F),
    }
    systems = systems_of(run, task, rows)
    chosen = [one.settings["setting"] for one in systems]
    assert chosen == [batch(0), tried[1], batch(None, 5)]
    developed = [one.on("dev", F)[0] if len(one.dev) else None for one in systems]
    assert [len(one.test) for one in systems] == [1, 2, 1]
    assert developed[:2] == [50, 100]
    starts = [s for s in seen if s["start"]]
    assert len(starts) == 4
    assert all(s["stages"][0]["loss"] == MCE_F for s in starts)
    assert all([stage["settings"]["c2"] for stage in s["start"]] == [1.0] for s in starts)


def test_what_starts_from_map_has_its_weights(task: str, tmp_path: Path) -> None:
    tiny = [online(1e-6, 1)]
    rows = {
        "MAP": row([batch(0)]),
        "from MAP": row(tiny, EXPECTED_F, from_map=True),
        "from 0": row(tiny, EXPECTED_F),
    }
    systems = systems_of(Runner(tmp_path / "runs"), task, rows)
    by_map, from_map, from_0 = [one.test[0].tolist() for one in systems]
    assert len(by_map) == 2
    assert from_map == by_map != from_0
