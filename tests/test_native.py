"""The compiled chain against the array code: the same numbers on any batch."""

import math
import subprocess
import sys
from types import FunctionType
from typing import Iterator, List, Tuple

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from spacy_costner import chain
from spacy_costner.compiled import array_code
from spacy_costner.types import Potentials

from . import oracle
from .support.batches import forbid_all, in_precision, random_potentials

native = pytest.importorskip("spacy_costner.chain.native")

INSTRUCTION_SETS = native.instruction_sets()
TOLERANCES = {"float64": {"rtol": 1e-9, "atol": 1e-9}, "float32": {"rtol": 2e-4, "atol": 2e-4}}


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    native.use_instruction_set(request.param)
    yield request.param
    native.use_instruction_set(INSTRUCTION_SETS[0])


@pytest.fixture
def threads() -> Iterator[None]:
    chain.set_threads(3)
    yield
    chain.set_threads(1)


@st.composite
def batches(draw: st.DrawFn) -> Potentials:
    """Ragged batches of any size of tag set, precision, scale and share of forbidden steps."""
    rng = numpy.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = rng.integers(
        draw(st.sampled_from([3, 30])), size=draw(st.sampled_from([0, 1, 3, 20]))
    )
    n_tags = draw(st.sampled_from([1, 2, 5, 9, 17, 40]))
    scale = draw(st.sampled_from([0.1, 1.0, 10.0, 1e4]))
    forbidden = draw(st.sampled_from([0.0, 0.0, 0.2, 0.6]))
    potentials = random_potentials(list(lengths), n_tags, scale, seed=int(rng.integers(2**32)))
    for array in potentials[:4]:
        array[rng.uniform(size=array.shape) < forbidden] = -numpy.inf
    return in_precision(potentials, draw(st.sampled_from(["float32", "float64"])))


def tags_of(potentials: Potentials) -> numpy.ndarray:
    n_tokens, n_tags = potentials.emissions.shape
    return numpy.random.default_rng(0).integers(n_tags, size=n_tokens)


def rounding_of(potentials: Potentials) -> float:
    """What rounding leaves where totals as large as these scores cancel."""
    finite = [abs(array[numpy.isfinite(array)]).max(initial=0) for array in potentials[:4]]
    longest = potentials.lengths.max(initial=0)
    return float(numpy.finfo(potentials.emissions.dtype).eps * sum(finite) * longest)


def assert_same_scored(name: str, potentials: Potentials, *args: numpy.ndarray) -> None:
    """Check scores and gradients, those of float32 against the exact ones."""
    scores, backprop = getattr(chain, name)(potentials, *args)
    exact = in_precision(potentials, "float64")
    expected, expected_backprop = getattr(chain.array, name)(exact, *args)
    tolerance = TOLERANCES[str(potentials.emissions.dtype)]
    assert scores.dtype == "float64"
    assert_allclose(
        scores, expected, tolerance["rtol"], max(tolerance["atol"], rounding_of(potentials))
    )
    weights = numpy.random.default_rng(1).normal(size=len(scores))
    gradient, expected_gradient = backprop(weights), expected_backprop(weights)
    assert_array_equal(gradient.lengths, potentials.lengths)
    for array, wanted, like in zip(gradient[:4], expected_gradient[:4], potentials[:4]):
        assert array.dtype == like.dtype
        largest = max(1.0, abs(wanted).max(initial=0))
        # The log domain of array code rounds so much, compiled code doesn't (see
        # test_probabilities_of_large_scores).
        atol = max(tolerance["atol"], rounding_of(exact)) * largest
        assert_allclose(array, wanted, rtol=tolerance["rtol"], atol=atol)
        assert (array[numpy.isneginf(like)] == 0).all()


# Every function


@given(batches())
def test_log_partition(potentials: Potentials) -> None:
    assert_same_scored("log_partition", potentials)


@given(batches())
def test_path_score(potentials: Potentials) -> None:
    assert_same_scored("path_score", potentials, tags_of(potentials))


