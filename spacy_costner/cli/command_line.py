"""Make the command line of a command from the function of `workflows` that it calls.

Each keyword-only parameter of the function becomes an option of the command. The signature of the
function gives the name, the type and the default of the option, and the docstring gives its help
text. The table `options` of the command has what they can't express, such as a short name, a range
or that a file has to exist. It also has help texts that are worded differently from the docstring.
"""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer import Option
from typer.models import OptionInfo

from ..docstrings import parameter_texts
from ..readers import ReadOptions
from ..readers.context import CONFLICTS
from ..readers.schemes import SCHEME_NAMES
from .output import OPTION_OF_PARAMETER, errors_shown, with_options

ResultT = TypeVar("ResultT")

Command = Callable[..., None]
"""The function of a command, which Typer calls."""


def command(
    function: Callable[..., ResultT],
    *,
    options: Mapping[str, OptionInfo] = {},
    without: Collection[str] = (),
) -> Callable[[Command], Command]:
    """Make a decorator for a command that calls a function of `workflows`, such as `tune`. The
    keyword-only parameters of the function become options of the command. They come before the
    options that the command declares itself. When the command is run, its first argument is the
    function with the values of these options, as a `partial`.

    function (Callable): The function. Its docstring has a text for each parameter.
    options (Mapping[str, OptionInfo]): What the signature can't express, keyed by the name of its
        parameter. A help text replaces the text of the docstring.
    without (Collection[str]): The keyword-only parameters that don't become options, as the command
        sets them itself.
    RETURNS (Callable): The decorator.
    RAISES (TypeError): If the docstring of the function has no text for an option.
    """
    texts = parameter_texts(function)
    types = get_type_hints(function)
    # Typer reads options from parameters with the annotation Annotated[type, Option(...)].
    options_of_function: list[Parameter] = []
    for name, parameter in signature(function).parameters.items():
        if parameter.kind is Parameter.KEYWORD_ONLY and name not in without:
            if name not in texts:
                raise TypeError(f"{function.__name__}: expected {name} in its docstring")
            option = as_option(parameter, options.get(name, Option()), texts[name])
            declared_parameter = parameter.replace(annotation=Annotated[types[name], option])
            options_of_function.append(declared_parameter)

    def decorate(body: Command) -> Command:
        """Turn a function whose first argument is the `partial` into a command for Typer."""
        parameters = list(signature(body, eval_str=True).parameters.values())
        del parameters[0]  # The `partial` is not an argument of the command line.
        positional: list[Parameter] = []
        options_of_command: list[Parameter] = []
        for parameter in parameters:
            if parameter.kind is Parameter.KEYWORD_ONLY:
                options_of_command.append(parameter)
            else:
                positional.append(parameter)

        @wraps(body)
        def run_command(**values: Any) -> None:
            """Run the command. Typer gives the values of its arguments and of all options."""
            values_of_function: dict[str, Any] = {}
            for option in options_of_function:
                values_of_function[option.name] = values.pop(option.name)
            body(partial(function, **values_of_function), **values)

        # Docstrings name parameters, help texts name options.
        all_parameters = [*positional, *options_of_function, *options_of_command]
        option_of_parameter = options_of(all_parameters)
        for declared in options_of_function:
            (option,) = declared.annotation.__metadata__
            option.help = with_options(option.help, option_of_parameter)

        # `wraps` copies the signature of the body. Typer has to see the signature of the whole
        # command instead.
        run_command.__signature__ = Signature(all_parameters)  # type: ignore[attr-defined]
        return run_command

    return decorate


def reads_corpora(body: Command) -> Command:
    """Give a command the options for reading corpora. The body gets them as its
    keyword-only parameter `reading`."""
    parameters = [
        parameter
        for parameter in signature(body, eval_str=True).parameters.values()
        if parameter.name != "reading"
    ]
    options_of_reading = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[type_, option])
        for name, type_, option in READING_OPTIONS
    ]

    @wraps(body)
    def run_with_reading(*arguments: Any, **values: Any) -> None:
        """Run the command. Typer gives the values of its arguments and of all options."""
        options = {name: values.pop(name) for name, *_ in READING_OPTIONS}
        with errors_shown():
            reading = ReadOptions(**options)
        body(*arguments, reading=reading, **values)

    full_signature = Signature([*parameters, *options_of_reading])
    run_with_reading.__signature__ = full_signature  # type: ignore[attr-defined]
    return run_with_reading


def as_column(text: str) -> int | str:
    """Read an option that gives a column by its number or its name."""
    return int(text) if re.fullmatch(r"-?\d{1,9}", text) else text


