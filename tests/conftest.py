"""What holds for all tests."""

import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import catalogue
import pytest
from hypothesis import settings
from spacy.language import Language
from thinc.api import fix_random_seed

from .support.browser import Browser, browser
from .support.experiment import SENTENCES, Experiment, make_experiment
from .support.pipelines import pipeline, train
from .support.tokenizers import without_special_cases

# Or else each look-up of a registered name goes through all entry points there are.
all_entry_points = entry_points()
catalogue.AVAILABLE_ENTRY_POINTS = {
    group: all_entry_points.select(group=group) for group in all_entry_points.groups
}

# Most pipelines are of no language in particular. Those of a language keep its special cases.
Language.Defaults = without_special_cases(Language)

settings.register_profile("chain", max_examples=60, deadline=None)
settings.load_profile("chain")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests come first, so that no worker waits at the end for another one's slow test."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


FSYNC = os.fsync


@pytest.fixture(scope="session", autouse=True)
def without_flushing() -> Iterator[None]:
    """Files are not flushed to the disk: what tests write need not survive a power failure. A
    handle that is not open is an error, as it is with `fsync`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="module")
def with_flushing() -> Iterator[None]:
    """Files are flushed: for tests of how they are saved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", FSYNC)
        yield


@pytest.fixture(scope="session")
def unsure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline that has not learned much, saved."""
    fix_random_seed(0)
    nlp = pipeline()
    train(nlp, steps=12)
    path = tmp_path_factory.mktemp("unsure")
    nlp.to_disk(path)
    return path


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A tab of Chromium, which takes longer to start than most pages take to be tested."""
    with browser(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.fixture
def tab(chromium: Browser, tmp_path: Path) -> Browser:
    """The tab of a browser, which tests use one after another. What a page saves is written to the
    folder of the test."""
    chromium.save_in(tmp_path)
    return chromium


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """No corpus is small: all are trained by updates."""
    monkeypatch.setattr("spacy_costner.workflows.corpora.FEW_SENTENCES", 0)


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    """A comparison of two losses that takes seconds."""
    return make_experiment(tmp_path)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small corpus in the place of CoNLL-2002 Spanish, for the experiments."""
    from experiments.corpora import read

    folder = tmp_path / "assets" / "conll2002_es"
    folder.mkdir(parents=True)
    for part in ("train", "testa", "testb"):
        (folder / f"esp.{part}").write_text(SENTENCES)
    monkeypatch.setattr("experiments.corpora.ROOT", tmp_path)
    read.cache_clear()
    return tmp_path
