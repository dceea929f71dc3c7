"""Tests of runs: any executor gives the same results, results are cached, and one failure doesn't
stop the others."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from signal import SIGKILL
from types import FunctionType
from typing import Any
from unittest.mock import Mock

import pytest

from spacy_costner.workflows.executors import Processes, local_processes
from spacy_costner.workflows.ray_executor import _make_task, check_address, ray_cluster
from spacy_costner.workflows.result_cache import cached_result, fingerprint, read_cache
from spacy_costner.workflows.runs import Done, Failed, Run, run_all, run_one

from ..support.runs import square


def squares(ended_of: dict[str, Any]) -> dict[str, int]:
    """The squares that runs have computed, by the name of the run."""
    return {name: ended.value["square"] for name, ended in ended_of.items()}


@pytest.mark.parametrize(
    "make_executor",
    [local_processes(1), local_processes(2), lambda: ThreadPoolExecutor(2)],
    ids=["this process", "two processes", "two threads"],
)
def test_one_failure_does_not_stop_the_other_runs(tmp_path: Path, make_executor: Any) -> None:
    """Each run computes a square, and fails if its number is below 0. A failure isn't cached."""
    runs = []
    for x in (2, -1, 3):
        path = tmp_path / f"square-{x}.json"
        runs.append(Run(f"square-{x}", square, {"x": x}, path))

    ended_of = {run.name: ended for run, ended in run_all(runs, make_executor)}

    failed = ended_of.pop("square--1")
    assert isinstance(failed, Failed)
    assert failed.reason == "ValueError: below 0"
    assert "in square" in failed.trace
    assert squares(ended_of) == {"square-2": 4, "square-3": 9}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["square-2.json", "square-3.json"]


def test_a_run_is_kept_for_its_settings(tmp_path: Path) -> None:
    """The cached result is 99, which isn't the square of 3: so it is read, not computed. With
    another x, the square is computed."""
    run = Run("square", square, {"x": 3}, tmp_path / "square.json")
    run_one(run)
    saved = json.loads((tmp_path / "square.json").read_text())
    saved["value"][0]["square"] = 99
    (tmp_path / "square.json").write_text(json.dumps(saved))

    kept_run: Any = run_one(run)
    changed_run: Any = run_one(run._replace(settings={"x": 4}))

    assert kept_run.value["square"] == 99
    assert changed_run.value["square"] == 16


def test_a_run_without_a_path_runs_each_time() -> None:
    for _ in range(2):
        ended: Any = run_one(Run("two", square, {"x": 2}))
        assert ended.value["square"] == 4
        assert ended.seconds >= 0


