"""The examples of some pages, from the top of a page to its end: `make docs-test` runs all."""

import re
from pathlib import Path
from typing import Any

import pytest
from spacy.tokens import Doc, Token
from thinc.api import fix_random_seed

from ..support.pages import PAGES, ROOT, WITH_SMALL_PIPELINE, read_blocks, run_block
from ..support.pipelines import pipeline, train


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
