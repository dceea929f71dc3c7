"""The folder of an annotation session: its texts, and what was answered to them.

settings.json            the labels and the language
texts.jsonl              all texts, each addition in random order; which of them measure
annotated/train.jsonl    answers to texts to train on, in Prodigy's form: a corpus
annotated/measure.jsonl  answers to texts that measure: a corpus, too
history.jsonl            the scores of each training

A text that measures is drawn before anything else, and the session trains no model on it that it
measures. An answer is in its file when `save` returns: a new one is appended and flushed, a change
writes the file beside, and renames it. A line that was cut off by a crash was never acknowledged,
and is removed at the start.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from ..readers import Task, read_tasks, task_to_json
from ..saving import save_file, save_text
from .drawing import OF_LABEL_STUDIO, SERVE, Measuring
from .suggestions import without_space

MEASURING_SHARE = 10
"""One text of so many measures."""

MIN_MEASURING = 30
"""At least so many texts measure, but no more than half of all."""

MEASURE_FILE = Path("annotated", "measure.jsonl")
TEXTS_FILE = Path("texts.jsonl")
"""The answers to texts that measure, and all texts, in the folder of a session."""

ACCEPTED = "accept"
LEFT_OUT = "ignore"
"""The answers to a text, as Prodigy calls them."""


@dataclass(frozen=True)
class StoredText:
    """A text of the session."""

    key: str
    text: str
    is_measuring: bool
    addition_number: int = 0  # the number of the call of `add_texts` that added it, from 0


class Answer(NamedTuple):
    """What was answered to a text."""

    key: str
    task: Task  # with its spans, and "answer" among its other keys
    is_measuring: bool
    version: int  # the number of this answer to the text; an answer read from a file has 1

    @property
    def is_left_out(self) -> bool:
        """Whether the text was left out, and has no annotation."""
        return bool(self.task.extra.get("answer") == LEFT_OUT)

    @property
    def meta(self) -> Mapping[str, Any]:
        """The metadata of the answer."""
        meta: Mapping[str, Any] = self.task.extra["meta"]
        return meta


class AnnotationStore:
    """The texts and answers of a session, in memory and in its folder.

    folder (Path): The folder. It is made if it isn't there.
    RAISES (ValueError): If a file in it can't be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.train_path = folder / "annotated" / "train.jsonl"
        self.measure_path = folder / MEASURE_FILE
        self.train_path.parent.mkdir(parents=True, exist_ok=True)
        self._texts_path = folder / TEXTS_FILE
        self._settings_path = folder / "settings.json"
        self._history_path = folder / "history.jsonl"
        self.texts: dict[str, StoredText] = {}
        for record in read_lines(self._texts_path):
            stored = StoredText(
                key=record["key"],
                text=record["text"],
                is_measuring=record["measures"],
                addition_number=record.get("addition", 0),
            )
            self.texts[stored.key] = stored
        # How many texts each call of `add_texts` added, by the number of the call.
        self.n_texts_of_addition = Counter(stored.addition_number for stored in self.texts.values())
        self.answers: dict[str, Answer] = {}
        # How many answers each text has had: one if the files have one, and those of this process.
        # Answers that were removed count, too, so that no version comes twice.
        self._n_answers: Counter[str] = Counter()
        for path in (self.train_path, self.measure_path):
            is_measuring = path == self.measure_path
            remove_cut_line(path)
            # `read_tasks` refuses an empty file. There is one if the last answer was removed.
            if path.exists() and path.stat().st_size:
                for _, task in read_tasks(path):
                    key = task.extra["meta"]["key"]
                    self._n_answers[key] = 1
                    self.answers[key] = Answer(key, task, is_measuring, version=1)
        remove_cut_line(self._history_path)
        self.history: list[dict[str, Any]] = list(read_lines(self._history_path))

    @property
    def settings(self) -> dict[str, Any]:
        """What was saved by `save_settings`; empty in a new folder."""
        if not self._settings_path.exists():
            return {}
        settings: dict[str, Any] = json.loads(self._settings_path.read_text(encoding="utf8"))
        return settings

    def save_settings(self, settings: dict[str, Any]) -> None:
        """Save settings of the session, in place of those before."""
        save_text(self._settings_path, json.dumps(settings, ensure_ascii=False, indent=2) + "\n")

    def add_texts(self, texts: Iterable[str], *, seed: int = 0) -> int:
        """Add texts, in random order, and draw those that measure. Texts that are there already,
        but for white space, are left out.

        texts (Iterable[str]): The texts.
        seed (int): Seed of the order, and so of what is drawn.
        RETURNS (int): How many were added.
        """
        known_texts = {without_space(stored.text) for stored in self.texts.values()}
        known_texts.add("")  # a text of white space alone is left out, too
        new_texts: list[str] = []
        for text in texts:
            bare_text = without_space(text)
            if bare_text not in known_texts:
                known_texts.add(bare_text)
                new_texts.append(text)
        if not new_texts:
            return 0
        n_measuring = count_measuring(len(new_texts), is_first=not self.texts)
        first_text_number = len(self.texts)
        addition_number = len(self.n_texts_of_addition)
        # The seed has the number, too, so that each addition has another order.
        order = numpy.random.default_rng([seed, first_text_number]).permutation(len(new_texts))
        # The order is random, so that the first are a random sample.
        for rank, i in enumerate(order.tolist()):
            key = f"text-{first_text_number + i}"
            is_measuring = rank < n_measuring
            self.texts[key] = StoredText(key, new_texts[i], is_measuring, addition_number)
        self.n_texts_of_addition[addition_number] = len(new_texts)
        self._save_texts()
        return len(new_texts)

    def _save_texts(self) -> None:
        """Save all texts."""
        lines: list[str] = []
        for stored in self.texts.values():
            record = {
                "key": stored.key,
                "text": stored.text,
                "measures": stored.is_measuring,
                "addition": stored.addition_number,
            }
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
        save_text(self._texts_path, "".join(lines))

    def save(
        self,
        key: str,
        task: Task,
        *,
        is_measuring: bool,
        is_left_out: bool,
        meta: Mapping[str, Any] = {},
    ) -> Answer:
        """Save the answer to a text. It is in the file when this returns.

        key (str): The key of the text.
        task (Task): The text and its spans.
        is_measuring (bool): Whether the text measures. If the text already has an answer, this has
            to be the same, so that the old answer is replaced in its file.
        is_left_out (bool): Whether the text is left out. It has no annotation then.
        meta (Mapping[str, Any]): Other metadata of the answer.
        RETURNS (Answer): The answer, with its version.
        RAISES (OSError): If it can't be written. The files then are as before.
        """
        meta = {**meta, "key": key}
        if is_measuring:
            addition_number = OF_LABEL_STUDIO
            if key in self.texts:
                addition_number = self.texts[key].addition_number
            n_texts = self.n_texts_of_addition[addition_number]  # 0 for `OF_LABEL_STUDIO`
            drawing = Measuring(drawn_by=SERVE, addition=addition_number, added=n_texts)
            meta = {**meta, **drawing.to_dict()}
        extra = {"answer": LEFT_OUT if is_left_out else ACCEPTED, "meta": meta}
        task = Task(task.text, [] if is_left_out else task.spans, extra=extra)
        answer = Answer(key, task, is_measuring, version=self._n_answers[key] + 1)
        if key in self.answers:
            # A change: the answer keeps its place in the file.
            self._rewrite({**self.answers, key: answer}, self._path_of(answer))
        else:
            append_line(self._path_of(answer), task_to_line(task))
        self.answers[key] = answer
        self._n_answers[key] = answer.version
        return answer

    def remove(self, key: str) -> bool:
        """Remove the answer to a text. Returns whether there was one."""
        answer = self.answers.get(key)
        if answer is None:
            return False
        others = {other: self.answers[other] for other in self.answers if other != key}
        self._rewrite(others, self._path_of(answer))
        del self.answers[key]
        return True

    def _path_of(self, answer: Answer) -> Path:
        """The file of an answer."""
        return self.measure_path if answer.is_measuring else self.train_path

    def _rewrite(self, answers: dict[str, Answer], path: Path) -> None:
        """Write a file of answers anew. Of the given answers it gets those that belong in it."""
        lines: list[bytes] = []
        for answer in answers.values():
            if self._path_of(answer) == path:
                lines.append(task_to_line(answer.task))
        content = b"".join(lines)
        # `save_file` calls the function with the path of a new file, and then renames that file.
        save_file(path, lambda new_path: new_path.write_bytes(content))

    def add_to_history(self, record: dict[str, Any]) -> None:
        """Keep the scores of a training."""
        append_line(self._history_path, f"{json.dumps(record)}\n".encode())
        self.history.append(record)

    def accepted(self, *, is_measuring: bool) -> list[Answer]:
        """The answers with annotation, of texts that measure or of the others."""
        return [
            answer
            for answer in self.answers.values()
            if answer.is_measuring == is_measuring and not answer.is_left_out
        ]


