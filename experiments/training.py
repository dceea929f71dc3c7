"""The run that all experiments with entities are made of: train in stages, look on the way.

A stage is a dict that JSON can hold: the arguments of `make_tagger`, the name of a way of training
("fit", one of FITS), its "settings", and after which stage it goes on ("after", the number of one;
if there is none it begins with the weights that the run starts from, or with 0). A look is what is
counted then in the dev and the test part.
"""

import json
import random
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import numpy
import spacy
from scipy.optimize import minimize
from spacy.tokens import Doc
from spacy.training import Example
from spacy.training.batchers import minibatch_by_words
from spacy.util import minibatch, registry
from thinc.api import Adam
from thinc.types import Floats2d, FloatsXd

from spacy_costner.commands.runs import Run
from spacy_costner.costs.label_tree import make_tree
from spacy_costner.costs.tables import HAMMING
from spacy_costner.pipeline.annotations import score_spans
from spacy_costner.pipeline.scorers import count_at_level, count_docs, entity_pairs
from spacy_costner.pipeline.token_attrs import read_presets
from spacy_costner.training import Step, TotalLoss, minimise, read_batches, train
from spacy_costner.training.convergence import Convergence, ignore

from .corpora import as_examples, bare, read_docs
from .genia import divide
from .runner import ROOT
from .tagger import Block, Tagger, make_tagger

Stage = Mapping[str, Any]
Look = Dict[str, Any]
OnLook = Callable[..., None]

BEST_PATH = "best path"
VITERBI: Mapping[str, Block] = {BEST_PATH: {"@misc": "spacy_costner.ViterbiDecoding.v1"}}
DROPOUT = 0.2
LEARN_RATE = 0.001
"""That of a CNN; sparse features have AdaGrad's."""


def training(name: str, data: Mapping[str, Any], stages: Sequence[Stage], **more: Any) -> Run:
    """A run of `train_and_count`, by name."""
    return Run(name, train_and_count, {"data": data, "stages": list(stages), **more})


def train_and_count(
    data: Mapping[str, Any],
    stages: Sequence[Stage],
    *,
    start: Sequence[Stage] = (),
    decodings: Mapping[str, Block] = VITERBI,
    cost: Block = HAMMING,
) -> List[Look]:
    """Train in stages, and count what is right and wrong.

    data (Mapping[str, Any]): See `read`.
    stages (Sequence[Stage]): The stages.
    start (Sequence[Stage]): Stages before these, at which nobody looks. Their weights are kept
        for the next run in this process that starts from them.
    decodings (Mapping[str, Block]): The ways to predict, by name.
    cost (Block): What mistakes cost.
    RETURNS (List[Look]): What was seen: the number of the "stage", what its fit tells, and for
        each decoding the sums of COUNTS over "dev", the COUNTS of each sentence of "test".
    """
    docs = read(json.dumps(data))
    first = start_weights(json.dumps(data), json.dumps(start)) if start else None
    looks: List[Look] = []

    def look(tagger: Tagger, **facts: Any) -> None:
        looks.append({**facts, **count(tagger, docs, decodings, cost)})

    run_stages(as_examples(docs["train"]), stages, first, look)
    return looks


@lru_cache(maxsize=1)
def read(data: str) -> Dict[str, List[Doc]]:
    """Read the parts of a corpus.

    data (str): In JSON, the file of each part, below the repository, and the first and the last
        sentence, as in a slice; or the arguments of `genia.divide`.
    RETURNS (Dict[str, List[Doc]]): The docs of "train", and of "dev" or "test" or both.
    """
    parts = json.loads(data)
    if "fold" in parts:
        return divide(**parts)
    vocab = spacy.blank("xx").vocab
    return {part: read_docs(ROOT / file, vocab, *ends) for part, (file, *ends) in parts.items()}


