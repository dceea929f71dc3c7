"""Tests of `annotate`: each row of the input is there once, with the entities that a single process
predicts, or with its error."""

import errno
import gc
import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any
from unittest.mock import Mock

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import DocBin, Span

from spacy_costner.files.saving import locked, save_file
from spacy_costner.readers import read_docs, read_texts
from spacy_costner.readers.file_parts import TextRow, divide, read_rows
from spacy_costner.readers.texts import has_wrapped_lines
from spacy_costner.workflows.apply import parts
from spacy_costner.workflows.apply.annotating import PartCounts, Summary, annotate
from spacy_costner.workflows.apply.batches import annotate_batch

from ...support import annotating
from ...support.annotating import SENTENCES, Saved, files, places, plain, rows, write_lines
from ...support.commands import run
from ...support.runs import call_first, local

N_DOCS = 52
"""In `inputs`: two files, each of the 24 SENTENCES, a text that fails and one that may kill."""


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A pipeline that was saved to disk, for all tests of this file. It is made once in a process,
    because spaCy refuses to import its code again."""
    return annotating.save_pipeline(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def model(saved: Saved) -> Path:
    """The folder of the saved pipeline."""
    return saved.model


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    """A folder with b.jsonl and sub/a.txt. The last text but one raises an error. The last text
    kills its process if there is no file "died" next to the pipeline; here the file
    exists."""
    (tmp_path / "died").touch()
    texts = [*SENTENCES, "poison", f"killer {tmp_path / 'died'}"]
    return [annotating.write_inputs(tmp_path / "in", *texts)]


# Answers


@pytest.mark.slow
def test_rows_have_the_texts_with_the_entities_of_the_pipeline(model: Path, tmp_path: Path) -> None:
    """The id of a row is the number of its line. Line 6 is empty and has no row. The 25 lines are
    in parts of 10, so there are three parts."""
    texts = write_lines(tmp_path / "a.txt", [*SENTENCES[:5], "", *SENTENCES[5:]])

    summary = annotate(model, [texts], tmp_path / "out", n_rows=10)

    output_rows = rows(tmp_path / "out")
    assert [row["id"] for row in output_rows] == [1, 2, 3, 4, 5, *range(7, 26)]
    assert [row["text"] for row in output_rows] == SENTENCES
    assert [places(row["entities"]) for row in output_rows] == plain(model, SENTENCES)
    assert summary.parts == PartCounts(kept=0, changed=0, new=3)
    assert not summary.errors
    assert (summary.docs, summary.failed) == (24, 0)
    assert summary.tokens == sum(len(doc) for doc in spacy.load(model).pipe(SENTENCES))


@pytest.mark.parametrize(
    ("key", "spans_key"),
    [
        ("entities", "confidence"),
        ("guaranteed", "confidence_guaranteed"),
        ("alternatives", "confidence_alternatives"),
    ],
)
def test_rows_have_spans_and_scores_of_the_pipeline(
    model: Path, tmp_path: Path, key: str, spans_key: str
) -> None:
    texts = write_lines(tmp_path / "a.txt", SENTENCES)

    annotate(model, [texts], tmp_path / "out")

    output_rows = rows(tmp_path / "out")
    assert any(row[key] for row in output_rows)
    for doc, row in zip(spacy.load(model).pipe(SENTENCES), output_rows, strict=True):
        group = doc.spans[spans_key]
        expected = [(span.start_char, span.end_char, span.label_) for span in group]
        assert places(row[key]) == expected
        scores = [span["score"] for span in row[key]]
        assert scores == pytest.approx(list(group.attrs["scores"]))


def test_output_can_be_read_as_a_corpus(model: Path, tmp_path: Path) -> None:
    texts = write_lines(tmp_path / "a.txt", SENTENCES)
    annotate(model, [texts], tmp_path / "out")
    corpus = read_docs(spacy.blank("xx"), tmp_path / "out" / "a.txt-00000.jsonl")
    for doc, expected in zip(corpus, spacy.load(model).pipe(SENTENCES), strict=True):
        assert [(ent.text, ent.label_) for ent in doc.ents] == [
            (ent.text, ent.label_) for ent in expected.ents
        ]


def test_the_output_folder_can_be_read_as_a_corpus(model: Path, tmp_path: Path) -> None:
    """Without its manifest, and without rows that have no text, which are reported."""
    texts = write_lines(tmp_path / "a.jsonl", [])
    lines = [json.dumps({"text": text}) for text in SENTENCES]
    texts.write_text("\n".join([*lines, '{"text": null}', '{"text": 7}']), encoding="utf8")
    output = tmp_path / "out"
    assert annotate(model, [texts], output).failed == 2
    nlp = spacy.blank("xx")

    with pytest.warns(UserWarning, match=r"`annotate` couldn't read have no text: .* \(2\)"):
        docs = list(read_docs(nlp, output))

    assert [doc.text for doc in docs] == SENTENCES
    assert [doc.text for doc in read_texts(nlp, output)] == SENTENCES
    # Any other file of this name is data.
    (output / "manifest.jsonl").write_text('{"text": "A manifest", "spans": []}', encoding="utf8")
    with pytest.warns(UserWarning):
        assert next(read_docs(nlp, output)).text == SENTENCES[0]
        assert "A manifest" in [doc.text for doc in read_docs(nlp, output)]


@pytest.fixture
def docs_as_jsonl_and_spacy(tmp_path: Path) -> tuple[Path, Path]:
    """Write the same docs to two files: as JSONL with their tokens, and as a DocBin with
    annotation, which `annotate` ignores."""
    nlp = spacy.blank("xx")
    docs = [nlp.make_doc(text) for text in SENTENCES]
    docs[0].set_ents([Span(docs[0], 0, 1, label="other")])
    DocBin(docs=docs).to_disk(tmp_path / "c.spacy")
    lines = []
    for i, doc in enumerate(docs):
        tokens = [{"start": token.idx, "end": token.idx + len(token)} for token in doc]
        lines.append(json.dumps({"id": i, "text": doc.text, "tokens": tokens}))
    (tmp_path / "b.jsonl").write_text("\n".join(lines))
    return tmp_path / "b.jsonl", tmp_path / "c.spacy"


def test_docs_of_a_docbin_are_annotated_as_lines_are(
    model: Path, docs_as_jsonl_and_spacy: tuple[Path, Path], tmp_path: Path
) -> None:
    """Docs of a DocBin have no ids. Their rows have their numbers from 0 on, which are the ids in
    the JSONL file, too."""
    jsonl, docbin = docs_as_jsonl_and_spacy
    annotate(model, [jsonl], tmp_path / "of_jsonl")
    annotate(model, [docbin], tmp_path / "of_docbin")
    assert rows(tmp_path / "of_jsonl") == rows(tmp_path / "of_docbin")


def test_output_can_be_a_docbin(
    model: Path, docs_as_jsonl_and_spacy: tuple[Path, Path], tmp_path: Path
) -> None:
    """Its docs have the same entities as the rows of JSONL."""
    jsonl, _ = docs_as_jsonl_and_spacy
    annotate(model, [jsonl], tmp_path / "lines")
    annotate(model, [jsonl], tmp_path / "docs", form="spacy")

    docbin = DocBin().from_disk(tmp_path / "docs" / "b.jsonl-00000.spacy")
    docs = docbin.get_docs(spacy.blank("xx").vocab)
    for row, doc in zip(rows(tmp_path / "lines"), docs, strict=True):
        assert doc.user_data["id"] == row["id"]
        entities = [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
        assert places(row["entities"]) == entities
        assert len(doc.spans["confidence_guaranteed"]) == len(row["guaranteed"])


def test_rows_can_be_without_text(model: Path, tmp_path: Path) -> None:
    texts = write_lines(tmp_path / "a.txt", SENTENCES)
    annotate(model, [texts], tmp_path / "out", with_text=False)
    assert not any("text" in row for row in rows(tmp_path / "out"))


LINES: list[tuple[str, Any, str]] = [
    ('{"id": "d0", "text": "The Red Sox lost."}', "d0", ""),
    ('{"id": "d1", "text": null}', "d1", "expected a text, got None"),
    ('{"id": "d2", "text": NaN}', "d2", "expected a text, got nan"),
    ('{"id": "d3", "text": ["list"]}', "d3", "expected a text, got ['list']"),
    (json.dumps({"id": "d4", "text": "x" * 1_000_001}), "d4", "[E088]"),
    ('{"id": "d5", "text": "poison"}', "d5", "RuntimeError: poisoned"),
    ('{"id": "d6", "text": "swallow"}', "d6", "KeyError"),
    ('{"id": "d7", "text": "\\ud800 half"}', "d7", "Unicode"),
    ("not JSON", 9, "a.jsonl, line 9: expected JSON, got 'not JSON'"),
    ('"text"', 10, "line 10: expected an object with 'text', got 'text'"),
    ('{"text": "no id"}', 11, ""),
    ('{"id": [1], "text": "a"}', 12, "id: expected text or a number of 64 bits, got [1]"),
    ('{"id": 18446744073709551616, "text": "a"}', 13, "of 64 bits, got 18446744073709551616"),
    ('{"id": 18446744073709551615, "text": "a"}', 18446744073709551615, ""),
    ('{"id": "\\ud800", "text": "a"}', 15, "of 64 bits, got '\\ud800'"),
    ('{"id": NaN, "text": "a"}', 16, "of 64 bits, got nan"),
    ('{"id": 1e999, "text": "a"}', 17, "of 64 bits, got inf"),
    ('{"id": -1.5, "text": "a"}', -1.5, ""),
    ('{"id": "t", "text": "a b", "tokens": [{"start": 0, "end": 9}]}', "t", "tokens: "),
    ("\xff", 20, "line 20: expected UTF-8"),
    ('{"id": "cut", "text": "The Red S', 21, "line 21: expected JSON"),
]
"""Lines, their ids in the output, and their errors: part of the text, empty for no error. A line
without an id has its number as the id. The file is written in Latin-1, so that line 20 is the byte
FF, which isn't UTF-8. spaCy refuses texts of more than 1,000,000 characters (E088). The largest
unsigned number of 64 bits is 18446744073709551615."""


def read_rows_of_form(output: Path, form: str) -> list[dict[str, Any]]:
    """Read the rows of a part of the output in any form. A row has "id" and, if its text failed,
    "error"."""
    path = output / f"a.jsonl-00000.{form}"
    if form == "spacy":
        return [doc.user_data for doc in DocBin().from_disk(path).get_docs(Language().vocab)]
    if form == "parquet":
        return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    lines = path.read_text("utf8").split("\n")[:-1]
    # NaN and such are not JSON.
    return [json.loads(line, parse_constant=pytest.fail) for line in lines]


@pytest.mark.parametrize("form", ["jsonl", "spacy", "parquet"])
def test_what_fails_is_a_row_with_its_error(model: Path, tmp_path: Path, form: str) -> None:
    lines = [line for line, _, _ in LINES]
    (tmp_path / "a.jsonl").write_bytes("\n".join(lines).encode("latin1"))

    summary = annotate(model, [tmp_path / "a.jsonl"], tmp_path / "out", form=form)

    output_rows = read_rows_of_form(tmp_path / "out", form)
    for row, (_, doc_id, error) in zip(output_rows, LINES, strict=True):
        # A column of Parquet has one type.
        assert row["id"] == (str(doc_id) if form == "parquet" else doc_id)
        if error:
            assert error in row["error"]
        else:
            assert not row.get("error")
    assert summary.docs == len(LINES)
    assert summary.failed == sum(error != "" for _, _, error in LINES)
    if form == "jsonl":
        assert all(("entities" in row) != ("error" in row) for row in output_rows)
        assert places(output_rows[0]["entities"]) == plain(model, ["The Red Sox lost."])[0]


@pytest.mark.parametrize("form", ["jsonl", "spacy", "parquet"])
def test_with_on_error_raise_what_fails_stops_the_command(
    model: Path, tmp_path: Path, form: str
) -> None:
    """The fifth text fails, so nothing is written of its part."""
    path = write_lines(tmp_path / "a.jsonl", [*SENTENCES[:4], "poison"])
    with pytest.raises(ValueError, match=r"a\.jsonl: id 'd4': RuntimeError: poisoned"):
        annotate(model, [path], tmp_path / "out", form=form, on_error="raise")
    assert not files(tmp_path / "out")


NLP = Language()
LINE = st.text(st.characters(exclude_characters="\n\r\ufeff", exclude_categories=["Cs"]))


@pytest.mark.slow
@given(lines=st.lists(LINE, max_size=9), n_rows=st.integers(1, 4), end=st.sampled_from(["", "\n"]))
def test_parts_have_each_line_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], n_rows: int, end: str
) -> None:
    """The id of a row is the number of its line; empty lines have no row. A part is recognised by
    its lines and their place: the same lines at another place are another part."""
    path = tmp_path_factory.mktemp("lines") / "a.txt"
    path.write_bytes(("\n".join(lines) + end).encode())

    parts = list(divide(path, n_rows))

    ids_and_texts = []
    for part in parts:
        ids_and_texts += [(row.id, row.text) for row in read_rows(NLP, part)]
    numbered = enumerate(lines, 1)
    assert ids_and_texts == [(i, line) for i, line in numbered if line.encode().strip()]
    assert len({part.digest for part in parts}) == len(parts)


def test_white_space_is_text_but_byte_order_marks_and_carriage_returns_are_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfThe Red Sox lost.\r\n \r\n  Who?\r\nNo")
    ids_and_texts = []
    for part in divide(path, 2):
        ids_and_texts += [(row.id, row.text) for row in read_rows(NLP, part)]
    assert ids_and_texts == [(1, "The Red Sox lost."), (3, "  Who?"), (4, "No")]


# Killed processes


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(saved: Saved, inputs: list[Path], tmp_path: Path) -> None:
    """The last text kills one of two processes. The files are the same as with one process.
    Each process loads the pipeline once."""
    settings: Any = {"code_path": saved.code, "n_rows": 7}
    undisturbed = annotate(saved.model, inputs, tmp_path / "one", **settings)
    for path in [tmp_path / "died", *saved.loads.iterdir()]:
        path.unlink()

    disturbed = annotate(saved.model, inputs, tmp_path / "two", **settings, jobs=2)

    assert (tmp_path / "died").exists()
    assert {path.read_text() for path in saved.loads.iterdir()} == {"loaded\n"}
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert len(files(tmp_path / "two")) == 8  # two files of 26 lines: 7 + 7 + 7 + 5
    assert undisturbed[1:4] == disturbed[1:4]  # docs, failed and tokens
    assert (undisturbed.docs, undisturbed.failed) == (N_DOCS, 2)
    ids = [str(row["id"]) for row in rows(tmp_path / "two")]
    ids_of_jsonl = [f"d{i}" for i in range(26)]
    ids_of_text = [str(i) for i in range(1, 27)]
    assert sorted(ids) == sorted([*ids_of_jsonl, *ids_of_text])


@pytest.mark.slow
def test_a_killed_command_leaves_no_process_and_is_taken_up_again(
    saved: Saved, inputs: list[Path], tmp_path: Path
) -> None:
    """A part is one line here. The command is killed as soon as three parts are written."""
    output = tmp_path / "out"
    manifest = output / "manifest.jsonl"
    command = [sys.executable, "-m", "spacy", "costner", "annotate", saved.model, *inputs]
    command += ["-o", output, "--code", saved.code, "--part", "1", "-j", "2"]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    while not manifest.exists() or manifest.read_bytes().count(b"\n") < 3:
        assert killed.poll() is None
        sleep(0.01)
    killed.kill()
    # Workers hold its end of the pipe: reading ends when they have ended.
    killed.communicate(timeout=60)

    settings: Any = {"code_path": saved.code, "n_rows": 1}
    again = annotate(saved.model, inputs, output, **settings)
    annotate(saved.model, inputs, tmp_path / "undisturbed", **settings)

    assert again.parts.kept >= 3
    assert again.docs == N_DOCS
    assert files(output) == files(tmp_path / "undisturbed")


# Running it again

annotate_in_tens: Callable[..., Summary] = partial(annotate, n_rows=10)
"""Parts of 10 lines: three of b.jsonl, three of sub/a.txt."""


def test_a_second_run_keeps_all_parts(model: Path, inputs: list[Path], tmp_path: Path) -> None:
    first = annotate_in_tens(model, inputs, tmp_path / "out")
    written = files(tmp_path / "out")

    second = annotate_in_tens(model, inputs, tmp_path / "out")

    assert first.parts == PartCounts(kept=0, changed=0, new=6)
    assert second.parts == PartCounts(kept=6, changed=0, new=0)
    assert first[1:4] == second[1:4]  # docs, failed and tokens
    assert files(tmp_path / "out") == written


def test_a_second_run_writes_parts_that_are_missing_or_cut_off(
    model: Path, inputs: list[Path], tmp_path: Path
) -> None:
    annotate_in_tens(model, inputs, tmp_path / "out")
    written = files(tmp_path / "out")
    (tmp_path / "out" / "sub" / "a.txt-00001.jsonl").unlink()
    cut_off = tmp_path / "out" / "b.jsonl-00000.jsonl"
    cut_off.write_bytes(cut_off.read_bytes()[:-9])

    second = annotate_in_tens(model, inputs, tmp_path / "out")

    assert second.parts == PartCounts(kept=4, changed=2, new=0)
    assert files(tmp_path / "out") == written


def test_a_second_run_follows_its_input(model: Path, inputs: list[Path], tmp_path: Path) -> None:
    """b.jsonl had 26 lines in the first run and has 11 in the second. So its first part is kept,
    the second one is changed, and the third one is removed. The three parts of sub/a.txt are kept,
    too. A third run reads b.jsonl alone. It leaves the parts of sub/a.txt, which a fourth run of
    both files keeps."""
    annotate_in_tens(model, inputs, tmp_path / "out")
    texts = [*SENTENCES[:10], "The Red Sox won."]
    jsonl = write_lines(tmp_path / "in" / "b.jsonl", texts)

    second = annotate_in_tens(model, inputs, tmp_path / "out")
    assert second.parts == PartCounts(kept=4, changed=1, new=0)
    assert not (tmp_path / "out" / "b.jsonl-00002.jsonl").exists()
    of_jsonl = [row for row in rows(tmp_path / "out") if str(row["id"]).startswith("d")]
    assert [row["text"] for row in of_jsonl] == texts

    of_one_file = annotate_in_tens(model, [jsonl], tmp_path / "out")
    of_all = annotate_in_tens(model, inputs, tmp_path / "out")
    assert of_one_file.parts == PartCounts(kept=2, changed=0, new=0)
    assert of_all.parts == PartCounts(kept=5, changed=0, new=0)


def test_another_setting_of_the_output_changes_all_parts(
    model: Path, inputs: list[Path], tmp_path: Path
) -> None:
    annotate_in_tens(model, inputs, tmp_path / "out")
    without_text = annotate_in_tens(model, inputs, tmp_path / "out", with_text=False)
    assert without_text.parts == PartCounts(kept=0, changed=6, new=0)


def test_with_on_error_raise_a_text_that_failed_in_an_earlier_run_stops_the_command(
    model: Path, inputs: list[Path], tmp_path: Path
) -> None:
    """The output of the earlier run stays. Parts without such a text are kept, as the setting has
    no effect on what is written."""
    annotate_in_tens(model, inputs, tmp_path / "out")
    written = files(tmp_path / "out")

    with pytest.raises(ValueError, match=r"b\.jsonl: id 'd24': RuntimeError: poisoned"):
        annotate_in_tens(model, inputs, tmp_path / "out", on_error="raise")

    assert files(tmp_path / "out") == written
    assert annotate_in_tens(model, inputs, tmp_path / "out").parts.kept == 6
    write_lines(tmp_path / "in" / "b.jsonl", SENTENCES)
    (tmp_path / "in" / "sub" / "a.txt").write_text("\n".join(SENTENCES))
    without_failures = annotate_in_tens(model, inputs, tmp_path / "out", on_error="raise")
    assert without_failures.parts == PartCounts(kept=4, changed=2, new=0)


@pytest.mark.parametrize(
    "last_line",
    [b"{}", b"5", b"[]", b"\xff\xfe{", b'{"file": "sub/a.t', b"[" * 9999],
    ids=["no entry", "number", "list", "no UTF-8", "cut off", "too deep"],
)
def test_damaged_lines_of_the_manifest_do_not_count(
    model: Path, inputs: list[Path], tmp_path: Path, last_line: bytes
) -> None:
    """Lines that are no entries, and an entry whose number of bytes isn't a number, don't count.
    The part of that entry is written again, as a new one: no other entry names it."""
    manifest = tmp_path / "out" / "manifest.jsonl"
    annotate_in_tens(model, inputs, tmp_path / "out")
    first_line, *other_lines = manifest.read_bytes().splitlines(keepends=True)
    changed_line = json.dumps({**json.loads(first_line), "bytes": "many"}).encode() + b"\n"
    manifest.write_bytes(b"".join([changed_line, *other_lines, last_line]))

    second = annotate_in_tens(model, inputs, tmp_path / "out")

    assert second.parts == PartCounts(kept=5, changed=0, new=1)
    entries = [json.loads(line) for line in manifest.read_text().splitlines()]
    assert len({entry["file"] for entry in entries}) == 6
    assert len(rows(tmp_path / "out")) == N_DOCS


def test_the_manifest_removes_nothing_outside_of_the_output(
    model: Path, inputs: list[Path], tmp_path: Path
) -> None:
    """A run removes output files that the manifest names and the input no longer has. A path that
    leads out of the folder is not one of these."""
    manifest = tmp_path / "out" / "manifest.jsonl"
    annotate_in_tens(model, inputs, tmp_path / "out")
    entry = json.loads(manifest.read_bytes().splitlines()[0])
    (tmp_path / "out" / "b.jsonl-..").mkdir()  # through which a path could lead out
    outside = [tmp_path / "file", tmp_path / "b.jsonl-00009.jsonl"]
    with manifest.open("a") as opened:
        for path in outside:
            path.touch()
            for file in (f"../{path.name}", str(path), f"b.jsonl-../../../{path.name}"):
                opened.write(json.dumps({**entry, "file": file, "source": "b.jsonl"}) + "\n")

    second = annotate_in_tens(model, inputs, tmp_path / "out")

    assert second.parts == PartCounts(kept=6, changed=0, new=0)
    assert all(path.exists() for path in outside)


def test_a_changed_model_does_all_again(model: Path, inputs: list[Path], tmp_path: Path) -> None:
    copy = shutil.copytree(model, tmp_path / "copy")
    annotate_in_tens(copy, inputs, tmp_path / "out")
    nlp = spacy.load(copy)
    ner: Any = nlp.get_pipe("ner")
    # The guarantee doesn't hold for another temperature.
    with pytest.warns(UserWarning, match="the guarantee is dropped"):
        ner.drop_guarantee("a test")
    ner.cfg["temperature"]["overall"] = 3.0
    nlp.to_disk(copy)

    summary = annotate_in_tens(copy, inputs, tmp_path / "out")
    annotate_in_tens(model, inputs, tmp_path / "of_model_before")

    assert summary.parts == PartCounts(kept=0, changed=6, new=0)
    assert not summary.errors
    assert files(tmp_path / "out") != files(tmp_path / "of_model_before")


def test_a_model_is_read_where_a_killed_process_has_left_it(
    model: Path, inputs: list[Path], tmp_path: Path
) -> None:
    """A process that was killed while it saved the folder "copy" may leave only the old folder,
    under a hidden name."""
    copy = shutil.copytree(model, tmp_path / "copy")
    annotate_in_tens(copy, inputs, tmp_path / "before")
    copy.rename(tmp_path / ".copy.0123abcd.old")

    annotate_in_tens(copy, inputs, tmp_path / "after")

    assert files(tmp_path / "before") == files(tmp_path / "after")


with_one_and_two_jobs = pytest.mark.parametrize(
    "jobs", [1, pytest.param(2, marks=pytest.mark.slow)]
)


@with_one_and_two_jobs
def test_an_input_that_changes_after_the_plan_fails_alone(
    saved: Saved, inputs: list[Path], tmp_path: Path, jobs: int
) -> None:
    """After the parts are planned, b.jsonl loses its end, and c.spacy can no longer be read. A
    worker checks that its part is as it was planned. When both files are whole again, a second run
    keeps five of the seven parts and writes the two that are missing. These are new, as the first
    run never wrote them."""
    jsonl = inputs[0] / "b.jsonl"
    lines = jsonl.read_bytes()
    docbin = DocBin(docs=[Language().make_doc(SENTENCES[0])])
    (inputs[0] / "c.spacy").write_bytes(docbin.to_bytes()[:-100])
    settings: Any = {"code_path": saved.code, "jobs": jobs}
    executor = call_first(lambda: jsonl.write_bytes(lines[:-20]), partial(local, jobs))

    summary = annotate_in_tens(
        saved.model, inputs, tmp_path / "out", make_executor=executor, **settings
    )

    assert summary.docs == N_DOCS - 6  # the third part of b.jsonl has 6 lines
    assert sorted(summary.errors) == ["b.jsonl-00002.jsonl", "c.spacy-00000.jsonl"]
    assert summary.errors["b.jsonl-00002.jsonl"] == (
        f"CorpusError: {jsonl}: expected the file that the run started with, got a different one"
    )
    reason = f"{inputs[0] / 'c.spacy'}: expected a file that spaCy's DocBin has saved"
    assert reason in summary.errors["c.spacy-00000.jsonl"]
    assert not (tmp_path / "out" / "c.spacy-00000.jsonl").exists()

    jsonl.write_bytes(lines)
    docbin.to_disk(inputs[0] / "c.spacy")
    again = annotate_in_tens(saved.model, inputs, tmp_path / "out", **settings)
    annotate_in_tens(saved.model, inputs, tmp_path / "undisturbed", **settings)
    assert again.parts == PartCounts(kept=5, changed=0, new=2)
    assert files(tmp_path / "out") == files(tmp_path / "undisturbed")


@with_one_and_two_jobs
def test_a_model_that_changes_after_the_plan_writes_nothing(
    saved: Saved, inputs: list[Path], tmp_path: Path, jobs: int
) -> None:
    model = shutil.copytree(saved.model, tmp_path / "model")
    meta = model / "meta.json"
    changed = meta.read_bytes() + b"\n"
    executor = call_first(lambda: meta.write_bytes(changed), partial(local, jobs))

    summary = annotate_in_tens(
        model,
        inputs,
        tmp_path / "out",
        make_executor=executor,
        code_path=saved.code,
        jobs=jobs,
    )

    reason = f"{model}: expected the pipeline that the run started with, got a different one"
    assert len(summary.errors) == 6
    assert set(summary.errors.values()) == {f"ValueError: {reason}"}
    assert not rows(tmp_path / "out")


@with_one_and_two_jobs
def test_a_worker_does_not_write_to_a_folder_of_its_own(
    saved: Saved, inputs: list[Path], tmp_path: Path, jobs: int
) -> None:
    """On another machine, a worker may not see the output folder of the command, or may see another
    folder under the same path, without the manifest."""
    output = tmp_path / "out"
    executor = call_first((output / "manifest.jsonl").unlink, partial(local, jobs))

    summary = annotate_in_tens(
        saved.model,
        inputs,
        output,
        make_executor=executor,
        code_path=saved.code,
        jobs=jobs,
    )

    reason = f"{output}: expected the output folder of this run, got none on this worker"
    assert set(summary.errors.values()) == {f"ValueError: {reason}"}
    assert not list(output.rglob("*.jsonl"))


# Small files


N_SMALL_FILES = 40


@pytest.fixture
def small_files(tmp_path: Path) -> Path:
    """A folder of 40 files of one line each. That of 05.txt is empty, 11.spacy can't be read, and
    in 17.txt a component raises an error."""
    folder = tmp_path / "small"
    folder.mkdir()
    for number in range(N_SMALL_FILES):
        text = SENTENCES[number % len(SENTENCES)]
        write_lines(folder / f"{number:02}.txt", [text])
    (folder / "05.txt").write_text("\n")
    (folder / "11.txt").rename(folder / "11.spacy")
    write_lines(folder / "17.txt", ["poison"])
    return folder


@pytest.mark.slow
def test_small_files_are_annotated_together(
    model: Path, small_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches have docs of several files. The output is that of each file alone, and of a file that
    can't be read or has no texts."""
    batch_sizes: list[int] = []

    def annotate_and_count(nlp: Language, batch: Sequence[TextRow]) -> list[Any]:
        batch_sizes.append(len(batch))
        return annotate_batch(nlp, batch)

    with monkeypatch.context() as patched:
        patched.setattr(parts, "annotate_batch", annotate_and_count)
        together = annotate(model, [small_files], tmp_path / "together")
    alone = [annotate(model, [path], tmp_path / "alone") for path in sorted(small_files.iterdir())]

    assert max(batch_sizes) >= 2
    assert files(tmp_path / "together").keys() == files(tmp_path / "alone").keys()
    assert len(files(tmp_path / "together")) == N_SMALL_FILES - 1
    assert (tmp_path / "together" / "05.txt-00000.jsonl").read_bytes() == b""
    for row, expected in zip(rows(tmp_path / "together"), rows(tmp_path / "alone"), strict=True):
        assert row["text"] == expected["text"]
        assert row.get("error") == expected.get("error")
        assert places(row.get("entities", [])) == places(expected.get("entities", []))
    assert [*together.errors] == ["11.spacy-00000.jsonl"]
    assert together.docs == sum(summary.docs for summary in alone)
    assert together.tokens == sum(summary.tokens for summary in alone)
    assert together.failures == alone[17].failures
    again = annotate(model, [small_files], tmp_path / "together")
    assert again.parts == PartCounts(kept=N_SMALL_FILES - 1, changed=0, new=1)


