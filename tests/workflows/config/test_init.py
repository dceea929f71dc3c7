"""Tests of `init`: every config that it writes can be trained, and options that don't go together
are refused."""

import inspect
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

from spacy_costner.cli import costner
from spacy_costner.docstrings import parameter_texts
from spacy_costner.training.eval_frequency import complete_config
from spacy_costner.training.stages import find_unused_loss
from spacy_costner.workflows.config.blocks import find_name
from spacy_costner.workflows.config.config_template import read_comments
from spacy_costner.workflows.config.corpus_statistics import CorpusStatistics
from spacy_costner.workflows.config.init_options import InitOptions
from spacy_costner.workflows.config.initial_config import init, make_config
from spacy_costner.workflows.config.loss_blocks import build_loss, choose_epochs, parse_losses
from spacy_costner.workflows.config.sizes import Sizes, choose_sizes
from spacy_costner.workflows.corpora import FEW_SENTENCES

from ...support.commands import run
from ...support.config import declared
from ...support.experiment import make_corpus
from ...support.transformers import register_transformers
from ...support.vocabs import blank_vocab

register_transformers()

ROOT = Path(__file__).parents[3]
MODELS = ("linear", "cnn", "hybrid", "transformer")
# Schedule isn't named: it is made of losses that are.
LOSSES = [name.split(".")[1] for name in declared("thinc_losses") if "Schedule" not in name]
TINY_TOK2VEC = {"embed": {"rows": [50, 50, 50, 50]}, "encode": {"width": 8, "depth": 1}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with label trees, cost matrices and corpora: one of 4 docs with cities and
    countries, one without entities, one with few sentences, and one with enough."""
    path = tmp_path_factory.mktemp("init")
    make_corpus(path / "corpus.spacy")
    (path / "tree.json").write_text('{"place": {"city": {}, "country": {}}}')
    (path / "people.json").write_text('{"person": {}}')
    (path / "costs.csv").write_text("gold,city,country,O\ncity,0,1,5\ncountry,1,0,5\nO,2,2,0\n")
    (path / "by_label.csv").write_text(
        "gold,city,town,street,O\ncity,0,1,1,38\ntown,1,0,1,5\nstreet,1,1,0,5\nO,2,2,2,0\n"
    )
    (path / "equals.csv").write_text("gold,c,a=b,O\nc,0,1,2\na=b,1,0,5\nO,2,2,0\n")
    (path / "city_only.csv").write_text("gold,city,O\ncity,0,1\nO,1,0\n")
    write_docs(path / "empty.spacy", [("No", "O")])
    write_docs(path / "few.spacy", [("Oslo", "B-city")] * (FEW_SENTENCES - 1))
    write_docs(path / "many.spacy", [("Oslo", "B-city")] * FEW_SENTENCES)
    return path


def write_docs(path: Path, docs: Sequence[tuple[str, str]]) -> Path:
    """Write docs to a file. A doc is given by its words and its tags, both separated by spaces."""
    vocab = blank_vocab()
    docbin = DocBin()
    for words, tags in docs:
        docbin.add(Doc(vocab, words=words.split(), ents=tags.split()))
    docbin.to_disk(path)
    return path


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests of this file run in the folder of the fixture `folder`."""
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
    *((model, "Sequential", "none", "viterbi", "guarantee") for model in MODELS[:3]),
    *(("linear", loss, "none", "viterbi", "f") for loss in (*LOSSES, *PAIRS)),
    *(("linear", "SoftmaxMargin", cost, "min-cost", "cost") for cost in COSTS),
    ("linear", "SoftmaxMargin", "mistakes", "threshold", "precision=0.9"),
    ("linear", "SoftmaxMargin", "tree", "threshold", "guarantee"),
    ("hybrid", "Mixed", "mistakes", "threshold", "cost"),
    ("cnn", "Perceptron", "matrix", "viterbi", "recall=0.8"),
]
"""Each model, loss, cost, decoding and aim. Configs without options are trained in test_configs."""


