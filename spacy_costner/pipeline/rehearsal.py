"""Rehearsal: training that keeps the predictions of an earlier model.

Li & Hoiem (2016): Learning without forgetting, eq. 2, for paths in place of classes.
"""

import numpy
from thinc.types import Ints1d
from thinc.util import get_array_module

from .. import chain
from ..training.incorrect_spans import expand
from ..training.soft_targets import SoftTargets, divergence
from ..types import Constraints, Potentials, map_scores


def rehearsal_loss(
    teacher: Potentials, scores: Potentials, sequence_lengths: Ints1d, constraints: Constraints
) -> tuple[float, Potentials]:
    """The divergence of the paths of a model from those of an earlier one.

    teacher (Potentials): The scores of the earlier model, which may have fewer tags.
    scores (Potentials): The scores of the model, of the same docs.
    sequence_lengths (Ints1d): The lengths of the sequences that docs are cut into. Shape: (B,)
    constraints (Constraints): The possible paths.
    RETURNS (tuple[float, Potentials]): The divergence in nats, and its gradient with respect to the
        scores of the model.
    """
    # In float64: the divergence is a small difference of large numbers. The scores are of whole
    # docs, and the chain is of sequences.
    exact_teacher = _in_float64(teacher)._replace(lengths=sequence_lengths)
    exact_scores = _in_float64(scores)._replace(lengths=sequence_lengths)
    n_tags = scores.emissions.shape[1]
    targets = rehearsal_targets(exact_teacher, n_tags, constraints)
    result = divergence(exact_scores, targets)
    dtype = scores.emissions.dtype
    gradient = map_scores(lambda array: array.astype(dtype), result.gradient)
    return result.value, gradient._replace(lengths=scores.lengths)


def rehearsal_targets(teacher: Potentials, n_tags: int, constraints: Constraints) -> SoftTargets:
    """The distribution of an earlier model's paths as a target over K tags. The teacher may have
    fewer tags, K', if labels were added since. Then only paths of its tags are compared, so that
    the probabilities of the other paths are free."""
    xp = get_array_module(teacher.start)
    n_tokens, n_teacher_tags = teacher.emissions.shape

    # Added tags come last, so those of the teacher are the first ones. Shape: (K,)
    is_teacher_tag = xp.arange(n_tags) < n_teacher_tags
    possible = xp.ones((n_tokens, n_tags), dtype=bool)
    if constraints.emissions is not None:
        possible = xp.asarray(constraints.emissions)
    constraints = constraints._replace(emissions=possible & is_teacher_tag)
    # No path has the other tags, whatever their scores are: those of the teacher's last tag.
    teacher_tag_of = numpy.minimum(numpy.arange(n_tags), n_teacher_tags - 1)
    potentials = chain.constrain(expand(teacher, teacher_tag_of), constraints)

    sequence_weights = xp.ones(len(teacher.lengths))
    # The gradient of log Z is how often a path of the teacher is expected to use each potential.
    _, backprop = chain.log_partition(potentials)
    expected_uses = backprop(sequence_weights)
    entropies, _ = chain.entropy(potentials)
    return SoftTargets(expected_uses, float(entropies.sum()), sequence_weights, constraints)


def _in_float64(scores: Potentials) -> Potentials:
    """The same scores with all digits of float64."""
    return map_scores(lambda array: array.astype("float64"), scores)
