"""Which loss is best for a corpus: trials of several, one row for each."""

from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy
import srsly
from confection import SimpleFrozenDict
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
from ..pipeline.scorers import DocCounts
from ..saving import save_file
from .runs import MakeExecutor
from .trials import Failed, Finished, Outcome, plan, run_trials


class Row(NamedTuple):
    """What came of a loss.

    loss (str): The name of the loss.
    seconds (float): How long a training took, on average.
    scores (Dict[str, float]): Those of `scores_of`: means over the seeds.
    by_seed (Dict[str, List[float]]): The same, seed by seed.
    differences (Dict[str, Difference]): How far the means are from those of the first loss.
    """

    loss: str
    seconds: float
    scores: Dict[str, float]
    by_seed: Dict[str, List[float]]
    differences: Dict[str, Difference]

    def as_json(self) -> Dict[str, Any]:
        """The row as JSON can hold it."""
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
    """Train one config with several losses, and compare what comes of them.

    Trials that have come to their end in the output folder before are not done again.

    config_path (Path): The config to start from. If its scorer is
        `spacy_costner.cost_scorer.v1`, that says what mistakes cost; else each wrong tag 1.
    loss_paths (Sequence[Path]): A config for each loss, which is named as its file. Its
        blocks of components and training take the place of those; see `trials.put_onto`.
    test_path (Path): The corpus to score on: a .spacy file or a folder of them.
    output_path (Path): Where trials are kept, and the rows, as `comparison.json`.
    seeds (Sequence[int]): Each loss is trained with each seed.
    overrides (Mapping[str, Any]): Settings that hold for all, such as "paths.train".
    n_samples (int): How many samples of docs the bootstrap draws.
    jobs (int): How many trainings go side by side, each in a process of its own.
    use_gpu (int): The GPU, or -1.
    code_path (Optional[Path]): A Python file that registers further functions.
    make_executor (Optional[MakeExecutor]): Starts what trainings are handed to, if it isn't `jobs`
        processes of this machine: see `runs.run_all`.
    on_outcome (Optional[Callable[[Outcome], None]]): Is told what comes of each trial.
    RETURNS (List[Row]): A row for each loss.
    RAISES (ValueError): If an argument is out of its range, if configs don't go together
        or, once the others have come to their end, if a trial failed.
    """
    sizes = {"losses": len(loss_paths), "seeds": len(seeds), "samples": n_samples, "jobs": jobs}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"compare: {name}: expected at least 1, got {size}")
    seeds = list(dict.fromkeys(seeds))
    trials = plan(config_path, loss_paths, test_path, output_path, seeds=seeds, overrides=overrides)
    outcomes = []
    settings: Dict[str, Any] = {"jobs": jobs, "use_gpu": use_gpu, "code_path": code_path}
    for outcome in run_trials(trials, make_executor=make_executor, **settings):
        outcomes.append(outcome)
        if on_outcome is not None:
            on_outcome(outcome)
    order = [(trial.loss, trial.seed) for trial in trials]
    outcomes.sort(key=lambda outcome: order.index((outcome.loss, outcome.seed)))
    rows = summarise(all_finished(outcomes), n_samples=n_samples)
    record = {
        "config": str(config_path),
        "test": str(test_path),
        "overrides": dict(overrides),
        "seeds": seeds,
        "samples": n_samples,
        "cost": trials[0].measure.cost,
        "losses": [row.as_json() for row in rows],
    }
    save_file(output_path / "comparison.json", partial(srsly.write_json, data=record))
    return rows


def all_finished(outcomes: Sequence[Outcome]) -> List[Finished]:
    """Check that no trial failed.

    RAISES (ValueError): If one did.
    """
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    if failed:
        names = [f"{loss}, seed {seed}: {reason}" for loss, seed, reason in failed]
        raise ValueError("\n".join([f"compare: {len(failed)} of {len(outcomes)} failed", *names]))
    return [outcome for outcome in outcomes if isinstance(outcome, Finished)]


def summarise(finished: Sequence[Finished], *, n_samples: int = 10_000) -> List[Row]:
    """Put the trials of each loss together, and compare each loss with the first.

    The samples are of docs, the same for all trials; the score of a sample is the mean
    over the seeds, as in the row.

    finished (Sequence[Finished]): Trials, of the same seeds for each loss.
    n_samples (int): How many samples of docs the bootstrap draws.
    RETURNS (List[Row]): A row for each loss, in the order in which they first come.
    RAISES (ValueError): If there was no doc to score.
    """
    losses = list(dict.fromkeys(one.loss for one in finished))
    of_loss = {loss: [one for one in finished if one.loss == loss] for loss in losses}
    # Shape: (L, S, D, C): losses, seeds, docs, and what is counted.
    counts = numpy.stack([[_columns(one.counts) for one in of_loss[loss]] for loss in losses])
    if not counts.shape[2]:
        raise ValueError("compare: test: expected docs with annotated entities, found none")
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
    """What `scores_of` makes scores of, for each doc. Shape: (D, C)"""
    exact = (counts.wrong == 0) & (counts.missed == 0)
    return numpy.stack([*counts, exact, numpy.ones_like(exact)], axis=-1).astype("float64")


def scores_of(sums: FloatsXd) -> Dict[str, FloatsXd]:
    """Make scores of counts: the F, precision and recall of entities, the average cost of a
    token, and the share of docs with all entities right and no other.

    sums (FloatsXd): Counts, added up over docs. Shape: (..., C)
    RETURNS (Dict[str, FloatsXd]): Under the names of spaCy and of our scorer. A score of
        nothing is 0. Shape: (...)
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
    """Say in a line what came of a trial."""
    trial = f"{outcome.loss}, seed {outcome.seed}"
    if isinstance(outcome, Failed):
        return f"{trial}: failed"
    f = float(scores_of(_columns(outcome.counts).sum(axis=0))["ents_f"])
    return f"{trial}: F {100 * f:.2f}, {outcome.seconds:.0f} s"


def table(rows: Sequence[Row]) -> str:
    """Write rows as a table, in Markdown.

    rows (Sequence[Row]): The rows.
    RETURNS (str): The table. Scores are in percent, but for the cost; behind each is its
        standard deviation, if there is more than one seed.
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
