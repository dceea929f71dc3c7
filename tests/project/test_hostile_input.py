"""Input that nobody should have written: metadata that no file can have, files of random bytes,
folders that lead back to themselves. One line or file is refused, and nothing else is lost."""

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import spacy
import srsly
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import DocBin

from spacy_costner.files.saving import clear, save_file, save_folder
from spacy_costner.metrics.shift import ENOUGH
from spacy_costner.pipeline.serialization import sign
from spacy_costner.readers import CorpusError, read_docs, write_tasks
from spacy_costner.readers.documents import short_values
from spacy_costner.readers.files import FilePlace, corpus_files
from spacy_costner.readers.offsets import utf16_length
from spacy_costner.readers.task_forms import TASK_FORMS, task_to_json
from spacy_costner.readers.tasks import Task, TaskSpan, spans_from_json
from spacy_costner.readers.token_spans import token_offsets, touched_tokens
from spacy_costner.workflows.apply.annotating import annotate
from spacy_costner.workflows.calibration.guarantees import guarantee

from ..support.commands import run
from ..support.pipelines import load, numbered_examples

NLP = spacy.blank("xx")
TEXT = st.text(st.characters(), max_size=8) | st.sampled_from(["\ud800", "\udfff", "error", "id"])
"""Half a character in UTF-16 can't be written in UTF-8; "error" and "id" are keys of our output."""

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
TMP_PATH_FOR_ALL = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
"""All examples of a test write to one `tmp_path`."""


def docs_of_file(path: Path) -> list[Any]:
    """The docs of a .spacy file."""
    return list(DocBin().from_disk(path).get_docs(Language().vocab))


# Metadata


@given(METADATA)
def test_short_values_can_be_saved(values: dict[str, Any]) -> None:
    """They are saved as msgpack and as JSON in UTF-8, and come back the same."""
    short = short_values(values)

    assert srsly.msgpack_loads(srsly.msgpack_dumps(short)) == short
    assert json.loads(json.dumps(short, ensure_ascii=False).encode("utf8")) == short


@settings(max_examples=10, deadline=None, suppress_health_check=TMP_PATH_FOR_ALL)
@given(st.lists(METADATA, min_size=1, max_size=6))
def test_annotate_loses_no_text_to_its_metadata(
    unsure: Path, tmp_path: Path, metadata: list[dict[str, Any]]
) -> None:
    lines = []
    for values in metadata:
        line = {**values, "meta": values, "text": "Kim is", "id": 3}
        line.pop("tokens", None)  # tokens have to be those of the text
        lines.append(json.dumps(line))
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))

    summary = annotate(unsure, [path], tmp_path / "out", form="spacy")

    assert (summary.docs, summary.failed, summary.errors) == (len(lines), 0, {})
    docs = docs_of_file(tmp_path / "out" / "a.jsonl-00000.spacy")
    assert [doc.text for doc in docs] == ["Kim is"] * len(lines)
    assert not any("error" in doc.user_data for doc in docs)


CODE_OF_LEAVES = """
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
"""A component that leaves in docs what can't be saved, where the first word says so."""

TEXTS_OF_LEAVES = ["Kim is", "data", "cats", "attrs", "Khan lost", "scores Khan"]


class Leaving(NamedTuple):
    """A saved pipeline with the component `leaves`, its code, and a file with its six texts."""

    model: Path
    code: Path
    texts: Path


@pytest.fixture
def leaving(unsure: Path, tmp_path: Path) -> Leaving:
    files = Leaving(tmp_path / "leaving", tmp_path / "code.py", tmp_path / "a.txt")
    files.code.write_text(CODE_OF_LEAVES)
    exec(compile(CODE_OF_LEAVES, str(files.code), "exec"), {})
    nlp = spacy.load(unsure)
    nlp.add_pipe("leaves")
    nlp.to_disk(files.model)
    files.texts.write_text("\n".join(TEXTS_OF_LEAVES))
    return files


