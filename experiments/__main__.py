"""`python -m experiments mixed_loss [--quick] [--jobs 2] [--address host:port]`."""

from enum import Enum
from typing import Annotated

import typer
from typer import Argument, Option

from .runner import ROOT, run_experiment

Name = Enum("Name", {path.stem: path.stem for path in sorted((ROOT / "experiments").glob("*.md"))})  # type: ignore[misc]


def main(
    name: Annotated[Name, Argument(help="The experiment")],
    quick: Annotated[bool, Option("--quick", help="A part of it, in a few minutes")] = False,
    jobs: Annotated[int, Option("--jobs", "-j", help="Trainings at a time", min=1)] = 2,
    address: Annotated[str | None, Option("--address", help="Ray cluster: host:port")] = None,
) -> None:
    """Run an experiment and print its section of docs/reproduction.md. A full run also writes it to
    this page."""
    typer.echo(run_experiment(name.value, quick=quick, jobs=jobs, address=address))


if __name__ == "__main__":
    typer.run(main)
