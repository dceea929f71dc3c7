"""Train the first of two passes of a linear CRF: see `FirstPass`."""

import random
from typing import TYPE_CHECKING, Callable, Dict, Iterable, Iterator, List, Sequence, Tuple

from spacy.training import Example
from thinc.api import Optimizer

from ..features import FeatureBatch
from ..losses import sequential
from ..ml import IN_SEVERAL, SparseWeights, first_pass_of, linear_part
from ..progress import progress
from .targets import Targets

if TYPE_CHECKING:
    from ..pipeline.component import CostSensitiveNER

Batch = Tuple[FeatureBatch, Targets]

N_FOLDS = 2
N_WORDS = 500
"""About the words of a step, or those of one doc if that has more."""

MIN_STEPS = 8
"""Steps of an epoch: those of a small corpus have fewer words."""


def train_first_pass(
    ner: "CostSensitiveNER", get_examples: Callable[[], Iterable[Example]]
) -> None:
    """Train the first pass, if the model has one, with the likelihood of whole paths: on all
    examples and, for the labels that the second pass is trained with, on all but each of the folds.
    These are blocks of docs that follow each other.

    ner (CostSensitiveNER): The component. Its model knows its features.
    get_examples (Callable[[], Iterable[Example]]): Returns the examples.
    """
    if (first_pass := first_pass_of(ner.model)) is None:
        return
    first_pass.tags = ner.chain_tags
    if first_pass.read_labels is not None:
        return
    features, _ = linear_part(ner.model)
    examples = [eg for eg in get_examples() if len(eg.predicted)]
    batches: List[Batch] = []
    n_words = sum(len(eg.predicted) for eg in examples)
    for batch in batch_in_order(examples, min(N_WORDS, n_words // MIN_STEPS)):
        seen = features.find([eg.predicted for eg in batch], is_train=True)
        batches.append((seen, ner.targets(batch)))
    fold_of: Dict[int, int] = {}
    parts: List[List[Batch]] = [[] for _ in range(N_FOLDS)]
    for i, (seen, targets) in enumerate(batches):
        fold = i * N_FOLDS // len(batches)
        parts[fold].append((seen, targets))
        assert seen.text_ids is not None
        for text_id in seen.text_ids.tolist():
            fold_of[text_id] = fold if fold_of.get(text_id, fold) == fold else IN_SEVERAL

    bar = progress(desc="first pass", unit="epoch", total=(N_FOLDS + 1) * first_pass.n_epochs)

    def fit(batches: List[Batch]) -> SparseWeights:
        weights = first_pass.make_weights()
        weights.allocate(len(features), len(ner.chain_tags))
        return train(weights, batches, first_pass.n_epochs, bar.update)

    first_pass.weights = fit(batches)
    others = [[b for j, part in enumerate(parts) if j != i for b in part] for i in range(N_FOLDS)]
    first_pass.set_folds([fit(rest) for rest in others], fold_of)
    bar.close()


def batch_in_order(examples: Sequence[Example], n_words: int) -> Iterator[List[Example]]:
    """Batches of examples, each until it has enough words. spaCy's `minibatch_by_words` puts docs
    into other batches, and so into other folds than the docs around them.

    examples (Sequence[Example]): The examples.
    n_words (int): The number of words.
    YIELDS (List[Example]): A batch.
    """
    begin = size = 0
    for i, eg in enumerate(examples, 1):
        size += len(eg.predicted)
        if size >= n_words or i == len(examples):
            yield list(examples[begin:i])
            begin, size = i, 0


def train(
    weights: SparseWeights,
    batches: Sequence[Batch],
    n_epochs: int,
    on_epoch: Callable[[], object] = lambda: None,
) -> SparseWeights:
    """Train weights from 0. They become their average over the steps: see `SparseWeights`.

    weights (SparseWeights): The weights.
    batches (Sequence[Batch]): The batches.
    n_epochs (int): How often each is used.
    on_epoch (Callable): Called after each epoch.
    RETURNS (SparseWeights): The same weights.
    """
    optimizer = Optimizer(0.0, use_averages=True)
    order, shuffle = list(batches), random.Random(0).shuffle
    for _ in range(n_epochs):
        shuffle(order)
        for seen, targets in order:
            scores = weights.potentials(seen.rows, seen.lengths)
            gradient = sequential(*targets.to_loss_inputs(scores)).gradient
            weights.add_gradient(seen.rows, targets.collapse(gradient))
            weights.finish_update(optimizer)
        on_epoch()
    with weights.use_params(optimizer.averages or {}):
        mean = weights.table.weights
    weights.rows[:] = mean
    return weights
