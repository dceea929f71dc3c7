"""The examples of some pages, from the top of a page to its end: `make docs-test` runs all."""

import re
from pathlib import Path
from typing import Any

import pytest
from spacy.tokens import Doc, Token
from thinc.api import fix_random_seed

from ..support.pages import PAGES, ROOT, WITH_SMALL_PIPELINE, read_blocks, run_block
from ..support.pipelines import pipeline, train

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where there is a pipeline in training/model-best."""
    fix_random_seed(0)
    nlp = pipeline()
    train(nlp)
    path = tmp_path_factory.mktemp("workplace")
    (path / "training").mkdir()
    nlp.to_disk(path / "training" / "model-best")
    return path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_block_is_overlooked(page: Path) -> None:
    """A block has two fences."""
    fences = re.findall(r"^ *```", page.read_text(encoding="utf8"), flags=re.MULTILINE)
    assert 2 * len(read_blocks(page)) == len(fences)


IMPORTED = {
    "spacy_costner",
    "spacy_costner.cli.audit",
    "spacy_costner.cli.report",
    "spacy_costner.integrations.presidio",
    "spacy_costner.ml",
    "spacy_costner.readers",
    "spacy_costner.serve.app",
    "spacy_costner.serve.session",
    "spacy_costner.serve.store",
    "spacy_costner.workflows",
}
"""The modules that pages and notebooks import from: their names stay."""


@pytest.mark.parametrize("path", [*PAGES, *NOTEBOOKS], ids=lambda path: path.stem)
def test_examples_import_from_public_modules(path: Path) -> None:
    text = path.read_text(encoding="utf8")
    assert {*re.findall(r"(?:from|import) (spacy_costner[\w.]*)", text)} <= IMPORTED


@pytest.mark.parametrize("page", WITH_SMALL_PIPELINE)
def test_examples_run(page: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    fix_random_seed(0)
    blocks = read_blocks(ROOT / "docs" / f"{page}.md")
    examples = [block for block in blocks if block.language == "python"]
    assert len(examples) >= 2 and any("assert" in block.code for block in examples)
    names: dict[str, Any] = {}
    try:
        for block in examples:
            run_block(block, names)
    finally:
        # An example of a page may set this extension, which would stay for other tests.
        for holder in (Doc, Token):
            if holder.has_extension("sure"):
                holder.remove_extension("sure")
