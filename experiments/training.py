"""The run used by all experiments with entities: train in stages, and score the model after each.

A stage is a dict that JSON can hold: the "model" and "loss" blocks of the component, its "scheme",
"outside" and the "seed"; the name of a training method ("fit", one of FITS), its "settings", and
the number of the stage that it continues ("after"; without it, the stage starts from the initial
weights of the run, or from 0). A look contains the counts of a model on the dev and test parts.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy
import spacy
from scipy.optimize import minimize
from spacy.tokens import Doc
from spacy.training import Example
from spacy.training.batchers import minibatch_by_words
from spacy.util import load_config, minibatch, registry
from thinc.api import Adam, fix_random_seed, use_ops
from thinc.types import Floats2d, FloatsXd

from spacy_costner.annotation.tokens import read_presets
from spacy_costner.costs.label_tree import make_tree
from spacy_costner.costs.tables import HAMMING
from spacy_costner.ml import linear_part
from spacy_costner.pipeline.component import CostSensitiveNER
from spacy_costner.pipeline.prediction import make_prediction
from spacy_costner.pipeline.scorers import (
    compare_tags,
    count_at_level,
    count_docs,
    entity_pairs,
)
from spacy_costner.training.lbfgs import TotalLoss, has_settled, minimise_by_lbfgs
from spacy_costner.training.online import TrainingResult, read_batches, train

from .corpora import ROOT, as_examples, bare, read

Block = Mapping[str, Any]
"""A block of a config."""

Stage = Mapping[str, Any]
"""A training: see the module."""

Look = dict[str, Any]
"""The counts of a look: see `train_and_count`."""

OnLook = Callable[..., None]
"""Called for each look, with details of the training such as the number of epochs."""

BEST_PATH = "best path"
VITERBI: Mapping[str, Block] = {BEST_PATH: {"@misc": "spacy_costner.ViterbiDecoding.v1"}}
SEQUENTIAL: Block = {"@losses": "spacy_costner.Sequential.v1"}
DROPOUT = 0.2


def features_of(experiment: str) -> dict[str, Any]:
    """Read the feature settings from the config of an experiment in configs/papers."""
    config = load_config(ROOT / "configs" / "papers" / f"{experiment}.cfg")
    return dict(config["components"]["ner"]["model"]["features"])


def loss_block(name: str, **settings: Any) -> Block:
    """Make the block of one of our losses."""
    return {"@losses": f"spacy_costner.{name}.v1", **settings}


def filled(block: Block, **values: Any) -> Block:
    """Replace the placeholders in a block of a spec, such as "<alpha>", with values."""
    value_of_place = {f"<{name}>": value for name, value in values.items()}
    filled_block: dict[str, Any] = {}
    for name, setting in block.items():
        if isinstance(setting, str):
            setting = value_of_place.get(setting, setting)
        filled_block[name] = setting
    return filled_block


def linear_block(features: Block, **settings: Any) -> Block:
    """Make the block of the papers' linear CRF, with its features and AdaGrad settings. As in the
    papers, all weights are kept, and the first update of a weight has its full size."""
    architecture = {
        "@architectures": "spacy_costner.SparseCRF.v1",
        "learn_rate": 0.05,
        "eps": 1e-8,
        "average_power": 0.0,
        "keep_all": True,
    }
    return {**architecture, **settings, "features": features}


def in_turn(stage: Stage, settings_in_turn: Sequence[Mapping[str, Any]]) -> list[Stage]:
    """Repeat a stage with one setting after another, each from the previous weights."""
    stages: list[Stage] = []
    for i, settings in enumerate(settings_in_turn):
        stage_before = i - 1 if i > 0 else None
        stages.append({**stage, "settings": settings, "after": stage_before})
    return stages


def train_and_count(
    data: Mapping[str, Any],
    stages: Sequence[Stage],
    *,
    start: Sequence[Stage] = (),
    decodings: Mapping[str, Block] = VITERBI,
    cost: Block = HAMMING,
) -> list[Look]:
    """Train in stages, and count correct and wrong predictions.

    data (Mapping[str, Any]): See `corpora.read`.
    stages (Sequence[Stage]): The stages.
    start (Sequence[Stage]): Earlier stages, without looks. Their weights are cached for the next
        run in this process that starts from them.
    decodings (Mapping[str, Block]): The ways to predict, by name.
    cost (Block): The cost of mistakes.
    RETURNS (list[Look]): The looks: the number of the "stage", the details of its fit and, for each
        decoding, the sums of COUNTS over "dev" and the COUNTS of each sentence of "test".
    """
    docs = read(json.dumps(data))
    first_weights = None
    if start:
        first_weights = start_weights(json.dumps(data), json.dumps(start))
    looks: list[Look] = []

    def look(ner: CostSensitiveNER, **facts: Any) -> None:
        looks.append({**facts, **count(ner, docs, decodings, cost)})

    run_stages(as_examples(docs["train"]), stages, first_weights, look)
    return looks


@lru_cache(maxsize=1)
def start_weights(data: str, stages: str) -> list[FloatsXd]:
    """Train in stages without looks. Returns the weights. The result is cached, because the next
    run often starts from the same weights. Data and stages are JSON, so that they can be cache
    keys."""
    examples = as_examples(read(data)["train"])
    return run_stages(examples, json.loads(stages), None, look=lambda ner, **facts: None)


def run_stages(
    examples: Sequence[Example],
    stages: Sequence[Stage],
    first_weights: list[FloatsXd] | None,
    look: OnLook,
) -> list[FloatsXd]:
    """Train in stages, at least one. Returns the weights after the last one.

    examples (Sequence[Example]): The training examples.
    stages (Sequence[Stage]): See the module.
    first_weights (list[FloatsXd] | None): The weights to start from. None: new weights.
    look (Callable): Called for each look, with the component and the details of the fit.
    """
    # The weights after each stage, by its number. A stage without "after" starts from
    # `first_weights`.
    weights_after: dict[int | None, Any] = {None: first_weights}
    for i, stage in enumerate(stages):
        settings: dict[str, Any] = {}
        for name in ("loss", "seed", "scheme", "outside"):
            if name in stage:
                settings[name] = stage[name]
        ner = make_ner(examples, model=stage["model"], **settings)
        weights = weights_after[stage.get("after")]
        if weights is not None:
            write_weights(ner, weights)
        fit = FITS[stage["fit"]]
        fit(ner, examples, partial(look, ner, stage=i), **stage["settings"])
        weights_after[i] = read_weights(ner)
    return weights_after[len(stages) - 1]


def make_ner(
    examples: Sequence[Example],
    *,
    model: Block,
    loss: Block = SEQUENTIAL,
    seed: int = 0,
    scheme: str = "IOB2",
    outside: str = "single",
) -> CostSensitiveNER:
    """Make an untrained component. The weights of components with the same examples and model are
    interchangeable.

    examples (Sequence[Example]): The examples to get the features and labels from. Their docs need
        the vocab of a pipeline, such as `spacy.blank("xx").vocab`: in an empty `Vocab`, words have
        no lower-case form, shape or flags.
    """
    fix_random_seed(seed)
    nlp = spacy.blank("xx", vocab=examples[0].reference.vocab)
    config = {"model": dict(model), "loss": dict(loss), "scheme": scheme, "outside": outside}
    # The matrix products of a CNN take a third of the time with NumPy's BLAS.
    with use_ops("numpy", use_blis=False):
        ner: Any = nlp.add_pipe("cost_sensitive_ner", name="ner", config=config)
        nlp.initialize(lambda: list(examples))
    return ner


def weights_of(ner: CostSensitiveNER) -> list[FloatsXd]:
    """Get the arrays of all weights, for reading and writing. The weights of the linear part, if
    the model has one, come first."""
    arrays: list[FloatsXd] = []
    has_linear_part = "build_vocab" in ner.model.attrs
    if has_linear_part:
        _, sparse_weights = linear_part(ner.model)
        arrays.append(sparse_weights.rows)
    for node in ner.model.walk():
        for name in node.param_names:
            if node.has_param(name):
                arrays.append(node.get_param(name))
    return arrays


def read_weights(ner: CostSensitiveNER, averages: dict[Any, Any] | None = None) -> list[FloatsXd]:
    """Copy all weights, or the averages of the weights kept by an optimizer."""
    if averages is None:
        return [weights.copy() for weights in weights_of(ner)]
    with ner.model.use_params(averages):
        return [weights.copy() for weights in weights_of(ner)]


def write_weights(ner: CostSensitiveNER, values: Sequence[FloatsXd]) -> None:
    """Set all weights to values returned by `read_weights`, for this or another component."""
    for weights, value in zip(weights_of(ner), values):
        weights[...] = value


def fit_batch(
    ner: CostSensitiveNER,
    examples: Sequence[Example],
    look: OnLook,
    *,
    c2: float,
    max_iter: int | None = None,
    tolerance: float = 1e-5,
) -> None:
    """Train a linear model by L-BFGS from its current weights: see `minimise_by_lbfgs`. A Gaussian
    prior of variance v is c2 = 1 / (2 v)."""
    total = TotalLoss(ner.model, ner.objective, ner.chain_tags, examples, c2=c2)
    minimum = minimise_by_lbfgs(total, total.read_weights(), max_iter=max_iter, tolerance=tolerance)
    total.write_weights(minimum.vector)
    look(iterations=minimum.n_iterations, objective=minimum.value)


def fit_conjugate(
    ner: CostSensitiveNER, examples: Sequence[Example], look: OnLook, *, tolerance: float
) -> None:
    """Train a linear model without a prior by nonlinear conjugate gradient. Training stops when the
    last ten iterations have decreased the objective by less than `tolerance` times its value."""
    total = TotalLoss(ner.model, ner.objective, ner.chain_tags, examples, c2=0.0)
    values: list[float] = []

    def after_iteration(intermediate_result: Any) -> None:
        values.append(float(intermediate_result.fun))
        if has_settled(values, tolerance):
            raise StopIteration

    minimum = minimize(total, total.read_weights(), jac=True, method="CG", callback=after_iteration)
    total.write_weights(minimum.x)
    last_value = float("nan")  # in case there is no iteration
    if values:
        last_value = values[-1]
    look(iterations=len(values), objective=last_value)


def fit_online(
    ner: CostSensitiveNER,
    examples: Sequence[Example],
    look: OnLook,
    *,
    epochs: Sequence[int],
    batch_size: int = 16,
    averaged: Sequence[bool] = (True,),
) -> None:
    """Train a linear model by AdaGrad in small batches.

    epochs (Sequence[int]): The numbers of epochs after which to look at the model, in ascending
        order. Training ends after the last.
    batch_size (int): The number of sentences per step.
    averaged (Sequence[bool]): Whether to look at the averages of the weights over all steps (True),
        at the last weights (False), or both. The model keeps the weights of the last look.
    """
    shuffled = random.sample(list(examples), len(examples))
    batches = [shuffled[i : i + batch_size] for i in range(0, len(shuffled), batch_size)]
    # Sparse weights use their own AdaGrad. This optimizer only keeps their averages.
    optimizer = Adam(use_averages=True)

    def after_epoch(trained: TrainingResult) -> None:
        if trained.n_epochs not in epochs:
            return
        for is_average in averaged:
            if is_average:
                with ner.model.use_params(optimizer.averages):
                    look(epochs=trained.n_epochs, averaged=True)
            else:
                look(epochs=trained.n_epochs, averaged=False)

    features, weights = linear_part(ner.model)
    train(
        weights,
        ner.objective,
        read_batches(ner.model, ner.objective, ner.chain_tags, batches),
        optimizer,
        max_epochs=max(epochs),
        dropout=features.dropout,
        progress=ner.progress,
        on_epoch=after_epoch,
    )
    if averaged[-1]:
        write_weights(ner, read_weights(ner, optimizer.averages))


def fit_neural(
    ner: CostSensitiveNER,
    examples: Sequence[Example],
    look: OnLook,
    *,
    epochs: int,
    words: int,
    learn_rate: float = 0.001,
) -> None:
    """Train a model with a CNN by Adam in small batches. The final weights are averages over all
    steps.

    epochs (int): The number of passes over the examples, each in a different order.
    words (int): The approximate number of tokens per batch.
    learn_rate (float): The learning rate of Adam. Sparse features use AdaGrad's.
    """
    optimizer = Adam(learn_rate, L2=0.01, L2_is_weight_decay=True, grad_clip=1.0, use_averages=True)
    for _ in range(epochs):
        shuffled = random.sample(list(examples), len(examples))
        for batch in minibatch_by_words(shuffled, words):
            ner.update(batch, drop=DROPOUT, sgd=optimizer)
    write_weights(ner, read_weights(ner, optimizer.averages))
    look(epochs=epochs)


FITS: dict[str, Callable[..., None]] = {
    "batch": fit_batch,
    "conjugate": fit_conjugate,
    "online": fit_online,
    "neural": fit_neural,
}


def count(
    ner: CostSensitiveNER,
    docs: Mapping[str, Sequence[Doc]],
    decodings: Mapping[str, Block] = VITERBI,
    cost: Block = HAMMING,
) -> Look:
    """Count the correct and wrong predictions in all parts of a corpus except "train": see
    `train_and_count`. "wrong_tags" contains the indices of the tokens of "test" with a wrong tag in
    the best path, if that is among the decodings. If the cost has a tree, "levels" contains the F
    on "test" for the best path, in percent, at each level of the tree, with categories replaced by
    their ancestors at this level. The root is level 1."""
    look: Look = {}
    for part in docs.keys() - {"train"}:
        predicted = predict(ner, docs[part], decodings)
        look[part] = {}
        for decoding, examples in predicted.items():
            counts = counts_of(examples, ner, cost)
            # The significance test compares docs, so counts on "test" are not summed.
            if part == "dev":
                counts = counts.sum(axis=0)
            look[part][decoding] = counts.tolist()
        if part == "test" and BEST_PATH in predicted:
            pairs = compare_tags(predicted[BEST_PATH], labels=ner.labels, scheme=ner.cfg["scheme"])
            look["wrong_tags"] = numpy.flatnonzero(pairs.gold != pairs.predicted).tolist()
        if part == "test" and "tree" in cost:
            tree = make_tree(cost["tree"], "experiments: cost")
            entities = entity_pairs(predicted[BEST_PATH])
            levels = range(1, tree.depth + 1)
            look["levels"] = [100 * count_at_level(entities, tree, n).fscore for n in levels]
    return look


def counts_of(
    examples: Sequence[Example], ner: CostSensitiveNER, cost: Block = HAMMING
) -> Floats2d:
    """Count the correct and wrong predictions in each doc: see `scores.COUNTS`. Shape: (docs,
    columns)"""
    make_table = registry.resolve({"cost": dict(cost)})["cost"]
    counts = count_docs(examples, make_table, labels=ner.labels, scheme=ner.cfg["scheme"])
    has_no_mistake = (counts.fp + counts.fn) == 0
    n_docs = numpy.ones(len(has_no_mistake))
    columns = numpy.stack([*counts, has_no_mistake, n_docs], axis=1)
    # Rounded, because the results are saved as text.
    return columns.astype(float).round(3)


def predict(
    ner: CostSensitiveNER, docs: Sequence[Doc], decodings: Mapping[str, Block] = VITERBI
) -> dict[str, list[Example]]:
    """Make examples from predictions and gold for each decoding. The model runs only once."""
    examples: dict[str, list[Example]] = {name: [] for name in decodings}
    for batch in minibatch(docs, 256):
        posterior = ner.posterior(batch)
        for name, block in decodings.items():
            decoding = registry.resolve({"decoding": dict(block)})["decoding"]
            ner.set_decoding(decoding)
            predicted = [bare(doc) for doc in batch]
            tokens = read_presets(predicted)
            prediction = make_prediction(ner.decode(posterior), posterior, tokens, confidence=None)
            ner.set_annotations(predicted, prediction)
            for doc, gold in zip(predicted, batch):
                examples[name].append(Example(doc, gold))
    return examples
