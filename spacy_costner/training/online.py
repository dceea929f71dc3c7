"""Online training of the linear model: small steps, as in `spacy train`, on examples that are
read once."""

import random
from typing import Iterable, List, NamedTuple, Tuple

from spacy.training import Example
from thinc.api import Optimizer

from ..features import FeatureBatch
from ..ml import linear_part, score_seen
from ..pipeline.component import CostSensitiveNER
from ..pipeline.objective import Reading
from .convergence import OnStep, Step, ignore


class Trained(NamedTuple):
    """What online training came to.

    value (float): The loss of the last whole epoch or, if there is none, of the steps, for each
        annotated token or, where the loss is one ratio, for each step.
    n_epochs (int): Whole epochs.
    n_steps (int): Steps.
    reason (str): Why it ended.
    """

    value: float
    n_epochs: int
    n_steps: int
    reason: str

    def describe(self) -> str:
        """In words."""
        return (
            f"{self.reason}: {self.n_epochs} epochs, {self.n_steps:,} steps, loss {self.value:.6g}"
        )


def read_batches(
    ner: CostSensitiveNER, batches: Iterable[List[Example]]
) -> List[Tuple[FeatureBatch, Reading]]:
    """Read what there is to know of batches: the features of the tokens, and what is gold.

    ner (CostSensitiveNER): An initialized component with a linear model.
    batches (Iterable[List[Example]]): The batches.
    RETURNS (List[Tuple[FeatureBatch, Reading]]): That of each batch with any tokens.
    """
    features, _ = linear_part(ner.model)
    seen = [(batch, features.find([eg.predicted for eg in batch])) for batch in batches]
    return [
        (found, ner.objective.read(batch, ner.tags, found.rows))
        for batch, found in seen
        if len(found.rows)
    ]


def train(
    ner: CostSensitiveNER,
    batches: List[Tuple[FeatureBatch, Reading]],
    optimizer: Optimizer,
    *,
    max_epochs: int,
    max_steps: int = 0,
    on_epoch: OnStep = ignore,
) -> Trained:
    """Make a step for each batch, in another order in each epoch.

    ner (CostSensitiveNER): An initialized component with a linear model.
    batches (List[Tuple[FeatureBatch, Reading]]): What `read_batches` returned. They are shuffled.
    optimizer (Optimizer): Says whether averages are kept.
    max_epochs (int), max_steps (int): When to end; 0 for no limit. Not both 0.
    on_epoch (Callable): Called after each epoch. What a KeyboardInterrupt leaves is what was
        learned so far.
    RETURNS (Trained): What it came to.
    RAISES (ValueError): If it would have no end.
    """
    if not (max_epochs or max_steps):
        raise ValueError("fit: max_epochs, max_steps: expected one of them above 0, both are 0")
    value, n_epochs, n_steps, reason = float("nan"), 0, 0, "trained"
    try:
        while batches and (not max_epochs or n_epochs < max_epochs):
            random.shuffle(batches)
            total, n_annotated = 0.0, 0
            for seen, reading in batches:
                if max_steps and n_steps == max_steps:
                    return Trained(value, n_epochs, n_steps, "steps used up")
                batch_value, n_tokens = step(ner, seen, reading, optimizer)
                total += batch_value
                n_annotated += n_tokens
                n_steps += 1
                if not n_epochs:
                    value = total / max(n_annotated, 1)
            value, n_epochs = total / max(n_annotated, 1), n_epochs + 1
            on_epoch(Step(n_epochs, value))
    except KeyboardInterrupt:
        reason = "interrupted"
    return Trained(value, n_epochs, n_steps, reason)


def step(
    ner: CostSensitiveNER, seen: FeatureBatch, reading: Reading, optimizer: Optimizer
) -> Tuple[float, int]:
    """Learn from a batch, as `CostSensitiveNER.update` does.

    RETURNS (Tuple[float, int]): The loss, and what it is to be divided by.
    """
    scores, add_gradient = score_seen(ner.model, seen, is_train=True)
    ner.check_finite(scores)
    result, n_annotated = ner.objective.evaluate(reading, scores, ner.tags, ner.progress)
    add_gradient(result.gradient)
    ner.finish_update(optimizer)
    ner.advance(len(reading.lengths))
    return result.value, n_annotated
