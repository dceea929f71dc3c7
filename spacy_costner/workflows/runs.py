"""Run independent tasks, in this process or on an executor.

A run is a function of a module with its arguments. Its result may be cached in a JSON file: see
`result_cache`. A run that fails or kills its worker doesn't stop the others.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures import BrokenExecutor, Executor, Future
from functools import lru_cache
from pathlib import Path
from time import process_time
from traceback import format_exception
from typing import Any, NamedTuple

from spacy.cli._util import import_code

from .result_cache import cached_result, fingerprint

MakeExecutor = Callable[[], Executor]
"""Makes an executor. Its workers need access to the same files as this process."""

TRIES_TOGETHER = 2
"""The number of times that a run is tried together with others. If workers die then, it may be
because of another run."""

TRIES_ALONE = 2
"""The number of times that a run is tried alone after that."""

MAX_LOST_RUNS = 3
"""If this number of runs have failed because their workers died, and no run has ended, the other
runs are not tried."""


import_once = lru_cache(import_code)
"""Imports a Python file with registered functions, once in each process."""


class Run(NamedTuple):
    """A task: a function to call.

    name (str): The name of the run, for people.
    function (Callable[..., Any]): A function of a module.
    settings (dict[str, Any]): The keyword arguments of the function. With a cache, these must be
        valid JSON, and so must the result.
    path (Path | None): The file in which the result is cached. None: it isn't cached.
    """

    name: str
    function: Callable[..., Any]
    settings: dict[str, Any]
    path: Path | None = None

    @property
    def key(self) -> str:
        """The fingerprint of the function and its arguments: the key of the cached result."""
        function = f"{self.function.__module__}.{self.function.__qualname__}"
        return fingerprint(function, self.settings)


class Done(NamedTuple):
    """The result of a run that has finished."""

    value: Any  # the return value of its function
    seconds: float  # its CPU time


class Failed(NamedTuple):
    """The error of a run that has failed."""

    reason: str  # the error in one line
    trace: str  # the traceback


Ended = Done | Failed
"""How a run has ended."""


class Attempt(NamedTuple):
    """An attempt to execute a run.

    run (Run): The run.
    n_deaths (int): The number of workers that have died with it so far.
    ended (Ended | None): Its result. None: a worker has just died with it, so that it may be
        repeated.
    """

    run: Run
    n_deaths: int
    ended: Ended | None


RunQueue = deque[tuple[Run, int]]
"""The runs that are still to be executed, and for each how many workers have died with it."""


def run_all(
    runs: Iterable[Run], make_executor: MakeExecutor | None = None
) -> Iterator[tuple[Run, Ended]]:
    """Execute runs. A run that fails doesn't stop the others.

    If a worker dies, a new executor is made, and the runs that it had are repeated. If workers die
    with the same run again and again, the run is repeated alone after `TRIES_TOGETHER` deaths, and
    fails after `TRIES_ALONE` more.

    runs (Iterable[Run]): Independent runs, in any order.
    make_executor (MakeExecutor | None): Makes the executor: see `local_processes` and
        `ray_cluster`. An executor may have two attributes. `jobs` is the number of runs that it
        gets at a time; without it, it gets all of them. `outlives_workers` says that it can still
        be used after a worker has died. None: runs are executed in this process, one after another.
    YIELDS (tuple[Run, Ended]): The runs with their results, in the order in which they end.
    """
    if make_executor is None:
        for run in runs:
            yield run, run_one(run)
        return
    # Each run with the number of workers that have died with it
    run_together: RunQueue = deque((run, 0) for run in runs)
    run_alone: RunQueue = deque()
    n_lost = 0  # the number of runs that have failed because their workers died
    has_any_ended = False
    while run_together or run_alone:
        # If no run has ended yet and several are lost, workers die with any run.
        if n_lost >= MAX_LOST_RUNS and not has_any_ended:
            break
        queue = run_together
        if run_alone:
            # A single run at a time: if a worker dies, it is known which run it had. The executor
            # is new and not broken, so that the run is surely begun, and not left in this queue.
            queue = deque([run_alone.popleft()])
        for run, n_deaths, ended in run_until_broken(queue, make_executor):
            if ended is not None:
                has_any_ended = True
                yield run, ended
            elif n_deaths < TRIES_TOGETHER:
                # It is repeated first, so that a run that kills its workers is soon tried alone.
                run_together.appendleft((run, n_deaths))
            elif n_deaths < TRIES_TOGETHER + TRIES_ALONE:
                run_alone.appendleft((run, n_deaths))
            else:
                n_lost += 1
                yield run, Failed(f"its worker died {n_deaths} times", trace="")
    # If it is hopeless, these runs are left.
    for run, _ in [*run_alone, *run_together]:
        yield run, Failed("workers keep dying: see their output", trace="")


def run_until_broken(queue: RunQueue, make_executor: MakeExecutor) -> Iterator[Attempt]:
    """Execute the runs of a queue until the queue is empty, or until a worker dies and breaks the
    executor. Runs that were not begun then stay in the queue."""
    executor = make_executor()
    # Executors may lack the attributes `jobs` and `outlives_workers`: see `run_all`.
    max_pending = getattr(executor, "jobs", len(queue))
    # The runs that the executor has, each with the number of workers that have died with it
    pending: dict[Future, tuple[Run, int]] = {}
    is_broken = False
    try:
        while pending or (queue and not is_broken):
            if not is_broken:
                is_broken = not submit_runs(executor, queue, pending, max_pending)
            # Wait until at least one of them has ended.
            for future in futures.wait(pending, return_when=futures.FIRST_COMPLETED).done:
                run, n_deaths = pending.pop(future)
                error = future.exception()
                if isinstance(error, BrokenExecutor):
                    is_broken = not getattr(executor, "outlives_workers", False)
                    yield Attempt(run, n_deaths + 1, ended=None)
                elif isinstance(error, Exception):
                    # `run_one` returns errors. This one is from before or after it: what can't be
                    # pickled, or a worker with other versions or files.
                    yield Attempt(run, n_deaths, describe_failure(error))
                else:
                    # This raises other errors, such as a KeyboardInterrupt of the worker.
                    yield Attempt(run, n_deaths, future.result())
    finally:
        executor.shutdown(cancel_futures=True)


def submit_runs(
    executor: Executor, queue: RunQueue, pending: dict[Future, tuple[Run, int]], max_pending: int
) -> bool:
    """Move runs from the queue to the executor, until it has `max_pending` of them. Returns False
    if the executor is broken."""
    while queue and len(pending) < max_pending:
        run, _ = queue[0]
        try:
            future = executor.submit(run_one, run)
        except BrokenExecutor:
            return False  # The run stays in the queue, as no worker has had it.
        pending[future] = queue.popleft()
    return True


def run_one(run: Run) -> Ended:
    """Execute a run, or read its cached result. This is what a worker does. An error isn't raised,
    but returned as a `Failed`."""

    def execute() -> Done:
        """Call the function of the run, and measure its CPU time."""
        begin = process_time()
        value = run.function(**run.settings)
        return Done(value, process_time() - begin)

    try:
        if run.path is None:
            return execute()
        # The cache is JSON, where a `Done` becomes a list of its two fields.
        value, seconds = cached_result(run.path, run.key, execute)
        return Done(value, seconds)
    except Exception as error:
        return describe_failure(error)


def describe_failure(error: BaseException) -> Failed:
    """Describe the error of a run in words. The exception itself may be of a class that another
    process can't unpickle."""
    reason = f"{type(error).__name__}: {error}"
    return Failed(reason, trace="".join(format_exception(error)))
