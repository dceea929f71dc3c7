"""`python -m spacy costner check`."""

from pathlib import Path
from typing import Annotated, Optional

import typer
from spacy.cli._util import import_code
from typer import Argument, Option

from ..commands.check import Check, check
from ..metrics import text_table
from .options import CodeOption, errors_shown, read_overrides


def check_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Config to train with", exists=True)],
    name: Annotated[Optional[str], Option("--name", help="Name of the component")] = None,
    n_places: Annotated[int, Option("--places", "-n", help="Docs to show per finding")] = 3,
    code_path: CodeOption = None,
) -> None:
    """
    Check your data and config before training: entities per label, annotation that can't be
    learned, and whether costs, label trees and weights fit the labels. Override settings as in
    `spacy train`, e.g. --paths.train ./train.spacy. The exit code is 1 if there are errors.
    """
    overrides = read_overrides(ctx)
    with errors_shown():
        import_code(code_path)
        found = check(config_path, overrides=overrides, name=name)
    show(found, n_places)
    if found.has_errors:
        raise typer.Exit(1)


def show(found: Check, n_places: int) -> None:
    """Print the counts and the findings, each with its first places."""
    totals = (("docs", found.docs), ("tokens", found.tokens))
    rows = [
        ["label", "train", "dev"],
        *found.counts,
        *([what, numbers["train"], numbers["dev"]] for what, numbers in totals),
    ]
    typer.echo(f"{found.component}\n\n{text_table(rows)}")
    for finding in found.findings:
        number = f" ({len(finding.places)})" if finding.places else ""
        typer.echo(f"\n{finding.severity}: {finding.corpus}: {finding.message}{number}")
        for place in finding.places[:n_places]:
            typer.echo(f"    doc {place.doc}: {place.words} {place.text}".rstrip())
