"""What runs run, and executors of which something happens."""

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from threading import Thread
from typing import Any, Callable, Dict

from spacy_costner.cli.runs import MakeExecutor, Processes


def square(x: int) -> Dict[str, Any]:
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


def call_after(n: int, action: Callable[[], Any], make: MakeExecutor) -> MakeExecutor:
    """Something happens, in a thread, when so many runs have ended."""
    ended = []

    def make_executor() -> Executor:
        executor = make()
        submit = executor.submit

        def count(_: Future) -> None:
            ended.append(1)
            if len(ended) == n:
                Thread(target=action).start()

        def counted(*args: Any) -> Future:
            future = submit(*args)
            future.add_done_callback(count)
            return future

        executor.submit = counted  # type: ignore[method-assign,assignment]
        return executor

    return make_executor
