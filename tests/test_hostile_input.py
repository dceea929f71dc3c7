"""Input that nobody should have written: metadata that no file can have, files of random bytes,
folders that lead back to themselves. One line or file is refused, and nothing else is lost."""

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import spacy
import srsly
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import DocBin

from spacy_costner.analysis.annotating import annotate
from spacy_costner.analysis.guarantees import guarantee
from spacy_costner.metrics.shift import ENOUGH
from spacy_costner.pipeline.serialization import sign
from spacy_costner.readers import CorpusError, read_docs, write_tasks
from spacy_costner.readers.documents import short_values
from spacy_costner.readers.files import FilePlace, corpus_files
from spacy_costner.readers.task_docs import _token_offsets, _touched_tokens
from spacy_costner.readers.tasks import (
    TASK_FORMS,
    Task,
    TaskSpan,
    _utf16_length,
    spans_from_json,
    task_to_json,
)
from spacy_costner.saving import clear, save_file, save_folder

from .support.commands import run
from .support.pipelines import examples, load

NLP = spacy.blank("xx")
TEXT = st.text(st.characters(), max_size=8) | st.sampled_from(["\ud800", "\udfff", "error", "id"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.floats()
    | TEXT
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([2**63, -(2**63), 2**64 - 1, 2**64, 10**4000])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
METADATA = st.dictionaries(TEXT, VALUES, max_size=4)
KEPT_BY_PYTEST = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.fixture
def model(unsure: Path) -> Path:
    return unsure


def docs_of(path: Path) -> list[Any]:
    return list(DocBin().from_disk(path).get_docs(Language().vocab))


@given(METADATA)
def test_short_values_can_be_saved(values: dict[str, Any]) -> None:
    short = short_values(values)
    assert srsly.msgpack_loads(srsly.msgpack_dumps(short)) == short
    assert json.loads(json.dumps(short, ensure_ascii=False).encode("utf8")) == short


@settings(max_examples=10, deadline=None, suppress_health_check=KEPT_BY_PYTEST)
@given(st.lists(METADATA, min_size=1, max_size=6))
def test_metadata_loses_no_text(model: Path, tmp_path: Path, metadata: list[Any]) -> None:
    lines = [{**values, "meta": values, "text": "Kim is", "id": 3} for values in metadata]
    for line in lines:
        line.pop("tokens", None)
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    summary = annotate(model, [path], tmp_path / "out", form="spacy")
    assert (summary.docs, summary.failed, summary.errors) == (len(lines), 0, {})
    docs = docs_of(tmp_path / "out" / "a.jsonl-00000.spacy")
    assert [doc.text for doc in docs] == ["Kim is"] * len(lines)
    assert not any("error" in doc.user_data for doc in docs)


LEAVES = """
from spacy.language import Language

@Language.component("leaves")
def leaves(doc):
    what = doc[0].text
    if what == "data":
        doc.user_data["x"] = object()
    elif what == "cats":
        doc.cats["\\ud800"] = 1.0
    elif what == "attrs":
        doc.spans["x"] = []
        doc.spans["x"].attrs["y"] = {2**70}
    elif what == "scores":
        doc.spans["x"] = [doc[0:1]]
        doc.spans["x"].attrs.update(source="cost_sensitive_ner", scores=[object()])
    return doc
"""


@pytest.mark.parametrize("form", ["spacy", "jsonl", "parquet"])
def test_what_a_component_leaves_is_an_error_row(model: Path, tmp_path: Path, form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    code, path = tmp_path / "code.py", tmp_path / "a.txt"
    code.write_text(LEAVES)
    exec(compile(LEAVES, str(code), "exec"), {})
    nlp = spacy.load(model)
    nlp.add_pipe("leaves")
    nlp.to_disk(tmp_path / "leaving")
    texts = ["Kim is", "data", "cats", "attrs", "Khan lost", "scores Khan"]
    path.write_text("\n".join(texts))
    summary = annotate(tmp_path / "leaving", [path], tmp_path / "out", form=form, code_path=code)
    assert summary.docs == 6 and not summary.errors
    assert summary.failed == (4 if form == "spacy" else 1)
    if form == "spacy":
        docs = docs_of(tmp_path / "out" / "a.txt-00000.spacy")
        failed = [doc.user_data["id"] for doc in docs if "error" in doc.user_data]
        assert failed == [2, 3, 4, 6]
        assert [doc.text for doc in docs if "error" not in doc.user_data][:2] == texts[::4]
        with pytest.raises(ValueError, match=r"a\.txt: id 2: "):
            annotate(
                tmp_path / "leaving", [path], tmp_path / "stopped", form=form, code_path=code,
                on_error="raise",
            )  # fmt: skip


def test_an_input_key_error_is_no_error(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "Kim is", "error": "no"}\n')
    assert annotate(model, [tmp_path / "a.jsonl"], tmp_path / "out", form="spacy").failed == 0
    (doc,) = docs_of(tmp_path / "out" / "a.jsonl-00000.spacy")
    assert doc.text == "Kim is" and "error" not in doc.user_data


def test_metadata_that_all_docs_share_is_saved(unsure: Path, tmp_path: Path) -> None:
    nlp = load(unsure)
    dev = examples(nlp)[:3] * ENOUGH
    for eg in dev:
        eg.reference.user_data.update({"src": "\ud800", "\udfff": 1, "good": "x"})
    guarantee(nlp, dev, miss=0.3)
    nlp.to_disk(tmp_path / "saved")
    ner: Any = load(tmp_path / "saved").get_pipe("ner")
    assert [*ner.calibration_scores.keys] == ["good"]


def test_a_cfg_that_can_not_be_saved_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cfg: expected text that can be UTF-8, got .*ud800"):
        sign({"shift": {"source": "a\ud800"}}, b"model")


WRONG_SHIFTS: list[Any] = [
    {"ner": 5},
    {"ner": {}},
    {"ner": {"scores": ["a"], "counts": {}}},
    {"ner": {"scores": [None], "counts": {}}},
    {"ner": {"scores": [1.0], "counts": {"A": [1]}}},
    {"ner": {"scores": [1.0], "counts": {"A": 5}}},
]


@pytest.mark.parametrize("shift", WRONG_SHIFTS)
def test_a_damaged_shift_does_its_part_again(model: Path, tmp_path: Path, shift: Any) -> None:
    path, manifest = tmp_path / "a.txt", tmp_path / "out" / "manifest.jsonl"
    path.write_text("Kim is")
    annotate(model, [path], tmp_path / "out")
    entry = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**entry, "shift": shift}) + "\n")
    assert annotate(model, [path], tmp_path / "out").parts.new == 1
    manifest.write_text(
        json.dumps({**entry, "shift": {"nobody": {"scores": [1.0], "counts": {}}}}) + "\n"
    )
    assert annotate(model, [path], tmp_path / "out").shift == {}


