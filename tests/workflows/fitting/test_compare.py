"""Tests of `compare`: how configs are put together, which results are kept, and the scores of a
comparison."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import spacy
import srsly
from spacy.util import load_config
from thinc.api import Config
from tqdm import tqdm

from spacy_costner.cli.compare import comparison_text, variant_text
from spacy_costner.costs.tables import HAMMING
from spacy_costner.files.saving import as_json
from spacy_costner.pipeline.scorers import DocCounts
from spacy_costner.workflows.config.initial_config import init
from spacy_costner.workflows.fitting.comparison import compare
from spacy_costner.workflows.fitting.fitting import fit
from spacy_costner.workflows.fitting.trainers import train_pipeline
from spacy_costner.workflows.fitting.variant_runs import key_of_training, run_variant
from spacy_costner.workflows.fitting.variant_scores import ComparedLoss, Finished, summarise
from spacy_costner.workflows.fitting.variants import (
    ScoringSettings,
    Variant,
    change_config,
    make_variants,
)
from spacy_costner.workflows.runs import Done, Failed

from ...support.experiment import SHORT, Experiment, make_experiment
from ...support.fitting import sparse_config

SEQUENTIAL = {"@losses": "spacy_costner.Sequential.v1"}
RISK = {"@losses": "spacy_costner.Risk.v1", "cost": HAMMING}

# Configs


def variants_of(experiment: Experiment, **overrides: Any) -> list[Variant]:
    """The variants of sequential and risk with the seed 0, then of both with the seed 1."""
    return make_variants(*experiment, seeds=[0, 1], overrides=overrides)


def test_blocks_are_merged() -> None:
    """The merged config is a copy: the given one isn't changed."""
    config = Config({"training": {"seed": 0, "dropout": 0.1}})
    merged = change_config(config, {"training": {"dropout": 0.0, "max_steps": 9}})
    assert merged == {"training": {"seed": 0, "dropout": 0.0, "max_steps": 9}}
    assert config == {"training": {"seed": 0, "dropout": 0.1}}


@pytest.mark.parametrize(
    ("before", "other"),
    [
        ({"@losses": "other.v1", "x": 1}, RISK),
        ({"factory": "cost_sensitive_ner", "loss": RISK}, {"factory": "ner", "moves": None}),
    ],
    ids=["loss", "factory"],
)
def test_blocks_of_another_registered_function_are_replaced(before: Any, other: Any) -> None:
    """The settings of one function don't fit another one."""
    config = Config({"block": before, "training": {"seed": 0}})
    replaced = change_config(config, {"block": other})
    assert replaced == {"block": other, "training": {"seed": 0}}


def test_a_cost_within_a_loss_is_replaced() -> None:
    ner = {"factory": "cost_sensitive_ner", "loss": {**RISK, "cost": {"@misc": "other", "x": 1}}}
    replaced = change_config(Config({"ner": ner}), {"ner": {"loss": RISK}})
    assert replaced == {"ner": {"factory": "cost_sensitive_ner", "loss": RISK}}


def test_each_loss_is_trained_with_each_seed(experiment: Experiment) -> None:
    """Each variant has a folder of its own, and all are measured in the same way."""
    variants = variants_of(experiment)

    assert [(variant.loss, variant.seed) for variant in variants] == [
        ("sequential", 0),
        ("risk", 0),
        ("sequential", 1),
        ("risk", 1),
    ]
    for variant in variants:
        assert variant.path == experiment.output_path / variant.loss / f"seed-{variant.seed}"
        scoring = ScoringSettings(
            component="ner",
            scheme="IOB2",
            cost=HAMMING,
            test_path=str(experiment.test_path),
            file_tokens=False,
            reading={},
        )
        assert variant.scoring == scoring


def test_a_variant_has_settings_of_base_loss_and_command_line(experiment: Experiment) -> None:
    """The config of a loss doesn't change the limits of training, which are the same for all
    losses: the config of risk says seed 9 and max_steps 90, which don't count. Its dropout does."""
    sequential, risk, *_ = variants_of(experiment, **{"training.patience": 3})

    training = {
        "seed": 0,
        "max_steps": 6,
        "eval_frequency": 1,
        "gpu_allocator": None,
        "patience": 3,
    }
    assert sequential.config["training"] == training
    assert risk.config["training"] == {**training, "dropout": 0.0}
    assert sequential.config["components"]["ner"]["loss"] == SEQUENTIAL
    assert risk.config["components"]["ner"]["loss"] == RISK
    assert risk.config["components"]["ner"]["model"]["tok2vec"]["width"] == 8  # of the base config


