"""Training with a cache: the weights of training in memory, to the last bit; what it refuses."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span, Token
from spacy.training.batchers import minibatch_by_words
from spacy.util import load_config
from thinc.api import Config

from spacy_costner.ml import linear_part
from spacy_costner.training.soft_targets import SOFT_TARGETS_KEY
from spacy_costner.workflows.corpora import find_corpora
from spacy_costner.workflows.fitting.fitting import fit
from spacy_costner.workflows.fitting.linear_training import load_linear, prepare

from ..support.commands import run
from ..support.fitting import read_pieces
from ..support.vocabs import blank_vocab

CONFIG = Path(__file__).parents[2] / "configs" / "sparse.cfg"
WORDS = ["Ana", "Lee", "saw", "Rome", "in", "May", "\n", "Oslo", "and", "12", "."]
FEATURES = "components.ner.model.features"


def make_docs(n_docs: int, *, missing: bool) -> list[Doc]:
    """Docs of words and entities by chance, some without annotation of their first word."""
    vocab = blank_vocab()
    rng = numpy.random.default_rng(n_docs)
    docs = []
    for i in range(n_docs):
        words = rng.choice(WORDS, size=int(rng.integers(1, 40))).tolist()
        starts = [j == 0 or rng.random() < 0.2 for j in range(len(words))]
        doc = Doc(vocab, words=words, sent_starts=starts)
        entities = []
        for j, word in enumerate(words):
            if word[0].isupper() and rng.random() < 0.8:
                label = "PER" if word in ("Ana", "Lee") else "LOC"
                entities.append(Span(doc, j, j + 1, label))
        missing_spans = []
        begins_with_entity = bool(entities) and entities[0].start == 0
        if missing and i % 7 == 0 and not begins_with_entity:
            missing_spans.append(doc[0:1])
        doc.set_ents(entities, missing=missing_spans, default="outside")
        docs.append(tagger_of_lengths(doc))
    return docs


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, online: None) -> dict[str, Any]:
    """Settings for two files of training docs, read in chunks of which some need masks of tags, and
    cut into pieces."""
    monkeypatch.setattr("spacy_costner.training.pieces.N_DOCS", 4)
    monkeypatch.setattr("spacy_costner.training.pieces.MOST_WORDS_OF_PIECE", 8)
    (tmp_path / "train").mkdir()
    for name, n_docs in (("train/0", 20), ("train/1", 13), ("dev", 5)):
        docs = make_docs(n_docs, missing="train" in name)
        DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / f"{name}.spacy")
    return {
        "nlp.lang": "xx",
        "paths.train": str(tmp_path / "train"),
        "paths.dev": str(tmp_path / "dev.spacy"),
        "training.max_epochs": 2,
        "training.batcher.size": 30,
        f"{FEATURES}.memory_unit": 3,
    }


def config_of(corpora: dict[str, Any], **changes: Any) -> Config:
    """The config of the repository for linear models, for these corpora and with changes."""
    return load_config(CONFIG, overrides={**corpora, **changes}, interpolate=False)


def trained(config: Config, path: Path, **settings: Any) -> tuple[bytes, bytes]:
    """The features and weights of a training."""
    features, weights = linear_part(fit(config, path, **settings).ners[0].model)
    assert numpy.abs(weights.rows).max() > 0
    return features.to_bytes(), weights.rows.tobytes()


@pytest.fixture
def kind() -> Iterator[None]:
    """An extension attribute. It is removed afterwards, as tests with `n_process` pickle all
    extension attributes, and a lambda can't be pickled."""
    Token.set_extension("kind", getter=lambda token: len(token) % 3)
    yield
    Token.remove_extension("kind")


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"components.ner.loss.@losses": "spacy_costner.Perceptron.v1"},
        {f"{FEATURES}.windows": {"LOWER": 3, "_.kind": 1, "TAG": 0}, f"{FEATURES}.memory": None},
        {"training.optimizer.use_averages": False, "components.ner.sentence_boundaries": True},
    ],
    ids=["as it is", "perceptron", "features of attributes", "sentences without averages"],
)
def test_weights_are_those_of_training_in_memory(
    changes: dict[str, Any], corpora: dict[str, Any], kind: None, tmp_path: Path
) -> None:
    config = config_of(corpora, **changes)
    cache = tmp_path / "cache"

    with_cache = trained(config, tmp_path / "cached", cache=cache, n_seeds=2)
    in_memory = trained(config, tmp_path / "output", n_seeds=2)

    assert with_cache == in_memory
    assert [*cache.iterdir()] == []


@Language.component("tagger_of_lengths")
def tagger_of_lengths(doc: Doc) -> Doc:
    """Tag words of even length as "a", the others as "b"."""
    for token in doc:
        token.tag_ = "ab"[len(token) % 2]
    return doc


