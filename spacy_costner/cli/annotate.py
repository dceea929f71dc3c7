"""`python -m spacy costner annotate`."""

from pathlib import Path
from typing import Annotated, List

import typer
from typer import Argument, Option

from ..commands.annotate import Columns, Plan, Settings, Summary, annotate_files
from ..commands.ray_executor import ray_cluster
from ..progress import progress
from .options import AddressOption, CodeOption, GpuOption, ModelArg
from .output import JsonOption, errors_shown, print_result, stdout_for

SHOWN = 5
"""Errors that are printed."""


def annotate_cli(
    model: ModelArg,
    inputs: Annotated[
        List[Path],
        Argument(help="Files or folders: .txt with a text a line, .jsonl, .spacy, .parquet"),
    ],
    output_path: Annotated[Path, Option("--output", "-o", help="Output folder")],
    form: Annotated[
        str, Option("--format", "-f", help="Form of the output: jsonl, parquet, spacy")
    ] = Settings().format,
    jobs: Annotated[int, Option("--jobs", "-j", help="Number of processes")] = 1,
    address: AddressOption = None,
    n_rows: Annotated[
        int, Option("--part", help="Lines or rows of a part, which has its own output file")
    ] = 10_000,
    text: Annotated[str, Option("--text", help="Key or column of the text")] = Columns().text,
    id_name: Annotated[str, Option("--id", help="Key or column of the id")] = Columns().id,
    with_text: Annotated[
        bool, Option("--with-text/--no-text", help="Whether the output has the texts")
    ] = True,
    on_error: Annotated[
        str, Option("--on-error", help="What a doc that fails does: row, in the output, or raise")
    ] = Settings().on_error,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Annotate files of texts. Writes the entities with their probabilities and, if the pipeline has
    them, alternatives and guaranteed sets. A doc that fails becomes a row with its error. Run
    the command again to do what is missing, or what has changed: the model, a setting, an input.
    """
    code = None if code_path is None else str(code_path)
    columns = Columns(text, id_name)
    settings = Settings(form, columns, with_text, on_error, use_gpu, code)
    with errors_shown(), stdout_for(address), progress(desc="annotate", unit="part") as bar:
        n_tokens = n_failed = 0

        def on_plan(planned: Plan) -> None:
            typer.echo(describe_plan(planned), err=True)
            bar.reset(planned.changed + planned.new)

        def on_part(entry: dict) -> None:
            nonlocal n_tokens, n_failed
            n_tokens, n_failed = n_tokens + entry["tokens"], n_failed + entry["failed"]
            bar.update()
            seconds = max(bar.format_dict["elapsed"], 1e-9)
            bar.set_postfix({"tokens/s": f"{n_tokens / seconds:,.0f}", "failed": n_failed})

        summary = annotate_files(
            model,
            inputs,
            output_path,
            settings,
            jobs=jobs,
            n_rows=n_rows,
            make_executor=ray_cluster(address, use_gpu),
            on_plan=on_plan,
            on_part=on_part,
        )
    print_result(summary, describe(summary), print_json, output_path)
    if summary.errors:
        raise typer.Exit(1)


def describe_plan(planned: Plan) -> str:
    """Say what there is to do."""
    return "parts: {kept} kept, {changed} changed, {new} new".format(**planned._asdict())


def describe(summary: Summary) -> str:
    """Describe what was done."""
    lines = [
        f"{summary.docs:,} docs, {summary.failed:,} failed, {summary.tokens:,} tokens",
        f"{summary.seconds:.1f} s, {summary.tokens_per_second:,.0f} tokens/s",
    ]
    for file, reason in list(summary.errors.items())[:SHOWN]:
        lines.append(f"not written: {file}: {reason}")
    if len(summary.errors) > SHOWN:
        lines.append(f"and {len(summary.errors) - SHOWN} others")
    return "\n".join(lines)
