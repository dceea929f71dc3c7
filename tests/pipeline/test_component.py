"""The component as spaCy's users meet it."""

import pickle
from dataclasses import asdict
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
from spacy_costner.pipeline.confidence import Confidence
from spacy_costner.training.known_text import passage_ids

from .. import oracle
from ..support.batches import single
from ..support.linear import HYBRID, SPARSE
from ..support.pipelines import SMALL, SOFTMAX_MARGIN, TEXTS, TRAIN, ents, examples, pipeline, train

SHAKA_KHAN = "Who is Shaka Khan?"
LONDON_BERLIN = "I like London and Berlin."
"""Of TRAIN."""


@pytest.fixture(scope="module")
def trained() -> Language:
    """A pipeline that has learned TRAIN, with the labels LOC, PERSON and sports-team. Tests that
    train it further work on a copy."""
    fix_random_seed(0)  # made once for several tests, whichever is first
    nlp = pipeline()
    train(nlp)
    return nlp


def copy_of(nlp: Language) -> Language:
    """A copy of a pipeline, which can be trained while the first one stays as it is."""
    return pickle.loads(pickle.dumps(nlp))


def test_training_anew_forgets_the_batches_before() -> None:
    """The loss MCEF counts entities over batches. If these counts were kept, the last batch of a
    second training would have another loss."""
    nlp = pipeline(loss={"@losses": "spacy_costner.MCEF.v1"})
    fix_random_seed(0)
    first_loss = train(nlp, steps=3)["ner"]
    fix_random_seed(0)
    second_loss = train(nlp, steps=3)["ner"]
    assert second_loss == pytest.approx(first_loss, rel=1e-4)


@pytest.mark.parametrize("is_saved", [False, True])
def test_docs_of_updates_are_known_after_resumed_training(
    is_saved: bool, trained: Language, tmp_path: Path
) -> None:
    """A component that resumes training isn't initialized with its new corpus. Its docs must be
    recognised as known, so that `guarantee` refuses them. Training anew forgets them."""
    nlp = copy_of(trained)
    ner = nlp.get_pipe("ner")
    text = "Nobody in this long sentence of ten words is known yet."
    new_doc = Example.from_dict(nlp.make_doc(text), {"entities": []})
    known_before = {*ner.trained_on.tolist()}

    for _ in range(2):
        nlp.update([new_doc], sgd=nlp.resume_training())
    if is_saved:
        nlp.to_disk(tmp_path)
        ner = spacy.load(tmp_path).get_pipe("ner")

    assert {*ner.trained_on.tolist()} == known_before | {*passage_ids(new_doc.reference)}
    train(nlp, steps=1)
    assert {*nlp.get_pipe("ner").trained_on.tolist()} == known_before


@pytest.mark.parametrize("scheme", ["BILUO", "IOB2"])
@pytest.mark.parametrize(
    "loss",
    [{"@losses": "spacy_costner.Sequential.v1"}, SOFTMAX_MARGIN],
    ids=["sequential", "softmax margin"],
)
def test_a_pipeline_learns_the_training_texts(loss: dict[str, Any], scheme: str) -> None:
    nlp = pipeline(loss=loss, scheme=scheme)

    losses = train(nlp, steps=60)

    assert 0 <= losses["ner"] < 0.01
    progress = nlp.get_pipe("ner").progress
    assert (progress.steps, progress.epochs) == (60, 60)  # all examples are in each batch
    for text, gold in TRAIN:
        assert ents(nlp(text)) == gold["entities"]


def test_settings_that_a_config_leaves_out_have_these_values() -> None:
    """A config that was saved before there was a setting still means what it meant then, but for
    confidences, which are on. `second_choice` is only there to read pipelines of 0.3.0."""
    nlp = spacy.blank("xx")
    nlp.add_pipe("cost_sensitive_ner")
    config = nlp.get_pipe_config("cost_sensitive_ner")
    blocks = {"factory", "model", "loss", "decoding", "scorer"}
    settings = {name: value for name, value in config.items() if name not in blocks}
    assert settings["confidence"].pop("second_choice") is None
    assert settings == {
        "weights": None,
        "scheme": "BILUO",
        "outside": "single",
        "incorrect_spans_key": None,
        "spans_key": None,
        "own_labels": None,
        "filter_spans": False,
        "sentence_boundaries": False,
        "confidence": {"@misc": "spacy_costner.Confidence.v1", **asdict(Confidence())},
        "learn_rate_factor": 1.0,
    }