def test_with_on_error_raise_the_files_before_an_error_are_kept(
    model: Path, small_files: Path, tmp_path: Path
) -> None:
    """The file 11.spacy stops the first run, and 17.txt the second one, in which it is whole."""
    expected = r"11\.spacy-00000\.jsonl: CorpusError"
    with pytest.raises(ValueError, match=expected):
        annotate(model, [small_files], tmp_path / "out", on_error="raise")
    assert len(files(tmp_path / "out")) == 11

    DocBin(docs=[Language().make_doc("Oslo")]).to_disk(small_files / "11.spacy")
    with pytest.raises(ValueError, match="id 1: RuntimeError: poisoned"):
        annotate(model, [small_files], tmp_path / "out", on_error="raise")
    assert len(files(tmp_path / "out")) == 17
    parts = annotate(model, [small_files], tmp_path / "out").parts
    assert parts == PartCounts(kept=17, changed=0, new=N_SMALL_FILES - 17)


def test_a_small_file_that_cannot_be_written_fails_alone(
    model: Path, small_files: Path, tmp_path: Path
) -> None:
    """There is a folder where the output of 07.txt would be. The answers for its texts don't get
    into that of the next file."""
    (tmp_path / "out" / "07.txt-00000.jsonl").mkdir(parents=True)
    summary = annotate(model, [small_files], tmp_path / "out")
    assert [*summary.errors] == ["07.txt-00000.jsonl", "11.spacy-00000.jsonl"]
    (answer,) = (tmp_path / "out" / "08.txt-00000.jsonl").read_text().splitlines()
    assert json.loads(answer)["text"] == SENTENCES[8]


