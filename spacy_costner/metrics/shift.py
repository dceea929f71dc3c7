"""Test without labels whether docs are still like the calibration docs.

If new docs and calibration docs are exchangeable, the conformal p-values of the new ones are
independent and uniform. A martingale bets against that. It grows where the model is less sure of
new docs than of calibration docs.

Vovk, Gammerman & Shafer (2005): Algorithmic Learning in a Random World, chapter 7. Vovk et al.
(2021): Retrain or Not Retrain: Conformal Test Martingales for Change-Point Detection.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from math import exp
from typing import Any, NamedTuple

import numpy
from thinc.types import Floats1d, Floats2d

Counts = dict[str, list[float]]
"""For each label the expected number of correct entities, the number of predicted ones, and the
expected number of annotated ones."""

ALARM = 100.0
"""The martingale at which the test alarms. If docs are exchangeable, the probability that it ever
does is at most 1 / ALARM, by Ville's inequality."""

BETS = numpy.arange(1, 20) / 20
"""The exponents of the bets: see `log_martingale`."""

ENOUGH = 50
"""The least number of calibration docs of a test for the docs with one value of a key."""

MOST_DOCS = 100_000
"""The most docs that are tested in random order."""

MOST_LOG = 700.0
"""The logarithm of the highest martingale that is shown."""


def conformal_p_values(pool: list[float], scores: Floats1d, shares: Floats1d) -> Floats1d:
    """The p-value of each new doc: its rank among the calibration docs and the new docs before it.
    Of the docs with the same score (ties), a random share u counts.

        p_t = (#{i: a_i > a_t} + u_t (#{i: a_i = a_t} + 1)) / (n_t + 1)

    They are above 0 and up to 1, and stay the same if more docs follow.

    pool (list[float]): The scores of the calibration docs and of earlier docs, sorted. Those of
        the new docs are added to it.
    scores (Floats1d): The scores a of the new docs. Shape: (T,)
    shares (Floats1d): The shares u, random numbers above 0 and up to 1. Shape: (T,)
    RETURNS (Floats1d): The p-values. Shape: (T,)

    Vovk, Gammerman & Shafer (2005), eq. 2.20.
    """
    p_values = numpy.empty(len(scores))
    for i, (score, share) in enumerate(zip(scores.tolist(), shares.tolist())):
        # The pool is sorted: bisection counts the scores below this one, and those up to it.
        n_below = bisect_left(pool, score)
        n_not_above = bisect_right(pool, score)
        n_above = len(pool) - n_not_above
        n_ties = n_not_above - n_below
        p_values[i] = (n_above + share * (n_ties + 1)) / (len(pool) + 1)
        pool.insert(n_not_above, score)
    return p_values


def log_products(p_values: Floats1d, before: Floats1d) -> Floats2d:
    """The logarithm of the product of each bet after each doc.

        log prod_{s <= t} b p_s^(b - 1),  b in BETS

    p_values (Floats1d): The p-values of the docs. Shape: (T,)
    before (Floats1d): The logarithms before the first of these docs. Shape: (bets,)
    RETURNS (Floats2d): The logarithms. Shape: (T, bets)
    """
    steps = numpy.log(BETS) + (BETS - 1) * numpy.log(p_values)[:, None]  # shape: (T, bets)
    # Summed from the first to the last, so that several calls give the same floats as a single one
    # with all docs.
    sums = numpy.cumsum(numpy.concatenate([before[None], steps]), axis=0)
    return sums[1:]


def log_martingale(products: Floats2d) -> Floats1d:
    """The logarithm of the martingale after each doc: the mean of the products of the bets.
    Shapes: (T, bets) to (T,)

    Vovk et al. (2021), section 3: the simple mixture, over a grid.
    """
    return numpy.logaddexp.reduce(products, axis=1) - numpy.log(len(BETS))


class Stream:
    """The docs of a test so far, and what it takes to test the next ones.

    The shares of ties (see `conformal_p_values`) are random numbers. Their seed is made of `seed`
    and of the digest of the calibration docs. So a test is the same each time it is repeated. Tests
    against different calibration docs draw different shares, so that their false alarms don't all
    depend on the same numbers.

    scores, p_values, log_martingale (list[float]): The score of each doc so far, its p-value, and
        the logarithm of the martingale after it.
    """

    def __init__(self, calibration: Mapping[str, Any], seed: int) -> None:
        self.calibration = calibration
        self.seed = seed
        digest = calibration.get("digest", "0")  # pipelines saved by 0.3.0 have none
        self._generator = numpy.random.default_rng([seed, int(digest, 16)])
        # The scores that the next doc is ranked among, sorted: see `conformal_p_values`.
        self._pool = sorted(rounded(calibration["scores"]).tolist())
        self._log_products = numpy.zeros(len(BETS))
        self.scores: list[float] = []
        self.p_values: list[float] = []
        self.log_martingale: list[float] = []

    def add(self, scores: Floats1d) -> None:
        """Test the next docs by their scores. Shape: (T,)"""
        shares = 1 - self._generator.random(len(scores))  # above 0 and up to 1
        p_values = conformal_p_values(self._pool, scores, shares)
        products = log_products(p_values, before=self._log_products)
        if len(products) > 0:
            self._log_products = products[-1]
        self.scores += scores.tolist()
        self.p_values += p_values.tolist()
        self.log_martingale += log_martingale(products).tolist()

    def up_to(self, n_docs: int) -> "Stream":
        """The stream of the first docs alone: itself, unless more were added since."""
        if n_docs == len(self.scores):
            return self
        stream = Stream(self.calibration, self.seed)
        stream.add(numpy.asarray(self.scores[:n_docs]))
        return stream


