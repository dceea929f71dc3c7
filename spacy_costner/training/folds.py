"""Training at initialization: the first of two passes, and the linear part of a hybrid model.

The rest of the model learns from what these parts say of the training docs. Weights that were
trained on a doc say too much of it. So the docs are divided into blocks that follow each other, and
besides the weights trained on all docs there are weights for each block, trained on the others.
"""

import random
from functools import partial
from typing import Callable, Dict, Iterable, Iterator, List, Sequence, Tuple

import numpy
from spacy.training import Example
from spacy.training.batchers import minibatch_by_words
from thinc.api import Model, Optimizer
from thinc.types import Floats2d

from ..features.tokens import text_id
from ..losses import sequential
from ..ml import IN_SEVERAL, SparseWeights, first_pass_of, linear_part
from ..tags import Tags
from ..types import Loss
from .objective import Objective
from .online import INTERRUPTED, Batch, Trained, train
from .pieces import batch_pieces

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
    blocks: List[List[Batch]] = [[] for _ in range(FIRST_FOLDS)]
    fold_of: Dict[int, int] = {}
    for i, batch in enumerate(batches):
        fold = i * FIRST_FOLDS // len(batches)
        seen = features.find([eg.predicted for eg in batch], is_train=True)
        blocks[fold].append(Batch.of(seen, objective.targets(batch, tags)._replace(soft=None)))
        assert seen.text_ids is not None
        for text in seen.text_ids.tolist():
            fold_of[text] = fold if fold_of.get(text, fold) == fold else IN_SEVERAL

    likelihood = Objective(objective.name, objective.strings, Loss(sequential))
    all_weights: List[SparseWeights] = []
    for desc, rest in _without_each(blocks, "first pass"):
        weights, optimizer = first_pass.make_weights(), Optimizer(0.0, use_averages=True)
        weights.allocate(len(features), len(tags))
        trained = train(
            weights,
            likelihood,
            rest,
            optimizer,
            max_epochs=first_pass.n_epochs,
            shuffle=random.Random(0).shuffle,
            desc=desc,
        )
        _check_end(trained)
        weights.rows[:] = weights.averaged(optimizer)
        all_weights.append(weights)
    first_pass.weights = all_weights[0]
    first_pass.set_folds(all_weights[1:], fold_of)


def batch_in_order(examples: Sequence[Example], n_words: int) -> Iterator[List[Example]]:
    """Batches of examples, each until it has enough words. spaCy's `minibatch_by_words` moves docs
    to other batches, and so to other folds than the docs around them."""
    begin = size = 0
    for i, eg in enumerate(examples, 1):
        size += len(eg.predicted)
        if size >= n_words or i == len(examples):
            yield list(examples[begin:i])
            begin, size = i, 0


def train_linear_part(
    model: Model, objective: Objective, tags: Tags, get_examples: GetExamples
) -> None:
    """Train the linear part of a hybrid model, if its `linear_epochs` say so, as `fit --online`
    does. A first pass is trained before."""
    if not (max_epochs := model.attrs.get("linear_epochs")):
        return
    features, weights = linear_part(model)
    docs: List[List[Example]] = [[] for _ in range(LINEAR_FOLDS)]
    fold_of: Dict[int, int] = {}
    examples = [eg for eg in get_examples() if len(eg.predicted)]
    n_words, end = sum(len(eg.predicted) for eg in examples), 0
    for eg in examples:
        end += len(eg.predicted)
        fold = (end - 1) * LINEAR_FOLDS // n_words
        docs[fold].append(eg)
        fold_of[text_id(eg.predicted)] = fold
    size = max(min(N_WORDS, n_words // LINEAR_STEPS), 1)
    batcher = partial(minibatch_by_words, size=size)
    blocks = [
        batch_pieces(model, objective, tags, block, batcher, random.shuffle) for block in docs
    ]
    rows: List[Floats2d] = []
    for desc, rest in _without_each(blocks, "linear part"):
        weights.restart(numpy.zeros_like(weights.rows))
        objective.forget()
        optimizer = Optimizer(0.0, use_averages=True)
        trained = train(
            weights,
            objective,
            rest,
            optimizer,
            max_epochs=max_epochs,
            dropout=features.dropout,
            desc=desc,
        )
        _check_end(trained)
        rows.append(weights.averaged(optimizer))
    weights.restart(rows[0])
    weights.set_folds([of_fold[: weights.n_features] for of_fold in rows[1:]], fold_of)


def _without_each(blocks: List[List[Batch]], desc: str) -> Iterator[Tuple[str, List[Batch]]]:
    """The batches of all blocks; then, for each block, those of the others. With the name of the
    progress bar."""
    for i in range(-1, len(blocks)):
        rest = [batch for j, block in enumerate(blocks) if j != i for batch in block]
        yield f"{desc} {i + 2}/{len(blocks) + 1}", rest


def _check_end(trained: Trained) -> None:
    """Raise a KeyboardInterrupt again: initialization can't go on without this part."""
    if trained.reason == INTERRUPTED:
        raise KeyboardInterrupt
