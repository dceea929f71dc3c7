"""`costner init`: every config that it writes trains; what doesn't go together is refused."""

import json
import re
import shlex
import subprocess
import sys
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import numpy
import pytest
import spacy
import typer
from spacy.schemas import ConfigSchemaTraining
from spacy.tokens import Doc, DocBin
from spacy.training import Corpus
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import load_config, load_model_from_config, registry
from thinc.api import Config

from spacy_costner.cli import costner
from spacy_costner.cli.init import (
    CONFIGS,
    DECODINGS,
    LOSSES,
    MODELS,
    NO_START,
    RULES,
    Corpora,
    Costs,
    Plan,
    Size,
    look,
    make_plan,
    parse,
    read,
    render,
    takes_cost,
    write_config,
)

from .support.commands import run
from .support.config import declared
from .support.experiment import make_corpus
from .support.transformers import register_transformers

register_transformers()

ROOT = Path(__file__).parent.parent
LANG = "xx"
TREE = {"place": {"city": {}, "country": {}}}
MATRIX = "gold,city,country,O\ncity,0,1,5\ncountry,1,0,5\nO,2,2,0\n"
TINY = {
    "components": {
        "tok2vec": {
            "model": {
                "embed": {"rows": [50, 50, 50, 50]},
                "encode": {"width": 8, "depth": 1},
            }
        }
    },
    "training": {"max_steps": 1, "eval_frequency": 1},
}
"""Two updates and two evaluations of a small Tok2Vec."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, a label tree and a cost matrix."""
    path = tmp_path_factory.mktemp("init")
    make_corpus(path / "corpus.spacy")
    (path / "tree.json").write_text(json.dumps(TREE), encoding="utf8")
    (path / "costs.csv").write_text(MATRIX, encoding="utf8")
    return path


COSTS: Dict[str, Dict[str, Any]] = {
    "none": {},
    "mistakes": {"mistakes": {"miss": 5.0, "false_alarm": 2.0}},
    "zero-one": {"plain": "zero-one"},
    "tree": {"tree": "tree.json"},
    "matrix": {"matrix": "costs.csv"},
    "sum": {
        "tree": "tree.json",
        "matrix": "costs.csv",
        "plain": "hamming",
        "mistakes": {"miss": 2},
    },
}
AIMS: Dict[str, Dict[str, Any]] = {
    "f": {"aim": "f"},
    "cost": {"aim": "cost"},
    "precision": {"precision": 0.9},
    "recall": {"recall": 0.8},
    "guarantee": {"aim": "guarantee"},
}
PAIRS = ("SoftmaxMargin,Risk", "SoftmaxMargin,MCEF", "Sequential,Pointwise,Mixed")

Combination = Tuple[str, str, str, str, str]
"""Model, loss, cost, decoding and aim."""


def every_combination() -> Iterator[Combination]:
    models = [model for model in MODELS if model != "transformer"]
    return product(models, [*LOSSES, *PAIRS], COSTS, DECODINGS, AIMS)


def plan_of(combination: Combination, folder: Path) -> Plan:
    model, losses, cost, decoding, aim = combination
    settings = dict(COSTS[cost])
    for name in {"tree", "matrix"} & {*settings}:
        settings[name] = folder / settings[name]
    costs = Costs(**settings)
    return make_plan(model=model, losses=losses, decoding=decoding, costs=costs, **AIMS[aim])


def refused(combination: Combination) -> str:
    """The reason, if a combination is refused."""
    try:
        plan_of(combination, Path())
    except ValueError as error:
        return str(error)
    return ""


@cache
def size_of(path: Path) -> Size:
    return look(path, LANG)


def config_of(combination: Combination, folder: Path) -> str:
    corpus = folder / "corpus.spacy"
    corpora = Corpora(corpus, corpus, size_of(corpus))
    return write_config(plan_of(combination, folder), LANG, corpora)


