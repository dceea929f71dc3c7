"""Training that takes place during initialization: the first of two passes, and the linear part of
a hybrid model.

The first pass is a linear model whose predicted labels are features of the second pass. The rest of
the model is trained on the predictions of these parts for the training docs. These predictions
would be too good if the parts had been trained on the same docs. The docs are therefore divided
into folds. One set of weights is trained on all docs and used for new text. In addition, one set of
weights per fold is trained on the docs of all other folds and used to score the docs of that fold.

Each fold consists of consecutive texts of the corpus. Docs with equal texts (see `equal_texts`) are
assigned to the same fold, so that no doc is scored by weights that were trained on a copy of it.
Each text counts only once when the corpus is divided, so that folds have about the same size even
if all texts recur. Docs with soft targets and unannotated docs are divided separately, so that each
fold contains its share of gold docs. The label memory of the first pass (see `features.memory`) is
computed separately for each fold.

In shapes, V is the number of features, M the number of weight rows for static vectors (see
`ml.weights`), and K the number of tags.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy
from spacy.tokens import Doc
from spacy.training import Example
from spacy.training.batchers import minibatch_by_words
from thinc.api import Model, Optimizer
from thinc.types import Floats2d

from ..annotation.equal_texts import text_id
from ..annotation.settings import Annotation
from ..features import Features
from ..losses import sequential
from ..ml import SparseWeights, first_pass_of, linear_part
from ..tags import Tags
from ..types import Loss
from .objective import Objective
from .online import INTERRUPTED, Batches, keep_in_memory, train
from .pieces import batch_pieces
from .segmentations import Segmentations, concatenate
from .soft_targets import has_soft_targets
from .targets import Targets

WORDS_OF_STEP = 500
"""The approximate number of words per step. A step with a long doc has more words."""

N_FIRST_PASS_FOLDS = 2
"""The number of folds for the first pass."""

LEAST_FIRST_PASS_STEPS = 8
"""The approximate minimum number of steps per epoch of the first pass. In a small corpus, steps
have fewer words than `WORDS_OF_STEP`."""

N_LINEAR_FOLDS = 4
"""The number of folds for the linear part of a hybrid model."""

LEAST_LINEAR_STEPS = 100
"""The approximate minimum number of steps per epoch of the linear part, as in the configs created
by `init`. In a small corpus, steps have fewer words than `WORDS_OF_STEP`."""

GetExamples = Callable[[], Iterable[Example]]
"""A function that returns the training examples, like the argument of `nlp.initialize`."""


@dataclass(frozen=True)
class FoldBatch:
    """A batch of examples from the same fold, for one training step of the first pass.

    examples (list[Example]): The examples, all from the same fold.
    targets (Segmentations[Targets]): Their targets.
    """

    examples: list[Example]
    targets: Segmentations[Targets]


def train_first_pass(
    model: Model, objective: Objective, tags: Tags, get_examples: GetExamples
) -> None:
    """Train the first pass, if the model has one. It is trained on all docs, for new text, and once
    per fold on the docs of all other folds, for the docs of that fold. The loss is the likelihood
    of the gold path, even if the component uses another loss.

    model (Model): The model, with its feature vocabulary built.
    objective (Objective): The component's objective, used to read the annotation of docs.
    tags (Tags): The tags of the chain.
    get_examples (GetExamples): Returns the training examples.
    RAISES (ValueError): If an example is invalid (see `Objective.targets`), or if a score is not
        finite.
    """
    first_pass = first_pass_of(model)
    if first_pass is None:
        return
    first_pass.tags = tags
    if first_pass.read_labels is not None:
        return  # its labels are read from docs, so there are no weights to train

    features, _ = linear_part(model)
    examples = [eg for eg in get_examples() if len(eg.predicted)]
    folds, fold_of_text = divide_for_first_pass(objective, tags, examples)
    first_pass.weights.allocate(len(features), len(tags), features.n_vector_rows)
    # The targets are created by `objective`. `likelihood` only computes their loss, so it needs no
    # other settings.
    likelihood = Objective(objective.name, objective.strings, Loss(sequential))

    # The features and weights of each training run. The features differ in their label memory.
    features_and_rows: list[tuple[Features, Floats2d]] = []
    # The first run uses all folds. Each of the other runs leaves out one fold.
    for number, left_out_fold in enumerate([None, *range(N_FIRST_PASS_FOLDS)], start=1):
        other_folds = [batches for i, batches in enumerate(folds) if i != left_out_fold]
        batches = list(chain.from_iterable(other_folds))
        recounted_features = features
        if left_out_fold is not None:
            recounted_features = recount_features(features, objective, tags, batches)
        rows = _train_from_zero(
            first_pass.weights,
            likelihood,
            find_features_of_batches(recounted_features, batches),
            max_epochs=first_pass.n_epochs,
            # Don't use the global random generator, so that the first pass doesn't affect the order
            # of examples when training the rest of the model.
            shuffle=random.Random(0).shuffle,
            desc=f"first pass {number}/{N_FIRST_PASS_FOLDS + 1}",
        )
        features_and_rows.append((recounted_features, rows))

    # Each run overwrites the weights. Restore the weights of the first run, for new text.
    _, rows_of_all_docs = features_and_rows[0]
    first_pass.weights.restart(rows_of_all_docs)
    first_pass.set_folds(features_and_rows[1:], fold_of_text)


def divide_for_first_pass(
    objective: Objective, tags: Tags, examples: Sequence[Example]
) -> tuple[list[list[FoldBatch]], dict[int, int]]:
    """Divide examples into batches, and the batches into folds for the first pass. Examples with
    equal texts are assigned to the same fold, so batches with texts from both folds are split.
    Returns the batches of each fold, and the fold of each text, keyed by the hash of the text.

    RAISES (ValueError): See `Objective.targets`.
    """
    fold_of_text = find_first_pass_folds(examples, objective.annotation)
    folds: list[list[FoldBatch]] = [[] for _ in range(N_FIRST_PASS_FOLDS)]
    for batch in batch_in_order(examples, find_batch_size(examples)):
        examples_of_fold: dict[int, list[Example]] = {}
        for eg in batch:
            fold = fold_of_text[text_id(eg.predicted)]
            examples_of_fold.setdefault(fold, []).append(eg)

        for fold in sorted(examples_of_fold):
            targets = objective.targets(examples_of_fold[fold], tags)
            folds[fold].append(FoldBatch(examples_of_fold[fold], targets))
    return folds, fold_of_text


def find_first_pass_folds(examples: Sequence[Example], annotation: Annotation) -> dict[int, int]:
    """Assign each text to a fold for the first pass. Batches are created from the first doc with
    each text, and divided into folds, with gold docs in each fold: see `separate_by_targets`.
    Returns the folds, keyed by the hash of the text."""
    fold_of_text: dict[int, int] = {}
    for group in separate_by_targets(select_first(examples), annotation):
        batches = list(batch_in_order(group, find_batch_size(group)))
        for i, batch in enumerate(batches):
            # Assign consecutive batches to the same fold: 0, 0, 0, ..., 1, 1, 1, ...
            fold = i * N_FIRST_PASS_FOLDS // len(batches)
            for eg in batch:
                fold_of_text[text_id(eg.predicted)] = fold
    return fold_of_text


def separate_by_targets(examples: Iterable[Example], annotation: Annotation) -> list[list[Example]]:
    """Separate the examples with gold annotation, with soft targets, and with neither. Each group
    is divided into folds separately. A corpus may contain all gold docs first, so a single fold of
    consecutive docs could contain all of the gold. The weights for that fold would be trained
    without gold. `annotation` defines where the gold annotation is stored in docs."""
    gold: list[Example] = []
    soft: list[Example] = []
    unannotated: list[Example] = []
    for eg in examples:
        if has_soft_targets(eg):
            soft.append(eg)
        elif annotation.is_annotated(eg.reference):
            gold.append(eg)
        else:
            unannotated.append(eg)
    return [gold, soft, unannotated]


def select_first(examples: Iterable[Example]) -> list[Example]:
    """Select the first example of each text."""
    first_examples: dict[int, Example] = {}
    for eg in examples:
        first_examples.setdefault(text_id(eg.predicted), eg)
    return list(first_examples.values())


def find_batch_size(examples: Iterable[Example]) -> int:
    """Return the minimum number of words in a batch of the first pass. In a small corpus, batches
    are smaller, to ensure a minimum number of batches."""
    n_words = sum(len(eg.predicted) for eg in examples)
    return min(WORDS_OF_STEP, n_words // LEAST_FIRST_PASS_STEPS)


def recount_features(
    features: Features, objective: Objective, tags: Tags, batches: Sequence[FoldBatch]
) -> Features:
    """Create features with a label memory that is computed from these batches only, because it must
    not contain the labels of other docs."""
    docs: list[Doc] = []
    for batch in batches:
        for eg in batch.examples:
            docs.append(objective.annotation.as_entities(eg, tags.labels).reference)
    return features.recount(docs)


def find_features_of_batches(features: Features, batches: Sequence[FoldBatch]) -> Batches:
    """Extract the features of batches, and create training batches from them."""
    training_batches: list[Batches] = []
    for batch in batches:
        docs = [eg.predicted for eg in batch.examples]
        feature_batch = features.find(docs, is_train=True)
        training_batches.append(keep_in_memory(feature_batch, batch.targets))
    return concatenate(training_batches)


def batch_in_order(examples: Sequence[Example], n_words: int) -> Iterator[list[Example]]:
    """Divide examples into batches of at least `n_words` words, without changing their order.
    (spaCy's `minibatch_by_words` may move a long doc to a later batch, but the docs of a fold
    should be consecutive.)"""
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
    """Train the linear part of a hybrid model. It is trained on all docs, for new text, and once
    per fold on the docs of all other folds, for the docs of that fold. The model's setting
    `linear_epochs` determines the number of epochs. Nothing is trained if it is 0 or if the model
    isn't a hybrid.

    model (Model): The model, with its feature vocabulary built and its first pass trained.
    objective (Objective): The objective of the component.
    tags (Tags): The tags of the chain.
    get_examples (GetExamples): Returns the training examples.
    RAISES (ValueError): If an example is invalid (see `Objective.targets`), or if a score is not
        finite.
    """
    max_epochs = model.attrs.get("linear_epochs")
    if not max_epochs:
        return

    features, weights = linear_part(model)
    examples = [eg for eg in get_examples() if len(eg.predicted)]
    n_words = sum(len(eg.predicted) for eg in examples)
    folds, fold_of_text = divide_by_words(examples, objective.annotation)
    # In a small corpus, batches are smaller, so that there are enough of them.
    words_of_batch = min(WORDS_OF_STEP, n_words // LEAST_LINEAR_STEPS)
    words_of_batch = max(words_of_batch, 1)  # the quotient may be 0 if there are few words
    batcher = partial(minibatch_by_words, size=words_of_batch)
    # Cut long docs into pieces, so that batches have about the same number of words: see `pieces`.
    batches_of_folds = [
        batch_pieces(model, objective, tags, fold, batcher, random.shuffle) for fold in folds
    ]

    trained_rows: list[Floats2d] = []
    # The first run uses all folds. Each of the other runs leaves out one fold.
    for number, left_out_fold in enumerate([None, *range(N_LINEAR_FOLDS)], start=1):
        other_folds = [batches for i, batches in enumerate(batches_of_folds) if i != left_out_fold]
        rows = _train_from_zero(
            weights,
            objective,
            concatenate(other_folds),
            max_epochs=max_epochs,
            dropout=features.dropout,
            desc=f"linear part {number}/{N_LINEAR_FOLDS + 1}",
        )
        trained_rows.append(rows)

    # Each run overwrites the weights. Restore the weights of the first run, for new text.
    rows_of_all_docs = trained_rows[0]
    weights.restart(rows_of_all_docs)
    # For each fold, keep the weights of features and vectors. All folds use the transition, start
    # and end weights that were trained on all docs.
    n_emission_rows = weights.n_features + weights.n_vector_rows
    emissions_of_folds = [rows[:n_emission_rows] for rows in trained_rows[1:]]
    weights.set_folds(emissions_of_folds, fold_of_text)


def divide_by_words(
    examples: Sequence[Example], annotation: Annotation
) -> tuple[list[list[Example]], dict[int, int]]:
    """Divide examples into folds for the linear part. The distinct texts in each fold have about
    the same total number of words. Examples with equal texts are assigned to the same fold, and
    each fold contains gold docs: see `separate_by_targets`. Returns the examples of each fold, and
    the fold of each text, keyed by the hash of the text."""
    fold_of_text: dict[int, int] = {}
    for group in separate_by_targets(select_first(examples), annotation):
        n_words = sum(len(eg.predicted) for eg in group)
        n_words_so_far = 0
        for eg in group:
            n_words_so_far += len(eg.predicted)
            # Fold 0 contains the first quarter of all words, and so on. A text is assigned to the
            # fold that contains its last word.
            last_word = n_words_so_far - 1
            fold_of_text[text_id(eg.predicted)] = last_word * N_LINEAR_FOLDS // n_words

    folds: list[list[Example]] = [[] for _ in range(N_LINEAR_FOLDS)]
    for eg in examples:
        folds[fold_of_text[text_id(eg.predicted)]].append(eg)
    return folds, fold_of_text


def _train_from_zero(
    weights: SparseWeights,
    objective: Objective,
    batches: Batches,
    *,
    max_epochs: int,
    dropout: float = 0.0,
    shuffle: Callable[[list], None] = random.shuffle,
    desc: str,
) -> Floats2d:
    """Train weights from scratch and return their average, rounded as in a saved model (see
    `SparseWeights.prune_and_quantize`). For the other arguments, see `train`.
    Shape: (V + M + K + 2, K)

    RAISES (ValueError): If a score is not finite.
    RAISES (KeyboardInterrupt): If training is interrupted. Unlike `train`, this function can't
        return early, because initialization needs the weights of all folds.
    """
    weights.restart(numpy.zeros_like(weights.rows))
    objective.forget()  # some losses keep counts of earlier batches
    # The optimizer is only used to enable averages. Sparse weights have a separate learning rate.
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
    return weights.prune_and_quantize(weights.averaged(optimizer))
