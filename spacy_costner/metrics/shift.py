"""Test without labels whether new docs are still like the calibration docs.

Each doc has a score, which says how unsure the model is of it. The conformal p-value of a new doc
compares its score with the scores of the calibration docs and of the new docs before it. If new
docs are like calibration docs (exchangeable), p-values are independent and uniform. Bets on small
p-values win money only if they are not. The money is a martingale, and if it gets large, the test
alarms.

In shapes, T is the number of new docs, and 19 bets are made on each (see `BETS`).

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

EntityCounts = dict[str, list[float]]
"""For each label three numbers of entities: the expected number of correct ones, the number of
predicted ones, and the expected number of annotated ones."""

ALARM = 100.0
"""The martingale at which the test alarms. If docs are exchangeable, the probability that it ever
gets so high is at most 1 / `ALARM`, by Ville's inequality."""

BETS = numpy.arange(1, 20) / 20
"""The exponents b of the bets, .05 to .95: see `log_products`."""

ENOUGH = 50
"""The minimum number of calibration docs with the same value of a key (such as a source), so that
there is a test for docs with this value."""

MOST_TESTED = 100_000
"""The maximum number of docs that are tested in random order."""

MOST_LOG = 700.0
"""The logarithm of the highest martingale that is shown. (Python's `exp` overflows above 709.)"""


