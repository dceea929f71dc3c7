"""Choose a threshold or a bias on development docs, without retraining.

The tuned parameter belongs to the decoding and isn't learned during training. The threshold is the
minimum probability of a predicted entity; the bias is added to the scores of all tags except O. The
posterior of all docs is computed once, and entities are decoded from it with each value of the
parameter. An operating point is a value with its precision and recall. A guarantee only holds for a
specific decoding, so it is dropped if the decoding changes.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy
from spacy.language import Language
from spacy.training import Example
from spacy.util import registry
from thinc.types import Floats1d, Ints1d, Ints2d, Ints3d

from ...annotation.equal_texts import assign_folds, number_texts
from ...decoding import LEAST_PROB, make_viterbi, without_overlap
from ...metrics import f_beta
from ...pipeline.component import CostSensitiveNER
from ...pipeline.reading import find_reading
from ...progress import phase
from ...tags import Entities
from ..components import get_component
from ..evaluation.predictions import (
    DevPredictions,
    evaluate_dev,
    note_misaligned,
    predict_dev,
    record_scores,
)
from ..evaluation.valid_data import find_faults


class Tunable(NamedTuple):
    """A parameter that can be tuned.

    decoding (str): The registered name of the decoding with this parameter.
    values (Floats1d): The values to try. Shape: (V,)
    """

    decoding: str
    values: Floats1d


TUNABLE = {
    "threshold": Tunable(
        "spacy_costner.ThresholdDecoding.v1", numpy.linspace(LEAST_PROB, 0.99, 99)
    ),
    "bias": Tunable("spacy_costner.ViterbiDecoding.v1", numpy.linspace(-10, 10, 81)),
}
"""The tunable parameters, keyed by their name in the config. The step sizes are 0.01 and 0.25."""

N_FOLDS = 5
"""The number of cross-validation folds of the development docs: see `choose_by_folds`."""

ROUNDING = 1e-12
"""F scores that differ by less than this are considered equal."""


class OperatingPoint(NamedTuple):
    """A value of a parameter with its precision and recall.

    value (float): The value of the parameter.
    precision (float): The precision, from 0 to 1. It is 1 if nothing is predicted.
    recall (float): The recall, from 0 to 1.
    """

    value: float
    precision: float
    recall: float

    def f_score(self, beta: float = 1.0) -> float:
        """Compute the F-beta score, from 0 to 1: see `metrics.f_beta`."""
        return float(f_beta(self.precision, self.recall, beta))

    @property
    def has_predictions(self) -> bool:
        """Whether any entities are predicted."""
        # If entities are predicted, a precision of 1 means that they are correct, so that the
        # recall isn't 0.
        return self.precision < 1 or self.recall > 0

    @property
    def scores(self) -> tuple[float, float, float]:
        """The precision, recall and F1 score."""
        return self.precision, self.recall, self.f_score()


class Tuning(NamedTuple):
    """The result of tuning.

    parameter (str): The parameter: "threshold" or "bias".
    points (Sequence[OperatingPoint]): The scores for each value.
    chosen (OperatingPoint): The scores for the chosen value.
    before (OperatingPoint): The scores of the previous decoding, with a value of NaN.
    held_out (OperatingPoint | None): The scores to expect on new data: each fold is scored with the
        best value for the other folds. None if the aim isn't F-beta or there are too few texts.
    is_set (bool): Whether the chosen value was set. False if the previous decoding is better: see
        `tune`.
    notes (Sequence[str]): Reasons why the result may be misleading.
    """

    parameter: str
    points: Sequence[OperatingPoint]
    chosen: OperatingPoint
    before: OperatingPoint
    held_out: OperatingPoint | None = None
    is_set: bool = True
    notes: Sequence[str] = ()

    def as_text(self) -> str:
        """Describe the chosen value and the change in scores, in percent."""
        changes: list[str] = []
        for name, before, after in zip("PRF", self.before.scores, self.chosen.scores):
            changes.append(f"{name} {100 * before:.2f} -> {100 * after:.2f}")
        lines = [f"{self.parameter} {self.chosen.value:g}: {', '.join(changes)}"]
        if self.held_out is None:
            lines.append(
                f"The {self.parameter} was chosen on these docs: expect lower scores on new data."
            )
        else:
            scores_of_folds: list[str] = []
            for name, score in zip("PRF", self.held_out.scores):
                scores_of_folds.append(f"{name} {100 * score:.2f}")
            lines.append(
                f"The {self.parameter} was chosen on these docs. In {N_FOLDS}-fold "
                f"cross-validation: {', '.join(scores_of_folds)}"
            )
        if not self.is_set:
            lines.append(f"The {self.parameter} wasn't set: the previous decoding has a higher F.")
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
    """Set a decoding parameter to the value with the best scores on development docs. If no
    `parameter` is given and the aim is F-beta, the current decoding is kept if it scores higher
    than the best value.

    nlp (Language): The trained pipeline. Its config, its component and the scores in its meta are
        updated. If the decoding changes, the guarantee of the component is dropped.
    examples (Iterable[Example]): Annotated development docs. They should not be training docs.
    name (str): Name of the component.
    parameter (str | None): Parameter to tune, "threshold" or "bias". The component's decoding is
        replaced if it doesn't have this parameter. Required if the current decoding can't be tuned.
    beta (float): Weight of recall relative to precision.
    precision (float | None): Required precision: maximise recall instead of F-beta. Values with
        which nothing is predicted don't reach any precision.
    recall (float | None): Required recall: maximise precision instead of F-beta.
    file_tokens (bool): Whether the docs were read with the tokens and sentence starts of the file.
        Saved with the pipeline, so that `watch` reads docs in the same way.
    source (str): The name of the docs in the meta: see `record_scores`.
    RETURNS (Tuning): The scores for each value, and the chosen value.
    RAISES (ValueError): If the component is missing, the parameter is unknown, the docs have no
        entities or only entities with unknown labels, no value reaches the required precision or
        recall, or both are required.
    """
    ner = get_component(nlp, name)
    examples = list(examples)
    may_keep = parameter is None
    parameter = check_parameter(nlp, ner, parameter)
    faults = find_faults(nlp, ner, examples, source)
    dev = predict_dev(nlp, ner, examples)
    tuning = tune_on(
        [dev],
        nlp,
        ner,
        parameter,
        beta=beta,
        precision=precision,
        recall=recall,
        may_keep=may_keep,
    )
    docs = [eg.predicted for eg in dev.originals]
    reading = find_reading(nlp, name, examples, docs, file_tokens=file_tokens)
    ner.set_reading(reading, nlp.tokenizer)
    scores = evaluate_dev(nlp, ner, dev)  # uses the decoding set by `tune_on`
    record_scores(nlp, scores, source, len(examples))
    return tuning._replace(notes=[*faults, *tuning.notes])


def check_parameter(nlp: Language, ner: CostSensitiveNER, parameter: str | None = None) -> str:
    """Choose the parameter to tune. The default is "threshold", even for Viterbi decoding. Other
    decodings are only replaced if a parameter is given.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component of `nlp` to tune.
    parameter (str | None): The requested parameter, if any.
    RETURNS (str): The name of the parameter to tune.
    RAISES (ValueError): If the parameter is unknown, or if no parameter is given for a decoding
        that can't be tuned.
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