@given(batches())
def test_path_log_prob(potentials: Potentials) -> None:
    best = chain.array.best_path(potentials).tags
    assert_same_scored("path_log_prob", potentials, best)
    assert_same_scored("path_log_prob", potentials, tags_of(potentials))


@given(batches())
def test_marginals(potentials: Potentials) -> None:
    expected = chain.array.marginals(in_precision(potentials, "float64"))
    tolerance = TOLERANCES[str(potentials.emissions.dtype)]
    assert_allclose(chain.marginals(potentials), expected, **tolerance)


@given(batches())
def test_best_path(potentials: Potentials) -> None:
    best = native.best_path(potentials)
    expected = chain.array.best_path(in_precision(potentials, "float64"))
    assert_allclose(best.scores, expected.scores, rtol=1e-12, atol=1e-9)
    assert_allclose(native.path_score(potentials, best.tags)[0], best.scores, rtol=1e-12, atol=1e-9)


# Every instruction set, and threads


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_tags", [1, 3, 4, 8, 9, 16, 17, 33, 73, 150])
def test_each_instruction_set(instruction_set: str, n_tags: int, dtype: str) -> None:
    potentials = random_potentials([7, 0, 1, 12, 2, 30, 1, 9, 9, 4, 5], n_tags, dtype=dtype)
    assert_same_scored("log_partition", potentials)
    assert_array_equal(native.best_path(potentials).tags, chain.array.best_path(potentials).tags)


@pytest.mark.parametrize("n_labels", [1, 4, 18])
def test_tag_schemes(instruction_set: str, n_labels: int) -> None:
    """BILUO: what it forbids is left out of the products."""
    potentials = random_potentials([1, 2, 30, 17, 5], 1 + 4 * n_labels, dtype="float32")
    prefix, label = numpy.divmod(numpy.arange(4 * n_labels), n_labels)
    kind = numpy.append(prefix, 4)  # B, I, L, U, O
    label = numpy.append(label, -1)
    opens, continues = numpy.isin(kind, [0, 3, 4]), numpy.isin(kind, [1, 2])
    unfinished = numpy.isin(kind, [0, 1])
    same = label[:, None] == label
    legal = numpy.where(unfinished[:, None], continues & same, opens)
    potentials.transitions[~legal] = -numpy.inf
    potentials.start[~opens] = -numpy.inf
    potentials.end[unfinished] = -numpy.inf
    assert_same_scored("log_partition", potentials)
    assert_array_equal(native.best_path(potentials).tags, chain.array.best_path(potentials).tags)


def test_threads_change_nothing_but_the_last_digits(threads: None) -> None:
    potentials = random_potentials([200, 3, 0, 150, 90, 40, 77] * 5, 30, dtype="float32")
    assert_same_scored("log_partition", potentials)
    first, second = (chain.log_partition(potentials)[1](numpy.ones(35)) for _ in range(2))
    for array, again in zip(first[:4], second[:4]):
        assert_array_equal(array, again)
    assert_array_equal(native.best_path(potentials).tags, chain.array.best_path(potentials).tags)


# Hard cases


@pytest.mark.parametrize("gap", [0.0, 500.0, 5000.0])
def test_probabilities_of_large_scores(gap: float) -> None:
    """Scores of which every sum is exact: no digit of a probability is lost to their size, nor
    where some scores are so much smaller that scaled messages lose the sequence."""
    rng = numpy.random.default_rng(0)
    potentials = random_potentials([5, 1, 4], 3, 2.0)
    for array in potentials[:4]:
        array[:] = numpy.round(array * 64) / 64
    potentials.emissions[:] += numpy.round(rng.uniform(-1e6, 1e6, size=(10, 1)))
    potentials.transitions[:] += 12345
    potentials.emissions[[1, 7], [0, 2]] -= gap
    expected = numpy.zeros_like(potentials.emissions)
    for b, tokens in enumerate(oracle.spans(potentials)):
        paths = oracle.paths(potentials, b)
        best = max(path.score for path in paths)
        weights = [math.exp(path.score - best) for path in paths]
        for path, weight in zip(paths, weights):
            expected[range(tokens.start, tokens.stop), path.tags] += weight / math.fsum(weights)
    assert_allclose(chain.marginals(potentials), expected, rtol=1e-12)