@pytest.mark.parametrize(
    "form, n_failed",
    [("spacy", 4), ("jsonl", 1), ("parquet", 1)],
)
def test_annotate_counts_docs_that_can_not_be_saved_as_failed(
    leaving: Leaving, tmp_path: Path, form: str, n_failed: int
) -> None:
    """Four of the six docs have something that the format of spaCy can't save. JSONL and Parquet
    have only entities and their scores, so only the doc with wrong scores fails."""
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    output = tmp_path / "out"

    summary = annotate(leaving.model, [leaving.texts], output, form=form, code_path=leaving.code)

    assert summary.docs == len(TEXTS_OF_LEAVES) and not summary.errors
    assert summary.failed == n_failed


def test_a_doc_that_can_not_be_saved_is_an_error_row_among_the_others(
    leaving: Leaving, tmp_path: Path
) -> None:
    """Ids count from 1: all texts but Kim is, 1, and Khan lost, 5, leave something."""
    annotate(leaving.model, [leaving.texts], tmp_path / "out", form="spacy", code_path=leaving.code)

    docs = docs_of_file(tmp_path / "out" / "a.txt-00000.spacy")
    failed = [doc.user_data["id"] for doc in docs if "error" in doc.user_data]
    saved = [doc.text for doc in docs if "error" not in doc.user_data]
    assert failed == [2, 3, 4, 6]
    assert saved == ["Kim is", "Khan lost"]


def test_on_error_raise_stops_at_a_doc_that_can_not_be_saved(
    leaving: Leaving, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"a\.txt: id 2: TypeError: can not serialize"):
        annotate(
            leaving.model,
            [leaving.texts],
            tmp_path / "out",
            form="spacy",
            code_path=leaving.code,
            on_error="raise",
        )


def test_the_key_error_of_the_input_is_no_error_of_annotate(unsure: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "Kim is", "error": "no"}\n')

    summary = annotate(unsure, [path], tmp_path / "out", form="spacy")

    assert summary.failed == 0
    (doc,) = docs_of_file(tmp_path / "out" / "a.jsonl-00000.spacy")
    assert doc.text == "Kim is" and "error" not in doc.user_data


def test_a_guarantee_saves_the_metadata_of_docs_that_can_be_saved(
    unsure: Path, tmp_path: Path
) -> None:
    """Of "src", "\\udfff" and "good", by which docs could be grouped, only "good" can."""
    nlp = load(unsure)
    dev = numbered_examples(nlp, ENOUGH)
    for eg in dev:
        eg.reference.user_data.update({"src": "\ud800", "\udfff": 1, "good": "x"})

    guarantee(nlp, dev, miss=0.3)
    nlp.to_disk(tmp_path / "saved")

    ner: Any = load(tmp_path / "saved").get_pipe("ner")
    assert [*ner.calibration_scores.keys] == ["good"]


def test_a_cfg_that_can_not_be_saved_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"cfg: expected text that can be encoded in UTF-8, got .*ud800"
    ):
        sign({"shift": {"source": "a\ud800"}}, b"model")


def test_the_refusal_of_a_cfg_shows_twenty_characters_on_each_side_of_the_wrong_one() -> None:
    source = 30 * "a" + "\ud800" + 30 * "b"
    with pytest.raises(
        ValueError, match="cfg: expected text that can be encoded in UTF-8"
    ) as refused:
        sign({"shift": {"source": source}}, b"model")

    excerpt = 20 * "a" + "\ud800" + 20 * "b"
    assert str(refused.value).endswith(f"got {excerpt!r}")


# The shift in the manifest of `annotate`, of a run that is continued

WRONG_SHIFTS: list[Any] = [
    {"ner": 5},
    {"ner": {}},
    {"ner": {"scores": ["a"], "counts": {}}},
    {"ner": {"scores": [None], "counts": {}}},
    {"ner": {"scores": [1.0], "counts": {"A": [1]}}},
    {"ner": {"scores": [1.0], "counts": {"A": 5}}},
]


@pytest.fixture
def annotated(unsure: Path, tmp_path: Path) -> Path:
    """The manifest of a run of `annotate` on a.txt, which has one part."""
    (tmp_path / "a.txt").write_text("Kim is")
    annotate(unsure, [tmp_path / "a.txt"], tmp_path / "out")
    return tmp_path / "out" / "manifest.jsonl"


def replace_shift(manifest: Path, shift: Any) -> None:
    """Write another shift into the one line of a manifest."""
    part = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**part, "shift": shift}) + "\n")


