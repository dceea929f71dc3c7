"""The commands at the top of the README, run one after another on a raw corpus."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from spacy_costner.commands.plots import require_matplotlib

README = Path(__file__).parent.parent / "README.md"
SECTION = "\n## From your data to a pipeline\n"
NEXT = "\n### Costs and aims\n"
NAMES = ["Oslo", "Lima", "Rome", "Cairo", "Quito", "Paris", "Delhi", "Tunis"]


def commands() -> List[str]:
    """The commands between the two headings, but for installations."""
    section = README.read_text(encoding="utf8").split(SECTION)[1].split(NEXT)[0]
    blocks = re.findall(r"```bash\n(.*?)```", section, flags=re.DOTALL)
    lines = "".join(blocks).splitlines()
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
def test_commands_lead_from_raw_data_to_a_package(tmp_path: Path) -> None:
    require_matplotlib()
    for name, n_sents in (("train", 300), ("dev", 100), ("test", 100)):
        write_columns(tmp_path / f"{name}.conll", n_sents, seed=n_sents)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    shown = ""
    for command in commands():
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        shown += done.stdout
    assert shown.count("3 columns, separated by blanks, IOB1 tags") == 3
    assert re.search(r"NER F +(9\d|100)\.", shown)
    assert re.search(r"dev: F (9\d|100)\.", shown)
    assert re.search(r"threshold \S+: P \S+ -> \S+, R \S+ -> \S+, F \S+ -> \S+\n", shown)
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert len(list(tmp_path.glob("packages/*/dist/*.tar.gz"))) == 1
