"""`python -m spacy costner …`."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import load_model_from_config
from thinc.api import Config

from spacy_costner import __version__
from spacy_costner.features.gazetteers import Gazetteer
from spacy_costner.pipeline.component import CostSensitiveNER

from .support.commands import run
from .support.experiment import CONFIG, Experiment, make_corpus


def open_terminal() -> tuple[int, int]:
    """Both ends of a pseudo-terminal: Windows has none, a container may have none to spare."""
    pty = pytest.importorskip("pty")
    try:
        return pty.openpty()
    except OSError as error:
        pytest.skip(f"no pseudo-terminal: {error}")


def test_fit_on_a_terminal(tmp_path: Path) -> None:
    """Even on one that doesn't say its size: bars with totals; colour; each warning once, in a
    line, without the place in the code; and how many passes it chose."""
    text = "Ana  saw Rome. Bo left Rome. Ana left Rome."
    task = json.dumps({"text": text, "spans": [[0, 4, "PER"], [9, 13, "LOC"]]})
    (tmp_path / "train.jsonl").write_text(f"{task}\n" * 20)
    command = [sys.executable, "-m", "spacy", "costner", "fit", "--train", "train.jsonl"]
    command += ["--calibrate", "--output", "out"]
    ours, terminal = open_terminal()
    ends: Any = dict.fromkeys(["stdin", "stdout", "stderr"], terminal)
    process, shown = subprocess.Popen(command, cwd=tmp_path, **ends), b""
    os.close(terminal)
    with suppress(OSError):  # how reading ends
        while block := os.read(ours, 9999):
            shown += block
    os.close(ours)
    assert process.wait() == 0, shown.decode()
    lines = [line.strip() for line in re.split("[\r\n]+", shown.decode())]
    for desc in ("first pass 1/3", "train", "held-out folds", "predict"):
        assert any(re.match(rf"{desc}: +\d+%\|.*\d/\d", line) for line in lines), lines
    warning = "Warning: spans begin or end with white space: it is left out (20); train.jsonl"
    assert shown.decode().count("Warning") == 1 and "UserWarning" not in shown.decode()
    assert any(line.startswith(f"\x1b[33m{warning}") for line in lines), lines
    assert any("weights, two passes" in line for line in lines)
    assert "\x1b[32mWritten to out/model-best\x1b[0m" in lines


def test_version() -> None:
    result = run("--version")
    assert result.exit_code == 0 and result.output == f"spacy-costner {__version__}\n"


def options(experiment: Experiment) -> list[Any]:
    losses = ",".join(map(str, experiment.loss_paths))
    given = [experiment.config_path, "--losses", losses, "--test", experiment.test_path]
    return ["compare", *given, "--output", experiment.output_path]


def test_a_sweep_on_the_command_line(experiment: Experiment) -> None:
    given = [arg for arg in options(experiment) if arg != "--losses" and "risk" not in str(arg)]
    swept = ["--sweep", "training.dropout=0.0,0.5", "--sweep", "components.ner.scheme=IOB2"]
    swept += ["--samples", 9, "--training.max_steps", 3]
    result = run(*given, *swept, "--jobs", 2, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["losses"]
    names = [f"dropout={rate} scheme=IOB2" for rate in (0.0, 0.5)]
    assert [row["loss"] for row in rows] == names
    result = run(*given, *swept)
    assert f"{names[0]}, seed 0: F " in result.output
    lines = [line for line in result.output.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in lines] == ["loss", "---", *names]
    config = experiment.output_path / names[0] / "seed-0" / "config.cfg"
    assert "max_steps = 3" in config.read_text()
    record = json.loads((experiment.output_path / "comparison.json").read_text())
    assert record["sweep"]["training.dropout"] == [0.0, 0.5]
    again = experiment._replace(loss_paths=[*experiment.loss_paths, experiment.loss_paths[0]])
    wrong = "expected section.setting=value,value, got 'training.dropout'"
    for wanted, code, message in (
        ([*given, "--sweep", "training.dropout"], 2, wrong),
        ([*given, "--sweep", "training.dropuot=1"], 1, "dropuot"),
        (given, 1, "expected at least 1, got 0"),
        (options(again), 1, "expected files of different names"),
    ):
        result = run(*wanted)
        assert result.exit_code == code and message in result.output
    for command in ("fit", "check", "compare"):
        rest = options(experiment)[1:] if command == "compare" else [experiment.config_path]
        output = ["--output", experiment.output_path] if command == "fit" else []
        result = run(command, *rest, *output, "--gpu-idd", 0)
        assert result.exit_code == 2 and isinstance(result.exception, SystemExit)
        assert "Usage: " in result.output and "No such option '--gpu-idd'" in result.output


@pytest.fixture(scope="module")
def pipeline_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained pipeline, beside its corpus."""
    folder = tmp_path_factory.mktemp("trained")
    make_corpus(folder / "corpus.spacy")
    config = Config().from_str(CONFIG.format(corpus=folder / "corpus.spacy"))
    config["training"]["max_steps"] = 30
    nlp = init_nlp(load_model_from_config(config, auto_fill=True).config)
    train(nlp, folder)
    return folder