class Shift(NamedTuple):
    """The result of a test.

    stream (Stream): The docs so far; more, if the test went on.
    n_docs (int): The number of docs so far.
    highest (float): The logarithm of the highest martingale after any of these docs, at least 0.
    level (float): The martingale at which the test alarms.
    alarm (int | None): The number of the doc, from 1, at which it first alarms; None if it
        doesn't.
    counts (Counts): Expected numbers of entities by label.
    approximate (bool): Whether the temperature was fitted on the calibration docs, so that false
        alarms may be more than 1 / level.
    """

    stream: Stream
    n_docs: int
    highest: float
    level: float
    alarm: int | None
    counts: Counts
    approximate: bool

    @property
    def scores(self) -> Floats1d:
        """The score of each doc so far: the entropy of its path for each expected entity. Shape:
        (T,)"""
        return numpy.asarray(self.stream.scores[: self.n_docs])

    @property
    def p_values(self) -> Floats1d:
        """The conformal p-value of each doc so far. Shape: (T,)"""
        return numpy.asarray(self.stream.p_values[: self.n_docs])

    @property
    def log_martingale(self) -> Floats1d:
        """The logarithm of the martingale after each doc so far. Shape: (T,)"""
        return numpy.asarray(self.stream.log_martingale[: self.n_docs])

    def to_json(self) -> dict[str, Any]:
        """What the next test needs of this one, to be saved as JSON: the "scores" and "counts" of
        the docs so far, the "seed", and the "digest" of the calibration docs."""
        return {
            "scores": self.stream.scores[: self.n_docs],
            "counts": self.counts,
            "seed": self.stream.seed,
            "digest": self.stream.calibration.get("digest"),
        }

    @property
    def expected(self) -> dict[str, Any]:
        """Precision, recall and F as the model expects them, without labels, by spaCy's names.
        None where nothing is predicted, or nothing expected. After an alarm they are likely too
        high."""
        # The zeros are for a component without labels: the sum has three numbers then, too.
        total = numpy.sum([[0.0, 0.0, 0.0], *self.counts.values()], axis=0).tolist()
        overall = expected_prf(total)
        return {
            "ents_p": overall["p"],
            "ents_r": overall["r"],
            "ents_f": overall["f"],
            "ents_per_type": {label: expected_prf(n) for label, n in self.counts.items()},
        }

    @property
    def highest_martingale(self) -> float:
        """The highest value of the martingale, not its logarithm."""
        return exp(min(self.highest, MOST_LOG))

    @property
    def summary(self) -> dict[str, Any]:
        """The result of the test as JSON has it."""
        return {
            "docs": self.n_docs,
            "martingale": self.highest_martingale,
            "level": self.level,
            "alarm": self.alarm,
            "approximate": self.approximate,
        }

    @property
    def verdict(self) -> str:
        """Whether the test alarms, and how near it came, in words."""
        verdict = f"no alarm in {self.n_docs:,} docs"
        if self.alarm is not None:
            verdict = f"alarm at doc {self.alarm:,} of {self.n_docs:,}"
        return f"{verdict} (martingale up to {self.highest_martingale:.3g} of {self.level:g})"

    def as_text(self) -> str:
        """The test and the expected scores in a line."""
        expected = self.expected
        scores: list[str] = []
        for name in ("p", "r", "f"):
            score = expected[f"ents_{name}"]
            percentage = "-"
            if score is not None:
                percentage = f"{100 * score:.2f}"
            scores.append(f"{name.upper()} {percentage}")
        title = "expected"
        if self.alarm is not None:
            # The model is too sure of such texts, and so of its scores.
            title = "expected, an upper guess:"
        return f"{self.verdict}; {title} {', '.join(scores)}"


def expected_prf(counts: Sequence[float]) -> dict[str, float | None]:
    """Precision "p", recall "r" and F "f" of expected counts: see `Counts`. None where nothing is
    predicted, or nothing expected."""
    n_correct, n_predicted, n_annotated = counts
    scores: dict[str, float | None] = {"p": None, "r": None, "f": None}
    if n_predicted > 0:
        scores["p"] = n_correct / n_predicted
    if n_annotated > 0:
        scores["r"] = n_correct / n_annotated
    if n_predicted > 0 and n_annotated > 0:
        scores["f"] = n_correct / ((n_predicted + n_annotated) / 2)
    return scores


