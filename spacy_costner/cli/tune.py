"""Choose a decision threshold or a bias on development docs. No retraining."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.training import Example
from spacy.util import registry
from typer import Option

from ..decoding import LEAST, make_viterbi, without_overlap
from ..metrics import f_beta, text_table
from ..pipeline.component import CostSensitiveNER
from ..readers.files import encodable
from ..saving import check_file, check_folder, save_folder
from ..tags import Entities
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
from .plots import precision_recall, save
from .predictions import DevPredictions, get_component, predict_dev, record_scores

PARAMETERS = {
    "threshold": ("spacy_costner.ThresholdDecoding.v1", numpy.linspace(LEAST, 0.99, 99)),
    "bias": ("spacy_costner.ViterbiDecoding.v1", numpy.linspace(-10, 10, 81)),
}
"""What can be tuned: the decoding that has it, and the values to try."""

N_ROWS = 10
"""Values that are shown."""


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

    def describe(self) -> str:
        """The chosen value, and the scores before and with it, in percent."""
        scores = zip("PRF", self.before.scores, self.chosen.scores)
        changes = [f"{x} {100 * before:.2f} -> {100 * after:.2f}" for x, before, after in scores]
        return f"{self.parameter} {self.chosen.value:g}: {', '.join(changes)}"


def tune(
    nlp: Language,
    examples: Iterable[Example],
    *,
    name: NameOption = "ner",
    parameter: Annotated[
        str | None,
        Option("--parameter", "-p", help="Threshold or bias to tune", show_default="threshold"),
    ] = None,
    beta: Annotated[float, Option("--beta", "-b", help="Weight of recall in F-beta")] = 1.0,
    precision: Annotated[
        float | None,
        Option("--precision", help="Required precision: maximise recall instead of F-beta"),
    ] = None,
    recall: Annotated[
        float | None,
        Option("--recall", help="Required recall: maximise precision instead of F-beta"),
    ] = None,
    source: str = "development docs",
) -> Tuning:
    """Choose the value of a parameter with the best scores on development docs, and set it.

    nlp (Language): The trained pipeline. Its config, its component and the scores in its meta are
        updated.
    examples (Iterable[Example]): The docs. They should not be training docs.
    parameter (str | None): "threshold" or "bias": its decoding replaces the component's. None:
        "threshold", if the component has a decoding with one of the two.
    beta (float): Recall is so many times as important as precision.
    source (str): The name of the docs in the meta: see `record_scores`.
    RETURNS (Tuning): The scores at each value, and the value chosen.
    RAISES (ValueError): If there is no such parameter or component, no entity in the docs, no
        value with the required precision or recall, or both are required.
    """
    ner, examples = get_component(nlp, name), list(examples)
    parameter = check_parameter(nlp, ner, parameter)
    aim = {"beta": beta, "precision": precision, "recall": recall}
    tuning = tune_on([predict_dev(nlp, ner, examples)], nlp, ner, parameter, **aim)
    record_scores(nlp, nlp.evaluate(examples), source, len(examples))
    return tuning


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
    points = [score(value, devs, decoded) for value, decoded in decode_at_all(devs, parameter)]
    before = [dev.keep(ner.decode(dev.posterior).entities) for dev in devs]
    tuning = Tuning(parameter, points, choose(points, **aim), score(float("nan"), devs, before))
    block = {"@misc": PARAMETERS[parameter][0], parameter: tuning.chosen.value, "labels": {}}
    use_decoding(nlp, ner, block)
    return tuning


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
    n_correct = sum(int(dev.is_correct(entities).sum()) for dev, entities in zip(devs, decoded))
    n_predicted = sum(len(entities.begin) for entities in decoded)
    n_gold = sum(len(dev.gold.begin) for dev in devs)
    return Point(value, n_correct / n_predicted if n_predicted else 1.0, n_correct / n_gold)


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


@options_of(tune)
def tune_cli(
    model: ModelArg,
    dev_path: DevArg,
    output_path: OutputOption,
    *,
    plot_path: Annotated[
        Path | None, Option("--plot", help="Output file for a plot (requires matplotlib)")
    ] = None,
    show_all: Annotated[bool, Option("--all", help="Show all values, not ten")] = False,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
    **options: Any,
) -> None:
    """
    Choose the decision threshold, or the bias, that gives the best F-beta on development docs,
    or the best recall at a required precision. No retraining: the model runs once, and all
    values are tried on its output. `costner fit --tune precision=0.9` does the same as
    --precision 0.9 here.
    """
    with errors_shown():
        check_folder(output_path)
        check_file(plot_path, [model, dev_path])
        nlp, examples = load(model, dev_path, use_gpu, code_path)
        tuning = tune(nlp, examples, source=encodable(dev_path), **options)
        save_folder(output_path, nlp.to_disk)
        if plot_path is not None:
            draw(tuning, plot_path)
    print_result(tuning, describe(tuning, show_all), print_json, output_path, plot_path)


def draw(tuning: Tuning, path: Path) -> None:
    """Plot the precision-recall curve with the chosen value, in the format of the file's suffix."""
    point, parameter = tuning.chosen, tuning.parameter
    scores = ", ".join(f"{x} {100 * score:.2f}" for x, score in zip("PRF", point.scores))
    figure = precision_recall(
        {parameter: tuning.points},
        (point.precision, point.recall),
        chosen_name=f"{parameter} {point.value:g}: {scores}",
        title=f"Precision and recall by {parameter}, development docs",
    )
    save(figure, path)


def describe(tuning: Tuning, show_all: bool) -> str:
    """The scores of the values around the chosen one, or of all, and those before and after."""
    points, n_rows = tuning.points, len(tuning.points) if show_all else N_ROWS
    begin = min(max(points.index(tuning.chosen) - n_rows // 2, 0), len(points) - n_rows)
    rows: Any = [[tuning.parameter, "P", "R", "F", ""]]
    for point in points[max(begin, 0) :][:n_rows]:
        mark = "<- chosen" if point == tuning.chosen else ""
        rows.append([f"{point.value:g}", *(100 * score for score in point.scores), mark])
    return f"{text_table(rows)}\n\n{tuning.describe()}"
