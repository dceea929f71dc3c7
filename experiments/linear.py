"""The linear CRF of the papers, and the two ways of training it."""

import random
from typing import Callable, List, Optional, Sequence

from spacy.training import Example
from thinc.api import Adam

from spacy_costner.fit import Minimum, Step, TotalLoss, Trained, minimise, read_batches, train

from .tagger import SEQUENTIAL, Block, Tagger, make_tagger


def make_linear(
    examples: Sequence[Example],
    *,
    features: Block,
    loss: Block = SEQUENTIAL,
    model: Optional[Block] = None,
    seed: int = 0,
    scheme: str = "IOB2",
) -> Tagger:
    """Make a linear CRF, with all weights 0.

    examples (Sequence[Example]): What its features and labels are found in: see `make_tagger`.
    features (Block), loss (Block): The blocks of the config.
    model (Optional[Block]): Other settings of the model, as of AdaGrad.
    seed (int): For all that is drawn by chance.
    scheme (str): The tag scheme.
    RETURNS (Tagger): The model.
    """
    architecture = {"@architectures": "spacy_costner.SparseCRF.v1", **(model or {})}
    block = {**architecture, "features": features}
    return make_tagger(examples, model=block, loss=loss, seed=seed, scheme=scheme)


def fit_batch(
    linear: Tagger,
    examples: Sequence[Example],
    *,
    c2: float,
    max_iter: Optional[int] = None,
    tolerance: float = 1e-5,
) -> Minimum:
    """Train by L-BFGS from the weights that it has: see `spacy_costner.fit.minimise`. A Gaussian
    prior of variance v is c2 = 1 / (2 v)."""
    total = TotalLoss(linear.ner, examples, c2=c2)
    minimum = minimise(total, total.read_weights(), max_iter=max_iter, tolerance=tolerance)
    total.write_weights(minimum.vector)
    return minimum


def fit_online(
    linear: Tagger,
    examples: Sequence[Example],
    *,
    epochs: int,
    batch_size: int = 16,
    on_epoch: Optional[Callable[[], None]] = None,
) -> Trained:
    """Train by AdaGrad in small batches; the weights are their averages then. They are so, too,
    where `on_epoch` is called, after each epoch."""
    batches = shuffled_batches(examples, batch_size)
    optimizer = Adam(use_averages=True)

    def report(step: Step) -> None:
        if on_epoch is not None:
            with linear.nlp.use_params(optimizer.averages):
                on_epoch()

    trained = train(
        linear.ner,
        read_batches(linear.ner, batches),
        optimizer,
        max_epochs=epochs,
        on_epoch=report,
    )
    linear.write_weights(linear.read_weights(optimizer))
    return trained


def shuffled_batches(examples: Sequence[Example], batch_size: int) -> List[List[Example]]:
    """Examples in batches, in an order drawn by chance."""
    shuffled = random.sample(list(examples), len(examples))
    return [shuffled[i : i + batch_size] for i in range(0, len(shuffled), batch_size)]
