"""Best paths of all kinds, and drawn ones, against enumeration.

Where several paths are best, any of them is right: scores are compared, and that the path
that comes with a score has it.
"""

from collections import Counter
from collections.abc import Callable

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from spacy_costner import chain
from spacy_costner.chain import native
from spacy_costner.types import Potentials

from .. import oracle, reference
from ..support.batches import in_precision, random_potentials, single
from ..support.gradients import check_gradient
from ..support.strategies import allowed_NK, potentials_NK, scores, segments_S

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
Condition = Callable[[oracle.Tags], bool]
"""What is asked of a path."""


def leaves(allowed: numpy.ndarray, potentials: Potentials, b: int) -> Condition:
    """Whether a path of sequence b has a tag that isn't allowed. allowed (bool[N, K])"""
    first = oracle.spans(potentials)[b].start
    return lambda path: any(not allowed[first + t, tag] for t, tag in enumerate(path))


def best_scores(potentials: Potentials, b: int, condition: Condition, k: int) -> list[float]:
    """The k best scores of paths that meet a condition; minus infinity where there are fewer."""
    scores = [path.score for path in oracle.k_best(potentials, b, condition)[:k]]
    return scores + [-numpy.inf] * (k - len(scores))


def best_score(potentials: Potentials, b: int, condition: Condition = oracle.anything) -> float:
    """The best score of a path that meets a condition; minus infinity if none does."""
    return best_scores(potentials, b, condition, k=1)[0]


@given(potentials_NK(), st.integers(1, 12))
def test_k_best_are_different_paths_with_the_k_best_scores(potentials: Potentials, k: int) -> None:
    best = chain.k_best(potentials, k)

    assert best.tags.shape == (k, len(potentials.emissions))
    assert best.scores.shape == (k, len(potentials.lengths))
    for b, tokens in enumerate(oracle.spans(potentials)):
        expected = best_scores(potentials, b, oracle.anything, k)
        assert_allclose(best.scores[:, b], expected, **CLOSE)
        legal = best.tags[numpy.isfinite(expected), tokens]
        paths = [tuple(tags) for tags in legal.tolist()]
        assert len(set(paths)) == len(paths)
        for path, score in zip(paths, expected):
            assert oracle.score(potentials, b, path) == pytest.approx(score)


@given(potentials_NK())
def test_the_best_path_has_the_best_score(potentials: Potentials) -> None:
    """The best path of a sequence is the first of its two best paths, and the best path of the
    sequence in a batch of its own."""
    best = chain.best_path(potentials)

    assert_allclose(best.scores, chain.k_best(potentials, 2).scores[0], **CLOSE)
    for b, tokens in enumerate(oracle.spans(potentials)):
        assert_allclose(best.scores[b], best_score(potentials, b), **CLOSE)
        assert_array_equal(best.tags[tokens], chain.best_path(single(potentials, b)).tags)
        if best.scores[b] > -numpy.inf:
            path = best.tags[tokens].tolist()
            assert oracle.score(potentials, b, path) == pytest.approx(best.scores[b])


@given(potentials_NK(), st.data())
def test_the_best_path_outside_a_set_leaves_it(potentials: Potentials, data: st.DataObject) -> None:
    """The set has the paths whose tag at each token is one of the allowed tags there. The best of
    the other paths has a tag that isn't allowed at one token or more. Its score is minus infinity
    if all legal paths are in the set."""
    allowed = data.draw(allowed_NK(potentials))

    outside = chain.best_path_excluding(potentials, allowed)

    for b, tokens in enumerate(oracle.spans(potentials)):
        is_outside = leaves(allowed, potentials, b)
        assert_allclose(outside.scores[b], best_score(potentials, b, is_outside), **CLOSE)
        if outside.scores[b] > -numpy.inf:
            path = outside.tags[tokens].tolist()
            assert is_outside(path)
            assert oracle.score(potentials, b, path) == pytest.approx(outside.scores[b])


@given(potentials_NK())
def test_a_max_marginal_is_the_best_score_of_a_path_with_that_tag(potentials: Potentials) -> None:
    marginals = chain.max_marginals(potentials)

    for b, tokens in enumerate(oracle.spans(potentials)):
        for (t, tag), score in numpy.ndenumerate(marginals[tokens]):
            expected = best_score(potentials, b, lambda path, t=t, tag=tag: path[t] == tag)
            assert_allclose(score, expected, **CLOSE)