def merge(config: Dict[str, Any], changes: Dict[str, Any]) -> None:
    """Change the settings that a config has."""
    for name, value in changes.items():
        if isinstance(value, dict):
            merge(config.get(name, {}), value)
        else:
            config[name] = value


def small(text: str) -> Config:
    """A config with a small Tok2Vec, to be trained for two steps."""
    config = Config().from_str(text, interpolate=False)
    merge(config, TINY)
    return config


def update_twice(text: str) -> Dict[str, Any]:
    """Train without the settings of [training], and return the scores of the trained pipeline."""
    nlp = load_model_from_config(small(text), auto_fill=True)
    examples = list(Corpus(nlp.config["paths"]["train"])(nlp))
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(2):
        losses = nlp.update(examples, sgd=optimizer)
    assert numpy.isfinite(losses["ner"])
    return nlp.evaluate(examples)


def one_of_each() -> List[Combination]:
    """A few combinations that have each model, loss, cost, decoding and aim."""
    found: List[Combination] = [(model, "Sequential", "none", "viterbi", "f") for model in MODELS]
    found += [("linear", loss, "none", "viterbi", "f") for loss in (*LOSSES, *PAIRS)]
    found += [("linear", "SoftmaxMargin", cost, "min-cost", "cost") for cost in COSTS]
    found += [("linear", "SoftmaxMargin", "mistakes", "threshold", "precision")]
    found += [("hybrid", "Mixed", "mistakes", "threshold", "cost")]
    found += [(model, "Sequential", "none", "viterbi", "guarantee") for model in MODELS]
    found += [("linear", "SoftmaxMargin", "tree", "threshold", "guarantee")]
    return [each for each in found if each[0] != "transformer"]


@pytest.mark.parametrize("combination", one_of_each(), ids=" ".join)
def test_trains(combination: Combination, folder: Path) -> None:
    nlp = init_nlp(small(config_of(combination, folder)))
    trained, _ = train(nlp)
    scores = trained.evaluate(list(Corpus(folder / "corpus.spacy")(trained)))
    has_cost = combination[2] != "none" or combination[4] == "cost"
    assert ("ents_cost" in scores) is has_cost


@pytest.mark.slow
@pytest.mark.parametrize("model", [model for model in MODELS if model != "transformer"])
def test_every_combination_trains(model: str, folder: Path) -> None:
    """The aims f, precision and recall make the same config, but for its head."""
    seen = set()
    for combination in every_combination():
        if combination[0] == model and not refused(combination):
            text = config_of(combination, folder)
            body = text[text.index("[paths]") :]
            if body not in seen:
                update_twice(text)
            seen.add(body)
    assert len(seen) > 100


def test_every_rule_refuses_and_says_why() -> None:
    reasons = {reason for combination in every_combination() if (reason := refused(combination))}
    for rule in RULES[:5]:
        start = f"--{rule.option}: {rule.reason.split('{')[0]}"
        assert any(reason.startswith(start) for reason in reasons), start


