"""`costner init`: every config that it writes trains; what doesn't go together is refused."""

import json
import re
import shlex
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import spacy
import typer
from spacy.schemas import ConfigSchemaTraining
from spacy.tokens import Doc, DocBin
from spacy.training import Corpus
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import load_model_from_config, registry
from thinc.api import Config

from spacy_costner.analysis.initial_config import (
    build_loss,
    find_name,
    init,
    parse_losses,
    read_notes,
)
from spacy_costner.analysis.preparation import FEW_SENTENCES
from spacy_costner.cli import costner

from .support.commands import run
from .support.config import declared
from .support.experiment import make_corpus
from .support.transformers import register_transformers

register_transformers()

ROOT = Path(__file__).parent.parent
MODELS = ("linear", "cnn", "hybrid", "transformer")
LOSSES = [name.split(".")[1] for name in declared("thinc_losses") if "Schedule" not in name]
TINY = {"embed": {"rows": [50, 50, 50, 50]}, "encode": {"width": 8, "depth": 1}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, label trees, cost matrices, and a corpus without entities."""
    path = tmp_path_factory.mktemp("init")
    make_corpus(path / "corpus.spacy")
    (path / "tree.json").write_text('{"place": {"city": {}, "country": {}}}')
    (path / "people.json").write_text('{"person": {}}')
    (path / "costs.csv").write_text("gold,city,country,O\ncity,0,1,5\ncountry,1,0,5\nO,2,2,0\n")
    (path / "few.csv").write_text("gold,city,O\ncity,0,1\nO,1,0\n")
    write_docs(path / "empty.spacy", [("No", "O")])
    for n_docs, name in ((FEW_SENTENCES - 1, "few"), (FEW_SENTENCES, "many")):
        write_docs(path / f"{name}.spacy", [("Oslo", "B-city")] * n_docs)
    return path


def write_docs(path: Path, docs: Sequence[tuple[str, str]]) -> Path:
    """Docs of words and tags, both separated by spaces."""
    vocab = spacy.blank("xx").vocab
    made = [Doc(vocab, words=words.split(), ents=tags.split()) for words, tags in docs]
    DocBin(docs=made).to_disk(path)
    return path


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


COSTS: dict[str, dict[str, Any]] = {
    "none": {},
    "mistakes": {"miss": 5.0, "false_alarm": 2.0},
    "zero-one": {"cost": "zero-one"},
    "tree": {"tree_path": Path("tree.json")},
    "matrix": {"cost": "costs.csv"},
    "sum": {"tree_path": Path("tree.json"), "cost": "hamming", "miss": 2.0},
}
CORPUS = Path("corpus.spacy")


PAIRS = ("SoftmaxMargin,Risk", "SoftmaxMargin,MCEF", "Sequential,Pointwise,Mixed", "Risk,MCEF")
TRAINED: list[tuple[str, str, str, str, str]] = [
    *((model, "Sequential", "none", "viterbi", "f") for model in MODELS[:3]),
    *((model, "Sequential", "none", "viterbi", "guarantee") for model in MODELS[:3]),
    *(("linear", loss, "none", "viterbi", "f") for loss in (*LOSSES, *PAIRS)),
    *(("linear", "SoftmaxMargin", cost, "min-cost", "cost") for cost in COSTS),
    ("linear", "SoftmaxMargin", "mistakes", "threshold", "precision=0.9"),
    ("linear", "SoftmaxMargin", "tree", "threshold", "guarantee"),
    ("hybrid", "Mixed", "mistakes", "threshold", "cost"),
    ("cnn", "Perceptron", "matrix", "viterbi", "recall=0.8"),
]
"""Each model, loss, cost, decoding and aim."""


@pytest.mark.parametrize("model, loss, cost, decoding, aim", TRAINED, ids=" ".join)
def test_trains(model: Any, loss: str, cost: str, decoding: Any, aim: str) -> None:
    paths = {"train_path": CORPUS, "dev_path": CORPUS}
    given: dict[str, Any] = {"model": model, "loss": loss, "decoding": decoding, "aim": aim}
    text = init(lang="xx", **paths, **given, **COSTS[cost])
    config = Config().from_str(text, interpolate=False)
    if "tok2vec" in config["components"]:
        config = config.merge({"components": {"tok2vec": {"model": TINY}}})
    config["training"].update(max_steps=1, eval_frequency=1)
    trained, _ = train(init_nlp(config))
    scores = trained.evaluate(list(Corpus(CORPUS)(trained)))
    assert ("ents_cost" in scores) is (cost != "none" or aim == "cost")


@pytest.mark.parametrize(
    "options, reason",
    [
        ("--decoding min-cost --aim f", "--decoding: expected min-cost with --aim cost only"),
        ("--loss MIRA --decoding threshold", "with --decoding threshold, got MIRA: its scores"),
        ("--loss MIRA --aim guarantee", "with --aim guarantee, got MIRA: its scores are not"),
        ("--loss MCE --miss 5 --aim f", "got Sequential, MCE: nothing would use what you say"),
        ("--aim guarantee --miss 0.05", "got Sequential: nothing would use what you say"),
        ("--inner-nodes", "--inner-nodes: expected --tree and --decoding min-cost"),
        ("--tree tree.json --inner-nodes --decoding viterbi", "--inner-nodes: expected --tree"),
        ("--aim precision=90", "precision=0.9 or recall=0.9, got 'precision=90'"),
        ("--aim precision", "--aim: expected f, cost, guarantee, precision=0.9"),
        ("--loss Hinge", "--loss: expected any of "),
        ("--loss Schedule", "separate losses by commas for a schedule"),
        ("--cost none.csv", "ZeroOne, a CSV file, got 'none.csv'"),
        ("--lang xq", "import language xq"),
        ("--transformer bert", "expected --model transformer, got --model linear"),
        ("--miss -1", "Cost: miss: expected a finite number of at least 0, got -1.0"),
        ("--tree none.json", "HierarchicalCost: tree: none.json: expected a JSON or YAML"),
        ("--train corpus.spacy --tree people.json", "tree: people.json: "),
        ("--train corpus.spacy --cost few.csv", "matrix: few.csv: expected a cost for"),
        ("--train empty.spacy", "empty.spacy: expected docs with entities, got none in 1"),
    ],
)
def test_refused(options: str, reason: str) -> None:
    result = run("init", "new.cfg", *options.split())
    assert result.exit_code == 1 and reason in result.output, result.output
    assert not Path("new.cfg").exists()


def block(text: str, path: str) -> Any:
    """A block of a config, with variables filled in; None if there is none."""
    config: Any = Config().from_str(text)
    for name in path.split("."):
        config = config.get(name)
    return config


TREE = {"tree_path": Path("tree.json")}
FEW = {"train_path": Path("few.spacy")}


@pytest.mark.parametrize(
    "options, losses, decoding, cost_weight",
    [
        ({}, "Sequential", "Viterbi", None),
        (FEW, "SoftmaxMargin", "Viterbi", None),
        ({**FEW, "model": "hybrid"}, "Sequential", "Viterbi", None),
        ({"train_path": Path("many.spacy")}, "Sequential", "Viterbi", None),
        ({"aim": "precision=0.9"}, "Sequential", "Viterbi", None),
        ({"aim": "guarantee", **FEW}, "Sequential", "Viterbi", None),
        ({"aim": "guarantee", **TREE}, "Sequential", "Viterbi", 0.0),
        ({"miss": 5}, "SoftmaxMargin", "Viterbi", -1.0),
        ({"miss": 5, "loss": "Sequential"}, "Sequential", "MinCost", -1.0),
        ({"miss": 5, "loss": "Risk"}, "Sequential Risk", "MinCost", -1.0),
        ({"miss": 5, "model": "cnn"}, "SoftmaxMargin", "MinCost", -1.0),
        ({"miss": 5, "decoding": "viterbi"}, "SoftmaxMargin", "Viterbi", -1.0),
        ({"miss": 5, "aim": "f"}, "SoftmaxMargin", "Viterbi", 0.0),
        ({"miss": 5, **TREE}, "SoftmaxMargin", "Viterbi", -1.0),
        ({"inner_nodes": True, **TREE}, "SoftmaxMargin", "MinCost", -1.0),
        ({"model": "cnn", **TREE}, "SoftmaxMargin Risk", "MinCost", -1.0),
        ({"aim": "f", **TREE}, "SoftmaxMargin MCEF", "Viterbi", 0.0),
        ({"aim": "f", "model": "cnn", **TREE}, "Sequential", "Viterbi", 0.0),
        ({"loss": "perceptron", "aim": "cost"}, "Perceptron", "Viterbi", -1.0),
        ({"decoding": "min-cost"}, "SoftmaxMargin", "MinCost", -1.0),
    ],
)
def test_recommended(options: Any, losses: str, decoding: str, cost_weight: Any) -> None:
    """As docs/which-loss.md says."""
    text = init(**options)
    ner = block(text, "components.ner")
    stages = ner["loss"].get("*", {"": ner["loss"]}).values()
    assert [stage["@losses"].split(".")[1] for stage in stages] == losses.split()
    assert ner["decoding"]["@misc"] == f"spacy_costner.{decoding}Decoding.v1"
    assert block(text, "training.score_weights.ents_cost") == cost_weight


COST = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": "tree.json"}
SCHEDULE = {"loss": "Sequential,Pointwise,Mixed"}
THRESHOLD = {"decoding": "threshold", "loss": "SoftmaxMargin", "miss": 4}


@pytest.mark.parametrize(
    "options, path, value",
    [
        # The cost is everywhere that of the tree.
        (TREE, "loss.cost", COST),
        (TREE, "loss.multiplier", 0.5),
        ({**TREE, "model": "cnn"}, "loss.*.first.cost", COST),
        ({**TREE, "model": "cnn"}, "loss.*.then.cost", COST),
        (TREE, "scorer.cost", COST),
        ({**TREE, "inner_nodes": True}, "decoding.cost", COST),
        ({**TREE, "inner_nodes": True}, "decoding.tree", "tree.json"),
        ({**TREE, "inner_nodes": True}, "scorer.tree", "tree.json"),
        (TREE, "decoding.tree", None),
        (COSTS["sum"], "scorer.cost.costs.tags.@misc", "spacy_costner.HammingCost.v1"),
        (COSTS["sum"], "scorer.cost.costs.tree", COST),
        (COSTS["sum"], "scorer.cost.costs.mistakes.miss", 2),
        (COSTS["sum"], "scorer.cost.costs.mistakes.false_alarm", 0),
        # Models of few sentences miss too much.
        (FEW, "loss.cost.miss", 2),
        (FEW, "loss.cost.false_alarm", 1),
        # Schedules end with training. The cost of Mixed is optional.
        ({"loss": "Risk"}, "loss.epochs", [6.0]),
        ({"loss": "Risk", "model": "cnn"}, "loss.epochs", [5.0]),
        (SCHEDULE, "loss.epochs", [4.0, 6.0]),
        (SCHEDULE, "loss.*.loss_3.cost", None),
        # Expensive mistakes have a lower multiplier.
        *(({"loss": "MIRA", "miss": m}, "loss.multiplier", x) for m, x in ((5, 1), (50, 0.1))),
        *(({"loss": "Perceptron", "miss": m}, "loss.alpha", x) for m, x in ((5, 1), (50, 0.1))),
        ({"loss": "ZScore", "miss": 5}, "loss.*.then.multiplier", 20),
        ({"loss": "ZScore", "miss": 50}, "loss.*.then.multiplier", 2),
        # 0.2 means that a miss costs four times as much as a false alarm: docs/decoding.md.
        ({**THRESHOLD, "aim": "cost"}, "decoding.threshold", 0.2),
        ({**THRESHOLD, "aim": "f"}, "decoding.threshold", 0.5),
    ],
)
def test_settings(options: Any, path: str, value: Any) -> None:
    assert block(init(**options), f"components.ner.{path}") == value


def test_losses_and_costs_are_those_of_the_entry_points() -> None:
    """By any spelling of their names, with comments from their docstrings."""
    for name in LOSSES:
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        for given in (name, snake, snake.replace("_", "-"), f"spacy_costner.{name}.v1"):
            assert parse_losses(f"Sequential, {given}") == ["Sequential", name]
        text = init(loss=name)
        loss = block(text, "components.ner.loss")
        needs_start = build_loss(name).needs_start
        assert ("*" in loss) is needs_start
        notes = read_notes(loss["*"]["then"] if needs_start else loss)
        assert notes[""] and f"# {notes[''][0]}\n" in text
    assert find_name("Cost", "zero-one") == find_name("Cost", "ZeroOneCost") == "ZeroOne"
    assert "\n# Score per unit of cost" in init(loss="MIRA")
    assert parse_losses("risk,MCEF") == ["Sequential", "Risk", "MCEF"]


@pytest.mark.parametrize("n_sents, passes", [(1, 1), (4, 2)])
def test_texts_of_several_sentences_get_a_second_pass(
    n_sents: int, passes: int, tmp_path: Path
) -> None:
    """Whether a doc has several sentences is seen without sentence starts, too."""
    path = tmp_path / "train.jsonl"
    line = {"text": "She went to Oslo in May. " * n_sents, "label": [[12, 16, "city"]]}
    path.write_text(f"{json.dumps(line)}\n" * 20, encoding="utf8")
    text = init(train_path=path)
    assert f"20 docs, {20 * n_sents} sentences, {20 * n_sents * 7:,} words, 20 ent" in text
    document = block(text, "components.ner.model.features.document")
    assert document == ({"LOWER": 1} if passes == 2 else None)


SIZES = [*product(MODELS, [1, 60, 700], [20]), ("hybrid", 3000, 20), ("linear", 30, 700)]


@pytest.mark.parametrize("model, n_docs, n_words", SIZES)
def test_evaluates_every_epoch(model: Any, n_docs: int, n_words: int, tmp_path: Path) -> None:
    doc = "Oslo" + " rain" * (n_words - 1), "B-city" + " O" * (n_words - 1)
    path = write_docs(tmp_path / "train.spacy", [doc] * n_docs)
    config = Config().from_str(init(model=model, train_path=path, dev_path=path))
    batcher = config["training"]["batcher"]
    if isinstance(batcher["size"], dict):
        batcher["size"] = batcher["size"]["stop"]
    full = load_model_from_config(config, auto_fill=True, validate=False).config
    training = registry.resolve(full["training"], schema=ConfigSchemaTraining)
    if (model, n_docs) == ("hybrid", 3000):
        assert batcher["size"] == 600 and training["max_steps"] == 3000
        assert config["components"]["tok2vec"]["model"]["embed"]["rows"][0] == 1000
    n_batches = len(list(training["batcher"](Corpus(path)(spacy.blank("xx")))))
    assert training["eval_frequency"] <= max(1, n_batches)
    assert training["patience"] == 0 or training["patience"] >= n_batches


@pytest.mark.parametrize("model", ["linear", "hybrid"])
@pytest.mark.parametrize("n_labels, outside", [(20, "before"), (21, "single")])
def test_with_many_labels_o_is_one_tag(
    model: Any, n_labels: int, outside: str, tmp_path: Path
) -> None:
    path = write_docs(tmp_path / "train.spacy", [("a b", f"B-L{i} O") for i in range(n_labels)])
    assert block(init(model=model, train_path=path), "components.ner.outside") == outside


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("loss", ["SoftmaxMargin", "SoftmaxMargin,Risk"])
def test_sections_have_comments(model: Any, loss: str) -> None:
    """Without options it is the config in configs/, where a change of the template is made, too."""
    name, start = "sparse" if model == "linear" else model, "# The corpora.\n"
    of_model = (ROOT / "configs" / f"{name}.cfg").read_text("utf8")
    assert of_model.split(start)[1] == init(model=model).split(start)[1]
    text = init(model=model, loss=loss, train_path=CORPUS, **TREE)
    assert text.startswith("# Made by spacy-costner")
    assert max(map(len, text[text.index("[paths]") :].splitlines())) <= 105
    sections = ["paths", "system", "nlp", "training", "training.score_weights", "components.ner"]
    parts = "loss decoding scorer scorer.cost model" + " loss.*.first loss.*.then" * ("," in loss)
    for section in [*sections, *(f"components.ner.{part}" for part in parts.split())]:
        assert re.search(rf"^#.*\n\[{re.escape(section)}\]$", text, re.MULTILINE), section


def test_command_line() -> None:
    """The head has the command and the commands to run next, and is printed."""
    options = ["--train", "corpus.spacy", "--miss", "5", "--aim", "precision=0.9", "--lang", "de"]
    arguments = ["init", "my config.cfg", *options, "--loss", "SoftmaxMargin"]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    text = Path("my config.cfg").read_text(encoding="utf8")
    command = next(line for line in text.splitlines() if "costner init" in line)
    words = shlex.split(command.lstrip("# "))
    assert words[:5] == ["python", "-m", "spacy", "costner", "init"]
    tune = "tune training/calibrated dev.spacy --output training/tuned --precision 0.9"
    assert tune in text and tune in result.output
    assert block(text, "nlp.lang") == "de"
    result = run(*words[4:])
    assert result.exit_code == 1
    assert "my config.cfg: expected a new file, got one that exists: use --force" in result.output
    assert run(*words[4:], "--force").exit_code == 0
    again = Path("my config.cfg").read_text(encoding="utf8")
    assert again == text.replace(command, f"{command} --force")
    page = (ROOT / "docs" / "init.md").read_text(encoding="utf8")
    typed: Any = typer.main.get_command(costner).commands["init"]  # type: ignore[attr-defined]
    names = {option for param in typed.params for option in param.opts if option[0] == "-"}
    assert names <= {*re.findall(r"`(--?[a-z-]+|-F)`", page)}
    result = run("init", "-", "--loss", "perceptron")
    assert result.exit_code == 0 and not Path("-").exists()
    assert block(result.output, "components.ner.loss.alpha") == 1.0
    assert "calibrate" not in result.output and "--parameter bias" in result.output


def test_next_commands_check_and_train() -> None:
    result = run("init", "my.cfg", "--train", CORPUS, "--dev", CORPUS, "--miss", 3)
    after = result.output.split("Next:")[1].splitlines()
    commands = [shlex.split(line) for line in after if line.startswith("    ")]
    checked = run(*commands[0][4:])
    assert checked.exit_code == 0, checked.output
    fitted = run(*commands[1][4:], "--training.max_epochs", 1)
    assert fitted.exit_code == 0, fitted.output
    assert commands[2][5] == "training/model-best" and Path(commands[2][5]).exists()
    assert [words[3:][:2] for words in commands] == [
        *(["costner", name] for name in ("check", "fit", "calibrate")),
        ["evaluate", "training/calibrated"],
    ]
    # Calibration doesn't change the best path. It makes decisions by expected cost worse.
    for options, calibrated in (("", True), ("--decoding min-cost", False), ("--loss Risk", False)):
        result = run("init", "-", "--miss", 5, *options.split())
        assert ("costner calibrate" in result.output) is calibrated
        assert "Costs count tokens. `costner tune --recall 0.8`" in result.output
    assert "Costs count tokens" not in run("init", "-").output


def test_tree_by_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    labels = ["drug_dose", "org", "drug_name_new", "org_team", "_x", "date"]
    write_docs(Path("train.spacy"), [("a", f"B-{label}") for label in labels])
    given = ["init", "new.cfg", "--train", "train.spacy", "--tree-by-prefix", "_"]
    assert run(*given).exit_code == 0
    drug = {"drug_dose": {}, "drug_name_new": {}}
    expected = {"drug": drug, "org": {"org_team": {}}, "_x": {}, "date": {}}
    assert json.loads(Path("tree.json").read_text("utf8")) == expected
    assert block(Path("new.cfg").read_text("utf8"), "components.ner.scorer.cost") == COST
    Path("new.cfg").unlink()
    refused = run(*given)
    assert refused.exit_code == 1 and "tree.json: expected a new file" in refused.output
    train = ["--train", "train.spacy"]
    for options, reason in (
        ([*train, "--tree-by-prefix", "/"], "a separator in labels, got '/' for _x, date"),
        (["--tree-by-prefix", "_"], "--tree-by-prefix: expected --train"),
    ):
        refused = run("init", "new.cfg", "--tree", "other.json", *options)
        assert refused.exit_code == 1 and reason in refused.output
        assert not Path("other.json").exists() and not Path("new.cfg").exists()


def test_transformer_of_the_language() -> None:
    for given, name in (({}, "dccuchile/bert"), ({"transformer": "./own"}, "./own")):
        config = Config().from_str(init(model="transformer", lang="es", **given))
        assert config["components"]["transformer"]["model"]["name"].startswith(name)
        load_model_from_config(config, auto_fill=True)
