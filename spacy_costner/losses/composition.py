"""Building blocks of losses. Most losses are the difference between two scores of a sequence: the
score of wrong paths, which training decreases, minus the score of gold, which training increases.
Gold is the annotation of a sequence: its gold path or, if the annotation is partial, the tags that
are allowed at each token.

If annotators rejected some spans (incorrect spans), the chain has copies of tags, which distinguish
paths with these spans from other paths. A copy has the same scores as the tag that it is tied to.

Scores are returned together with their vector-Jacobian products (see `ScoreWithVjp`). In shapes, B
is the number of sequences, N the number of tokens, and K the number of tags.
"""

from collections.abc import Callable

from thinc.types import Array1d, Floats1d, Ints1d
from thinc.util import get_array_module

from .. import chain
from ..ragged import sequence_ids
from ..types import Gold, LossResult, Potentials, ScoreWithVjp, add_to, map_scores

Transform = Callable[[Floats1d], tuple[Floats1d, Floats1d]]
"""A function that maps the difference between two scores of each sequence to the loss and its
derivative with respect to the difference. Shapes: (B,)"""


def hinge(violation: Floats1d) -> tuple[Floats1d, Floats1d]:
    """Compute max(0, violation) and its derivative. If the violation is 0, another path has the
    same score as gold. The derivative is then 1, so that training separates the two scores. Shapes:
    (B,)"""
    derivative = (violation >= 0).astype(violation.dtype)
    return violation.clip(0), derivative


def difference_of_scores(
    lowered: ScoreWithVjp, raised: ScoreWithVjp, gold: Gold, transform: Transform | None = None
) -> LossResult:
    """Compute a loss defined as the difference between two scores of each sequence.
    It is the weighted sum of transform(lowered - raised) over sequences.

    lowered (ScoreWithVjp): The score that training decreases, such as log Z.
    raised (ScoreWithVjp): The score that training increases, such as the score of gold.
    gold (Gold): The gold paths, with the weights of sequences.
    transform (Transform | None): A function to apply to the differences, such as `hinge`. If
        None, the differences are used.
    RETURNS (LossResult): The loss and its gradient.
    """
    lowered_scores, backprop_lowered = lowered
    raised_scores, backprop_raised = raised
    weights = sequence_weights(gold, lowered_scores)
    losses = lowered_scores - raised_scores
    d_losses = weights  # the derivative of the sum with respect to each difference, (B,)
    if transform is not None:
        losses, slopes = transform(losses)
        d_losses = slopes * weights
    gradient = add_to(backprop_lowered(d_losses), backprop_raised(-d_losses))
    return LossResult(float((weights * losses).sum()), gradient)


def gold_score(potentials: Potentials, gold: Gold) -> ScoreWithVjp:
    """Compute the score of gold for each sequence. This is the score of the gold path or, if the
    annotation is partial, the log-sum over the paths Y* that agree with it:

        log sum_{y in Y*} exp(s(y))
    """
    if gold.allowed is None:
        return chain.path_score(potentials, gold.tags)
    return chain.log_partition(chain.restrict(potentials, gold.allowed))