@pytest.mark.parametrize(
    "options, reason",
    [
        (["--decoding", "min-cost", "--aim", "f"], "--decoding: expected min-cost with --aim cost"),
        (["--loss", "MIRA", "--decoding", "threshold"], "viterbi after MIRA: its scores are not"),
        (["--tree", "tree.json", "--decoding", "threshold"], "a threshold only weighs misses"),
        (["--miss", 5, "--loss", "MCE", "--aim", "f"], "MCE takes none, so nothing would use"),
        (["--loss", "Risk,MCEF"], "another loss before Risk, for example Sequential"),
        (["--aim", "guarantee", "--loss", "MIRA"], "after MIRA are not probabilities, by which"),
        (["--aim", "guarantee", "--miss", 0.05], "Sequential takes none, so nothing would use"),
        (["--inner-nodes"], "--inner-nodes: expected --tree and --decoding min-cost"),
        (["--precision", 0.9, "--recall", 0.9], "expected one aim, got --precision and --recall"),
        (["--precision", 0.9, "--aim", "cost"], "expected one aim, got --precision and --aim cost"),
        (["--precision", 90], "--precision: expected a number between 0 and 1, got 90.0"),
        (
            ["--model", "crf"],
            "one of linear, cnn, hybrid, transformer, got 'crf'",
        ),
        (["--aim", "precision"], "--aim: expected one of f, cost, guarantee, got 'precision'"),
        (["--decoding", "beam"], "--decoding: expected one of viterbi, threshold, min-cost, got"),
        (["--loss", "Hinge"], "--loss: expected any of Sequential, "),
        (["--loss", "Schedule"], "separate losses by commas for a schedule"),
        (
            ["--cost", "none.csv"],
            "hamming or zero-one or a CSV file, got 'none.csv'",
        ),
        (["--lang", "xq"], "--lang: expected a language of spaCy, got 'xq'"),
        (["--transformer", "bert"], "expected --model transformer, got --model linear"),
        (
            ["--miss", -1],
            "Cost: miss: expected a finite number of at least 0, got -1.0",
        ),
        (
            ["--tree", "none.json"],
            "HierarchicalCost: tree: none.json: expected a JSON or YAML",
        ),
        (["--train", "corpus.spacy", "--sentences", 9], "expected no --train, which is counted"),
        (["--train", "corpus.spacy", "--tree", "people.json"], "tree: people.json: "),
        (
            ["--train", "corpus.spacy", "--cost", "few.csv"],
            "matrix: few.csv: expected a cost for",
        ),
        (
            ["--train", "empty.spacy"],
            "empty.spacy: expected docs with entities, got none in 1",
        ),
    ],
)
def test_refused(
    options: List[Any], reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "people.json").write_text('{"person": {}}')
    (folder / "few.csv").write_text("gold,city,O\ncity,0,1\nO,1,0\n")
    DocBin(docs=[Doc(spacy.blank("en").vocab, words=["No"])]).to_disk("empty.spacy")
    result = run("init", "new.cfg", *options)
    assert result.exit_code == 1, result.output
    assert reason in result.output
    assert not (folder / "new.cfg").exists()


def test_losses_are_those_of_the_package() -> None:
    names = {f"spacy_costner.{loss}.v1" for loss in LOSSES}
    assert {*declared("thinc_losses")} == {*names, "spacy_costner.Schedule.v1"}
    for loss, template in LOSSES.items():
        sections = {section.name: section for section in read(f"losses/{template}")[1]}
        is_schedule = "components.ner.loss.*.then" in sections
        own = "components.ner.loss" + (".*.then" if is_schedule else "")
        assert f'@losses = "spacy_costner.{loss}.v1"' in sections[own].body
        assert is_schedule is (loss in NO_START)
        assert takes_cost(loss) or f"{own}.cost" not in sections


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.cfg")), ids=lambda path: path.stem)
def test_sections_are_read_and_written_unchanged(path: Path) -> None:
    text = path.read_text(encoding="utf8")
    head, sections = parse(text)
    again = render([], sections)
    assert Config().from_str(again) == load_config(path, interpolate=True)
    comments = [line for line in text.splitlines() if line.startswith("#")]
    kept = [line for line in again.splitlines() if line.startswith("#")]
    n_head = len(comments) - len(kept)
    assert comments[n_head:] == kept
    assert [line.lstrip("# ") for line in comments[:n_head] if line != "#"] == [
        line.lstrip() for paragraph in head for line in paragraph.splitlines()
    ]
    assert parse(again)[1] == sections


