"""A module imports only from floors below its own: see docs/develop.md."""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import spacy_costner

ROOT = Path(spacy_costner.__file__).parent
TESTS = Path(__file__).parents[1]
FLOORS = [
    {
        "caching",
        "docstrings",
        "files",
        "locks",
        "metrics",
        "pages",
        "progress",
        "ragged",
        "types",
        "validation",
    },
    {"chain", "sparse", "tags"},
    {"annotation", "costs"},
    {"decoding", "features", "losses", "readers"},
    {"ml"},
    {"training"},
    {"pipeline"},
    {"workflows"},
    {"export", "integrations", "serve"},
    {"cli"},
]
FLOOR = {module: floor for floor, modules in enumerate(FLOORS) for module in modules}
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def room(path: Path) -> str:
    """The module or folder of the package that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def imported_names(path: Path, root: Path = ROOT) -> list[list[str]]:
    """The parts of all names of a package that a file of it imports, inside of functions, too.
    `from ..ml import sparse` imports ["ml", "sparse"]."""
    imported: list[list[str]] = []
    package = [root.name, *path.relative_to(root).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        imported += [name[1:] for name in names if name[0] == root.name and len(name) > 1]
    return imported


def test_imports_go_down() -> None:
    """From the floor of the module to lower ones, or within the module."""
    rooms = {room(path) for path in FILES}
    assert rooms <= {*FLOOR}, f"say in FLOORS where they stand: {rooms - {*FLOOR}}"
    upward: list[str] = []
    for path in FILES:
        importing = room(path)
        for imported, *_ in imported_names(path):
            if imported != importing and FLOOR[imported] >= FLOOR[importing]:
                upward.append(f"{path.relative_to(ROOT)} imports {imported}")
    assert not upward


def test_no_circles_of_files() -> None:
    """`TopologicalSorter` names the files of a circle. A folder hands on the names of its files."""
    imports: dict[Path, set[Path]] = {path: set() for path in FILES}
    for path in FILES:
        for name in imported_names(path):
            file = ROOT.joinpath(*name).with_suffix(".py")
            if not file.exists():  # the last part is a function or class of a file
                file = ROOT.joinpath(*name[:-1]).with_suffix(".py")
            if file in imports and file != path:
                imports[path].add(file)
    assert any(imports.values())
    TopologicalSorter(imports).prepare()  # a CycleError where there is a circle


def test_no_circles_of_rooms_of_workflows() -> None:
    """The rooms are the folders of `workflows`, and its files that stand alone. Its `__init__`
    only hands on names."""
    imports: dict[str, set[str]] = {}
    for path in (ROOT / "workflows").rglob("*.py"):
        importing = path.relative_to(ROOT / "workflows").parts[0].removesuffix(".py")
        if importing == "__init__":
            continue
        rooms = {name[1] for name in imported_names(path) if name[0] == "workflows"}
        imports.setdefault(importing, set()).update(rooms - {importing})
    assert len(imports) > 8
    TopologicalSorter(imports).prepare()


def commands() -> set[str]:
    """The modules of `cli/` that are a command: its `__init__` imports them."""
    text = (ROOT / "cli" / "__init__.py").read_text("utf8")
    names = re.findall(r"(?m)^from \.(\w+) import \1_cli$", text)
    assert len(names) > 10
    return set(names)


def test_no_command_imports_another() -> None:
    """They import `workflows`, and what all commands share."""
    names_of_commands = commands()
    imports: list[str] = []
    for command in sorted(names_of_commands):
        for name in imported_names(ROOT / "cli" / f"{command}.py"):
            if name[0] == "cli" and name[1] in names_of_commands - {command}:
                imports.append(f"{command} imports {name[1]}")
    assert not imports


def test_workflows_know_no_command_line() -> None:
    for path in (ROOT / "workflows").rglob("*.py"):
        text = path.read_text("utf8")
        assert not re.search(r"(?m)^\s*(from|import) (typer|click|matplotlib)\b", text), path.name
        assert not re.search(r"(?m)^\s*print\(", text), path.name


def test_no_test_module_imports_another() -> None:
    """What several need is in tests/support."""
    for path in TESTS.rglob("*.py"):
        assert not re.search(r"(?m)^\s*(from|import) .*\btest_", path.read_text("utf8")), path.name
