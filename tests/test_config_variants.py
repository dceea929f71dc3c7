"""What is trained: configs put together, and results that are kept."""

from itertools import product
from typing import Any, Dict, List

import pytest
import spacy
from spacy.util import load_config
from thinc.api import Config

from spacy_costner.cli.compare import (
    Finished,
    Variant,
    make_variants,
    put_onto,
    run_variant,
    run_variants,
)
from spacy_costner.cli.runs import Done, Failed
from spacy_costner.costs.tables import HAMMING

from .support.experiment import SHORT, Experiment

SEQUENTIAL = {"@losses": "spacy_costner.Sequential.v1"}
RISK = {"@losses": "spacy_costner.Risk.v1", "cost": HAMMING}


def variants_of(experiment: Experiment, **overrides: Any) -> List[Variant]:
    return make_variants(*experiment, seeds=[0, 1], overrides=overrides)


def test_settings_of_the_same_block_are_put_together() -> None:
    config = Config({"training": {"seed": 0, "dropout": 0.1}, "nlp": {"lang": "en"}})
    merged = put_onto(config, {"training": {"dropout": 0.0, "max_steps": 9}})
    assert merged == {
        "training": {"seed": 0, "dropout": 0.0, "max_steps": 9},
        "nlp": {"lang": "en"},
    }
    assert config["training"] == {"seed": 0, "dropout": 0.1}


@pytest.mark.parametrize("there", [SEQUENTIAL, {**RISK, "cost": {"@misc": "other", "x": 1}}])
def test_a_registered_function_takes_the_whole_place(there: Dict[str, Any]) -> None:
    assert put_onto({"loss": there}, {"loss": RISK}) == {"loss": RISK}


def test_another_factory_takes_the_whole_place() -> None:
    there = {"ner": {"factory": "cost_sensitive_ner", "loss": RISK}}
    other = {"ner": {"factory": "ner", "moves": None}}
    same = {"ner": {"factory": "cost_sensitive_ner", "scheme": "IOB2"}}
    assert put_onto(there, other) == other
    assert put_onto(there, same)["ner"] == {**there["ner"], "scheme": "IOB2"}


def test_variants(experiment: Experiment) -> None:
    variants = variants_of(experiment, **{"training.max_steps": 3})
    assert [(variant.loss, variant.seed) for variant in variants] == [
        *(("sequential", 0), ("risk", 0), ("sequential", 1), ("risk", 1))
    ]
    for variant in variants:
        training, ner = variant.config["training"], variant.config["components"]["ner"]
        assert (training["seed"], training["max_steps"]) == (variant.seed, 3)
        assert training["gpu_allocator"] is None
        assert training["eval_frequency"] == 1
        assert training.get("dropout") == (0.0 if variant.loss == "risk" else None)
        assert ner["loss"] == (RISK if variant.loss == "risk" else SEQUENTIAL)
        assert ner["model"]["tok2vec"]["width"] == 8
        assert variant.measure == ("ner", "IOB2", HAMMING, str(experiment.test_path))
        assert variant.path == experiment.output_path / variant.loss / f"seed-{variant.seed}"


def test_a_sweep_is_every_combination(experiment: Experiment) -> None:
    sweep = {"training.dropout": [0.1, 0.2], "components.ner.scheme": ["IOB2", "BILUO"]}
    config, losses, *paths = experiment
    variants = make_variants(config, losses[:1], *paths, seeds=[7], overrides={}, sweep=sweep)
    names = [f"dropout={d} scheme={s}" for d in (0.1, 0.2) for s in ("IOB2", "BILUO")]
    assert [variant.loss for variant in variants] == [f"sequential {name}" for name in names]
    assert variants[2].path == experiment.output_path / variants[2].loss / "seed-7"
    for variant, (rate, scheme) in zip(variants, product(*sweep.values())):
        assert variant.config["training"]["dropout"] == rate
        assert variant.config["components"]["ner"]["scheme"] == scheme
    alone = make_variants(config, [], *paths, seeds=[7], overrides={}, sweep=sweep)
    assert [variant.loss for variant in alone] == names
    assert not any("loss" in variant.config["components"]["ner"] for variant in alone)


def test_swept_settings_of_the_same_name_are_told_apart(experiment: Experiment) -> None:
    sweep = {"training.seed": [1], "system.seed": [2]}
    config, _, *paths = experiment
    (variant,) = make_variants(config, [], *paths, seeds=[0], overrides={}, sweep=sweep)
    assert variant.loss == "training.seed=1 system.seed=2"


def test_the_scorer_says_what_mistakes_cost(experiment: Experiment) -> None:
    cost = {"@misc": "spacy_costner.PrecisionRecallCost.v1", "miss": 5.0}
    scorer = {"@scorers": "spacy_costner.cost_scorer.v1", "cost": cost}
    config = put_onto(
        load_config(experiment.config_path), {"components": {"ner": {"scorer": scorer}}}
    )
    config.to_disk(experiment.config_path)
    for variant in variants_of(experiment):
        assert variant.measure.cost == cost