@pytest.mark.slow
def test_components_before_annotate_docs(corpora: dict[str, Any], tmp_path: Path) -> None:
    """The tags that one sets are features. If it doesn't annotate in training, the model has
    others."""
    windows = {f"{FEATURES}.windows": {"LOWER": 0, "TAG": 1}}
    config = config_of({**corpora, **windows, "training.annotating_components": ["tagger"]})
    config["components"]["tagger"] = {"factory": "tagger_of_lengths"}
    config["nlp"]["pipeline"] = ["tagger", "ner"]
    without_tags = config.merge({"training": {"annotating_components": []}})

    with_cache = trained(config, tmp_path / "cached", cache=tmp_path / "cache")
    in_memory = trained(config, tmp_path / "output")

    assert with_cache == in_memory
    assert trained(without_tags, tmp_path / "others") != in_memory


FIT_AND_DIE = """
import os, signal, sys
from pathlib import Path
from spacy.util import load_config
from spacy_costner.training.objective import Objective
from spacy_costner.workflows.fitting.fitting import fit

def evaluate_or_die(self, targets, scores, progress):
    if progress.passes > 1.1:
        os.kill(os.getpid(), signal.SIGKILL)
    return evaluate(self, targets, scores, progress)

evaluate, Objective.evaluate = Objective.evaluate, evaluate_or_die
config, output, cache = map(Path, sys.argv[1:])
fit(load_config(config), output, cache=cache)
"""
"""Trains, and kills its process in the second epoch."""


@pytest.mark.slow
def test_a_killed_training_leaves_the_last_epoch(
    corpora: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the second epoch: the model is that of a training of one epoch."""
    # The other process has the usual sizes of chunks and pieces. With a cache it trains by updates.
    # So does the training here, of one epoch, if no corpus is small.
    monkeypatch.undo()
    monkeypatch.setattr("spacy_costner.workflows.corpora.FEW_SENTENCES", 0)
    config_path = tmp_path / "killed.cfg"
    output = tmp_path / "killed"
    cache = tmp_path / "cache"
    config_of(corpora, **{"training.max_epochs": 3}).to_disk(config_path)

    command = [sys.executable, "-c", FIT_AND_DIE, config_path, output, cache]
    killed = subprocess.run(command, check=False)

    assert killed.returncode == -signal.SIGKILL
    assert [*cache.iterdir()] == []
    config_of_one_epoch = config_of(corpora, **{"training.max_epochs": 1})
    expected = rows_of(fit(config_of_one_epoch, tmp_path / "one").path)
    rows = rows_of(output / "model-best")
    assert numpy.abs(rows).max() > 0
    numpy.testing.assert_array_equal(rows, expected)


def rows_of(pipeline: Path) -> numpy.ndarray:
    """The weights of a saved linear model."""
    _, weights = linear_part(spacy.load(pipeline).get_pipe("ner").model)
    return weights.rows


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("components.ner.incorrect_spans_key", "wrong"),
        (f"{FEATURES}.bigrams", {"LOWER": 1}),
        (f"{FEATURES}.document", {"LOWER": 1}),
        ("corpora.train.augmenter", {"@augmenters": "spacy.lower_case.v1", "level": 0.5}),
    ],
)
def test_settings_that_need_docs_are_refused(
    name: str, value: Any, corpora: dict[str, Any], tmp_path: Path
) -> None:
    config = config_of(corpora, **{name: value})
    message = f"{name}: expected no value with `cache`, which reads docs"
    with pytest.raises(ValueError, match=message):
        fit(config, tmp_path / "output", cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_soft_targets_are_refused(corpora: dict[str, Any], tmp_path: Path) -> None:
    docs = make_docs(3, missing=False)
    docs[1].user_data[SOFT_TARGETS_KEY] = {"labels": ["PER"]}
    DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / "train" / "0.spacy")
    message = "^cache: expected docs without soft targets, got soft"
    with pytest.raises(ValueError, match=message):
        fit(config_of(corpora), tmp_path / "output", cache=tmp_path / "cache")


def test_batchers_that_look_at_docs_are_refused(corpora: dict[str, Any], tmp_path: Path) -> None:
    nlp_and_components = load_linear(config_of(corpora))
    nlp, components, *_ = nlp_and_components
    train_corpus, *_ = find_corpora(nlp)
    examples = prepare(nlp_and_components, train_corpus)
    pieces = read_pieces(components, examples, 100, cache=tmp_path)
    batches = minibatch_by_words(pieces, 10, get_length=lambda piece: len(piece.predicted))
    with pytest.raises(
        ValueError, match=r"^cache: .* training\.batcher that only needs the lengths"
    ):
        list(batches)


def test_a_full_disk_is_reported(corpora: dict[str, Any], tmp_path: Path) -> None:
    """Files are limited to 20 kB in place of a full disk."""
    resource = pytest.importorskip("resource")
    config = config_of(corpora)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"^cache: .*cache: .*File too large"):
            fit(config, tmp_path / "output", cache=tmp_path / "cache")
        with pytest.raises(OSError, match=r"File too large: '.*/output/model-best'"):
            fit(config, tmp_path / "output")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_fit_with_a_cache_leaves_no_files_in_it(corpora: dict[str, Any], tmp_path: Path) -> None:
    config_path = tmp_path / "sparse.cfg"
    cache = tmp_path / "cache"
    config_of(corpora).to_disk(config_path)

    result = run("fit", config_path, "--output", tmp_path / "output", "--cache", cache)

    assert result.exit_code == 0, result.output
    assert "trained: 2 epochs" in result.output
    assert [*cache.iterdir()] == []
