"""Tests of commands with static vectors: `init`, `fit`, `audit`, `check` and `explain`."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from spacy.tokens import Doc, DocBin
from spacy.util import load_config

from spacy_costner.workflows.config.checks import check
from spacy_costner.workflows.config.initial_config import init
from spacy_costner.workflows.fitting.fitting import fit
from spacy_costner.workflows.reports.explanation import explain

from ...support.commands import run

WORDS = [f"W{1000 + i}" for i in numpy.random.default_rng(0).permutation(80)]
NAMES = WORDS[:40]
PLACES = WORDS[40:]
"""Words whose letters do not tell names from places."""


def save_docs(path: Path, first: int, end: int) -> None:
    """Save docs of a name and a place, in both orders. Only a vector tells which word is which."""
    nlp = spacy.blank("xx")
    docs: list[Doc] = []
    for i in range(first, end):
        docs.append(
            Doc(nlp.vocab, words=[NAMES[i], "and", PLACES[i]], ents=["B-PER", "O", "B-LOC"])
        )
        docs.append(
            Doc(nlp.vocab, words=[PLACES[i], "and", NAMES[i]], ents=["B-LOC", "O", "B-PER"])
        )
    DocBin(docs=docs).to_disk(path)


@pytest.fixture()
def folder(tmp_path: Path) -> Path:
    """A folder with corpora that share no names and places, and a pipeline with vectors of all
    names and places, but not of "and". Vectors of names are near (1, 0), vectors of places
    near (0, 1)."""
    save_docs(tmp_path / "train.spacy", 0, 20)
    save_docs(tmp_path / "dev.spacy", 20, 40)
    nlp = spacy.blank("xx")
    rng = numpy.random.default_rng(0)
    for name, place in zip(NAMES, PLACES):
        for word, direction in ((name, [1, 0]), (place, [0, 1])):
            vector = direction + rng.normal(size=2) / 10
            nlp.vocab.set_vector(word, vector.astype("float32"))
    nlp.to_disk(tmp_path / "vectors")
    return tmp_path


def corpora(folder: Path) -> list[Any]:
    """The options that name both corpora."""
    return ["--train", folder / "train.spacy", "--dev", folder / "dev.spacy"]


def test_fit_takes_vectors_into_the_pipeline(folder: Path) -> None:
    """The pipeline knows the new words of the development corpus, and no longer needs the folder
    with the vectors. The training corpus has 40 docs of three words, two of which have a vector."""
    output = folder / "output"
    vectors = ["--vectors", folder / "vectors"]
    result = run("fit", *corpora(folder), *vectors, "--lang", "xx", "--output", output)
    assert result.exit_code == 0, result.output
    assert "training docs: 80 of 120 words (67%) have a static vector" in result.output
    assert "dev: F 100.00" in result.output
    shutil.rmtree(folder / "vectors")
    nlp = spacy.load(output / "model-best")
    doc = nlp(f"{PLACES[30]} and {NAMES[31]}")
    assert [(ent.text, ent.label_) for ent in doc.ents] == [(PLACES[30], "LOC"), (NAMES[31], "PER")]


def test_without_vectors_fit_does_not_know_new_words(folder: Path) -> None:
    fitted = fit(
        None,
        folder / "output",
        lang="xx",
        train_path=folder / "train.spacy",
        dev_path=folder / "dev.spacy",
    )
    assert fitted.scores["ents_f"] < 0.7
    assert fitted.vector_coverage is None
    assert "static vector" not in fitted.as_text()


def test_fit_takes_vectors_beside_a_config(folder: Path) -> None:
    """The config has no vectors. JSON says how many words have one."""
    config_path = folder / "config.cfg"
    config_path.write_text(init(lang="xx", train_path=folder / "train.spacy"), encoding="utf8")
    options = [*corpora(folder), "--vectors", folder / "vectors", "--json"]
    result = run("fit", config_path, *options, "--output", folder / "output")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["vectors"] == {"n_words": 120, "n_with_vector": 80}
    assert printed["scores"]["ents_f"] == 1.0


@pytest.mark.slow
def test_calibration_on_folds_has_vectors(folder: Path) -> None:
    """The model of each fold is trained with them, so it knows words that are new to it."""
    fitted = fit(
        None,
        folder / "output",
        lang="xx",
        train_path=folder / "train.spacy",
        vectors=str(folder / "vectors"),
        calibrate=True,
    )
    assert fitted.held_out is not None
    assert fitted.held_out["ents_f"] == 1.0


CLUSTERS = {"include_static_vectors": False, "vectors": [2]}


@pytest.mark.parametrize(
    "jobs, features",
    [
        (1, {}),
        pytest.param(2, {}, marks=pytest.mark.slow),
        pytest.param(1, CLUSTERS, marks=pytest.mark.slow),
        pytest.param(2, CLUSTERS, marks=pytest.mark.slow),
    ],
    ids=["one_job", "two_jobs", "clusters", "clusters_two_jobs"],
)
def test_audit_has_vectors(jobs: int, features: dict[str, Any], folder: Path) -> None:
    """The docs to audit are read without the vectors. The models of the folds are trained with
    them, so they know words that are new to them, and find no mistakes."""
    config_path = folder / "config.cfg"
    config_path.write_text(init(lang="xx", vectors=str(folder / "vectors")), encoding="utf8")
    config = load_config(config_path)
    ner_model = config["components"]["ner"]["model"]
    ner_model["features"].update(features)
    if features:
        ner_model["hidden"] = 0  # the layer's inputs are static vectors
    config.to_disk(config_path)

    output = folder / "suspects.jsonl"
    options = ["--folds", 2, "--jobs", jobs, "--output", output]
    result = run("audit", config_path, folder / "train.spacy", *options)

    assert result.exit_code == 0, result.output
    assert "no alternative is more probable than the annotation" in result.output


@pytest.mark.parametrize("model", ["linear", "hybrid", "cnn"])
def test_init_writes_vectors(model: Any, folder: Path) -> None:
    """They are in the features of a linear model, in the embedding of a Tok2Vec, and in both of a
    hybrid. A linear model has a hidden layer over the vectors, which has 64 units."""
    text = init(model=model, lang="xx", vectors=str(folder / "vectors"))
    config_path = folder / "config.cfg"
    config_path.write_text(text, encoding="utf8")
    config = load_config(config_path, interpolate=True)
    assert config["initialize"]["vectors"] == str(folder / "vectors")
    ner_model = config["components"]["ner"]["model"]
    if model == "linear":
        assert ner_model["hidden"] == 64
    if model in ("linear", "hybrid"):
        assert ner_model["features"]["include_static_vectors"] is True
    if model in ("hybrid", "cnn"):
        embed = config["components"]["tok2vec"]["model"]["embed"]
        assert embed["include_static_vectors"] is True


def test_init_without_vectors_leaves_them_out() -> None:
    """A hybrid has the setting twice: in the features, and in the embedding of the Tok2Vec."""
    text = init(model="hybrid")
    assert text.count("include_static_vectors = false") == 2
    assert "include_static_vectors = true" not in text


def test_vectors_that_are_not_there_are_named(folder: Path) -> None:
    message = "`vectors`: expected a pipeline with static vectors.* got 'nowhere'"
    with pytest.raises(ValueError, match=message):
        init(vectors="nowhere")
    with pytest.raises(ValueError, match=message):
        fit(None, folder / "output", train_path=folder / "train.spacy", vectors="nowhere")
    with pytest.raises(ValueError, match="`vectors`: expected `model` linear, cnn or hybrid"):
        init(model="transformer", vectors=str(folder / "vectors"))


def test_fit_names_a_config_that_takes_no_vectors(folder: Path) -> None:
    config_path = folder / "config.cfg"
    config_path.write_text(init(model="cnn", lang="xx"), encoding="utf8")
    with pytest.raises(ValueError, match=r"^`vectors`: expected a component with .*SparseCRF"):
        fit(config_path, folder / "output", vectors=str(folder / "vectors"))


def findings_about_vectors(folder: Path, vectors: Path | None) -> list[str]:
    """The findings of `check` about vectors, for a config whose model has static vectors as
    inputs."""
    text = init(
        lang="xx", train_path=folder / "train.spacy", dev_path=folder / "dev.spacy"
    ).replace("include_static_vectors = false", "include_static_vectors = true")
    config_path = folder / "config.cfg"
    config_path.write_text(text, encoding="utf8")
    overrides = {}
    if vectors is not None:
        overrides["paths.vectors"] = str(vectors)
    findings: list[str] = []
    for finding in check(config_path, overrides=overrides).findings:
        if "vector" in finding.message:
            findings.append(f"{finding.severity}: {finding.corpus}: {finding.message}")
    return findings


def test_check_is_content_with_vectors_of_most_words(folder: Path) -> None:
    assert findings_about_vectors(folder, folder / "vectors") == []


def test_check_warns_of_few_vectors(folder: Path) -> None:
    """Ten names have a vector, and each is in two docs: that is 20 of the 120 words."""
    nlp = spacy.load(folder / "vectors")
    few = spacy.blank("xx")
    for name in NAMES[:10]:
        few.vocab.set_vector(name, nlp.vocab.get_vector(name))
    few.to_disk(folder / "few")
    assert findings_about_vectors(folder, folder / "few") == [
        "warning: train: 20 of 120 words (17%) have a static vector: see initialize.vectors"
    ]


def test_check_names_vectors_that_are_missing(folder: Path) -> None:
    (finding,) = findings_about_vectors(folder, None)
    assert finding.startswith("error: config: ")
    assert "expected static word vectors in the pipeline" in finding
    (finding,) = findings_about_vectors(folder, folder / "nowhere")
    assert finding.startswith("error: config: initialize.vectors: ")


def test_explain_names_the_vectors_behind_a_tag(folder: Path) -> None:
    """The weights of features, the terms of vectors, and the hidden layer add up to the score."""
    fitted = fit(
        None,
        folder / "output",
        lang="xx",
        train_path=folder / "train.spacy",
        vectors=str(folder / "vectors"),
    )
    nlp = fitted.nlp
    text = f"{PLACES[30]} and {NAMES[31]}"

    reasons = explain(nlp, text=text, n_features=1000).tokens

    model = nlp.get_pipe("ner").model
    tags = nlp.get_pipe("ner").chain_tags.names
    emissions = model.predict([nlp.make_doc(text)]).emissions
    for i, reason in enumerate(reasons):
        assert reason.score == pytest.approx(emissions[i, tags.index(reason.tag)], abs=1e-4)
        assert sum(weight for _, weight in reason.features) == pytest.approx(reason.score)

    has_vector = []
    for reason in reasons:
        has_vector.append("static_vectors" in [name for name, _ in reason.features])
    assert has_vector == [True, False, True]
