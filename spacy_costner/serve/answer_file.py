"""A file of answers to texts, in Prodigy's form, with a JSON line for each answer.

    {"text": "…", "spans": […], "answer": "accept", "meta": {"key": "text-7"}}

The file is a corpus, and people may edit it, too. So it is read again before each change, and only
lines with the key of the changed answer are changed. All other lines stay as they are, byte for
byte. Lines without a key are not answers of the session.
"""

import codecs
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..files.saving import save_file
from ..readers import Task, task_from_json, task_to_json
from ..readers.files import read_values


class AnswerFile:
    """The answers in a file.

    path (Path): The file. It doesn't have to exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Iterator[tuple[str | None, Task]]:
        """Read the tasks of the file. A line that a crash has cut off is removed first.

        YIELDS (tuple[str | None, Task]): Each task with the key of its text. The key is None if the
            task is not an answer of a session.
        RAISES (CorpusError): If the file has something that isn't a task.
        """
        remove_cut_line(self.path)
        if is_blank(self.path):
            return
        _, records = read_values(self.path)
        for place, record in records:
            yield record_key(record), task_from_json(record, place)

    def append(self, task: Task) -> None:
        """Append an answer. It is on the disk when this returns.

        task (Task): The answer, with its key.
        RAISES (ValueError): If the task has a value that JSON doesn't have.
        RAISES (OSError): If the answer can't be written. The file is unchanged then.
        """
        append_line(self.path, task_to_line(task))

    def replace(self, key: str, task: Task) -> None:
        """Replace the answer with a key. If several lines have the key, the last one is replaced,
        as it is the one that counts: `read` yields it last. If no line has the key, because
        somebody has removed it, the answer is appended.

        key (str): The key of the text.
        task (Task): The new answer, with its key.
        RAISES (ValueError): If the task has a value that JSON doesn't have.
        RAISES (OSError): If the answer can't be written. The file is unchanged then.
        """
        new_line = task_to_line(task)
        lines = self._read_lines()
        places = [i for i, line in enumerate(lines) if line_key(line) == key]
        if not places:
            append_line(self.path, new_line)
            return
        lines[places[-1]] = new_line
        self._write_lines(lines)

    def remove(self, key: str) -> None:
        """Remove all lines with a key.

        key (str): The key of the text.
        RAISES (OSError): If the file can't be written. It is unchanged then.
        """
        self._write_lines([line for line in self._read_lines() if line_key(line) != key])

    def _read_lines(self) -> list[bytes]:
        """Read the lines of the file, each with its line ending."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            return file.readlines()

    def _write_lines(self, lines: list[bytes]) -> None:
        """Replace the content of the file with these lines."""
        content = b"".join(lines)
        save_file(self.path, lambda new_path: new_path.write_bytes(content))


def record_key(record: Any) -> str | None:
    """The key of the text that a JSON record answers, from its "meta". None if it has no key."""
    # In spaCy 2's form, a record is a pair of the text and an object.
    if isinstance(record, list) and len(record) == 2:
        record = record[1]
    meta = record.get("meta") if isinstance(record, dict) else None
    key = meta.get("key") if isinstance(meta, dict) else None
    return key if isinstance(key, str) else None


def line_key(line: bytes) -> str | None:
    """The key of a line. None if it has no key or isn't JSON."""
    try:
        return record_key(json.loads(line))
    except (ValueError, RecursionError):
        return None


def task_to_line(task: Task) -> bytes:
    """Write a task as a line of JSONL.

    RAISES (ValueError): If the task has a value that JSON doesn't have, such as infinity.
    """
    line = json.dumps(task_to_json(task), ensure_ascii=False, allow_nan=False)
    # Half of a surrogate pair becomes an escape such as \ud800, which JSON has, too.
    return f"{line}\n".encode("utf8", "backslashreplace")


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file, and flush it to the disk. If the file doesn't end with a line break,
    because an editor has saved it, one is added before. If writing fails, for example because the
    disk is full, the file is unchanged.

    path (Path): The file. It doesn't have to exist.
    line (bytes): The line with its line break.
    RAISES (OSError): If writing fails.
    """
    with path.open("ab+", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                line = b"\n" + line
        try:
            rest = memoryview(line)
            while rest:  # `write` may write only a part
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError as error:
            os.ftruncate(file.fileno(), size)
            error.filename = str(path)  # The message names the file.
            raise


def remove_cut_line(path: Path) -> None:
    """Remove the last line of a file if it has no line break and isn't JSON. Such a line
    was cut off by a crash before it was reported as saved.

    path (Path): The file. It doesn't have to exist.
    """
    if not path.exists():
        return
    data = path.read_bytes()
    n_bytes_before = data.rfind(b"\n") + 1  # the size of the other lines
    if is_cut_off(data[n_bytes_before:]):
        os.truncate(path, n_bytes_before)


def is_cut_off(line: bytes) -> bool:
    """Whether a line is only the beginning of a JSON line."""
    # A line that is cut off may end within a character. An incremental decoder accepts that.
    decoder = codecs.getincrementaldecoder("utf8")()
    try:
        text = decoder.decode(line).strip("\ufeff \t\r")
    except UnicodeDecodeError:  # An editor has saved it in another encoding.
        return False
    if not text:
        return False
    try:
        json.JSONDecoder().raw_decode(text)
    except RecursionError:
        return False
    except ValueError:
        return True
    return False  # The line begins with a complete value.


def is_blank(path: Path) -> bool:
    """Whether a file is missing or has only whitespace.

    path (Path): The file.
    RETURNS (bool): Whether it is.
    """
    return not path.exists() or not path.read_bytes().removeprefix(codecs.BOM_UTF8).strip()
