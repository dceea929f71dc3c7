"""Runs: by any executor, kept, and one failure by itself."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL
from types import FunctionType
from typing import Any

import pytest

from spacy_costner.analysis.runs import (
    Done,
    Failed,
    Run,
    _make_task,
    check_address,
    fingerprint,
    kept,
    local_processes,
    ray_cluster,
    remembered,
    run_all,
    run_one,
)

from .support.runs import square


@pytest.mark.parametrize(
    "make", [local_processes(1), local_processes(2), lambda: ThreadPoolExecutor(2)]
)
def test_runs_are_kept_and_one_failure_does_not_stop_the_others(tmp_path: Path, make: Any) -> None:
    paths = {x: tmp_path / f"square-{x}.json" for x in (2, -1, 3)}
    runs = [Run(path.stem, square, {"x": x}, path) for x, path in paths.items()]
    found = {run.name: ended for run, ended in run_all(runs, make)}
    failed = found.pop("square--1")
    assert isinstance(failed, Failed) and failed.reason == "ValueError: below 0"
    assert "in square" in failed.trace
    assert {name: ended.value["square"] for name, ended in found.items()} == {
        "square-2": 4,
        "square-3": 9,
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["square-2.json", "square-3.json"]
    changed = json.loads(paths[3].read_text())
    changed["value"][0]["square"] = 99
    paths[3].write_text(json.dumps(changed))
    assert run_one(runs[2]).value["square"] == 99
    other = runs[2]._replace(settings={"x": 4})
    assert run_one(other).value["square"] == 16
    for _ in range(2):  # without a path, each time
        ended: Any = run_one(Run("two", square, {"x": 2}))
        assert ended.value["square"] == 4 and ended.seconds >= 0


def die_once(path: str, x: int) -> dict[str, Any]:
    """Die the first time; `path` remembers that."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), SIGKILL)
    return square(x)


def test_runs_of_a_process_that_died_are_repeated(tmp_path: Path) -> None:
    settings = {"path": str(tmp_path / "died")}
    runs = [Run(str(x), die_once, {**settings, "x": x}) for x in range(3)]
    found: Any = {run.name: ended for run, ended in run_all(runs, local_processes(2))}
    assert {x: found[str(x)].value["square"] for x in range(3)} == {0: 0, 1: 1, 2: 4}


class Dying(ThreadPoolExecutor):
    """One whose workers die with some runs, so often."""

    def __init__(self, deaths: dict[str, int], outlives_workers: bool) -> None:
        super().__init__(2)
        self.deaths, self.outlives_workers, self.is_broken = deaths, outlives_workers, False

    def submit(self, function: Callable[..., Any], run: Run) -> Future:  # type: ignore[override]
        if self.is_broken:
            raise BrokenExecutor("died")
        if not self.deaths.get(run.name):
            return super().submit(function, run)
        self.deaths[run.name] -= 1
        self.is_broken = not self.outlives_workers
        future: Future = Future()
        future.set_exception(BrokenExecutor("died"))
        return future


def run_dying(
    names: list[str], deaths: dict[str, int], outlives_workers: bool = False
) -> tuple[dict[str, Any], int]:
    """What becomes of runs, in order, and how many executors are made."""
    made: list[Dying] = []

    def make() -> Dying:
        made.append(Dying(deaths, outlives_workers))
        return made[-1]

    found = run_all([Run(name, square, {"x": 2}) for name in names], make)
    return {run.name: ended for run, ended in found}, len(made)


@pytest.mark.parametrize("outlives_workers, n_made", [(False, 6), (True, 3)])
def test_a_run_whose_worker_dies_each_time_fails_alone(outlives_workers: bool, n_made: int) -> None:
    """One whose worker died once is repeated; by the same executor, if that goes on."""
    deaths = {"die": 9, "once": 1}
    found, n = run_dying(["die", "once", "b", "c"], deaths, outlives_workers)
    assert [*found][-1] == "die" or not outlives_workers
    assert found.pop("die") == Failed("its worker died 4 times", "")
    assert {name: ended.value["square"] for name, ended in found.items()} == {
        "once": 4, "b": 4, "c": 4
    }  # fmt: skip
    assert (n, deaths) == (n_made, {"die": 5, "once": 0})


