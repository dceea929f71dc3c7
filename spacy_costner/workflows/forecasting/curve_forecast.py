"""Forecast a measured learning curve: F-score, precision and recall with more docs, and the number
of additional docs needed to reach an F-score."""

from collections.abc import Callable, Sequence
from math import ceil
from typing import NamedTuple

import numpy
from thinc.types import Floats1d, Floats3d

from ...metrics.learning_curves import CONFIDENCE, FittedCurve, ScoreCounts, fit_curve
from .learning_curve import LearningCurve

TIMES = (1, 2, 4)
"""The numbers of texts to forecast scores for, as multiples of the current number."""

MIN_TEXTS = 10
"""The minimum number of texts for a forecast. The experiments in benchmarks/forecast.py don't
include smaller corpora."""

MIN_ENTITIES = 100
"""The minimum number of entities for a forecast. In the same experiments, the intervals for labels
with 50 to 99 entities contained the true F-score too rarely."""

POINTS_OF_CURVE = 41
"""The number of points to plot for the fitted curve."""

STEP_OF_AIMS = 0.05
"""If no target F-score is given, the next two multiples of this value are used."""

SCORES: dict[str, Callable[[Floats3d], ScoreCounts]] = {
    "f": ScoreCounts.of_f,
    "precision": ScoreCounts.of_precision,
    "recall": ScoreCounts.of_recall,
}
"""The scores to measure and forecast."""


class Measured(NamedTuple):
    """The scores of models trained on a part of the texts, evaluated on held-out texts.

    docs (float): The number of training texts, averaged over folds.
    f (float), precision (float), recall (float): The scores.
    """

    docs: float
    f: float
    precision: float
    recall: float


class Interval(NamedTuple):
    """The forecast of a score and its interval."""

    value: float
    low: float
    high: float


class Expected(NamedTuple):
    """The forecast for a number of training texts.

    docs (int): The number of texts.
    f (Interval), precision (Interval), recall (Interval): The scores.
    """

    docs: int
    f: Interval
    precision: Interval
    recall: Interval


class Needed(NamedTuple):
    """The number of additional texts needed to reach an F-score. A number is None if more than 16
    times the current number of texts would be needed.

    f (float): The F-score.
    more (int | None): The number of additional texts.
    low (int | None), high (int | None): The bounds of the interval for this number.
    """

    f: float
    more: int | None
    low: int | None
    high: int | None


class LabelForecast(NamedTuple):
    """The learning curve of a label, or of all labels.

    label (str): The label, or "all" for all labels.
    entities (int): The number of annotated entities.
    measured (list[Measured]): The measured scores.
    expected (list[Expected]): The forecasts for 1, 2 and 4 times the current number of texts. Empty
        if there is no forecast.
    refusal (str): The reason why there is no forecast. Empty if there is a forecast.
    """

    label: str
    entities: int
    measured: list[Measured]
    expected: list[Expected]
    refusal: str


class CurvePoint(NamedTuple):
    """A point on the fitted F-score curve and its interval, for plotting."""

    docs: float
    f: float
    low: float
    high: float


class Forecast(NamedTuple):
    """The learning curve of a corpus, and its forecast.

    docs (int): The number of docs with distinct texts.
    entities (int): The number of annotated entities.
    labels (list[LabelForecast]): The forecast for all labels, followed by the forecast for each
        label, sorted by frequency.
    needed (list[Needed]): The number of additional texts needed for each target F-score. Empty if
        there is no forecast.
    curve (list[CurvePoint]): The fitted F-score curve. Empty if there is no forecast.
    confidence (float): The probability that an interval contains the score.
    notes (list[str]): Notes about copies and omitted docs.
    """

    docs: int
    entities: int
    labels: list[LabelForecast]
    needed: list[Needed]
    curve: list[CurvePoint]
    confidence: float
    notes: list[str]

    @property
    def overall(self) -> LabelForecast:
        """The learning curve of all labels."""
        return self.labels[0]