def in_random_order(scores: Sequence[float], seed: int = 0) -> Floats1d:
    """Scores in random order, at most `MOST_DOCS` of them: a test then says whether the docs as a
    whole are like the calibration docs, whatever changes from one to the next. Shape: (T,)"""
    order = numpy.random.default_rng(seed).permutation(len(scores))
    return numpy.asarray(scores, dtype="float64")[order[:MOST_DOCS]]


def rounded(scores: Iterable[float]) -> Floats1d:
    """Scores with four digits, as the tests compare them. Further digits of a doc's score may
    differ when it is predicted in a batch with other docs. Shape: (T,)"""
    return numpy.asarray([float(f"{score:.4g}") for score in scores])


def digest_of(scores: Floats1d) -> str:
    """A digest of the scores of calibration docs. A saved test has it, so that it only goes on
    against the same docs: see `Stream`.

    scores (Floats1d): The scores, not rounded, in the order of the docs. Shape: (B,)
    """
    little_endian = numpy.asarray(scores, "<f8")  # the same bytes on all machines
    return hashlib.blake2b(little_endian.tobytes(), digest_size=16).hexdigest()


def find_shift(
    calibration: Mapping[str, Any],
    scores: Iterable[float],
    counts: Mapping[str, list[float]] = {},
    *,
    earlier: Shift | None = None,
    seed: int = 0,
    level: float = ALARM,
) -> Shift:
    """Test whether docs are still like the calibration docs. They are tested one after another, in
    their order, after the earlier docs.

    calibration (Mapping[str, Any]): The "scores" of the calibration docs, their "digest", and
        whether they are "approximate".
    scores (Iterable[float]): The score of each new doc.
    counts (Mapping[str, list[float]]): The counts of the earlier and the new docs: see `Counts`.
    earlier (Shift | None): The test of the earlier docs, if there are any.
    seed (int): Chooses the shares of ties: see `Stream`.
    level (float): The martingale at which the test alarms.
    RETURNS (Shift): The test of the earlier and the new docs.
    RAISES (ValueError): If the earlier docs had another seed or other calibration docs.
    """
    if earlier is None:
        no_docs = Stream(calibration, seed)
        earlier = Shift(
            no_docs,
            n_docs=0,
            highest=0.0,
            level=level,
            alarm=None,
            counts={},
            approximate=False,
        )
    check_earlier(earlier.stream.seed, earlier.stream.calibration, calibration, seed)
    # A stream can be shared: another test may have gone on from the same earlier docs.
    stream = earlier.stream.up_to(earlier.n_docs)
    stream.add(rounded(scores))
    log_martingale = numpy.asarray(stream.log_martingale[earlier.n_docs :])
    alarms = numpy.flatnonzero(log_martingale >= numpy.log(level))
    alarm = earlier.alarm
    if alarm is None and len(alarms):
        alarm = earlier.n_docs + int(alarms[0]) + 1
    return Shift(
        stream,
        n_docs=len(stream.scores),
        highest=float(log_martingale.max(initial=earlier.highest)),
        level=level,
        alarm=alarm,
        counts={**counts},
        approximate=calibration["approximate"],
    )


def check_earlier(
    seed_before: int, before: Mapping[str, Any], calibration: Mapping[str, Any], seed: int
) -> None:
    """Check that a test can go on from earlier docs.

    seed_before (int): The seed of the earlier test.
    before (Mapping[str, Any]): The "digest" of its calibration docs.
    calibration (Mapping[str, Any]): The "digest" of the calibration docs of the test that goes on.
    seed (int): The seed of that test.
    RAISES (ValueError): If the seed is another, or the calibration docs are others.
    """
    if seed != seed_before:
        raise ValueError(f"seed: expected {seed_before!r}, as for the earlier docs, got {seed!r}")
    if before.get("digest") != calibration.get("digest"):
        raise ValueError(
            "earlier: expected a test against the calibration docs of this component, got one "
            "against others: begin a new test"
        )


def restore(saved: Mapping[str, Any], calibration: Mapping[str, Any], seed: int = 0) -> Shift:
    """Make a test anew that `Shift.to_json` has saved, so that it can go on.

    saved (Mapping[str, Any]): What was saved.
    calibration (Mapping[str, Any]): The calibration docs: see `find_shift`.
    seed (int): The seed of the test.
    RAISES (ValueError): If something is missing, or if the test had another seed or other
        calibration docs.
    """
    names = ("scores", "counts", "seed", "digest")
    for name in names:
        if name not in saved:
            raise ValueError(f"earlier: expected {', '.join(names)}, got no {name}")
    check_earlier(saved["seed"], saved, calibration, seed)
    return find_shift(calibration, saved["scores"], saved["counts"], seed=seed)
