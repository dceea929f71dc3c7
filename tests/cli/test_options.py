"""Tests of options: the library names parameters, and commands name their options instead."""

import re
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import pytest
from typer import Argument, Option

from spacy_costner import workflows
from spacy_costner.cli import COMMANDS
from spacy_costner.cli.command_line import command, names_options, options_of
from spacy_costner.cli.output import OPTION_OF_PARAMETER, with_options

from ..support.commands import build_commands, run
from ..support.experiment import Experiment

FUNCTIONS = {
    "init": ["init"],
    "check": ["check"],
    "fit": ["fit"],
    "forecast": ["forecast"],
    "calibrate": ["calibrate"],
    "tune": ["tune"],
    "guarantee": ["guarantee"],
    "report": ["report"],
    "explain": ["explain"],
    "compare": ["compare"],
    "estimate": ["estimate", "draw"],
    "watch": ["watch"],
    "audit": ["audit"],
    "suggest": ["suggest", "suggest_first"],
    "vectors": ["learn_vectors"],
    "annotate": ["annotate"],
    "distill": ["distill"],
}
"""The functions of `workflows` that a command calls."""

MADE_BY_COMMANDS = {
    "nlp": "the loaded pipeline",
    "ner": "its component",
    "config": "the argument config_path, as it was read",
    "config_path": "an argument",
    "docs": "the docs of an argument",
    "drawn": "the docs of an argument",
    "examples": "the docs of an argument",
    "inputs": "an argument",
    "model": "an argument",
    "output_path": "an argument",
    "raw_paths": "an argument",
    "teachers": "an argument and --teacher",
    "command": "the words of the command itself",
    "corpora": "of `vectors`: none with other options for reading",
    "corpus": "the path of the docs",
    "source": "the path of the docs",
    "file_tokens": "of `watch`: as the calibration docs were read",
    "in_order": "true with --plot",
    "kept": "the docs that `fit` has read",
    "make_executor": "of --jobs and --address",
    "n_left_out": "the number of docs that annotators skipped",
    "on_corpus": "what is printed",
    "on_end": "what is printed",
    "overrides": "settings such as --nlp.lang",
    "reading": "the options of `reads_corpora`",
}
"""Parameters that can be without an option, and what commands give for them."""


def body_of_command(name: str) -> Callable[..., None]:
    """The function that Typer calls for a command."""
    (body,) = [body for other_name, body, _, _ in COMMANDS if other_name == name]
    return body


FOR_PYTHON = {
    "annotate_texts",
    "apply_answers",
    "load_annotator",
    "local_processes",
    "observe",
    "ray_cluster",
    "suspect_to_task",
}
"""Functions that are not the function of a command: for loops in Python, or parts of one."""


def long_names(command_name: str) -> dict[str, str]:
    """The long name of each option as the built command has it, both by the parameter that it sets
    and by its own name: {"n_rows": "--part", "part": "--part"}."""
    names: dict[str, str] = {}
    for param in build_commands().commands["costner"].commands[command_name].params:
        if param.param_type_name == "option":
            (name, *_) = [opt for opt in param.opts if opt.startswith("--")]
            names[param.name] = name
    for name in [*names.values()]:
        names.setdefault(name.removeprefix("--").replace("-", "_"), name)
    return names


def test_each_function_has_its_command() -> None:
    """Some functions are for Python alone, and `serve`, `convert` and `page` call functions of
    other packages."""
    called = {name for names in FUNCTIONS.values() for name in names}
    assert called == {*workflows.__all__} - FOR_PYTHON
    names_of_commands = {name for name, *_ in COMMANDS}
    assert names_of_commands - FUNCTIONS.keys() == {"serve", "convert", "page"}


@pytest.mark.parametrize(
    ("command_name", "function_name"),
    [(name, function) for name, functions in FUNCTIONS.items() for function in functions],
)
def test_errors_name_the_option_of_each_parameter(command_name: str, function_name: str) -> None:
    """A parameter either has an option, or the command makes its value."""
    expected = long_names(command_name)
    options = options_of(signature(body_of_command(command_name)).parameters.values())
    for name in signature(getattr(workflows, function_name)).parameters:
        if name in expected:
            assert with_options(f"`{name}`: expected", options) == f"{expected[name]}: expected"
        else:
            assert name in MADE_BY_COMMANDS, f"{name} of {function_name} has no option"


def test_three_switches_are_on_by_default() -> None:
    """For a switch that is on, Typer makes a second name to turn it off. Most switches have the
    default of the parameter of a function of `workflows`."""
    names_to_turn_off: set[str] = set()
    for built in build_commands().commands["costner"].commands.values():
        for param in built.params:
            names_to_turn_off.update(param.secondary_opts)
    assert names_to_turn_off == {"--no-diverse", "--no-memory", "--no-text"}


