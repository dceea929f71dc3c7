"""The command `audit`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.cli._util import import_code, show_validation_error
from spacy.tokens import Doc
from spacy.util import load_model_from_config
from typer import Argument, Option

from ..analysis.auditing import (
    KINDS,
    LEAVE,
    Audit,
    Suspect,
    audit,
    correct,
    entity_of,
    suspect_to_task,
)
from ..analysis.conversion import check_suffix, write_corpus
from ..analysis.loading import read_config
from ..analysis.reporting import UNPREDICTABLE, Entity, excerpt
from ..analysis.runs import local_processes, ray_cluster
from ..readers import Task, read_docs, task_to_json, write_tasks
from ..saving import check_file, save_file, save_text
from .command_line import command
from .options import AddressOption, read_overrides
from .output import JsonOption, errors_shown, print_result, stdout_for
from .pages import render
from .tables import text_table

N_PRINTED = 10
"""Number of places that are printed."""


@command(
    audit,
    options={
        "n_folds": Option("--folds"),
        "n_seeds": Option("--seeds", min=1),
        "seed": Option("--shuffle", show_default="blocks of docs"),
        "code_path": Option("--code", "-c"),
    },
    without=("make_executor",),
)
def audit_cli(
    run: partial[Any],
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Config of a linear model", exists=True)],
    corpus_path: Annotated[
        Path, Argument(help="Annotated corpus: see `costner convert`", exists=True)
    ],
    output_path: Annotated[
        Path | None,
        Option("--output", "-o", help="Output file: JSONL; with --apply the corrected corpus"),
    ] = None,
    html_path: Annotated[Path | None, Option("--html", help="Output HTML page")] = None,
    apply_path: Annotated[
        Path | None,
        Option("--apply", help="Correct the corpus by the lines of this JSONL file", exists=True),
    ] = None,
    unanswered: Annotated[
        str,
        Option("--unanswered", help="With --apply, lines without an answer: leave, accept"),
    ] = LEAVE,
    n_places: Annotated[int, Option("--places", "-n", help="Number of places", min=1)] = 200,
    *,
    jobs: Annotated[int, Option("--jobs", "-j", help="Folds at a time", min=1)] = 1,
    address: AddressOption = None,
    print_json: JsonOption = False,
) -> None:
    """
    Find probable mistakes in the annotation of a corpus: wrong labels, wrong boundaries, missing
    and spurious entities. The linear model of the config is trained on all docs but those of a
    fold, for each fold, and compares the annotation with alternatives. Writes the most probable
    mistakes as JSONL in Prodigy's form and as an HTML page. Accept or
    reject them on the page and save your answers; then run the command again with --apply and a new
    --output. Override settings as in `spacy train`, e.g.
    --nlp.lang es.
    """
    overrides = read_overrides(ctx)
    with errors_shown(), show_validation_error(config_path, hint_fill=False):
        for path in (output_path, html_path):
            check_file(path, [config_path, corpus_path, *([apply_path] if apply_path else [])])
        import_code(run.keywords["code_path"])
        config = read_config(config_path, overrides)
        docs = list(read_docs(load_model_from_config(config, auto_fill=True), corpus_path))
        if apply_path is not None:
            if output_path is None:
                raise ValueError("audit: output: expected a corpus with --apply, got none")
            check_suffix(output_path)
            numbers = correct(docs, apply_path, unanswered=unanswered)
            write_corpus(output_path, docs)
            text = ", ".join(f"{n:,} {name}" for name, n in numbers.items())
            if numbers["unanswered"]:
                text += "\nTo correct places without an answer, too: --unanswered accept"
            print_result(numbers, text, print_json, output_path)
            return
        with stdout_for(address):
            executor = ray_cluster(address) or local_processes(jobs)
            result = run(config, docs, make_executor=executor)
        result = result._replace(suspects=result.suspects[:n_places])
        tasks = [suspect_to_task(suspect, docs) for suspect in result.suspects]
        if output_path is not None:
            save_file(output_path, partial(write_tasks, tasks=tasks))
        if html_path is not None:
            save_text(html_path, page(result.suspects, docs, str(corpus_path)))
    as_dict = {**result._asdict(), "suspects": [task_to_json(task) for task in tasks]}
    print_result(as_dict, as_text(result, tasks), print_json, output_path, html_path)


def page(suspects: Sequence[Suspect], docs: Sequence[Doc], corpus: str = "") -> str:
    """Render suspects as HTML. The path of the corpus is shown on the page. Its answers, saved, are
    lines for `correct`: places without an answer are ignored."""
    sides: dict[int, tuple[set[Entity], set[Entity]]] = {}
    probs: dict[tuple[int, Entity], float] = {}
    for one in suspects:
        ents = {*map(entity_of, docs[one.doc].ents)}
        _, corrected = sides.setdefault(one.doc, (ents, {*ents}))
        corrected.difference_update(one.annotated)
        corrected.update(one.suggested)
        both = (one.annotated, one.prob_annotated), (one.suggested, one.prob_suggested)
        probs.update({(one.doc, side[0]): prob for side, prob in both if len(side) == 1})
    texts = []
    for one in suspects:
        of_doc = [{e: probs.get((one.doc, e)) for e in sorted(side)} for side in sides[one.doc]]
        texts.append(excerpt(docs[one.doc], of_doc, (one.annotated, one.suggested)))
    return render(
        "audit.html",
        corpus=corpus,
        kinds=KINDS,
        places=list(zip(suspects, texts)),
        tasks=[task_to_json(suspect_to_task(suspect, docs)) for suspect in suspects],
    )


def as_text(result: Audit, tasks: Sequence[Task]) -> str:
    lines = [f"{result.docs:,} docs, {result.tokens:,} tokens, {result.entities:,} entities", ""]
    if result.over_borders:
        lines += [f"{result.over_borders:,} {UNPREDICTABLE}", ""]
    lines += [text_table([["kind", "places"], *result.kinds.items()]), ""]
    for one, task in zip(result.suspects[:N_PRINTED], tasks):
        probs = f"{one.prob_annotated:.2f} -> {one.prob_suggested:.2f}"
        change = " ".join(task.extra["meta"]["change"].split())  # in one line
        lines.append(f"{one.kind:15} doc {one.doc:<6} {probs}  {change}")
    return "\n".join(lines)