def test_labels_are_those_of_the_examples() -> None:
    nlp = pipeline()
    nlp.initialize(lambda: examples(nlp))
    ner = nlp.get_pipe("ner")
    assert ner.labels == ner.label_data == ("LOC", "PERSON", "sports-team")


def test_labels_of_the_config_are_used_and_others_are_warned_of() -> None:
    nlp = pipeline()
    nlp.config["initialize"]["components"]["ner"] = {"labels": ["LOC", "GPE"]}
    nlp.initialize(lambda: examples(nlp))
    assert nlp.get_pipe("ner").labels == ("LOC", "GPE")
    with pytest.warns(UserWarning, match="entities with labels other than.*Shaka Khan"):
        nlp.update(examples(nlp))


def test_examples_without_entities_are_refused() -> None:
    nlp = pipeline()
    batch = [Example.from_dict(nlp.make_doc("Nothing here"), {"entities": []})]
    with pytest.raises(ValueError, match=r"ner: labels: expected at least one"):
        nlp.initialize(lambda: batch)
    # `spacy assemble` initializes without examples.
    with pytest.raises(ValueError, match=r"without training, set source in \[components.ner\]"):
        nlp.initialize()


@pytest.mark.parametrize("label", ["", 3, None, "!PERSON"])
def test_a_label_that_is_no_name_is_not_added(label: Any) -> None:
    with pytest.raises(ValueError, match="label: expected a string"):
        pipeline().get_pipe("ner").add_label(label)


def test_a_negated_label_is_refused_and_incorrect_spans_key_is_named(trained: Language) -> None:
    """In spaCy's ner, "!PERSON" once said what a span is not. Here incorrect_spans_key does."""
    gold = {"entities": [(7, 13, "!PERSON")]}
    batch = [Example.from_dict(trained.make_doc("I like London"), gold)]
    message = r"incorrect_spans_key.*'!PERSON'"
    with pytest.raises(ValueError, match=rf"{message} in 'I like London'"):
        trained.update(batch)
    with pytest.raises(ValueError, match=message):
        pipeline().initialize(lambda: batch)


def test_empty_docs_are_predicted(trained: Language) -> None:
    """Their only path has no entities, the probability 1, and the log probability 0."""
    assert [len(doc) for doc in trained.pipe(["", ""])] == [0, 0]
    ner = trained.get_pipe("ner")
    docs = [trained.make_doc("")]
    assert ner.k_best(docs, k=2) == [[([], 1.0, 0.0)]]
    assert ner.posterior(docs).entropy == [0.0]


def test_empty_docs_have_no_loss(trained: Language) -> None:
    empty = Example.from_dict(trained.make_doc(""), {"entities": []})
    assert copy_of(trained).update([empty, empty], losses={}) == {"ner": 0.0}


def test_a_doc_of_one_token_is_predicted(trained: Language) -> None:
    assert ents(trained("London")) == [(0, 6, "LOC")]


def test_a_doc_of_10000_tokens_is_predicted(trained: Language) -> None:
    doc = trained(Doc(trained.vocab, words=["London", "likes"] * 5000))
    places = [(ent.start, ent.end, ent.label_) for ent in doc.ents]
    assert places == [(i, i + 1, "LOC") for i in range(0, 10000, 2)]


def log_loss_of_path(ner: Any, potentials: Any, tag_names: list[str]) -> float:
    """-log p(path) of the first doc, by enumeration."""
    path = [ner.tags.names.index(name) for name in tag_names]
    legal = chain.constrain(single(potentials, 0), ner.tags.constraints)
    return oracle.log_sum(legal, 0).value - oracle.score(legal, 0, path)


