"""`python -m spacy costner audit`."""

from functools import partial
from pathlib import Path
from typing import Annotated, List, Optional

import typer
from spacy.cli._util import import_code, show_validation_error
from spacy.tokens import Doc
from spacy.util import load_config, load_model_from_config
from typer import Argument, Option

from ..commands.audit import Audit, audit, correct, page, suspect_to_task
from ..commands.audit.tasks import describe
from ..commands.convert import check_suffix, write_corpus
from ..commands.ray_executor import ray_cluster
from ..commands.runs import local_processes
from ..metrics import text_table
from ..progress import progress
from ..readers import read_docs, task_to_json, write_tasks
from ..saving import check_file, save_file
from ..settings import check_overrides
from .options import AddressOption, CodeOption, read_overrides
from .output import JsonOption, errors_shown, print_result, stdout_for

N_SHOWN = 10
"""Number of places that are printed."""


def audit_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Config of a linear model", exists=True)],
    corpus_path: Annotated[
        Path, Argument(help="Annotated corpus: see `costner convert`", exists=True)
    ],
    output_path: Annotated[
        Optional[Path],
        Option("--output", "-o", help="Output file: JSONL; with --apply the corrected corpus"),
    ] = None,
    html_path: Annotated[Optional[Path], Option("--html", help="Output HTML page")] = None,
    apply_path: Annotated[
        Optional[Path],
        Option("--apply", help="Correct the corpus by the lines of this JSONL file", exists=True),
    ] = None,
    n_places: Annotated[int, Option("--places", "-n", help="Number of places", min=1)] = 200,
    n_folds: Annotated[int, Option("--folds", help="Number of folds")] = 5,
    n_seeds: Annotated[
        int, Option("--seeds", help="Trainings for each fold, whose weights are averaged", min=1)
    ] = 1,
    seed: Annotated[
        Optional[int],
        Option("--shuffle", help="Random seed of the folds", show_default="blocks of docs"),
    ] = None,
    jobs: Annotated[int, Option("--jobs", "-j", help="Folds at a time", min=1)] = 1,
    address: AddressOption = None,
    print_json: JsonOption = False,
    code_path: CodeOption = None,
) -> None:
    """
    Find probable mistakes in the annotation of a corpus: wrong labels, wrong boundaries, missing
    and spurious entities. The linear model of the config is trained on all docs but those of a
    fold, for each fold, and compares the annotation with alternatives. Writes the most probable
    mistakes as JSONL in Prodigy's form and as an HTML page. Delete the lines that you reject, or
    set "answer": "reject"; then run the command again with --apply and a new --output. Override
    settings as in `spacy train`, e.g. --nlp.lang es.
    """
    overrides = read_overrides(ctx)
    with errors_shown(), show_validation_error(config_path, hint_fill=False):
        for path in (output_path, html_path):
            check_file(path, [config_path, corpus_path, *([apply_path] if apply_path else [])])
        import_code(code_path)
        check_overrides(load_config(config_path, interpolate=False), overrides)
        config = load_config(config_path, overrides=overrides, interpolate=False)
        docs = list(read_docs(load_model_from_config(config, auto_fill=True), corpus_path))
        if apply_path is not None:
            apply_cli(docs, apply_path, output_path, print_json)
            return
        executor = ray_cluster(address) or local_processes(jobs)
        folds = progress(desc="audit", unit="fold", total=n_folds)
        with stdout_for(address), folds as bar:
            found = audit(
                config,
                docs,
                n_folds=n_folds,
                n_seeds=n_seeds,
                seed=seed,
                make_executor=executor,
                code_path=None if code_path is None else str(code_path),
                on_fold=bar.update,
            )
        found = found._replace(suspects=found.suspects[:n_places])
        tasks = [suspect_to_task(suspect, docs) for suspect in found.suspects]
        if output_path is not None:
            save_file(output_path, partial(write_tasks, tasks=tasks))
        if html_path is not None:
            html = page(found.suspects, docs, str(corpus_path))
            save_file(html_path, partial(Path.write_text, data=html, encoding="utf8"))
    result = {**found._asdict(), "suspects": [task_to_json(task) for task in tasks]}
    print_result(result, describe_audit(found, docs), print_json, output_path, html_path)


def apply_cli(docs: List[Doc], path: Path, output_path: Optional[Path], print_json: bool) -> None:
    """Write the corrected corpus."""
    if output_path is None:
        raise ValueError("audit: output: expected the corrected corpus with --apply, got none")
    check_suffix(output_path)
    numbers = correct(docs, path)
    write_corpus(output_path, docs)
    lines = [f"{n} {name}" for name, n in numbers.items()]
    print_result(numbers, "\n".join(lines), print_json, output_path)


def describe_audit(found: Audit, docs: List[Doc]) -> str:
    """How many places there are of each kind, and the first of them."""
    lines = [f"{found.docs:,} docs, {found.tokens:,} tokens, {found.entities:,} entities", ""]
    lines += [text_table([["kind", "places"], *found.kinds.items()]), ""]
    for suspect in found.suspects[:N_SHOWN]:
        probs = f"{suspect.prob_annotated:.2f} -> {suspect.prob_suggested:.2f}"
        change = describe(suspect, docs[suspect.doc])
        lines.append(f"{suspect.kind:15} doc {suspect.doc:<6} {probs}  {change}")
    return "\n".join(lines)