@pytest.mark.parametrize("lengths", [[], [0], [0, 0], [1], [0, 1, 0]])
def test_batches_without_steps(lengths: List[int]) -> None:
    for dtype in ("float32", "float64"):
        potentials = random_potentials(lengths, 3, dtype=dtype)
        assert_same_scored("log_partition", potentials)
        assert_same_scored("path_log_prob", potentials, tags_of(potentials))
        assert native.best_path(potentials).tags.shape == (sum(lengths),)


def test_no_legal_path() -> None:
    potentials = forbid_all(random_potentials([4, 3, 5], 4, dtype="float32"), 1)
    assert_same_scored("log_partition", potentials)
    assert native.best_path(potentials).scores[1] == -numpy.inf


@pytest.mark.parametrize("gap", [60.0, 80.0, 200.0, 1e4])
def test_a_path_that_underflows_until_it_is_the_only_one(gap: float) -> None:
    """The last token allows only a tag that all tokens before make improbable."""
    potentials = random_potentials([6], 3, dtype="float32")
    potentials.emissions[:-1, 0] -= numpy.float32(gap)
    potentials.transitions[1:, 0] = -numpy.inf
    potentials.emissions[-1, 1:] = -numpy.inf
    assert_same_scored("log_partition", potentials)


def test_a_long_sequence() -> None:
    potentials = random_potentials([100_000], 5, 3.0, dtype="float32")
    log_z, backprop = chain.log_partition(potentials)
    exact, _ = chain.log_partition(in_precision(potentials, "float64"))
    assert_allclose(log_z, exact, rtol=1e-6)
    assert_allclose(backprop(numpy.ones(1)).emissions.sum(axis=1), 1, rtol=1e-5)


def test_what_is_not_a_number_comes_out_as_that() -> None:
    potentials = random_potentials([3, 2], 4, dtype="float32")
    potentials.emissions[1, 2] = numpy.nan
    log_z, _ = chain.log_partition(potentials)
    assert numpy.isnan(log_z[0])
    assert numpy.isfinite(log_z[1])


