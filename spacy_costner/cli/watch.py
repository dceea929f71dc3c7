"""Test whether texts are still like a pipeline's calibration docs, and print the expected scores.

A test bets that the texts differ from the calibration docs. Its *martingale* is the accumulated
capital of these bets. If the martingale exceeds a certain level, an alarm is raised (see
`metrics.shift`).
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.tokens import Doc
from typer import Argument, Option

from ..files.saving import check_file
from ..metrics.shift import ENOUGH
from ..progress import progress
from ..readers.file_parts import divide, read_rows
from ..workflows.apply.batches import annotate_rows, load_annotator
from ..workflows.apply.inputs import find_sources
from ..workflows.apply.records import describe_error
from ..workflows.calibration.watching import WatchResult, has_file_tokens, watch
from ..workflows.components import get_component
from .command_line import command
from .options import CodeOption, GpuOption, ModelArg, NameOption
from .output import JsonOption, errors_shown, print_result
from .plots import draw_martingale, require_matplotlib, save_figure
from .tables import text_table

ROWS_OF_PART = 10_000
"""Number of texts to read from a file at a time."""


@command(watch, without=("in_order",))
def watch_cli(
    run: partial[WatchResult],  # `watch` with its options set by `command`
    model: ModelArg,
    inputs: Annotated[
        list[Path],
        Argument(help="Files or folders: .txt with a text per line, .jsonl, .spacy, .parquet"),
    ],
    name: NameOption = "ner",
    plot_path: Annotated[
        Path | None,
        Option(
            "--plot",
            help="Test docs in the order of the input, and plot the test (requires matplotlib)",
        ),
    ] = None,
    text: Annotated[str, Option("--text", help="Key or column of the text")] = "text",
    *,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Test whether texts are still like the calibration docs of `guarantee`, without annotation, and
    compute the expected precision, recall and F. The exit code is 1 after an alarm. If the texts
    are like the calibration docs, the probability of an alarm is at most 1%. Files are read in the
    same way as the calibration docs: only their text or, if `guarantee` was run with --file-tokens,
    also their tokens and sentence starts.
    """
    with errors_shown():
        # Check the paths and the plotting package before loading the pipeline.
        if plot_path is not None:
            check_file(plot_path, inputs)
            require_matplotlib()
        sources = find_sources(inputs)
        nlp = load_annotator(model, code_path, use_gpu)
        ner = get_component(nlp, name)
        file_tokens = has_file_tokens(ner)
        errors: list[Any] = []  # errors of rows that can't be read or annotated

        def read_files() -> Iterator[Any]:
            """Yield the rows of all files."""
            for path in sources.values():
                for part in divide(path, ROWS_OF_PART):
                    yield from read_rows(nlp, part, text=text, file_tokens=file_tokens)

        def predict_docs() -> Iterator[Doc]:
            """Annotate all rows. Yields the docs, and adds the errors of failed rows to
            `errors`."""
            rows = progress(read_files(), desc="watch", unit="doc")
            for _, doc_or_error in annotate_rows(nlp, rows):
                if isinstance(doc_or_error, Doc):
                    yield doc_or_error
                else:
                    errors.append(doc_or_error)

        watched = run(ner, predict_docs(), in_order=plot_path is not None)
        watched = watched._replace(n_failed=len(errors))
        if not watched.n_docs:
            message = "watch: expected texts, got none that can be read"
            if errors:
                message += f": {describe_error(errors[0])}"
            raise ValueError(message)
        if plot_path is not None:
            shift = watched.shift
            save_figure(draw_martingale(shift.log_martingale, shift.level), plot_path)
    result = {**watched.as_dict(), "file_tokens": file_tokens}
    print_result(result, watch_text(watched), print_json, plot_path)
    if watched.is_alarm:
        raise typer.Exit(1)


def watch_text(watched: WatchResult) -> str:
    """Format the result as text: a table of the tests, the numbers of docs that weren't tested or
    read, and the expected scores."""
    header = ["docs", "number", "calibration docs", "martingale", "alarm above", "alarm at"]
    rows: list[list[Any]] = [header]
    for test in watched.tests:
        shift = test.shift
        alarm_at = "-"
        if shift.alarm is not None:
            alarm_at = f"doc {shift.alarm:,}"
        rows.append(
            [
                test.value or "all",  # the value of --key, or all docs
                shift.n_docs,
                test.n_calibration,
                f"{shift.highest_martingale:.3g}",
                f"{shift.level:g}",
                alarm_at,
            ]
        )
    lines = [text_table(rows)]
    for value, n_docs in watched.untested.items():
        few = f"fewer than {ENOUGH} calibration docs have it"
        lines.append(f"not tested: {n_docs:,} docs with {value!r}: {few}")
    if watched.n_failed:
        lines.append(f"not read: {watched.n_failed:,} docs")
    if watched.is_alarm:
        lines.append(
            "Alarm: the model is less certain about these texts than about the calibration docs."
        )
    if any(test.shift.approximate for test in watched.tests):
        lines.append("note: `calibrate` used these calibration docs: false alarms may exceed 1 %")
    title = "expected"
    if watched.is_alarm:
        # If the texts differ from the calibration docs, the model is usually overconfident, so the
        # actual scores will be lower.
        title = "expected, optimistic"
    return "\n".join([*lines, "", expected_text(watched.shift.expected, title)])


def expected_text(expected: Mapping[str, Any], title: str) -> str:
    """Format the expected scores (see `Shift.expected`) as a table, overall and per label, in
    percent. `title` is the text of the first cell."""
    overall = {"p": expected["ents_p"], "r": expected["ents_r"], "f": expected["ents_f"]}
    rows: list[list[Any]] = [[title, "P", "R", "F"]]
    # A list, because a label may also be called "all".
    for label, scores in [("all", overall), *expected["ents_per_type"].items()]:
        row = [label]
        for name in ("p", "r", "f"):
            if scores[name] is None:
                row.append("-")
            else:
                row.append(f"{100 * scores[name]:.2f}")
        rows.append(row)
    return text_table(rows)
