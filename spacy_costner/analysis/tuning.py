"""Choose a decision threshold or a bias on development docs. No retraining.

The parameter that is tuned is part of the decoding, which is not learned in training. All docs are
predicted once, and their entities decoded with each value of the parameter. A point is a value with
its scores.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import numpy
from spacy.language import Language
from spacy.training import Example
from spacy.util import registry
from thinc.types import Floats1d, Ints2d, Ints3d

from ..decoding import LEAST, make_viterbi, without_overlap
from ..metrics import f_beta
from ..pipeline.component import CostSensitiveNER
from ..pipeline.reading import find_reading
from ..tags import Entities
from .fitness import find_faults
from .predictions import (
    DevPredictions,
    evaluate_dev,
    get_component,
    predict_dev,
    record_scores,
)


class Tunable(NamedTuple):
    """A parameter that can be tuned."""

    decoding: str  # the registered name of the decoding that has it
    values: Floats1d  # the values to try. Shape: (V,)


TUNABLE = {
    "threshold": Tunable("spacy_costner.ThresholdDecoding.v1", numpy.linspace(LEAST, 0.99, 99)),
    "bias": Tunable("spacy_costner.ViterbiDecoding.v1", numpy.linspace(-10, 10, 81)),
}

N_FOLDS = 5
"""Folds of the development docs, to choose a value for F: see `choose_by_folds`."""


class Point(NamedTuple):
    """The scores at a value of a parameter. Precision is 1 if nothing is predicted."""

    value: float
    precision: float
    recall: float

    def f_score(self, beta: float = 1.0) -> float:
        """F-beta: see `metrics.f_beta`."""
        return float(f_beta(self.precision, self.recall, beta))

    @property
    def scores(self) -> tuple[float, float, float]:
        """Precision, recall and F."""
        return self.precision, self.recall, self.f_score()


class Tuning(NamedTuple):
    """The result of tuning."""

    parameter: str
    points: Sequence[Point]  # the scores at each value
    chosen: Point  # the best of them
    before: Point  # the scores of the decoding that the component had, with the value NaN
    held_out: Point | None = None
    """The scores to expect of new docs: docs are scored with the value that other docs choose. None
    if the aim isn't F."""
    notes: Sequence[str] = ()  # what may make it misleading

    def as_text(self) -> str:
        """The chosen value, and the scores before and with it, in percent."""
        changes: list[str] = []
        for name, before, after in zip("PRF", self.before.scores, self.chosen.scores):
            changes.append(f"{name} {100 * before:.2f} -> {100 * after:.2f}")
        lines = [f"{self.parameter} {self.chosen.value:g}: {', '.join(changes)}"]
        if self.held_out is None:
            lines.append("These docs chose it: expect less of new ones.")
        else:
            scores_of_folds: list[str] = []
            for name, score in zip("PRF", self.held_out.scores):
                scores_of_folds.append(f"{name} {100 * score:.2f}")
            lines.append(
                f"These docs chose it. On {N_FOLDS} folds, with what the other docs choose: "
                f"{', '.join(scores_of_folds)}"
            )
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def tune(
    nlp: Language,
    examples: Iterable[Example],
    *,
    name: str = "ner",
    parameter: str | None = None,
    beta: float = 1.0,
    precision: float | None = None,
    recall: float | None = None,
    file_tokens: bool = False,
    source: str = "development docs",
) -> Tuning:
    """Choose the value of a parameter with the best scores on development docs, and set it.

    nlp (Language): The trained pipeline. Its config, its component and the scores in its meta are
        updated.
    examples (Iterable[Example]): The docs. They should not be training docs.
    name (str): Name of the component.
    parameter (str | None): What to tune, "threshold" or "bias". Its decoding replaces that of the
        component. Needed if the component's decoding has neither.
    beta (float): Recall is so many times as important as precision.
    precision (float | None): Required precision: maximise recall instead of F-beta.
    recall (float | None): Required recall: maximise precision instead of F-beta.
    file_tokens (bool): Whether the docs were read with the tokens and sentence starts of their
        file. That is kept with the pipeline: `watch` reads in the same way.
    source (str): The name of the docs in the meta: see `record_scores`.
    RETURNS (Tuning): The scores at each value, and the value chosen.
    RAISES (ValueError): If there is no such parameter or component, no entity in the docs, no
        value with the required precision or recall, or both are required.
    """
    ner = get_component(nlp, name)
    examples = list(examples)
    parameter = check_parameter(nlp, ner, parameter)
    faults = find_faults(nlp, ner, examples, source)
    dev = predict_dev(nlp, ner, examples)
    tuning = tune_on([dev], nlp, ner, parameter, beta=beta, precision=precision, recall=recall)
    ner.set_reading(find_reading(nlp, name, examples, file_tokens=file_tokens))
    scores = evaluate_dev(nlp, ner, dev)  # with the decoding that `tune_on` has set
    record_scores(nlp, scores, source, len(examples))
    return tuning._replace(notes=[*faults, *tuning.notes])