def test_the_loss_is_the_objective_by_annotated_token(trained: Language) -> None:
    """The two tokens of "Who knows" are not annotated: they don't count, and have no gradient. So
    the objective is divided by 2, the number of tokens of "Berlin lost"."""
    ner = trained.get_pipe("ner")
    berlin_lost = Example.from_dict(trained.make_doc("Berlin lost"), {"entities": [(0, 6, "LOC")]})
    who_knows = Example(trained.make_doc("Who knows"), trained.make_doc("Who knows"))
    batch = [berlin_lost, who_knows]
    potentials = ner.model.predict([eg.predicted for eg in batch])

    loss, gradient = ner.get_loss(batch, potentials)

    expected = log_loss_of_path(ner, potentials, ["U-LOC", "O"])
    assert loss == pytest.approx(expected / 2, abs=1e-5)
    assert gradient.emissions[:2].any() and not gradient.emissions[2:].any()


def test_the_loss_of_a_doc_of_one_token_is_minus_the_log_probability_of_its_tag(
    trained: Language,
) -> None:
    ner = trained.get_pipe("ner")
    berlin = Example.from_dict(trained.make_doc("Berlin"), {"entities": [(0, 6, "LOC")]})
    potentials = ner.model.predict([berlin.predicted])

    loss, _ = ner.get_loss([berlin], potentials)

    # U-LOC is the tag of an entity of one token.
    assert loss == pytest.approx(log_loss_of_path(ner, potentials, ["U-LOC"]), abs=1e-5)


def test_a_pipeline_learns_from_partial_annotation() -> None:
    """In two texts only the first entity is annotated, and it is known that the first and the last
    token are O."""
    nlp = pipeline()
    batch = examples(nlp)
    for eg in batch[1:3]:
        reference = eg.reference
        first_and_last = [reference[:1], reference[-1:]]
        reference.set_ents(list(reference.ents[:1]), outside=first_and_last, default="missing")
    optimizer = nlp.initialize(lambda: batch)
    optimizer.learn_rate = 0.01

    for _ in range(60):
        losses = nlp.update(batch, sgd=optimizer, losses={})

    assert 0 <= losses["ner"] < 0.01
    assert ents(nlp(SHAKA_KHAN)) == [(7, 17, "PERSON")]
    assert (7, 13, "LOC") in ents(nlp(LONDON_BERLIN))


@pytest.mark.parametrize("outside", ["single", "before"])
def test_an_added_label_leaves_the_scores_of_others_as_they_were(outside: str) -> None:
    nlp = pipeline(outside=outside)
    train(nlp, steps=5)
    ner = nlp.get_pipe("ner")
    docs = [nlp.make_doc(LONDON_BERLIN)]
    names_before = ner.chain_tags.names
    before = ner.model.predict(docs)

    assert ner.add_label("LOC") == 0  # as in spaCy: 0 if there was such a label
    assert ner.add_label("GPE") == 1

    after = ner.model.predict(docs)
    n_tags = len(names_before)
    assert ner.chain_tags.names[:n_tags] == names_before
    numpy.testing.assert_array_equal(after.transitions[:n_tags, :n_tags], before.transitions)
    numpy.testing.assert_array_equal(after.emissions[:, :n_tags], before.emissions)


@pytest.mark.parametrize("outside", ["single", "before"])
def test_an_added_label_is_learned_with_the_others(outside: str) -> None:
    nlp = pipeline(outside=outside)
    train(nlp)
    ner = nlp.get_pipe("ner")
    ner.add_label("GPE")
    mordor = Example.from_dict(nlp.make_doc("Mordor burns"), {"entities": [(0, 6, "GPE")]})
    optimizer = nlp.resume_training()
    optimizer.learn_rate = 0.01

    for _ in range(30):
        nlp.update([mordor, *examples(nlp)], sgd=optimizer)

    assert ents(nlp("Mordor burns")) == [(0, 6, "GPE")]
    assert ents(nlp(LONDON_BERLIN)) == [(7, 13, "LOC"), (18, 24, "LOC")]
    loaded = pipeline(outside=outside).from_bytes(nlp.to_bytes())
    assert loaded.get_pipe("ner").labels == ner.labels
    assert ents(loaded("Mordor burns")) == [(0, 6, "GPE")]


