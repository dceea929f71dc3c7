"""Tests that commands save pipelines without the words that these have met, and that the saved
pipelines predict the same."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.vectors import Vectors

from spacy_costner.ml import linear_part
from spacy_costner.workflows.fitting.fitted import Fitted
from spacy_costner.workflows.fitting.fitting import fit
from spacy_costner.workflows.saved_strings import save_pipeline

from ..support.commands import run
from ..support.pipelines import pipeline, train
from ..support.vocabs import blank_vocab

NAMES = ["Ana", "Bo", "Rome", "Oslo"]
LABELS = ["PER", "PER", "LOC", "LOC"]


def write_docs(path: Path, rare_word: str) -> None:
    """Write docs with names. Each doc also has a word that occurs nowhere else."""
    vocab = blank_vocab()
    docs: list[Doc] = []
    for i in range(20):
        words = [NAMES[i % 4], "and", NAMES[i // 4 % 4], f"{rare_word}{i}"]
        ents = [f"B-{LABELS[i % 4]}", "O", f"B-{LABELS[i // 4 % 4]}", "O"]
        docs.append(Doc(vocab, words=words, ents=ents))
    DocBin(docs=docs).to_disk(path)


def fit_in(folder: Path, **overrides: Any) -> Fitted:
    """Fit a model in a folder. The training docs have the words train0, train1, …, the development
    docs have dev0, dev1, …"""
    write_docs(folder / "train.spacy", "train")
    write_docs(folder / "dev.spacy", "dev")
    return fit(
        Path(__file__).parents[2] / "configs" / "sparse_document.cfg",
        folder,
        train_path=folder / "train.spacy",
        dev_path=folder / "dev.spacy",
        overrides={"nlp.lang": "xx", "components.ner.model.features.memory_unit": 1, **overrides},
    )


def saved_strings(path: Path) -> list[str]:
    """The strings in the saved vocab of a pipeline."""
    return json.loads((path / "vocab" / "strings.json").read_text(encoding="utf8"))


def rare_words(path: Path) -> list[str]:
    """The words in the saved vocab that only one doc has."""
    return [word for word in saved_strings(path) if word.startswith(("train", "dev"))]


def scores_of(nlp: Language) -> list[float]:
    """The emissions of two docs: one of words that the model knows, and one with a name that it
    doesn't know."""
    docs = [
        Doc(nlp.vocab, words=["Ana", "and", "train3", "Ana", "Rome"]),
        Doc(nlp.vocab, words=["Eva", "and", "Rome"]),
    ]
    emissions = nlp.get_pipe("ner").model.predict(docs).emissions
    return emissions.reshape(-1).tolist()


def test_a_fitted_pipeline_is_saved_without_the_words_of_its_corpora(tmp_path: Path) -> None:
    path = fit_in(tmp_path).path
    assert rare_words(path) == []
    nlp = spacy.load(path)
    assert [(ent.text, ent.label_) for ent in nlp("Ana and Oslo").ents] == [
        ("Ana", "PER"),
        ("Oslo", "LOC"),
    ]


def test_strings_that_are_left_out_change_no_score(tmp_path: Path) -> None:
    fitted = fit_in(tmp_path)
    loaded = spacy.load(fitted.path)
    assert "train3" in fitted.nlp.vocab.strings
    assert "train3" not in loaded.vocab.strings
    assert scores_of(loaded) == scores_of(fitted.nlp)


def test_features_have_their_names_without_the_strings(tmp_path: Path) -> None:
    loaded = spacy.load(fit_in(tmp_path).path)
    features, _ = linear_part(loaded.get_pipe("ner").model)
    assert "LOWER=ana" in features.names(loaded.vocab.strings)


@pytest.mark.parametrize(
    "arguments",
    [
        ["tune"],
        ["calibrate"],
        ["guarantee", "--miss", 0.5],
    ],
)
def test_commands_leave_out_the_words_of_the_docs_that_they_read(
    arguments: list[Any], tmp_path: Path
) -> None:
    path = fit_in(tmp_path).path
    command, *options = arguments
    output = ["--output", tmp_path / "output"]
    result = run(command, path, tmp_path / "dev.spacy", *output, *options)
    assert result.exit_code == 0, result.output
    assert rare_words(tmp_path / "output") == []


def test_all_strings_are_saved_with_keep_all(tmp_path: Path) -> None:
    path = fit_in(tmp_path, **{"components.ner.model.keep_all": True}).path
    assert len(rare_words(path)) == 20 + 20  # each training and each development doc has one


def test_words_with_vectors_stay(tmp_path: Path) -> None:
    nlp = trained()
    rows = numpy.ones((1, 3), dtype="float32")
    nlp.vocab.vectors = Vectors(strings=nlp.vocab.strings, data=rows, keys=["Shaka"])
    save_pipeline(tmp_path, nlp)
    assert saved_strings(tmp_path) == ["Shaka"]


def test_words_with_clusters_stay(tmp_path: Path) -> None:
    """`explain` shows some words of each cluster."""
    clusters = tmp_path / "own.json"
    clusters.write_text(json.dumps({"Rome": 1, "Oslo": 1, "train3": 2}))
    features = "components.ner.model.features"
    path = fit_in(tmp_path, **{f"{features}.clusters": [str(clusters)]}).path
    assert saved_strings(path) == ["Oslo", "Rome", "train3"]
    nlp = spacy.load(path)
    model_features, _ = linear_part(nlp.get_pipe("ner").model)
    assert "clusters:own=1 (Rome Oslo)" in model_features.names(nlp.vocab.strings)


def trained() -> Language:
    """A pipeline on a CNN, whose vocab has the words of its docs. "Shaka" is one of them."""
    nlp = pipeline()
    train(nlp, steps=1)
    return nlp


def add_ruler(nlp: Language) -> None:
    """Add an entity ruler to a pipeline."""
    nlp.add_pipe("entity_ruler")


def disable_ruler(nlp: Language) -> None:
    """Add an entity ruler to a pipeline, and disable it."""
    nlp.add_pipe("entity_ruler")
    nlp.disable_pipe("entity_ruler")


def test_a_pipeline_of_our_components_alone_needs_no_strings(tmp_path: Path) -> None:
    nlp = trained()
    nlp.add_pipe("sentencizer", first=True)
    save_pipeline(tmp_path, nlp)
    assert saved_strings(tmp_path) == []
    assert "Shaka" in nlp.vocab.strings


@pytest.mark.parametrize("change", [add_ruler, disable_ruler])
def test_strings_stay_where_other_components_may_need_them(
    change: Callable[[Language], None], tmp_path: Path
) -> None:
    nlp = trained()
    change(nlp)
    save_pipeline(tmp_path, nlp)
    assert "Shaka" in saved_strings(tmp_path)
