"""The folder of an annotation session: texts, answers, and what is left after a crash."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st

from spacy_costner.analysis import annotation_store
from spacy_costner.analysis.annotation_store import AnnotationStore, count_measuring, is_drawn
from spacy_costner.readers import CorpusInfo, Task, TaskSpan, read_docs

from .support.annotation import make_texts

pytestmark = pytest.mark.usefixtures("with_flushing")

NLP = spacy.blank("xx")
PERSON = TaskSpan(10, 13, "PER")
"""The first three characters after "Yesterday ": a whole name in the texts that tests read back."""


def save(store: AnnotationStore, key: str, *spans: TaskSpan, is_left_out: bool = False) -> int:
    """Save an answer to a text of the store. Returns its version."""
    stored = store.texts[key]
    answer = store.save(
        key,
        Task(stored.text, [*spans]),
        is_measuring=stored.is_measuring,
        is_left_out=is_left_out,
    )
    return answer.version


def make_store(folder: Path, n: int = 40) -> AnnotationStore:
    store = AnnotationStore(folder)
    store.add_texts(make_texts(n))
    return store


def keys(store: AnnotationStore, *, is_measuring: bool) -> list[str]:
    """Keys of the texts that measure, or of the others."""
    return [text.key for text in store.texts.values() if text.is_measuring == is_measuring]


def entities(path: Path) -> list[list[tuple[str, str]]]:
    """The entities of each doc of a corpus."""
    docs = read_docs(NLP, path, info=CorpusInfo())
    return [[(ent.text, ent.label_) for ent in doc.ents] for doc in docs]


@pytest.mark.parametrize(
    ("n_texts", "is_first", "expected"),
    [
        (1000, True, 100),
        (100, True, 30),  # at least 30
        (40, True, 20),  # but no more than half
        (1, True, 0),  # half of it, rounded down
        (1000, False, 100),
        (40, False, 4),  # texts that are added later: a tenth, however few
    ],
)
def test_a_tenth_of_the_texts_measures_and_of_the_first_at_least_30(
    n_texts: int, is_first: bool, expected: int
) -> None:
    assert count_measuring(n_texts, is_first=is_first) == expected


def test_texts_that_measure_are_drawn_once_and_stay(tmp_path: Path) -> None:
    """Of the texts that are added again, only one is new: "Another text". White space makes no
    other text, and alone it is none."""
    store = make_store(tmp_path, 100)
    drawn = keys(store, is_measuring=True)
    assert len(drawn) == 30
    # At random, and not the first ones
    assert sorted(drawn) != sorted(f"text-{i}" for i in range(30))

    again = AnnotationStore(tmp_path)
    assert again.texts == store.texts
    n_added = again.add_texts([*make_texts(100), " Another   text", "Another text", " "])

    assert n_added == 1
    assert keys(again, is_measuring=True) == drawn


def test_answers_are_a_corpus_and_those_that_measure_another(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    to_train = keys(store, is_measuring=False)[0]
    to_measure = keys(store, is_measuring=True)[0]

    save(store, to_train, PERSON)
    save(store, to_measure)

    assert entities(store.train_path) == [[(store.texts[to_train].text[10:13], "PER")]]
    assert entities(store.measure_path) == [[]]
    assert len(entities(tmp_path / "annotated")) == 2
    answers = AnnotationStore(tmp_path).answers
    assert answers[to_train].task.spans == store.answers[to_train].task.spans
    assert answers[to_measure].is_measuring


def test_a_changed_answer_replaces_the_old_one_in_its_place(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    first, second = keys(store, is_measuring=False)[:2]
    save(store, first, PERSON)
    save(store, second)

    version = save(store, first, PERSON._replace(label="LOC"))

    assert version == 2
    assert [[label for _, label in doc] for doc in entities(store.train_path)] == [["LOC"], []]


def test_a_text_that_is_left_out_is_in_no_corpus(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    key = keys(store, is_measuring=False)[0]
    save(store, key, PERSON, is_left_out=True)
    assert entities(store.train_path) == []
    assert AnnotationStore(tmp_path).answers[key].is_left_out
    assert not store.accepted(is_measuring=False)


def test_an_answer_after_a_removed_one_is_another_version(tmp_path: Path) -> None:
    """So a page that still shows the removed answer knows that it was replaced."""
    store = make_store(tmp_path)
    key = keys(store, is_measuring=False)[0]
    assert save(store, key, PERSON) == 1
    store.remove(key)
    assert save(store, key) == 2


def test_a_removed_answer_is_in_no_file(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    first, second = keys(store, is_measuring=False)[:2]
    save(store, first, PERSON)
    save(store, second)
    assert store.remove(first) and not store.remove(first)
    assert [*AnnotationStore(tmp_path).answers] == [second]


@given(n_bytes=st.integers(min_value=1, max_value=100))
def test_a_line_that_a_crash_has_cut_off_is_removed(n_bytes: int, tmp_path_factory: Any) -> None:
    """The last answer was never acknowledged. All others are there."""
    store = make_store(tmp_path_factory.mktemp("session"))
    first, second = keys(store, is_measuring=False)[:2]
    save(store, first, PERSON)
    size = store.train_path.stat().st_size
    save(store, second, PERSON)
    os.truncate(store.train_path, size + n_bytes)

    again = AnnotationStore(store.folder)

    assert [*again.answers] == [first]
    save(again, second)
    assert len(entities(store.train_path)) == 2


def test_on_a_full_disk_the_file_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path)
    first, second = keys(store, is_measuring=False)[:2]
    save(store, first)
    before = store.train_path.read_bytes()

    def fail(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(annotation_store.os, "fsync", fail)
        with pytest.raises(OSError, match=r"No space left on device.*train\.jsonl"):
            save(store, second)

    assert store.train_path.read_bytes() == before
    assert [*store.answers] == [first]
    save(store, second)  # there is space again
    assert len(entities(store.train_path)) == 2


def test_an_answer_is_flushed_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path)
    flushed: list[bytes] = []

    def note(handle: int) -> None:
        """Note what the file holds when it is flushed: the whole line of the answer."""
        flushed.append(store.train_path.read_bytes())

    monkeypatch.setattr(annotation_store.os, "fsync", note)
    save(store, keys(store, is_measuring=False)[0], PERSON)
    assert flushed == [store.train_path.read_bytes()] and flushed[0].endswith(b"\n")


def test_a_share_of_unknown_texts_measures_by_their_digest() -> None:
    """The share is a tenth: 500 of 5,000 texts. The limits are 3.3 standard deviations away, of
    sqrt(5000 * 0.1 * 0.9) = 21 each. The same texts are drawn each time."""
    drawn = [is_drawn(f"text {i}") for i in range(5000)]
    assert 430 < sum(drawn) < 570
    assert drawn == [is_drawn(f"text {i}") for i in range(5000)]


def test_history_and_settings_are_kept(tmp_path: Path) -> None:
    """A line of the history that a crash has cut off is left out."""
    store = AnnotationStore(tmp_path)
    store.save_settings({"labels": ["PER"], "lang": "en"})
    store.add_to_history({"f": 0.5})
    store.add_to_history({"f": None})
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"f"')
    again = AnnotationStore(tmp_path)
    assert again.settings == {"labels": ["PER"], "lang": "en"}
    assert again.history == [{"f": 0.5}, {"f": None}]
    assert json.loads((tmp_path / "settings.json").read_text("utf8")) == again.settings
