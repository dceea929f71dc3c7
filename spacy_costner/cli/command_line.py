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
    """Decorate a command that calls a function for Python. The keyword-only parameters of the
    function become options of the command, before the options of its own. Its first argument is
    the function with the values of these options.

    function (Callable): The function. Its docstring has a text for each parameter.
    options (Mapping[str, OptionInfo]): What a signature can't say, by the name of the parameter.
    without (Collection[str]): Keyword-only parameters that the command sets itself.
    RETURNS (Callable): The decorator.
    """
    texts = parameter_texts(function)
    types = get_type_hints(function)
    shown: list[Parameter] = []
    for name, parameter in signature(function).parameters.items():
        if parameter.kind is Parameter.KEYWORD_ONLY and name not in without:
            option = as_option(parameter, options.get(name, Option()), texts[name])
            shown.append(parameter.replace(annotation=Annotated[types[name], option]))

    def decorate(body: Command) -> Command:
        # The first parameter is the function. Typer reads arguments by their place, then options.
        _, *parameters = signature(body, eval_str=True).parameters.values()
        by_place = [p for p in parameters if p.kind is not Parameter.KEYWORD_ONLY]
        by_keyword = [p for p in parameters if p.kind is Parameter.KEYWORD_ONLY]

        @wraps(body)
        def run_command(**values: Any) -> None:
            settings = {parameter.name: values.pop(parameter.name) for parameter in shown}
            body(partial(function, **settings), **values)

        # Typer reads this signature. `wraps` would have it see that of the body.
        run_command.__signature__ = Signature([*by_place, *shown, *by_keyword])  # type: ignore[attr-defined]
        return run_command

    return decorate


def as_option(parameter: Parameter, option: OptionInfo, text: str) -> OptionInfo:
    """The option of a parameter, with its text. A switch that is off has no second name: Typer
    would add --no-per-label to --per-label."""
    option = copy(option)
    option.help = text
    if parameter.default is False and option.default is ...:
        option.default = "--" + parameter.name.replace("_", "-")  # the first name: see Typer
    return option


def words_of_command(ctx: typer.Context) -> str:
    """The command with the arguments and options that it was given, as for a shell."""
    words: list[str] = []
    for param in ctx.command.params:
        name = param.name or ""
        source = ctx.get_parameter_source(name)
        value = ctx.params[name]
        if source is None or source.name != "COMMANDLINE" or value is None:
            continue
        if param.param_type_name != "argument":
            words.append(param.opts[0])
        if value is not True:  # a switch has no value
            words.append(str(value))
    return f"python -m spacy costner {ctx.command.name} {shlex.join([*words, *ctx.args])}"
