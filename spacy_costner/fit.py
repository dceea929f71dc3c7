"""Batch training of the linear model: all examples at once, to the optimum, by L-BFGS."""

from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy
from spacy.language import Language
from spacy.schemas import ConfigSchemaTraining
from spacy.training import Example
from spacy.training.initialize import init_nlp
from spacy.training.loop import create_before_to_disk_callback, update_meta
from spacy.util import registry, resolve_dot_names
from thinc.api import Config
from thinc.types import Floats1d, Floats2d, Ints2d

from . import sparse
from .component import CostSensitiveNER
from .layers import linear_part
from .objective import Reading
from .types import Potentials, Progress

DIR_MODEL = "model-last"
BATCH_SIZE = 256
"""Docs whose messages the chain keeps at a time."""
MEMORIES = 6
"""Earlier steps that L-BFGS remembers; CRFsuite's default, too."""
PERIOD = 10
"""Iterations over which improvement is measured; CRFsuite's default, too."""


DEV_SCORES = {"ents_f": "F", "ents_p": "precision", "ents_r": "recall"}


class Step(NamedTuple):
    """Where an iteration came to.

    iteration (int): Its number, from 1.
    value (float): The objective.
    slope (float): The largest derivative of it.
    """

    iteration: int
    value: float
    slope: float


class Minimum(NamedTuple):
    """What the minimisation came to.

    vector (Floats1d): The best vector found.
    value (float): The objective there.
    n_iterations (int): Iterations.
    n_evaluations (int): How often the objective was computed.
    reason (str): Why it ended.
    """

    vector: Floats1d
    value: float
    n_iterations: int
    n_evaluations: int
    reason: str


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


class Batch(NamedTuple):
    """Docs that are scored together.

    rows (Ints2d): The features of each token, merged. Shape: (N, S)
    reading (Reading): What the loss has to know.
    """

    rows: Ints2d
    reading: Reading


class TotalLoss:
    """The loss over all examples with a penalty, as a function of one vector.

        f(w) = sum over the examples of the loss + c2 |w|^2

    The penalty is that of CRFsuite. What docs say is read once. Features that only ever
    occur together share a part of the vector: see `sparse.Merged`.
    """

    def __init__(self, ner: CostSensitiveNER, examples: Sequence[Example], *, c2: float) -> None:
        """Read the examples.

        ner (CostSensitiveNER): An initialized component with a linear model.
        examples (Sequence[Example]): All examples.
        c2 (float): Weight of the penalty.
        """
        self.ner = ner
        self.c2 = c2
        self.features, self.weights = linear_part(ner.model)
        rows = self.features.find([eg.predicted for eg in examples]).rows
        self.merged = sparse.merge_equal(rows, self.weights.n_features)
        self.batches = list(self._read(examples))
        self.shape = (len(self.merged.roots) + self.weights.n_tags + 2, self.weights.n_tags)

    def _read(self, examples: Sequence[Example]) -> Iterable[Batch]:
        size = max(len(examples), 1) if self._is_ratio else BATCH_SIZE
        start = 0
        for i in range(0, len(examples), size):
            reading = self.ner.objective.read(examples[i : i + size], self.ner.tags)
            end = start + int(reading.lengths.sum())
            yield Batch(self.merged.rows[start:end], reading)
            start = end

    @property
    def _is_ratio(self) -> bool:
        return self.ner.objective.loss.at(Progress()).is_ratio

    def __call__(self, vector: Floats1d) -> Tuple[float, Floats1d]:
        """Compute the function and its gradient.

        vector (Floats1d): In float64. Shape: (D,)
        RETURNS (Tuple[float, Floats1d]): Both in float64. Shape: (), (D,)
        """
        n_groups, roots = len(self.merged.roots), self.merged.roots[:, None]
        weights = vector.reshape(self.shape).astype("float32")
        weights[:n_groups] *= roots
        self.ner.objective.loss.at(Progress()).forget()
        value, gradient = self.c2 * float(vector @ vector), numpy.zeros(self.shape)
        for rows, reading in self.batches:
            scores = Potentials(
                emissions=sparse.sum_rows(rows, weights),
                transitions=weights[n_groups:-2],
                start=weights[-2],
                end=weights[-1],
                lengths=reading.lengths,
            )
            result, _ = self.ner.objective.evaluate(reading, scores, self.ner.tags, Progress())
            value += result.value
            sparse.add_rows(rows, _float32(result.gradient.emissions), gradient)
            gradient[n_groups:-2] += result.gradient.transitions
            gradient[-2] += result.gradient.start
            gradient[-1] += result.gradient.end
        gradient[:n_groups] *= roots
        return value, gradient.reshape(-1) + 2 * self.c2 * vector

    def read_weights(self) -> Floats1d:
        """The vector nearest to the weights of the model. Shape: (D,)"""
        n_features, rows = self.weights.n_features, self.weights.rows.astype("float64")
        groups = self.merged.merge(rows[:n_features])
        return numpy.concatenate([groups, rows[n_features:]]).reshape(-1)

    def write_weights(self, vector: Floats1d) -> None:
        """Give the model the weights that a vector stands for. Shape: (D,)"""
        n_groups, vectors = len(self.merged.roots), vector.reshape(self.shape)
        features = self.merged.spread(vectors[:n_groups])
        self.weights.rows[:] = numpy.concatenate([features, vectors[n_groups:]])


def _float32(scores: Floats2d) -> Floats2d:
    return numpy.ascontiguousarray(scores, dtype="float32")


