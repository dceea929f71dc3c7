"""Commands as a terminal runs them."""

from functools import cache
from typing import Any
from unittest.mock import patch

from spacy.cli._util import app
from spacy.util import registry
from typer.main import get_command
from typer.testing import CliRunner


def run(*arguments: Any) -> Any:
    """Run one of our commands, with all commands loaded as spaCy loads them."""
    return run_spacy("costner", *arguments)


def run_spacy(*arguments: Any) -> Any:
    """Run a command of spaCy, or of a package that adds commands to it."""
    # The runner would build all commands again for each call.
    with patch("typer.testing._get_command", return_value=build_commands()):
        return CliRunner().invoke(app, [*map(str, arguments)])


@cache
def build_commands() -> Any:
    """The commands of spaCy and of all installed packages."""
    registry.cli.get_all()
    return get_command(app)
