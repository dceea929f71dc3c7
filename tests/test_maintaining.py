"""Trained components in the pipelines that they live in: shared, sourced, frozen, in streams."""

from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import fix_random_seed

from .support.pipelines import LISTENING, TEXTS, TRAIN, ents, listening, pipeline, train

TAGGER = {"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": LISTENING["tok2vec"]}}


def examples(nlp: Language) -> list[Example]:
    """Entities, and as tags whether words begin with a capital."""
    made = []
    for doc, gold in ((nlp.make_doc(text), gold) for text, gold in TRAIN):
        tags = ["UP" if token.is_title else "LOW" for token in doc]
        made.append(Example.from_dict(doc, {**gold, "tags": tags}))
    return made


def learn(nlp: Language, steps: int = 60, **settings: Any) -> dict[str, float]:
    batch = examples(nlp)
    optimizer = nlp.initialize(lambda: batch)
    optimizer.learn_rate = 0.01
    for _ in range(steps):
        losses = nlp.update(batch, sgd=optimizer, losses={}, **settings)
    return losses


def answers(nlp: Language) -> list[list[tuple[int, int, str]]]:
    return [ents(doc) for doc in nlp.pipe([*TEXTS, "Khan likes Berlin"])]


def weights(pipe: Any) -> list[numpy.ndarray]:
    pairs = [(node, name) for node in pipe.model.walk() for name in node.param_names]
    return [node.get_param(name).copy() for node, name in pairs if node.has_param(name)]


@pytest.fixture(scope="module")
def shared() -> Language:
    """A tok2vec with a tagger and our component on it."""
    fix_random_seed(0)
    nlp = listening()
    nlp.add_pipe("tagger", before="ner", config=TAGGER)
    learn(nlp)
    return nlp


@pytest.fixture(scope="module")
def trained() -> Language:
    fix_random_seed(0)
    nlp = pipeline()
    train(nlp)
    return nlp


# Together with other components


def test_a_tok2vec_shared_with_a_tagger(shared: Language, tmp_path: Path) -> None:
    """Both learn on it, and the component teaches it."""
    assert shared.get_pipe("tok2vec").listening_components == ["tagger", "ner"]
    shared.to_disk(tmp_path)
    for nlp in (shared, spacy.load(tmp_path)):
        docs = list(nlp.pipe(TEXTS))
        assert [ents(doc) for doc in docs] == [gold["entities"] for _, gold in TRAIN]
        assert [token.tag_ for token in docs[0]] == ["UP", "LOW", "UP", "UP", "LOW"]
    tok2vec = nlp.get_pipe("tok2vec")
    before = weights(tok2vec)
    batch = examples(nlp)[:1]
    batch[0].reference.set_ents([])
    optimizer = nlp.resume_training()
    for _ in range(2):  # spaCy steps it before those that listen have learned
        nlp.update(batch, sgd=optimizer, exclude=["tagger"])
    assert any((one != other).any() for one, other in zip(before, weights(tok2vec)))


def test_replaced_listeners_answer_the_same(shared: Language, tmp_path: Path) -> None:
    shared.to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    expected = answers(nlp)
    nlp.replace_listeners("tok2vec", "ner", ["model.tok2vec"])
    ner = nlp.get_pipe("ner")
    assert nlp.get_pipe("tok2vec").listening_components == ["tagger"]
    assert not any(isinstance(node, Tok2VecListener) for node in ner.model.walk())
    assert answers(nlp) == expected
    nlp.to_disk(tmp_path / "replaced")
    again = spacy.load(tmp_path / "replaced", exclude=["tok2vec", "tagger"])
    assert answers(again) == expected
    nlp.resume_training()
    assert nlp.rehearse(examples(nlp), exclude=["tagger", "tok2vec"])["ner"] == pytest.approx(0)


def test_sourced_into_another_pipeline(trained: Language) -> None:
    expected = answers(trained)
    nlp = spacy.blank("xx")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("ner", name="names", source=trained)
    again = spacy.blank("xx").from_config(nlp.config).from_bytes(nlp.to_bytes())
    assert answers(nlp) == answers(again) == expected
    assert all(label in again.vocab.strings for label in again.get_pipe("names").labels)


def test_components_before_it_annotate_in_training() -> None:
    nlp = pipeline(sentence_boundaries=True)
    nlp.add_pipe("sentencizer", first=True, config={"punct_chars": ["."]})
    nlp.add_pipe("entity_ruler", before="ner")
    patterns = [{"label": "sports-team", "pattern": "Red Sox"}]
    nlp.config["initialize"]["components"]["entity_ruler"] = {"patterns": patterns}
    losses = learn(nlp, annotates=["sentencizer", "entity_ruler"])
    assert losses["ner"] < 0.05
    assert [ents(nlp(text)) for text in TEXTS] == [gold["entities"] for _, gold in TRAIN]


# In streams


def test_errors_of_a_doc_stop_unless_they_are_handled(
    trained: Language, monkeypatch: pytest.MonkeyPatch
) -> None:
    ner, texts = trained.get_pipe("ner"), [TEXTS[1], "a broken text", TEXTS[0]]
    failed, predict = [], ner.predict

    def fail(docs: list[Doc]) -> Any:
        if any("broken" in doc.text for doc in docs):
            raise OSError(docs[0].text)
        return predict(docs)

    def note(name: str, pipe: Any, docs: list[Doc], error: Exception) -> None:
        failed.append((name, [doc.text for doc in docs], type(error)))

    monkeypatch.setattr(ner, "predict", fail)
    with pytest.raises(OSError, match="a broken text"):
        list(trained.pipe(texts, batch_size=1))
    with pytest.raises(OSError, match="a broken text"):
        trained("a broken text")
    trained.set_error_handler(note)
    docs = list(trained.pipe(zip(texts, range(3)), batch_size=1, as_tuples=True))
    trained.set_error_handler(spacy.util.raise_error)
    assert [(doc.text, context) for doc, context in docs] == [(texts[0], 0), (texts[2], 2)]
    assert ents(docs[1][0]) == TRAIN[0][1]["entities"]
    assert failed == [(ner.name, ["a broken text"], OSError)]
