"""What can't be read is refused by file and line, before anything is trained on it."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
import srsly
from spacy.language import Language
from spacy.tokens import DocBin

from spacy_costner.readers import CorpusError, CorpusInfo, ReadOptions, read_docs
from spacy_costner.readers.context import Context
from spacy_costner.readers.corpus import read_file

from .support.commands import run

GOOD = "Kim B-PER\nis O\n\n"
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
    "no tags": (b"Kim NNP\nis VBZ\n", 1, "expected tags, O among them, got only such as 'NNP'"),
    "not UTF-8": (b"Kim B-PER\nM\xfcller O\n", 2, "expected text in UTF-8, got the byte 0xfc"),
    "null": (b"Kim B-PER\n\0 O\n", 2, "got a null character"),
    "empty": (b"", 1, "got an empty file"),
    "no tokens": (b"# a comment\n-DOCSTART- O\n", 1, "expected tokens and their tags, got none"),
    "a header": (b"token\ttag\nKim\tB-PER\n", 1, "such as 'B-PER', got 'tag'"),
    "a comment in a sentence": (b"Kim B-PER\n# a comment\n", 2, "expected 2 columns, got 3"),
    "CoNLL-U": (b"# text = Kim is\n1\tKim\t_\t_\n2\tis\t_\t_\n", 2,
     "column 4: expected tags of entities, got only such as '_': no column has entities"),
    "CoNLL-U, spaces": (b"1\tKim\t_\t_\n2\tis\t_\tSpaceAfter=No\n", 1, "no column has entities"),
    "another column": (b"Kim\tB-PER\t_\nis\tO\t_\n", 1, "column 2 has tags such as 'B-PER'"),
}  # fmt: skip
TEXT = '{"text": "Kim is", "spans": [{"start": 0, "end": 3, "label": "PER"}]}\n'
LINES: dict[str, tuple[str, str]] = {
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
    "words lost": ('{"text": "Kim is", "spans": [], "tokens": [{"start": 0, "end": 3}]}',
     "tokens: expected all words of the text, once each, got ' is'"),
    "words in other order": (
     '{"text": "A b", "spans": [], "tokens": [{"start": 2, "end": 3}, {"start": 0, "end": 1}]}',
     "tokens: expected all words of the text, once each, got 'A '"),
    "another token": (
     '{"text": "Ki", "spans": [], "tokens": [{"start": 0, "end": 2, "text": "Ko"}]}',
     "tokens: expected 'Ki' at 0, got 'Ko'"),
    "tokens of words": ('{"text": "Ki", "spans": [], "tokens": ["Ki"]}',
     "objects with start and end"),
    "half a character": ('{"text": "\\ud800", "spans": []}', "expected a text that spaCy can read"),
    "too deep": ("[" * 100_000, "expected JSON"),
    "missing of text": ('{"text": "Ki", "spans": [], "missing": "all"}',
     "missing: expected a list"),
}  # fmt: skip
TAGGED = '{"tokens": ["Kim", "is"], "ner_tags": ["B-PER", "O"]}\n'
TAGGED_LINES: dict[str, tuple[str, str]] = {
    "fewer tags": ('{"tokens": ["Kim", "is"], "ner_tags": ["O"]}',
     "expected 2 tags, one a token, got 1"),
    "no tags": ('{"tokens": ["Kim"]}', "expected tokens and ner_tags"),
    "no tokens": ('{"ner_tags": ["O"]}', "expected tokens and ner_tags"),
    "a token that is a number": ('{"tokens": [3], "ner_tags": ["O"]}',
     "tokens: expected words, got 3"),
    "an empty token": ('{"tokens": [""], "ner_tags": ["O"]}', "tokens: expected words, got ''"),
    "a tag without name": ('{"tokens": ["Kim"], "ner_tags": [1]}', "expected names of tags, got 1"),
    "a tag that is a list": ('{"tokens": ["Kim"], "ner_tags": [[]]}', "expected tags, got []"),
    "missing prefix": ('{"tokens": ["Kim"], "ner_tags": ["LOC"]}', "such as 'B-PER', got 'LOC'"),
    "missing label": ('{"tokens": ["Kim"], "ner_tags": ["I-"]}', "expected a tag with a label"),
    "text and spans": (TEXT.strip(), "expected tokens and ner_tags"),
    "not JSON": ('{"tokens": ["Kim"', "expected JSON"),
}  # fmt: skip


def task(*results: Any, **more: Any) -> dict[str, Any]:
    return {"data": {"text": "Kim is"}, "annotations": [{"result": [*results]}], **more}


def result(**value: Any) -> dict[str, Any]:
    return {"value": {"start": 0, "end": 3, "labels": ["PER"], **value}, "type": "labels"}


STUDIO: dict[str, tuple[Any, str]] = {
    "no task": (3, "expected a task of Label Studio, got 3"),
    "no data": ({"annotations": []}, "expected a task of Label Studio"),
    "no text": (task(data={"image": "a.png", "audio": "b.wav"}), "expected a text under 'text'"),
    "a text that is a number": (task(data={"text": 3}), "expected a text under 'text'"),
    "annotations of text": (task(annotations="none"), "expected annotations with results"),
    "after the text": (task(result(end=9)), "in a text of 6 characters, got 0 to 9"),
    "offsets of a page": (task(result(start="/p[1]")), "two whole numbers"),
    "no start": (task({"value": {"end": 3, "labels": ["PER"]}}), "two whole numbers"),
    "no labels": (task(result(labels=[])), "expected the label of a span"),
    "a label of nothing": (task(result(labels=[""])), "expected the label of a span"),
}


NLP = spacy.blank("xx")


def read(path: Path, nlp: Language = NLP, **options: Any) -> list[Any]:
    return list(read_docs(nlp, path, ReadOptions(**options)))


ARRAYS = {
    "a comma lost": ("[{}\n{}]", 2, "expected , or ] after an item"),
    "an end lost": ('[\n{"text": "Kim", "label": []}\n', 3, "got the end of the file"),
    "an item cut": ('[\n{"text": "Kim",\n"label"}]', 3, "expected JSON"),
    "something after it": ("[{}]\n\n{}", 3, "expected the end of the file"),
    "nothing in it": ("[]", 1, "expected texts, got nothing in it"),
    "single quotes": ("[{},\n{'text': 'Kim'}]", 2, "expected JSON"),
    "a number": ("[{},\n\n3]", 3, "expected a text and its spans, got 3"),
    "null": ("[{},\nnull]", 2, "expected a text and its spans, got None"),
}


def cases() -> Iterator[Any]:
    """Files, each with the line and a part of the message."""
    for name, (data, line, message) in COLUMNS.items():
        yield pytest.param("corpus.conll", data, line, message, id=f"columns: {name}")
    for name in ("fewer columns", "missing prefix"):  # line ends count once
        data, line, message = COLUMNS[name]
        data = b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")
        yield pytest.param("corpus.conll", data, line, message, id=f"columns of DOS: {name}")
    for suffix in (".jsonl", ".txt"):
        for name, (text, message) in LINES.items():
            text = f"{TEXT}\n{text}\n{TEXT}"
            yield pytest.param(f"corpus{suffix}", text, 3, message, id=f"{suffix}: {name}")
    for name, (text, message) in TAGGED_LINES.items():
        text = f"{TAGGED}{text}\n{TAGGED}"
        yield pytest.param("corpus.jsonl", text, 2, message, id=f"tokens and tags: {name}")
    for name, (value, message) in STUDIO.items():
        for indent in (None, 2):
            line = 1 + json.dumps([task(result())], indent=indent).count("\n")
            text = json.dumps([task(result()), value], indent=indent)
            yield pytest.param("export.json", text, line, message, id=f"studio, {indent}: {name}")
    for name, (text, line, message) in ARRAYS.items():
        text = text.replace("{}", TEXT.strip())
        yield pytest.param("corpus.json", text, line, message, id=f"array: {name}")


@pytest.mark.parametrize("file, content, line, message", [*cases()])
def test_file_and_line_are_named(
    file: str, content: bytes | str, line: int, message: str, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf8"))
    with pytest.raises(CorpusError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}, line {line}: "), error.value
    assert message in str(error.value)


def lengths(*given: int) -> bytes:
    """Of docs, in a file of docs of two tokens and of one."""
    return numpy.asarray(given, dtype="int32").tobytes()


def docbins(file: bytes) -> dict[str, bytes]:
    """A file of docs of two tokens and of one, damaged in many ways."""
    data = srsly.msgpack_loads(zlib.decompress(file))
    others: dict[str, Any] = {
        "a list": [1],
        "nothing": None,
        "other attributes": {"attrs": [1]},
        "no tokens": {k: v for k, v in data.items() if k != "tokens"},
    }
    changes: dict[str, dict[str, Any]] = {
        "other strings": {"strings": ["Oslo"]},
        "attributes by name": {"attrs": ["ORTH"] * len(data["attrs"])},
        "fewer tokens": {"tokens": data["tokens"][:-8]},
        "fewer spaces": {"spaces": data["spaces"][:-1]},
        "fewer lengths": {"lengths": data["lengths"][:-4]},
        "fewer flags": {"flags": data["flags"][:1]},
        "a negative length": {"lengths": lengths(4, -1)},
        "a length too large": {"lengths": lengths(2, 2**31 - 1)},
        "lengths of fewer tokens": {"lengths": lengths(1, 1)},
        "lengths of more tokens": {"lengths": lengths(2, 2)},
        "fewer user data": {"user_data": data["user_data"][:1]},
        "other span groups": {"span_groups": [b"abc"] * 2},
        "other user data": {"user_data": [b"\xc1"] * 2},
        "no attributes": {"attrs": []},
        "spans outside of the doc": {"span_groups": [data["span_groups"][0]] * 2},
    }
    others |= {name: {**data, **change} for name, change in changes.items()}
    damaged = {name: zlib.compress(srsly.msgpack_dumps(value)) for name, value in others.items()}
    return {"empty": b"", "cut": file[: len(file) // 2], **damaged}


def test_damaged_spacy_files(tmp_path: Path) -> None:
    path = tmp_path / "corpus.spacy"
    docs = [NLP("Kim is"), NLP("Lee")]
    docs[0].spans["x"] = [docs[0][0:2]]
    DocBin(docs=docs, store_user_data=True).to_disk(path)
    for name, damaged in docbins(path.read_bytes()).items():
        path.write_bytes(damaged)
        with pytest.raises(CorpusError) as error:
            read(path, spacy.blank("xx"))  # which doesn't know the strings
        assert f"{path}: expected a file that spaCy's DocBin" in str(error.value), name


FOLDERS: dict[str, tuple[dict[str, str], str]] = {
    "nothing in it": ({}, ": expected a folder with files of texts, got none in it"),
    "a folder without files": ({"a/.keep": ""}, ": expected a folder with files of texts"),
    "only about a corpus": ({"README.md": "Mine", "LICENSE": "MIT"}, ": expected a folder with"),
    "an empty file": ({"a.conll": GOOD, "b.conll": ""}, "/b.conll, line 1: expected text"),
    "a damaged file": ({"a.conll": GOOD, "b/c.conll": f"{GOOD}Kim\n"}, "/b/c.conll, line 4: "),
    "prose": ({"a.conll": GOOD, "b.txt": "Kim is here\nand Lee\n"}, "/b.txt, line 2: expected 3"),
    "damaged JSON": ({"a.conll": GOOD, "b.jsonl": f"{TEXT}{{"}, "/b.jsonl, line 2: expected JSON"),
    "a picture": ({"a.conll": GOOD, "b.png": "\0PNG"}, "/b.png, line 1: expected text in UTF-8"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders(name: str, tmp_path: Path) -> None:
    files, message = FOLDERS[name]
    for file, text in {"": None, **files}.items():
        path = tmp_path / "corpus" / file
        path.parent.mkdir(exist_ok=True)
        path.mkdir() if text is None else path.write_text(text)
    with pytest.raises(CorpusError) as error:
        read(tmp_path / "corpus")
    assert str(error.value).startswith(f"{tmp_path / 'corpus'}{message}"), error.value


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
def test_datasets(name: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra `datasets` is not installed")
    row = {"tokens": [["Kim"]], "ner_tags": [["B-PER"]]}
    datasets.Dataset.from_dict(row).save_to_disk(str(tmp_path / "data"))
    files, text = DATASETS[name]
    for path in (tmp_path / "data").glob(files):
        path.unlink() if text is None else path.write_text(text)
    with pytest.raises(CorpusError, match=r"data: expected a Hugging Face dataset, got: "):
        read_file(tmp_path / "data", Context(NLP, ReadOptions(), CorpusInfo()))


PARQUET: list[tuple[Any, str]] = [
    *((data, "expected a Parquet file: ") for data in (b"", b"Kim B-PER\n", b"PAR1PAR1")),
    (b'{"text": "Kim is here"}\n', "expected a Parquet file: "),
    ({"body": ["a", "b"]}, "expected the column 'text', got ['body']"),
    ({"text": ["a", None]}, "expected a text, got None"),
    ({"text": [1, 2]}, "expected a text, got 2"),
    ({"text": [["a"], ["b"]]}, "expected a text, got ['b']"),
    ({"text": [b"a", b"\xff"]}, "expected a text, got b'\\xff'"),
    ({"text": ["a", "b"], "id": ["x", None]}, "row 1: id: expected text or a number"),
    ({"text": ["a", "b"], "id": [[1], [2]]}, "row 1: id: expected text or a"),
]


@pytest.mark.parametrize("data, message", PARQUET)
def test_parquet(data: Any, message: str, tmp_path: Path) -> None:
    """What `annotate` reads: rows that can't be read are rows with an error."""
    pyarrow = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, output = tmp_path / "texts.parquet", tmp_path / "out"
    if isinstance(data, bytes):
        path.write_bytes(data)
    else:
        parquet.write_table(pyarrow.table(data), path)
    NLP.to_disk(tmp_path / "model")
    result = run("annotate", tmp_path / "model", path, "--output", output)
    lines = [line for part in output.glob("*.jsonl") for line in part.read_text().splitlines()]
    errors = [row["error"] for row in map(json.loads, lines) if row.get("error")]
    assert message in "\n".join([result.output, *errors])
    assert not isinstance(data, bytes) or (result.exit_code == 1 and str(path) in result.output)


def test_options(tmp_path: Path) -> None:
    path = tmp_path / "corpus.conll"
    path.write_text(GOOD)
    with pytest.raises(CorpusError, match=r"column: expected a column .* from 2 to 2, got 3"):
        read(path, column=3)
    with pytest.raises(CorpusError, match="expected a file or folder, got nothing there"):
        read(tmp_path / "none.conll")


def test_tag_names(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"tokens": ["Kim"], "ner_tags": [3]}')
    with pytest.raises(CorpusError, match="line 1: ner_tags: expected a tag from 0 to 1, got 3"):
        read(path, tag_names=["O", "B-PER"])
    (tmp_path / "dataset_info.json").write_text('{\n"features": ')
    with pytest.raises(CorpusError, match=r"dataset_info.json, line 2: expected JSON"):
        read(path)
