"""Tests that docs can't measure a component if they have other labels, or if it was trained on
them."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import spacy
import srsly
from hypothesis import given
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example

from spacy_costner.decoding import Temperature
from spacy_costner.training.known_text import pack_ids, sentence_ids, unpack_ids
from spacy_costner.workflows.calibration.guarantees import guarantee
from spacy_costner.workflows.calibration.temperature import calibrate, find_extremes
from spacy_costner.workflows.calibration.tuning import tune
from spacy_costner.workflows.evaluation.recurrence import KnownText
from spacy_costner.workflows.evaluation.valid_data import find_unknown_labels
from spacy_costner.workflows.fitting.fitting import fit

from ...support.linear import SPARSE

NAMES = ["Ana", "Bo", "Cleo", "Dan", "Eve", "Flo", "Gus", "Hal"]
PLACES = ["Oslo", "Rome", "Lima", "Kyiv", "Bonn", "Cork", "Nice", "Bari"]


def sentence(i: int) -> tuple[list[str], list[str]]:
    """The words and BILUO tags of sentence number i, such as "Ana went to Oslo again on day 0 .":
    each number is another sentence. It has nine tokens, as sentences of less than eight aren't
    compared."""
    name = NAMES[i % len(NAMES)]
    place = PLACES[i // len(NAMES) % len(PLACES)]
    words = [name, "went", "to", place, "again", "on", "day", str(i), "."]
    return words, ["U-PER", "O", "O", "U-LOC", *["O"] * 5]


def examples_of_sentences(
    nlp: Language, numbers: Sequence[int], sentences_per_doc: int = 1, **renamed: str
) -> list[Example]:
    """Examples of the sentences with these numbers. `renamed` gives other names to labels, such as
    `PER="PERSON"`."""
    examples = []
    for first in range(0, len(numbers), sentences_per_doc):
        words: list[str] = []
        tags: list[str] = []
        for i in numbers[first : first + sentences_per_doc]:
            sentence_words, sentence_tags = sentence(i)
            words += sentence_words
            for tag in sentence_tags:
                prefix, _, label = tag.partition("-")
                tags.append(f"{prefix}-{renamed.get(label, label)}" if label else tag)
        doc = Doc(nlp.vocab, words=words)
        examples.append(Example.from_dict(doc, {"entities": tags}))
    return examples


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved pipeline with the component "ner". It was trained on the sentences 0 to 99, in docs
    of five, with the labels PER and LOC."""
    nlp = spacy.blank("xx")
    nlp.add_pipe("cost_sensitive_ner", name="ner", config={"model": SPARSE})
    examples = examples_of_sentences(nlp, range(100), sentences_per_doc=5)
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(5):
        nlp.update(examples, sgd=optimizer)
    path = tmp_path_factory.mktemp("trained")
    nlp.to_disk(path)
    return path


@given(st.sets(st.integers(0, 2**32 - 1)))
def test_packed_ids_of_sentences_are_unpacked_in_order(ids: set[int]) -> None:
    assert unpack_ids(pack_ids(ids)).tolist() == sorted(ids)


@pytest.mark.parametrize("sentences_per_doc", [1, 3, 7])
def test_sentences_are_known_however_docs_are_cut(trained: Path, sentences_per_doc: int) -> None:
    """Training docs had five sentences, numbers 0 to 99. Of the forty numbers 90 to 129, ten are
    known."""
    nlp = spacy.load(trained)
    ner: Any = nlp.get_pipe("ner")
    examples = examples_of_sentences(nlp, range(90, 130), sentences_per_doc)

    found = KnownText.from_component(nlp, ner).find_in(eg.reference for eg in examples)

    assert (found.n_recurring, found.n_texts) == (10, 40)


def test_a_sentence_is_known_in_capitals(trained: Path) -> None:
    """The second sentence is too short to count."""
    nlp = spacy.load(trained)
    ner: Any = nlp.get_pipe("ner")
    words, _ = sentence(95)
    text = " ".join(words).upper().replace(" .", ".")

    found = KnownText.from_component(nlp, ner).find_in([nlp.make_doc(f"{text}\nToo short.")])

    assert (found.n_recurring, found.n_texts) == (1, 1)


