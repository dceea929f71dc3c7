"""Create the command-line options of a command from the workflow function that it calls.

Each keyword-only parameter of the function is converted to an option. The name, type and default of
the option are taken from the function's signature, and the help text from its docstring. Additional
settings, such as a short name, a range of values or a check that a file exists, are defined in the
`options` of the command, along with any help texts that differ from the docstring.
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
"""The function of a command, called by Typer."""


def command(
    function: Callable[..., ResultT],
    *,
    options: Mapping[str, OptionInfo] = {},
    without: Collection[str] = (),
) -> Callable[[Command], Command]:
    """Create a decorator for a command that calls a workflow function, such as `tune`. The
    function's keyword-only parameters are added to the command as options, before the command's own
    options. When the command is run, it receives a `partial` of the function with the values of
    these options as its first argument.

    function (Callable): The workflow function. Its docstring must describe all options.
    options (Mapping[str, OptionInfo]): Additional settings for options, keyed by parameter name. A
        help text overrides the text in the docstring.
    without (Collection[str]): The keyword-only parameters to exclude, because they are set by the
        command.
    RETURNS (Callable): The decorator.
    RAISES (TypeError): If an option isn't described in the function's docstring.
    """
    texts = parameter_texts(function)
    types = get_type_hints(function)
    # Typer creates options from parameters annotated as Annotated[type, Option(...)].
    options_of_function: list[Parameter] = []
    for name, parameter in signature(function).parameters.items():
        if parameter.kind is Parameter.KEYWORD_ONLY and name not in without:
            if name not in texts:
                raise TypeError(f"{function.__name__}: expected {name} in its docstring")
            option = as_option(parameter, options.get(name, Option()), texts[name])
            declared_parameter = parameter.replace(annotation=Annotated[types[name], option])
            options_of_function.append(declared_parameter)

    def decorate(body: Command) -> Command:
        """Create a Typer command from a function that expects the `partial` as its first
        argument."""
        parameters = list(signature(body, eval_str=True).parameters.values())
        del parameters[0]  # the `partial` isn't a command-line argument
        positional: list[Parameter] = []
        options_of_command: list[Parameter] = []
        for parameter in parameters:
            if parameter.kind is Parameter.KEYWORD_ONLY:
                options_of_command.append(parameter)
            else:
                positional.append(parameter)

        @wraps(body)
        def run_command(**values: Any) -> None:
            """Run the command with the argument and option values passed by Typer."""
            values_of_function: dict[str, Any] = {}
            for option in options_of_function:
                values_of_function[option.name] = values.pop(option.name)
            body(partial(function, **values_of_function), **values)

        # In help texts, replace the parameter names used in docstrings with option names.
        all_parameters = [*positional, *options_of_function, *options_of_command]
        option_of_parameter = options_of(all_parameters)
        for declared in options_of_function:
            (option,) = declared.annotation.__metadata__
            option.help = with_options(option.help, option_of_parameter)

        # `wraps` copies the signature of the body, but Typer needs the signature of the command
        # with all options.
        run_command.__signature__ = Signature(all_parameters)  # type: ignore[attr-defined]
        return run_command

    return decorate


def reads_corpora(body: Command) -> Command:
    """Add the options for reading corpora to a command. Their values are passed to the command as
    the keyword argument `reading`."""
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
        """Run the command with the argument and option values passed by Typer."""
        options = {name: values.pop(name) for name, *_ in READING_OPTIONS}
        with errors_shown():
            reading = ReadOptions(**options)
        body(*arguments, reading=reading, **values)

    full_signature = Signature([*parameters, *options_of_reading])
    run_with_reading.__signature__ = full_signature  # type: ignore[attr-defined]
    return run_with_reading


def as_column(text: str) -> int | str:
    """Parse the value of an option that specifies a column by number or name."""
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
"""The name, type and option of each field of `ReadOptions` that can be set on the command line."""


def as_option(parameter: Parameter, option: OptionInfo, text: str) -> OptionInfo:
    """Create the option for a parameter. If the option has no help text, the docstring is used. As
    in spaCy, help texts don't end with a period."""
    option = copy(option)  # the same object may be used for several parameters
    option.help = (option.help or text).removesuffix(".")
    # If a flag (an option that is False by default) has no name, Typer creates two names, such as
    # --per-label and --no-per-label. Set the name here to avoid this. Typer stores the first name
    # of an option in the attribute `default`, which is `...` if the option has no name.
    is_switch = parameter.default is False
    has_no_name = option.default is ...
    if is_switch and has_no_name:
        option.default = "--" + parameter.name.replace("_", "-")
    return option


def names_options(body: Command) -> Command:
    """Make a command use the names of its options in error messages. See `output.with_options`."""
    option_of_parameter = options_of(signature(body).parameters.values())

    @wraps(body)
    def run_command(**values: Any) -> None:
        """Run the command with the argument and option values passed by Typer."""
        token = OPTION_OF_PARAMETER.set(option_of_parameter)
        try:
            body(**values)
        finally:
            OPTION_OF_PARAMETER.reset(token)

    return run_command


def options_of(parameters: Iterable[Parameter]) -> dict[str, str]:
    """Return the options of a command, keyed by parameter name, as in {"train_path": "--train"}.
    Arguments are excluded.

    If the command reads the value of an option before it calls a workflow function, the parameters
    may have different names, as in `annotated_path` and `annotated` for --annotated. Each option is
    therefore also added under its own name."""
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
    """Return the name of the option that Typer creates from a parameter, such as "--train". If the
    option isn't named explicitly, the name is derived from the parameter, as in "--train-path".
    Return None if the parameter isn't an option."""
    for option in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(option, OptionInfo):
            # Typer stores the first name in the attribute `default`: see `as_option`.
            for name in (option.default, *(option.param_decls or ())):
                if isinstance(name, str) and name.startswith("--"):
                    return name.partition("/")[0]  # for a flag such as --with-text/--no-text
            return "--" + parameter.name.replace("_", "-")
    return None


def words_of_command(ctx: typer.Context) -> str:
    """Return the command line as it was typed, quoted for the shell. `fit` and `init` write it to
    the config for reproducibility."""
    words: list[str] = []
    for param in ctx.command.params:
        name = param.name or ""
        source = ctx.get_parameter_source(name)
        value = ctx.params[name]
        is_typed = source is not None and source.name == "COMMANDLINE"
        if not is_typed or value is None:
            continue
        # A repeated option has a list of values.
        values = value if isinstance(value, (list, tuple)) else [value]
        for single_value in values:
            if param.param_type_name != "argument":
                first_name, *_ = param.opts
                words.append(first_name)
            if single_value is not True:  # flags have no value
                words.append(str(single_value))
    # `ctx.args` contains config overrides, such as --nlp.lang es.
    return f"python -m spacy costner {ctx.command.name} {shlex.join([*words, *ctx.args])}"
