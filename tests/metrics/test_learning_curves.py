"""Forecasts of learning curves: of known and of simulated curves, and back from scores to texts."""

import numpy
import pytest
from thinc.types import Floats1d, Floats3d

from spacy_costner.metrics import bootstrap
from spacy_costner.metrics.learning_curves import (
    LEVEL_SD,
    MAX_TIMES,
    PRIOR,
    CurvePrior,
    ScoreCounts,
    expect_with_more,
    fit_curve,
    kernel,
)

N_TEXTS = numpy.asarray([50.0, 100.0, 200.0, 400.0])
N_NOW = 500
ENTITIES_PER_TEXT = 2.0


def counts_of(log_odds: Floats1d, n_texts: int = N_NOW, n_entities: int = 1000) -> Floats3d:
    """tp, fp and fn of texts that all have the same F, with these log odds."""
    f = 1 / (1 + numpy.exp(-log_odds))
    # With as many false alarms as misses, F is precision and recall.
    tp = numpy.broadcast_to(f[:, None] * n_entities, (len(f), n_texts))
    wrong = n_entities - tp
    return numpy.stack([tp, wrong, wrong], axis=-1)


def test_scores_by_hand() -> None:
    """The first text has 3 correct, 1 wrong and 2 missed entities, the second 1, 0 and 0."""
    counts = numpy.asarray([[[3, 1, 2], [1, 0, 0]]], dtype="float64")

    assert ScoreCounts.of_f(counts).scores() == pytest.approx([8 / 11])
    assert ScoreCounts.of_precision(counts).scores() == pytest.approx([4 / 5])
    assert ScoreCounts.of_recall(counts).scores() == pytest.approx([4 / 6])


def test_a_score_of_nothing_is_0_and_has_finite_log_odds() -> None:
    score = ScoreCounts.of_f(numpy.zeros((2, 3, 3)))

    assert score.scores().tolist() == [0, 0]
    assert score.log_odds().tolist() == [0, 0]
    assert numpy.isfinite(score.covariance()).all()


def test_the_covariance_is_that_of_the_bootstrap() -> None:
    rng = numpy.random.default_rng(0)
    right = rng.integers(0, 9, size=(1, 400)) + rng.integers(0, 3, size=(3, 400))
    wrong = rng.integers(0, 4, size=(3, 400))
    score = ScoreCounts(wrong.astype("float64"), (right + wrong).astype("float64"))

    columns = numpy.concatenate([right, wrong]).T.astype("float64")
    sums = bootstrap(columns, n_samples=4000).T
    sampled_log_odds = numpy.log(sums[:3] / sums[3:])
    assert score.covariance() == pytest.approx(numpy.cov(sampled_log_odds), rel=0.15, abs=2e-4)


def test_the_kernel_by_hand() -> None:
    """The integral of Brownian motion has the variance 1/3 at 1, 8/3 at 2, the covariance 5/6."""
    motion = CurvePrior(slope=0.0, slope_sd=0.0, roughness=1.0, noise=0.0)
    slopes = CurvePrior(slope=0.0, slope_sd=2.0, roughness=0.0, noise=0.0)
    x = numpy.asarray([0.0, 1.0, 2.0])
    level = kernel(x[:1], x[:1], motion)

    assert kernel(x, x, motion) - level == pytest.approx(
        numpy.asarray([[0, 0, 0], [0, 1 / 3, 5 / 6], [0, 5 / 6, 8 / 3]])
    )
    assert kernel(x, x, slopes) - level == pytest.approx(4 * numpy.outer(x, x))


@pytest.mark.parametrize("slope", [0.05, 0.25, 0.5])
def test_a_straight_curve_goes_on(slope: float) -> None:
    """Of so many entities that the prior hardly matters."""
    counts = counts_of(slope * numpy.log2(N_TEXTS / 50), n_entities=10**6)
    fitted = fit_curve(N_TEXTS, ScoreCounts.of_f(counts), entities_per_text=10**6)

    forecast = fitted.forecast(numpy.asarray([800.0, 1600.0]))

    log_odds = slope * numpy.asarray([4, 5])
    assert forecast.value == pytest.approx(1 / (1 + numpy.exp(-log_odds)), abs=0.005)


def test_the_interval_by_hand() -> None:
    """Only the level is unknown: its precision is that of the prior and of four measured scores,
    whose variance is 1 by the number of entities in the training texts: 0.1 in each text. The
    forecast has an error of its own."""
    prior = CurvePrior(slope=0.0, slope_sd=0.0, roughness=0.0, noise=1.0)
    counts = counts_of(numpy.zeros(4), n_entities=10**9)
    fitted = fit_curve(N_TEXTS, ScoreCounts.of_f(counts), entities_per_text=0.1, prior=prior)

    value, low, high = fitted.forecast(numpy.asarray([400.0]))

    variance = 1 / (1 / LEVEL_SD**2 + 0.1 * N_TEXTS.sum()) + 1 / (0.1 * 400)
    margin = 1.6448536 * numpy.sqrt(variance)
    assert value == pytest.approx(0.5)
    assert numpy.log(high / (1 - high)) == pytest.approx(margin, rel=1e-4)
    assert numpy.log(low / (1 - low)) == pytest.approx(-margin, rel=1e-4)


