"""Tests of what commands print: JSON, tables, scores and progress, and the text after Ctrl-C."""

import json
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.tokens import Doc, DocBin
from spacy.util import dict_to_dot, load_config

from spacy_costner.cli.output import RUN_AGAIN
from spacy_costner.cli.tables import markdown_table, mean_and_deviation, text_table
from spacy_costner.cli.tune import N_ROWS, tuning_text
from spacy_costner.progress import phase, phases_shown, progress
from spacy_costner.training.lbfgs import AT_ONCE
from spacy_costner.workflows.calibration.tuning import OperatingPoint, Tuning
from spacy_costner.workflows.fitting.fitting import fit

from ..support.commands import run
from ..support.fitting import examples_of
from ..support.vocabs import blank_vocab

DOCS = Path(__file__).parents[2] / "docs"
CITIES = ["Oslo", "Lima", "Rome", "Cairo", "Quito", "Paris", "Delhi", "Tunis"]


def save_corpus(path: Path, n_docs: int) -> None:
    """Save docs such as "From Oslo they came train0 .", with a city as the entity. In every seventh
    doc the city isn't annotated, which can't be learned: so there are mistakes, which tuning and
    calibration need."""
    texts = []
    for i in range(n_docs):
        tag = "O" if i % 7 == 3 else "B-LOC"
        city = CITIES[i % len(CITIES)]
        texts.append((f"From {city} they came {path.stem}{i} .", f"O {tag} O O O O"))
    examples = examples_of(spacy.blank("xx"), texts)
    DocBin(docs=[eg.reference for eg in examples]).to_disk(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.spacy and dev.spacy."""
    path = tmp_path_factory.mktemp("corpora")
    save_corpus(path / "train.spacy", n_docs=120)
    save_corpus(path / "dev.spacy", n_docs=40)
    return path


def corpus_options(folder: Path) -> list[Any]:
    """The options that name both corpora."""
    return ["--train", folder / "train.spacy", "--dev", folder / "dev.spacy"]


@pytest.fixture(scope="module")
def fitted(folder: Path) -> Any:
    """The JSON that `fit` has printed. It had no config, calibrated and tuned, and saved the
    pipeline in out/model-best."""
    improvements = ["--calibrate", "--tune", "f"]
    short = ["--training.max_epochs", 2]
    output = ["--output", folder / "out"]
    return run("fit", *short, *corpus_options(folder), *output, *improvements, "--json")


@pytest.mark.slow
def test_fit_without_a_config_writes_the_config_that_it_trained_with(
    folder: Path, fitted: Any
) -> None:
    """With the override of the command, its settings are equal to the settings of the saved
    pipeline. Only decoding and confidence are others there, which tuning and calibration set. The
    config has the command in a comment."""
    assert fitted.exit_code == 0, fitted.output
    path = folder / "out" / "config.cfg"
    config = dict_to_dot(load_config(path, overrides={"training.max_epochs": 2}))
    config_of_pipeline = dict_to_dot(load_config(folder / "out" / "model-best" / "config.cfg"))
    assert config["paths.train"] == str(folder / "train.spacy")
    for setting, value in config.items():
        if not setting.startswith(("components.ner.decoding.", "components.ner.confidence")):
            assert config_of_pipeline[setting] == value, setting
    text = path.read_text("utf8")
    assert "fit --output" in text
    assert "--json --training.max_epochs 2\n" in text


def test_fit_prints_as_json_how_it_trained(folder: Path, fitted: Any) -> None:
    result = json.loads(fitted.stdout)
    # 120 docs are few.
    assert result["path"] == str(folder / "out" / "model-best")
    assert result["training"].startswith(f"{AT_ONCE}: ")
    assert result["tuning"]["points"]
    # Recall before tuning is what training measured.
    assert result["tuning"]["before"]["recall"] == pytest.approx(result["scores"]["ents_r"])


def test_fit_saves_calibration_and_tuning(folder: Path, fitted: Any) -> None:
    """The settings of the saved pipeline are in the JSON."""
    result = json.loads(fitted.stdout)
    nlp = spacy.load(result["path"])
    cfg = nlp.get_pipe("ner").cfg
    performance = nlp.meta["performance"]
    temperature = result["calibration"]["temperature"]["overall"]
    chosen = result["tuning"]["chosen"]
    assert cfg["decoding"]["threshold"] == chosen["value"]
    assert cfg["temperature"]["overall"] == pytest.approx(temperature)
    assert temperature != 1
    assert performance["ents_r"] == pytest.approx(chosen["recall"])
    assert performance["measured_on"]["source"] == str(folder / "dev.spacy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tune", "fast"], "--tune: expected f, precision=0.9 or recall=0.9, got 'fast'"),
        (["--tune", "recall=2"], "expected f, precision=0.9 or recall=0.9, got 'recall=2'"),
        (["--lang", "xyz"], "Can't import language xyz"),
        (["config.cfg", "--lang", "es"], "fit: --lang: expected no config"),
    ],
)
def test_fit_refuses_wrong_options_before_it_writes(
    folder: Path, tmp_path: Path, options: list[Any], message: str
) -> None:
    result = run("fit", *options, *corpus_options(folder), "--output", tmp_path / "out")
    assert result.exit_code == 1
    assert message in result.output
    assert not (tmp_path / "out").exists()


def test_fit_needs_a_training_corpus(folder: Path, tmp_path: Path) -> None:
    result = run("fit", "--dev", folder / "dev.spacy", "--output", tmp_path / "out")
    assert result.exit_code == 1
    assert "--train: expected a corpus" in result.output
    with pytest.raises(ValueError, match=r"^`train_path`: expected a corpus"):
        fit(None, tmp_path / "out")


def test_fit_saves_the_trained_pipeline_if_it_can_not_be_tuned(
    folder: Path, tmp_path: Path
) -> None:
    """The development corpus has no entity."""
    dev = tmp_path / "dev.spacy"
    doc = Doc(blank_vocab(), words=["No", "city"], ents=["O", "O"])
    DocBin(docs=[doc]).to_disk(dev)
    options = ["--train", folder / "train.spacy", "--dev", dev, "--output", tmp_path / "out"]

    result = run("fit", *options, "--tune", "f")

    path = tmp_path / "out" / "model-best"
    assert result.exit_code == 1
    assert "expected docs with entities, got none" in result.output
    assert f"{path} is trained, but neither calibrated nor tuned" in result.output
    assert "threshold" not in spacy.load(path).get_pipe("ner").cfg["decoding"]


def test_fit_keeps_another_config_in_the_output_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.cfg").write_text("mine")
    result = run("fit", *corpus_options(folder), "--output", tmp_path)
    assert result.exit_code == 1
    assert "expected the config of this call" in result.output
    assert (tmp_path / "config.cfg").read_text() == "mine"
    assert not (tmp_path / "model-best").exists()


def test_the_options_of_fit_are_in_the_docs() -> None:
    """They are in the first column of the table of their section. Options that all commands have
    are explained elsewhere."""
    page = (DOCS / "linear.md").read_text("utf8")
    section = page.split("## Options of fit\n")[1].split("\n## ")[0]
    first_cells = re.findall(r"^\| .*? \|", section, re.MULTILINE)
    documented = set(re.findall(r"`(--\w+)`", "\n".join(first_cells)))

    options = set(re.findall(r"--\w+(?= )", run("fit", "--help").output))

    shared = {"--output", "--json", "--code", "--help"}
    assert documented == options - shared


@pytest.mark.parametrize("command", ["calibrate", "tune", "guarantee", "check", "explain"])
def test_json_is_all_that_commands_print_to_stdout(
    folder: Path, fitted: Any, tmp_path: Path, command: str
) -> None:
    """stderr has the path of the pipeline that they have written. `check` and `explain` write
    none."""
    model = folder / "out" / "model-best"
    dev = folder / "dev.spacy"
    output = ["--output", tmp_path / "new"]
    arguments = {
        "calibrate": [model, dev, *output, "--json"],
        "tune": [model, dev, *output, "--json"],
        "guarantee": [model, dev, *output, "--miss", 0.4, "--json"],
        "check": [folder / "out" / "config.cfg", "--json"],
        "explain": [model, "--json", "-"],  # It takes a path, where "-" is stdout.
    }

    result = run(command, *arguments[command])

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)
    writes_pipeline = command in ("calibrate", "tune", "guarantee")
    assert ("Written to" in result.stderr) is writes_pipeline


@pytest.mark.parametrize("best", [0, 3, 50, 98])
def test_ten_rows_around_the_chosen_value_are_shown(best: int) -> None:
    """One of 99 thresholds is chosen, and is in the row `best` of the table. Its precision is 1 and
    its recall 0.5: F = 2 * 1 * 0.5 / (1 + 0.5) = 2 / 3. The scores of the others are 0.5 and 0.25:
    F = 2 * 0.5 * 0.25 / (0.5 + 0.25) = 1 / 3."""
    points = [OperatingPoint(i / 100, precision=0.5, recall=0.25) for i in range(99)]
    points[best] = OperatingPoint(best / 100, precision=1.0, recall=0.5)
    before = OperatingPoint(float("nan"), precision=0.5, recall=0.25)
    tuning = Tuning("threshold", points, points[best], before)

    *lines, last = tuning_text(tuning, show_all=False).splitlines()

    assert last == "The threshold was chosen on these docs: expect lower scores on new data."
    n_other_lines = 3  # a header, an empty line and the scores before and after
    assert len(lines) == N_ROWS + n_other_lines
    (chosen,) = [line for line in lines if "chosen" in line]
    assert chosen.split()[:4] == [f"{best / 100:g}", "100.00", "50.00", "66.67"]
    assert lines[-1].endswith("P 50.00 -> 100.00, R 25.00 -> 50.00, F 33.33 -> 66.67")
    all_lines = tuning_text(tuning, show_all=True).splitlines()
    assert len(all_lines) == 99 + n_other_lines + 1  # and the last line


def test_progress_is_shown_on_terminals_only(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(progress([1, 2], desc="silent", unit="doc")) == [1, 2]
    assert capsys.readouterr().err == ""

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert list(progress([1, 2], desc="shown", unit="doc")) == [1, 2]
    assert "shown" in capsys.readouterr().err


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that shows the last of these seconds. A test adds others."""
    seconds = [0.0]
    monkeypatch.setattr("spacy_costner.progress.monotonic", lambda: seconds[-1])
    return seconds


def test_each_phase_has_a_line_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture, clock: list[float]
) -> None:
    """A phase inside of another has none, nor has one that ends with an error."""
    with phases_shown():
        for i in progress(range(3), desc="read", unit="doc"):
            clock.append(2.0 * i)
        with phase("train"), progress(desc="features", unit="doc", total=2) as bar:
            bar.update()
            bar.set_postfix({"loss": 1})
            clock.append(10)
        with progress(desc="part", unit="step", total=1200) as bar:
            bar.update(1100)
        list(progress([1], desc="one", unit="doc"))
        for _ in range(2):
            with suppress(ZeroDivisionError), phase("calibrate"):
                list(progress((1 / 0 for _ in range(2)), desc="predict", unit="doc"))
            with suppress(ZeroDivisionError):
                list(progress((1 / 0 for _ in range(2)), desc="predict", unit="doc"))
        with phase("write"):
            clock.append(11.26)
    list(progress([1], desc="from Python", unit="doc"))
    assert capsys.readouterr().err.splitlines() == [
        "read: 3 docs, 4.0 s",
        "train: 6.0 s",
        "part: 1,100 of 1,200 steps, 0.0 s",
        "one: 1 doc, 0.0 s",
        "write: 1.3 s",
    ]


