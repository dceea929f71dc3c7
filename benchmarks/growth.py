"""How time and memory of the chain grow with the length of a document and with the tag set.

    python benchmarks/growth.py [turns]

Value and gradient of the likelihood, and Viterbi, float32, steps all allowed. The exponent is the
slope of log time over log size (least squares); of memory it is how much the process grew beyond
its inputs, each size in a process of its own (Linux).
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import subprocess  # noqa: E402
import sys  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Callable, Dict, List  # noqa: E402

import numpy  # noqa: E402
from timing import compare  # noqa: E402

from spacy_costner import chain  # noqa: E402
from spacy_costner.losses.likelihood import sequential  # noqa: E402
from spacy_costner.types import Gold, Potentials  # noqa: E402

LENGTHS = (10, 100, 1_000, 10_000, 100_000)
NUMBERS_OF_TAGS = (5, 10, 20, 50, 100, 200, 500)
FEW_TAGS, SHORT = 17, 200
TASKS = ("value and gradient", "Viterbi")


def random_document(n_tokens: int, n_tags: int) -> Potentials:
    rng = numpy.random.default_rng(0)
    shapes = ((n_tokens, n_tags), (n_tags, n_tags), (n_tags,), (n_tags,))
    arrays = [rng.normal(size=shape).astype("float32") for shape in shapes]
    return Potentials(*arrays, lengths=numpy.asarray([n_tokens], dtype="int32"))


def tasks(n_tokens: int, n_tags: int) -> Dict[str, Callable[[], object]]:
    potentials = random_document(n_tokens, n_tags)
    gold = Gold(numpy.zeros(n_tokens, dtype="int64"))
    works = (partial(sequential, potentials, gold), partial(chain.best_path, potentials))
    return dict(zip(TASKS, works))


def peak_memory(n_tokens: int, n_tags: int, task: str) -> int:
    """The bytes that a fresh process takes for a task, its inputs not counted."""
    arguments = [sys.executable, __file__, "--memory", str(n_tokens), str(n_tags), task]
    return int(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)


def print_memory(n_tokens: int, n_tags: int, task: str) -> None:
    work = tasks(n_tokens, n_tags)[task]
    tasks(1, n_tags)[task]()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status("VmRSS")
    work()
    print(_status("VmHWM") - before)


def _status(field: str) -> int:
    """A field of what Linux knows of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def exponent(sizes: List[int], measured: List[float]) -> float:
    return float(numpy.polyfit(numpy.log(sizes), numpy.log(measured), 1)[0])


def print_table(title: str, sizes: List[int], shapes: List[tuple], turns: int) -> None:
    print(f"\n| {title} | {' | '.join(TASKS)} | memory: {' | '.join(TASKS)} |")
    print("|---|---|---|---|---|")
    times: List[List[float]] = []
    memory: List[List[int]] = []
    for size, shape in zip(sizes, shapes):
        works = tasks(*shape)
        timed = {name: compare({name: work}, name, turns) for name, work in works.items()}
        times.append([timed[name][name].seconds for name in TASKS])
        memory.append([peak_memory(*shape, name) for name in TASKS])
        cells = [f"{seconds * 1e3:,.3f} ms" for seconds in times[-1]]
        cells += [f"{size / 2**20:,.1f} MiB" for size in memory[-1]]
        print(f"| {size:,} | {' | '.join(cells)} |", flush=True)
    large = [i for i, row in enumerate(memory) if min(row) >= 2**20]
    fits = [f"{exponent(sizes, list(column)):.2f}" for column in zip(*times)]
    fits += [
        f"{exponent([sizes[i] for i in large], [memory[i][k] for i in large]):.2f}"
        if len(large) > 1
        else "too small to tell"
        for k in range(len(TASKS))
    ]
    print(f"| exponent | {' | '.join(fits)} |")


def main(turns: int = 7) -> None:
    print("\n## Growth\n")
    print("Median time over turns; memory beyond the inputs. Exponents of memory from the sizes")
    print("that take a MiB or more.")
    lengths, tags = list(LENGTHS), list(NUMBERS_OF_TAGS)
    print_table(f"T, K = {FEW_TAGS}", lengths, [(n, FEW_TAGS) for n in lengths], turns)
    print_table(f"K, T = {SHORT}", tags, [(SHORT, n) for n in tags], turns)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        print_memory(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        main(*map(int, sys.argv[1:]))