@lru_cache(maxsize=1)
def start_weights(data: str, stages: str) -> List[FloatsXd]:
    """The weights after some stages; data and stages in JSON."""
    examples = as_examples(read(data)["train"])
    return run_stages(examples, json.loads(stages), None, lambda tagger, **facts: None)


def run_stages(
    examples: Sequence[Example],
    stages: Sequence[Stage],
    first: Optional[List[FloatsXd]],
    look: OnLook,
) -> List[FloatsXd]:
    """Train in stages.

    examples (Sequence[Example]): What is learned from.
    stages (Sequence[Stage]): The stages, at least one.
    first (Optional[List[FloatsXd]]): The weights to start from.
    look (Callable): Takes the tagger and what a fit tells, whenever one may look.
    RETURNS (List[FloatsXd]): The weights after the last stage.
    """
    weights: Dict[Optional[int], Any] = {None: first}
    for i, stage in enumerate(stages):
        made_of = {name: stage[name] for name in ("loss", "seed", "scheme") if name in stage}
        tagger = make_tagger(examples, model=stage["model"], **made_of)
        begin = weights[stage.get("after")]
        if begin is not None:
            tagger.write_weights(begin)

        def look_now(of: Tagger = tagger, stage: int = i, **facts: Any) -> None:
            look(of, stage=stage, **facts)

        FITS[stage["fit"]](tagger, examples, look_now, **stage["settings"])
        weights[i] = tagger.read_weights()
    return weights[len(stages) - 1]


def fit_batch(
    tagger: Tagger,
    examples: Sequence[Example],
    look: OnLook,
    *,
    c2: float,
    max_iter: Optional[int] = None,
    tolerance: float = 1e-5,
) -> None:
    """Train a linear model by L-BFGS from the weights that it has: see
    `spacy_costner.training.minimise`. A Gaussian prior of variance v is c2 = 1 / (2 v)."""
    total = TotalLoss(tagger.ner, examples, c2=c2)
    minimum = minimise(total, total.read_weights(), max_iter=max_iter, tolerance=tolerance)
    total.write_weights(minimum.vector)
    look(iterations=minimum.n_iterations, objective=minimum.value)


def fit_conjugate(
    tagger: Tagger, examples: Sequence[Example], look: OnLook, *, tolerance: float
) -> None:
    """Train a linear model without a prior by nonlinear conjugate gradient. It ends when the last
    ten iterations made the objective smaller by less than `tolerance` times it."""
    total = TotalLoss(tagger.ner, examples, c2=0.0)
    descent = Convergence(tolerance, ignore)

    def after_iteration(intermediate_result: Any) -> None:
        descent.add(float(intermediate_result.fun), 0.0)
        if descent.has_settled:
            raise StopIteration

    minimum = minimize(total, total.read_weights(), jac=True, method="CG", callback=after_iteration)
    total.write_weights(minimum.x)
    look(iterations=len(descent), objective=descent.value)


def fit_online(
    tagger: Tagger,
    examples: Sequence[Example],
    look: OnLook,
    *,
    epochs: Sequence[int],
    batch_size: int = 16,
    averaged: Sequence[bool] = (True,),
) -> None:
    """Train a linear model by AdaGrad in small batches.

    epochs (Sequence[int]): After how many epochs to look at it, ascending; the last one ends it.
    batch_size (int): Sentences in a step.
    averaged (Sequence[bool]): Whether to look at the averages of the weights over all steps, or
        at the last ones, or both; it keeps what it is looked at with last.
    """
    shuffled = random.sample(list(examples), len(examples))
    batches = [shuffled[i : i + batch_size] for i in range(0, len(shuffled), batch_size)]
    optimizer = Adam(use_averages=True)

    def after_epoch(step: Step) -> None:
        for is_average in averaged if step.iteration in epochs else ():
            used = tagger.nlp.use_params(optimizer.averages) if is_average else nullcontext()
            with used:
                look(epochs=step.iteration, averaged=is_average)

    read_once = read_batches(tagger.ner, batches)
    train(tagger.ner, read_once, optimizer, max_epochs=max(epochs), on_epoch=after_epoch)
    if averaged[-1]:
        tagger.write_weights(tagger.read_weights(optimizer))


