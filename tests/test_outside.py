"""A component with `outside = "before"`, from training to its tools."""

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from spacy_costner.analysis.calibration import calibrate
from spacy_costner.analysis.explanation import explain
from spacy_costner.analysis.fitting import fit
from spacy_costner.analysis.reporting import report
from spacy_costner.analysis.tuning import tune
from spacy_costner.cli.explain import explanation_text
from spacy_costner.cli.report import report_page
from spacy_costner.costs.tables import make_hamming_cost
from spacy_costner.decoding import make_min_cost, make_viterbi
from spacy_costner.tags import Tags

from .damage import MODELS
from .support.experiment import Experiment
from .support.fitting import SPARSE, initialized, loss_block, sparse_config
from .support.pipelines import TEXTS, TRAIN, ents, examples, pipeline, train

BEFORE = {"components": {"ner": {"outside": "before"}}}
CONFIDENCE = {"@misc": "spacy_costner.Confidence.v1", "alternatives": 0.01}
EXPECTED = [gold["entities"] for _, gold in TRAIN]


@pytest.fixture(scope="module")
def trained() -> Language:
    nlp = pipeline(model=MODELS["sparse"], outside="before", confidence=CONFIDENCE)
    train(nlp)
    return nlp


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("scheme", ["BILUO", "IOB2"])
def test_overfitting(kind: str, scheme: str) -> None:
    nlp = pipeline(model=MODELS[kind], outside="before", scheme=scheme)
    train(nlp)
    assert [ents(nlp(text)) for text in TEXTS] == EXPECTED
    ner = nlp.get_pipe("ner")
    assert ner.tags == ner.chain_tags.collapsed and ner.tags.names == Tags(ner.labels, scheme).names
    assert ner.model.get_dim("nO") == len(ner.chain_tags) == len(ner.tags) + len(ner.labels)


def test_probabilities_are_over_the_tags_of_annotation(trained: Language) -> None:
    ner, docs = trained.get_pipe("ner"), [trained.make_doc(text) for text in TEXTS]
    posterior = ner.posterior(docs)
    assert posterior.marginals.shape == (sum(map(len, docs)), len(ner.tags))
    numpy.testing.assert_allclose(posterior.marginals.sum(axis=1), 1, rtol=1e-5)
    best = [ner.tags.names[tag] for tag in posterior.marginals[:4].argmax(axis=1)]
    assert best == ["O", "O", "B-PERSON", "L-PERSON"]
    chain = posterior.chain_marginals[:4].argmax(axis=1)
    assert [ner.chain_tags.names[tag] for tag in chain] == ["O", "O-PERSON", *best[2:]]
    best = ner.k_best(docs[:1], k=2)[0]
    assert [ent.text for ent in best[0].ents] == ["Shaka Khan"]
    assert best[0].prob > best[1].prob
    doc = trained(TEXTS[0])
    p = float(doc.spans["confidence"].attrs["scores"][0])
    assert p == pytest.approx(doc.ents[0]._.confidence) and p > 0.5
    assert p >= best[0].prob


def test_presets_and_white_space(trained: Language) -> None:
    """What is before a preset entity is O of its label for the chain, and O in the doc."""
    doc = Doc(trained.vocab, words=["I", "\n", "London", "and", "Berlin", "."])
    doc.set_ents([spacy.tokens.Span(doc, 2, 3, "PERSON")], default="missing")
    doc = trained.get_pipe("ner")(doc)
    assert [(ent.text, ent.label_) for ent in doc.ents] == [("London", "PERSON"), ("Berlin", "LOC")]
    assert [token.ent_iob_ for token in doc] == ["O", "O", "B", "O", "B", "O"]


# Training of the linear model


@pytest.mark.parametrize("few, name", [(1000, "SoftmaxMargin"), (0, "Pointwise"), (0, "MIRA")])
def test_the_linear_model_is_fitted(
    few: int, name: str, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spacy_costner.analysis.preparation.FEW_SENTENCES", few)
    config = sparse_config(experiment, training={"max_epochs": 40, "max_steps": 0}).merge(BEFORE)
    config["components"]["ner"]["loss"] = loss_block(name)
    fitted = fit(config, experiment.output_path)
    assert fitted.scores["ents_f"] == 1.0
    assert spacy.load(fitted.path).get_pipe("ner").cfg["outside"] == "before"


# What tools do


@pytest.fixture
def linear() -> Language:
    """A linear model of random weights."""
    nlp, batch = initialized(outside="before")
    optimizer = nlp.resume_training()
    for _ in range(20):
        nlp.update(batch, sgd=optimizer)
    return nlp


@pytest.mark.parametrize("per_label", [False, True])
def test_confidences_are_calibrated(linear: Language, per_label: bool) -> None:
    wrong = Doc(linear.vocab, words=["Ana", "saw", "Rome", "saw"], ents=["B-X", "O", "O", "O"])
    assert len(linear("Ana saw Rome saw").ents) == 2
    found = calibrate(linear, [Example(linear.make_doc(wrong.text), wrong)], per_label=per_label)
    assert found.temperature.overall > 1 and found.error < found.error_before


def test_decoding_is_changed_and_tuned(trained: Language) -> None:
    nlp = spacy.blank("xx").from_config(trained.config).from_bytes(trained.to_bytes())
    viterbi = make_viterbi(bias=0.1, labels={"LOC": 0.2})
    for decoding in (viterbi, make_min_cost(cost=make_hamming_cost())):
        nlp.get_pipe("ner").set_decoding(decoding)
        assert [ents(nlp(text)) for text in TEXTS] == EXPECTED
    for parameter in ("threshold", "bias"):
        nlp = spacy.blank("xx").from_config(trained.config).from_bytes(trained.to_bytes())
        tuned = tune(nlp, examples(nlp), parameter=parameter)
        assert (tuned.chosen.precision, tuned.chosen.recall) == (1.0, 1.0)
        assert [ents(nlp(text)) for text in TEXTS] == EXPECTED
    # A bias is on all tags but those outside.
    assert tuned.points[0].recall == 0 and tuned.points[-1].precision < 1


def test_explain_shows_the_tags_of_the_chain(linear: Language) -> None:
    explanation = explain(linear, text="Rome saw Rome")
    assert [of_tag.tag for of_tag in explanation.tags] == ["O", "B-X", "I-X", "O-X"]
    assert [reason.tag for reason in explanation.tokens] == ["B-X", "O-X", "B-X"]
    assert explanation.transitions.origins == ["O", "B-X", "I-X", "O-X", "(start)"]
    weights = explanation.transitions.weights
    forbidden = ["".join("x" if w is None else "." for w in row) for row in weights]
    assert forbidden == [".xx..", ".....", ".....", "x.xxx", "..x.x"]
    assert "\nO-X\n" in explanation_text(explanation)


def test_the_report_has_a_single_outside(linear: Language) -> None:
    """But for the transitions and the features of the model."""
    wrong = [("Ana saw Rome", ["B-X", "B-X", "O"]), ("saw Ana", ["O", "O"])]
    docs = [Doc(linear.vocab, words=words.split(), ents=tags) for words, tags in wrong]
    batch: list[Example] = [Example(linear.make_doc(doc.text), doc) for doc in docs]
    linear.config["components"]["ner"]["model"] = SPARSE
    found = report(linear, batch)
    assert found.confusion[0] == ["X", "O"]
    assert found.transitions.origins == ["O", "B-X", "I-X", "O-X", "(start)"]
    assert "O-X" in report_page(found)