@given(potentials_NK(), st.data())
def test_segment_max_scores_are_those_of_the_best_paths_with_and_without_it(
    potentials: Potentials, data: st.DataObject
) -> None:
    """The gradient of such a score is how often the path takes each step, and so says which path it
    is."""
    segments = data.draw(segments_S(potentials))

    scores, backprop = chain.segment_max_scores(potentials, segments)  # rows: with, without

    assert scores.shape == (2, len(segments.begin))
    for s in range(len(segments.begin)):
        b, has_segment = oracle.has_segment(potentials, segments, s)
        conditions = [has_segment, lambda path, has=has_segment: not has(path)]
        for row, condition in enumerate(conditions):
            d_scores = numpy.zeros_like(scores)
            d_scores[row, s] = 1
            gradient = backprop(d_scores)
            assert_allclose(scores[row, s], best_score(potentials, b, condition), **CLOSE)
            if scores[row, s] == -numpy.inf:
                assert not oracle.vector(gradient).any()
                continue
            path = gradient.emissions.argmax(axis=1)[oracle.spans(potentials)[b]].tolist()
            assert condition(tuple(path))
            assert oracle.score(potentials, b, path) == pytest.approx(scores[row, s])
            steps = oracle.features(potentials, b, path)
            assert_allclose(oracle.vector(gradient), oracle.vector(steps), **CLOSE)


def test_the_gradient_of_segment_max_scores_is_their_derivative() -> None:
    """Segments that overlap, reach over several tokens, or end a sequence."""
    potentials = random_potentials([4, 3, 0, 5], 3)
    begin = numpy.asarray([0, 1, 4, 8, 8, 11])
    end = numpy.asarray([2, 3, 7, 9, 12, 12])
    tags = numpy.random.default_rng(1).integers(3, size=int((end - begin).sum()))
    after = numpy.random.default_rng(2).uniform(size=(6, 3)) < 0.5
    segments = chain.Segments(begin, end, tags, after)

    check_gradient(lambda moved: chain.segment_max_scores(moved, segments), potentials)


@pytest.mark.parametrize("instruction_set", native.instruction_sets())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_tags", [1, 3, 4, 9, 17, 73])
def test_best_paths_with_any_number_of_tags_and_large_scores(
    instruction_set: str, n_tags: int, dtype: str
) -> None:
    """The best, the best without it, the third, and max-marginals agree with recursions. Scores up
    to 1000 are larger than what exp can take."""
    potentials = random_potentials([7, 0, 1, 12, 2, 30, 9], n_tags, 1000, dtype, seed=n_tags)
    rng = numpy.random.default_rng(0)
    potentials.transitions[rng.uniform(size=(n_tags, n_tags)) < 0.3] = -numpy.inf
    exact = in_precision(potentials, "float64")

    native.use_instruction_set(instruction_set)
    try:
        best = chain.best_path(potentials)
        best_three = chain.k_best(potentials, 3)
        marginals = chain.max_marginals(potentials)
        without_best = chain.best_path_excluding(potentials, best.tags)
    finally:
        native.use_instruction_set(native.instruction_sets()[0])

    for b, tokens in enumerate(oracle.spans(potentials)):
        if tokens.start == tokens.stop:
            continue
        expected = reference.k_best_scores(exact, b, 3)
        assert_allclose(best_three.scores[:, b], expected, **CLOSE)
        assert_allclose(best.scores[b], expected[0], **CLOSE)
        assert_allclose(without_best.scores[b], expected[1], **CLOSE)
        assert_allclose(marginals[tokens], reference.max_marginals(exact, b), **CLOSE)
        tags_of_three = [best.tags, without_best.tags, best_three.tags[2]]
        for score, tags in zip(expected, tags_of_three):
            if score > -numpy.inf:
                assert oracle.score(exact, b, tags[tokens]) == pytest.approx(score, rel=1e-12)


def test_best_paths_of_ten_thousand_tokens_are_those_of_float64() -> None:
    """Scores add up to a million. float32, in which they are given, holds seven digits of that."""
    potentials = random_potentials([10_000, 1], 3, 100, "float32")
    exact = in_precision(potentials, "float64")

    best = chain.best_path(potentials)
    best_two = chain.k_best(potentials, 2)
    marginals = chain.max_marginals(potentials)
    without_best = chain.best_path_excluding(potentials, best.tags[:, None] == numpy.arange(3))

    assert_array_equal(best.tags, chain.best_path(exact).tags)
    assert_array_equal(best_two.tags[0], best.tags)
    second_scores, _ = chain.path_score(exact, best_two.tags[1])
    assert_allclose(second_scores, best_two.scores[1], rtol=1e-6)
    assert_allclose(marginals.max(axis=1)[:-1], best.scores[0], rtol=1e-6)
    assert_allclose(without_best.scores, best_two.scores[1], rtol=1e-6)


