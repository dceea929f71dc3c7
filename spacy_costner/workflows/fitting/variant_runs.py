"""Train and evaluate variants in separate folders, where later runs can reuse their results."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy
import spacy
import srsly
from spacy.cli._util import setup_gpu
from spacy.util import registry
from thinc.api import Config

from ...files.saving import replace_folder
from ...pipeline.scorers import DocCounts, count_docs, select_annotated
from ...progress import phase
from ...readers import examples_to_measure, make_reader
from ..components import get_component
from ..evaluation.recurrence import KnownText, note_recurrence, units_of_docs
from ..result_cache import cached_result, fingerprint
from ..runs import Ended, Failed, MakeExecutor, Run, import_once, run_all
from .trainers import train_pipeline
from .variant_scores import Finished
from .variants import Variant


class Predicted(NamedTuple):
    """The predictions of a variant for the test corpus.

    counts (list[list[float]]): The columns of `DocCounts`, with one number per doc.
    units (list[int]): The unit of each doc. Docs that are copies of each other form one unit of the
        bootstrap: see `units_of_docs`.
    notes (list[str]): Notes about recurring texts: see `note_recurrence`.
    """

    counts: list[list[float]]
    units: list[int]
    notes: list[str]


def train_variants(
    variants: Sequence[Variant],
    *,
    use_gpu: int,
    code_path: Path | None,
    make_executor: MakeExecutor | None,
    on_end: Callable[[str, Ended], None] | None,
) -> list[Finished]:
    """Train and score all variants.

    variants (Sequence[Variant]): The variants.
    use_gpu (int): GPU ID, or -1 for CPU.
    code_path (Path | None): Python file with registered functions to import.
    make_executor (MakeExecutor | None): Function that creates the executor for training.
    on_end (Callable[[str, Ended], None] | None): Callback that receives the name and result of each
        variant.
    RETURNS (list[Finished]): The results, in the same order as `variants`.
    RAISES (ValueError): If a variant fails. The error is raised after all others have finished.
    """
    variant_of_run = {f"{variant.loss}, seed {variant.seed}": variant for variant in variants}
    runs: list[Run] = []
    for name, variant in variant_of_run.items():
        arguments = {"variant": variant, "use_gpu": use_gpu, "code_path": code_path}
        runs.append(Run(name, run_variant, arguments))
    finished_variants: dict[str, Finished] = {}
    failures: list[str] = []
    for run, ended in run_all(runs, make_executor):
        if isinstance(ended, Failed):
            failures.append(f"{run.name}: {ended.reason}")
            log_failure(variant_of_run[run.name], ended)
        else:
            finished_variants[run.name] = ended.value
        if on_end is not None:
            on_end(run.name, ended)
    if failures:
        summary = f"compare: {len(failures)} of {len(runs)} failed"
        raise ValueError("\n".join([summary, *failures]))
    return [finished_variants[name] for name in variant_of_run]


def log_failure(variant: Variant, failed: Failed) -> None:
    """Append the traceback of a failed variant to its log."""
    variant.path.mkdir(parents=True, exist_ok=True)
    with (variant.path / "log.txt").open("a", encoding="utf8") as log:
        log.write(failed.trace)


def run_variant(variant: Variant, use_gpu: int = -1, code_path: Path | None = None) -> Finished:
    """Train and score a variant in a worker. Reuses existing results in the variant's folder."""
    import_once(code_path)
    setup_gpu(use_gpu, silent=True)
    path = variant.path
    trained_key = key_of_training(variant.config, code_path)
    predicted_key = fingerprint(trained_key, asdict(variant.scoring), Predicted._fields)
    seconds = cached_result(
        path / "trained.json", trained_key, lambda: train_variant(variant, use_gpu)
    )
    predicted = Predicted(
        *cached_result(path / "counts.json", predicted_key, lambda: count_predictions(variant))
    )

    # spaCy also evaluates the model after the first step, and that model may be the best one. The
    # number of updates is read from the settings of the saved component. With gradient
    # accumulation, a step consists of several updates.
    component_settings = srsly.read_json(path / "model-best" / variant.scoring.component / "cfg")
    n_updates = component_settings["progress"]["steps"]
    updates_per_step = variant.config["training"].get("accumulate_gradient", 1)
    n_steps = n_updates // updates_per_step
    columns = [numpy.asarray(column) for column in predicted.counts]
    return Finished(
        loss=variant.loss,
        seed=variant.seed,
        seconds=seconds,
        counts=DocCounts(*columns),
        is_trained=n_steps >= 2,
        units=predicted.units,
        notes=predicted.notes,
    )


def key_of_training(config: Config, code_path: Path | None) -> str:
    """Compute the fingerprint of everything that a trained pipeline depends on: the config, the
    files it refers to, and the Python file with registered functions. If `fingerprint` is passed
    the path of a file, it includes the file's contents."""
    if code_path is None:
        return fingerprint(config)
    return fingerprint(config, str(code_path))


def train_variant(variant: Variant, use_gpu: int) -> float:
    """Train the pipeline of a variant, and save it in the variant's folder. An existing pipeline is
    kept until the new one is complete. Returns the training time in seconds."""
    # Remove any leftovers of an interrupted training run.
    unfinished = variant.path / "training"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    variant.config.to_disk(variant.path / "config.cfg")
    begin = perf_counter()
    log_file = (variant.path / "log.txt").open("w", encoding="utf8")
    with log_file as log, phase(f"{variant.loss}, seed {variant.seed}"):
        trained_path = train_pipeline(variant.config, unfinished, log, use_gpu=use_gpu)
    seconds = perf_counter() - begin
    # Delete the training record of the old pipeline before replacing the pipeline. Otherwise, if
    # the process is killed in between, the old record would be used for the new pipeline.
    (variant.path / "trained.json").unlink(missing_ok=True)
    replace_folder(trained_path, variant.path / "model-best")
    shutil.rmtree(unfinished)
    return seconds


def count_predictions(variant: Variant) -> Predicted:
    """Run the trained pipeline in a variant's folder on the test corpus, and count the correct and
    wrong predictions in each doc. The counts are JSON-serializable lists."""
    nlp = spacy.load(variant.path / "model-best")
    scoring = variant.scoring
    reader = make_reader(Path(scoring.test_path), **scoring.reading)
    examples = list(examples_to_measure(nlp, reader, file_tokens=scoring.file_tokens))
    known = KnownText.from_component(nlp, get_component(nlp, scoring.component))
    notes = note_recurrence(known, [eg.reference for eg in examples], scoring.test_path)
    unpredicted_docs = [eg.predicted for eg in examples]
    for eg, predicted_doc in zip(examples, nlp.pipe(unpredicted_docs)):
        eg.predicted = predicted_doc

    # Create the cost from its config block. `resolve` requires a dictionary of blocks.
    cost = registry.resolve({"cost": scoring.cost})["cost"]
    labels = nlp.pipe_labels.get(scoring.component, ())
    counts = count_docs(examples, cost, labels=labels, scheme=scoring.scheme)
    annotated = [eg.reference for eg in select_annotated(examples)]  # the docs in the counts
    return Predicted(
        counts=[column.tolist() for column in counts],
        units=units_of_docs(annotated).tolist(),
        notes=notes,
    )
