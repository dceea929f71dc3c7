"""Train one config with several losses, or values of settings, and compare the scores.

spaCy does the training. Each variant of the config has a folder of its own:

    config.cfg     the config
    log.txt        spaCy's training table or, if it failed, the traceback
    training       the pipeline during training
    model-best     the trained pipeline
    trained.json   written when training is complete, with its seconds
    counts.json    correct and wrong predictions of each doc

Finished parts are kept and used again as long as the config and the files it names don't change.
"""

import shutil
import warnings
from functools import lru_cache, partial
from pathlib import Path
from time import perf_counter
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)

import numpy
import spacy
import srsly
from confection import SimpleFrozenDict
from spacy.cli._util import import_code, setup_gpu
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import registry

from ..pipeline.scorers import DocCounts, count_docs
from ..readers import make_reader
from ..saving import replace_folder, save_file
from .comparison import UNTRAINED, Finished, Row, columns_of, scores_of, summarise
from .config_variants import Variant, is_trained, make_variants, object_to_evaluations
from .runs import (
    Done,
    Ended,
    Failed,
    MakeExecutor,
    Run,
    fingerprint,
    local_processes,
    remembered,
    run_all,
)


def compare(
    config_path: Path,
    loss_paths: Sequence[Path],
    test_path: Path,
    output_path: Path,
    *,
    seeds: Sequence[int] = (0,),
    overrides: Mapping[str, Any] = SimpleFrozenDict(),
    sweep: Mapping[str, Sequence[Any]] = SimpleFrozenDict(),
    n_samples: int = 10_000,
    jobs: int = 1,
    use_gpu: int = -1,
    code_path: Optional[Path] = None,
    make_executor: Optional[MakeExecutor] = None,
    on_end: Optional[Callable[[str, Ended], None]] = None,
    on_objection: Callable[[str], None] = warnings.warn,
) -> List[Row]:
    """Train one config with several losses, or values of settings, and compare the scores.

    Variants that are finished in the output folder are not trained again.

    config_path (Path): The base config. The cost of its scorer is used if that is
        `spacy_costner.cost_scorer.v1`, the Hamming cost otherwise.
    loss_paths (Sequence[Path]): A config for each loss. The file name is the name of the loss,
        and its blocks replace those of the base config: see `config_variants.put_onto`. May be
        empty if there is a sweep.
    test_path (Path): The corpus to score on, of any format.
    output_path (Path): The folder for the variants and for the rows, `comparison.json`.
    seeds (Sequence[int]): Each loss is trained with each seed.
    overrides (Mapping[str, Any]): Settings for all variants, such as "paths.train".
    sweep (Mapping[str, Sequence[Any]]): Values of settings, each tried with each loss: see
        `config_variants.make_variants`.
    n_samples (int): Number of bootstrap samples.
    jobs (int): Number of parallel trainings, each in a process of its own.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Optional[Path]): A Python file with registered functions to be imported.
    make_executor (Optional[MakeExecutor]): Makes the executor; `jobs` local processes if None:
        see `runs.run_all`.
    on_end (Optional[Callable[[str, Ended], None]]): Called with the name of each variant and its
        result, when it ends.
    on_objection (Callable[[str], None]): Called with a message for each loss whose training
        evaluates less than once in an epoch.
    RETURNS (List[Row]): A row for each loss and combination of values.
    RAISES (ValueError): If an argument is out of range, if the configs don't fit each other, if a
        training would evaluate only its first step or, after all others are finished, if a
        variant failed.
    """
    n_variants = len(loss_paths) + len(sweep)
    sizes = {
        "losses and swept settings": n_variants,
        "seeds": len(seeds),
        "samples": n_samples,
        "jobs": jobs,
    }
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"compare: {name}: expected at least 1, got {size}")
    seeds = list(dict.fromkeys(seeds))
    tried: Dict[str, Any] = {"seeds": seeds, "overrides": overrides, "sweep": sweep}
    variants = make_variants(config_path, loss_paths, test_path, output_path, **tried)
    ended: Dict[str, Ended] = {}
    import_once(code_path)
    object_to_evaluations(variants, on_objection)
    settings: Dict[str, Any] = {"jobs": jobs, "use_gpu": use_gpu, "code_path": code_path}
    for name, end in run_variants(variants, make_executor=make_executor, **settings):
        ended[name] = end
        if on_end is not None:
            on_end(name, end)
    finished = all_finished({variant.name: ended[variant.name] for variant in variants})
    rows = summarise(finished, n_samples=n_samples)
    record = {
        "config": str(config_path),
        "test": str(test_path),
        "overrides": dict(overrides),
        "sweep": {name: list(values) for name, values in sweep.items()},
        "seeds": seeds,
        "samples": n_samples,
        "cost": variants[0].measure.cost,
        "losses": [row.as_json() for row in rows],
    }
    save_file(output_path / "comparison.json", partial(srsly.write_json, data=record))
    return rows


