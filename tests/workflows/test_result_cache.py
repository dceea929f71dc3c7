"""Tests of cached results: they are read again for the same settings and files only."""

from pathlib import Path
from typing import Any

import pytest

from spacy_costner.workflows.result_cache import cached_result, fingerprint, read_cache


def test_fingerprints_differ_for_settings_and_contents_of_files(tmp_path: Path) -> None:
    """A setting may be the path of a file or of a folder. The names of the files in a folder count,
    too. Hidden and compiled files don't count."""
    file = tmp_path / "tree.json"
    folder = tmp_path / "corpus"
    folder.mkdir()
    fingerprints = set()
    for text in ("one", "two"):
        file.write_text(text)
        (folder / "train.spacy").write_text(text)
        fingerprints.add(fingerprint({"tree": str(file)}))
        fingerprints.add(fingerprint([str(folder)], 1.0))
        fingerprints.add(fingerprint([str(folder)], 2.0))
    (folder / "train.spacy").rename(folder / "dev.spacy")
    fingerprints.add(fingerprint([str(folder)], 2.0))
    # For each of two texts, the file, and the folder with 1.0 and with 2.0; then the folder whose
    # file has another name.
    assert len(fingerprints) == 2 * 3 + 1

    (folder / ".hidden").touch()
    (folder / "code.pyc").touch()
    assert fingerprint([str(folder)], 2.0) in fingerprints


def test_fingerprints_are_the_same_for_another_order_of_settings() -> None:
    assert fingerprint({"a": "", "b": "x" * 300}) == fingerprint({"b": "x" * 300, "a": ""})


def test_fingerprints_take_text_that_is_no_path() -> None:
    """A path can't have a null character or half of a surrogate pair."""
    assert fingerprint("\0", "\ud800")


def test_values_are_remembered_for_as_long_as_the_key_is_the_same(tmp_path: Path) -> None:
    """They are the same to the last digit. One value is kept: a value with another key replaces
    it."""
    path = tmp_path / "value.json"
    new_values = iter([1 / 3, 2, [1e-300]])
    values = [
        cached_result(path, key, lambda: next(new_values)) for key in ("a", "a", "b", "a", "a")
    ]
    assert values == [1 / 3, 1 / 3, 2, [1e-300], [1e-300]]


def test_a_run_that_is_killed_while_it_writes_leaves_the_value_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "value.json"
    cached_result(path, "a", lambda: [1e-300])

    def write_half(path: Path, text: str, **settings: Any) -> None:
        """Write half of the text, and fail."""
        path.write_bytes(text[:10].encode())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "write_text", write_half)
        cached_result(path, "b", lambda: 4)

    assert cached_result(path, "a", lambda: 5) == [1e-300]


@pytest.mark.parametrize(
    "damaged", [b"", b"{}", b"5", b"null", b"\xff{", b'{"key": "a", "val', b"[" * 9999]
)
def test_a_damaged_file_is_as_if_it_were_not_there(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "value.json"
    path.write_bytes(damaged)

    assert read_cache(path, "a") is None
    assert cached_result(path, "a", lambda: 2) == 2
    assert read_cache(path, "a") == 2
