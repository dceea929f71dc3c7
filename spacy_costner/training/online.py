"""Online training of the linear model: the updates of `spacy train`, with examples read once."""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from spacy.training import Example
from thinc.api import Model, Optimizer

from ..features import FeatureBatch
from ..ml import SparseWeights, find_features
from ..progress import progress as progress_bar
from ..tags import Tags
from ..types import Progress
from .objective import Objective, check_finite
from .targets import Targets

INTERRUPTED = "interrupted"


Batch = tuple[int, Callable[[], tuple[FeatureBatch, Targets]]]
"""The number of sequences of a batch, and a function that reads its features and its targets."""


class Trained(NamedTuple):
    """The result of online training, or its state after an epoch. `value` is the loss of the last
    complete epoch or, if there is none, of all steps; per annotated token or, if the loss is one
    ratio, per step."""

    value: float
    n_epochs: int
    n_steps: int
    reason: str
    progress: Progress

    def describe(self) -> str:
        """A line of text."""
        return (
            f"{self.reason}: {self.n_epochs} epochs, {self.n_steps:,} steps, loss {self.value:.6g}"
        )


OnEpoch = Callable[[Trained], object]


Turns = list[list[Batch]]
"""The batches of an epoch, and those of the next, and so on: epochs take turns."""


def in_memory(batches: Iterable[tuple[FeatureBatch, list[Targets]]]) -> Turns:
    """Batches that are kept in memory, from their features and their targets in each turn."""
    batches = list(batches)
    n_turns = max((len(turns) for _, turns in batches), default=1)

    def batch_of(seen: FeatureBatch, targets: Targets) -> Batch:
        return len(targets.lengths), lambda: (seen, targets)

    return [
        [batch_of(seen, turns[min(i, len(turns) - 1)]) for seen, turns in batches]
        for i in range(n_turns)
    ]


def read_batches(
    model: Model, objective: Objective, tags: Tags, batches: Iterable[list[Example]]
) -> Turns:
    """Extract the features and make the targets of the batches that have tokens."""
    return in_memory(
        (seen, objective.turns(batch, tags, seen.rows))
        for batch in batches
        if len((seen := find_features(model, [eg.predicted for eg in batch], is_train=True)).rows)
    )


def train(
    weights: SparseWeights,
    objective: Objective,
    turns: Sequence[list[Batch]],
    optimizer: Optimizer,
    *,
    max_epochs: int,
    max_steps: int = 0,
    dropout: float = 0.0,
    progress: Progress = Progress(),  # noqa: B008 (immutable)
    shuffle: Callable[[list[Batch]], None] = random.shuffle,
    on_epoch: OnEpoch = lambda trained: None,
    desc: str = "train",
) -> Trained:
    """Update weights with each batch, in another order in each epoch. A KeyboardInterrupt ends
    training and keeps the weights so far.

    turns (Sequence[list[Batch]]): See `Turns`. They are shuffled.
    optimizer (Optimizer): Says whether averages are kept: see `SparseWeights.averaged`.
    max_epochs (int), max_steps (int): When to end; 0 for no limit. Not both 0.
    dropout (float): The share of features that tokens lose.
    progress (Progress): The progress of training before.
    RAISES (ValueError): If a score is not finite.
    """
    n_batches = sum(len(turns[epoch % len(turns)]) for epoch in range(max_epochs))
    ends = [limit for limit in (max_steps, n_batches) if limit]
    trained = Trained(float("nan"), 0, 0, "trained", progress)
    bar = progress_bar(desc=desc, unit="step", total=min(ends, default=0))
    try:
        while turns[0] and (not max_epochs or trained.n_epochs < max_epochs):
            batches = turns[trained.n_epochs % len(turns)]
            n_sequences = max(sum(n for n, _ in batches), 1)
            shuffle(batches)
            total, n_annotated = 0.0, 0
            for n, read in batches:
                if max_steps and trained.n_steps == max_steps:
                    return trained._replace(reason="steps used up")
                seen, targets = read()
                scores, add_gradient = weights.begin_update(seen, dropout)
                check_finite(scores, objective.name)
                result, n_tokens = objective.evaluate(targets, scores, trained.progress)
                add_gradient(result.gradient)
                weights.finish_update(optimizer)

                progress = trained.progress.after_update(n, n_sequences)
                trained = trained._replace(n_steps=trained.n_steps + 1, progress=progress)
                total, n_annotated = total + result.value, n_annotated + n_tokens
                if not trained.n_epochs:
                    trained = trained._replace(value=total / max(n_annotated, 1))
                bar.update()
            value = total / max(n_annotated, 1)
            trained = trained._replace(value=value, n_epochs=trained.n_epochs + 1)
            bar.set_postfix(loss=f"{value:.6g}", refresh=False)
            on_epoch(trained)
    except KeyboardInterrupt:
        return trained._replace(reason=INTERRUPTED)
    finally:
        bar.close()
    return trained
