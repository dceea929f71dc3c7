"""How all commands render and write text, print their results, and stop."""

import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import (
    AbstractContextManager,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
)
from pathlib import Path
from typing import Annotated, Any

import typer
from tqdm import tqdm
from typer import Option

from ..saving import as_json

JsonOption = Annotated[bool, Option("--json", help="Print the result as JSON")]


RUN_AGAIN = "Outputs are written as a whole or not at all: run the same command again."


@contextmanager
def errors_shown(go_on: str = RUN_AGAIN) -> Iterator[None]:
    """Print errors without a traceback and exit with code 1, or after Ctrl-C with code 130 and
    `go_on`, which says what to do. Print each warning once, in a line."""
    shown = set()

    def show(message: object, *_: Any, **__: Any) -> None:
        text = "; ".join(line.strip() for line in str(message).splitlines())
        if text not in shown:
            shown.add(text)
            with tqdm.external_write_mode(file=sys.stderr):
                typer.secho(f"Warning: {text}", fg="yellow", err=True)

    try:
        with warnings.catch_warnings(), _with_stderr():
            warnings.showwarning = show
            yield
    except KeyboardInterrupt as error:
        typer.echo(f"\nStopped. {go_on}", err=True)
        raise typer.Exit(130) from error
    except (ValueError, ImportError, OSError) as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(1) from error


@contextmanager
def _with_stderr() -> Iterator[None]:
    """Give libraries a stderr to write to, also where it is closed."""
    if sys.stderr is not None:
        yield
        return
    with open(os.devnull, "w", encoding="utf8") as nothing, redirect_stderr(nothing):
        yield


def stdout_for(address: str | None) -> AbstractContextManager:
    """Ray prints messages of a cluster to stdout. Print to stderr until there is the result."""
    return nullcontext() if address is None else redirect_stdout(sys.stderr)


def print_result(result: Any, text: str, print_json: bool, *written: Path | None) -> None:
    """Print the result of a command, and the files and folders that were written. With --json,
    stdout has JSON only. In the result shares and scores are from 0 to 1, in the text scores are
    from 0 to 100, as in `spacy evaluate`."""
    typer.echo(json.dumps(as_json(result), ensure_ascii=False) if print_json else text)
    for path in filter(None, written):
        typer.secho(f"Written to {path}", fg="green", err=print_json)
