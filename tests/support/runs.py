"""Functions for runs, and executors that call a function before a run."""

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from spacy_costner.workflows.executors import Processes
from spacy_costner.workflows.runs import MakeExecutor


def square(x: int) -> dict[str, Any]:
    """A run that fails for numbers below 0."""
    if x < 0:
        raise ValueError("below 0")
    return {"x": x, "square": x * x}


def local(jobs: int) -> Executor:
    """An executor in this process for one job, else in processes."""
    return ThreadPoolExecutor(1) if jobs == 1 else Processes(jobs)


def call_first(action: Callable[[], Any], make: MakeExecutor) -> MakeExecutor:
    """What makes an executor, but calls a function first: when all runs have been planned, and none
    has begun."""

    def make_executor() -> Executor:
        action()
        return make()

    return make_executor


def call_before(n: int, action: Callable[[], Any], make: MakeExecutor) -> MakeExecutor:
    """What makes an executor that calls a function before the n-th run, from 1. It is given four
    runs at a time."""
    calls = []

    def make_executor() -> Executor:
        executor: Any = make()
        executor.jobs = 4
        submit = executor.submit

        def counted(*args: Any) -> Future:
            calls.append(args)
            if len(calls) == n:
                action()
            return submit(*args)

        executor.submit = counted
        return executor

    return make_executor