@pytest.mark.filterwarnings("ignore:.*the last loss is never used")  # in a single step
@pytest.mark.parametrize("model, loss, cost, decoding, aim", TRAINED, ids=" ".join)
def test_configs_train_for_a_step(
    model: Any, loss: str, cost: str, decoding: Any, aim: str
) -> None:
    """If a cost is given, or is the aim, the pipeline is also scored by cost."""
    text = init(
        lang="xx",
        train_path=CORPUS,
        dev_path=CORPUS,
        model=model,
        loss=loss,
        decoding=decoding,
        aim=aim,
        **COSTS[cost],
    )
    config = Config().from_str(text, interpolate=False)
    if "tok2vec" in config["components"]:
        config = config.merge({"components": {"tok2vec": {"model": TINY_TOK2VEC}}})
    config["training"].update(max_steps=1, eval_frequency=1)

    nlp, _ = train(init_nlp(config))

    scores = nlp.evaluate(list(Corpus(CORPUS)(nlp)))
    assert ("ents_cost" in scores) is (cost != "none" or aim == "cost")


@pytest.mark.parametrize(
    "options, reason",
    [
        ("--decoding min-cost --aim f", "--decoding: expected min-cost with --aim cost only"),
        ("--loss MIRA --decoding threshold", "with --decoding threshold, got MIRA: its scores"),
        ("--loss MIRA --aim guarantee", "with --aim guarantee, got MIRA: its scores are not"),
        ("--loss MCE --miss 5 --aim f", "got Sequential, MCE: nothing would use the costs"),
        ("--aim guarantee --miss 0.05", "got Sequential: nothing would use the costs"),
        ("--inner-nodes", "--inner-nodes: expected --tree and --decoding min-cost"),
        ("--tree tree.json --inner-nodes --decoding viterbi", "--inner-nodes: expected --tree"),
        ("--aim precision=90", "precision=0.9 or recall=0.9, got 'precision=90'"),
        ("--aim precision", "--aim: expected f, cost, guarantee, precision=0.9"),
        ("--loss Hinge", "--loss: expected one of "),
        ("--loss Schedule", "separate losses by commas for a schedule"),
        ("--cost none.csv", "ZeroOne, a CSV file, got 'none.csv'"),
        ("--lang xq", "import language xq"),
        ("--transformer bert", "expected --model transformer, got --model linear"),
        ("--miss -1", "Cost: miss: expected a finite number of at least 0, got -1.0"),
        ("--tree none.json", "HierarchicalCost: tree: none.json: expected a JSON or YAML"),
        (
            "--decoding threshold --cost equals.csv",
            "--decoding threshold: labels with different thresholds: expected names that a",
        ),
        ("--train corpus.spacy --tree people.json", "tree: people.json: "),
        ("--train corpus.spacy --cost city_only.csv", "matrix: city_only.csv: expected a cost for"),
        ("--train empty.spacy", "empty.spacy: expected docs with entities, got none in 1"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: str, reason: str) -> None:
    result = run("init", "new.cfg", *options.split())
    assert result.exit_code == 1, result.output
    assert reason in result.output
    assert not Path("new.cfg").exists()


def block(text: str, path: str) -> Any:
    """A block or a setting of a config, with variables filled in. None if the config doesn't have
    it."""
    value: Any = Config().from_str(text)
    for name in path.split("."):
        value = value.get(name)
    return value


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
def test_losses_and_decodings_are_those_that_which_loss_md_recommends(
    options: Any, losses: str, decoding: str, cost_weight: float | None
) -> None:
    """`losses` are the losses of the schedule. `cost_weight` is the weight of the cost when the
    best model is chosen: -1 if it is minimised, 0 if it is only shown, None if there is no cost."""
    text = init(**{"lang": "xx", **options})

    loss = block(text, "components.ner.loss")
    stages = list(loss["*"].values()) if "*" in loss else [loss]
    assert [stage["@losses"].split(".")[1] for stage in stages] == losses.split()
    name = block(text, "components.ner.decoding")["@misc"]
    assert name == f"spacy_costner.{decoding}Decoding.v1"
    assert block(text, "training.score_weights.ents_cost") == cost_weight


COST = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": "tree.json"}
SCHEDULE = {"loss": "Sequential,Pointwise,Mixed"}
THRESHOLD = {"decoding": "threshold", "loss": "SoftmaxMargin", "miss": 4}


@pytest.mark.parametrize(
    "options, path, value",
    [
        # The cost is everywhere the cost of the tree. With a CNN, the losses are a schedule.
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
        # Schedules end with training, which has 8 epochs with a linear model. Each loss but the
        # first has two of them. With other models, which have no last epoch, the first loss has
        # five. The cost of Mixed is optional.
        ({"loss": "Risk"}, "loss.epochs", [6.0]),
        ({"loss": "Risk", "model": "cnn"}, "loss.epochs", [5.0]),
        (SCHEDULE, "loss.epochs", [4.0, 6.0]),
        (SCHEDULE, "loss.*.loss_3.cost", None),
        # Expensive mistakes have a lower multiplier: with 1, a cost of 50 would be a score above 5,
        # so it is 5 / 50. The multiplier of ZScore, 20 by default, is multiplied by the same.
        ({"loss": "MIRA", "miss": 5}, "loss.multiplier", 1),
        ({"loss": "MIRA", "miss": 50}, "loss.multiplier", 0.1),
        ({"loss": "Perceptron", "miss": 5}, "loss.alpha", 1),
        ({"loss": "Perceptron", "miss": 50}, "loss.alpha", 0.1),
        ({"loss": "ZScore", "miss": 5}, "loss.*.then.multiplier", 20),
        ({"loss": "ZScore", "miss": 50}, "loss.*.then.multiplier", 2),
        # A miss costs 4 and a false alarm 1: 1 - 4 / (4 + 1) = 0.2, see docs/decoding.md.
        ({**THRESHOLD, "aim": "cost"}, "decoding.threshold", 0.2),
        ({**THRESHOLD, "aim": "f"}, "decoding.threshold", 0.5),
        # In the tree, a miss and a false alarm cost 3; the given cost of a miss is added to that:
        # 1 - 8 / (8 + 3). Other mistakes don't cost more than in the tree.
        ({**THRESHOLD, **TREE, "miss": 0}, "decoding.threshold", 0.5),
        ({**THRESHOLD, **TREE, "miss": 5}, "decoding.threshold", 0.2727),
        (
            {**THRESHOLD, "cost": "hamming", "miss": 0, "false_alarm": 9},
            "decoding.threshold",
            0.9091,
        ),
        # In the matrix, a miss costs 5 and a false alarm 2: 1 - 5 / (5 + 2).
        ({**THRESHOLD, "cost": "costs.csv", "miss": None}, "decoding.threshold", 0.2857),
        ({**THRESHOLD, "cost": "costs.csv", "miss": None}, "decoding.labels", {}),
        # In this one, towns and streets are like that, and a missed city costs 38.
        ({**THRESHOLD, "cost": "by_label.csv", "miss": None}, "decoding.threshold", 0.2857),
        ({**THRESHOLD, "cost": "by_label.csv", "miss": None}, "decoding.labels", {"city": 0.05}),
        # Where nothing costs anything, the threshold is even.
        ({**THRESHOLD, "miss": 0, "false_alarm": 0}, "decoding.threshold", 0.5),
    ],
)
def test_settings_follow_from_options(options: Any, path: str, value: Any) -> None:
    assert block(init(**{"lang": "xx", **options}), f"components.ner.{path}") == value


@pytest.mark.parametrize("loss_name", LOSSES)
def test_losses_are_found_by_any_spelling_of_their_names(loss_name: str) -> None:
    snake_case = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", loss_name).lower()
    registered_name = f"spacy_costner.{loss_name}.v1"
    for spelling in (loss_name, snake_case, snake_case.replace("_", "-"), registered_name):
        assert parse_losses(f"Sequential, {spelling}") == ["Sequential", loss_name]


@pytest.mark.parametrize("loss_name", LOSSES)
def test_losses_have_the_first_line_of_their_docstring_as_a_comment(loss_name: str) -> None:
    """A loss that needs a trained model to start from is the second one of a schedule."""
    text = init(loss=loss_name)

    loss = block(text, "components.ner.loss")
    needs_start = build_loss(loss_name).needs_start
    assert ("*" in loss) is needs_start
    first_line = read_comments(loss["*"]["then"] if needs_start else loss)[""][0]
    assert first_line
    assert f"# {first_line}\n" in text


@pytest.mark.parametrize("loss_name", LOSSES)
def test_comments_of_losses_are_about_their_settings(loss_name: str) -> None:
    """What the docstring says of errors and of the result is no comment."""
    make_loss = registry.losses.get(f"spacy_costner.{loss_name}.v1")
    assert {*parameter_texts(make_loss)} <= {*inspect.signature(make_loss).parameters}


def test_the_arguments_of_init_are_its_options() -> None:
    """Names, types and defaults, for `help` and editors."""
    options = inspect.signature(InitOptions).parameters
    assert inspect.signature(init).parameters == options
    assert {*parameter_texts(InitOptions)} == {*options}
    with pytest.raises(TypeError, match="mis"):
        init(mis=2.0)  # type: ignore[call-arg]


def test_options_make_the_config_of_the_same_arguments() -> None:
    options = InitOptions(Path("es.cfg"), lang="es", model="hybrid", miss=2.0)
    assert make_config(options) == init(Path("es.cfg"), lang="es", model="hybrid", miss=2.0)
    assert make_config(options) != make_config(InitOptions())


def test_a_tree_by_prefix_needs_a_corpus_before_anything_is_read() -> None:
    with pytest.raises(ValueError, match=r"^`tree_by_prefix`: expected `train_path`"):
        init(tree_by_prefix="_", groups_path=Path("missing.json"))


def test_a_loss_that_needs_a_start_follows_sequential() -> None:
    assert parse_losses("risk,MCEF") == ["Sequential", "Risk", "MCEF"]


def test_parameters_of_losses_have_comments() -> None:
    assert "\n# The amount added to a score per unit of cost" in init(loss="MIRA")


def test_costs_are_found_by_any_spelling_of_their_names() -> None:
    assert find_name("Cost", "zero-one") == "ZeroOne"
    assert find_name("Cost", "ZeroOneCost") == "ZeroOne"


@pytest.mark.parametrize(
    ("n_sents", "document"), [(1, None), (4, {"LOWER": 1})], ids=["one sentence", "four"]
)
def test_texts_of_several_sentences_get_features_of_the_document(
    n_sents: int, document: Any, tmp_path: Path
) -> None:
    """With these features, the model has a second pass. Sentences are counted even if the docs have
    no sentence starts, as docs from JSONL. A sentence has seven tokens, with its period. The one
    entity of a doc is in its first sentence."""
    path = tmp_path / "train.jsonl"
    line = {"text": "She went to Oslo in May. " * n_sents, "label": [[12, 16, "city"]]}
    path.write_text(f"{json.dumps(line)}\n" * 20, encoding="utf8")

    text = init(train_path=path)

    n_words = 20 * n_sents * 7
    assert f"20 docs, {20 * n_sents} sentences, {n_words:,} words, 20 ent" in text
    assert block(text, "components.ner.model.features.document") == document


# All models with 20 to 14,000 words; long docs.
SIZES = [*product(MODELS, [1, 60, 700], [20]), ("linear", 30, 700)]


def check_evaluated_once_an_epoch(text: str, path: Path) -> None:
    """Check that training, as a config has it, is evaluated at least once an epoch, and that it has
    enough patience: it doesn't end before the end of an epoch."""
    config = Config().from_str(text)
    batcher = config["training"]["batcher"]
    if isinstance(batcher["size"], dict):  # it grows: there are fewest batches at its end
        batcher["size"] = batcher["size"]["stop"]

    filled_config = load_model_from_config(config, auto_fill=True, validate=False).config
    training = registry.resolve(filled_config["training"], schema=ConfigSchemaTraining)

    n_batches = len(list(training["batcher"](Corpus(path)(spacy.blank("xx")))))
    assert training["eval_frequency"] <= max(1, n_batches)
    assert training["patience"] == 0 or training["patience"] >= n_batches


@pytest.mark.parametrize("model, n_docs, n_words", SIZES)
def test_models_are_evaluated_once_an_epoch_at_least(
    model: Any, n_docs: int, n_words: int, tmp_path: Path
) -> None:
    doc = ("Oslo" + " rain" * (n_words - 1), "B-city" + " O" * (n_words - 1))
    path = write_docs(tmp_path / "train.spacy", [doc] * n_docs)

    text = init(lang="xx", model=model, train_path=path, dev_path=path)

    check_evaluated_once_an_epoch(text, path)


@pytest.mark.slow
def test_batches_of_a_hybrid_model_grow_with_the_corpus(tmp_path: Path) -> None:
    """The corpus has 60,000 words, of which a batch has a hundredth. So an epoch has some 100
    batches, for which the least number of steps, 3000, is enough. There are only two word forms,
    for which the least number of rows, 1000, is enough."""
    doc = ("Oslo" + " rain" * 19, "B-city" + " O" * 19)
    path = write_docs(tmp_path / "train.spacy", [doc] * 3000)
    text = init(lang="xx", model="hybrid", train_path=path, dev_path=path)
    assert block(text, "training.batcher.size.stop") == 600
    assert block(text, "training.max_steps") == 3000
    assert block(text, "components.tok2vec.model.embed.rows")[0] == 1000
    check_evaluated_once_an_epoch(text, path)


def count_steps(sizes: Sizes, docs: Sequence[Any], n_epochs: int) -> int:
    """The number of steps in the first epochs, with batches that grow from epoch to epoch."""
    make_batches = registry.resolve({"batcher": sizes.batcher})["batcher"]
    return sum(1 for _ in range(n_epochs) for _ in make_batches(docs))


@pytest.mark.parametrize("n_losses, n_epochs", [(1, 5), (2, 7), (3, 9)])
@pytest.mark.parametrize("n_words", [300_000, 500_000])
def test_training_lasts_as_long_as_all_losses(n_losses: int, n_epochs: int, n_words: int) -> None:
    """The first loss has five epochs and the others have two. Batches are small at first: the first
    five epochs have 2,927 steps with 300,000 words, and 3,927 with 500,000."""
    docs = [range(20)] * (n_words // 20)
    corpus = CorpusStatistics(doc_lengths=[20] * len(docs), n_sentences=len(docs))

    sizes = choose_sizes("hybrid", corpus, n_losses=n_losses)

    assert sizes.n_epochs == n_epochs
    n_steps = count_steps(sizes, docs, n_epochs)
    assert n_steps <= sizes.max_steps <= max(3000, n_steps * 1.02)


def test_training_is_not_endless_if_long_docs_are_discarded() -> None:
    """Batches of a transformer have up to 2,000 words. A pass over all docs would take 201
    epochs."""
    corpus = CorpusStatistics(doc_lengths=[*[2500] * 200, 20])
    assert choose_sizes("transformer", corpus).max_steps == 20_000


def test_the_second_loss_of_a_large_corpus_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpus has 500,000 words, for which the least number of steps, 3000, isn't enough."""
    docs = [range(20)] * 25_000
    corpus = CorpusStatistics(doc_lengths=[len(doc) for doc in docs], n_sentences=len(docs))
    module = "spacy_costner.workflows.config.initial_config"
    monkeypatch.setattr(f"{module}.measure_corpus", lambda *_: corpus)

    config = Config().from_str(init(lang="xx", model="hybrid", **TREE))

    schedule = registry.resolve({"loss": config["components"]["ner"]["loss"]})["loss"]
    assert schedule.ends == (5.0,)
    training = complete_config(config)["training"]
    assert find_unused_loss(schedule, training, lambda: docs) == ""


@pytest.mark.parametrize(
    ("n_epochs", "n_losses", "ends"),
    [
        (8, 1, []),
        (8, 2, [6]),
        (8, 4, [2, 4, 6]),
        (8, 5, [1.6, 3.2, 4.8, 6.4]),
        (3, 2, [1.5]),
        (1, 2, [0.5]),
        (2.5, 3, [0.833333, 1.666667]),
        (502, 3, [498, 500]),
    ],
)
def test_losses_share_the_epochs(n_epochs: float, n_losses: int, ends: list[float]) -> None:
    """Each but the first has two. If there are too few epochs, all losses have the same part."""
    assert choose_epochs(["MIRA"] * n_losses, n_epochs) == ends


@pytest.mark.parametrize("model", ["linear", "hybrid"])
@pytest.mark.parametrize("n_labels, outside", [(20, "before"), (21, "single")])
def test_with_many_labels_o_is_one_tag(
    model: Any, n_labels: int, outside: str, tmp_path: Path
) -> None:
    """More than `MANY_LABELS`, which is 20, are many."""
    path = write_docs(tmp_path / "train.spacy", [(f"a{i} b", f"B-L{i} O") for i in range(n_labels)])
    text = init(lang="xx", model=model, train_path=path)
    assert block(text, "components.ner.outside") == outside


@pytest.mark.parametrize("model", MODELS)
def test_without_options_it_is_the_config_in_configs(model: Any) -> None:
    """If the template is changed, the files in configs/ have to be changed, too. Only their heads
    differ."""
    name = "sparse" if model == "linear" else model
    text = (ROOT / "configs" / f"{name}.cfg").read_text("utf8")
    start = "# The corpora.\n"
    assert text.split(start)[1] == init(model=model).split(start)[1]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("loss", ["SoftmaxMargin", "SoftmaxMargin,Risk"])
def test_sections_have_comments_and_lines_are_short(model: Any, loss: str) -> None:
    text = init(lang="xx", model=model, loss=loss, train_path=CORPUS, **TREE)

    assert text.startswith("# Made by spacy-costner")
    lines = text[text.index("[paths]") :].splitlines()
    assert max(len(line) for line in lines) <= 105
    sections = ["paths", "system", "nlp", "training", "training.score_weights", "components.ner"]
    for part in ("loss", "decoding", "scorer", "scorer.cost", "confidence", "model"):
        sections.append(f"components.ner.{part}")
    if "," in loss:
        sections += ["components.ner.loss.*.first", "components.ner.loss.*.then"]
    for section in sections:
        assert re.search(rf"^#.*\n\[{re.escape(section)}\]$", text, re.MULTILINE), section


@pytest.fixture
def my_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path with a space, for a new config. The working directory is an empty folder that only has
    the corpus."""
    write_docs(tmp_path / "corpus.spacy", [("Oslo", "B-city")])
    monkeypatch.chdir(tmp_path)
    return Path("my config.cfg")


OPTIONS = ["--train", "corpus.spacy", "--miss", "5", "--aim", "precision=0.9", "--lang", "de"]


def command_in_head(text: str) -> str:
    """The line at the head of a config with the command that made it."""
    return next(line for line in text.splitlines() if "costner init" in line)


def test_the_command_writes_a_config_that_says_what_to_run_next(my_config: Path) -> None:
    result = run("init", my_config, *OPTIONS, "--loss", "SoftmaxMargin")

    assert result.exit_code == 0, result.output
    text = my_config.read_text(encoding="utf8")
    assert block(text, "nlp.lang") == "de"
    tune = "tune training/calibrated dev.spacy --output training/tuned --precision 0.9"
    assert tune in text
    assert tune in result.output


def test_the_head_of_a_config_has_the_command_that_makes_it_again(my_config: Path) -> None:
    """The command needs --force in addition, as the file exists."""
    run("init", my_config, *OPTIONS)
    text = my_config.read_text(encoding="utf8")
    words = shlex.split(command_in_head(text).lstrip("# "))
    assert words[:5] == ["python", "-m", "spacy", "costner", "init"]

    refused = run(*words[4:])
    forced = run(*words[4:], "--force")

    assert refused.exit_code == 1
    assert "my config.cfg: expected a new file, got one that exists: use --force" in refused.output
    assert forced.exit_code == 0
    command = command_in_head(text)
    assert my_config.read_text(encoding="utf8") == text.replace(command, f"{command} --force")


def test_options_are_in_the_docs() -> None:
    page = (ROOT / "docs" / "init.md").read_text(encoding="utf8")
    command: Any = typer.main.get_command(costner).commands["init"]  # type: ignore[attr-defined]
    names = set()
    for parameter in command.params:
        names.update(option for option in parameter.opts if option.startswith("-"))
    assert names <= {*re.findall(r"`(--?[a-z-]+|-F)`", page)}


def test_a_dash_prints_the_config() -> None:
    """The scores of a perceptron are not probabilities, so the head names no command that
    calibrates."""
    result = run("init", "-", "--loss", "perceptron")
    assert result.exit_code == 0
    assert not Path("-").exists()
    assert block(result.output, "components.ner.loss.alpha") == 1.0
    assert "calibrate" not in result.output
    assert "--parameter bias" in result.output


def test_next_commands_check_fit_calibrate_and_evaluate(my_config: Path) -> None:
    """The commands are tested as they are printed. The first two are also run."""
    corpus = Path("corpus.spacy")
    make_corpus(corpus)
    result = run("init", my_config, "--train", corpus, "--dev", corpus, "--miss", 3)

    lines = result.output.split("Next:")[1].splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("    ")]
    check, fit, calibrate, evaluate = (words[3:] for words in commands)  # after python -m spacy
    assert check[:2] == ["costner", "check"]
    assert fit[:2] == ["costner", "fit"]
    assert calibrate[:3] == ["costner", "calibrate", "training/model-best"]
    assert evaluate[:2] == ["evaluate", "training/calibrated"]

    checked = run(*check[1:])
    assert checked.exit_code == 0, checked.output
    fitted = run(*fit[1:], "--training.max_epochs", 1)
    assert fitted.exit_code == 0, fitted.output
    assert Path(calibrate[2]).exists()


@pytest.mark.parametrize(
    ("options", "is_calibrated"),
    [([], True), (["--decoding", "min-cost"], False), (["--loss", "Risk"], False)],
    ids=["best path", "min-cost", "Risk"],
)
def test_decisions_by_expected_cost_are_not_calibrated(
    options: list[str], is_calibrated: bool
) -> None:
    """Calibration doesn't change the best path, but makes decisions by expected cost worse."""
    output = run("init", "-", "--miss", 5, *options).output
    assert ("costner calibrate" in output) is is_calibrated


def test_next_commands_say_what_costs_count() -> None:
    """They say so only if there is a cost."""
    with_cost = run("init", "-", "--miss", 5).output
    assert "Costs are per token. To set a target for entities, use `costner tune" in with_cost
    assert "Costs are per token" not in run("init", "-").output


@pytest.fixture
def prefixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of a command that makes a label tree of a corpus whose labels have prefixes. The
    corpus is in a new working directory."""
    monkeypatch.chdir(tmp_path)
    labels = ["drug_dose", "org", "drug_name_new", "org_team", "_x", "date"]
    write_docs(Path("train.spacy"), [(label, f"B-{label}") for label in labels])
    return ["init", "new.cfg", "--train", "train.spacy", "--tree-by-prefix", "_"]


def test_tree_by_prefix_is_written_and_used(prefixed: list[str]) -> None:
    """Labels with the same text before the first "_" are below a node with that name, which may be
    a label itself, as "org" is. "_x" has no text before it."""
    assert run(*prefixed).exit_code == 0
    assert json.loads(Path("tree.json").read_text("utf8")) == {
        "drug": {"drug_dose": {}, "drug_name_new": {}},
        "org": {"org_team": {}},
        "_x": {},
        "date": {},
    }
    assert block(Path("new.cfg").read_text("utf8"), "components.ner.scorer.cost") == COST


def test_tree_by_prefix_replaces_a_tree_only_with_force(prefixed: list[str]) -> None:
    Path("tree.json").write_text("mine")
    refused = run(*prefixed)
    assert refused.exit_code == 1
    assert "tree.json: expected a new file" in refused.output
    assert Path("tree.json").read_text() == "mine"
    assert run(*prefixed, "--force").exit_code == 0
    assert "drug" in json.loads(Path("tree.json").read_text("utf8"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            ["--train", "train.spacy", "--tree-by-prefix", "/"],
            "a separator that occurs in the labels, got '/' for _x, date",
        ),
        (["--tree-by-prefix", "_"], "--tree-by-prefix: expected --train"),
    ],
    ids=["in no label", "no corpus"],
)
def test_tree_by_prefix_is_refused_without_prefixes(
    prefixed: list[str], options: list[str], reason: str
) -> None:
    refused = run("init", "new.cfg", "--tree", "other.json", *options)
    assert refused.exit_code == 1
    assert reason in refused.output
    assert not Path("other.json").exists()
    assert not Path("new.cfg").exists()


@pytest.mark.parametrize(
    ("options", "name"),
    [({}, "dccuchile/bert"), ({"transformer": "./own"}, "./own")],
    ids=["of the language", "named"],
)
def test_transformer_is_that_of_the_language_unless_named(
    options: dict[str, str], name: str
) -> None:
    config = Config().from_str(init(model="transformer", lang="es", **options))
    assert config["components"]["transformer"]["model"]["name"].startswith(name)
    load_model_from_config(config, auto_fill=True)  # it is a config that spaCy can read
