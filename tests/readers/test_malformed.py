"""What can't be read is refused by file and line, before anything is trained on it."""

import json
import zlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
import srsly
from spacy.language import Language
from spacy.tokens import Doc, DocBin

from spacy_costner.readers import CorpusError, CorpusInfo, ReadOptions, read_docs
from spacy_costner.readers.context import Context
from spacy_costner.readers.corpus import read_file

from ..support.commands import run

GOOD_COLUMNS = "Kim B-PER\nis O\n\n"

# What is wrong with a file of columns: its content, the line and a part of the message.
COLUMNS: dict[str, tuple[bytes, int, str]] = {
    "fewer columns": (b"Kim NNP B-PER\nis VBZ\n", 2, "expected 3 columns, got 2: 'is VBZ'"),
    "more columns": (b"Kim B-PER\n\nis VBZ O\n", 3, "expected 2 columns, got 3"),
    "one column": (b"\nKim\nis\n", 2, "expected a token and its tag, got one column: 'Kim'"),
    "a token lost": (b"Kim\tB-PER\n\tO\n", 2, r"expected a token, got '\tO'"),
    "another separator": (b"Kim\tB-PER\nis O\n", 2, "expected 2 columns, got 1"),
    "missing prefix": (b"Kim B-PER\nis O\nOslo LOC\n", 3, "a tag such as 'B-PER', got 'LOC'"),
    "missing label": (b"Kim B-PER\nis O\nOslo B\n", 3, "expected a tag with a label"),
    "two schemes": (b"Kim U-PER\nis O\nOslo S-LOC\n", 3, "expected one scheme, got 'S-LOC'"),
    "two separators of tags": (b"Kim B-PER\nis O\nOslo B_LOC\n", 3, "such as 'B-PER', got 'B_LOC'"),
    "no tags": (b"Kim NNP\nis VBZ\n", 1, "O among them, got only tags such as 'NNP'"),
    "not UTF-8": (b"Kim B-PER\nM\xfcller O\n", 2, "expected UTF-8 text, got the byte 0xfc"),
    "null": (b"Kim B-PER\n\0 O\n", 2, "got a null character"),
    "empty": (b"", 1, "got an empty file"),
    "no tokens": (b"# a comment\n-DOCSTART- O\n", 1, "expected tokens and their tags, got none"),
    "a comment of two columns": (b"# a\tsee O\n", 1, "expected tokens and their tags, got none"),
    "a header": (b"token\ttag\nKim\tB-PER\n", 1, "got the names of columns, ['token', 'tag']"),
    "a header of labels": (b"Word\tNER\nKim\tPER\nis\tO\n", 1, "the names of columns, ['Word"),
    "a comment in a sentence": (b"Kim B-PER\n# a comment\n", 2, "expected 2 columns, got 3"),
    "CoNLL-U": (b"# text = Kim is\n1\tKim\t_\t_\n2\tis\t_\t_\n", 2,
     "column 4: expected entity tags, got only tags such as '_': no column has entities"),
    "CoNLL-U, spaces": (b"1\tKim\t_\t_\n2\tis\t_\tSpaceAfter=No\n", 1, "no column has entities"),
    "another column": (b"Kim\tB-PER\t_\nis\tO\t_\n", 1, "column 2 has tags such as 'B-PER'"),
}  # fmt: skip

