"""The weights of a model and of annotators, from checked texts."""

import numpy
import pytest
from numpy.testing import assert_allclose

from spacy_costner import chain
from spacy_costner.tags import Tags
from spacy_costner.types import Potentials
from spacy_costner.workflows.noisy_labels.evidence_weights import (
    CheckedBatch,
    fit_weights,
    log_probs_of_gold,
    pool,
)

from ... import oracle
from ...support.batches import random_potentials

LENGTHS = [3, 0, 2]
TAGS = Tags(["x", "y"], "IOB2")


def make_parts(seed: int, lengths: list[int]) -> list[Potentials]:
    """Scores of a model under the constraints of tags, and the evidence of two annotators."""
    model = random_potentials(lengths, len(TAGS), seed=seed)
    parts = [chain.constrain(model, TAGS.constraints)]
    for annotator in (1, 2):
        evidence = random_potentials(lengths, len(TAGS), scale=2, seed=seed + annotator)
        zeros = [numpy.zeros(array.shape) for array in evidence[1:4]]
        parts.append(Potentials(evidence.emissions, *zeros, lengths=evidence.lengths))
    return parts


def sample_gold(potentials: Potentials, seed: int) -> numpy.ndarray:
    """True for the tag of a random path at each token. Shape: (N, K)"""
    rng = numpy.random.default_rng(seed)
    path = chain.forward_backward(potentials).sample_paths(1, rng)[0]
    return path[:, None] == numpy.arange(len(TAGS))


def test_the_log_probabilities_of_gold_are_those_of_all_paths_with_their_gradient() -> None:
    """By enumeration, and by central differences. One token has no annotation."""
    parts = make_parts(1, LENGTHS)
    is_gold = sample_gold(parts[0], seed=3)
    is_gold[1] = True
    batch = CheckedBatch(parts, is_gold)
    weights = numpy.asarray([0.7, 1.3, 0.2])

    values, gradient = log_probs_of_gold(batch, weights)

    potentials = pool(parts, weights)
    expected: list[float] = []
    for b in range(len(LENGTHS)):
        log_z_of_gold = oracle.log_sum_exp([p.score for p in oracle.paths(potentials, b, is_gold)])
        log_z = oracle.log_sum_exp([p.score for p in oracle.paths(potentials, b)])
        expected.append(log_z_of_gold - log_z)
    assert_allclose(values, expected)
    for i in range(3):
        step = numpy.eye(3)[i] * 1e-6
        difference = (
            log_probs_of_gold(batch, weights + step)[0].sum()
            - log_probs_of_gold(batch, weights - step)[0].sum()
        )
        assert_allclose(gradient[i], difference / 2e-6, rtol=1e-5)


def test_weights_with_which_annotation_was_drawn_are_found_again() -> None:
    """A model that is twice too certain, an annotator to believe, and one to ignore."""
    parts = make_parts(1, [6] * 400)
    true_weights = numpy.asarray([0.5, 1.0, 0.1])
    is_gold = sample_gold(pool(parts, true_weights), seed=4)

    weights = fit_weights([CheckedBatch(parts, is_gold)])

    assert_allclose(weights, true_weights, atol=0.1)


def test_weights_that_are_not_found_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning names them."""
    monkeypatch.setattr("spacy_costner.workflows.calibration.temperature.MAX_STEPS", 1)
    parts = make_parts(1, [6] * 20)
    is_gold = sample_gold(pool(parts, numpy.asarray([0.1, 3.0, 0.1])), seed=4)

    with pytest.warns(UserWarning, match="the weights of models and annotators may not be"):
        fit_weights([CheckedBatch(parts, is_gold)])


def test_few_texts_leave_weights_near_1() -> None:
    """The penalty decides where there is no annotation."""
    parts = make_parts(1, [2])

    weights = fit_weights([CheckedBatch(parts, numpy.ones((2, len(TAGS)), dtype=bool))])

    assert_allclose(weights, 1.0)
