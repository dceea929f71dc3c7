"""How often `spacy train` evaluates the model, and a callback that ensures it does so often enough.

`spacy train` evaluates at the first step and then every `eval_frequency` steps. It saves the best
evaluated model as "model-best". On a small corpus, training may end before the second
evaluation. In this case, "model-best" is the model after the first step, when it has hardly been
trained.
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
"""The number of document orders for which steps are counted. If batches are sized by words, the
number of steps per epoch depends on the order, and the minimum is used."""

UNCERTAIN = 100
"""The safety margin for other document orders, in which an epoch may be shorter by 1 step per this
number of steps."""


class Evaluations(NamedTuple):
    """The evaluations during training: at step 0 and every `frequency` steps.

    steps_per_epoch (int): The number of steps in the shortest epoch.
    n_steps (int | None): The number of steps after which training ends, unless it stops early.
        None means no limit.
    frequency (int): The setting `eval_frequency`, in steps.
    """

    steps_per_epoch: int
    n_steps: int | None
    frequency: int

    @property
    def are_after_training(self) -> bool:
        """Whether there is an evaluation after step 0, when the model has hardly been
        trained."""
        return self.n_steps is None or self.frequency < self.n_steps

    @property
    def are_enough(self) -> bool:
        """Whether there is an evaluation after step 0 and at least one per epoch."""
        # Without examples, an epoch has 0 steps, but the frequency is at least 1.
        is_in_each_epoch = self.frequency <= max(self.steps_per_epoch, 1)
        return self.are_after_training and is_in_each_epoch

    def objection(self) -> str:
        """Return an error message for an `eval_frequency` that is too high, or an empty string if
        there are enough evaluations."""
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
        """Lower `frequency`, the number of steps between evaluations, so that there is at least one
        evaluation per epoch. If `frequency` is lowered, the last evaluation is close to the end of
        training."""
        if self.are_enough:
            return self
        # The maximum number of steps between two evaluations, which is at least 1, even if there
        # are no examples. In a different document order, an epoch may have fewer steps than
        # counted.
        shortest_epoch = self.steps_per_epoch - self.steps_per_epoch // UNCERTAIN
        highest_frequency = max(min(shortest_epoch, self.frequency), 1)
        if self.n_steps is None:
            return self._replace(frequency=highest_frequency)
        # The smallest sufficient number of evaluations, evenly spaced up to the last step.
        # (Steps are numbered from 0.) The last step may be slightly earlier than `n_steps`
        # suggests, if other orders have fewer steps. If there is only step 0, any frequency is
        # valid.
        last_step = max(self.n_steps - 1 - self.n_steps // UNCERTAIN, 1)
        n_evaluations = ceil(last_step / highest_frequency)
        return self._replace(frequency=last_step // n_evaluations)


def count_evaluations(
    training: Mapping[str, Any],
    examples: Iterable[Example],
    before_init: Callable[[Language], Any] | None = None,
) -> Evaluations | None:
    """Determine when `spacy train` evaluates. To count the steps per epoch, the corpus is divided
    into batches in the same way as during training.

    training (Mapping[str, Any]): The resolved [training] block of the config.
    examples (Iterable[Example]): The training corpus.
    before_init (Callable | None): The resolved `before_init` callback from [initialize]. If it is
        `evaluate_each_epoch`, the returned frequency is the one that the callback will set.
    RETURNS (Evaluations | None): The evaluations, or None if the corpus is a stream, which has no
        epochs.
    """
    max_epochs = training["max_epochs"]
    max_steps = training["max_steps"]
    if max_epochs < 0:  # -1: the corpus is a stream
        return None
    # Count several epochs, because the number of batches may depend on the order of the docs.
    n_passes = N_PASSES
    if max_epochs:  # 0: no maximum number of epochs
        n_passes = min(max_epochs, N_PASSES)
    steps_of_epochs = _count_steps(list(examples), training["batcher"], n_passes)

    # The limits on the number of steps. Training ends at the lowest one.
    limits: list[int] = []
    if max_epochs:
        # Assume that all further epochs are as long as the last counted epoch.
        n_later_epochs = max(max_epochs - N_PASSES, 0)
        limits.append(sum(steps_of_epochs) + steps_of_epochs[-1] * n_later_epochs)
    if max_steps:
        # spaCy counts steps from 0, and training ends after the step with this number.
        limits.append(max_steps + 1)
    # Without examples, epochs have 0 steps, and a limit of 0 means no limit.
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
    """Return the number of batches in each of `n_passes` epochs. The examples are shuffled in place
    between epochs."""
    rng = random.Random(0)
    steps_of_epochs: list[int] = []
    for _ in range(n_passes):
        # Call the batcher for each epoch, because the batch size may increase between epochs.
        batches = batcher(examples)
        steps_of_epochs.append(sum(1 for _ in batches))
        rng.shuffle(examples)
    return steps_of_epochs


def read_evaluations(config: Config, nlp: Language | None = None) -> Evaluations | None:
    """Determine when `spacy train` evaluates, given a config. This reads the config's training
    corpus.

    config (Config): A config for `spacy train`. It may be incomplete.
    nlp (Language | None): The pipeline used to read the corpus. Defaults to the config's
        pipeline, without its components.
    RETURNS (Evaluations | None): The evaluations, or None if the corpus is a stream.
    RAISES (ValueError, OSError): If the config is invalid, or the corpus can't be read.
    """
    config = complete_config(config)
    training = registry.resolve(config["training"], schema=ConfigSchemaTraining)
    # `registry.resolve` only resolves nested blocks, so wrap the callback (which may be null) in an
    # outer block with an arbitrary name.
    outer_block = {"callbacks": {"before_init": config["initialize"]["before_init"]}}
    resolved = registry.resolve(outer_block)
    before_init = resolved["callbacks"]["before_init"]
    return count_evaluations(training, read_examples(config, nlp), before_init)


def complete_config(config: Config) -> Config:
    """Fill in the missing settings of a config with spaCy's defaults, and interpolate variables."""
    return Config(Language.default_config).merge(config).interpolate()