class MortalExecutor(Executor):
    """Executes runs in this process. One that has the file 23.txt kills its worker."""

    outlives_workers = True
    jobs = 1

    def submit(self, function: Any, run: Any) -> Future:  # type: ignore[override]
        future: Future = Future()
        if "23.txt-00000.jsonl" in run.settings["planned"]:
            future.set_exception(BrokenExecutor("died"))
        else:
            future.set_result(function(run))
        return future


def test_a_file_that_kills_workers_fails_alone(
    model: Path, small_files: Path, tmp_path: Path
) -> None:
    summary = annotate(model, [small_files], tmp_path / "out", make_executor=MortalExecutor)
    assert summary.errors.pop("23.txt-00000.jsonl") == "its worker died 4 times"
    assert [*summary.errors] == ["11.spacy-00000.jsonl"]
    assert len(files(tmp_path / "out")) == N_SMALL_FILES - 2


def test_warnings_of_small_files_are_in_their_entries(
    model: Path, small_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning may come from any doc of a batch, so it is in the entry of each part with a doc of
    the batch, and only there. A run that keeps all parts shows it again."""

    def annotate_and_warn(nlp: Language, batch: Sequence[TextRow]) -> list[Any]:
        if any(row.text == "poison" for row in batch):
            warnings.warn("a warning of a doc", stacklevel=2)
        return annotate_batch(nlp, batch)

    with monkeypatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("default")
        patched.setattr(parts, "annotate_batch", annotate_and_warn)
        with pytest.warns(UserWarning, match="a warning of a doc"):
            annotate(model, [small_files], tmp_path / "out")

    lines = (tmp_path / "out" / "manifest.jsonl").read_text().splitlines()
    with_warning = [entry["file"] for entry in map(json.loads, lines) if entry["warnings"]]
    assert "17.txt-00000.jsonl" in with_warning
    assert len(with_warning) < N_SMALL_FILES / 4
    with pytest.warns(UserWarning, match="a warning of a doc"):
        annotate(model, [small_files], tmp_path / "out")


# Folders and disks


def test_one_command_at_a_time_writes_to_a_folder(
    model: Path, inputs: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    message = "expected no other process to write to it"
    with locked(tmp_path / "out"), pytest.raises(ValueError, match=message):
        annotate_in_tens(model, inputs, tmp_path / "out")


def test_a_folder_that_cannot_be_locked_is_written_to(
    model: Path, inputs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems have no locks on folders."""
    no_locks = Mock(side_effect=OSError(errno.EBADF, "Bad file descriptor"))
    monkeypatch.setattr("fcntl.flock", no_locks)
    assert annotate_in_tens(model, inputs, tmp_path / "out").docs == N_DOCS


def is_frozen(an_object: object) -> bool:
    """Whether the garbage collector skips an object. It doesn't list those that it skips."""
    return all(listed is not an_object for listed in gc.get_objects())


@pytest.mark.parametrize(
    ("words", "error"),
    [(["fine"], nullcontext()), (["poison"], pytest.raises(ValueError, match="poisoned"))],
    ids=["until its end", "until an error"],
)
def test_objects_are_frozen_only_while_docs_are_annotated(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    error: AbstractContextManager[Any],
) -> None:
    """The garbage collector then skips all objects that exist, such as the pipeline's own."""
    object_before = ["existed before"]
    was_frozen: list[bool] = []

    def save_and_record(path: Path, write: Callable[[Path], None], **settings: bool) -> None:
        was_frozen.append(is_frozen(object_before))
        save_file(path, write, **settings)

    monkeypatch.setattr("spacy_costner.workflows.apply.parts.save_file", save_and_record)
    texts = write_lines(tmp_path / "a.txt", words)

    with error:
        annotate(model, [texts], tmp_path / "out", on_error="raise")

    assert was_frozen == [True]
    assert not is_frozen(object_before)


def test_what_the_program_itself_has_frozen_stays_frozen(model: Path, tmp_path: Path) -> None:
    texts = write_lines(tmp_path / "a.txt", SENTENCES)
    object_of_program = ["frozen by the program"]
    gc.freeze()
    try:
        annotate(model, [texts], tmp_path / "out")
        assert is_frozen(object_of_program)
    finally:
        gc.unfreeze()


# The command


@pytest.fixture
def command(saved: Saved, inputs: list[Path], tmp_path: Path) -> list[Any]:
    """The words of a command that annotates `inputs`, with the output folder "out"."""
    output = tmp_path / "out"
    return ["annotate", saved.model, *inputs, "-o", output, "--code", saved.code]


def test_the_command_says_what_it_has_done(command: list[Any]) -> None:
    """Without the option --part, each of the two files is one part. The second run keeps both."""
    first = run(*command)
    second = json.loads(run(*command, "--json").stdout)

    assert first.exit_code == 0
    assert f"{N_DOCS} docs, 2 failed" in first.output
    assert "2 new" in first.output
    assert second["docs"] == N_DOCS
    assert second["parts"] == {"kept": 2, "changed": 0, "new": 0}


def test_the_command_fails_if_a_file_cannot_be_read(command: list[Any], inputs: list[Path]) -> None:
    (inputs[0] / "c.spacy").write_bytes(b"no docs")
    done = run(*command)
    assert done.exit_code == 1
    assert "not written: c.spacy-00000.jsonl" in done.output


@pytest.mark.parametrize("options", [[], ["--whole-files"]], ids=["lines", "files"])
def test_the_command_fails_if_all_docs_of_a_file_fail(
    model: Path, tmp_path: Path, options: list[str]
) -> None:
    """It prints the first reason, also if the parts are kept."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_bytes("Zürich\nKöln\n".encode("latin1"))
    write_lines(folder / "b.txt", SENTENCES)
    command = ["annotate", model, folder, "-o", tmp_path / "out", "--part", "1", *options]
    n_docs = 1 if options else 2
    for _ in range(2):
        done = run(*command)
        assert done.exit_code == 1
        counts = f"failed: {folder / 'a.txt'}: {n_docs} of {n_docs} docs, the first is id "
        assert counts in done.stdout
        assert f"{folder / 'a.txt'}, line 1: expected UTF-8" in done.stdout
    assert json.loads(run(*command, "--json").stdout)["failures"] == {
        str(folder / "a.txt"): {
            "failed": n_docs,
            "docs": n_docs,
            "first_error": done.stdout.partition("the first is ")[2].partition("\n")[0],
        }
    }


def test_the_command_names_docs_that_failed_among_others(command: list[Any]) -> None:
    done = run(*command)
    assert done.exit_code == 0
    for name, doc_id in (("b.jsonl", "'d24'"), ("a.txt", "25")):
        assert f"{name}: 1 of 26 docs, the first is id {doc_id}: RuntimeError: poi" in done.stdout


LETTER = """\
Dear Kim,

the Red Sox lost against the team of Boston, as you may have
heard, and I don't know who of us is going to tell it to Ann,
who likes London, and who has never been to
the north.

Yours, Bob
"""


def test_wrapped_lines_are_noted_and_whole_files_are_docs(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "letter.txt").write_bytes(b"\xef\xbb\xbf" + LETTER.encode())
    write_lines(folder / "lines.txt", SENTENCES)  # no line ends in a full stop
    (folder / "empty.txt").write_text("\n \n")
    command = ["annotate", model, folder, "-o", tmp_path / "out"]

    done = run(*command)
    assert f"note: lines of {folder / 'letter.txt'} don't end like sentences" in done.stdout
    assert "--whole-files" in done.stdout

    whole = run(*command, "--whole-files")
    assert whole.exit_code == 0, whole.output
    assert "note:" not in whole.stdout
    texts = [LETTER, (folder / "lines.txt").read_text()]
    output_rows = rows(tmp_path / "out")
    assert [row["id"] for row in output_rows] == ["letter.txt", "lines.txt"]
    assert [row["text"] for row in output_rows] == texts
    assert [places(row["entities"]) for row in output_rows] == plain(model, texts)
    assert "2 kept" in run(*command, "--whole-files").stdout
    assert "2 changed" in run(*command).stdout  # each line is a doc again


@pytest.mark.parametrize(
    ("text", "is_wrapped"),
    [
        (LETTER, True),
        ("Er sah die\nvielen Häuser, die\nin der Stadt am\nFluss stehen, und\nging heim.", True),
        ("Oslo is big.\nkim isn't.\n" * 9, False),
        ("Rain In Oslo\nSun In Paris\n" * 9, False),
        ("12 of us\n13 of you\n" * 9, False),
        ("one line\n\nand another\n\n" * 9, False),
        ("go\non\nand", False),
    ],
    ids=["letter", "German", "sentences", "headlines", "numbers", "empty lines between", "too few"],
)
def test_lines_are_wrapped_if_sentences_go_on(text: str, is_wrapped: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text)
    assert has_wrapped_lines(path) == is_wrapped
    path.rename(path.with_suffix(".jsonl"))
    assert not has_wrapped_lines(path.with_suffix(".jsonl"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "in/out"], "expected an output outside of the input"),
        (["b.csv"], "b.csv: expected one of .txt"),
        (["b.jsonl"], "expected files with different names, got"),  # in/b.jsonl is the other
        (["nothing.txt"], "expected a file or folder, found neither"),
    ],
    ids=["output in the input", "another format", "names twice", "no file"],
)
def test_the_command_refuses_files_that_do_not_fit(
    command: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("b.csv").touch()
    write_lines(Path("b.jsonl"), ["a"])
    done = run(*command, *options)
    assert done.exit_code == 1
    assert message in " ".join(done.output.split())


def test_the_command_refuses_a_folder_without_a_pipeline(
    inputs: list[Path], tmp_path: Path
) -> None:
    done = run("annotate", tmp_path, *inputs, "-o", tmp_path / "out")
    assert done.exit_code == 1
    assert "expected a trained pipeline" in " ".join(done.output.split())


def test_other_forms_and_empty_parts_are_refused(inputs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"format: expected one of .*, got 'csv'"):
        annotate(tmp_path, inputs, tmp_path / "out", form="csv")
    with pytest.raises(ValueError, match=r"on_error: expected one of .*, got 'stop'"):
        annotate(tmp_path, inputs, tmp_path / "out", on_error="stop")
    with pytest.raises(ValueError, match="n_rows: expected at least 1, got 0"):
        annotate(tmp_path, inputs, tmp_path / "out", n_rows=0)


# Parquet


def read_table(output: Path, name: str) -> list[dict[str, Any]]:
    """Read the rows of all parts of a Parquet file, without empty cells."""
    parquet = pytest.importorskip("pyarrow.parquet")
    table_rows = []
    for path in sorted(output.glob(f"{name}.*")):
        for row in parquet.read_table(path).to_pylist():
            table_rows.append({key: value for key, value in row.items() if value is not None})
    return table_rows


TEXTS_OF_TABLE = [*SENTENCES, None, "poison"]


@pytest.fixture
def table() -> Any:
    """A table of 26 rows. Its columns for ids and texts have unusual names, and there is a third
    column."""
    pyarrow = pytest.importorskip("pyarrow")
    keys = [f"d{i}" for i in range(26)]
    return pyarrow.table({"key": keys, "body": TEXTS_OF_TABLE, "x": range(26)})


def test_parquet_has_the_rows_of_jsonl(model: Path, table: Any, tmp_path: Path) -> None:
    """A row group has 4 rows, and two row groups are a part: the 26 rows are four parts. The text
    that is None and "poison" fail. A second run keeps all parts."""
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    jsonl = write_lines(tmp_path / "a.jsonl", TEXTS_OF_TABLE)
    settings: Any = {"form": "parquet", "text": "body", "id_name": "key", "n_rows": 8}

    annotate(model, [jsonl], tmp_path / "lines", n_rows=8)
    first = annotate(model, [tmp_path / "a.parquet"], tmp_path / "table", **settings)
    second = annotate(model, [tmp_path / "a.parquet"], tmp_path / "table", **settings)

    of_lines = []
    for row in rows(tmp_path / "lines"):
        of_lines.append({key: value for key, value in row.items() if value is not None})
    assert read_table(tmp_path / "table", "a") == of_lines
    assert (first.parts.new, first.docs, first.failed) == (4, 26, 2)
    assert second.parts.kept == 4


def test_rows_of_parquet_without_ids_have_their_numbers(
    model: Path, table: Any, tmp_path: Path
) -> None:
    """The 26 rows are in row groups of 10, 10 and 6. A row group isn't divided, and a part has 8
    rows or a whole group. The numbers begin with 0 and go on from part to part."""
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "no-ids.parquet"
    parquet.write_table(table.select(["body"]), path, row_group_size=10)

    summary = annotate(model, [path], tmp_path / "out", form="parquet", text="body", n_rows=8)

    assert summary.parts.new == 3
    ids = [int(row["id"]) for row in read_table(tmp_path / "out", "no-ids")]
    assert ids == list(range(26))


def test_short_values_of_parquet_are_metadata(tmp_path: Path) -> None:
    """Whatever the type of their column. pandas and Polars write other types than pyarrow."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    integers = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    columns = {name: pyarrow.array([1, 2], name) for name in integers}
    columns |= {name: pyarrow.array(["a", "b"], name) for name in ("string", "large_string")}
    columns["category"] = columns["string"].dictionary_encode()
    columns["large_category"] = columns["large_string"].dictionary_encode()
    columns["bool"] = pyarrow.array([True, False])
    columns["vector"] = pyarrow.array([[1], [2]])
    parquet.write_table(pyarrow.table({"text": ["a", "b"], **columns}), tmp_path / "a.parquet")

    (part,) = divide(tmp_path / "a.parquet", 10)
    metadata = [row.make_doc().user_data for row in read_rows(NLP, part)]

    read_columns = {*columns} - {"vector"}
    assert metadata[0] == {name: columns[name][0].as_py() for name in read_columns}
    assert metadata[1] == {name: columns[name][1].as_py() for name in read_columns}


def test_parquet_that_cannot_be_read_fails_alone(model: Path, table: Any, tmp_path: Path) -> None:
    """Of three files, one is cut off, one doesn't have the column of the text, and one is right."""
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    parquet.write_table(table.select(["x"]), tmp_path / "other.parquet")
    paths = [tmp_path / f"{name}.parquet" for name in ("a", "cut", "other")]

    summary = annotate(model, paths, tmp_path / "out", form="parquet", text="body")

    assert summary.docs == 26
    # An error has three fields: "CorpusError: PATH: reason".
    reasons = {name: error.split(": ")[2] for name, error in summary.errors.items()}
    assert reasons == {
        "cut.parquet-00000.parquet": "expected a Parquet file",
        "other.parquet-00000.parquet": "expected the column 'body', got ['x']",
    }


def test_ids_of_64_bits_are_kept_in_parquet(model: Path, tmp_path: Path) -> None:
    """The largest unsigned number of 64 bits is 2^64 - 1. The column of the ids is one of text."""
    pytest.importorskip("pyarrow")
    path = tmp_path / "large.jsonl"
    path.write_text('{"key": 18446744073709551615, "body": "a"}')
    settings: Any = {"form": "parquet", "text": "body", "id_name": "key"}

    annotate(model, [path], tmp_path / "out", **settings)

    (row,) = read_table(tmp_path / "out", "large")
    assert row["id"] == "18446744073709551615"


def test_parquet_without_pyarrow_is_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python doesn't import a module whose entry in `sys.modules` is None.
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    path = write_lines(tmp_path / "a.jsonl", SENTENCES)
    done = run("annotate", model, path, "--format", "parquet", "-o", tmp_path / "none")
    assert done.exit_code == 1
    assert "Parquet requires pyarrow: pip install 'spacy-costner[parquet]'" in done.output