@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_a_batch_without_tokens_has_empty_paths_of_score_0(lengths: list[int]) -> None:
    """A sequence without tokens has a single path, the empty one. So it has no second best path,
    and none outside a set of paths: their scores are minus infinity."""
    n_tags = 3
    potentials = random_potentials(lengths, n_tags)
    all_allowed = numpy.ones((0, n_tags), dtype=bool)

    best_two = chain.k_best(potentials, 2)
    outside = chain.best_path_excluding(potentials, all_allowed)

    scores_of_empty_paths = [0.0] * len(lengths)
    scores_of_no_paths = [-numpy.inf] * len(lengths)
    assert best_two.tags.shape == (2, 0)
    assert_array_equal(best_two.scores, [scores_of_empty_paths, scores_of_no_paths])
    assert_array_equal(outside.scores, scores_of_no_paths)
    assert chain.max_marginals(potentials).shape == (0, n_tags)
    assert chain.sample_paths(potentials, 4, numpy.random.default_rng(0)).shape == (4, 0)


# Ties


def tied_paths(potentials: Potentials, b: int, tolerance: float) -> list[oracle.Tags]:
    """By definition: the paths that at no token lose more than the tolerance, by their tag there,
    to the best path with the same tags before."""
    legal = oracle.paths(potentials, b)
    best_with_beginning: dict[oracle.Tags, float] = {}
    for path in legal:
        for t in range(len(path.tags) + 1):
            beginning = path.tags[:t]
            best = best_with_beginning.get(beginning, -numpy.inf)
            best_with_beginning[beginning] = max(best, path.score)

    def is_tied(tags: oracle.Tags) -> bool:
        for t in range(len(tags)):
            loss = best_with_beginning[tags[:t]] - best_with_beginning[tags[: t + 1]]
            if loss > tolerance:
                return False
        return True

    return [path.tags for path in legal if is_tied(path.tags)]


@given(potentials_NK(), st.data())
def test_best_of_tied_is_the_most_probable_of_tied_paths(
    potentials: Potentials, data: st.DataObject
) -> None:
    """Scores are whole numbers, so that many tie; no difference is as large as a tolerance."""
    rounded = [numpy.round(array) for array in potentials[:4]]
    potentials = Potentials(*rounded, potentials.lengths)
    log_probs = data.draw(scores(potentials.emissions.shape))
    tolerance = data.draw(st.sampled_from([0.5, 1.5]))

    best_tags = chain.best_of_tied(potentials, log_probs, tolerance)

    for b, tokens in enumerate(oracle.spans(potentials)):
        log_prob_of_path = {}
        for tags in tied_paths(potentials, b, tolerance):
            log_prob_of_path[tags] = log_probs[range(tokens.start, tokens.stop), tags].sum()
        if log_prob_of_path:
            log_prob = log_prob_of_path[tuple(best_tags[tokens].tolist())]
            assert log_prob == pytest.approx(max(log_prob_of_path.values()))


# Samples


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1, 3, 100, 10_000])
def test_paths_are_sampled_as_often_as_their_probability_says(scale: float, dtype: str) -> None:
    """The share of a path is off by at most 4.5 standard errors. Illegal paths are never drawn."""
    potentials = random_potentials([3, 0, 2, 1], 3, scale, dtype, seed=3)
    potentials.transitions[0, 1] = potentials.end[2] = -numpy.inf
    n_samples = 4_000

    samples = chain.sample_paths(potentials, n_samples, numpy.random.default_rng(0))

    assert samples.shape == (n_samples, 6)
    for b, tokens in enumerate(oracle.spans(potentials)):
        legal = oracle.paths(potentials, b)
        drawn = Counter(tuple(tags) for tags in samples[:, tokens].tolist())
        assert set(drawn) <= {path.tags for path in legal}
        for p, path in zip(oracle.probabilities(legal), legal):
            standard_error = numpy.sqrt(p * (1 - p) / n_samples)
            assert abs(drawn[path.tags] / n_samples - p) <= 4.5 * standard_error
