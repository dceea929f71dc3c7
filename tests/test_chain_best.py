"""Best paths of all kinds, and drawn ones, against enumeration.

Where several paths are best, any of them is right: scores are compared, and that the path
that comes with a score has it.
"""

from collections.abc import Callable

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from spacy_costner import chain
from spacy_costner.chain import native
from spacy_costner.types import Potentials

from . import oracle, reference
from .support.batches import in_precision, random_potentials, single
from .support.gradients import check_gradient
from .support.strategies import allowed_NK, potentials_NK, scores, segments_S

CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def leaves(allowed: numpy.ndarray, potentials: Potentials, b: int) -> Callable:
    first = oracle.spans(potentials)[b].start
    return lambda y: any(not allowed[first + t, tag] for t, tag in enumerate(y))


def best_scores(potentials: Potentials, b: int, which: Callable, k: int) -> list[float]:
    found = [path.score for path in oracle.k_best(potentials, b, which)[:k]]
    return found + [-numpy.inf] * (k - len(found))


@given(potentials_NK(), st.integers(1, 12))
def test_k_best(potentials: Potentials, k: int) -> None:
    best = chain.k_best(potentials, k)
    assert best.tags.shape == (k, len(potentials.emissions))
    assert best.scores.shape == (k, len(potentials.lengths))
    for b, tokens in enumerate(oracle.spans(potentials)):
        expected = best_scores(potentials, b, oracle.anything, k)
        assert_allclose(best.scores[:, b], expected, **CLOSE)
        found = [tuple(tags) for tags in best.tags[numpy.isfinite(expected), tokens].tolist()]
        assert len(set(found)) == len(found)
        for tags, score in zip(found, expected):
            assert oracle.score(potentials, b, tags) == pytest.approx(score)


@given(potentials_NK(), st.data())
def test_best_paths(potentials: Potentials, data: st.DataObject) -> None:
    """Of all paths, of those with each tag, and of those outside a set."""
    allowed = data.draw(allowed_NK(potentials))
    best, outside = chain.best_path(potentials), chain.best_path_excluding(potentials, allowed)
    assert_allclose(chain.k_best(potentials, 2).scores[0], best.scores, **CLOSE)
    marginals = chain.max_marginals(potentials)
    for b, tokens in enumerate(oracle.spans(potentials)):
        which = leaves(allowed, potentials, b)
        for found, holds in ((best, oracle.anything), (outside, which)):
            assert_allclose(found.scores[b], best_scores(potentials, b, holds, 1)[0], **CLOSE)
            if found.scores[b] > -numpy.inf:
                tags = found.tags[tokens].tolist()
                assert holds(tags)
                assert oracle.score(potentials, b, tags) == pytest.approx(found.scores[b])
        assert_array_equal(best.tags[tokens], chain.best_path(single(potentials, b)).tags)
        for (t, tag), score in numpy.ndenumerate(marginals[tokens]):
            expected = best_scores(potentials, b, lambda y, t=t, tag=tag: y[t] == tag, 1)[0]
            assert_allclose(score, expected, **CLOSE)


@given(potentials_NK(), st.data())
def test_best_with_and_without_a_segment(potentials: Potentials, data: st.DataObject) -> None:
    segments = data.draw(segments_S(potentials))
    scores, backprop = chain.segment_max_scores(potentials, segments)
    assert scores.shape == (2, len(segments.begin))
    for s in range(len(segments.begin)):
        b, has = oracle.has_segment(potentials, segments, s)
        for row, which in enumerate((has, lambda y, has=has: not has(y))):
            assert_allclose(scores[row, s], best_scores(potentials, b, which, 1)[0], **CLOSE)
            d_scores = numpy.zeros_like(scores)
            d_scores[row, s] = 1
            steps = backprop(d_scores)
            if scores[row, s] == -numpy.inf:
                assert not oracle.vector(steps).any()
                continue
            tags = steps.emissions.argmax(axis=1)[oracle.spans(potentials)[b]].tolist()
            assert which(tuple(tags))
            assert oracle.score(potentials, b, tags) == pytest.approx(scores[row, s])
            features = oracle.features(potentials, b, tags)
            assert_allclose(oracle.vector(steps), oracle.vector(features), **CLOSE)


def test_gradient_of_segment_max_scores_adds_up() -> None:
    potentials = random_potentials([4, 3, 0, 5], 3)
    begin = numpy.asarray([0, 1, 4, 8, 8, 11])
    end = numpy.asarray([2, 3, 7, 9, 12, 12])
    tags = numpy.random.default_rng(1).integers(3, size=int((end - begin).sum()))
    after = numpy.random.default_rng(2).uniform(size=(6, 3)) < 0.5
    segments = chain.Segments(begin, end, tags, after)
    check_gradient(lambda moved: chain.segment_max_scores(moved, segments), potentials)


