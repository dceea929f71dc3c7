"""Saves: whenever a process ends, or the disk is full, the old is there or the new, whole."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from spacy_costner.saving import (
    check_file,
    check_folder,
    locked,
    save_file,
    save_folder,
)

posix = pytest.mark.skipif(os.name != "posix", reason="folders are not replaced like this here")

Files = dict[str, str]


def pipeline(text: str) -> Files:
    """What could be a pipeline."""
    names = ["config.cfg", "meta.json", "ner/model", "vocab/strings.json"]
    return {name: f"{text} {name}" for name in names}


OLD, NEW = pipeline("old"), pipeline("new")


def writer(files: Files) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)

    return write


def files_of(folder: Path) -> Files:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


class Killed(BaseException):
    """The process is no more."""


class Clock:
    """Ends a process, as it were, at one of the times that it asks something of the disk."""

    left = sys.maxsize

    def __call__(self, event: str, arguments: Any) -> None:
        if event.split(".")[0] in ("open", "os", "shutil", "fcntl"):
            self.left -= 1
        if self.left < 0:
            raise Killed

    @contextmanager
    def after(self, n: int) -> Iterator[None]:
        """Nothing reaches the disk after so many times."""
        self.left = n
        try:
            yield
        finally:
            self.left = sys.maxsize


@pytest.fixture(scope="session")
def clock() -> Clock:
    clock = Clock()
    sys.addaudithook(clock)
    return clock


@posix
def test_killed_at_any_time(tmp_path: Path, clock: Clock) -> None:
    """The old folder or the new one, whole. Between two renames there is none; it comes back."""
    path, seen, n_missing = tmp_path / "model", [], 0
    for n in range(1000):
        save_folder(path, writer(OLD))
        (path / "notes.txt").write_text("mine")
        finished = False
        with suppress(Killed), clock.after(n):
            save_folder(path, writer(NEW))
            finished = True
        n_missing += not path.exists()
        check_folder(path)
        there = files_of(path)
        assert there in ({**OLD, "notes.txt": "mine"}, {**NEW, "notes.txt": "mine"}), n
        assert os.listdir(tmp_path) == ["model"]
        seen.append("new" in there["meta.json"])
        if finished:
            break
    assert finished and seen == sorted(seen) and 20 < seen.index(True) < n
    assert n_missing > 0


def test_a_file_is_killed_at_any_time(tmp_path: Path, clock: Clock) -> None:
    path, seen = tmp_path / "page.html", []
    for n in count():
        path.write_text("old")
        with suppress(Killed), clock.after(n):
            save_file(path, lambda there: there.write_text("new"))
            break
        seen.append(path.read_text())
    assert {*seen} <= {"old", "new"} and seen.count("old") > 5
    save_file(path, lambda there: there.write_text("newer"))
    assert path.read_text() == "newer" and os.listdir(tmp_path) == ["page.html"]


@pytest.mark.parametrize("where", ["write", "fsync", "mkdir", "rename"])
@pytest.mark.parametrize("save", [save_folder, save_file])
def test_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, save: Callable
) -> None:
    path, folder = tmp_path / "model", save is save_folder
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    save(path, writer(OLD) if folder else lambda there: there.write_text("old"))

    def write(there: Path) -> None:
        if where == "write":
            full()
        (writer(NEW) if folder else Path.write_bytes)(there, *([] if folder else [b"new"]))

    def moving(move: Callable) -> Callable:
        return lambda self, target: (full if self.suffix == ".saving" else move)(self, target)

    if where == "rename":
        for name in ("rename", "replace"):
            monkeypatch.setattr(Path, name, moving(getattr(Path, name)))
    elif where != "write":
        monkeypatch.setattr(Path if where == "mkdir" else os, where, full)
    if where == "mkdir" and not folder:
        pytest.skip("a file needs no folder")
    with pytest.raises(OSError, match="No space left"):
        save(path, write)
    monkeypatch.undo()
    assert (files_of(path) if folder else path.read_text()) == (OLD if folder else "old")
    assert os.listdir(tmp_path) == ["model"]


def test_what_a_folder_holds_besides_stays(tmp_path: Path) -> None:
    """Files and folders of the user, links among them."""
    path = tmp_path / "model"
    save_folder(path, writer({**OLD, "parser/model": "of an older pipeline"}))
    (path / "mine").mkdir()
    (path / "mine" / "a.txt").write_text("a")
    (path / "link").symlink_to("nowhere")
    path.chmod(0o750)
    save_folder(path, writer(NEW))
    kept = {"mine/a.txt": "a", "parser/model": "of an older pipeline"}
    assert files_of(path) == {**NEW, **kept}
    assert os.readlink(path / "link") == "nowhere" and path.stat().st_mode & 0o777 == 0o750


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative ones, links to folders, links to nothing, folders that aren't there."""
    (tmp_path / "disk").mkdir()
    monkeypatch.chdir(tmp_path)
    Path("model").symlink_to("disk/model")
    for files in (OLD, NEW):
        save_folder("model", writer(files))
        assert Path("model").is_symlink() and files_of(tmp_path / "disk" / "model") == files
    save_folder(Path("a", "b", "..", "c"), writer(NEW))
    assert files_of(tmp_path / "a" / "c") == NEW
    save_folder("model/inner", writer(OLD))
    save_folder("model", writer(OLD))
    assert files_of(Path("model", "inner")) == OLD
    Path("page").symlink_to("disk/page")
    for text in ("one", "other"):
        save_file("page", lambda there, text=text: there.write_text(text))
        assert Path("page").is_symlink() and Path("disk", "page").read_text() == text
    save_file(os.devnull, lambda there: there.write_text("nothing"))


