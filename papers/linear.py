"""The linear CRF of the papers: made, trained and scored within a process, without files."""

import random
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy
import spacy
from spacy.language import Language
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Adam, fix_random_seed
from thinc.types import Floats2d, FloatsXd

from spacy_costner.component import CostSensitiveNER
from spacy_costner.fit import Minimum, Step, TotalLoss, Trained, minimise, read_batches, train
from spacy_costner.layers import linear_part
from spacy_costner.significance import Difference, bootstrap, difference

from .corpora import bare

Block = Mapping[str, Any]

SEQUENTIAL = {"@losses": "spacy_costner.Sequential.v1"}


class Linear(NamedTuple):
    """A linear CRF.

    nlp (Language): A pipeline of nothing else.
    ner (CostSensitiveNER): The component.
    """

    nlp: Language
    ner: CostSensitiveNER

    @property
    def rows(self) -> Floats2d:
        """Its weights, to read and to write; those of models made of the same docs and
        features mean the same."""
        return linear_part(self.ner.model)[1].rows


def make_linear(
    examples: Sequence[Example],
    *,
    features: Block,
    loss: Block = SEQUENTIAL,
    model: Optional[Block] = None,
    seed: int = 0,
    **settings: Any,
) -> Linear:
    """Make a linear CRF, with all weights 0.

    examples (Sequence[Example]): What its features and labels are found in. Their docs have
        to have the vocab of a pipeline, such as `spacy.blank("xx").vocab`: in a bare `Vocab`
        words have no lower case, no shape and no flags.
    features (Block), loss (Block): The blocks of the config.
    model (Optional[Block]): Other settings of the model, as of AdaGrad.
    seed (int): For all that is drawn by chance.
    **settings (Any): Other settings of the component, such as its decoding.
    RETURNS (Linear): The model.
    RAISES (ValueError): If the docs have a bare vocab.
    """
    vocab: Any = examples[0].reference.vocab
    if not vocab.lex_attr_getters:
        raise ValueError("make_linear: examples: expected the vocab of a pipeline, was: a bare one")
    fix_random_seed(seed)
    nlp = spacy.blank("xx", vocab=vocab)
    architecture = {"@architectures": "spacy_costner.SparseCRF.v1", **(model or {})}
    config: Dict[str, Any] = {
        "model": {**architecture, "features": features},
        "loss": loss,
        "scheme": "IOB2",
        **settings,
    }
    ner: Any = nlp.add_pipe("cost_sensitive_ner", name="ner", config=config)
    nlp.initialize(lambda: list(examples))
    return Linear(nlp, ner)


def fit_batch(
    linear: Linear,
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
    linear: Linear,
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
    with linear.nlp.use_params(optimizer.averages):
        average = linear.rows.copy()
    linear.rows[:] = average
    return trained


def shuffled_batches(examples: Sequence[Example], batch_size: int) -> List[List[Example]]:
    """Examples in batches, in an order drawn by chance."""
    shuffled = random.sample(list(examples), len(examples))
    return [shuffled[i : i + batch_size] for i in range(0, len(shuffled), batch_size)]


def answers(linear: Linear, docs: Sequence[Doc]) -> List[Example]:
    """Predict docs: examples of the answers and of the gold."""
    predicted = linear.nlp.pipe([bare(doc) for doc in docs], batch_size=256)
    return [Example(answer, doc) for answer, doc in zip(predicted, docs)]


def entity_scores(found: Sequence[Example]) -> Dict[str, float]:
    """Precision "p", recall "r" and "f" of entities, in per cent."""
    scores = get_ner_prf(found)
    return {name: 100 * scores[f"ents_{name}"] for name in "prf"}


def sentence_counts(found: Sequence[Example]) -> List[List[int]]:
    """For each sentence the entities of gold, of the answer, and of both: what a bootstrap
    needs."""
    counts = []
    for eg in found:
        gold, answer = (
            {(ent.start, ent.end, ent.label) for ent in doc.ents}
            for doc in (eg.reference, eg.predicted)
        )
        counts.append([len(gold), len(answer), len(gold & answer)])
    return counts


def f_score(counts: FloatsXd) -> FloatsXd:
    """F in per cent, 0 where there is nothing.

    counts (FloatsXd): Entities of gold, of the answer, and of both. Shape: (..., 3)
    RETURNS (FloatsXd): Shape: (...)
    """
    gold, answered, both = numpy.moveaxis(counts, -1, 0)
    return 200 * both / numpy.maximum(gold + answered, 1)


def paired_differences(
    counts: FloatsXd,
    score: Callable[[FloatsXd], FloatsXd],
    *,
    baseline: int = 0,
    n_samples: int = 10_000,
) -> List[Difference]:
    """How far systems are from one of them, in the mean score of their seeds: the paired
    bootstrap over sentences.

    counts (FloatsXd): What is counted of each system, with each seed, in each sentence. Shape:
        (M, S, D, C)
    score (Callable[[FloatsXd], FloatsXd]): Makes scores of counts that are added up over
        sentences. Shape: (..., C) to (...)
    baseline (int): The one that all are compared with.
    n_samples (int): Samples of sentences.
    RETURNS (List[Difference]): One for each system.
    """
    n_systems, n_seeds, n_docs, n_columns = counts.shape
    sums = bootstrap(numpy.moveaxis(counts, 2, 0).reshape(n_docs, -1), n_samples=n_samples)
    sampled = score(sums.reshape(-1, n_systems, n_seeds, n_columns)).mean(axis=-1)
    value = score(counts.sum(axis=2)).mean(axis=-1)
    return [
        difference(float(value[i] - value[baseline]), sampled[:, i] - sampled[:, baseline])
        for i in range(n_systems)
    ]
