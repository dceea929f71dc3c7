"""Suggest docs to annotate next and export them to annotation tools."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import spacy
from spacy.tokens import Doc
from typer import Argument, Option

from ..files.saving import check_file
from ..progress import progress
from ..readers import ReadOptions, check_task_form, read_texts, save_tasks
from ..readers.files import shown
from ..workflows.config.loading import load_pipeline
from ..workflows.sampling.suggestions import NoDocsError, Suggestion, suggest, suggest_first
from .command_line import command, reads_corpora
from .options import CodeOption, GpuOption
from .output import JsonOption, errors_shown, print_result
from .tables import text_table

N_PRINTED = 10
"""Maximum number of suggestions to print."""


@command(
    suggest,
    options={
        "n": Option("--n", "-n", help="Number of docs to choose, or all if there are fewer", min=1),
        "by": Option(help="How to measure the uncertainty of the model"),
        "per": Option(help="Cost of annotating a doc: by its tokens, or the same for all docs"),
        "diverse": Option(
            help="Whether a doc counts less if the model is uncertain about the same words as in "
            "docs chosen before it"
        ),
        "name": Option("--name"),
    },
    without=("annotated",),
)
@reads_corpora
def suggest_cli(
    run: partial[list[Suggestion]],  # `suggest` with its options set by `command`
    output_path: Annotated[
        Path, Option("--output", "-o", help="Output file: docs with predicted entities")
    ],
    model: Annotated[
        str | None, Argument(help="Trained pipeline: a package or a folder", show_default=False)
    ] = None,
    pool_path: Annotated[
        Path | None,
        Argument(
            help="Docs to choose from: .txt with a text per line, or a corpus",
            exists=True,
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        str, Option("--format", "-f", help="Format of the output: prodigy, doccano, label-studio")
    ] = "prodigy",
    annotated_path: Annotated[
        Path | None,
        Option("--annotated", help="Annotated corpus: its texts are left out", exists=True),
    ] = None,
    *,
    reading: ReadOptions,
    start_path: Annotated[
        Path | None,
        Option(
            "--start",
            help="Without a pipeline: docs to choose from. Chosen docs have many different words",
            exists=True,
        ),
    ] = None,
    lang: Annotated[
        str, Option("--lang", "-l", help="With --start: language of the tokenizer")
    ] = "xx",
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Choose the docs to annotate next by active learning: docs about which the model is most
    uncertain, without repeating the same words. Writes them with the predicted entities and their
    probabilities, for Prodigy, doccano or Label Studio. If you have no pipeline yet, use --start to
    choose docs with many different words.
    """
    with errors_shown():
        if start_path is not None and model is not None:
            raise ValueError(f"--start: expected no pipeline, got {model}")
        pool_path = start_path or pool_path
        if pool_path is None or (model is None and start_path is None):
            raise ValueError("expected a trained pipeline and docs to choose from, or --start DOCS")
        inputs = [path for path in (model, pool_path, annotated_path) if path is not None]
        check_file(output_path, inputs)
        check_task_form(form, output_path)

        choose: Callable[..., list[Suggestion]]
        if model is None:
            nlp = spacy.blank(lang)
            # Without a model, the number of docs is the only option that applies.
            choose = partial(suggest_first, n=run.keywords["n"])
        else:
            nlp = load_pipeline(model, code_path, use_gpu)
            choose = partial(run, nlp)
        annotated: Iterable[Doc] = ()
        if annotated_path is not None:
            annotated = read_texts(nlp, annotated_path, reading)
        pool = progress(read_texts(nlp, pool_path, reading), desc="suggest", unit="doc")
        try:
            suggestions = choose(pool, annotated=annotated)
        except NoDocsError as error:
            raise ValueError(f"{pool_path}: {error}") from None
        save_tasks(output_path, (suggestion.task() for suggestion in suggestions), form)
    rows = suggestion_rows(suggestions)
    print_result({"docs": rows}, suggestions_text(rows), print_json, output_path)


def suggestion_rows(suggestions: Sequence[Suggestion]) -> list[dict[str, Any]]:
    """Convert suggestions to dictionaries for --json, with the text, the index in the pool, the
    score, and the numbers of tokens and entities."""
    rows: list[dict[str, Any]] = []
    for suggestion in suggestions:
        rows.append(
            {
                "text": suggestion.doc.text,
                "doc": suggestion.doc_index,
                "score": round(suggestion.score, 4),
                "tokens": len(suggestion.doc),
                "entities": len(suggestion.doc.ents),
            }
        )
    return rows


def suggestions_text(rows: Sequence[dict[str, Any]]) -> str:
    """Format the first rows of `suggestion_rows` as a table, followed by the total numbers of docs
    and tokens."""
    columns = ["text", "doc", "score", "tokens", "entities"]
    table: list[Sequence[Any]] = [columns]
    for row in rows[:N_PRINTED]:
        shortened_row = {**row, "text": shown(row["text"])}
        table.append([shortened_row[column] for column in columns])
    n_tokens = sum(row["tokens"] for row in rows)
    totals = f"{len(rows):,} docs, {n_tokens:,} tokens"
    return f"{text_table(table)}\n\n{totals}"
