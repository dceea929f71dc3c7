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

from .support.batches import random_potentials

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


def assert_on_device(results: Sequence[Any], expected: Sequence[numpy.ndarray]) -> None:
    for result, wanted in zip(results, expected, strict=True):
        assert isinstance(result, DeviceArray)
        assert_array_equal(result.array, wanted)


@pytest.mark.parametrize("name, args", CALLS.items(), ids=CALLS)
def test_answers_are_copied_back(name: str, args: tuple) -> None:
    """Values with the gradients of their callbacks, paths with scores, and single arrays."""
    expected: Any = getattr(chain, name)(POTENTIALS, *args)
    found = getattr(chain, name)(to_device(POTENTIALS), *map(to_device, args))
    assert type(found) is type(expected) or isinstance(found, DeviceArray)
    if not isinstance(expected, tuple):
        found, expected = [found], [expected]
    elif callable(expected[1]):
        weights = numpy.random.default_rng(0).normal(size=expected[0].shape)
        gradients = found[1](to_device(weights)), expected[1](weights)
        assert_array_equal(gradients[0].lengths, gradients[1].lengths)
        found, expected = (
            [x[0], *gradient[:4]] for x, gradient in zip((found, expected), gradients)
        )
    assert_on_device(found, expected)


def test_samples_are_copied_back() -> None:
    one, other = (
        chain.sample_paths(each, 4, rng=numpy.random.default_rng(0))
        for each in (to_device(POTENTIALS), POTENTIALS)
    )
    assert_on_device([one], [other])


def test_queries_of_one_posterior_share_a_backward_pass() -> None:
    gradients = []
    for copy in (lambda value: value, to_device):
        paths = chain.forward_backward(copy(POTENTIALS))
        queries = [paths.log_partition(), paths.log_marginals(copy(TAGS))]
        ones = [copy(numpy.ones(size)) for size in (3, 5)]
        gradients.append(paths.backprop(*((vjp, d) for (_, vjp), d in zip(queries, ones))))
    assert_on_device(gradients[1][:4], gradients[0][:4])
