"""Weights for combining several models and annotators.

The posterior given text and answers is the product of a model's distribution and the probabilities
of the answers. This is exact if the model is calibrated, and if annotators make errors
independently of each other and of the model. However, models trained on few texts are
overconfident, and annotators may share the same sources. So the logarithm of each part is
multiplied by a weight w:

    p(y | x, o)  =  exp(sum_i w_i s_i(y)) / Z

Each part s_i is either the scores of a model, or the evidence log p(o_j | y) of an annotator. The
weights maximise the probability of checked texts that were not used to train the models or to
estimate the tables. A penalty keeps the weights close to 1 if there are few checked texts.

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
"""The penalty on a weight w is `PENALTY` log(w)^2, in nats."""


class CheckedBatch(NamedTuple):
    """Checked texts, and scores from models and annotators that were not fitted to them.

    parts (Sequence[Potentials]): The scores of models, and the evidence of annotators.
    is_gold (Array2d): True for tags that agree with the annotation. Shape: (N, K)
    """

    parts: Sequence[Potentials]
    is_gold: Array2d


def evidence_parts(batch: Batch, tables: Sequence[Floats3d]) -> list[Potentials]:
    """Compute the evidence of each annotator as scores of the chain's tags.

    batch (Batch): Texts with their answers.
    tables (Sequence[Floats3d]): The table of each annotator. Shape: (S, C, C)
    RETURNS (list[Potentials]): The evidence of each annotator.
    """
    observed = observed_tag_of(batch.tags)
    parts: list[Potentials] = []
    for answers, table in zip(batch.answers, tables):
        zeros = zero_scores(batch.potentials.lengths, len(batch.tags), "float64")
        parts.append(zeros._replace(emissions=log_evidence(answers, table)[:, observed]))
    return parts


def fit_weights(batches: Sequence[CheckedBatch]) -> Floats1d:
    """Fit the weights by maximising the penalised log-probability of the annotation of checked
    texts.

    batches (Sequence[CheckedBatch]): The texts, all with M parts. Must not be empty.
    RETURNS (Floats1d): The weight of each part. Shape: (M,)
    """
    in_float64: list[CheckedBatch] = []
    for batch in batches:
        parts = [map_scores(lambda scores: scores.astype("float64"), part) for part in batch.parts]
        in_float64.append(batch._replace(parts=parts))

    def evaluate(logs: Floats1d) -> tuple[float, Floats1d]:
        """Compute the penalised negative log-probability and its gradient, given the logarithms of
        the weights. Shapes: (M,)"""
        weights = numpy.exp(logs)
        value = PENALTY * float(logs @ logs)
        gradient = 2 * PENALTY * logs
        for batch in in_float64:
            log_probs, gradient_of_batch = log_probs_of_gold(batch, weights)
            value -= float(log_probs.sum())
            gradient -= gradient_of_batch * weights  # with respect to the logarithm of the weight
        return value, gradient

    start = numpy.zeros(len(batches[0].parts))
    logs = minimise_within_limits(evaluate, start, name="weights of models and annotators")
    return numpy.exp(logs)


def log_probs_of_gold(batch: CheckedBatch, weights: Floats1d) -> tuple[Floats1d, Floats1d]:
    """Compute the log-probability of the annotation of each sequence, in nats, and the gradient of
    their sum. The derivative with respect to a weight is the expected value of its part given the
    annotation, minus the expected value without it. Shapes: (M,) to (B,) and (M,)"""
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
    return log_z_of_gold - log_z, numpy.asarray(gradient)


def pool(parts: Sequence[Potentials], weights: Floats1d) -> Potentials:
    """Compute the weighted sum of the scores of all parts, in float64. Shape of the weights:
    (M,)"""
    n_tags = len(parts[0].start)
    total = zero_scores(parts[0].lengths, n_tags, "float64")
    for part, weight in zip(parts, weights):
        for sums, scores in zip(total[:4], part[:4]):
            sums += weight * scores  # modifies the array in `total` in place
    return total
