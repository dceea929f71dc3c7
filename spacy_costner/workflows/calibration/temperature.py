"""Calibrate confidences with a temperature fitted on development docs.

Scores are divided by the temperature before they are converted to probabilities. The best
temperature minimises the log loss of the predicted entities, so that correct entities get high
probabilities and wrong entities get low ones. There is one overall temperature and, optionally, a
separate temperature for each label. The logarithms of the temperatures are optimised with L-BFGS.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Array1d, Floats1d
from thinc.util import to_numpy

from ...decoding import Posterior, Temperature, make_viterbi
from ...metrics.calibration import calibration_error, reliability
from ...pipeline.component import CostSensitiveNER
from ...pipeline.reading import find_reading
from ...progress import phase
from ...tags import Entities
from ...training.lbfgs import Iterate, Step, descent_direction, remember_step, search_line
from ...types import Potentials, map_scores
from ..components import get_component
from ..evaluation.predictions import (
    DevPredictions,
    evaluate_dev,
    note_misaligned,
    predict_dev,
    record_scores,
    turn_on_confidence,
)
from ..evaluation.valid_data import find_faults

MAX_STEPS = 200
"""The maximum number of minimisation steps."""

PRECISION = 1e-4
"""Minimisation ends when the absolute value of every derivative is smaller than this, in nats per
unit of log temperature."""

MAX_LOG = float(numpy.log(100))
"""The maximum logarithm of a temperature. The minimum is -MAX_LOG. Without bounds, the best
temperature would be infinite if all predictions were wrong, and 0 if all were correct."""

MIN_LIKELIHOOD = 1e-12
"""Likelihoods are clipped to this minimum, because the logarithm of 0 is infinite."""


class Calibration(NamedTuple):
    """The result of a calibration.

    temperature (Temperature): The new temperature.
    error_before (float): The expected calibration error with the old temperature.
    error (float): The expected calibration error with the new temperature.
    log_loss_before (float): The mean log loss of predicted entities with the old temperature, in
        nats.
    log_loss (float): The mean log loss with the new temperature, which minimises it.
    reliability (list[dict[str, Any]]): The reliability diagram: see
        `metrics.calibration.reliability`.
    notes (Sequence[str]): Reasons why the result may be misleading.
    """

    temperature: Temperature
    error_before: float
    error: float
    log_loss_before: float
    log_loss: float
    reliability: list[dict[str, Any]]
    notes: Sequence[str] = ()

    def as_text(self) -> str:
        """Describe the temperature and the change in calibration error. If the error increases,
        also report the change in log loss, which is the quantity that was minimised."""
        lines = [
            f"temperature {self.temperature.overall:.3f}: expected calibration error "
            f"{self.error_before:.4f} -> {self.error:.4f}"
        ]
        if self.error > self.error_before:
            lines.append(
                f"The temperature minimises the log loss: {self.log_loss_before:.4f} -> "
                f"{self.log_loss:.4f}. The calibration error of few entities varies by chance."
            )
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


class JudgedEntities(NamedTuple):
    """The entities predicted by a model, and whether they are correct.

    posterior (Posterior): The posterior of the docs.
    entities (Entities): The E predicted entities.
    is_correct (Array1d): Whether each predicted entity matches an annotated entity. Shape: (E,)
    """

    posterior: Posterior
    entities: Entities
    is_correct: Array1d


def calibrate(
    nlp: Language,
    examples: Iterable[Example],
    *,
    name: str = "ner",
    per_label: bool = False,
    file_tokens: bool = False,
    source: str = "development docs",
) -> Calibration:
    """Fit the temperature of a component on development docs. Afterwards, the component divides its
    scores by this temperature and writes the confidences of its entities. Any guarantee of the
    component is dropped with a warning.

    nlp (Language): The trained pipeline. Its weights and the predictions of Viterbi decoding don't
        change. Its config and the scores in its meta are updated.
    examples (Iterable[Example]): Annotated development docs. They should not be training docs.
    name (str): Name of the component.
    per_label (bool): Fit a temperature for each label.
    file_tokens (bool): Whether the docs were read with the tokens and sentence starts of the file.
        Saved with the pipeline, so that `watch` reads docs in the same way.
    source (str): The name of the docs in the meta: see `record_scores`.
    RETURNS (Calibration): The temperature, and the calibration error before and after.
    RAISES (ValueError): If the component is missing, the docs have no annotation or none of its
        labels, or no entity is predicted.
    """
    ner = get_component(nlp, name)
    examples = list(examples)
    faults = find_faults(nlp, ner, examples, source)
    predictions = predict_dev(nlp, ner, examples)
    # Record how these docs were read, so that `watch` reads docs in the same way.
    docs = [eg.predicted for eg in predictions.originals]
    reading = find_reading(nlp, name, examples, docs, file_tokens=file_tokens)
    ner.set_reading(reading, nlp.tokenizer)
    # All docs were predicted by the same model, so there is a single set of predictions.
    calibration = calibrate_on([predictions], nlp, ner, source, per_label=per_label)
    tempered = predictions.with_temperature(calibration.temperature)
    scores = evaluate_dev(nlp, ner, tempered)
    record_scores(nlp, scores, source, len(examples))
    return calibration._replace(notes=[*faults, *calibration.notes])


@phase("calibrate")
def calibrate_on(
    predictions: Sequence[DevPredictions],
    nlp: Language,
    ner: CostSensitiveNER,
    source: str,
    *,
    per_label: bool = False,
) -> Calibration:
    """Fit the temperature of a component on existing predictions, and update the component. Any
    guarantee of the component is dropped. The scores of the docs are saved, so that `watch` can
    compare other docs with them.

    predictions (Sequence[DevPredictions]): The predictions of one model for all docs, or the
        predictions of each fold's model for the docs in that fold.
    nlp (Language): The pipeline of the component.
    ner (CostSensitiveNER): The component to calibrate.
    source (str): The name of the docs, saved with the component.
    per_label (bool): Whether to fit a temperature for each label.
    RETURNS (Calibration): The temperature, and the calibration error before and after.
    RAISES (ValueError): If no entity is predicted.
    """
    # The entities in each set of predictions, and whether they are correct
    judged_sets = [predict_best(dev) for dev in predictions]
    is_correct = numpy.concatenate([judged.is_correct for judged in judged_sets])
    if not len(is_correct):
        raise ValueError(f"{ner.name}: expected predicted entities to calibrate, got none")
    temperature = fit_temperature(judged_sets, per_label=per_label)
    ner.drop_guarantee("another temperature")
    ner.cfg["temperature"] = temperature._asdict()
    key_notes = turn_on_confidence(nlp, ner)

    docs: list[Doc] = []
    entropies_of_sets: list[Floats1d] = []
    probs_before_of_sets: list[Floats1d] = []
    probs_of_sets: list[Floats1d] = []
    for dev, judged in zip(predictions, judged_sets):
        # Compute the probabilities of the same entities at the new temperature.
        tempered = dev.with_temperature(temperature)
        docs += [eg.reference for eg in dev.examples]
        entropies_of_sets.append(tempered.entropies())
        probs_before_of_sets.append(dev.posterior.entity_probs(judged.entities))
        probs_of_sets.append(tempered.posterior.entity_probs(judged.entities))
    # The scores are approximate: the temperature was fitted on these docs, so it fits them better
    # than other docs.
    ner.set_shift(docs, numpy.concatenate(entropies_of_sets), source, approximate=True)
    probs_before = numpy.concatenate(probs_before_of_sets)
    probs = numpy.concatenate(probs_of_sets)
    return Calibration(
        temperature,
        error_before=calibration_error(probs_before, is_correct),
        error=calibration_error(probs, is_correct),
        log_loss_before=mean_log_loss(probs_before, is_correct),
        log_loss=mean_log_loss(probs, is_correct),
        reliability=reliability(probs, is_correct),
        notes=[*note_misaligned(predictions), *find_extremes(temperature), *key_notes],
    )


def mean_log_loss(probs: Floats1d, is_correct: Array1d) -> float:
    """Compute the mean log loss of predicted entities, in nats. Shapes: (E,)"""
    # The likelihood of the actual outcome: the entity is correct or wrong
    likelihood = numpy.where(is_correct, probs, 1 - probs)
    log_likelihood = numpy.log(numpy.maximum(likelihood, MIN_LIKELIHOOD))
    return -float(log_likelihood.mean())


def find_extremes(temperature: Temperature) -> list[str]:
    """Create a note for each temperature at the edge of its range. The best value of these
    temperatures can't be determined from the docs."""
    value_of_name = {"temperature": temperature.overall}
    for label, value in temperature.labels.items():
        value_of_name[f"temperature of {label}"] = value
    notes = []
    for name, value in value_of_name.items():
        # Use `isclose` because of rounding errors in the logarithm.
        if numpy.isclose(abs(numpy.log(value)), MAX_LOG):
            notes.append(
                f"the {name}, {value:.3g}, is at the edge of its range: the predictions on these "
                "docs are all correct, or all wrong"
            )
    return notes


