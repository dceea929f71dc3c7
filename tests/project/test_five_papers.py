"""docs/five-papers.md has every numbered equation of the papers, and names code that exists."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "five-papers.md"

LAST_EQUATIONS = {"Suzuki": 16, "Higashiyama": 12, "Gimpel": 7, "Ricci": 6}
"""By the first author, the number of the last equation. The first is eq 1."""

DECIMAL_EQUATIONS = ["2.1", "2.2", "2.3", *(f"3.{n}" for n in range(4, 13)), "6.13"]
"""The equations of Tsuboi & Kashima."""


def sections() -> dict[str, str]:
    """The section of each paper, by its first author."""
    _, *parts = PAGE.read_text(encoding="utf8").split("\n## ")
    return {part.partition(" ")[0].rstrip(","): part for part in parts}


def rows(section: str) -> Iterator[list[str]]:
    """The cells of each row of the tables of a section."""
    for line in section.splitlines():
        if line.startswith("| "):
            yield re.split(r"(?<!\\)\|", line)[1:-1]


def code_names() -> list[str]:
    """All names between backticks in the last column of the tables."""
    names: set[str] = set()
    for section in sections().values():
        for row in rows(section):
            names.update(re.findall(r"`([^`]+)`", row[-1]))
    return sorted(names)


def find(name: str) -> Any:
    """Import the longest part of a dotted name that is a module, and get the rest from it."""
    if not name.startswith("experiments."):
        name = f"spacy_costner.{name}"
    parts = name.split(".")
    for n_parts in range(len(parts) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(parts[:n_parts]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[n_parts:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(name)


def equations(section: str) -> set[str]:
    """The numbers of the equations in the first column: "eq 1 and 4", "eq 3.4, 3.6 and 3.7"."""
    numbers: set[str] = set()
    for row in rows(section):
        for text in re.findall(r"eq ((?:[\d.]+(?:, | and )?)+)", row[0]):
            numbers.update(re.findall(r"\d+(?:\.\d+)?", text))
    return numbers


def test_there_is_a_section_for_each_paper() -> None:
    assert sections().keys() == {"Tsuboi", *LAST_EQUATIONS}
    assert len(code_names()) > 40


@pytest.mark.parametrize("name", code_names())
def test_the_code_has_the_name(name: str) -> None:
    assert find(name) is not None


@pytest.mark.parametrize("author", LAST_EQUATIONS)
def test_every_equation_has_a_row(author: str) -> None:
    numbers = {str(n) for n in range(1, LAST_EQUATIONS[author] + 1)}
    assert numbers <= equations(sections()[author])


def test_every_equation_of_the_mixed_loss_has_a_row() -> None:
    assert {*DECIMAL_EQUATIONS} <= equations(sections()["Tsuboi"])
