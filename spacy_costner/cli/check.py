"""Check data and config, and print what was found."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.cli._util import import_code
from typer import Argument, Option

from ..analysis.checks import ERROR, WARNING, Check, check
from .options import CodeOption, read_overrides
from .output import JsonOption, errors_shown, print_result
from .tables import text_table


def check_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Config to train with", exists=True)],
    name: Annotated[str | None, Option("--name", help="Name of the component")] = None,
    n_places: Annotated[int, Option("--places", "-n", help="Docs to show per finding")] = 3,
    print_json: JsonOption = False,
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
    print_result(found, describe(found, n_places), print_json)
    if found.has_errors:
        raise typer.Exit(1)


def describe(found: Check, n_places: int) -> str:
    """The counts, the findings with their first places, and how many there are."""
    rows: list[Any] = [["label", "train", "dev"], *found.counts]
    rows += [["docs", *found.docs.values()], ["tokens", *found.tokens.values()]]
    lines = [found.component, "", text_table(rows)]
    for finding in found.findings:
        number = f" ({len(finding.places)})" if finding.places else ""
        lines.append(f"\n{finding.severity}: {finding.corpus}: {finding.message}{number}")
        for place in finding.places[:n_places]:
            lines.append("    doc {doc}: {words} {text}".format(**place._asdict()).rstrip())
    n_of = Counter(finding.severity for finding in found.findings)
    totals = [f"{n_of[x] or 'no'} {x}{'' if n_of[x] == 1 else 's'}" for x in (ERROR, WARNING)]
    return "\n".join([*lines, "", ", ".join(totals)])
