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

from spacy_costner.readers import CorpusError, CorpusInfo, Task, TaskSpan, read_docs
from spacy_costner.serve import answer_file
from spacy_costner.serve.answer_file import is_cut_off
from spacy_costner.serve.store import AnnotationStore, count_evaluation_texts, is_drawn

from ..support.annotation import make_texts

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
        is_evaluation=stored.is_evaluation,
        is_left_out=is_left_out,
    )
    return answer.version


def make_store(folder: Path, n: int = 40) -> AnnotationStore:
    store = AnnotationStore(folder)
    store.add_texts(make_texts(n))
    return store


def keys(store: AnnotationStore, *, is_evaluation: bool) -> list[str]:
    """Keys of the evaluation texts, or of the others."""
    return [text.key for text in store.texts.values() if text.is_evaluation == is_evaluation]


def entities(path: Path) -> list[list[tuple[str, str]]]:
    """The entities of each doc of a corpus."""
    docs = read_docs(NLP, path, info=CorpusInfo())
    return [[(ent.text, ent.label_) for ent in doc.ents] for doc in docs]


@pytest.mark.parametrize(
    ("n_texts", "is_first", "expected"),
    [
        (1000, True, 100),
        (100, True, 30),  # at least 30
        (40, True, 20),  # but at most half
        (1, True, 0),  # half of it, rounded down
        (1000, False, 100),
        (40, False, 4),  # texts that are added later: a tenth, however few
    ],
)
def test_a_tenth_of_the_texts_and_at_least_30_of_the_first_are_for_evaluation(
    n_texts: int, is_first: bool, expected: int
) -> None:
    assert count_evaluation_texts(n_texts, is_first=is_first) == expected


def test_evaluation_texts_are_drawn_once_and_stay(tmp_path: Path) -> None:
    """Of the texts that are added again, only one is new: "Another text". Whitespace makes no other
    text, and alone it is none."""
    store = make_store(tmp_path, 100)
    drawn = keys(store, is_evaluation=True)
    assert len(drawn) == 30
    # At random, and not the first ones
    assert sorted(drawn) != sorted(f"text-{i}" for i in range(30))

    again = AnnotationStore(tmp_path)
    assert again.texts == store.texts
    n_added = again.add_texts([*make_texts(100), " Another   text", "Another text", " "])

    assert n_added == 1
    assert keys(again, is_evaluation=True) == drawn


