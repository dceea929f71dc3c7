"""Trained components in the pipelines that they live in: shared, sourced, frozen, in streams."""

from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.tokens import Doc, Span
from spacy.training import Example
from thinc.api import fix_random_seed

from ..support.pipelines import LISTENING, TEXTS, TRAIN, ents, listening, pipeline, train

TAGGER = {"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": LISTENING["tok2vec"]}}


def make_examples(nlp: Language) -> list[Example]:
    """The docs of `TRAIN` with their entities, and as tags whether words begin with a capital."""
    examples = []
    for text, gold in TRAIN:
        doc = nlp.make_doc(text)
        tags = ["UP" if token.is_title else "LOW" for token in doc]
        examples.append(Example.from_dict(doc, {**gold, "tags": tags}))
    return examples


def learn(nlp: Language, **settings: Any) -> dict[str, float]:
    """Initialize and train a pipeline. RETURNS (dict[str, float]): The losses of the last step."""
    examples = make_examples(nlp)
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.01
    for _ in range(60):
        losses = nlp.update(examples, sgd=optimizer, losses={}, **settings)
    return losses


def predict_entities(nlp: Language) -> list[list[tuple[int, int, str]]]:
    """The entities of the training texts and of one that is new."""
    return [ents(doc) for doc in nlp.pipe([*TEXTS, "Khan likes Berlin"])]


def gold_entities() -> list[Any]:
    """The entities of the training texts, as they are annotated."""
    return [gold["entities"] for _, gold in TRAIN]


def copy_weights(pipe: Any) -> list[numpy.ndarray]:
    """A copy of each weight array of a component's model."""
    weights = []
    for node in pipe.model.walk():
        for name in node.param_names:
            if node.has_param(name):
                weights.append(node.get_param(name).copy())
    return weights


@pytest.fixture(scope="module")
def shared() -> Language:
    """A trained pipeline of "tok2vec", and "tagger" and "ner" that listen to it."""
    fix_random_seed(0)
    nlp = listening()
    nlp.add_pipe("tagger", before="ner", config=TAGGER)
    learn(nlp)
    return nlp


@pytest.fixture(scope="module")
def trained() -> Language:
    """A trained pipeline of our component alone, with a tok2vec inside."""
    fix_random_seed(0)
    nlp = pipeline()
    train(nlp)
    return nlp


# Together with other components


def test_a_tagger_and_our_component_learn_on_a_shared_tok2vec(
    shared: Language, tmp_path: Path
) -> None:
    assert shared.get_pipe("tok2vec").listening_components == ["tagger", "ner"]
    shared.to_disk(tmp_path)
    for nlp in (shared, spacy.load(tmp_path)):
        docs = list(nlp.pipe(TEXTS))
        assert [ents(doc) for doc in docs] == gold_entities()
        assert [token.tag_ for token in docs[0]] == ["UP", "LOW", "UP", "UP", "LOW"]


def test_our_component_teaches_the_tok2vec(shared: Language, tmp_path: Path) -> None:
    """Nobody else does, as the tagger is excluded from the update. The model knows the entities of
    the training docs already. So they are removed from the gold annotation: there is a loss
    then."""
    shared.to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    tok2vec = nlp.get_pipe("tok2vec")
    before = copy_weights(tok2vec)
    eg = make_examples(nlp)[0]
    eg.reference.set_ents([])

    optimizer = nlp.resume_training()
    # In an update spaCy changes the weights of the tok2vec first, before those that listen to it
    # have learned. So the gradient of the first update counts in the second.
    for _ in range(2):
        nlp.update([eg], sgd=optimizer, exclude=["tagger"])

    after = copy_weights(tok2vec)
    assert any((old != new).any() for old, new in zip(before, after))


def test_replaced_listeners_answer_the_same(shared: Language, tmp_path: Path) -> None:
    """`replace_listeners` gives our component a copy of the tok2vec. It then needs no other
    component, neither to predict nor to rehearse."""
    shared.to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    expected = predict_entities(nlp)

    nlp.replace_listeners("tok2vec", "ner", ["model.tok2vec"])

    ner = nlp.get_pipe("ner")
    assert nlp.get_pipe("tok2vec").listening_components == ["tagger"]
    assert not any(isinstance(node, Tok2VecListener) for node in ner.model.walk())
    assert predict_entities(nlp) == expected
    nlp.to_disk(tmp_path / "replaced")
    ner_alone = spacy.load(tmp_path / "replaced", exclude=["tok2vec", "tagger"])
    assert predict_entities(ner_alone) == expected
    nlp.resume_training()
    losses = nlp.rehearse(make_examples(nlp), exclude=["tagger", "tok2vec"])
    assert losses["ner"] == pytest.approx(0)