HALF = '{"text": "Juan is", "spans": [{"start": 0, "end": 4, "label": %s, "id": %s}]}\n'
TAGGED = '{"tokens": ["%s"], "ner_tags": ["%s"]}\n'
SURROGATES = {
    "label": (HALF % ('"A"', '"B"'), HALF % ('"\\ud800"', '"B"')),
    "id": (HALF % ('"A"', '"B"'), HALF % ('"A"', '"\\ud800"')),
    "token": (TAGGED % ("a", "O"), TAGGED % ("\\ud800", "O")),
    "tag": (TAGGED % ("a", "O"), TAGGED % ("a", "B-\\ud800")),
}  # fmt: skip


@pytest.mark.parametrize("name", SURROGATES)
def test_surrogates_are_refused_by_file_and_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(SURROGATES[name]))
    with pytest.raises(CorpusError, match=r"a\.jsonl, line 2: .*can be UTF-8, got .*ud800"):
        list(read_docs(NLP, path))


def test_metadata_with_surrogates_is_written_to_tasks(tmp_path: Path) -> None:
    task = Task("Kim", [], extra={"src": "\ud800"})
    write_tasks(tmp_path / "a.jsonl", [task])
    assert json.loads((tmp_path / "a.jsonl").read_text()) == task_to_json(task)


