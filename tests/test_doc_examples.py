"""The examples of the docs that can be run, from the top of a page to its end."""

import re
from pathlib import Path
from typing import Any, Dict

import pytest
from spacy.tokens import Doc, Token
from thinc.api import fix_random_seed

from .support.pipelines import pipeline, train

DOCS = Path(__file__).parent.parent / "docs"


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


@pytest.mark.parametrize("page", ["annotation.md", "data.md", "maintaining.md"])
def test_examples_run(page: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    fix_random_seed(0)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf8"), flags=re.DOTALL)
    assert len(blocks) >= 4 and any("assert" in block for block in blocks)
    names: Dict[str, Any] = {}
    try:
        for block in blocks:
            exec(compile(block, page, "exec"), names)
    finally:
        for holder in (Doc, Token):
            if holder.has_extension("sure"):
                holder.remove_extension("sure")
