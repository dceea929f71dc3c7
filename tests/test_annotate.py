"""Annotation of files: each id once, with the answer of one plain process or an error."""

import errno
import gc
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
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

from spacy_costner.analysis.annotating import PartCounts, Summary, annotate
from spacy_costner.readers import read_docs
from spacy_costner.readers.texts import divide, read_rows
from spacy_costner.saving import locked

from .support import annotating
from .support.annotating import SENTENCES, Saved, files, places, plain, rows, write_lines
from .support.commands import run
from .support.runs import call_first, local


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return annotating.save_pipeline(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def model(saved: Saved) -> Path:
    return saved.model


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    """The last text kills its process if the file "died" isn't there."""
    (tmp_path / "died").touch()
    texts = [*SENTENCES, "poison", f"killer {tmp_path / 'died'}"]
    return [annotating.write_inputs(tmp_path / "in", *texts)]


# Answers


def test_answers_are_those_of_the_pipeline(model: Path, tmp_path: Path) -> None:
    texts = write_lines(tmp_path / "a.txt", [*SENTENCES[:5], "", *SENTENCES[5:]])
    summary = annotate(model, [texts], tmp_path / "out", n_rows=10)
    found = rows(tmp_path / "out")
    assert [row["id"] for row in found] == [i for i in range(1, 26) if i != 6]
    assert [row["text"] for row in found] == SENTENCES
    assert [places(row["entities"]) for row in found] == plain(model, SENTENCES)
    docs = list(spacy.load(model).pipe(SENTENCES))
    for doc, row in zip(docs, found):
        expected = {key: doc.spans[f"confidence_{key}"] for key in ("guaranteed", "alternatives")}
        for key, group in {"entities": doc.spans["confidence"], **expected}.items():
            assert places(row[key]) == [(s.start_char, s.end_char, s.label_) for s in group]
            scores = [span["score"] for span in row[key]]
            assert scores == pytest.approx(list(group.attrs["scores"]))
    assert any(row["guaranteed"] for row in found) and any(row["alternatives"] for row in found)
    assert summary.parts == PartCounts(kept=0, changed=0, new=3) and not summary.errors
    assert (summary.docs, summary.failed, summary.tokens) == (24, 0, sum(map(len, docs)))
    corpus = list(read_docs(spacy.blank("xx"), tmp_path / "out" / "a.txt-00000.jsonl"))
    for one, other in zip(corpus, docs):
        assert [*map(str, one.ents)] == [*map(str, other.ents)]


def test_forms_agree(model: Path, tmp_path: Path) -> None:
    """Docs with their tokens, and with annotation that isn't read; lines with tokens."""
    nlp = spacy.blank("xx")
    docs = [nlp.make_doc(text) for text in SENTENCES]
    docs[0].set_ents([Span(docs[0], 0, 1, label="other")])
    DocBin(docs=docs).to_disk(tmp_path / "c.spacy")
    lines = [
        {"id": i, "text": d.text, "tokens": [{"start": t.idx, "end": t.idx + len(t)} for t in d]}
        for i, d in enumerate(docs)
    ]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for name in ("b.jsonl", "c.spacy"):
        annotate(model, [tmp_path / name], tmp_path / name[0])
    assert rows(tmp_path / "b") == rows(tmp_path / "c")
    annotate(model, [tmp_path / "b.jsonl"], tmp_path / "s", form="spacy")
    binary = DocBin().from_disk(tmp_path / "s" / "b.jsonl-00000.spacy")
    for row, doc in zip(rows(tmp_path / "b"), binary.get_docs(nlp.vocab), strict=True):
        assert doc.user_data["id"] == row["id"]
        assert places(row["entities"]) == [(e.start_char, e.end_char, e.label_) for e in doc.ents]
        assert len(doc.spans["confidence_guaranteed"]) == len(row["guaranteed"])
    annotate(model, [tmp_path / "b.jsonl"], tmp_path / "b", with_text=False)
    assert all("text" not in row for row in rows(tmp_path / "b"))


LINES = [
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
"""Lines, their ids in the output, and their errors."""


@pytest.mark.parametrize("form", ["jsonl", "spacy", "parquet"])
def test_what_fails_is_a_row_with_its_error(model: Path, tmp_path: Path, form: str) -> None:
    lines, ids, errors = zip(*LINES)
    path = tmp_path / "a.jsonl"
    path.write_bytes("\n".join(lines).encode("latin1"))
    summary = annotate(model, [path], tmp_path / "out", form=form)
    assert summary.docs == len(ids) and summary.failed == len(ids) - errors.count("")
    output = tmp_path / "out" / f"a.jsonl-00000.{form}"
    if form == "spacy":
        docs = DocBin().from_disk(output).get_docs(Language().vocab)
        found = [doc.user_data for doc in docs]
    elif form == "parquet":
        found = pytest.importorskip("pyarrow.parquet").read_table(output).to_pylist()
        ids = tuple(map(str, ids))
    else:  # NaN and such are not JSON
        written = output.read_text("utf8").split("\n")[:-1]
        found = [json.loads(line, parse_constant=pytest.fail) for line in written]
        assert all(("entities" in row) != ("error" in row) for row in found)
        assert places(found[0]["entities"]) == plain(model, ["The Red Sox lost."])[0]
    assert [row["id"] for row in found] == [*ids]
    for row, error in zip(found, errors):
        assert bool(row.get("error")) == bool(error) and error in (row.get("error") or ""), row
    path = write_lines(tmp_path / "a.jsonl", [*SENTENCES[:4], "poison"])
    with pytest.raises(ValueError, match=r"a\.jsonl: id 'd4': RuntimeError: poisoned"):
        annotate(model, [path], tmp_path / "raise", form=form, on_error="raise")
    assert not files(tmp_path / "raise")


LINE = st.text(st.characters(exclude_characters="\n\r\ufeff", exclude_categories=["Cs"]))


@given(lines=st.lists(LINE, max_size=9), n_rows=st.integers(1, 4), end=st.sampled_from(["", "\n"]))
def test_parts_have_each_line_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], n_rows: int, end: str
) -> None:
    """With its number, without empty lines. Equal lines at another place are another part."""
    path = tmp_path_factory.mktemp("lines") / "a.txt"
    path.write_bytes(("\n".join(lines) + end).encode())
    parts = list(divide(path, n_rows))
    found = [(row.id, row.text) for part in parts for row in read_rows(Language(), part)]
    numbered = enumerate(lines, 1)
    assert found == [(i, line) for i, line in numbered if line.encode().strip()]
    assert len({part.digest for part in parts}) == len(parts)
    # A byte order mark and carriage returns are not text; white space is.
    path.write_bytes(b"\xef\xbb\xbfThe Red Sox lost.\r\n \r\n  Who?\r\nNo")
    found = [(r.id, r.text) for part in divide(path, 2) for r in read_rows(Language(), part)]
    assert found == [(1, "The Red Sox lost."), (3, "  Who?"), (4, "No")]


