"""The experiment of Tsuboi & Kashima: features, what is tuned on what, tables."""

from typing import Any

import numpy
import pytest
import spacy
from spacy.tokens import Doc

from experiments import mixed_loss
from experiments.corpora import as_examples
from experiments.mixed_loss import FEATURES, LOSSES, PAPER_1, PAPER_2, prior, table_1, table_2
from experiments.runner import Runner
from experiments.scores import F, best_on_dev, train_all
from experiments.training import linear_block, make_ner
from spacy_costner.ml import linear_part

from .support.papers import system_with
from .support.slow import slow_but


def test_the_published_figures_agree_with_each_other() -> None:
    for p, r, f in zip(*(row.values() for row in PAPER_1.values())):
        assert 2 * p * r / (p + r) == pytest.approx(f, abs=0.011)
    assert {len(row) for row in [*PAPER_1.values(), *PAPER_2.values()]} == {len(LOSSES)}


def test_features_see_the_neighbours_only() -> None:
    words, ents = ["El", "Sr.", "Lee", "no", "ve"], ["O", "B-PER", "I-PER", "O", "O"]
    docs = [Doc(spacy.blank("xx").vocab, words=words, ents=ents)]
    ner = make_ner(as_examples(docs), model=linear_block(FEATURES))
    names = set(linear_part(ner.model)[0].names())
    assert {"ORTH[-1]=El", "ORTH=Sr.", "ORTH[+1]=ve", "ends_with_period[-1]=yes"} <= names
    assert not any("[-2]" in name or "[+2]" in name for name in names)


@pytest.fixture
def train(root: Any) -> Any:
    """Trains with a loss, on a small corpus: a look for each of the settings."""
    run = Runner(root / "runs")
    return lambda *arguments: train_all(run, [mixed_loss.trial("", *arguments)])[0]


@pytest.mark.parametrize("loss", slow_but(LOSSES, "k=1"))
def test_each_training_goes_on_where_the_last_one_ended(train: Any, loss: str) -> None:
    settings = [{"c2": 0.5, "tolerance": 1e-3}, {"c2": 0.05, "tolerance": 1e-3}]
    first, second, same = train(loss, None, [*settings, settings[1]], "batch")
    (from_zero,) = train(loss, None, settings[1:], "batch")
    assert second["objective"] < first["objective"]
    assert second["objective"] == pytest.approx(from_zero["objective"], rel=1e-3)
    assert same["iterations"] < from_zero["iterations"]
    assert [row[:3] for row in second["test"]["best path"]] == [[2, 0, 0], [1, 0, 0]]


def test_conjugate_gradient_learns_by_heart(train: Any) -> None:
    (found,) = train("k=2", None, [{"tolerance": 1e-2}], "conjugate")
    assert found["objective"] < 0.01
    assert found["dev"]["best path"][:3] == [3, 0, 0]


def test_only_the_first_sentences_are_learned_from(train: Any) -> None:
    settings = [{"c2": 0.05, "tolerance": 1e-3}]
    all_of_it, first = (train("seq", limit, settings, "batch")[0] for limit in (None, 1))
    assert first["objective"] < all_of_it["objective"]


def test_chance_is_told_from_differences() -> None:
    perfect = numpy.asarray([[1, 0, 0, 0, 1, 1, 1]] * 40)
    poor = numpy.asarray([[i % 2, 1 - i % 2, 1 - i % 2, 0, 1, 1, 1] for i in range(40)])
    fits = {"point": poor, "k=1": perfect, "seq": poor}
    lines = table_1(
        {loss: system_with(70, 70, **prior(4))._replace(test=[rows]) for loss, rows in fits.items()}
    ).splitlines()
    assert "| p of F against seq | 1.00 | 0.00 |  |" in lines


def test_tables_set_ours_beside_the_papers() -> None:
    fits = {"k=2": system_with(70, 80, **prior(4)), "seq": system_with(71, 81, **prior(16))}
    lines = table_1(fits).splitlines()
    assert "| F, paper | 77.41 | 77.47 |" in lines
    assert "| F, here | 80.00 | 81.00 |" in lines
    assert "| variance of the prior | 4 | 16 |" in lines


def test_the_table_of_sizes_has_means() -> None:
    fits = {100: {"seq": [system_with(40, 42)]}, 200: {"seq": [system_with(50, 52)]}}
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
        "point": [system_with(70, 90, **prior(4)), system_with(71, 80, **prior(16))],
        "seq": [system_with(73, 60, **prior(4)), system_with(72, 99, **prior(16))],
    }
    assert [mixed_loss.variance(best_on_dev(fits, F)) for fits in tried.values()] == ["16", "4"]
    lines = mixed_loss.table_of_priors(tried).splitlines()
    assert lines[2:] == ["| variance 4 | 70.00 | 73.00 |", "| variance 16 | 71.00 | 72.00 |"]
