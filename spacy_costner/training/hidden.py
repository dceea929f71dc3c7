"""Training of the hidden layer of a linear model, after the training of its weights.

On few words, the weights and the layer would both learn the same things if they were trained
together. So the weights are trained first, and then the layer alone, to correct their scores.
"""

import random
from collections.abc import Iterable, Sequence

from spacy.training import Example
from spacy.training.batchers import minibatch_by_words
from thinc.api import Model, Optimizer

from ..ml import HiddenLayerAlone, hidden_layer_of, linear_part
from ..tags import Tags
from ..types import Progress
from .objective import Objective
from .online import Batch, TrainingResult, read_batches, train

MOST_WORDS_ALONE = 100_000
"""Up to this number of words the layer is trained alone. With more words, weights and layer are
trained together: that is better with all sentences of GENIA, and not with 1,000 of them."""

N_EPOCHS = 20
"""How often the training of the layer goes through the examples. Chosen on development data, as is
`HIDDEN_WORDS_OF_STEP`: see docs/linear.md."""

HIDDEN_WORDS_OF_STEP = 100
"""The number of words of a step."""


def are_few_words(examples: Iterable[Example]) -> bool:
    """Whether examples have so few words that the hidden layer is trained alone, after the
    weights."""
    return sum(len(eg.predicted) for eg in examples) <= MOST_WORDS_ALONE


def train_hidden_layer(
    model: Model,
    objective: Objective,
    tags: Tags,
    examples: Sequence[Example],
    optimizer: Optimizer,
    progress: Progress,
) -> TrainingResult:
    """Train the hidden layer of a linear model. The weights of the model, which are trained
    already, stay as they are.

    model (Model): A linear model with trained weights and a hidden layer.
    objective (Objective): The training objective.
    tags (Tags): The tags of the chain.
    examples (Sequence[Example]): The training examples.
    optimizer (Optimizer): The optimizer. If it keeps averages, the layer gets the averaged weights
        in the end.
    progress (Progress): The progress of training so far, which is the training of the weights.
    RETURNS (TrainingResult): How training ended.
    RAISES (ValueError): If examples can't be learned (see `Objective.targets`), or a score is not
        finite.
    """
    _, weights = linear_part(model)
    layer = hidden_layer_of(model)
    assert layer is not None

    def add_scores(batch: Batch) -> Batch:
        """Compute the scores of a batch by the weights, and keep them in the batch. They are the
        same in all epochs."""
        features, targets = batch.read()
        scored_features = features._replace(linear_scores=weights.potentials(features))
        return batch._replace(read=lambda: (scored_features, targets))

    def add_scores_to_all(batches: list[Batch]) -> list[Batch]:
        return [add_scores(batch) for batch in batches]

    shuffled = random.sample(examples, len(examples))  # a copy in random order
    batches = read_batches(
        model, objective, tags, minibatch_by_words(shuffled, HIDDEN_WORDS_OF_STEP)
    )
    trained = train(
        HiddenLayerAlone(layer),
        objective,
        batches.map(add_scores_to_all),
        optimizer,
        max_epochs=N_EPOCHS,
        progress=progress,
        desc="hidden layer",
    )
    # `restart` replaces the weights of the last step with their averages.
    layer.restart(layer.averaged(optimizer))
    return trained
