"""How much to trust a model and each annotator, where both are combined.

The posterior given text and answers multiplies the distribution of the model and the probabilities
of the answers. That is exact if the model is calibrated, and annotators err independently of each
other and of the model. Models of few texts are too certain, and annotators may have learned from
the same source. So each logarithm gets a weight, and the weights are those that make checked texts
most probable which model and tables haven't seen:

    p(y | x, o)  =  exp(w_0 s(y) + sum_j w_j log p(o_j | y)) / Z

A penalty keeps the weights near 1, where few texts are checked. This is a logarithmic opinion pool
(Heskes, 1998; Smith, Cohn and Osborne, 2005, for CRFs).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from thinc.types import Array2d, Floats1d, Floats2d

from ... import chain
from ...training.noise_channel import Batch, log_evidence, observed_tag_of
from ...types import Potentials, map_scores, zero_scores
from ..calibration.temperature import minimise_within_limits

PENALTY = 2.0
"""The penalty of a weight w is `PENALTY` log(w)^2, in nats."""


class Weights(NamedTuple):
    """The weights of a model and of annotators.

    model (float): The weight of the scores of the model: 1 / temperature.
    annotators (tuple[float, ...]): The weight of the evidence of each annotator.
    """

    model: float
    annotators: tuple[float, ...]


class CheckedBatch(NamedTuple):
    """Checked texts, predicted by a model that hasn't learned from them.

    parts (Sequence[Potentials]): The scores of the model, and the evidence of each annotator as
        emissions, in float64.
    is_gold (Array2d): True for the tags that agree with the annotation. Shape: (N, K)
    """

    parts: Sequence[Potentials]
    is_gold: Array2d


def make_checked_batch(batch: Batch, tables: Sequence[Floats2d], is_gold: Array2d) -> CheckedBatch:
    """Prepare checked texts for `fit_weights`.

    batch (Batch): The texts, with their answers.
    tables (Sequence[Floats3d]): The table of each annotator. Shape: (S, C, C)
    is_gold (Array2d): True for the tags that agree with the annotation. Shape: (N, K)
    """
    parts = [map_scores(lambda scores: scores.astype("float64"), batch.potentials)]
    observed = observed_tag_of(batch.tags)
    lengths = batch.potentials.lengths
    for answers, table in zip(batch.answers, tables):
        evidence = zero_scores(lengths, len(batch.tags), "float64")
        parts.append(evidence._replace(emissions=log_evidence(answers, table)[:, observed]))
    return CheckedBatch(parts, is_gold)


def fit_weights(batches: Sequence[CheckedBatch]) -> Weights:
    """Find the weights with the highest log-probability of the annotation of checked texts.

    batches (Sequence[CheckedBatch]): The texts. At least one.
    RETURNS (Weights): The weights.
    """
    n_weights = len(batches[0].parts)

    def evaluate(logs: Floats1d) -> tuple[float, Floats1d]:
        """Compute the negative log-probability and its gradient for logarithms of weights.
        Shapes: (J + 1,)"""
        weights = numpy.exp(logs)
        value = PENALTY * float(logs @ logs)
        gradient = 2 * PENALTY * logs
        for batch in batches:
            log_prob, gradient_of_batch = log_prob_of_gold(batch, weights)
            value -= log_prob
            gradient -= gradient_of_batch * weights  # of the logarithm of a weight
        return value, gradient

    weights = numpy.exp(minimise_within_limits(evaluate, start=numpy.zeros(n_weights)))
    model, *annotators = weights.tolist()
    return Weights(model, tuple(annotators))


def log_prob_of_gold(batch: CheckedBatch, weights: Floats1d) -> tuple[float, Floats1d]:
    """Compute the log-probability of the annotation of texts, in nats, and its gradient. The
    derivative of a weight is the expected value of its part given the annotation, minus the
    expected value without it. Shapes of weights and gradient: (J + 1,)"""
    potentials = pool(batch.parts, weights)
    everything = chain.forward_backward(potentials)
    annotated = chain.forward_backward(chain.restrict(potentials, batch.is_gold))
    gradient: list[float] = []
    for part in batch.parts:
        expected, _ = everything.expectation(part)
        expected_given_gold, _ = annotated.expectation(part)
        gradient.append(float(expected_given_gold.sum() - expected.sum()))
    log_z, _ = everything.log_partition()
    log_z_of_gold, _ = annotated.log_partition()
    return float(log_z_of_gold.sum() - log_z.sum()), numpy.asarray(gradient)


def pool(parts: Sequence[Potentials], weights: Floats1d) -> Potentials:
    """Add up the parts, each times its weight."""
    total = map_scores(lambda scores: weights[0] * scores, parts[0])
    emissions = total.emissions
    for part, weight in zip(parts[1:], weights[1:]):
        emissions = emissions + weight * part.emissions
    return total._replace(emissions=emissions)
