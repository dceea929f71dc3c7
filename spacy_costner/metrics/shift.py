"""Detect whether new docs differ from the calibration docs, without using labels.

The score of a doc measures the model's uncertainty. The conformal p-value of a new doc compares its
score with the scores of the calibration docs and the earlier new docs. If new docs are like
calibration docs (exchangeable), the p-values are independent and uniform. Otherwise, bets on small
p-values can make money. The capital of the bets is a martingale, and the test raises an alarm if it
becomes large.

In shapes, T is the number of new docs. There are 19 bets on each doc (see `BETS`).

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
"""Three entity counts per label: the expected number of correct entities, the number of predicted
entities and the expected number of annotated entities."""

ALARM = 100.0
"""The value of the martingale that triggers an alarm. If docs are exchangeable, the probability of
ever reaching it is at most 1 / `ALARM`, by Ville's inequality."""

BETS = numpy.arange(1, 20) / 20
"""The exponents b of the bets, 0.05 to 0.95. See `log_products`."""

ENOUGH = 50
"""The minimum number of calibration docs with the same value for a key (e.g. the same source) that
is required to test docs with this value."""

MOST_TESTED = 100_000
"""The maximum number of docs to test in random order."""

MOST_LOG = 700.0
"""The logarithm of the highest martingale to display. (Python's `exp` overflows above 709.)"""


def conformal_p_values(pool: list[float], scores: Floats1d, shares: Floats1d) -> Floats1d:
    """Compute the p-value of each new doc: the fraction of docs with a higher score among the
    calibration docs, the earlier docs and the doc itself. A random fraction u of ties is included.

        p_t = (#{i: a_i > a_t} + u_t (#{i: a_i = a_t} + 1)) / (n_t + 1)

    a_t is the score of doc t, and i ranges over the n_t calibration docs and earlier docs. The
    p-values are above 0 and at most 1, and don't depend on later docs.

    `pool` contains the sorted scores a_i of the calibration docs and earlier docs. The scores of
    the new docs are added to it. `shares` contains the random numbers u_t, above 0 and at most 1.
    Shapes: (T,), (T,) to (T,)

    Vovk, Gammerman & Shafer (2005), eq. 2.20.
    """
    p_values = numpy.empty(len(scores))
    for i, (score, share) in enumerate(zip(scores.tolist(), shares.tolist())):
        # Use bisection on the sorted pool to count the scores that are below this score, and those
        # that are not above it.
        n_below = bisect_left(pool, score)
        n_not_above = bisect_right(pool, score)
        n_above = len(pool) - n_not_above
        n_ties = n_not_above - n_below
        p_values[i] = (n_above + share * (n_ties + 1)) / (len(pool) + 1)
        pool.insert(n_not_above, score)
    return p_values


def log_products(p_values: Floats1d, before: Floats1d) -> Floats2d:
    """Compute the log capital of each bet after each doc. A bet starts with a capital of 1. The bet
    with exponent b multiplies its capital by b p^(b - 1) after a doc with p-value p. This factor is
    above 1 if p is small. `before` contains the log capital of each bet before the first doc.
    Shapes: (T,), (bets,) to (T, bets)

        log prod_{s <= t} b p_s^(b - 1),  b in BETS
    """
    steps = numpy.log(BETS) + (BETS - 1) * numpy.log(p_values)[:, None]  # shape: (T, bets)
    # `cumsum` adds the docs one by one, starting with `before`, so several calls result in exactly
    # the same floats as a single call with all docs.
    sums = numpy.cumsum(numpy.concatenate([before[None], steps]), axis=0)
    return sums[1:]


def log_martingale(products: Floats2d) -> Floats1d:
    """Compute the log martingale after each doc. The martingale is the mean capital of all bets.
    See `log_products`. Shapes: (T, bets) to (T,)

    Vovk et al. (2021), section 3: the simple mixture, over a grid.
    """
    return numpy.logaddexp.reduce(products, axis=1) - numpy.log(len(BETS))


