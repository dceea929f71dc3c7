"""Run independent tasks in this process or on an executor.

A run is a call to a module-level function. Its result can be cached in a JSON file (see
`result_cache`). If a run fails or crashes its worker, the other runs continue.
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
"""A function that creates an executor. The executor's workers need access to the same files as this
process."""

TRIES_TOGETHER = 2
"""Maximum number of attempts to execute a run alongside other runs. If a worker dies during these
attempts, another run may be the cause."""

TRIES_ALONE = 2
"""Maximum number of further attempts to execute a run separately."""

MAX_LOST_RUNS = 3
"""If this many runs have failed because their workers died, and no run has completed, the remaining
runs are skipped."""


import_once = lru_cache(import_code)
"""Import a Python file with registered functions, at most once per process."""


class Run(NamedTuple):
    """A function call to execute.

    name (str): A human-readable name.
    function (Callable[..., Any]): The function to call. It must be defined at module level.
    settings (dict[str, Any]): The keyword arguments. If the result is cached, the arguments and the
        result must be JSON-serializable.
    path (Path | None): The cache file for the result. None if the result isn't cached.
    """

    name: str
    function: Callable[..., Any]
    settings: dict[str, Any]
    path: Path | None = None

    @property
    def key(self) -> str:
        """The key of the cached result, which is the fingerprint of the function and its
        arguments."""
        function = f"{self.function.__module__}.{self.function.__qualname__}"
        return fingerprint(function, self.settings)


class Done(NamedTuple):
    """The result of a run that has completed successfully."""

    value: Any  # the return value of its function
    seconds: float  # its CPU time


class Failed(NamedTuple):
    """The error of a run that has failed."""

    reason: str  # a one-line description of the error
    trace: str  # the traceback


Ended = Done | Failed
"""The outcome of a run."""


class Attempt(NamedTuple):
    """An attempt to execute a run.

    run (Run): The run.
    n_deaths (int): The number of workers that have died while executing the run so far.
    ended (Ended | None): The outcome. None if the worker died, in which case the run may be
        retried.
    """

    run: Run
    n_deaths: int
    ended: Ended | None


RunQueue = deque[tuple[Run, int]]
"""The runs to execute, with the number of workers that have died while executing each run."""


def run_all(
    runs: Iterable[Run], make_executor: MakeExecutor | None = None
) -> Iterator[tuple[Run, Ended]]:
    """Execute runs. If a run fails, the others continue.

    If a worker dies, its run is retried, on a new executor if necessary. If `TRIES_TOGETHER`
    workers have died while executing the same run, it is retried separately. If another
    `TRIES_ALONE` workers die, the run fails.

    runs (Iterable[Run]): The runs to execute. They must be independent.
    make_executor (MakeExecutor | None): Creates the executor. See `local_processes` and
        `ray_cluster`. If it is None, the runs are executed sequentially in this process. An
        executor may define two attributes: `jobs` is the maximum number of runs to submit at a time
        (default: all runs), and `outlives_workers` indicates whether the executor can still be used
        after a worker has died (default: False).
    YIELDS (tuple[Run, Ended]): The runs and their outcomes, in order of completion.
    """
    if make_executor is None:
        for run in runs:
            yield run, run_one(run)
        return
    # Runs to execute together or separately
    run_together: RunQueue = deque((run, 0) for run in runs)
    run_alone: RunQueue = deque()
    n_lost = 0  # number of runs that failed because their workers died
    has_any_ended = False
    while run_together or run_alone:
        # If several runs were lost and none has completed, the workers are probably broken.
        if n_lost >= MAX_LOST_RUNS and not has_any_ended:
            break
        queue = run_together
        if run_alone:
            # Execute a single run, so that it must be the cause if a worker dies. The executor is
            # new, so the run is always submitted and never left in this queue.
            queue = deque([run_alone.popleft()])
        for run, n_deaths, ended in run_until_broken(queue, make_executor):
            if ended is not None:
                has_any_ended = True
                yield run, ended
            elif n_deaths < TRIES_TOGETHER:
                # Retry it first, so that a run that crashes its workers is isolated quickly.
                run_together.appendleft((run, n_deaths))
            elif n_deaths < TRIES_TOGETHER + TRIES_ALONE:
                run_alone.appendleft((run, n_deaths))
            else:
                n_lost += 1
                yield run, Failed(f"its worker died {n_deaths} times", trace="")
    # The remaining runs were skipped because the workers keep dying.
    for run, _ in [*run_alone, *run_together]:
        yield run, Failed("workers keep dying: see their output", trace="")


def run_until_broken(queue: RunQueue, make_executor: MakeExecutor) -> Iterator[Attempt]:
    """Execute the runs in a queue until the queue is empty, or until the executor breaks because a
    worker died. In this case, runs that weren't submitted remain in the queue."""
    executor = make_executor()
    # The attributes `jobs` and `outlives_workers` are optional: see `run_all`.
    max_pending = getattr(executor, "jobs", len(queue))
    # The submitted runs and the number of workers that have died while executing each run
    pending: dict[Future, tuple[Run, int]] = {}
    is_broken = False
    try:
        while pending or (queue and not is_broken):
            if not is_broken:
                is_broken = not submit_runs(executor, queue, pending, max_pending)
            # Wait until at least one run has completed.
            for future in futures.wait(pending, return_when=futures.FIRST_COMPLETED).done:
                run, n_deaths = pending.pop(future)
                error = future.exception()
                if isinstance(error, BrokenExecutor):
                    is_broken = not getattr(executor, "outlives_workers", False)
                    yield Attempt(run, n_deaths + 1, ended=None)
                elif isinstance(error, Exception):
                    # `run_one` returns errors of the function, so this one occurred outside the
                    # function: the call or result can't be pickled, or the worker's versions or
                    # files differ.
                    yield Attempt(run, n_deaths, describe_failure(error))
                else:
                    # `result` re-raises other exceptions, such as a KeyboardInterrupt in the
                    # worker.
                    yield Attempt(run, n_deaths, future.result())
    finally:
        executor.shutdown(cancel_futures=True)


def submit_runs(
    executor: Executor, queue: RunQueue, pending: dict[Future, tuple[Run, int]], max_pending: int
) -> bool:
    """Submit runs from the queue to the executor until `max_pending` runs are pending. Return False
    if the executor is broken."""
    while queue and len(pending) < max_pending:
        run, _ = queue[0]
        try:
            future = executor.submit(run_one, run)
        except BrokenExecutor:
            return False  # the run wasn't submitted, so it remains in the queue
        pending[future] = queue.popleft()
    return True


def run_one(run: Run) -> Ended:
    """Execute a run or read its cached result. This function is executed by workers. If the run
    fails, return a `Failed` instead of raising the error."""

    def execute() -> Done:
        """Call the function of the run and measure its CPU time."""
        begin = process_time()
        value = run.function(**run.settings)
        return Done(value, process_time() - begin)

    try:
        if run.path is None:
            return execute()
        # In JSON, a `Done` becomes a list of its two fields.
        value, seconds = cached_result(run.path, run.key, execute)
        return Done(value, seconds)
    except Exception as error:
        return describe_failure(error)


def describe_failure(error: BaseException) -> Failed:
    """Convert the error of a run to text, because other processes may not be able to unpickle the
    exception."""
    reason = f"{type(error).__name__}: {error}"
    return Failed(reason, trace="".join(format_exception(error)))
