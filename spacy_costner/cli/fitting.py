"""Training of the linear model, faster than `spacy train` or to the optimum.

Batch training uses all examples in each iteration: L-BFGS or, for the Z-score, linear equations.
Online training makes the updates of `spacy train`.
"""

import random
import warnings
from contextlib import nullcontext, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, List, Mapping, NamedTuple, Optional, Union

import numpy
from spacy.language import Language
from spacy.training import Example
from thinc.api import Config

from ..ml import linear_part
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..training.conjugate import solve
from ..training.convergence import Minimum
from ..training.examples import AllExamples
from ..training.lbfgs import minimise, scipy_minimize
from ..training.memory import available_memory, batch_memory, check_cache
from ..training.online import INTERRUPTED, OnStep, Step, Trained, ignore, read_batches, train
from ..training.pieces import batch_pieces
from ..training.total_loss import TotalLoss
from ..training.zscore import ZScoreEquations
from ..types import Progress
from .preparation import NO_DEV, Preparation, annotate, component_to_fit, has_dev, prepare, save

__all__ = [
    "NO_DEV",
    "Fitted",
    "Minimum",
    "Preparation",
    "Step",
    "TotalLoss",
    "Trained",
    "ZScoreEquations",
    "annotate",
    "check_end",
    "check_loss",
    "component_to_fit",
    "describe_fit",
    "describe_scores",
    "fit",
    "fit_online",
    "has_dev",
    "minimise",
    "prepare",
    "read_batches",
    "solve",
    "train",
    "train_online",
]

DEV_SCORES = {"ents_f": "F", "ents_p": "precision", "ents_r": "recall"}


class Fitted(NamedTuple):
    """A pipeline that was fitted and saved.

    path (Path): Where it is.
    outcome (Union[Minimum, Trained]): The result of the training.
    n_weights (int): The weights of the model.
    scores (Dict[str, Any]): Its scores on the dev corpus.
    ready (Preparation): The pipeline.
    dev (List[Example]): The dev corpus; nothing if reading it was interrupted.
    """

    path: Path
    outcome: Union[Minimum, Trained]
    n_weights: int
    scores: Dict[str, Any]
    ready: Preparation
    dev: List[Example]

    @property
    def is_interrupted(self) -> bool:
        """Whether training or evaluation was interrupted."""
        return self.outcome.reason == INTERRUPTED or not self.scores


def fit(
    config: Config,
    output_path: Path,
    *,
    c2: float = 0.1,
    max_iter: Optional[int] = None,
    tolerance: float = 1e-5,
    n_sampled: Optional[int] = None,
    on_step: OnStep = ignore,
    on_memory: Callable[[int], object] = lambda n_bytes: None,
) -> Fitted:
    """Train the linear model of a config on all examples at once, and save the pipeline.

    Batches, epochs and the optimizer of the config are not used. L-BFGS starts from weights of 0
    or, if [initialize] says so, from a trained model. The best Z-score, without a cost, doesn't
    depend on the start.

    config (Config): A config for `spacy train`.
    output_path (Path): Where the pipeline goes, as "model-last".
    c2 (float): Weight of the sum of the squared weights, as CRFsuite's.
    max_iter (Optional[int]), tolerance (float), on_step (Callable): See `minimise` and `solve`.
    n_sampled (Optional[int]): For the Z-score: see `ZScoreEquations`.
    on_memory (Callable): Called with about the most bytes that training needs besides the docs,
        before it begins. If there are fewer, there is a warning.
    RETURNS (Fitted): The saved pipeline and the result.
    RAISES (ValueError): If the config's component or loss can't be fitted, or not so.
    RAISES (ImportError): If SciPy is missing, and needed.
    """

    def check(nlp: Language, ner: CostSensitiveNER) -> None:
        check_loss(nlp, ner)
        check_options(ner, c2=c2, n_sampled=n_sampled)

    ready = prepare(config, output_path, check)
    ner, examples = ready.ner, list(ready.examples)
    needed = batch_memory(ner, sum(len(eg.predicted) for eg in examples))
    on_memory(needed)
    warn_of_memory(needed)
    limits: Dict[str, Any] = {"max_iter": max_iter, "tolerance": tolerance, "on_step": on_step}
    everything: AllExamples
    if is_solvable(ner):
        everything = equations = ZScoreEquations(
            ner, examples, c2=c2, n_sampled=n_sampled, seed=ready.training["seed"] or 0
        )
        precision = float(numpy.finfo("float32").eps)  # of scores
        minimum = solve(equations, equations.right, precision=precision, **limits)
    else:
        everything = total = TotalLoss(ner, examples, c2=c2)
        minimum = minimise(total, total.read_weights(), **limits)
    everything.write_weights(minimum.vector)
    return finish(ready, minimum, output_path)


