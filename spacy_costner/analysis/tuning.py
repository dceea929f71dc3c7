"""Choose a decision threshold or a bias on development docs. No retraining."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.training import Example
from spacy.util import registry
from thinc.types import Ints2d, Ints3d

from ..decoding import LEAST, make_viterbi, without_overlap
from ..metrics import f_beta
from ..pipeline.component import CostSensitiveNER
from ..pipeline.reading import find_reading
from ..tags import Entities
from .fitness import find_faults
from .predictions import DevPredictions, get_component, predict_dev, record_scores

PARAMETERS = {
    "threshold": ("spacy_costner.ThresholdDecoding.v1", numpy.linspace(LEAST, 0.99, 99)),
    "bias": ("spacy_costner.ViterbiDecoding.v1", numpy.linspace(-10, 10, 81)),
}
"""What can be tuned: the decoding that has it, and the values to try."""

N_FOLDS = 5
"""Folds of the development docs, to choose a value for F."""


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
    # Of docs by values that other docs chose: what to expect of new docs. None if the aim isn't F.
    held_out: Point | None = None
    notes: Sequence[str] = ()  # what may make it misleading

    def describe(self) -> str:
        """The chosen value, and the scores before and with it, in percent."""
        scores = zip("PRF", self.before.scores, self.chosen.scores)
        changes = [f"{x} {100 * before:.2f} -> {100 * after:.2f}" for x, before, after in scores]
        lines = [f"{self.parameter} {self.chosen.value:g}: {', '.join(changes)}"]
        if self.held_out is None:
            lines.append("These docs chose it: expect less of new ones.")
        else:
            held_out = zip("PRF", self.held_out.scores)
            scores_of_folds = ", ".join(f"{x} {100 * score:.2f}" for x, score in held_out)
            lines.append(
                f"These docs chose it. On {N_FOLDS} folds, with what the other docs choose: "
                f"{scores_of_folds}"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


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
    parameter (str | None): "threshold" or "bias": its decoding replaces the component's. None:
        "threshold", if the component has a decoding with one of the two.
    beta (float): Recall is so many times as important as precision.
    file_tokens (bool): Whether the docs were read with the tokens and sentence starts of their
        file. That is kept with the pipeline: `watch` reads in the same way.
    source (str): The name of the docs in the meta: see `record_scores`.
    name (str): Name of the component.
    precision (float | None): Required precision: maximise recall instead of F-beta.
    recall (float | None): Required recall: maximise precision instead of F-beta.
    RETURNS (Tuning): The scores at each value, and the value chosen.
    RAISES (ValueError): If there is no such parameter or component, no entity in the docs, no
        value with the required precision or recall, or both are required.
    """
    ner, examples = get_component(nlp, name), list(examples)
    parameter = check_parameter(nlp, ner, parameter)
    aim = {"beta": beta, "precision": precision, "recall": recall}
    faults = find_faults(nlp, ner, examples, source)
    tuning = tune_on([predict_dev(nlp, ner, examples)], nlp, ner, parameter, **aim)
    ner.set_reading(find_reading(nlp, name, examples, file_tokens=file_tokens))
    record_scores(nlp, nlp.evaluate(examples), source, len(examples))
    return tuning._replace(notes=[*faults, *tuning.notes])


def check_parameter(nlp: Language, ner: CostSensitiveNER, parameter: str | None = None) -> str:
    """The parameter to tune. It is an error if there is none of that name or, without a name, if
    the decoding has none."""
    block = nlp.get_pipe_config(ner.name)["decoding"]["@misc"]
    if parameter is None and block in [decoding for decoding, _ in PARAMETERS.values()]:
        return "threshold"
    if parameter in PARAMETERS:
        return parameter
    raise ValueError(
        f"parameter: expected {' or '.join(PARAMETERS)}, to replace {block} in "
        f"components.{ner.name}.decoding, got {parameter!r}"
    )


def tune_on(
    devs: Sequence[DevPredictions], nlp: Language, ner: CostSensitiveNER, parameter: str, **aim: Any
) -> Tuning:
    """Choose a value on the predictions of one model or of several, and set it: see `tune`."""
    values: list[float] = []
    tables: list[Ints2d] = []
    for value, decoded in decode_at_all(devs, parameter):
        values.append(value)
        tables.append(count_by_doc(devs, decoded))
    counts = numpy.stack(tables)
    points = points_of(values, counts.sum(axis=1))
    before = [dev.keep(ner.decode(dev.posterior).entities) for dev in devs]
    chosen, held_out = choose(points, **aim), None
    beta = aim.get("beta", 1.0)
    is_f = aim.get("precision") is None and aim.get("recall") is None
    if is_f and counts.shape[1] >= N_FOLDS:
        index, held_out = choose_by_folds(values, counts, beta)
        chosen = points[index]
    notes = []
    if chosen in (points[0], points[-1]):
        notes.append(
            f"the {parameter}, {chosen.value:g}, is at the edge of its range: a further one may be "
            "better, or none"
        )
    of_before = score(float("nan"), devs, before)
    tuning = Tuning(parameter, points, chosen, of_before, held_out, notes)
    block = {"@misc": PARAMETERS[parameter][0], parameter: tuning.chosen.value, "labels": {}}
    use_decoding(nlp, ner, block)
    return tuning