@pytest.mark.parametrize("name", native.instruction_sets())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_tags", [1, 3, 4, 9, 17, 73])
def test_many_tags_and_large_scores(name: str, n_tags: int, dtype: str) -> None:
    native.use_instruction_set(name)
    potentials = random_potentials([7, 0, 1, 12, 2, 30, 9], n_tags, 1000, dtype, seed=n_tags)
    rng = numpy.random.default_rng(0)
    potentials.transitions[rng.uniform(size=(n_tags, n_tags)) < 0.3] = -numpy.inf
    exact = in_precision(potentials, "float64")
    best, of_three = chain.best_path(potentials), chain.k_best(potentials, 3)
    marginals = chain.max_marginals(potentials)
    outside = chain.best_path_excluding(potentials, best.tags)
    for b, tokens in enumerate(oracle.spans(potentials)):
        if len(potentials.emissions[tokens]) == 0:
            continue
        expected = reference.k_best_scores(exact, b, 3)
        assert_allclose(of_three.scores[:, b], expected, **CLOSE)
        assert_allclose([best.scores[b], outside.scores[b]], expected[:2], **CLOSE)
        assert_allclose(marginals[tokens], reference.max_marginals(exact, b), **CLOSE)
        for score, tags in zip(expected, [best.tags, outside.tags, of_three.tags[2]]):
            if score > -numpy.inf:
                assert oracle.score(exact, b, tags[tokens]) == pytest.approx(score, rel=1e-12)
    native.use_instruction_set(native.instruction_sets()[0])


def test_best_paths_of_long_sequences() -> None:
    """The scores of float32 add up to a million here, of which it holds seven digits."""
    potentials = random_potentials([10_000, 1], 3, 100, "float32")
    exact = in_precision(potentials, "float64")
    best = chain.best_path(potentials)
    assert_array_equal(best.tags, chain.best_path(exact).tags)
    of_two = chain.k_best(potentials, 2)
    assert_array_equal(of_two.tags[0], best.tags)
    assert_allclose(chain.path_score(exact, of_two.tags[1])[0], of_two.scores[1], rtol=1e-6)
    assert_allclose(chain.max_marginals(potentials).max(axis=1)[:-1], best.scores[0], rtol=1e-6)
    outside = chain.best_path_excluding(potentials, best.tags[:, None] == numpy.arange(3))
    assert_allclose(outside.scores, of_two.scores[1], rtol=1e-6)


@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_batch_without_tokens(lengths: list[int]) -> None:
    potentials = random_potentials(lengths, 3)
    best = chain.k_best(potentials, 2)
    assert best.tags.shape == (2, 0)
    assert_array_equal(best.scores, [[0.0] * len(lengths), [-numpy.inf] * len(lengths)])
    assert chain.max_marginals(potentials).shape == (0, 3)
    outside = chain.best_path_excluding(potentials, numpy.ones((0, 3), dtype=bool))
    assert_array_equal(outside.scores, [-numpy.inf] * len(lengths))
    assert chain.sample_paths(potentials, 4, numpy.random.default_rng(0)).shape == (4, 0)


# Ties


@given(potentials_NK(), st.data())
def test_the_most_probable_of_tied_paths(potentials: Potentials, data: st.DataObject) -> None:
    """A path may lose the tolerance at each token, to the best path with the same tags before."""
    rounded = [numpy.round(array) for array in potentials[:4]]
    potentials = Potentials(*rounded, potentials.lengths)
    log_probs = data.draw(scores(potentials.emissions.shape))
    tolerance = data.draw(st.sampled_from([0.5, 1.5]))
    found = chain.best_of_tied(potentials, log_probs, tolerance)
    for b, tokens in enumerate(oracle.spans(potentials)):
        best: dict[oracle.Tags, float] = {}
        legal = oracle.paths(potentials, b)
        for path in legal:
            for t in range(len(path.tags) + 1):
                before = path.tags[:t]
                best[before] = max(best.get(before, -numpy.inf), path.score)
        likely = {
            path.tags: log_probs[range(tokens.start, tokens.stop), path.tags].sum()
            for path in legal
            if all(
                best[path.tags[:t]] - best[path.tags[: t + 1]] <= tolerance
                for t in range(len(path.tags))
            )
        }
        if likely:
            assert likely[tuple(found[tokens].tolist())] == pytest.approx(max(likely.values()))


# Drawn paths


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1, 3, 100, 10_000])
def test_draws_come_as_often_as_their_probability(scale: float, dtype: str) -> None:
    potentials = random_potentials([3, 0, 2, 1], 3, scale, dtype, seed=3)
    potentials.transitions[0, 1] = potentials.end[2] = -numpy.inf
    n = 4_000
    drawn = chain.sample_paths(potentials, n, numpy.random.default_rng(0))
    assert drawn.shape == (n, 6)
    for b, tokens in enumerate(oracle.spans(potentials)):
        legal = oracle.paths(potentials, b)
        found = [tuple(tags) for tags in drawn[:, tokens].tolist()]
        assert set(found) <= {path.tags for path in legal}
        for p, path in zip(oracle.probabilities(legal), legal):
            assert abs(found.count(path.tags) / n - p) <= 4.5 * numpy.sqrt(p * (1 - p) / n)