# What is wrong with a line of JSONL of texts and spans: the line, a part of the message.
GOOD_TASK = '{"text": "Kim is", "spans": [{"start": 0, "end": 3, "label": "PER"}]}\n'
TASK_LINES: dict[str, tuple[str, str]] = {
    "not JSON": ('{"text": "Kim is"', "expected JSON, got "),
    "a number": ("3", "expected a text and its spans, got 3"),
    "no text": ('{"spans": []}', "expected a text and its spans"),
    "a text of a list": ('{"text": ["Kim"], "spans": []}', "expected a text and its spans"),
    "classification": ('{"text": "Kim is", "label": "good"}',
     "expected a list of spans, got 'good'"),
    "half a span": ('{"text": "Kim is", "label": [[0, 3]]}', "start, end and label of a span"),
    "no label": ('{"text": "Kim is", "spans": [{"start": 0, "end": 3}]}', "the label of a span"),
    "empty label": ('{"text": "Kim is", "label": [[0, 3, " "]]}', "expected the label of a span"),
    "offsets of text": ('{"text": "Kim is", "label": [["0", "3", "PER"]]}', "two whole numbers"),
    "after the text": ('{"text": "Kim is", "label": [[0, 7, "PER"]]}', "in a text of 6 characters"),
    "before the text": ('{"text": "Kim is", "label": [[-3, 3, "PER"]]}', "got -3 to 3"),
    "empty span": ('{"text": "Kim is", "label": [[3, 3, "PER"]]}', "got 3 to 3"),
    "two lists": ('{"text": "Kim is", "label": [[0, 3, "PER"]], "spans": [[0, 3, "ORG"]]}',
     "expected one list of spans, got spans and label"),
    "unknown answer": ('{"text": "Kim is", "spans": [], "answer": "yes"}',
     "answer: expected accept"),
    "unknown answer to a span": (
     '{"text": "Kim is", "spans": [{"start": 0, "end": 3, "label": "PER", "answer": "no"}]}',
     "spans: answer: expected accept, reject, ignore, got 'no'"),
    "words lost": ('{"text": "Kim is", "spans": [], "tokens": [{"start": 0, "end": 3}]}',
     "tokens: expected each word of the text exactly once, got ' is'"),
    "words in other order": (
     '{"text": "A b", "spans": [], "tokens": [{"start": 2, "end": 3}, {"start": 0, "end": 1}]}',
     "tokens: expected each word of the text exactly once, got 'A '"),
    "another token": (
     '{"text": "Ki", "spans": [], "tokens": [{"start": 0, "end": 2, "text": "Ko"}]}',
     "tokens: expected 'Ki' at 0, got 'Ko'"),
    "tokens of words": ('{"text": "Ki", "spans": [], "tokens": ["Ki"]}',
     "objects with start and end"),
    "half a character": ('{"text": "\\ud800", "spans": []}', "expected a text that spaCy can read"),
    "too deep": ("[" * 100_000, "expected JSON"),
    "half a list of spaCy 2": ('["Kim is", {"enti', "expected JSON"),
    "missing of text": ('{"text": "Ki", "spans": [], "missing": "all"}',
     "missing: expected a list"),
}  # fmt: skip

# What is wrong with a line of JSONL of words and tags: the line, a part of the message.
GOOD_WORDS = '{"tokens": ["Kim", "is"], "ner_tags": ["B-PER", "O"]}\n'
WORD_LINES: dict[str, tuple[str, str]] = {
    "fewer tags": ('{"tokens": ["Kim", "is"], "ner_tags": ["O"]}',
     "expected 2 tags, one per token, got 1"),
    "no tags": ('{"tokens": ["Kim"]}', "expected tokens and ner_tags"),
    "no tokens": ('{"ner_tags": ["O"]}', "expected tokens and ner_tags"),
    "a token that is a number": ('{"tokens": [3], "ner_tags": ["O"]}',
     "tokens: expected words, got 3"),
    "an empty token": ('{"tokens": [""], "ner_tags": ["O"]}', "tokens: expected words, got ''"),
    "a tag without name": ('{"tokens": ["Kim"], "ner_tags": [1]}',
     "expected names of tags, got 1: give the names in the order of their numbers: "
     "`tag_names`, or dataset_info"),
    "a tag that is a list": ('{"tokens": ["Kim"], "ner_tags": [[]]}', "expected tags, got []"),
    "a tag that is true": ('{"tokens": ["Kim"], "ner_tags": [true]}', "expected tags, got True"),
    "missing prefix": ('{"tokens": ["Kim"], "ner_tags": ["LOC"]}', "such as 'B-PER', got 'LOC'"),
    "missing label": ('{"tokens": ["Kim"], "ner_tags": ["I-"]}', "expected a tag with a label"),
    "text and spans": (GOOD_TASK.strip(), "expected tokens and ner_tags"),
    "not JSON": ('{"tokens": ["Kim"', "expected JSON"),
}  # fmt: skip


def studio_task(*results: Any, **fields: Any) -> dict[str, Any]:
    """A task of Label Studio with the text "Kim is"; `fields` replace its own."""
    return {"data": {"text": "Kim is"}, "annotations": [{"result": [*results]}], **fields}


def studio_span(**fields: Any) -> dict[str, Any]:
    """The span of Kim, a PER, as a result of Label Studio; `fields` replace its own."""
    return {"value": {"start": 0, "end": 3, "labels": ["PER"], **fields}, "type": "labels"}