def test_answers_to_training_and_evaluation_texts_are_two_corpora(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    to_train = keys(store, is_evaluation=False)[0]
    to_measure = keys(store, is_evaluation=True)[0]

    save(store, to_train, PERSON)
    save(store, to_measure)

    assert entities(store.train_path) == [[(store.texts[to_train].text[10:13], "PER")]]
    assert entities(store.measure_path) == [[]]
    assert len(entities(tmp_path / "annotated")) == 2
    answers = AnnotationStore(tmp_path).answers
    assert answers[to_train].task.spans == store.answers[to_train].task.spans
    assert answers[to_measure].is_evaluation


def test_a_changed_answer_replaces_the_old_one_in_its_place(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    first, second = keys(store, is_evaluation=False)[:2]
    save(store, first, PERSON)
    save(store, second)

    version = save(store, first, PERSON._replace(label="LOC"))

    assert version == 2
    assert [[label for _, label in doc] for doc in entities(store.train_path)] == [["LOC"], []]


def test_a_text_that_is_left_out_is_in_no_corpus(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    key = keys(store, is_evaluation=False)[0]
    save(store, key, PERSON, is_left_out=True)
    assert entities(store.train_path) == []
    assert AnnotationStore(tmp_path).answers[key].is_left_out
    assert not store.accepted(is_evaluation=False)


def test_an_answer_after_a_removed_one_is_another_version(tmp_path: Path) -> None:
    """So a page that still shows the removed answer knows that it was replaced."""
    store = make_store(tmp_path)
    key = keys(store, is_evaluation=False)[0]
    assert save(store, key, PERSON) == 1
    store.remove(key)
    assert save(store, key) == 2


def test_a_removed_answer_is_in_no_file(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    first, second = keys(store, is_evaluation=False)[:2]
    save(store, first, PERSON)
    save(store, second)
    assert store.remove(first) and not store.remove(first)
    assert [*AnnotationStore(tmp_path).answers] == [second]


@given(n_bytes=st.integers(min_value=1, max_value=100))
def test_a_line_that_a_crash_has_cut_off_is_removed(n_bytes: int, tmp_path_factory: Any) -> None:
    """The last answer was never acknowledged. All others are read."""
    store = make_store(tmp_path_factory.mktemp("session"))
    first, second = keys(store, is_evaluation=False)[:2]
    save(store, first, PERSON)
    size = store.train_path.stat().st_size
    save(store, second, PERSON)
    os.truncate(store.train_path, size + n_bytes)

    with pytest.warns(UserWarning, match=r"train\.jsonl: the last line is cut off and is removed"):
        again = AnnotationStore(store.folder)

    assert [*again.answers] == [first]
    save(again, second)
    assert len(entities(store.train_path)) == 2


@pytest.mark.parametrize(
    ("line", "is_cut"),
    [
        (b'{"text": "Ana"}', False),  # An editor has written no line end.
        (b'\xef\xbb\xbf{"text": "Ana"}\r', False),
        (b'{"text": "Ana"}\r{"text": "Bo"}', False),  # lines of an old Macintosh
        (b'{"text": "Andr\xe9"}', False),  # in another encoding
        (b"", False),
        (b'{"text": "Ana"', True),
        (b'{"text": "Ana", "spans": [{"start": 0}', True),
        ('{"text": "Andr\u00e9"'.encode()[:-2], True),  # within a character
        (b"\0\0\0", True),  # a file system may write these after a power failure
        (b'{"text": "An\0\0\0', True),
        (b'{"text": "Ana", "spans": []]', False),  # mistakes of people
        (b'{"text": "Ana" "spans": []}', False),
        (b'{"text": "Ana", "spans": [],}', False),
        (b'{"text": "Ana, "spans": []}', False),
        (b'{"text": "Ana", "meta": {"key": "text-7}}', False),
        (b"{'text': 'Ana'}", False),
        (b'{"text": "C:\\data"}', False),
        (b'{"text": "\\u12"}', False),
        (b'{"text": "Ana", "label": truth}', False),
        (b'{"text": "Ana", "score": 0.5.}', False),
        (b"Ana", False),
    ],
)
def test_only_a_line_that_is_not_json_is_removed_as_cut_off(line: bytes, is_cut: bool) -> None:
    assert is_cut_off(line) is is_cut


CUT_LINE = (
    '{"text": "C\\u00e9, \\ud83d\\ude00", "x": [true, false, null, -1.5e-07], "y": {"z": []}}'
)


@pytest.mark.parametrize("n_characters", range(1, len(CUT_LINE)))
def test_each_beginning_of_a_line_is_cut_off(n_characters: int) -> None:
    assert json.loads(CUT_LINE)
    assert is_cut_off(CUT_LINE[:n_characters].encode())
    assert not is_cut_off(CUT_LINE.encode())


def test_a_last_line_with_a_mistake_is_named_and_stays(tmp_path: Path) -> None:
    """An editor may write the last line without an end. It is no answer that was cut off."""
    store = make_store(tmp_path)
    save(store, keys(store, is_evaluation=False)[0], PERSON)
    with store.train_path.open("ab") as file:
        file.write(b'{"text": "Ana left" "spans": []}')
    content = store.train_path.read_bytes()
    with pytest.raises(CorpusError, match=r"train\.jsonl, line 2: expected JSON"):
        AnnotationStore(tmp_path)
    assert store.train_path.read_bytes() == content


def test_an_answer_without_a_line_end_is_an_answer(tmp_path: Path) -> None:
    """An editor may write the last line without an end."""
    store = make_store(tmp_path)
    first, second, third = keys(store, is_evaluation=False)[:3]
    save(store, first, PERSON)
    save(store, second, PERSON)
    content = store.train_path.read_bytes().removesuffix(b"\n")
    store.train_path.write_bytes(content)

    again = AnnotationStore(tmp_path)

    assert [*again.answers] == [first, second]
    assert store.train_path.read_bytes() == content
    save(again, third, PERSON)
    assert len(entities(store.train_path)) == 3
    assert [*AnnotationStore(tmp_path).answers] == [first, second, third]


OTHERS = {
    "no metadata": b'{"text":"Ana left","spans":[]}\n',
    "no key": '{"text": "Andr\u00e9",  "spans": [], "meta": {"source": 1}}\r\n'.encode(),
    "a list as metadata": b'{"text": "Ana", "meta": ["key"]}\n',
    "a number as key": b'{"text": "Ana", "meta": {"key": 7}}\n',
    "a list as key": b'{"text": "Ana", "meta": {"key": ["text-0"]}}\n',
    "a pair of spaCy 2": b'["Ana left", {"entities": [[0, 3, "PER"]]}]\n',
}
"""Lines of people in a file of answers."""


@pytest.mark.parametrize("case", OTHERS)
def test_lines_of_others_stay_where_they_are(case: str, tmp_path: Path) -> None:
    """The line is there before the session is opened, and added again while it is open, once also
    without a line end. Then an answer is changed, one is added, and one removed."""
    line = OTHERS[case]
    store = make_store(tmp_path)
    first, second, third = keys(store, is_evaluation=False)[:3]
    save(store, first, PERSON)
    save(store, second, PERSON)
    answers = store.train_path.read_bytes().splitlines(keepends=True)
    store.train_path.write_bytes(line + answers[0] + line + answers[1])

    again = AnnotationStore(tmp_path)
    assert [*again.answers] == [first, second]
    with store.train_path.open("ab") as file:
        file.write(line.rstrip())
    save(again, third)
    save(again, first)
    again.remove(second)

    content = store.train_path.read_bytes()
    lines = content.splitlines(keepends=True)
    # The answers that the session has written are the second line and the last.
    assert lines[0] == line and lines[2] == line and lines[3].strip() == line.strip()
    assert [line for line in lines if b'"meta": {"key": "text-' in line] == [lines[1], lines[-1]]
    assert [*AnnotationStore(tmp_path).answers] == [first, third]


def test_a_line_without_a_task_that_is_added_later_stays(tmp_path: Path) -> None:
    """The next start names it."""
    store = make_store(tmp_path)
    first, second = keys(store, is_evaluation=False)[:2]
    save(store, first, PERSON)
    with store.train_path.open("ab") as file:
        file.write(b'{"text": "half')
    save(store, second)
    save(store, first)
    assert store.train_path.read_bytes().splitlines()[1] == b'{"text": "half'
    with pytest.raises(CorpusError, match=r"train\.jsonl, line 2: expected JSON"):
        AnnotationStore(tmp_path)


def test_an_answer_that_was_edited_while_the_session_is_open_stays_so(tmp_path: Path) -> None:
    """Another answer is changed by the session."""
    store = make_store(tmp_path)
    first, second = keys(store, is_evaluation=False)[:2]
    save(store, first, PERSON)
    save(store, second, PERSON)
    edited = store.train_path.read_bytes().replace(b"PER", b"LOC", 1)
    store.train_path.write_bytes(edited)
    save(store, second)
    assert [[label for _, label in doc] for doc in entities(store.train_path)] == [["LOC"], []]


def test_an_answer_whose_line_somebody_has_removed_can_be_changed(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    key = keys(store, is_evaluation=False)[0]
    save(store, key, PERSON)
    store.train_path.write_bytes(b"\n")
    assert not AnnotationStore(tmp_path).answers  # a file with whitespace alone is no error
    save(store, key, PERSON)
    assert [*AnnotationStore(tmp_path).answers] == [key]


def test_an_answer_that_somebody_has_moved_stays_in_its_file(tmp_path: Path) -> None:
    """It is in the file of evaluation texts now, but wasn't drawn, which `estimate` has to know."""
    store = make_store(tmp_path)
    key = keys(store, is_evaluation=False)[0]
    save(store, key, PERSON)
    store.train_path.rename(store.measure_path)
    again = AnnotationStore(tmp_path)
    assert again.answers[key].is_evaluation
    again.save(key, Task(store.texts[key].text, []), is_evaluation=True, is_left_out=False)
    assert b"drawn_by" not in store.measure_path.read_bytes()
    assert not store.train_path.exists()


def test_a_new_text_never_has_the_key_of_a_removed_one(tmp_path: Path) -> None:
    """The last text was removed from the file of texts, and its answer was not."""
    store = make_store(tmp_path)
    save(store, "text-39")
    lines = (tmp_path / "texts.jsonl").read_text("utf8").splitlines(keepends=True)
    kept = [line for line in lines if '"text-39"' not in line and '"text-3"' not in line]
    (tmp_path / "texts.jsonl").write_text("".join(kept), "utf8")
    again = AnnotationStore(tmp_path)
    again.add_texts(["Another text"])
    assert len(again.texts) == 39
    assert again.texts["text-40"].text == "Another text"


BAD_FILES = {
    "texts in Latin-1": ("texts.jsonl", b'{"key": "a", "text": "Andr\xe9"}\n', "line 1: expected"),
    "a text without a key": ("texts.jsonl", b'{"text": "Ana"}\n', "line 1: text|key: expected"),
    "a text that is a number": (
        "texts.jsonl",
        b'{"key": "a", "text": 1, "measures": true}\n',
        "line 1: text: expected str, got 1",
    ),
    "half of a surrogate pair": (
        "texts.jsonl",
        b'{"key": "a", "text": "\\ud800", "measures": true}\n',
        "line 1: text: expected text that can be encoded in UTF-8",
    ),
    "texts in a list": ("texts.jsonl", b'["a"]\n', "line 1: expected a JSON object, got"),
    "an answer in Latin-1": (
        "annotated/train.jsonl",
        b'{"text": "Andr\xe9", "spans": []}',
        "line 1: expected UTF-8 text, got the byte 0xe9",
    ),
    "no task": ("annotated/measure.jsonl", b"[1]\n", "line 1: expected a text and its spans"),
    "scores in UTF-16": ("history.jsonl", "{}".encode("utf-16"), "expected UTF-8 text"),
    "scores that are a number": ("history.jsonl", b"7\n", "line 1: expected a JSON object"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_file_that_cannot_be_read_is_named(case: str, tmp_path: Path) -> None:
    """Nothing in it is changed."""
    name, content, message = BAD_FILES[case]
    AnnotationStore(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=rf"{name}, .*{message}"):
        AnnotationStore(tmp_path)
    assert (tmp_path / name).read_bytes() == content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"labels": "PER"}', "labels: expected list, got 'PER'"),
        (b'{"labels": [1]}', "labels: expected text, got 1"),
        (b'{"labels": ["\\ud800"]}', "labels: expected text, got"),
        (b'{"lang": 7}', "lang: expected str, got 7"),
        (b'{"labels": ["\xe9"]}', "expected UTF-8 text"),
        (b"{", "expected JSON"),
    ],
)
def test_settings_that_cannot_be_read_are_named(
    content: bytes, message: str, tmp_path: Path
) -> None:
    store = AnnotationStore(tmp_path)
    (tmp_path / "settings.json").write_bytes(content)
    with pytest.raises(CorpusError, match=rf"settings\.json, line 1: {message}"):
        _ = store.settings


def test_texts_that_cannot_be_utf_8_are_refused_and_none_is_added(tmp_path: Path) -> None:
    store = AnnotationStore(tmp_path)
    with pytest.raises(ValueError, match="texts: expected text that can be encoded in UTF-8"):
        store.add_texts(["Ana left", "\ud800"])
    assert not store.texts and not (tmp_path / "texts.jsonl").exists()


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    """A temporary folder, and files and folders that it was saving. No process has a
    lock on them any more."""
    store = make_store(tmp_path)
    key = keys(store, is_evaluation=False)[0]
    save(store, key, PERSON)
    with store.working_folder() as folder:
        assert folder.parent == tmp_path
    assert not folder.exists()
    before = {path for path in tmp_path.rglob("*")}
    for name in (".working-x7", ".model.0123abcd.saving"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.jsonl").write_text("secret")
    for name in (".texts.jsonl.0123abcd.saving", "annotated/.train.jsonl.0123abcd.saving"):
        (tmp_path / name).write_text("secret")

    AnnotationStore(tmp_path).clear_leftovers("model")

    assert {path for path in tmp_path.rglob("*")} == before


def test_on_a_full_disk_the_file_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path)
    first, second = keys(store, is_evaluation=False)[:2]
    save(store, first)
    before = store.train_path.read_bytes()

    def fail(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(answer_file.os, "fsync", fail)
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

    monkeypatch.setattr(answer_file.os, "fsync", note)
    save(store, keys(store, is_evaluation=False)[0], PERSON)
    assert flushed == [store.train_path.read_bytes()] and flushed[0].endswith(b"\n")


def test_a_share_of_unknown_texts_is_drawn_for_evaluation_by_their_digest() -> None:
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
    with pytest.warns(UserWarning, match=r"""history\.jsonl: the last line .* removed: '{"f"'"""):
        again = AnnotationStore(tmp_path)
    assert again.settings == {"labels": ["PER"], "lang": "en"}
    assert again.history == [{"f": 0.5}, {"f": None}]
    assert json.loads((tmp_path / "settings.json").read_text("utf8")) == again.settings
