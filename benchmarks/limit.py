"""How far the chain is from what the machine could do at best.

    python benchmarks/limit.py [turns]

A limit is the larger of two times: the arithmetic that the textbook recursions need, at the speed
of the BLAS's matrix product, and the bytes that have to be read and written once, at the speed of
copying a large array. Value and gradient need 3 multiply-adds for each token and pair of tags
(forward, backward, expected counts), Viterbi one addition and one maximum. Forbidden pairs need
nothing.
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import sys  # noqa: E402
from functools import partial  # noqa: E402
from typing import Callable, Tuple  # noqa: E402

import numpy  # noqa: E402
from timing import compare  # noqa: E402

from spacy_costner import chain  # noqa: E402
from spacy_costner.losses.likelihood import sequential  # noqa: E402
from spacy_costner.tags import Tags  # noqa: E402
from spacy_costner.types import Gold, Potentials  # noqa: E402

NUMBERS_OF_LABELS = (2, 4, 18, 36, 66)
N_SEQUENCES, MEAN_LENGTH = 128, 25


def peak_arithmetic(turns: int) -> float:
    """Multiply-adds a second."""
    n = 768
    square = numpy.ones((n, n), dtype="float32")
    return n**3 / _seconds(lambda: square @ square, turns)


def peak_traffic(turns: int) -> float:
    """Bytes read or written a second."""
    large = numpy.ones(2**25, dtype="float32")
    copy = numpy.empty_like(large)
    return 2 * large.nbytes / _seconds(lambda: numpy.copyto(copy, large), turns)


def _seconds(task: Callable[[], object], turns: int) -> float:
    return compare({"it": task}, "it", turns)["it"].seconds


def batch(n_labels: int, as_scheme: bool) -> Tuple[Potentials, int]:
    """Scores, with what BILUO forbids forbidden or nothing; and the number of pairs of tags."""
    rng = numpy.random.default_rng(0)
    tags = Tags([f"L{i}" for i in range(n_labels)])
    lengths = rng.integers(MEAN_LENGTH // 2, MEAN_LENGTH * 3 // 2, size=N_SEQUENCES).astype("int32")
    shapes = ((int(lengths.sum()), len(tags)), (len(tags), len(tags)), len(tags), len(tags))
    arrays = [rng.normal(size=shape).astype("float32") for shape in shapes]
    potentials = Potentials(*arrays, lengths=lengths)
    if as_scheme:
        potentials = chain.constrain(potentials, tags.constraints)
    return potentials, int(numpy.isfinite(potentials.transitions).sum())


def main(turns: int = 9) -> None:
    arithmetic, traffic = peak_arithmetic(turns), peak_traffic(turns)
    print("\n## Distance to the limit\n")
    print(f"{N_SEQUENCES} sequences of mean length {MEAN_LENGTH}, float32. Measured here:")
    print(f"{arithmetic / 1e9:,.0f} billion multiply-adds and {traffic / 1e9:,.0f} GB a second on")
    print("one core. Share: what the limit is of the time that it takes.\n")
    print("| K | pairs | value and gradient | limit | share | Viterbi | limit | share |")
    print("|---|---|---|---|---|---|---|---|")
    for n_labels in NUMBERS_OF_LABELS:
        for as_scheme in (True, False):
            potentials, pairs = batch(n_labels, as_scheme)
            path = chain.best_path(potentials).tags
            n_tokens, n_tags = potentials.emissions.shape
            size = potentials.emissions.nbytes
            works = (
                (partial(sequential, potentials, Gold(path)), 3 * n_tokens * pairs, 2 * size),
                (partial(chain.best_path, potentials), n_tokens * pairs, size),
            )
            cells = [str(n_tags), f"{pairs:,} ({'BILUO' if as_scheme else 'all'})"]
            for work, operations, n_bytes in works:
                seconds = _seconds(work, turns)
                limit = max(operations / arithmetic, n_bytes / traffic)
                cells += [f"{seconds * 1e6:,.0f} µs", f"{limit * 1e6:,.0f} µs"]
                cells += [f"{100 * limit / seconds:.0f} %"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
