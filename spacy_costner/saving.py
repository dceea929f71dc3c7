"""Atomic saving: a path has the old file or folder, or the complete new one, never a part of one.

The new one is written beside the path, flushed, and renamed. A folder can't be renamed onto another
one, so the old folder is first renamed to `.NAME.….old` and removed at the end. A process that is
killed between the two renames leaves nothing under the path: the next `clear`, `check_folder` or
`save_folder` of that path puts the old folder back.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from math import isfinite
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy

PAGES = frozenset([".html", ".pdf", ".png", ".svg"])
"""Suffixes of files that no command reads."""

LONGEST_NAME = 200
"""Bytes of a name to which something can be added."""

Write = Callable[[Path], object]
"""Writes to a new file or folder."""


def check_folder(path: str | Path) -> Path:
    """Check that a folder can be saved under a path, before any work, and clean up after killed
    processes: see `clear`.

    path (str | Path): The path.
    RETURNS (Path): The path without symbolic links.
    RAISES (ValueError): If the path is taken: only a pipeline, or an empty folder, is replaced.
    """
    target = Path(os.path.realpath(path))
    clear(target)
    # The path itself or, if nothing is there yet, the nearest folder above it that is.
    existing = next(place for place in (target, *target.parents) if place.exists())
    if not existing.is_dir():
        raise ValueError(f"{path}: expected a folder to save in, got a file: {existing}")
    if existing != target:
        return target  # it will be a new folder

    if os.path.ismount(target) or target in (Path.cwd(), *Path.cwd().parents):
        raise ValueError(
            f"{path}: expected a folder that can be replaced, got a mount or the working directory"
        )
    names = sorted(os.listdir(target))
    if names and not {"config.cfg", "meta.json"} <= {*names}:
        raise ValueError(
            f"{path}: expected a new folder, an empty one or a pipeline, got: {names[:5]}"
        )
    return target


def check_file(path: Path | None, inputs: Iterable[str | Path]) -> None:
    """Check that a command can save a file under a path, before any work. A file that is there is
    replaced, but never an input of the command.

    path (Path | None): The path. None: no file is saved.
    inputs (Iterable[str | Path]): The files and folders that the command reads.
    RAISES (ValueError): If it is one of the inputs or, unless it is a page, in one of them.
    """
    if path is None:
        return
    target = Path(os.path.realpath(path))
    for input_path in inputs:
        source = Path(os.path.realpath(input_path))
        # A new page in the folder of a pipeline or a corpus harms nobody: see PAGES.
        is_inside = source in target.parents and target.suffix.lower() not in PAGES
        if target.exists() and source.exists() and (is_inside or target.samefile(source)):
            raise ValueError(f"{path}: expected another file than the input, got: {input_path}")


def save_folder(path: str | Path, write: Write) -> None:
    """Save a folder as a whole: under the path is the old folder, or the complete new one. Other
    files of an older folder are kept. A symbolic link stays one.

    path (str | Path): The path.
    write (Write): Writes the folder: it gets the path of an empty one.
    RAISES (ValueError): If the path is taken: see `check_folder`.
    """
    target = check_folder(path)
    with _beside(target, Path.mkdir) as new:
        write(new)
        if target.exists():
            _keep_others(target, new)
        _publish(new, target)


def replace_folder(new: Path, path: Path) -> None:
    """Move a complete folder to a path on the same disk, in place of the folder that is there."""
    clear(path)
    _publish(new, path)


def save_file(path: str | Path, write: Write) -> None:
    """Save a file as a whole: under the path is the old file, or the complete new one. `write`
    writes it: it gets the path of an empty file."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a terminal or a pipe
        write(target)
        return
    clear(target)
    with _beside(target, Path.touch) as new:
        write(new)
        if target.exists():
            shutil.copymode(target, new)
        _sync(new)
        new.replace(target)
    _sync(target.parent)


