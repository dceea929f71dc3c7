"""Save files and folders atomically: a path never contains an incomplete file or folder, even if
the process is killed or the power fails.

New files are written to a hidden temporary file next to the path, flushed to disk, and then renamed
to the path. A folder can't be renamed to the path of an existing folder. Therefore, the old folder
is first renamed to `.NAME.….old`, and removed at the end. If the process is killed between the two
renames, the path doesn't exist. The next call to `clear`, `check_folder` or `save_folder` for this
path then restores the old folder.
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
"""The suffixes of pages and figures, which are only written and never read."""

FILES_OF_PIPELINES = frozenset(["config.cfg", "meta.json"])
"""The files that identify a folder as a pipeline."""

LONGEST_NAME = 200
"""The maximum length of a name in bytes, leaving space for a suffix. Most systems limit names to
255 bytes."""

LEFTOVER = re.compile(r"(?P<hidden_name>\..+)\.[0-9a-f]{8}\.(saving|old)", re.DOTALL)
"""Matches the hidden names of files and folders that are being saved or replaced. The part before
the random digits is derived from the path: see `_hidden_name`."""

Write = Callable[[Path], object]
"""A function that writes a new file or folder to the given path."""


def check_folder(path: str | Path) -> Path:
    """Check that a folder can be saved to a path. Call this before starting any long computation.
    Also cleans up after killed processes: see `clear`.

    path (str | Path): The path of the folder.
    RETURNS (Path): The path with symbolic links resolved.
    RAISES (ValueError): If the path or one of its parents is a file, or the path is a folder that
        must not be replaced. Only pipelines and empty folders are replaced, except for mount
        points, the working directory and its parents.
    """
    target = Path(os.path.realpath(path))
    clear(target)
    # The path itself or, if it doesn't exist, its nearest existing parent.
    existing = next(place for place in (target, *target.parents) if place.exists())
    if not existing.is_dir():
        raise ValueError(f"{path}: expected a folder to save in, got a file: {existing}")
    if existing != target:
        return target  # a new folder can be created

    if os.path.ismount(target) or target in (Path.cwd(), *Path.cwd().parents):
        raise ValueError(
            f"{path}: expected a folder that can be replaced, got a mount, the working "
            "directory or a folder above it"
        )
    names = sorted(os.listdir(target))
    is_pipeline = set(names) >= FILES_OF_PIPELINES
    if names and not is_pipeline:
        raise ValueError(
            f"{path}: expected a new folder, an empty one or a pipeline, got: {names[:5]}"
        )
    return target


def check_file(path: Path | None, inputs: Iterable[str | Path]) -> None:
    """Check that saving a file to a path doesn't overwrite an input. Call this before starting any
    long computation.

    path (Path | None): The path of the file. If None, no file is saved.
    inputs (Iterable[str | Path]): The input files and folders.
    RAISES (ValueError): If the file exists and is an input or in an input folder. Pages and figures
        (see `PAGES`) in an input folder may be replaced.
    """
    if path is None:
        return
    target = Path(os.path.realpath(path))
    for input_path in inputs:
        source = Path(os.path.realpath(input_path))
        is_inside = source in target.parents and target.suffix.lower() not in PAGES
        if target.exists() and source.exists() and (is_inside or target.samefile(source)):
            raise ValueError(f"{path}: expected a file other than the input, got: {input_path}")


def save_folder(path: str | Path, write: Write) -> None:
    """Save a folder atomically: the path contains either the old folder or the complete new folder.
    Files of the old folder are kept if they are not replaced. If the path is a symbolic link, the
    target of the link is replaced.

    path (str | Path): The path of the folder.
    write (Write): The function that writes to the folder. It receives the path of an empty folder.
    RAISES (ValueError): If the folder can't be saved to the path: see `check_folder`.
    """
    target = check_folder(path)
    with _temporary_path(target, Path.mkdir) as new_folder:
        write(new_folder)
        if target.exists():
            _keep_others(target, new_folder)
        _publish(new_folder, target)


def replace_folder(new_folder: Path, path: Path) -> None:
    """Move a complete folder to a path on the same disk, replacing the old folder."""
    clear(path)
    _publish(new_folder, path)


def save_file(path: str | Path, write: Write, *, is_clear: bool = False) -> None:
    """Save a file atomically: the path contains either the old file or the complete new file.

    path (str | Path): The path of the file.
    write (Write): The function that writes to the file. It receives the path of an empty file or,
        if `path` is a terminal or a pipe, the path itself.
    is_clear (bool): Whether `clear` has already been called for this path.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        # A terminal or a pipe can't be replaced, so write to it directly.
        write(target)
        return
    if not is_clear:
        clear(target)
    with _temporary_path(target, Path.touch) as new_file:
        write(new_file)
        if target.exists():
            shutil.copymode(target, new_file)
        _sync(new_file)
        new_file.replace(target)
    _sync(target.parent)


