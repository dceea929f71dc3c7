"""Hard constraints: tags and transitions that no path may have. They are masks, which set
potentials to minus infinity, so that all algorithms of the chain respect them.

In shapes, N is the number of tokens, and K of tags.
"""

from typing import TypeAlias

from thinc.types import Array2d, FloatsXd, Ints1d
from thinc.util import get_array_module

from ..types import FORBIDDEN, Constraints, Potentials

Allowed: TypeAlias = Ints1d | Array2d
"""The tags that are allowed at each token. It is either a mask, (N, K), which is True for allowed
tags; or the only allowed tag of each token, (N,)."""


def constrain(potentials: Potentials, constraints: Constraints) -> Potentials:
    """Set the potentials of forbidden tags and transitions to minus infinity, so that no path has
    them.

    potentials (Potentials): The scores of the batch.
    constraints (Constraints): The allowed tags and transitions. A field that is None allows all.
    RETURNS (Potentials): The constrained potentials. The gradient with respect to them is also the
        gradient with respect to `potentials`: it is 0 wherever something is forbidden.
    """
    return Potentials(
        emissions=_mask(potentials.emissions, constraints.emissions),
        transitions=_mask(potentials.transitions, constraints.transitions),
        start=_mask(potentials.start, constraints.start),
        end=_mask(potentials.end, constraints.end),
        lengths=potentials.lengths,
    )


def to_mask(allowed: Allowed, n_tags: int) -> Array2d:
    """Turn the only allowed tag of each token, (N,), into a mask, (N, K). If the allowed tags are
    already a mask, it is returned. `n_tags` is the number of tags, K."""
    if allowed.ndim == 2:  # already a mask
        return allowed
    tags = get_array_module(allowed).arange(n_tags)
    return allowed[:, None] == tags


def restrict(potentials: Potentials, allowed: Array2d | None) -> Potentials:
    """Forbid tags at single tokens.

    potentials (Potentials): The scores of the batch.
    allowed (Array2d | None): True for the tags that are allowed at each token. None: all are.
        Shape: (N, K)
    RETURNS (Potentials): The constrained potentials.
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