def choose_by_folds(
    values: Sequence[float], counts: Ints3d, beta: float = 1.0
) -> tuple[int, Point]:
    """Choose the mean of the values with the best F-beta for all docs but those of a fold. The best
    value of all docs follows their accidents, and a small set loses by it. Of values with the same
    score, the middle one counts.

    counts (Ints3d): See `count_by_doc`. Shape: (values, docs, 3)
    RETURNS (tuple[int, Point]): The index of the value; the scores of the docs of all folds, each
        with the best value of the others.
    """
    n_docs = counts.shape[1]
    fold_of = numpy.arange(n_docs) * N_FOLDS // n_docs  # blocks, which keep related docs together
    chosen = []
    held_out = numpy.zeros(3, dtype="int64")
    for fold in range(N_FOLDS):
        in_fold = fold_of == fold
        points = points_of(values, counts[:, ~in_fold].sum(axis=1))
        f_scores = numpy.asarray([point.f_score(beta) for point in points])
        best = numpy.flatnonzero(f_scores >= f_scores.max() - 1e-12)
        chosen.append(best[len(best) // 2])
        held_out += counts[chosen[-1], in_fold].sum(axis=0)
    index = int(numpy.rint(numpy.mean(chosen)))
    return index, points_of([values[index]], held_out[None])[0]


def count_by_doc(devs: Sequence[DevPredictions], decoded: Sequence[Entities]) -> Ints2d:
    """The entities of each doc that are correct, predicted and annotated. Shape: (D, 3)"""
    tables = []
    for dev, entities in zip(devs, decoded):
        ends = numpy.cumsum(dev.posterior.doc_lengths)
        correct = entities.select(dev.is_correct(entities))
        columns = []
        for counted in (correct, entities, dev.gold):
            doc_of = numpy.searchsorted(ends, counted.begin, side="right")
            columns.append(numpy.bincount(doc_of, minlength=len(ends)))
        tables.append(numpy.stack(columns, axis=1))
    return numpy.concatenate(tables)


def points_of(values: Sequence[float], counts: Ints2d) -> list[Point]:
    """The scores at each value, from its correct, predicted and annotated entities: (V, 3)."""
    points = []
    for value, (n_correct, n_predicted, n_gold) in zip(values, counts.tolist()):
        precision = n_correct / n_predicted if n_predicted else 1.0
        points.append(Point(value, precision, n_correct / max(n_gold, 1)))
    return points


def decode_at_all(
    devs: Sequence[DevPredictions], parameter: str
) -> Iterator[tuple[float, Sequence[Entities]]]:
    """All values of a parameter, each with the entities that are decoded with it."""
    if not any(len(dev.gold.begin) for dev in devs):
        raise ValueError("expected docs with entities, got none")
    likely = [dev.posterior.likely_entities(LEAST) for dev in devs if parameter == "threshold"]
    for value in PARAMETERS[parameter][1].round(4).tolist():
        if parameter == "bias":
            yield value, [dev.decode(make_viterbi(bias=value)) for dev in devs]
        else:
            chosen = [without_overlap(entities, probs - value) for entities, probs in likely]
            yield value, [dev.keep(entities) for dev, entities in zip(devs, chosen)]


def score(value: float, devs: Sequence[DevPredictions], decoded: Sequence[Entities]) -> Point:
    """The scores of the entities that are decoded with a value."""
    return points_of([value], count_by_doc(devs, decoded).sum(axis=0, keepdims=True))[0]


def choose(
    points: Sequence[Point],
    beta: float = 1.0,
    precision: float | None = None,
    recall: float | None = None,
) -> Point:
    """The best point: see `tune`."""
    if precision is None and recall is None:
        return max(points, key=lambda point: point.f_score(beta))
    if precision is not None and recall is not None:
        raise ValueError("precision, recall: expected only one of them, got both")
    names = ("recall", "precision") if precision is None else ("precision", "recall")
    least, required, other = precision or recall or 0.0, *map(attrgetter, names)
    if (highest := max(map(required, points))) < least:
        raise ValueError(
            f"{names[0]}: expected {highest:.4f} or less, the highest value found, got {least}"
        )
    reached = [point for point in points if required(point) >= least]
    return max(reached, key=lambda point: (other(point), required(point)))


def parse_aim(text: str, *others: str, option: str = "--tune") -> dict[str, Any]:
    """Read an aim as arguments of `tune`: "f" (or another name), "precision=0.9", "recall=0.9"."""
    name, _, least = text.partition("=")
    with suppress(ValueError):
        if text in ("f", *others):
            return {}
        if name in ("precision", "recall") and 0 < float(least) < 1:
            return {name: float(least)}
    names = ", ".join(["f", *others])
    raise ValueError(f"{option}: expected {names}, precision=0.9 or recall=0.9, got {text!r}")


def use_decoding(nlp: Language, ner: CostSensitiveNER, block: dict[str, Any]) -> None:
    """Set the decoding of a component to a block of the config, and write that to the config."""
    ner.set_decoding(registry.resolve({"decoding": block})["decoding"])
    nlp.get_pipe_config(ner.name)["decoding"] = block
