"""`python -m spacy costner check`."""

from pathlib import Path
from typing import Annotated, List, Optional

import typer
from spacy.cli._util import import_code
from typer import Argument, Option

from ..commands.check import ERROR, WARNING, Check, check
from ..metrics import text_table
from .options import CodeOption, read_overrides
from .output import JsonOption, errors_shown, print_result


def check_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Config to train with", exists=True)],
    name: Annotated[Optional[str], Option("--name", help="Name of the component")] = None,
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
    totals = (("docs", found.docs), ("tokens", found.tokens))
    rows = [
        ["label", "train", "dev"],
        *found.counts,
        *([what, numbers["train"], numbers["dev"]] for what, numbers in totals),
    ]
    lines = [found.component, "", text_table(rows)]
    for finding in found.findings:
        number = f" ({len(finding.places)})" if finding.places else ""
        lines.append(f"\n{finding.severity}: {finding.corpus}: {finding.message}{number}")
        lines += [
            f"    doc {place.doc}: {place.words} {place.text}".rstrip()
            for place in finding.places[:n_places]
        ]
    severities = [finding.severity for finding in found.findings]
    return "\n".join([*lines, "", f"{count(severities, ERROR)}, {count(severities, WARNING)}"])


def count(severities: List[str], severity: str) -> str:
    """How many findings have a severity, in words."""
    n = severities.count(severity)
    return f"{n or 'no'} {severity}{'' if n == 1 else 's'}"
