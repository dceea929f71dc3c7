"""Calibrate confidences by a temperature, fitted on development docs."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Array1d, Floats1d, Floats2d
from thinc.util import to_numpy

from ..decoding import Posterior, Temperature, make_viterbi
from ..metrics.calibration import calibration_error, reliability
from ..pipeline.component import CostSensitiveNER
from ..pipeline.reading import find_reading
from ..tags import Entities
from ..types import map_scores
from .fitness import find_faults
from .predictions import (
    DevPredictions,
    get_component,
    predict_dev,
    record_scores,
    turn_on_confidence,
)

MOST_STEPS = 200
"""The most steps of a minimisation."""

PRECISION = 1e-4
"""The gradient at which it ends, in nats for a unit of the logarithm of a temperature."""

HOTTEST = float(numpy.log(100))
"""The highest logarithm of a temperature, as where all predictions are wrong; where all are correct
it ends at the lowest, minus this."""

LEAST_LIKELIHOOD = 1e-12
"""Lower ones count as this, as their logarithm may be infinite."""

Predicted = tuple[Posterior, Entities, Array1d]
"""A posterior, entities, and which of them are correct. Shape: (E,)"""


class Calibration(NamedTuple):
    """The result of a calibration."""

    temperature: Temperature
    error_before: float  # expected calibration error
    error: float
    log_loss_before: float  # of a predicted entity, in nats: what the temperature minimises
    log_loss: float
    reliability: list[dict[str, Any]]  # see `metrics.calibration.reliability`
    notes: Sequence[str] = ()  # what may make it misleading

    def describe(self) -> str:
        """The temperature, and the calibration error before and with it. Where it rises, the log
        loss says that confidences are better nevertheless."""
        errors = f"expected calibration error {self.error_before:.4f} -> {self.error:.4f}"
        if self.error > self.error_before:
            errors += (
                f"\nThe temperature minimises the log loss: {self.log_loss_before:.4f} -> "
                f"{self.log_loss:.4f}. The calibration error of few entities varies by chance."
            )
        line = f"temperature {self.temperature.overall:.3f}: {errors}"
        return "\n".join([line, *(f"note: {note}" for note in self.notes)])


def calibrate(
    nlp: Language,
    examples: Iterable[Example],
    *,
    name: str = "ner",
    per_label: bool = False,
    file_tokens: bool = False,
    source: str = "development docs",
) -> Calibration:
    """Fit the temperature of a component on development docs, and set it. Its confidences are on
    from then on.

    nlp (Language): The trained pipeline. Its weights and the predictions of Viterbi decoding
        don't change. Its config and the scores in its meta are updated.
    examples (Iterable[Example]): The docs. They should not be training docs.
    file_tokens (bool): Whether the docs were read with the tokens and sentence starts of their
        file. That is kept with the pipeline: `watch` reads in the same way.
    source (str): The name of the docs in the meta: see `record_scores`.
    name (str): Name of the component.
    per_label (bool): Fit a temperature for each label.
    RETURNS (Calibration): The temperature, and the calibration error before and after.
    RAISES (ValueError): If there is no such component, or no entity is predicted.
    """
    ner, examples = get_component(nlp, name), list(examples)
    faults = find_faults(nlp, ner, examples, source)
    dev = predict_dev(nlp, ner, examples)
    ner.set_reading(find_reading(nlp, name, examples, file_tokens=file_tokens))
    calibration = calibrate_on([dev], nlp, ner, source, per_label=per_label)
    record_scores(nlp, nlp.evaluate(examples), source, len(examples))
    return calibration._replace(notes=[*faults, *calibration.notes])


def calibrate_on(
    devs: Sequence[DevPredictions],
    nlp: Language,
    ner: CostSensitiveNER,
    source: str,
    *,
    per_label: bool = False,
) -> Calibration:
    """Fit the temperature of a component on the predictions of one model or of several, and set
    it, with the scores for `watch`: see `calibrate`."""
    predicted = [predict_best(dev) for dev in devs]
    correct = numpy.concatenate([correct for _, _, correct in predicted])
    if not len(correct):
        raise ValueError(f"{ner.name}: expected predicted entities to calibrate, got none")
    temperature = fit_temperature(predicted, per_label=per_label)
    ner.drop_guarantee("another temperature")
    ner.cfg["temperature"] = temperature._asdict()
    turn_on_confidence(nlp, ner)
    docs: list[Doc] = []
    for dev in devs:
        docs += [eg.reference for eg in dev.examples]
    entropies = numpy.concatenate([dev.with_temperature(temperature).entropies() for dev in devs])
    ner.set_shift(docs, entropies, source, approximate=True)

    probs = [
        (p.entity_probs(e), p.with_temperature(temperature).entity_probs(e))
        for p, e, _ in predicted
    ]
    before, after = (numpy.concatenate(columns) for columns in zip(*probs))
    error_before, error = (calibration_error(each, correct) for each in (before, after))
    return Calibration(
        temperature,
        error_before,
        error,
        mean_log_loss(before, correct),
        mean_log_loss(after, correct),
        reliability(after, correct),
        find_extremes(temperature),
    )


def mean_log_loss(probs: Floats1d, correct: Array1d) -> float:
    """The mean log loss of predicted entities, in nats. Shapes: (E,), (E,)"""
    likelihood = numpy.where(correct, probs, 1 - probs.astype("float64"))
    return -float(numpy.log(numpy.maximum(likelihood, LEAST_LIKELIHOOD)).mean())


def find_extremes(temperature: Temperature) -> list[str]:
    """Names the temperatures at the edge of their range, where the docs determine none."""
    values = {"temperature": temperature.overall}
    for label, value in temperature.labels.items():
        values[f"temperature of {label}"] = value
    notes = []
    for name, value in values.items():
        if abs(numpy.log(value)) > HOTTEST - PRECISION:
            notes.append(
                f"the {name}, {value:.3g}, is at the edge of its range: the predictions on these "
                "docs are all correct, or all wrong"
            )
    return notes


def predict_best(dev: DevPredictions) -> Predicted:
    """The entities of the best paths, and whether they are annotated."""
    entities = dev.decode(make_viterbi())
    return dev.posterior, entities, dev.is_correct(entities)


def fit_temperature(predicted: Sequence[Predicted], *, per_label: bool) -> Temperature:
    """Find the temperature with the lowest log loss on predicted entities, of posteriors with the
    same labels. The temperature of each label is regularised towards the overall one.

    min_T  - sum_{e correct} log p_T(e) - sum_{e wrong} log(1 - p_T(e)) + sum_l log(T_l / T)^2
    """
    labels = predicted[0][0].tags.labels
    # In float64: differences of the loss near its minimum are below the precision of float32.
    exact = [(in_float64(posterior), *answers) for posterior, *answers in predicted]

    def evaluate(logs: Floats1d) -> tuple[float, Floats1d]:
        temperature = make_temperature(logs, labels)
        parts = [
            find_loss(posterior.with_temperature(temperature), *answers)
            for posterior, *answers in exact
        ]
        loss = sum(value for value, _ in parts)
        slopes = numpy.sum([slopes for _, slopes in parts], axis=0)
        if len(logs) == 1:
            return loss, slopes.sum(keepdims=True)
        apart = logs[1:] - logs[0]
        return loss + float(apart @ apart), slopes + 2 * numpy.append(-apart.sum(), apart)

    logs = minimise(evaluate, numpy.zeros(1))
    if per_label:
        logs = minimise(evaluate, numpy.repeat(logs, len(labels) + 1))
    return make_temperature(logs, labels)


def in_float64(posterior: Posterior) -> Posterior:
    """The same posterior, with scores in float64."""
    scores = map_scores(lambda array: to_numpy(array).astype("float64"), posterior.scores)
    return replace(posterior, scores=scores)


def make_temperature(logs: Floats1d, labels: Sequence[str]) -> Temperature:
    """A temperature from its logarithm, or from the overall one and those of the labels."""
    overall, *of_labels = numpy.exp(logs).tolist()
    return Temperature(overall, dict(zip(labels, of_labels)))


def find_loss(
    posterior: Posterior, predicted: Entities, correct: Array1d
) -> tuple[float, Floats1d]:
    """The log loss, and its derivative with respect to the logarithm of each temperature: the
    overall one, then the labels' own. Shape: (1 + labels,)

    d loss / d log T = - sum over scores s of  d loss / d (s / T)  s / T
    """
    log_probs, which, backprop = posterior.entity_log_probs(predicted)
    probs = numpy.exp(log_probs)
    p = numpy.bincount(which, probs, minlength=len(correct))
    likelihood = numpy.maximum(numpy.where(correct, p, 1 - p), LEAST_LIKELIHOOD)
    d_p = numpy.where(correct, -1, 1) / likelihood
    gradient = backprop(d_p[which] * probs)
    products = [
        numpy.where(numpy.isfinite(scores), scores, 0).astype("float64") * slopes
        for scores, slopes in zip(posterior.potentials[:4], gradient[:4])
    ]
    of_tags, label_of = products[0].sum(axis=0), posterior.tags.label_of + 1
    slopes = numpy.bincount(label_of, of_tags, minlength=len(posterior.tags.labels) + 1)
    slopes[0] += sum(product.sum() for product in products[1:])
    return -float(numpy.log(likelihood).sum()), -slopes


def minimise(evaluate: Callable[[Floats1d], tuple[float, Floats1d]], start: Floats1d) -> Floats1d:
    """Minimise a smooth function of few numbers between -`HOTTEST` and `HOTTEST`, from its value
    and gradient, by BFGS with backtracking. Numbers at a limit stay there while the gradient keeps
    them. Warns if the gradient of the others isn't below `PRECISION` at the end.

    Nocedal & Wright (2006): Numerical Optimization, algorithms 3.1 and 6.1.
    """
    place = start
    value, slope = evaluate(place)
    inverse = numpy.eye(len(place))  # of the Hessian, as far as it is known
    is_free = numpy.ones(len(place), dtype=bool)
    for _ in range(MOST_STEPS):
        before = is_free
        is_kept = ((place <= -HOTTEST) & (slope > 0)) | ((place >= HOTTEST) & (slope < 0))
        is_free = ~is_kept
        if not (numpy.abs(slope[is_free]) >= PRECISION).any():
            return place
        if (is_free != before).any():
            inverse = numpy.eye(len(place))
        direction = numpy.where(is_free, -inverse @ numpy.where(is_free, slope, 0), 0)
        # At most a factor of e at once, as the loss is far from a parabola.
        direction /= max(1.0, float(numpy.abs(direction).max()))
        found = search_line(evaluate, place, value, slope, direction)
        if found is None:
            if (inverse == numpy.eye(len(place))).all():
                break
            inverse = numpy.eye(len(place))
            continue
        after, value, slope_after = found
        inverse = update_inverse(inverse, after - place, slope_after - slope)
        place, slope = after, slope_after
    steepest = float(numpy.abs(slope[is_free]).max())
    warnings.warn(
        f"temperature: expected a gradient below {PRECISION:g} nat, got {steepest:.2g} after at "
        f"most {MOST_STEPS} steps: the temperature may not be the best one",
        stacklevel=2,
    )
    return place


def search_line(
    evaluate: Callable[[Floats1d], tuple[float, Floats1d]],
    place: Floats1d,
    value: float,
    slope: Floats1d,
    direction: Floats1d,
) -> tuple[Floats1d, float, Floats1d] | None:
    """The first place along a direction, halved each time, that is low enough, with its value and
    gradient; None if there is none."""
    for halvings in range(40):
        after = numpy.clip(place + 0.5**halvings * direction, -HOTTEST, HOTTEST)
        value_after, slope_after = evaluate(after)
        if value_after <= value + 1e-4 * float(slope @ (after - place)):
            return after, value_after, slope_after
    return None


def update_inverse(inverse: Floats2d, step: Floats1d, change: Floats1d) -> Floats2d:
    """Update the inverse of the Hessian by a step and the change of the gradient along it.
    Nocedal & Wright (2006), eq. 6.17. Shapes: (P, P), (P,), (P,)"""
    curvature = float(step @ change)
    if curvature <= 1e-12:
        return inverse
    left = numpy.eye(len(step)) - numpy.outer(step, change) / curvature
    return left @ inverse @ left.T + numpy.outer(step, step) / curvature
