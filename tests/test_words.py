"""Words that are not used any more: docs/migration.md and docs/glossary.md have those that are."""

import io
import re
import tokenize
from functools import cache
from pathlib import Path
from typing import FrozenSet, Iterator, List, Set

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ["spacy_costner", "tests", "experiments", "benchmarks", "scripts", "docs", "configs"]
PYTHON, NATIVE = {".py", ".pyi"}, {".pyx", ".pxd", ".hpp", ".cpp"}
PROSE = {".md", ".cfg", ".yml", ".toml"}
EXEMPT = {
    "CHANGELOG.md",
    "docs/migration.md",
    "spacy_costner/pipeline/annotations.py",  # accepts second_choice
    "spacy_costner/pipeline/deprecated.py",
    "tests/test_annotations.py",  # tests the names that are still accepted
    "tests/test_words.py",
}
EXEMPT_FOLDER = "tests/saved_by_0.1"
CHAIN = "spacy_costner/chain"

GONE = """
BestNeighbours BestWays BestWaysOf Neighbours PosteriorOf ScaledNeighbours Sides SumNeighbours Turns
asked_of best_neighbours best_outside best_ways log_partition_outside truth_values
Scored augment best_wrong possible_only
ForbiddenSpan Tracks forbidden_spans make_tracks stands_for widen
Beliefs Rated answered beliefs readings second_choice
attempt carry_out
Seen catch_up look_around collect_features is_collected
Descent
"""
"""Looked for everywhere. A line each for chain, losses, data, decoding, tools, sparse, training."""

GONE_AS_NAMES = """
Asked Development Numbers Reading anyway collect dial hierarchy honest inference lead narrow pose
rescue scored significance
"""
"""Words that are English, too: looked for as names in code."""

GONE_FROM_CHAIN = """
Answer Parting Question Runs Scores Sets along batched lost neighbours reach spread
"""
"""Looked for as names in chain/, where they had another meaning than they have elsewhere."""

GONE_PHRASES = [
    r"expected [^\n]*, was\b",
    r"living with a model",
    r"living\.md",
    r"needs? a (good )?start",
    r"second choices?",
    r"dear(er|est)?",
    r"what F lacks",
    r"who is taken for whom",
    r"the dial",
    r"pages? to look at",
    r"mean what they say",
    r"ways? back",
]
"""Regular expressions: looked for everywhere."""

GONE_MODULES = """
batched beliefs best_ways blocks cells consistency decode descent drawing forbidden
gold hierarchy inference layers neighbours outside papers pictures plans reliability scored
significance start trials
"""
"""Modules and folders of the package and of experiments/."""


def files(suffixes: Set[str]) -> Iterator[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in sorted([*found, *ROOT.glob("*")]):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in suffixes and name not in EXEMPT and EXEMPT_FOLDER not in name:
            yield path


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf8")


@cache
def names(path: Path) -> FrozenSet[str]:
    """The names in a file of code, without comments and strings."""
    if path.suffix in PYTHON:
        tokens = tokenize.generate_tokens(io.StringIO(text(path)).readline)
        return frozenset(token.string for token in tokens if token.type == tokenize.NAME)
    comments = r'"""(.|\n)*?"""|"[^"\n]*"|//.*|(?<!^)#.*|/\*(.|\n)*?\*/'
    return frozenset(re.findall(r"\b[^\W\d]\w*\b", re.sub(comments, "", text(path))))


def where(pattern: str) -> List[str]:
    """The places of a regular expression, between word boundaries."""
    regex = re.compile(rf"\b(?:{pattern})\b")
    return [
        f"{path.relative_to(ROOT)}:{text(path)[: match.start()].count(chr(10)) + 1}"
        for path in files(PYTHON | NATIVE | PROSE)
        for match in regex.finditer(text(path))
    ]


@pytest.mark.parametrize("word", [*GONE.split(), *GONE_PHRASES])
def test_is_gone(word: str) -> None:
    assert where(word) == []


@pytest.mark.parametrize("name", GONE_AS_NAMES.split())
def test_is_gone_as_a_name(name: str) -> None:
    users = [str(path.relative_to(ROOT)) for path in files(PYTHON | NATIVE) if name in names(path)]
    assert users == []


@pytest.mark.skipif(not (ROOT / CHAIN).exists(), reason="outside of the clone")
@pytest.mark.parametrize("name", GONE_FROM_CHAIN.split())
def test_is_gone_from_the_chain(name: str) -> None:
    chain = [path for path in files(PYTHON | NATIVE) if path.is_relative_to(ROOT / CHAIN)]
    assert len(chain) > 30
    assert [str(path.relative_to(ROOT)) for path in chain if name in names(path)] == []


@pytest.mark.parametrize("module", GONE_MODULES.split())
def test_is_gone_as_a_module(module: str) -> None:
    parts = {
        part.removesuffix(".py")
        for path in files({".py"})
        for part in path.relative_to(ROOT).parts
        if not path.is_relative_to(ROOT / "tests")
    }
    assert module not in parts


def test_words_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("One\ndearer answered best_ways_of\n")
    (tmp_path / "code.py").write_text('lead = "a link"  # to pose\n')
    assert where("dear(er|est)?") == where("answered") == ["docs/page.md:2"]
    assert where("best_ways") == []
    assert names(tmp_path / "code.py") == {"lead"}
