"""A component with `outside = "before"`, from training to its tools."""

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from spacy_costner.cli.explain import explanation_text
from spacy_costner.cli.plots import draw_transitions
from spacy_costner.cli.svg import as_svg
from spacy_costner.costs.tables import make_hamming_cost
from spacy_costner.decoding import Decoding, make_min_cost, make_viterbi
from spacy_costner.tags import Tags
from spacy_costner.workflows.calibration.temperature import calibrate
from spacy_costner.workflows.calibration.tuning import tune
from spacy_costner.workflows.fitting.fitting import fit
from spacy_costner.workflows.reports.explanation import explain
from spacy_costner.workflows.reports.reporting import report

from ..damage import MODELS
from ..support.experiment import Experiment
from ..support.fitting import SPARSE, initialized, loss_block, sparse_config
from ..support.pipelines import TEXTS, TRAIN, ents, examples, pipeline, train

BEFORE = {"components": {"ner": {"outside": "before"}}}
CONFIDENCE = {"@misc": "spacy_costner.Confidence.v1", "alternatives": 0.01}
EXPECTED = [gold["entities"] for _, gold in TRAIN]


@pytest.fixture(scope="module")
def trained() -> Language:
    """A linear model that has learned TRAIN. Its first text is "Who is Shaka Khan?"."""
    nlp = pipeline(model=MODELS["sparse"], outside="before", confidence=CONFIDENCE)
    train(nlp)
    return nlp


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("scheme", ["BILUO", "IOB2"])
def test_a_pipeline_learns_the_training_texts(kind: str, scheme: str) -> None:
    """Its tags are those of the scheme; its chain has an O more for each label."""
    nlp = pipeline(model=MODELS[kind], outside="before", scheme=scheme)
    train(nlp)

    assert [ents(nlp(text)) for text in TEXTS] == EXPECTED
    ner = nlp.get_pipe("ner")
    assert ner.tags == ner.chain_tags.collapsed
    assert ner.tags.names == Tags(ner.labels, scheme).names
    assert ner.model.get_dim("nO") == len(ner.chain_tags) == len(ner.tags) + len(ner.labels)


def test_marginals_are_over_tags_of_annotation_and_chain_marginals_over_those_of_the_chain(
    trained: Language,
) -> None:
    """For the annotation "is" in "Who is Shaka Khan" is O. For the chain it is the O before a
    PERSON."""
    ner = trained.get_pipe("ner")
    docs = [trained.make_doc(text) for text in TEXTS]

    posterior = ner.posterior(docs)

    n_tokens = sum(len(doc) for doc in docs)
    assert posterior.marginals.shape == (n_tokens, len(ner.tags))
    numpy.testing.assert_allclose(posterior.marginals.sum(axis=1), 1, rtol=1e-5)
    # The first four tokens are "Who is Shaka Khan".
    best_tags = posterior.marginals[:4].argmax(axis=1)
    assert [ner.tags.names[tag] for tag in best_tags] == ["O", "O", "B-PERSON", "L-PERSON"]
    best_chain_tags = posterior.chain_marginals[:4].argmax(axis=1)
    names = [ner.chain_tags.names[tag] for tag in best_chain_tags]
    assert names == ["O", "O-PERSON", "B-PERSON", "L-PERSON"]


def test_the_confidence_of_an_entity_is_at_least_the_probability_of_its_analysis(
    trained: Language,
) -> None:
    """It is the sum over all analyses with this entity."""
    doc = trained(TEXTS[0])
    best, second = trained.get_pipe("ner").k_best([trained.make_doc(TEXTS[0])], k=2)[0]

    assert [ent.text for ent in best.ents] == ["Shaka Khan"]
    assert best.prob > second.prob
    confidence = float(doc.spans["confidence"].attrs["scores"][0])
    assert confidence == pytest.approx(doc.ents[0]._.confidence)
    assert confidence > 0.5
    assert confidence >= best.prob


def test_tokens_before_a_preset_entity_are_outside_in_the_doc(trained: Language) -> None:
    """Though for the chain they are O of its label, whitespace too."""
    doc = Doc(trained.vocab, words=["I", "\n", "London", "and", "Berlin", "."])
    doc.set_ents([spacy.tokens.Span(doc, 2, 3, "PERSON")], default="missing")

    doc = trained.get_pipe("ner")(doc)

    assert [(ent.text, ent.label_) for ent in doc.ents] == [("London", "PERSON"), ("Berlin", "LOC")]
    assert [token.ent_iob_ for token in doc] == ["O", "O", "B", "O", "B", "O"]


# Training of the linear model


