"""docs/messages.md quotes messages as the code has them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import spacy_costner

PACKAGE = Path(spacy_costner.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "messages.md"

MESSAGE = re.compile(r"(`+)(.+?)\1(?!`)")
"""A message between backticks, or between double ones if it has a name in backticks itself."""


def quoted_messages() -> Iterator[str]:
    """The messages in the first cells of the tables, but for those of spaCy, which have a code."""
    for row in PAGE.read_text(encoding="utf8").splitlines():
        cell = row.partition(" | ")[0]
        if re.match(r"\| `", cell):
            yield from (message for _, message in MESSAGE.findall(cell))


def strings_of_package() -> str:
    """All strings of the package, one on each line."""
    strings: list[str] = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.append(node.value)
    return "\n".join(strings)


@pytest.fixture(scope="module")
def strings() -> str:
    return strings_of_package()


def test_the_page_has_messages() -> None:
    assert len(list(quoted_messages())) > 25


@pytest.mark.parametrize("message", list(quoted_messages()))
def test_the_code_has_the_message(message: str, strings: str) -> None:
    """Between "…", a message is a part of a string of the code."""
    parts = [part.strip() for part in message.split("…")]
    assert any(parts)
    assert [part for part in parts if part not in strings] == []
