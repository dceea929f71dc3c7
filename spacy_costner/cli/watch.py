"""The command `watch`."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.tokens import Doc
from typer import Argument, Option

from ..analysis.annotating import annotate_rows, describe_error, find_sources, load_pipeline
from ..analysis.predictions import get_component
from ..analysis.watching import has_file_tokens, watch
from ..metrics.shift import ENOUGH
from ..progress import progress
from ..readers.texts import divide, read_rows
from ..saving import check_file
from .command_line import command
from .options import CodeOption, GpuOption, ModelArg, NameOption
from .output import JsonOption, errors_shown, print_result
from .plots import draw_martingale, require_matplotlib, save
from .tables import text_table


@command(watch, without=("in_order",))
def watch_cli(
    run: partial[Any],
    model: ModelArg,
    inputs: Annotated[
        list[Path],
        Argument(help="Files or folders: .txt with a text a line, .jsonl, .spacy, .parquet"),
    ],
    name: NameOption = "ner",
    plot_path: Annotated[
        Path | None,
        Option("--plot", help="Test in the order of the input, and plot it (requires matplotlib)"),
    ] = None,
    text: Annotated[str, Option("--text", help="Key or column of the text")] = "text",
    *,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Test without labels whether texts are still like the calibration docs of `guarantee`, and
    compute the precision, recall and F to expect. The exit code is 1 after an alarm, of which there
    are at most 1 % for texts like the calibration docs. Files are read as the calibration docs
    were: their text or, if those were read with --file-tokens, their tokens and sentence starts.
    """
    with errors_shown():
        if plot_path is not None:
            check_file(plot_path, inputs)
            require_matplotlib()
        sources = find_sources(inputs)
        nlp = load_pipeline(model, code_path, use_gpu)
        ner = get_component(nlp, name)
        file_tokens = has_file_tokens(ner)
        errors = []

        def docs() -> Iterator[Doc]:
            parts = (part for path in sources.values() for part in divide(path, 10_000))
            read = partial(read_rows, nlp, text=text, file_tokens=file_tokens)
            rows = chain.from_iterable(map(read, parts))
            for _, answer in annotate_rows(nlp, progress(rows, desc="watch", unit="doc")):
                if isinstance(answer, Doc):
                    yield answer
                else:
                    errors.append(answer)

        in_order = plot_path is not None
        result, whole = run(ner, docs(), in_order=in_order)
        result["failed"] = len(errors)
        if not result["docs"]:
            reason = f": {describe_error(errors[0])}" if errors else ""
            raise ValueError(f"watch: expected texts, could read none{reason}")
        result["file_tokens"] = file_tokens
        if plot_path is not None:
            save(draw_martingale(whole.log_martingale, whole.level), plot_path)
    print_result(result, describe(result), print_json, plot_path)
    if result["alarm"]:
        raise typer.Exit(1)


def describe(result: Mapping[str, Any]) -> str:
    """The tests and the expected scores."""
    rows: list[Any] = [
        ["docs", "number", "calibration docs", "martingale", "alarm above", "alarm at"]
    ]
    for one in result["tests"]:
        at = "-" if one["alarm"] is None else f"doc {one['alarm']:,}"
        numbers = [one["docs"], one["calibration"], f"{one['martingale']:.3g}", f"{one['level']:g}"]
        rows.append([one["value"] or "all", *numbers, at])
    lines = [text_table(rows)]
    for value, n in result["untested"].items():
        few = f"fewer than {ENOUGH} calibration docs have it"
        lines.append(f"not tested: {n:,} docs with {value!r}: {few}")
    lines += [f"not read: {result['failed']:,} docs"] * bool(result["failed"])
    if result["alarm"]:
        lines.append("Alarm: the model is less sure of these texts than of the calibration docs.")
    if any(one["approximate"] for one in result["tests"]):
        lines.append("note: `calibrate` saw these calibration docs: false alarms may exceed 1 %")
    rows = [["expected, an upper guess" if result["alarm"] else "expected", *"PRF"]]
    expected = result["expected"]
    overall = {one: expected[f"ents_{one}"] for one in "prf"}
    for label, scores in {"all": overall, **expected["ents_per_type"]}.items():
        cells = [scores[one] for one in "prf"]
        rows.append([label, *("-" if cell is None else 100 * cell for cell in cells)])
    return "\n".join([*lines, "", text_table(rows)])
