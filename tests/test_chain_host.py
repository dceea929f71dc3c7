"""The chain on GPU arrays. A stand-in for CuPy has arrays that can be copied and nothing else."""

from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import thinc.util
from numpy.testing import assert_array_equal

from spacy_costner import chain
from spacy_costner.chain import Segments
from spacy_costner.types import Potentials, map_scores

from .support.batches import random_potentials

POTENTIALS = random_potentials([3, 0, 2], 3)
TAGS = numpy.array([0, 2, 1, 1, 0])
SEGMENTS = Segments(numpy.array([1, 3]), numpy.array([3, 4]), numpy.array([2, 1, 1]))


class DeviceArray:
    def __init__(self, array: numpy.ndarray) -> None:
        self.array = array

    def get(self) -> numpy.ndarray:
        return self.array.copy()


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = SimpleNamespace(ndarray=DeviceArray, asarray=DeviceArray)
    monkeypatch.setattr(thinc.util, "cupy", cupy, raising=False)
    monkeypatch.setattr(thinc.util, "has_cupy", True)


def to_device(value: Any) -> Any:
    if isinstance(value, Potentials):
        return map_scores(DeviceArray, value)
    return DeviceArray(value) if isinstance(value, numpy.ndarray) else value


def assert_on_device(result: Any, expected: numpy.ndarray) -> None:
    assert isinstance(result, DeviceArray)
    assert_array_equal(result.array, expected)


def assert_gradient_on_device(gradient: Potentials, expected: Potentials) -> None:
    for array, wanted in zip(gradient[:4], expected[:4]):
        assert_on_device(array, wanted)
    assert_array_equal(gradient.lengths, expected.lengths)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (chain.log_partition, ()),
        (chain.entropy, ()),
        (chain.path_score, (TAGS,)),
        (chain.path_log_prob, (TAGS,)),
        (chain.expectation, (random_potentials([3, 0, 2], 3, seed=1),)),
        (chain.log_marginals, (TAGS,)),
        (chain.log_partition_excluding, (TAGS,)),
        (chain.segment_log_probs, (SEGMENTS,)),
        (chain.segment_max_scores, (SEGMENTS,)),
    ],
)
def test_values_and_gradients_are_copied_back(function: Any, args: tuple) -> None:
    expected, expected_vjp = function(POTENTIALS, *args)
    values, vjp = function(to_device(POTENTIALS), *map(to_device, args))
    assert_on_device(values, expected)
    weights = numpy.random.default_rng(0).normal(size=expected.shape)
    assert_gradient_on_device(vjp(to_device(weights)), expected_vjp(weights))


@pytest.mark.parametrize(
    ("function", "args"),
    [(chain.best_path, ()), (chain.best_path_excluding, (TAGS,)), (chain.k_best, (2,))],
)
def test_best_paths_are_copied_back(function: Any, args: tuple) -> None:
    result = function(to_device(POTENTIALS), *map(to_device, args))
    expected = function(POTENTIALS, *args)
    assert type(result) is type(expected)
    assert_on_device(result.tags, expected.tags)
    assert_on_device(result.scores, expected.scores)


def test_marginals_ties_and_samples_are_copied_back() -> None:
    for function in (chain.marginals, chain.max_marginals):
        assert_on_device(function(to_device(POTENTIALS)), function(POTENTIALS))
    log_probs = numpy.random.default_rng(1).normal(size=(5, 3))
    tags = chain.best_of_tied(to_device(POTENTIALS), DeviceArray(log_probs), 1.0)
    assert_on_device(tags, chain.best_of_tied(POTENTIALS, log_probs, 1.0))
    expected = chain.sample_paths(POTENTIALS, 4, numpy.random.default_rng(0))
    result = chain.sample_paths(to_device(POTENTIALS), 4, rng=numpy.random.default_rng(0))
    assert_on_device(result, expected)


def test_queries_of_one_posterior_share_a_backward_pass() -> None:
    gradients = []
    for copy in (lambda value: value, to_device):
        paths = chain.forward_backward(copy(POTENTIALS))
        queries = [paths.log_partition(), paths.log_marginals(copy(TAGS))]
        ones = [copy(numpy.ones(size)) for size in (3, 5)]
        gradients.append(paths.backprop(*((vjp, d) for (_, vjp), d in zip(queries, ones))))
    assert_gradient_on_device(gradients[1], gradients[0])