def test_losses_can_be_given_by_name(experiment: Experiment) -> None:
    """Instead of the path of a config. A loss has the defaults of its factory. Risk needs a
    trained model to start from, so 5 epochs of Sequential come before it."""
    names = ["sequential", "Risk", "MIRA"]
    experiment_by_name = experiment._replace(loss_paths=names)  # type: ignore[arg-type]

    variants = make_variants(*experiment_by_name, seeds=[0])

    assert [variant.loss for variant in variants] == names
    sequential, risk, mira = [variant.config["components"]["ner"]["loss"] for variant in variants]
    assert sequential == SEQUENTIAL
    assert risk == {
        "@losses": "spacy_costner.Schedule.v1",
        "epochs": [5.0],
        "*": {"first": SEQUENTIAL, "then": RISK},
    }
    assert mira == {
        "@losses": "spacy_costner.MIRA.v1",
        "cost": HAMMING,
        "multiplier": 1.0,
        "aggressiveness": 0.01,
    }


def test_a_name_of_no_loss_is_refused(experiment: Experiment) -> None:
    experiment_by_name = experiment._replace(loss_paths=["Rsk"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"`losses`: expected one of .*Risk.*, got 'Rsk'"):
        make_variants(*experiment_by_name, seeds=[0])


def test_losses_by_name_have_the_cost_that_is_scored(experiment: Experiment) -> None:
    cost = {"@misc": "spacy_costner.PrecisionRecallCost.v1", "miss": 5.0}
    scorer = {"@scorers": "spacy_costner.cost_scorer.v1", "cost": cost}
    base = load_config(experiment.config_path)
    change_config(base, {"components": {"ner": {"scorer": scorer}}}).to_disk(experiment.config_path)
    experiment_by_name = experiment._replace(loss_paths=["Risk", "MIRA"])  # type: ignore[list-item]

    risk, mira = make_variants(*experiment_by_name, seeds=[0])

    assert risk.scoring.cost == mira.scoring.cost == cost
    assert risk.config["components"]["ner"]["loss"]["*"]["then"]["cost"] == cost
    assert mira.config["components"]["ner"]["loss"]["cost"] == cost


@pytest.mark.parametrize(
    ("has_tree", "costs", "multiplier"),
    [
        (True, {}, 0.5),
        (True, {"miss": 20.0}, 0.22),  # 5 divided by 23: the two levels of the tree cost 3
        (False, {"miss": 20.0}, 0.25),
        (False, {"miss": 2.0}, 1.0),
    ],
    ids=["tree", "tree and high cost", "high cost", "low cost"],
)
def test_losses_by_name_have_the_multiplier_of_init(
    experiment: Experiment, has_tree: bool, costs: dict[str, float], multiplier: float
) -> None:
    """It depends on the cost of the scorer, and on the labels of the training corpus, which are
    only a part of the tree."""
    leaves: Any = {"city": {}, "country": {}, "other": {"far": {"away": {"from": {"all": {}}}}}}
    tree_path = experiment.output_path.parent / "tree.json"
    tree_path.write_text(json.dumps({"place": leaves}), encoding="utf8")
    options: dict[str, Any] = {**costs, "tree_path": tree_path if has_tree else None}
    corpus = experiment.test_path
    config = init(lang="xx", train_path=corpus, dev_path=corpus, loss="SoftmaxMargin", **options)
    experiment.config_path.write_text(config, encoding="utf8")
    experiment_by_name = experiment._replace(loss_paths=["SoftmaxMargin"])  # type: ignore[list-item]

    (variant,) = make_variants(*experiment_by_name, seeds=[0])

    loss = variant.config["components"]["ner"]["loss"]
    assert loss == Config().from_str(config)["components"]["ner"]["loss"]
    assert loss["multiplier"] == multiplier


def test_a_sweep_is_every_combination(experiment: Experiment) -> None:
    sweep = {"training.dropout": [0.1, 0.2], "components.ner.scheme": ["IOB2", "BILUO"]}
    config_path, loss_paths, *paths = experiment

    variants = make_variants(config_path, loss_paths[:1], *paths, seeds=[7], sweep=sweep)

    combinations = list(product([0.1, 0.2], ["IOB2", "BILUO"]))
    for variant, (dropout, scheme) in zip(variants, combinations, strict=True):
        assert variant.loss == f"sequential dropout={dropout} scheme={scheme}"
        assert variant.path == experiment.output_path / variant.loss / "seed-7"
        assert variant.config["training"]["dropout"] == dropout
        assert variant.config["components"]["ner"]["scheme"] == scheme


def test_a_sweep_without_losses_leaves_that_of_the_config(experiment: Experiment) -> None:
    config_path, _, *paths = experiment
    sweep = {"training.dropout": [0.1, 0.2]}
    variants = make_variants(config_path, [], *paths, seeds=[7], sweep=sweep)
    assert [variant.loss for variant in variants] == ["dropout=0.1", "dropout=0.2"]
    assert not any("loss" in variant.config["components"]["ner"] for variant in variants)


def test_settings_of_the_same_name_are_named_with_their_section(experiment: Experiment) -> None:
    config_path, _, *paths = experiment
    sweep = {"training.gpu_allocator": [1], "system.gpu_allocator": [2]}
    (variant,) = make_variants(config_path, [], *paths, seeds=[0], sweep=sweep)
    assert variant.loss == "training.gpu_allocator=1 system.gpu_allocator=2"


LOSS = "components.ner.loss"


@pytest.mark.parametrize(
    ("overrides", "sweep", "message"),
    [
        ({"training.seed": 7}, {}, r"training\.seed: expected random seeds in `seeds`, got 7"),
        ({"system.seed": 7}, {}, r"system\.seed: expected random seeds in `seeds`, got 7"),
        (
            {},
            {"training.seed": [7, 8]},
            r"training\.seed: expected random seeds in `seeds`, got \[7, 8\]",
        ),
        (
            {"training.dropout": 0.5},
            {"training.dropout": [0.1, 0.2]},
            r"training\.dropout: .* values in `sweep` \(training\.dropout\), got both: 0\.5",
        ),
        (
            {f"{LOSS}.cost.miss": 2.0},
            {f"{LOSS}.cost": [HAMMING]},
            rf"{LOSS}\.cost\.miss: .* values in `sweep` \({LOSS}\.cost\), got both: 2\.0",
        ),
        (
            {f"{LOSS}.@losses": RISK["@losses"]},
            {},
            rf"{LOSS}\.@losses: expected losses in `losses`, got 'spacy_costner\.Risk\.v1'",
        ),
        ({}, {LOSS: [RISK]}, rf"{LOSS}: expected losses in `losses`, got \[{{"),
    ],
)
def test_overrides_and_sweeps_do_not_replace_what_variants_set(
    experiment: Experiment, overrides: Any, sweep: Any, message: str
) -> None:
    """Otherwise, variants with different names would be the same. There are two seeds and two
    losses."""
    with pytest.raises(ValueError, match=message):
        make_variants(*experiment, seeds=[0, 1], overrides=overrides, sweep=sweep)


@pytest.mark.parametrize("is_swept", [False, True])
def test_a_setting_in_which_losses_differ_is_not_the_same_for_all(
    experiment: Experiment, is_swept: bool
) -> None:
    """The only difference between the losses is their dropout. Another setting can be the same for
    all."""
    for path, dropout in zip(experiment.loss_paths, (0.1, 0.2)):
        path.write_text(SHORT.replace("dropout = 0.0", f"dropout = {dropout}"))
    assert len(variants_of(experiment, **{"training.patience": 3})) == 4
    settings: Any = {"overrides": {"training.dropout": 0.3}}
    if is_swept:
        settings = {"sweep": {"training.dropout": [0.3, 0.4]}}

    message = "risk.*: expected another config than sequential.*, got the same"
    with pytest.raises(ValueError, match=message):
        make_variants(*experiment, seeds=[0, 1], **settings)


def test_mistyped_names_of_swept_settings_are_refused(experiment: Experiment) -> None:
    with pytest.raises(ValueError, match=r"paths\.trian: .*: did you mean 'train'\?"):
        make_variants(*experiment, seeds=[0], sweep={"paths.trian": ["a", "b"]})


def test_equal_configs_of_losses_are_compared(experiment: Experiment) -> None:
    """Nothing is replaced in them."""
    for path in experiment.loss_paths:
        path.write_text(SHORT)
    sequential, risk, *_ = variants_of(experiment, **{"training.patience": 3})
    assert sequential.config == risk.config


@pytest.mark.parametrize("paths", [["a", "a"], ["a/b", "a_b"]])
def test_two_variants_in_a_folder_are_refused(experiment: Experiment, paths: list[str]) -> None:
    """The value of a swept setting is given twice, or is part of a path. As two rows of the same
    variant, a seed would count twice."""
    sweep = {"paths.dev": paths}
    message = r"sequential dev=a\w*: expected one variant in .*, got two"
    with pytest.raises(ValueError, match=message):
        make_variants(*experiment, seeds=[0], sweep=sweep)


def test_callbacks_of_losses_do_not_count(experiment: Experiment) -> None:
    """All variants are evaluated as often as the base config says."""
    callback = {"@callbacks": "spacy_costner.evaluate_each_epoch.v1"}
    section = f"\n[initialize]\nbefore_init = {json.dumps(callback)}\n"
    experiment.loss_paths[1].write_text(SHORT + section)
    of_base = {"initialize": {"before_init": {"@callbacks": "another.v1"}}}
    change_config(load_config(experiment.config_path), of_base).to_disk(experiment.config_path)

    for variant in variants_of(experiment):
        assert variant.config["initialize"] == of_base["initialize"]


NO_PARENT_SECTION = "[components.ner.loss]\n@losses = spacy_costner.Risk.v1\n"
NO_COMPONENTS = "[nlp]\nlang = 'en'"
ANOTHER_SECTION = SHORT.replace("[components.ner", "[other")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("risk.cfg", NO_PARENT_SECTION, r"risk\.cfg: .*Section 'components' is not defi"),
        ("risk.cfg", NO_COMPONENTS, r"risk\.cfg: expected a component 'ner'"),
        ("risk.cfg", ANOTHER_SECTION, r"risk\.cfg: expected a component 'ner'"),
        ("base.cfg", NO_PARENT_SECTION, r"base\.cfg: .*Section 'components' is not defi"),
        ("base.cfg", NO_COMPONENTS, r"base\.cfg: expected one component .*, got \[\]"),
        ("base.cfg", ANOTHER_SECTION, r"base\.cfg: expected one component .*, got \[\]"),
    ],
)
def test_configs_that_do_not_fit_are_named(
    experiment: Experiment, name: str, text: str, message: str
) -> None:
    (experiment.config_path.parent / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        variants_of(experiment)


# Training


def test_a_variant_leaves_config_log_model_and_counts(experiment: Experiment) -> None:
    """The docs of the corpus have 6, 3, 3 and 1 tokens, and 2, 1, 0 and 1 entities."""
    variant = variants_of(experiment)[0]

    outcome = run_variant(variant)

    names = {path.name for path in variant.path.iterdir()}
    assert names == {"config.cfg", "log.txt", "model-best", "trained.json", "counts.json"}
    assert "ENTS_F" in (variant.path / "log.txt").read_text()
    assert spacy.load(variant.path / "model-best").config["training"]["seed"] == 0
    assert outcome.seconds > 0
    tp, _, fn, _, tokens = outcome.counts
    assert tokens.tolist() == [6, 3, 3, 1]
    assert (tp + fn).tolist() == [2, 1, 0, 1]


def test_another_measure_needs_no_other_training(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another cost, the saved pipeline predicts again. The function that trains is gone, so
    training would fail."""
    variant = variants_of(experiment)[0]
    outcome = run_variant(variant)
    zero_one = replace(variant.scoring, cost={"@misc": "spacy_costner.ZeroOneCost.v1"})

    monkeypatch.delattr("spacy_costner.workflows.fitting.variant_runs.train_pipeline")
    again = run_variant(variant._replace(scoring=zero_one))

    assert again.seconds == outcome.seconds
    tp_again, *_ = again.counts
    tp, *_ = outcome.counts
    assert tp_again.tolist() == tp.tolist()


def test_a_model_is_trained_from_the_second_step_on(experiment: Experiment) -> None:
    """A step has two updates here. The saved pipeline, which isn't trained again, says how many
    updates it had."""
    overrides = {"training.accumulate_gradient": 2}
    (variant,) = make_variants(*linear_experiment(experiment), seeds=[0], overrides=overrides)
    run_variant(variant)
    settings_path = variant.path / "model-best" / "ner" / "cfg"
    settings = srsly.read_json(settings_path)
    for n_updates, is_trained in ((2, False), (3, False), (4, True)):
        settings["progress"]["steps"] = n_updates
        srsly.write_json(settings_path, settings)
        assert run_variant(variant).is_trained is is_trained


def linear_experiment(experiment: Experiment) -> Experiment:
    """The experiment with a linear model and the loss Sequential."""
    sparse_config(experiment).to_disk(experiment.config_path)
    return experiment._replace(loss_paths=["Sequential"])  # type: ignore[list-item]


def linear_variant(experiment: Experiment) -> Variant:
    """The variant of a linear model with the loss Sequential."""
    (variant,) = make_variants(*linear_experiment(experiment), seeds=[1])
    return variant


def test_a_linear_model_is_trained_as_fit_does(experiment: Experiment) -> None:
    variant = linear_variant(experiment)

    run_variant(variant)
    fitted = fit(variant.config, experiment.output_path / "fitted")

    weights = (variant.path / "model-best" / "ner" / "model").read_bytes()
    assert weights == (fitted.path / "ner" / "model").read_bytes()
    assert fitted.outcomes["ner"].as_text() in (variant.path / "log.txt").read_text()


@pytest.mark.parametrize(
    "change",
    [
        {"training": {"max_steps": 0, "patience": 2}},
        {"nlp": {"pipeline": ["ner", "other"]}, "components": {"other": {"factory": "ner"}}},
    ],
    ids=["no end", "another component to train"],
)
def test_a_linear_model_that_fit_cannot_train_is_trained_by_spacy(
    experiment: Experiment, change: dict[str, Any]
) -> None:
    variant = linear_variant(experiment)
    outcome = run_variant(variant._replace(config=change_config(variant.config, change)))
    assert outcome.counts
    assert "LOSS NER" in (variant.path / "log.txt").read_text()  # a column of spaCy's table


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_training_of_spacy_has_a_bar_beside_its_log(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    """The bar counts updates. It is missing if the log itself is on the terminal. With max_steps 6
    spaCy takes 7 steps, as it counts them from 0. Each step has two updates here, so there are
    14."""
    bars: list[tqdm] = []

    def record(**settings: Any) -> tqdm:
        """Make a bar as `progress` does, but not on the terminal, and keep it."""
        bars.append(tqdm(**settings, file=StringIO()))
        return bars[-1]

    monkeypatch.setattr("spacy_costner.workflows.fitting.trainers.progress", record)
    log = StringIO()
    monkeypatch.setattr(log, "isatty", lambda: is_terminal)
    config = variants_of(experiment, **{"training.accumulate_gradient": 2})[0].config
    experiment.output_path.mkdir()
    train_pipeline(config, experiment.output_path, log)
    assert "LOSS NER" in log.getvalue()
    if is_terminal:
        assert not bars
    else:
        assert [(bar.desc, bar.n, bar.total) for bar in bars] == [("train", 14, 14)]


def saved_weights(variant: Variant) -> bytes:
    """The file with the weights of the model that a variant has trained."""
    return (variant.path / "model-best" / "ner" / "model").read_bytes()


@pytest.mark.parametrize("failing_step", ["train_pipeline", "replace_folder"])
def test_a_pipeline_stays_until_another_is_complete(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, failing_step: str
) -> None:
    """A second variant, with other settings, has the folder of the first. Its training fails, or
    the step that replaces the first pipeline. The first pipeline stays. It still counts as trained,
    unless the error came when it was to be replaced."""
    first = variants_of(experiment)[0]
    outcome = run_variant(first)
    weights = saved_weights(first)
    other = variants_of(experiment, **{"training.max_steps": 3})[0]

    with monkeypatch.context() as patch, pytest.raises(NameError):
        patch.delattr(f"spacy_costner.workflows.fitting.variant_runs.{failing_step}")
        run_variant(other)

    assert saved_weights(other) == weights
    is_known = failing_step == "train_pipeline"
    assert (other.path / "trained.json").exists() is is_known
    if is_known:
        assert run_variant(first).seconds == outcome.seconds


@pytest.mark.parametrize("failing_step", ["train_pipeline", "replace_folder"])
def test_a_pipeline_that_failed_is_trained_again(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, failing_step: str
) -> None:
    """The pipeline of an earlier variant in the same folder doesn't count for it. Another training
    has other seconds, and other weights."""
    first = variants_of(experiment)[0]
    outcome = run_variant(first)
    weights = saved_weights(first)
    other = variants_of(experiment, **{"training.max_steps": 3})[0]
    with monkeypatch.context() as patch, pytest.raises(NameError):
        patch.delattr(f"spacy_costner.workflows.fitting.variant_runs.{failing_step}")
        run_variant(other)

    assert run_variant(other).seconds != outcome.seconds

    assert saved_weights(other) != weights
    assert not (other.path / "training").exists()


SEEDS_AND_SAMPLES: dict[str, Any] = {"seeds": [0, 1], "n_samples": 20}


class Compared(NamedTuple):
    """A comparison of two losses with two seeds: its rows, and what was reported while it ran."""

    experiment: Experiment
    rows: list[ComparedLoss]
    names: list[str]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """The comparison, which is run once for several tests."""
    experiment = make_experiment(tmp_path_factory.mktemp("compared"))
    names: list[str] = []
    rows = compare(*experiment, **SEEDS_AND_SAMPLES, on_end=lambda name, _: names.append(name))
    return Compared(experiment, rows, names)


@pytest.mark.slow
def test_variants_are_run_seed_by_seed_and_reported_as_they_end(compared: Compared) -> None:
    assert [row.loss for row in compared.rows] == ["sequential", "risk"]
    assert compared.names == [
        "sequential, seed 0",
        "risk, seed 0",
        "sequential, seed 1",
        "risk, seed 1",
    ]


def test_a_comparison_is_written_down(compared: Compared) -> None:
    record = json.loads((compared.experiment.output_path / "comparison.json").read_text())
    assert record["seeds"] == [0, 1]
    for row, written in zip(compared.rows, record["losses"], strict=True):
        assert written["scores"] == pytest.approx(row.scores)
        assert written["differences"].keys() == row.differences.keys()
        for name, difference in row.differences.items():
            assert written["differences"][name]["p"] == pytest.approx(difference.p)


@pytest.mark.slow
def test_processes_train_the_same_models(compared: Compared, tmp_path: Path) -> None:
    in_processes = compared.experiment._replace(output_path=tmp_path / "in_processes")

    rows = compare(*in_processes, **SEEDS_AND_SAMPLES, jobs=2)

    for row, expected in zip(rows, compared.rows, strict=True):
        assert row._replace(seconds=0) == expected._replace(seconds=0)
    models = sorted(in_processes.output_path.rglob("model-best/ner/model"))
    expected_models = sorted(compared.experiment.output_path.rglob("model-best/ner/model"))
    assert len(models) == 4
    for path, expected_path in zip(models, expected_models, strict=True):
        assert path.read_bytes() == expected_path.read_bytes()


def test_a_comparison_is_taken_up_again(
    compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is trained twice."""
    monkeypatch.delattr("spacy_costner.workflows.fitting.variant_runs.train_pipeline")
    threads = partial(ThreadPoolExecutor, 2)
    rows = compare(*compared.experiment, make_executor=threads, **SEEDS_AND_SAMPLES)
    for row, expected in zip(rows, compared.rows, strict=True):
        assert as_json(row) == as_json(expected._replace(seconds=row.seconds))


def test_a_training_depends_on_the_code_with_registered_functions(tmp_path: Path) -> None:
    config = Config({"training": {"seed": 0}})
    code = tmp_path / "code.py"
    code.write_text("FACTOR = 1")
    key = key_of_training(config, code)
    assert key_of_training(config, code) == key
    code.write_text("FACTOR = 2")
    assert key_of_training(config, code) != key
    assert key_of_training(config, None) != key


def test_one_failure_does_not_stop_the_others(experiment: Experiment) -> None:
    """The label tree of bad.cfg lacks the label country. The log of its variant says where it has
    failed."""
    bad = experiment.output_path.parent / "bad.cfg"
    text = SHORT.replace("Risk", "MaxMargin").replace("Hamming", "Hierarchical")
    bad.write_text(f"{text}\n[components.ner.loss.cost.tree]\ncity = {{}}\n")
    with_bad = experiment._replace(loss_paths=[bad, *experiment.loss_paths])
    is_done: list[bool] = []

    with pytest.raises(ValueError, match=r"1 of 3 failed\nbad, seed 0: ValueError: .*'country'"):
        compare(*with_bad, on_end=lambda _, ended: is_done.append(isinstance(ended, Done)))

    assert is_done == [False, True, True]
    assert "Traceback" in (experiment.output_path / "bad" / "seed-0" / "log.txt").read_text()


def test_a_comparison_without_seeds_is_refused(experiment: Experiment) -> None:
    with pytest.raises(ValueError, match="seeds: expected at least 1, got 0"):
        compare(*experiment, seeds=())


# A scorer whose score falls with each evaluation. Each training has 7 of them.
FALLING = """
import spacy

@spacy.registry.scorers("falling.v1")
def make():
    scores = iter([1.5, 1.0, 0.5, *[0.0] * 9])
    return lambda examples, **_: {"ents_f": next(scores)}
"""


@pytest.mark.slow
def test_a_loss_whose_best_model_is_that_of_the_first_step_is_reported_as_untrained(
    experiment: Experiment,
) -> None:
    """The first step has the best model if a score falls from step to step. With another
    scorer, the same loss counts as trained. A step has three updates here: the model of the first
    step is untrained though it was updated three times."""
    code = experiment.output_path.parent / "code.py"
    code.write_text(FALLING)
    settings = {"components.ner.scorer": {"@scorers": "falling.v1"}}
    settings |= {"training.accumulate_gradient": 3}

    falling = compare(*experiment, overrides=settings, code_path=code, n_samples=9)
    usual = compare(*experiment, n_samples=9)

    assert [row.untrained for row in falling] == [[0], [0]]  # the seed 0
    assert usual[0].untrained == []
    assert usual[0].scores


# Scores


def finished(loss: str, *docs: list[float], seed: int = 0, seconds: float = 10) -> Finished:
    """A finished variant. Each argument is the counts of a doc: tp, fp, fn, cost and tokens."""
    columns = numpy.asarray(docs, dtype="float64").T
    return Finished(loss, seed, seconds, DocCounts(*columns))


# Of three docs: tp, fp, fn, cost, tokens.
POOR = [[1, 1, 1, 4, 10], [2, 0, 0, 0, 10], [0, 2, 1, 6, 20]]
GOOD = [[2, 0, 0, 0, 10], [2, 0, 0, 0, 10], [1, 1, 0, 2, 20]]


def test_scores_are_those_of_the_counts() -> None:
    """In POOR, 3 of 6 predicted entities are correct, 3 of 5 annotated ones are found, and 1 of 3
    docs has no mistake."""
    (row,) = summarise([finished("poor", *POOR)], n_samples=10)
    expected = {
        "ents_p": 3 / 6,
        "ents_r": 3 / 5,
        "ents_f": 2 * 3 / (2 * 3 + 3 + 2),
        "ents_cost": 10 / 40,
        "ents_sent_acc": 1 / 3,
    }
    assert row.scores == pytest.approx(expected)


def test_without_predictions_scores_are_0() -> None:
    """One of two docs has no entity, so it is right."""
    (row,) = summarise([finished("none", [0, 0, 0, 0, 5], [0, 0, 1, 2, 5])], n_samples=10)
    assert row.scores["ents_f"] == row.scores["ents_p"] == 0.0
    assert row.scores["ents_sent_acc"] == 0.5


def test_no_docs_are_refused() -> None:
    empty = Finished("a", 0, 1.0, DocCounts(*numpy.zeros((5, 0))))
    with pytest.raises(ValueError, match="test: expected docs with annotated entities, got none"):
        summarise([empty])


def test_rows_are_means_over_seeds() -> None:
    """F is 2 * 3 / (2 * 3 + 3 + 2) = 54.55 % with the first seed, and 2 * 5 / (2 * 5 + 1) = 90.91 %
    with the second. Their mean is 72.73. Their sample deviation is the difference, 36.36, divided
    by sqrt(2), which is 25.71. The first training took 10 seconds, the default of `finished`."""
    poor = finished("a", *POOR)
    good = finished("a", *GOOD, seed=1, seconds=20)

    (row,) = summarise([poor, good], n_samples=10)

    (row_of_poor,) = summarise([poor], n_samples=10)
    (row_of_good,) = summarise([good], n_samples=10)
    for name, score in row.scores.items():
        scores = [row_of_poor.scores[name], row_of_good.scores[name]]
        assert row.by_seed[name] == scores
        assert score == pytest.approx(sum(scores) / 2)
    assert row.seconds == (10 + 20) / 2
    assert "| 72.73 ± 25.71 |" in comparison_text([row])


def test_what_one_seed_wins_and_the_other_loses_is_no_difference() -> None:
    first = [finished("a", *POOR), finished("a", *GOOD, seed=1)]
    swapped = [finished("b", *GOOD), finished("b", *POOR, seed=1)]
    rows = summarise([*first, *swapped], n_samples=50)
    difference = rows[1].differences["ents_f"]
    assert difference.value == pytest.approx(0)
    # The scores of the seeds differ, so that the scores of other seeds may.
    assert difference.low < 0 < difference.high and difference.p > 0.9


def f_score_of(docs: list[list[float]]) -> float:
    """The F score of docs, computed from their counts: 2 tp / (2 tp + fp + fn)"""
    tp, fp, fn, *_ = numpy.sum(docs, axis=0)
    return 2 * tp / (2 * tp + fp + fn) if tp else 0.0


def test_differences_are_those_of_a_bootstrap_over_docs() -> None:
    """They are computed here by a loop over 200 samples of three docs, which are the same for both
    losses. The p-value is two-sided, and counts the docs themselves as one more sample. The three
    docs have 40 tokens, and cost 10 with POOR and 2 with GOOD."""
    rows = summarise([finished("poor", *POOR), finished("good", *GOOD)], n_samples=200)

    drawn = numpy.random.default_rng(0).integers(3, size=(200, 3))
    differences = []
    for doc_ids in drawn:
        good = f_score_of([GOOD[i] for i in doc_ids])
        poor = f_score_of([POOR[i] for i in doc_ids])
        differences.append(good - poor)
    n_not_better = sum(difference <= 0 for difference in differences)
    difference = rows[1].differences["ents_f"]
    assert difference.value == pytest.approx(f_score_of(GOOD) - f_score_of(POOR))
    assert difference.p == pytest.approx(2 * (1 + n_not_better) / 201)
    assert difference.low == pytest.approx(numpy.percentile(differences, 2.5))
    assert difference.high == pytest.approx(numpy.percentile(differences, 97.5))
    assert rows[1].differences["ents_cost"].value == pytest.approx((2 - 10) / 40)
    assert rows[0].differences == {}  # of the first, with which the others are compared


def untrained(loss: str, seed: int = 0) -> Finished:
    """A variant whose best model is the model of the first step."""
    return finished(loss, *GOOD, seed=seed)._replace(is_trained=False)


def cells_of(line: str) -> list[str]:
    """The cells of a row of a table in Markdown."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_loss_with_an_untrained_model_has_no_scores() -> None:
    """The other losses have the same scores as if it weren't there."""
    of_seed_0 = [finished("a", *GOOD), untrained("b"), finished("c", *POOR)]
    of_seed_1 = [finished(loss, *GOOD, seed=1) for loss in "abc"]

    rows = summarise([*of_seed_0, *of_seed_1], n_samples=9)

    without_b = [*of_seed_0[::2], *of_seed_1[::2]]
    assert [rows[0], rows[2]] == summarise(without_b, n_samples=9)
    assert [row.untrained for row in rows] == [[], [0], []]
    assert rows[1].scores == rows[1].by_seed == rows[1].differences == {}
    lines = comparison_text(rows).splitlines()
    assert cells_of(lines[3]) == ["b", "-", "-", "-", "-", "-", "10", "-", "-"]
    note = "b: the best model was not trained past the first step, with seed 0"
    assert lines[-1].startswith(note)


def test_nothing_is_compared_with_an_untrained_model() -> None:
    """It is the first loss, with which the others would be compared."""
    runs = [untrained("b"), finished("a", *GOOD), finished("c", *POOR)]
    rows = summarise(runs, n_samples=9)
    assert [bool(row.scores) for row in rows] == [False, True, True]
    assert all(row.differences == {} for row in rows)
    assert cells_of(comparison_text(rows).splitlines()[3])[-2:] == ["-", "-"]


def test_the_table_has_a_row_for_each_loss() -> None:
    rows = summarise([finished("poor", *POOR), finished("good", *GOOD)], n_samples=99)
    head, rule, poor, good = comparison_text(rows).splitlines()
    assert len({len(line) for line in (head, rule, poor, good)}) == 1
    assert cells_of(head)[:2] == ["loss", "F"]
    # F, precision, recall, cost, docs without mistakes and seconds; then no p-values, as the first
    # loss is the one that others are compared with
    expected = ["poor", "54.55", "50.00", "60.00", "0.2500", "33.33", "10", "-", "-"]
    assert cells_of(poor) == expected


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (Done(finished("a", *GOOD), seconds=9.0), "a, seed 0: F 90.91, 10 s"),
        (
            Done(untrained("a"), seconds=10.0),
            "a, seed 0: the best model was not trained past the first step, 10 s",
        ),
        (Failed("ValueError: no", ""), "a, seed 0: failed"),
    ],
    ids=["trained", "untrained", "failed"],
)
def test_a_variant_that_ends_has_a_line(ended: Any, text: str) -> None:
    """The line has the seconds of its training, which are 10 by default in `finished`, and not
    those of the run, 9."""
    assert variant_text("a, seed 0", ended) == text
