"""The test for a shift of docs: by definition, and on made-up scores."""

import numpy
import pytest
from hypothesis import given

from spacy_costner.metrics import shift

from .support.strategies import seeds


@given(seeds)
def test_p_values_by_definition(rng: numpy.random.Generator) -> None:
    calibration = rng.integers(0, 8, size=rng.integers(0, 20)) / 8.0
    scores = rng.integers(0, 8, size=rng.integers(0, 2500)) / 8.0
    p = shift.conformal_p_values(calibration, scores, seed=3)
    u = 1 - numpy.random.default_rng(3).random(len(scores))
    for t in {*range(min(len(scores), 20)), *range(1020, len(scores), 300)}:
        pool = numpy.append(calibration, scores[:t])
        n_equal = (pool == scores[t]).sum() + 1
        expected = ((pool > scores[t]).sum() + u[t] * n_equal) / (len(pool) + 1)
        assert p[t] == pytest.approx(expected)
    part = shift.conformal_p_values(calibration, scores[:7], seed=3)
    assert part.tolist() == p[:7].tolist()


@pytest.mark.parametrize("n_values", [3, 10**9])
def test_p_values_are_uniform_and_independent(n_values: int) -> None:
    """Of exchangeable docs, with many ties and without any."""
    rng = numpy.random.default_rng(0)
    p = numpy.asarray(
        [
            shift.conformal_p_values(*numpy.split(rng.integers(n_values, size=40), [10]), seed=i)
            for i in range(4000)
        ]
    )
    counts = numpy.apply_along_axis(lambda x: numpy.histogram(x, 10, (0, 1))[0], 0, p)
    chi_square = ((counts - 400) ** 2 / 400).sum(axis=0)  # 9 degrees of freedom for each doc
    assert chi_square.mean() == pytest.approx(9, abs=4 * numpy.sqrt(18 / 30))
    of_pairs = numpy.corrcoef(p.T) - numpy.eye(30)
    assert numpy.abs(of_pairs).max() < 5 / numpy.sqrt(4000)


def test_martingale_by_definition() -> None:
    p = numpy.random.default_rng(1).random(50)
    bets = [numpy.cumprod(b * p ** (b - 1)) for b in shift.BETS]
    assert numpy.exp(shift.log_martingale(p)) == pytest.approx(numpy.mean(bets, axis=0))


def test_bets_integrate_to_one() -> None:
    """The first bet is the derivative of mean_b p^b, which is 0 at 0 and 1 at 1."""
    p, step = numpy.linspace(0.01, 0.99, 40), 1e-6
    high, low = (numpy.mean((p[:, None] + d) ** shift.BETS, axis=1) for d in (step, -step))
    first = [numpy.exp(shift.log_martingale(numpy.asarray([each])))[0] for each in p]
    assert first == pytest.approx((high - low) / (2 * step), rel=1e-5)


def test_false_alarms_by_villes_inequality() -> None:
    """P(max M >= c) <= 1 / c. The mean of M has no finite variance, so it is not tested."""
    rng = numpy.random.default_rng(2)
    highest = numpy.asarray(
        [shift.log_martingale(1 - rng.random(100)).max() for _ in range(10_000)]
    )
    for c in (5, 20, 100):
        share = (highest >= numpy.log(c)).mean()
        assert share <= 1 / c + 3 * numpy.sqrt(1 / c / 10_000)
    assert (highest >= numpy.log(5)).mean() > 0.02  # it does bet