@phase("tune")
def tune_on(
    predictions: Sequence[DevPredictions],
    nlp: Language,
    ner: CostSensitiveNER,
    parameter: str,
    *,
    beta: float = 1.0,
    precision: float | None = None,
    recall: float | None = None,
    may_keep: bool = True,
) -> Tuning:
    """Choose the value of a decoding parameter based on predictions, and set it unless the current
    decoding is kept. If the decoding changes, the guarantee of the component is dropped.

    predictions (Sequence[DevPredictions]): The predictions of one model for all docs, or the
        predictions of each fold's model for the docs in that fold.
    nlp (Language): The pipeline of the component.
    ner (CostSensitiveNER): The component whose decoding is tuned.
    parameter (str): The parameter to tune, one of `TUNABLE`.
    beta (float): The weight of recall relative to precision.
    precision (float | None): Required precision: maximise recall instead of F-beta.
    recall (float | None): Required recall: maximise precision instead of F-beta.
    may_keep (bool): Whether to keep the current decoding if the aim is F-beta and the current
        decoding scores higher than the chosen value.
    RETURNS (Tuning): The scores for each value, and the chosen value.
    RAISES (ValueError): If no annotated entity counts in scores (see `DevPredictions`), or if no
        value can be chosen: see `choose_point`.
    """
    # Count the correct, predicted and annotated entities of each doc for each value.
    values: list[float] = []
    counts_of_values: list[Ints2d] = []
    for value, decoded in decode_with_each_value(predictions, parameter):
        values.append(value)
        counts_of_values.append(count_by_doc(predictions, decoded))
    counts = numpy.stack(counts_of_values)  # shape: (values, docs, 3)

    points = find_points(values, counts.sum(axis=1))
    notes = note_misaligned(predictions)
    try:
        chosen_point = choose_point(points, beta, precision, recall)
    except ValueError as error:
        # Misaligned entities may be the reason why no value reaches the required recall.
        raise ValueError(". ".join([str(error), *notes])) from None
    held_out = None
    is_for_f = precision is None and recall is None
    text_of_doc = number_texts(eg.reference for dev in predictions for eg in dev.examples)
    n_texts = len(set(text_of_doc.tolist()))
    if is_for_f and n_texts >= N_FOLDS:
        # Consecutive docs may be related, so keep them in the same fold: 0 0 0 1 1 1 ...
        fold_of_doc = assign_folds(text_of_doc, N_FOLDS)
        index, held_out = choose_by_folds(values, counts, fold_of_doc, beta)
        chosen_point = points[index]

    if chosen_point in (points[0], points[-1]):
        notes.append(
            f"the {parameter}, {chosen_point.value:g}, is at the edge of its range: a value beyond "
            f"it, or no {parameter}, may be better"
        )

    # Replace the current decoding, unless it is better and may be kept.
    point_before = score_decoding(ner, predictions)
    is_better_before = is_for_f and point_before.f_score(beta) > chosen_point.f_score(beta)
    is_set = not (may_keep and is_better_before)
    if is_set:
        # The value was tested for all labels, so drop label-specific values.
        block = {"@misc": TUNABLE[parameter].decoding, parameter: chosen_point.value, "labels": {}}
        use_decoding(nlp, ner, block)
    return Tuning(
        parameter=parameter,
        points=points,
        chosen=chosen_point,
        before=point_before,
        held_out=held_out,
        is_set=is_set,
        notes=notes,
    )


