"""Calibration: a temperature at which confidences mean what they say, from development docs."""

from typing import Any, Dict, Iterable, List, NamedTuple, Tuple

import numpy
from spacy.language import Language
from spacy.training import Example
from thinc.types import Array1d, Floats1d

from ..decoding import Posterior, Temperature, make_viterbi
from ..metrics.calibration import calibration_error, reliability
from ..tags import Entities
from .dev_predictions import get_component, predict_dev

MOST_STEPS = 60
PRECISION = 1e-3
"""Of the logarithm of a temperature."""

HOTTEST = numpy.log(100)
"""A label that is always right, or never, would have no limit."""


class Calibration(NamedTuple):
    """What came of a calibration.

    temperature (Temperature): The temperature.
    error_before (float): The expected calibration error of the answers with the temperature
        that the component had.
    error (float): The same with this one.
    reliability (List[Dict[str, Any]]): Confidence and precision now: see `reliability`.
    """

    temperature: Temperature
    error_before: float
    error: float
    reliability: List[Dict[str, Any]]


def calibrate(
    nlp: Language, examples: Iterable[Example], *, name: str = "ner", per_label: bool = False
) -> Calibration:
    """Fit the temperature of a component to development docs, and set it.

    nlp (Language): The trained pipeline. What it answers with its best paths stays the same,
        as do its weights.
    examples (Iterable[Example]): The docs. They should not be those it was trained on.
    name (str): The name of the component.
    per_label (bool): Whether each label gets a temperature of its own.
    RETURNS (Calibration): The temperature, and what it is good for.
    RAISES (ValueError): If there is no such component, or no entity to learn from.
    """
    development = predict_dev(nlp, name, examples)
    before = development.posterior
    predicted = development.answer(make_viterbi())
    if not len(predicted.begin):
        raise ValueError(f"{name}: expected answers to calibrate, found no entity")
    right = development.right(predicted)
    temperature = fit(before, predicted, right, per_label=per_label)
    get_component(nlp, name).cfg["temperature"] = temperature._asdict()
    probs = _at(before, temperature).entity_probs(predicted)
    return Calibration(
        temperature=temperature,
        error_before=calibration_error(before.entity_probs(predicted), right),
        error=calibration_error(probs, right),
        reliability=reliability(probs, right),
    )


def fit(
    posterior: Posterior, predicted: Entities, right: Array1d, *, per_label: bool
) -> Temperature:
    """Find the temperature at which whether entities are right surprises least.

        min_T  - sum_{e right} log p_T(e) - sum_{e wrong} log(1 - p_T(e))

    over the entities predicted. Each label is held to the overall temperature as if one more
    entity said that it has it.

    posterior (Posterior): The scores.
    predicted (Entities): The entities.
    right (Array1d): True for those that are right. Shape: (E,)
    per_label (bool): Whether each label gets a temperature of its own.
    RETURNS (Temperature): The temperature.
    """
    labels = posterior.tags.labels

    def of_overall(logs: Floats1d) -> Floats1d:
        slopes = _slopes(_at(posterior, _temperature(logs, ())), predicted, right)
        return slopes.sum(keepdims=True)

    overall = _minimise(of_overall, numpy.zeros(1))
    if not per_label:
        return _temperature(overall, ())

    def of_labels(logs: Floats1d) -> Floats1d:
        slopes = _slopes(_at(posterior, _temperature(logs, labels)), predicted, right)
        apart = logs[1:] - logs[0]
        return slopes + 2 * numpy.append(-apart.sum(), apart)

    return _temperature(_minimise(of_labels, numpy.repeat(overall, len(labels) + 1)), labels)


def _temperature(logs: Floats1d, labels: Tuple[str, ...]) -> Temperature:
    overall, *of_labels = numpy.exp(logs).tolist()
    return Temperature(overall, dict(zip(labels, of_labels)))


def _at(posterior: Posterior, temperature: Temperature) -> Posterior:
    return Posterior(
        posterior.scores, posterior.tags, temperature=temperature, is_space=posterior.is_space
    )


def _slopes(posterior: Posterior, predicted: Entities, right: Array1d) -> Floats1d:
    """The derivative of the loss with respect to the logarithm of each temperature: the
    overall one, then those of the labels. Shape: (1 + labels,)

        d loss / d log T = - sum over scores s of  d loss / d (s / T)  s / T
    """
    log_ways, which, backprop = posterior.entity_log_probs(predicted)
    ways = numpy.exp(log_ways)
    p = numpy.clip(numpy.bincount(which, ways, minlength=len(right)), 1e-12, 1 - 1e-7)
    d_p = numpy.where(right, -1 / p, 1 / (1 - p))
    gradient = backprop(d_p[which] * ways)
    products = [
        numpy.where(numpy.isfinite(scores), scores, 0).astype("float64") * slopes
        for scores, slopes in zip(posterior.potentials[:4], gradient[:4])
    ]
    of_tags, label_of = products[0].sum(axis=0), posterior.tags.label_of + 1
    slopes = numpy.bincount(label_of, of_tags, minlength=len(posterior.tags.labels) + 1)
    slopes[0] += sum(product.sum() for product in products[1:])
    return -slopes


def _minimise(slope: Any, start: Floats1d) -> Floats1d:
    """Walk downhill, each coordinate by steps of its own: longer while the slope keeps its
    sign, half as long the other way when it turns.

    slope (Callable[[Floats1d], Floats1d]): The gradient.
    start (Floats1d): Where to begin.
    RETURNS (Floats1d): Where the steps have become too short to matter.

    Riedmiller & Braun, 1993, "A Direct Adaptive Method for Faster Backpropagation Learning:
    The RPROP Algorithm".
    """
    place, steps, before = start.copy(), numpy.full(len(start), 0.5), numpy.zeros(len(start))
    for _ in range(MOST_STEPS):
        sign = numpy.sign(slope(place))
        steps *= numpy.where(sign * before < 0, 0.5, numpy.where(sign * before > 0, 1.2, 1.0))
        if steps.max() < PRECISION:
            break
        place = numpy.clip(place - sign * steps, -HOTTEST, HOTTEST)
        before = sign
    return place
