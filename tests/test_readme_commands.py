"""The commands at the top of the README, run one after another on a raw corpus."""

import random
import re
from pathlib import Path
from typing import List

import pytest

from spacy_costner.cli.plots import require_matplotlib

from .support.pages import BLOCK, ROOT, run_commands

SECTION = "\n## From your data to a pipeline\n"
NEXT = "\n### Costs and aims\n"
NAMES = ["Oslo", "Lima", "Rome", "Cairo", "Quito", "Paris", "Delhi", "Tunis"]


def commands() -> List[str]:
    """The commands between the two headings, but for installations."""
    section = (ROOT / "README.md").read_text(encoding="utf8").split(SECTION)[1].split(NEXT)[0]
    lines = "".join(code for _, _, code in BLOCK.findall(section)).splitlines()
    return [line for line in lines if not line.startswith("pip install")]


def write_columns(path: Path, n_sents: int, seed: int) -> None:
    """IOB1, with lines of white space between sentences."""
    random.seed(seed)
    with path.open("w", encoding="utf8") as file:
        for _ in range(n_sents):
            city, other = random.sample(NAMES, 2)
            rows = [("From", "O"), (city, "I-LOC"), (other, "B-LOC"), ("is", "O"), ("seen", "O")]
            file.writelines(f"{word} X {tag}\n" for word, tag in rows)
            file.write(" \n")


@pytest.mark.slow
def test_commands_lead_from_raw_data_to_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_matplotlib()
    for name, n_sents in (("train", 300), ("dev", 100), ("test", 100)):
        write_columns(tmp_path / f"{name}.conll", n_sents, seed=n_sents)
    monkeypatch.chdir(tmp_path)
    shown = "".join(run_commands(command, "README.md") for command in commands())
    assert shown.count("3 columns, separated by blanks, IOB1 tags") == 3
    assert re.search(r"NER F +(9\d|100)\.", shown)
    assert re.search(r"dev: F (9\d|100)\.", shown)
    assert re.search(r"threshold \S+: P \S+ -> \S+, R \S+ -> \S+, F \S+ -> \S+\n", shown)
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert len(list(tmp_path.glob("packages/*/dist/*.tar.gz"))) == 1
