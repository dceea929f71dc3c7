"""Corpora of every format become the docs that they describe."""

import json
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Corpus
from spacy.training.converters import conll_ner_to_docs
from spacy.util import registry

from spacy_costner.readers import (
    CorpusInfo,
    ReadOptions,
    Task,
    TaskSpan,
    doc_to_task,
    make_reader,
    read_docs,
    read_tasks,
    read_texts,
    write_columns,
    write_tasks,
)
from spacy_costner.readers.documents import extension_key
from spacy_costner.readers.schemes import decode_tags

from .support.commands import run

WORDS = [["Kim", "Jong", "met", "New", "York", "Giants", "Oslo", "fans"], ["Rain", "in", "Oslo"]]
ENTITIES = [("Kim Jong", "PER"), ("New York Giants", "ORG"), ("Oslo", "ORG"), ("Oslo", "LOC")]
TAGS = {
    "IOB2": ["B-PER I-PER O B-ORG I-ORG I-ORG B-ORG O", "O O B-LOC"],
    "IOB1": ["I-PER I-PER O I-ORG I-ORG I-ORG B-ORG O", "O O I-LOC"],
    "BILUO": ["B-PER L-PER O B-ORG I-ORG L-ORG U-ORG O", "O O U-LOC"],
    "IOBES": ["B-PER E-PER O B-ORG I-ORG E-ORG S-ORG O", "O O S-LOC"],
    "IOE": ["I-PER E-PER O I-ORG I-ORG E-ORG E-ORG O", "O O E-LOC"],
}
ONE_RUN = [("Kim Jong", "PER"), ("New York Giants Oslo", "ORG"), ("Oslo", "LOC")]
"""Without B, entities of one label that touch are one."""

PLAIN = {
    "IO": ["I-PER I-PER O I-ORG I-ORG I-ORG I-ORG O", "O O I-LOC"],
    "IO without prefixes": ["PER PER O ORG ORG ORG ORG O", "O O LOC"],
}


WRITER, READER = spacy.blank("en"), spacy.blank("en")
"""Of other vocabularies. Made once: that takes longer than what is tested."""


def read(path: Path, found: Any = None, **options: Any) -> list[Doc]:
    docs = read_docs(READER, path, ReadOptions(**options), found or CorpusInfo())
    return list(docs)


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf8"))
    return path


def lines(path: Path, values: list[Any]) -> Path:
    return written(path, "\n".join(map(json.dumps, values)))


def columns(tags: list[str], between: str = "\n", separator: str = " ") -> str:
    pairs = [zip(words, line.split()) for words, line in zip(WORDS, tags)]
    rows = [[f"{separator.join((word, 'x', tag))}\n" for word, tag in some] for some in pairs]
    return between.join(map("".join, rows))


def entities(docs: list[Doc]) -> list[tuple[str, str]]:
    return [(ent.text, ent.label_) for doc in docs for ent in doc.ents]


def words(docs: list[Doc]) -> list[list[str]]:
    return [[token.text for token in doc] for doc in docs]


def iob(doc: Doc) -> str:
    return "".join("-IOB"[token.ent_iob] for token in doc)


@pytest.mark.parametrize("scheme", [*TAGS, *PLAIN])
@pytest.mark.parametrize(
    "between, separator", [("\n", " "), ("\n", "\t"), ("\t\n", "\t"), (" \t \n\n", "   ")]
)
def test_schemes(scheme: str, between: str, separator: str, tmp_path: Path) -> None:
    tags = {**TAGS, **PLAIN}[scheme]
    text = columns(tags, between, separator)
    docs = read(written(tmp_path / "esp.train", text), found := CorpusInfo())
    assert words(docs) == WORDS
    assert entities(docs) == (ENTITIES if scheme in TAGS else ONE_RUN)
    assert found.schemes == {scheme: 1} and found.problems == []
    assert all(doc.has_unknown_spaces and doc[0].is_sent_start for doc in docs)


