"""Arrays that don't fit are refused by name, before compiled code sees them."""

from typing import Any

import numpy
import pytest

from spacy_costner import chain

from .. import hostile
from ..support.batches import random_potentials

POTENTIALS = random_potentials([3, 2], 4)
SEGMENT = {"begin": [1], "end": [3], "tags": [0, 1]}
"""The last two tokens of the first sequence."""


@pytest.mark.parametrize("block", range(6))
def test_spoiled_calls_are_refused_or_answered(block: int) -> None:
    """`is_refused` checks the refusal or the answer. Of 50 calls some are, some aren't."""
    refused = [hostile.is_refused(block, i) for i in range(50)]

    assert any(refused) and not all(refused)


@pytest.mark.parametrize(
    "change",
    [
        {"end": [4], "tags": [0, 1, 2]},
        {"end": [6]},
        {"begin": [-1]},
        {"end": [1], "tags": []},
        {"tags": [0, 4]},
        {"tags": [0]},
        {"end": [2, 3]},
    ],
    ids=[
        "over a border", "after the batch", "before the batch", "empty", "a tag too large",
        "too few tags", "too many ends",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["segment_log_probs", "segment_max_scores"])
def test_segments_that_the_batch_can_not_have_are_refused(
    name: str, change: dict[str, Any]
) -> None:
    fields = {**SEGMENT, **change}
    segments = chain.Segments(**{key: numpy.array(fields[key], "int64") for key in fields})

    # Too many ends are another error: `end` must have as many items as `begin`.
    message = r"segments: expected begin < end within one sequence, and a tag|segments\.end: expect"
    with pytest.raises(ValueError, match=message):
        getattr(chain, name)(POTENTIALS, segments)


@pytest.mark.parametrize(
    "lengths",
    [[2**32 + 3, 2], [2**32 + 5, 0], [2**63 - 1, 2**63 - 1, 7], [6, -1]],
)
def test_lengths_that_only_add_up_in_too_few_bits_are_refused(lengths: list[int]) -> None:
    """The batch has 5 tokens. In integers of 32 or 64 bits, which overflow, these lengths add up to
    5, too. The last ones do so with a negative length."""
    potentials = POTENTIALS._replace(lengths=numpy.array(lengths, dtype="int64"))

    for name in ("log_partition", "best_path", "forward_backward", "max_messages"):
        with pytest.raises(ValueError, match=r"potentials\.lengths: expected lengths"):
            getattr(chain, name)(potentials)


@pytest.mark.parametrize("lengths, n_tags", [([2], 4), ([3, 2], 5), ([2, 3], 4)])
def test_values_of_another_batch_are_refused(lengths: list[int], n_tags: int) -> None:
    """The batch has lengths of 3 and 2, and 4 tags."""
    with pytest.raises(
        ValueError, match=r"values\.(emissions: expected the shape|lengths: expected) "
    ):
        chain.expectation(POTENTIALS, random_potentials(lengths, n_tags))


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_numbers_of_paths_that_are_no_counts_are_refused(count: Any) -> None:
    with pytest.raises(ValueError, match="k: expected an integer of at least 1, got"):
        chain.k_best(POTENTIALS, count)
    with pytest.raises(ValueError, match="n: expected an integer of at least 1, got"):
        chain.sample_paths(POTENTIALS, count, numpy.random.default_rng(0))


def test_derivatives_of_another_number_of_sequences_are_refused() -> None:
    _, backprop = chain.log_partition(POTENTIALS)

    with pytest.raises(ValueError, match=r"derivatives: expected real numbers in the shape \(2,\)"):
        backprop(numpy.ones(3))


def test_0_threads_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 thread, got 0"):
        chain.set_threads(0)


def test_log_probs_of_another_number_of_tags_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"log_probs: expected float32 or float64 in the shape \(5, 4\)"
    ):
        chain.best_of_tied(POTENTIALS, numpy.zeros((5, 3)), 1e-6)


def test_a_gradient_of_no_query_is_refused() -> None:
    with pytest.raises(ValueError, match="vjps: expected at least one callback"):
        chain.forward_backward(POTENTIALS).backprop()


def test_a_callback_of_other_messages_is_refused() -> None:
    messages = chain.forward_backward(POTENTIALS)
    _, backprop_of_other = chain.forward_backward(POTENTIALS).log_partition()

    with pytest.raises(ValueError, match="vjps: expected callbacks of queries of this object"):
        messages.backprop((backprop_of_other, numpy.ones(2)))


def random_call_of(name: str) -> hostile.Call:
    """A call of a function of the chain that is right."""
    rng = numpy.random.default_rng(0)
    call = hostile.random_call(rng)
    while call.name != name:
        call = hostile.random_call(rng)
    return call


@pytest.mark.parametrize("dtype", ["float16", "float32", "longdouble", "int8", "uint64"])
def test_derivatives_of_all_types_of_real_numbers_are_accepted(dtype: str) -> None:
    for name in hostile.MORE_ARGUMENTS:
        call = random_call_of(name)
        derivatives = numpy.asarray(call.derivatives)
        if dtype == "uint64":  # a cast of negative numbers is undefined: ARM warns of it
            derivatives = abs(derivatives)

        hostile.answer(call._replace(derivatives=derivatives.astype(dtype)), seed=0)


@pytest.mark.parametrize("dtype", ["int8", "uint64"])
def test_lengths_of_all_types_of_integers_are_accepted(dtype: str) -> None:
    for name in hostile.MORE_ARGUMENTS:
        call = random_call_of(name)
        lengths = call.arguments["potentials.lengths"].astype(dtype)

        hostile.answer(
            call._replace(arguments={**call.arguments, "potentials.lengths": lengths}), seed=0
        )
