"""How all commands print their results, and how they stop."""

import json
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, Iterator, Optional

import typer
from typer import Option

from ..metrics import as_json

JsonOption = Annotated[bool, Option("--json", help="Print the result as JSON")]

RUN_AGAIN = "Outputs are written as a whole or not at all: run the same command again."


@contextmanager
def errors_shown(go_on: str = RUN_AGAIN) -> Iterator[None]:
    """Print errors without a traceback and exit with code 1, or after Ctrl-C with code 130 and
    `go_on`, which says what to do."""
    try:
        yield
    except KeyboardInterrupt as error:
        typer.echo(f"\nStopped. {go_on}", err=True)
        raise typer.Exit(130) from error
    except (ValueError, ImportError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


def stdout_for(address: Optional[str]) -> AbstractContextManager:
    """Ray prints messages of a cluster to stdout. Print to stderr until there is the result."""
    return nullcontext() if address is None else redirect_stdout(sys.stderr)


def print_result(result: Any, text: str, print_json: bool, *written: Optional[Path]) -> None:
    """Print the result of a command, and the files and folders that were written. With --json,
    stdout has JSON only. In the result shares and scores are from 0 to 1, in the text scores are
    from 0 to 100, as in `spacy evaluate`."""
    typer.echo(json.dumps(as_json(result), ensure_ascii=False) if print_json else text)
    for path in filter(None, written):
        typer.echo(f"Written to {path}", err=print_json)