# Killed processes


def test_a_killed_worker_changes_nothing(saved: Saved, inputs: list[Path], tmp_path: Path) -> None:
    """The same files from one process and from two, one of which is killed. The pipeline is loaded
    once in each."""
    settings: Any = {"code_path": saved.code, "n_rows": 7}
    one = annotate(saved.model, inputs, tmp_path / "one", **settings)
    for path in [tmp_path / "died", *saved.loads.iterdir()]:
        path.unlink()
    two = annotate(saved.model, inputs, tmp_path / "two", **settings, jobs=2)
    assert (tmp_path / "died").exists()
    assert {path.read_text() for path in saved.loads.iterdir()} == {"loaded\n"}
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert len(files(tmp_path / "two")) == 8
    assert one[1:4] == two[1:4] and (one.docs, one.failed) == (52, 2)
    ids = [row["id"] for row in rows(tmp_path / "two")]
    assert sorted(map(str, ids)) == sorted([*(f"d{i}" for i in range(26)), *map(str, range(1, 27))])


def test_a_killed_command_leaves_no_process_and_is_taken_up_again(
    saved: Saved, inputs: list[Path], tmp_path: Path
) -> None:
    output, manifest = tmp_path / "out", tmp_path / "out" / "manifest.jsonl"
    command = [sys.executable, "-m", "spacy", "costner", "annotate", saved.model, *inputs]
    command += ["-o", output, "--code", saved.code, "--part", "1", "-j", "2"]
    # Workers hold its end of the pipe: reading ends when they have ended.
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    while not manifest.exists() or manifest.read_bytes().count(b"\n") < 3:
        assert killed.poll() is None
        sleep(0.01)
    killed.kill()
    killed.communicate(timeout=60)
    settings: Any = {"code_path": saved.code, "n_rows": 1}
    found = annotate(saved.model, inputs, output, **settings)
    assert found.parts.kept >= 3 and found.docs == 52
    annotate(saved.model, inputs, tmp_path / "whole", **settings)
    assert files(output) == files(tmp_path / "whole")