def clear(path: str | Path) -> None:
    """Clean up after processes that were killed while they saved to a path: restore the old
    folder if there is nothing under the path, and remove other files and folders that they left
    beside it. Those of a process that is still running stay."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        return
    # The names that `_beside` and `_publish` make.
    pattern = re.compile(rf"{re.escape(_hidden_name(target))}\.[0-9a-f]{{8}}\.(saving|old)")
    for name in os.listdir(target.parent):
        if not pattern.fullmatch(name):
            continue
        leftover = target.with_name(name)
        with locked(leftover) as is_ours:
            # Without locks (None) nobody knows whether a process still needs it: it is restored,
            # but not removed.
            if is_ours is not False and leftover.suffix == ".old" and not target.exists():
                leftover.rename(target)
            elif is_ours:
                _remove(leftover)


@contextmanager
def locked(path: Path) -> Iterator[bool | None]:
    """Try to lock a file or folder, so that other processes see that somebody uses it. The lock
    ends with the block, or with the process. Yields whether we have it: False if another process
    has it, None if the system has no locks. Some network file systems have none on folders."""
    handle: int | None = None
    is_ours: bool | None
    try:
        try:
            import fcntl  # which Windows doesn't have

            handle = os.open(path, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = True
        except BlockingIOError:
            is_ours = False
        except (ImportError, OSError):
            is_ours = None
        yield is_ours
    finally:
        if handle is not None:
            os.close(handle)


def _hidden_name(path: Path) -> str:
    """The beginning of the names of the hidden files and folders that are made beside a path. Most
    systems have names of at most 255 bytes, so a long name is replaced by its digest."""
    encoded = os.fsencode(path.name)
    if len(encoded) <= LONGEST_NAME:
        return f".{path.name}"
    return f".{sha256(encoded).hexdigest()}"


@contextmanager
def _beside(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Make a hidden file or folder beside a path, to be written and then renamed to the path. It is
    locked, and removed at the end if it wasn't renamed. `make` is `Path.touch` or `Path.mkdir`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f"{_hidden_name(target)}.{token_hex(4)}.saving")
    make(new)
    try:
        with locked(new):
            yield new
    except OSError as error:
        error.filename = error.filename or str(target)  # the error of a full disk names no file
        raise
    finally:
        _remove(new)


def _publish(new: Path, path: Path) -> None:
    """Flush a complete folder to the disk, and rename it to a path. The old folder stays beside it
    until then, and comes back if that fails."""
    for folder, _, names in os.walk(new):
        for name in names:
            file = Path(folder, name)
            if not file.is_symlink():
                _sync(file)
        _sync(Path(folder))

    old = path.with_name(f"{_hidden_name(path)}.{token_hex(4)}.old")
    with locked(path):  # the lock moves with the folder, so no other process clears it
        if path.exists():
            path.rename(old)
        try:
            new.rename(path)
        except BaseException:
            if old.exists():
                old.rename(path)
            raise
        _sync(path.parent)
        _remove(old)


def _keep_others(old: Path, new: Path) -> None:
    """Add to a new folder the files of the older one that it lacks, as links, which take no space:
    for example what users have put beside a pipeline."""

    def replaced(folder: str, names: list[str]) -> list[str]:
        # `copytree` leaves these names out: what was written replaces the file or folder wholly.
        if Path(folder) == old:
            return os.listdir(new)
        return []

    shutil.copytree(
        old, new, symlinks=True, ignore=replaced, copy_function=_link, dirs_exist_ok=True
    )


def _link(source: str | Path, target: str | Path) -> None:
    """Link to a file or, where the disk has no links, copy it."""
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, target, follow_symlinks=False)


def _sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk, so that they survive a power failure."""
    if os.name != "posix":  # Windows can't open folders
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    """Remove a file or a folder, as far as that can be done. If it isn't there, nothing happens."""
    with suppress(OSError):
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def save_text(path: Path, text: str) -> None:
    """Save a text file: see `save_file`."""
    save_file(path, lambda new: new.write_text(text, encoding="utf8"))


def as_json(value: Any) -> Any:
    """Convert a result to values that JSON has: named tuples, and what has `to_dict`, become
    objects, arrays lists, paths text, and NaN and infinity null."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        return as_json(value.tolist())
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value
