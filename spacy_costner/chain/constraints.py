"""Hard constraints as masks on the potentials, which every algorithm of the chain respects."""

from typing import TypeAlias

from thinc.types import Array2d, FloatsXd, Ints1d
from thinc.util import get_array_module

from ..types import FORBIDDEN, Constraints, Potentials

Allowed: TypeAlias = Ints1d | Array2d
"""A set of paths, given by the tags allowed at each token: a mask, shape (N, K), or one tag a
token, shape (N,)."""


def constrain(potentials: Potentials, constraints: Constraints) -> Potentials:
    """Set the potentials of forbidden tags and transitions to minus infinity. The gradient of
    the result is that of the unconstrained potentials too, as it is 0 on everything forbidden."""
    return Potentials._make([*map(_mask, potentials[:4], constraints), potentials.lengths])


def to_mask(allowed: Allowed, n_tags: int) -> Array2d:
    """The mask of the tags allowed at each token. Shape: (N, K)"""
    if allowed.ndim == 2:
        return allowed
    return allowed[:, None] == get_array_module(allowed).arange(n_tags)


def restrict(potentials: Potentials, allowed: Array2d | None) -> Potentials:
    """Forbid the tags that are not allowed at a token: False in a mask, (N, K)."""
    return constrain(potentials, Constraints(emissions=allowed))


def _mask(scores: FloatsXd, possible: Array2d | None) -> FloatsXd:
    if possible is None:
        return scores
    xp = get_array_module(scores)
    return xp.where(xp.asarray(possible), scores, xp.asarray(FORBIDDEN, dtype=scores.dtype))