def predict_best(dev: DevPredictions) -> JudgedEntities:
    """Decode the best path of each doc, and check which of its entities are annotated. The entities
    are the same at every temperature, because Viterbi decoding uses the scores before they are
    divided by the temperature.

    dev (DevPredictions): The docs with their posterior.
    RETURNS (JudgedEntities): The predicted entities and their correctness.
    """
    entities = dev.decode(make_viterbi())
    return JudgedEntities(dev.posterior, entities, dev.is_correct(entities))


def fit_temperature(judged_sets: Sequence[JudgedEntities], *, per_label: bool) -> Temperature:
    """Find the temperature that minimises the log loss of predicted entities. A penalty keeps the
    temperature T_l of each label close to the overall temperature T:

        min_T  - sum_{e correct} log p_T(e) - sum_{e wrong} log(1 - p_T(e)) + sum_l log(T_l / T)^2

    judged_sets (Sequence[JudgedEntities]): The predicted entities of each model. All models have
        the same labels.
    per_label (bool): Whether to fit a temperature for each label.
    RETURNS (Temperature): The overall temperature and, with `per_label`, the temperature of each
        label.
    """
    labels = judged_sets[0].posterior.tags.labels
    # Near the minimum, differences in the loss are too small for float32.
    exact_sets: list[JudgedEntities] = []
    for judged in judged_sets:
        exact_sets.append(judged._replace(posterior=in_float64(judged.posterior)))

    def evaluate(logs: Floats1d) -> tuple[float, Floats1d]:
        """Compute the objective and its gradient for the logarithms of the temperatures: only log
        T, or log T, log T_1, ..., log T_L. Shape: (1,) or (1 + L,)"""
        temperature = make_temperature(logs, labels)
        loss = 0.0
        gradient = numpy.zeros(len(labels) + 1)
        for judged in exact_sets:
            tempered = judged._replace(posterior=judged.posterior.with_temperature(temperature))
            loss_of_set, gradient_of_set = find_loss(tempered)
            loss += loss_of_set
            gradient += gradient_of_set
        if len(logs) == 1:
            # All labels share the overall temperature, so its derivative is the sum of all
            # derivatives.
            return loss, gradient.sum(keepdims=True)
        # Add the penalty and its gradient. log(T_l / T) is a difference of logarithms.
        difference = logs[1:] - logs[0]
        loss += float(difference @ difference)
        gradient[0] -= 2 * difference.sum()
        gradient[1:] += 2 * difference
        return loss, gradient

    logs = minimise_within_limits(evaluate, start=numpy.zeros(1))  # start from T = 1
    if per_label:
        # Start from the best overall temperature for each label.
        logs = minimise_within_limits(evaluate, start=numpy.repeat(logs, len(labels) + 1))
    return make_temperature(logs, labels)


