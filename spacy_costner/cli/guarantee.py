"""Guarantee a miss rate or a share of false alarms, and print the guarantee in words."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ..files.saving import check_folder
from ..pipeline.promises import Terms
from ..readers import ReadOptions
from ..readers.files import encodable
from ..workflows.calibration.guarantees import Guarantee, guarantee
from ..workflows.saved_strings import save_pipeline
from .command_line import command, reads_corpora
from .options import (
    CodeOption,
    FileTokensOption,
    GpuOption,
    ModelArg,
    NameOption,
    OutputOption,
    load_with_examples,
)
from .output import JsonOption, errors_shown, print_result
from .promises import part_fields, promise_text
from .tables import number_or_dash, text_table


@command(
    guarantee,
    options={
        "confidence": Option(
            help="Probability that the guarantee holds, such as 0.95. Without it, the guarantee "
            "holds on average over calibration docs",
            show_default="none; 0.95 with --false-alarm",
        )
    },
    without=("name", "file_tokens", "source"),
)
@reads_corpora
def guarantee_cli(
    run: partial[Guarantee],  # `guarantee` with its options set by `command`
    model: ModelArg,
    docs_path: Annotated[
        Path, Argument(help="Calibration docs: see `costner convert`", exists=True)
    ],
    output_path: OutputOption,
    name: NameOption = "ner",
    *,
    reading: ReadOptions,
    file_tokens: FileTokensOption = False,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Guarantee a miss rate, or a share of false alarms. Chooses a threshold on calibration docs, so
    that the spans above it miss at most a given share of the entities in other docs from the same
    source. The spans are set in doc.spans["confidence_guaranteed"]. Use docs that the pipeline was
    not trained on.
    """
    with errors_shown():
        check_folder(output_path)
        # Validate the options before loading the model.
        Terms.from_arguments(run.keywords)
        nlp, examples = load_with_examples(
            model, docs_path, use_gpu, code_path, reading=reading, file_tokens=file_tokens
        )
        # The path is stored in the guarantee as JSON, so it must be valid Unicode.
        docs_name = encodable(docs_path)
        result = run(nlp, examples, name=name, file_tokens=file_tokens, source=docs_name)
        save_pipeline(output_path, nlp)
    print_result(result, guarantee_text(result), print_json, output_path)


def guarantee_text(result: Guarantee) -> str:
    """Format the result as text: a table of the thresholds, the docs that weren't counted, notes on
    limitations, the status of an earlier guarantee, and the guarantee in words."""
    promise = result.promise
    lines = [thresholds_text(result)]
    not_counted = [f"{n:,} {kind}" for kind, n in promise.not_counted.items() if n > 0]
    if not_counted:
        lines.append(f"\nnot counted: {', '.join(not_counted)}")
    lines += [f"note: {note}" for note in result.notes]
    if result.replaced is not None:
        lines.append(f"note: an earlier guarantee is replaced: {promise_text(result.replaced)}")
    if result.kept is not None:
        lines.append(f"\n{result.kept.as_text()}.")
    texts = f"docs like {promise.source}"
    if promise.drawings is not None:
        texts = f"the texts that {promise.source} was drawn from"
    lines.append(f"\nGuaranteed for {texts}: {promise_text(promise)}.")
    return "\n".join(lines)


def thresholds_text(result: Guarantee) -> str:
    """Format a table with the threshold of each part of the guarantee. The first columns contain
    the group, the label or both. If there is only a single part, its row is called "all"."""
    name_columns = part_fields(result.promise)
    has_one_part = not name_columns
    if has_one_part:
        name_columns = ["label"]
    # "reachable" is the lowest limit that can be guaranteed with these docs. "docs needed" is the
    # number of docs required for the requested limit.
    header = ["docs", "entities", "threshold", "spans/entity", "reachable", "docs needed"]
    rows: list[list[Any]] = [[*name_columns, *header]]
    for part in result.parts:
        names_of_part = ["all"]
        if not has_one_part:
            names_of_part = [getattr(part, column) for column in name_columns]
        rows.append(
            [
                *names_of_part,
                part.docs,
                part.entities,
                number_or_dash(part.threshold, "g"),
                f"{part.spans:.2f}",
                number_or_dash(part.reachable, ".4f"),
                number_or_dash(part.docs_needed, ","),
            ]
        )
    return text_table(rows)