def run_variants(
    variants: Sequence[Variant],
    *,
    jobs: int = 1,
    use_gpu: int = -1,
    code_path: Optional[Path] = None,
    make_executor: Optional[MakeExecutor] = None,
) -> Iterator[Tuple[str, Ended]]:
    """Train and score variants. One that fails doesn't stop the others.

    variants (Sequence[Variant]): The variants.
    jobs (int): Number of parallel trainings; with more than 1 each has its own process.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Optional[Path]): A Python file with registered functions to be imported.
    make_executor (Optional[MakeExecutor]): Makes the executor; `jobs` local processes if None:
        see `runs.run_all`.
    YIELDS (Tuple[str, Ended]): The names of the variants and their results, each a `Finished`, in
        the order in which they end. A traceback is in the variant's `log.txt`, too.
    """
    settings = {"use_gpu": use_gpu, "code_path": code_path}
    runs = [Run(one.name, run_variant, {"variant": one, **settings}) for one in variants]
    for run, ended in run_all(runs, make_executor or local_processes(jobs)):
        if isinstance(ended, Failed):
            folder = run.settings["variant"].path
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "log.txt").open("a", encoding="utf8") as log:
                log.write(ended.trace)
        yield run.name, ended


def run_variant(variant: Variant, use_gpu: int = -1, code_path: Optional[Path] = None) -> Finished:
    """Train and score a variant, or read what was kept of it.

    variant (Variant): The variant.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Optional[Path]): A Python file with registered functions to be imported.
    RETURNS (Finished): Its training time and counts.
    """
    import_once(code_path)
    setup_gpu(use_gpu, silent=True)
    seconds = remembered(
        variant.path / "trained.json",
        fingerprint(variant.config),
        lambda: train_variant(variant, use_gpu),
    )
    counts = remembered(
        variant.path / "counts.json",
        fingerprint(variant.config, variant.measure),
        lambda: [column.tolist() for column in count_predictions(variant)],
    )
    columns = DocCounts(*map(numpy.asarray, counts))
    return Finished(variant.loss, variant.seed, seconds, columns, is_trained(variant))


import_once = lru_cache(import_code)
"""Imports the functions of a file once in each process."""


def train_variant(variant: Variant, use_gpu: int) -> float:
    """Train a pipeline. An older one is kept until the new one is complete.

    RETURNS (float): Training time in seconds.
    """
    work = variant.path / "training"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    variant.config.to_disk(variant.path / "config.cfg")
    begin = perf_counter()
    with (variant.path / "log.txt").open("w", encoding="utf8") as log:
        nlp = init_nlp(variant.config, use_gpu=use_gpu)
        train(nlp, work, use_gpu=use_gpu, stdout=log, stderr=log)
    seconds = perf_counter() - begin
    (variant.path / "trained.json").unlink(missing_ok=True)
    replace_folder(work / "model-best", variant.path / "model-best")
    shutil.rmtree(work)
    return seconds


def count_predictions(variant: Variant) -> DocCounts:
    """Count the correct and wrong predictions of a variant on the test corpus."""
    nlp = spacy.load(variant.path / "model-best")
    component, scheme, cost, test_path = variant.measure
    examples = list(make_reader(Path(test_path))(nlp))
    for eg, doc in zip(examples, nlp.pipe([eg.predicted for eg in examples])):
        eg.predicted = doc
    return count_docs(
        examples,
        registry.resolve({"cost": cost})["cost"],
        labels=nlp.pipe_labels.get(component, ()),
        scheme=scheme,
    )


def all_finished(ended: Mapping[str, Ended]) -> List[Finished]:
    """Check that no variant failed.

    RAISES (ValueError): If one did.
    """
    failed = [f"{name}: {end.reason}" for name, end in ended.items() if isinstance(end, Failed)]
    if failed:
        raise ValueError("\n".join([f"compare: {len(failed)} of {len(ended)} failed", *failed]))
    return [end.value for end in ended.values() if isinstance(end, Done)]


def describe(name: str, ended: Ended) -> str:
    """Describe the result of a variant in a line."""
    if isinstance(ended, Failed):
        return f"{name}: failed"
    found: Finished = ended.value
    if not found.is_trained:
        return f"{name}: {UNTRAINED}, {found.seconds:.0f} s"
    f = float(scores_of(columns_of(found.counts).sum(axis=0))["ents_f"])
    return f"{name}: F {100 * f:.2f}, {found.seconds:.0f} s"