READING_OPTIONS: list[tuple[str, Any, OptionInfo]] = [
    (
        "token_column",
        str | None,
        Option(
            "--token-column",
            parser=as_column,
            metavar="COLUMN",
            help="Files with columns: number of the token column, from 1, or from -1 at the end; "
            "or its name",
            show_default="the first that doesn't number tokens",
        ),
    ),
    (
        "tag_column",
        str | None,
        Option(
            "--tag-column",
            parser=as_column,
            metavar="COLUMN",
            help="Files with columns: tag column, given in the same way, or a key of MISC",
            show_default="the last",
        ),
    ),
    (
        "scheme",
        str | None,
        Option(
            "--scheme",
            help=f"Scheme of the tags: {SCHEME_NAMES}",
            show_default="found from the tags",
        ),
    ),
    (
        "text_key",
        str | None,
        Option(
            "--text-key",
            help="Label Studio: key of the text in the data of tasks",
            show_default="the key of the text that the regions quote",
        ),
    ),
    (
        "conflicts",
        str | None,
        Option(
            "--conflicts",
            help=f"How to merge docs with the same text: {', '.join(CONFLICTS)}",
            show_default="all are kept",
        ),
    ),
]
"""The name, type and option of the fields of `ReadOptions` that commands have."""


def as_option(parameter: Parameter, option: OptionInfo, text: str) -> OptionInfo:
    """Make the option of a parameter. If the command gives no help text, it is the text of the
    docstring. Help texts have no full stop at the end, as in spaCy."""
    option = copy(option)  # a table of options may have the same object for several parameters
    option.help = (option.help or text).removesuffix(".")
    # If a switch (an option that is False by default) has no name, Typer makes two names for it:
    # --per-label and --no-per-label. So it is named here. Typer keeps the first name of an option
    # in the attribute `default`, which is `...` without a name.
    is_switch = parameter.default is False
    has_no_name = option.default is ...
    if is_switch and has_no_name:
        option.default = "--" + parameter.name.replace("_", "-")
    return option


def names_options(body: Command) -> Command:
    """Let a command print errors with the names of its options: see `output.with_options`."""
    option_of_parameter = options_of(signature(body).parameters.values())

    @wraps(body)
    def run_command(**values: Any) -> None:
        """Run the command. Typer gives the values of its arguments and options."""
        token = OPTION_OF_PARAMETER.set(option_of_parameter)
        try:
            body(**values)
        finally:
            OPTION_OF_PARAMETER.reset(token)

    return run_command


def options_of(parameters: Iterable[Parameter]) -> dict[str, str]:
    """The options of a command, keyed by the names of the parameters that they set, such as
    "train_path": "--train". Arguments are left out.

    The command may read the value of an option before it calls a function of `workflows`. Then the
    command and the function can have different parameters, such as `annotated_path` and `annotated`
    for --annotated. So each option also has the parameter of its own name."""
    option_of_parameter: dict[str, str] = {}
    for parameter in parameters:
        option = name_of_option(parameter)
        if option is not None:
            option_of_parameter[parameter.name] = option
    for option in list(option_of_parameter.values()):
        own_name = option.removeprefix("--").replace("-", "_")
        option_of_parameter.setdefault(own_name, option)
    return option_of_parameter


def name_of_option(parameter: Parameter) -> str | None:
    """The name of the option that Typer makes of a parameter, such as "--train" or, if the option
    has no name of its own, "--train-path". None if the parameter isn't an option."""
    for option in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(option, OptionInfo):
            # Typer keeps the first name in the attribute `default`: see `as_option`.
            for name in (option.default, *(option.param_decls or ())):
                if isinstance(name, str) and name.startswith("--"):
                    return name.partition("/")[0]  # of a switch, such as --with-text/--no-text
            return "--" + parameter.name.replace("_", "-")
    return None


def words_of_command(ctx: typer.Context) -> str:
    """The command with the arguments and options that were typed, as text for the shell. `fit` and
    `init` write it into the config, so that people can repeat it."""
    words: list[str] = []
    for param in ctx.command.params:
        name = param.name or ""
        source = ctx.get_parameter_source(name)
        value = ctx.params[name]
        is_typed = source is not None and source.name == "COMMANDLINE"
        if not is_typed or value is None:
            continue
        # An option that was repeated has a list of values.
        values = value if isinstance(value, (list, tuple)) else [value]
        for single_value in values:
            if param.param_type_name != "argument":
                first_name, *_ = param.opts
                words.append(first_name)
            if single_value is not True:  # A switch has no value.
                words.append(str(single_value))
    # `ctx.args` has the settings of the config that were overridden, such as --nlp.lang es.
    return f"python -m spacy costner {ctx.command.name} {shlex.join([*words, *ctx.args])}"