def test_short_sentences_have_no_id() -> None:
    """A sentence of five tokens is too short: somebody else may have written the same."""
    nlp = spacy.blank("xx")
    assert sentence_ids(nlp.make_doc("Ana went to Oslo.")) == []


@pytest.mark.parametrize("sentences_per_doc", [1, 3])
def test_training_docs_are_refused_for_a_guarantee(trained: Path, sentences_per_doc: int) -> None:
    nlp = spacy.load(trained)
    training_docs = examples_of_sentences(nlp, range(100), sentences_per_doc)
    with pytest.raises(ValueError, match=r"100 of 100 texts \(100 %\) recur in the training"):
        guarantee(nlp, training_docs, miss=0.2)


@pytest.mark.parametrize("sentences_per_doc", [1, 3])
def test_a_guarantee_leaves_training_docs_among_new_ones_out(
    trained: Path, sentences_per_doc: int
) -> None:
    """Ten docs have a sentence of the training corpus each. That the training docs had five
    sentences doesn't matter."""
    nlp = spacy.load(trained)
    new_docs = examples_of_sentences(nlp, range(1000, 1100), sentences_per_doc)
    training_docs = examples_of_sentences(nlp, range(10))

    result = guarantee(nlp, new_docs + training_docs, miss=0.2)

    assert result.promise.not_counted["training docs"] == 10


@pytest.mark.parametrize("command", [tune, calibrate])
@pytest.mark.parametrize("sentences_per_doc", [1, 3])
def test_tune_and_calibrate_note_training_docs(
    trained: Path, sentences_per_doc: int, command: Any
) -> None:
    nlp = spacy.load(trained)
    training_docs = examples_of_sentences(nlp, range(100), sentences_per_doc)
    new_docs = examples_of_sentences(nlp, range(1000, 1100), sentences_per_doc)

    notes_of_training_docs = command(nlp, training_docs).notes
    notes_of_new_docs = command(nlp, new_docs).notes

    assert any("100 of 100 texts" in note for note in notes_of_training_docs)
    assert not any("texts" in note for note in notes_of_new_docs)


@pytest.mark.parametrize(
    "command",
    [tune, calibrate, partial(guarantee, miss=0.2)],
    ids=["tune", "calibrate", "guarantee"],
)
def test_docs_of_other_labels_only_are_refused(trained: Path, command: Any) -> None:
    nlp = spacy.load(trained)
    examples = examples_of_sentences(nlp, range(200, 240), PER="PERSON", LOC="PLACE")
    with pytest.raises(ValueError, match=r"one of \['LOC', 'PER'\], got \['PERSON', 'PLACE'\]"):
        command(nlp, examples)


@pytest.mark.parametrize("command", [tune, calibrate])
def test_a_label_that_the_component_does_not_know_is_noted(trained: Path, command: Any) -> None:
    """Forty entities have the label PERSON, which it doesn't know, and forty have LOC, which it
    knows."""
    nlp = spacy.load(trained)
    examples = examples_of_sentences(nlp, range(200, 240), PER="PERSON")

    (note,) = find_unknown_labels(nlp, nlp.get_pipe("ner"), examples, "dev")
    notes_of_command = command(nlp, examples).notes

    assert "ner doesn't know the labels PERSON (40)" in note
    assert any("PERSON (40)" in note for note in notes_of_command)


@pytest.mark.parametrize(
    "factory, settings, position, is_noted",
    [
        ("entity_ruler", {}, "before", False),
        ("span_ruler", {"annotate_ents": True}, "before", False),
        ("span_ruler", {}, "before", True),  # writes to doc.spans
        ("entity_ruler", {}, "after", True),
    ],
)
def test_labels_of_entities_that_an_earlier_component_sets_are_not_noted(
    trained: Path, factory: str, settings: dict[str, Any], position: str, is_noted: bool
) -> None:
    nlp = spacy.load(trained)
    ruler: Any = nlp.add_pipe(factory, config=settings, **{position: "ner"})
    ruler.add_patterns([{"label": "PERSON", "pattern": "Ana"}])
    examples = examples_of_sentences(nlp, range(200, 240), PER="PERSON")

    notes = find_unknown_labels(nlp, nlp.get_pipe("ner"), examples, "dev")

    assert ["PERSON (40)" in note for note in notes] == [True] * is_noted


