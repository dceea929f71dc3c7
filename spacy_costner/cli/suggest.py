"""The command `suggest`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ..analysis.loading import load_pipeline
from ..analysis.suggestions import N_SHOWN, Suggestion, suggest
from ..progress import progress
from ..readers import check_task_form, read_texts, save_tasks
from ..readers.files import shown
from ..saving import check_file
from .command_line import command
from .options import CodeOption, GpuOption, ModelArg
from .output import JsonOption, errors_shown, print_result
from .tables import text_table


@command(
    suggest,
    options={"n": Option("--n", "-n", min=1), "name": Option("--name")},
    without=("annotated",),
)
def suggest_cli(
    run: partial[list[Suggestion]],
    model: ModelArg,
    pool_path: Annotated[
        Path,
        Argument(help="Docs to choose from: .txt with a text a line, or a corpus", exists=True),
    ],
    output_path: Annotated[
        Path, Option("--output", "-o", help="Output file: docs with predicted entities")
    ],
    form: Annotated[
        str, Option("--format", "-f", help="Form of the output: prodigy, doccano, label-studio")
    ] = "prodigy",
    annotated_path: Annotated[
        Path | None,
        Option("--annotated", help="Annotated corpus: its texts are left out", exists=True),
    ] = None,
    *,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Choose the docs whose annotation is worth most: those of which the model is least sure, and
    not the same words over and over. Writes them with the entities that the model predicts, and
    their probabilities, for Prodigy, doccano or Label Studio.
    """
    with errors_shown():
        inputs = [path for path in (model, pool_path, annotated_path) if path is not None]
        check_file(output_path, inputs)
        check_task_form(form, output_path)
        nlp = load_pipeline(model, code_path, use_gpu)
        annotated = () if annotated_path is None else read_texts(nlp, annotated_path)
        pool = progress(read_texts(nlp, pool_path), desc="suggest", unit="doc")
        suggestions = run(nlp, pool, annotated=annotated)
        save_tasks(output_path, (suggestion.task() for suggestion in suggestions), form)
        result, text = describe(suggestions)
    print_result(result, text, print_json, output_path)


def describe(docs: Sequence[Suggestion]) -> tuple[dict[str, Any], str]:
    """Describe suggestions, as JSON and as text: their number, and the first of them."""
    names = ["text", "doc", "score", "tokens", "entities"]
    rows = [
        (one.doc.text, one.place, round(one.score, 4), len(one.doc), len(one.doc.ents))
        for one in docs
    ]
    table = text_table([names, *([shown(row[0]), *row[1:]] for row in rows[:N_SHOWN])])
    summary = f"{len(docs):,} docs, {sum(row[3] for row in rows):,} tokens"
    return {"docs": [dict(zip(names, row)) for row in rows]}, f"{table}\n\n{summary}"
