"""Hard constraints that forbid tags and transitions. The masks set potentials to minus infinity, so
all algorithms on the chain respect them.

In shapes, N is the number of tokens and K the number of tags.
"""

from typing import TypeAlias

from thinc.types import Array2d, FloatsXd, Ints1d
from thinc.util import get_array_module

from ..types import FORBIDDEN, Constraints, Potentials

Allowed: TypeAlias = Ints1d | Array2d
"""The tags allowed at each token: a mask that is True for allowed tags, (N, K), or the only allowed
tag of each token, (N,)."""


def constrain(potentials: Potentials, constraints: Constraints) -> Potentials:
    """Set the potentials of forbidden tags and transitions to minus infinity.

    potentials (Potentials): The scores of the batch.
    constraints (Constraints): The allowed tags and transitions. A field that is None allows
        everything.
    RETURNS (Potentials): The constrained potentials. Since the gradient with respect to them is 0
        for everything forbidden, it is also the gradient with respect to `potentials`.
    """
    return Potentials(
        emissions=_mask(potentials.emissions, constraints.emissions),
        transitions=_mask(potentials.transitions, constraints.transitions),
        start=_mask(potentials.start, constraints.start),
        end=_mask(potentials.end, constraints.end),
        lengths=potentials.lengths,
    )


def to_mask(allowed: Allowed, n_tags: int) -> Array2d:
    """Convert the only allowed tag of each token, (N,), to a mask, (N, K). A mask is returned
    unchanged. `n_tags` is the number of tags, K."""
    if allowed.ndim == 2:  # already a mask
        return allowed
    tags = get_array_module(allowed).arange(n_tags)
    return allowed[:, None] == tags


def restrict(potentials: Potentials, allowed: Array2d | None) -> Potentials:
    """Forbid tags at individual tokens.

    potentials (Potentials): The scores of the batch.
    allowed (Array2d | None): True for the tags allowed at each token. If None, all tags are
        allowed. Shape: (N, K)
    RETURNS (Potentials): The constrained potentials.
    """
    return constrain(potentials, Constraints(emissions=allowed))


def _mask(scores: FloatsXd, is_allowed: Array2d | None) -> FloatsXd:
    """Copy scores and set them to minus infinity where the mask is False. Without a mask, return
    the scores unchanged."""
    if is_allowed is None:
        return scores
    xp = get_array_module(scores)
    # Convert minus infinity to the dtype of the scores to keep float32.
    forbidden = scores.dtype.type(FORBIDDEN)
    return xp.where(xp.asarray(is_allowed), scores, forbidden)
