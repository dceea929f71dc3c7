"""Hard constraints as masks: applied once, they bind every algorithm of the chain."""

from typing import Optional, Union

from thinc.types import Array2d, FloatsXd, Ints1d
from thinc.util import get_array_module

from ..types import FORBIDDEN, Constraints, Potentials

Allowed = Union[Ints1d, Array2d]
"""A set of paths, by the tags that they may have at each token: truth values, shape (N, K), or
the one tag, shape (N,)."""


def constrain(potentials: Potentials, constraints: Constraints) -> Potentials:
    """Forbid every step that the constraints don't allow.

    potentials (Potentials): The scores of a batch.
    constraints (Constraints): What is possible.
    RETURNS (Potentials): The same scores, minus infinity where a step is impossible.
        Its gradient is the gradient of the unconstrained scores too, as it is 0 on
        every forbidden step.
    """
    return potentials._replace(
        emissions=_mask(potentials.emissions, constraints.emissions),
        transitions=_mask(potentials.transitions, constraints.transitions),
        start=_mask(potentials.start, constraints.start),
        end=_mask(potentials.end, constraints.end),
    )


def to_mask(allowed: Allowed, n_tags: int) -> Array2d:
    """Which tags are allowed at each token. Shape: (N, K)"""
    if allowed.ndim == 2:
        return allowed
    return allowed[:, None] == get_array_module(allowed).arange(n_tags)


def restrict(potentials: Potentials, allowed: Optional[Array2d]) -> Potentials:
    """Forbid every tag that a token may not have.

    potentials (Potentials): The scores of a batch.
    allowed (Optional[Array2d]): True where a tag is possible. Shape: (N, K)
    RETURNS (Potentials): The scores of the paths that remain.
    """
    return constrain(potentials, Constraints(emissions=allowed))


def _mask(scores: FloatsXd, possible: Optional[Array2d]) -> FloatsXd:
    if possible is None:
        return scores
    xp = get_array_module(scores)
    return xp.where(xp.asarray(possible), scores, xp.asarray(FORBIDDEN, dtype=scores.dtype))
