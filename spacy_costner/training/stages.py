"""When the losses of a schedule are used: how many passes over the training docs are completed
after each step, and whether the settings of training fit the schedule."""

import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from spacy.language import Language
from spacy.util import registry

from ..losses import LossSchedule
from ..types import Loss, Progress

DocT = TypeVar("DocT")
"""A training example, or anything else with the length of its doc."""

Batcher = Callable[[Iterable[DocT]], Iterable[Sequence[DocT]]]


def passes_after_steps(
    docs: Iterable[DocT], batcher: Batcher[DocT], *, max_epochs: int = 0
) -> Iterator[float]:
    """Divide docs into batches, as `spacy train` does. A batch is a step.

    docs (Iterable[DocT]): The training docs. They are shuffled before each epoch.
    batcher (Batcher[DocT]): A new batcher, because the size of its batches may grow with each step.
    max_epochs (int): The number of epochs, or 0 for no limit.
    YIELDS (float): After each step, the number of passes over the docs. This is less than the
        number of epochs if the batcher discards long docs.
    """
    shuffled_docs = list(docs)
    rng = random.Random(0)
    n_seen = 0
    n_epochs = 0
    while not max_epochs or n_epochs < max_epochs:
        rng.shuffle(shuffled_docs)
        n_seen_before = n_seen
        for batch in batcher(shuffled_docs):
            n_seen += len(batch)
            yield n_seen / len(shuffled_docs)
        if n_seen == n_seen_before:  # there are no docs, or all are discarded
            return
        n_epochs += 1


def count_passes(
    training: Mapping[str, Any], get_docs: Callable[[], Iterable[DocT]], *, most: float
) -> float:
    """Count the passes over the training docs until training ends.

    training (Mapping[str, Any]): The settings of the [training] block, not resolved.
    get_docs (Callable[[], Iterable[DocT]]): Returns the training docs. Only called if the number of
        steps is limited.
    most (float): The number of passes after which to stop counting.
    RETURNS (float): The number of passes, which is `most` if training doesn't end before that.
    """
    max_epochs = training["max_epochs"]
    if max_epochs < 0:  # the corpus is a stream, which has no passes
        return most
    if max_epochs:
        most = min(most, max_epochs)
    if not training["max_steps"]:
        return most
    n_passes = 0.0
    # spaCy counts steps from 0, and training ends after the step with the number `max_steps`.
    steps = passes_after_steps(get_docs(), resolve_batcher(training))
    for n_passes in islice(steps, training["max_steps"] + 1):
        if n_passes >= most:
            return most
    return n_passes or most  # there are no docs to count


def warn_of_schedule(
    loss: Loss | LossSchedule,
    nlp: Language | None,
    get_docs: Callable[[], Iterable[DocT]] | None,
    component: str,
) -> None:
    """Warn if training, as the config of a pipeline defines it, doesn't fit a schedule of losses:
    see `find_schedule_problem`.

    loss (Loss | LossSchedule): The loss. If it isn't a schedule, there is nothing to check.
    nlp (Language | None): The pipeline with the config, if any.
    get_docs (Callable[[], Iterable[DocT]] | None): See `find_unused_loss`.
    component (str): The name of the component.
    """
    if nlp is None or not isinstance(loss, LossSchedule):
        return
    objection = find_schedule_problem(loss, nlp.config.interpolate()["training"], get_docs)
    if objection:
        warnings.warn(f"{component}: {objection}", stacklevel=3)


def warn_if_last_loss_was_unused(
    loss: Loss | LossSchedule, training: Mapping[str, Any], progress: Progress, component: str
) -> None:
    """Warn if the last loss of a schedule wasn't used in training, unless `warn_of_schedule` has
    done so without docs.

    loss (Loss | LossSchedule): The loss. If it isn't a schedule, there is nothing to check.
    training (Mapping[str, Any]): The settings of the [training] block.
    progress (Progress): The progress at the end of training.
    component (str): The name of the component.
    """
    if not isinstance(loss, LossSchedule) or find_unused_loss(loss, training, None):
        return
    n_done = progress.steps if loss.unit == "steps" else progress.passes
    # The loss of the last update depends on the progress before it.
    if n_done <= loss.ends[-1]:
        warnings.warn(f"{component}: {_objection(loss, training)}", stacklevel=3)


