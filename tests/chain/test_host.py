"""The chain on GPU arrays. A stand-in for CuPy has arrays that can be copied and nothing else."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import thinc.util
from numpy.testing import assert_array_equal

from spacy_costner import chain
from spacy_costner.chain import Segments
from spacy_costner.types import Potentials, map_scores

from ..support.batches import random_potentials

POTENTIALS = random_potentials([3, 0, 2], 3)
TAGS = numpy.array([0, 2, 1, 1, 0])
SEGMENTS = Segments(numpy.array([1, 3]), numpy.array([3, 4]), numpy.array([2, 1, 1]))
CALLS = {
    **dict.fromkeys(("log_partition", "entropy", "best_path", "marginals", "max_marginals"), ()),
    **dict.fromkeys(("path_score", "path_log_prob", "log_marginals"), (TAGS,)),
    **dict.fromkeys(("log_partition_excluding", "best_path_excluding"), (TAGS,)),
    **dict.fromkeys(("segment_log_probs", "segment_max_scores"), (SEGMENTS,)),
    "expectation": (random_potentials([3, 0, 2], 3, seed=1),),
    "k_best": (2,),
    "best_of_tied": (numpy.random.default_rng(1).normal(size=(5, 3)), 1.0),
}


class DeviceArray:
    """An array of CuPy, as far as the chain uses it: `get` copies it to the host."""

    def __init__(self, array: numpy.ndarray) -> None:
        self.array = array

    def get(self) -> numpy.ndarray:
        return self.array.copy()


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests here run as on a machine with CuPy."""
    cupy = SimpleNamespace(ndarray=DeviceArray, asarray=DeviceArray)
    monkeypatch.setattr(thinc.util, "cupy", cupy, raising=False)
    monkeypatch.setattr(thinc.util, "has_cupy", True)


def to_device(value: Any) -> Any:
    """The same argument with arrays of the device; numbers and segments stay."""
    if isinstance(value, Potentials):
        return map_scores(DeviceArray, value)
    return DeviceArray(value) if isinstance(value, numpy.ndarray) else value


def assert_on_device(results: Sequence[Any], expected: Sequence[numpy.ndarray]) -> None:
    """Check that results are arrays of the device with the numbers expected."""
    for result, expected_array in zip(results, expected, strict=True):
        assert isinstance(result, DeviceArray)
        assert_array_equal(result.array, expected_array)


@pytest.mark.parametrize("name, args", CALLS.items(), ids=CALLS)
def test_answers_to_device_arrays_are_device_arrays(name: str, args: tuple) -> None:
    """Values and the gradients of their callbacks, paths with scores, and single arrays."""
    query = getattr(chain, name)

    expected: Any = query(POTENTIALS, *args)
    answer = query(to_device(POTENTIALS), *map(to_device, args))

    if not isinstance(expected, tuple):
        assert_on_device([answer], [expected])
        return
    assert type(answer) is type(expected)
    if not callable(expected[1]):
        assert_on_device(answer, expected)
        return
    (values, backprop), (expected_values, expected_backprop) = answer, expected
    weights = numpy.random.default_rng(0).normal(size=expected_values.shape)
    gradient = backprop(to_device(weights))
    expected_gradient = expected_backprop(weights)
    assert_on_device([values, *gradient[:4]], [expected_values, *expected_gradient[:4]])
    assert_array_equal(gradient.lengths, expected_gradient.lengths)


def test_samples_of_device_arrays_are_device_arrays() -> None:
    samples = chain.sample_paths(to_device(POTENTIALS), 4, rng=numpy.random.default_rng(0))

    expected = chain.sample_paths(POTENTIALS, 4, rng=numpy.random.default_rng(0))
    assert_on_device([samples], [expected])


def test_a_backward_pass_of_two_queries_gives_device_arrays() -> None:
    gradients = []
    for copy in (lambda array: array, to_device):
        messages = chain.forward_backward(copy(POTENTIALS))
        _, backprop_partition = messages.log_partition()
        _, backprop_marginals = messages.log_marginals(copy(TAGS))
        d_partition, d_marginals = copy(numpy.ones(3)), copy(numpy.ones(5))
        gradient = messages.backprop(
            (backprop_partition, d_partition), (backprop_marginals, d_marginals)
        )
        gradients.append(gradient)
    on_host, on_device = gradients

    assert_on_device(on_device[:4], on_host[:4])