def read_examples(config: Config, nlp: Language | None = None) -> Iterable[Example]:
    """Read the training corpus of a complete config. For the pipeline and errors, see
    `read_evaluations`."""
    if nlp is None:
        nlp_settings = {**config["nlp"], "pipeline": [], "disabled": []}
        nlp = load_model_from_config(Config({"nlp": nlp_settings}), auto_fill=True)
    (corpus,) = resolve_dot_names(config, [config["training"]["train_corpus"]])
    examples: Iterable[Example] = corpus(nlp)
    return examples


def make_evaluate_each_epoch() -> Callable[[Language], Language]:
    """Return the callback `evaluate_each_epoch`, which makes `spacy train` evaluate at least once
    per epoch. In a config:

        [initialize.before_init]
        @callbacks = "spacy_costner.evaluate_each_epoch.v1"
    """
    return evaluate_each_epoch


def evaluate_each_epoch(nlp: Language) -> Language:
    """Lower a pipeline's `eval_frequency`, so that `spacy train` evaluates at least once per epoch.
    Nothing is changed if the setting is already low enough.

    This reads the training corpus to count the steps per epoch. If the corpus can't be read,
    nothing is changed: `spacy train` will report the error, and `nlp.initialize` may not need the
    corpus.

    nlp (Language): The pipeline to be initialized by `spacy train`.
    RETURNS (Language): The same pipeline.
    """
    with suppress(ValueError, OSError):
        evaluations = read_evaluations(nlp.config, nlp)
        if evaluations is not None:
            nlp.config["training"]["eval_frequency"] = evaluations.in_each_epoch().frequency
    return nlp


@contextmanager
def without_evaluation(nlp: Language) -> Iterator[None]:
    """Temporarily remove the callback `evaluate_each_epoch` from a pipeline's config. Use this
    context manager to initialize a pipeline that isn't trained with `spacy train`: other kinds of
    training ignore `eval_frequency`, and the callback would read the corpus unnecessarily."""
    block = nlp.config["initialize"]
    callback = block["before_init"]
    if isinstance(callback, dict) and callback.get("@callbacks") == CALLBACK:
        block["before_init"] = None
    try:
        yield
    finally:
        block["before_init"] = callback
