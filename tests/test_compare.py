"""`costner compare`: configs put together, results that are kept, rows counted by hand."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace
from functools import partial
from io import StringIO
from itertools import product
from typing import Any

import numpy
import pytest
import spacy
from spacy.util import load_config
from thinc.api import Config
from tqdm import tqdm

from spacy_costner.analysis.comparison import (
    Finished,
    Variant,
    compare,
    make_variants,
    put_onto,
    run_variant,
    summarise,
)
from spacy_costner.analysis.fitting import fit, train_pipeline
from spacy_costner.analysis.runs import Done, Failed
from spacy_costner.cli.compare import comparison_text, variant_text
from spacy_costner.costs.tables import HAMMING
from spacy_costner.pipeline.scorers import DocCounts
from spacy_costner.saving import as_json

from .support.experiment import SHORT, Experiment
from .support.fitting import sparse_config

SEQUENTIAL = {"@losses": "spacy_costner.Sequential.v1"}
RISK = {"@losses": "spacy_costner.Risk.v1", "cost": HAMMING}

# Configs


def variants_of(experiment: Experiment, **overrides: Any) -> list[Variant]:
    return make_variants(*experiment, seeds=[0, 1], overrides=overrides)


def test_blocks_are_merged_and_those_of_registered_functions_replaced() -> None:
    ner = {"factory": "cost_sensitive_ner", "loss": {**RISK, "cost": {"@misc": "other", "x": 1}}}
    config = Config({"ner": ner, "training": {"seed": 0, "dropout": 0.1}})
    other = {"ner": {"factory": "ner", "moves": None}}
    assert put_onto(config, other) == {**config, **other}
    changes = {"ner": {"loss": RISK}, "training": {"dropout": 0.0, "max_steps": 9}}
    assert put_onto(config, changes) == {
        "ner": {"factory": "cost_sensitive_ner", "loss": RISK},
        "training": {"seed": 0, "dropout": 0.0, "max_steps": 9},
    }
    assert config["training"] == {"seed": 0, "dropout": 0.1}


def test_variants(experiment: Experiment) -> None:
    variants = variants_of(experiment, **{"training.patience": 3})
    assert [(variant.loss, variant.seed) for variant in variants] == [
        *(("sequential", 0), ("risk", 0), ("sequential", 1), ("risk", 1))
    ]
    for variant in variants:
        ner, is_risk = variant.config["components"]["ner"], variant.loss == "risk"
        assert variant.config["training"] == {
            **{"seed": variant.seed, "max_steps": 6, "patience": 3, "eval_frequency": 1},
            **{"gpu_allocator": None, **({"dropout": 0.0} if is_risk else {})},
        }
        assert ner["loss"] == (RISK if is_risk else SEQUENTIAL)
        assert ner["model"]["tok2vec"]["width"] == 8
        measure = ("ner", "IOB2", HAMMING, str(experiment.test_path), False)
        assert astuple(variant.measure) == measure
        assert variant.path == experiment.output_path / variant.loss / f"seed-{variant.seed}"


def test_losses_by_name_have_the_cost_that_is_scored(experiment: Experiment) -> None:
    losses = ["sequential", "Risk", "MIRA"]
    plain, risk, mira = make_variants(*experiment._replace(loss_paths=losses), seeds=[0])
    assert [plain.loss, risk.loss, mira.loss] == losses
    assert plain.config["components"]["ner"]["loss"] == SEQUENTIAL
    stages = risk.config["components"]["ner"]["loss"]
    assert stages["epochs"] == [5.0] and stages["*"] == {"first": SEQUENTIAL, "then": RISK}
    cost = {"@misc": "spacy_costner.PrecisionRecallCost.v1", "miss": 5.0}
    scorer = {"@scorers": "spacy_costner.cost_scorer.v1", "cost": cost}
    base = load_config(experiment.config_path)
    put_onto(base, {"components": {"ner": {"scorer": scorer}}}).to_disk(experiment.config_path)
    for variant in make_variants(*experiment._replace(loss_paths=losses), seeds=[0])[1:]:
        loss = variant.config["components"]["ner"]["loss"]
        assert variant.measure.cost == loss.get("*", {}).get("then", loss)["cost"] == cost


def test_a_sweep_is_every_combination(experiment: Experiment) -> None:
    sweep = {"training.dropout": [0.1, 0.2], "components.ner.scheme": ["IOB2", "BILUO"]}
    config, losses, *paths = experiment
    variants = make_variants(config, losses[:1], *paths, seeds=[7], sweep=sweep)
    assert variants[2].path == experiment.output_path / variants[2].loss / "seed-7"
    for variant, (rate, scheme) in zip(variants, product(*sweep.values())):
        assert variant.loss == f"sequential dropout={rate} scheme={scheme}"
        assert variant.config["training"]["dropout"] == rate
        assert variant.config["components"]["ner"]["scheme"] == scheme
    alone = make_variants(config, [], *paths, seeds=[7], sweep=sweep)
    assert [f"sequential {variant.loss}" for variant in alone] == [v.loss for v in variants]
    assert not any("loss" in variant.config["components"]["ner"] for variant in alone)
    same = {"training.seed": [1], "system.seed": [2]}
    (variant,) = make_variants(config, [], *paths, seeds=[0], sweep=same)
    assert variant.loss == "training.seed=1 system.seed=2"


def test_all_losses_are_evaluated_as_often(experiment: Experiment) -> None:
    callback = {"@callbacks": "spacy_costner.evaluate_each_epoch.v1"}
    others = f"\n[initialize]\nbefore_init = {json.dumps(callback)}\n"
    experiment.loss_paths[1].write_text(SHORT + others)
    block = {"initialize": {"before_init": {"@callbacks": "another.v1"}}}
    put_onto(load_config(experiment.config_path), block).to_disk(experiment.config_path)
    for variant in variants_of(experiment):
        assert variant.config["initialize"] == block["initialize"]


@pytest.mark.parametrize("text", ["[nlp]\nlang = 'en'", SHORT.replace("[components.ner", "[other")])
def test_configs_that_do_not_fit_are_named(experiment: Experiment, text: str) -> None:
    without = "[components.ner.loss]\n@losses = spacy_costner.Risk.v1\n"
    for path, wrong, message in (
        (experiment.loss_paths[1], without, r"risk\.cfg: .*Section 'components' is not defi"),
        (experiment.loss_paths[1], text, r"risk\.cfg: expected a component 'ner'"),
        (experiment.config_path, without, r"base\.cfg: .*Section 'components' is not defi"),
        (experiment.config_path, text, r"base\.cfg: expected one component .*, got \[\]"),
    ):
        whole = path.read_text()
        path.write_text(wrong)
        with pytest.raises(ValueError, match=message):
            variants_of(experiment)
        path.write_text(whole)


# Training


def test_a_variant_leaves_what_is_needed(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another measure needs no other training."""
    variant = variants_of(experiment)[0]
    outcome = run_variant(variant)
    assert outcome.seconds > 0
    assert {path.name for path in variant.path.iterdir()} == {
        *("config.cfg", "log.txt", "model-best", "trained.json", "counts.json")
    }
    assert "ENTS_F" in (variant.path / "log.txt").read_text()
    assert spacy.load(variant.path / "model-best").config["training"]["seed"] == 0
    tp, _, fn, _, tokens = outcome.counts
    assert tokens.tolist() == [6, 3, 3, 1]
    assert (tp + fn).tolist() == [2, 1, 0, 1]
    monkeypatch.delattr("spacy_costner.analysis.comparison.train_pipeline")
    zero_one = replace(variant.measure, cost={"@misc": "spacy_costner.ZeroOneCost.v1"})
    again = run_variant(variant._replace(measure=zero_one))
    assert again.seconds == outcome.seconds
    assert again.counts[0].tolist() == tp.tolist()