def test_where_a_folder_cannot_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("mine")
    save_folder(tmp_path / "model", writer(OLD))
    for path in (tmp_path / "file", tmp_path / "file" / "model"):
        with pytest.raises(ValueError, match=r"expected a folder to save in, got a file: .*file"):
            save_folder(path, writer(NEW))
    with pytest.raises(ValueError, match=r"a pipeline, got: \['file', 'model'\]"):
        check_folder(tmp_path)
    with pytest.raises(ValueError, match="a folder that can be replaced, got a mount"):
        check_folder("/")
    monkeypatch.chdir(tmp_path / "model")
    with pytest.raises(ValueError, match=r"\.: expected .* or the working directory"):
        check_folder(".")
    assert files_of(tmp_path) == {"file": "mine", **{f"model/{n}": t for n, t in OLD.items()}}


@posix
def test_what_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "model"

    def write(there: Path) -> None:
        writer(OLD)(there)
        save_folder(path, writer(NEW))
        assert files_of(there) == OLD

    save_folder(path, write)
    assert files_of(path) == OLD and os.listdir(tmp_path) == ["model"]
    for name in (".model.saving", ".model.0123.old", ".model.01234567.old"):
        (tmp_path / name).mkdir()
    with locked(tmp_path / ".model.01234567.old"):  # another process is between its renames
        path.rename(tmp_path / "elsewhere")
        check_folder(path)
        assert len(os.listdir(tmp_path)) == 4 and not path.exists()
    check_folder(path)
    names = [".model.0123.old", ".model.saving", "elsewhere", "model"]
    assert sorted(os.listdir(tmp_path)) == names


def test_files_that_are_inputs(tmp_path: Path) -> None:
    model, corpus = tmp_path / "model", tmp_path / "test.spacy"
    save_folder(model, writer(OLD))
    corpus.write_text("docs")
    (model / "page.html").write_text("old page")
    (tmp_path / "link").symlink_to(corpus)
    for path in (corpus, tmp_path / "link", tmp_path / "model" / ".." / "test.spacy", model):
        with pytest.raises(ValueError, match="expected another file than the input, got: "):
            check_file(path, [str(model), corpus])
    with pytest.raises(ValueError, match=r"meta\.json: expected another file .*model"):
        check_file(model / "meta.json", [model])
    for other in (None, tmp_path / "page.html", model / "page.html", model / "new.json"):
        check_file(other, [model, corpus, "en_core_web_sm"])
