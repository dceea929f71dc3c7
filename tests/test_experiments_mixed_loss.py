"""The experiment of Tsuboi & Kashima: features, what is tuned on what, statistics, tables."""

from pathlib import Path
from typing import Any, Dict

import numpy
import pytest
import spacy
from numpy.testing import assert_allclose
from spacy.tokens import Doc

from experiments import corpora
from experiments.corpora import as_examples
from experiments.linear import make_linear
from experiments.mixed_loss import (
    FEATURES,
    LOSSES,
    PAPER_1,
    PAPER_2,
    best_on_dev,
    conjugate_gradient,
    descend,
    p_values,
    prior,
    table_1,
    table_2,
    table_of_priors,
    variance,
)
from experiments.scores import f_score
from spacy_costner.layers import linear_part

from .test_experiments import CORPUS


def fit(dev: float, test: float, **settings: Any) -> Dict[str, Any]:
    return {"testa": {"f": dev}, "testb": {"p": test, "r": test, "f": test}, **settings}


def test_the_published_figures_agree_with_each_other() -> None:
    for p, r, f in zip(*PAPER_1.values()):
        assert 2 * p * r / (p + r) == pytest.approx(f, abs=0.011)
    assert {len(row) for row in [*PAPER_1.values(), *PAPER_2.values()]} == {len(LOSSES)}


def test_features_see_the_neighbours_only() -> None:
    words, ents = ["El", "Sr.", "Lee", "no", "ve"], ["O", "B-PER", "I-PER", "O", "O"]
    docs = [Doc(spacy.blank("xx").vocab, words=words, ents=ents)]
    features, _ = linear_part(make_linear(as_examples(docs), features=FEATURES).ner.model)
    names = set(features.names())
    assert {"ORTH[-1]=El", "ORTH=Sr.", "ORTH[+1]=ve", "ends_with_period[-1]=yes"} <= names
    assert not any("[-2]" in name or "[+2]" in name for name in names)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "ASSETS", tmp_path)
    folder = tmp_path / "conll2002_es"
    folder.mkdir()
    for part in ("train", "testa", "testb"):
        (folder / f"esp.{part}").write_text(CORPUS)


@pytest.mark.parametrize("loss", LOSSES)
def test_each_training_goes_on_where_the_last_one_ended(corpus: None, loss: str) -> None:
    settings = [{"c2": 0.5, "tolerance": 1e-3}, {"c2": 0.05, "tolerance": 1e-3}]
    first, second, same = descend(loss, [*settings, settings[1]], None)["fits"]
    (from_zero,) = descend(loss, settings[1:], None)["fits"]
    assert second["objective"] < first["objective"]
    assert second["objective"] == pytest.approx(from_zero["objective"], rel=1e-3)
    assert same["iterations"] < from_zero["iterations"]
    assert second["testb"] == {"p": 100, "r": 100, "f": 100}
    assert second["counts"] == [[2, 2, 2], [1, 1, 1]]


def test_conjugate_gradient_learns_by_heart(corpus: None) -> None:
    found = conjugate_gradient("k=2", 1e-2, None)
    assert found["objective"] < 0.01
    assert found["testb"]["f"] == 100


def test_only_the_first_sentences_are_learned_from(corpus: None) -> None:
    settings = [{"c2": 0.05, "tolerance": 1e-3}]
    all_of_it, first = (descend("seq", settings, limit)["fits"][0] for limit in (None, 1))
    assert first["objective"] < all_of_it["objective"]


def test_f_is_that_of_the_counts() -> None:
    sums = numpy.asarray([[10, 10, 5, 4, 2, 2], [1, 0, 0, 1, 1, 1]])
    assert_allclose(f_score(sums.reshape(2, 2, 3)), [[50, 200 * 2 / 6], [0, 100]])


def test_chance_is_told_from_differences() -> None:
    perfect, poor = [[1, 1, 1]] * 40, [[1, 1, i % 2] for i in range(40)]
    p = p_values({"point": {"counts": poor}, "k=1": {"counts": perfect}, "seq": {"counts": poor}})
    assert p["point"] == 1
    assert p["k=1"] < 0.01
    assert p["seq"] == ""


def test_tables_set_ours_beside_the_papers() -> None:
    counts = [[1, 1, 1]] * 5
    fits = {
        "k=2": fit(70.0, 80.0, **prior(4), counts=counts),
        "seq": fit(71.0, 81.0, **prior(16), counts=counts),
    }
    lines = table_1(fits).splitlines()
    assert "| F, paper | 77.41 | 77.47 |" in lines
    assert "| F, here | 80.00 | 81.00 |" in lines
    assert "| variance of the prior | 4 | 16 |" in lines


def test_the_table_of_sizes_has_means() -> None:
    fits = {100: {"seq": fit(40, 42)}, 200: {"seq": fit(50, 52)}}
    assert table_2(fits, ["seq"]).splitlines()[2:] == [
        "| 100, paper | 46.51 |",
        "| 100, here | 41.00 |",
        "| 200, paper | 51.68 |",
        "| 200, here | 51.00 |",
        "| mean, paper | 49.09 |",
        "| mean, here | 46.00 |",
    ]


def test_the_prior_of_each_loss_is_chosen_on_the_development_set() -> None:
    tried = {
        "point": [fit(70.0, 90.0, **prior(4)), fit(71.0, 80.0, **prior(16))],
        "seq": [fit(73.0, 60.0, **prior(4)), fit(72.0, 99.0, **prior(16))],
    }
    assert [variance(best_on_dev(fits)) for fits in tried.values()] == ["16", "4"]
    lines = table_of_priors(tried).splitlines()
    assert lines[2:] == ["| variance 4 | 70.00 | 73.00 |", "| variance 16 | 71.00 | 72.00 |"]