@pytest.mark.parametrize(
    "few_sentences, name",
    [(1000, "SoftmaxMargin"), (0, "Pointwise"), (0, "MIRA")],
    ids=["L-BFGS", "online", "MIRA"],
)
def test_fit_learns_the_corpus(
    few_sentences: int, name: str, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A corpus of few sentences is trained on by L-BFGS."""
    monkeypatch.setattr("spacy_costner.workflows.corpora.FEW_SENTENCES", few_sentences)
    config = sparse_config(experiment, training={"max_epochs": 40, "max_steps": 0}).merge(BEFORE)
    config["components"]["ner"]["loss"] = loss_block(name)
    fitted = fit(config, experiment.output_path)
    assert fitted.scores["ents_f"] == 1.0
    assert spacy.load(fitted.path).get_pipe("ner").cfg["outside"] == "before"


# What tools do


@pytest.fixture
def linear() -> Language:
    """A linear model with the label X, which finds "Ana" and "Rome", and is too sure: its updates
    are large from the first one."""
    model = {**SPARSE, "learn_rate": 0.05, "eps": 1e-8}
    nlp, batch = initialized(outside="before", model=model)
    optimizer = nlp.resume_training()
    for _ in range(20):
        nlp.update(batch, sgd=optimizer)
    return nlp


@pytest.mark.parametrize("per_label", [False, True])
def test_calibrate_lowers_the_error_of_a_model_that_is_too_sure(
    linear: Language, per_label: bool
) -> None:
    """It finds two entities, of which one is right."""
    assert len(linear("Ana saw Rome saw").ents) == 2
    gold = Doc(linear.vocab, words=["Ana", "saw", "Rome", "saw"], ents=["B-X", "O", "O", "O"])
    example = Example(linear.make_doc("Ana saw Rome saw"), gold)

    result = calibrate(linear, [example], per_label=per_label)

    assert result.temperature.overall > 1
    assert result.error < result.error_before


def copy_of(nlp: Language) -> Language:
    """A pipeline whose settings can be changed while the other stays as it is."""
    return spacy.blank("xx").from_config(nlp.config).from_bytes(nlp.to_bytes())


@pytest.mark.parametrize(
    "decoding",
    [make_viterbi(bias=0.1, labels={"LOC": 0.2}), make_min_cost(cost=make_hamming_cost())],
    ids=["viterbi", "min cost"],
)
def test_any_decoding_predicts_the_training_texts(decoding: Decoding, trained: Language) -> None:
    nlp = copy_of(trained)
    nlp.get_pipe("ner").set_decoding(decoding)
    assert [ents(nlp(text)) for text in TEXTS] == EXPECTED


@pytest.mark.parametrize("parameter", ["threshold", "bias"])
def test_tune_keeps_predictions_that_are_right(parameter: str, trained: Language) -> None:
    nlp = copy_of(trained)
    tuned = tune(nlp, examples(nlp), parameter=parameter)
    assert (tuned.chosen.precision, tuned.chosen.recall) == (1.0, 1.0)
    assert [ents(nlp(text)) for text in TEXTS] == EXPECTED


def test_a_bias_is_on_all_tags_but_those_outside(trained: Language) -> None:
    """So the lowest one leaves no entity, and with the highest too many are predicted."""
    nlp = copy_of(trained)
    lowest, *_, highest = tune(nlp, examples(nlp), parameter="bias").points
    assert lowest.recall == 0 and highest.precision < 1


def test_explain_shows_the_tags_of_the_chain(linear: Language) -> None:
    explanation = explain(linear, text="Rome saw Rome")
    assert [of_tag.tag for of_tag in explanation.tags] == ["O", "B-X", "I-X", "O-X"]
    assert [reason.tag for reason in explanation.tokens] == ["B-X", "O-X", "B-X"]
    assert explanation.transitions.origins == ["O", "B-X", "I-X", "O-X", "(start)"]
    weights = explanation.transitions.weights
    # A row for each tag before or the start; a column for each tag after it, O, B-X, I-X and O-X,
    # or the end. x is forbidden.
    rows = []
    for row in weights:
        rows.append("".join("x" if weight is None else "." for weight in row))
    assert rows == [
        ".xx..",  # O: no entity follows, as O-X would stand before it
        ".....",  # B-X
        ".....",  # I-X
        "x.xxx",  # O-X: only B-X follows
        "..x.x",  # the start: no I-X, and no end, as a text has a token
    ]
    assert "\nO-X\n" in explanation_text(explanation)


def test_report_shows_a_single_outside_but_for_transitions_of_the_model(
    linear: Language,
) -> None:
    first = Doc(linear.vocab, words=["Ana", "saw", "Rome"], ents=["B-X", "B-X", "O"])
    second = Doc(linear.vocab, words=["saw", "Ana"], ents=["O", "O"])
    batch = [Example(linear.make_doc(doc.text), doc) for doc in (first, second)]
    linear.config["components"]["ner"]["model"] = SPARSE

    result = report(linear, batch)

    assert result.confusion[0] == ["X", "O"]
    assert result.transitions.origins == ["O", "B-X", "I-X", "O-X", "(start)"]
    assert ">O-X</text>" in as_svg(draw_transitions(result.transitions), "transitions")
