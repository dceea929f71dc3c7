"""Docs that don't measure a component: other labels, and text that it was trained on."""

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

from spacy_costner.analysis.calibration import calibrate, find_extremes
from spacy_costner.analysis.fitness import count_known_sentences, find_unknown_labels
from spacy_costner.analysis.fitting import fit
from spacy_costner.analysis.guarantees import guarantee
from spacy_costner.analysis.tuning import tune
from spacy_costner.decoding import Temperature
from spacy_costner.training.known_text import pack_ids, sentence_ids, unpack_ids

from .support.linear import SPARSE

NAMES = ["Ana", "Bo", "Cleo", "Dan", "Eve", "Flo", "Gus", "Hal"]
PLACES = ["Oslo", "Rome", "Lima", "Kyiv", "Bonn", "Cork", "Nice", "Bari"]


def sentence(i: int) -> tuple[list[str], list[str]]:
    name, place, day = NAMES[i % 8], PLACES[i // 8 % 8], str(i)
    words = [name, "went", "to", place, "again", "on", "day", day, "."]
    return words, ["U-PER", "O", "O", "U-LOC", *["O"] * 5]


def docs(nlp: Language, numbers: Any, size: int = 1, **renamed: str) -> list[Example]:
    """Docs of so many sentences each."""
    made = []
    numbers = [*numbers]
    for first in range(0, len(numbers), size):
        words: list[str] = []
        tags: list[str] = []
        for i in numbers[first : first + size]:
            more, their_tags = sentence(i)
            words += more
            tags += [tag[:2] + renamed.get(tag[2:], tag[2:]) for tag in their_tags]
        made.append(Example.from_dict(Doc(nlp.vocab, words=words), {"entities": tags}))
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained on articles of five sentences."""
    nlp = spacy.blank("en")
    nlp.add_pipe("cost_sensitive_ner", name="ner", config={"model": SPARSE})
    examples = docs(nlp, range(100), size=5)
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(5):
        nlp.update(examples, sgd=optimizer)
    path = tmp_path_factory.mktemp("trained")
    nlp.to_disk(path)
    return path


@given(st.sets(st.integers(0, 2**32 - 1)))
def test_ids_are_kept(ids: set[int]) -> None:
    assert unpack_ids(pack_ids(ids)).tolist() == sorted(ids)


@pytest.mark.parametrize("size", [1, 3, 7])
def test_sentences_are_known_however_docs_are_cut(trained: Path, size: int) -> None:
    nlp = spacy.load(trained)
    ner: Any = nlp.get_pipe("ner")
    references = [eg.reference for eg in docs(nlp, range(90, 130), size=size)]
    assert count_known_sentences(ner, references) == (10, 40)
    text = " ".join(sentence(95)[0]).upper().replace(" .", ".")
    assert count_known_sentences(ner, [nlp.make_doc(f"{text}\nToo short.")]) == (1, 1)
    assert sentence_ids(nlp.make_doc("Ana went to Oslo.")) == []


@pytest.mark.parametrize("size", [1, 3])
def test_training_docs_are_refused_or_told(trained: Path, size: int) -> None:
    nlp = spacy.load(trained)
    seen = docs(nlp, range(100), size=size)
    with pytest.raises(ValueError, match=r"100 of 100 sentences of 8 tokens and more \(100 %\)"):
        guarantee(nlp, seen, miss=0.2)
    for notes in (tune(nlp, seen).notes, calibrate(nlp, seen).notes):
        assert any("100 of 100 sentences" in note for note in notes)
    new = docs(nlp, range(1000, 1100), size=size)
    for notes in (tune(nlp, new).notes, calibrate(nlp, new).notes):
        assert not any("sentences" in note for note in notes)
    result = guarantee(nlp, new + docs(nlp, range(10)), miss=0.2)
    assert result.promise.not_counted["training docs"] == 10


@pytest.mark.parametrize("command", [tune, calibrate, guarantee])
def test_other_labels(trained: Path, command: Any) -> None:
    nlp = spacy.load(trained)
    terms = {"miss": 0.2} if command is guarantee else {}
    with pytest.raises(ValueError, match=r"one of \['LOC', 'PER'\], got \['PERSON', 'PLACE'\]"):
        command(nlp, docs(nlp, range(200, 240), PER="PERSON", LOC="PLACE"), **terms)
    some = docs(nlp, range(200, 240), PER="PERSON")
    assert "ner doesn't know the labels PERSON (40)" in find_unknown_labels(
        nlp, nlp.get_pipe("ner"), some, "dev"
    )[0]  # fmt: skip
    if command is not guarantee:
        assert any("PERSON (40)" in note for note in command(nlp, some).notes)


def test_fit_refuses_other_labels_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    nlp = spacy.blank("en")
    for name, examples in (
        ("train", docs(nlp, range(40))),
        ("other", docs(nlp, range(40, 60), PER="A", LOC="B")),
        ("dev", docs(nlp, range(30, 60))),
    ):
        DocBin(docs=[eg.reference for eg in examples]).to_disk(tmp_path / f"{name}.spacy")
    paths = {"train_path": tmp_path / "train.spacy"}
    result = fit(None, tmp_path / "out", **paths, dev_path=tmp_path / "dev.spacy", calibrate=True)
    assert "10 of 30 sentences" in result.as_text()
    shift = spacy.load(result.path).get_pipe("ner").calibration_scores
    assert len(shift.scores) == 30 and shift.approximate
    monkeypatch.setattr("spacy_costner.analysis.fitting.train_linear", None)
    with pytest.raises(ValueError, match=r"one of \['LOC', 'PER'\], got \['A', 'B'\]"):
        fit(None, tmp_path / "no", **paths, dev_path=tmp_path / "other.spacy")


def test_the_edge_of_the_range_is_told(trained: Path) -> None:
    assert not find_extremes(Temperature(50.0, {"PER": 0.02}))
    (note,) = find_extremes(Temperature(1.0, {"PER": 0.01}))
    assert "the temperature of PER, 0.01, is at the edge of its range" in note
    nlp = spacy.load(trained)
    notes = tune(nlp, docs(nlp, range(200, 240)), recall=0.01, parameter="bias").notes
    assert not any("PER" in note for note in notes)


def test_nested_entities_name_the_option(tmp_path: Path) -> None:
    path = tmp_path / "nested.jsonl"
    spans = [{"start": 0, "end": 7, "label": "A"}, {"start": 3, "end": 7, "label": "B"}]
    srsly.write_jsonl(path, [{"text": "of Oslo", "spans": spans}])
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="init --spans-key sc"):
        fit(None, tmp_path / "out", train_path=path)
