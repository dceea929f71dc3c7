"""How much to trust each model and each annotator, where several are combined.

The posterior given text and answers multiplies the distribution of a model and the probabilities of
the answers. That is exact if the model is calibrated, and annotators err independently of each
other and of the model. Models of few texts are too certain, and annotators may have learned from
the same source. So the logarithm of each part gets a weight w:

    p(y | x, o)  =  exp(sum_i w_i s_i(y)) / Z

A part s_i is the scores of a model, or the evidence log p(o_j | y) of an annotator. The weights are
those with which checked texts are most probable that models and tables haven't seen. A penalty
keeps them near 1, where few texts are checked.

This is a logarithmic opinion pool: Smith, Cohn and Osborne (2005), Logarithmic opinion pools for
conditional random fields.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from thinc.types import Array2d, Floats1d, Floats3d

from ... import chain
from ...training.noise_channel import Batch, log_evidence, observed_tag_of
from ...types import Potentials, map_scores, zero_scores
from ..calibration.temperature import minimise_within_limits

PENALTY = 2.0
"""The penalty of a weight w is `PENALTY` log(w)^2, in nats."""


class CheckedBatch(NamedTuple):
    """Checked texts, and parts that haven't learned from them.

    parts (Sequence[Potentials]): The scores of models, and the evidence of annotators.
    is_gold (Array2d): True for the tags that agree with the annotation. Shape: (N, K)
    """

    parts: Sequence[Potentials]
    is_gold: Array2d


def evidence_parts(batch: Batch, tables: Sequence[Floats3d]) -> list[Potentials]:
    """Compute the evidence of each annotator, as scores of the tags of the chain.

    batch (Batch): Texts with their answers.
    tables (Sequence[Floats3d]): The table of each annotator. Shape: (S, C, C)
    """
    observed = observed_tag_of(batch.tags)
    parts: list[Potentials] = []
    for answers, table in zip(batch.answers, tables):
        zeros = zero_scores(batch.potentials.lengths, len(batch.tags), "float64")
        parts.append(zeros._replace(emissions=log_evidence(answers, table)[:, observed]))
    return parts


def fit_weights(batches: Sequence[CheckedBatch]) -> Floats1d:
    """Find the weights with the highest log-probability of the annotation of checked texts.

    batches (Sequence[CheckedBatch]): The texts, all with M parts. At least one.
    RETURNS (Floats1d): The weight of each part. Shape: (M,)
    """
    in_float64: list[CheckedBatch] = []
    for batch in batches:
        parts = [map_scores(lambda scores: scores.astype("float64"), part) for part in batch.parts]
        in_float64.append(batch._replace(parts=parts))

    def evaluate(logs: Floats1d) -> tuple[float, Floats1d]:
        """Compute the negative log-probability and its gradient for the logarithms of weights.
        Shapes: (M,)"""
        weights = numpy.exp(logs)
        value = PENALTY * float(logs @ logs)
        gradient = 2 * PENALTY * logs
        for batch in in_float64:
            log_prob, gradient_of_batch = log_prob_of_gold(batch, weights)
            value -= log_prob
            gradient -= gradient_of_batch * weights  # of the logarithm of a weight
        return value, gradient

    start = numpy.zeros(len(batches[0].parts))
    logs = minimise_within_limits(evaluate, start, name="weights of models and annotators")
    return numpy.exp(logs)


def log_prob_of_gold(batch: CheckedBatch, weights: Floats1d) -> tuple[float, Floats1d]:
    """Compute the log-probability of the annotation of texts, in nats, and its gradient. The
    derivative of a weight is the expected value of its part given the annotation, minus the
    expected value without it. Shapes of weights and gradient: (M,)"""
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
    """Add up the scores of parts, each times its weight, in float64. Shape of the weights: (M,)"""
    n_tags = len(parts[0].start)
    total = zero_scores(parts[0].lengths, n_tags, "float64")
    for part, weight in zip(parts, weights):
        for sums, scores in zip(total[:4], part[:4]):
            sums += weight * scores  # this changes the array in `total`
    return total