@pytest.mark.parametrize("shift", WRONG_SHIFTS)
def test_a_part_with_a_damaged_shift_is_annotated_again(
    unsure: Path, tmp_path: Path, annotated: Path, shift: Any
) -> None:
    replace_shift(annotated, shift)

    summary = annotate(unsure, [tmp_path / "a.txt"], tmp_path / "out")

    assert summary.parts.new == 1


def test_the_shift_of_a_component_that_the_pipeline_does_not_have_is_left_out(
    unsure: Path, tmp_path: Path, annotated: Path
) -> None:
    """The manifest of an earlier run names a component "nobody". The pipeline has only "ner"."""
    replace_shift(annotated, {"nobody": {"scores": [1.0], "counts": {}}})

    summary = annotate(unsure, [tmp_path / "a.txt"], tmp_path / "out")

    assert summary.shift == {}


# Files

TASK_LINE = '{"text": "Juan is", "spans": [{"start": 0, "end": 4, "label": %s, "id": %s}]}\n'
WORDS_LINE = '{"tokens": ["%s"], "ner_tags": ["%s"]}\n'
LINES_WITH_SURROGATES = {
    "label": (TASK_LINE % ('"A"', '"B"'), TASK_LINE % ('"\\ud800"', '"B"')),
    "id": (TASK_LINE % ('"A"', '"B"'), TASK_LINE % ('"A"', '"\\ud800"')),
    "token": (WORDS_LINE % ("a", "O"), WORDS_LINE % ("\\ud800", "O")),
    "tag": (WORDS_LINE % ("a", "O"), WORDS_LINE % ("a", "B-\\ud800")),
}
"""A good line, and one with half a character in a label, an id, a token or a tag."""


@pytest.mark.parametrize("name", LINES_WITH_SURROGATES)
def test_surrogates_are_refused_by_file_and_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(LINES_WITH_SURROGATES[name]))

    with pytest.raises(
        CorpusError, match=r"a\.jsonl, line 2: .*can be encoded in UTF-8, got .*ud800"
    ):
        list(read_docs(NLP, path))


def test_metadata_with_surrogates_is_written_to_tasks(tmp_path: Path) -> None:
    """JSON can have them, as \\ud800."""
    task = Task("Kim", [], extra={"src": "\ud800"})

    write_tasks(tmp_path / "a.jsonl", [task])

    assert json.loads((tmp_path / "a.jsonl").read_text()) == task_to_json(task)


@settings(max_examples=60, deadline=None, suppress_health_check=TMP_PATH_FOR_ALL)
@given(
    st.binary(max_size=200) | st.text().map(lambda text: text.encode("utf8", "replace"))
    | VALUES.map(lambda value: json.dumps(value).encode()),
    st.sampled_from([".spacy", ".jsonl", ".json", ".conll", ".txt"]),
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_random_files_are_read_or_refused_by_name(tmp_path: Path, data: bytes, suffix: str) -> None:
    """The files have any bytes, text, or JSON."""
    path = tmp_path / f"a{suffix}"
    path.write_bytes(data)
    try:
        list(read_docs(NLP, path))
    except CorpusError as error:
        assert str(error).startswith(str(path))


# Offsets of characters


@given(st.text("ab \n", min_size=1, max_size=30), st.data())
def test_touched_tokens_are_those_that_have_a_character_of_the_span(
    text: str, data: st.DataObject
) -> None:
    doc = NLP.make_doc(text)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))

    touched = touched_tokens(token_offsets(doc), start, end)

    tokens = [token.i for token in doc if token.idx < end and token.idx + len(token) > start]
    assert touched == ((tokens[0], tokens[-1] + 1) if tokens else (0, 0))


CHARACTERS = st.sampled_from([*"abcd\u20ac", *map(chr, range(0x1F600, 0x1F606))])
"""Among them emojis, which are two units of UTF-16. Offsets of JavaScript count units."""