# Running it again

again: Callable[..., Summary] = partial(annotate, n_rows=10)


def test_a_rerun_does_what_is_missing_or_changed(
    model: Path, inputs: list[Path], tmp_path: Path
) -> None:
    output = tmp_path / "out"

    def parts(inputs: list[Path] = inputs, **settings: Any) -> list[int]:
        """Numbers of parts that are kept, changed and new."""
        return [*again(model, inputs, output, **settings).parts]

    first = again(model, inputs, output)
    before = files(output)
    second = again(model, inputs, output)
    assert first.parts == PartCounts(kept=0, changed=0, new=6) and files(output) == before
    assert second.parts == PartCounts(kept=6, changed=0, new=0) and first[1:4] == second[1:4]
    # Missing, and cut off.
    (output / "sub" / "a.txt-00001.jsonl").unlink()
    cut = output / "b.jsonl-00000.jsonl"
    cut.write_bytes(cut.read_bytes()[:-9])
    assert parts() == [4, 2, 0] and files(output) == before
    # A line changed, and a part of the input is gone.
    lines = write_lines(tmp_path / "in" / "b.jsonl", [*SENTENCES[:10], "The Red Sox won."])
    assert parts() == [4, 1, 0]
    assert not (output / "b.jsonl-00002.jsonl").exists()
    texts = [row["text"] for row in rows(output) if str(row["id"]).startswith("d")]
    assert texts == [*SENTENCES[:10], "The Red Sox won."]
    # Other inputs stay.
    assert parts([lines]) == [2, 0, 0] and parts() == [5, 0, 0]
    assert parts(with_text=False) == [0, 5, 0]
    assert parts(with_text=False, on_error="raise")[0] == 5


def test_lines_of_the_manifest_that_can_not_be(
    model: Path, inputs: list[Path], tmp_path: Path
) -> None:
    """Damaged ones don't count, and nothing outside of the output is removed."""
    output, manifest = tmp_path / "out", tmp_path / "out" / "manifest.jsonl"
    again(model, inputs, output)
    first, *others = manifest.read_bytes().splitlines(keepends=True)
    changed = json.dumps({**json.loads(first), "bytes": "many"}).encode() + b"\n"
    for end in (b"{}", b"5", b"[]", b"\xff\xfe{", b'{"file": "sub/a.t', b"[" * 9999):
        manifest.write_bytes(b"".join([changed, *others, end]))
        assert again(model, inputs, output).parts == PartCounts(kept=5, changed=0, new=1)
        entries = map(json.loads, manifest.read_text().splitlines())
        assert len({entry["file"] for entry in entries}) == 6 and len(rows(output)) == 52
    (output / "b.jsonl-..").mkdir()
    victims = [tmp_path / name for name in ("victim", "b.jsonl-00009.jsonl")]
    with manifest.open("a") as opened:
        for path in victims:
            path.touch()
            for file in (f"../{path.name}", str(path), f"b.jsonl-../../../{path.name}"):
                entry = {**json.loads(first), "file": file, "source": "b.jsonl"}
                opened.write(json.dumps(entry) + "\n")
    assert again(model, inputs, output).parts == PartCounts(kept=6, changed=0, new=0)
    assert all(path.exists() for path in victims)


