"""The scores of a comparison: a row for each loss, with the significance of differences."""

from statistics import mean
from typing import Any, Dict, List, NamedTuple, Sequence

import numpy
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

UNTRAINED = "the best model was not trained past the first step"


class Finished(NamedTuple):
    """A variant that is trained and evaluated.

    loss (str): The name of the loss.
    seed (int): The seed.
    seconds (float): Training time.
    counts (DocCounts): Correct and wrong predictions of each doc.
    is_trained (bool): Whether the best model was trained past the first step.
    """

    loss: str
    seed: int
    seconds: float
    counts: DocCounts
    is_trained: bool = True


class Row(NamedTuple):
    """The scores of a loss.

    loss (str): The name of the loss.
    seconds (float): Mean training time.
    scores (Dict[str, float]): The scores of `scores_of`, averaged over seeds. Empty if the loss
        has untrained seeds.
    by_seed (Dict[str, List[float]]): The scores of each seed.
    differences (Dict[str, Difference]): The differences from the first loss. Empty if one of the
        two has untrained seeds.
    untrained (List[int]): The seeds whose best model was not trained past the first step.
    """

    loss: str
    seconds: float
    scores: Dict[str, float]
    by_seed: Dict[str, List[float]]
    differences: Dict[str, Difference]
    untrained: List[int]

    def as_json(self) -> Dict[str, Any]:
        """The row as JSON."""
        differences = {name: found._asdict() for name, found in self.differences.items()}
        return {**self._asdict(), "differences": differences}


def summarise(finished: Sequence[Finished], *, n_samples: int = 10_000) -> List[Row]:
    """Average the scores of each loss over seeds, and compare each loss with the first.

    A loss with a model that was not trained past the first step gets no scores, and no
    differences from it are computed.

    finished (Sequence[Finished]): Variants, with the same seeds for each loss.
    n_samples (int): Number of bootstrap samples.
    RETURNS (List[Row]): A row for each loss, in the order in which they first come.
    RAISES (ValueError): If there was no doc to score.
    """
    untrained: Dict[str, List[int]] = {one.loss: [] for one in finished}
    for one in finished:
        untrained[one.loss] += [] if one.is_trained else [one.seed]
    rows_of = _score([one for one in finished if not untrained[one.loss]], n_samples)
    rows = []
    for loss, seeds in untrained.items():
        seconds = mean(one.seconds for one in finished if one.loss == loss)
        row = rows_of.get(loss, Row(loss, seconds, {}, {}, {}, seeds))
        rows.append(row if next(iter(untrained)) in rows_of else row._replace(differences={}))
    return rows


def _score(finished: Sequence[Finished], n_samples: int) -> Dict[str, Row]:
    """The rows of losses, compared with the first of them.

    The bootstrap samples docs, the same docs for all variants. The score of a sample is the
    mean over seeds.
    """
    losses = list(dict.fromkeys(one.loss for one in finished))
    if not losses:
        return {}
    of_loss = {loss: [one for one in finished if one.loss == loss] for loss in losses}
    # Shape: (L, S, D, C): losses, seeds, docs, and what is counted.
    counts = numpy.stack([[columns_of(one.counts) for one in of_loss[loss]] for loss in losses])
    if not counts.shape[2]:
        raise ValueError("compare: test: expected docs with annotated entities, got none")
    by_seed = scores_of(counts.sum(axis=2))
    differences = paired_differences(
        counts, lambda sums: numpy.stack([*scores_of(sums).values()]), n_samples=n_samples
    )
    return {
        loss: Row(
            loss=loss,
            seconds=mean(one.seconds for one in of_loss[loss]),
            scores={name: float(values[i].mean()) for name, values in by_seed.items()},
            by_seed={name: values[i].tolist() for name, values in by_seed.items()},
            differences={name: found[i] for name, found in zip(by_seed, differences)},
            untrained=[],
        )
        for i, loss in enumerate(losses)
    }


def columns_of(counts: DocCounts) -> Floats2d:
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


def table(rows: Sequence[Row]) -> str:
    """Write rows as a table, in Markdown.

    rows (Sequence[Row]): The rows.
    RETURNS (str): The table. All scores except the cost are in percent, followed by their
        standard deviation if there are several seeds. Below it, what is not in it, and why.
    """
    head = ["loss", "F", "P", "R", "cost", "sentences", "seconds", "p of F", "p of cost"]
    notes = [
        f"{row.loss}: {UNTRAINED}, with seed {', '.join(map(str, row.untrained))}: no scores, and "
        "no significance of differences from it"
        for row in rows
        if row.untrained
    ]
    return "\n".join([markdown_table(head, [_cells(row) for row in rows], align=True), *notes])


def _cells(row: Row) -> List[str]:
    if not row.scores:
        return [row.loss, *["-"] * 5, f"{row.seconds:.0f}", "-", "-"]
    percents = [
        mean_and_deviation([100 * value for value in row.by_seed[f"ents_{name}"]])
        for name in ("f", "p", "r", "sent_acc")
    ]
    cost = mean_and_deviation(row.by_seed["ents_cost"], 4)
    names = ("ents_f", "ents_cost")
    levels = [f"{row.differences[name].p:.4f}" if row.differences else "-" for name in names]
    return [row.loss, *percents[:3], cost, percents[3], f"{row.seconds:.0f}", *levels]
