"""A command line of a function: options are the parameters of the function that a command calls.

The signature gives the name, the type and the default of an option, the docstring its text. What
neither can say, such as a short name, a range or a file that has to exist, stands in the table of
the command.
"""

import shlex
from collections.abc import Callable, Collection, Mapping
from copy import copy
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer import Option
from typer.models import OptionInfo

from ..docstrings import parameter_texts

ResultT = TypeVar("ResultT")
Command = Callable[..., None]


def command(
    function: Callable[..., ResultT],
    *,
    options: Mapping[str, OptionInfo] = {},
    without: Collection[str] = (),
) -> Callable[[Command], Command]:
    """Decorate a command that calls a function for Python, such as `tune`. The keyword-only
    parameters of the function become options of the command, before those that the command declares
    itself. When somebody runs the command, its first argument is the function with the values of
    these options, a `partial`.

    function (Callable): The function. Its docstring has a text for each parameter.
    options (Mapping[str, OptionInfo]): What a signature can't say, by the name of the parameter.
    without (Collection[str]): Keyword-only parameters that the command sets itself.
    RETURNS (Callable): The decorator.
    """
    texts = parameter_texts(function)
    types = get_type_hints(function)
    # The keyword-only parameters of the function, as Typer wants options to be declared.
    options_of_function: list[Parameter] = []
    for name, parameter in signature(function).parameters.items():
        if parameter.kind is Parameter.KEYWORD_ONLY and name not in without:
            option = as_option(parameter, options.get(name, Option()), texts[name])
            declared = parameter.replace(annotation=Annotated[types[name], option])
            options_of_function.append(declared)

    def decorate(body: Command) -> Command:
        """Make the command of a function whose first argument is the `partial`."""
        parameters = list(signature(body, eval_str=True).parameters.values())
        del parameters[0]  # the `partial`: it is no argument of the command line
        positional = [p for p in parameters if p.kind is not Parameter.KEYWORD_ONLY]
        options_of_command = [p for p in parameters if p.kind is Parameter.KEYWORD_ONLY]

        @wraps(body)
        def run_command(**values: Any) -> None:
            """Run the command, with the values of its arguments and of all options."""
            values_of_function = {p.name: values.pop(p.name) for p in options_of_function}
            body(partial(function, **values_of_function), **values)

        # `wraps` copies the signature of the body: Typer has to read that of the whole command.
        declared = Signature([*positional, *options_of_function, *options_of_command])
        run_command.__signature__ = declared  # type: ignore[attr-defined]
        return run_command

    return decorate


def as_option(parameter: Parameter, option: OptionInfo, text: str) -> OptionInfo:
    """Make the option of a parameter.

    parameter (Parameter): The parameter.
    option (OptionInfo): What the signature doesn't say.
    text (str): The help text.
    """
    option = copy(option)
    option.help = text
    # To a switch without a name Typer would add a second one: --no-per-label to --per-label. So it
    # gets its name here. Typer has the first name of an option in its attribute `default`.
    has_no_name = option.default is ...
    if parameter.default is False and has_no_name:
        option.default = "--" + parameter.name.replace("_", "-")
    return option


def words_of_command(ctx: typer.Context) -> str:
    """The command as it was typed, with its arguments and options, so that it can be repeated in a
    shell: `fit` and `init` write it into the config."""
    words: list[str] = []
    for param in ctx.command.params:
        name = param.name or ""
        source = ctx.get_parameter_source(name)
        value = ctx.params[name]
        is_typed = source is not None and source.name == "COMMANDLINE"
        if not is_typed or value is None:
            continue
        # An option that can be repeated has several values.
        for one_value in value if isinstance(value, (list, tuple)) else [value]:
            if param.param_type_name != "argument":
                words.append(param.opts[0])
            if one_value is not True:  # a switch has no value
                words.append(str(one_value))
    # `ctx.args` are the settings of the config, such as --nlp.lang es.
    return f"python -m spacy costner {ctx.command.name} {shlex.join([*words, *ctx.args])}"
