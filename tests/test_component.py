"""The component as spaCy's users meet it."""

import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from thinc.api import fix_random_seed

from spacy_costner import chain

from . import oracle
from .support.batches import single
from .support.linear import HYBRID, SPARSE
from .support.pipelines import SMALL, SOFTMAX_MARGIN, TEXTS, TRAIN, ents, examples, pipeline, train


@pytest.fixture(scope="module")
def trained() -> Language:
    nlp = pipeline()
    train(nlp)
    return nlp


def test_training_anew_forgets_batches_before() -> None:
    nlp = pipeline(loss={"@losses": "spacy_costner.MCEF.v1"})
    values = []
    for _ in range(2):
        fix_random_seed(0)
        values.append(train(nlp, steps=3)["ner"])
    assert values[0] == pytest.approx(values[1], rel=1e-4)


@pytest.mark.parametrize("scheme", ["BILUO", "IOB2"])
@pytest.mark.parametrize("loss", [{"@losses": "spacy_costner.Sequential.v1"}, SOFTMAX_MARGIN])
def test_overfitting(loss: dict[str, Any], scheme: str) -> None:
    nlp = pipeline(loss=loss, scheme=scheme)
    losses = train(nlp)
    assert 0 <= losses["ner"] < 0.01 and nlp.get_pipe("ner").progress[:2] == (60, 60)
    for text, gold in TRAIN:
        assert ents(nlp(text)) == gold["entities"]


def test_labels_are_those_of_the_data_or_given() -> None:
    nlp = pipeline()
    nlp.initialize(lambda: examples(nlp))
    ner = nlp.get_pipe("ner")
    assert ner.labels == ner.label_data == ("LOC", "PERSON", "sports-team")
    nlp = pipeline()
    nlp.config["initialize"]["components"]["ner"] = {"labels": ["LOC", "GPE"]}
    nlp.initialize(lambda: examples(nlp))
    assert nlp.get_pipe("ner").labels == ("LOC", "GPE")
    with pytest.warns(UserWarning, match="entities of other labels.*Shaka Khan"):
        nlp.update(examples(nlp))


def test_bad_labels_are_named(trained: Language) -> None:
    """Among them negated ones of old."""
    nlp = pipeline()
    batch = [Example.from_dict(nlp.make_doc("Nothing here"), {"entities": []})]
    with pytest.raises(ValueError, match=r"ner: labels: expected at least one"):
        nlp.initialize(lambda: batch)
    for label in ("", 3, None, "!PERSON"):
        with pytest.raises(ValueError, match="label: expected a string"):
            nlp.get_pipe("ner").add_label(label)
    gold = {"entities": [(7, 13, "!PERSON")]}
    batch = [Example.from_dict(trained.make_doc("I like London"), gold)]
    with pytest.raises(ValueError, match=r"incorrect_spans_key.*'!PERSON' in 'I like London'"):
        trained.update(batch)
    with pytest.raises(ValueError, match=r"incorrect_spans_key.*'!PERSON'"):
        pipeline().initialize(lambda: batch)


def test_empty_docs_pass(trained: Language) -> None:
    assert [len(doc) for doc in trained.pipe(["", ""])] == [0, 0]
    ner, docs = trained.get_pipe("ner"), [trained.make_doc("")]
    assert ner.k_best(docs, k=2) == [[([], 1.0, 0.0)]] and ner.posterior(docs).entropy == [0.0]
    empty = Example.from_dict(trained.make_doc(""), {"entities": []})
    assert trained.update([empty, empty], losses={}) == {"ner": 0.0}


def test_one_token_and_long_docs(trained: Language) -> None:
    assert ents(trained("London")) in ([], [(0, 6, "LOC")])
    doc = trained(Doc(trained.vocab, words=["London", "likes"] * 5000))
    assert len(doc) == 10000


