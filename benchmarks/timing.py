"""Interleaved timing: tasks take turns, so that a busy machine slows all of them equally. In each
turn, each task is performed once, or several times if it is short.

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
"""Short tasks are repeated for this many seconds per turn."""
LARGE_BLOCK = 2**24
"""The size in bytes of the memory blocks that training frees occasionally."""


class Comparison(NamedTuple):
    """The comparison of a peer with ours.

    seconds (float): The peer's median time.
    ratio (float): The median ratio of the peer's time to ours, turn by turn.
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
    """Time tasks, and compare them with one of them.

    tasks (dict[str, Callable]): The tasks to time, by name.
    ours (str): The name of the task that the others are compared with.
    turns (int): The number of turns, at least 2.
    prepare (Callable | None): Called before each turn with the name of the task, to make the
        argument of the task. This is not timed, and the task is not repeated.
    RETURNS (dict[str, Comparison]): A comparison for each task, including ours.
    """
    _settle_memory()
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    if prepare is None:
        repeats = {name: _repeats(task) for name, task in tasks.items()}
        for _ in range(turns):
            for name, task in tasks.items():
                seconds[name].append(_time(task, repeats[name]))
    else:
        # The first turn is a warm-up, like `_repeats` above. It doesn't count.
        for turn in range(turns + 1):
            for name, task in tasks.items():
                argument = prepare(name)
                seconds_of_turn = _time(task, 1, argument)
                if turn > 0:
                    seconds[name].append(seconds_of_turn)
    return {name: _compare(seconds[name], seconds[ours]) for name in tasks}


def _settle_memory() -> None:
    """Free a large block once. Some systems (glibc) return the memory of large arrays and fetch it
    again, page by page, until a program has freed larger blocks. Any training does that, but a
    benchmark with small batches would include the time for fetching pages."""
    bytes_of_float = 8
    numpy.ones(LARGE_BLOCK // bytes_of_float)


def _compare(peer_seconds: list[float], our_seconds: list[float]) -> Comparison:
    """Compare the seconds of a peer with ours, turn by turn."""
    ratios = [peer / ours for peer, ours in zip(peer_seconds, our_seconds)]
    low, middle, high = quantiles(ratios, n=4)
    return Comparison(median(peer_seconds), middle, low, high)


def _repeats(task: Callable[[], object]) -> int:
    """Compute how often to repeat a task per turn. The task is performed once first, as a
    warm-up."""
    task()
    return max(1, round(LEAST_SECONDS / _time(task, 1)))


def _time(task: Callable[..., object], repeats: int, *arguments: object) -> float:
    """Measure the mean seconds of a task over several repetitions."""
    began = time.perf_counter()
    for _ in range(repeats):
        task(*arguments)
    return (time.perf_counter() - began) / repeats


def processor() -> str:
    """Get the name of the processor, if available."""
    cpuinfo = Path("/proc/cpuinfo")  # on Linux
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                _, name = line.split(":", 1)
                return name.strip()
    return platform.processor()


def versions() -> str:
    """List the installed packages of the benchmarks, with their versions."""
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