def in_float64(posterior: Posterior) -> Posterior:
    """Convert the scores of a posterior to float64 arrays in CPU memory."""
    scores = map_scores(lambda array: to_numpy(array).astype("float64"), posterior.scores)
    return replace(posterior, scores=scores)


def make_temperature(logs: Floats1d, labels: Sequence[str]) -> Temperature:
    """Create a temperature from the logarithm of the overall temperature, optionally followed by
    the logarithm for each label. Shape: (1,) or (1 + labels,)"""
    overall, *by_label = numpy.exp(logs).tolist()
    return Temperature(overall, dict(zip(labels, by_label)))


def find_loss(judged: JudgedEntities) -> tuple[float, Floats1d]:
    """Compute the log loss of predicted entities, and its derivatives with respect to the
    logarithms of the temperatures.

        d loss / d log T = - sum_s (s / T) d loss / d (s / T)

    The sum runs over all scores s with temperature T. The potentials of the posterior are already
    divided by the temperature, so they equal s / T. The first derivative is for the overall
    temperature. Shape: (1 + labels,)"""
    posterior, entities, is_correct = judged
    # An entity can correspond to several spans in a path, with or without trailing whitespace. The
    # probability of the entity is the sum of the probabilities of these spans. Shapes: (S,)
    log_probs, entity_of_span, backprop = posterior.entity_log_probs(entities)
    span_probs = numpy.exp(log_probs)
    probs = numpy.bincount(entity_of_span, weights=span_probs, minlength=len(is_correct))
    likelihood = numpy.maximum(numpy.where(is_correct, probs, 1 - probs), MIN_LIKELIHOOD)
    # The loss is -log p for a correct entity and -log(1 - p) for a wrong one.
    d_probs = numpy.where(is_correct, -1, 1) / likelihood
    d_log_probs = d_probs[entity_of_span] * span_probs
    d_potentials = backprop(d_log_probs)

    loss = -float(numpy.log(likelihood).sum())
    return loss, derivatives_of_logs(posterior, d_potentials)