def test_the_loss_is_the_objective_per_annotated_token(trained: Language) -> None:
    ner = trained.get_pipe("ner")
    doc = trained.make_doc("Berlin lost")
    missing = Example(trained.make_doc("Who knows"), trained.make_doc("Who knows"))
    batch = [Example.from_dict(doc, {"entities": [(0, 6, "LOC")]}), missing]
    potentials = ner.model.predict([eg.predicted for eg in batch])
    loss, gradient = ner.get_loss(batch, potentials)
    gold = [ner.tags.names.index(name) for name in ("U-LOC", "O")]
    legal = chain.constrain(single(potentials, 0), ner.tags.constraints)
    expected = oracle.log_sum(legal, 0).value - oracle.score(legal, 0, gold)
    assert loss == pytest.approx(expected / 2, abs=1e-5)
    assert not gradient.emissions[2:].any() and gradient.emissions[:2].any()
    one = [Example.from_dict(trained.make_doc("Berlin"), {"entities": [(0, 6, "LOC")]})]
    potentials = ner.model.predict([one[0].predicted])
    legal = chain.constrain(potentials, ner.tags.constraints)
    expected = oracle.log_sum(legal, 0).value - oracle.score(legal, 0, gold[:1])
    assert ner.get_loss(one, potentials)[0] == pytest.approx(expected, abs=1e-5)


def test_learning_goes_on_from_partial_annotation() -> None:
    nlp = pipeline()
    batch = examples(nlp)
    for eg in batch[1:3]:
        spans = list(eg.reference.ents[:1])
        others = [eg.reference[i : i + 1] for i in (0, len(eg.reference) - 1)]
        eg.reference.set_ents(spans, outside=others, default="missing")
    optimizer = nlp.initialize(lambda: batch)
    optimizer.learn_rate = 0.01
    for _ in range(60):
        losses = nlp.update(batch, sgd=optimizer, losses={})
    assert 0 <= losses["ner"] < 0.01
    assert ents(nlp(TEXTS[0])) == TRAIN[0][1]["entities"]
    assert (7, 13, "LOC") in ents(nlp(TEXTS[1]))


@pytest.mark.parametrize("outside", ["single", "before"])
def test_add_label_keeps_what_was_learned(outside: str) -> None:
    nlp = pipeline(outside=outside)
    train(nlp)
    ner = nlp.get_pipe("ner")
    before, names = ner.model.predict([nlp.make_doc(TEXTS[1])]), ner.chain_tags.names
    assert ner.add_label("LOC") == 0
    assert ner.add_label("GPE") == 1
    after, n_tags = ner.model.predict([nlp.make_doc(TEXTS[1])]), len(names)
    assert ner.chain_tags.names[:n_tags] == names
    numpy.testing.assert_array_equal(after.transitions[:n_tags, :n_tags], before.transitions)
    numpy.testing.assert_array_equal(after.emissions[:, :n_tags], before.emissions)
    new = Example.from_dict(nlp.make_doc("Mordor burns"), {"entities": [(0, 6, "GPE")]})
    optimizer = nlp.resume_training()
    optimizer.learn_rate = 0.01
    for _ in range(30):
        nlp.update([new, *examples(nlp)], sgd=optimizer)
    assert ents(nlp("Mordor burns")) == [(0, 6, "GPE")]
    assert ents(nlp(TEXTS[1])) == TRAIN[1][1]["entities"]
    again = pipeline(outside=outside).from_bytes(nlp.to_bytes())
    assert again.get_pipe("ner").labels == ner.labels
    assert ents(again("Mordor burns")) == [(0, 6, "GPE")]


def test_an_added_label_is_not_predicted_before_it_is_trained(trained: Language) -> None:
    nlp = pickle.loads(pickle.dumps(trained))
    ner = nlp.get_pipe("ner")
    ner.model.get_ref("emissions").get_param("b")[:] -= 50.0
    before = [ents(doc) for doc in nlp.pipe(TEXTS)]
    assert any(before)
    ner.add_label("GPE")
    assert [ents(doc) for doc in nlp.pipe(TEXTS)] == before
    probabilities = ner.posterior([nlp.make_doc(TEXTS[1])]).marginals
    assert not probabilities[:, ner.tags.label_of == ner.labels.index("GPE")].any()
    again = pipeline().from_bytes(nlp.to_bytes())
    assert [ents(doc) for doc in again.pipe(TEXTS)] == before
    doc = nlp.make_doc(TEXTS[1])
    doc.set_ents([Span(doc, 2, 3, label="GPE")], default="missing")
    assert (7, 13, "GPE") in ents(again.get_pipe("ner")(doc))
    for entities, untrained in (([], ["GPE"]), ([(0, 6, "GPE")], [])):
        eg = Example.from_dict(again.make_doc("Mordor burns"), {"entities": entities})
        again.update([eg])
        assert again.get_pipe("ner").cfg["untrained"] == untrained


