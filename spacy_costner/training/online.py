"""Online training of the linear model: the updates of `spacy train`, with examples read once."""

import random
from typing import TYPE_CHECKING, Callable, Iterable, List, NamedTuple, Optional, Tuple

from spacy.training import Example
from thinc.api import Optimizer

from ..features import FeatureBatch
from ..ml import find_features, score_seen
from ..progress import progress
from .objective import check_finite
from .targets import Targets

if TYPE_CHECKING:
    from ..pipeline.component import CostSensitiveNER


class Batch(NamedTuple):
    """A batch that is read when it is used.

    n_sequences (int): Its number of sequences.
    read (Callable): Returns its features and its targets.
    """

    n_sequences: int
    read: Callable[[], Tuple[FeatureBatch, Targets]]

    @classmethod
    def of(cls, seen: FeatureBatch, targets: Targets) -> "Batch":
        """A batch that is read already."""
        return cls(len(targets.lengths), lambda: (seen, targets))


INTERRUPTED = "interrupted"


class Step(NamedTuple):
    """The result of an iteration.

    iteration (int): Its number, from 1.
    value (float): The objective.
    slope (Optional[float]): The largest derivative of it, if that is known.
    """

    iteration: int
    value: float
    slope: Optional[float] = None


OnStep = Callable[[Step], None]


def ignore(step: Step) -> None:
    """Ignore a step."""


class Trained(NamedTuple):
    """The result of online training.

    value (float): The loss of the last complete epoch or, if there is none, of all steps; per
        annotated token or, if the loss is one ratio, per step.
    n_epochs (int): Number of complete epochs.
    n_steps (int): Number of steps.
    reason (str): Why it ended.
    """

    value: float
    n_epochs: int
    n_steps: int
    reason: str

    def describe(self) -> str:
        """A line of text."""
        return (
            f"{self.reason}: {self.n_epochs} epochs, {self.n_steps:,} steps, loss {self.value:.6g}"
        )


def read_batches(ner: "CostSensitiveNER", batches: Iterable[List[Example]]) -> List[Batch]:
    """Extract the features of batches and make their targets.

    ner (CostSensitiveNER): An initialized component with a linear model.
    batches (Iterable[List[Example]]): The batches.
    RETURNS (List[Batch]): Those of each batch that has tokens.
    """
    seen = [
        (batch, find_features(ner.model, [eg.predicted for eg in batch], is_train=True))
        for batch in batches
    ]
    return [
        Batch.of(found, ner.targets(batch, found.rows)) for batch, found in seen if len(found.rows)
    ]


def train(
    ner: "CostSensitiveNER",
    batches: List[Batch],
    optimizer: Optimizer,
    *,
    max_epochs: int,
    max_steps: int = 0,
    on_epoch: OnStep = ignore,
    desc: str = "train",
) -> Trained:
    """Update the model with each batch, in another order in each epoch.

    ner (CostSensitiveNER): An initialized component with a linear model.
    batches (List[Batch]): What `read_batches` or `batch_pieces` returned: an epoch. They are
        shuffled.
    optimizer (Optimizer): The optimizer. It may keep averages.
    max_epochs (int), max_steps (int): When to end; 0 for no limit. Not both 0.
    on_epoch (Callable): Called after each epoch. A KeyboardInterrupt ends training and keeps the
        weights so far.
    desc (str): The name of the progress bar.
    RETURNS (Trained): The result.
    RAISES (ValueError): If both limits are 0.
    """
    if not (max_epochs or max_steps):
        raise ValueError("fit: max_epochs, max_steps: expected one of them above 0, both are 0")
    value, n_epochs, n_steps, reason = float("nan"), 0, 0, "trained"
    n_sequences = sum(batch.n_sequences for batch in batches)
    share = ner.cfg["n_examples"] / max(n_sequences, 1)
    ends = [limit for limit in (max_steps, max_epochs * len(batches)) if limit]
    bar = progress(desc=desc, unit="step", total=min(ends, default=0))
    try:
        while batches and (not max_epochs or n_epochs < max_epochs):
            random.shuffle(batches)
            total, n_annotated = 0.0, 0
            for batch in batches:
                if max_steps and n_steps == max_steps:
                    return Trained(value, n_epochs, n_steps, "steps used up")
                batch_value, n_tokens = step(ner, *batch.read(), optimizer, share)
                total += batch_value
                n_annotated += n_tokens
                n_steps += 1
                bar.update()
                if not n_epochs:
                    value = total / max(n_annotated, 1)
            value, n_epochs = total / max(n_annotated, 1), n_epochs + 1
            bar.set_postfix(loss=f"{value:.6g}", refresh=False)
            on_epoch(Step(n_epochs, value))
    except KeyboardInterrupt:
        reason = INTERRUPTED
    finally:
        bar.close()
    return Trained(value, n_epochs, n_steps, reason)


def step(
    ner: "CostSensitiveNER",
    seen: FeatureBatch,
    targets: Targets,
    optimizer: Optimizer,
    share: float = 1.0,
) -> Tuple[float, int]:
    """Update the model with a batch, as `CostSensitiveNER.update` does. A sequence is that share
    of an example.

    RETURNS (Tuple[float, int]): The loss of the batch, and the number to divide it by.
    """
    scores, add_gradient = score_seen(ner.model, seen, is_train=True)
    check_finite(scores, ner.name)
    result, n_annotated = ner.objective.evaluate(targets, scores, ner.tags, ner.progress)
    add_gradient(result.gradient)
    ner.finish_update(optimizer)
    ner.advance(share * len(targets.lengths))
    return result.value, n_annotated