def derivatives_of_logs(posterior: Posterior, d_potentials: Potentials) -> Floats1d:
    """Convert derivatives with respect to the potentials to derivatives with respect to the
    logarithms of the temperatures: see `find_loss`. Shape: (1 + labels,)"""
    tags = posterior.tags
    # Multiply each score by its derivative. Forbidden transitions have a score of -inf and a
    # derivative of 0, so their product is set to 0.
    products = []
    for name in ("emissions", "transitions", "start", "end"):
        scores = getattr(posterior.potentials, name)
        finite_scores = numpy.where(numpy.isfinite(scores), scores, 0).astype("float64")
        products.append(finite_scores * getattr(d_potentials, name))
    emission_products, *other_products = products  # shape of the first: (N, K)
    # The emissions of a tag use the temperature of its label. Label indices are shifted by 1,
    # because the label of O is -1. Index 0 is the overall temperature, which applies to O and to
    # the transition, start and end scores.
    sums = numpy.bincount(
        tags.label_of + 1, weights=emission_products.sum(axis=0), minlength=len(tags.labels) + 1
    )
    sums[0] += sum(product.sum() for product in other_products)
    return -sums


def minimise_within_limits(
    function: Callable[[Floats1d], tuple[float, Floats1d]],
    start: Floats1d,
    *,
    name: str = "temperature",
) -> Floats1d:
    """Minimise a smooth function of the logarithms of temperatures or weights with L-BFGS: see
    `training.lbfgs`. The logarithms are limited to the range from -`MAX_LOG` to `MAX_LOG`. If the
    absolute value of a derivative exceeds `PRECISION` at the end, a warning is issued, unless the
    logarithm is held at a limit.

    function (Callable): Function that returns a value and its gradient for given logarithms.
        Shapes: (P,)
    start (Floats1d): The initial logarithms. Shape: (P,)
    name (str): The name of the quantity, used in the warning.
    RETURNS (Floats1d): The logarithms at the minimum. Shape: (P,)
    """

    def evaluate(logs: Floats1d) -> Iterate:
        """Evaluate the function at the given logarithms, clipped to their limits."""
        logs = numpy.clip(logs, -MAX_LOG, MAX_LOG)
        return Iterate(logs, *function(logs))

    point = evaluate(start)
    steps: list[Step] = []  # used to estimate the Hessian
    is_free = numpy.ones(len(start), dtype=bool)
    for _ in range(MAX_STEPS):
        # Hold a logarithm at a limit if the function decreases beyond the limit.
        was_free = is_free
        is_held_low = (point.vector <= -MAX_LOG) & (point.gradient > 0)
        is_held_high = (point.vector >= MAX_LOG) & (point.gradient < 0)
        is_free = ~(is_held_low | is_held_high)
        free_gradient = numpy.where(is_free, point.gradient, 0)
        if (numpy.abs(free_gradient) < PRECISION).all():
            return point.vector

        if (is_free != was_free).any():
            # The estimate was computed for a different set of free logarithms, so restart.
            steps = []
        direction = numpy.where(is_free, descent_direction(free_gradient, steps), 0)
        # Change each logarithm by at most 1 per step, because the loss is far from quadratic.
        direction /= max(1.0, float(numpy.abs(direction).max()))
        new_point = search_line(evaluate, point, direction)
        if new_point is not None:
            steps = remember_step(steps, point, new_point)
            point = new_point
        elif steps:
            steps = []  # continue with steepest descent
        else:
            # If steepest descent doesn't reduce the loss, any remaining improvement is smaller than
            # the rounding errors.
            break
    steepest = float(numpy.abs(free_gradient).max())
    warnings.warn(
        f"{name}: expected a gradient below {PRECISION:g} nat, got {steepest:.2g} after at most "
        f"{MAX_STEPS} steps: the {name} may not be the best",
        stacklevel=2,
    )
    return point.vector
