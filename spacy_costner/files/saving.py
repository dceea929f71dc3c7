"""Save files and folders as a whole: a path never has an incomplete file or folder, even if the
process is killed or the power fails.

The new file is written under a hidden name next to the path, flushed to the disk, and then renamed
to the path. A folder can't be renamed to the path of another one. So the old folder is renamed
first, to `.NAME.….old`, and removed at the end. If the process is killed between the two renames,
the path doesn't exist. The next `clear`, `check_folder` or `save_folder` of that path then restores
the old folder.
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
"""The suffixes of pages and figures: files that are written, but never read."""

FILES_OF_PIPELINES = frozenset(["config.cfg", "meta.json"])
"""A folder that has these files is a pipeline."""

LONGEST_NAME = 200
"""The maximum number of bytes of a name to which a suffix can be added: most systems allow names of
at most 255 bytes."""

LEFTOVER = re.compile(r"(?P<hidden_name>\..+)\.[0-9a-f]{8}\.(saving|old)", re.DOTALL)
"""Matches the hidden names of files and folders that are being saved or replaced. The part before
the random digits follows from the path: see `_hidden_name`."""

Write = Callable[[Path], object]
"""A function that writes a new file or folder. It gets the path."""


def check_folder(path: str | Path) -> Path:
    """Check that a folder can be saved under a path. Call this before any work. It also cleans up
    after killed processes: see `clear`.

    path (str | Path): The path of the folder.
    RETURNS (Path): The path without symbolic links.
    RAISES (ValueError): If the path, or a path above it, is a file, or the path is a folder that
        must not be replaced. Only a pipeline or an empty folder is replaced, unless it is the
        working directory, a folder above it, or a mount.
    """
    target = Path(os.path.realpath(path))
    clear(target)
    # The path itself or, if it doesn't exist, the nearest path above it that exists.
    existing = next(place for place in (target, *target.parents) if place.exists())
    if not existing.is_dir():
        raise ValueError(f"{path}: expected a folder to save in, got a file: {existing}")
    if existing != target:
        return target  # a new folder can be made there

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
    """Check that a file can be saved under a path. Call this before any work. An old file is
    replaced, but never an input.

    path (Path | None): The path of the file. None: no file is saved.
    inputs (Iterable[str | Path]): The files and folders that are read.
    RAISES (ValueError): If an input would be replaced: the file exists, and is an input or in an
        input folder. In such a folder, pages and figures may be replaced: see `PAGES`.
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
    """Save a folder as a whole: the path has either the old folder or the complete new one. Files
    of the old folder that the new one doesn't have are kept. A symbolic link stays a link.

    path (str | Path): The path of the folder.
    write (Write): Writes the folder. It gets the path of an empty folder.
    RAISES (ValueError): If the folder can't be saved there: see `check_folder`.
    """
    target = check_folder(path)
    with _temporary_path(target, Path.mkdir) as new_folder:
        write(new_folder)
        if target.exists():
            _keep_others(target, new_folder)
        _publish(new_folder, target)


def replace_folder(new_folder: Path, path: Path) -> None:
    """Move a complete folder to a path on the same disk. It replaces the old folder."""
    clear(path)
    _publish(new_folder, path)