def test_a_changed_model_does_all_again(model: Path, inputs: list[Path], tmp_path: Path) -> None:
    copy = shutil.copytree(model, tmp_path / "copy")
    assert not again(copy, inputs, tmp_path / "out").errors
    nlp = spacy.load(copy)
    ner: Any = nlp.get_pipe("ner")
    with pytest.warns(UserWarning, match="the guarantee is dropped"):
        ner.drop_guarantee("a test")
    ner.cfg["temperature"]["overall"] = 3.0
    nlp.to_disk(copy)
    summary = again(copy, inputs, tmp_path / "out")
    assert summary.parts == PartCounts(kept=0, changed=6, new=0) and not summary.errors
    copy.rename(tmp_path / ".copy.0123abcd.old")  # where a killed process leaves it
    again(copy, inputs, tmp_path / "fresh")
    assert files(tmp_path / "out") == files(tmp_path / "fresh")
    again(model, inputs, tmp_path / "old")
    assert files(tmp_path / "out") != files(tmp_path / "old")


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_what_changes_after_the_plan_is_not_written(
    saved: Saved, inputs: list[Path], tmp_path: Path, jobs: int
) -> None:
    """An input that is cut off, or another model: each process compares what it reads. A file that
    can't be read fails alone, too. A worker doesn't write to a folder of its own."""
    output, cut = tmp_path / "out", inputs[0] / "b.jsonl"
    model = shutil.copytree(saved.model, tmp_path / "model")
    whole, meta = cut.read_bytes(), (model / "meta.json").read_bytes()
    binary, docs = inputs[0] / "c.spacy", DocBin(docs=[Language().make_doc(SENTENCES[0])])
    binary.write_bytes(docs.to_bytes()[:-100])
    settings: Any = {"code_path": saved.code, "jobs": jobs}
    cut_off = call_first(lambda: cut.write_bytes(whole[:-20]), partial(local, jobs))
    found = again(model, inputs, output, make_executor=cut_off, **settings)
    expected = f"CorpusError: {cut}: expected the file that the command began with, got another"
    assert found.errors.pop("b.jsonl-00002.jsonl") == expected and found.docs == 46
    (reason,) = found.errors.values()
    assert f"{binary}: expected a file that spaCy's DocBin has saved" in reason
    assert not (output / "c.spacy-00000.jsonl").exists()
    cut.write_bytes(whole)
    docs.to_disk(binary)
    (model / "meta.json").write_bytes(meta + b"\n")
    change = call_first(lambda: (model / "meta.json").write_bytes(meta), partial(local, jobs))
    found = again(model, inputs, output, make_executor=change, **settings)
    reason = f"{model}: expected the pipeline that the command began with, got another"
    assert len(found.errors) == 7 and {*found.errors.values()} == {f"ValueError: {reason}"}
    parts = again(model, inputs, output, **settings).parts
    assert parts == PartCounts(kept=5, changed=0, new=2)
    again(saved.model, inputs, tmp_path / "whole", **settings)
    assert files(output) == files(tmp_path / "whole")
    elsewhere = call_first((tmp_path / "o" / "manifest.jsonl").unlink, partial(local, jobs))
    found = again(saved.model, inputs, tmp_path / "o", make_executor=elsewhere, **settings)
    reason = f"{tmp_path / 'o'}: expected the output folder of the command, got none on this worker"
    assert {*found.errors.values()} == {f"ValueError: {reason}"}
    assert not list((tmp_path / "o").rglob("*.jsonl"))


# Folders and disks


