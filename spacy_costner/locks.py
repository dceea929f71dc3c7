"""Locks that survive a fork."""

import os
from threading import Lock


def make_lock() -> Lock:
    """Make a lock that no thread holds while the process forks: a fork waits for the thread that
    holds it. So the child has the lock free, and all that it guards is complete. Such a lock lives
    as long as the process."""
    lock = Lock()
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