def clear(*paths: str | Path) -> None:
    """Clean up after processes that were killed while saving to a path. If the path doesn't exist,
    the old folder is restored. Other hidden files and folders left behind by these processes are
    removed, unless a running process is still using them.

    *paths (str | Path): The paths to clean up. If possible, pass several paths in a single call,
        because listing a large folder is slow and each folder is only listed once per call.
    """
    # The paths in each folder, keyed by the prefixes of their hidden names.
    targets_of_folder: dict[Path, dict[str, Path]] = {}
    for path in paths:
        target = Path(os.path.realpath(path))
        targets_of_folder.setdefault(target.parent, {})[_hidden_name(target)] = target

    for folder, targets in targets_of_folder.items():
        for name in os.listdir(folder) if folder.is_dir() else ():
            leftover = LEFTOVER.fullmatch(name)
            if leftover is not None and leftover["hidden_name"] in targets:
                _clear_leftover(folder / name, targets[leftover["hidden_name"]])


def _clear_leftover(leftover: Path, target: Path) -> None:
    """Restore or remove a hidden file or folder left behind by a process."""
    with locked(leftover) as is_ours:
        # Without support for locks (None), another process may still be using the leftover. In this
        # case, an old folder is restored, but nothing is removed.
        if is_ours is not False and leftover.suffix == ".old" and not target.exists():
            leftover.rename(target)
        elif is_ours:
            _remove(leftover)


@contextmanager
def locked(path: Path) -> Iterator[bool | None]:
    """Context manager that tries to lock a file or folder, to show other processes that it is in
    use. The lock is released at the end of the block or when the process ends.

    path (Path): The file or folder to lock.
    YIELDS (bool | None): True if the lock was acquired, False if another process holds it. None if
        locks are not supported, as on Windows and some network file systems.
    """
    handle: int | None = None
    is_ours: bool | None
    try:
        try:
            import fcntl  # not available on Windows

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
    """Return the prefix for the names of hidden files and folders next to a path: a dot, followed
    by the last part of the path or, if it is too long, its digest."""
    name_in_bytes = os.fsencode(path.name)
    if len(name_in_bytes) <= LONGEST_NAME:
        return f".{path.name}"
    return f".{sha256(name_in_bytes).hexdigest()}"


@contextmanager
def _temporary_path(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Context manager that creates and locks a hidden temporary file or folder next to a path, with
    `Path.touch` or `Path.mkdir`. The file or folder is removed at the end of the block, unless it
    has been renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden_path = target.with_name(f"{_hidden_name(target)}.{token_hex(4)}.saving")
    make(hidden_path)
    try:
        with locked(hidden_path):
            yield hidden_path
    except OSError as error:
        # The error for a full disk doesn't include a file name.
        error.filename = error.filename or str(target)
        raise
    finally:
        _remove(hidden_path)


def _publish(new_folder: Path, path: Path) -> None:
    """Flush a complete folder to disk and rename it to a path. An existing folder is kept under a
    hidden name in the meantime, and restored if renaming fails."""
    for folder, _, names in os.walk(new_folder):
        for name in names:
            file = Path(folder, name)
            if not file.is_symlink():
                _sync(file)
        _sync(Path(folder))

    old_folder = path.with_name(f"{_hidden_name(path)}.{token_hex(4)}.old")
    with locked(path):  # renaming keeps the lock, so other processes won't clear the folder
        if path.exists():
            path.rename(old_folder)
        try:
            new_folder.rename(path)
        except BaseException:
            if old_folder.exists():
                old_folder.rename(path)
            raise
        _sync(path.parent)
        _remove(old_folder)


def _keep_others(old: Path, new: Path) -> None:
    """Add the files of an old folder that are missing from a new folder, such as files that users
    have added to a pipeline. They are added as hard links, which don't need disk space."""

    def names_to_skip(folder: str, names: list[str]) -> list[str]:
        """Return the names in a folder that `copytree` should skip. Files and folders at the top
        level are completely replaced by new ones with the same name."""
        if Path(folder) == old:
            return os.listdir(new)
        return []

    shutil.copytree(
        old, new, symlinks=True, ignore=names_to_skip, copy_function=_link, dirs_exist_ok=True
    )


def _link(source: str | Path, target: str | Path) -> None:
    """Create a hard link to a file, or copy the file if hard links are not supported."""
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, target, follow_symlinks=False)


def _sync(path: Path) -> None:
    """Flush a file or the entries of a folder to disk, so that they survive a power failure."""
    if os.name != "posix":  # Windows can't open folders or flush files opened for reading
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    """Remove a file or folder. Errors are ignored."""
    with suppress(OSError):
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def save_text(path: Path, text: str) -> None:
    """Save a text file atomically: see `save_file`."""
    save_file(path, lambda new_file: new_file.write_text(text, encoding="utf8"))


def as_json(value: Any) -> Any:
    """Convert a result to JSON-serializable values. Named tuples and objects with a `to_dict`
    method are converted to dictionaries, arrays to lists, paths to strings, and NaN and infinity to
    None."""
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
