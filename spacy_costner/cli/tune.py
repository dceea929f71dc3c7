"""The command `tune`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from ..analysis.tuning import Tuning, tune
from ..readers.files import encodable
from ..saving import check_file, check_folder, save_folder
from .command_line import command
from .options import CodeOption, DevArg, GpuOption, ModelArg, OutputOption, load
from .output import JsonOption, errors_shown, print_result
from .plots import precision_recall, save
from .tables import text_table

N_ROWS = 10
"""Values that are shown."""


@command(
    tune,
    options={
        "parameter": Option("--parameter", "-p", show_default="threshold"),
        "beta": Option("--beta", "-b"),
    },
    without=("source",),
)
def tune_cli(
    run: partial[Any],
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
        nlp, examples = load(
            model, dev_path, use_gpu, code_path, file_tokens=run.keywords["file_tokens"]
        )
        tuning = run(nlp, examples, source=encodable(dev_path))
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
