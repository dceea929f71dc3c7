"""Tests of commands as people call them: `python -m spacy costner …`."""

import gc
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
from spacy_costner.cli import GC_THRESHOLD
from spacy_costner.features.gazetteers import Gazetteer
from spacy_costner.pipeline.component import CostSensitiveNER

from ..support.commands import run
from ..support.experiment import CONFIG, Experiment, make_corpus


def open_terminal() -> tuple[int, int]:
    """Open a pseudo-terminal. The test is skipped on Windows, which has none, and in a container
    that has none left. Returns the file descriptors of our end and of the end of the command."""
    pty = pytest.importorskip("pty")
    try:
        return pty.openpty()
    except OSError as error:
        pytest.skip(f"no pseudo-terminal: {error}")


def run_on_terminal(command: list[str], folder: Path) -> str:
    """Run a command on a terminal, and check that it succeeds. Returns what it has shown."""
    our_end, its_end = open_terminal()
    process = subprocess.Popen(command, cwd=folder, stdin=its_end, stdout=its_end, stderr=its_end)
    os.close(its_end)
    shown = b""
    with suppress(OSError):  # how reading ends
        while block := os.read(our_end, 9999):
            shown += block
    os.close(our_end)
    assert process.wait() == 0, shown.decode()
    return shown.decode()


@pytest.mark.slow
def test_fit_on_a_terminal(tmp_path: Path) -> None:
    """Also on a terminal that doesn't report its size, there are progress bars with totals, and
    colours. A warning is shown once, on one line, without its place in the code; here it is about
    "Ana ", which ends with whitespace. The output says that the model has one pass or two."""
    lines: list[str] = []
    for i in range(20):
        text = f"Ana  saw Rome. Bo left Rome. Ana left Rome {i}."
        lines.append(json.dumps({"text": text, "spans": [[0, 4, "PER"], [9, 13, "LOC"]]}))
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    fit = [sys.executable, "-m", "spacy", "costner", "fit", "--train", "train.jsonl"]

    shown = run_on_terminal([*fit, "--lang", "xx", "--calibrate", "--output", "out"], tmp_path)

    lines = [line.strip() for line in re.split("[\r\n]+", shown)]
    for desc in ("first pass 1/3", "train", "held-out folds", "predict"):
        bar = re.compile(rf"{desc}: +\d+%\|.*\d/\d")
        assert any(bar.match(line) for line in lines), lines
    yellow, green, end_of_colour = "\x1b[33m", "\x1b[32m", "\x1b[0m"
    warning = (
        "Warning: spans begin or end with whitespace: the whitespace is left out (20); train.jsonl"
    )
    assert shown.count("Warning") == 1
    assert "UserWarning" not in shown
    assert any(line.startswith(f"{yellow}{warning}") for line in lines), lines
    assert any("weights, two passes" in line for line in lines)
    assert f"{green}Written to out/model-best{end_of_colour}" in lines


def test_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.output == f"spacy-costner {__version__}\n"


def compare_command(experiment: Experiment, *options: Any) -> list[Any]:
    """The words of a `compare` command with the config, the test corpus and the output folder of an
    experiment."""
    paths = ["--test", experiment.test_path, "--output", experiment.output_path]
    return ["compare", experiment.config_path, *paths, *options]


def losses_option(loss_paths: list[Path]) -> list[str]:
    """The option --losses with the files of losses."""
    return ["--losses", ",".join(str(path) for path in loss_paths)]


SWEEP = ["--sweep", "training.dropout=0.0,0.5", "--sweep", "components.ner.scheme=IOB2"]
SWEEP += ["--samples", "9", "--training.max_steps", "3"]
NAMES_OF_SWEEP = ["dropout=0.0 scheme=IOB2", "dropout=0.5 scheme=IOB2"]
"""A sweep of two values and one value has a run for each of two pairs."""