def test_a_component_sourced_into_another_pipeline_answers_the_same(trained: Language) -> None:
    """Under another name, and after the pipeline was saved."""
    nlp = spacy.blank("xx")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("ner", name="names", source=trained)
    loaded = spacy.blank("xx").from_config(nlp.config).from_bytes(nlp.to_bytes())

    expected = predict_entities(trained)
    assert predict_entities(nlp) == expected
    assert predict_entities(loaded) == expected
    for label in loaded.get_pipe("names").labels:
        assert label in loaded.vocab.strings


def test_messages_have_the_name_of_a_component_that_was_renamed() -> None:
    """It's sourced under another name, and renamed later."""
    nlp = spacy.blank("xx")
    ner: Any = nlp.add_pipe("ner", name="names", source=pipeline(spans_key="sc"))
    doc = nlp.make_doc("Kim left")
    doc.spans["sc"] = [Span(doc, 0, 1, "PERSON"), Span(doc, 0, 2, "PERSON")]  # overlap
    overlapping = [Example(nlp.make_doc(doc.text), doc)]
    with pytest.raises(ValueError, match=r"^names: "):
        ner.initialize(lambda: overlapping)

    nlp.rename_pipe("names", "people")

    assert ner.name == ner.objective.name == "people"
    with pytest.raises(ValueError, match=r"^people: "):
        ner.initialize(lambda: overlapping)


def test_components_before_it_annotate_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentencizer and a ruler that sets entities. Our component sees in training what they set in
    the predicted docs. So it doesn't learn the entity that the ruler always finds."""
    nlp = pipeline(sentence_boundaries=True)
    nlp.add_pipe("sentencizer", first=True, config={"punct_chars": ["and"]})
    nlp.add_pipe("entity_ruler", before="ner")
    patterns = [{"label": "sports-team", "pattern": "Red Sox"}]
    nlp.config["initialize"]["components"]["entity_ruler"] = {"patterns": patterns}
    ner = nlp.get_pipe("ner")
    update = ner.update
    docs_of_last_update: list[Doc] = []

    def recorded_update(examples: list[Example], **settings: Any) -> Any:
        docs_of_last_update[:] = [eg.predicted.copy() for eg in examples]
        return update(examples, **settings)

    monkeypatch.setattr(ner, "update", recorded_update)

    losses = learn(nlp, annotates=["sentencizer", "entity_ruler"])

    _, berlin, red_sox, _ = docs_of_last_update
    assert [sent.text for sent in berlin.sents] == ["I like London and", "Berlin."]
    assert ents(red_sox) == [(4, 11, "sports-team")]
    assert losses["ner"] < 0.05
    assert [ents(nlp(text)) for text in TEXTS] == gold_entities()
    with nlp.select_pipes(disable="entity_ruler"):
        assert (4, 11, "sports-team") not in ents(nlp("The Red Sox lost."))


# In streams


@pytest.fixture
def fragile(trained: Language, monkeypatch: pytest.MonkeyPatch) -> Language:
    """The trained pipeline, whose component fails for texts with "broken"."""
    ner = trained.get_pipe("ner")
    predict = ner.predict

    def predict_or_fail(docs: list[Doc]) -> Any:
        if any("broken" in doc.text for doc in docs):
            raise OSError(docs[0].text)
        return predict(docs)

    monkeypatch.setattr(ner, "predict", predict_or_fail)
    return trained


def test_errors_of_a_doc_stop_the_stream(fragile: Language) -> None:
    with pytest.raises(OSError, match="a broken text"):
        list(fragile.pipe([TEXTS[1], "a broken text", TEXTS[0]], batch_size=1))
    with pytest.raises(OSError, match="a broken text"):
        fragile("a broken text")


def test_docs_whose_errors_are_handled_are_left_out_of_the_stream(fragile: Language) -> None:
    """The docs before and behind it keep their contexts, here 0 and 2."""
    failed = []

    def note_failed_docs(name: str, pipe: Any, docs: list[Doc], error: Exception) -> None:
        failed.append((name, [doc.text for doc in docs], type(error)))

    texts = [(TEXTS[1], 0), ("a broken text", 1), (TEXTS[0], 2)]
    fragile.set_error_handler(note_failed_docs)
    docs = list(fragile.pipe(texts, batch_size=1, as_tuples=True))
    fragile.set_error_handler(spacy.util.raise_error)

    assert [(doc.text, context) for doc, context in docs] == [(TEXTS[1], 0), (TEXTS[0], 2)]
    last_doc, _ = docs[-1]
    assert ents(last_doc) == gold_entities()[0]
    # spaCy renames a component that is sourced into another pipeline: another test does so.
    name = fragile.get_pipe("ner").name
    assert failed == [(name, ["a broken text"], OSError)]
