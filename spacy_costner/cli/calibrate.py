"""Calibrate confidences by a temperature, fitted on development docs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Array1d, Floats1d
from typer import Option

from ..decoding import Posterior, Temperature, make_viterbi
from ..metrics import text_table
from ..metrics.calibration import calibration_error, reliability
from ..pipeline.component import CostSensitiveNER
from ..saving import check_folder, save_folder
from ..tags import Entities
from .fitness import find_faults
from .options import (
    CodeOption,
    DevArg,
    GpuOption,
    ModelArg,
    NameOption,
    OutputOption,
    load,
    options_of,
)
from .output import JsonOption, errors_shown, print_result
from .predictions import (
    DevPredictions,
    get_component,
    predict_dev,
    record_scores,
    turn_on_confidence,
)

MOST_STEPS, PRECISION, HOTTEST = 60, 1e-3, numpy.log(100)
"""Where the steps in the logarithm of a temperature end, and its limit for a label whose
predictions are all correct, or all wrong."""

Predicted = tuple[Posterior, Entities, Array1d]
"""A posterior, entities, and which of them are correct. Shape: (E,)"""


class Calibration(NamedTuple):
    """The result of a calibration."""

    temperature: Temperature
    error_before: float  # expected calibration error
    error: float
    reliability: list[dict[str, Any]]  # see `metrics.calibration.reliability`
    notes: Sequence[str] = ()  # what may make it misleading

    def describe(self) -> str:
        """The temperature, and the calibration error before and with it."""
        errors = f"expected calibration error {self.error_before:.4f} -> {self.error:.4f}"
        if self.error > self.error_before:
            errors += "\nThe error is higher than before: don't calibrate this model on these docs."
        line = f"temperature {self.temperature.overall:.3f}: {errors}"
        return "\n".join([line, *(f"note: {note}" for note in self.notes)])


def calibrate(
    nlp: Language,
    examples: Iterable[Example],
    *,
    name: NameOption = "ner",
    per_label: Annotated[
        bool, Option("--per-label", help="Fit a temperature for each label")
    ] = False,
    source: str = "development docs",
) -> Calibration:
    """Fit the temperature of a component on development docs, and set it. Its confidences are on
    from then on.

    nlp (Language): The trained pipeline. Its weights and the predictions of Viterbi decoding
        don't change. Its config and the scores in its meta are updated.
    examples (Iterable[Example]): The docs. They should not be training docs.
    source (str): The name of the docs in the meta: see `record_scores`.
    RETURNS (Calibration): The temperature, and the calibration error before and after.
    RAISES (ValueError): If there is no such component, or no entity is predicted.
    """
    ner, examples = get_component(nlp, name), list(examples)
    faults = find_faults(nlp, ner, examples, source)
    dev = predict_dev(nlp, ner, examples)
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
    entropies = numpy.concatenate([dev.at(temperature).entropies() for dev in devs])
    ner.set_shift(docs, entropies, source, approximate=True)

    probs = [(p.entity_probs(e), p.at(temperature).entity_probs(e)) for p, e, _ in predicted]
    before, after = (numpy.concatenate(columns) for columns in zip(*probs))
    error_before, error = (calibration_error(each, correct) for each in (before, after))
    rows = reliability(after, correct)
    return Calibration(temperature, error_before, error, rows, find_extremes(temperature))


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

    def slope(logs: Floats1d) -> Floats1d:
        temperature = make_temperature(logs, labels)
        each = [find_slopes(p.at(temperature), *rest) for p, *rest in predicted]
        slopes = numpy.sum(each, axis=0)
        if len(logs) == 1:
            return slopes.sum(keepdims=True)
        apart = logs[1:] - logs[0]
        return slopes + 2 * numpy.append(-apart.sum(), apart)

    logs = minimise(slope, numpy.zeros(1))
    if per_label:
        logs = minimise(slope, numpy.repeat(logs, len(labels) + 1))
    return make_temperature(logs, labels)


def make_temperature(logs: Floats1d, labels: Sequence[str]) -> Temperature:
    """A temperature from its logarithm, or from the overall one and those of the labels."""
    overall, *of_labels = numpy.exp(logs).tolist()
    return Temperature(overall, dict(zip(labels, of_labels)))


def find_slopes(posterior: Posterior, predicted: Entities, correct: Array1d) -> Floats1d:
    """The derivative of the log loss with respect to the logarithm of each temperature: the
    overall one, then the labels' own. Shape: (1 + labels,)

    d loss / d log T = - sum over scores s of  d loss / d (s / T)  s / T
    """
    log_probs, which, backprop = posterior.entity_log_probs(predicted)
    probs = numpy.exp(log_probs)
    p = numpy.clip(numpy.bincount(which, probs, minlength=len(correct)), 1e-12, 1 - 1e-7)
    d_p = numpy.where(correct, -1 / p, 1 / (1 - p))
    gradient = backprop(d_p[which] * probs)
    products = [
        numpy.where(numpy.isfinite(scores), scores, 0).astype("float64") * slopes
        for scores, slopes in zip(posterior.potentials[:4], gradient[:4])
    ]
    of_tags, label_of = products[0].sum(axis=0), posterior.tags.label_of + 1
    slopes = numpy.bincount(label_of, of_tags, minlength=len(posterior.tags.labels) + 1)
    slopes[0] += sum(product.sum() for product in products[1:])
    return -slopes


def minimise(slope: Callable[[Floats1d], Floats1d], start: Floats1d) -> Floats1d:
    """Minimise by RPROP: each coordinate has its own step size, which grows while the sign of
    the gradient stays the same and is halved when it changes, until all are below `PRECISION`.

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


@options_of(calibrate)
def calibrate_cli(
    model: ModelArg,
    dev_path: DevArg,
    output_path: OutputOption,
    *,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
    **options: Any,
) -> None:
    """
    Calibrate confidences, so that about 70 % of the entities with confidence 0.7 are correct.
    Fits a temperature on development docs, which should not be training docs, and turns confidences
    on. Predictions of Viterbi decoding don't change.
    """
    with errors_shown():
        check_folder(output_path)
        nlp, examples = load(model, dev_path, use_gpu, code_path)
        result = calibrate(nlp, examples, source=str(dev_path), **options)
        save_folder(output_path, nlp.to_disk)
    print_result(result, describe(result), print_json, output_path)


def describe(result: Calibration) -> str:
    """The temperatures, and confidence compared with the share of entities that are right."""
    rows: list[Any] = [["confidence", "entities", "mean", "right"]]
    for row in result.reliability:
        if row["n"]:
            bounds = "{from:.1f} to {to:.1f}".format(**row)
            rows.append([bounds, row["n"], row["confidence"], row["right"]])
    labels = [f"  {label}: {t:.3f}" for label, t in result.temperature.labels.items()]
    return "\n".join([f"{text_table(rows)}\n", result.describe(), *labels])