@pytest.mark.slow
def test_a_sweep_on_the_command_line(experiment: Experiment) -> None:
    """The result is printed as JSON and, in a second run that trains nothing, as a table. The
    setting and its values are saved."""
    command = compare_command(experiment, *SWEEP)

    as_json = run(*command, "--jobs", 2, "--json")
    as_table = run(*command)

    assert as_json.exit_code == 0, as_json.output
    rows = json.loads(as_json.stdout)["losses"]
    assert [row["loss"] for row in rows] == NAMES_OF_SWEEP
    assert f"{NAMES_OF_SWEEP[0]}, seed 0: F " in as_table.output
    table = [line for line in as_table.output.splitlines() if line.startswith("|")]
    first_cells = [line.split("|")[1].strip() for line in table]
    assert first_cells == ["loss", "---", *NAMES_OF_SWEEP]
    config = experiment.output_path / NAMES_OF_SWEEP[0] / "seed-0" / "config.cfg"
    assert "max_steps = 3" in config.read_text()
    record = json.loads((experiment.output_path / "comparison.json").read_text())
    assert record["sweep"]["training.dropout"] == [0.0, 0.5]


@pytest.mark.parametrize(
    ("options", "exit_code", "message"),
    [
        (
            ["--sweep", "training.dropout"],
            2,
            "expected section.setting=value,value, got 'training.dropout'",
        ),
        (
            ["--sweep", "training.dropout=0.1", "--sweep", "training.dropout=0.2"],
            2,
            "expected each setting once, got training.dropout twice",
        ),
        (
            ["--sweep", "training.dropuot=1"],
            1,
            "training.dropuot: expected a setting of [training], got 'dropuot': did you mean "
            "'dropout'?",
        ),
        ([], 1, "losses and sweeps: expected at least 1, got 0"),
    ],
    ids=["no value", "a setting twice", "misspelt setting", "nothing to compare"],
)
def test_compare_refuses_wrong_sweeps(
    experiment: Experiment, options: list[str], exit_code: int, message: str
) -> None:
    result = run(*compare_command(experiment, *options))
    assert result.exit_code == exit_code
    assert message in result.output


def test_compare_refuses_losses_of_the_same_name(experiment: Experiment) -> None:
    losses = losses_option([*experiment.loss_paths, experiment.loss_paths[0]])
    result = run(*compare_command(experiment, *losses))
    assert result.exit_code == 1
    assert "expected files with different names" in result.output


@pytest.mark.parametrize("command", ["fit", "check", "compare", "suggest"])
def test_unknown_options_are_refused(experiment: Experiment, command: str) -> None:
    """The options have no dot, so they can't be settings of the config. `suggest` has no config:
    its options are refused by Typer, which writes the error a little differently."""
    arguments = {
        "fit": ["fit", experiment.config_path, "--output", experiment.output_path],
        "check": ["check", experiment.config_path],
        "compare": compare_command(experiment, *losses_option(experiment.loss_paths)),
        "suggest": ["suggest", "model", "texts.txt", "--output", "texts.jsonl"],
    }
    result = run(*arguments[command], "--gpu-idd", 0)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert "Usage: " in result.output
    assert "No such option" in result.output and "--gpu-idd" in result.output