def html_task(offsets: Any) -> dict[str, Any]:
    """A task of Label Studio with HTML, whose region has these globalOffsets."""
    value = {"globalOffsets": offsets, "hypertextlabels": ["PER"]}
    return studio_task({"value": value, "type": "hypertextlabels"}, data={"text": "<p>Kim</p>"})


def dialogue_task(start: Any, end: Any, **data: Any) -> dict[str, Any]:
    """A task of Label Studio with a dialogue. Its region begins and ends at offsets in utterances;
    `data` replaces its data."""
    value = {"start": start[0], "startOffset": start[1], "end": end[0], "endOffset": end[1]}
    result = {"value": {**value, "paragraphlabels": ["PER"]}, "type": "paragraphlabels"}
    return studio_task(result, data=data or {"turns": [{"text": "Hi"}, {"text": "Kim"}]})


# What is wrong with a task of Label Studio: the task, a part of the message. All tasks of a file
# have texts of one kind.
STUDIO: dict[str, tuple[Any, str]] = {
    "no task": (3, "expected a Label Studio task, got 3"),
    "no data": ({"annotations": []}, "expected a Label Studio task"),
    "no text": (
        studio_task(data={"image": "a.png", "audio": "b.wav"}),
        "expected a text under 'text'",
    ),
    "a text that is a number": (studio_task(data={"text": 3}), "expected a text under 'text'"),
    "annotations of text": (studio_task(annotations="none"), "expected annotations with results"),
    "after the text": (studio_task(studio_span(end=9)), "in a text of 6 characters, got 0 to 9"),
    "offsets of a page": (studio_task(studio_span(start="/p[1]")), "two whole numbers"),
    "no start": (studio_task({"value": {"end": 3, "labels": ["PER"]}}), "two whole numbers"),
    "no labels": (studio_task(studio_span(labels=[])), "expected the label of a span"),
    "a label of nothing": (studio_task(studio_span(labels=[""])), "expected the label of a span"),
    "a result of text": (studio_task("Kim"), "expected annotations with results"),
    "a URL": (studio_task(data={"text": "https://example.com/1"}), "got a URL or a file name"),
}
STUDIO_HTML: dict[str, tuple[Any, str]] = {
    "after the HTML": (html_task({"start": 0, "end": 4}), "in a text of 3 characters, got 0 to 4"),
    "offsets of text": (html_task({"start": "0", "end": "3"}), "two whole numbers"),
    "a list of offsets": (html_task([0, 3]), "two whole numbers"),
    "no offsets": (html_task(None), "two whole numbers"),
    "no HTML": (studio_task(data={"text": 3}), "expected a text under 'text'"),
}
STUDIO_DIALOGUE: dict[str, tuple[Any, str]] = {
    "after the dialogue": (dialogue_task(("0", 0), ("2", 1)), "of 2 utterances, got '2' and 1"),
    "before the dialogue": (dialogue_task((-1, 0), (1, 1)), "got -1 and 0"),
    "after the utterance": (dialogue_task(("0", 0), ("1", 4)), "expected end and endOffset in a"),
    "a large number": (dialogue_task(("0", 0), ("9" * 5000, 1)), "got '99999"),
    "a path": (dialogue_task(("a", 0), ("1", 1)), "expected start and startOffset in a"),
    "true": (dialogue_task((True, 0), ("1", 1)), "got True and 0"),
    "in another order": (dialogue_task(("1", 1), ("0", 1)), "expected a start before its end"),
    "no utterances": (dialogue_task((0, 0), (0, 1), turns=[]), "expected a text under 'text'"),
    "utterances of text": (
        dialogue_task((0, 0), (0, 1), turns=["Hi"]), "expected a text under 'text'"),
    "no text in an utterance": (
        dialogue_task((0, 0), (0, 1), turns=[{"text": "Hi"}, {"audio": "a"}]),
        "expected a text under 'text'"),
}  # fmt: skip
STUDIO_TABLES = [
    (studio_task(studio_span()), STUDIO),
    (html_task({"start": 0, "end": 3}), STUDIO_HTML),
    (dialogue_task(("1", 0), ("1", 3)), STUDIO_DIALOGUE),
]
"""Tables of malformed tasks, each with a good task of the same kind of text."""


