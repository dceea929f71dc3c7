"""The dial between precision and recall, set on development docs by one pass of the model."""

from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import numpy
from spacy.language import Language
from spacy.training import Example
from spacy.util import registry

from ..decoding import LEAST, make_viterbi, without_overlap
from ..tags import Entities
from .dev_predictions import DevPredictions, get_component, predict_dev, select
from .plots import precision_recall, save


class Point(NamedTuple):
    """What a setting of the dial is good for.

    value (float): The setting.
    precision (float): The share of answers that are right; 1 if there are none.
    recall (float): The share of annotated entities that are predicted.
    """

    value: float
    precision: float
    recall: float

    def f_score(self, beta: float = 1.0) -> float:
        """The weighted harmonic mean of precision and recall.

            (1 + beta^2) P R / (beta^2 P + R)

        beta (float): How many times as important recall is.
        """
        precision, recall = self.precision, self.recall
        weighted = beta**2 * precision + recall
        return (1 + beta**2) * precision * recall / weighted if weighted else 0.0


class Aim(NamedTuple):
    """What a setting is chosen for. With a floor, it is the best of the other.

    beta (float): For F-beta, without a floor.
    precision (Optional[float]): Best recall with at least this precision.
    recall (Optional[float]): Best precision with at least this recall.
    """

    beta: float = 1.0
    precision: Optional[float] = None
    recall: Optional[float] = None


class Dial(NamedTuple):
    """Something that can be turned.

    block (str): The decoding that has it.
    values (Tuple[float, ...]): What is tried.
    answers (Callable): Takes development docs to a function from value to answer.
    """

    block: str
    values: Tuple[float, ...]
    answers: Callable[[DevPredictions], Callable[[float], Entities]]


class Tuning(NamedTuple):
    """What came of tuning.

    dial (str): What was turned.
    points (List[Point]): What each value is good for.
    chosen (Point): The one that serves the aim best.
    """

    dial: str
    points: List[Point]
    chosen: Point


def _by_bias(development: DevPredictions) -> Callable[[float], Entities]:
    return lambda bias: development.answer(make_viterbi(bias=bias))


def _by_threshold(development: DevPredictions) -> Callable[[float], Entities]:
    entities, probs = development.posterior.likely_entities(LEAST)

    def answer(threshold: float) -> Entities:
        chosen = without_overlap(entities, probs - threshold)
        return select(chosen, development.counts(chosen))

    return answer


DIALS: Dict[str, Dial] = {
    "threshold": Dial(
        "spacy_costner.ThresholdDecoding.v1",
        tuple(numpy.linspace(LEAST, 0.99, 99).round(4).tolist()),
        _by_threshold,
    ),
    "bias": Dial(
        "spacy_costner.ViterbiDecoding.v1",
        tuple(numpy.linspace(-10, 10, 81).round(4).tolist()),
        _by_bias,
    ),
}


def tune(
    nlp: Language,
    examples: Iterable[Example],
    *,
    name: str = "ner",
    dial: str = "threshold",
    aim: Aim = Aim(),  # noqa: B008
) -> Tuning:
    """Turn the dial on development docs, and leave the component with the best setting.

    nlp (Language): The trained pipeline. Its config and its component get the setting.
    examples (Iterable[Example]): The docs. They should not be those it was trained on.
    name (str): The name of the component.
    dial (str): "threshold" or "bias": see `decode`.
    aim (Aim): What is best.
    RETURNS (Tuning): What each setting is good for, and the one chosen.
    RAISES (ValueError): If there is no such dial or component, no entity in the docs, or no
        setting that reaches the floor.
    """
    if dial not in DIALS:
        raise ValueError(f"dial: expected one of {list(DIALS)}, got {dial!r}")
    points = sweep(predict_dev(nlp, name, examples), dial)
    chosen = choose(points, aim)
    use_decoding(nlp, name, {"@misc": DIALS[dial].block, dial: chosen.value, "labels": {}})
    return Tuning(dial, points, chosen)


def sweep(development: DevPredictions, dial: str) -> List[Point]:
    """Try all settings of a dial.

    development (DevPredictions): The docs, and what a model believes of them.
    dial (str): "threshold" or "bias": see `decode`.
    RETURNS (List[Point]): What each setting is good for.
    RAISES (ValueError): If there is no entity in the docs.
    """
    if not len(development.gold.begin):
        raise ValueError("expected docs with entities, found none")
    answer = DIALS[dial].answers(development)
    return [_point(value, answer(value), development) for value in DIALS[dial].values]


def _point(value: float, predicted: Entities, development: DevPredictions) -> Point:
    n_right = int(development.right(predicted).sum())
    n_answered, n_gold = len(predicted.begin), len(development.gold.begin)
    return Point(value, n_right / n_answered if n_answered else 1.0, n_right / n_gold)


def choose(points: Iterable[Point], aim: Aim) -> Point:
    """Choose the setting that serves an aim best.

    points (Iterable[Point]): What settings are good for.
    aim (Aim): The aim.
    RETURNS (Point): The best one.
    RAISES (ValueError): If both floors are given, or none of the points reaches the floor.
    """
    if aim.precision is not None and aim.recall is not None:
        raise ValueError("expected a floor of precision or of recall, found both")
    for floor, other in (("precision", "recall"), ("recall", "precision")):
        least = getattr(aim, floor)
        if least is not None:
            return _best_above(list(points), floor, least, other)
    return max(points, key=lambda point: point.f_score(aim.beta))


def _best_above(points: List[Point], floor: str, least: float, other: str) -> Point:
    reached = [point for point in points if getattr(point, floor) >= least]
    if not reached:
        highest = max(getattr(point, floor) for point in points)
        raise ValueError(
            f"{floor}: expected a floor that is reached, {highest:.4f} or less, got {least}"
        )
    return max(reached, key=lambda point: (getattr(point, other), getattr(point, floor)))


def use_decoding(nlp: Language, name: str, block: Dict[str, Any]) -> None:
    """Let a component answer in another way, and have the config say so.

    nlp (Language): The pipeline.
    name (str): The name of the component.
    block (Dict[str, Any]): The block of the config.
    RAISES (ValueError): If there is no such component.
    """
    get_component(nlp, name).set_decoding(registry.resolve({"decoding": block})["decoding"])
    nlp.get_pipe_config(name)["decoding"] = block


def draw(tuning: Tuning, path: Path) -> None:
    """Draw the precision-recall curve with the chosen setting.

    tuning (Tuning): What came of tuning.
    path (Path): The picture; its suffix says in which format.
    RAISES (ImportError): If matplotlib is not installed.
    """
    value, precision, recall = tuning.chosen
    scores = f"P {precision:.3f}, R {recall:.3f}, F {tuning.chosen.f_score():.3f}"
    figure = precision_recall(
        {tuning.dial: tuning.points},
        (precision, recall),
        chosen_name=f"{tuning.dial} {value:g}: {scores}",
        title=f"Precision and recall by {tuning.dial}, development docs",
    )
    save(figure, path)
