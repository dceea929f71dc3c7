"""Find probable annotation errors in a corpus and apply accepted corrections."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from spacy.cli._util import import_code, show_validation_error
from spacy.tokens import Doc
from spacy.util import load_model_from_config
from typer import Argument, Option

from ..files.saving import check_file, save_file, save_text
from ..pages.rendering import render
from ..pipeline.scorers import Entity, as_entity
from ..readers import (
    ReadOptions,
    Task,
    check_task_form,
    read_docs,
    task_to_json,
    write_tasks,
)
from ..readers.context import SpanScores
from ..readers.conversion import check_suffix, write_corpus
from ..workflows.config.loading import read_config
from ..workflows.executors import local_processes
from ..workflows.noisy_labels.auditing import Audit, audit
from ..workflows.noisy_labels.corrections import LEAVE, apply_answers, suspect_to_task
from ..workflows.noisy_labels.suspects import SUSPECT_KINDS, Suspect
from ..workflows.ray_executor import ray_cluster
from ..workflows.reports.excerpts import excerpt
from ..workflows.reports.reporting import UNPREDICTABLE
from .command_line import command, reads_corpora
from .options import AddressOption, read_overrides
from .output import JsonOption, errors_shown, print_result, ray_messages_to_stderr
from .tables import text_table

N_PRINTED = 10
"""Maximum number of suspects to print. The output file and the page contain up to `--places`
suspects."""


@command(
    audit,
    options={
        "n_folds": Option("--folds"),
        "n_seeds": Option("--seeds", min=1),
        "seed": Option(
            "--shuffle",
            help="Random seed to assign docs to folds",
            show_default="folds are blocks of consecutive docs",
        ),
        "file_tokens": Option(help="Give models the sentence starts of the file, too"),
        "code_path": Option("--code", "-c"),
    },
    without=("make_executor",),
)
@reads_corpora
def audit_cli(
    run: partial[Audit],  # `audit` with its options set by `command`
    ctx: typer.Context,
    config_path: Annotated[
        Path, Argument(help="Config of a linear model, or its pipeline", exists=True)
    ],
    corpus_path: Annotated[
        Path, Argument(help="Annotated corpus: see `costner convert`", exists=True)
    ],
    output_path: Annotated[
        Path | None,
        Option("--output", "-o", help="Output file: JSONL; with --apply, the corrected corpus"),
    ] = None,
    html_path: Annotated[Path | None, Option("--html", help="Output HTML page")] = None,
    apply_path: Annotated[
        Path | None,
        Option(
            "--apply", help="Correct the corpus with the answers in this JSONL file", exists=True
        ),
    ] = None,
    unanswered: Annotated[
        str,
        Option(
            "--unanswered",
            help="With --apply: what to do with lines without an answer: leave, accept",
        ),
    ] = LEAVE,
    n_places: Annotated[
        int,
        Option(
            "--places", "-n", help="Number of places to write, most probable mistakes first", min=1
        ),
    ] = 200,
    *,
    reading: ReadOptions,
    jobs: Annotated[
        int, Option("--jobs", "-j", help="Number of folds to train in parallel", min=1)
    ] = 1,
    address: AddressOption = None,
    print_json: JsonOption = False,
) -> None:
    """
    Find probable mistakes in the annotation of a corpus: wrong labels, wrong boundaries, missing
    and spurious entities. For each fold, the linear model of the config is trained on the docs of
    all other folds, and the annotation is compared with alternatives. Writes the most probable
    mistakes as JSONL in Prodigy's format, and as an HTML page. Accept or reject them on the page
    and save your answers. Then run the command again with --apply and a new --output to correct the
    corpus. Override settings as in `spacy train`, e.g. --nlp.lang es.
    """
    overrides = read_overrides(ctx)
    inputs = [config_path, corpus_path]
    if apply_path is not None:
        inputs.append(apply_path)
    with errors_shown(), show_validation_error(config_path, hint_fill=False):
        check_file(output_path, inputs)
        check_file(html_path, inputs)
        if output_path is not None and apply_path is None:
            check_suspects_path(output_path)
        import_code(run.keywords["code_path"])
        config = read_config(config_path, overrides)
        # This pipeline isn't trained. It only provides the tokenizer.
        nlp = load_model_from_config(config, auto_fill=True)
        scores = None
        if apply_path is not None and output_path is not None and output_path.suffix == ".jsonl":
            scores = SpanScores()  # the only output that can store them
        docs = list(read_docs(nlp, corpus_path, reading, scores=scores))
        if apply_path is not None:
            save_corrected(docs, apply_path, output_path, unanswered, print_json, scores)
            return
        with ray_messages_to_stderr(address):
            executor = ray_cluster(address) or local_processes(jobs)
            audited = run(config, docs, make_executor=executor)
        audited = audited._replace(suspects=audited.suspects[:n_places])
        tasks = [suspect_to_task(suspect, docs) for suspect in audited.suspects]
        if output_path is not None:
            save_file(output_path, partial(write_tasks, tasks=tasks))
        if html_path is not None:
            save_text(html_path, audit_page(audited.suspects, docs, str(corpus_path)))
    as_json = {**audited._asdict(), "suspects": [task_to_json(task) for task in tasks]}
    print_result(as_json, audit_text(audited, tasks), print_json, output_path, html_path)


def check_suspects_path(path: Path) -> None:
    """Check that the output file for suspects has a valid suffix. Suspects are written as Prodigy
    tasks."""
    if path.suffix.lower() == ".html":
        raise ValueError(f"{path}: expected a .jsonl file, got a page: --html writes the page")
    check_task_form("prodigy", path)


def save_corrected(
    docs: Sequence[Doc],
    answers_path: Path,
    output_path: Path | None,
    unanswered: str,
    print_json: bool,
    scores: SpanScores | None,
) -> None:
    """Apply the answers in a JSONL file to the docs of a corpus in place, and save the corrected
    corpus. Unchanged entities keep their scores, if any. Print the numbers of accepted, rejected
    and unanswered suggestions. Raise an error if the output path is missing or has an unsupported
    suffix, or if the answers don't match the docs (see `apply_answers`)."""
    if output_path is None:
        raise ValueError("audit: --output: expected a path for the corrected corpus, got none")
    check_suffix(output_path)
    counts = apply_answers(docs, answers_path, unanswered=unanswered)
    write_corpus(output_path, docs, scores=scores)
    n_with_answer = counts._asdict()
    text = ", ".join(f"{number:,} {answer}" for answer, number in n_with_answer.items())
    if counts.unanswered:
        text += "\nTo also correct places without an answer: --unanswered accept"
    print_result(n_with_answer, text, print_json, output_path)