def test_an_earlier_component_does_not_replace_the_component(trained: Path) -> None:
    """The component has to know one of the labels."""
    nlp = spacy.load(trained)
    examples = examples_of_sentences(nlp, range(200, 240), PER="PERSON", LOC="PERSON")
    ruler: Any = nlp.add_pipe("entity_ruler", before="ner")
    ruler.add_patterns([{"label": "PERSON", "pattern": "Ana"}])
    with pytest.raises(ValueError, match=r"one of \['LOC', 'PER'\], got \['PERSON'\]"):
        find_unknown_labels(nlp, nlp.get_pipe("ner"), examples, "dev")


def save_sentences(path: Path, numbers: Sequence[int], **renamed: str) -> Path:
    """Save the sentences with these numbers to a .spacy file, each as a doc."""
    examples = examples_of_sentences(spacy.blank("xx"), numbers, **renamed)
    DocBin(docs=[eg.reference for eg in examples]).to_disk(path)
    return path


def test_fit_calibrates_on_all_sentences_and_notes_those_of_training(tmp_path: Path) -> None:
    """The development corpus has the sentences 30 to 59. Ten of these, 30 to 39, are also in the
    training corpus: they are noted, but not left out, so calibration has the scores of all 30 docs.
    The scores are approximate, as the temperature was fitted on the same docs."""
    train_path = save_sentences(tmp_path / "train.spacy", range(40))
    dev_path = save_sentences(tmp_path / "dev.spacy", range(30, 60))

    result = fit(
        None,
        tmp_path / "out",
        lang="xx",
        train_path=train_path,
        dev_path=dev_path,
        calibrate=True,
    )

    assert "10 of 30 texts" in result.as_text()
    calibration_scores = spacy.load(result.path).get_pipe("ner").calibration_scores
    assert len(calibration_scores.scores) == 30
    assert calibration_scores.approximate


def test_fit_refuses_other_labels_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_path = save_sentences(tmp_path / "train.spacy", range(40))
    dev_path = save_sentences(tmp_path / "dev.spacy", range(40, 60), PER="A", LOC="B")
    # A call of None would be another error: training must not begin.
    monkeypatch.setattr("spacy_costner.workflows.fitting.pipeline_training.train_linear", None)

    with pytest.raises(ValueError, match=r"one of \['LOC', 'PER'\], got \['A', 'B'\]"):
        fit(None, tmp_path / "out", lang="xx", train_path=train_path, dev_path=dev_path)


def test_a_temperature_at_the_edge_of_its_range_is_noted() -> None:
    """The range is from 0.01 to 100."""
    at_the_edge = find_extremes(Temperature(1.0, {"PER": 0.01}))
    within = find_extremes(Temperature(50.0, {"PER": 0.02}))

    (note,) = at_the_edge
    assert "the temperature of PER, 0.01, is at the edge of its range" in note
    assert not within


def test_tuning_a_bias_notes_no_temperature(trained: Path) -> None:
    nlp = spacy.load(trained)
    examples = examples_of_sentences(nlp, range(200, 240))
    notes = tune(nlp, examples, recall=0.01, parameter="bias").notes
    assert not any("temperature" in note for note in notes)


def test_fit_names_the_parameter_for_nested_entities(tmp_path: Path) -> None:
    """The A is "of Oslo", and the B within it is "Oslo". As they overlap, reading warns of them
    and leaves them out of the entities of the doc. So there is none to learn from."""
    path = tmp_path / "nested.jsonl"
    spans = [{"start": 0, "end": 7, "label": "A"}, {"start": 3, "end": 7, "label": "B"}]
    srsly.write_jsonl(path, [{"text": "of Oslo", "spans": spans}])
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="`init` and `spans_key` sc"):
        fit(None, tmp_path / "out", lang="xx", train_path=path)
