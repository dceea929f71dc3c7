"""Rehearsal: the divergence of a model from an earlier one, so that it doesn't forget."""

import numpy

from .. import chain
from ..types import Constraints, LossResult, Potentials


def divergence(scores: Potentials, teacher: Potentials, constraints: Constraints) -> LossResult:
    """The Kullback-Leibler divergence of a model's paths q from those of its teacher p.

        sum_y  p(y) log (p(y) / q(y))  =  log Z_q - log Z_p - E_p[s_q(y) - s_p(y)]

    The teacher may have fewer tags, K' of K, if labels were added to the model. Only the paths of
    these tags are compared, so that the probabilities of the other paths are free.
    The gradient is the difference of the marginals of tags and of transitions.

    scores (Potentials): The model's scores of a batch. Shapes: (N, K), (K, K), (K,), (K,)
    teacher (Potentials): The teacher's. Shapes: (N, K'), (K', K'), (K',), (K',)
    constraints (Constraints): The possible paths, of K tags or of K'.
    RETURNS (LossResult): The sum over the sequences, in nats, and its gradient with respect to
        the model's scores.

    Li & Hoiem (2016): Learning without forgetting, eq. 2, for paths in place of classes.
    """
    n_tags = len(teacher.start)
    shared, possible = _first_tags(scores, n_tags), _first_allowed(constraints, n_tags)
    known = chain.constrain(teacher, possible)
    log_z, backprop = chain.log_partition(chain.constrain(shared, possible))
    log_z_teacher, backprop_teacher = chain.log_partition(known)
    difference = [mine - its for mine, its in zip(shared[:4], teacher[:4])]
    gain, _ = chain.expectation(known, Potentials._make([*difference, teacher.lengths]))
    ones = numpy.ones_like(log_z)
    gradient = _zeros_like(scores)
    for total, here, there in zip(
        _first_tags(gradient, n_tags)[:4], backprop(ones)[:4], backprop_teacher(ones)[:4]
    ):
        total += here - there
    return LossResult(float((log_z - log_z_teacher - gain).sum()), gradient)


def _first_tags(scores: Potentials, n_tags: int) -> Potentials:
    """Views of the scores of the first tags."""
    return Potentials(
        emissions=scores.emissions[:, :n_tags],
        transitions=scores.transitions[:n_tags, :n_tags],
        start=scores.start[:n_tags],
        end=scores.end[:n_tags],
        lengths=scores.lengths,
    )


def _first_allowed(constraints: Constraints, n_tags: int) -> Constraints:
    """The constraints of the first tags."""
    columns = (..., slice(n_tags))
    transitions = constraints.transitions
    first = [None if allowed is None else allowed[columns] for allowed in constraints]
    return Constraints(*first)._replace(
        transitions=None if transitions is None else transitions[:n_tags, :n_tags]
    )


def _zeros_like(scores: Potentials) -> Potentials:
    return Potentials._make([*(array * 0 for array in scores[:4]), scores.lengths])
