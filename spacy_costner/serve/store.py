"""The folder of an annotation session: its texts and their answers.

settings.json            the labels and the language
texts.jsonl              all texts, each addition in random order, with the evaluation texts marked
annotated/train.jsonl    answers to training texts, in Prodigy's form: a corpus
annotated/measure.jsonl  answers to evaluation texts: a corpus, too
history.jsonl            the scores after each training

Evaluation texts are drawn when texts are added, before any of these is annotated. No model is
trained on the texts that it is evaluated on. An answer is in its file when `save` returns: a new
answer is appended and flushed, a changed answer rewrites the file (see `answer_file`). A line that
was cut off by a crash was never acknowledged, and is removed at the next start.
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from ..files.saving import clear, save_text
from ..readers import Task
from ..readers.files import SURROGATE, FilePlace, Values, encodable, read_values, shown
from ..workflows.sampling.drawing import OF_LABEL_STUDIO, SERVE, SessionDrawing
from ..workflows.sampling.suggestions import without_space
from .answer_file import AnswerFile, append_line, is_blank, remove_cut_line

TEXTS_PER_EVALUATION_TEXT = 10
"""One in this number of texts is an evaluation text."""

MIN_EVALUATION_TEXTS = 30
"""The minimum number of evaluation texts, if it is at most half of all texts."""

TRAIN_FILE = Path("annotated", "train.jsonl")
MEASURE_FILE = Path("annotated", "measure.jsonl")
TEXTS_FILE = Path("texts.jsonl")
SETTINGS_FILE = Path("settings.json")
HISTORY_FILE = Path("history.jsonl")
"""The files in the folder of a session."""

WORKING = ".working-"
"""The beginning of the names of temporary folders in the folder of a session."""

TEXT_KEY = "text-"
"""The beginning of the key of a text. Its number follows."""

ACCEPTED = "accept"
LEFT_OUT = "ignore"
"""The values of "answer" in Prodigy's form: annotated, or left out."""


class SessionError(ValueError):
    """A request that can't be fulfilled. The message says what was expected."""


