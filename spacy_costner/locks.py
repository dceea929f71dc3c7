"""Locks that work after a process was forked, for example by `multiprocessing` on Linux."""

import os
from threading import Lock


def make_lock() -> Lock:
    """Make a lock that works after a fork.

    A forked process has a copy of the lock, but of the threads only the one that forked. If another
    thread held the lock at that time, the copy would never be released. So a fork waits until the
    lock is free.

    RETURNS (Lock): The lock. It is never deleted, so make one for a process or a module, but not
        for each object.
    """
    lock = Lock()
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
