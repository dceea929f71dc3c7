"""The folder of an annotation session, with its texts and answers.

settings.json            the labels and the language
texts.jsonl              all texts, each addition in random order, with the evaluation texts marked
annotated/train.jsonl    answers for training texts, as a corpus in Prodigy's format
annotated/measure.jsonl  answers for evaluation texts, also as a corpus
history.jsonl            the scores of each training run

Evaluation texts are drawn when texts are added, before any of the new texts is annotated. No model
is trained on the texts that it is evaluated on. `save` only returns after the answer has been
written: a new answer is appended and flushed, and if an answer is changed, its file is rewritten
(see `answer_file`). If a crash leaves an incomplete line, its answer was never reported as saved,
and the line is removed on the next start.
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
"""One in `TEXTS_PER_EVALUATION_TEXT` texts is an evaluation text."""

MIN_EVALUATION_TEXTS = 30
"""Minimum number of evaluation texts in the first addition, unless this is more than half of the
texts."""

TRAIN_FILE = Path("annotated", "train.jsonl")
MEASURE_FILE = Path("annotated", "measure.jsonl")
TEXTS_FILE = Path("texts.jsonl")
SETTINGS_FILE = Path("settings.json")
HISTORY_FILE = Path("history.jsonl")
"""The files in a session's folder."""

WORKING = ".working-"
"""Prefix of the temporary folders in a session's folder."""

TEXT_KEY = "text-"
"""Prefix of the key of a text. It is followed by the number of the text."""

ACCEPTED = "accept"
LEFT_OUT = "ignore"
"""The values of "answer" in Prodigy's format for annotated and skipped texts."""


class SessionError(ValueError):
    """Raised if a request is invalid. The message describes the expected value."""


