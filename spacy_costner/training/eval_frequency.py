"""How often `spacy train` evaluates the model, and a callback that makes it evaluate often enough.

`spacy train` evaluates at the first step, and then each time after `eval_frequency` steps. It saves
the best of the evaluated models as "model-best". On a small corpus, training may end before the
second evaluation. Then "model-best" is the model of the first step, which has hardly learned.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import ceil
from typing import Any, NamedTuple

from spacy.language import Language
from spacy.schemas import ConfigSchemaTraining
from spacy.training import Example
from spacy.util import load_model_from_config, registry, resolve_dot_names
from thinc.api import Config

CALLBACK = "spacy_costner.evaluate_each_epoch.v1"
"""The registered name of the callback `evaluate_each_epoch`."""

N_PASSES = 10
"""The number of orders of the docs in which steps are counted. If batches are by words, the number
of steps of an epoch depends on the order, and the lowest number counts."""

UNCERTAIN = 100
"""In orders that were not tried, an epoch may have fewer steps: by 1 in this number of steps."""


class Evaluations(NamedTuple):
    """When training evaluates: at step 0 and every `frequency` steps.

    steps_per_epoch (int): The number of steps of the shortest epoch.
    n_steps (int | None): The number of steps after which training ends, if it doesn't stop early.
        None: no limit.
    frequency (int): The setting `eval_frequency`, in steps.
    """

    steps_per_epoch: int
    n_steps: int | None
    frequency: int

    @property
    def are_after_training(self) -> bool:
        """Whether there is an evaluation after step 0, when the model is hardly trained."""
        return self.n_steps is None or self.frequency < self.n_steps

    @property
    def are_enough(self) -> bool:
        """Whether there is an evaluation after step 0, and at least one in each epoch."""
        # Without examples an epoch has 0 steps, but the frequency is at least 1.
        is_in_each_epoch = self.frequency <= max(self.steps_per_epoch, 1)
        return self.are_after_training and is_in_each_epoch

    def objection(self) -> str:
        """Make the message for people whose `eval_frequency` is too high. It is empty if there are
        enough evaluations."""
        if self.are_enough:
            return ""
        consequence = ""
        if self.n_steps:
            consequence = f", and training ends after {self.n_steps}"
        if not self.are_after_training:
            consequence += ": only the model of the first step is evaluated"
        return (
            f"training.eval_frequency: expected at most {self.steps_per_epoch}, the steps of an "
            f"epoch, got {self.frequency}{consequence}; or set initialize.before_init to {CALLBACK}"
        )

    def in_each_epoch(self) -> "Evaluations":
        """Lower `frequency`, the steps between two evaluations, so that there is at least one
        evaluation in each epoch. If it has to be lowered, the last evaluation is close to the end
        of training."""
        if self.are_enough:
            return self
        # The most steps that may lie between two evaluations: at least 1, also without examples. In
        # a different order of the examples, an epoch may have fewer steps than were counted.
        shortest_epoch = self.steps_per_epoch - self.steps_per_epoch // UNCERTAIN
        highest_frequency = max(min(shortest_epoch, self.frequency), 1)
        if self.n_steps is None:
            return self._replace(frequency=highest_frequency)
        # The fewest evaluations that are enough, at equal distances up to the last step. (Steps are
        # numbered from 0.) The last step may come a little earlier than `n_steps` says, if other
        # orders have fewer steps. Training of a single step has only step 0: any frequency will do.
        last_step = max(self.n_steps - 1 - self.n_steps // UNCERTAIN, 1)
        n_evaluations = ceil(last_step / highest_frequency)
        return self._replace(frequency=last_step // n_evaluations)


def count_evaluations(
    training: Mapping[str, Any],
    examples: Iterable[Example],
    before_init: Callable[[Language], Any] | None = None,
) -> Evaluations | None:
    """Find when `spacy train` evaluates: count the steps of its epochs, by dividing the corpus into
    batches as it does.

    training (Mapping[str, Any]): The block [training] of the config, resolved.
    examples (Iterable[Example]): The training corpus.
    before_init (Callable | None): The callback of [initialize], resolved. If it is
        `evaluate_each_epoch`, the frequency is what it will be after the callback.
    RETURNS (Evaluations | None): When training evaluates. None if the corpus is a stream, which has
        no epochs.
    """
    max_epochs = training["max_epochs"]
    max_steps = training["max_steps"]
    if max_epochs < 0:  # -1 stands for a stream
        return None
    # Count several epochs: in another order, the docs may give another number of batches.
    n_passes = N_PASSES
    if max_epochs:  # 0 is no limit of epochs
        n_passes = min(max_epochs, N_PASSES)
    steps_of_epochs = _count_steps(list(examples), training["batcher"], n_passes)

    # Limits of steps. Training ends at the lowest of them.
    limits: list[int] = []
    if max_epochs:
        # Assume that epochs after those that were counted are as long as the last of these.
        n_later_epochs = max(max_epochs - N_PASSES, 0)
        limits.append(sum(steps_of_epochs) + steps_of_epochs[-1] * n_later_epochs)
    if max_steps:
        # spaCy counts steps from 0, and ends after the step with this number.
        limits.append(max_steps + 1)
    # Without examples epochs have 0 steps, and a limit of 0 means no limit.
    n_steps = min((limit for limit in limits if limit > 0), default=None)

    evaluations = Evaluations(
        steps_per_epoch=min(steps_of_epochs),
        n_steps=n_steps,
        frequency=training["eval_frequency"],
    )
    if before_init is evaluate_each_epoch:
        return evaluations.in_each_epoch()
    return evaluations


def _count_steps(
    examples: list[Example], batcher: Callable[[Iterable[Example]], Iterable[Any]], n_passes: int
) -> list[int]:
    """Count the batches of each of `n_passes` epochs. Between epochs the examples are shuffled, in
    place."""
    rng = random.Random(0)
    steps_of_epochs: list[int] = []
    for _ in range(n_passes):
        # Call the batcher in each epoch, as its batches may grow from epoch to epoch.
        batches = batcher(examples)
        steps_of_epochs.append(sum(1 for _ in batches))
        rng.shuffle(examples)
    return steps_of_epochs


def read_evaluations(config: Config, nlp: Language | None = None) -> Evaluations | None:
    """Find when `spacy train` evaluates if it is called with a config. The training corpus of the
    config is read.

    config (Config): A config for `spacy train`, complete or not.
    nlp (Language | None): The pipeline that reads the corpus. None: the pipeline of the config,
        without its components.
    RETURNS (Evaluations | None): When training evaluates. None if the corpus is a stream.
    RAISES (ValueError, OSError): If the config is wrong, or the corpus can't be read.
    """
    config = Config(Language.default_config).merge(config).interpolate()
    if nlp is None:
        nlp_settings = {**config["nlp"], "pipeline": [], "disabled": []}
        nlp = load_model_from_config(Config({"nlp": nlp_settings}), auto_fill=True)

    training = registry.resolve(config["training"], schema=ConfigSchemaTraining)
    # `registry.resolve` only resolves blocks that are within another block, so put the callback
    # (which may be null) into one. The name of the outer block doesn't matter.
    outer_block = {"callbacks": {"before_init": config["initialize"]["before_init"]}}
    resolved = registry.resolve(outer_block)
    before_init = resolved["callbacks"]["before_init"]
    (corpus,) = resolve_dot_names(config, [training["train_corpus"]])
    return count_evaluations(training, corpus(nlp), before_init)


def make_evaluate_each_epoch() -> Callable[[Language], Language]:
    """Return the callback `evaluate_each_epoch`, which makes `spacy train` evaluate at least once
    in each epoch. In a config:

        [initialize.before_init]
        @callbacks = "spacy_costner.evaluate_each_epoch.v1"
    """
    return evaluate_each_epoch


def evaluate_each_epoch(nlp: Language) -> Language:
    """Lower the setting `eval_frequency` of a pipeline so that `spacy train` evaluates at least
    once in each epoch. If it is low enough, nothing is changed.

    The training corpus is read once more to count the steps of an epoch. If it can't be read,
    nothing is changed: `spacy train` will report the error, and `nlp.initialize` may not need the
    corpus.

    nlp (Language): The pipeline that `spacy train` is about to initialize.
    RETURNS (Language): The same pipeline.
    """
    with suppress(ValueError, OSError):
        evaluations = read_evaluations(nlp.config, nlp)
        if evaluations is not None:
            nlp.config["training"]["eval_frequency"] = evaluations.in_each_epoch().frequency
    return nlp


@contextmanager
def without_evaluation(nlp: Language) -> Iterator[None]:
    """Remove the callback `evaluate_each_epoch` from a pipeline's config in this context. Use it to
    initialize a pipeline that is not trained by `spacy train`: other training ignores
    `eval_frequency`, and the callback would read the corpus for nothing."""
    block = nlp.config["initialize"]
    callback = block["before_init"]
    if isinstance(callback, dict) and callback.get("@callbacks") == CALLBACK:
        block["before_init"] = None
    try:
        yield
    finally:
        block["before_init"] = callback
