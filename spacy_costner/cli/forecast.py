"""Forecast the scores of a linear model with more training docs.

The decorator `command` adds the options of `forecast`. `run` is `forecast` with these options
set."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.cli._util import import_code, show_validation_error
from typer import Argument, Option

from ..files.saving import check_file
from ..readers import ReadOptions
from ..workflows.fitting.fit_corpora import ignore_corpus
from ..workflows.forecasting.curve_forecast import (
    TIMES,
    Forecast,
    Interval,
    LabelForecast,
    Needed,
)
from ..workflows.forecasting.forecasting import forecast
from .command_line import command, reads_corpora
from .options import CodeOption, read_overrides
from .output import (
    LANGUAGE_OF_PIPELINE,
    LANGUAGE_OPTION,
    JsonOption,
    errors_shown,
    print_corpus,
    print_result,
)
from .plots import draw_forecast, require_matplotlib, save_figure
from .svg import save_svg
from .tables import text_table


@command(
    forecast,
    options={
        "lang": Option("--lang", "-l", show_default="en"),
        "train_path": Option("--train", help="Training corpus, as --paths.train", exists=True),
        "raw_paths": Option("--raw", exists=True, show_default=False),
        "f": Option(
            "--f",
            help="F to reach, such as 0.8: how many more docs it takes. Repeatable",
            show_default="the next two multiples of 0.05",
        ),
        "n_folds": Option("--folds", min=2),
        "seed": Option("--seed"),
    },
    without=("reading", "overrides", "on_corpus"),
)
@reads_corpora
def forecast_cli(
    run: partial[Forecast],  # `forecast` with its options set by `command`
    ctx: typer.Context,
    config_path: Annotated[
        Path | None,
        Argument(help="Config of a linear model", show_default="the one that `init` writes"),
    ] = None,
    plot_path: Annotated[
        Path | None, Option("--plot", help="Plot the curve of F (requires matplotlib)")
    ] = None,
    *,
    reading: ReadOptions,
    print_json: JsonOption = False,
    code_path: CodeOption = None,
) -> None:
    """
    Forecast the scores of a linear model with two and four times as many training docs, and the
    number of additional docs needed to reach an F, with intervals. Models are trained on
    increasingly large parts of the corpus and evaluated on held-out docs, which takes 5 to 10 times
    as long as `costner fit`. Override settings as in `spacy train`, e.g. --nlp.lang es.
    """
    overrides = read_overrides(ctx)
    import_code(code_path)
    language_setting = LANGUAGE_OPTION if config_path is None else LANGUAGE_OF_PIPELINE
    inputs = [path for path in (config_path, run.keywords["train_path"]) if path is not None]
    with (
        errors_shown(language_setting=language_setting),
        show_validation_error(config_path, hint_fill=False),
    ):
        check_file(plot_path, inputs)
        if plot_path is not None:
            require_matplotlib()
        result = run(
            config_path,
            reading=reading,
            overrides=overrides,
            # With --json, stdout must only contain JSON.
            on_corpus=ignore_corpus if print_json else print_corpus,
        )
        if plot_path is not None:
            figure = draw_forecast(result)
            if plot_path.suffix.lower() == ".svg":
                save_svg(figure, plot_path)
            else:
                save_figure(figure, plot_path)
    print_result(result, forecast_text(result), print_json, plot_path)


def forecast_text(result: Forecast) -> str:
    """Format the measured scores and the forecasts as tables, followed by the number of additional
    docs needed to reach an F-score."""
    overall, *labels = result.labels
    level = f"{100 * result.confidence:g} % interval"
    lines = ["", text_table(rows_of_curve(overall, level)), ""]
    if overall.refusal:
        lines.append(f"no forecast: {overall.refusal}")
    else:
        lines += [needed_text(needed) for needed in result.needed]
        most_more = (max(TIMES) - 1) * result.docs
        if any(needed.more is not None and needed.more > most_more for needed in result.needed):
            lines.append(f"note: forecasts for more than {max(TIMES)} times as many are unchecked")
    if len(labels) > 1:
        lines += ["", text_table(rows_of_labels(labels, level))]
    lines += [f"note: {note}" for note in result.notes]
    return "\n".join(lines)


def rows_of_curve(overall: LabelForecast, level: str) -> list[Sequence[Any]]:
    """Create the overall table, with a row for each measured or forecast number of docs."""
    rows: list[Sequence[Any]] = [["docs", "", "F", level, "precision", "recall"]]
    for point in overall.measured:
        scores = [as_percent(score) for score in (point.f, point.precision, point.recall)]
        rows.append([f"{point.docs:,.0f}", "measured", scores[0], "", *scores[1:]])
    for expected in overall.expected:
        rows.append(
            [
                f"{expected.docs:,}",
                "forecast",
                as_percent(expected.f.value),
                as_range(expected.f),
                as_percent(expected.precision.value),
                as_percent(expected.recall.value),
            ]
        )
    if not overall.expected:
        # Without forecasts, drop the "measured" and interval columns.
        return [[docs, f, *others] for docs, _, f, _, *others in rows]
    return rows


def rows_of_labels(labels: Sequence[LabelForecast], level: str) -> list[Sequence[Any]]:
    """Create the table of labels, with the expected F-scores for the current number of docs and for
    more docs."""
    header = ["label", "entities"]
    forecasts = next((label.expected for label in labels if label.expected), [])
    for expected in forecasts:
        header += [f"F at {expected.docs:,}", level]
    rows: list[Sequence[Any]] = [header]
    for label in labels:
        row = [label.label, f"{label.entities:,}"]
        for expected in label.expected:
            row += [as_percent(expected.f.value), as_range(expected.f)]
        rows.append(row + ["-"] * (len(header) - len(row)))
    return rows


def needed_text(needed: Needed) -> str:
    """Format the number of additional docs needed to reach an F-score, as in "F 80: about 900 more
    docs, 600 to 1,700"."""
    name = f"F {100 * needed.f:g}"
    if needed.more == 0:
        return f"{name}: no more docs than there are"
    if needed.low is None:
        return f"{name}: the curve says it won't come"
    low = as_round(needed.low)
    if needed.more is None:
        return f"{name}: the curve doesn't reach it, at least {low} more docs"
    about = f"{name}: about {as_round(needed.more)} more docs"
    if needed.high is not None:
        return f"{about}, {low} to {as_round(needed.high)}"
    if needed.low == 0:
        return f"{about}, very uncertain"
    return f"{about}, at least {low}"


def as_round(number: int) -> str:
    """Format a number rounded to two significant digits, as in "1,700"."""
    digits = max(len(str(number)) - 2, 0)
    return f"{round(number, -digits):,}"


def as_percent(share: float) -> str:
    """Format a score as a percentage."""
    return f"{100 * share:.1f}"


def as_range(interval: Interval) -> str:
    """Format an interval of scores in percent, as in "71.5 to 74.6"."""
    return f"{as_percent(interval.low)} to {as_percent(interval.high)}"