def test_presets_and_blocked_tokens_stay(trained: Language) -> None:
    doc = trained.make_doc("I like London and Berlin.")
    city = Span(doc, 2, 3, label="CITY", kb_id="Q84")
    doc.set_ents([city], outside=[doc[4:5]], default="missing")
    doc = trained.get_pipe("ner")(doc)
    assert [(ent.text, ent.label_, ent.kb_id_) for ent in doc.ents] == [("London", "CITY", "Q84")]
    assert [token.ent_iob_ for token in doc] == ["O", "O", "B", "O", "O", "O"]
    assert "CITY" not in trained.get_pipe("ner").labels
    ruler = trained.make_doc("I like London and Berlin.")
    ruler.set_ents([], blocked=[ruler[2:3]], default="missing")
    assert ents(trained.get_pipe("ner")(ruler)) == [(18, 24, "LOC")]


def test_gold_in_white_space_is_trimmed_with_one_warning(trained: Language) -> None:
    doc = trained.make_doc("in\n\nBerlin\n\n")
    assert [token.is_space for token in doc] == [False, True, False, True]
    reference = doc.copy()
    reference.set_ents([Span(reference, 1, 4, label="LOC")])
    ner = pickle.loads(pickle.dumps(trained)).get_pipe("ner")
    batch = [Example(doc, reference)]
    potentials = ner.model.predict([doc])
    with pytest.warns(UserWarning, match=r"white space.*Berlin") as caught:
        losses = [ner.get_loss(batch, potentials)[0] for _ in range(2)]
    assert len(caught) == 1
    trimmed = doc.copy()
    trimmed.set_ents([Span(trimmed, 2, 3, label="LOC")])
    assert losses == [ner.get_loss([Example(doc, trimmed)], potentials)[0]] * 2


def test_bad_scores_are_named_and_nothing_is_updated(trained: Language) -> None:
    nlp = pickle.loads(pickle.dumps(trained))
    model = nlp.get_pipe("ner").model
    model.get_ref("emissions").get_param("W")[0, 0] = numpy.nan
    before = model.to_bytes()
    message = r"ner: emissions: expected finite scores.* a lower learning rate"
    with pytest.raises(ValueError, match=message):
        nlp.update(examples(nlp), sgd=nlp.resume_training())
    assert model.to_bytes() == before


def test_costs_travel_with_the_model(tmp_path: Path) -> None:
    tree = tmp_path / "tree.json"
    tree.write_text('{"place": {"LOC": {}}, "PERSON": {}, "sports-team": {}}')
    cost = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": str(tree)}
    nlp = pipeline(loss={"@losses": "spacy_costner.SoftmaxMargin.v1", "cost": cost})
    train(nlp, steps=2)
    batch = examples(nlp)
    ner = nlp.get_pipe("ner")
    expected = ner.get_loss(batch, ner.model.predict([eg.predicted for eg in batch]))[0]
    nlp.to_disk(tmp_path / "model")
    tree.unlink()
    ner = spacy.load(tmp_path / "model").get_pipe("ner")
    assert ner.get_loss(batch, ner.model.predict([eg.predicted for eg in batch]))[0] == expected
    with pytest.raises(ValueError, match=r"HierarchicalCost: tree: .*tree\.json"):
        ner.add_label("GPE")


@pytest.mark.parametrize("n_tags", [3, -1])
@pytest.mark.parametrize("model", [SMALL["model"], SPARSE, HYBRID], ids=["cnn", "sparse", "hybrid"])
def test_a_number_of_tags_is_refused(model: dict[str, Any], n_tags: int) -> None:
    with pytest.raises(ValueError, match=rf"ner: model.nO: expected null, .* got {n_tags}"):
        pipeline(model={**model, "nO": n_tags})
