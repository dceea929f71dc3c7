"""Compute the scores of variants, and test differences with a paired bootstrap over docs."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import NamedTuple

import numpy
from thinc.types import FloatsXd

from ...metrics import Difference, f_score, paired_differences, precision, ratio, recall
from ...pipeline.scorers import DocCounts

UNTRAINED = "the best model was not trained past the first step"
"""The reason why a loss has no scores."""


class Finished(NamedTuple):
    """A trained and evaluated variant.

    loss (str): See `Variant`.
    seed (int): See `Variant`.
    seconds (float): The training time.
    counts (DocCounts): The counts of its predictions on the test corpus.
    is_trained (bool): Whether the best model was trained past the first step.
    units (Sequence[int]): The unit of each test doc: see `Predicted`.
    notes (Sequence[str]): Notes about recurring texts in the test corpus.
    """

    loss: str
    seed: int
    seconds: float
    counts: DocCounts
    is_trained: bool = True
    units: Sequence[int] = ()
    notes: Sequence[str] = ()

    def columns(self) -> FloatsXd:
        """Stack the counts of each of the D test docs, from which `scores_of` computes scores. The
        columns are the fields of `DocCounts` (correct, wrong and missed entities, cost, tokens),
        followed by 1 if all entities of the doc are correct (otherwise 0), and 1 to count the doc
        itself. Shape: (D, C)"""
        is_exact = (self.counts.fp == 0) & (self.counts.fn == 0)
        columns = [*self.counts, is_exact, numpy.ones_like(is_exact)]
        return numpy.stack(columns, axis=-1).astype("float64")

    def f_score(self) -> float:
        """Compute the F score on all test docs."""
        return float(scores_of(self.columns().sum(axis=0))["ents_f"])


class ScoredLoss(NamedTuple):
    """The scores of a loss, keyed by the names of the scores: see `scores_of`.

    by_seed (dict[str, list[float]]): The score for each seed.
    differences (dict[str, Difference]): The difference from the first loss with scores.
    """

    by_seed: dict[str, list[float]]
    differences: dict[str, Difference]


class ComparedLoss(NamedTuple):
    """A row of the result: a loss with its scores. It has no scores if the best model of any seed
    is untrained.

    loss (str): The name of the loss, and the values of settings: see `Variant`.
    seconds (float): The mean training time.
    scores (dict[str, float]): The scores, averaged over seeds: see `scores_of`.
    by_seed (dict[str, list[float]]): The scores for each seed.
    differences (dict[str, Difference]): The difference between each score and the score of the
        first loss. Empty for the first loss, and if either loss has no scores.
    untrained (list[int]): The seeds whose best model wasn't trained past the first step.
    notes (Sequence[str]): Reasons why the scores may be misleading, i.e. recurring texts in the
        test corpus.
    """

    loss: str
    seconds: float
    scores: dict[str, float]
    by_seed: dict[str, list[float]]
    differences: dict[str, Difference]
    untrained: list[int]
    notes: Sequence[str] = ()


def summarise(finished: Sequence[Finished], *, n_samples: int = 10_000) -> list[ComparedLoss]:
    """Average the scores of each loss over its seeds, and compare each loss with the first one.

    The bootstrap draws the same samples of docs for all variants. Docs that are copies of each
    other are drawn together. The score of a sample is the mean over seeds, and the variance between
    seeds is taken into account: see `paired_differences`. A loss has no scores if one of its models
    wasn't trained past the first step. If this applies to the first loss, there are no differences.

    finished (Sequence[Finished]): The results of all variants. All losses have the same seeds.
    n_samples (int): Number of bootstrap samples.
    RETURNS (list[ComparedLoss]): A row for each loss, in the order of first occurrence in
        `finished`.
    RAISES (ValueError): If no test doc is annotated.
    """
    runs_of_loss: dict[str, list[Finished]] = {}
    for run in finished:
        runs_of_loss.setdefault(run.loss, []).append(run)
    trained_runs: dict[str, list[Finished]] = {}
    for loss, runs in runs_of_loss.items():
        if all(run.is_trained for run in runs):
            trained_runs[loss] = runs
    scored_losses = score_losses(trained_runs, n_samples)
    first_loss = finished[0].loss

    rows: list[ComparedLoss] = []
    for loss, runs in runs_of_loss.items():
        scores_by_seed: dict[str, list[float]] = {}
        differences: dict[str, Difference] = {}
        if loss in scored_losses:
            scores_by_seed = scored_losses[loss].by_seed
            if loss != first_loss and first_loss in scored_losses:
                differences = scored_losses[loss].differences
        rows.append(
            ComparedLoss(
                loss,
                seconds=mean(run.seconds for run in runs),
                scores={name: float(numpy.mean(row)) for name, row in scores_by_seed.items()},
                by_seed=scores_by_seed,
                differences=differences,
                untrained=[run.seed for run in runs if not run.is_trained],
                notes=list(dict.fromkeys(note for run in runs for note in run.notes)),
            )
        )
    return rows


def score_losses(
    runs_of_loss: Mapping[str, Sequence[Finished]], n_samples: int
) -> dict[str, ScoredLoss]:
    """Score each loss with each seed, and compute the differences from the first loss. There must
    be a trained variant of each loss for each seed. Returns the scores, keyed by loss. Raises a
    ValueError if no test doc is annotated."""
    if not runs_of_loss:
        return {}
    # Shape of the counts of a loss: (S, D, C), for S seeds, D docs and C columns
    counts_of_losses: list[FloatsXd] = []
    for runs in runs_of_loss.values():
        counts_of_losses.append(numpy.stack([run.columns() for run in runs]))
    counts = numpy.stack(counts_of_losses)  # shape: (L, S, D, C), for L losses
    n_docs = counts.shape[2]
    if n_docs == 0:
        raise ValueError("compare: test: expected docs with annotated entities, got none")
    scores = scores_of(counts.sum(axis=2))  # shape of each score: (L, S)

    def stack_scores(sums: FloatsXd) -> FloatsXd:
        """Compute all scores and stack them in one array. Shapes: (..., C) to (scores, ...)"""
        return numpy.stack(list(scores_of(sums).values()))

    # The bootstrap draws docs that are copies of each other together.
    counts_of_units = counts
    units = next(iter(runs_of_loss.values()))[0].units  # the same test docs for all variants
    if units:
        counts_of_units = sum_by_unit(counts, units)
    # For each score, the differences of all losses from the first one
    differences = paired_differences(
        counts_of_units, stack_scores, n_samples=n_samples, with_seeds=True
    )
    scored_losses: dict[str, ScoredLoss] = {}
    for i, loss in enumerate(runs_of_loss):
        by_seed = {name: array[i].tolist() for name, array in scores.items()}
        from_first = {name: losses[i] for name, losses in zip(scores, differences)}
        scored_losses[loss] = ScoredLoss(by_seed, from_first)
    return scored_losses


def scores_of(sums: FloatsXd) -> dict[str, FloatsXd]:
    """Compute the F-score, precision and recall of entities, the mean cost per token, and the share
    of docs in which the predicted entities match the annotated ones exactly. The keys are the names
    used by spaCy and the cost scorer. A score is 0 if its denominator is 0. `sums` are the counts
    of `Finished.columns`, summed over docs. Shapes: (..., C) to (...)"""
    tp, fp, fn, total_cost, n_tokens, n_exact, n_docs = numpy.moveaxis(sums, -1, 0)
    return {
        "ents_f": f_score(tp, fp, fn),
        "ents_p": precision(tp, fp),
        "ents_r": recall(tp, fn),
        "ents_cost": ratio(total_cost, n_tokens),
        "ents_sent_acc": ratio(n_exact, n_docs),
    }


def sum_by_unit(counts: FloatsXd, units: Sequence[int]) -> FloatsXd:
    """Sum the counts of the docs in each of U units. `units` contains the unit of each doc. Shapes:
    (L, S, D, C), (D,) to (L, S, U, C)"""
    by_doc = numpy.moveaxis(counts, 2, 0)
    by_unit = numpy.zeros((max(units) + 1, *by_doc.shape[1:]))
    numpy.add.at(by_unit, numpy.asarray(units), by_doc)
    return numpy.moveaxis(by_unit, 0, 2)
