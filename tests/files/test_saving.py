"""Tests of saving: whenever a process is killed or the disk is full, there is the old file or
folder or the complete new one."""

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

from spacy_costner.files.saving import (
    check_file,
    check_folder,
    clear,
    locked,
    save_file,
    save_folder,
)

pytestmark = pytest.mark.usefixtures("with_flushing")
posix = pytest.mark.skipif(os.name != "posix", reason="folders are not replaced like this here")

Files = dict[str, str]


def pipeline_files(text: str) -> Files:
    """Files with the names of a pipeline's files. The content of each is the text and its name."""
    names = ["config.cfg", "meta.json", "ner/model", "vocab/strings.json"]
    return {name: f"{text} {name}" for name in names}


OLD = pipeline_files("old")
NEW = pipeline_files("new")


def writer(files: Files) -> Callable[[Path], None]:
    """Make a function that writes these files to a folder."""

    def write(folder: Path) -> None:
        """Write the files to a folder."""
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)

    return write


def files_of(folder: Path) -> Files:
    """The content of each file in a folder, by its path within the folder."""
    files = {}
    for path in folder.rglob("*"):
        if path.is_file():
            files[str(path.relative_to(folder))] = path.read_text()
    return files


class Killed(BaseException):
    """Stands for the death of the process."""


class DiskAccesses:
    """An audit hook of Python, which is called before each access to the disk. After some number of
    accesses it raises `Killed`, as if the process had been killed."""

    n_left = sys.maxsize

    def __call__(self, event: str, arguments: Any) -> None:
        """Take note of an event, such as "os.rename"."""
        module = event.split(".")[0]
        if module in ("open", "os", "shutil", "fcntl"):
            self.n_left -= 1
        if self.n_left < 0:
            raise Killed

    @contextmanager
    def killed_after(self, n_accesses: int) -> Iterator[None]:
        """In a `with` block, nothing reaches the disk after so many accesses."""
        self.n_left = n_accesses
        try:
            yield
        finally:
            self.n_left = sys.maxsize


@pytest.fixture(scope="session")
def disk() -> DiskAccesses:
    """The hook. It is made once for all tests, as hooks can't be removed."""
    accesses = DiskAccesses()
    sys.addaudithook(accesses)
    return accesses


@posix
def test_a_folder_is_old_or_new_whenever_its_save_is_killed(
    tmp_path: Path, disk: DiskAccesses
) -> None:
    """The save is killed before each of its accesses to the disk, until a save ends. Between its
    two renames there is no folder, and `check_folder` brings the old one back."""
    path = tmp_path / "model"
    is_new: list[bool] = []
    n_missing = 0
    for n_accesses in range(1000):
        save_folder(path, writer(OLD))
        (path / "notes.txt").write_text("mine")

        finished = False
        with suppress(Killed), disk.killed_after(n_accesses):
            save_folder(path, writer(NEW))
            finished = True

        if not path.exists():
            n_missing += 1
        check_folder(path)
        files = files_of(path)
        assert files in ({**OLD, "notes.txt": "mine"}, {**NEW, "notes.txt": "mine"}), n_accesses
        assert os.listdir(tmp_path) == ["model"]
        is_new.append("new" in files["meta.json"])
        if finished:
            break
    assert finished
    # First it is always old, then always new.
    assert is_new == sorted(is_new)
    # A save was killed at many places: while it wrote, and after the new folder was there.
    assert 20 < is_new.index(True) < n_accesses
    assert n_missing > 0


def test_a_file_is_old_or_new_whenever_its_save_is_killed(
    tmp_path: Path, disk: DiskAccesses
) -> None:
    path = tmp_path / "page.html"
    texts: list[str] = []
    for n_accesses in count():
        path.write_text("old")
        with suppress(Killed), disk.killed_after(n_accesses):
            save_file(path, lambda temporary: temporary.write_text("new"))
            break
        texts.append(path.read_text())
    assert {*texts} <= {"old", "new"}
    assert texts.count("old") > 5  # otherwise few saves were killed