def field(record: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """Get a value of a JSON object, in a request or in a file of the session.

    record (Mapping[str, Any]): The object.
    name (str): The key of the value.
    kind (type): The type that the value must have.
    default (Any): The value if the object doesn't have the key.
    RETURNS (Any): The value.
    RAISES (SessionError): If the value has another type, is missing without a default, or is text
        that can't be UTF-8.
    """
    value = record.get(name, default)
    # `type`, as JSON's true is an instance of int, too.
    if type(value) is not kind:
        raise SessionError(f"{name}: expected {kind.__name__}, got {shown(value)}")
    if isinstance(value, str) and SURROGATE.search(value):
        raise SessionError(
            f"{name}: expected text that can be encoded in UTF-8, got {shown(value)}"
        )
    return value


@dataclass(frozen=True)
class StoredText:
    """A text of the session.

    key (str): The key of the text, such as "text-7".
    text (str): The text.
    is_evaluation (bool): Whether it is an evaluation text.
    addition_number (int): The number of the call of `add_texts` that added the text, from 0.
    """

    key: str
    text: str
    is_evaluation: bool
    addition_number: int = 0


class Answer(NamedTuple):
    """The answer to a text.

    key (str): The key of the text.
    task (Task): The text with its spans, and "answer" and "meta" among the other keys.
    is_evaluation (bool): Whether it is the answer to an evaluation text.
    version (int): The number of this answer among the answers to the text, from 1. An answer that
        was read from a file has 1.
    """

    key: str
    task: Task
    is_evaluation: bool
    version: int

    @property
    def is_left_out(self) -> bool:
        """Whether the text was left out and has no annotation."""
        return bool(self.task.extra.get("answer") == LEFT_OUT)

    @property
    def meta(self) -> Mapping[str, Any]:
        """The metadata of the answer."""
        meta: Mapping[str, Any] = self.task.extra["meta"]
        return meta


class AnnotationStore:
    """The texts and answers of a session, in memory and in its folder.

    folder (Path): The folder. It is made if it is missing.
    RAISES (ValueError): If a file in the folder can't be read, or the name of the folder can't be
        UTF-8: configs of pipelines have the paths of the files in it.
    """

    def __init__(self, folder: Path) -> None:
        if SURROGATE.search(str(folder)):
            raise ValueError(
                f"{encodable(folder)}: expected a folder with a name that can be encoded in UTF-8"
            )
        self.folder = folder
        self.train_path = folder / TRAIN_FILE
        self.measure_path = folder / MEASURE_FILE
        self.train_path.parent.mkdir(parents=True, exist_ok=True)
        self._texts_path = folder / TEXTS_FILE
        self._settings_path = folder / SETTINGS_FILE
        self._history_path = folder / HISTORY_FILE
        self._train_file = AnswerFile(self.train_path)
        self._measure_file = AnswerFile(self.measure_path)
        self.texts: dict[str, StoredText] = {}
        for place, record in read_objects(self._texts_path):
            stored = stored_text(record, place)
            self.texts[stored.key] = stored
        # The number of texts that each call of `add_texts` added, by the index of the call
        self.n_texts_of_addition = Counter(stored.addition_number for stored in self.texts.values())
        self.answers: dict[str, Answer] = {}
        # How many annotated texts in the files are not answers of this session: people have added
        # them.
        self.n_others = 0
        # How many answers each text has had: one if a file has one, plus the answers of this
        # process. Removed answers count, too, so that no version number is used twice.
        self._n_answers: Counter[str] = Counter()
        for is_evaluation in (False, True):
            for key, task in self._file_of(is_evaluation).read():
                if key is None:
                    self.n_others += 1
                    continue
                self._n_answers[key] = 1
                self.answers[key] = Answer(key, task, is_evaluation, version=1)
        remove_cut_line(self._history_path)
        self.history: list[dict[str, Any]] = []
        for _, record in read_objects(self._history_path):
            self.history.append(record)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that `save_settings` saved, labels and language. Empty in a new folder.

        RAISES (CorpusError): If the file can't be read.
        """
        settings: dict[str, Any] = {}
        for place, record in read_objects(self._settings_path):
            labels = read_field(record, "labels", list, place, [])
            for label in labels:
                if not isinstance(label, str) or SURROGATE.search(label):
                    raise place.refuse(f"labels: expected text, got {shown(label)}")
            read_field(record, "lang", str, place, "")
            settings = record
        return settings

    def save_settings(self, settings: dict[str, Any]) -> None:
        """Save the settings of the session, instead of the previous settings."""
        save_text(self._settings_path, json.dumps(settings, ensure_ascii=False, indent=2) + "\n")

    def add_texts(self, texts: Iterable[str], *, seed: int = 0) -> int:
        """Add texts in random order, and draw evaluation texts among them. A text is left out if it
        equals an earlier text or differs from it only in whitespace.

        texts (Iterable[str]): The texts.
        seed (int): Random seed of the order, and so of the evaluation texts.
        RETURNS (int): The number of texts that were added.
        RAISES (ValueError): If a text can't be UTF-8. No text is added then.
        """
        known_texts = {without_space(stored.text) for stored in self.texts.values()}
        known_texts.add("")  # a text of whitespace alone is left out, too
        new_texts: list[str] = []
        for text in texts:
            if SURROGATE.search(text):
                raise ValueError(
                    f"texts: expected text that can be encoded in UTF-8, got {shown(text)}"
                )
            bare_text = without_space(text)
            if bare_text not in known_texts:
                known_texts.add(bare_text)
                new_texts.append(text)
        if not new_texts:
            return 0
        n_evaluation = count_evaluation_texts(len(new_texts), is_first=not self.texts)
        first_text_number = self._next_text_number()
        addition_number = max(self.n_texts_of_addition, default=-1) + 1
        # The seed includes the number, so that each addition has another order.
        order = numpy.random.default_rng([seed, first_text_number]).permutation(len(new_texts))
        # The order is random, so the first texts are a random sample.
        for rank, i in enumerate(order.tolist()):
            key = f"{TEXT_KEY}{first_text_number + i}"
            is_evaluation = rank < n_evaluation
            self.texts[key] = StoredText(key, new_texts[i], is_evaluation, addition_number)
        self.n_texts_of_addition[addition_number] = len(new_texts)
        self._save_texts()
        return len(new_texts)

    def _next_text_number(self) -> int:
        """The lowest number above the numbers of all texts, including removed texts that still have
        an answer."""
        next_number = 0
        for key in (*self.texts, *self.answers):
            digits = key.removeprefix(TEXT_KEY)
            if key.startswith(TEXT_KEY) and digits.isdecimal():
                next_number = max(next_number, int(digits) + 1)
        return next_number

    def _save_texts(self) -> None:
        """Save all texts."""
        lines: list[str] = []
        for stored in self.texts.values():
            record = {
                "key": stored.key,
                "text": stored.text,
                "measures": stored.is_evaluation,
                "addition": stored.addition_number,
            }
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
        save_text(self._texts_path, "".join(lines))

    def save(
        self,
        key: str,
        task: Task,
        *,
        is_evaluation: bool,
        is_left_out: bool,
        meta: Mapping[str, Any] = {},
    ) -> Answer:
        """Save the answer to a text. It is in the file when this returns.

        key (str): The key of the text.
        task (Task): The text and its spans.
        is_evaluation (bool): Whether it is an evaluation text. If the text already has an answer,
            the value has to be the same as before, so that the answer is replaced in its file.
        is_left_out (bool): Whether the text is left out. It has no annotation then.
        meta (Mapping[str, Any]): Other metadata of the answer.
        RETURNS (Answer): The answer, with its version.
        RAISES (ValueError): If the answer has a value that JSON doesn't have, such as infinity.
        RAISES (OSError): If the answer can't be written. The files are unchanged then.
        """
        meta = {**meta, "key": key}
        if is_evaluation and self._was_drawn(key):
            addition_number = OF_LABEL_STUDIO
            if key in self.texts:
                addition_number = self.texts[key].addition_number
            n_texts = self.n_texts_of_addition[addition_number]  # 0 for `OF_LABEL_STUDIO`
            drawing = SessionDrawing(drawn_by=SERVE, addition=addition_number, added=n_texts)
            meta = {**meta, **drawing.to_dict()}
        extra = {"answer": LEFT_OUT if is_left_out else ACCEPTED, "meta": meta}
        task = Task(task.text, [] if is_left_out else task.spans, extra=extra)
        answer = Answer(key, task, is_evaluation, version=self._n_answers[key] + 1)
        if key in self.answers:
            # A changed answer keeps its place in the file.
            self._file_of(is_evaluation).replace(key, task)
        else:
            self._file_of(is_evaluation).append(task)
        self.answers[key] = answer
        self._n_answers[key] = answer.version
        return answer

    def remove(self, key: str) -> bool:
        """Remove the answer to a text. Returns whether there was one."""
        answer = self.answers.get(key)
        if answer is None:
            return False
        self._file_of(answer.is_evaluation).remove(key)
        del self.answers[key]
        return True

    def _file_of(self, is_evaluation: bool) -> AnswerFile:
        """The file of the answers to evaluation texts, or to training texts."""
        return self._measure_file if is_evaluation else self._train_file

    def _was_drawn(self, key: str) -> bool:
        """Whether an evaluation text was drawn at random. It wasn't if somebody has moved the
        answer to a training text to the file of evaluation texts."""
        return key not in self.texts or self.texts[key].is_evaluation

    def add_to_history(self, record: dict[str, Any]) -> None:
        """Add the scores of a training to the history."""
        append_line(self._history_path, f"{json.dumps(record)}\n".encode())
        self.history.append(record)

    @contextmanager
    def working_folder(self) -> Iterator[Path]:
        """Make a temporary folder for a `with` block. It is in the folder of the session, as the
        files in it contain the user's texts. If the process is killed, `clear_leftovers` removes
        the folder at the next start."""
        with tempfile.TemporaryDirectory(prefix=WORKING, dir=self.folder) as folder:
            yield Path(folder)

    def clear_leftovers(self, *others: str | Path) -> None:
        """Remove the temporary folders of a killed process, and the files that it was saving. No
        other process may use the folder meanwhile.

        *others (str | Path): The names of other files and folders that are saved in the folder: see
            `saving.clear`.
        """
        for path in self.folder.glob(f"{WORKING}*"):
            shutil.rmtree(path, ignore_errors=True)
        for name in (TEXTS_FILE, SETTINGS_FILE, TRAIN_FILE, MEASURE_FILE, *others):
            clear(self.folder / name)

    def accepted(self, *, is_evaluation: bool) -> list[Answer]:
        """The answers with annotation: to evaluation texts, or to training texts."""
        return [
            answer
            for answer in self.answers.values()
            if answer.is_evaluation == is_evaluation and not answer.is_left_out
        ]


def count_evaluation_texts(n_texts: int, *, is_first: bool) -> int:
    """The number of evaluation texts among new texts: a tenth. Among the first texts it is at least
    `MIN_EVALUATION_TEXTS`, but at most half of them."""
    share = round(n_texts / TEXTS_PER_EVALUATION_TEXT)
    if not is_first:
        return share
    return min(max(share, MIN_EVALUATION_TEXTS), n_texts // 2)


def is_drawn(text: str) -> bool:
    """Whether a text that the session only gets with its answer, as from Label Studio, is an
    evaluation text. The digest of the text decides: this is as good as random, and the same each
    time."""
    digest = sha256(text.encode("utf8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") % TEXTS_PER_EVALUATION_TEXT == 0


def stored_text(record: Mapping[str, Any], place: FilePlace) -> StoredText:
    """Read a text from its JSON.

    RAISES (CorpusError): If a field is missing or invalid: see `field`.
    """
    return StoredText(
        key=read_field(record, "key", str, place),
        text=read_field(record, "text", str, place),
        is_evaluation=read_field(record, "measures", bool, place),
        addition_number=read_field(record, "addition", int, place, 0),
    )


def read_field(
    record: Mapping[str, Any], name: str, kind: type, place: FilePlace, default: Any = None
) -> Any:
    """Get a value of a JSON object in a file: see `field`.

    RAISES (CorpusError): If the value is missing or invalid.
    """
    try:
        return field(record, name, kind, default)
    except SessionError as error:
        raise place.refuse(str(error)) from None


def read_objects(path: Path) -> Values:
    """Read the objects of a JSON or JSONL file of the session, each with its place. Yields nothing
    if the file is missing or blank.

    RAISES (CorpusError): If the file isn't JSON in UTF-8, or has a value that isn't an object.
    """
    if is_blank(path):
        return
    _, values = read_values(path)
    for place, value in values:
        if not isinstance(value, dict):
            raise place.refuse(f"expected a JSON object, got {shown(value)}")
        yield place, value