def check_parameter(nlp: Language, ner: CostSensitiveNER, parameter: str | None = None) -> str:
    """The parameter to tune: the one that is named or, if the decoding of the component is one that
    can be tuned, "threshold".

    RAISES (ValueError): If there is no such parameter, or none is named for another decoding.
    """
    decoding = nlp.get_pipe_config(ner.name)["decoding"]["@misc"]
    if parameter is None and decoding in [tunable.decoding for tunable in TUNABLE.values()]:
        return "threshold"
    if parameter in TUNABLE:
        return parameter
    raise ValueError(
        f"parameter: expected {' or '.join(TUNABLE)}, to replace {decoding} in "
        f"components.{ner.name}.decoding, got {parameter!r}"
    )


def tune_on(
    devs: Sequence[DevPredictions],
    nlp: Language,
    ner: CostSensitiveNER,
    parameter: str,
    *,
    beta: float = 1.0,
    precision: float | None = None,
    recall: float | None = None,
) -> Tuning:
    """Choose a value of a parameter, and set it.

    devs (Sequence[DevPredictions]): What models predict for docs: one model for all docs, or the
        model of each fold for its docs.
    nlp (Language): The pipeline of the component.
    ner (CostSensitiveNER): The component.
    parameter (str): What to tune, one of `TUNABLE`.
    beta, precision, recall: See `tune`.
    RETURNS (Tuning): The scores at each value, and the value chosen.
    """
    # The correct, predicted and annotated entities of each doc with each value
    values: list[float] = []
    counts_of_values: list[Ints2d] = []
    for value, decoded in decode_at_all(devs, parameter):
        values.append(value)
        counts_of_values.append(count_by_doc(devs, decoded))
    counts = numpy.stack(counts_of_values)  # shape: (values, docs, 3)

    points = find_points(values, counts.sum(axis=1))
    chosen = choose_point(points, beta, precision, recall)
    held_out = None
    is_for_f = precision is None and recall is None
    n_docs = counts.shape[1]
    if is_for_f and n_docs >= N_FOLDS:
        index, held_out = choose_by_folds(values, counts, beta)
        chosen = points[index]

    notes = []
    if chosen in (points[0], points[-1]):
        notes.append(
            f"the {parameter}, {chosen.value:g}, is at the edge of its range: a further one may be "
            "better, or none"
        )

    # The scores of the decoding that the component has had so far
    decoded_before: list[Entities] = []
    for dev in devs:
        entities = ner.decode(dev.posterior).entities
        decoded_before.append(dev.select_counted(entities))
    before = find_point(float("nan"), devs, decoded_before)
    block = {"@misc": TUNABLE[parameter].decoding, parameter: chosen.value, "labels": {}}
    use_decoding(nlp, ner, block)
    return Tuning(parameter, points, chosen, before, held_out, notes)