def fit_online(
    config: Config,
    output_path: Path,
    *,
    n_seeds: int = 1,
    on_epoch: OnStep = ignore,
    needs_dev: bool = True,
    cache: Optional[Path] = None,
) -> Fitted:
    """Train the linear model of a config by the updates of `spacy train`, and save the pipeline.

    The config's batcher makes the batches once, of pieces of long docs: see `read_pieces`. They are
    shuffled in each epoch. Training ends after the config's `max_epochs` or `max_steps`. The model
    is evaluated only at the end.

    config (Config): A config for `spacy train`.
    output_path (Path): Where the pipeline goes, as "model-last".
    n_seeds (int): Number of trainings, with the batches in other orders. The weights of the
        pipeline are the mean of theirs.
    on_epoch (Callable): See `train`.
    needs_dev (bool): Whether the config has to have a development corpus. Without one there are
        no scores.
    cache (Optional[Path]): A folder for files of features and targets, in place of memory. Docs are
        read twice and not kept, and the pipeline is saved after each epoch.
    RETURNS (Fitted): Where it is and what it came to.
    RAISES (ValueError): If the config's component can't be fitted, or not with a cache, or it has
        no end.
    """

    def check(nlp: Language, ner: CostSensitiveNER) -> None:
        check_end(nlp)
        if cache is not None:
            check_cache(nlp, ner)
            cache.mkdir(parents=True, exist_ok=True)

    def after_epoch(step: Step) -> None:
        if cache is not None:
            with averaged(ready):
                save(ready, {}, step.value, output_path)
        on_epoch(step)

    ready = prepare(config, output_path, check, needs_dev=needs_dev, in_memory=cache is None)
    trained = train_online(ready, n_seeds=n_seeds, on_epoch=after_epoch, cache=cache)
    return finish(ready, trained, output_path)


def finish(ready: Preparation, outcome: Union[Minimum, Trained], output_path: Path) -> Fitted:
    """Evaluate a fitted pipeline, and save it. It is saved without scores if that is interrupted.

    ready (Preparation): The pipeline.
    outcome (Union[Minimum, Trained]): The result of its training.
    output_path (Path): See `fit`.
    RETURNS (Fitted): The saved pipeline and the result.
    """
    dev: List[Example] = []
    scores: Dict[str, Any] = {}
    with suppress(KeyboardInterrupt):
        dev = list(progress(ready.dev_corpus(ready.nlp), desc="read dev", unit="doc"))
        scores = ready.nlp.evaluate(dev)
    path = save(ready, scores, outcome.value, output_path)
    n_weights = linear_part(ready.ner.model)[1].rows.size
    return Fitted(path, outcome, n_weights, scores, ready, dev)


def averaged(ready: Preparation) -> ContextManager[None]:
    """Use the averages of the weights, if the optimizer keeps them."""
    averages = ready.training["optimizer"].averages
    return ready.nlp.use_params(averages) if averages else nullcontext()