def minimise(
    function: Callable[[Floats1d], Tuple[float, Floats1d]],
    start: Floats1d,
    *,
    max_iter: Optional[int] = None,
    tolerance: float = 1e-5,
    on_step: Callable[[Step], None] = lambda step: None,
) -> Minimum:
    """Minimise a function by L-BFGS, until it is told to stop or gets no further.

    function (Callable): Takes a vector to value and gradient.
    start (Floats1d): Where to start. Shape: (D,)
    max_iter (Optional[int]): The most iterations.
    tolerance (float): It ends when the last ten iterations made the value smaller by less
        than this share of it; CRFsuite's `delta`.
    on_step (Callable): Called after each iteration. What a KeyboardInterrupt leaves is the
        best so far.
    RETURNS (Minimum): What it came to.
    RAISES (ImportError): If SciPy is missing.

    Liu & Nocedal (1989).
    """
    solve = _scipy_minimize()
    values: List[float] = []
    best, n_evaluations, slope = start, 0, 0.0

    def evaluate(vector: Floats1d) -> Tuple[float, Floats1d]:
        nonlocal n_evaluations, slope
        n_evaluations += 1
        value, gradient = function(vector)
        slope = float(numpy.abs(gradient).max(initial=0))
        return value, gradient

    def after_iteration(intermediate_result: Any) -> None:
        nonlocal best
        best = intermediate_result.x.copy()
        values.append(float(intermediate_result.fun))
        on_step(Step(len(values), values[-1], slope))
        if len(values) > PERIOD and values[-1 - PERIOD] - values[-1] < tolerance * abs(values[-1]):
            raise StopIteration

    reason, options = "interrupted", {"maxcor": MEMORIES, "ftol": 0.0, "maxfun": 10**9}
    options["maxiter"] = 10**9 if max_iter is None else max_iter
    try:
        result = solve(
            evaluate, start, jac=True, method="L-BFGS-B", callback=after_iteration, options=options
        )
        reason = _reason(len(values), max_iter, str(result.message))
    except KeyboardInterrupt:
        pass
    value = values[-1] if values else float("nan")
    return Minimum(best, value, len(values), n_evaluations, reason)


def _scipy_minimize() -> Callable[..., Any]:
    try:
        from scipy.optimize import minimize
    except ImportError as error:
        raise ImportError(
            "fit: expected SciPy, it is not installed: pip install 'spacy-costner[fit]'"
        ) from error
    return minimize


def _reason(n_iterations: int, max_iter: Optional[int], message: str) -> str:
    if max_iter is not None and n_iterations >= max_iter:
        return "iterations used up"
    if "ABNORMAL" in message:
        return "converged as far as the scores are exact"
    return "converged" if "StopIteration" in message or "CONVERGENCE" in message else message


def fit(
    config: Config,
    output_path: Path,
    *,
    c2: float = 0.1,
    max_iter: Optional[int] = None,
    tolerance: float = 1e-5,
    on_step: Callable[[Step], None] = lambda step: None,
) -> Fitted:
    """Train the linear model of a config on all examples at once, and save the pipeline.

    What the config says of batches, epochs and the optimizer has no effect. A model that
    [initialize] starts from a trained one starts there, others at 0.

    config (Config): A config for `spacy train`.
    output_path (Path): Where the pipeline goes, as "model-last".
    c2 (float): Weight of the sum of the squared weights, as CRFsuite's.
    max_iter (Optional[int]), tolerance (float), on_step (Callable): See `minimise`.
    RETURNS (Fitted): Where it is and what it came to.
    RAISES (ValueError): If the config's component or loss can't be fitted.
    RAISES (ImportError): If SciPy is missing.
    """
    _scipy_minimize()
    if not 0 <= c2 < float("inf"):
        raise ValueError(f"fit: c2: expected a finite number of at least 0, was: {c2}")
    nlp = init_nlp(config)
    training = registry.resolve(nlp.config.interpolate()["training"], schema=ConfigSchemaTraining)
    ner = component_to_fit(nlp, training["frozen_components"])
    corpora = [training["train_corpus"], training["dev_corpus"]]
    train_corpus, dev_corpus = resolve_dot_names(nlp.config.interpolate(), corpora)
    examples = list(train_corpus(nlp))
    annotate(nlp, examples, training["annotating_components"], before=ner.name)
    total = TotalLoss(ner, examples, c2=c2)
    start = total.read_weights()
    check_slope(ner, total, start)
    minimum = minimise(total, start, max_iter=max_iter, tolerance=tolerance, on_step=on_step)
    total.write_weights(minimum.vector)
    scores = nlp.evaluate(list(dev_corpus(nlp)))
    update_meta(training, nlp, {"other_scores": scores, "losses": {ner.name: minimum.value}})
    path = output_path / DIR_MODEL
    path.mkdir(parents=True, exist_ok=True)
    create_before_to_disk_callback(training["before_to_disk"])(nlp).to_disk(path)
    return Fitted(path, minimum, total.weights.rows.size, scores)


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


def check_slope(ner: CostSensitiveNER, total: TotalLoss, start: Floats1d) -> None:
    """Refuse to start where the loss is level, from where no step leads.

    RAISES (ValueError): If all weights and their gradient are 0.
    """
    if not start.any() and not total(start)[1].any():
        raise ValueError(
            f"fit: components.{ner.name}.loss: expected one that falls somewhere from weights of "
            "0; start from a trained pipeline, with spacy_costner.start_from.v1"
        )


def describe_fit(fitted: Fitted) -> str:
    """What came of a fit, in words."""
    minimum, scores = fitted.minimum, fitted.scores
    parts = [f"{name} {scores[key]:.4f}" for key, name in DEV_SCORES.items() if scores.get(key)]
    return (
        f"{minimum.reason}: {minimum.n_iterations} iterations, {minimum.n_evaluations} "
        f"evaluations, {fitted.n_weights:,} weights, objective {minimum.value:.6g}\n"
        f"dev: {', '.join(parts)}\nSaved to {fitted.path}"
    )
