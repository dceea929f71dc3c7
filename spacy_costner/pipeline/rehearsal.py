"""The rehearsal loss, which trains a model to preserve the predictions of an earlier model, the
*teacher*.

Li & Hoiem (2016): Learning without forgetting, eq. 2, for paths instead of classes. A path assigns
a tag to each token of a sequence.
"""

import numpy
from thinc.types import Ints1d
from thinc.util import get_array_module

from .. import chain
from ..training.incorrect_spans import copy_scores
from ..training.soft_targets import SoftTargets, divergence
from ..types import Constraints, Potentials, map_scores


def rehearsal_loss(
    teacher: Potentials, scores: Potentials, sequence_lengths: Ints1d, constraints: Constraints
) -> tuple[float, Potentials]:
    """Compute the Kullback-Leibler divergence between an earlier model and the current model,
    summed over sequences. If p and q are the distributions of the earlier and the current model
    over paths y, the divergence is

        sum_y p(y) (log p(y) - log q(y))

    teacher (Potentials): The scores of the earlier model for whole docs. If it has fewer tags, only
        paths with these tags are compared: see `rehearsal_targets`.
    scores (Potentials): The scores of the current model for the same docs.
    sequence_lengths (Ints1d): The number of tokens in each sequence of the chain. Shape: (B,)
    constraints (Constraints): The possible paths of the docs.
    RETURNS (tuple[float, Potentials]): The divergence in nats, and its gradient with respect to the
        scores of the current model.
    """
    # The divergence is a small difference between large numbers, which requires float64. It is
    # computed for the sequences of the chain instead of whole docs.
    exact_teacher = _in_float64(teacher)._replace(lengths=sequence_lengths)
    exact_scores = _in_float64(scores)._replace(lengths=sequence_lengths)
    n_tags = scores.emissions.shape[1]
    targets = rehearsal_targets(exact_teacher, n_tags, constraints)
    result = divergence(exact_scores, targets)
    dtype = scores.emissions.dtype
    gradient = map_scores(lambda array: array.astype(dtype), result.gradient)
    # The model expects a gradient with the lengths of whole docs.
    return result.value, gradient._replace(lengths=scores.lengths)


def rehearsal_targets(teacher: Potentials, n_tags: int, constraints: Constraints) -> SoftTargets:
    """Create soft targets for K = `n_tags` tags from the teacher's distribution over paths. The
    teacher's scores are in float64. The teacher has fewer tags if labels were added later. In that
    case, only paths with the teacher's tags are compared, and the probability of other paths is
    ignored."""
    xp = get_array_module(teacher.start)
    n_tokens, n_teacher_tags = teacher.emissions.shape

    # New labels are appended, so the teacher's tags come first. Shape: (K,)
    is_teacher_tag = xp.arange(n_tags) < n_teacher_tags
    is_possible = xp.ones((n_tokens, n_tags), dtype=bool)
    if constraints.emissions is not None:
        is_possible = xp.asarray(constraints.emissions)
    constraints = constraints._replace(emissions=is_possible & is_teacher_tag)
    # Pad the scores with the scores of the teacher's last tag. Their values don't matter, because
    # the constraints forbid the new tags.
    teacher_tag_of = numpy.minimum(numpy.arange(n_tags), n_teacher_tags - 1)
    potentials = chain.constrain(copy_scores(teacher, teacher_tag_of), constraints)

    sequence_weights = xp.ones(len(teacher.lengths))
    # The gradient of log Z with respect to a potential is the expected number of times that the
    # potential is used by a path, under the teacher's distribution.
    _, backprop = chain.log_partition(potentials)
    expected_uses = backprop(sequence_weights)
    entropies, _ = chain.entropy(potentials)
    return SoftTargets(expected_uses, float(entropies.sum()), sequence_weights, constraints)


def _in_float64(scores: Potentials) -> Potentials:
    """Convert scores to float64."""
    return map_scores(lambda array: array.astype("float64"), scores)
