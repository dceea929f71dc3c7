"""What README and changelog say is so."""

import re
from pathlib import Path
from typing import Set

import pytest
from spacy.util import load_config, load_model_from_config
from thinc.api import Config

from spacy_costner import __version__

from .test_entry_points import declared

ROOT = Path(__file__).parent.parent


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf8")


def table(heading: str) -> Set[str]:
    """The names in the first column of the table below a heading of the README."""
    section = read("README.md").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `([\w./]+)`", section, flags=re.MULTILINE))


def test_losses() -> None:
    assert table("Losses") == set(declared("thinc_losses"))


def test_block_to_paste_is_the_softmax_margin() -> None:
    ini = re.search(r"```ini\n(.*?)```", read("README.md"), flags=re.DOTALL)
    assert ini is not None
    expected = load_config(ROOT / "configs" / "softmax_margin.cfg")
    block = Config().from_str(f"[components]\n{ini[1]}", interpolate=False)
    pasted = expected.copy()
    pasted["components"]["ner"] = block["components"]["ner"]
    assert pasted != expected
    filled = load_model_from_config(pasted, auto_fill=True).config
    assert filled["components"] == expected["components"]


def test_configs() -> None:
    assert table("Configs") == {f"configs/{path.name}" for path in ROOT.glob("configs/*.cfg")}


@pytest.mark.parametrize("name", ["README.md", "docs/develop.md", "docs/losses.md"])
def test_links_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", read(name))
    assert [link for link in links if not (ROOT / name).parent.joinpath(link).exists()] == []


def test_changelog_is_up_to_date() -> None:
    head = re.search(r"^## \[([^]]+)\]", read("CHANGELOG.md"), flags=re.MULTILINE)
    assert head is not None
    assert head[1] in {"Unreleased", __version__}
