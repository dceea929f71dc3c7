"""Building blocks of losses: most are a difference of two scores of a sequence."""

from collections.abc import Callable

from thinc.types import Array1d, Floats1d, Ints1d
from thinc.util import get_array_module

from .. import chain
from ..ragged import sequence_ids
from ..types import Gold, LossResult, Potentials, ScoreWithVjp, add_to, map_scores

Transform = Callable[[Floats1d], tuple[Floats1d, Floats1d]]
"""Maps the difference of two scores of each sequence to its loss, and to the derivative of the loss
with respect to the difference. Shapes: (B,)"""


def hinge(violation: Floats1d) -> tuple[Floats1d, Floats1d]:
    """max(0, violation), and its derivative. At 0, where a competitor has the score of gold, the
    derivative is 1, so that training moves away from there. Shapes: (B,)"""
    derivative = (violation >= 0).astype(violation.dtype)
    return violation.clip(0), derivative


def difference(
    above: ScoreWithVjp, below: ScoreWithVjp, gold: Gold, transform: Transform | None = None
) -> LossResult:
    """A loss that is the difference of two scores of each sequence: the weighted sum over the
    sequences of transform(above - below), with its gradient.

    above (ScoreWithVjp): The score to decrease, such as log Z.
    below (ScoreWithVjp): The score to increase, such as that of gold.
    gold (Gold): Its weights of sequences are used.
    transform (Transform | None): What is done to the differences. Defaults to nothing.
    """
    score_above, backprop_above = above
    score_below, backprop_below = below
    weights = sequence_weights(gold, score_above)
    losses = score_above - score_below
    # The derivative of the sum with respect to each difference. Shape: (B,)
    d_losses = weights
    if transform is not None:
        losses, slopes = transform(losses)
        d_losses = slopes * weights
    gradient = add_to(backprop_above(d_losses), backprop_below(-d_losses))
    return LossResult(float((weights * losses).sum()), gradient)


def gold_score(potentials: Potentials, gold: Gold) -> ScoreWithVjp:
    """The score of gold: of the gold path or, where the annotation is partial, the log-sum over the
    paths Y* that agree with it.

        log sum_{y in Y*} exp(s(y))
    """
    if gold.allowed is None:
        return chain.path_score(potentials, gold.tags)
    return chain.log_partition(chain.restrict(potentials, gold.allowed))


def gold_log_prob(potentials: Potentials, gold: Gold) -> ScoreWithVjp:
    """The log-probability of gold: of the gold path or, where the annotation is partial, of all
    paths Y* that agree with it.

        log p(Y*) = log sum_{y in Y*} exp(s(y)) - log Z
    """
    if gold.allowed is None:
        return chain.path_log_prob(potentials, gold.tags)
    log_sum, backprop_gold = gold_score(potentials, gold)
    log_z, backprop_all = chain.log_partition(potentials)

    def backprop(d_log_p: Floats1d) -> Potentials:
        return add_to(backprop_gold(d_log_p), backprop_all(-d_log_p))

    return log_sum - log_z, backprop


def best_gold(potentials: Potentials, gold: Gold) -> tuple[Ints1d, ScoreWithVjp]:
    """The gold path, or the best path that agrees with a partial annotation.

    RETURNS (tuple[Ints1d, ScoreWithVjp]): Its tags, and its score with the callback to the
        gradient. Shape of the tags: (N,)
    """
    path = gold.tags
    if gold.allowed is not None:
        path = chain.best_path(chain.restrict(potentials, gold.allowed)).tags
    return _model_tags(path, gold), chain.path_score(potentials, path)


def best_competitor(potentials: Potentials, gold: Gold) -> tuple[Ints1d, ScoreWithVjp]:
    """The best path that does not agree with gold.

    RETURNS (tuple[Ints1d, ScoreWithVjp]): Its tags, and its score with the callback to the
        gradient. Where there is no such path, the score is minus infinity, and the tags are
        arbitrary. Shape of the tags: (N,)
    """
    path, scores = chain.best_path_excluding(potentials, gold.paths)
    _, backprop = chain.path_score(potentials, path)
    return _model_tags(path, gold), (scores, backprop)


def can_continue(potentials: Potentials, gold: Gold) -> Array1d:
    """True for the tags after which an entity can go on, such as B-x and I-x, but not L-x.
    Shape: (K,)"""
    xp = get_array_module(potentials.transitions)
    is_legal = xp.isfinite(potentials.transitions)
    # Tags with a legal transition to a tag that continues an entity
    continues = is_legal[:, xp.asarray(gold.continuing)].any(axis=1)
    if gold.tied_to is None:
        return continues
    # A tag counts if any tag that is tied to the same tag of the model has such a transition.
    return xp.isin(gold.tied_to, gold.tied_to[continues])


def _model_tags(tags: Ints1d, gold: Gold) -> Ints1d:
    """The tags of the model for tags of the chain, which has more if O is split. Shapes: (N,)"""
    if gold.tied_to is None:
        return tags
    return gold.tied_to[tags]


def cost_augment(potentials: Potentials, gold: Gold, multiplier: float) -> Potentials:
    """Raise the scores of expensive mistakes, so that training has to lower them further: add the
    cost to the scores, if there is one.

    s(y) + m C(y*, y)
    """
    if gold.cost is None:
        return potentials
    raised = gold.cost.astype(potentials.emissions.dtype)
    raised *= multiplier  # in place, as the array is the largest of a batch
    raised += potentials.emissions
    return potentials._replace(emissions=raised)


def sequence_weights(gold: Gold, like: Floats1d) -> Floats1d:
    """The weight of each sequence; ones if gold has none. Shape: (B,)

    like (Floats1d): Any array with a number for each sequence: the ones have its type and are on
        its device. Shape: (B,)
    """
    if gold.weights is None:
        return get_array_module(like).ones_like(like)
    return gold.weights


def has_annotation(gold: Gold, potentials: Potentials) -> Floats1d:
    """1 for sequences whose annotation says anything, 0 for others, as floats. It says something if
    some legal path disagrees with it. Shape: (B,)"""
    xp = get_array_module(potentials.emissions)
    if gold.allowed is None:
        return xp.ones(len(potentials.lengths))
    # The mask alone does not say it: the tags that it rules out may be on no legal path.
    disagreeing = chain.best_path_excluding(uniform_over_legal(potentials), gold.allowed)
    return xp.isfinite(disagreeing.scores).astype("float64")


def sequences_of_tokens(potentials: Potentials) -> Ints1d:
    """The sequence of each token, on the device of the potentials. Shape: (N,)"""
    xp = get_array_module(potentials.emissions)
    return xp.asarray(sequence_ids(potentials.lengths))


def uniform_over_legal(potentials: Potentials) -> Potentials:
    """Scores with which all legal paths have the same probability: 0, and minus infinity where the
    potentials have it."""
    xp = get_array_module(potentials.emissions)
    return map_scores(lambda scores: xp.where(xp.isneginf(scores), scores, 0), potentials)


def zero_forbidden(potentials: Potentials) -> Potentials:
    """The scores with 0 in place of minus infinity, so that they can be multiplied."""
    xp = get_array_module(potentials.emissions)
    return map_scores(lambda scores: xp.where(xp.isneginf(scores), 0, scores), potentials)


def sharpen(potentials: Potentials, psi: float) -> Potentials:
    """All scores times psi, above 0: with a larger psi, the best paths have more of the
    probability. Forbidden tags and transitions stay forbidden."""
    return map_scores(lambda scores: psi * scores, potentials)
