"""Arrays that don't fit are refused by name, before compiled code sees them."""

from typing import Any, Dict

import numpy
import pytest

from spacy_costner import chain
from spacy_costner.compiled import array_code

from . import hostile
from .support.batches import random_potentials

POTENTIALS = random_potentials([3, 2], 4)
LENGTHS = numpy.array([9, 6], "int32")
SEGMENT = {"begin": [1], "end": [3], "tags": [0, 1]}


@pytest.mark.parametrize("block", range(6))
def test_spoiled_calls_are_refused_or_answered_by_both_forms(block: int) -> None:
    refused = [hostile.compare(block, i) for i in range(50)]
    assert any(refused)


@pytest.mark.parametrize("change", [{"end": [4], "tags": [0, 1, 2]}, {"end": [6]}, {"begin": [-1]},
    {"end": [1], "tags": []}, {"tags": [0, 4]}, {"tags": [0]}, {"end": [2, 3]}])  # fmt: skip
@pytest.mark.parametrize("name", ["segment_log_probs", "segment_max_scores"])
def test_segments_in_one_sequence(name: str, change: Dict[str, Any]) -> None:
    fields = {key: numpy.array(each, "int64") for key, each in {**SEGMENT, **change}.items()}
    with pytest.raises(ValueError, match="segments"):
        getattr(chain, name)(POTENTIALS, chain.Segments(**fields))
    with array_code(), pytest.raises(ValueError, match="segments"):
        getattr(chain, name)(POTENTIALS, chain.Segments(**fields))


@pytest.mark.parametrize(
    "lengths", [[2**32 + 3, 2], [2**32 + 5, 0], [2**63 - 1, 2**63 - 1, 7], [6, -1]]
)
def test_lengths_as_they_are(lengths: Any) -> None:
    potentials = POTENTIALS._replace(lengths=numpy.array(lengths, dtype="int64"))
    for name in ("log_partition", "best_path", "forward_backward", "max_messages"):
        with pytest.raises(ValueError, match=r"potentials\.lengths: expected lengths"):
            getattr(chain, name)(potentials)


def test_values_of_another_batch() -> None:
    for values in (
        random_potentials([2], 4),
        random_potentials([3, 2], 5),
        random_potentials([2, 3], 4),
    ):
        with pytest.raises(ValueError, match=r"values\."):
            chain.expectation(POTENTIALS, values)


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_counts(count: Any) -> None:
    with pytest.raises(ValueError, match="k: expected an integer of at least 1, got"):
        chain.k_best(POTENTIALS, count)
    with pytest.raises(ValueError, match="n: expected an integer of at least 1, got"):
        chain.sample_paths(POTENTIALS, count, numpy.random.default_rng(0))


def test_a_long_sequence_of_large_scores_is_answered_by_compiled_code() -> None:
    """Scaled messages lose it; everything asked of it agrees with the log domain."""
    potentials = random_potentials([300], 4, 50.0, seed=3)
    potentials.transitions[[0, 1, 2], [1, 3, 0]] = -numpy.inf
    tags = numpy.random.default_rng(0).integers(4, size=300)
    values = random_potentials([300], 4, seed=4)
    for name, argument, n in (("log_marginals", tags, 300), ("expectation", values, 1)):
        answers, backprop = getattr(chain, name)(potentials, argument)
        weights = numpy.random.default_rng(1).normal(size=n)
        with array_code():
            expected, expected_backprop = getattr(chain, name)(potentials, argument)
        numpy.testing.assert_allclose(answers, expected, rtol=1e-9, atol=1e-9)
        for array, wanted in zip(backprop(weights)[:4], expected_backprop(weights)[:4]):
            numpy.testing.assert_allclose(array, wanted, rtol=1e-7, atol=1e-7)


def test_array_code_leaves_nothing_on_forbidden_steps_of_segments() -> None:
    for seed in range(20):
        rng = numpy.random.default_rng(seed)
        potentials = random_potentials([9, 6], 5, seed=seed)
        for scores in potentials[:4]:
            scores[rng.uniform(size=scores.shape) < 0.3] = -numpy.inf
        segments = chain.Segments(*hostile.random_segments(potentials, rng).values())
        with array_code():
            answers, backprop = chain.segment_max_scores(potentials, segments)
        gradient = backprop(rng.normal(size=answers.shape))
        for scores, array in zip(potentials[:4], gradient[:4]):
            assert (array[numpy.isneginf(scores)] == 0).all()


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64"])
def test_lengths_of_any_integers(dtype: str) -> None:
    """Array code takes apart what scaled messages lose."""
    potentials = random_potentials([9, 6], 3, 1e4)._replace(lengths=numpy.array([9, 6], dtype))
    segments = chain.Segments(*(numpy.array(each, "int64") for each in SEGMENT.values()))
    with array_code():
        for name, *arguments in (("expectation", potentials), ("segment_max_scores", segments)):
            expected, _ = getattr(chain, name)(potentials._replace(lengths=LENGTHS), *arguments)
            answer, _ = getattr(chain, name)(potentials, *arguments)
            numpy.testing.assert_array_equal(answer, expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "longdouble", "int8", "uint64"])
def test_derivatives_of_any_real_numbers(dtype: str) -> None:
    for name in hostile.MORE_ARGUMENTS:
        rng = numpy.random.default_rng(0)
        call = hostile.random_call(rng)
        while call.name != name:
            call = hostile.random_call(rng)
        call = call._replace(derivatives=numpy.asarray(call.derivatives).astype(dtype))
        with array_code():
            assert hostile.refusal(call, 0) is None
        assert hostile.refusal(call, 0) is None