def field(record: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """Get a value from a JSON object and check its type.

    record (Mapping[str, Any]): The JSON object, from a request or a file of the session.
    name (str): The key of the value.
    kind (type): The expected type.
    default (Any): The value to return if the key is missing.
    RETURNS (Any): The value.
    RAISES (SessionError): If the value has a different type, if it is missing and there is no
        default, or if it is a string that can't be encoded in UTF-8.
    """
    value = record.get(name, default)
    # `isinstance` would accept a bool as an int.
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
    text (str): The text itself.
    is_evaluation (bool): Whether it is an evaluation text.
    addition_number (int): The index of the `add_texts` call that added the text.
    """

    key: str
    text: str
    is_evaluation: bool
    addition_number: int = 0


class Answer(NamedTuple):
    """An answer for a text.

    key (str): The key of the text.
    task (Task): The text and its spans. `extra` contains the keys "answer" and "meta".
    is_evaluation (bool): Whether the text is an evaluation text.
    version (int): The version of the answer, counted from 1 for each text. Answers read from a file
        have version 1.
    """

    key: str
    task: Task
    is_evaluation: bool
    version: int

    @property
    def is_left_out(self) -> bool:
        """Whether the annotator skipped the text. Skipped texts have no annotations."""
        return bool(self.task.extra.get("answer") == LEFT_OUT)

    @property
    def meta(self) -> Mapping[str, Any]:
        """The metadata of the answer."""
        meta: Mapping[str, Any] = self.task.extra["meta"]
        return meta


class AnnotationStore:
    """The texts and answers of a session, in memory and on disk.

    folder (Path): The session's folder. It is created if it doesn't exist.
    RAISES (ValueError): If a file in the folder can't be read, or if the folder's path can't be
        encoded in UTF-8, which is required for storing it in pipeline configs.
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
        # The number of texts added by each call to `add_texts`, by index of the call
        self.n_texts_of_addition = Counter(stored.addition_number for stored in self.texts.values())
        self.answers: dict[str, Answer] = {}
        # The number of annotated texts in the files that aren't answers from this session. Users
        # may add texts to the files.
        self.n_others = 0
        # The number of answers that each text has had so far: one if it has an answer in a file,
        # plus the answers saved by this process. Removed answers are included, so that no version
        # number is used twice.
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
        """The labels and language saved by `save_settings`. Empty in a new folder.

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
        """Save the settings of the session. This overwrites the previous settings."""
        save_text(self._settings_path, json.dumps(settings, ensure_ascii=False, indent=2) + "\n")

    def add_texts(self, texts: Iterable[str], *, seed: int = 0) -> int:
        """Add texts in random order, and draw the evaluation texts from them. Skip a text if it is
        identical to an earlier text or only differs from it in whitespace.

        texts (Iterable[str]): The texts to add.
        seed (int): Random seed for the order and the evaluation texts.
        RETURNS (int): The number of texts added.
        RAISES (ValueError): If a text can't be encoded in UTF-8. In this case, no text is added.
        """
        known_texts = {without_space(stored.text) for stored in self.texts.values()}
        known_texts.add("")  # also skips texts that consist only of whitespace
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
        # Include the number in the seed, so that each addition has a different order.
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
        """Return the number for the next text. It is larger than the numbers of all texts,
        including removed texts that still have an answer."""
        next_number = 0
        for key in (*self.texts, *self.answers):
            digits = key.removeprefix(TEXT_KEY)
            if key.startswith(TEXT_KEY) and digits.isdecimal():
                next_number = max(next_number, int(digits) + 1)
        return next_number

    def _save_texts(self) -> None:
        """Save all texts to the folder."""
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
        """Save the answer for a text. When this method returns, the answer has been written to its
        file.

        key (str): The key of the text.
        task (Task): The text and its spans.
        is_evaluation (bool): Whether it is an evaluation text. If the text already has an answer,
            the value must not change, because the answer is replaced in its current file.
        is_left_out (bool): Whether the annotator skipped the text. Its spans are not saved.
        meta (Mapping[str, Any]): Additional metadata to save with the answer.
        RETURNS (Answer): The saved answer.
        RAISES (ValueError): If the answer contains a value that isn't valid in JSON, such as
            infinity.
        RAISES (OSError): If the answer can't be written. The files are left unchanged.
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
            # A changed answer keeps its position in the file.
            self._file_of(is_evaluation).replace(key, task)
        else:
            self._file_of(is_evaluation).append(task)
        self.answers[key] = answer
        self._n_answers[key] = answer.version
        return answer

    def remove(self, key: str) -> bool:
        """Remove the answer for a text. Return whether the text had an answer."""
        answer = self.answers.get(key)
        if answer is None:
            return False
        self._file_of(answer.is_evaluation).remove(key)
        del self.answers[key]
        return True

    def _file_of(self, is_evaluation: bool) -> AnswerFile:
        """Return the file that stores the answers for evaluation texts or for training texts."""
        return self._measure_file if is_evaluation else self._train_file

    def _was_drawn(self, key: str) -> bool:
        """Check whether an evaluation text was drawn at random. This is False if the user moved the
        answer for a training text to the file for evaluation texts."""
        return key not in self.texts or self.texts[key].is_evaluation

    def add_to_history(self, record: dict[str, Any]) -> None:
        """Add the scores of a training run to the history."""
        append_line(self._history_path, f"{json.dumps(record)}\n".encode())
        self.history.append(record)

    @contextmanager
    def working_folder(self) -> Iterator[Path]:
        """Create a temporary folder for the duration of a `with` block. It is created in the
        session's folder because its files contain the user's texts. If the process is killed,
        `clear_leftovers` removes the folder on the next start."""
        with tempfile.TemporaryDirectory(prefix=WORKING, dir=self.folder) as folder:
            yield Path(folder)

    def clear_leftovers(self, *others: str | Path) -> None:
        """Remove the temporary folders and partially saved files left behind by a killed process.
        No other process may be using the folder.

        *others (str | Path): The names of other files and folders saved in the session's folder.
            See `saving.clear`.
        """
        for path in self.folder.glob(f"{WORKING}*"):
            shutil.rmtree(path, ignore_errors=True)
        for name in (TEXTS_FILE, SETTINGS_FILE, TRAIN_FILE, MEASURE_FILE, *others):
            clear(self.folder / name)

    def accepted(self, *, is_evaluation: bool) -> list[Answer]:
        """Return the answers for evaluation texts or for training texts. Skipped texts are
        excluded."""
        return [
            answer
            for answer in self.answers.values()
            if answer.is_evaluation == is_evaluation and not answer.is_left_out
        ]


def count_evaluation_texts(n_texts: int, *, is_first: bool) -> int:
    """Compute the number of evaluation texts to draw from new texts: one in ten. For the first
    addition, the number is at least `MIN_EVALUATION_TEXTS`, but at most half of the texts."""
    share = round(n_texts / TEXTS_PER_EVALUATION_TEXT)
    if not is_first:
        return share
    return min(max(share, MIN_EVALUATION_TEXTS), n_texts // 2)


def is_drawn(text: str) -> bool:
    """Check whether a text that wasn't added with `add_texts`, such as a text from Label Studio, is
    an evaluation text. The decision is based on the digest of the text, so it is pseudorandom but
    deterministic."""
    digest = sha256(text.encode("utf8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") % TEXTS_PER_EVALUATION_TEXT == 0


def stored_text(record: Mapping[str, Any], place: FilePlace) -> StoredText:
    """Convert a JSON object to a text of the session.

    RAISES (CorpusError): If a field is missing or invalid. See `field`.
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
    """Get a value from a JSON object in a file. See `field`.

    RAISES (CorpusError): If the value is missing or invalid.
    """
    try:
        return field(record, name, kind, default)
    except SessionError as error:
        raise place.refuse(str(error)) from None


def read_objects(path: Path) -> Values:
    """Read the objects in a JSON or JSONL file of the session. Yields pairs of an object's place
    and the object, or nothing if the file is missing or blank.

    RAISES (CorpusError): If the file isn't valid JSON in UTF-8, or contains a value that isn't an
        object.
    """
    if is_blank(path):
        return
    _, values = read_values(path)
    for place, value in values:
        if not isinstance(value, dict):
            raise place.refuse(f"expected a JSON object, got {shown(value)}")
        yield place, value
