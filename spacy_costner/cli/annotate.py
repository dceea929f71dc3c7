"""Annotate text files and print a summary."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from ..workflows.apply.annotating import Summary, annotate
from ..workflows.ray_executor import ray_cluster
from .command_line import command
from .options import AddressOption, ModelArg
from .output import JsonOption, errors_shown, print_result, ray_messages_to_stderr

N_ERRORS = 5
"""Maximum number of errors and files with failed docs to print."""


@command(
    annotate,
    options={
        "form": Option("--format", "-f", help="Format of the output"),
        "jobs": Option("--jobs", "-j", min=1),
        "n_rows": Option(
            "--part",
            help="Lines or rows per part. Each part has its own output file. A .spacy file is one "
            "part, and Parquet row groups are not divided",
            min=1,
        ),
        "id_name": Option("--id"),
        "with_text": Option(
            "--with-text/--no-text", help="Whether to write the texts. .spacy always has them"
        ),
        "whole_files": Option(
            help="Read a .txt file as one doc, instead of a doc per line. Its id is the name of "
            "the file"
        ),
        "on_error": Option(
            help="What to do if a doc fails: write a row with its error, or raise the error"
        ),
        "use_gpu": Option("--gpu-id", "-g"),
        "code_path": Option("--code", "-c"),
    },
    without=("make_executor",),
)
def annotate_cli(
    run: partial[Summary],  # `annotate` with its options set by `command`
    model: ModelArg,
    inputs: Annotated[
        list[Path],
        Argument(help="Files or folders: .txt with a text per line, .jsonl, .spacy, .parquet"),
    ],
    output_path: Annotated[Path, Option("--output", "-o", help="Output folder")],
    *,
    address: AddressOption = None,
    print_json: JsonOption = False,
) -> None:
    """
    Annotate text files. Writes the entities with their probabilities and, if the pipeline predicts
    them, alternatives and guaranteed sets. If a doc fails, its error is written instead. If you run
    the command again, it only annotates missing parts and parts whose model, settings or input have
    changed. The exit code is 1 if a file can't be read or all of its docs fail.
    """
    with errors_shown(), ray_messages_to_stderr(address):
        executor = ray_cluster(address, run.keywords["use_gpu"])
        summary = run(model, inputs, output_path, make_executor=executor)
    # A `Shift` also contains the scores of all docs. Only print the result of the test.
    shift_summaries = {name: shift.summary for name, shift in summary.shift.items()}
    result = {**summary._asdict(), "shift": shift_summaries}
    print_result(result, annotation_text(summary), print_json, output_path)
    if summary.errors or summary.lost_files:
        raise typer.Exit(code=1)


def annotation_text(summary: Summary) -> str:
    """Format the summary as text: the numbers of parts and docs, the speed, the results of the
    shift tests, the files with failed docs, and the first errors. See `PartCounts` for the numbers
    of parts."""
    parts = summary.parts
    lines = [
        f"parts: {parts.kept} kept, {parts.changed} changed, {parts.new} new",
        f"{summary.docs:,} docs, {summary.failed:,} failed, {summary.tokens:,} tokens",
        f"{summary.seconds:.1f} s, {summary.tokens_per_second:,.0f} tokens/s",
    ]
    for component, shift in summary.shift.items():
        lines.append(f"{component}: {shift.as_text()}")
    failed_lines: list[str] = []
    for path, failed_docs in summary.failures.items():
        failed_lines.append(
            f"failed: {path}: {failed_docs.failed:,} of {failed_docs.docs:,} docs, the first is "
            f"{failed_docs.first_error}"
        )
    lines += first_lines(failed_lines)
    lines += first_lines([f"not written: {file}: {why}" for file, why in summary.errors.items()])
    if summary.wrapped:
        path, *others = summary.wrapped
        files = f"{path} and {len(others):,} others" if others else path
        lines.append(
            f"note: lines of {files} don't end like sentences, and each line is read as a doc: if "
            "lines are wrapped, use --whole-files to read each file as a doc"
        )
    return "\n".join(lines)


def first_lines(lines: Sequence[str]) -> list[str]:
    """Return the first `N_ERRORS` lines. If there are more, add a line with the number of remaining
    lines."""
    n_others = len(lines) - N_ERRORS
    if n_others <= 0:
        return [*lines]
    return [*lines[:N_ERRORS], f"and {n_others} others"]