LATER = "entities with labels other than .*PERSON.* {}"
"""The warning for a label that the examples of `initialize` didn't have."""


@pytest.mark.parametrize("spans_key", [None, "sc"])
@pytest.mark.parametrize(
    "labels, warning, expected",
    [
        (None, r"are missing annotation.*\[initialize\.components\.ner\] labels", -1),
        (["PERSON"], "count as O", 0),
    ],
    ids=["of the first examples", "given"],
)
def test_labels_that_only_later_examples_have_are_missing_unless_labels_are_given(
    labels: list[str] | None, warning: str, expected: int, spans_key: str | None
) -> None:
    """As with max_epochs = -1, where spaCy initializes with the first 100 examples."""
    nlp = pipeline(spans_key=spans_key)
    batch = examples(nlp)
    if spans_key is not None:
        for eg in batch:
            eg.reference.spans[spans_key] = list(eg.reference.ents)
    ner = nlp.get_pipe("ner")
    ner.initialize(lambda: batch[:1], nlp=nlp, labels=labels)

    if spans_key is None or labels is None:
        with pytest.warns(UserWarning, match=LATER.format(warning)):
            targets = ner.objective.targets(batch[1:2], ner.chain_tags)
    else:  # spans of labels that were not chosen belong to other components
        targets = ner.objective.targets(batch[1:2], ner.chain_tags)

    # "I like London and Berlin."
    path = targets.in_epoch(0).gold.tags.tolist()
    assert path == [0, 0, expected, 0, expected, 0]


@pytest.mark.parametrize("spans_key", [None, "sc"])
def test_an_update_adds_labels_that_initialize_has_not_seen(spans_key: str | None) -> None:
    """As in spaCy's `ner`: with max_epochs = -1 `initialize` sees only the first 100 examples."""
    nlp = pipeline(spans_key=spans_key)
    batch = examples(nlp)
    if spans_key is not None:
        for eg in batch:
            eg.reference.spans[spans_key] = list(eg.reference.ents)
    optimizer = nlp.initialize(lambda: batch[:1])
    optimizer.learn_rate = 0.01
    ner = nlp.get_pipe("ner")
    assert ner.labels == ("PERSON",)
    for _ in range(60):
        nlp.update(batch, sgd=optimizer)

    assert ner.labels == ("PERSON", "LOC", "sports-team")
    for eg in nlp.evaluate(batch), nlp.from_bytes(nlp.to_bytes()).evaluate(batch):
        assert eg["ents_f" if spans_key is None else "spans_sc_f"] == 1.0


@pytest.mark.parametrize("is_loaded", [False, True])
def test_an_update_doesnt_add_labels_if_the_user_has_chosen_them(is_loaded: bool) -> None:
    nlp = pipeline()
    batch = examples(nlp)
    nlp.get_pipe("ner").initialize(lambda: batch, nlp=nlp, labels=["PERSON"])
    if is_loaded:
        nlp = pipeline().from_bytes(nlp.to_bytes())
    with pytest.warns(UserWarning, match=LATER.format("count as O")):
        nlp.update(batch, sgd=nlp.create_optimizer())
    assert nlp.get_pipe("ner").labels == ("PERSON",)


def test_training_of_a_loaded_model_adds_labels() -> None:
    """Nobody has chosen the labels: `initialize` collected them. A second load is no different."""
    nlp = pipeline()
    train(nlp, steps=1)
    loaded = pipeline().from_bytes(nlp.to_bytes())
    loaded = pipeline().from_bytes(loaded.to_bytes())
    optimizer = loaded.resume_training()
    optimizer.learn_rate = 0.01
    batch = [Example.from_dict(loaded.make_doc("Acme sells shoes"), {"entities": [(0, 4, "ORG")]})]
    for _ in range(60):
        loaded.update(batch, sgd=optimizer)

    assert loaded.get_pipe("ner").labels == (*nlp.get_pipe("ner").labels, "ORG")
    assert ents(loaded("Acme sells shoes")) == [(0, 4, "ORG")]