@given(st.lists(CHARACTERS, unique=True, min_size=1).map("".join), st.data())
def test_offsets_of_javascript_are_read_and_written(text: str, data: st.DataObject) -> None:
    """They are recognized by the text of the span, which occurs only once."""
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    offsets = [utf16_length(text[:start]), utf16_length(text[:end])]

    span = {"start": offsets[0], "end": offsets[1], "label": "X", "text": text[start:end]}
    (span_read,) = spans_from_json([span], text, "spans", FilePlace(Path("a"), 1))
    task = TASK_FORMS["label-studio"].to_json(Task(text, [TaskSpan(start, end, "X")]))

    assert text[span_read.start : span_read.end] == text[start:end]
    written = task["predictions"][0]["result"][0]["value"]
    assert [written["start"], written["end"]] == offsets


# Names of files and folders


@pytest.fixture
def folder_with_loops(tmp_path: Path) -> Path:
    """A folder with the file b/a.jsonl, and links x, y and b/z back to itself."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.jsonl").write_text('{"text": "Kim", "spans": []}\n')
    for link in ("x", "y", "b/z"):
        (tmp_path / link).symlink_to(tmp_path)
    return tmp_path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes")
def test_corpus_files_passes_over_loops_and_pipes(folder_with_loops: Path) -> None:
    os.mkfifo(folder_with_loops / "pipe.jsonl")

    assert corpus_files(folder_with_loops) == [folder_with_loops / "b" / "a.jsonl"]


def test_a_link_to_a_missing_file_is_listed_among_the_files_of_a_corpus(
    folder_with_loops: Path,
) -> None:
    """Reading it is an error then, so that no file is left out silently."""
    link = folder_with_loops / "gone.jsonl"
    link.symlink_to(folder_with_loops / "nothing")

    assert corpus_files(folder_with_loops) == [folder_with_loops / "b" / "a.jsonl", link]


LONG_NAME = "\u00e9" * 120
"""Of 240 bytes: with what saving adds to it, it is longer than the 255 that a name may have."""


def test_files_and_folders_with_long_names_are_saved_again_and_again(tmp_path: Path) -> None:
    folder = tmp_path / f"{LONG_NAME}.folder"

    for _ in range(2):
        save_file(tmp_path / LONG_NAME, lambda path: path.write_text("new"))
        save_folder(folder, lambda path: (path / "meta.json").write_text("{}"))
        (folder / "config.cfg").touch()  # only a folder with both, a pipeline, is replaced

    assert sorted(os.listdir(tmp_path)) == [LONG_NAME, f"{LONG_NAME}.folder"]


def test_clear_removes_what_a_killed_process_left_of_a_long_name(tmp_path: Path) -> None:
    """The name of such a file has the hash of the long name."""
    (tmp_path / LONG_NAME).write_text("new")
    left_over = tmp_path / f".{sha256(LONG_NAME.encode()).hexdigest()}.0123abcd.saving"
    left_over.touch()

    clear(tmp_path / LONG_NAME)

    assert not left_over.exists()
    assert (tmp_path / LONG_NAME).read_text() == "new"


def test_annotate_reads_files_whose_names_are_not_utf8(unsure: Path, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl"))
    try:
        path.write_text('{"text": "Kim is"}\n')
    except OSError:
        pytest.skip("the file system has only names in UTF-8")

    assert annotate(unsure, [path], tmp_path / "out").docs == 1


# Commands


@pytest.mark.slow
def test_annotate_runs_where_stderr_is_closed(unsure: Path, tmp_path: Path) -> None:
    """The first process closes it, then becomes the command."""
    (tmp_path / "a.txt").write_text("Kim is")
    close_and_run = "import os, sys; os.close(2); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-m", "spacy", "costner", "annotate", unsure, "a.txt", "-o", "out"]

    process = subprocess.run(
        [sys.executable, "-c", close_and_run, *map(str, command)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert process.returncode == 0
    assert "1 docs, 0 failed" in process.stdout


def test_watch_says_why_it_could_read_no_text(unsure: Path, tmp_path: Path) -> None:
    nlp = load(unsure)
    guarantee(nlp, numbered_examples(nlp, ENOUGH), miss=0.3)
    nlp.to_disk(tmp_path / "model")
    (tmp_path / "a.jsonl").write_text("not JSON\n")

    result = run("watch", tmp_path / "model", tmp_path / "a.jsonl")

    assert result.exit_code == 1
    assert "watch: expected texts, got none that can be read: " in result.output
    assert "a.jsonl, line 1: expected JSON, got 'not JSON'" in result.output
