"""Print the results, warnings and errors of commands, and set their exit codes."""

import json
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer
from tqdm import tqdm
from typer import Option

from ..files.saving import as_json
from ..progress import phases_shown
from ..readers import CorpusSummary
from ..readers.alignment import LanguageError

JsonOption = Annotated[bool, Option("--json", help="Print the result as JSON")]


STOPPED = 130
"""The exit code after Ctrl-C, following the convention of shells: 128 plus the signal number."""

RUN_AGAIN = "Outputs are written as a whole or not at all: run the same command again."
"""The message to print after Ctrl-C."""

LANGUAGE_OPTION = "--lang"
"""The language option of commands that create a tokenizer."""

LANGUAGE_OF_PIPELINE = "nlp.lang"
"""The language setting in a config."""

OPTION_OF_PARAMETER: ContextVar[Mapping[str, str]] = ContextVar(
    "spacy_costner_options", default=MappingProxyType({})
)
"""The options of the current command, keyed by parameter name, as in {"train_path": "--train"}."""

COMMAND_OF_FUNCTION = {
    "draw": "`estimate --draw`",
    "learn_vectors": "`costner vectors`",
    "suggest_first": "`suggest --start`",
}
"""The commands that call workflow functions with a different name, keyed by function name."""


def with_options(text: str, options: Mapping[str, str] | None = None) -> str:
    """Replace the names of parameters with options, and the names of workflow functions with
    commands. Names are replaced if they are in backticks, as in "expected no `vectors`" or "see
    `workflows.tune`", or at the start of an error message, as in "n_rows: expected at least 1".

    text (str): An error message or the description of a parameter in a docstring.
    options (Mapping[str, str] | None): The options, keyed by parameter name. Defaults to the
        options of the current command.
    RETURNS (str): The text with the names replaced.
    """
    if options is None:
        options = OPTION_OF_PARAMETER.get()

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        return options.get(name) or COMMAND_OF_FUNCTION.get(name, match[0])

    def replace_function(match: re.Match[str]) -> str:
        name = match[1]
        return COMMAND_OF_FUNCTION.get(name, f"`costner {name}`")

    text = re.sub(r"`workflows\.(\w+)`", replace_function, text)
    text = re.sub(r"`(\w+)`", replace, text)
    return re.sub(r"^(\w+)(?=: expected)", replace, text)


@contextmanager
def errors_shown(
    how_to_continue: str = RUN_AGAIN,
    *,
    language_setting: str = LANGUAGE_OF_PIPELINE,
    with_phases: bool = True,
) -> Iterator[None]:
    """Print errors without a traceback during a `with` block. On errors that users can cause
    (ValueError, ImportError, OSError), the command exits with code 1, and on Ctrl-C with code 130.
    Each warning is printed only once, on one line. If stderr isn't a terminal, phases such as
    training are also printed.

    how_to_continue (str): The message to print on Ctrl-C. It explains how to continue.
    language_setting (str): The name of the option or setting for the tokenizer's language, used in
        error messages.
    with_phases (bool): Whether to print phases to stderr. See `progress`.
    """
    printed_warnings: set[str] = set()

    def print_warning(message: object, *_: Any, **__: Any) -> None:
        """Print a warning. This replaces `warnings.showwarning`."""
        text = "; ".join(line.strip() for line in with_options(str(message)).splitlines())
        if text in printed_warnings:
            return
        printed_warnings.add(text)
        # Clear any progress bars first, so that the warning is on a separate line.
        with tqdm.external_write_mode(file=sys.stderr):
            typer.secho(f"Warning: {text}", fg="yellow", err=True)

    try:
        phases = phases_shown() if with_phases else nullcontext()
        with warnings.catch_warnings(), _with_stderr(), phases:
            warnings.showwarning = print_warning
            yield
    except KeyboardInterrupt as error:
        typer.echo(f"\nStopped. {how_to_continue}", err=True)
        raise typer.Exit(STOPPED) from error
    except (ValueError, ImportError, OSError) as error:
        text = with_options(str(error))
        if isinstance(error, LanguageError):
            text = error.as_text(language_setting)
        typer.secho(text, fg="red", err=True)
        raise typer.Exit(1) from error


@contextmanager
def _with_stderr() -> Iterator[None]:
    """Ensure that stderr is writable during a `with` block. If stderr is closed, `sys.stderr` is
    None and progress bars would fail."""
    if sys.stderr is not None:
        yield
        return
    with open(os.devnull, "w", encoding="utf8") as null_device, redirect_stderr(null_device):
        yield


@contextmanager
def ray_messages_to_stderr(address: str | None) -> Iterator[None]:
    """Redirect Ray's output to stderr during a `with` block, so that stdout only contains the
    result of the command. By default, Ray prints messages from its workers to stdout.

    address (str | None): The address of the Ray cluster. If it is None, nothing is redirected.
    """
    if address is None:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def print_corpus(name: str, corpus: CorpusSummary) -> None:
    """Print a summary of how the "train" or "dev" corpus was read. Problems aren't included,
    because they are reported as warnings."""
    with tqdm.external_write_mode():
        typer.echo(corpus.as_text(name))


def print_result(result: Any, text: str, print_json: bool, *written: Path | None) -> None:
    """Print the result of a command and the paths of its output files. With --json, stdout only
    contains JSON. In JSON, scores and proportions range from 0 to 1. In the text, scores range from
    0 to 100, as in `spacy evaluate`.

    result (Any): The result for --json, as any type supported by `saving.as_json`.
    text (str): The result as human-readable text.
    print_json (bool): Whether to print JSON instead of the text.
    *written (Path | None): The output paths. None if an output wasn't requested.
    """
    if print_json:
        typer.echo(json.dumps(as_json(result), ensure_ascii=False))
    else:
        typer.echo(text)
    for path in written:
        if path is not None:
            typer.secho(f"Written to {path}", fg="green", err=print_json)
