"""Train the linear part of a hybrid model at initialization, before the Tok2Vec."""

import random
from functools import partial
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List

import numpy
from spacy.training import Example
from spacy.training.batchers import minibatch_by_words
from thinc.api import Optimizer
from thinc.types import Floats2d

from ..features.tokens import text_id
from ..ml import linear_part
from ..types import Progress
from .first_pass import N_WORDS
from .online import INTERRUPTED, Batch, train
from .pieces import batch_pieces

if TYPE_CHECKING:
    from ..pipeline.component import CostSensitiveNER

N_FOLDS = 4
MIN_STEPS = 100
"""Steps of an epoch: those of a small corpus have fewer words, as `costner init` chooses them."""


def train_linear_part(
    ner: "CostSensitiveNER", get_examples: Callable[[], Iterable[Example]]
) -> None:
    """Train the linear part of a hybrid model, if its settings say so, as `fit --online` does: on
    all examples and, for the scores that the Tok2Vec is trained beside, on all but each of the
    folds. These are blocks of docs that follow each other. Scores of docs that the weights were
    trained on would leave little to learn.

    ner (CostSensitiveNER): An initialized component.
    get_examples (Callable[[], Iterable[Example]]): Returns the examples.
    """
    if ner.model.name != "hybrid_crf" or not linear_part(ner.model)[1].initial_epochs:
        return
    _, weights = linear_part(ner.model)
    blocks: List[List[Example]] = [[] for _ in range(N_FOLDS)]
    fold_of: Dict[int, int] = {}
    examples = [eg for eg in get_examples() if len(eg.predicted)]
    n_words, end = sum(len(eg.predicted) for eg in examples), 0
    for eg in examples:
        end += len(eg.predicted)
        fold = (end - 1) * N_FOLDS // n_words
        blocks[fold].append(eg)
        fold_of[text_id(eg.predicted)] = fold
    batcher = partial(minibatch_by_words, size=max(min(N_WORDS, n_words // MIN_STEPS), 1))
    parts = [batch_pieces(ner, block, batcher, random.shuffle) for block in blocks]
    n_fits = N_FOLDS + 1
    whole = _fit(ner, [batch for part in parts for batch in part], f"linear part 1/{n_fits}")
    folds = [
        _fit(
            ner,
            [batch for j, part in enumerate(parts) if j != i for batch in part],
            f"linear part {i + 2}/{n_fits}",
        )
        for i in range(N_FOLDS)
    ]
    weights.restart(whole)
    weights.set_folds([rows[: weights.n_features] for rows in folds], fold_of)


def _fit(ner: "CostSensitiveNER", batches: List[Batch], desc: str) -> Floats2d:
    """Train the weights from 0, and return their average. Shape: (V + K + 2, K)"""
    _, weights = linear_part(ner.model)
    weights.restart(numpy.zeros_like(weights.rows))
    for stage in ner.objective.loss.stages:
        stage.forget()
    ner.cfg["progress"] = Progress()._asdict()
    optimizer = Optimizer(0.0, use_averages=True)
    trained = train(ner, batches, optimizer, max_epochs=weights.initial_epochs, desc=desc)
    if trained.reason == INTERRUPTED:
        raise KeyboardInterrupt
    with weights.use_params(optimizer.averages or {}):
        return weights.table.weights