def die_once(path: str, x: int) -> dict[str, Any]:
    """End the process at the first call. A file at `path` says that there was one."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), SIGKILL)
    return square(x)


def test_runs_of_a_process_that_died_are_repeated(tmp_path: Path) -> None:
    """The first of three runs kills its process."""
    path = str(tmp_path / "died")
    runs = [Run(str(x), die_once, {"path": path, "x": x}) for x in range(3)]
    ended_of: Any = {run.name: ended for run, ended in run_all(runs, local_processes(2))}
    assert squares(ended_of) == {"0": 0, "1": 1, "2": 4}


def test_all_workers_start_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """None starts later, when another one may have died: in CPython before 3.13, it is then waited
    for without end."""
    with Processes(3) as executor:
        worker_class: Any = get_context(
            "forkserver" if sys.platform == "linux" else "spawn"
        ).Process
        start = Mock(side_effect=worker_class.start, autospec=True)
        monkeypatch.setattr(worker_class, "start", lambda worker: start(worker))
        started: list[int] = []
        for x in range(5):
            executor.submit(square, x)
            started.append(start.call_count)
    assert started == [3, 3, 3, 3, 3]


class ExecutorOfDyingWorkers(ThreadPoolExecutor):
    """An executor whose worker dies when it gets some runs.

    deaths (dict[str, int]): How often a worker will die of the run of this name. It is counted
        down, so that several executors can share it.
    outlives_workers (bool): Whether the executor takes more runs afterwards, as Ray does.
    """

    def __init__(self, deaths: dict[str, int], *, outlives_workers: bool) -> None:
        super().__init__(2)
        self.deaths = deaths
        self.outlives_workers = outlives_workers
        self.is_broken = False

    def submit(self, function: Callable[..., Any], run: Run) -> Future:  # type: ignore[override]
        """Call the function, or let the worker die."""
        if self.is_broken:
            raise BrokenExecutor("died")
        if self.deaths.get(run.name, 0) == 0:
            return super().submit(function, run)
        self.deaths[run.name] -= 1
        self.is_broken = not self.outlives_workers
        future: Future = Future()
        future.set_exception(BrokenExecutor("died"))
        return future


def run_with_dying_workers(
    names: list[str], deaths: dict[str, int], *, outlives_workers: bool = False
) -> tuple[dict[str, Any], int]:
    """Run the square of 2 under several names.

    RETURNS (tuple[dict[str, Any], int]): What becomes of each run, in the order in which they end,
        and how many executors were made.
    """
    executors: list[ExecutorOfDyingWorkers] = []

    def make_executor() -> ExecutorOfDyingWorkers:
        """Make an executor, and count it."""
        executors.append(ExecutorOfDyingWorkers(deaths, outlives_workers=outlives_workers))
        return executors[-1]

    runs = [Run(name, square, {"x": 2}) for name in names]
    ended_of = {run.name: ended for run, ended in run_all(runs, make_executor)}
    return ended_of, len(executors)


@pytest.mark.parametrize("outlives_workers, n_executors", [(False, 6), (True, 3)])
def test_a_run_whose_worker_dies_each_time_fails_alone(
    outlives_workers: bool, n_executors: int
) -> None:
    """The worker of the run "die" would die nine times. The run fails after four deaths; if the
    executor outlives its workers, it is the last to end. The worker of "once" dies once, and its
    run is repeated. An executor that outlives its workers is made once for all runs, and twice for
    "die" alone. Other executors are made again after each death: 1 + 4 + 1 executors."""
    deaths = {"die": 9, "once": 1}

    ended_of, n_made = run_with_dying_workers(
        ["die", "once", "b", "c"], deaths, outlives_workers=outlives_workers
    )

    if outlives_workers:
        assert list(ended_of)[-1] == "die"
    assert ended_of.pop("die") == Failed("its worker died 4 times", "")
    assert squares(ended_of) == {"once": 4, "b": 4, "c": 4}
    assert n_made == n_executors
    assert deaths == {"die": 9 - 4, "once": 0}


def test_workers_that_never_finish_anything_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are given up long before each of twenty runs has died four times, which would need 80
    executors. `MAX_LOST_RUNS` is how many runs may fail as long as no run has ended."""
    monkeypatch.setattr("spacy_costner.workflows.runs.MAX_LOST_RUNS", 1)
    names = [str(i) for i in range(20)]
    ended_of, n_executors = run_with_dying_workers(names, deaths=dict.fromkeys(names, 9))
    assert [type(ended) for ended in ended_of.values()] == [Failed] * 20
    assert n_executors < 10


def test_workers_that_have_finished_a_run_are_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One failed run, "die", would be enough to give up, but other runs end."""
    monkeypatch.setattr("spacy_costner.workflows.runs.MAX_LOST_RUNS", 1)
    ended_of, _ = run_with_dying_workers(["0", "die", "1"], deaths={"die": 9})
    done = [name for name, ended in ended_of.items() if isinstance(ended, Done)]
    assert sorted(done) == ["0", "1"]


def test_a_worker_on_ray_checks_versions_and_files(tmp_path: Path) -> None:
    """The function that it runs doesn't use this package, as the worker may have another version of
    it."""
    task = FunctionType(_make_task().__code__, {})
    here = socket.gethostname()
    with pytest.raises(ValueError, match=rf"worker on {here}: expected spacy 0\.1, got 3"):
        task(str(tmp_path), {"spacy": "0.1"}, None)
    with pytest.raises(ValueError, match=r"expected no-such-package 0\.1, got none"):
        task(str(tmp_path), {"no-such-package": "0.1"}, None)
    with pytest.raises(ValueError, match=r"expected the files of the driver, got no .*nowhere"):
        task(str(tmp_path / "nowhere"), {}, None)


def test_without_ray_an_address_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert ray_cluster(None) is None
    message = r"`address` requires ray: pip install 'spacy-costner\[distributed\]'"
    with pytest.raises(ImportError, match=message):
        ray_cluster("auto")


def test_an_address_where_nobody_listens_is_refused() -> None:
    """A server listens during the `with` block, and not after it. The address "auto" is left to
    Ray."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        check_address(address)
    with pytest.raises(ConnectionError, match=f"{address}: expected a Ray cluster, got: .*refused"):
        check_address(address)
    check_address("auto")