@pytest.mark.parametrize("callback", ["null", "spacy_costner.evaluate_each_epoch.v1"])
def test_all_losses_are_evaluated_as_often(experiment: Experiment, callback: str) -> None:
    line = f'before_init = {{"@callbacks": "{callback}"}}' if callback != "null" else ""
    text = f"\n[initialize]\n{line or 'before_init = null'}\n"
    experiment.loss_paths[1].write_text(SHORT + text)
    block = {"initialize": {"before_init": {"@callbacks": "another.v1"}}}
    put_onto(load_config(experiment.config_path), block).to_disk(experiment.config_path)
    for variant in variants_of(experiment):
        assert variant.config["initialize"] == block["initialize"]


@pytest.mark.parametrize("text", ["[nlp]\nlang = 'en'", SHORT.replace("[components.ner", "[other")])
def test_a_config_without_the_component_is_named(experiment: Experiment, text: str) -> None:
    experiment.loss_paths[1].write_text(text)
    with pytest.raises(ValueError, match=r"risk\.cfg: expected a component 'ner'"):
        variants_of(experiment)
    experiment.config_path.write_text(text)
    with pytest.raises(ValueError, match=r"base\.cfg: expected one component .*, got \[\]"):
        variants_of(experiment)


def test_losses_have_names_of_their_own(experiment: Experiment) -> None:
    twice = [*experiment.loss_paths, experiment.loss_paths[0]]
    with pytest.raises(ValueError, match=r"sequential\.cfg: expected files of different names"):
        variants_of(experiment._replace(loss_paths=twice))


def test_a_variant_leaves_what_is_needed(experiment: Experiment) -> None:
    variant = variants_of(experiment)[0]
    outcome = run_variant(variant)
    assert isinstance(outcome, Finished)
    assert outcome.seconds > 0
    assert {path.name for path in variant.path.iterdir()} == {
        *("config.cfg", "log.txt", "model-best", "trained.json", "counts.json")
    }
    assert "ENTS_F" in (variant.path / "log.txt").read_text()
    nlp = spacy.load(variant.path / "model-best")
    assert nlp.config["training"]["seed"] == 0
    tokens = [6, 3, 3, 1]
    assert outcome.counts.tokens.tolist() == tokens
    assert (outcome.counts.right + outcome.counts.missed).tolist() == [2, 1, 0, 1]


def test_another_measure_needs_no_other_training(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = variants_of(experiment)[0]
    first = run_variant(variant)
    monkeypatch.delattr("spacy_costner.cli.compare.train")
    zero_one = variant.measure._replace(cost={"@misc": "spacy_costner.ZeroOneCost.v1"})
    again = run_variant(variant._replace(measure=zero_one))
    assert isinstance(first, Finished) and isinstance(again, Finished)
    assert again.seconds == first.seconds
    assert again.counts.right.tolist() == first.counts.right.tolist()


def test_another_config_is_trained_anew(experiment: Experiment) -> None:
    first = run_variant(variants_of(experiment)[0])
    (variant, *_) = variants_of(experiment, **{"training.max_steps": 3})
    again = run_variant(variant)
    assert isinstance(first, Finished) and isinstance(again, Finished)
    assert again.seconds != first.seconds


@pytest.mark.parametrize("step", ["train", "replace_folder"])
def test_a_pipeline_stays_until_another_is_whole(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """And is not taken for the other one, nor the other one for it."""
    first = variants_of(experiment)[0]
    outcome = run_variant(first)
    before = (first.path / "model-best" / "ner" / "model").read_bytes()
    (variant, *_) = variants_of(experiment, **{"training.max_steps": 3})
    with monkeypatch.context() as patch:
        patch.delattr(f"spacy_costner.cli.compare.{step}")
        ((_, failed),) = run_variants([variant])
    assert isinstance(failed, Failed)
    assert (variant.path / "model-best" / "ner" / "model").read_bytes() == before
    assert (variant.path / "trained.json").exists() is (step == "train")
    if step == "train":
        again = run_variant(first)
        assert isinstance(again, Finished) and isinstance(outcome, Finished)
        assert again.seconds == outcome.seconds
    assert isinstance(run_variant(variant), Finished)
    assert (variant.path / "model-best" / "ner" / "model").read_bytes() != before
    assert not (variant.path / "training").exists()


def test_side_by_side_is_one_after_another(experiment: Experiment) -> None:
    variants = variants_of(experiment)[:2]
    apart = [variant._replace(path=variant.path / "apart") for variant in variants]
    one, two = dict(run_variants(variants)), dict(run_variants(apart, jobs=2))
    assert set(one) == set(two)
    for name, found in one.items():
        other = two[name]
        assert isinstance(found, Done) and isinstance(other, Done)
        assert found.value.counts.cost.tolist() == other.value.counts.cost.tolist()
