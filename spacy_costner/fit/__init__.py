"""Batch training of the linear model: all examples at once, to the optimum of the loss.

By L-BFGS or, for the Z-score, by the linear equations that its optimum solves.
"""

from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence

from spacy.language import Language
from spacy.schemas import ConfigSchemaTraining
from spacy.training import Example
from spacy.training.initialize import init_nlp
from spacy.training.loop import create_before_to_disk_callback, update_meta
from spacy.util import registry, resolve_dot_names
from thinc.api import Config

from ..component import CostSensitiveNER
from ..types import Progress
from .conjugate import solve
from .descent import Minimum, OnStep, Step, ignore
from .examples import AllExamples
from .lbfgs import minimise, scipy_minimize
from .objective import TotalLoss
from .zscore import ZScoreEquations

__all__ = [
    "Fitted",
    "Minimum",
    "Step",
    "TotalLoss",
    "ZScoreEquations",
    "annotate",
    "component_to_fit",
    "describe_fit",
    "fit",
    "minimise",
    "solve",
]

DIR_MODEL = "model-last"
DEV_SCORES = {"ents_f": "F", "ents_p": "precision", "ents_r": "recall"}


class Fitted(NamedTuple):
    """A pipeline that was fitted and saved.

    path (Path): Where it is.
    minimum (Minimum): What the minimisation came to.
    n_weights (int): The weights of the model.
    scores (Dict[str, Any]): Its scores on the dev corpus.
    """

    path: Path
    minimum: Minimum
    n_weights: int
    scores: Dict[str, Any]


def fit(
    config: Config,
    output_path: Path,
    *,
    c2: float = 0.1,
    max_iter: Optional[int] = None,
    tolerance: float = 1e-5,
    n_sampled: Optional[int] = None,
    on_step: OnStep = ignore,
) -> Fitted:
    """Train the linear model of a config on all examples at once, and save the pipeline.

    What the config says of batches, epochs and the optimizer has no effect. With L-BFGS a
    model that [initialize] starts from a trained one starts there, others at 0. The best
    Z-score, without a cost, is the same wherever it is looked for.

    config (Config): A config for `spacy train`.
    output_path (Path): Where the pipeline goes, as "model-last".
    c2 (float): Weight of the sum of the squared weights, as CRFsuite's.
    max_iter (Optional[int]), tolerance (float), on_step (Callable): See `minimise` and `solve`.
    n_sampled (Optional[int]): For the Z-score: see `ZScoreEquations`.
    RETURNS (Fitted): Where it is and what it came to.
    RAISES (ValueError): If the config's component or loss can't be fitted, or not so.
    RAISES (ImportError): If SciPy is missing, and needed.
    """
    nlp = init_nlp(config)
    training = registry.resolve(nlp.config.interpolate()["training"], schema=ConfigSchemaTraining)
    ner = component_to_fit(nlp, training["frozen_components"])
    check_options(ner, c2=c2, n_sampled=n_sampled)
    corpora = [training["train_corpus"], training["dev_corpus"]]
    train_corpus, dev_corpus = resolve_dot_names(nlp.config.interpolate(), corpora)
    examples = list(train_corpus(nlp))
    annotate(nlp, examples, training["annotating_components"], before=ner.name)
    limits: Dict[str, Any] = {"max_iter": max_iter, "tolerance": tolerance, "on_step": on_step}
    everything: AllExamples
    if is_solvable(ner):
        everything = equations = ZScoreEquations(
            ner, examples, c2=c2, n_sampled=n_sampled, seed=training["seed"] or 0
        )
        minimum = solve(equations, equations.right, **limits)
    else:
        everything = total = TotalLoss(ner, examples, c2=c2)
        minimum = minimise(total, total.read_weights(), **limits)
    everything.write_weights(minimum.vector)
    scores = evaluate(nlp, dev_corpus)
    update_meta(training, nlp, {"other_scores": scores, "losses": {ner.name: minimum.value}})
    path = output_path / DIR_MODEL
    path.mkdir(parents=True, exist_ok=True)
    create_before_to_disk_callback(training["before_to_disk"])(nlp).to_disk(path)
    return Fitted(path, minimum, everything.weights.rows.size, scores)


