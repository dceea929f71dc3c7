"""Locks that work in forked processes, e.g. with `multiprocessing` on Linux."""

import os
from threading import Lock


def make_lock() -> Lock:
    """Create a lock that works in forked processes.

    A forked process contains a copy of the lock, but only the thread that forked. If another thread
    held the lock at the time, the copy would never be released. Forking therefore waits until the
    lock is free.

    RETURNS (Lock): The lock. It is never deleted, so create one per process or module, not one
        per object.
    """
    lock = Lock()
    if hasattr(os, "register_at_fork"):  # not available on Windows
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
