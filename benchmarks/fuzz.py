"""Random batches through the chain, against recursions in the log domain (`tests/reference.py`).

    python -m benchmarks.fuzz [number of batches] [seed]

Lengths 0 to 200, 1 to 80 tags, scores to 1e4 either way, steps forbidden at random. Stops at
the first batch that differs, with its seed; at the end tells the largest differences seen.
"""

import sys
import time
from typing import Dict, Tuple

import numpy
from numpy.testing import assert_allclose

from spacy_costner import chain
from spacy_costner.types import Potentials
from tests import oracle, reference

LONGEST, MOST_TAGS, MOST_SEQUENCES = 200, 80, 6
SCALES = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
SHARES_FORBIDDEN = (0.0, 0.0, 0.1, 0.5, 0.9)


def random_batch(rng: numpy.random.Generator) -> Potentials:
    """Scores of one scale each, some of them forbidden."""
    n_tags = int(rng.integers(1, MOST_TAGS + 1))
    lengths = rng.integers(0, LONGEST + 1, size=rng.integers(1, MOST_SEQUENCES + 1))
    shapes = ((int(lengths.sum()), n_tags), (n_tags, n_tags), (n_tags,), (n_tags,))
    arrays = []
    for shape in shapes:
        scores = rng.uniform(-1, 1, size=shape) * rng.choice(SCALES)
        scores[rng.uniform(size=shape) < rng.choice(SHARES_FORBIDDEN)] = -numpy.inf
        arrays.append(scores.astype("float32"))
    return Potentials(*arrays, lengths=lengths.astype("int32"))


def compare(potentials: Potentials, rng: numpy.random.Generator) -> Dict[str, float]:
    """Check a batch.

    RETURNS (Dict[str, float]): The largest differences, relative to what float32 input allows.
    RAISES (AssertionError): If one is too large.
    """
    exact = Potentials(*(a.astype("float64") for a in potentials[:4]), potentials.lengths)
    log_z, backprop = chain.log_partition(potentials)
    values = [reference.log_sum(exact, b) for b in range(len(log_z))]
    expected = numpy.asarray([value.value for value in values])
    legal = numpy.isfinite(expected)
    assert_allclose(log_z, expected, rtol=1e-6, atol=1e-3)
    weights = rng.normal(size=len(log_z))
    gradient, total = backprop(weights), oracle.vector(oracle.zeros(exact))
    total += sum(weight * value.gradient for weight, value in zip(weights, values))
    expected_gradient = oracle.from_vector(total, exact)
    for name, array, wanted in zip(gradient._fields, gradient[:4], expected_gradient[:4]):
        assert numpy.isfinite(array).all(), name
        most = max(1.0, float(abs(wanted).max(initial=0)))
        assert_allclose(array, wanted, rtol=1e-3, atol=1e-3 * most, err_msg=name)
    best = chain.best_path(potentials)
    assert_allclose(best.scores, chain.path_score(exact, best.tags)[0], rtol=1e-9, atol=1e-6)
    assert (best.scores[legal] <= expected[legal] + 1e-6 * (1 + abs(expected[legal]))).all()
    assert (numpy.isneginf(best.scores) == ~legal).all()
    second = chain.best_path_excluding(potentials, best.tags)
    for b, length in enumerate(potentials.lengths.tolist()):
        if length and legal[b]:
            two = [best.scores[b], second.scores[b]]
            assert_allclose(two, reference.k_best_scores(exact, b, 2), rtol=1e-9, atol=1e-6)
    found = numpy.isfinite(second.scores)
    score = chain.path_score(exact, second.tags)[0]
    assert_allclose(score[found], second.scores[found], rtol=1e-9, atol=1e-6)
    return {
        "log Z": _largest(log_z[legal] - expected[legal], 1 + abs(expected[legal])),
        "marginals": _largest(gradient.emissions - expected_gradient.emissions, 1.0),
    }


def _largest(differences: numpy.ndarray, scale: numpy.ndarray) -> float:
    return float((abs(differences) / scale).max(initial=0))


def run(n_batches: int, seed: int) -> Tuple[Dict[str, float], int]:
    """Check batches.

    RETURNS (Tuple[Dict[str, float], int]): The largest differences, and the tokens seen.
    """
    largest: Dict[str, float] = {}
    n_tokens = 0
    for i in range(n_batches):
        rng = numpy.random.default_rng([seed, i])
        potentials = random_batch(rng)
        n_tokens += len(potentials.emissions)
        try:
            differences = compare(potentials, rng)
        except AssertionError as error:
            raise AssertionError(f"batch {i} of seed {seed}") from error
        largest = {name: max(largest.get(name, 0), d) for name, d in differences.items()}
    return largest, n_tokens


def main(n_batches: int = 10_000, seed: int = 0) -> None:
    began = time.perf_counter()
    largest, n_tokens = run(n_batches, seed)
    seconds = time.perf_counter() - began
    print(f"{n_batches} batches, {n_tokens} tokens, {seconds:.0f} s: all agree")
    for name, difference in largest.items():
        print(f"largest difference of {name}: {difference:.1e}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
