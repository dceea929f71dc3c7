"""`python -m spacy costner …`."""

from typing import Any, List

import pytest
from spacy.cli._util import app
from spacy.util import registry
from typer.testing import CliRunner

from .experiment import Experiment


@pytest.fixture(scope="module", autouse=True)
def loaded_as_spacy_does() -> None:
    registry.cli.get_all()


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["costner", *map(str, arguments)])


def options(experiment: Experiment) -> List[Any]:
    losses = ",".join(map(str, experiment.loss_paths))
    given = [experiment.config_path, "--losses", losses, "--test", experiment.test_path]
    return ["compare", *given, "--output", experiment.output_path]


def test_help() -> None:
    assert "compare" in run("--help").output
    result = run("compare", "--help")
    assert result.exit_code == 0
    for option in ("--losses", "--test", "--output", "--seeds", "--jobs", "--gpu-id", "--code"):
        assert option in result.output


def test_command_line(experiment: Experiment) -> None:
    result = run(*options(experiment), "--samples", 9, "--jobs", 2, "--training.max_steps", 3)
    assert result.exit_code == 0, result.output
    assert "sequential, seed 0: F " in result.output
    lines = [line for line in result.output.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in lines] == ["loss", "---", "sequential", "risk"]
    config = experiment.output_path / "risk" / "seed-0" / "config.cfg"
    assert "max_steps = 3" in config.read_text()


def test_command_line_says_what_is_wrong(experiment: Experiment) -> None:
    again = [*experiment.loss_paths, experiment.loss_paths[0]]
    result = run(*options(experiment._replace(loss_paths=again)))
    assert result.exit_code == 1
    assert "expected files of different names" in result.output