def find_schedule_problem(
    loss: Loss | LossSchedule,
    training: Mapping[str, Any],
    get_docs: Callable[[], Iterable[DocT]] | None,
) -> str:
    """Check whether the settings of training fit a schedule of losses: training lasts until the
    last loss begins, and epochs can be counted. For the arguments, see `find_unused_loss`. Returns
    an error message, or an empty string if there is no problem."""
    if not isinstance(loss, LossSchedule):
        return ""
    if loss.unit == "epochs" and training["max_epochs"] < 0:
        return (
            "loss: expected a schedule with steps, as a streamed corpus (training.max_epochs = "
            f"{training['max_epochs']}) has no epochs, got epochs = {list(loss.ends)}: an epoch "
            "is as long as the docs that are read to initialize, at most 100"
        )
    return find_unused_loss(loss, training, get_docs)


def find_unused_loss(
    loss: Loss | LossSchedule,
    training: Mapping[str, Any],
    get_docs: Callable[[], Iterable[DocT]] | None,
) -> str:
    """Check whether training ends before the last loss of a schedule begins.

    loss (Loss | LossSchedule): The loss. If it isn't a schedule, there is nothing to check.
    training (Mapping[str, Any]): The settings of the [training] block, not resolved.
    get_docs (Callable[[], Iterable[DocT]] | None): Returns the training docs. Only called to
        convert between epochs and steps. With None, the last loss is assumed to be used if this
        would be necessary. For linear models, it is None, because `fit` divides docs into pieces.
    RETURNS (str): An error message, or an empty string if the last loss is used.
    """
    if not isinstance(loss, LossSchedule) or _is_last_loss_used(loss, training, get_docs):
        return ""
    return _objection(loss, training)


def _objection(schedule: LossSchedule, training: Mapping[str, Any]) -> str:
    """Return the error message for a schedule whose last loss is never used."""
    limits: list[str] = []
    for name in ("max_epochs", "max_steps"):
        if training[name] > 0:
            limits.append(f"training.{name} = {training[name]}")
    return (
        "loss: expected a schedule whose last loss begins before training ends, got "
        f"{schedule.unit} = {list(schedule.ends)} with {' and '.join(limits)}: the last loss is "
        "never used"
    )


def _is_last_loss_used(
    schedule: LossSchedule,
    training: Mapping[str, Any],
    get_docs: Callable[[], Iterable[DocT]] | None,
) -> bool:
    """Check whether the last loss of a schedule is used in at least one update."""
    begin = schedule.ends[-1]
    max_epochs = training["max_epochs"]
    max_steps = training["max_steps"]
    if schedule.unit == "steps":
        # A schedule counts updates. If gradients are accumulated, a step of spaCy consists of
        # several updates, and sometimes another one with the remaining examples.
        n_updates_per_step = training["accumulate_gradient"]
        if n_updates_per_step > 1:
            n_updates_per_step += 1
        if max_steps and (max_steps + 1) * n_updates_per_step <= begin:
            return False
        if max_epochs <= 0 or get_docs is None:
            return True
        steps = passes_after_steps(get_docs(), resolve_batcher(training), max_epochs=max_epochs)
        return sum(1 for _ in steps) * n_updates_per_step > begin

    if max_epochs < 0:  # the corpus is a stream, which has no passes
        return True
    if max_epochs and max_epochs <= begin:
        return False
    if not max_steps or get_docs is None:
        return True
    # The loss of a step depends on the passes before it. The last step has the number `max_steps`.
    steps = passes_after_steps(get_docs(), resolve_batcher(training), max_epochs=max_epochs)
    return any(n_passes >= begin for n_passes in islice(steps, max_steps))


def resolve_batcher(training: Mapping[str, Any]) -> Batcher[Any]:
    """Create a new batcher from the settings of the [training] block."""
    batcher: Batcher[Any] = registry.resolve({"batcher": training["batcher"]})["batcher"]
    return batcher
