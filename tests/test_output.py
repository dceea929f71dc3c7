"""How commands print: JSON, tables, scores, progress, and what Ctrl-C says."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.tokens import Doc, DocBin

from spacy_costner.analysis.tuning import Point, Tuning
from spacy_costner.cli.output import RUN_AGAIN
from spacy_costner.cli.tables import markdown_table, mean_and_deviation, text_table
from spacy_costner.cli.tune import N_ROWS, tuning_text
from spacy_costner.progress import progress
from spacy_costner.training.lbfgs import AT_ONCE

from .support.commands import run
from .support.fitting import examples_of

DOCS = Path(__file__).parent.parent / "docs"
CITIES = ["Oslo", "Lima", "Rome", "Cairo", "Quito", "Paris", "Delhi", "Tunis"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two corpora. Not all of their entities can be learned."""
    path = tmp_path_factory.mktemp("corpora")
    for name, n in (("train", 120), ("dev", 40)):
        texts = [f"From {CITIES[i % 8]} they came {name}{i} ." for i in range(n)]
        docs = [
            (text, f"O {'O' if i % 7 == 3 else 'B-LOC'} O O O O") for i, text in enumerate(texts)
        ]
        examples = examples_of(spacy.blank("xx"), docs)
        DocBin(docs=[eg.reference for eg in examples]).to_disk(path / f"{name}.spacy")
    return path


def corpora(folder: Path) -> list[Any]:
    return ["--train", folder / "train.spacy", "--dev", folder / "dev.spacy"]


@pytest.fixture(scope="module")
def fitted(folder: Path) -> Any:
    """What `fit` prints without a config; the pipeline is in "out"."""
    improved = ["--calibrate", "--tune", "f"]
    short = ["--training.max_epochs", 2]
    return run("fit", *short, *corpora(folder), "--output", folder / "out", *improved, "--json")


def test_fit_without_a_config(folder: Path, fitted: Any) -> None:
    assert fitted.exit_code == 0, fitted.output
    result = json.loads(fitted.stdout)
    assert result["path"] == str(folder / "out" / "model-best")
    nlp = spacy.load(result["path"])
    assert result["training"].startswith(f"{AT_ONCE}: ") and result["tuning"]["points"]
    config = (folder / "out" / "config.cfg").read_text("utf8")
    assert f'train = "{folder / "train.spacy"}"' in config and "fit --output" in config
    assert "--json --training.max_epochs 2\n" in config
    cfg = nlp.get_pipe("ner").cfg
    assert cfg["decoding"]["threshold"] == result["tuning"]["chosen"]["value"]
    temperature = result["calibration"]["temperature"]["overall"]
    assert cfg["temperature"]["overall"] == pytest.approx(temperature) and temperature != 1
    assert result["tuning"]["before"]["recall"] == pytest.approx(result["scores"]["ents_r"])
    assert nlp.meta["performance"]["ents_r"] == pytest.approx(result["tuning"]["chosen"]["recall"])
    assert nlp.meta["performance"]["measured_on"]["source"] == str(folder / "dev.spacy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tune", "fast"], "--tune: expected f, precision=0.9 or recall=0.9, got 'fast'"),
        (["--tune", "recall=2"], "got 'recall=2'"),
        (["--lang", "xyz"], "import language xyz"),
        (["config.cfg", "--lang", "es"], "fit: --lang: expected no config with it"),
    ],
)
def test_what_does_not_go_together(
    folder: Path, tmp_path: Path, options: list[Any], message: str
) -> None:
    result = run("fit", *options, *corpora(folder), "--output", tmp_path / "out")
    assert result.exit_code == 1 and message in result.output
    assert not (tmp_path / "out").exists()


def test_fit_and_corpora_that_do_not_do(folder: Path, tmp_path: Path) -> None:
    """What can't be tuned is trained. Another config is kept."""
    result = run("fit", *corpora(folder)[2:], "--output", tmp_path / "out")
    assert result.exit_code == 1 and "fit: --train: expected a corpus" in result.output
    doc = Doc(spacy.blank("xx").vocab, words=["No", "city"], ents=["O", "O"])
    DocBin(docs=[doc]).to_disk(tmp_path / "dev.spacy")
    given = [*corpora(folder)[:2], "--dev", tmp_path / "dev.spacy", "--output", tmp_path / "out"]
    result = run("fit", *given, "--tune", "f")
    path = tmp_path / "out" / "model-best"
    assert result.exit_code == 1 and "expected docs with entities, got none" in result.output
    assert f"{path} is trained, but neither calibrated nor tuned" in result.output
    assert "threshold" not in spacy.load(path).get_pipe("ner").cfg["decoding"]
    (tmp_path / "config.cfg").write_text("mine")
    result = run("fit", *corpora(folder), "--output", tmp_path)
    assert result.exit_code == 1 and "expected the config of this command" in result.output
    assert (tmp_path / "config.cfg").read_text() == "mine"
    assert not (tmp_path / "model-best").exists()