def choose_by_folds(
    values: Sequence[float], counts: Ints3d, fold_of_doc: Ints1d, beta: float = 1.0
) -> tuple[int, OperatingPoint]:
    """Choose the value with the best F-beta by cross-validation: for each fold, find the best value
    on all other docs, and take the mean of these values. (With few docs, the value that is best on
    all of them is often best only by chance.) The values must be equally spaced. If all scores are
    0, the middle value is chosen.

    Returns the index of the chosen value, and the held-out scores, where each fold is scored with
    the best value on the other docs. Shapes: counts of `count_by_doc` (values, docs, 3), folds
    (docs,)"""
    choices: list[int] = []  # the best value without each fold, as an index
    held_out_counts = numpy.zeros(3, dtype="int64")  # correct, predicted and annotated entities
    for fold in range(N_FOLDS):
        is_in_fold = fold_of_doc == fold
        points = find_points(values, counts[:, ~is_in_fold].sum(axis=1))
        f_scores = numpy.asarray([point.f_score(beta) for point in points])
        # If several values are tied, use the middle one.
        best_indices = numpy.flatnonzero(f_scores >= f_scores.max() - ROUNDING)
        choice = int(best_indices[len(best_indices) // 2])
        # If all scores are 0, e.g. because the fold contains all entities, no value is better.
        if f_scores.max() > 0:
            choices.append(choice)
        held_out_counts += counts[choice, is_in_fold].sum(axis=0)
    # The values are equally spaced, so the mean index is the index of the mean value.
    index = int(numpy.rint(numpy.mean(choices or [choice])))
    (held_out_point,) = find_points([values[index]], held_out_counts[None])  # shape: (1, 3)
    return index, held_out_point


def count_by_doc(predictions: Sequence[DevPredictions], decoded: Sequence[Entities]) -> Ints2d:
    """Count the correct, predicted and annotated entities of each doc. `predictions` contains the
    predictions of each model (see `tune_on`), and `decoded` the entities decoded from them. Shape:
    (docs of all models, 3)"""
    counts_of_models: list[Ints2d] = []
    for dev, predicted in zip(predictions, decoded):
        correct = predicted.select(dev.is_correct(predicted))
        n_correct = dev.count_in_docs(correct)
        n_predicted = dev.count_in_docs(predicted)
        n_annotated = dev.count_in_docs(dev.gold) + dev.count_in_docs(dev.misaligned)
        counts = numpy.stack([n_correct, n_predicted, n_annotated], axis=1)
        counts_of_models.append(counts)
    return numpy.concatenate(counts_of_models)


def find_points(values: Sequence[float], counts: Ints2d) -> list[OperatingPoint]:
    """Compute the operating point of each value from the numbers of correct, predicted and
    annotated entities. Shape of the counts: (values, 3)"""
    points: list[OperatingPoint] = []
    for value, (n_correct, n_predicted, n_gold) in zip(values, counts.tolist()):
        precision = 1.0  # no prediction is wrong if there are no predictions
        if n_predicted:
            precision = n_correct / n_predicted
        recall = n_correct / max(n_gold, 1)  # `n_gold` may be 0 when a fold is left out
        points.append(OperatingPoint(value, precision, recall))
    return points


def score_decoding(ner: CostSensitiveNER, predictions: Sequence[DevPredictions]) -> OperatingPoint:
    """Compute the scores of a component's current decoding. The value of the returned point is
    NaN."""
    decoded: list[Entities] = []
    for dev in predictions:
        entities = ner.decode(dev.posterior).entities
        decoded.append(dev.select_counted(entities))
    return find_point(float("nan"), predictions, decoded)


def decode_with_each_value(
    predictions: Sequence[DevPredictions], parameter: str
) -> Iterator[tuple[float, Sequence[Entities]]]:
    """Decode docs with each value of a parameter.

    predictions (Sequence[DevPredictions]): The predictions of each model: see `tune_on`.
    parameter (str): One of `TUNABLE`.
    YIELDS (tuple[float, Sequence[Entities]]): The value, and the entities decoded with it from the
        predictions of each model.
    RAISES (ValueError): If no annotated entity counts in scores: see `DevPredictions`.
    """
    n_gold = sum(len(dev.gold.begin) for dev in predictions)
    if n_gold == 0:
        message = "expected docs with entities, got none"
        raise ValueError(". ".join([message, *note_misaligned(predictions)]))
    values = TUNABLE[parameter].values.round(4).tolist()  # 0.06, not 0.060000000000000005
    if parameter == "bias":
        for bias in values:
            decoding = make_viterbi(bias=bias)
            yield bias, [dev.decode(decoding) for dev in predictions]
        return
    # Find all candidate entities once. `LEAST_PROB` is the lowest threshold.
    likely = [dev.posterior.likely_entities(LEAST_PROB) for dev in predictions]
    for threshold in values:
        decoded: list[Entities] = []
        for dev, (entities, probs) in zip(predictions, likely):
            # Entities below the threshold have a negative gain, so they are never selected.
            chosen_entities = without_overlap(entities, probs - threshold)
            # Exclude entities that don't count in scores, as `dev.decode` does above.
            decoded.append(dev.select_counted(chosen_entities))
        yield threshold, decoded


def find_point(
    value: float, predictions: Sequence[DevPredictions], decoded: Sequence[Entities]
) -> OperatingPoint:
    """Compute the scores for one value of the parameter over all docs.

    value (float): The value of the tuned parameter.
    predictions (Sequence[DevPredictions]): The predictions of each model: see `tune_on`.
    decoded (Sequence[Entities]): The entities decoded with this value for each model.
    RETURNS (OperatingPoint): The value with its scores.
    """
    # The number of correct, predicted and annotated entities in all docs. Shape: (1, 3)
    counts = count_by_doc(predictions, decoded).sum(axis=0, keepdims=True)
    (point,) = find_points([value], counts)
    return point


def choose_point(
    points: Sequence[OperatingPoint],
    beta: float = 1.0,
    precision: float | None = None,
    recall: float | None = None,
) -> OperatingPoint:
    """Choose the point with the best F-beta. If a precision is required, choose the point with the
    best recall among the points that reach it, and vice versa. For the arguments, see `tune`.
    Raises a ValueError if no point with predictions reaches the required score, or if both scores
    are required."""
    if precision is not None and recall is not None:
        raise ValueError("`precision`, `recall`: expected only one of them, got both")
    # Break ties in recall by the highest precision, and vice versa.
    if precision is not None:
        sufficient = points_with(points, "precision", precision)
        return max(sufficient, key=lambda point: (point.recall, point.precision))
    if recall is not None:
        sufficient = points_with(points, "recall", recall)
        return max(sufficient, key=lambda point: (point.precision, point.recall))
    return max(points, key=lambda point: point.f_score(beta))


def points_with(
    points: Sequence[OperatingPoint], score: Literal["precision", "recall"], required: float
) -> list[OperatingPoint]:
    """Return the points with predictions whose precision or recall is at least `required`. Raises a
    ValueError if there are none."""
    # Without predictions, the precision is 1 by convention, which isn't what the user requires.
    points = [point for point in points if point.has_predictions]
    if not points:
        raise ValueError(
            f"{score}: expected a value of the parameter with predicted entities, got none"
        )
    highest_score = max(getattr(point, score) for point in points)
    if highest_score < required:
        reachable = math.floor(1e4 * highest_score) / 1e4
        raise ValueError(
            f"{score}: expected at most {reachable:.4f}, the highest value on these docs, got "
            f"{required}"
        )
    return [point for point in points if getattr(point, score) >= required]


def use_decoding(nlp: Language, ner: CostSensitiveNER, block: dict[str, Any]) -> None:
    """Replace the decoding of a component, and its block in the config of the pipeline, with the
    decoding defined by a config block. Any guarantee of the component is dropped."""
    resolved = registry.resolve({"decoding": block})
    ner.set_decoding(resolved["decoding"])  # this drops the guarantee
    nlp.get_pipe_config(ner.name)["decoding"] = block