def test_ray_is_imported_for_an_address_only() -> None:
    # The status is 1, which `check` refuses, if ray was imported.
    code = "import sys, spacy_costner.cli, experiments.runner; sys.exit('ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_executor_is_shut_down_if_the_caller_stops_reading() -> None:
    executor = ThreadPoolExecutor(1)
    ended_runs = run_all([Run("two", square, {"x": 2})] * 3, lambda: executor)
    next(ended_runs)
    ended_runs.close()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(square, 2)


def test_fingerprints_differ_for_settings_and_contents_of_files(tmp_path: Path) -> None:
    """A setting may be the path of a file or of a folder. The names of the files in a folder count,
    too. Hidden and compiled files don't count."""
    file = tmp_path / "tree.json"
    folder = tmp_path / "corpus"
    folder.mkdir()
    fingerprints = set()
    for text in ("one", "two"):
        file.write_text(text)
        (folder / "train.spacy").write_text(text)
        fingerprints.add(fingerprint({"tree": str(file)}))
        fingerprints.add(fingerprint([str(folder)], 1.0))
        fingerprints.add(fingerprint([str(folder)], 2.0))
    (folder / "train.spacy").rename(folder / "dev.spacy")
    fingerprints.add(fingerprint([str(folder)], 2.0))
    # For each of two texts, the file, and the folder with 1.0 and with 2.0; then the folder whose
    # file has another name.
    assert len(fingerprints) == 2 * 3 + 1

    (folder / ".hidden").touch()
    (folder / "code.pyc").touch()
    assert fingerprint([str(folder)], 2.0) in fingerprints


def test_fingerprints_are_the_same_for_another_order_of_settings() -> None:
    assert fingerprint({"a": "", "b": "x" * 300}) == fingerprint({"b": "x" * 300, "a": ""})


def test_fingerprints_take_text_that_is_no_path() -> None:
    """A path can't have a null character or half of a surrogate pair."""
    assert fingerprint("\0", "\ud800")


def test_values_are_remembered_for_as_long_as_the_key_is_the_same(tmp_path: Path) -> None:
    """They are the same to the last digit. One value is kept: a value with another key replaces
    it."""
    path = tmp_path / "value.json"
    new_values = iter([1 / 3, 2, [1e-300]])
    values = [
        cached_result(path, key, lambda: next(new_values)) for key in ("a", "a", "b", "a", "a")
    ]
    assert values == [1 / 3, 1 / 3, 2, [1e-300], [1e-300]]


def test_a_run_that_is_killed_while_it_writes_leaves_the_value_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "value.json"
    cached_result(path, "a", lambda: [1e-300])

    def write_half(path: Path, text: str, **settings: Any) -> None:
        """Write half of the text, and fail."""
        path.write_bytes(text[:10].encode())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "write_text", write_half)
        cached_result(path, "b", lambda: 4)

    assert cached_result(path, "a", lambda: 5) == [1e-300]


@pytest.mark.parametrize(
    "damaged", [b"", b"{}", b"5", b"null", b"\xff{", b'{"key": "a", "val', b"[" * 9999]
)
def test_a_damaged_file_is_as_if_it_were_not_there(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "value.json"
    path.write_bytes(damaged)

    assert read_cache(path, "a") is None
    assert cached_result(path, "a", lambda: 2) == 2
    assert read_cache(path, "a") == 2