def test_arrays_of_any_layout() -> None:
    potentials = random_potentials([3, 5], 4)
    turned = potentials._replace(
        emissions=numpy.asfortranarray(potentials.emissions),
        transitions=numpy.ascontiguousarray(potentials.transitions.T).T,
        lengths=potentials.lengths.astype("int64"),
    )
    assert_array_equal(chain.log_partition(turned)[0], chain.log_partition(potentials)[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_tags", [3, 17])
def test_sequences_that_need_numbers_of_each_width(
    instruction_set: str, n_tags: int, dtype: str
) -> None:
    """Each query has other sequences that need float64, and numbers with longer exponents."""
    potentials = random_potentials([40] * 12, n_tags, seed=n_tags, dtype=dtype)
    rng = numpy.random.default_rng(n_tags)
    forbidden = rng.uniform(size=(n_tags, n_tags)) < 0.2
    potentials.transitions[forbidden & ~numpy.eye(n_tags, dtype=bool)] = -numpy.inf
    scales = numpy.array([1, 10, 20, 40, 80, 160, 320, 640, 1280, 1e4, 3, 60])
    potentials.emissions[:] *= numpy.repeat(scales, 40)[:, None]
    potentials.emissions[-60, :] = -numpy.inf
    exact = in_precision(potentials, "float64")
    queries = [("log_partition",), ("log_marginals", tags_of(potentials)),
                 ("log_partition_excluding", native.best_path(potentials).tags),
                 ("expectation", random_potentials([40] * 12, n_tags, seed=1))]  # fmt: skip
    of_both = []
    for posterior in (native.ForwardBackward(potentials), chain.ForwardBackward(exact)):
        results = [getattr(posterior, name)(*arguments) for name, *arguments in queries]
        weights = [numpy.random.default_rng(2).normal(size=len(answer)) for answer, _ in results]
        vjps = [(backprop, each) for (_, backprop), each in zip(results, weights)]
        of_both.append(([answer for answer, _ in results], posterior.backprop(*vjps)))
    (answers, gradient), (expected, expected_gradient) = of_both
    tolerance = {"float32": 2e-4, "float64": 1e-9}[dtype]
    for answer, wanted in zip(answers, expected):
        assert_allclose(answer, wanted, rtol=tolerance, atol=tolerance)
    for array, wanted, like in zip(gradient[:4], expected_gradient[:4], potentials[:4]):
        assert_allclose(array, wanted, rtol=tolerance, atol=tolerance * abs(wanted).max())
        assert (array[numpy.isneginf(like)] == 0).all()


def test_marginals_of_messages_that_other_queries_use() -> None:
    """Some sequences underflow in float32, some in float64, and one has no legal path."""
    potentials = forbid_all(random_potentials([40] * 5, 9, dtype="float32", seed=1), 3)
    potentials.emissions[:] *= numpy.repeat(numpy.float32([1, 40, 1e3, 1, 1e4]), 40)[:, None]
    paths = native.ForwardBackward(potentials)
    log_p, _ = paths.log_marginals(numpy.zeros(200, dtype="int64"))
    expected = chain.array.marginals(in_precision(potentials, "float64"))
    assert_allclose(paths.marginals(), expected, rtol=2e-4, atol=2e-4)
    assert_allclose(paths.marginals()[:, 0], numpy.exp(log_p), rtol=2e-4, atol=2e-4)
    assert (paths.marginals()[120:160] == 0).all()


# The door


def test_the_door_opens_to_array_code_without_the_compiled_chain() -> None:
    program = """
import sys, warnings
sys.modules["spacy_costner.chain.native"] = None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from spacy_costner import chain
assert ["without its compiled chain" in str(each.message) for each in caught] == [True], caught
assert chain.log_partition is chain.array.log_partition
chain.set_threads(2)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_array_code_can_be_asked_for() -> None:
    potentials = random_potentials([3, 2], 4)
    with array_code():
        scores, backprop = chain.log_partition(potentials)
    assert isinstance(backprop, FunctionType)
    assert not isinstance(chain.log_partition(potentials)[1], FunctionType)
    assert_allclose(scores, chain.log_partition(potentials)[0])


# Errors


def wrong_batches() -> List[Tuple[str, Potentials]]:
    potentials = random_potentials([3, 2], 4)
    return [
        ("lengths that add up to the 5 rows", potentials._replace(lengths=numpy.array([3, 1]))),
        ("lengths that add up to the 5 rows", potentials._replace(lengths=numpy.array([6, -1]))),
        ("of 4 tags", potentials._replace(transitions=numpy.zeros((3, 3)))),
        ("of 4 tags", potentials._replace(start=numpy.zeros(5))),
    ]


@pytest.mark.parametrize(("message", "potentials"), wrong_batches())
def test_wrong_shapes(message: str, potentials: Potentials) -> None:
    with pytest.raises(ValueError, match=message):
        chain.log_partition(potentials)


@pytest.mark.parametrize("tags", [[0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3, -1]])
def test_wrong_tags(tags: List[int]) -> None:
    with pytest.raises(ValueError, match="expected a tag from 0 to 3 for each of the 5 tokens"):
        native.path_score(random_potentials([3, 2], 4), numpy.array(tags))


def test_wrong_derivatives() -> None:
    _, backprop = chain.log_partition(random_potentials([3, 2], 4))
    with pytest.raises(ValueError, match="each of the 2 sequences"):
        backprop(numpy.ones(3))


def test_wrong_number_of_threads() -> None:
    with pytest.raises(ValueError, match="at least 1 thread, got 0"):
        chain.set_threads(0)
