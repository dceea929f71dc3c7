"""Interleaved timing: what is compared takes turns, so that a busy machine hits all alike."""

import time
from statistics import median, quantiles
from typing import Callable, Dict, List, NamedTuple, Optional

import numpy

LEAST_SECONDS = 0.005
"""A turn repeats a short task for as long as this."""
LARGE_BLOCK = 2**24
"""As much memory, in bytes, as a training lets go of now and then."""


class Comparison(NamedTuple):
    """How a peer compares with ours.

    seconds (float): Its median time.
    ratio (float): The median of its time over ours, turn by turn.
    low (float): The lower quartile of the ratio.
    high (float): The upper quartile.
    """

    seconds: float
    ratio: float
    low: float
    high: float


def compare(
    tasks: Dict[str, Callable[..., object]],
    ours: str,
    turns: int,
    prepare: Optional[Callable[[str], object]] = None,
) -> Dict[str, Comparison]:
    """Time tasks against one of them.

    tasks (Dict[str, Callable]): What to time.
    ours (str): The one that the others are compared with.
    turns (int): How often each has its turn, at least 2.
    prepare (Optional[Callable]): Called before each turn with the name of the task, to make
        what the task takes; this is not timed, and the task not repeated.
    RETURNS (Dict[str, Comparison]): One for each task, ours too.
    """
    _settle_memory()
    repeats = {name: _repeats(task) if prepare is None else 1 for name, task in tasks.items()}
    seconds: Dict[str, List[float]] = {name: [] for name in tasks}
    for turn in range(turns + (prepare is not None)):
        for name, task in tasks.items():
            arguments = () if prepare is None else (prepare(name),)
            took = _time(task, repeats[name], *arguments)
            if prepare is None or turn > 0:
                seconds[name].append(took)
    return {name: _compare(seconds[name], seconds[ours]) for name in tasks}


def _settle_memory() -> None:
    """Let go of a large block once. Some systems (glibc) hand the memory of large arrays back
    and fetch it again, page by page, until a program has shown that it lets go of larger ones.
    Any training has; a benchmark of small batches would time the fetching of pages."""
    numpy.ones(LARGE_BLOCK // 8)


def _compare(peer: list, ours: list) -> Comparison:
    ratios = [theirs / own for theirs, own in zip(peer, ours)]
    low, middle, high = quantiles(ratios, n=4)
    return Comparison(median(peer), middle, low, high)


def _repeats(task: Callable[[], object]) -> int:
    task()
    return max(1, round(LEAST_SECONDS / _time(task, 1)))


def _time(task: Callable[..., object], repeats: int, *arguments: object) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        task(*arguments)
    return (time.perf_counter() - began) / repeats
