"""Hard constraints as masks on the potentials, which every algorithm of the chain respects."""

from typing import TypeAlias

from thinc.types import Array2d, FloatsXd, Ints1d
from thinc.util import get_array_module

from ..types import FORBIDDEN, Constraints, Potentials

Allowed: TypeAlias = Ints1d | Array2d
"""A set of paths, given by the tags allowed at each token: a mask, shape (N, K), or one tag a
token, shape (N,)."""


def constrain(potentials: Potentials, constraints: Constraints) -> Potentials:
    """Set the potentials of forbidden tags and transitions to minus infinity, so that no path has
    them. The gradient with respect to the result is also the gradient with respect to the given
    potentials: it is 0 on everything forbidden."""
    return Potentials(
        emissions=_mask(potentials.emissions, constraints.emissions),
        transitions=_mask(potentials.transitions, constraints.transitions),
        start=_mask(potentials.start, constraints.start),
        end=_mask(potentials.end, constraints.end),
        lengths=potentials.lengths,
    )


def to_mask(allowed: Allowed, n_tags: int) -> Array2d:
    """Convert a set of paths to the mask of the tags allowed at each token. Shape: (N, K)"""
    if allowed.ndim == 2:  # already a mask
        return allowed
    tags = get_array_module(allowed).arange(n_tags)
    return allowed[:, None] == tags


def restrict(potentials: Potentials, allowed: Array2d | None) -> Potentials:
    """Forbid tags at single tokens.

    potentials (Potentials): The potentials.
    allowed (Array2d | None): Whether each tag is allowed at each token. None: all are. Shape:
        (N, K)
    """
    return constrain(potentials, Constraints(emissions=allowed))


def _mask(scores: FloatsXd, is_allowed: Array2d | None) -> FloatsXd:
    """Copy scores, with minus infinity where a mask of the same shape is False. Without a mask the
    scores are returned as they are."""
    if is_allowed is None:
        return scores
    xp = get_array_module(scores)
    # Minus infinity has the type of the scores, so that float32 stays float32.
    forbidden = scores.dtype.type(FORBIDDEN)
    return xp.where(xp.asarray(is_allowed), scores, forbidden)
