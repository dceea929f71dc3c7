"""A module imports only from floors below its own: see docs/develop.md."""

import ast
from pathlib import Path
from typing import Iterator

import pytest

import spacy_costner

ROOT = Path(spacy_costner.__file__).parent
FLOORS = [
    {"types", "validation", "metrics", "saving", "settings"},
    {"chain", "sparse", "tags"},
    {"costs", "features", "losses"},
    {"decoding", "ml"},
    {"pipeline"},
    {"training"},
    {"commands"},
    {"cli"},
]
FLOOR = {module: floor for floor, modules in enumerate(FLOORS) for module in modules}
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def room(path: Path) -> str:
    """The module or folder of the package that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> Iterator[str]:
    """The rooms that a file imports from, inside of functions too."""
    package = ["spacy_costner", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        yield from (name[1] for name in names if name[0] == "spacy_costner" and len(name) > 1)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
    own = room(path)
    assert own in FLOOR, f"{own} has no floor: say in FLOORS where it stands"
    for other in imported_rooms(path):
        assert other == own or FLOOR[other] < FLOOR[own], f"{own} imports {other}"


def test_every_import_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "losses").mkdir()
    path = tmp_path / "losses" / "margin.py"
    path.write_text(
        "from ..chain import best_path\nfrom .. import tags\nfrom . import scored\n"
        "def f():\n    from spacy_costner.pipeline.component import CostSensitiveNER\n"
    )
    assert set(imported_rooms(path)) == {"chain", "tags", "losses", "pipeline"}
