"""`python -m experiments softmax_margin [--quick] [--variant paper] [--jobs 2]`."""

from enum import Enum
from typing import Annotated

import typer
from typer import Argument, Option

from .runner import ROOT, run_experiment

Name = Enum("Name", {path.stem: path.stem for path in sorted((ROOT / "experiments").glob("*.cfg"))})  # type: ignore[misc]


def main(
    name: Annotated[Name, Argument(help="The experiment")],
    quick: Annotated[bool, Option("--quick", help="A part of it, in a few minutes")] = False,
    variant: Annotated[str | None, Option("--variant", help="Other settings in its spec")] = None,
    jobs: Annotated[int, Option("--jobs", "-j", help="Trainings at a time", min=1)] = 2,
    address: Annotated[str | None, Option("--address", help="Ray cluster: host:port")] = None,
) -> None:
    """Run an experiment and print its section of docs/reproduction.md. A full run also writes the
    section to this page."""
    text = run_experiment(name.value, quick=quick, variant=variant, jobs=jobs, address=address)
    typer.echo(text)


if __name__ == "__main__":
    typer.run(main)
