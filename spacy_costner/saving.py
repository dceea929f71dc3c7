"""Atomic saving: the old file or folder stays until the new one is complete.

The new one is written beside the old one, flushed, and put in its place. If the process is killed
or the disk is full, the path has the old one or the new one, never a part of it.
"""

import ctypes
import os
import re
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Callable, Iterable, Iterator, Optional, Union

EXCHANGE = 2
"""To `renameat2` and `renamex_np`: the two paths change places, at once."""

FROM_HERE = -100
"""To `renameat2`: a relative path begins in the working directory."""

PAGES = frozenset([".html", ".pdf", ".png", ".svg"])
"""Suffixes of what is written to be looked at, and not read again."""

Write = Callable[[Path], object]


def check_folder(path: Union[str, Path]) -> Path:
    """Check the path of a folder before any work. Files that killed processes left beside it are
    removed. If a killed process left nothing at the path, the old folder is restored.

    path (Union[str, Path]): Where a pipeline is to be saved.
    RETURNS (Path): The same, without symbolic links.
    RAISES (ValueError): If the path is taken: only a pipeline, or an empty folder, is replaced.
    """
    target = Path(os.path.realpath(path))
    clear(target)
    there = next(place for place in (target, *target.parents) if place.exists())
    if not there.is_dir():
        raise ValueError(f"{path}: expected a folder to save in, got a file: {there}")
    if there != target:
        return target
    if os.path.ismount(target) or target in (Path.cwd(), *Path.cwd().parents):
        raise ValueError(
            f"{path}: expected a folder that can be replaced, got a mount or the working directory"
        )
    names = sorted(os.listdir(target))
    if names and not {"config.cfg", "meta.json"} <= {*names}:
        raise ValueError(
            f"{path}: expected a new folder, an empty one or that of a pipeline, got: {names[:5]}"
        )
    return target


def check_file(path: Optional[Path], inputs: Iterable[Union[str, Path]]) -> None:
    """Check the path of a file before any work.

    path (Optional[Path]): The file, if there is one. What is there will be replaced.
    inputs (Iterable[Union[str, Path]]): Files and folders that are read; names of packages count
        for nothing.
    RAISES (ValueError): If the file is one of them or, unless it is a page, in one of them.
    """
    if path is None:
        return
    target = Path(os.path.realpath(path))
    for given in inputs:
        source = Path(os.path.realpath(given))
        inside = source in target.parents and target.suffix.lower() not in PAGES
        if target.exists() and source.exists() and (inside or target.samefile(source)):
            raise ValueError(f"{path}: expected another file than the input, got: {given}")


def save_folder(path: Union[str, Path], write: Write) -> None:
    """Save a folder. Other files of an older folder are kept.

    path (Union[str, Path]): Where. If it is a symbolic link, it stays one.
    write (Callable[[Path], object]): Writes it, to the empty folder that it is given.
    RAISES (ValueError): If the path is taken: see `check_folder`.
    """
    target = check_folder(path)
    with beside(target, Path.mkdir) as new:
        write(new)
        flush(new)
        if target.exists():
            _keep_others(target, new)
        publish(new, target)


def replace_folder(new: Path, path: Path) -> None:
    """Replace a folder, if there is one, by a complete one.

    new (Path): The folder. It isn't there afterwards.
    path (Path): Its place, on the same disk.
    """
    clear(path)
    flush(new)
    publish(new, path)
    remove(new)


def save_file(path: Union[str, Path], write: Write) -> None:
    """Save a file.

    path (Union[str, Path]): Where. A terminal, or a pipe, is written to as it is.
    write (Callable[[Path], object]): Writes it, to the empty file that it is given.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        write(target)
        return
    clear(target)
    with beside(target, Path.touch) as new:
        write(new)
        if target.exists():
            shutil.copymode(target, new)
        flush(new)
        new.replace(target)
    _sync(target.parent)


def publish(new: Path, path: Path) -> None:
    """Swap a complete and flushed folder with another one.

    Where the system can exchange them, there is one of them under the path at any time. Elsewhere
    there is none for a moment; the old one is beside, and `check_folder` puts it back.

    new (Path): The folder. What was under the path is there afterwards, if anything is.
    path (Path): Its place, on the same disk.
    """
    if not path.exists():
        new.rename(path)
    elif not exchange(new, path):
        old = _beside(path, "old")
        path.rename(old)
        try:
            new.rename(path)
        except BaseException:
            old.rename(path)
            raise
        old.rename(new)
    _sync(path.parent)


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders.

    RETURNS (bool): Whether they did: not every system can do that, nor every disk.
    """
    libc: Any = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
    names = os.fsencode(one), os.fsencode(other)
    if hasattr(libc, "renameat2"):
        return not libc.renameat2(FROM_HERE, names[0], FROM_HERE, names[1], EXCHANGE)
    if hasattr(libc, "renamex_np"):
        return not libc.renamex_np(*names, EXCHANGE)
    return False


def clear(target: Path) -> None:
    """Remove what killed processes left beside a path; restore what was there."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.(saving|old)")
    names = os.listdir(target.parent) if target.parent.is_dir() else []
    for left in [target.with_name(name) for name in names if pattern.fullmatch(name)]:
        with locked(left) as is_left:
            if left.suffix == ".old" and not target.exists():
                left.rename(target)
            elif is_left:
                remove(left)


@contextmanager
def beside(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """A place beside a path to write to, removed at the end with all that is there then.

    target (Path): The path. Its folder is made if it isn't there.
    make (Callable[[Path], None]): Makes the file or folder.
    YIELDS (Path): The place.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    new = _beside(target, "saving")
    make(new)
    try:
        with locked(new):
            yield new
    finally:
        remove(new)


def _beside(target: Path, suffix: str) -> Path:
    return target.with_name(f".{target.name}.{token_hex(4)}.{suffix}")


@contextmanager
def locked(path: Path) -> Iterator[Optional[bool]]:
    """Hold a lock on a file or folder. It ends with the process.

    YIELDS (Optional[bool]): Whether we have it: not if another process has. None: the system has
        no locks, as network file systems have none on folders.
    """
    handle = None
    try:
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY)
        yield None if handle is None else _lock(handle)
    finally:
        if handle is not None:
            os.close(handle)


def _lock(handle: int) -> Optional[bool]:
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None


def _keep_others(old: Path, new: Path) -> None:
    """Link, from an older folder, to what the new one doesn't have."""
    shutil.copymode(old, new)
    for entry in old.iterdir():
        there = new / entry.name
        if os.path.lexists(there):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, there, symlinks=True, copy_function=_link)
        else:
            _link(entry, there)


def _link(source: Union[str, Path], target: Union[str, Path]) -> None:
    """Link to a file or, where the disk has no links, copy it."""
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, target, follow_symlinks=False)


def flush(path: Path) -> None:
    """Have the disk take what was written to a file, or to a folder and all that is in it."""
    for folder, _, names in os.walk(path):
        for name in names:
            _sync(Path(folder, name))
        _sync(Path(folder))
    if path.is_file():
        _sync(path)


def _sync(path: Path) -> None:
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file or a folder, as far as that can be done."""
    with suppress(OSError):
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)
