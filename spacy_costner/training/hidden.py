"""Training of the hidden layer of a linear model, after its weights have been trained.

On small corpora, the weights and the layer would learn the same things if they were trained
together. The weights are therefore trained first, and the layer is then trained separately to
correct their scores.
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
"""The maximum number of words for which the layer is trained separately. With more words, the
weights and the layer are trained together, which is better on all sentences of GENIA, but not on
1,000 of them."""

N_EPOCHS = 20
"""The number of epochs for training the layer. Like `HIDDEN_WORDS_OF_STEP`, it was chosen on
development data: see docs/linear.md."""

HIDDEN_WORDS_OF_STEP = 100
"""The number of words per step."""


def are_few_words(examples: Iterable[Example]) -> bool:
    """Check whether the examples have so few words that the hidden layer is trained separately,
    after the weights."""
    return sum(len(eg.predicted) for eg in examples) <= MOST_WORDS_ALONE


def train_hidden_layer(
    model: Model,
    objective: Objective,
    tags: Tags,
    examples: Sequence[Example],
    optimizer: Optimizer,
    progress: Progress,
) -> TrainingResult:
    """Train the hidden layer of a linear model. The other weights of the model are already trained
    and don't change.

    model (Model): A linear model with trained weights and a hidden layer.
    objective (Objective): The training objective.
    tags (Tags): The tags of the chain.
    examples (Sequence[Example]): The training examples.
    optimizer (Optimizer): The optimizer. If it keeps averages, the averaged weights are used for
        the layer after training.
    progress (Progress): The training progress so far, from training the other weights.
    RETURNS (TrainingResult): The result of training.
    RAISES (ValueError): If an example is invalid (see `Objective.targets`), or if a score is not
        finite.
    """
    _, weights = linear_part(model)
    layer = hidden_layer_of(model)
    assert layer is not None

    def add_scores(batch: Batch) -> Batch:
        """Compute the linear scores of a batch, and store them in the batch, because they are the
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
    # Replace the weights of the last step with their averages.
    layer.restart(layer.averaged(optimizer))
    return trained