def test_recommended() -> None:
    """As docs/which-loss.md says."""
    tree = Costs(tree=Path("tree.json"))

    def chosen(**wanted: Any) -> Tuple[str, str, str]:
        plan = make_plan(**wanted)
        return " ".join(plan.losses), plan.decoding, plan.aim

    assert chosen() == ("Sequential", "viterbi", "f")
    assert chosen(sentences=500) == ("SoftmaxMargin Risk", "viterbi", "f")
    assert chosen(sentences=500, model="hybrid") == ("Sequential", "viterbi", "f")
    assert chosen(sentences=5000) == ("Sequential", "viterbi", "f")
    misses = Costs(mistakes={"miss": 5})
    assert chosen(costs=misses) == ("Sequential", "min-cost", "cost")
    assert chosen(costs=misses, model="cnn") == ("SoftmaxMargin", "min-cost", "cost")
    assert chosen(costs=misses, decoding="viterbi") == ("SoftmaxMargin", "viterbi", "cost")
    assert chosen(costs=misses, aim="f") == ("SoftmaxMargin", "viterbi", "f")
    assert chosen(costs=misses._replace(tree=Path("tree.json")))[0] == "SoftmaxMargin Risk"
    assert chosen(costs=tree, model="cnn") == ("SoftmaxMargin Risk", "min-cost", "cost")
    assert chosen(costs=tree, aim="f") == ("SoftmaxMargin MCEF", "viterbi", "f")
    assert chosen(costs=tree, aim="f", model="cnn") == ("Sequential", "viterbi", "f")
    assert chosen(losses="perceptron", aim="cost") == ("Perceptron", "viterbi", "cost")
    assert chosen(precision=0.9) == ("Sequential", "viterbi", "precision")
    assert chosen(decoding="min-cost")[2] == "cost"
    for more in ({}, {"sentences": 500}, {"costs": tree}, {"model": "cnn"}):
        assert chosen(aim="guarantee", **more) == ("Sequential", "viterbi", "guarantee")


@pytest.mark.parametrize(
    "name", ["SoftmaxMargin", "softmax_margin", "softmax-margin", "spacy_costner.SoftmaxMargin.v1"]
)
def test_names_of_losses(name: str) -> None:
    assert make_plan(losses=f"{name}, MCEF").losses == ("SoftmaxMargin", "MCEF")


def block(text: str, *path: str) -> Any:
    """A block of a config, with variables filled in."""
    found: Any = Config().from_str(text)
    for name in path:
        found = found[name]
    return found


def test_cost_is_shared(folder: Path) -> None:
    text = config_of(("linear", "SoftmaxMargin,Risk", "tree", "min-cost", "cost"), folder)
    ner = block(text, "components", "ner")
    cost = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": str(folder / "tree.json")}
    stages = ner["loss"]["*"].values()
    assert [stage["cost"] for stage in stages] == [cost, cost]
    assert ner["decoding"]["cost"] == ner["scorer"]["cost"] == cost
    assert ner["scorer"]["tree"] == str(folder / "tree.json")
    assert block(text, "training", "score_weights")["ents_cost"] == -1.0


def test_costs_are_added(folder: Path) -> None:
    text = config_of(("linear", "SoftmaxMargin", "sum", "min-cost", "cost"), folder)
    cost = block(text, "components", "ner", "scorer", "cost")
    assert cost["@misc"] == "spacy_costner.SumCost.v1"
    assert [*cost["costs"]] == ["tree", "matrix", "tags", "mistakes"]
    assert cost["costs"]["mistakes"]["miss"] == 2 and cost["costs"]["mistakes"]["false_alarm"] == 0


@pytest.mark.parametrize("miss, multiplier", [(5, 1.0), (50, 0.1)])
def test_expensive_mistakes_have_a_lower_multiplier(miss: float, multiplier: float) -> None:
    plan = make_plan(costs=Costs(mistakes={"miss": miss}), losses="SoftmaxMargin")
    text = write_config(plan, "en")
    assert block(text, "components", "ner", "loss")["multiplier"] == multiplier


def test_threshold_of_costs() -> None:
    """docs/decoding.md: 0.2 means that a miss costs four times as much as a false alarm."""
    costs = Costs(mistakes={"miss": 4.0})
    for aim, threshold in (("cost", 0.2), ("f", 0.5)):
        text = write_config(make_plan(decoding="threshold", costs=costs, aim=aim), "en")
        assert block(text, "components", "ner", "decoding")["threshold"] == threshold