def test_tune(pipeline_path: Path, tmp_path: Path) -> None:
    paths = [pipeline_path / "model-best", pipeline_path / "corpus.spacy"]
    result = run("tune", *paths, "-o", tmp_path, "--parameter", "bias", "--recall", 0.3)
    assert result.exit_code == 0, result.output
    line = next(line for line in result.output.splitlines() if "chosen" in line)
    nlp = spacy.load(tmp_path)
    assert float(line.split()[0]) == nlp.get_pipe("ner").cfg["decoding"]["bias"]
    performance = nlp.meta["performance"]
    assert performance["measured_on"]["source"] == str(paths[1])
    assert f"{100 * performance['ents_f']:.2f}" == line.split()[3]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", ["calibrate", "tune"])
def test_onto_its_input(pipeline_path: Path, tmp_path: Path, command: str) -> None:
    """The pipeline takes the place of the one it was made of; a full disk leaves that."""
    path, corpus = tmp_path / "model", pipeline_path / "corpus.spacy"
    shutil.copytree(pipeline_path / "model-best", path)
    (path / "notes.txt").write_text("mine")
    before = content(path)

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CostSensitiveNER, "to_disk", full)
        result = run(command, path, corpus, "--output", path)
    assert result.exit_code == 1 and "No space left" in result.output
    assert content(path) == before and [*tmp_path.iterdir()] == [path]
    per_label = ["--per-label"] if command == "calibrate" else []
    result = run(command, path, corpus, "--output", path, *per_label)
    assert result.exit_code == 0
    if command == "calibrate":
        assert "expected calibration error " in result.output and "city: " in result.output
        temperature = spacy.load(path).get_pipe("ner").cfg["temperature"]
        assert temperature["overall"] != 1.0 and temperature["labels"]
    after = content(path)
    assert after != before and after[f"{path / 'notes.txt'}"] == b"mine"
    assert [*tmp_path.iterdir()] == [path]


def test_outputs_that_would_destroy_inputs(pipeline_path: Path) -> None:
    before = content(pipeline_path)
    model, corpus = pipeline_path / "model-best", pipeline_path / "corpus.spacy"
    other = "expected another file than the input"
    outputs: list[Any] = [("report", path, other) for path in (corpus, model, model / "meta.json")]
    for command in ("calibrate", "tune"):
        outputs.append((command, corpus, "expected a folder to save in"))
        outputs.append((command, pipeline_path, "or a pipeline, got: ["))
    commands = [([name, model, corpus, "--output", path], text) for name, path, text in outputs]
    explained = ["explain", model, "--json", model / "meta.json"]
    for arguments, message in [*commands, (explained, other)]:
        result = run(*arguments)
        assert result.exit_code == 1 and message in result.output
    assert content(pipeline_path) == before


NOT_A_CONFIG = {
    "corpus.spacy": (b"\x9c\xff\x00", r"expected a config \(corpora have options.*byte 0x9c"),
    "corpus.conll": (b"Ana B-PER\n", r"expected a config \(corpora have options.*no section"),
    "empty.cfg": (b"", r"expected a config with \[nlp\], got no section"),
    "part.cfg": (b'[nlp]\nlang = "xx"\n', r"expected a config with \[training\], got \[nlp\]"),
}


@pytest.mark.parametrize("name", NOT_A_CONFIG)
@pytest.mark.parametrize("command", ["fit", "check", "audit"])
def test_another_file_in_place_of_a_config(command: str, name: str, tmp_path: Path) -> None:
    """Such as a corpus without its option: the message names it."""
    data, message = NOT_A_CONFIG[name]
    path = tmp_path / name
    path.write_bytes(data)
    more = {"fit": ["--output", tmp_path / "out"], "check": [], "audit": [path]}[command]
    result = run(command, path, *more)
    assert result.exit_code == 1
    assert re.search(f"^{re.escape(str(path))}: {message}", " ".join(result.output.split()))


def test_other_files_are_named_too(tmp_path: Path) -> None:
    path, corpus = tmp_path / "bytes", tmp_path / "a.conll"
    path.write_bytes(b"\x9c\xff")
    corpus.write_text("Ana B-PER\n")
    init = ["init", tmp_path / "a.cfg", "--train", corpus]
    given = {
        "expected a trained pipeline": ["calibrate", path, corpus, "--output", tmp_path / "out"],
        "--groups: expected JSON, {component: [labels]}": [
            *init,
            "--spans-key",
            "sc",
            "--groups",
            path,
        ],
    }
    for message, arguments in given.items():
        result = run(*arguments)
        assert result.exit_code == 1 and f"{path}: {message}" in result.output
    with pytest.raises(ValueError, match=re.escape(str(path))):
        Gazetteer.from_file(path)
