"""Print the results, warnings and errors of commands, and stop them."""

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
"""The exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""

RUN_AGAIN = "Outputs are written as a whole or not at all: run the same command again."
"""The text that is printed after Ctrl-C."""

LANGUAGE_OPTION = "--lang"
"""The option of commands that make a tokenizer of a language."""

LANGUAGE_OF_PIPELINE = "nlp.lang"
"""The setting of a config, or of the config of a pipeline, that has its language."""

OPTION_OF_PARAMETER: ContextVar[Mapping[str, str]] = ContextVar(
    "spacy_costner_options", default=MappingProxyType({})
)
"""The options of the command that is running, keyed by the names of the parameters that they set,
such as "train_path": "--train"."""

COMMAND_OF_FUNCTION = {
    "draw": "`estimate --draw`",
    "learn_vectors": "`costner vectors`",
    "suggest_first": "`suggest --start`",
}
"""The commands of functions that have another name."""


def with_options(text: str, options: Mapping[str, str] | None = None) -> str:
    """Replace the names of parameters in an error or a docstring of `workflows` by the options of
    the command, and names of functions by commands. These names are in backticks, as in "expected
    no `vectors`" or "see `workflows.tune`", or at the beginning of the error, as in "n_rows:
    expected at least 1".

    text (str): The error, or the text of a parameter in a docstring.
    options (Mapping[str, str] | None): The options, keyed by the names of their parameters. None:
        the options of the command that is running.
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
    """In a `with` block, errors that users can cause (ValueError, ImportError, OSError) are printed
    without a traceback, and the command exits with code 1. After Ctrl-C it exits with code 130.
    Each warning is printed once, on one line. If stderr isn't a terminal, so is each phase.

    how_to_continue (str): The text that is printed after Ctrl-C: how to continue.
    language_setting (str): What chooses the language of the tokenizer.
    with_phases (bool): Whether phases, such as training, have lines on stderr: see `progress`.
    """
    printed_warnings: set[str] = set()

    def print_warning(message: object, *_: Any, **__: Any) -> None:
        """Print a warning. The module `warnings` calls this instead of its own function."""
        text = "; ".join(line.strip() for line in with_options(str(message)).splitlines())
        if text in printed_warnings:
            return
        printed_warnings.add(text)
        # This removes a progress bar first, so that the warning has its own line.
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
    """In a `with` block, there is a stderr that can be written to. If a shell has closed it,
    `sys.stderr` is None, and a progress bar would fail."""
    if sys.stderr is not None:
        yield
        return
    with open(os.devnull, "w", encoding="utf8") as null_device, redirect_stderr(null_device):
        yield


@contextmanager
def ray_messages_to_stderr(address: str | None) -> Iterator[None]:
    """In a `with` block, what Ray prints goes to stderr, so that stdout has only the result of the
    command. Otherwise Ray prints the messages of its workers to stdout.

    address (str | None): The address of the Ray cluster. None: nothing changes.
    """
    if address is None:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def print_corpus(name: str, corpus: CorpusSummary) -> None:
    """Print how a corpus, "train" or "dev", was read, before the model is trained on it. Its
    problems are warnings."""
    with tqdm.external_write_mode():
        typer.echo(corpus.as_text(name))


def print_result(result: Any, text: str, print_json: bool, *written: Path | None) -> None:
    """Print the result of a command, and name the files and folders that it has written. With
    --json, stdout has only JSON. In JSON shares and scores are from 0 to 1; in the text scores are
    from 0 to 100, as in `spacy evaluate`.

    result (Any): The result for --json: anything that `saving.as_json` takes.
    text (str): The result as text, for people.
    print_json (bool): Whether to print JSON instead of the text.
    *written (Path | None): The outputs that were written. None: no output was requested.
    """
    if print_json:
        typer.echo(json.dumps(as_json(result), ensure_ascii=False))
    else:
        typer.echo(text)
    for path in written:
        if path is not None:
            typer.secho(f"Written to {path}", fg="green", err=print_json)
