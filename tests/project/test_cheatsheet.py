"""docs/cheatsheet.md has every command and every setting of the component, and no others."""

import re
import shlex
from inspect import signature
from pathlib import Path

import pytest
import typer

from spacy_costner.cli import COMMANDS, costner
from spacy_costner.features import Template
from spacy_costner.ml import build_sparse_crf
from spacy_costner.pipeline.component import make_cost_sensitive_ner
from spacy_costner.readers import make_reader

from ..support.config import declared

PAGE = Path(__file__).parents[2] / "docs" / "cheatsheet.md"
TEXT = PAGE.read_text(encoding="utf8")
BLOCKS = {
    "[components.ner]": {*signature(make_cost_sensitive_ner).parameters} - {"nlp", "name"},
    "[components.ner.model]": {*signature(build_sparse_crf).parameters} - {"nO"},
    "[components.ner.model.features]": {*signature(Template).parameters},
    # `column` is the old name of `tag_column`.
    "[corpora.train]": {*signature(make_reader).parameters} - {"column"},
}
"""The settings of each block, without what the component or spaCy sets."""


def first_cells(introduction: str) -> list[str]:
    """The first cells of the table that follows an introduction."""
    table = TEXT.split(introduction, 1)[1].split("|---|---|\n", 1)[1].split("\n\n", 1)[0]
    return [row.split(" | ")[0] for row in table.splitlines()]


def test_every_command_is_there_with_arguments_and_options_that_it_has() -> None:
    parsers = typer.main.get_command(costner).commands  # type: ignore[attr-defined]
    names: list[str] = []
    for row in TEXT.split("## Predictions")[0].splitlines():
        command = re.match(r"\| [^|]+ \| `(\w+) (.*?)`", row)
        if command:
            name, arguments = command.groups()
            names.append(name)
            parser = parsers[name]
            context = typer.Context(parser)
            values, _, _ = parser.make_parser(context).parse_args(shlex.split(arguments))
            required = {parameter.name for parameter in parser.params if parameter.required}
            assert [key for key in required if not values.get(key)] == [], row
            known = {option for parameter in parser.params for option in parameter.opts}
            assert set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", row)) <= known, row
    assert names == [name for name, *_ in COMMANDS]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_setting_is_there(block: str) -> None:
    cells = first_cells(f"The settings of `{block}`")
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == BLOCKS[block]


def test_registered_names_are_registered() -> None:
    names: set[str] = set()
    for group in ("thinc_losses", "spacy_misc", "spacy_architectures", "spacy_scorers"):
        names |= {name.split(".")[1] for name in declared(group)}
    rows = [
        row for row in TEXT.splitlines() if re.match(r"\| `(model|loss|decoding|scorer)` \|", row)
    ]
    used = [name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[1])]
    assert len(rows) == 4 and set(used) <= names
