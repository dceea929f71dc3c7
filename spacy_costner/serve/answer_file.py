"""A file of answers in Prodigy's JSONL format, with one answer per line.

    {"text": "…", "spans": […], "answer": "accept", "meta": {"key": "text-7"}}

The file is a corpus that users may also edit. It is therefore read again before each change, and
only lines with the key of the changed answer are modified. All other lines are preserved byte for
byte. Lines without a key aren't answers from the session.
"""

import codecs
import json
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..files.saving import save_file
from ..readers import Task, task_from_json, task_to_json
from ..readers.files import read_values

CUT_TOKEN = re.compile(r"(t(ru?)?|f(a(ls?)?)?|n(ul?)?|-|\.|[eE][+-]?|u[0-9a-fA-F]{0,4})?")
"""Matches what follows the position of a decoding error if a line was cut off: nothing, or the
beginning of true, false or null, the end of a number, or the end of an escape sequence. A string
begins at the position of its error instead."""


class AnswerFile:
    """A file of answers.

    path (Path): The file. It doesn't have to exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Iterator[tuple[str | None, Task]]:
        """Read the tasks in the file. If a crash has left an incomplete last line, it is removed
        first. See `remove_cut_line`.

        YIELDS (tuple[str | None, Task]): The key of the text and the task. The key is None if the
            task isn't an answer from a session.
        RAISES (CorpusError): If the file contains anything other than tasks.
        """
        remove_cut_line(self.path)
        if is_blank(self.path):
            return
        _, records = read_values(self.path)
        for place, record in records:
            yield record_key(record), task_from_json(record, place)

    def append(self, task: Task) -> None:
        """Append an answer and flush it to disk.

        task (Task): The answer, with its key in the metadata.
        RAISES (ValueError): If the task contains a value that isn't valid in JSON.
        RAISES (OSError): If the answer can't be written. The file is left unchanged.
        """
        append_line(self.path, task_to_line(task))

    def replace(self, key: str, task: Task) -> None:
        """Replace the answer with the given key. If several lines have the key, the last one is
        replaced, because it takes precedence when the file is read. If no line has the key, for
        example because the user has removed it, the answer is appended.

        key (str): The key of the text.
        task (Task): The new answer, with its key in the metadata.
        RAISES (ValueError): If the task contains a value that isn't valid in JSON.
        RAISES (OSError): If the answer can't be written. The file is left unchanged.
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
        """Remove all lines with the given key.

        key (str): The key of the text.
        RAISES (OSError): If the file can't be written. In this case, it is left unchanged.
        """
        self._write_lines([line for line in self._read_lines() if line_key(line) != key])

    def _read_lines(self) -> list[bytes]:
        """Read the lines of the file, including their line endings."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            return file.readlines()

    def _write_lines(self, lines: list[bytes]) -> None:
        """Replace the content of the file with the given lines."""
        content = b"".join(lines)
        save_file(self.path, lambda new_path: new_path.write_bytes(content))


def record_key(record: Any) -> str | None:
    """Get the key of the text from the "meta" field of a JSON record. Return None if there is no
    key."""
    # In spaCy 2's format, a record is a pair of a text and an object.
    if isinstance(record, list) and len(record) == 2:
        record = record[1]
    meta = record.get("meta") if isinstance(record, dict) else None
    key = meta.get("key") if isinstance(meta, dict) else None
    return key if isinstance(key, str) else None


def line_key(line: bytes) -> str | None:
    """Get the key from a line. Return None if the line has no key or isn't JSON."""
    try:
        return record_key(json.loads(line))
    except (ValueError, RecursionError):
        return None


def task_to_line(task: Task) -> bytes:
    """Serialize a task to a line of JSONL.

    RAISES (ValueError): If the task contains a value that isn't valid in JSON, such as infinity.
    """
    line = json.dumps(task_to_json(task), ensure_ascii=False, allow_nan=False)
    # Lone surrogates are escaped, as in \ud800, which is also valid JSON.
    return f"{line}\n".encode("utf8", "backslashreplace")


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file and flush it to disk. If the file doesn't end with a line break, for
    example because it was saved in an editor, one is added first. If writing fails, for example
    because the disk is full, the file is left unchanged.

    path (Path): The file. It doesn't have to exist.
    line (bytes): The line, including its line break.
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
            while rest:  # unbuffered writes may be partial
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError as error:
            os.ftruncate(file.fileno(), size)
            error.filename = str(path)  # include the file in the message
            raise


def remove_cut_line(path: Path) -> None:
    """Remove the last line of a file if it has no line break and is incomplete JSON. This happens
    if a process crashed before the answer was reported as saved. Warn about what was removed,
    because a user may have written the line.

    path (Path): The file. It doesn't have to exist.
    """
    if not path.exists():
        return
    data = path.read_bytes()
    n_bytes_before = data.rfind(b"\n") + 1  # the size of the preceding lines
    line = data[n_bytes_before:]
    if is_cut_off(line):
        text = line.decode("utf8", "replace").rstrip("\0")
        warnings.warn(f"{path}: the last line is cut off and is removed: {text!r}", stacklevel=2)
        os.truncate(path, n_bytes_before)


def is_cut_off(line: bytes) -> bool:
    """Check whether a line is the beginning of a JSON value. A line with a mistake, such as a
    missing comma, isn't cut off."""
    # The line may end in the middle of a character, which an incremental decoder accepts.
    decoder = codecs.getincrementaldecoder("utf8")()
    try:
        text = decoder.decode(line).strip("\ufeff \t\r")
    except UnicodeDecodeError:  # saved by an editor in another encoding
        return False
    if not text:
        return False
    try:
        json.JSONDecoder().raw_decode(text)
    except RecursionError:
        return False
    except json.JSONDecodeError as error:
        if text.endswith("\0"):  # a file system may write these after a power failure
            return True
        rest = text[error.pos :]
        if rest.startswith('"'):
            # The string isn't terminated. If the object ends, its quote is missing.
            return not text.endswith("}")
        return CUT_TOKEN.fullmatch(rest) is not None
    return False  # the line starts with a complete value


def is_blank(path: Path) -> bool:
    """Check whether a file is missing or contains only whitespace.

    path (Path): The file. It doesn't have to exist.
    RETURNS (bool): Whether the file is missing or blank.
    """
    return not path.exists() or not path.read_bytes().removeprefix(codecs.BOM_UTF8).strip()
