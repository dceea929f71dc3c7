"""Locks that survive a fork."""

import os
from threading import Lock


def make_lock() -> Lock:
    """Make a lock that no thread holds while the process forks, as `multiprocessing` does: the fork
    waits for the thread that holds it. Otherwise the child, which doesn't have that thread, would
    wait for the lock for good. Such a lock lives as long as the process.

    RETURNS (Lock): The lock.
    """
    lock = Lock()
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