def test_a_label_that_the_cost_doesnt_know_is_missing_and_doesnt_stop_training() -> None:
    cost = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": {"PERSON": {}}}
    loss = {**SOFTMAX_MARGIN, "cost": cost}
    nlp = pipeline(loss=loss)
    batch = examples(nlp)
    optimizer = nlp.initialize(lambda: batch[:1])
    with pytest.warns(UserWarning) as warned:
        nlp.update(batch, sgd=optimizer)
        nlp.update(batch, sgd=optimizer)
    messages = [str(warning.message) for warning in warned]
    assert sum("the label 'LOC' is not added: " in message for message in messages) == 1
    assert sum("are missing annotation" in message for message in messages) == 1
    assert nlp.get_pipe("ner").labels == ("PERSON",)


@pytest.fixture
def nlp_with_new_label(trained: Language) -> Language:
    """A copy of the pipeline, to which the label GPE was added. The scores of the other labels are
    so low that an untrained tag with the score 0 would be the best of all."""
    nlp = copy_of(trained)
    ner = nlp.get_pipe("ner")
    ner.model.get_ref("emissions").get_param("b")[:] -= 50.0
    ner.add_label("GPE")
    return nlp


def test_a_label_is_not_predicted_before_it_is_trained(
    trained: Language, nlp_with_new_label: Language
) -> None:
    """A new label changes no prediction, neither before nor after the pipeline is saved."""
    expected = [ents(doc) for doc in trained.pipe(TEXTS)]
    assert any(expected)

    assert [ents(doc) for doc in nlp_with_new_label.pipe(TEXTS)] == expected
    loaded = pipeline().from_bytes(nlp_with_new_label.to_bytes())
    assert [ents(doc) for doc in loaded.pipe(TEXTS)] == expected


def test_an_untrained_label_has_the_probability_0(nlp_with_new_label: Language) -> None:
    ner = nlp_with_new_label.get_pipe("ner")
    marginals = ner.posterior([nlp_with_new_label.make_doc(LONDON_BERLIN)]).marginals
    is_gpe = ner.tags.label_of == ner.labels.index("GPE")
    assert is_gpe.any() and not marginals[:, is_gpe].any()


def test_a_preset_entity_may_have_an_untrained_label(nlp_with_new_label: Language) -> None:
    doc = nlp_with_new_label.make_doc(LONDON_BERLIN)
    doc.set_ents([Span(doc, 2, 3, label="GPE")], default="missing")
    assert (7, 13, "GPE") in ents(nlp_with_new_label.get_pipe("ner")(doc))


def test_a_label_is_trained_after_an_update_with_it(nlp_with_new_label: Language) -> None:
    ner = nlp_with_new_label.get_pipe("ner")
    doc = nlp_with_new_label.make_doc("Mordor burns")

    nlp_with_new_label.update([Example.from_dict(doc, {"entities": []})])
    assert ner.cfg["untrained"] == ["GPE"]
    nlp_with_new_label.update([Example.from_dict(doc, {"entities": [(0, 6, "GPE")]})])
    assert ner.cfg["untrained"] == []


def test_preset_entities_stay_with_labels_the_component_lacks(trained: Language) -> None:
    """Tokens that are preset as outside stay, too: "Berlin" would be LOC."""
    doc = trained.make_doc(LONDON_BERLIN)
    london = Span(doc, 2, 3, label="CITY", kb_id="Q84")
    doc.set_ents([london], outside=[doc[4:5]], default="missing")

    doc = trained.get_pipe("ner")(doc)

    assert [(ent.text, ent.label_, ent.kb_id_) for ent in doc.ents] == [("London", "CITY", "Q84")]
    assert [token.ent_iob_ for token in doc] == ["O", "O", "B", "O", "O", "O"]
    assert "CITY" not in trained.get_pipe("ner").labels


def test_blocked_tokens_are_in_no_entity(trained: Language) -> None:
    """ "London", which is blocked here, would be LOC."""
    doc = trained.make_doc(LONDON_BERLIN)
    doc.set_ents([], blocked=[doc[2:3]], default="missing")
    assert ents(trained.get_pipe("ner")(doc)) == [(18, 24, "LOC")]