@pytest.mark.parametrize("form", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks(form: str, mark: str, tmp_path: Path) -> None:
    """And tags with an underscore."""
    text = mark + columns(TAGS["BILUO"]).replace("\n", form)
    for tagged in (text, text.replace("-", "_")):
        assert entities(read(written(tmp_path / "a.conll", tagged))) == ENTITIES


@pytest.mark.parametrize(
    "text, expected, tagged",
    [
        ("Kim B-PER\nin -\nOslo I-LOC\nnow O", ["Kim", "in", "Oslo", "now"], "B-BO"),
        ("Kim B-PER\nin _\nOslo I-LOC\nnow O", ["Kim", "in", "Oslo", "now"], "B-BO"),
        # Columns end at TABs or blanks, not at other white space.
        ("10\u00a0000\tO\n\u00a0\tO\nNew York \tB-LOC\n \tO\n\u2028x\tO\n",
         ["10\u00a0000", "\u00a0", "New York", " ", "\u2028x"], "OOBOO"),
        ("10\u00a0000  O\n\u2028x O\na\x85b O\n", ["10\u00a0000", "\u2028x", "a\x85b"], "OOO"),
        *((f"{first} O\nKim B-PER\n", [first, "Kim"], "OB") for first in ("[", "{", "{}", "[]")),
    ],
)  # fmt: skip
def test_tokens_and_missing_tags(
    text: str, expected: list[str], tagged: str, tmp_path: Path
) -> None:
    (doc,) = read(written(tmp_path / "a", text))
    assert (words([doc]), iob(doc)) == ([expected], tagged)


@pytest.mark.parametrize(
    "tags, irregular",
    [
        ("B-PER I-PER O I-ORG I-ORG", 1),
        ("B-PER L-PER O I-ORG L-ORG", 1),
        ("B-PER L-PER O B-ORG I-ORG", 1),
        ("U-PER I-PER O L-ORG B-ORG", 3),
        ("I-PER I-PER O B-ORG I-PER", 1),
    ],
)
def test_tags_that_do_not_fit_are_read_and_reported(
    tags: str, irregular: int, tmp_path: Path
) -> None:
    text = "\n".join(f"w {tag}" for tag in tags.split())
    (doc,) = read(written(tmp_path / "a", text), found := CorpusInfo())
    (problem,) = found.problems
    assert problem.n == irregular and ", line " in problem.places[0]
    assert len(doc.ents) >= 2


def begin_by_conlleval(tags: list[str]) -> list[bool]:
    """Where entities begin: the rules of conlleval.pl, one by one."""
    begins, before_prefix, before = [], "O", ""
    for tag in tags:
        prefix, _, label = tag.partition("-")
        start = prefix in "BSU" and label != ""
        start = start or (before_prefix in "ESLU" and before != "" and prefix in "EILB")
        start = start or (before_prefix == "O" and prefix in "EIL")
        start = start or (prefix not in "O" and before != label)
        begins.append(start)
        before_prefix, before = prefix, label
    return begins


PREFIXES = st.sampled_from(["IOB", "BILUO", "BIOES", "IO", "IOE"])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_decoding_is_that_of_conlleval(data: st.DataObject) -> None:
    letters = data.draw(PREFIXES)
    tag = st.sampled_from([*(f"{p}-{label}" for p in letters if p != "O" for label in "XY"), "O"])
    sentences = data.draw(st.lists(st.lists(tag, min_size=1, max_size=7), min_size=1, max_size=4))
    flat = [tag for sentence in sentences for tag in sentence]
    starts = [i == 0 for sentence in sentences for i in range(len(sentence))]
    iob, *_ = decode_tags(flat, numpy.asarray(starts), lambda i, message: AssertionError(message))
    begins = [begin for sentence in sentences for begin in begin_by_conlleval(sentence)]
    assert (iob == 3).tolist() == begins
    assert (iob == 2).tolist() == [tag == "O" for tag in flat]


PARTS = "-DOCSTART- -X- O O\n\na O\n\nb O\n\nc O\n\n-DOCSTART- -X- O O\nd O\n\ne O\n"


@pytest.mark.parametrize(
    "n_sents, docs, without_docstart",
    [
        (None, ["a b c", "d e"], [*"abcde"]),
        (0, ["a b c", "d e"], ["a b c d e"]),
        (1, [*"abcde"], [*"abcde"]),
        (2, ["a b", "c", "d e"], ["a b", "c d", "e"]),
        (9, ["a b c", "d e"], ["a b c d e"]),
    ],
)
def test_documents(
    n_sents: Any, docs: list[str], without_docstart: list[str], tmp_path: Path
) -> None:
    plain = PARTS.replace("-DOCSTART- -X- O O\n", "")
    for text, expected in ((PARTS, docs), (plain, without_docstart)):
        found = read(written(tmp_path / "a", text), n_sents=n_sents)
        assert [doc.text.strip() for doc in found] == expected
        assert all(token.is_sent_start for doc in found for token in doc)


def test_columns_and_comments(tmp_path: Path) -> None:
    text = "# id 1 of a corpus\nKim B-PER O\nis O O\n\n# O O\n# B-X O\n\n# id 2\n# more\nA B-X O\n"
    docs = read(written(tmp_path / "a", text), found := CorpusInfo(), column=2)
    assert words(docs) == [["Kim", "is"], ["#", "#"], ["A"]]
    assert entities(docs) == [("Kim", "PER"), ("#", "X"), ("A", "X")]
    assert [(one.message, one.n) for one in found.problems] == [("comments are left out", 3)]
    assert entities(read(tmp_path / "a", column=-2)) == entities(docs)


TEXT = "Kim met Ann in Oslo."
SPANS = [(0, 3, "PER"), (8, 11, "PER"), (15, 19, "LOC")]
FOUND = [("Kim", "PER"), ("Ann", "PER"), ("Oslo", "LOC")]
DICTS = [{"start": start, "end": end, "label": label} for start, end, label in SPANS]
OFFSETS = [
    {"start_offset": start, "end_offset": end, "label": label, "id": 1}
    for start, end, label in SPANS
]
STUDIO = [{"start": start, "end": end, "labels": [label]} for start, end, label in SPANS]
FORMS: dict[str, Any] = {
    "Prodigy": {"text": TEXT, "spans": DICTS, "answer": "accept", "_input_hash": 3},
    "Prodigy, old": {"text": TEXT, "spans": DICTS, "label": "PER", "meta": {"source": "x"}},
    "doccano": {"id": 1, "text": TEXT, "label": SPANS},
    "doccano, old": {"id": 1, "text": TEXT, "labels": SPANS, "Comments": []},
    "doccano, with relations": {"text": TEXT, "entities": OFFSETS, "relations": []},
    "Hugging Face": {"text": TEXT, "entities": DICTS},
    "spaCy 2": [TEXT, {"entities": SPANS}],
    "spaCy 2, an object": {"text": TEXT, "entities": SPANS},
    "Doc.to_json": {"text": TEXT, "ents": DICTS, "tokens": None},
    "Label Studio, small": {"text": TEXT, "label": STUDIO, "annotator": 1},
    "Label Studio": {
        "data": {"text": TEXT, "source": "x"},
        "annotations": [{"result": [{"value": span, "type": "labels"} for span in STUDIO]}],
    },
    "Label Studio, before 1.0": {
        "data": {"body": TEXT},
        "completions": [{"result": [{"value": span} for span in STUDIO]}],
    },
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("form", ["lines", "array", "indented", "one"])
def test_texts_and_spans(name: str, form: str, tmp_path: Path) -> None:
    value = FORMS[name]
    if form == "one" and isinstance(value, list):
        pytest.skip("a list is an array")
    text = {
        "lines": json.dumps(value) + "\n" + json.dumps(value),
        "array": json.dumps([value] * 2),
        "indented": json.dumps([value] * 2, indent=1),
        "one": json.dumps(value, indent=1),
    }[form]
    docs = read(written(tmp_path / "export.json", text))
    n = 1 if form == "one" or "_input_hash" in value else 2
    assert entities(docs) == FOUND * n
    assert [doc.text for doc in docs] == [TEXT] * n
    assert all(token.ent_iob for doc in docs for token in doc)


def test_tokens_of_a_task_are_kept(tmp_path: Path) -> None:
    tokens = [{"text": "a-b", "start": 1, "end": 4}, {"start": 4, "end": 5}, {"start": 8, "end": 9}]
    value: dict[str, Any] = {"text": " a-bc  \nd", "tokens": tokens}
    value["spans"] = [{"start": 1, "end": 5, "label": "X"}]
    (doc,) = read(lines(tmp_path / "a.jsonl", [value]))
    assert [token.text for token in doc] == [" ", "a-b", "c", " \n", "d"]
    assert doc.text == value["text"] and entities([doc]) == [("a-bc", "X")]


NAMES = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"]
TAG_NUMBERS = [[NAMES.index(tag) for tag in tags.split()] for tags in TAGS["IOB2"]]


@pytest.mark.parametrize("key", ["ner_tags", "tags", "labels"])
def test_tokens_and_tags(key: str, tmp_path: Path) -> None:
    rows = [{"tokens": tokens, key: tags.split()} for tokens, tags in zip(WORDS, TAGS["IOB2"])]
    docs = read(lines(tmp_path / "a.jsonl", rows))
    assert words(docs) == WORDS and entities(docs) == ENTITIES
    (doc,) = read(tmp_path / "a.jsonl", n_sents=2)
    assert len([*doc.sents]) == 2


@pytest.mark.parametrize("info", ["dataset_info.json", "dataset_infos.json", None])
def test_tags_that_are_numbers(info: Any, tmp_path: Path) -> None:
    rows = [{"tokens": tokens, "ner_tags": tags} for tokens, tags in zip(WORDS, TAG_NUMBERS)]
    rows.append({"tokens": ["[CLS]", "Oslo"], "ner_tags": [-100, 5]})
    if info:
        feature = {"feature": {"names": NAMES, "_type": "ClassLabel"}, "_type": "Sequence"}
        written(tmp_path / info, json.dumps({"x": {"features": {"ner_tags": feature}}}))
    docs = read(lines(tmp_path / "a.jsonl", rows), tag_names=None if info else NAMES)
    assert entities(docs) == [*ENTITIES, ("Oslo", "LOC")]
    assert docs[-1][0].ent_iob == 0


def prodigy(spans: list[Any], **more: Any) -> dict[str, Any]:
    spans = [dict(zip(("start", "end", "label", "text"), span)) for span in spans]
    return {"text": TEXT, "spans": spans, "_input_hash": 5, **more}


def rejected(span: Any) -> dict[str, Any]:
    return prodigy([span], answer="reject")


def one_by_one(*spans: Any) -> list[Any]:
    return [prodigy([span], answer="accept", _is_binary=True) for span in spans]


EMOJI = "\U0001f600 Kim met \U0001f600\U0001f600 Ann"
BY_UTF_16 = [{"start": 16, "end": 19, "label": "P", "text": "Ann"}]
"""Offsets as JavaScript counts."""

OUTSIDE_TOKENS = "spans don't begin and end with tokens"


@pytest.mark.parametrize(
    "tasks, expected, message, n",
    [
        ([prodigy([(0, 2, "PER"), (15, 19, "LOC")])], "-OOOBO", OUTSIDE_TOKENS, 1),
        ([prodigy([(5, 10, "PER")])], "O--OOO", OUTSIDE_TOKENS, 1),
        ([prodigy([(0, 2, "X"), (0, 7, "PER")])], "--OOOO", OUTSIDE_TOKENS, 1),
        ([prodigy([(0, 11, "PER"), (4, 7, "X"), SPANS[2]])], "---OBO", "spans overlap", 1),
        ([prodigy([(0, 3, "PER"), (0, 3, "ORG")])], "-OOOOO", "spans overlap", 1),
        ([prodigy([(0, 7, "A"), (4, 11, "B"), (8, 14, "C")])], "----OO", "spans overlap", 1),
        ([prodigy([(0, 4, "PER")])], "BOOOOO", "spans begin or end with white space", 1),
        ([prodigy([(3, 4, "PER")])], "OOOOOO", "spans are only white space", 1),
        ([prodigy([(0, 3, "PER")] * 2)], "BOOOOO", "", 0),
        ([prodigy([(0, 3, "P", "Ann")])], "------", "spans are not where their own text is", 1),
        ([{"text": EMOJI, "spans": BY_UTF_16}], "OOOOOB", "", 0),
        ([{"text": TEXT}], "------", "texts without annotation", 1),
        ([{"text": TEXT, "spans": []}, {"text": ""}], "OOOOOO", "texts are empty", 1),
        ([{"text": TEXT, "answer": "accept"}], "OOOOOO", "", 0),
        ([prodigy(SPANS[:1]), rejected(SPANS[1]), prodigy(SPANS, answer="ignore")], "BOOOOO",
         "examples that were rejected or ignored are left out", 2),
        # Yes or no to one span says nothing of others.
        (one_by_one(*SPANS[:2]), "B-B---", "", 0),
        ([prodigy(SPANS)] * 2, "BOBOBO", "texts were annotated several times in the same way", 1),
        ([prodigy(SPANS), prodigy(SPANS[:1])], "BO-O-O", "texts were annotated in several ways", 1),
        ([prodigy(SPANS[:1]), prodigy([(0, 7, "PER")])], "--OOOO",
         "texts were annotated in several ways", 1),
    ],
)  # fmt: skip
def test_what_docs_can_not_have(
    tasks: list[Any], expected: str, message: str, n: int, tmp_path: Path
) -> None:
    (doc,) = read(lines(tmp_path / "a.jsonl", tasks), found := CorpusInfo())
    assert iob(doc) == expected
    problems = {problem.message.split(":")[0]: problem.n for problem in found.problems}
    assert problems == ({message: n} if n else {})
    assert all("a.jsonl, line " in place for one in found.problems for place in one.places)


def test_a_text_twice_without_annotation(tmp_path: Path) -> None:
    (doc,) = read(lines(tmp_path / "a.jsonl", [{"text": TEXT, "_input_hash": 5}] * 2))
    assert iob(doc) == "------"


def test_rejected_spans(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [prodigy(SPANS[:1]), rejected(SPANS[1])])
    accepted, other = read(path, incorrect_spans_key="wrong")
    assert iob(accepted) == "BOOOOO" and iob(other) == "------"
    assert [(span.text, span.label_) for span in other.spans["wrong"]] == [("Ann", "PER")]


@pytest.mark.parametrize(
    "others, expected", [(SPANS, "BOBOBO"), (SPANS[:1], "BO-O-O"), ([(0, 7, "PER")], "---O-O")]
)
def test_two_annotations_of_a_task(others: list[Any], expected: str, tmp_path: Path) -> None:
    results: list[dict[str, Any]] = [
        {"result": [{"value": {"start": s, "end": e, "labels": [label]}} for s, e, label in spans]}
        for spans in (SPANS, others)
    ]
    skipped = {"result": [], "was_cancelled": True}
    task = {"data": {"text": TEXT}, "annotations": [*results, skipped]}
    (doc,) = read(written(tmp_path / "a.json", json.dumps([task])))
    assert iob(doc) == expected
    results[1]["ground_truth"] = True
    (doc,) = read(written(tmp_path / "a.json", json.dumps([task])), found := CorpusInfo())
    assert len(doc.ents) == len(others) and found.problems == []


LABELS = st.sampled_from(["PER", "LOC", "sports-team", "\u00e9"])
WORD = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5).filter(
    lambda text: not any(map(str.isspace, text))
)


@st.composite
def docs_of_all_kinds(draw: st.DrawFn) -> Doc:
    n = draw(st.integers(1, 9))
    words = draw(st.lists(WORD, min_size=n, max_size=n))
    spaces = draw(st.none() | st.lists(st.booleans(), min_size=n, max_size=n))
    some = st.sampled_from([True, False, None])
    starts = draw(st.none() | st.lists(some, min_size=n, max_size=n))
    doc = Doc(WRITER.vocab, words=words, spaces=spaces, sent_starts=starts)
    borders = sorted(draw(st.sets(st.integers(0, n), max_size=6)))
    ids = draw(st.sampled_from([{}, {"kb_id": "Q84"}, {"span_id": "x"}]))
    entities, missing = [], []
    for start, end in pairwise(borders):
        span = Span(doc, start, end, label=draw(LABELS), **ids)
        draw(st.sampled_from([entities, missing, []])).append(span)
    doc.set_ents(entities, missing=[doc[span.start : span.end] for span in missing])
    return doc


ATTRS = ["ORTH", "SPACY", "SENT_START", "ENT_IOB", "ENT_TYPE", "ENT_KB_ID", "ENT_ID"]


@settings(max_examples=150, deadline=None)
@given(docs=st.lists(docs_of_all_kinds(), min_size=1, max_size=4))
def test_docs_come_back(docs: list[Doc], tmp_path_factory: Any) -> None:
    """From JSONL and from columns, which can't have entities that cross sentences."""
    path = tmp_path_factory.mktemp("docs")
    write_tasks(path / "a.jsonl", map(doc_to_task, docs))
    for doc, other in zip(docs, read(path / "a.jsonl"), strict=True):
        assert doc.text == other.text and doc.has_unknown_spaces == other.has_unknown_spaces
        mine, theirs = doc.to_array(ATTRS), other.to_array(ATTRS)
        assert (mine == theirs).all() and entities([doc]) == entities([other])
    if not any(token.is_sent_start for doc in docs for ent in doc.ents for token in ent[1:]):
        assert write_columns(path / "a.conll", docs) == 0
        again = read(path / "a.conll")
        assert words(again) == words(docs)
        assert entities_by_token(again) == entities_by_token(docs)


def test_tasks_come_back(tmp_path: Path) -> None:
    """What docs don't have, too: scores, other keys, and texts without tokens or annotation."""
    spans = [TaskSpan(0, 3, "PER", {"score": 0.1}), TaskSpan(0, 7, "\u00e9", {"rank": [1, None]})]
    tokens = [(0, 3, None), (4, 7, True), (8, 9, False)]
    tasks = [
        Task(""),
        Task("Kim met \u20ac", spans, tokens, ((0, 1), (3, 8)), True, {"": {"a": [2]}}),
    ]
    tasks += [tasks[1]._replace(spans=[], missing=()), tasks[1]._replace(spans=None, tokens=None)]
    write_tasks(tmp_path / "a.jsonl", tasks)
    assert [task for _, task in read_tasks(tmp_path / "a.jsonl")] == tasks


ODD = st.text(st.sampled_from("a#-_ \t\n\r\0\ufeff\u2028"), min_size=1, max_size=3)
ODD_WORDS = st.lists(
    (ODD | st.just("-DOCSTART-")).filter(lambda word: not word.isspace()), min_size=1
)


@settings(max_examples=500, deadline=None)
@given(words_=ODD_WORDS, label=ODD, known=st.booleans())
@example(words_=["#a", "# b"], label="A", known=True)
@example(words_=["-a b", "-"], label="A", known=True)
@example(words_=["\ufeffa"], label="A", known=True)
def test_columns_are_read_as_written_or_refused(
    words_: list[str], label: str, known: bool, tmp_path_factory: Any
) -> None:
    path = tmp_path_factory.mktemp("columns") / "a.conll"
    doc = Doc(WRITER.vocab, words=words_)
    doc.set_ents([Span(doc, 0, 1, label=label)], default="outside" if known else "missing")
    try:
        write_columns(path, [doc])
    except ValueError as error:
        assert re.match(r"expected a (token|label) that columns can have, got ", str(error))
        odd = [text for text in (*words_, label) if re.search(r"[\t\n\r\0]| $|^-DOCS", text)]
        assert odd or not label.strip("-_")
    else:
        again = read(path, CorpusInfo())
        assert words(again) == [words_]
        assert entities_by_token(again) == entities_by_token([doc])


def entities_by_token(docs: list[Doc]) -> list[list[tuple[int, str]]]:
    return [[(token.ent_iob, token.ent_type_) for token in doc] for doc in docs]


def test_folders(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    (corpus / "b").mkdir(parents=True)
    written(corpus / "b" / "esp.train", columns(TAGS["IOB1"]))
    lines(corpus / "a.jsonl", [FORMS["doccano"]])
    written(corpus / "README.md", "About it")
    written(corpus / ".hidden", "x")
    docs = read(corpus, found := CorpusInfo())
    assert entities(docs) == [*FOUND, *ENTITIES] and len(found.formats) == 2
    DocBin(docs=docs[:1]).to_disk(corpus / "c.spacy")
    assert entities(read(corpus)) == FOUND, "as spaCy does"


def same(one: Any, other: Any) -> bool:
    def values(doc: Doc) -> Any:
        return doc.text, doc.has_unknown_spaces, doc.to_array(ATTRS[:5]).tolist()

    docs = [(one.reference, other.reference), (one.predicted, other.predicted)]
    return all(values(a) == values(b) for a, b in docs)


TWICE = {"augmenter": lambda nlp, eg: [eg, eg]}


@pytest.mark.parametrize(
    "settings", [{}, {"gold_preproc": True}, {"max_length": 5}, {"limit": 2}, TWICE]
)
def test_examples_are_those_of_spacy(settings: dict[str, Any], tmp_path: Path) -> None:
    """From .spacy and, but for sentences of predicted docs, from the file that it was made of."""
    nlp = READER
    tagged = written(tmp_path / "a.conll", columns(TAGS["IOB2"]))
    more = {"text": "I don't like New York. Kim does.", "label": [[13, 21, "X"], [23, 26, "PER"]]}
    offsets = lines(tmp_path / "b.jsonl", [FORMS["doccano"], more])
    for path, n_sents in ((tagged, 1), (tagged, 2), (offsets, None)):
        DocBin(docs=read(path, n_sents=n_sents)).to_disk(tmp_path / "a.spacy")
        given = {"gold_preproc": False, **settings}
        expected = list(Corpus(tmp_path / "a.spacy", **given)(nlp))
        for read_path, n, kept in ((tmp_path / "a.spacy", None, None), (path, n_sents, False)):
            examples = list(make_reader(read_path, **settings, n_sents=n, sentences=kept)(nlp))
            assert len(examples) == len(expected)
            assert all(map(same, examples, expected))
        norms = [[token.norm_ for token in eg.predicted] for eg in expected]
        assert norms == [[token.norm_ for token in eg.predicted] for eg in examples]


def test_predicted_docs_have_the_values_that_docs_are_grouped_by(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [{"text": "Kim left.", "label": [], "source": "news"}])
    DocBin(docs=read(path), store_user_data=True).to_disk(tmp_path / "a.spacy")
    for each in (path, tmp_path / "a.spacy"):
        (eg,), (text,) = make_reader(each)(READER), read_texts(READER, each)
        for doc in (eg.predicted, eg.reference, text):
            assert doc.user_data["source"] == "news"


@pytest.mark.parametrize("copies", [False, True])
def test_augmented_examples_are_as_read(copies: bool, tmp_path: Path) -> None:
    """With the tokens of the file, where it has tokens, and with its sentences."""
    path = written(tmp_path / "a.conll", "Dr.Kim's O\nU.S.A. B-LOC\n\nThe O\nUK B-LOC\n")
    block: Any = {"@augmenters": "spacy.lower_case.v1", "level": 1.0}
    block = {"@augmenters": "spacy_costner.copies.v1", "augmenter": block} if copies else block
    augmenter = registry.resolve({"augmenter": block})["augmenter"]
    *whole, lower = make_reader(path, n_sents=2, augmenter=augmenter)(READER)
    assert [same(eg, *make_reader(path, n_sents=2)(READER)) for eg in whole] == [True] * copies
    for doc in (lower.predicted, lower.reference):
        assert [token.text for token in doc] == ["dr.kim's", "u.s.a.", "the", "uk"]
        assert [token.is_sent_start for token in doc] == [True, False, True, False]
    assert entities([lower.reference]) == [("u.s.a.", "LOC"), ("uk", "LOC")]


def test_problems_are_warnings(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [{"text": "Kims", "label": [[0, 3, "PER"]]}])
    with pytest.warns(
        UserWarning, match=r"their tokens are missing annotation \(1\)\n.*line 1: 'Kim'"
    ):
        assert len(list(make_reader(path)(READER))) == 1


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n_sents": -1}, "n_sents: expected a number of at least 0, got -1"),
        ({"column": 1}, "column: expected the column of the tags, from 2"),
        ({"path": None}, "E913"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_reader(**{"path": Path("a"), **options})


@pytest.mark.parametrize("suffix", [".spacy", ".jsonl", ".conll"])
def test_convert(suffix: str, tmp_path: Path) -> None:
    path = written(tmp_path / "esp.train", columns(TAGS["IOB1"]))
    out = tmp_path / f"out{suffix}"
    result = run("convert", path, out, "-n", 2)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "3 columns, separated by blanks, IOB1 tags"
    assert lines[1:5] == ["1 docs", "2 sentences", "11 tokens", "4 entities"]
    (doc,) = read(out)
    assert entities([doc]) == ENTITIES and len([*doc.sents]) == 2 and doc.has_unknown_spaces


@pytest.mark.parametrize(
    "text, output, options, message",
    [
        ("Kim B-PER\nis\n", "b.spacy", [], "a.conll, line 2: expected 2 columns, got 1"),
        ("Kim B-PER\n", "b.xml", [], "expected a name that ends in .spacy, .jsonl"),
        ("Kim B-PER\n", "a.conll", [], "expected another file than the input"),
        ("Kim B-PER\n", "b.spacy", ["--column", 1], "column: expected the column of the tags"),
    ],
)
def test_convert_says_what_is_wrong(
    text: str, output: str, options: list[Any], message: str, tmp_path: Path
) -> None:
    result = run("convert", written(tmp_path / "a.conll", text), tmp_path / output, *options)
    assert result.exit_code == 1 and message in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["a.conll"]


def test_convert_shows_problems(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [{"text": "Kims \n a", "label": [[0, 3, "PER"]]}])
    result = run("convert", path, tmp_path / "a.conll", "--lang", "en")
    assert result.exit_code == 0, result.output
    for shown in (
        "1 tokens without annotation",
        "line 1: 'Kim' PER in 'Kims'",
        "white-space tokens can't be written in columns: they are left out (1)",
    ):
        assert shown in result.output
    assert iob(read(tmp_path / "a.conll")[0]) == "-O"


def dataset(path: Path, names: Any = (), **columns: Any) -> Path:
    datasets = pytest.importorskip("datasets", reason="the extra `datasets` is not installed")
    made = datasets.Dataset.from_dict(columns)
    if names:
        feature = datasets.Sequence(datasets.ClassLabel(names=names))
        made = made.cast_column("ner_tags", feature)
    made.save_to_disk(str(path))
    return path


def test_datasets(tmp_path: Path) -> None:
    path = dataset(tmp_path / "a" / "train", NAMES, tokens=WORDS, ner_tags=TAG_NUMBERS)
    docs = read(path, found := CorpusInfo())
    assert words(docs) == WORDS and entities(docs) == ENTITIES
    assert found.formats == {"Hugging Face dataset of tokens and ner_tags": 1}
    assert entities(read(tmp_path / "a")) == ENTITIES, "in a folder"
    dataset(tmp_path / "a" / "test", text=[TEXT], entities=[DICTS])
    assert entities(read(tmp_path / "a" / "test")) == FOUND
    written(tmp_path / "a" / "dataset_dict.json", '{"splits": ["train", "test"]}')
    with pytest.raises(ValueError, match=r"expected one split, got 2: give .*train or .*test"):
        read(tmp_path / "a")
    path = dataset(tmp_path / "b", text=[TEXT, "x"], entities=[DICTS, DICTS])
    with pytest.raises(ValueError, match=f"{path}, row 2: entities: expected a start before its"):
        read(path)


def test_datasets_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "state.json", "{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"requires the library `datasets`: pip install"):
        read(tmp_path)


# Sentences that become one doc by the id of their document

TASKS = [
    {"text": "Ana left.", "spans": [{"start": 0, "end": 3, "label": "PER"}], "article": "a"},
    {"text": "Rome. Ana", "spans": [], "meta": {"article": "a"}},
    {"text": "Alone", "spans": []},
    {"text": "Alone again", "spans": []},
    {"text": "Oslo", "article": 7},
]
TAGGED = [
    {"tokens": ["Ana", "left", "."], "ner_tags": ["B-PER", "O", "O"], "article": "a"},
    {"tokens": [], "ner_tags": [], "article": "x"},
    {"tokens": ["Rome", "Ana"], "ner_tags": ["O", "O"], "article": "a"},
    {"tokens": ["Oslo"], "ner_tags": ["B-LOC"], "article": "b"},
]


def sentences(doc: Doc) -> list[str]:
    return [sent.text.strip() for sent in doc.sents]


def test_texts_and_tokens_of_a_document(tmp_path: Path) -> None:
    """Each text is a sentence. Texts without an id are documents, each of its own. What isn't
    annotated stays so."""
    docs = read(lines(tmp_path / "a.jsonl", TASKS), doc_id="article")
    assert [doc.text for doc in docs] == ["Ana left. Rome. Ana", "Alone", "Alone again", "Oslo"]
    assert sentences(docs[0]) == ["Ana left.", "Rome. Ana"]
    assert [ent.text for ent in docs[0].ents] == ["Ana"] and not docs[0].has_unknown_spaces
    assert iob(docs[3]) == "-" and len(read(tmp_path / "a.jsonl")) == 5
    assert [doc.user_data.get(extension_key("article")) for doc in docs] == ["a", None, None, 7]
    docs = read(lines(tmp_path / "a.jsonl", TAGGED), doc_id="article")
    assert [sentences(doc) for doc in docs] == [["Ana left .", "Rome Ana"], ["Oslo"]]
    assert all(doc.has_unknown_spaces for doc in docs)
    assert entities(docs) == [("Ana", "PER"), ("Oslo", "LOC")]


def test_docs_of_a_document(tmp_path: Path) -> None:
    """Of .spacy files the id is an extension attribute; sentences and span groups stay."""
    docs = [Doc(READER.vocab, words=words.split()) for words in ("a b", "c d", "e")]
    docs[1][1].is_sent_start = True
    docs[1].spans["wrong"] = [docs[1][:1]]
    for doc in docs[:2]:
        doc.user_data[extension_key("article")] = 1
    DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / "a.spacy")
    first, second = read(tmp_path / "a.spacy", doc_id="article")
    assert sentences(first) == ["a b", "c", "d"]
    assert [span.text for span in first.spans["wrong"]] == ["c"] and second.text.strip() == "e"


def test_examples_of_documents(tmp_path: Path) -> None:
    """The reader of configs joins, too, and both docs of an example have the same text. What was
    converted is joined."""
    path = lines(tmp_path / "a.jsonl", TASKS[:4])
    examples = list(make_reader(path, doc_id="article")(READER))
    assert [eg.predicted.text for eg in examples] == [eg.reference.text for eg in examples]
    assert [len(list(eg.reference.sents)) for eg in examples[:1]] == [2]
    result = run("convert", path, tmp_path / "b.spacy", "--doc-id", "article")
    assert result.exit_code == 0 and "3 docs" in result.output
    assert [doc.text for doc in read(tmp_path / "b.spacy")] == [eg.text for eg in examples]


def test_wrong_ids_of_documents(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [*TASKS[:3], TASKS[0]])
    with pytest.raises(ValueError, match=r"a\.jsonl.*one after another, got article 'a' again"):
        read(path, doc_id="article")
    with pytest.raises(ValueError, match="doc_id: expected texts with 'title', got none"):
        read(path, doc_id="title")


def test_parts_of_speech_of_columns(tmp_path: Path) -> None:
    """As `spacy convert -c ner` keeps them, for a tagger. Not chunks, nor the tags themselves."""
    text = "Ana NP O B-PER\nreads VB O O\n\n, - O O\nRome NP O B-LOC\n"
    path = written(tmp_path / "a.conll", text)
    assert run("convert", path, tmp_path / "a.spacy").exit_code == 0
    theirs = conll_ner_to_docs(text, no_print=True)
    tags = [token.tag_ for doc in theirs for token in doc]
    assert tags == ["NP", "VB", "-", "NP"]
    ours = DocBin().from_disk(tmp_path / "a.spacy").get_docs(READER.vocab)
    assert [token.tag_ for doc in ours for token in doc] == ["NP", "VB", "", "NP"]
    nlp = spacy.blank("xx")
    tagger: Any = nlp.add_pipe("tagger")
    nlp.initialize(lambda: list(Corpus(tmp_path / "a.spacy")(nlp)))
    assert tagger.labels == ("NP", "VB")

    for text, column in (("Ana B-NP B-PER\n", 3), ("Ana B-PER NP\n", 2)):
        (doc,) = read(written(tmp_path / "b.conll", text), column=column)
        assert [token.tag_ for token in doc] == [""] and entities([doc]) == [("Ana", "PER")]