class Stream:
    """A stream of tested docs, to which more docs can be added.

    Ties are broken at random (see `conformal_p_values`). The random numbers are seeded with `seed`
    and the digest of the calibration docs. A repeated test therefore has the same result, while
    tests against different calibration docs use different random numbers, so that their false
    alarms are not correlated.

    calibration (Mapping[str, Any]): The calibration docs. See `find_shift`.
    seed (int): The seed for breaking ties.
    scores (list[float]): The score of each doc so far.
    p_values (list[float]): The p-value of each doc so far.
    log_martingale (list[float]): The log martingale after each doc so far.
    """

    def __init__(self, calibration: Mapping[str, Any], seed: int) -> None:
        self.calibration = calibration
        self.seed = seed
        self._generator = numpy.random.default_rng([seed, int(calibration["digest"], 16)])
        # The sorted scores that the next doc is compared with. See `conformal_p_values`. They are
        # rounded in the same way as the scores of new docs. See `rounded`.
        self._pool = sorted(rounded(calibration["scores"]).tolist())
        # The log capital of each bet after the last doc. See `log_products`.
        self._log_products = numpy.zeros(len(BETS))
        self.scores: list[float] = []
        self.p_values: list[float] = []
        self.log_martingale: list[float] = []

    def add(self, scores: Floats1d) -> None:
        """Test more docs: compute their p-values and continue the martingale.

        scores (Floats1d): The scores of the docs, in order. Shape: (T,)
        """
        # `random` draws from [0, 1), but the fractions must be above 0.
        shares = 1 - self._generator.random(len(scores))
        p_values = conformal_p_values(self._pool, scores, shares)
        products = log_products(p_values, before=self._log_products)
        if len(products) > 0:
            self._log_products = products[-1]
        self.scores += scores.tolist()
        self.p_values += p_values.tolist()
        self.log_martingale += log_martingale(products).tolist()

    def up_to(self, n_docs: int) -> "Stream":
        """Return the stream of the first `n_docs` docs. If no other docs were added, return this
        stream."""
        if n_docs == len(self.scores):
            return self
        stream = Stream(self.calibration, self.seed)
        stream.add(numpy.asarray(self.scores[:n_docs]))
        return stream


