"""Train one config with several losses and compare the scores.

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
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Union,
)

import numpy
import spacy
import srsly
from confection import SimpleFrozenDict
from spacy.cli._util import import_code, setup_gpu
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import registry
from thinc.types import Floats2d, FloatsXd

from ..metrics import (
    Difference,
    f_score,
    markdown_table,
    mean_and_deviation,
    paired_differences,
    precision,
    ratio,
    recall,
)
from ..pipeline.scorers import DocCounts, count_docs
from ..readers import make_reader
from ..saving import replace_folder, save_file
from .config_variants import Variant, make_variants
from .runs import Failed as RunFailed
from .runs import MakeExecutor, Run, fingerprint, local_processes, remembered, run_all


class Finished(NamedTuple):
    """A variant that is trained and scored.

    loss (str): The name of the loss.
    seed (int): The seed.
    seconds (float): Training time.
    counts (DocCounts): Correct and wrong predictions of each doc.
    """

    loss: str
    seed: int
    seconds: float
    counts: DocCounts


class Failed(NamedTuple):
    """A variant that failed, and why."""

    loss: str
    seed: int
    reason: str


Outcome = Union[Finished, Failed]


class Row(NamedTuple):
    """The scores of a loss.

    loss (str): The name of the loss.
    seconds (float): Mean training time.
    scores (Dict[str, float]): The scores of `scores_of`, averaged over seeds.
    by_seed (Dict[str, List[float]]): The scores of each seed.
    differences (Dict[str, Difference]): The differences from the first loss.
    """

    loss: str
    seconds: float
    scores: Dict[str, float]
    by_seed: Dict[str, List[float]]
    differences: Dict[str, Difference]

    def as_json(self) -> Dict[str, Any]:
        """The row as JSON."""
        differences = {name: found._asdict() for name, found in self.differences.items()}
        return {**self._asdict(), "differences": differences}


def compare(
    config_path: Path,
    loss_paths: Sequence[Path],
    test_path: Path,
    output_path: Path,
    *,
    seeds: Sequence[int] = (0,),
    overrides: Mapping[str, Any] = SimpleFrozenDict(),
    n_samples: int = 10_000,
    jobs: int = 1,
    use_gpu: int = -1,
    code_path: Optional[Path] = None,
    make_executor: Optional[MakeExecutor] = None,
    on_outcome: Optional[Callable[[Outcome], None]] = None,
) -> List[Row]:
    """Train one config with several losses and compare the scores.

    Variants that are finished in the output folder are not trained again.

    config_path (Path): The base config. The cost of its scorer is used if that is
        `spacy_costner.cost_scorer.v1`, the Hamming cost otherwise.
    loss_paths (Sequence[Path]): A config for each loss. The file name is the name of the loss,
        and its blocks replace those of the base config: see `config_variants.put_onto`.
    test_path (Path): The corpus to score on, of any format.
    output_path (Path): The folder for the variants and for the rows, `comparison.json`.
    seeds (Sequence[int]): Each loss is trained with each seed.
    overrides (Mapping[str, Any]): Settings for all variants, such as "paths.train".
    n_samples (int): Number of bootstrap samples.
    jobs (int): Number of parallel trainings, each in a process of its own.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Optional[Path]): A Python file with registered functions to be imported.
    make_executor (Optional[MakeExecutor]): Makes the executor; `jobs` local processes if None:
        see `runs.run_all`.
    on_outcome (Optional[Callable[[Outcome], None]]): Called with each outcome.
    RETURNS (List[Row]): A row for each loss.
    RAISES (ValueError): If an argument is out of range, if the configs don't fit each other or,
        after all others are finished, if a variant failed.
    """
    sizes = {"losses": len(loss_paths), "seeds": len(seeds), "samples": n_samples, "jobs": jobs}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"compare: {name}: expected at least 1, got {size}")
    seeds = list(dict.fromkeys(seeds))
    variants = make_variants(
        config_path, loss_paths, test_path, output_path, seeds=seeds, overrides=overrides
    )
    outcomes = []
    settings: Dict[str, Any] = {"jobs": jobs, "use_gpu": use_gpu, "code_path": code_path}
    for outcome in run_variants(variants, make_executor=make_executor, **settings):
        outcomes.append(outcome)
        if on_outcome is not None:
            on_outcome(outcome)
    order = [(variant.loss, variant.seed) for variant in variants]
    outcomes.sort(key=lambda outcome: order.index((outcome.loss, outcome.seed)))
    rows = summarise(all_finished(outcomes), n_samples=n_samples)
    record = {
        "config": str(config_path),
        "test": str(test_path),
        "overrides": dict(overrides),
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
) -> Iterator[Outcome]:
    """Train and score variants. One that fails doesn't stop the others.

    variants (Sequence[Variant]): The variants.
    jobs (int): Number of parallel trainings; with more than 1 each has its own process.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Optional[Path]): A Python file with registered functions to be imported.
    make_executor (Optional[MakeExecutor]): Makes the executor; `jobs` local processes if None:
        see `runs.run_all`.
    YIELDS (Outcome): The outcomes, in the order in which they finish. A traceback is in the
        variant's `log.txt`, too.
    """
    settings = {"use_gpu": use_gpu, "code_path": code_path}
    runs = [
        Run(f"{t.loss}/seed-{t.seed}", run_variant, {"variant": t, **settings}) for t in variants
    ]
    for run, ended in run_all(runs, make_executor or local_processes(jobs)):
        variant = run.settings["variant"]
        if isinstance(ended, RunFailed):
            variant.path.mkdir(parents=True, exist_ok=True)
            with (variant.path / "log.txt").open("a", encoding="utf8") as log:
                log.write(ended.trace)
            yield Failed(variant.loss, variant.seed, ended.reason)
        else:
            yield ended.value


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
    return Finished(variant.loss, variant.seed, seconds, DocCounts(*map(numpy.asarray, counts)))


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


def all_finished(outcomes: Sequence[Outcome]) -> List[Finished]:
    """Check that no variant failed.

    RAISES (ValueError): If one did.
    """
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    if failed:
        names = [f"{loss}, seed {seed}: {reason}" for loss, seed, reason in failed]
        raise ValueError("\n".join([f"compare: {len(failed)} of {len(outcomes)} failed", *names]))
    return [outcome for outcome in outcomes if isinstance(outcome, Finished)]


def summarise(finished: Sequence[Finished], *, n_samples: int = 10_000) -> List[Row]:
    """Average the scores of each loss over seeds, and compare each loss with the first.

    The bootstrap samples docs, the same docs for all variants. The score of a sample is the
    mean over seeds.

    finished (Sequence[Finished]): Variants, with the same seeds for each loss.
    n_samples (int): Number of bootstrap samples.
    RETURNS (List[Row]): A row for each loss, in the order in which they first come.
    RAISES (ValueError): If there was no doc to score.
    """
    losses = list(dict.fromkeys(one.loss for one in finished))
    of_loss = {loss: [one for one in finished if one.loss == loss] for loss in losses}
    # Shape: (L, S, D, C): losses, seeds, docs, and what is counted.
    counts = numpy.stack([[_columns(one.counts) for one in of_loss[loss]] for loss in losses])
    if not counts.shape[2]:
        raise ValueError("compare: test: expected docs with annotated entities, got none")
    by_seed = scores_of(counts.sum(axis=2))
    differences = paired_differences(
        counts, lambda sums: numpy.stack([*scores_of(sums).values()]), n_samples=n_samples
    )
    return [
        Row(
            loss=loss,
            seconds=mean(one.seconds for one in of_loss[loss]),
            scores={name: float(values[i].mean()) for name, values in by_seed.items()},
            by_seed={name: values[i].tolist() for name, values in by_seed.items()},
            differences={name: found[i] for name, found in zip(by_seed, differences)},
        )
        for i, loss in enumerate(losses)
    ]


def _columns(counts: DocCounts) -> Floats2d:
    """The counts that `scores_of` takes, for each doc. Shape: (D, C)"""
    exact = (counts.wrong == 0) & (counts.missed == 0)
    return numpy.stack([*counts, exact, numpy.ones_like(exact)], axis=-1).astype("float64")


def scores_of(sums: FloatsXd) -> Dict[str, FloatsXd]:
    """Compute scores from counts: F, precision and recall of entities, mean cost of a token,
    and the share of docs with all entities correct and no others.

    sums (FloatsXd): Counts, summed over docs. Shape: (..., C)
    RETURNS (Dict[str, FloatsXd]): The scores by spaCy's and the cost scorer's names. 0 where
        the denominator is 0. Shape: (...)
    """
    right, wrong, missed, cost, tokens, exact, docs = numpy.moveaxis(sums, -1, 0)
    return {
        "ents_f": f_score(right, wrong, missed),
        "ents_p": precision(right, wrong),
        "ents_r": recall(right, missed),
        "ents_cost": ratio(cost, tokens),
        "ents_sent_acc": ratio(exact, docs),
    }


def describe(outcome: Outcome) -> str:
    """Describe an outcome in a line."""
    variant = f"{outcome.loss}, seed {outcome.seed}"
    if isinstance(outcome, Failed):
        return f"{variant}: failed"
    f = float(scores_of(_columns(outcome.counts).sum(axis=0))["ents_f"])
    return f"{variant}: F {100 * f:.2f}, {outcome.seconds:.0f} s"


def table(rows: Sequence[Row]) -> str:
    """Write rows as a table, in Markdown.

    rows (Sequence[Row]): The rows.
    RETURNS (str): The table. All scores except the cost are in percent, followed by their
        standard deviation if there are several seeds.
    """
    head = ["loss", "F", "P", "R", "cost", "sentences", "seconds", "p of F", "p of cost"]
    return markdown_table(head, [_cells(row) for row in rows], align=True)


def _cells(row: Row) -> List[str]:
    percents = [
        mean_and_deviation([100 * value for value in row.by_seed[f"ents_{name}"]])
        for name in ("f", "p", "r", "sent_acc")
    ]
    cost = mean_and_deviation(row.by_seed["ents_cost"], 4)
    levels = [f"{row.differences[name].p:.4f}" for name in ("ents_f", "ents_cost")]
    return [row.loss, *percents[:3], cost, percents[3], f"{row.seconds:.0f}", *levels]