# What is wrong with a JSON file that is an array, where {} stands for a good task: the content, the
# line and a part of the message.
ARRAYS = {
    "a comma lost": ("[{}\n{}]", 2, "expected , or ] after an item"),
    "an end lost": ('[\n{"text": "Kim", "label": []}\n', 3, "got the end of the file"),
    "an item cut": ('[\n{"text": "Kim",\n"label"}]', 3, "expected JSON"),
    "something after it": ("[{}]\n\n{}", 3, "expected the end of the file"),
    "nothing in it": ("[]", 1, "expected texts, found none"),
    "single quotes": ("[{},\n{'text': 'Kim'}]", 2, "expected JSON"),
    "a number": ("[{},\n\n3]", 3, "expected a text and its spans, got 3"),
    "null": ("[{},\nnull]", 2, "expected a text and its spans, got None"),
}


NLP = spacy.blank("xx")


def read_corpus(path: Path, nlp: Language = NLP, **options: Any) -> list[Doc]:
    """The docs of a file or folder, with options of `ReadOptions`."""
    return list(read_docs(nlp, path, ReadOptions(**options)))


def malformed_files() -> Iterator[Any]:
    """Of each: its name, its content, the line that is wrong, a part of the message."""
    for name, (data, line, message) in COLUMNS.items():
        yield pytest.param("corpus.conll", data, line, message, id=f"columns: {name}")

    # With a byte order mark, and with line ends of two characters, which count as one line.
    for name in ("fewer columns", "missing prefix"):
        data, line, message = COLUMNS[name]
        data = b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")
        yield pytest.param("corpus.conll", data, line, message, id=f"columns of DOS: {name}")

    # After a good line and an empty one. JSONL is known from its content, not from its name.
    for suffix in (".jsonl", ".txt"):
        for name, (bad_line, message) in TASK_LINES.items():
            text = f"{GOOD_TASK}\n{bad_line}\n{GOOD_TASK}"
            yield pytest.param(f"corpus{suffix}", text, 3, message, id=f"{suffix}: {name}")
    for name, (bad_line, message) in WORD_LINES.items():
        text = f"{GOOD_WORDS}{bad_line}\n{GOOD_WORDS}"
        yield pytest.param("corpus.jsonl", text, 2, message, id=f"tokens and tags: {name}")

    # An export of Label Studio is an array of tasks, on one line or indented.
    for good_task, table in STUDIO_TABLES:
        for (name, (bad_task, message)), indent in product(table.items(), (None, 2)):
            text = json.dumps([good_task, bad_task], indent=indent)
            line = 1 + json.dumps([good_task], indent=indent).count("\n")
            yield pytest.param("export.json", text, line, message, id=f"studio, {indent}: {name}")
    for name, (text, line, message) in ARRAYS.items():
        text = text.replace("{}", GOOD_TASK.strip())
        yield pytest.param("corpus.json", text, line, message, id=f"array: {name}")