def test_without_entities_the_forecast_is_the_prior() -> None:
    fitted = fit_curve(N_TEXTS, ScoreCounts.of_f(numpy.zeros((4, 10, 3))), entities_per_text=0.0)

    value, low, high = fitted.forecast(numpy.asarray([1600.0]))

    assert low < 0.2 and high > 0.8 and low < value < high


def simulate(prior: CurvePrior, rng: numpy.random.Generator) -> tuple[Floats3d, Floats1d]:
    """Draw a learning curve from the prior, and texts with its scores. Returns the counts of the
    texts, and F of models with 1,000 and 2,000 texts."""
    all_n = numpy.asarray([*N_TEXTS, 1000.0, 2000.0])
    x = numpy.log2(all_n / all_n[0])
    covariance = kernel(x, x, prior) - kernel(x[:1], x[:1], prior)
    mean = rng.normal(0.5, 0.5) + prior.slope * x
    noise = prior.noise / (ENTITIES_PER_TEXT * all_n)
    log_odds = rng.multivariate_normal(mean, covariance + numpy.diag(noise))
    f = 1 / (1 + numpy.exp(-log_odds))
    # Each entity has a difficulty, and is right for all models whose F is above it.
    text_of_entity = rng.integers(N_NOW, size=int(ENTITIES_PER_TEXT * N_NOW))
    difficulty = rng.random(len(text_of_entity))
    n_entities = numpy.bincount(text_of_entity, minlength=N_NOW)
    tp = numpy.stack(
        [numpy.bincount(text_of_entity, difficulty < f_of_size, N_NOW) for f_of_size in f[:-2]]
    )
    counts = numpy.stack([tp, n_entities - tp, n_entities - tp], axis=-1)
    return counts, f[-2:]


def test_intervals_contain_what_is_simulated_as_often_as_they_say() -> None:
    rng = numpy.random.default_rng(0)
    n_covered = numpy.zeros(2)
    n_curves = 300
    for _ in range(n_curves):
        counts, f = simulate(PRIOR, rng)
        fitted = fit_curve(N_TEXTS, ScoreCounts.of_f(counts), ENTITIES_PER_TEXT)
        _, low, high = fitted.forecast(numpy.asarray([1000.0, 2000.0]))
        n_covered += (low <= f) & (f <= high)

    assert (n_covered / n_curves >= 0.86).all()
    assert (n_covered / n_curves <= 0.94).all()


def test_intervals_are_wider_with_the_distance_and_the_confidence() -> None:
    counts, _ = simulate(PRIOR, numpy.random.default_rng(1))
    fitted = fit_curve(N_TEXTS, ScoreCounts.of_f(counts), ENTITIES_PER_TEXT)

    _, low, high = fitted.forecast(numpy.asarray([500.0, 1000.0, 2000.0]))
    _, surer_low, surer_high = fitted.forecast(numpy.asarray([500.0]), confidence=0.99)

    widths = high - low
    assert widths[0] < widths[1] < widths[2] < surer_high[0] - surer_low[0] + widths[2]
    assert surer_low[0] < low[0] and surer_high[0] > high[0]


def test_texts_of_a_score_have_this_score() -> None:
    """From the score to the number of texts and back."""
    fitted = fit_curve(
        N_TEXTS, ScoreCounts.of_f(counts_of(0.3 * numpy.arange(4))), ENTITIES_PER_TEXT
    )
    n_texts = numpy.asarray([900.0])
    value, low, high = (float(bound[0]) for bound in fitted.forecast(n_texts))

    assert fitted.find_n_texts(value, N_NOW).value == pytest.approx(900, rel=0.02)
    assert fitted.find_n_texts(high, N_NOW).low == pytest.approx(900, rel=0.02)
    assert fitted.find_n_texts(low, N_NOW).high == pytest.approx(900, rel=0.02)


def test_the_expected_score_has_the_slope_of_the_prior() -> None:
    """F of the sessions in docs/no-annotation.md, after 100, 200 and 400 texts, from F alone."""
    sessions = [(57.4, 63.3, 68.0), (38.8, 45.1, 49.1), (80.9, 83.8, 85.9)]
    for first, second, third in sessions:
        assert 100 * expect_with_more(first / 100, 100, 100) == pytest.approx(second, abs=2.5)
        assert 100 * expect_with_more(second / 100, 200, 200) == pytest.approx(third, abs=2.5)
    assert [expect_with_more(score, 100, 100) for score in (0.0, 1.0)] == [0.0, 1.0]
    assert expect_with_more(0.5, 100, 0) == 0.5


def test_a_score_that_is_reached_takes_no_more_texts() -> None:
    fitted = fit_curve(
        N_TEXTS, ScoreCounts.of_f(counts_of(2 + 0.3 * numpy.arange(4))), ENTITIES_PER_TEXT
    )

    assert fitted.find_n_texts(0.3, N_NOW) == (N_NOW, N_NOW, N_NOW)


def test_a_score_that_the_curve_does_not_reach_takes_no_number_of_texts() -> None:
    flat = counts_of(numpy.zeros(4), n_entities=10**6)
    fitted = fit_curve(N_TEXTS, ScoreCounts.of_f(flat), entities_per_text=10**6)

    assert fitted.find_n_texts(0.95, N_NOW) == (None, None, None)
    assert fitted.forecast(numpy.asarray([float(MAX_TIMES * N_NOW)])).high[0] < 0.95