def forecast_curve(
    curve: LearningCurve,
    *,
    aims: Sequence[float] = (),
    confidence: float = CONFIDENCE,
    notes: Sequence[str] = (),
) -> Forecast:
    """Forecast a measured learning curve.

    curve (LearningCurve): The measured curve.
    aims (Sequence[float]): The target F-scores. If empty, see `next_aims`.
    confidence (float): The probability that an interval contains the score.
    notes (Sequence[str]): Notes to include in the result.
    RETURNS (Forecast): The forecast.
    """
    counts = curve.of_all_labels()
    overall = forecast_label("all", curve.n_texts, counts, confidence)
    by_label: list[LabelForecast] = []
    for label in curve.labels:
        by_label.append(forecast_label(label, curve.n_texts, curve.of_label(label), confidence))
    by_label.sort(key=lambda of_label: -of_label.entities)
    needed: list[Needed] = []
    points: list[CurvePoint] = []
    if overall.expected:
        fitted = fit_score(curve.n_texts, counts, ScoreCounts.of_f)
        f_now = overall.expected[0].f.value
        for aim in aims or next_aims(f_now):
            needed.append(find_needed(fitted, aim, curve.n_docs, confidence))
        points = draw_curve(fitted, curve.n_docs, confidence)
    return Forecast(
        docs=curve.n_docs,
        entities=overall.entities,
        labels=[overall, *by_label],
        needed=needed,
        curve=points,
        confidence=confidence,
        notes=list(notes),
    )


def forecast_label(
    label: str, n_texts: Floats1d, counts: Floats3d, confidence: float
) -> LabelForecast:
    """Forecast the scores of a label, or of all labels.

    label (str): The name of the label in the result.
    n_texts (Floats1d): The numbers of training texts. Shape: (P,)
    counts (Floats3d): The counts tp, fp and fn of each text. Shape: (P, U, 3)
    confidence (float): The probability that an interval contains the score.
    RETURNS (LabelForecast): The measured scores and, unless the corpus is too small, the forecasts.
    """
    n_docs = counts.shape[1]
    n_entities = count_annotated(counts)
    # Compute all scores, and combine them into one row per number of texts.
    scores = [of_score(counts).scores() for of_score in SCORES.values()]
    measured = [Measured(*row) for row in zip(n_texts.tolist(), *numpy.stack(scores).tolist())]
    refusal = refuse(n_docs, n_entities)
    expected: list[Expected] = []
    if not refusal:
        numbers = n_docs * numpy.asarray(TIMES)
        intervals: list[list[Interval]] = []
        for of_score in SCORES.values():
            fitted = fit_score(n_texts, counts, of_score)
            forecasts = fitted.forecast(numbers, confidence=confidence)
            intervals.append([Interval(*row) for row in numpy.transpose(forecasts).tolist()])
        expected = [Expected(*row) for row in zip(numbers.tolist(), *intervals)]
    return LabelForecast(label, n_entities, measured, expected, refusal)


def refuse(n_docs: int, n_entities: int) -> str:
    """Return the reason why there is no forecast for these numbers of docs and entities, or an
    empty string."""
    if n_docs < MIN_TEXTS:
        return f"{n_docs:,} docs with different texts: a forecast takes {MIN_TEXTS:,}"
    if n_entities < MIN_ENTITIES:
        return f"{n_entities:,} entities: a forecast takes {MIN_ENTITIES:,}"
    return ""


def count_annotated(counts: Floats3d) -> int:
    """Return the number of annotated entities: true positives and false negatives. Shape of the
    counts: (P, U, 3)"""
    tp, _, fn = counts[-1].sum(axis=0)
    return round(tp + fn)


def fit_score(
    n_texts: Floats1d, counts: Floats3d, of_score: Callable[[Floats3d], ScoreCounts]
) -> FittedCurve:
    """Fit the curve of a score. See `SCORES`. Shapes of texts and counts: (P,) and (P, U, 3)"""
    entities_per_text = count_annotated(counts) / counts.shape[1]
    return fit_curve(n_texts, of_score(counts), entities_per_text)


def next_aims(f: float) -> list[float]:
    """Return the next two multiples of `STEP_OF_AIMS` above an F-score, if they are below 1."""
    n_steps = int(f / STEP_OF_AIMS)
    aims = [STEP_OF_AIMS * (n_steps + 1), STEP_OF_AIMS * (n_steps + 2)]
    return [round(aim, 2) for aim in aims if aim < 1]


def find_needed(fitted: FittedCurve, f: float, n_docs: int, confidence: float) -> Needed:
    """Compute the number of additional docs needed to reach an F-score."""
    more: list[int | None] = []
    for n_texts in fitted.find_n_texts(f, n_docs, confidence=confidence):
        more.append(None if n_texts is None else ceil(n_texts - n_docs))
    return Needed(f, *more)


def draw_curve(fitted: FittedCurve, n_docs: int, confidence: float) -> list[CurvePoint]:
    """Return the points of a fitted curve, from the lowest measured to the highest forecast number
    of docs."""
    n_texts = numpy.geomspace(fitted.n_texts[0], max(TIMES) * n_docs, POINTS_OF_CURVE)
    forecasts = fitted.forecast(n_texts, confidence=confidence)
    return [CurvePoint(*row) for row in numpy.transpose([n_texts, *forecasts]).tolist()]