@pytest.mark.parametrize("name", ["page.html", "long" * 60], ids=["short", "long"])
def test_a_file_is_saved_after_a_save_that_was_killed(
    tmp_path: Path, disk: DiskAccesses, name: str
) -> None:
    """The first save is killed before each of its accesses to the disk. Nothing of it remains after
    the second. The long name has no room for a suffix."""
    path = tmp_path / name
    for n_accesses in range(10):
        with suppress(Killed), disk.killed_after(n_accesses):
            save_file(path, lambda temporary: temporary.write_text("new"))

    save_file(path, lambda temporary: temporary.write_text("newer"))

    assert path.read_text() == "newer"
    assert os.listdir(tmp_path) == [name]


def test_a_folder_is_listed_once_for_all_paths_that_are_cleared(
    tmp_path: Path, disk: DiskAccesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three files were left half-written. Only files of the named paths are removed."""
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path in paths:
        with suppress(Killed), disk.killed_after(5):
            save_file(path, lambda temporary: temporary.write_text("new"))
    assert len(os.listdir(tmp_path)) == 3
    listed = Mock(side_effect=os.listdir)
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", listed)
        clear(*paths[:2])
    assert listed.call_count == 1
    (left,) = os.listdir(tmp_path)
    assert left.startswith(".c.")


def fill_disk(monkeypatch: pytest.MonkeyPatch, call: str) -> Mock:
    """Let a call fail as on a full disk: "fsync", "mkdir" or "rename". (Writing itself is left to
    the test.) Returns a function that fails in the same way."""
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))

    def full_for_saved(move: Callable) -> Callable:
        """Only what was written anew can't be renamed. The old folder can be renamed back."""
        return lambda path, target: (full if path.suffix == ".saving" else move)(path, target)

    if call == "rename":
        for name in ("rename", "replace"):
            monkeypatch.setattr(Path, name, full_for_saved(getattr(Path, name)))
    elif call == "mkdir":
        monkeypatch.setattr(Path, "mkdir", full)
    elif call == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    return full


@pytest.mark.parametrize("call", ["write", "fsync", "mkdir", "rename"])
def test_the_old_folder_stays_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "model"
    save_folder(path, writer(OLD))
    full = fill_disk(monkeypatch, call)

    with pytest.raises(OSError, match="No space left"):
        save_folder(path, full if call == "write" else writer(NEW))

    monkeypatch.undo()
    assert files_of(path) == OLD
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_the_old_file_stays_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "page.html"
    save_file(path, lambda temporary: temporary.write_text("old"))
    full = fill_disk(monkeypatch, call)

    def write_new(temporary: Path) -> None:
        """Write the new file."""
        if call == "write":
            full()
        temporary.write_bytes(b"new")

    with pytest.raises(OSError, match="No space left"):
        save_file(path, write_new)

    monkeypatch.undo()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["page.html"]


def test_what_is_not_saved_again_stays_in_the_folder(tmp_path: Path) -> None:
    """Files and folders of the user stay, and so do links, the files of an older pipeline that the
    new one doesn't have, and the permissions of the folder."""
    path = tmp_path / "model"
    save_folder(path, writer({**OLD, "parser/model": "of an older pipeline"}))
    (path / "mine").mkdir()
    (path / "mine" / "a.txt").write_text("a")
    (path / "link").symlink_to("nowhere")
    path.chmod(0o750)

    save_folder(path, writer(NEW))

    files_that_stay = {"mine/a.txt": "a", "parser/model": "of an older pipeline"}
    assert files_of(path) == {**NEW, **files_that_stay}
    assert os.readlink(path / "link") == "nowhere"
    assert path.stat().st_mode & 0o777 == 0o750  # the last nine bits are the permissions


def test_a_link_to_a_folder_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path is relative. At first it is a link to nothing."""
    (tmp_path / "disk").mkdir()
    monkeypatch.chdir(tmp_path)
    Path("model").symlink_to("disk/model")
    for files in (OLD, NEW):
        save_folder("model", writer(files))
        assert Path("model").is_symlink() and files_of(tmp_path / "disk" / "model") == files


def test_a_link_to_a_file_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk").mkdir()
    monkeypatch.chdir(tmp_path)
    Path("page").symlink_to("disk/page")
    for text in ("old", "new"):
        save_file("page", lambda temporary, text=text: temporary.write_text(text))
        assert Path("page").is_symlink() and Path("disk", "page").read_text() == text


def test_folders_above_that_are_not_there_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_folder(Path("a", "b", "..", "c"), writer(NEW))
    assert files_of(tmp_path / "a" / "c") == NEW


def test_a_folder_within_a_saved_folder_stays(tmp_path: Path) -> None:
    save_folder(tmp_path / "model", writer(OLD))
    save_folder(tmp_path / "model" / "inner", writer(OLD))

    save_folder(tmp_path / "model", writer(NEW))

    assert files_of(tmp_path / "model" / "inner") == OLD


def test_the_null_device_can_be_written_to() -> None:
    save_file(os.devnull, lambda temporary: temporary.write_text("nothing"))


def test_folders_that_cannot_be_replaced_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with pytest.raises(ValueError, match=r"\.: expected .*, the working directory or a folder"):
        check_folder(".")
    assert (tmp_path / "file").read_text() == "mine"
    assert files_of(tmp_path / "model") == OLD


@posix
def test_of_two_saves_at_once_the_later_one_stays(tmp_path: Path) -> None:
    """The second save begins and ends while the first one is writing."""
    path = tmp_path / "model"

    def write_old(temporary: Path) -> None:
        """Write the old files. Before this ends, save the new ones."""
        writer(OLD)(temporary)
        save_folder(path, writer(NEW))
        assert files_of(temporary) == OLD

    save_folder(path, write_old)

    assert files_of(path) == OLD and os.listdir(tmp_path) == ["model"]


@posix
def test_check_folder_brings_back_only_a_folder_that_no_process_is_renaming(
    tmp_path: Path,
) -> None:
    """A save gives the old folder a hidden name with eight random digits. Folders with other names
    are left alone."""
    path = tmp_path / "model"
    for name in (".model.saving", ".model.0123.old", ".model.01234567.old"):
        (tmp_path / name).mkdir()

    with locked(tmp_path / ".model.01234567.old"):  # as a process between its two renames has it
        check_folder(path)
        assert not path.exists()
    check_folder(path)

    assert sorted(os.listdir(tmp_path)) == [".model.0123.old", ".model.saving", "model"]


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    """A pipeline and a corpus."""
    model = tmp_path / "model"
    corpus = tmp_path / "test.spacy"
    save_folder(model, writer(OLD))
    corpus.write_text("docs")
    (model / "page.html").write_text("old page")
    return [model, corpus]


@pytest.mark.parametrize(
    "output", ["test.spacy", "link", "model/../test.spacy", "model", "model/meta.json"]
)
def test_an_output_that_is_an_input_is_refused(
    output: str, tmp_path: Path, inputs: list[Path]
) -> None:
    """It is refused even under another name, and so is a file in the folder of an input
    pipeline."""
    (tmp_path / "link").symlink_to(tmp_path / "test.spacy")
    with pytest.raises(ValueError, match="expected a file other than the input, got: "):
        check_file(tmp_path / output, [str(path) for path in inputs])


def test_the_input_whose_file_an_output_is_is_named(tmp_path: Path, inputs: list[Path]) -> None:
    with pytest.raises(ValueError, match=r"meta\.json: expected a file other .*model"):
        check_file(tmp_path / "model" / "meta.json", inputs)


@pytest.mark.parametrize("output", [None, "page.html", "model/page.html", "model/new.json"])
def test_other_outputs_are_not_refused(
    output: str | None, tmp_path: Path, inputs: list[Path]
) -> None:
    """For example, a page in the folder of a pipeline. An input may also be an installed
    package."""
    path = None if output is None else tmp_path / output
    check_file(path, [*inputs, "en_core_web_sm"])
