"""Test without labels whether docs are still like the calibration docs.

If new docs and calibration docs are exchangeable, the conformal p-values of the new ones are
independent and uniform. A martingale bets against that. It grows where the model is less sure of
new docs than of calibration docs.

Vovk, Gammerman & Shafer (2005): Algorithmic Learning in a Random World, chapter 7. Vovk et al.
(2021): Retrain or Not Retrain: Conformal Test Martingales for Change-Point Detection.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from math import exp
from typing import Any, NamedTuple

import numpy
from thinc.types import Floats1d

Counts = dict[str, list[float]]
"""For each label the expected number of correct entities, the number of predicted ones, and the
expected number of annotated ones."""

ALARM = 100.0
"""The martingale at which the test alarms. Of exchangeable docs at most 1 / ALARM ever does, by
Ville's inequality."""

BETS = numpy.arange(1, 20) / 20
"""The exponents of the bets: see `log_martingale`."""

ENOUGH = 50
"""The least number of calibration docs of a test for the docs with one value of a key."""

MOST_DOCS = 100_000
"""The most docs that are tested in random order."""

MOST_LOG = 700.0
"""The logarithm of the highest martingale that is shown."""


def conformal_p_values(calibration: Floats1d, scores: Floats1d, *, seed: int = 0) -> Floats1d:
    """The p-value of each new doc: its rank among the calibration docs and the new docs before it,
    of which ties count a random share u.

        p_t = (#{i: a_i > a_t} + u_t (#{i: a_i = a_t} + 1)) / (n_t + 1)

    They are above 0 and up to 1, and stay the same if more docs follow. Shapes: (n,), (T,) to (T,)

    Vovk, Gammerman & Shafer (2005), eq. 2.20.
    """
    u, pool, p = 1 - numpy.random.default_rng(seed).random(len(scores)), sorted(calibration), []
    for score, share in zip(scores, u):
        left, right = bisect_left(pool, score), bisect_right(pool, score)
        p.append((len(pool) - right + share * (right - left + 1)) / (len(pool) + 1))
        pool.insert(right, score)
    return numpy.asarray(p)


def log_martingale(p_values: Floats1d) -> Floats1d:
    """The logarithm of the martingale after each doc, a mean over bets. Shape: (T,)

        M_t = mean over b in BETS of  prod_{s <= t} b p_s^(b - 1)

    Vovk et al. (2021), section 3: the simple mixture, over a grid.
    """
    logs = numpy.cumsum(numpy.log(BETS) + (BETS - 1) * numpy.log(p_values)[:, None], axis=0)
    return numpy.logaddexp.reduce(logs, axis=1) - numpy.log(len(BETS))


class Shift(NamedTuple):
    """What a test found.

    scores (Floats1d): The score of each doc so far: the entropy of its path for each expected
        entity. Shape: (T,)
    p_values (Floats1d): Their conformal p-values. Shape: (T,)
    log_martingale (Floats1d): The logarithm of the martingale after each of them. Shape: (T,)
    level (float): The martingale at which the test alarms.
    alarm (int | None): The number of the doc, from 1, at which it first alarms; None if it
        doesn't.
    counts (Counts): Expected numbers of entities by label.
    approximate (bool): Whether the temperature was fitted on the calibration docs, so that false
        alarms may be more than 1 / level.
    """

    scores: Floats1d
    p_values: Floats1d
    log_martingale: Floats1d
    level: float
    alarm: int | None
    counts: Counts
    approximate: bool

    @property
    def expected(self) -> dict[str, Any]:
        """Precision, recall and F as the model expects them, without labels, by spaCy's names. An
        upper guess after an alarm. None where nothing is predicted, or nothing expected."""

        def prf(row: Sequence[float], names: Sequence[str] = "prf") -> dict[str, Any]:
            tp, predicted, annotated = row
            of = (predicted, annotated, (predicted + annotated) / 2 if predicted * annotated else 0)
            return {name: tp / n if n else None for name, n in zip(names, of)}

        total = numpy.sum([[0.0, 0.0, 0.0], *self.counts.values()], axis=0).tolist()
        by_label = {label: prf(row) for label, row in self.counts.items()}
        return {**prf(total, ("ents_p", "ents_r", "ents_f")), "ents_per_type": by_label}

    @property
    def summary(self) -> dict[str, Any]:
        """The test in short: "martingale" is its highest value."""
        highest = exp(min(float(self.log_martingale.max(initial=0.0)), MOST_LOG))
        test = {"docs": len(self.scores), "martingale": highest, "level": self.level}
        return {**test, "alarm": self.alarm, "approximate": self.approximate}

    @property
    def found(self) -> str:
        """The test in words."""
        at = "no alarm in" if self.alarm is None else f"alarm at doc {self.alarm:,} of"
        docs = f"{len(self.scores):,}" + " docs" * (self.alarm is None)
        return f"{at} {docs} (martingale up to {self.summary['martingale']:.3g} of {self.level:g})"

    def describe(self) -> str:
        """The test and the expected scores in a line."""
        scores = {one: self.expected[f"ents_{one}"] for one in "prf"}
        cells = [f"{k.upper()} {'-' if x is None else f'{100 * x:.2f}'}" for k, x in scores.items()]
        guess = "expected" if self.alarm is None else "expected, an upper guess:"
        return f"{self.found}; {guess} {', '.join(cells)}"


def in_random_order(scores: Sequence[float], seed: int = 0) -> Floats1d:
    """Scores in random order, at most `MOST_DOCS` of them. Shape: (T,)"""
    order = numpy.random.default_rng(seed).permutation(len(scores))
    return numpy.asarray(scores, dtype="float64")[order[:MOST_DOCS]]


def rounded(scores: Iterable[float]) -> Floats1d:
    """Scores as they are compared, with four digits: the others may differ between
    batches. Shape: (T,)"""
    return numpy.asarray([float(f"{score:.4g}") for score in scores])


def find_shift(
    calibration: Mapping[str, Any],
    scores: Iterable[float],
    counts: Mapping[str, list[float]] = {},
    *,
    seed: int = 0,
    level: float = ALARM,
) -> Shift:
    """Test scores in their order. `calibration` has the "scores" of calibration docs, and whether
    they are "approximate"."""
    scores = rounded(scores)
    p = conformal_p_values(rounded(calibration["scores"]), scores, seed=seed)
    logs = log_martingale(p)
    high = numpy.flatnonzero(logs >= numpy.log(level))
    alarm = int(high[0]) + 1 if len(high) else None
    return Shift(scores, p, logs, level, alarm, {**counts}, calibration["approximate"])