def conformal_p_values(pool: list[float], scores: Floats1d, shares: Floats1d) -> Floats1d:
    """Compute the p-value of each new doc: the share of calibration docs and earlier docs with a
    higher score, with its own score counted, too. Of the docs with the same score (ties), a random
    share u counts. `pool` has the scores a_i of the calibration docs and earlier docs, sorted; the
    scores of the new docs are added to it. `shares` has u_t: random numbers above 0 and at most 1.
    Shapes: (T,), (T,) to (T,)

        p_t = (#{i: a_i > a_t} + u_t (#{i: a_i = a_t} + 1)) / (n_t + 1)

    a_t is the score of doc t, and n_t the number of calibration docs and earlier docs, which are
    the docs i. p-values are above 0 and at most 1. They stay the same if more docs follow.

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
    """Compute the logarithm of the money of each bet after each doc. A bet begins with 1. With the
    exponent b, it multiplies its money by b p^(b - 1) at a doc with the p-value p. That factor is
    above 1 if p is small. `before` has the logarithm for each bet before the first of these docs.
    Shapes: (T,), (bets,) to (T, bets)

        log prod_{s <= t} b p_s^(b - 1),  b in BETS
    """
    steps = numpy.log(BETS) + (BETS - 1) * numpy.log(p_values)[:, None]  # shape: (T, bets)
    # `cumsum` adds doc after doc, beginning with `before`. So several calls give exactly the same
    # floats as one call with all docs.
    sums = numpy.cumsum(numpy.concatenate([before[None], steps]), axis=0)
    return sums[1:]


def log_martingale(products: Floats2d) -> Floats1d:
    """Compute the logarithm of the martingale after each doc. The martingale is the mean of the
    money of all bets: see `log_products`. Shapes: (T, bets) to (T,)

    Vovk et al. (2021), section 3: the simple mixture, over a grid.
    """
    return numpy.logaddexp.reduce(products, axis=1) - numpy.log(len(BETS))


class Stream:
    """The docs of a test so far, to which more docs can be added.

    The shares of ties (see `conformal_p_values`) are random numbers. Their seed is made of `seed`
    and of the digest of the calibration docs. So a test has the same result when it is repeated,
    and tests against different calibration docs draw different shares: their false alarms don't
    all depend on the same numbers.

    calibration (Mapping[str, Any]): The calibration docs: see `find_shift`.
    seed (int): Chooses the shares of ties.
    scores (list[float]): The score of each doc so far.
    p_values (list[float]): The p-value of each doc so far.
    log_martingale (list[float]): The logarithm of the martingale after each doc so far.
    """

    def __init__(self, calibration: Mapping[str, Any], seed: int) -> None:
        self.calibration = calibration
        self.seed = seed
        self._generator = numpy.random.default_rng([seed, int(calibration["digest"], 16)])
        # The scores that the next doc is ranked among, sorted: see `conformal_p_values`. They are
        # rounded as the scores of new docs are: see `rounded`.
        self._pool = sorted(rounded(calibration["scores"]).tolist())
        # The logarithm of the money of each bet after the last doc: see `log_products`.
        self._log_products = numpy.zeros(len(BETS))
        self.scores: list[float] = []
        self.p_values: list[float] = []
        self.log_martingale: list[float] = []

    def add(self, scores: Floats1d) -> None:
        """Test further docs: compute the p-value of each, and continue the martingale.

        scores (Floats1d): The scores of the docs, in their order. Shape: (T,)
        """
        # `random` draws from 0 up to, but not including, 1. A share has to be above 0.
        shares = 1 - self._generator.random(len(scores))
        p_values = conformal_p_values(self._pool, scores, shares)
        products = log_products(p_values, before=self._log_products)
        if len(products) > 0:
            self._log_products = products[-1]
        self.scores += scores.tolist()
        self.p_values += p_values.tolist()
        self.log_martingale += log_martingale(products).tolist()

    def up_to(self, n_docs: int) -> "Stream":
        """Return the stream of the first docs only. If no docs were added since, it is this
        stream."""
        if n_docs == len(self.scores):
            return self
        stream = Stream(self.calibration, self.seed)
        stream.add(numpy.asarray(self.scores[:n_docs]))
        return stream


class Shift(NamedTuple):
    """The result of a test.

    stream (Stream): The docs that were tested. It has more docs if another test went on from this
        one.
    n_docs (int): The number of docs that were tested.
    highest (float): The logarithm of the martingale where it is highest. It is 0 before any doc.
    level (float): The martingale at which the test alarms.
    alarm (int | None): The number of the doc, counted from 1, at which the test first alarms. None:
        it doesn't.
    counts (EntityCounts): The numbers of entities by label: see `EntityCounts`.
    approximate (bool): Whether the temperature was fitted on the calibration docs. Then false
        alarms may be more frequent than 1 / level.
    """

    stream: Stream
    n_docs: int
    highest: float
    level: float
    alarm: int | None
    counts: EntityCounts
    approximate: bool

    @property
    def scores(self) -> Floats1d:
        """The score of each doc: the entropy of its path, divided by 1 + the expected number of its
        entities. Shape: (T,)"""
        return numpy.asarray(self.stream.scores[: self.n_docs])

    @property
    def p_values(self) -> Floats1d:
        """The conformal p-value of each doc. Shape: (T,)"""
        return numpy.asarray(self.stream.p_values[: self.n_docs])

    @property
    def log_martingale(self) -> Floats1d:
        """The logarithm of the martingale after each doc. Shape: (T,)"""
        return numpy.asarray(self.stream.log_martingale[: self.n_docs])

    def to_json(self) -> dict[str, Any]:
        """Return the state from which a later test can continue, as JSON: the "scores" and "counts"
        of the docs, the "seed", and the "digest" of the calibration docs."""
        return {
            "scores": self.stream.scores[: self.n_docs],
            "counts": self.counts,
            "seed": self.stream.seed,
            "digest": self.stream.calibration["digest"],
        }

    @property
    def expected(self) -> dict[str, Any]:
        """Precision, recall and F that the model expects of itself, by the names that spaCy's
        scorer has for them. A score is None if no entity is predicted or expected. After an alarm
        the model is too sure, and the scores are probably too high."""
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
        """The martingale where it is highest; not its logarithm."""
        return exp(min(self.highest, MOST_LOG))

    @property
    def summary(self) -> dict[str, Any]:
        """The result of the test, as JSON."""
        return {
            "docs": self.n_docs,
            "martingale": self.highest_martingale,
            "level": self.level,
            "alarm": self.alarm,
            "approximate": self.approximate,
        }

    @property
    def verdict(self) -> str:
        """A text that says whether the test alarms, and how high the martingale was."""
        verdict = f"no alarm in {self.n_docs:,} docs"
        if self.alarm is not None:
            verdict = f"alarm at doc {self.alarm:,} of {self.n_docs:,}"
        return f"{verdict} (martingale up to {self.highest_martingale:.3g} of {self.level:g})"

    def as_text(self) -> str:
        """Describe the result of the test and the expected scores in a line of text."""
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
            # The model is too sure of such texts, so the true scores are probably lower.
            title = "expected, optimistic:"
        return f"{self.verdict}; {title} {', '.join(scores)}"


def expected_prf(counts: Sequence[float]) -> dict[str, float | None]:
    """Compute precision "p", recall "r" and F "f" from the three counts of a label: see
    `EntityCounts`. A score is None if no entity is predicted or expected."""
    n_correct, n_predicted, n_annotated = counts
    scores: dict[str, float | None] = {"p": None, "r": None, "f": None}
    if n_predicted > 0:
        scores["p"] = n_correct / n_predicted
    if n_annotated > 0:
        scores["r"] = n_correct / n_annotated
    if n_predicted > 0 and n_annotated > 0:
        # Twice the correct ones, divided by all predicted and all annotated ones.
        scores["f"] = n_correct / ((n_predicted + n_annotated) / 2)
    return scores


def in_random_order(scores: Sequence[float], seed: int = 0) -> Floats1d:
    """Put scores into random order, and take at most `MOST_TESTED` of them, as a test of more would
    take long. A test of docs in random order says whether the docs as a whole are like the
    calibration docs. (In their own order, it would also find changes from the first docs to the
    last.) Shape: (T,)"""
    order = numpy.random.default_rng(seed).permutation(len(scores))
    return numpy.asarray(scores, dtype="float64")[order[:MOST_TESTED]]


def rounded(scores: Iterable[float]) -> Floats1d:
    """Round scores to four significant digits, as tests compare them. Further digits of the score
    of a doc may depend on the other docs of its batch. Shape: (T,)"""
    return numpy.asarray([float(f"{score:.4g}") for score in scores])


def digest_of_scores(scores: Floats1d) -> str:
    """Compute a digest of the scores of calibration docs. It is saved with a test, to check later
    that the test continues with the same calibration docs. It is also a part of a seed: see
    `Stream`.

    scores (Floats1d): The scores of the calibration docs, not rounded, in order.
    RETURNS (str): The digest, a hexadecimal number.
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
    """Test whether docs are still like the calibration docs. The docs are tested one after another,
    in their order. A test can continue the test of earlier docs.

    calibration (Mapping[str, Any]): The "scores" of the calibration docs, their "digest", and under
        "approximate" whether the temperature was fitted on them.
    scores (Iterable[float]): The score of each new doc.
    counts (Mapping[str, list[float]]): The counts of the earlier and the new docs together: see
        `EntityCounts`.
    earlier (Shift | None): The test of the earlier docs, if there are any.
    seed (int): Chooses the shares of ties: see `Stream`.
    level (float): The martingale at which the test alarms. It has to be the level of the test of
        the earlier docs, in which no alarm is looked for again.
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
    # Another test may have gone on from the same earlier docs, and added docs to their stream.
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
    seed_before: int,
    calibration_before: Mapping[str, Any],
    calibration: Mapping[str, Any],
    seed: int,
) -> None:
    """Check that a test can continue the test of earlier docs: both need the same seed and the same
    "digest" of the calibration docs.

    RAISES (ValueError): If the two tests have different seeds or calibration docs.
    """
    if seed != seed_before:
        raise ValueError(f"seed: expected {seed_before!r}, as for the earlier docs, got {seed!r}")
    if calibration_before["digest"] != calibration["digest"]:
        raise ValueError(
            "earlier: expected a test against the calibration docs of this component, got one "
            "against other docs: start a new test"
        )


def restore(saved: Mapping[str, Any], calibration: Mapping[str, Any], seed: int = 0) -> Shift:
    """Restore a test that `Shift.to_json` has saved, so that another test can continue from it. Its
    docs are tested again.

    saved (Mapping[str, Any]): The saved test.
    calibration (Mapping[str, Any]): The calibration docs: see `find_shift`.
    seed (int): The seed of the test.
    RETURNS (Shift): The test.
    RAISES (ValueError): If something is missing, or if the saved test had another seed or other
        calibration docs.
    """
    names = ("scores", "counts", "seed", "digest")
    for name in names:
        if name not in saved:
            raise ValueError(f"earlier: expected {', '.join(names)}, got no {name}")
    check_earlier(saved["seed"], saved, calibration, seed)
    return find_shift(calibration, saved["scores"], saved["counts"], seed=seed)