def train_online(
    ready: Preparation,
    *,
    n_seeds: int = 1,
    on_epoch: OnStep = ignore,
    cache: Optional[Path] = None,
) -> Trained:
    """Train the linear model of a pipeline: see `fit_online`.

    ready (Preparation): The pipeline. Its weights are set.
    n_seeds (int), on_epoch (Callable), cache (Optional[Path]): See `fit_online`.
    RETURNS (Trained): The last training.
    """
    ner, training = ready.ner, ready.training
    batches = batch_pieces(ner, ready.examples, training["batcher"], random.shuffle, cache)
    optimizer = training["optimizer"]
    limits = {name: training[name] for name in ("max_epochs", "max_steps")}
    weights, cfg = linear_part(ner.model)[1], deepcopy(ner.cfg)
    dtype = "float64" if n_seeds > 1 else "float32"
    starts, n_trained = [weights.rows] * n_seeds, 0
    total: Any = 0
    while starts:
        weights.restart(starts.pop())
        ner.cfg.update(deepcopy(cfg))
        desc = f"train {n_trained + 1}/{n_seeds}" if n_seeds > 1 else "train"
        trained = train(ner, batches, optimizer, **limits, on_epoch=on_epoch, desc=desc)
        with averaged(ready):
            total = total + weights.rows.astype(dtype)
        n_trained += 1
        if trained.reason == INTERRUPTED:
            break
    weights.restart((total / n_trained).astype("float32"))
    return trained


def warn_of_memory(needed: int) -> None:
    """Warn if so many bytes are more than there are."""
    available = available_memory()
    if available is not None and needed > available:
        warnings.warn(
            f"fit: expected {needed / 1e9:.1f} GB of memory to train on all examples at once, got "
            f"{available / 1e9:.1f} GB: --online needs less, and --online --cache least",
            stacklevel=2,
        )


def is_solvable(ner: CostSensitiveNER) -> bool:
    """Whether linear equations give the optimum of a component's loss."""
    return ner.objective.loss.at(Progress()).is_solvable


def check_loss(nlp: Language, ner: CostSensitiveNER) -> None:
    """Check that a loss has an optimum that can be found.

    RAISES (ValueError): If it hasn't.
    """
    stages = ner.objective.loss.stages
    if len(stages) > 1 or not stages[0].is_smooth:
        raise ValueError(
            f"fit: components.{ner.name}.loss: expected one loss without kinks and memory, such as "
            "Sequential, Pointwise, SoftmaxMargin, Risk or MCE, or --online, got "
            f"{nlp.config['components'][ner.name]['loss'].get('@losses')}"
        )


def check_options(ner: CostSensitiveNER, *, c2: float, n_sampled: Optional[int]) -> None:
    """Check the options before anything is read.

    RAISES (ValueError): If an option is out of its range, or there is no use for it.
    RAISES (ImportError): If SciPy is missing, and needed.
    """
    if not 0 <= c2 < float("inf"):
        raise ValueError(f"fit: c2: expected a finite number of at least 0, got {c2}")
    if not is_solvable(ner):
        scipy_minimize()
    if n_sampled is None:
        return
    if not is_solvable(ner):
        raise ValueError(
            f"fit: sampled: expected the loss spacy_costner.ZScore.v1 without a cost in "
            f"components.{ner.name}.loss, others don't draw paths; got {n_sampled} paths"
        )
    if n_sampled < 2:
        raise ValueError(f"fit: sampled: expected at least 2 paths of each doc, got {n_sampled}")
    if not c2 > 0:
        raise ValueError(
            "fit: c2: expected more than 0 with sampled paths, without which the equations need "
            f"not have a solution, got {c2}"
        )


def check_end(nlp: Language) -> None:
    """Check that online training has an end.

    RAISES (ValueError): If it hasn't.
    """
    training = nlp.config["training"]
    limits = {name: training[name] for name in ("max_epochs", "max_steps")}
    if not max(limits.values()) > 0 or min(limits.values()) < 0:
        raise ValueError(
            "fit: training: expected max_epochs or max_steps of at least 1, and neither below 0, "
            f"got {limits}"
        )


def describe_fit(fitted: Fitted) -> str:
    """Describe the result of a fit."""
    lines = [fitted.outcome.describe(), f"{fitted.n_weights:,} weights"]
    if has_dev(fitted.ready.nlp):
        lines.append(f"dev: {describe_scores(fitted.scores)}")
    return "\n".join(lines)


def describe_scores(scores: Mapping[str, Any]) -> str:
    """F, precision and recall in percent."""
    parts = [
        f"{name} {100 * scores[key]:.2f}"
        for key, name in DEV_SCORES.items()
        if scores.get(key) is not None
    ]
    return ", ".join(parts) or "not scored"