def test_a_long_phase_has_a_line_each_minute(
    capsys: pytest.CaptureFixture, clock: list[float]
) -> None:
    with phases_shown(), phase("train"):
        for i in progress(range(4), desc="epochs", unit="epoch", total=4):
            clock.append(40.0 * (i + 1))
    assert capsys.readouterr().err.splitlines() == [
        "epochs: 2 of 4 epochs, 80.0 s so far",
        "epochs: 4 epochs, 160.0 s so far",
        "train: 160.0 s",
    ]


def test_phases_have_no_lines_on_a_terminal(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    with phases_shown(), phase("train"):
        assert list(progress([1, 2], desc="shown", unit="doc")) == [1, 2]
    shown = capsys.readouterr().err
    assert "shown" in shown
    assert "train" not in shown


def test_commands_have_a_line_for_each_phase(folder: Path, fitted: Any, tmp_path: Path) -> None:
    """On stderr, so that the JSON on stdout stays alone."""
    phases = ["read", "predict", "calibrate", "write"]
    model = folder / "out" / "model-best"
    done = run("calibrate", model, folder / "dev.spacy", "--output", tmp_path / "new", "--json")
    assert done.exit_code == 0, done.output
    json.loads(done.stdout)
    assert [line.split(":")[0] for line in done.stderr.splitlines() if " s" in line] == phases
    assert all(re.search(r"\d\.\d s$", line) for line in done.stderr.splitlines()[:4])


@pytest.mark.slow
def test_ctrl_c_says_what_to_do(folder: Path, fitted: Any, tmp_path: Path) -> None:
    """Another process runs `tune`. When it begins to predict, it gets the signal of Ctrl-C."""
    program = (
        "import signal, spacy_costner.workflows.calibration.tuning as tuning, spacy_costner.cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "tuning.predict_dev = lambda *args: signal.raise_signal(signal.SIGINT)\n"
        "from spacy.cli._util import app\n"
        "app()\n"
    )
    model = folder / "out" / "model-best"
    arguments = ["costner", "tune", model, folder / "dev.spacy", "--output", tmp_path / "new"]
    command = [sys.executable, "-c", program, *map(str, arguments)]

    process = subprocess.run(command, capture_output=True, text=True)

    assert process.returncode == 128 + signal.SIGINT, process.stderr
    assert process.stderr.endswith(f"\nStopped. {RUN_AGAIN}\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_an_interrupted_fit_is_saved_and_not_tuned(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes when L-BFGS computes the loss for the first time."""

    def interrupt(*args: Any, **settings: Any) -> None:
        """Simulate Ctrl-C."""
        raise KeyboardInterrupt

    monkeypatch.setattr("spacy_costner.training.lbfgs.TotalLoss.__call__", interrupt)

    result = run("fit", *corpus_options(folder), "--output", tmp_path, "--tune", "f")

    assert result.exit_code == 0, result.output
    assert "Stopped by Ctrl-C: this is the model so far" in result.output
    assert "start_from.v1" in result.output  # how to continue
    assert "threshold" not in result.output  # `tune` would choose one
    ner = spacy.load(tmp_path / "model-best").get_pipe("ner")
    assert "threshold" not in ner.cfg["decoding"]


def test_tables_are_markdown() -> None:
    """Floats have two decimals. With `align`, cells are filled with spaces."""
    header = ["", "F"]
    rows = [["ours", 1 / 3], ["theirs", 100.0]]
    assert markdown_table(header, rows).splitlines() == [
        "|  | F |",
        "| --- | --- |",
        "| ours | 0.33 |",
        "| theirs | 100.00 |",
    ]
    assert markdown_table(header, rows, align=True).splitlines() == [
        "|        |      F |",
        "| ---    |    --: |",
        "| ours   |   0.33 |",
        "| theirs | 100.00 |",
    ]


def test_the_deviation_of_several_values_stands_behind_their_mean() -> None:
    """The values 1 and 3 have the mean 2 and, with n - 1 in the denominator, the standard deviation
    sqrt(2)."""
    assert mean_and_deviation([1, 3], 1) == "2.0 ± 1.4"
    assert mean_and_deviation([1]) == "1.00"


def test_tables_for_the_terminal() -> None:
    """Also with a cell that is longer than the 30 characters of wasabi's default."""
    long = 40 * "x"
    rows = [["label", "P", ""], ["a", 0.5, "best"], ["other", 10, ""]]
    assert text_table(rows).splitlines() == ["label     P", "a      0.50  best", "other    10"]
    assert text_table([["", "F"], [long, 1]]).splitlines() == [42 * " " + "F", f"{long}  1"]


def test_a_markdown_table_without_rows_has_its_header() -> None:
    assert markdown_table(["a", "b"], []) == "| a | b |\n| --- | --- |"
