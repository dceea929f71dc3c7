"""What runs run, and executors of which something happens."""

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from spacy_costner.analysis.runs import MakeExecutor, Processes


def square(x: int) -> dict[str, Any]:
    if x < 0:
        raise ValueError("below 0")
    return {"x": x, "square": x * x}


def local(jobs: int) -> Executor:
    return ThreadPoolExecutor(1) if jobs == 1 else Processes(jobs)


def call_first(action: Callable[[], Any], make: MakeExecutor) -> MakeExecutor:
    """Something happens before the first run, when all has been planned."""

    def make_executor() -> Executor:
        action()
        return make()

    return make_executor


def call_before(n: int, action: Callable[[], Any], make: MakeExecutor) -> MakeExecutor:
    """Something happens before the run of that number, from 1; the executor has four at a time."""
    given = []

    def make_executor() -> Executor:
        executor: Any = make()
        executor.jobs, submit = 4, executor.submit

        def counted(*args: Any) -> Future:
            given.append(1)
            if len(given) == n:
                action()
            return submit(*args)

        executor.submit = counted
        return executor

    return make_executor
