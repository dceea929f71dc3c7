"""Annotation of files: each id once, with the answer of one plain process or an error."""

import errno
import gc
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any, Callable, List

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import DocBin, Span

from spacy_costner.cli.annotate import Columns, Plan, Settings, Summary, annotate_files
from spacy_costner.readers import read_docs
from spacy_costner.saving import locked

from .support.annotating import (
    SENTENCES,
    Saved,
    files,
    places,
    plain,
    rows,
    save_pipeline,
    write_inputs,
    write_lines,
)
from .support.commands import run


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return save_pipeline(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def model(saved: Saved) -> Path:
    return saved.model


@pytest.fixture
def settings(saved: Saved) -> Settings:
    return saved.settings


def test_answers_are_those_of_the_pipeline(model: Path, settings: Settings, tmp_path: Path) -> None:
    texts = write_lines(tmp_path / "a.txt", [*SENTENCES[:5], "", *SENTENCES[5:]])
    summary = annotate_files(model, [texts], tmp_path / "out", settings, n_rows=10)
    found = rows(tmp_path / "out")
    assert [row["id"] for row in found] == [i for i in range(1, 26) if i != 6]
    assert [row["text"] for row in found] == SENTENCES
    assert [places(row["entities"]) for row in found] == plain(model, SENTENCES)
    docs = list(spacy.load(model).pipe(SENTENCES))
    for doc, row in zip(docs, found):
        for key, name in (("guaranteed", "_guaranteed"), ("alternatives", "_alternatives")):
            group = doc.spans[f"confidence{name}"]
            assert places(row[key]) == [(s.start_char, s.end_char, s.label_) for s in group]
            scores = [span["score"] for span in row[key]]
            assert scores == pytest.approx(list(group.attrs["scores"]))
        scores = [span["score"] for span in row["entities"]]
        assert scores == pytest.approx([ent._.confidence for ent in doc.ents])
    assert any(row["guaranteed"] for row in found) and any(row["alternatives"] for row in found)
    assert summary.parts == Plan(0, 0, 3) and not summary.errors
    numbers = (summary.docs, summary.failed, summary.tokens)
    assert numbers == (24, 0, sum(map(len, docs)))
    corpus = list(read_docs(spacy.blank("en"), tmp_path / "out" / "a.txt-00000.jsonl"))
    assert [[*map(str, doc.ents)] for doc in corpus] == [
        [*map(str, doc.ents)] for doc in docs[: len(corpus)]
    ]


def test_forms_agree(model: Path, settings: Settings, tmp_path: Path) -> None:
    """Docs with their tokens, and with annotation that isn't read; lines with tokens."""
    nlp = spacy.blank("en")
    docs = [nlp.make_doc(text) for text in SENTENCES]
    docs[0].set_ents([Span(docs[0], 0, 1, label="other")])
    DocBin(docs=docs).to_disk(tmp_path / "c.spacy")
    lines = [
        {"id": i, "text": d.text, "tokens": [{"start": t.idx, "end": t.idx + len(t)} for t in d]}
        for i, d in enumerate(docs)
    ]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for name in ("b.jsonl", "c.spacy"):
        annotate_files(model, [tmp_path / name], tmp_path / name[0], settings)
    assert rows(tmp_path / "b") == rows(tmp_path / "c")
    spacy_settings = settings._replace(format="spacy")
    annotate_files(model, [tmp_path / "b.jsonl"], tmp_path / "s", spacy_settings)
    binary = DocBin().from_disk(tmp_path / "s" / "b.jsonl-00000.spacy")
    for row, doc in zip(rows(tmp_path / "b"), binary.get_docs(nlp.vocab), strict=True):
        assert doc.user_data["id"] == row["id"]
        assert places(row["entities"]) == [(e.start_char, e.end_char, e.label_) for e in doc.ents]
        assert len(doc.spans["confidence_guaranteed"]) == len(row["guaranteed"])
    short = settings._replace(with_text=False)
    annotate_files(model, [tmp_path / "b.jsonl"], tmp_path / "b", short)
    assert all("text" not in row for row in rows(tmp_path / "b"))


POISON = [None, 7, "x" * 1_000_001, "poison", "\ud800 half", "swallow", ["list"]]


@pytest.mark.parametrize("form", ["jsonl", "spacy"])
def test_what_fails_is_a_row_with_its_error(
    model: Path, settings: Settings, tmp_path: Path, form: str
) -> None:
    mixed: List[Any] = [*SENTENCES[:4], *POISON, *SENTENCES[4:8]]
    path = write_lines(tmp_path / "a.jsonl", mixed)
    with path.open("ab") as file:
        file.write(b'not JSON\n"text"\n{"text": "no id"}\n{"id": [1], "text": "a"}\n\xff\n')
        file.write(b'{"id": "tokens", "text": "a b", "tokens": [{"start": 0, "end": 9}]}\n')
        file.write(b'{"id": "cut", "text": "The Red S')
    summary = annotate_files(
        model, [path], tmp_path / "out", settings._replace(format=form), n_rows=100
    )
    n = len(mixed)
    ids = [f"d{i}" for i in range(n)] + [n + 1, n + 2, n + 3, n + 4, n + 5, "tokens", n + 7]
    if form == "spacy":
        docs = list(
            DocBin().from_disk(tmp_path / "out/a.jsonl-00000.spacy").get_docs(Language().vocab)
        )
        assert [doc.user_data["id"] for doc in docs] == ids
        errors = [doc.user_data.get("error") for doc in docs]
    else:
        found = rows(tmp_path / "out")
        assert [row["id"] for row in found] == ids
        assert [places(r["entities"]) for r in [*found[:4], *found[11:15]]] == plain(
            model, SENTENCES[:8]
        )
        errors = [row.get("error") for row in found]
        assert all(("entities" in row) != ("error" in row) for row in found)
    failed = [i for i, error in enumerate(errors) if error]
    assert failed == [*range(4, 11), 15, 16, 18, 19, 20, 21]
    assert summary.failed == len(failed) and summary.docs == len(ids)
    expected = [
        "expected a text, got None",
        "expected a text, got 7",
        "[E088]",
        "poisoned",
        "Unicode",
        "KeyError",
        "expected a text, got ['list']",
        f"{path}, line {n + 1}: expected JSON",
        f"{path}, line {n + 2}: expected an object with 'text'",
        "id: expected text or a number, got [1]",
        "utf-8",
        "tokens: ",
        f"{path}, line {n + 7}: expected JSON",
    ]
    for i, part in zip(failed, expected, strict=True):
        assert part in errors[i], i


def test_lines_of_other_systems(model: Path, settings: Settings, tmp_path: Path) -> None:
    """A byte order mark and carriage returns are not text; white space is."""
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfThe Red Sox lost.\r\n \r\n  Who?\r\nNo")
    annotate_files(model, [tmp_path / "a.txt"], tmp_path / "out", settings, n_rows=2)
    assert [(row["id"], row["text"]) for row in rows(tmp_path / "out")] == [
        (1, "The Red Sox lost."),
        (3, "  Who?"),
        (4, "No"),
    ]


def test_on_error_raise_stops(model: Path, settings: Settings, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [*SENTENCES[:4], "poison"])
    with pytest.raises(ValueError, match=r"a\.jsonl: id 'd4': RuntimeError: poisoned"):
        annotate_files(model, [path], tmp_path / "out", settings._replace(on_error="raise"))
    assert not files(tmp_path / "out")


@pytest.fixture
def inputs(tmp_path: Path) -> List[Path]:
    """The last text kills its process if the file "died" isn't there."""
    (tmp_path / "died").touch()
    texts = [*SENTENCES, "poison", f"killer {tmp_path / 'died'}"]
    return [write_inputs(tmp_path / "in", *texts)]


def test_a_killed_worker_changes_nothing(saved: Saved, inputs: List[Path], tmp_path: Path) -> None:
    """The same files from one process and from two, one of which is killed. The pipeline is loaded
    once in each."""
    model, settings = saved.model, saved.settings
    one = annotate_files(model, inputs, tmp_path / "one", settings, n_rows=7)
    for path in [tmp_path / "died", *saved.loads.iterdir()]:
        path.unlink()
    two = annotate_files(model, inputs, tmp_path / "two", settings, n_rows=7, jobs=2)
    assert (tmp_path / "died").exists()
    assert {path.read_text() for path in saved.loads.iterdir()} == {"loaded\n"}
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert len(files(tmp_path / "two")) == 8
    assert (one.docs, one.failed, one.tokens) == (two.docs, two.failed, two.tokens)
    assert (one.docs, one.failed) == (52, 2)
    ids = [row["id"] for row in rows(tmp_path / "two")]
    assert sorted(map(str, ids)) == sorted([*(f"d{i}" for i in range(26)), *map(str, range(1, 27))])


def test_a_killed_command_leaves_no_process_and_is_taken_up_again(
    saved: Saved, inputs: List[Path], tmp_path: Path
) -> None:
    model, code, settings = saved.model, saved.code, saved.settings
    output, manifest = tmp_path / "out", tmp_path / "out" / "manifest.jsonl"
    arguments = ["annotate", model, *inputs, "-o", output, "--code", code, "--part", 1, "-j", 2]
    command = [sys.executable, "-m", "spacy", "costner", *map(str, arguments)]
    # Workers hold its end of the pipe: reading ends when they have ended.
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    while not manifest.exists() or manifest.read_bytes().count(b"\n") < 3:
        assert killed.poll() is None
        sleep(0.01)
    killed.kill()
    killed.communicate(timeout=60)
    found = annotate_files(model, inputs, output, settings, n_rows=1)
    assert found.parts.kept >= 3 and found.docs == 52
    annotate_files(model, inputs, tmp_path / "whole", settings, n_rows=1)
    assert files(output) == files(tmp_path / "whole")


def again(model: Path, inputs: List[Path], output: Path, settings: Settings) -> Summary:
    return annotate_files(model, inputs, output, settings, n_rows=10)


def test_a_rerun_does_what_is_missing_or_changed(
    model: Path, settings: Settings, inputs: List[Path], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    first = again(model, inputs, output, settings)
    assert first.parts == Plan(0, 0, 6)
    before = files(output)
    second = again(model, inputs, output, settings)
    assert second.parts == Plan(6, 0, 0) and files(output) == before
    assert (second.docs, second.failed, second.tokens) == (first.docs, first.failed, first.tokens)
    # Missing, cut off, and a manifest that was cut off while it was written.
    (output / "sub" / "a.txt-00001.jsonl").unlink()
    cut = output / "b.jsonl-00000.jsonl"
    cut.write_bytes(cut.read_bytes()[:-9])
    with (output / "manifest.jsonl").open("a") as file:
        file.write('{"file": "sub/a.t')
    assert again(model, inputs, output, settings).parts == Plan(4, 2, 0)
    assert files(output) == before
    # A line changed, and a part of the input is gone.
    lines = write_lines(tmp_path / "in" / "b.jsonl", [*SENTENCES[:10], "The Red Sox won."])
    assert again(model, inputs, output, settings).parts == Plan(4, 1, 0)
    assert not (output / "b.jsonl-00002.jsonl").exists()
    texts = [row["text"] for row in rows(output) if str(row["id"]).startswith("d")]
    assert texts == [*SENTENCES[:10], "The Red Sox won."]
    # Other inputs stay.
    assert again(model, [lines], output, settings).parts == Plan(2, 0, 0)
    assert again(model, inputs, output, settings).parts == Plan(5, 0, 0)
    no_text = settings._replace(with_text=False)
    assert again(model, inputs, output, no_text).parts == Plan(0, 5, 0)
    assert again(model, inputs, output, no_text._replace(on_error="raise")).parts.kept == 5


def test_a_changed_model_does_all_again(
    model: Path, settings: Settings, inputs: List[Path], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    assert not again(copy, inputs, tmp_path / "out", settings).errors
    nlp = spacy.load(copy)
    ner: Any = nlp.get_pipe("ner")
    with pytest.warns(UserWarning, match="the guarantee is dropped"):
        ner.drop_guarantee("a test")
    ner.cfg["temperature"]["overall"] = 3.0
    nlp.to_disk(copy)
    summary = again(copy, inputs, tmp_path / "out", settings)
    assert summary.parts == Plan(0, 6, 0) and not summary.errors
    again(copy, inputs, tmp_path / "fresh", settings)
    assert files(tmp_path / "out") == files(tmp_path / "fresh")
    again(model, inputs, tmp_path / "old", settings)
    assert files(tmp_path / "out") != files(tmp_path / "old")


def test_a_file_that_is_cut_off_fails_alone(
    model: Path, settings: Settings, inputs: List[Path], tmp_path: Path
) -> None:
    docs = DocBin(docs=[Language().make_doc(text) for text in SENTENCES])
    whole = docs.to_bytes()
    binary = tmp_path / "in" / "c.spacy"
    binary.write_bytes(whole[: len(whole) // 2])
    summary = again(model, inputs, tmp_path / "out", settings)
    ((name, reason),) = summary.errors.items()
    assert name == "c.spacy-00000.jsonl"
    assert f"{binary}: expected a file that spaCy's DocBin has saved" in reason
    assert summary.docs == 52 and not (tmp_path / "out" / name).exists()
    binary.write_bytes(whole)
    assert again(model, inputs, tmp_path / "out", settings).parts == Plan(6, 0, 1)
    assert len(rows(tmp_path / "out")) == 52 + len(SENTENCES)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_what_changes_after_the_plan_is_not_written(
    saved: Saved, inputs: List[Path], tmp_path: Path, jobs: int
) -> None:
    """An input that is cut off, or another model: each process compares what it reads."""
    model, output, cut = tmp_path / "model", tmp_path / "out", inputs[0] / "b.jsonl"
    shutil.copytree(saved.model, model)
    whole, meta = cut.read_bytes(), (model / "meta.json").read_bytes()

    def annotate(change: Callable[[Plan], Any]) -> Summary:
        return annotate_files(
            model, inputs, output, saved.settings, n_rows=10, jobs=jobs, on_plan=change
        )

    found = annotate(lambda _: cut.write_bytes(whole[:-20]))
    expected = f"CorpusError: {cut}: expected the file that the command began with, got another"
    assert found.errors == {"b.jsonl-00002.jsonl": expected} and found.docs == 46
    cut.write_bytes(whole)
    (model / "meta.json").write_bytes(meta + b"\n")
    found = annotate(lambda _: (model / "meta.json").write_bytes(meta))
    reason = f"{model}: expected the pipeline that the command began with, got another"
    assert len(found.errors) == 6 and {*found.errors.values()} == {f"ValueError: {reason}"}
    assert annotate(lambda _: None).parts == Plan(5, 0, 1)
    again(saved.model, inputs, tmp_path / "whole", saved.settings)
    assert files(output) == files(tmp_path / "whole")


def test_a_worker_without_the_output_folder(
    model: Path, settings: Settings, inputs: List[Path], tmp_path: Path
) -> None:
    """It says so, and doesn't write to a folder of its own."""
    output = tmp_path / "out"

    def elsewhere() -> ThreadPoolExecutor:
        (output / "manifest.jsonl").unlink()
        return ThreadPoolExecutor(1)

    found = annotate_files(model, inputs, output, settings, make_executor=elsewhere)
    reason = f"{output}: expected the output folder of the command, got none on this worker"
    assert [*found.errors.values()] == [f"ValueError: {reason}"] * 2
    assert not list(output.rglob("*.jsonl"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_leaves_what_was_there(
    model: Path,
    settings: Settings,
    inputs: List[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write_to_full_disk(path: Path, *_: Any) -> None:
        with open("/dev/full", "w") as file:
            file.write("x")

    with monkeypatch.context() as patch:
        patch.setitem(
            sys.modules["spacy_costner.cli.annotate"].WRITERS,
            "jsonl",
            write_to_full_disk,
        )
        summary = again(model, inputs, tmp_path / "out", settings)
    assert len(summary.errors) == 6 and summary.docs == 0 and not files(tmp_path / "out")
    assert "No space left" in str(summary.errors)
    assert again(model, inputs, tmp_path / "out", settings).docs == 52


def test_a_file_system_without_locks(
    model: Path,
    settings: Settings,
    inputs: List[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A network file system has none on folders: it is written to all the same."""

    def no_locks(*_: Any) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr("fcntl.flock", no_locks)
    frozen = gc.get_freeze_count()
    assert again(model, inputs, tmp_path / "out", settings).docs == 52
    assert gc.get_freeze_count() == frozen


def test_one_command_at_a_time_writes_to_a_folder(
    model: Path, settings: Settings, inputs: List[Path], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    with (
        locked(tmp_path / "out"),
        pytest.raises(ValueError, match="expected no other process that writes to it"),
    ):
        again(model, inputs, tmp_path / "out", settings)
    assert again(model, inputs, tmp_path / "out", settings).docs == 52


@pytest.fixture
def arguments(saved: Saved, inputs: List[Path], tmp_path: Path) -> List[Any]:
    return ["annotate", saved.model, *inputs, "-o", tmp_path / "out", "--code", saved.code]


def test_the_command(arguments: List[Any], inputs: List[Path], tmp_path: Path) -> None:
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    assert "52 docs, 2 failed" in done.output and "2 new" in done.output
    done = run(*arguments, "--json")
    summary = json.loads(done.stdout)
    assert summary["docs"] == 52 and summary["parts"] == {"kept": 2, "changed": 0, "new": 0}
    (inputs[0] / "c.spacy").write_bytes(b"no docs")
    done = run(*arguments)
    assert done.exit_code == 1 and "not written: c.spacy-00000.jsonl" in done.output


def test_refused(arguments: List[Any], inputs: List[Path], tmp_path: Path) -> None:
    def message(*options: Any) -> str:
        done = run(*arguments, *options)
        assert done.exit_code == 1
        return " ".join(done.output.split())

    assert "jobs: expected at least 1, got 0" in message("--jobs", 0)
    assert "part: expected at least 1, got 0" in message("--part", 0)
    assert "format: expected one of" in message("--format", "csv")
    assert "on_error: expected one of ['row', 'raise'], got 'x'" in message("--on-error", "x")
    assert "expected an output outside of the input" in message("--output", inputs[0] / "out")
    (inputs[0] / "b.csv").touch()
    assert "b.csv: expected one of .txt" in message()
    (inputs[0] / "b.csv").unlink()
    arguments.append(write_lines(tmp_path / "b.jsonl", ["a"]))
    assert "expected files of different names, got" in message()
    arguments[-1] = tmp_path / "nothing.txt"
    assert "nothing.txt: expected a file or folder, got nothing there" in message()
    arguments[1] = tmp_path
    assert "expected a trained pipeline" in message()


def test_parquet_is_as_jsonl(model: Path, settings: Settings, tmp_path: Path) -> None:
    """In row groups, some of which become a part; texts and ids in columns of other names."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = [*SENTENCES, None, "poison"]
    path = write_lines(tmp_path / "a.jsonl", texts)
    annotate_files(model, [path], tmp_path / "lines", settings, n_rows=8)
    expected = rows(tmp_path / "lines")
    columns = Columns("body", "key")
    table = pyarrow.table({"key": [f"d{i}" for i in range(26)], "body": texts, "x": range(26)})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    both = settings._replace(format="parquet", columns=columns)
    summary = annotate_files(model, [tmp_path / "a.parquet"], tmp_path / "out", both, n_rows=8)
    assert summary.parts == Plan(0, 0, 4) and (summary.docs, summary.failed) == (26, 2)
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert len(files) == 4
    found = pyarrow.concat_tables(map(parquet.read_table, files)).to_pylist()
    assert [{k: v for k, v in row.items() if v is not None} for row in found] == [
        {k: v for k, v in row.items() if v is not None} for row in expected
    ]
    again = annotate_files(model, [tmp_path / "a.parquet"], tmp_path / "out", both, n_rows=8)
    assert again.parts == Plan(4, 0, 0)


def test_parquet_ids_and_files_that_cannot_be_read(
    model: Path, settings: Settings, tmp_path: Path
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    whole, cut, other = (tmp_path / f"{name}.parquet" for name in ("whole", "cut", "other"))
    parquet.write_table(pyarrow.table({"text": SENTENCES}), whole, row_group_size=10)
    cut.write_bytes(whole.read_bytes()[:-20])
    parquet.write_table(pyarrow.table({"body": SENTENCES}), other)
    odd = write_lines(tmp_path / "odd.jsonl", ["\ud800"])
    settings = settings._replace(format="parquet")
    summary = annotate_files(model, [whole, cut, other, odd], tmp_path / "out", settings, n_rows=9)
    assert {name: reason.split(": ")[2] for name, reason in summary.errors.items()} == {
        "cut.parquet-00000.parquet": "expected a Parquet file",
        "other.parquet-00000.parquet": "expected the column 'text', got ['body']",
    }
    found = [parquet.read_table(p).to_pylist() for p in sorted((tmp_path / "out").glob("w*"))]
    assert [row["id"] for rows in found for row in rows] == [*range(24)]
    (row,) = parquet.read_table(tmp_path / "out" / "odd.jsonl-00000.parquet").to_pylist()
    assert row["id"] == "d0" and row["text"] == "\\ud800" and "Unicode" in row["error"]


def test_parquet_without_pyarrow(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    path = write_lines(tmp_path / "a.txt", SENTENCES)
    done = run("annotate", model, path, "--format", "parquet", "-o", tmp_path / "out")
    assert done.exit_code == 1
    assert "Parquet requires pyarrow: pip install 'spacy-costner[parquet]'" in done.output
