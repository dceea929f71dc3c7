"""Executors of parallel processes on this machine, for `run_all`."""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from .runs import MakeExecutor


class Processes(ProcessPoolExecutor):
    """An executor of parallel processes on this machine. They end when this process ends, even if
    it is killed."""

    def __init__(self, jobs: int) -> None:
        if sys.platform == "linux":
            context: Any = get_context("forkserver")
            # A server process imports this package once, and workers are copies of the server.
            context.set_forkserver_preload([__name__])
        else:
            context = get_context("spawn")
        super().__init__(jobs, mp_context=context, initializer=end_with_parent)
        self.jobs = jobs  # for `run_all`
        self._executor_manager_thread: Any

    def _adjust_process_count(self) -> None:
        """Start all workers at the first call of `submit`, before the thread that watches them.

        The base class starts one in each call if none is idle. In CPython before 3.13 it may do so
        while it terminates the others because one has died, and then it waits for the new one
        without end.
        """
        pool: Any = super()
        if self._executor_manager_thread is None:
            for _ in range(self.jobs):
                pool._adjust_process_count()


def end_with_parent() -> None:
    """Let this process end as soon as the process that started it has ended."""
    parent: Any = parent_process()

    def wait_and_exit() -> None:
        """Wait in a thread until the other process has ended. Then end this process."""
        parent.join()
        # `sys.exit` would only end this thread.
        os._exit(1)

    Thread(target=wait_and_exit, daemon=True).start()


def local_processes(jobs: int) -> MakeExecutor | None:
    """Return the argument of `run_all` for parallel processes on this machine: a function
    that makes their executor. For one job it is None, as no other process is needed."""
    if jobs == 1:
        return None
    return partial(Processes, jobs)
