"""Interleaved timing: tasks take turns, so that a busy machine slows all of them alike.

python benchmarks/timing.py prints the head of RESULTS.md: machine and packages.
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
    repeats = {name: _repeats(task) if prepare is None else 1 for name, task in tasks.items()}
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
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


def processor() -> str:
    """The name of the processor, as far as the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def versions() -> str:
    """The packages that take part."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def main() -> None:
    from spacy_costner.chain import native  # type: ignore[attr-defined]

    print("# Benchmarks\n")
    print("Written by `make bench`. One thread each; peers and ours take turns in one run.\n")
    print(f"- machine: {processor()}, {platform.system()} {platform.machine()}")
    print(f"- compiled chain: {native.instruction_sets()[0]}")
    print(f"- Python {platform.python_version()}, {versions()}")


if __name__ == "__main__":
    main()
