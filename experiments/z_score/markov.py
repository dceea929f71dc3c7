"""Sequences of hidden Markov models: figure 1 and table 1."""

import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Sequence, Tuple

import numpy
from numpy.random import default_rng
from thinc.types import Floats1d

from ..cells import Result
from .chains import (
    Sequences,
    best_hamming_z_score,
    best_z_score,
    largest_margin,
    most_likely,
)
from .hmm import HMM, random_hmm
from .published import CRF, MM_H, PAPER_1, TRUE, Z_100, Z_H, Z

C2 = 1e-3
CRF_C2 = 1e-2
MARGIN = {"c": 1.0, "tolerance": 1e-3}

SIZES = (10, 20, 50, 100)
FIGURE_RUNS = 20
N_TEST = 100

LONG = 100
N_TRAINING = 50
N_HMMS, N_RUNS = 5, 2
KINDS: Dict[str, Dict[str, Any]] = {
    "any": {},
    "states that are equally frequent": {"balanced": True},
    "transitions that are nearly even": {"transitions": 20.0, "emissions": 0.3},
}
N_JUDGING = 1000
NEAR = 0.1
MOST_DRAWN = 20_000


def measured(train: Sequences, test: Sequences, *, sampled: bool) -> Dict[str, List[float]]:
    """Train by each method. Those with a penalty have the same everywhere.

    train (Sequences), test (Sequences): The data.
    sampled (bool): Whether by sampled paths too.
    RETURNS (Dict[str, List[float]]): Of each method the test error, the seconds of training.
    """
    methods: Dict[str, Callable[[], Floats1d]] = {
        Z: lambda: best_z_score(train, c2=C2),
        Z_H: lambda: best_hamming_z_score(train, c2=C2),
        MM_H: lambda: largest_margin(train, **MARGIN).vector,
        CRF: lambda: most_likely(train, c2=CRF_C2),
    }
    if sampled:
        methods[Z_100] = lambda: best_z_score(train, c2=C2, n_sampled=100)
    found = {}
    for name, method in methods.items():
        began = time.process_time()
        weights = method()
        seconds = time.process_time() - began
        found[name] = [test.error(weights), seconds]
    return found


def mean_of(found: Iterable[Mapping[str, Sequence[float]]]) -> Dict[str, List[float]]:
    """The means of what was measured several times."""
    rows = list(found)
    return {name: numpy.mean([row[name] for row in rows], axis=0).tolist() for name in rows[0]}


def short_sequences(size: int, n_runs: int) -> Result:
    """Figure 1: sequences of 10 tokens, of HMMs of 3 states and 4 symbols, another one in each run.

    size (int): How many sequences are trained on.
    n_runs (int): Runs.
    RETURNS (Result): The means of "methods".
    """
    found = []
    for run in range(n_runs):
        rng = default_rng([1, run])
        hmm = random_hmm(3, 4, rng)
        test, train = hmm.sample(N_TEST, 10, rng), hmm.sample(size, 10, rng)
        true = {TRUE: [test.error(hmm.weights), 0.0]}
        found.append({**true, **measured(train, test, sampled=False)})
    return {"methods": mean_of(found)}


def long_sequences(n_symbols: int, kind: str, n_hmms: int, n_runs: int) -> Result:
    """Table 1: sequences of 100 tokens, of HMMs of 2 states that are as hard as the paper's.

    n_symbols (int): Their symbols.
    kind (str): See `KINDS`.
    n_hmms (int), n_runs (int): How many of them, and how often each is trained.
    RETURNS (Result): The means of "methods", and those "of_each" HMM; how many were "drawn".
    """
    error = PAPER_1[n_symbols][MM_H][0]
    hmms, n_drawn = hmms_as_hard(error, n_symbols, n_hmms, **KINDS[kind])
    of_each = []
    for i, hmm in enumerate(hmms):
        found = []
        for run in range(n_runs):
            rng = default_rng([3, n_symbols, i, run])
            train, test = hmm.sample(N_TRAINING, LONG, rng), hmm.sample(N_TEST, LONG, rng)
            true = {TRUE: [test.error(hmm.weights), 0.0]}
            found.append({**true, **measured(train, test, sampled=True)})
        of_each.append(mean_of(found))
    return {"methods": mean_of(of_each), "of_each": of_each, "drawn": n_drawn}


def hmms_as_hard(error: float, n_symbols: int, n: int, **settings: Any) -> Tuple[List[HMM], int]:
    """Draw HMMs of 2 states until there are so many whose own error is as wanted.

    error (float): The error of the best path under the true probabilities, in per cent, with
        a tolerance of NEAR.
    n_symbols (int), **settings (Any): See `random_hmm`.
    n (int): How many.
    RETURNS (Tuple[List[HMM], int]): The HMMs, and how many were drawn.
    RAISES (ValueError): If they are too rare.
    """
    found: List[HMM] = []
    for n_drawn in range(1, MOST_DRAWN + 1):
        rng = default_rng([2, n_symbols, n_drawn])
        hmm = random_hmm(2, n_symbols, rng, **settings)
        if all(
            abs(hmm.sample(size, LONG, rng).error(hmm.weights) - error) < tolerance
            for size, tolerance in ((N_JUDGING // 20, 10 * NEAR), (N_JUDGING, NEAR))
        ):
            found.append(hmm)
        if len(found) == n:
            return found, n_drawn
    raise ValueError(f"hmms_as_hard: error: expected one that occurs, was: {error}")