def gold_log_prob(potentials: Potentials, gold: Gold) -> ScoreWithVjp:
    """Compute the log-probability of gold for each sequence. This is the log-probability of the
    gold path or, if the annotation is partial, the total log-probability of the paths Y* that agree
    with it:

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
    """Return the gold path or, if the annotation is partial, the best path that agrees with it.

    RETURNS (tuple[Ints1d, ScoreWithVjp]): The tags of the path, converted to tags of the model, and
        its score. Shape of the tags: (N,)
    """
    path = gold.tags
    if gold.allowed is not None:
        path = chain.best_path(chain.restrict(potentials, gold.allowed)).tags
    return _model_tags(path, gold), chain.path_score(potentials, path)


def best_competitor(potentials: Potentials, gold: Gold) -> tuple[Ints1d, ScoreWithVjp]:
    """Return the best path that does not agree with gold.

    RETURNS (tuple[Ints1d, ScoreWithVjp]): The tags of the path, converted to tags of the model, and
        its score. If there is no such path for a sequence, the score is minus infinity and the tags
        are meaningless. Shape of the tags: (N,)
    """
    path, scores = chain.best_path_excluding(potentials, gold.paths)  # excludes the correct paths
    # `scores` contains minus infinity for sequences without such a path, but doesn't include a
    # gradient. Use the gradient of the path's score.
    _, backprop = chain.path_score(potentials, path)
    return _model_tags(path, gold), (scores, backprop)


def can_continue(potentials: Potentials, gold: Gold) -> Array1d:
    """Return a mask that is True for tags after which an entity can continue, such as B-x and I-x,
    but not L-x. Shape: (K,)"""
    xp = get_array_module(potentials.transitions)
    is_legal = xp.isfinite(potentials.transitions)
    # An entity can continue after a tag if there is a legal transition to a tag that continues an
    # entity.
    can_go_on = is_legal[:, xp.asarray(gold.continuing)].any(axis=1)
    if gold.tied_to is None:
        return can_go_on
    # With incorrect spans, there are copies of tags. If an entity can continue after one of them,
    # include all copies of the same tag, because they represent a single tag of the annotation.
    return xp.isin(gold.tied_to, gold.tied_to[can_go_on])


def _model_tags(tags: Ints1d, gold: Gold) -> Ints1d:
    """Convert tags of the chain to tags of the model. They differ only if there are incorrect
    spans, for which the chain has copies of tags: see `Gold.tied_to`. Shapes: (N,)"""
    if gold.tied_to is None:
        return tags
    return gold.tied_to[tags]


def cost_augment(potentials: Potentials, gold: Gold, multiplier: float) -> Potentials:
    """Add the cost of mistakes to the scores, if the loss has a cost. Training then has to decrease
    the scores of expensive mistakes further. With the multiplier m, the score of a path is

        s(y) + m C(y*, y)
    """
    if gold.costs is None:
        return potentials
    # This is the largest array of a batch, so it is computed in place: m C, then m C + E.
    emissions = gold.costs.astype(potentials.emissions.dtype)
    emissions *= multiplier
    emissions += potentials.emissions
    return potentials._replace(emissions=emissions)


def sequence_weights(gold: Gold, like: Floats1d) -> Floats1d:
    """Return the weight of each sequence in gold, or 1 if gold has no weights. Shape: (B,)

    gold (Gold): The gold paths.
    like (Floats1d): Any array with one number per sequence. If gold has no weights, the result has
        the same dtype and device as this array. Shape: (B,)
    """
    if gold.weights is None:
        return get_array_module(like).ones_like(like)
    return gold.weights


def has_annotation(gold: Gold, potentials: Potentials) -> Floats1d:
    """Return 1 for sequences with annotation, that is, if any legal path disagrees with gold, and 0
    for other sequences. If all tokens in the batch are annotated, the result is 1 for all
    sequences. Shape: (B,)"""
    xp = get_array_module(potentials.emissions)
    if gold.allowed is None:
        return xp.ones(len(potentials.lengths))
    # It isn't sufficient to check whether `allowed` excludes a tag, because there may be no legal
    # path with this tag.
    disagreeing = chain.best_path_excluding(uniform_over_legal(potentials), gold.allowed)
    return xp.isfinite(disagreeing.scores).astype("float64")


def sequences_of_tokens(potentials: Potentials) -> Ints1d:
    """Return the index of each token's sequence, on the device of the potentials. Shape: (N,)"""
    xp = get_array_module(potentials.emissions)
    return xp.asarray(sequence_ids(potentials.lengths))


def uniform_over_legal(potentials: Potentials) -> Potentials:
    """Create scores that give all legal paths the same probability: minus infinity where the
    potentials are minus infinity, and 0 elsewhere."""
    xp = get_array_module(potentials.emissions)
    return map_scores(lambda scores: xp.where(xp.isneginf(scores), scores, 0), potentials)


def zero_forbidden(potentials: Potentials) -> Potentials:
    """Replace minus infinity with 0 in scores, so that they can be multiplied by 0."""
    xp = get_array_module(potentials.emissions)
    return map_scores(lambda scores: xp.where(xp.isneginf(scores), 0, scores), potentials)


def sharpen(potentials: Potentials, psi: float) -> Potentials:
    """Multiply all scores by psi, which must be above 0. With a larger psi, the probability is more
    concentrated on the best paths. Scores of minus infinity don't change."""
    return map_scores(lambda scores: psi * scores, potentials)
