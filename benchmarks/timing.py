"""Interleaved timing: tasks take turns, so that a busy machine slows all of them alike. In a turn
each task is done once, or several times if it is short.

`python benchmarks/timing.py` prints the head of RESULTS.md: machine and packages.
"""

import platform
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

import numpy

PACKAGES = ("spacy-costner", "spacy", "thinc", "numpy", "torch", "pytorch-crf", "torch-struct")
LEAST_SECONDS = 0.005
"""In a turn, a short task is repeated for this number of seconds."""
LARGE_BLOCK = 2**24
"""The memory, in bytes, that a training frees now and then."""


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
    tasks: dict[str, Callable[..., object]],
    ours: str,
    turns: int,
    prepare: Callable[[str], object] | None = None,
) -> dict[str, Comparison]:
    """Time tasks against one of them.

    tasks (dict[str, Callable]): What to time.
    ours (str): The one that the others are compared with.
    turns (int): How often each has its turn, at least 2.
    prepare (Callable | None): Called before each turn with the name of the task, to make
        what the task takes; this is not timed, and the task not repeated.
    RETURNS (dict[str, Comparison]): One for each task, ours too.
    """
    _settle_memory()
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    if prepare is None:
        repeats = {name: _repeats(task) for name, task in tasks.items()}
        for _ in range(turns):
            for name, task in tasks.items():
                seconds[name].append(_time(task, repeats[name]))
    else:
        # The first turn warms up, as `_repeats` does above. It doesn't count.
        for turn in range(turns + 1):
            for name, task in tasks.items():
                argument = prepare(name)
                seconds_of_turn = _time(task, 1, argument)
                if turn > 0:
                    seconds[name].append(seconds_of_turn)
    return {name: _compare(seconds[name], seconds[ours]) for name in tasks}


def _settle_memory() -> None:
    """Free a large block once. Some systems (glibc) hand the memory of large arrays back and fetch
    it again, page by page, until a program has freed larger blocks. Any training does that; a
    benchmark of small batches would time the fetching of pages."""
    bytes_of_float = 8
    numpy.ones(LARGE_BLOCK // bytes_of_float)


def _compare(peer_seconds: list[float], our_seconds: list[float]) -> Comparison:
    """Compare the seconds of a peer and of ours, turn by turn."""
    ratios = [peer / ours for peer, ours in zip(peer_seconds, our_seconds)]
    low, middle, high = quantiles(ratios, n=4)
    return Comparison(median(peer_seconds), middle, low, high)


def _repeats(task: Callable[[], object]) -> int:
    """How often a task is repeated in a turn. The task is done once before, to warm up."""
    task()
    return max(1, round(LEAST_SECONDS / _time(task, 1)))


def _time(task: Callable[..., object], repeats: int, *arguments: object) -> float:
    """The seconds that a task takes, the mean of several times."""
    began = time.perf_counter()
    for _ in range(repeats):
        task(*arguments)
    return (time.perf_counter() - began) / repeats


def processor() -> str:
    """The name of the processor, if the system has it."""
    cpuinfo = Path("/proc/cpuinfo")  # on Linux
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                _, name = line.split(":", 1)
                return name.strip()
    return platform.processor()


def versions() -> str:
    """The installed packages of the benchmarks, with their versions."""
    packages: list[str] = []
    for package in PACKAGES:
        try:
            packages.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(packages)


def main() -> None:
    """Print the head of RESULTS.md."""
    from spacy_costner.chain import native  # type: ignore[attr-defined]

    print("# Benchmarks\n")
    print("Written by `make bench`. Each library uses one thread; all take turns in one run.\n")
    print(f"- machine: {processor()}, {platform.system()} {platform.machine()}")
    print(f"- compiled chain: {native.instruction_sets()[0]}")
    print(f"- Python {platform.python_version()}, {versions()}")


if __name__ == "__main__":
    main()
