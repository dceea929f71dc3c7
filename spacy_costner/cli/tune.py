"""`python -m spacy costner tune`."""

from pathlib import Path
from typing import Annotated, Optional

from typer import Option

from ..commands.tune import Aim, Tuning, draw, tune
from ..metrics import text_table
from ..saving import check_file, check_folder, save_folder
from .deprecated import old_option
from .options import (
    CodeOption,
    DevArg,
    GpuOption,
    ModelArg,
    NameOption,
    OutputOption,
    load,
)
from .output import JsonOption, errors_shown, print_result

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