def save_file(path: str | Path, write: Write, *, is_clear: bool = False) -> None:
    """Save a file as a whole: the path has either the old file or the complete new one.

    path (str | Path): The path of the file.
    write (Write): Writes the file. It gets the path of an empty file. If `path` is a terminal or a
        pipe, it gets this path.
    is_clear (bool): Whether the caller has called `clear` for this path.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        # A terminal or a pipe can't be replaced: it is written to directly.
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
    """Clean up after processes that were killed while they saved to a path. If the path doesn't
    exist, the old folder is restored. Other hidden files and folders that these processes have left
    next to the path are removed. Files and folders that a running process still uses stay.

    *paths (str | Path): The paths that were saved to. A folder may have thousands of names, so they
        are listed once for all paths in it.
    """
    # For each folder, its paths by the beginnings of their hidden names.
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
    """Restore or remove a hidden file or folder that a process has left next to a path."""
    with locked(leftover) as is_ours:
        # If the system has no locks (None), a process may still be using it. An old folder is then
        # restored, but nothing is removed.
        if is_ours is not False and leftover.suffix == ".old" and not target.exists():
            leftover.rename(target)
        elif is_ours:
            _remove(leftover)


@contextmanager
def locked(path: Path) -> Iterator[bool | None]:
    """Try to lock a file or folder during a `with` block, so that other processes know that it is
    in use. The lock ends at the latest with this process.

    path (Path): The file or folder.
    YIELDS (bool | None): True if we have the lock, False if another process has it. None if the
        system has no locks: Windows, and some network file systems.
    """
    handle: int | None = None
    is_ours: bool | None
    try:
        try:
            import fcntl  # Windows doesn't have this module

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
    """The beginning of the names of hidden files and folders next to a path: a dot, and the name of
    the path or, if it is too long, its digest."""
    name_in_bytes = os.fsencode(path.name)
    if len(name_in_bytes) <= LONGEST_NAME:
        return f".{path.name}"
    return f".{sha256(name_in_bytes).hexdigest()}"


@contextmanager
def _temporary_path(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Make a temporary hidden file or folder next to a path with `Path.touch` or `Path.mkdir`, and
    lock it. The `with` block writes it and renames it to the path. If it isn't renamed, it is
    removed at the end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden_path = target.with_name(f"{_hidden_name(target)}.{token_hex(4)}.saving")
    make(hidden_path)
    try:
        with locked(hidden_path):
            yield hidden_path
    except OSError as error:
        # The error of a full disk doesn't name a file.
        error.filename = error.filename or str(target)
        raise
    finally:
        _remove(hidden_path)


def _publish(new_folder: Path, path: Path) -> None:
    """Flush a complete folder to the disk, and rename it to a path. Until this is done, an old
    folder is kept next to the path. If renaming fails, the old folder is restored."""
    for folder, _, names in os.walk(new_folder):
        for name in names:
            file = Path(folder, name)
            if not file.is_symlink():
                _sync(file)
        _sync(Path(folder))

    old_folder = path.with_name(f"{_hidden_name(path)}.{token_hex(4)}.old")
    with locked(path):  # the old folder keeps the lock when it is renamed: see `clear`
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
    """Add files of an old folder that a new one doesn't have, such as files that users have added
    to a pipeline. They are hard links, which need no space."""

    def names_to_skip(folder: str, names: list[str]) -> list[str]:
        """The names in a folder that `copytree` leaves out. A new file or folder at the top level
        replaces the old one as a whole."""
        if Path(folder) == old:
            return os.listdir(new)
        return []

    shutil.copytree(
        old, new, symlinks=True, ignore=names_to_skip, copy_function=_link, dirs_exist_ok=True
    )


def _link(source: str | Path, target: str | Path) -> None:
    """Make a hard link to a file. If the disk doesn't support links, copy the file."""
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, target, follow_symlinks=False)


def _sync(path: Path) -> None:
    """Flush a file, or the list of names in a folder, to the disk, so that it survives a power
    failure."""
    if os.name != "posix":  # Windows can't open folders, or flush a file that is open for reading
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    """Remove a file or a folder, if it exists and can be removed."""
    with suppress(OSError):
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def save_text(path: Path, text: str) -> None:
    """Save a text file as a whole: see `save_file`."""
    save_file(path, lambda new_file: new_file.write_text(text, encoding="utf8"))


def as_json(value: Any) -> Any:
    """Convert a result to JSON values. Named tuples and objects with a method `to_dict` become
    dictionaries, arrays become lists, paths become strings, NaN and infinity become None."""
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
