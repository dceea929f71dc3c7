"""Below `cli/`, messages and docstrings name Python parameters and settings of configs, never the
options of a command: `cli/output.py` turns parameters into options."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import spacy_costner

ROOT = Path(spacy_costner.__file__).parent

OPTION = re.compile(r"(?<![\w-])--[a-z]")

OF_COMMANDS_TO_COPY = {
    "serve/next_steps.py": {
        "--calibrate",
        "--dev",
        "--lang",
        "--output",
        "--raw",
        "--train",
        "--tune",
    }
}
"""Strings of a command that is shown to be copied to a terminal, by the path of their module."""

MODULES = sorted(
    path.relative_to(ROOT)
    for path in ROOT.rglob("*.py")
    if path.relative_to(ROOT).parts[0] != "cli"
)


def strings_with_options(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of each string of a module, docstrings included, that names an
    option."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if OPTION.search(node.value):
            yield node.lineno, node.value


def test_no_module_below_cli_names_an_option() -> None:
    found: list[tuple[str, int, str]] = []
    for path in MODULES:
        allowed = OF_COMMANDS_TO_COPY.get(path.as_posix(), set())
        source = (ROOT / path).read_text(encoding="utf8")
        for line, text in strings_with_options(source):
            if text not in allowed:
                found.append((path.as_posix(), line, text))
    assert not found


def test_options_are_found_in_docstrings_and_messages() -> None:
    source = '''"""Reads --dev."""\nmessage = f"{1}: --lang: expected"\nrule = "a -- b, a--b"'''
    assert list(strings_with_options(source)) == [(1, "Reads --dev."), (2, ": --lang: expected")]
