"""Training at initialization: the first of two passes, and the linear part of a hybrid model.

The rest of the model learns from what these parts say of the training docs. Weights that were
trained on a doc say too much of it. So the docs are divided into blocks that follow each other, and
besides the weights trained on all docs there are weights for each block, trained on the others.
Docs of the same text are in one block, so that no weights have seen a copy of what they score. The
label memory of the first pass is counted anew for each block.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy
from spacy.training import Example
from spacy.training.batchers import minibatch_by_words
from thinc.api import Model, Optimizer
from thinc.types import Floats2d

from ..features import Features
from ..features.tokens import text_id
from ..losses import sequential
from ..ml import SparseWeights, first_pass_of, linear_part
from ..tags import Tags
from ..types import Loss
from .objective import Objective
from .online import INTERRUPTED, Turns, in_memory, train
from .pieces import batch_pieces
from .targets import Targets

N_WORDS = 500
"""About the words of a step, or those of one doc if that has more."""

FIRST_FOLDS, FIRST_STEPS = 2, 8
"""Of the first pass: the number of blocks, and the fewest steps of an epoch of a small corpus."""

LINEAR_FOLDS, LINEAR_STEPS = 4, 100
"""Of the linear part: the same. `costner init` chooses as many steps."""

GetExamples = Callable[[], Iterable[Example]]


def train_first_pass(
    model: Model, objective: Objective, tags: Tags, get_examples: GetExamples
) -> None:
    """Train the first pass, if the model has one, with the likelihood of whole paths. The features
    of the model are known."""
    if (first_pass := first_pass_of(model)) is None:
        return
    first_pass.tags = tags
    if first_pass.read_labels is not None:
        return
    features, _ = linear_part(model)
    examples = [eg for eg in get_examples() if len(eg.predicted)]
    n_words = sum(len(eg.predicted) for eg in examples)
    batches = list(batch_in_order(examples, min(N_WORDS, n_words // FIRST_STEPS)))
    blocks: list[list[tuple[list[Example], list[Targets]]]] = [[] for _ in range(FIRST_FOLDS)]
    fold_of: dict[int, int] = {}
    for i, batch in enumerate(batches):
        fold = i * FIRST_FOLDS // len(batches)
        folds = [fold_of.setdefault(text_id(eg.predicted), fold) for eg in batch]
        for fold in {*folds}:
            some = [eg for eg, own in zip(batch, folds) if own == fold]
            turns = [targets._replace(soft=None) for targets in objective.turns(some, tags)]
            blocks[fold].append((some, turns))
    first_pass.weights.allocate(len(features), len(tags))
    likelihood = Objective(objective.name, objective.strings, Loss(sequential))

    def train_without(fold: int) -> tuple[Features, Floats2d]:
        """Features, whose memory is that of the docs of other folds, and weights."""
        rest = [each for i, block in enumerate(blocks) if i != fold for each in block]
        own = features
        if fold >= 0:
            as_entities = objective.annotation.as_entities
            docs = (as_entities(eg, tags.labels) for some, _ in rest for eg in some)
            own = features.recount([eg.reference for eg in docs])
        turns = in_memory(
            (own.find([eg.predicted for eg in some], is_train=True), targets)
            for some, targets in rest
        )
        desc = f"first pass {fold + 2}/{FIRST_FOLDS + 1}"
        settings: Any = {"max_epochs": first_pass.n_epochs, "shuffle": random.Random(0).shuffle}
        return own, _train_anew(turns, first_pass.weights, likelihood, desc=desc, **settings)

    (_, rows), *of_folds = [train_without(fold) for fold in range(-1, FIRST_FOLDS)]
    first_pass.weights.restart(rows)
    first_pass.set_folds(of_folds, fold_of)


def batch_in_order(examples: Sequence[Example], n_words: int) -> Iterator[list[Example]]:
    """Batches of examples, each until it has enough words. spaCy's `minibatch_by_words` moves docs
    to other batches than the docs around them."""
    begin = size = 0
    for i, eg in enumerate(examples, 1):
        size += len(eg.predicted)
        if size >= n_words or i == len(examples):
            yield list(examples[begin:i])
            begin, size = i, 0


def train_linear_part(
    model: Model, objective: Objective, tags: Tags, get_examples: GetExamples
) -> None:
    """Train the linear part of a hybrid model, if its `linear_epochs` say so, as `fit` does. A
    first pass is trained before."""
    if not (max_epochs := model.attrs.get("linear_epochs")):
        return
    features, weights = linear_part(model)
    docs: list[list[Example]] = [[] for _ in range(LINEAR_FOLDS)]
    fold_of: dict[int, int] = {}
    examples = [eg for eg in get_examples() if len(eg.predicted)]
    n_words, end = sum(len(eg.predicted) for eg in examples), 0
    for eg in examples:
        end += len(eg.predicted)
        fold = fold_of.setdefault(text_id(eg.predicted), (end - 1) * LINEAR_FOLDS // n_words)
        docs[fold].append(eg)
    batcher = partial(minibatch_by_words, size=max(min(N_WORDS, n_words // LINEAR_STEPS), 1))
    blocks = [
        batch_pieces(model, objective, tags, block, batcher, random.shuffle) for block in docs
    ]
    rows = []
    for fold in range(-1, LINEAR_FOLDS):
        rest = [turns for i, turns in enumerate(blocks) if i != fold]
        turns = [
            [batch for turns in rest for batch in turns[min(turn, len(turns) - 1)]]
            for turn in range(max(map(len, rest)))
        ]
        settings: Any = {"max_epochs": max_epochs, "dropout": features.dropout}
        desc = f"linear part {fold + 2}/{LINEAR_FOLDS + 1}"
        rows.append(_train_anew(turns, weights, objective, desc=desc, **settings))
    weights.restart(rows[0])
    weights.set_folds([of_fold[: weights.n_features] for of_fold in rows[1:]], fold_of)


def _train_anew(
    turns: Turns, weights: SparseWeights, objective: Objective, **settings: Any
) -> Floats2d:
    """Train weights from 0, by the settings of `train`. Raises a KeyboardInterrupt again:
    initialization needs all weights. Shape: (V + K + 2, K)"""
    weights.restart(numpy.zeros_like(weights.rows))
    objective.forget()
    optimizer = Optimizer(0.0, use_averages=True)
    trained = train(weights, objective, turns, optimizer, **settings)
    if trained.reason == INTERRUPTED:
        raise KeyboardInterrupt
    return weights.averaged(optimizer)