def test_workers_that_never_finish_anything_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a run has ended, the others are not."""
    monkeypatch.setattr("spacy_costner.analysis.runs.HOPELESS", 1)
    names = [str(i) for i in range(20)]
    found, n_made = run_dying(names, dict.fromkeys(names, 9))
    assert [*map(type, found.values())] == [Failed] * 20 and n_made < 10
    found, _ = run_dying(["0", "die", "1"], {"die": 9})
    assert sorted(name for name, ended in found.items() if isinstance(ended, Done)) == ["0", "1"]


def test_a_worker_on_ray_checks_versions_and_files(tmp_path: Path) -> None:
    """What it runs knows nothing of the package, of which the worker may have any version."""
    task = FunctionType(_make_task().__code__, {})
    here = socket.gethostname()
    with pytest.raises(ValueError, match=rf"worker on {here}: expected spacy 0\.1, got 3"):
        task(str(tmp_path), {"spacy": "0.1"}, None)
    with pytest.raises(ValueError, match=r"expected no-such-package 0\.1, got none"):
        task(str(tmp_path), {"no-such-package": "0.1"}, None)
    with pytest.raises(ValueError, match=r"expected the files of the driver, got no .*nowhere"):
        task(str(tmp_path / "nowhere"), {}, None)


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert ray_cluster(None) is None
    message = r"--address requires ray: pip install 'spacy-costner\[distributed\]'"
    with pytest.raises(ImportError, match=message):
        ray_cluster("auto")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        check_address(address)
    with pytest.raises(ConnectionError, match=f"{address}: expected a Ray cluster, got: .*refused"):
        check_address(address)
    check_address("auto")


def test_ray_is_imported_for_an_address_only() -> None:
    code = "import sys, spacy_costner.cli, experiments.runner; sys.exit('ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_executor_is_shut_down() -> None:
    executor = ThreadPoolExecutor(1)
    running = run_all([Run("two", square, {"x": 2})] * 3, lambda: executor)
    next(running)
    running.close()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(square, 2)


def test_fingerprints_know_settings_and_files(tmp_path: Path) -> None:
    file, folder = tmp_path / "tree.json", tmp_path / "corpus"
    folder.mkdir()
    seen = set()
    for text in ("one", "two"):
        file.write_text(text)
        seen.add(fingerprint({"tree": str(file)}))
        (folder / "train.spacy").write_text(text)
        seen.add(fingerprint([str(folder)], 1.0))
        seen.add(fingerprint([str(folder)], 2.0))
    (folder / "train.spacy").rename(folder / "dev.spacy")
    seen.add(fingerprint([str(folder)], 2.0))
    assert len(seen) == 7
    (folder / ".hidden").touch()
    (folder / "code.pyc").touch()
    assert fingerprint([str(folder)], 2.0) in seen
    assert fingerprint({"a": "", "b": "x" * 300}) == fingerprint({"b": "x" * 300, "a": ""})
    assert fingerprint("\0", "\ud800")


def test_values_are_remembered_for_as_long_as_the_key_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last digit. A run that is killed while it writes leaves what was there."""
    path, values = tmp_path / "value.json", iter([1 / 3, 2, [1e-300]])
    found = [remembered(path, key, lambda: next(values)) for key in ("a", "a", "b", "a", "a")]
    assert found == [1 / 3, 1 / 3, 2, [1e-300], [1e-300]]

    def half(path: Path, text: str, **settings: Any) -> None:
        path.write_bytes(text[:10].encode())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "write_text", half)
        remembered(path, "b", lambda: 4)
    assert remembered(path, "a", lambda: 5) == [1e-300]


@pytest.mark.parametrize(
    "damaged", [b"", b"{}", b"5", b"null", b"\xff{", b'{"key": "a", "val', b"[" * 9999]
)
def test_a_damaged_file_is_as_if_it_were_not_there(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "value.json"
    path.write_bytes(damaged)
    assert kept(path, "a") is None
    assert remembered(path, "a", lambda: 2) == 2 == kept(path, "a")