def test_inner_nodes(folder: Path) -> None:
    costs = Costs(tree=folder / "tree.json")
    text = write_config(make_plan(costs=costs, inner_nodes=True), "en")
    assert block(text, "components", "ner", "decoding")["tree"] == str(folder / "tree.json")
    assert "tree" not in block(
        write_config(make_plan(costs=costs), "en"), "components", "ner", "decoding"
    )


def corpus_of(path: Path, n_docs: int, n_words: int) -> Path:
    """Docs of the same number of words, with an entity each."""
    vocab = spacy.blank("en").vocab
    words, tags = ["Oslo", *["rain"] * (n_words - 1)], ["B-city", *["O"] * (n_words - 1)]
    DocBin(docs=[Doc(vocab, words=words, ents=tags) for _ in range(n_docs)]).to_disk(path)
    return path


@pytest.mark.parametrize("n_sents, passes", [(1, 1), (4, 2)])
def test_texts_of_several_sentences_get_a_second_pass(
    n_sents: int, passes: int, tmp_path: Path
) -> None:
    """Whether a doc has several sentences is seen without sentence starts, too."""
    path = tmp_path / "train.jsonl"
    line = {"text": "She went to Oslo in May. " * n_sents, "label": [[12, 16, "city"]]}
    path.write_text(f"{json.dumps(line)}\n" * 20, encoding="utf8")
    size = look(path, "en")
    assert (size.docs, size.sentences) == (20, 20 * n_sents)
    config = Config().from_str(write_config(make_plan(), "en", Corpora(path, path, size)))
    document = config["components"]["ner"]["model"]["features"]["document"]
    assert document == ({"LOWER": 1} if passes == 2 else None)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("n_docs, n_words", [(1, 3), (60, 20), (700, 20), (30, 700), (3000, 20)])
def test_evaluates_every_epoch(model: str, n_docs: int, n_words: int, tmp_path: Path) -> None:
    path = corpus_of(tmp_path / "train.spacy", n_docs, n_words)
    size = look(path, "en")
    assert (size.docs, size.words, size.labels) == (n_docs, n_docs * n_words, ("city",))
    config = Config().from_str(
        write_config(make_plan(model=model), "en", Corpora(path, path, size)), interpolate=True
    )
    batcher = config["training"]["batcher"]
    if isinstance(batcher["size"], dict):
        batcher["size"] = batcher["size"]["stop"]
    nlp = spacy.blank("en")
    full = load_model_from_config(config, auto_fill=True, validate=False).config
    training = registry.resolve(full["training"], schema=ConfigSchemaTraining)
    n_batches = len(list(training["batcher"](Corpus(path)(nlp))))
    assert training["eval_frequency"] <= max(1, n_batches)
    assert training["patience"] == 0 or training["patience"] >= n_batches


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("losses", ["SoftmaxMargin", "SoftmaxMargin,Risk"])
def test_sections_have_comments(model: str, losses: str, folder: Path) -> None:
    text = config_of((model, losses, "tree", "min-cost", "cost"), folder)
    head, sections = parse(text)
    assert head[0].startswith("Made by spacy-costner")
    said = {section.name for section in sections if section.comment}
    expected = {"paths", "system", "nlp", "training", "training.score_weights"}
    parts = ("loss", "decoding", "scorer", "scorer.cost", "model")
    expected |= {"components.ner", *(f"components.ner.{part}" for part in parts)}
    stages = ("loss.*.first", "loss.*.then") if "," in losses else ()
    expected |= {f"components.ner.{stage}" for stage in stages}
    assert expected <= said
    assert not [line for line in text.splitlines() if "configs/" in line or "README" in line]