def test_a_linear_model_is_trained_as_fit_does(experiment: Experiment) -> None:
    """But by `spacy train` if `fit` has no end or the pipeline other components to train."""
    sparse_config(experiment).to_disk(experiment.config_path)
    (variant,) = make_variants(*experiment._replace(loss_paths=["Sequential"]), seeds=[1])
    run_variant(variant)
    fitted = fit(variant.config, experiment.output_path / "fitted")
    weights = [path / "ner" / "model" for path in (fitted.path, variant.path / "model-best")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert fitted.outcomes["ner"].describe() in (variant.path / "log.txt").read_text()
    endless = {"training": {"max_steps": 0, "patience": 2}}
    two = {"nlp": {"pipeline": ["ner", "other"]}, "components": {"other": {"factory": "ner"}}}
    for name, change in {"endless": endless, "two": two}.items():
        config, path = put_onto(variant.config, change), experiment.output_path / name
        assert run_variant(variant._replace(config=config, path=path)).counts
        assert "LOSS NER" in (path / "log.txt").read_text()


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_training_of_spacy_has_a_bar_beside_its_log(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    """Of its updates, but not where its log is on the terminal already."""
    bars: list[tqdm] = []

    def record(**settings: Any) -> tqdm:
        bars.append(tqdm(**settings, file=StringIO()))
        return bars[-1]

    monkeypatch.setattr("spacy_costner.analysis.fitting.progress", record)
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


@pytest.mark.parametrize("step", ["train_pipeline", "replace_folder"])
def test_a_pipeline_stays_until_another_is_complete(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """And is not taken for the other one, nor the other one for it."""
    first = variants_of(experiment)[0]
    outcome = run_variant(first)
    before = (first.path / "model-best" / "ner" / "model").read_bytes()
    (variant, *_) = variants_of(experiment, **{"training.max_steps": 3})
    with monkeypatch.context() as patch, pytest.raises(NameError):
        patch.delattr(f"spacy_costner.analysis.comparison.{step}")
        run_variant(variant)
    assert (variant.path / "model-best" / "ner" / "model").read_bytes() == before
    assert (variant.path / "trained.json").exists() is (step == "train_pipeline")
    if step == "train_pipeline":
        assert run_variant(first).seconds == outcome.seconds
    assert run_variant(variant).seconds != outcome.seconds
    assert (variant.path / "model-best" / "ner" / "model").read_bytes() != before
    assert not (variant.path / "training").exists()


def test_a_comparison_is_written_down_and_taken_up_again(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    settings: dict[str, Any] = {"seeds": [0, 1], "n_samples": 20}
    rows = compare(*experiment, **settings, on_end=lambda name, _: seen.append(name))
    assert [row.loss for row in rows] == ["sequential", "risk"]
    assert seen == [f"{loss}, seed {seed}" for seed in (0, 1) for loss in ("sequential", "risk")]
    record = json.loads((experiment.output_path / "comparison.json").read_text())
    assert record["seeds"] == [0, 1]
    for row, written in zip(rows, record["losses"]):
        assert written["scores"] == pytest.approx(row.scores)
        p_values = {name: each["p"] for name, each in written["differences"].items()}
        assert p_values == pytest.approx({name: d.p for name, d in row.differences.items()})
    # In processes of their own: the same models and results.
    other = experiment._replace(output_path=experiment.output_path.parent / "other")
    of_processes = compare(*other, **settings, jobs=2)
    one, two = ([row._replace(seconds=0) for row in some] for some in (rows, of_processes))
    models = [sorted(e.output_path.rglob("model-best/ner/model")) for e in (experiment, other)]
    one_model, two_model = ([path.read_bytes() for path in paths] for paths in models)
    assert (one, one_model) == (two, two_model) and len(one_model) == 4
    monkeypatch.delattr("spacy_costner.analysis.comparison.train_pipeline")
    threads = partial(ThreadPoolExecutor, 2)
    for row, again in zip(rows, compare(*experiment, make_executor=threads, **settings)):
        assert as_json(again) == as_json(row._replace(seconds=again.seconds))


def test_one_failure_does_not_stop_the_others(experiment: Experiment) -> None:
    bad, seen = experiment.output_path.parent / "bad.cfg", []
    text = SHORT.replace("Risk", "MaxMargin").replace("Hamming", "Hierarchical")
    bad.write_text(f"{text}\n[components.ner.loss.cost.tree]\ncity = {{}}\n")
    some = experiment._replace(loss_paths=[bad, *experiment.loss_paths])
    with pytest.raises(ValueError, match=r"1 of 3 failed\nbad, seed 0: ValueError: .*'country'"):
        compare(*some, on_end=lambda _, ended: seen.append(isinstance(ended, Done)))
    assert seen == [False, True, True]
    assert "Traceback" in (experiment.output_path / "bad" / "seed-0" / "log.txt").read_text()
    with pytest.raises(ValueError, match="seeds: expected at least 1, got 0"):
        compare(*experiment, seeds=())


FALLING = """
import spacy

@spacy.registry.scorers("falling.v1")
def make():
    scores = iter([1.5, 1.0, 0.5, *[0.0] * 9])
    return lambda examples, **_: {"ents_f": next(scores)}
"""


def test_a_model_of_the_first_step_is_found(experiment: Experiment) -> None:
    """With a score that falls, the best model is that of the first step."""
    code = experiment.output_path.parent / "code.py"
    code.write_text(FALLING)
    settings = {"components.ner.scorer": {"@scorers": "falling.v1"}}
    settings |= {"training.accumulate_gradient": 3}
    rows = compare(*experiment, overrides=settings, code_path=code, n_samples=9)
    assert [row.untrained for row in rows] == [[0], [0]]
    (again, _) = compare(*experiment, n_samples=9)
    assert again.untrained == [] and again.scores


# Scores


def finished(loss: str, *docs: list[float], seed: int = 0, seconds: float = 10) -> Finished:
    """A variant with these counts of tp, fp, fn, cost and tokens for each doc."""
    columns = numpy.asarray(docs, dtype="float64").T
    return Finished(loss, seed, seconds, DocCounts(*columns))


POOR = [[1, 1, 1, 4, 10], [2, 0, 0, 0, 10], [0, 2, 1, 6, 20]]
GOOD = [[2, 0, 0, 0, 10], [2, 0, 0, 0, 10], [1, 1, 0, 2, 20]]


def test_scores_counted_by_hand() -> None:
    (row,) = summarise([finished("poor", *POOR)], n_samples=10)
    expected = {"ents_f": 2 * 3 / (2 * 3 + 3 + 2), "ents_p": 3 / 6, "ents_r": 3 / 5}
    assert row.scores == pytest.approx({**expected, "ents_cost": 10 / 40, "ents_sent_acc": 1 / 3})
    (row,) = summarise([finished("none", [0, 0, 0, 0, 5], [0, 0, 1, 2, 5])], n_samples=10)
    assert row.scores["ents_f"] == row.scores["ents_p"] == 0.0
    assert row.scores["ents_sent_acc"] == 0.5
    empty = Finished("a", 0, 1.0, DocCounts(*numpy.zeros((5, 0))))
    with pytest.raises(ValueError, match="test: expected docs with annotated entities, got none"):
        summarise([empty])


def test_rows_are_means_over_seeds() -> None:
    one, other = finished("a", *POOR), finished("a", *GOOD, seed=1, seconds=20)
    (row,) = summarise([one, other], n_samples=10)
    (first,), (second,) = summarise([one], n_samples=10), summarise([other], n_samples=10)
    for name, score in row.scores.items():
        assert row.by_seed[name] == [first.scores[name], second.scores[name]]
        assert score == pytest.approx((first.scores[name] + second.scores[name]) / 2)
    assert row.seconds == 15
    assert "| 72.73 ± 25.71 |" in comparison_text([row])
    # What one seed wins and the other loses is no difference.
    swapped = [finished("b", *GOOD), finished("b", *POOR, seed=1)]
    rows = summarise([one, other, *swapped], n_samples=50)
    assert rows[1].differences["ents_f"] == pytest.approx((0.0, 0.0, 0.0, 1.0))


def f_of(docs: list[list[float]]) -> float:
    tp, fp, fn = (sum(doc[i] for doc in docs) for i in range(3))
    return 2 * tp / (2 * tp + fp + fn) if tp else 0.0


def test_significance_against_a_loop() -> None:
    both = [finished("poor", *POOR), finished("good", *GOOD)]
    rows = summarise(both, n_samples=200)
    assert rows[0].differences == {}
    assert rows[1].differences["ents_cost"].value == pytest.approx((2 - 10) / 40)
    difference = rows[1].differences["ents_f"]
    drawn = numpy.random.default_rng(0).integers(3, size=(200, 3))
    samples = [f_of([GOOD[i] for i in ids]) - f_of([POOR[i] for i in ids]) for ids in drawn]
    not_better = sum(sample <= 0 for sample in samples)
    assert difference.value == pytest.approx(f_of(GOOD) - f_of(POOR))
    assert difference.p == pytest.approx(2 * (1 + not_better) / 201)
    assert difference.low == pytest.approx(numpy.percentile(samples, 2.5))
    assert difference.high == pytest.approx(numpy.percentile(samples, 97.5))


def untrained(loss: str, seed: int = 0) -> Finished:
    return finished(loss, *GOOD, seed=seed)._replace(is_trained=False)


def test_untrained_models_are_not_reported() -> None:
    """And nothing is compared with one."""
    runs = [finished("a", *GOOD), untrained("b"), finished("c", *POOR)]
    more = [finished(loss, *GOOD, seed=1) for loss in "abc"]
    rows = summarise([*runs, *more], n_samples=9)
    assert [row.untrained for row in rows] == [[], [0], []]
    assert rows[1].scores == rows[1].by_seed == rows[1].differences == {}
    alone = summarise([runs[0], runs[2], more[0], more[2]], n_samples=9)
    assert [rows[0], rows[2]] == alone
    *_, note = comparison_text(rows).splitlines()
    assert note.startswith("b: the best model was not trained past the first step, with seed 0")
    assert comparison_text(rows).splitlines()[3].split()[1:-1:2] == [
        "b",
        *["-"] * 5,
        "10",
        "-",
        "-",
    ]
    rows = summarise([untrained("b"), finished("a", *GOOD), finished("c", *POOR)], n_samples=9)
    assert [bool(row.scores) for row in rows] == [False, True, True]
    assert all(row.differences == {} for row in rows)
    assert comparison_text(rows).splitlines()[3].split("|")[8:10] == ["      - ", "         - "]


def test_table_and_lines() -> None:
    rows = summarise([finished("poor", *POOR), finished("good", *GOOD)], n_samples=99)
    head, rule, poor, good = comparison_text(rows).splitlines()
    assert len({len(line) for line in (head, rule, poor, good)}) == 1
    assert head.split("|")[1:3] == [" loss ", "     F "]
    expected = "poor 54.55 50.00 60.00 0.2500 33.33 10 - -"
    assert poor.split()[1:-1:2] == expected.split()
    good_run, other = Done(finished("good", *GOOD), seconds=9.0), Done(untrained("b"), 10.0)
    assert variant_text("good, seed 0", good_run) == "good, seed 0: F 90.91, 10 s"
    expected = "b, seed 0: the best model was not trained past the first step, 10 s"
    assert variant_text("b, seed 0", other) == expected
    assert variant_text("bad, seed 1", Failed("ValueError: no", "")) == "bad, seed 1: failed"
