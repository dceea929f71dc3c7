"""Corpora most of whose spans don't begin and end with tokens are refused, with the reason."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import spacy

from spacy_costner.readers import CorpusError, read_docs
from spacy_costner.readers.alignment import LanguageError

from ..support.commands import run

ENTITIES = [("Anna", "Köln"), ("Jürg", "Bärn"), ("Maria", "Genève"), ("Luca", "Basel")]
TEXTS = [f"Ä \U0001f600 {name} \U0001f600 lives in {place}, near Ü." for name, place in ENTITIES]
CHINESE = [("张伟住在北京。", ("张伟", "北京")), ("李娜住在上海。", ("李娜", "上海"))] * 2

Count = Callable[[str, int], int]
"""Takes a text and the number of a character, and returns an offset."""


def in_characters(text: str, i: int) -> int:
    return i


def in_bytes(text: str, i: int) -> int:
    return len(text[:i].encode("utf8"))


def in_utf16(text: str, i: int) -> int:
    return len(text[:i].encode("utf-16-le")) // 2


def from_one(text: str, i: int) -> int:
    return i + 1


def save(
    path: Path,
    texts: list[tuple[str, tuple[str, ...]]],
    count: Count = in_characters,
    *,
    shift_of_end: int = 0,
    n_damaged: int | None = None,
) -> Path:
    """Save texts with entities to JSONL. The offsets of the first `n_damaged` texts are those that
    `count` and `shift_of_end` make; the other spans are right."""
    lines: list[str] = []
    for i, (text, entities) in enumerate(texts):
        is_damaged = n_damaged is None or i < n_damaged
        spans: list[list[int | str]] = []
        for entity in entities:
            start = text.index(entity)
            end = start + len(entity)
            if is_damaged:
                start, end = count(text, start), count(text, end) + shift_of_end
            spans.append([start, end, "X"])
        lines.append(json.dumps({"text": text, "label": spans}))
    path.write_text("\n".join(lines))
    return path


@pytest.mark.filterwarnings("ignore:spans")
@pytest.mark.parametrize(
    ("count", "shift_of_end", "expected"),
    [
        (in_characters, -1, "got inclusive ends"),
        (from_one, 0, "expected offsets from 0, got offsets from 1"),
        (from_one, -1, "got offsets from 1 and inclusive ends"),
        (in_bytes, 0, "expected offsets in characters, got offsets in UTF-8 bytes"),
        (in_utf16, 0, "expected offsets in characters, got offsets in UTF-16 code units"),
    ],
)
def test_it_is_said_what_offsets_count(
    count: Count, shift_of_end: int, expected: str, tmp_path: Path
) -> None:
    path = save(tmp_path / "a.jsonl", [*zip(TEXTS, ENTITIES)], count, shift_of_end=shift_of_end)
    message = rf"a\.jsonl, line 1: .* \d others of 8 that don't: .*{expected}$"
    with pytest.raises(CorpusError, match=message):
        list(read_docs(spacy.blank("xx"), path))


@pytest.mark.filterwarnings("ignore:spans")
def test_texts_of_another_language_name_the_parameter(tmp_path: Path) -> None:
    path = save(tmp_path / "zh.jsonl", CHINESE)
    with pytest.raises(LanguageError, match=r": lang: expected the language of .*, got 'xx'"):
        list(read_docs(spacy.blank("xx"), path))
    docs = list(read_docs(spacy.blank("zh"), path))
    assert [ent.text for doc in docs for ent in doc.ents] == ["张伟", "北京", "李娜", "上海"] * 2


@pytest.mark.filterwarnings("ignore:spans")
def test_commands_name_the_option_and_write_nothing(tmp_path: Path) -> None:
    path = save(tmp_path / "zh.jsonl", CHINESE)
    output = tmp_path / "out.spacy"
    converted = run("convert", path, output)
    assert converted.exit_code == 1
    assert "--lang: expected the language of the texts, got 'xx'" in converted.output
    assert not output.exists()
    for command in (["init", tmp_path / "a.cfg"], ["fit", "--output", tmp_path / "out"]):
        refused = run(*command, "--lang", "xx", "--train", path)
        assert refused.exit_code == 1
        assert "--lang: expected the language of the texts, got 'xx'" in refused.output
    # The language of a config is its own setting.
    init = run("init", tmp_path / "a.cfg", "--lang", "xx")
    assert init.exit_code == 0, init.output
    refused = run("fit", tmp_path / "a.cfg", "--output", tmp_path / "out", "--paths.train", path)
    assert refused.exit_code == 1
    assert "nlp.lang: expected the language of the texts, got 'xx'" in refused.output
    assert run("convert", path, output, "--lang", "zh").exit_code == 0


@pytest.mark.filterwarnings("ignore:spans")
def test_spans_of_all_files_count_together(tmp_path: Path) -> None:
    """Each of the files has too few spans."""
    for i, example in enumerate(CHINESE):
        save(tmp_path / f"{i}.jsonl", [example])
    with pytest.raises(LanguageError, match=r"0\.jsonl, line 1: .* and 7 others of 8"):
        list(read_docs(spacy.blank("xx"), tmp_path))


@pytest.mark.filterwarnings("ignore:spans")
@pytest.mark.parametrize(
    ("n_texts", "n_damaged"), [(2, 2), (4, 2)], ids=["four spans", "half of the spans"]
)
def test_few_misaligned_spans_are_only_reported(
    n_texts: int, n_damaged: int, tmp_path: Path
) -> None:
    texts = [*zip(TEXTS, ENTITIES)] * 2
    path = save(tmp_path / "a.jsonl", texts[:n_texts], shift_of_end=-1, n_damaged=n_damaged)
    assert len(list(read_docs(spacy.blank("xx"), path))) == n_texts
    more = save(tmp_path / "b.jsonl", texts, shift_of_end=-1, n_damaged=5)
    with pytest.raises(CorpusError, match="9 others of 16"):
        list(read_docs(spacy.blank("xx"), more))


@pytest.mark.filterwarnings("ignore:spans")
def test_tokens_of_the_file_have_no_language(tmp_path: Path) -> None:
    lines: list[str] = []
    for text in ("Kim left", "Ann left") * 3:
        tokens = [{"start": 0, "end": 8}]
        span = {"start": 1, "end": 3, "label": "X"}
        lines.append(json.dumps({"text": text, "tokens": tokens, "spans": [span]}))
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(CorpusError, match="5 others of 6 that don't: these tokens are in the file"):
        list(read_docs(spacy.blank("xx"), path))
