"""How often training evaluates: counted, lowered, and objected to."""

import random
from pathlib import Path
from typing import Any

import pytest
import spacy
import srsly
from spacy.tokens import Doc, DocBin
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import load_config
from thinc.api import Config

from spacy_costner.training import eval_frequency
from spacy_costner.training.eval_frequency import CALLBACK, Evaluations, read_evaluations
from spacy_costner.workflows.config.checks import check
from spacy_costner.workflows.fitting.comparison import compare
from spacy_costner.workflows.fitting.fitting import fit
from spacy_costner.workflows.fitting.variants import change_config

from ..support.commands import run
from ..support.experiment import CONFIG, Experiment, save_cities
from ..support.fitting import SPARSE_CONFIG
from ..support.vocabs import blank_vocab

N_DOCS, BATCH_SIZE, STEPS = 10, 4, 3
"""Ten docs in batches of four are three steps an epoch."""

ALL_DOCS = {"discard_oversize": False, "get_length": None}
"""Settings of a batcher by words, which keeps docs of more words than a batch should have."""

EACH_EPOCH = {"initialize": {"before_init": {"@callbacks": CALLBACK}}}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Ten docs, of an entity each."""
    return save_cities(tmp_path / "corpus.spacy", N_DOCS)


def config_of(corpus: Path, *changes: dict[str, Any], **training: Any) -> Config:
    """A config of these settings of training, with batches of four docs; then of the changes."""
    config: Config = Config().from_str(CONFIG.format(corpus=corpus))
    batcher = {"@batchers": "spacy.batch_by_sequence.v1", "size": BATCH_SIZE}
    limits = {"max_epochs": 0, "max_steps": 0, "eval_frequency": 100, "batcher": batcher}
    for change in ({"training": {**limits, **training}}, *changes):
        config = change_config(config, change)
    return config


def evaluated_steps(config: Config, output: Path) -> list[int]:
    """The steps at which `spacy train` evaluates."""
    logger = {"@loggers": "spacy.ConsoleLogger.v3", "console_output": False}
    log = {**logger, "output_file": str(output / "log.jsonl")}
    output.mkdir(exist_ok=True)
    train(init_nlp(change_config(config, {"training": {"logger": log}})), output)
    return [row["step"] for row in srsly.read_jsonl(output / "log.jsonl")]


@pytest.mark.parametrize(
    ("limits", "n_steps"),
    [
        ({"max_epochs": 4}, 12),
        ({"max_steps": 20}, 21),
        ({"max_epochs": 4, "max_steps": 20}, 12),
        ({"max_epochs": 9, "max_steps": 20}, 21),
        ({}, None),
    ],
)
def test_steps_are_counted(corpus: Path, limits: dict[str, int], n_steps: int | None) -> None:
    """4 epochs are 12 steps. As spaCy counts steps from 0, there are 21 with max_steps 20. The
    lower limit counts. The second evaluation, at step 100, is reached only without a limit."""
    evaluations = read_evaluations(config_of(corpus, **limits))
    assert evaluations == Evaluations(STEPS, n_steps, 100)
    assert "expected at most 3, the steps of an epoch, got 100" in evaluations.objection()
    assert evaluations.are_after_training is (n_steps is None)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"max_epochs": 4}, {"max_steps": 20}])
def test_each_epoch_is_evaluated(corpus: Path, tmp_path: Path, limits: dict[str, int]) -> None:
    """The counted steps are those that training takes."""
    each_step = config_of(corpus, eval_frequency=1, **limits)
    evaluations = read_evaluations(each_step)
    assert evaluations is not None and evaluations.objection() == ""
    assert evaluated_steps(each_step, tmp_path / "each") == list(range(evaluations.n_steps or 0))

    config = config_of(corpus, EACH_EPOCH, **limits)
    steps = evaluated_steps(config, tmp_path / "training")
    n_steps = 12 if "max_epochs" in limits else 21
    assert max(after - before for before, after in zip(steps, [*steps[1:], n_steps])) <= STEPS

    saved = load_config(tmp_path / "training" / "model-last" / "config.cfg")
    evaluations = read_evaluations(config)
    assert evaluations is not None and evaluations.objection() == ""
    # The second evaluation is at the step of this number, as the first is at step 0.
    assert saved["training"]["eval_frequency"] == evaluations.frequency == steps[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "size", [40, {"@schedules": "compounding.v1", "start": 20, "stop": 80, "compound": 1.1}]
)
def test_each_epoch_is_evaluated_whatever_the_order(tmp_path: Path, size: Any) -> None:
    """The number of batches by words depends on the order of the docs, and on growing sizes."""
    vocab = blank_vocab()
    rng = random.Random(0)
    lengths = [rng.choice([3, 10, 30, 60]) for _ in range(20)]
    docs = [Doc(vocab, words=["Paris"] * n, ents=["B-city"] * n) for n in lengths]
    corpus = tmp_path / "corpus.spacy"
    DocBin(docs=docs).to_disk(corpus)
    batcher = {"@batchers": "spacy.batch_by_words.v1", "size": size, "tolerance": 0.2, **ALL_DOCS}
    config = config_of(corpus, EACH_EPOCH, max_epochs=6, batcher=batcher)

    evaluated_steps(config, tmp_path / "training")

    rows = srsly.read_jsonl(tmp_path / "training" / "log.jsonl")
    assert {row["epoch"] for row in rows} == set(range(6))


@pytest.mark.parametrize("steps_per_epoch", [1, 2, 7, 94, 521, 5000])
@pytest.mark.parametrize("max_epochs", [1, 2, 8, 30])
@pytest.mark.parametrize("frequency", [1, 50, 1000])
def test_a_lower_frequency_evaluates_in_each_epoch(
    steps_per_epoch: int, max_epochs: int, frequency: int
) -> None:
    n_steps = steps_per_epoch * max_epochs
    before = Evaluations(steps_per_epoch, n_steps, frequency)
    after = before.in_each_epoch()
    assert 1 <= after.frequency <= min(steps_per_epoch, frequency)
    if before.objection() == "":
        assert after == before
    elif n_steps > 1:
        assert after.objection() == ""
        # The last evaluation is near the end. A hundredth of the steps may be missing, as epochs
        # may be shorter in another order, and less than a step for each evaluation, of which there
        # is about one in each epoch: the frequency is rounded down.
        last_evaluated_step = (n_steps - 1) // after.frequency * after.frequency
        assert last_evaluated_step >= n_steps - n_steps / 100 - max_epochs - 2


def test_the_frequency_stays_if_steps_can_not_be_counted(corpus: Path) -> None:
    """The corpus is missing, which `nlp.initialize` doesn't need, or is a stream without epochs."""
    for config in (config_of(Path("nowhere.spacy"), EACH_EPOCH), config_of(corpus, max_epochs=-1)):
        nlp = spacy.blank("xx").from_config(config, auto_fill=True)
        assert eval_frequency.evaluate_each_epoch(nlp) is nlp
        assert nlp.config["training"]["eval_frequency"] == 100
    assert read_evaluations(config_of(corpus, max_epochs=-1)) is None


