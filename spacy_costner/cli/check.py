"""Check the data and the config, and print the findings."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.cli._util import import_code
from typer import Argument, Option

from ..readers import ReadOptions
from ..workflows.config.checks import Check, check
from ..workflows.config.findings import ERROR, WARNING
from .command_line import command, reads_corpora
from .options import CodeOption, read_overrides
from .output import JsonOption, errors_shown, print_result
from .tables import text_table


@command(check, without=("overrides", "reading"))
@reads_corpora
def check_cli(
    run: partial[Check],  # `check` with its options set by `command`
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Config to train with", exists=True)],
    *,
    reading: ReadOptions,
    n_places: Annotated[int, Option("--places", "-n", help="Docs to show per finding")] = 3,
    print_json: JsonOption = False,
    code_path: CodeOption = None,
) -> None:
    """
    Check your data and config before training: entities per label, annotation that can't be
    learned, and whether costs, label trees and weights match the labels. Override settings as in
    `spacy train`, e.g. --paths.train ./train.spacy. The exit code is 1 if there are errors.
    """
    overrides = read_overrides(ctx)
    with errors_shown():
        import_code(code_path)
        checked = run(config_path, overrides=overrides, reading=reading)
    print_result(checked, check_text(checked, n_places), print_json)
    if checked.has_errors:
        raise typer.Exit(1)


def check_text(checked: Check, n_places: int) -> str:
    """Format the result of a check as text: a table with the number of entities per label, the
    findings with up to `n_places` docs each, and the numbers of errors and warnings."""
    # The dictionaries list the corpora in the same order as the columns.
    rows: list[Any] = [["label", "train", "dev"], *checked.counts]
    rows.append(["docs", *checked.docs.values()])
    rows.append(["tokens", *checked.tokens.values()])
    lines = [corpus.as_text(name) for name, corpus in checked.corpora.items()]
    lines += ["", checked.component, "", text_table(rows)]
    for finding in checked.findings:
        line = f"\n{finding.severity}: {finding.corpus}: {finding.message}"
        if finding.places:
            line += f" ({len(finding.places)})"
        lines.append(line)
        for place in finding.places[:n_places]:
            lines.append(f"    doc {place.doc}: {place.words} {place.text}".rstrip())
    n_by_severity = Counter(finding.severity for finding in checked.findings)
    n_errors = with_noun(n_by_severity[ERROR], ERROR)
    n_warnings = with_noun(n_by_severity[WARNING], WARNING)
    return "\n".join([*lines, "", f"{n_errors}, {n_warnings}"])


def with_noun(number: int, noun: str) -> str:
    """Format a count with a noun, as in "no errors", "1 error" or "2 errors"."""
    if number == 1:
        return f"1 {noun}"
    return f"{number or 'no'} {noun}s"