def evaluate(nlp: Language, corpus: Callable[[Language], Iterable[Example]]) -> Dict[str, Any]:
    """The scores of a pipeline; none if that is interrupted, so that it is saved all the same."""
    try:
        return nlp.evaluate(list(corpus(nlp)))
    except KeyboardInterrupt:
        return {}


def is_solvable(ner: CostSensitiveNER) -> bool:
    """Whether linear equations give the optimum of a component's loss."""
    return ner.objective.loss.at(Progress()).is_solvable


def check_options(ner: CostSensitiveNER, *, c2: float, n_sampled: Optional[int]) -> None:
    """Check what can be checked before anything is read.

    RAISES (ValueError): If an option is out of its range, or there is no use for it.
    RAISES (ImportError): If SciPy is missing, and needed.
    """
    if not 0 <= c2 < float("inf"):
        raise ValueError(f"fit: c2: expected a finite number of at least 0, was: {c2}")
    if not is_solvable(ner):
        scipy_minimize()
    if n_sampled is None:
        return
    if not is_solvable(ner):
        raise ValueError(
            f"fit: sampled: expected the loss spacy_costner.ZScore.v1 without a cost in "
            f"components.{ner.name}.loss, others don't draw paths; was: {n_sampled} paths"
        )
    if n_sampled < 2:
        raise ValueError(f"fit: sampled: expected at least 2 paths of each doc, was: {n_sampled}")
    if not c2 > 0:
        raise ValueError(
            "fit: c2: expected more than 0 with sampled paths, without which the equations need "
            f"not have a solution, was: {c2}"
        )


def component_to_fit(nlp: Language, frozen: Sequence[str]) -> CostSensitiveNER:
    """The component of a pipeline that can be fitted.

    nlp (Language): The pipeline.
    frozen (Sequence[str]): Components that aren't to be trained.
    RETURNS (CostSensitiveNER): The component.
    RAISES (ValueError): If it isn't the only one to be trained, or its model or loss won't do.
    """
    trained: Dict[str, Any] = {
        name: pipe
        for name, pipe in nlp.pipeline
        if getattr(pipe, "is_trainable", False) and name not in frozen
    }
    if not (len(trained) == 1 and all(isinstance(p, CostSensitiveNER) for p in trained.values())):
        raise ValueError(
            "fit: nlp.pipeline: expected one component to train, of factory 'cost_sensitive_ner', "
            f"and others in training.frozen_components, was: {[*trained]}"
        )
    ((name, ner),) = trained.items()
    if ner.model.name != "sparse_crf":
        raise ValueError(
            f"fit: components.{name}.model: expected spacy_costner.SparseCRF.v1, was: "
            f"{nlp.config['components'][name]['model'].get('@architectures')}"
        )
    stages = ner.objective.loss.stages
    if len(stages) > 1 or not stages[0].is_smooth:
        raise ValueError(
            f"fit: components.{name}.loss: expected one loss without kinks and memory, such as "
            "Sequential, Pointwise, SoftmaxMargin, Risk or MCE, was: "
            f"{nlp.config['components'][name]['loss'].get('@losses')}"
        )
    return ner


def annotate(nlp: Language, examples: List[Example], names: Sequence[str], *, before: str) -> None:
    """Have components annotate the predicted docs, as `spacy train` does.

    nlp (Language): The pipeline.
    examples (List[Example]): The examples; their predicted docs are replaced.
    names (Sequence[str]): The annotating components.
    before (str): The component that the annotation is for. It isn't among them.
    """
    for name in nlp.pipe_names[: nlp.pipe_names.index(before)]:
        if name in names:
            pipe: Any = nlp.get_pipe(name)
            docs = list(pipe.pipe([eg.predicted for eg in examples], batch_size=nlp.batch_size))
            for eg, doc in zip(examples, docs):
                eg.predicted = doc


def describe_fit(fitted: Fitted) -> str:
    """What came of a fit, in words."""
    minimum, scores = fitted.minimum, fitted.scores
    parts = [
        f"{name} {scores[key]:.4f}"
        for key, name in DEV_SCORES.items()
        if scores.get(key) is not None
    ]
    return (
        f"{minimum.reason}: {minimum.n_iterations} iterations, {minimum.n_evaluations} "
        f"evaluations, {fitted.n_weights:,} weights, objective {minimum.value:.6g}\n"
        f"dev: {', '.join(parts) or 'not scored'}\nSaved to {fitted.path}"
    )