def test_one_command_at_a_time_writes_to_a_folder(
    model: Path, inputs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system has no locks on folders: it is written to all the same."""
    (tmp_path / "out").mkdir()
    message = "expected no other process that writes to it"
    with locked(tmp_path / "out"), pytest.raises(ValueError, match=message):
        again(model, inputs, tmp_path / "out")
    no_locks = Mock(side_effect=OSError(errno.EBADF, "Bad file descriptor"))
    monkeypatch.setattr("fcntl.flock", no_locks)
    frozen = gc.get_freeze_count()
    assert again(model, inputs, tmp_path / "out").docs == 52
    assert gc.get_freeze_count() == frozen


# The command


def test_the_command(saved: Saved, inputs: list[Path], tmp_path: Path) -> None:
    arguments: list[Any] = ["annotate", saved.model, *inputs, "-o", tmp_path / "out"]
    arguments += ["--code", saved.code]
    done = run(*arguments)
    assert done.exit_code == 0 and "52 docs, 2 failed" in done.output and "2 new" in done.output
    summary = json.loads(run(*arguments, "--json").stdout)
    assert summary["docs"] == 52 and summary["parts"] == {"kept": 2, "changed": 0, "new": 0}
    (inputs[0] / "c.spacy").write_bytes(b"no docs")
    done = run(*arguments)
    assert done.exit_code == 1 and "not written: c.spacy-00000.jsonl" in done.output
    (inputs[0] / "c.spacy").unlink()
    (tmp_path / "b.csv").touch()
    lines = write_lines(tmp_path / "b.jsonl", ["a"])
    for wrong, message in (
        ([*arguments, "-o", inputs[0] / "out"], "expected an output outside of the input"),
        ([*arguments, tmp_path / "b.csv"], "b.csv: expected one of .txt"),
        ([*arguments, lines], "expected files of different names, got"),
        ([*arguments, tmp_path / "nothing.txt"], "expected a file or folder, got nothing there"),
        (["annotate", tmp_path, *arguments[2:]], "expected a trained pipeline"),
    ):
        done = run(*wrong)
        assert done.exit_code and message in " ".join(done.output.split())
    with pytest.raises(ValueError, match=r"format: expected one of .*, got 'csv'"):
        annotate(tmp_path, inputs, tmp_path / "out", form="csv")


# Parquet


def test_parquet_is_as_jsonl(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In row groups, some of which become a part; with columns of other names, and without ids.
    Files that can't be read fail alone."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = [*SENTENCES, None, "poison"]
    path = write_lines(tmp_path / "a.jsonl", texts)
    annotate(model, [path], tmp_path / "lines", n_rows=8)
    paths = [tmp_path / f"{name}.parquet" for name in ("a", "no-ids", "cut", "other")]
    table = pyarrow.table({"key": [f"d{i}" for i in range(26)], "body": texts, "x": range(26)})
    parquet.write_table(table, paths[0], row_group_size=4)
    parquet.write_table(table.select(["body"]), paths[1], row_group_size=10)
    paths[2].write_bytes(paths[0].read_bytes()[:-20])
    parquet.write_table(table.select(["x"]), paths[3])
    settings: Any = {"form": "parquet", "text": "body", "id_name": "key", "n_rows": 8}
    summary = annotate(model, paths, tmp_path / "out", **settings)
    assert (summary.parts.new, summary.docs, summary.failed) == (9, 52, 4)
    assert {name: reason.split(": ")[2] for name, reason in summary.errors.items()} == {
        "cut.parquet-00000.parquet": "expected a Parquet file",
        "other.parquet-00000.parquet": "expected the column 'body', got ['x']",
    }

    def written(name: str) -> list[Any]:
        tables = map(parquet.read_table, sorted((tmp_path / "out").glob(f"{name}.*")))
        return pyarrow.concat_tables(tables).to_pylist()

    both = [
        [{k: v for k, v in row.items() if v is not None} for row in some]
        for some in (written("a"), rows(tmp_path / "lines"))
    ]
    assert both[0] == both[1]
    assert [row["id"] for row in written("no-ids")] == [*range(26)]
    assert annotate(model, paths, tmp_path / "out", **settings).parts.kept == 7
    (tmp_path / "large.jsonl").write_text('{"key": 18446744073709551615, "body": "a"}')
    annotate(model, [tmp_path / "large.jsonl"], tmp_path / "out", **settings)
    assert [row["id"] for row in written("large")] == ["18446744073709551615"]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    done = run("annotate", model, path, "--format", "parquet", "-o", tmp_path / "none")
    assert done.exit_code == 1
    assert "Parquet requires pyarrow: pip install 'spacy-costner[parquet]'" in done.output