def test_command_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head has the command, which writes the same config again."""
    monkeypatch.chdir(folder)
    options = ["--train", "corpus.spacy", "--miss", "5", "--precision", "0.9", "--lang", "de"]
    result = run("init", "my config.cfg", *options)
    assert result.exit_code == 0, result.output
    text = Path("my config.cfg").read_text(encoding="utf8")
    command = next(line for line in text.splitlines() if "costner init" in line)
    words = shlex.split(command.lstrip("# "))
    assert words[:5] == ["python", "-m", "spacy", "costner", "init"]
    assert "--precision 0.9" in text and "tune training/calibrated dev.spacy" in text
    assert "tune training/calibrated dev.spacy" in result.output
    result = run(*words[4:])
    assert result.exit_code == 1
    assert "my config.cfg: expected a new file, got one that exists: use --force" in result.output
    result = run(*words[4:], "--force")
    assert result.exit_code == 0
    again = Path("my config.cfg").read_text(encoding="utf8")
    assert again == text.replace(command, f"{command} --force")
    assert block(text, "nlp")["lang"] == "de"


def test_on_the_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    result = run("init", "-", "--sentences", 500, "--loss", "perceptron")
    assert result.exit_code == 0
    assert block(result.output, "components", "ner", "loss")["alpha"] == 1.0
    assert "calibrate" not in result.output and "--parameter bias" in result.output
    assert not Path("-").exists()


@pytest.mark.parametrize(
    "options, calibrated",
    [([], True), (["--loss", "SoftmaxMargin"], False), (["--decoding", "viterbi"], True)],
)
def test_cost_augmented_scores_are_not_calibrated(options: List[str], calibrated: bool) -> None:
    """Where entities are chosen by expected cost, to calibrate them makes it higher."""
    result = run("init", "-", "--miss", 5, *options)
    assert ("costner calibrate" in result.output) is calibrated


def test_next_commands_check_and_train(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    corpus = folder / "corpus.spacy"
    result = run("init", "my.cfg", "--train", corpus, "--dev", corpus, "--miss", 3)
    lines = [line.strip() for line in result.output.splitlines() if line.startswith("    ")]
    assert [shlex.split(line)[3:5] for line in lines[:1]] == [["costner", "check"]]
    checked = run(*shlex.split(lines[0])[4:])
    assert checked.exit_code == 0, checked.output
    assert [line.split()[3] for line in lines] == ["costner", "train", "costner", "evaluate"]


def test_transformer_of_the_language() -> None:
    plan = make_plan(model="transformer")
    spanish, given = write_config(plan, "es"), write_config(plan, "es", transformer="./bert")
    assert "bert" in block(spanish, "components", "transformer", "model")["name"]
    assert block(given, "components", "transformer", "model")["name"] == "./bert"
    load_model_from_config(Config().from_str(spanish), auto_fill=True)


def test_page_has_every_option_and_rule() -> None:
    page = (ROOT / "docs" / "init.md").read_text(encoding="utf8")
    section = page.split("## What doesn't go together")[1].split("\n## ")[0]
    assert section.count("\n| ") == len(RULES) + 1
    options = {option for param in get_init().params for option in getattr(param, "opts", ())}
    shown = {*re.findall(r"`(--?[a-z-]+|-F)`", page)}
    assert {option for option in options if option.startswith("-")} <= shown


def get_init() -> Any:
    """The command, as it reads its arguments."""
    group = typer.main.get_command(costner)
    return group.commands["init"]  # type: ignore[attr-defined]


@pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="outside of the clone")
def test_configs_are_installed(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    installed = tmp_path / "spacy_costner" / "configs"
    expected = {path.relative_to(ROOT / "configs") for path in (ROOT / "configs").rglob("*.*")}
    assert {path.relative_to(installed) for path in installed.rglob("*.*")} == expected


@pytest.mark.parametrize("model", ["linear", "hybrid"])
@pytest.mark.parametrize("n_labels, outside", [(20, "before"), (21, "single")])
def test_with_many_labels_o_is_one_tag(model: str, n_labels: int, outside: str) -> None:
    size = Size((20,) * 50, 50, labels=tuple(f"L{i:02}" for i in range(n_labels)))
    text = write_config(make_plan(model=model), "en", Corpora(Path("a"), Path("b"), size))
    assert block(text, "components", "ner")["outside"] == outside
