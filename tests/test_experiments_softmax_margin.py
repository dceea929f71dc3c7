"""Gimpel & Smith (2010) again: steps, averages and penalties by hand, statistics, tables."""

from pathlib import Path
from typing import Any, List

import numpy
import pytest
import spacy
from numpy.testing import assert_allclose
from spacy.training import Example

from experiments.cells import Runner
from experiments.corpora import as_examples, conll
from experiments.scores import f_score
from experiments.softmax_margin import study
from experiments.softmax_margin.methods import (
    METHODS,
    SGD_STEP,
    Corpus,
    Training,
    jensen_risk_bound,
    likelihood,
    mira,
    penalty,
    perceptron,
    risk,
)
from experiments.softmax_margin.page import experiment, settings_table
from experiments.softmax_margin.study import (
    Choice,
    at_choice,
    best_of,
    checkpoints,
    find_corpus,
    levels,
)

SENTENCES = """\
-DOCSTART- -X- O O

Ana NNP I-NP I-PER
Lee NNP I-NP I-PER
Bo NNP I-NP B-PER
sees VBZ I-VP O
Rome NNP I-NP I-LOC

Rome NNP I-NP I-LOC
sleeps VBZ I-VP O
"""

CORPUS = Corpus(n_batches=4, n_active=20.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for part in ("train", "testa", "testb"):
        (tmp_path / f"eng.{part}").write_text(SENTENCES)
    return tmp_path / "eng"


@pytest.fixture
def examples(path: Path) -> List[Example]:
    return as_examples(conll(path, spacy.blank("xx").vocab)["train"])


def weights(examples: List[Example], training: Training, **settings: Any) -> numpy.ndarray:
    """The weights after one epoch of one step."""
    settings = {"epochs": 1, "averaged": False, "seed": 0, **settings}
    return at_choice(examples, **training._asdict(), **settings).rows.copy()


def test_corpus_of_2003_is_read(examples: List[Example]) -> None:
    """Its tags are IOB1, its parts of speech in the second of four columns."""
    assert [[(e.text, e.label_) for e in eg.reference.ents] for eg in examples] == [
        [("Ana Lee", "PER"), ("Bo", "PER"), ("Rome", "LOC")],
        [("Rome", "LOC")],
    ]
    assert [token.tag_ for token in examples[1].predicted] == ["NNP", "VBZ"]


def test_the_corpus_of_the_paper_comes_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "CORPORA", {"a": path, "b": path})
    assert find_corpus() == "a"
    monkeypatch.setattr(study, "CORPORA", {"a": path.parent / "none", "b": path})
    assert find_corpus() == "b"
    monkeypatch.setattr(study, "CORPORA", {"a": path.parent / "none"})
    with pytest.raises(FileNotFoundError, match="any of a"):
        find_corpus()


def test_averages_are_of_the_weights_after_each_step(examples: List[Example]) -> None:
    training = likelihood(CORPUS, 0.1, None)._asdict()
    seen = {}
    for n, averaged, linear in checkpoints(examples, epochs=[1, 2], seed=0, **training):
        seen[n, averaged] = linear.rows.copy()
    assert not numpy.allclose(seen[1, False], seen[2, False])
    assert_allclose(seen[1, True], seen[1, False], atol=1e-6)
    assert_allclose(seen[2, True], (seen[1, False] + seen[2, False]) / 2, atol=1e-6)
    for averaged in (False, True):
        linear = at_choice(examples, epochs=2, averaged=averaged, seed=0, **training)
        assert_allclose(linear.rows, seen[2, averaged], atol=1e-6)


def test_the_perceptron_makes_whole_steps(examples: List[Example]) -> None:
    found = weights(examples[:1], perceptron(CORPUS, None, None, built_in=True))
    assert_allclose(found, found.round(), atol=1e-4)
    assert found.any()


def test_mira_makes_steps_of_c_at_most(examples: List[Example]) -> None:
    """Each weight moves by C times the difference of a feature's counts."""
    c = 1e-3
    found = weights(examples[:1], mira(CORPUS, c, 5, built_in=True)) / c
    assert_allclose(found, found.round(), atol=1e-3)
    assert found.any()


def test_mira_mends_a_mistake(examples: List[Example]) -> None:
    """Where C doesn't matter, the steps for m times the cost are m times as long."""
    one, five = (weights(examples[:1], mira(CORPUS, 1e3, m, built_in=True)) for m in (1, 5))
    assert_allclose(five, 5 * one, rtol=1e-3, atol=1e-6)
    assert one.any()


def test_risk_is_multiplied_and_its_penalty_is_not(examples: List[Example]) -> None:
    start = weights(examples, likelihood(CORPUS, 0.0, None))
    gradient = (start - weights(examples, risk(CORPUS, 0.0, 1), start=start)) / SGD_STEP
    assert numpy.abs(gradient).max() > 0.01
    expected = (start - 5 * SGD_STEP * gradient) / (1 + SGD_STEP * penalty(CORPUS, 3.0))
    assert_allclose(weights(examples, risk(CORPUS, 3.0, 5), start=start), expected, atol=1e-5)


def test_the_bound_is_the_risk_where_costs_are_small(examples: List[Example]) -> None:
    start = weights(examples, likelihood(CORPUS, 0.0, None))
    of_risk, of_bound = (
        weights(examples, method(CORPUS, 0.0, m), start=start) - start
        for method, m in ((risk, 1), (jensen_risk_bound, 1e-2))
    )
    assert_allclose(of_bound / 1e-2, of_risk, atol=0.05 * numpy.abs(of_risk).max())


def test_the_penalty_of_an_epoch() -> None:
    """L2 is of half the sum of squares, and is added at each of four steps."""
    assert CORPUS.n_batches * penalty(CORPUS, 0.1) / 2 == pytest.approx(0.1)


def test_f_by_hand() -> None:
    assert f_score(numpy.asarray([[4, 6, 3], [0, 0, 0]])).tolist() == [60, 0]


def test_levels_are_of_the_mean_of_the_seeds() -> None:
    rng = numpy.random.default_rng(0)
    right, some = (
        numpy.full((60, 3), 2),
        numpy.stack([*[numpy.full(60, 2)] * 2, rng.integers(2, size=60)], 1),
    )
    counts = numpy.asarray([[right, some], [some, right], [some, some]])
    assert levels(counts, 0, n_samples=100)[:2] == [1, 1]
    assert levels(counts, 0, n_samples=100)[2] == pytest.approx(2 / 101)


def test_settings_are_chosen_and_shown() -> None:
    tried = [
        Choice(0.01, 5, 3, False, 70.0),
        Choice(0.1, 5, 3, True, 72.0),
        Choice(0.1, 20, 3, False, 71.0),
    ]
    assert best_of(tried).describe() == "0.1, 5, 3, Y"
    header, _, row = [line.split(" | ") for line in settings_table({"jrb": tried}).splitlines()]
    shown = {name: value for name, value in zip(header[1:], row[1:]) if value.strip()}
    assert shown == {
        "C = 0.01": "70.00",
        "C = 0.1": "72.00",
        "m = 5": "72.00",
        "m = 20": "71.00",
        "avg. N": "71.00",
        "avg. Y |": "72.00 |",
    }


def test_the_experiment(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "CORPORA", {"tiny": path})
    text = experiment(Runner(tmp_path / "cells"), True)
    assert "tiny: 2 sentences" in text
    for method in METHODS.values():
        published = f"| {method.title} | {method.published.dev:.2f} | {method.published.test:.2f} |"
        assert published in text