@settings(max_examples=60, deadline=None, suppress_health_check=KEPT_BY_PYTEST)
@given(
    st.binary(max_size=200) | st.text().map(lambda text: text.encode("utf8", "replace"))
    | VALUES.map(lambda value: json.dumps(value).encode()),
    st.sampled_from([".spacy", ".jsonl", ".json", ".conll", ".txt"]),
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_random_files_are_read_or_refused(tmp_path: Path, data: bytes, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(data)
    try:
        list(read_docs(NLP, path))
    except CorpusError as error:
        assert str(error).startswith(str(path))


@given(st.text("ab \n", min_size=1, max_size=30), st.data())
def test_tokens_of_characters_by_definition(text: str, data: st.DataObject) -> None:
    doc = NLP.make_doc(text)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    touched = [token.i for token in doc if token.idx < end and token.idx + len(token) > start]
    expected = (touched[0], touched[-1] + 1) if touched else (0, 0)
    assert _touched_tokens(_token_offsets(doc), start, end) == expected


CHARACTERS = st.sampled_from([*"abcd\u20ac", *map(chr, range(0x1F600, 0x1F606))])


@given(st.lists(CHARACTERS, unique=True, min_size=1).map("".join), st.data())
def test_offsets_of_javascript(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    units = [_utf16_length(text[:place]) for place in (start, end)]
    span = {"start": units[0], "end": units[1], "label": "X", "text": text[start:end]}
    (found,) = spans_from_json([span], text, "spans", FilePlace(Path("a"), 1))
    assert text[found.start : found.end] == text[start:end]
    written = TASK_FORMS["label-studio"].to_json(Task(text, [TaskSpan(start, end, "X")]))
    value = written["predictions"][0]["result"][0]["value"]
    assert [value["start"], value["end"]] == units


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes")
def test_folders_with_loops_and_pipes(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.jsonl").write_text('{"text": "Kim", "spans": []}\n')
    for name in ("x", "y", "b/z"):
        (tmp_path / name).symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert corpus_files(tmp_path) == [tmp_path / "b" / "a.jsonl"]
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nothing")  # is not passed over
    assert corpus_files(tmp_path)[1:] == [tmp_path / "gone.jsonl"]


def test_long_names(tmp_path: Path) -> None:
    name = "\u00e9" * 120
    for _ in range(2):
        save_file(tmp_path / name, lambda path: path.write_text("new"))
        save_folder(tmp_path / f"{name}.folder", lambda path: (path / "meta.json").write_text("{}"))
        (tmp_path / f"{name}.folder" / "config.cfg").touch()
    assert sorted(os.listdir(tmp_path)) == [name, f"{name}.folder"]
    left = tmp_path / f".{sha256(name.encode()).hexdigest()}.0123abcd.saving"  # by a killed process
    left.touch()
    clear(tmp_path / name)
    assert not left.exists() and (tmp_path / name).read_text() == "new"


def test_names_that_are_not_utf8(model: Path, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl"))
    try:
        path.write_text('{"text": "Kim is"}\n')
    except OSError:
        pytest.skip("the file system has only names in UTF-8")
    assert annotate(model, [path], tmp_path / "out").docs == 1


def test_stderr_is_closed(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Kim is")
    code = "import os, sys; os.close(2); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-m", "spacy", "costner", "annotate", str(model), "a.txt", "-o", "o"]
    done = subprocess.run(
        [sys.executable, "-c", code, *command], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and "1 docs, 0 failed" in done.stdout


def test_watch_that_reads_nothing(unsure: Path, tmp_path: Path) -> None:
    nlp = load(unsure)
    guarantee(nlp, examples(nlp)[:3] * ENOUGH, miss=0.3)
    nlp.to_disk(tmp_path / "model")
    (tmp_path / "a.jsonl").write_text("not JSON\n")
    result = run("watch", tmp_path / "model", tmp_path / "a.jsonl")
    assert result.exit_code == 1
    assert "watch: expected texts, could read none: " in result.output and "line 1" in result.output