def test_white_space_at_the_ends_of_gold_is_trimmed_with_one_warning(trained: Language) -> None:
    """The loss is the loss of the gold entities without the whitespace."""
    doc = trained.make_doc("in\n\nBerlin\n\n")
    assert [token.is_space for token in doc] == [False, True, False, True]
    with_space = doc.copy()
    with_space.set_ents([Span(with_space, 1, 4, label="LOC")])
    trimmed = doc.copy()
    trimmed.set_ents([Span(trimmed, 2, 3, label="LOC")])
    ner = copy_of(trained).get_pipe("ner")  # which has not warned yet
    potentials = ner.model.predict([doc])

    with pytest.warns(UserWarning, match=r"whitespace.*Berlin") as warned:
        first_loss, _ = ner.get_loss([Example(doc, with_space)], potentials)
        second_loss, _ = ner.get_loss([Example(doc, with_space)], potentials)

    assert len(warned) == 1
    expected, _ = ner.get_loss([Example(doc, trimmed)], potentials)
    assert first_loss == second_loss == expected


def test_scores_that_are_nan_are_refused_before_weights_change(trained: Language) -> None:
    nlp = copy_of(trained)
    model = nlp.get_pipe("ner").model
    model.get_ref("emissions").get_param("W")[0, 0] = numpy.nan
    before = model.to_bytes()
    message = r"ner: emissions: expected finite scores.* a lower learning rate"
    with pytest.raises(ValueError, match=message):
        nlp.update(examples(nlp), sgd=nlp.resume_training())
    assert model.to_bytes() == before


def test_costs_are_saved_with_the_model(tmp_path: Path) -> None:
    """Without the file of the tree the loss is the same, until a new label needs a cost."""
    tree = tmp_path / "tree.json"
    tree.write_text('{"place": {"LOC": {}}, "PERSON": {}, "sports-team": {}}')
    cost = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": str(tree)}
    nlp = pipeline(loss={"@losses": "spacy_costner.SoftmaxMargin.v1", "cost": cost})
    train(nlp, steps=2)
    batch = examples(nlp)
    potentials = nlp.get_pipe("ner").model.predict([eg.predicted for eg in batch])
    expected, _ = nlp.get_pipe("ner").get_loss(batch, potentials)
    nlp.to_disk(tmp_path / "model")
    tree.unlink()

    ner = spacy.load(tmp_path / "model").get_pipe("ner")

    potentials = ner.model.predict([eg.predicted for eg in batch])
    loss, _ = ner.get_loss(batch, potentials)
    assert loss == expected
    with pytest.raises(ValueError, match=r"HierarchicalCost: tree: .*tree\.json"):
        ner.add_label("GPE")


OF_OTHERS: dict[str, dict[str, Any]] = {
    "parser": {
        "@architectures": "spacy.TransitionBasedParser.v2",
        "state_type": "ner",
        "extra_state_tokens": False,
        "hidden_width": 8,
        "maxout_pieces": 2,
        "use_upper": False,
    },
    "softmax": {"@architectures": "spacy.Tagger.v2"},
}
"""Architectures of other components, by what their models are called."""


@pytest.mark.parametrize("name", OF_OTHERS)
def test_an_architecture_of_another_component_is_refused(name: str) -> None:
    model = {**OF_OTHERS[name], "nO": None, "tok2vec": SMALL["model"]["tok2vec"]}
    with pytest.raises(ValueError, match=f"ner: model: expected an architecture .* got .*{name}"):
        pipeline(model=model)


@pytest.mark.parametrize("n_tags", [3, -1])
@pytest.mark.parametrize("model", [SMALL["model"], SPARSE, HYBRID], ids=["cnn", "sparse", "hybrid"])
def test_a_number_of_tags_in_the_config_is_refused(model: dict[str, Any], n_tags: int) -> None:
    with pytest.raises(ValueError, match=rf"ner: model.nO: expected null, .* got {n_tags}"):
        pipeline(model={**model, "nO": n_tags})