@pytest.fixture(scope="module")
def trained_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained pipeline, model-best, and its corpus, corpus.spacy."""
    folder = tmp_path_factory.mktemp("trained")
    make_corpus(folder / "corpus.spacy")
    config = Config().from_str(CONFIG.format(corpus=folder / "corpus.spacy"))
    config["training"]["max_steps"] = 30
    nlp = init_nlp(load_model_from_config(config, auto_fill=True).config)
    train(nlp, folder)
    return folder


@pytest.mark.slow
def test_tune_saves_the_bias_and_scores_that_it_prints(
    trained_folder: Path, tmp_path: Path
) -> None:
    model = trained_folder / "model-best"
    corpus = trained_folder / "corpus.spacy"

    result = run("tune", model, corpus, "-o", tmp_path, "--parameter", "bias", "--recall", 0.3)

    assert result.exit_code == 0, result.output
    (chosen,) = [line for line in result.output.splitlines() if "<- chosen" in line]
    bias, _, _, f = chosen.split()[:4]  # the columns are bias, P, R, F
    nlp = spacy.load(tmp_path)
    performance = nlp.meta["performance"]
    assert nlp.get_pipe("ner").cfg["decoding"]["bias"] == float(bias)
    assert f"{100 * performance['ents_f']:.2f}" == f
    assert performance["measured_on"]["source"] == str(corpus)


def read_files(folder: Path) -> dict[str, bytes]:
    """The path and the content of each file in a folder and the folders within it."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def pipeline_with_notes(trained_folder: Path, tmp_path: Path) -> Path:
    """A trained pipeline, in whose folder the user has put another file. Its parent folder has
    nothing else."""
    path = tmp_path / "model"
    shutil.copytree(trained_folder / "model-best", path)
    (path / "notes.txt").write_text("mine")
    return path