def audit_page(suspects: Sequence[Suspect], docs: Sequence[Doc], corpus: str = "") -> str:
    """Render an HTML page with the suspects. Users can accept or reject suggestions on the page and
    save their answers to a file for `apply_answers`. `corpus` is the path shown on the page."""
    # For each doc, keyed by index: the annotated entities, the entities after accepting all
    # suggestions, and the probabilities of individual entities.
    annotated_of_doc: dict[int, set[Entity]] = {}
    suggested_of_doc: dict[int, set[Entity]] = {}
    probs_of_doc: dict[int, dict[Entity, float]] = {}
    for suspect in suspects:
        i = suspect.doc
        if i not in annotated_of_doc:
            annotated_of_doc[i] = {as_entity(ent) for ent in docs[i].ents}
            suggested_of_doc[i] = set(annotated_of_doc[i])
            probs_of_doc[i] = {}
        suggested_of_doc[i].difference_update(suspect.annotated)
        suggested_of_doc[i].update(suspect.suggested)
        # If a suspect has several entities, only their joint probability is known.
        if len(suspect.annotated) == 1:
            (entity,) = suspect.annotated
            probs_of_doc[i][entity] = suspect.prob_annotated
        if len(suspect.suggested) == 1:
            (entity,) = suspect.suggested
            probs_of_doc[i][entity] = suspect.prob_suggested

    places = []
    tasks = []
    for suspect in suspects:
        i = suspect.doc
        probs = probs_of_doc[i]
        annotated = {entity: probs.get(entity) for entity in sorted(annotated_of_doc[i])}
        suggested = {entity: probs.get(entity) for entity in sorted(suggested_of_doc[i])}
        mistake = (suspect.annotated, suspect.suggested)
        places.append((suspect, excerpt(docs[i], (annotated, suggested), mistake)))
        tasks.append(task_to_json(suspect_to_task(suspect, docs)))
    return render("audit.html", corpus=corpus, kinds=SUSPECT_KINDS, places=places, tasks=tasks)


def audit_text(audited: Audit, tasks: Sequence[Task]) -> str:
    """Format the audit as text: the size of the corpus, the number of probable errors of each kind,
    and the suspects whose suggestion is more probable than the annotation. `tasks` must be aligned
    with the suspects."""
    size = f"{audited.docs:,} docs, {audited.tokens:,} tokens, {audited.entities:,} entities"
    lines = [size, ""]
    if audited.over_borders:  # entities that cross sequence boundaries can't be predicted
        lines += [f"{audited.over_borders:,} {UNPREDICTABLE}", ""]
    for note in audited.notes:
        lines += [f"note: {note}", ""]
    lines += [text_table([["kind", "places"], *audited.kinds.items()]), ""]
    # Other suspects are only included in the output file and on the page.
    probable = [pair for pair in zip(audited.suspects, tasks) if pair[0].is_probable]
    if not probable:
        lines.append("no alternative is more probable than the annotation")
    for suspect, task in probable[:N_PRINTED]:
        probs = f"{suspect.prob_annotated:.2f} -> {suspect.prob_suggested:.2f}"
        # The text of an entity may contain line breaks.
        change = " ".join(task.extra["meta"]["change"].split())
        lines.append(f"{suspect.kind:15} doc {suspect.doc:<6} {probs}  {change}")
    return "\n".join(lines)
