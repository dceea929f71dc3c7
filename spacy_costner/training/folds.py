"""Training at initialization: the first of two passes, and the linear part of a hybrid model.

The rest of the model learns from what these parts say of the training docs. Weights that were
trained on a doc say too much of it. So the docs are divided into folds that follow each other, and
besides the weights trained on all docs there are weights for each fold, trained on the others.
Docs of the same text are in one fold, so that no weights have seen a copy of what they score. The
label memory of the first pass is counted anew for each fold.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

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
from .online import INTERRUPTED, Batches, keep_in_memory, train
from .pieces import batch_pieces
from .segmentations import Segmentations, concatenate
from .targets import Targets

N_WORDS = 500
"""About the words of a step, or those of one doc if that has more."""

FIRST_FOLDS = 2
"""The number of folds for the first pass."""

FIRST_STEPS = 8
"""The fewest steps of an epoch of the first pass, if the corpus is small."""

LINEAR_FOLDS = 4
"""The number of folds for the linear part."""

LINEAR_STEPS = 100
"""The fewest steps of an epoch of the linear part, if the corpus is small: as `costner init` has
them."""

GetExamples = Callable[[], Iterable[Example]]


@dataclass(frozen=True)
class FoldBatch:
    """The part of a batch that is in one fold, with its targets."""

    examples: list[Example]
    targets: Segmentations[Targets]


def train_first_pass(
    model: Model, objective: Objective, tags: Tags, get_examples: GetExamples
) -> None:
    """Train the first pass, if the model has one, with the likelihood of whole paths. The features
    of the model are known."""
    first_pass = first_pass_of(model)
    if first_pass is None:
        return
    first_pass.tags = tags
    if first_pass.read_labels is not None:
        return
    features, _ = linear_part(model)
    examples = [eg for eg in get_examples() if len(eg.predicted)]
    folds, fold_of_text = divide_for_first_pass(objective, tags, examples)
    first_pass.weights.allocate(len(features), len(tags))
    likelihood = Objective(objective.name, objective.strings, Loss(sequential))
    trained: list[tuple[Features, Floats2d]] = []
    # The first training leaves out no fold, each other one its own.
    for number, left_out in enumerate([None, *range(FIRST_FOLDS)], 1):
        batches: list[FoldBatch] = []
        for i, fold in enumerate(folds):
            if i != left_out:
                batches += fold
        features_of_fold = features
        if left_out is not None:
            features_of_fold = recount_labels(features, objective, tags, batches)
        parts: list[Batches] = []
        for batch in batches:
            docs = [eg.predicted for eg in batch.examples]
            feature_batch = features_of_fold.find(docs, is_train=True)
            parts.append(keep_in_memory(feature_batch, batch.targets))
        rows = _train_anew(
            first_pass.weights,
            likelihood,
            concatenate(parts),
            max_epochs=first_pass.n_epochs,
            shuffle=random.Random(0).shuffle,
            desc=f"first pass {number}/{FIRST_FOLDS + 1}",
        )
        trained.append((features_of_fold, rows))
    _, rows_of_all_docs = trained[0]
    first_pass.weights.restart(rows_of_all_docs)
    first_pass.set_folds(trained[1:], fold_of_text)


def divide_for_first_pass(
    objective: Objective, tags: Tags, examples: Sequence[Example]
) -> tuple[list[list[FoldBatch]], dict[int, int]]:
    """Divide examples into batches, and these into folds. Returns the batches of each fold, and the
    fold of each text, by its hash."""
    n_words = sum(len(eg.predicted) for eg in examples)
    batches = list(batch_in_order(examples, min(N_WORDS, n_words // FIRST_STEPS)))
    folds: list[list[FoldBatch]] = [[] for _ in range(FIRST_FOLDS)]
    fold_of_text: dict[int, int] = {}
    for i, batch in enumerate(batches):
        fold_of_batch = i * FIRST_FOLDS // len(batches)
        examples_of_fold: dict[int, list[Example]] = {}
        for eg in batch:
            # A copy of an earlier text is in the fold of that text.
            fold = fold_of_text.setdefault(text_id(eg.predicted), fold_of_batch)
            examples_of_fold.setdefault(fold, []).append(eg)
        for fold in {*examples_of_fold}:
            targets = objective.targets(examples_of_fold[fold], tags)
            # The first pass learns from gold alone.
            without_soft = targets.map(lambda targets: targets._replace(soft=None))
            folds[fold].append(FoldBatch(examples_of_fold[fold], without_soft))
    return folds, fold_of_text


def recount_labels(
    features: Features, objective: Objective, tags: Tags, batches: Sequence[FoldBatch]
) -> Features:
    """The features with the label memory of some batches."""
    docs = []
    for batch in batches:
        for eg in batch.examples:
            docs.append(objective.annotation.as_entities(eg, tags.labels).reference)
    return features.recount(docs)


def batch_in_order(examples: Sequence[Example], n_words: int) -> Iterator[list[Example]]:
    """Batches of examples, each until it has enough words. spaCy's `minibatch_by_words` moves docs
    to other batches than the docs around them."""
    batch: list[Example] = []
    n_words_of_batch = 0
    for eg in examples:
        batch.append(eg)
        n_words_of_batch += len(eg.predicted)
        if n_words_of_batch >= n_words:
            yield batch
            batch = []
            n_words_of_batch = 0
    if batch:
        yield batch


def train_linear_part(
    model: Model, objective: Objective, tags: Tags, get_examples: GetExamples
) -> None:
    """Train the linear part of a hybrid model, if its `linear_epochs` say so, as `fit` does. A
    first pass is trained before."""
    max_epochs = model.attrs.get("linear_epochs")
    if not max_epochs:
        return
    features, weights = linear_part(model)
    examples = [eg for eg in get_examples() if len(eg.predicted)]
    n_words = sum(len(eg.predicted) for eg in examples)
    folds, fold_of_text = divide_by_words(examples, n_words)
    batcher = partial(minibatch_by_words, size=max(min(N_WORDS, n_words // LINEAR_STEPS), 1))
    batches_of_folds = [
        batch_pieces(model, objective, tags, fold, batcher, random.shuffle) for fold in folds
    ]
    rows: list[Floats2d] = []
    # The first training leaves out no fold, each other one its own.
    for number, left_out in enumerate([None, *range(LINEAR_FOLDS)], 1):
        parts = [batches for i, batches in enumerate(batches_of_folds) if i != left_out]
        rows_of_fold = _train_anew(
            weights,
            objective,
            concatenate(parts),
            max_epochs=max_epochs,
            dropout=features.dropout,
            desc=f"linear part {number}/{LINEAR_FOLDS + 1}",
        )
        rows.append(rows_of_fold)
    # Of a fold only the weights of features are used.
    weights.restart(rows[0])
    emissions_of_folds = [rows_of_fold[: weights.n_features] for rows_of_fold in rows[1:]]
    weights.set_folds(emissions_of_folds, fold_of_text)


def divide_by_words(
    examples: Sequence[Example], n_words: int
) -> tuple[list[list[Example]], dict[int, int]]:
    """Divide examples, which have so many words in all, into folds of about as many words. Returns
    the examples of each fold, and the fold of each text, by its hash."""
    folds: list[list[Example]] = [[] for _ in range(LINEAR_FOLDS)]
    fold_of_text: dict[int, int] = {}
    end = 0
    for eg in examples:
        end += len(eg.predicted)
        fold_of_last_word = (end - 1) * LINEAR_FOLDS // n_words
        # A copy of an earlier text is in the fold of that text.
        fold = fold_of_text.setdefault(text_id(eg.predicted), fold_of_last_word)
        folds[fold].append(eg)
    return folds, fold_of_text


def _train_anew(
    weights: SparseWeights,
    objective: Objective,
    batches: Batches,
    *,
    max_epochs: int,
    dropout: float = 0.0,
    shuffle: Callable[[list], None] = random.shuffle,
    desc: str,
) -> Floats2d:
    """Train weights from 0, and return their average, as it is saved. Raises a KeyboardInterrupt
    again: initialization needs all weights. Shape: (V + K + 2, K)"""
    weights.restart(numpy.zeros_like(weights.rows))
    objective.forget()
    optimizer = Optimizer(0.0, use_averages=True)
    trained = train(
        weights,
        objective,
        batches,
        optimizer,
        max_epochs=max_epochs,
        dropout=dropout,
        shuffle=shuffle,
        desc=desc,
    )
    if trained.reason == INTERRUPTED:
        raise KeyboardInterrupt
    return weights.slim(weights.averaged(optimizer))
