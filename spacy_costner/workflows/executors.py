"""Executors for running tasks in local processes. See `run_all`."""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from .runs import MakeExecutor


class Processes(ProcessPoolExecutor):
    """An executor that runs tasks in local processes. The workers exit when this process exits,
    even if it is killed."""

    def __init__(self, jobs: int) -> None:
        if sys.platform == "linux":
            context: Any = get_context("forkserver")
            # A server process imports this package once, and workers are forked from it.
            context.set_forkserver_preload([__name__])
        else:
            context = get_context("spawn")
        super().__init__(jobs, mp_context=context, initializer=end_with_parent)
        self.jobs = jobs  # for `run_all`
        self._executor_manager_thread: Any

    def _adjust_process_count(self) -> None:
        """Start all workers on the first call to `submit`, before the executor manager thread.

        The base class starts a worker on each call if no worker is idle. In CPython before 3.13,
        this may happen while the other workers are being terminated because one has died. The
        executor then waits for the new worker forever.
        """
        pool: Any = super()
        if self._executor_manager_thread is None:
            for _ in range(self.jobs):
                pool._adjust_process_count()


def end_with_parent() -> None:
    """Make this process exit as soon as its parent process exits."""
    parent: Any = parent_process()

    def wait_and_exit() -> None:
        """Wait until the parent process exits. Then exit this process."""
        parent.join()
        # `sys.exit` would only exit this thread.
        os._exit(1)

    Thread(target=wait_and_exit, daemon=True).start()


def local_processes(jobs: int) -> MakeExecutor | None:
    """Return a function that creates an executor with `jobs` local processes, for `run_all`. Return
    None for a single job, which runs in this process."""
    if jobs == 1:
        return None
    return partial(Processes, jobs)