def test_options_are_in_the_docs() -> None:
    table = (DOCS / "linear.md").read_text("utf8").split("## Options of fit\n")[1].split("\n## ")[0]
    shown = set(re.findall(r"`(--\w+)`", "\n".join(re.findall(r"^\| .*? \|", table, re.MULTILINE))))
    shared = {"--output", "--json", "--code", "--help"}
    options = re.findall(r"--\w+(?= )", run("fit", "--help").output)
    assert shown == {*options} - shared


@pytest.mark.parametrize("command", ["calibrate", "tune", "guarantee", "check", "explain"])
def test_json(folder: Path, fitted: Any, tmp_path: Path, command: str) -> None:
    model, dev = folder / "out" / "model-best", folder / "dev.spacy"
    output = ["--output", tmp_path / "new"]
    arguments = {
        "check": [folder / "out" / "config.cfg"],
        "explain": [model],
        "guarantee": [model, dev, *output, "--miss", 0.4],
    }.get(command, [model, dev, *output])
    result = run(command, *arguments, "--json", *(["-"] if command == "explain" else []))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)
    assert ("Written to" in result.stderr) is (command not in ("check", "explain"))


@pytest.mark.parametrize("best", [0, 3, 50, 98])
def test_ten_rows_around_the_best(best: int) -> None:
    points = [Point(i / 100, 0.5, 0.25) for i in range(99)]
    points[best] = Point(best / 100, 1.0, 0.5)
    tuning = Tuning("threshold", points, points[best], Point(float("nan"), 0.5, 0.25))
    *lines, last = tuning_text(tuning, show_all=False).splitlines()
    assert last == "These docs chose it: expect less of new ones."
    assert len(lines) == N_ROWS + 3
    (chosen,) = (line for line in lines if "chosen" in line)
    assert chosen.split()[:4] == [f"{best / 100:g}", "100.00", "50.00", "66.67"]
    assert lines[-1].endswith("P 50.00 -> 100.00, R 25.00 -> 50.00, F 33.33 -> 66.67")
    assert len(tuning_text(tuning, show_all=True).splitlines()) == 99 + 4


def test_progress_is_for_terminals(capsys: pytest.CaptureFixture, monkeypatch: Any) -> None:
    assert list(progress([1, 2], desc="silent", unit="doc")) == [1, 2]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert list(progress([1, 2], desc="shown", unit="doc")) == [1, 2]
    assert "shown" in capsys.readouterr().err


def test_ctrl_c_says_what_to_do(folder: Path, fitted: Any, tmp_path: Path) -> None:
    """In a process of its own, which gets the signal where it scores."""
    program = (
        "import signal, spacy_costner.analysis.tuning as tuning, spacy_costner.cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "tuning.predict_dev = lambda *args: signal.raise_signal(signal.SIGINT) or 1 / 0\n"
        "from spacy.cli._util import app\n"
        "app()\n"
    )
    model, dev = folder / "out" / "model-best", folder / "dev.spacy"
    arguments = ["costner", "tune", model, dev, "--output", tmp_path / "new"]
    words = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    assert done.stderr.endswith(f"\nStopped. {RUN_AGAIN}\n")
    assert not (tmp_path / "new").exists()


def test_an_interrupted_fit_is_saved_and_not_tuned(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("spacy_costner.training.lbfgs.TotalLoss.__call__", interrupted)
    result = run("fit", *corpora(folder), "--output", tmp_path, "--tune", "f")
    assert result.exit_code == 0, result.output
    assert "Stopped by Ctrl-C: this is the model so far" in result.output
    assert "start_from.v1" in result.output and "threshold" not in result.output
    assert "threshold" not in spacy.load(tmp_path / "model-best").get_pipe("ner").cfg["decoding"]


def test_tables_are_markdown() -> None:
    rows = [["ours", 1 / 3], ["theirs", 100.0]]
    assert markdown_table(["", "F"], rows[:1]) == "|  | F |\n| --- | --- |\n| ours | 0.33 |"
    assert markdown_table(["", "F"], rows, align=True).splitlines() == [
        "|        |      F |",
        "| ---    |    --: |",
        "| ours   |   0.33 |",
        "| theirs | 100.00 |",
    ]
    assert mean_and_deviation([1, 3], 1) == "2.0 ± 1.4"
    assert mean_and_deviation([1]) == "1.00"


def test_tables_for_the_terminal() -> None:
    rows = [["label", "P", ""], ["a", 0.5, "best"], ["other", 10, ""]]
    assert text_table(rows).splitlines() == ["label     P", "a      0.50  best", "other    10"]
