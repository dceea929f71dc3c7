"""Tune a decoding parameter of a pipeline and print the scores around the chosen value.

The decorator `command` adds the options of `tune`, except for the parameters in `without`. `run` is
`tune` with these options set."""

from functools import partial
from typing import Annotated, Any

from typer import Option

from ..files.saving import check_folder
from ..readers import ReadOptions
from ..readers.files import encodable
from ..workflows.calibration.tuning import Tuning, tune
from ..workflows.saved_strings import save_pipeline
from .command_line import command, reads_corpora
from .options import (
    CodeOption,
    DevArg,
    FileTokensOption,
    GpuOption,
    ModelArg,
    OutputOption,
    load_with_examples,
)
from .output import JsonOption, errors_shown, print_result
from .tables import text_table

N_ROWS = 10
"""Maximum number of values to show without --all."""


@command(
    tune,
    options={
        "parameter": Option("--parameter", "-p", show_default="threshold"),
        "beta": Option("--beta", "-b"),
    },
    without=("file_tokens", "source"),
)
@reads_corpora
def tune_cli(
    run: partial[Tuning],  # `tune` with its options set by `command`
    model: ModelArg,
    dev_path: DevArg,
    output_path: OutputOption,
    *,
    reading: ReadOptions,
    file_tokens: FileTokensOption = False,
    show_all: Annotated[bool, Option("--all", help="Show all values, not ten")] = False,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Choose the decision threshold, or the bias, that gives the best F-beta on development docs,
    or the best recall at a required precision. No retraining is needed: the model runs once, and
    all values are tried on its output. `costner fit --tune precision=0.9` is equivalent to
    --precision 0.9 here.
    """
    with errors_shown():
        check_folder(output_path)
        nlp, examples = load_with_examples(
            model, dev_path, use_gpu, code_path, reading=reading, file_tokens=file_tokens
        )
        # The path is stored in the pipeline's meta as JSON, so it must be valid Unicode.
        docs_name = encodable(dev_path)
        tuning = run(nlp, examples, file_tokens=file_tokens, source=docs_name)
        save_pipeline(output_path, nlp)
    print_result(tuning, tuning_text(tuning, show_all), print_json, output_path)


def tuning_text(tuning: Tuning, show_all: bool) -> str:
    """Format the result of tuning as text: a table with the scores for all values, or only for
    `N_ROWS` values around the chosen value, and the scores before and after tuning."""
    points = tuning.points
    if not show_all and len(points) > N_ROWS:
        # Centre the table on the chosen value, unless it is too close to either end.
        first_row = points.index(tuning.chosen) - N_ROWS // 2
        last_possible_first_row = len(points) - N_ROWS
        first_row = min(max(first_row, 0), last_possible_first_row)
        points = points[first_row : first_row + N_ROWS]
    rows: list[list[Any]] = [[tuning.parameter, "P", "R", "F", ""]]
    for point in points:
        percentages = [100 * score for score in point.scores]
        mark = "<- chosen" if point == tuning.chosen else ""
        rows.append([f"{point.value:g}", *percentages, mark])
    return f"{text_table(rows)}\n\n{tuning.as_text()}"