@pytest.mark.parametrize("file, content, line, message", [*malformed_files()])
def test_a_malformed_file_is_refused_by_its_name_and_line(
    file: str, content: bytes | str, line: int, message: str, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf8"))

    with pytest.raises(CorpusError) as error:
        read_corpus(path)

    assert str(error.value).startswith(f"{path}, line {line}: "), error.value
    assert message in str(error.value)


# Files of spaCy


def lengths_of_docs(*n_tokens: int) -> bytes:
    """The numbers of tokens of docs, as a DocBin saves them."""
    return numpy.asarray(n_tokens, dtype="int32").tobytes()


def damaged_docbins(file: bytes) -> dict[str, bytes]:
    """A file of a doc of two tokens and one of one token, damaged in many ways. A DocBin saves
    attributes of tokens as integers of 64 bits, and lengths of docs as integers of 32 bits."""
    saved = srsly.msgpack_loads(zlib.decompress(file))
    contents: dict[str, Any] = {
        "a list": [1],
        "nothing": None,
        "other attributes": {"attrs": [1]},
        "no tokens": {name: field for name, field in saved.items() if name != "tokens"},
    }
    changed_fields: dict[str, dict[str, Any]] = {
        "other strings": {"strings": ["Oslo"]},
        "attributes by name": {"attrs": ["ORTH"] * len(saved["attrs"])},
        "fewer tokens": {"tokens": saved["tokens"][:-8]},
        "fewer spaces": {"spaces": saved["spaces"][:-1]},
        "fewer lengths": {"lengths": saved["lengths"][:-4]},
        "fewer flags": {"flags": saved["flags"][:1]},
        "a negative length": {"lengths": lengths_of_docs(4, -1)},  # the sum, 3, is right
        "a length too large": {"lengths": lengths_of_docs(2, 2**31 - 1)},
        "lengths of fewer tokens": {"lengths": lengths_of_docs(1, 1)},
        "lengths of more tokens": {"lengths": lengths_of_docs(2, 2)},
        "fewer user data": {"user_data": saved["user_data"][:1]},
        "other span groups": {"span_groups": [b"abc"] * 2},
        "other user data": {"user_data": [b"\xc1"] * 2},  # a byte that msgpack never writes
        "no attributes": {"attrs": []},
        # The group of the first doc has a span of two tokens, and the second doc has one token.
        "spans outside of the doc": {"span_groups": [saved["span_groups"][0]] * 2},
    }
    for name, fields in changed_fields.items():
        contents[name] = {**saved, **fields}

    files = {"empty": b"", "cut": file[: len(file) // 2]}
    for name, content in contents.items():
        files[name] = zlib.compress(srsly.msgpack_dumps(content))
    return files


def test_a_damaged_spacy_file_is_refused_by_its_name(tmp_path: Path) -> None:
    docs = [NLP("Kim is"), NLP("Lee")]
    docs[0].spans["x"] = [docs[0][0:2]]
    path = tmp_path / "corpus.spacy"
    DocBin(docs=docs, store_user_data=True).to_disk(path)

    for damage, file in damaged_docbins(path.read_bytes()).items():
        path.write_bytes(file)
        with pytest.raises(CorpusError) as error:
            read_corpus(path, spacy.blank("xx"))  # its vocab doesn't know the strings yet
        assert f"{path}: expected a file that spaCy's DocBin" in str(error.value), damage


# Folders: their files and texts, and what follows the name of the folder in the message.
FOLDERS: dict[str, tuple[dict[str, str], str]] = {
    "nothing in it": ({}, ": expected a folder with text files, found none"),
    "a folder without files": ({"a/.keep": ""}, ": expected a folder with text files"),
    "only about a corpus": ({"README.md": "Mine", "LICENSE": "MIT"}, ": expected a folder with"),
    "an empty file": ({"a.conll": GOOD_COLUMNS, "b.conll": ""}, "/b.conll, line 1: expected text"),
    "a damaged file": (
        {"a.conll": GOOD_COLUMNS, "b/c.conll": f"{GOOD_COLUMNS}Kim\n"}, "/b/c.conll, line 4: "),
    "prose": (
        {"a.conll": GOOD_COLUMNS, "b.txt": "Kim is here\nand Lee\n"},
        "/b.txt, line 2: expected 3 columns"),
    "damaged JSON": (
        {"a.conll": GOOD_COLUMNS, "b.jsonl": f"{GOOD_TASK}{{"}, "/b.jsonl, line 2: expected JSON"),
    "a picture": (
        {"a.conll": GOOD_COLUMNS, "b.jpg": "\0JPG"}, "/b.jpg, line 1: expected UTF-8 text"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_with_a_malformed_file_is_refused_by_the_name_of_the_file(
    name: str, tmp_path: Path
) -> None:
    texts, message = FOLDERS[name]
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for file, text in texts.items():
        (corpus / file).parent.mkdir(exist_ok=True)
        (corpus / file).write_text(text)

    with pytest.raises(CorpusError) as error:
        read_corpus(corpus)

    assert str(error.value).startswith(f"{corpus}{message}"), error.value


# Datasets of Hugging Face: the files that are replaced, and by which text; None: they are deleted.
DATASETS: dict[str, tuple[str, str | None]] = {
    "an empty state": ("state.json", "{}"),
    "a state that is cut": ("state.json", "{"),
    "no description": ("dataset_info.json", None),
    "a description that is a list": ("dataset_info.json", "[1]"),
    "no data": ("*.arrow", None),
    "other data": ("*.arrow", "Kim B-PER"),
    "other JSON": ("*.json", '{"splits": ["train"]}'),
}


@pytest.mark.parametrize("name", DATASETS)
def test_a_damaged_dataset_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra `datasets` is not installed")
    row = {"tokens": [["Kim"]], "ner_tags": [["B-PER"]]}
    datasets.Dataset.from_dict(row).save_to_disk(str(tmp_path / "data"))
    pattern, text = DATASETS[name]
    for path in (tmp_path / "data").glob(pattern):
        if text is None:
            path.unlink()
        else:
            path.write_text(text)

    with pytest.raises(CorpusError, match=r"data: expected a Hugging Face dataset, got: "):
        read_file(tmp_path / "data", Context(NLP, ReadOptions(), CorpusInfo()))


# A Parquet file begins and ends with PAR1. Between them it has data.
NO_PARQUET = [b"", b"Kim B-PER\n", b"PAR1PAR1", b'{"text": "Kim is here"}\n']


@pytest.mark.parametrize("content", NO_PARQUET)
def test_annotate_stops_at_a_file_that_is_no_parquet(content: bytes, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    path = tmp_path / "texts.parquet"
    path.write_bytes(content)
    NLP.to_disk(tmp_path / "model")

    result = run("annotate", tmp_path / "model", path, "--output", tmp_path / "out")

    errors = errors_of_rows(tmp_path / "out")
    assert "expected a Parquet file: " in "\n".join([result.output, *errors])
    assert result.exit_code == 1 and str(path) in result.output


# The columns of a Parquet file whose last row, or whole table, is wrong. Rows are counted from 0.
BAD_TABLES: list[tuple[dict[str, list[Any]], str]] = [
    ({"body": ["a", "b"]}, "expected the column 'text', got ['body']"),
    ({"text": ["a", None]}, "expected a text, got None"),
    ({"text": [1, 2]}, "expected a text, got 2"),
    ({"text": [["a"], ["b"]]}, "expected a text, got ['b']"),
    ({"text": [b"a", b"\xff"]}, "expected a text, got b'\\xff'"),
    ({"text": ["a", "b"], "id": ["x", None]}, "row 1: id: expected text or a number"),
    ({"text": ["a", "b"], "id": [[1], [2]]}, "row 1: id: expected text or a"),
]


@pytest.mark.parametrize("columns, message", BAD_TABLES)
def test_annotate_names_what_is_wrong_in_a_parquet_file(
    columns: dict[str, list[Any]], message: str, tmp_path: Path
) -> None:
    """It prints what is wrong with the file; a row that can't be read is a row with an error."""
    pyarrow = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "texts.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    NLP.to_disk(tmp_path / "model")

    result = run("annotate", tmp_path / "model", path, "--output", tmp_path / "out")

    assert message in "\n".join([result.output, *errors_of_rows(tmp_path / "out")])


def errors_of_rows(output: Path) -> list[str]:
    """The errors in the output of `annotate`, which has a JSON object for each row."""
    errors = []
    for part in output.glob("*.jsonl"):
        for line in part.read_text().splitlines():
            row = json.loads(line)
            if row.get("error"):
                errors.append(row["error"])
    return errors


# Options


@pytest.mark.parametrize("column", [3, -2, -5])
def test_a_column_that_a_file_does_not_have_is_named(column: int, tmp_path: Path) -> None:
    """The file has two, and the first of them has the words."""
    path = tmp_path / "corpus.conll"
    path.write_text(GOOD_COLUMNS)

    message = rf"line 1: tag_column: expected a.* column .*, got {column}$"
    with pytest.raises(CorpusError, match=message):
        read_corpus(path, column=column)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"none\.conll: expected a file or folder, found neither"):
        read_corpus(tmp_path / "none.conll")


@pytest.mark.parametrize("number", [2, -1])
def test_a_number_of_a_tag_without_name_is_refused(number: int, tmp_path: Path) -> None:
    """There are two names, of 0 and 1."""
    path = tmp_path / "corpus.jsonl"
    path.write_text(f'{{"tokens": ["Kim"], "ner_tags": [{number}]}}')

    message = f"line 1: ner_tags: expected a tag from 0 to 1, got {number}$"
    with pytest.raises(CorpusError, match=message):
        read_corpus(path, tag_names=["O", "B-PER"])


@pytest.mark.parametrize("indent", [None, 1])
def test_an_array_in_a_file_of_lines_is_refused_with_the_name_that_fits(
    indent: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n" + json.dumps([json.loads(GOOD_TASK)] * 2, indent=indent))
    message = r"a\.jsonl, line 1: .* got an array of them: name the file a\.json$"
    with pytest.raises(CorpusError, match=message):
        read_corpus(path)
    assert len(read_corpus(path.rename(tmp_path / "a.json"))) == 2


def test_a_damaged_file_of_tag_names_is_refused(tmp_path: Path) -> None:
    """The names are looked for next to the corpus, in dataset_info.json."""
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"tokens": ["Kim"], "ner_tags": [3]}')
    info_path = tmp_path / "dataset_info.json"
    for content, line in [('{\n"features": ', 2), ("[" * 100_000, 1)]:
        info_path.write_text(content)
        with pytest.raises(CorpusError, match=rf"dataset_info.json, line {line}: expected JSON"):
            read_corpus(path)