def choose_by_folds(
    values: Sequence[float], counts: Ints3d, beta: float = 1.0
) -> tuple[int, Point]:
    """Choose a value for the best F-beta: for each fold the best value of all other docs, and the
    mean of these. The best value of all docs together is often best by chance only, if they are
    few.

    values (Sequence[float]): The values, at equal distances: the mean of their indices is chosen.
    counts (Ints3d): See `count_by_doc`. Shape: (values, docs, 3)
    RETURNS (tuple[int, Point]): The index of the chosen value; the scores of the docs of all folds,
        each fold with the best value of the other docs.
    """
    n_docs = counts.shape[1]
    # Docs that follow each other, and may be related, are in the same fold.
    fold_of_doc = numpy.arange(n_docs) * N_FOLDS // n_docs
    choices: list[int] = []  # the index of the best value without the docs of each fold
    held_out_counts = numpy.zeros(3, dtype="int64")  # correct, predicted and annotated entities
    for fold in range(N_FOLDS):
        is_in_fold = fold_of_doc == fold
        points = find_points(values, counts[:, ~is_in_fold].sum(axis=1))
        f_scores = numpy.asarray([point.f_score(beta) for point in points])
        # Of several best values, up to rounding, the middle one is chosen.
        best = numpy.flatnonzero(f_scores >= f_scores.max() - 1e-12)
        choice = int(best[len(best) // 2])
        choices.append(choice)
        held_out_counts += counts[choice, is_in_fold].sum(axis=0)
    index = int(numpy.rint(numpy.mean(choices)))
    (point,) = find_points([values[index]], held_out_counts[None])
    return index, point


def count_by_doc(devs: Sequence[DevPredictions], decoded: Sequence[Entities]) -> Ints2d:
    """Count the correct, predicted and annotated entities of each doc.

    devs (Sequence[DevPredictions]): The docs of each model.
    decoded (Sequence[Entities]): The predicted entities of the docs of each model.
    RETURNS (Ints2d): The three numbers of each doc. Shape: (docs, 3)
    """
    counts_of_models: list[Ints2d] = []
    for dev, predicted in zip(devs, decoded):
        correct = predicted.select(dev.is_correct(predicted))
        columns = [dev.count_in_docs(entities) for entities in (correct, predicted, dev.gold)]
        counts_of_models.append(numpy.stack(columns, axis=1))
    return numpy.concatenate(counts_of_models)


def find_points(values: Sequence[float], counts: Ints2d) -> list[Point]:
    """The scores at each value.

    values (Sequence[float]): The values of the parameter.
    counts (Ints2d): The correct, predicted and annotated entities with each. Shape: (values, 3)
    """
    points: list[Point] = []
    for value, (n_correct, n_predicted, n_gold) in zip(values, counts.tolist()):
        precision = 1.0  # if nothing is predicted
        if n_predicted:
            precision = n_correct / n_predicted
        recall = n_correct / max(n_gold, 1)
        points.append(Point(value, precision, recall))
    return points


def decode_at_all(
    devs: Sequence[DevPredictions], parameter: str
) -> Iterator[tuple[float, Sequence[Entities]]]:
    """Decode the docs with each value of a parameter.

    devs (Sequence[DevPredictions]): The docs of each model.
    parameter (str): One of `TUNABLE`.
    YIELDS (tuple[float, Sequence[Entities]]): A value, and the entities that are decoded with it
        for the docs of each model.
    RAISES (ValueError): If no doc has an annotated entity.
    """
    n_gold = sum(len(dev.gold.begin) for dev in devs)
    if n_gold == 0:
        raise ValueError("expected docs with entities, got none")
    values = TUNABLE[parameter].values.round(4).tolist()
    if parameter == "bias":
        for bias in values:
            decoding = make_viterbi(bias=bias)
            yield bias, [dev.decode(decoding) for dev in devs]
        return
    # The entities that any threshold may choose are found once.
    likely = [dev.posterior.likely_entities(LEAST) for dev in devs]
    for threshold in values:
        decoded: list[Entities] = []
        for dev, (entities, probs) in zip(devs, likely):
            chosen = without_overlap(entities, probs - threshold)
            decoded.append(dev.select_counted(chosen))
        yield threshold, decoded


def find_point(value: float, devs: Sequence[DevPredictions], decoded: Sequence[Entities]) -> Point:
    """The scores of the entities that are decoded with one value. For the arguments see
    `count_by_doc`."""
    counts = count_by_doc(devs, decoded).sum(axis=0, keepdims=True)  # shape: (1, 3)
    (point,) = find_points([value], counts)
    return point


def choose_point(
    points: Sequence[Point],
    beta: float = 1.0,
    precision: float | None = None,
    recall: float | None = None,
) -> Point:
    """The point with the best F-beta, or the best one with a required precision or recall: see
    `tune`."""
    if precision is not None and recall is not None:
        raise ValueError("precision, recall: expected only one of them, got both")
    if precision is not None:
        reached = reach(points, "precision", precision)
        return max(reached, key=lambda point: (point.recall, point.precision))
    if recall is not None:
        reached = reach(points, "recall", recall)
        return max(reached, key=lambda point: (point.precision, point.recall))
    return max(points, key=lambda point: point.f_score(beta))


def reach(
    points: Sequence[Point], score: Literal["precision", "recall"], required: float
) -> list[Point]:
    """The points with the precision, or the recall, that is required.

    RAISES (ValueError): If there is none.
    """
    highest = max(getattr(point, score) for point in points)
    if highest < required:
        raise ValueError(
            f"{score}: expected {highest:.4f} or less, the highest value found, got {required}"
        )
    return [point for point in points if getattr(point, score) >= required]


def parse_aim(text: str, *other_names: str, option: str = "--tune") -> dict[str, Any]:
    """Read what is best.

    text (str): "f", "precision=0.9" or "recall=0.9", for any number between 0 and 1.
    *other_names (str): What else it may be.
    option (str): The option, for the error.
    RETURNS (dict[str, Any]): The arguments of `tune`: {"precision": 0.9} or {"recall": 0.9}; empty
        for the others.
    RAISES (ValueError): If it is none of these.
    """
    names = ["f", *other_names]
    if text in names:
        return {}
    score, _, required = text.partition("=")
    # If this is no number, the aim is refused below.
    with suppress(ValueError):
        if score in ("precision", "recall") and 0 < float(required) < 1:
            return {score: float(required)}
    expected = ", ".join(names)
    raise ValueError(f"{option}: expected {expected}, precision=0.9 or recall=0.9, got {text!r}")


def use_decoding(nlp: Language, ner: CostSensitiveNER, block: dict[str, Any]) -> None:
    """Set the decoding of a component to a block of the config, and write that to the config."""
    ner.set_decoding(registry.resolve({"decoding": block})["decoding"])
    nlp.get_pipe_config(ner.name)["decoding"] = block
