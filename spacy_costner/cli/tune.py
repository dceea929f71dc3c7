"""Choose a decision threshold or a bias on development docs. No retraining."""

from pathlib import Path
from typing import (
    Annotated,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import numpy
from spacy.language import Language
from spacy.training import Example
from spacy.util import registry
from typer import Option

from ..decoding import LEAST, make_viterbi, without_overlap
from ..metrics import f_beta, precision, recall, text_table
from ..saving import check_file, check_folder, save_folder
from ..tags import Entities
from .deprecated import old_option
from .options import CodeOption, DevArg, GpuOption, ModelArg, NameOption, OutputOption, load
from .output import JsonOption, errors_shown, print_result
from .plots import precision_recall, save
from .predictions import DevPredictions, get_component, predict_dev, record_scores, select


class Point(NamedTuple):
    """The scores at a value of a parameter.

    value (float): The value.
    precision (float): Precision; 1 if nothing is predicted.
    recall (float): Recall.
    """

    value: float
    precision: float
    recall: float

    def f_score(self, beta: float = 1.0) -> float:
        """F-beta: see `metrics.f_beta`."""
        return float(f_beta(self.precision, self.recall, beta))

    @property
    def scores(self) -> Tuple[float, float, float]:
        """Precision, recall and F."""
        return self.precision, self.recall, self.f_score()


class Aim(NamedTuple):
    """What to optimise: F-beta or, if one of precision and recall is required, the other.

    beta (float): How many times as important recall is as precision.
    precision (Optional[float]): Best recall with at least this precision.
    recall (Optional[float]): Best precision with at least this recall.
    """

    beta: float = 1.0
    precision: Optional[float] = None
    recall: Optional[float] = None


class Parameter(NamedTuple):
    """A parameter of a decoding.

    block (str): The registered name of the decoding.
    values (Tuple[float, ...]): The values to try.
    make_decoder (Callable): Takes development docs to a function from value to entities.
    """

    block: str
    values: Tuple[float, ...]
    make_decoder: Callable[[DevPredictions], Callable[[float], Entities]]


class Tuning(NamedTuple):
    """The result of tuning.

    parameter (str): "threshold" or "bias".
    points (List[Point]): The scores at each value.
    chosen (Point): The best of them.
    before (Point): The scores of the decoding that the component had. Value: NaN.
    """

    parameter: str
    points: List[Point]
    chosen: Point
    before: Point

    def describe(self) -> str:
        """The chosen value, and the scores before and with it, in percent."""
        changes = [
            f"{name} {100 * before:.2f} -> {100 * after:.2f}"
            for name, before, after in zip("PRF", self.before.scores, self.chosen.scores)
        ]
        return f"{self.parameter} {self.chosen.value:g}: {', '.join(changes)}"


def _by_bias(dev: DevPredictions) -> Callable[[float], Entities]:
    return lambda bias: dev.decode(make_viterbi(bias=bias))


def _by_threshold(dev: DevPredictions) -> Callable[[float], Entities]:
    entities, probs = dev.posterior.likely_entities(LEAST)

    def decode(threshold: float) -> Entities:
        chosen = without_overlap(entities, probs - threshold)
        return select(chosen, dev.counts(chosen))

    return decode


PARAMETERS: Dict[str, Parameter] = {
    "threshold": Parameter(
        "spacy_costner.ThresholdDecoding.v1",
        tuple(numpy.linspace(LEAST, 0.99, 99).round(4).tolist()),
        _by_threshold,
    ),
    "bias": Parameter(
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
    parameter: Optional[str] = None,
    aim: Aim = Aim(),  # noqa: B008
    source: str = "development docs",
) -> Tuning:
    """Choose the best value of a parameter on development docs, and set it.

    nlp (Language): The trained pipeline. Its config, its component and the scores in its meta are
        updated.
    examples (Iterable[Example]): The docs. They should not be training docs.
    name (str): The name of the component.
    parameter (Optional[str]): "threshold" or "bias": its decoding replaces that of the component.
        Defaults to "threshold", if the component has a decoding with one of the two.
    aim (Aim): What to optimise.
    source (str): The name of the docs in the meta: see `record_scores`.
    RETURNS (Tuning): The scores at each value, and the value chosen.
    RAISES (ValueError): If there is no such parameter or component, no entity in the docs, no
        value with the required precision or recall, or no parameter is given and the decoding of
        the component has none.
    """
    parameter = check_parameter(nlp, name, parameter)
    examples = list(examples)
    tuning = tune_on([predict_dev(nlp, name, examples)], nlp, name, parameter=parameter, aim=aim)
    record_scores(nlp, nlp.evaluate(examples), source, len(examples))
    return tuning


def tune_on(
    devs: Sequence[DevPredictions], nlp: Language, name: str, *, parameter: str, aim: Aim
) -> Tuning:
    """Choose the best value of a parameter on predictions, and set it: see `tune`.

    devs (Sequence[DevPredictions]): The predictions, of one model or of several.
    """
    ner, points = get_component(nlp, name), sweep(devs, parameter)
    decoded = [dev.keep(ner.decode(dev.posterior).entities) for dev in devs]
    before = _point(float("nan"), decoded, devs)
    chosen = choose(points, aim)
    block = {"@misc": PARAMETERS[parameter].block, parameter: chosen.value, "labels": {}}
    use_decoding(nlp, name, block)
    return Tuning(parameter, points, chosen, before)


def check_parameter(nlp: Language, name: str, parameter: Optional[str] = None) -> str:
    """The parameter to tune.

    RAISES (ValueError): See `tune`.
    """
    if parameter is None:
        parameter = _default_parameter(nlp, name)
    if parameter not in PARAMETERS:
        raise ValueError(f"parameter: expected one of {list(PARAMETERS)}, got {parameter!r}")
    return parameter


def _default_parameter(nlp: Language, name: str) -> str:
    get_component(nlp, name)
    block = nlp.get_pipe_config(name)["decoding"]["@misc"]
    if block not in [parameter.block for parameter in PARAMETERS.values()]:
        raise ValueError(
            f"components.{name}.decoding: expected a decoding with a threshold or a bias, got "
            f"{block}, which has neither. To replace it, name the parameter to tune: "
            f"{' or '.join(PARAMETERS)}"
        )
    return "threshold"


def sweep(devs: Sequence[DevPredictions], parameter: str) -> List[Point]:
    """Try all values of a parameter.

    devs (Sequence[DevPredictions]): Docs, with their posterior.
    parameter (str): "threshold" or "bias".
    RETURNS (List[Point]): The scores at each value.
    RAISES (ValueError): If there is no entity in the docs.
    """
    if not any(len(dev.gold.begin) for dev in devs):
        raise ValueError("expected docs with entities, got none")
    _, values, make_decoder = PARAMETERS[parameter]
    decoders = [make_decoder(dev) for dev in devs]
    return [_point(value, [decode(value) for decode in decoders], devs) for value in values]


def _point(value: float, predicted: Sequence[Entities], devs: Sequence[DevPredictions]) -> Point:
    n_right = sum(int(dev.right(entities).sum()) for dev, entities in zip(devs, predicted))
    n_predicted = sum(len(entities.begin) for entities in predicted)
    n_gold = sum(len(dev.gold.begin) for dev in devs)
    return Point(
        value,
        float(precision(n_right, n_predicted - n_right)) if n_predicted else 1.0,
        float(recall(n_right, n_gold - n_right)),
    )


def choose(points: Iterable[Point], aim: Aim) -> Point:
    """Choose the best point.

    points (Iterable[Point]): The scores at each value.
    aim (Aim): What to optimise.
    RETURNS (Point): The best one.
    RAISES (ValueError): If both precision and recall are required, or no point has what is
        required.
    """
    if aim.precision is not None and aim.recall is not None:
        raise ValueError("precision, recall: expected only one of them, got both")
    for required, other in (("precision", "recall"), ("recall", "precision")):
        least = getattr(aim, required)
        if least is not None:
            return _best_above(list(points), required, least, other)
    return max(points, key=lambda point: point.f_score(aim.beta))


def _best_above(points: List[Point], required: str, least: float, other: str) -> Point:
    reached = [point for point in points if getattr(point, required) >= least]
    if not reached:
        highest = max(getattr(point, required) for point in points)
        raise ValueError(
            f"{required}: expected {highest:.4f} or less, the highest value found, got {least}"
        )
    return max(reached, key=lambda point: (getattr(point, other), getattr(point, required)))


def parse_aim(text: str) -> Dict[str, Any]:
    """Read an aim as arguments of `tune`: "f", "precision=0.9" or "recall=0.9".

    RAISES (ValueError): If it is none of these.
    """
    name, _, least = text.partition("=")
    try:
        if text == "f":
            return {}
        if name in ("precision", "recall") and 0 < float(least) < 1:
            return {name: float(least)}
    except ValueError:
        pass
    raise ValueError(f"--tune: expected f, precision=0.9 or recall=0.9, got {text!r}")


def use_decoding(nlp: Language, name: str, block: Dict[str, Any]) -> None:
    """Set the decoding of a component, in its config too.

    nlp (Language): The pipeline.
    name (str): The name of the component.
    block (Dict[str, Any]): The config block of the decoding.
    RAISES (ValueError): If there is no such component.
    """
    get_component(nlp, name).set_decoding(registry.resolve({"decoding": block})["decoding"])
    nlp.get_pipe_config(name)["decoding"] = block


def draw(tuning: Tuning, path: Path) -> None:
    """Plot the precision-recall curve with the chosen value.

    tuning (Tuning): The result of tuning.
    path (Path): The file. Its suffix determines the format.
    RAISES (ImportError): If matplotlib is not installed.
    """
    point = tuning.chosen
    scores = ", ".join(f"{x} {100 * score:.2f}" for x, score in zip("PRF", point.scores))
    figure = precision_recall(
        {tuning.parameter: tuning.points},
        (point.precision, point.recall),
        chosen_name=f"{tuning.parameter} {point.value:g}: {scores}",
        title=f"Precision and recall by {tuning.parameter}, development docs",
    )
    save(figure, path)


N_ROWS = 10
"""Values that are shown."""


def tune_cli(
    model: ModelArg,
    dev_path: DevArg,
    output_path: OutputOption,
    name: NameOption = "ner",
    parameter: Annotated[
        Optional[str],
        Option("--parameter", "-p", help="Threshold or bias to tune", show_default="threshold"),
    ] = None,
    beta: Annotated[
        float, Option("--beta", "-b", help="Beta of F-beta: weight of recall over precision")
    ] = 1.0,
    precision: Annotated[
        Optional[float],
        Option("--precision", help="Required precision: maximise recall instead of F-beta"),
    ] = None,
    recall: Annotated[
        Optional[float],
        Option("--recall", help="Required recall: maximise precision instead of F-beta"),
    ] = None,
    plot_path: Annotated[
        Optional[Path], Option("--plot", help="Output file for a plot (requires matplotlib)")
    ] = None,
    show_all: Annotated[
        bool, Option("--all", help=f"Show all values, not {N_ROWS} around the best")
    ] = False,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
    old_parameter: Annotated[Optional[str], old_option("--dial", "-d", new="--parameter")] = None,
) -> None:
    """
    Choose the decision threshold, or the bias, that gives the best F-beta on development docs,
    or the best recall at a required precision. No retraining: the model runs once, and all
    values are tried on its output.
    """
    parameter = old_parameter or parameter
    with errors_shown():
        check_folder(output_path)
        check_file(plot_path, [model, dev_path])
        nlp, examples = load(model, dev_path, use_gpu, code_path)
        aim = Aim(beta, precision, recall)
        tuning = tune(nlp, examples, name=name, parameter=parameter, aim=aim, source=str(dev_path))
        save_folder(output_path, nlp.to_disk)
        if plot_path is not None:
            draw(tuning, plot_path)
    print_result(tuning, describe(tuning, show_all), print_json, output_path, plot_path)


def describe(tuning: Tuning, show_all: bool) -> str:
    """The scores of the values around the chosen one, or of all, and those before and after."""
    points, n_rows = tuning.points, len(tuning.points) if show_all else N_ROWS
    begin = min(max(points.index(tuning.chosen) - n_rows // 2, 0), len(points) - n_rows)
    rows = [
        [
            f"{point.value:g}",
            *(100 * score for score in point.scores),
            "<- chosen" if point == tuning.chosen else "",
        ]
        for point in points[max(begin, 0) :][:n_rows]
    ]
    return f"{text_table([[tuning.parameter, 'P', 'R', 'F', ''], *rows])}\n\n{tuning.describe()}"