def count_measuring(n_texts: int, *, is_first: bool) -> int:
    """How many of new texts measure: a tenth, and of the first texts at least `MIN_MEASURING`, but
    no more than half."""
    share = round(n_texts / MEASURING_SHARE)
    if not is_first:
        return share
    return min(max(share, MIN_MEASURING), n_texts // 2)


def is_drawn(text: str) -> bool:
    """Whether a text measures that is in no session until it is answered, as in Label Studio. Its
    digest decides that, which is as good as random and is the same each time."""
    digest = sha256(text.encode("utf8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") % MEASURING_SHARE == 0


def task_to_line(task: Task) -> bytes:
    """A task as a line of JSONL."""
    return f"{json.dumps(task_to_json(task), ensure_ascii=False)}\n".encode()


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file and flush it to the disk. If that fails, for example as the disk is
    full, the file is as before."""
    with path.open("ab", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            rest = memoryview(line)
            while rest:  # a write may take a part only
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError as error:
            os.ftruncate(file.fileno(), size)
            error.filename = str(path)  # The message names the file.
            raise


def remove_cut_line(path: Path) -> None:
    """Remove the end of a file after its last line end: what a crash has cut off."""
    if not path.exists():
        return
    data = path.read_bytes()
    n_whole_bytes = data.rfind(b"\n") + 1  # those of whole lines
    if n_whole_bytes < len(data):
        os.truncate(path, n_whole_bytes)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read the objects of a JSONL file of ours; none if there is no file."""
    if not path.exists():
        return
    with path.open(encoding="utf8") as file:
        for line in file:
            yield json.loads(line)
