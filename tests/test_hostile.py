"""Arrays that don't fit are refused by name, before compiled code sees them."""

from typing import Any, Dict

import numpy
import pytest

from spacy_costner import chain
from spacy_costner.chain.compiled import array_code

from . import hostile
from .batches import random_potentials

POTENTIALS = random_potentials([3, 2], 4)
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
    for name in ("log_partition", "best_path", "posterior", "best_ways"):
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
