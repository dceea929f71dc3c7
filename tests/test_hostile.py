"""Arrays that don't fit are refused by name, before compiled code sees them."""

from typing import Any

import numpy
import pytest

from spacy_costner import chain

from . import hostile
from .support.batches import random_potentials

POTENTIALS = random_potentials([3, 2], 4)
SEGMENT = {"begin": [1], "end": [3], "tags": [0, 1]}


@pytest.mark.parametrize("block", range(6))
def test_spoiled_calls_are_refused_or_answered(block: int) -> None:
    refused = [hostile.is_refused(block, i) for i in range(50)]
    assert any(refused) and not all(refused)


@pytest.mark.parametrize("change", [{"end": [4], "tags": [0, 1, 2]}, {"end": [6]}, {"begin": [-1]},
    {"end": [1], "tags": []}, {"tags": [0, 4]}, {"tags": [0]}, {"end": [2, 3]}])  # fmt: skip
@pytest.mark.parametrize("name", ["segment_log_probs", "segment_max_scores"])
def test_segments_in_one_sequence(name: str, change: dict[str, Any]) -> None:
    fields = {key: numpy.array(each, "int64") for key, each in {**SEGMENT, **change}.items()}
    with pytest.raises(ValueError, match="segments"):
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
    for lengths, n_tags in (([2], 4), ([3, 2], 5), ([2, 3], 4)):
        with pytest.raises(ValueError, match=r"values\."):
            chain.expectation(POTENTIALS, random_potentials(lengths, n_tags))


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_counts(count: Any) -> None:
    with pytest.raises(ValueError, match="k: expected an integer of at least 1, got"):
        chain.k_best(POTENTIALS, count)
    with pytest.raises(ValueError, match="n: expected an integer of at least 1, got"):
        chain.sample_paths(POTENTIALS, count, numpy.random.default_rng(0))


def test_wrong_derivatives_threads_and_log_probs() -> None:
    with pytest.raises(ValueError, match=r"derivatives: expected real numbers in the shape \(2,\)"):
        chain.log_partition(POTENTIALS)[1](numpy.ones(3))
    with pytest.raises(ValueError, match="at least 1 thread, got 0"):
        chain.set_threads(0)
    with pytest.raises(
        ValueError, match=r"log_probs: expected float32 or float64 in the shape \(5, 4\)"
    ):
        chain.best_of_tied(POTENTIALS, numpy.zeros((5, 3)), 1e-6)
    paths, others = (chain.forward_backward(POTENTIALS) for _ in range(2))
    with pytest.raises(ValueError, match="vjps: expected callbacks of queries of this object"):
        paths.backprop((others.log_partition()[1], numpy.ones(2)))


@pytest.mark.parametrize("dtype", ["float16", "float32", "longdouble", "int8", "uint64"])
def test_derivatives_of_any_real_numbers_and_lengths_of_any_integers(dtype: str) -> None:
    for name in hostile.MORE_ARGUMENTS:
        rng = numpy.random.default_rng(0)
        call = hostile.random_call(rng)
        while call.name != name:
            call = hostile.random_call(rng)
        derivatives = numpy.asarray(call.derivatives)
        if dtype == "uint64":  # a cast of negative numbers is undefined: ARM warns of it
            derivatives = abs(derivatives)
        call = call._replace(derivatives=derivatives.astype(dtype))
        hostile.answer(call, 0)
        if dtype in ("int8", "uint64"):
            lengths = {"potentials.lengths": call.arguments["potentials.lengths"].astype(dtype)}
            hostile.answer(call._replace(arguments={**call.arguments, **lengths}), 0)
