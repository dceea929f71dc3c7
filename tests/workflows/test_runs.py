"""Tests of runs: any executor gives the same results, results are cached, and one failure doesn't
stop the others."""

import json
import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from spacy_costner.workflows.executors import local_processes
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


def test_the_executor_is_shut_down_if_the_caller_stops_reading() -> None:
    executor = ThreadPoolExecutor(1)
    ended_runs = run_all([Run("two", square, {"x": 2})] * 3, lambda: executor)
    next(ended_runs)
    ended_runs.close()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(square, 2)
