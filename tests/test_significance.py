"""The bootstrap, against the obvious loop, and p-values counted by hand."""

import numpy
import pytest

from spacy_costner import significance
from spacy_costner.significance import bootstrap, difference

COUNTS = numpy.random.default_rng(0).integers(5, size=(7, 3)).astype("float64")


def test_samples_are_sums_over_docs_drawn_with_replacement() -> None:
    sums = bootstrap(COUNTS, n_samples=20, seed=3)
    drawn = numpy.random.default_rng(3).integers(len(COUNTS), size=(20, len(COUNTS)))
    for sample, docs in zip(sums, drawn):
        assert sample.tolist() == sum(COUNTS[doc] for doc in docs).tolist()


def test_the_size_of_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = bootstrap(COUNTS, n_samples=20)
    monkeypatch.setattr(significance, "BLOCK", 3 * len(COUNTS))
    assert bootstrap(COUNTS, n_samples=20).tolist() == at_once.tolist()


def test_samples_scatter_as_they_should() -> None:
    sums = bootstrap(COUNTS, n_samples=20_000)
    assert sums.mean(axis=0) == pytest.approx(COUNTS.sum(axis=0), rel=0.01)
    assert sums.var(axis=0) == pytest.approx(len(COUNTS) * COUNTS.var(axis=0), rel=0.05)


def test_comparisons_are_paired() -> None:
    sums = bootstrap(numpy.stack([COUNTS[:, 0], COUNTS[:, 0] + 1], axis=1), n_samples=50)
    assert set(sums[:, 1] - sums[:, 0]) == {len(COUNTS)}


def test_p_counted_by_hand() -> None:
    sampled = numpy.asarray([-1.0, 0.0, *[1.0] * 97])
    assert difference(1.0, sampled).p == pytest.approx(2 * (1 + 2) / (1 + 99))
    assert difference(-1.0, -sampled).p == difference(1.0, sampled).p
    assert difference(1.0, numpy.ones(99)).p == pytest.approx(2 / 100)


def test_no_difference_has_p_1() -> None:
    assert difference(0.0, numpy.zeros(99)) == (0.0, 0.0, 0.0, 1.0)


def test_interval() -> None:
    value, low, high, _ = difference(0.5, numpy.linspace(0, 1, 1001))
    assert (value, low, high) == pytest.approx((0.5, 0.025, 0.975))