class Shift(NamedTuple):
    """The result of a shift test.

    stream (Stream): The tested docs. Includes additional docs if another test has continued from
        this one.
    n_docs (int): The number of tested docs.
    highest (float): The maximum of the log martingale, including its initial value 0.
    level (float): The value of the martingale that triggers an alarm.
    alarm (int | None): The number of the doc, starting from 1, that triggered the first alarm. None
        if there is no alarm.
    counts (EntityCounts): The entity counts by label. See `EntityCounts`.
    approximate (bool): Whether the temperature was fitted on the calibration docs. If so, the rate
        of false alarms may exceed 1 / level.
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
        """The score of each doc: the entropy of its paths, divided by 1 + the expected number of
        entities. Shape: (T,)"""
        return numpy.asarray(self.stream.scores[: self.n_docs])

    @property
    def p_values(self) -> Floats1d:
        """The conformal p-value of each doc. Shape: (T,)"""
        return numpy.asarray(self.stream.p_values[: self.n_docs])

    @property
    def log_martingale(self) -> Floats1d:
        """The log martingale after each doc. Shape: (T,)"""
        return numpy.asarray(self.stream.log_martingale[: self.n_docs])

    def to_json(self) -> dict[str, Any]:
        """Return the state required to continue the test later, in JSON format: the "scores" and
        "counts" of the docs, the "seed" and the "digest" of the calibration docs."""
        return {
            "scores": self.stream.scores[: self.n_docs],
            "counts": self.counts,
            "seed": self.stream.seed,
            "digest": self.stream.calibration["digest"],
        }

    @property
    def expected(self) -> dict[str, Any]:
        """The precision, recall and F-score that the model expects for its predictions, using the
        keys of spaCy's scorer. As in this scorer, predicted inner nodes of a label tree are wrong.
        A score is None if no entity is predicted or expected. After an alarm, the model is
        overconfident and the scores are probably too high."""
        # Include zeros so that the sum consists of three numbers even without labels.
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
        """The maximum of the martingale (not its logarithm)."""
        return exp(min(self.highest, MOST_LOG))

    @property
    def summary(self) -> dict[str, Any]:
        """The result of the test in JSON format."""
        return {
            "docs": self.n_docs,
            "martingale": self.highest_martingale,
            "level": self.level,
            "alarm": self.alarm,
            "approximate": self.approximate,
        }

    @property
    def verdict(self) -> str:
        """A short summary: whether there was an alarm, and the highest martingale."""
        verdict = f"no alarm in {self.n_docs:,} docs"
        if self.alarm is not None:
            verdict = f"alarm at doc {self.alarm:,} of {self.n_docs:,}"
        return f"{verdict} (martingale up to {self.highest_martingale:.3g} of {self.level:g})"

    def as_text(self) -> str:
        """Return the result of the test and the expected scores as a line of text."""
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
            # The model is overconfident on such texts, so the true scores are probably lower.
            title = "expected, optimistic:"
        return f"{self.verdict}; {title} {', '.join(scores)}"


def expected_prf(counts: Sequence[float]) -> dict[str, float | None]:
    """Compute precision ("p"), recall ("r") and F-score ("f") from the three counts of a label. See
    `EntityCounts`. A score is None if no entity is predicted or expected."""
    n_correct, n_predicted, n_annotated = counts
    scores: dict[str, float | None] = {"p": None, "r": None, "f": None}
    if n_predicted > 0:
        scores["p"] = n_correct / n_predicted
    if n_annotated > 0:
        scores["r"] = n_correct / n_annotated
    if n_predicted > 0 and n_annotated > 0:
        # F is twice the number of correct entities divided by predicted plus annotated entities.
        scores["f"] = n_correct / ((n_predicted + n_annotated) / 2)
    return scores


def in_random_order(scores: Sequence[float], seed: int = 0) -> Floats1d:
    """Shuffle scores and return at most `MOST_TESTED` of them, to limit the runtime of the test.
    Testing docs in random order shows whether the docs as a whole are like the calibration docs. In
    the original order, the test would also detect changes within the docs. Shape: (T,)"""
    order = numpy.random.default_rng(seed).permutation(len(scores))
    return numpy.asarray(scores, dtype="float64")[order[:MOST_TESTED]]


def rounded(scores: Iterable[float]) -> Floats1d:
    """Round scores to four significant digits for comparison in tests. Further digits may depend on
    the other docs in the batch. Shape: (T,)"""
    return numpy.asarray([float(f"{score:.4g}") for score in scores])


def digest_of_scores(scores: Floats1d) -> str:
    """Compute a digest of the scores of calibration docs. It is saved with a test to verify that
    the test is continued with the same calibration docs. It is also used as a seed. See `Stream`.

    scores (Floats1d): The unrounded scores of the calibration docs, in order.
    RETURNS (str): The digest as a hexadecimal number.
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
    """Test whether docs differ from the calibration docs. The docs are tested one by one, in order.
    A test can continue from the test of earlier docs.

    calibration (Mapping[str, Any]): The "scores" of the calibration docs, their "digest", and
        whether the temperature was fitted on them ("approximate").
    scores (Iterable[float]): The score of each new doc.
    counts (Mapping[str, list[float]]): The total counts of the earlier and the new docs. See
        `EntityCounts`.
    earlier (Shift | None): The test of the earlier docs, if any.
    seed (int): The seed for breaking ties. See `Stream`.
    level (float): The value of the martingale that triggers an alarm. Must be the same as in the
        test of the earlier docs, which are not checked for alarms again.
    RETURNS (Shift): The result for the earlier and the new docs.
    RAISES (ValueError): If the earlier test used another seed or other calibration docs.
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
    # Another test may have continued from the same earlier docs and added docs to their stream.
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
    """Check that a test can continue from the test of earlier docs, which requires the same seed
    and the same "digest" of the calibration docs.

    RAISES (ValueError): If the seeds or the calibration docs differ.
    """
    if seed != seed_before:
        raise ValueError(f"seed: expected {seed_before!r}, as for the earlier docs, got {seed!r}")
    if calibration_before["digest"] != calibration["digest"]:
        raise ValueError(
            "earlier: expected a test against the calibration docs of this component, got one "
            "against other docs: start a new test"
        )


def restore(saved: Mapping[str, Any], calibration: Mapping[str, Any], seed: int = 0) -> Shift:
    """Restore a test saved by `Shift.to_json`, so that another test can continue from it. The docs
    are tested again.

    saved (Mapping[str, Any]): The saved test.
    calibration (Mapping[str, Any]): The calibration docs. See `find_shift`.
    seed (int): The seed of the test.
    RETURNS (Shift): The test.
    RAISES (ValueError): If a value is missing, or if the saved test used another seed or other
        calibration docs.
    """
    names = ("scores", "counts", "seed", "digest")
    for name in names:
        if name not in saved:
            raise ValueError(f"earlier: expected {', '.join(names)}, got no {name}")
    check_earlier(saved["seed"], saved, calibration, seed)
    return find_shift(calibration, saved["scores"], saved["counts"], seed=seed)