@pytest.mark.parametrize("command", ["calibrate", "tune"])
def test_a_full_disk_leaves_the_pipeline_that_the_output_would_replace(
    trained_folder: Path,
    pipeline_with_notes: Path,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fill_disk(*arguments: Any, **options: Any) -> None:
        """Let each save fail as on a full disk."""
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(CostSensitiveNER, "to_disk", fill_disk)
    before = read_files(pipeline_with_notes)
    corpus = trained_folder / "corpus.spacy"

    result = run(command, pipeline_with_notes, corpus, "--output", pipeline_with_notes)

    assert result.exit_code == 1
    assert "No space left" in result.output
    assert read_files(pipeline_with_notes) == before
    assert [*pipeline_with_notes.parent.iterdir()] == [pipeline_with_notes]


@pytest.mark.parametrize("options", [["calibrate", "--per-label"], ["tune"]], ids=lambda o: o[0])
def test_the_output_replaces_the_pipeline_that_it_was_made_of(
    trained_folder: Path, pipeline_with_notes: Path, options: list[str]
) -> None:
    """The file of the user in its folder stays."""
    before = read_files(pipeline_with_notes)
    corpus = trained_folder / "corpus.spacy"

    command, *settings = options
    result = run(command, pipeline_with_notes, corpus, "--output", pipeline_with_notes, *settings)

    assert result.exit_code == 0
    after = read_files(pipeline_with_notes)
    assert after != before
    assert after[str(pipeline_with_notes / "notes.txt")] == b"mine"
    assert [*pipeline_with_notes.parent.iterdir()] == [pipeline_with_notes]


def test_calibrate_prints_its_error_and_saves_temperatures(
    trained_folder: Path, tmp_path: Path
) -> None:
    model = trained_folder / "model-best"
    corpus = trained_folder / "corpus.spacy"

    result = run("calibrate", model, corpus, "--output", tmp_path, "--per-label")

    assert "expected calibration error " in result.output
    assert "city: " in result.output
    temperature = spacy.load(tmp_path).get_pipe("ner").cfg["temperature"]
    assert temperature["overall"] != 1.0
    assert temperature["labels"]


@pytest.mark.parametrize(
    ("command", "output", "message"),
    [
        ("report", "corpus.spacy", "expected a file other than the input"),
        ("report", "model-best", "expected a file other than the input"),
        ("report", "model-best/meta.json", "expected a file other than the input"),
        ("calibrate", "corpus.spacy", "expected a folder to save in"),
        ("calibrate", ".", "or a pipeline, got: ["),
        ("tune", "corpus.spacy", "expected a folder to save in"),
        ("tune", ".", "or a pipeline, got: ["),
    ],
)
def test_outputs_that_would_destroy_inputs_are_refused(
    trained_folder: Path, command: str, output: str, message: str
) -> None:
    """The inputs are model-best and corpus.spacy, in the same folder. The folder itself, ".", is no
    output either: it is neither empty nor a pipeline, and the message lists what is in it."""
    before = read_files(trained_folder)
    inputs = [trained_folder / "model-best", trained_folder / "corpus.spacy"]

    result = run(command, *inputs, "--output", trained_folder / output)

    assert result.exit_code == 1
    assert message in result.output
    assert read_files(trained_folder) == before


def test_explain_does_not_write_over_its_input(trained_folder: Path) -> None:
    before = read_files(trained_folder)
    model = trained_folder / "model-best"
    result = run("explain", model, "--json", model / "meta.json")
    assert result.exit_code == 1
    assert "expected a file other than the input" in result.output
    assert read_files(trained_folder) == before


NOT_A_CONFIG = {
    "corpus.spacy": (b"\x9c\xff\x00", r"expected a config, got.*byte 0x9c.*paths\.train"),
    "corpus.conll": (b"Ana B-PER\n", r"expected a config, got.*no section.*paths\.train"),
    "empty.cfg": (b"", r"expected a config with \[nlp\], got no section"),
    "part.cfg": (b'[nlp]\nlang = "xx"\n', r"expected a config with \[training\], got \[nlp\]"),
}
"""Files, their content, and a pattern of the message about it."""


@pytest.mark.parametrize("name", NOT_A_CONFIG)
@pytest.mark.parametrize("command", ["fit", "check", "audit"])
def test_another_file_in_place_of_a_config_is_named(
    command: str, name: str, tmp_path: Path
) -> None:
    """If the file has no sections, it may be a corpus whose setting, such as paths.train, was
    forgotten. The message names that setting."""
    content, message = NOT_A_CONFIG[name]
    path = tmp_path / name
    path.write_bytes(content)
    arguments = {
        "fit": [path, "--output", tmp_path / "out"],
        "check": [path],
        "audit": [path, path],
    }

    result = run(command, *arguments[command])

    assert result.exit_code == 1
    output = " ".join(result.output.split())  # without line breaks
    assert re.search(f"^{re.escape(str(path))}: {message}", output)


@pytest.fixture
def binary_file(tmp_path: Path) -> Path:
    """A file that is neither text nor any format that we read."""
    path = tmp_path / "bytes"
    path.write_bytes(b"\x9c\xff")
    return path


@pytest.fixture
def columns_file(tmp_path: Path) -> Path:
    """A corpus of a single token and its tag."""
    path = tmp_path / "a.conll"
    path.write_text("Ana B-PER\n")
    return path


def test_a_file_in_place_of_a_pipeline_is_named(
    binary_file: Path, columns_file: Path, tmp_path: Path
) -> None:
    result = run("calibrate", binary_file, columns_file, "--output", tmp_path / "out")
    assert result.exit_code == 1
    assert f"{binary_file}: expected a trained pipeline" in result.output


def test_a_file_in_place_of_groups_is_named(
    binary_file: Path, columns_file: Path, tmp_path: Path
) -> None:
    groups = ["--spans-key", "sc", "--groups", binary_file]
    result = run("init", tmp_path / "a.cfg", "--train", columns_file, *groups)
    assert result.exit_code == 1
    message = "--groups: expected JSON, {component: [labels]}"
    assert f"{binary_file}: {message}" in result.output


def test_a_file_in_place_of_a_gazetteer_is_named(binary_file: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(str(binary_file))):
        Gazetteer.from_file(binary_file)


def test_commands_collect_garbage_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus consists of many objects, and few of them are unused."""
    thresholds: list[int] = []
    monkeypatch.setattr(gc, "set_threshold", thresholds.append)

    result = run("init", "--help")

    assert result.exit_code == 0, result.output
    assert thresholds == [GC_THRESHOLD]
