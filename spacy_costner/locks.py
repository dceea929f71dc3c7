"""Locks that survive a fork."""

import os
from threading import Lock


def make_lock() -> Lock:
    """Make a lock that no thread holds while the process forks, as `multiprocessing` does. A fork
    waits until the lock is free. Otherwise the child would have a lock that is held by a thread
    which the child doesn't have, and would wait for it forever.

    RETURNS (Lock): The lock. It is never deleted: make only as many as the process needs.
    """
    lock = Lock()
    if hasattr(os, "register_at_fork"):  # Windows has no fork.
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
