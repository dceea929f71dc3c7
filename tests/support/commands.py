"""Commands as a terminal runs them."""

from typing import Any

from spacy.cli._util import app
from spacy.util import registry
from typer.testing import CliRunner


def run(*arguments: Any) -> Any:
    """Run a command, with all commands loaded as spaCy loads them."""
    registry.cli.get_all()
    return CliRunner().invoke(app, ["costner", *map(str, arguments)])
