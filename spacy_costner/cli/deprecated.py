"""Old command line options, accepted for one release: see docs/migration.md."""

from typing import Any, Optional, TypeVar

import typer

from ..validation import warn_of_old_name

ValueT = TypeVar("ValueT")


def old_option(*names: str, new: str) -> Any:
    """Declare an old option. It is hidden from `--help` and warns when it is used.

    names (str): The old option.
    new (str): The option to use.
    RETURNS (OptionInfo): The option, None by default.
    """

    def warn(value: Optional[ValueT]) -> Optional[ValueT]:
        if value is not None:
            typer.echo(f"{names[0]} is deprecated, use {new}", err=True)
            warn_of_old_name(names[0], new)
        return value

    return typer.Option(*names, hidden=True, callback=warn)
