"""Training at initialization: the first of two passes, and the linear part of a hybrid model.

The rest of the model learns from what these parts say of the training docs. Weights that were
trained on a doc say too much of it. So the docs are divided into folds that follow each other, and
besides the weights trained on all docs there are weights for each fold, trained on the others.
Docs of the same text are in one fold, so that no weights have seen a copy of what they score. The
label memory of the first pass is counted anew for each fold. A row is the weights of a feature, one
for each tag.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy
from spacy.tokens import Doc
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
"""About the number of words of a step. A doc with more words is a step of its own."""

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
    """The examples of a batch that are in one fold, with their targets: what a step of the first
    pass learns from."""

    examples: list[Example]
    targets: Segmentations[Targets]


def train_first_pass(
    model: Model, objective: Objective, tags: Tags, get_examples: GetExamples
) -> None:
    """Train the first pass, if the model has one, with the likelihood of whole paths: on all docs,
    for new text, and once without each fold, for the docs of that fold.

    model (Model): The model, with its features collected.
    objective (Objective): The objective of the component, for the annotation of the docs.
    tags (Tags): The tags of the chain.
    get_examples (GetExamples): Returns the training examples.
    """
    first_pass = first_pass_of(model)
    if first_pass is None:
        return
    first_pass.tags = tags
    if first_pass.read_labels is not None:
        return  # its labels come from elsewhere, and it has no weights

    features, _ = linear_part(model)
    examples = [eg for eg in get_examples() if len(eg.predicted)]
    folds, fold_of_text = divide_for_first_pass(objective, tags, examples)
    first_pass.weights.allocate(len(features), len(tags), features.n_vector_rows)
    likelihood = Objective(objective.name, objective.strings, Loss(sequential))

    features_and_rows: list[tuple[Features, Floats2d]] = []
    # The first training leaves out no fold, each other one its own.
    for number, left_out in enumerate([None, *range(FIRST_FOLDS)], start=1):
        batches: list[FoldBatch] = []
        for i, fold in enumerate(folds):
            if i != left_out:
                batches += fold
        recounted_features = features
        if left_out is not None:
            recounted_features = recount_labels(features, objective, tags, batches)
        rows = _train_anew(
            first_pass.weights,
            likelihood,
            find_features(recounted_features, batches),
            max_epochs=first_pass.n_epochs,
            shuffle=random.Random(0).shuffle,
            desc=f"first pass {number}/{FIRST_FOLDS + 1}",
        )
        features_and_rows.append((recounted_features, rows))

    _, rows_of_all_docs = features_and_rows[0]
    first_pass.weights.restart(rows_of_all_docs)
    first_pass.set_folds(features_and_rows[1:], fold_of_text)


def divide_for_first_pass(
    objective: Objective, tags: Tags, examples: Sequence[Example]
) -> tuple[list[list[FoldBatch]], dict[int, int]]:
    """Divide examples into batches, and these into folds, so that examples of a fold follow each
    other but for copies of a text: these are in one fold.

    objective (Objective): Makes the targets.
    tags (Tags): The tags of the chain.
    examples (Sequence[Example]): The examples, with tokens.
    RETURNS (tuple[list[list[FoldBatch]], dict[int, int]]): The batches of each fold; and the fold
        of each text, by its hash.
    """
    n_words = sum(len(eg.predicted) for eg in examples)
    words_of_batch = min(N_WORDS, n_words // FIRST_STEPS)
    batches = list(batch_in_order(examples, words_of_batch))

    folds: list[list[FoldBatch]] = [[] for _ in range(FIRST_FOLDS)]
    fold_of_text: dict[int, int] = {}
    for i, batch in enumerate(batches):
        # Folds have the same number of batches, as far as possible.
        fold_of_batch = i * FIRST_FOLDS // len(batches)
        examples_of_fold: dict[int, list[Example]] = {}
        for eg in batch:
            # A copy of an earlier text is in the fold of that text.
            fold = fold_of_text.setdefault(text_id(eg.predicted), fold_of_batch)
            examples_of_fold.setdefault(fold, []).append(eg)

        for fold in sorted(examples_of_fold):
            targets = objective.targets(examples_of_fold[fold], tags)
            # The first pass learns from gold alone.
            gold_targets = targets.map(Targets.without_soft)
            folds[fold].append(FoldBatch(examples_of_fold[fold], gold_targets))
    return folds, fold_of_text


def recount_labels(
    features: Features, objective: Objective, tags: Tags, batches: Sequence[FoldBatch]
) -> Features:
    """The features with their label memory counted anew, in these batches alone: it must not know
    the labels of the docs that are left out.

    features (Features): The features of the model.
    objective (Objective): Says where the annotation stands in docs.
    tags (Tags): The tags of the chain.
    batches (Sequence[FoldBatch]): The batches whose labels are counted.
    """
    docs: list[Doc] = []
    for batch in batches:
        for eg in batch.examples:
            docs.append(objective.annotation.as_entities(eg, tags.labels).reference)
    return features.recount(docs)


def find_features(features: Features, batches: Sequence[FoldBatch]) -> Batches:
    """Find the features of batches, and make batches of training, which have them."""
    training_batches: list[Batches] = []
    for batch in batches:
        docs = [eg.predicted for eg in batch.examples]
        feature_batch = features.find(docs, is_train=True)
        training_batches.append(keep_in_memory(feature_batch, batch.targets))
    return concatenate(training_batches)


def batch_in_order(examples: Sequence[Example], n_words: int) -> Iterator[list[Example]]:
    """Divide examples into batches of at least so many words, in their order: folds are to have
    docs that follow each other. spaCy's `minibatch_by_words` puts a long doc into a later batch."""
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
    """Train the linear part of a hybrid model, if its `linear_epochs` say so, as `fit` does: on all
    docs, for new text, and once without each fold, for the docs of that fold.

    model (Model): The model, with its features collected and its first pass trained.
    objective (Objective): The objective of the component.
    tags (Tags): The tags of the chain.
    get_examples (GetExamples): Returns the training examples.
    """
    max_epochs = model.attrs.get("linear_epochs")
    if not max_epochs:
        return

    features, weights = linear_part(model)
    examples = [eg for eg in get_examples() if len(eg.predicted)]
    n_words = sum(len(eg.predicted) for eg in examples)
    folds, fold_of_text = divide_by_words(examples, n_words)
    words_of_batch = max(min(N_WORDS, n_words // LINEAR_STEPS), 1)
    batcher = partial(minibatch_by_words, size=words_of_batch)
    batches_of_folds = [
        batch_pieces(model, objective, tags, fold, batcher, random.shuffle) for fold in folds
    ]

    trained_rows: list[Floats2d] = []
    # The first training leaves out no fold, each other one its own.
    for number, left_out in enumerate([None, *range(LINEAR_FOLDS)], start=1):
        other_folds = [batches for i, batches in enumerate(batches_of_folds) if i != left_out]
        rows = _train_anew(
            weights,
            objective,
            concatenate(other_folds),
            max_epochs=max_epochs,
            dropout=features.dropout,
            desc=f"linear part {number}/{LINEAR_FOLDS + 1}",
        )
        trained_rows.append(rows)

    rows_of_all_docs = trained_rows[0]
    weights.restart(rows_of_all_docs)
    # A fold has weights of features and vectors alone. Transitions, start and end are those of all
    # docs.
    n_emission_rows = weights.n_features + weights.n_vector_rows
    emissions_of_folds = [rows[:n_emission_rows] for rows in trained_rows[1:]]
    weights.set_folds(emissions_of_folds, fold_of_text)


def divide_by_words(
    examples: Sequence[Example], n_words: int
) -> tuple[list[list[Example]], dict[int, int]]:
    """Divide examples into folds of about as many words, so that the examples of a fold follow each
    other but for copies of a text: these are in one fold.

    examples (Sequence[Example]): The examples, with tokens.
    n_words (int): The number of words of all of them.
    RETURNS (tuple[list[list[Example]], dict[int, int]]): The examples of each fold; and the fold of
        each text, by its hash.
    """
    folds: list[list[Example]] = [[] for _ in range(LINEAR_FOLDS)]
    fold_of_text: dict[int, int] = {}
    n_words_so_far = 0
    for eg in examples:
        n_words_so_far += len(eg.predicted)
        # A fold is a quarter of all words: the example goes where its last word is.
        fold_of_last_word = (n_words_so_far - 1) * LINEAR_FOLDS // n_words
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
    """Train weights from 0, and return their average as it would be saved, (V + M + K + 2, K): V
    rows of features, M of static vectors, K of transitions, the start and the end. Ctrl-C, which
    elsewhere ends training early, ends the program. The other arguments are those of `train`."""
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
        # Initialization needs the weights of all folds.
        raise KeyboardInterrupt
    return weights.slim(weights.averaged(optimizer))