def fit_neural(
    tagger: Tagger,
    examples: Sequence[Example],
    look: OnLook,
    *,
    epochs: int,
    words: int,
    learn_rate: float = LEARN_RATE,
) -> None:
    """Train a model with a CNN by Adam in small batches; the weights are their averages then.

    epochs (int): How often it goes through the examples, each time in another order.
    words (int): Tokens in a batch, about.
    learn_rate (float): Of Adam.
    """
    optimizer = Adam(learn_rate, L2=0.01, L2_is_weight_decay=True, grad_clip=1.0, use_averages=True)
    for _ in range(epochs):
        shuffled = random.sample(list(examples), len(examples))
        for batch in minibatch_by_words(shuffled, words):
            tagger.ner.update(batch, drop=DROPOUT, sgd=optimizer)
    tagger.write_weights(tagger.read_weights(optimizer))
    look(epochs=epochs)


FITS: Dict[str, Callable[..., None]] = {
    "batch": fit_batch,
    "conjugate": fit_conjugate,
    "online": fit_online,
    "neural": fit_neural,
}


def count(
    tagger: Tagger,
    docs: Mapping[str, Sequence[Doc]],
    decodings: Mapping[str, Block] = VITERBI,
    cost: Block = HAMMING,
) -> Look:
    """Count what is right and wrong in the parts of a corpus but "train": see `train_and_count`.
    If the cost has a tree, "levels" are F on each level of it, in "test", by the best path."""
    found: Look = {}
    for part in docs.keys() - {"train"}:
        predicted = predict(tagger, docs[part], decodings)
        of_docs = {name: counts_of(egs, tagger, cost) for name, egs in predicted.items()}
        if part == "test" and "tree" in cost:
            found["levels"] = f_by_level(predicted[BEST_PATH], cost)
        is_dev = part == "dev"
        found[part] = {n: (c.sum(axis=0) if is_dev else c).tolist() for n, c in of_docs.items()}
    return found


def counts_of(examples: Sequence[Example], tagger: Tagger, cost: Block = HAMMING) -> Floats2d:
    """What is right and wrong in each doc: see COUNTS. Shape: (docs, columns)"""
    table = registry.resolve({"cost": dict(cost)})["cost"]
    counts = count_docs(examples, table, labels=tagger.ner.labels, scheme=tagger.ner.cfg["scheme"])
    whole = (counts.wrong + counts.missed) == 0
    return numpy.stack([*counts, whole, numpy.ones(len(whole))], axis=1).astype(float).round(3)


def f_by_level(examples: Sequence[Example], cost: Block) -> List[float]:
    """F in per cent where categories are replaced by those above them at a level of the tree, 1 on
    top."""
    tree, pairs = make_tree(cost["tree"], "experiments: cost"), entity_pairs(examples)
    return [100 * count_at_level(pairs, tree, n).fscore for n in range(1, tree.depth + 1)]


def predict(
    tagger: Tagger, docs: Sequence[Doc], decodings: Mapping[str, Block] = VITERBI
) -> Dict[str, List[Example]]:
    """Examples of what is predicted and of the gold, for each decoding. The model is asked once."""
    ner = tagger.ner
    found: Dict[str, List[Example]] = {name: [] for name in decodings}
    for batch in minibatch(docs, 256):
        posterior = ner.posterior(batch)
        for name, block in decodings.items():
            ner.set_decoding(registry.resolve({"decoding": dict(block)})["decoding"])
            predicted = [bare(doc) for doc in batch]
            rated = score_spans(ner.decode(posterior), posterior, read_presets(predicted), None)
            ner.set_annotations(predicted, rated)
            found[name] += map(Example, predicted, batch)
    return found