def test_fit_does_not_count_steps(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It evaluates at the end, and reads the corpus once."""
    monkeypatch.delattr("spacy_costner.training.eval_frequency.count_evaluations")
    config = change_config(config_of(corpus, EACH_EPOCH, max_epochs=2), SPARSE_CONFIG)
    fitted = fit(config, tmp_path)
    saved = load_config(fitted.path / "config.cfg")
    assert saved["initialize"]["before_init"] == {"@callbacks": CALLBACK}
    assert saved["training"]["eval_frequency"] == 100


@pytest.mark.parametrize(
    ("limits", "severity"), [({"max_steps": 300}, "warning"), ({"max_epochs": 4}, "error")]
)
def test_check_finds_too_few_evaluations(
    corpus: Path, tmp_path: Path, limits: dict[str, int], severity: str
) -> None:
    """The model is evaluated each 100 steps. In 300 steps that is too rarely. In 4 epochs, which
    are 12 steps, only the model of the first step is evaluated, which is an error."""
    path = tmp_path / "config.cfg"
    config_of(corpus, **limits).to_disk(path)
    (finding,) = findings_of_frequency(path)
    assert finding.severity == severity and finding.corpus == "config"
    assert "at most 3, the steps of an epoch, got 100" in finding.message
    assert ("only the model of the first step" in finding.message) is (severity == "error")
    config_of(corpus, EACH_EPOCH, **limits).to_disk(path)
    assert findings_of_frequency(path) == []


def findings_of_frequency(config_path: Path) -> list[Any]:
    """What `check` finds about how often training evaluates."""
    return [item for item in check(config_path).findings if "eval_frequency" in item.message]


def compare_arguments(experiment: Experiment, config: Config, **training: Any) -> list[Any]:
    """The command `compare` with a config that has these settings of training."""
    change_config(config, {"training": training}).to_disk(experiment.config_path)
    losses = ",".join(str(path) for path in experiment.loss_paths)
    options = ["--losses", losses, "--samples", 9]
    paths = ["--test", experiment.test_path, "--output", experiment.output_path]
    return ["compare", experiment.config_path, *options, *paths]


@pytest.mark.slow
@pytest.mark.filterwarnings("default:.*the steps of an epoch")
def test_compare_warns_of_too_few_evaluations(experiment: Experiment, corpus: Path) -> None:
    """Ten docs in batches of four are 3 steps an epoch, and 5 is more. The command warns once for
    "sequential". The function warns, too."""
    arguments = compare_arguments(experiment, config_of(corpus), max_steps=8, eval_frequency=5)
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    message = "expected at most 3, the steps of an epoch, got 5"
    assert result.output.count(f"sequential: training.eval_frequency: {message}") == 1
    with pytest.warns(UserWarning, match=message):
        compare(*experiment, n_samples=9)


def test_compare_refuses_to_evaluate_no_trained_model(experiment: Experiment, corpus: Path) -> None:
    """One epoch has 3 steps, and the second evaluation would be at step 5."""
    arguments = compare_arguments(experiment, config_of(corpus), max_epochs=1, eval_frequency=5)
    result = run(*arguments)
    assert result.exit_code == 1
    assert "training ends after 3: only the model of the first step is evaluated" in result.output


@pytest.mark.slow
def test_compare_accepts_an_evaluation_in_each_epoch(experiment: Experiment, corpus: Path) -> None:
    result = run(*compare_arguments(experiment, config_of(corpus, EACH_EPOCH), max_epochs=2))
    assert result.exit_code == 0 and "eval_frequency" not in result.output
