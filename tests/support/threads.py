"""Work that threads do at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

N_THREADS = 8


def in_threads(work: Callable[[int], Any], n_threads: int = N_THREADS) -> list[Any]:
    """What a function returns in threads that call it at once, with their numbers from 0."""
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(work, range(n_threads)))
