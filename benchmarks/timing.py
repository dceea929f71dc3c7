"""Interleaved timing: what is compared takes turns, so that a busy machine hits all alike."""

import time
from statistics import median, quantiles
from typing import Callable, Dict, NamedTuple

LEAST_SECONDS = 0.005
"""A turn repeats a short task for as long as this."""


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


def compare(tasks: Dict[str, Callable[[], object]], ours: str, turns: int) -> Dict[str, Comparison]:
    """Time tasks against one of them.

    tasks (Dict[str, Callable]): What to time.
    ours (str): The one that the others are compared with.
    turns (int): How often each has its turn, at least 2.
    RETURNS (Dict[str, Comparison]): One for each task, ours too.
    """
    repeats = {name: _repeats(task) for name, task in tasks.items()}
    seconds: Dict[str, list] = {name: [] for name in tasks}
    for _ in range(turns):
        for name, task in tasks.items():
            seconds[name].append(_time(task, repeats[name]))
    return {name: _compare(seconds[name], seconds[ours]) for name in tasks}


def _compare(peer: list, ours: list) -> Comparison:
    ratios = [theirs / own for theirs, own in zip(peer, ours)]
    low, middle, high = quantiles(ratios, n=4)
    return Comparison(median(peer), middle, low, high)


def _repeats(task: Callable[[], object]) -> int:
    task()
    return max(1, round(LEAST_SECONDS / _time(task, 1)))


def _time(task: Callable[[], object], repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        task()
    return (time.perf_counter() - began) / repeats