@pytest.mark.parametrize("command_name", [name for name, *_ in COMMANDS])
def test_the_options_of_a_command_are_those_that_typer_makes(command_name: str) -> None:
    """Also of commands that call no function of `workflows`, such as `serve`."""
    expected = long_names(command_name)
    options = options_of(signature(body_of_command(command_name)).parameters.values())
    assert options == expected


@pytest.mark.parametrize("command_name", [name for name, *_ in COMMANDS])
def test_help_texts_name_no_parameters_and_functions(command_name: str) -> None:
    """They have no full stop at the end, as in spaCy."""
    command = build_commands().commands["costner"].commands[command_name]
    texts = [param.help for param in command.params]
    for text in [command.help, *texts]:
        assert not re.search(r"`[a-z]+_\w+`|`workflows|\bNone\b", text), text
    assert not [text for text in texts if text.endswith(".")]


def test_a_command_prints_its_option(experiment: Experiment, tmp_path: Path) -> None:
    """The error is one of the library. `compare` declares --losses itself."""
    paths = ["--test", experiment.test_path, "--output", tmp_path / "out"]
    result = run("compare", experiment.config_path, "--losses", "Hinge", *paths)
    assert result.exit_code == 1
    assert "--losses: expected one of" in result.output
    assert "`losses`" not in result.output


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("fit: `train_path`: expected none with `n_seeds`", "fit: --train: expected none with -s"),
        ("n_rows: expected 1, got `other`", "--part: expected 1, got `other`"),
        ("a.jsonl: n_rows: expected 1", "a.jsonl: n_rows: expected 1"),
        ("`n_rows=1` and ner.`x`", "`n_rows=1` and ner.`x`"),
    ],
)
def test_errors_name_the_options_of_the_command(error: str, shown: str) -> None:
    """A name without backticks may be the name of a key in a file."""
    options = {"train_path": "--train", "n_seeds": "-s", "n_rows": "--part"}
    token = OPTION_OF_PARAMETER.set(options)
    try:
        assert with_options(error) == shown
    finally:
        OPTION_OF_PARAMETER.reset(token)
    assert with_options(error) == error


def test_errors_and_help_texts_name_commands() -> None:
    """A function may have another name than its command, and a docstring names parameters."""
    error = "expected texts, got docs that `draw` drew"
    assert with_options(error) == "expected texts, got docs that `estimate --draw` drew"
    # `fit` has an option of this name, but the module says that the function is meant.
    assert with_options("see `workflows.tune`", {"tune": "--tune"}) == "see `costner tune`"
    assert with_options("see `workflows.draw`") == "see `estimate --draw`"
    help_text = run("guarantee", "--help").output
    assert "wrong spans in the set, instead of --miss" in " ".join(help_text.split())


def test_options_have_names_of_their_own_or_of_their_parameters() -> None:
    """Of a function and of the command itself. --texts is read into the parameter `texts` of a
    function by the command, whose own parameter has another name."""
    shown: dict[str, str] = {}

    def example(
        first: Path, *, n_rows: int = 1, with_text: bool = True, plain: bool = False
    ) -> None:
        """An example.

        first (Path): The first.
        n_rows (int): Rows.
        with_text (bool): Text.
        plain (bool): Plain.
        """

    options = {"n_rows": Option("--part"), "with_text": Option("--with-text/--no-text")}

    @names_options
    @command(example, options=options)
    def example_cli(
        run: Any,
        first: Annotated[Path, Argument()],
        texts_path: Annotated[Path | None, Option("--texts")] = None,
        *,
        code_path: Annotated[Path | None, Option("-c", "--code")] = None,
        print_json: Annotated[bool, Option(help="JSON")] = False,
    ) -> None:
        shown.update(OPTION_OF_PARAMETER.get())

    values: Any = {"n_rows": 1, "with_text": True, "plain": False}
    example_cli(first=Path("a"), texts_path=None, code_path=None, print_json=False, **values)
    assert shown == {
        "texts_path": "--texts",
        "n_rows": "--part",
        "with_text": "--with-text",
        "plain": "--plain",
        "code_path": "--code",
        "print_json": "--print-json",
        # by their own names
        "texts": "--texts",
        "part": "--part",
        "code": "--code",
    }
    assert OPTION_OF_PARAMETER.get() == {}


def test_a_command_can_have_its_own_help_text() -> None:
    """Otherwise it is the text of the docstring, without its full stop."""

    def example(*, n_rows: int = 1, seed: int = 0) -> None:
        """An example.

        n_rows (int): The rows.
        seed (int): The seed, for `n_rows`.
        """

    @command(example, options={"n_rows": Option("--part", help="Rows per part")})
    def example_cli(run: Any) -> None:
        pass

    options = [
        parameter.annotation.__metadata__[0]
        for parameter in signature(example_cli).parameters.values()
    ]
    assert [option.help for option in options] == ["Rows per part", "The seed, for --part"]
