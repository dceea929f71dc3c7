"""Corpora of every format become the docs that they describe."""

import json
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Corpus, Example
from spacy.training.converters import conll_ner_to_docs
from spacy.util import registry

from spacy_costner.annotation.spans import annotate_spans, is_missing
from spacy_costner.annotation.user_data import SOFT_TARGETS_KEY
from spacy_costner.readers import (
    CorpusError,
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
from spacy_costner.readers.files import FilePlace
from spacy_costner.readers.schemes import PREFIXES_OF_SCHEME, TagCounts, decode_tags, find_scheme
from spacy_costner.readers.tasks import TaskToken
from spacy_costner.training.targets import WEIGHT

from ..support.commands import run

WORDS = [["Kim", "Jong", "met", "New", "York", "Giants", "Oslo", "fans"], ["Rain", "in", "Oslo"]]
ENTITIES = [("Kim Jong", "PER"), ("New York Giants", "ORG"), ("Oslo", "ORG"), ("Oslo", "LOC")]
"""The two sentences of most tests, and their entities: text and label."""

TAGS_OF_SCHEME = {
    "IOB2": ["B-PER I-PER O B-ORG I-ORG I-ORG B-ORG O", "O O B-LOC"],
    "IOB1": ["I-PER I-PER O I-ORG I-ORG I-ORG B-ORG O", "O O I-LOC"],
    "BILUO": ["B-PER L-PER O B-ORG I-ORG L-ORG U-ORG O", "O O U-LOC"],
    "IOBES": ["B-PER E-PER O B-ORG I-ORG E-ORG S-ORG O", "O O S-LOC"],
    "IOE": ["I-PER E-PER O I-ORG I-ORG E-ORG E-ORG O", "O O E-LOC"],
}
"""The tags of WORDS, a line for each sentence."""

TAGS_WITHOUT_BEGIN = {
    "IO": ["I-PER I-PER O I-ORG I-ORG I-ORG I-ORG O", "O O I-LOC"],
    "IO without prefixes": ["PER PER O ORG ORG ORG ORG O", "O O LOC"],
}
ENTITIES_WITHOUT_BEGIN = [("Kim Jong", "PER"), ("New York Giants Oslo", "ORG"), ("Oslo", "LOC")]
"""Without B, neighbours of one label are one entity: the two of ORG."""


WRITER, READER = spacy.blank("xx"), spacy.blank("xx")
"""Of two vocabs, as strings must not come from a shared one. Made once, to save time."""


def read_corpus(path: Path, info: CorpusInfo | None = None, **options: Any) -> list[Doc]:
    """The docs of a file or folder. `info` takes formats and problems; options of `ReadOptions`."""
    return list(read_docs(READER, path, ReadOptions(**options), info or CorpusInfo()))


def write_text(path: Path, text: str) -> Path:
    """Write text in UTF-8, with the line ends that it has. RETURNS (Path): The path."""
    path.write_bytes(text.encode("utf8"))
    return path


def write_jsonl(path: Path, values: list[Any]) -> Path:
    """Write a line of JSON for each value. RETURNS (Path): The path."""
    return write_text(path, "\n".join(map(json.dumps, values)))


def columns_text(tags: list[str], between: str = "\n", separator: str = " ") -> str:
    """WORDS in three columns: the word, an "x", and its tag. `between` is between sentences,
    `separator` between columns."""
    sentences = []
    for words, tags_of_sentence in zip(WORDS, tags, strict=True):
        rows = [
            f"{word}{separator}x{separator}{tag}\n"
            for word, tag in zip(words, tags_of_sentence.split(), strict=True)
        ]
        sentences.append("".join(rows))
    return between.join(sentences)


def entities(docs: list[Doc]) -> list[tuple[str, str]]:
    """The text and the label of each entity, of all docs."""
    return [(ent.text, ent.label_) for doc in docs for ent in doc.ents]


def words_of(docs: list[Doc]) -> list[list[str]]:
    """The words of each doc."""
    return [[token.text for token in doc] for doc in docs]


def iob_letters(doc: Doc) -> str:
    """A letter for each token: I, O or B, and "-" where annotation is missing."""
    return "".join("-IOB"[token.ent_iob] for token in doc)


# Columns


@pytest.mark.parametrize("scheme", [*TAGS_OF_SCHEME, *TAGS_WITHOUT_BEGIN])
@pytest.mark.parametrize(
    "between, separator", [("\n", " "), ("\n", "\t"), ("\t\n", "\t"), (" \t \n\n", "   ")]
)
def test_each_tag_scheme_is_recognized(
    scheme: str, between: str, separator: str, tmp_path: Path
) -> None:
    """Whatever separates columns, and with whitespace in the empty line between sentences. Columns
    don't say where spaces are."""
    tags = {**TAGS_OF_SCHEME, **TAGS_WITHOUT_BEGIN}[scheme]
    path = write_text(tmp_path / "esp.train", columns_text(tags, between, separator))

    info = CorpusInfo()
    docs = read_corpus(path, info)

    assert words_of(docs) == WORDS
    assert entities(docs) == (ENTITIES if scheme in TAGS_OF_SCHEME else ENTITIES_WITHOUT_BEGIN)
    assert info.schemes == {scheme: 1} and info.problems == []
    assert all(doc.has_unknown_spaces and doc[0].is_sent_start for doc in docs)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("byte_order_mark", ["", "\ufeff"])
@pytest.mark.parametrize("after_prefix", ["-", "_"])
def test_line_ends_and_byte_order_marks_are_no_part_of_words(
    line_end: str, byte_order_mark: str, after_prefix: str, tmp_path: Path
) -> None:
    """With tags such as B-PER and such as B_PER."""
    text = columns_text(TAGS_OF_SCHEME["BILUO"]).replace("\n", line_end).replace("-", after_prefix)

    docs = read_corpus(write_text(tmp_path / "a.conll", byte_order_mark + text))

    assert words_of(docs) == WORDS
    assert entities(docs) == ENTITIES


@pytest.mark.parametrize(
    "text, words, letters",
    [
        ("Kim B-PER\nin -\nOslo I-LOC\nnow O", ["Kim", "in", "Oslo", "now"], "B-BO"),
        ("Kim B-PER\nin _\nOslo I-LOC\nnow O", ["Kim", "in", "Oslo", "now"], "B-BO"),
        # Columns end at TABs or blanks, not at other whitespace.
        ("10\u00a0000\tO\n\u00a0\tO\nNew York \tB-LOC\n \tO\n\u2028x\tO\n",
         ["10\u00a0000", "\u00a0", "New York", " ", "\u2028x"], "OOBOO"),
        ("10\u00a0000  O\n\u2028x O\na\x85b O\n", ["10\u00a0000", "\u2028x", "a\x85b"], "OOO"),
        *((f"{first} O\nKim B-PER\n", [first, "Kim"], "OB") for first in ("[", "{", "{}", "[]")),
    ],
    ids=["- for no tag", "_ for no tag", "whitespace next to TABs", "whitespace next to blanks",
         *(f"{first} as first word" for first in ("[", "{", "{}", "[]"))],
)  # fmt: skip
def test_words_with_white_space_and_words_without_tag_are_read(
    text: str, words: list[str], letters: str, tmp_path: Path
) -> None:
    (doc,) = read_corpus(write_text(tmp_path / "a", text))

    assert words_of([doc]) == [words]
    assert iob_letters(doc) == letters


@pytest.mark.parametrize(
    "tags, letters, n_irregular",
    [
        ("B-PER I-PER O I-ORG I-ORG", "BIOBI", 1),  # IOB2: ORG has no B
        ("B-PER L-PER O I-ORG L-ORG", "BIOBI", 1),  # BILUO: ORG has no B
        ("B-PER L-PER O B-ORG I-ORG", "BIOBI", 1),  # BILUO: ORG has no L
        ("U-PER I-PER O L-ORG B-ORG", "BBOBB", 3),  # I has no B, L has no B, B has no L
        ("I-PER I-PER O B-ORG I-PER", "BIOBB", 1),  # I-PER follows ORG
    ],
)
def test_tags_that_break_their_scheme_are_read_and_reported(
    tags: str, letters: str, n_irregular: int, tmp_path: Path
) -> None:
    """An entity begins where its tags let it begin: see `begin_by_conlleval`."""
    text = "\n".join(f"w {tag}" for tag in tags.split())

    info = CorpusInfo()
    (doc,) = read_corpus(write_text(tmp_path / "a", text), info)

    (problem,) = info.problems
    assert problem.n == n_irregular and ", line " in problem.places[0]
    assert iob_letters(doc) == letters


def begin_by_conlleval(tags: list[str]) -> list[bool]:
    """Whether an entity begins at each tag: the rules of conlleval.pl, written one by one."""
    begins = []
    before_prefix, before_label = "O", ""
    for tag in tags:
        prefix, _, label = tag.partition("-")
        start = prefix in "BSU" and label != ""
        start = start or (before_prefix in "ESLU" and before_label != "" and prefix in "EILMB")
        start = start or (before_prefix == "O" and prefix in "EILM")
        start = start or (prefix not in "O" and before_label != label)
        begins.append(start)
        before_prefix, before_label = prefix, label
    return begins


SCHEMES = st.sampled_from([*PREFIXES_OF_SCHEME])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_entities_begin_where_conlleval_lets_them_begin(data: st.DataObject) -> None:
    """The tags are in any order. They have the prefixes of a scheme and the labels X and Y."""
    name = data.draw(SCHEMES)
    prefixes = [*PREFIXES_OF_SCHEME[name], "O"]
    entity_tags = [f"{p}-{label}" for p in prefixes if p != "O" for label in "XY"]
    sentence = st.lists(st.sampled_from([*entity_tags, "O"]), min_size=1, max_size=7)
    sentences = data.draw(st.lists(sentence, min_size=1, max_size=4))
    tags = [tag for sentence in sentences for tag in sentence]
    is_sent_start = [i == 0 for sentence in sentences for i in range(len(sentence))]

    sent_start = numpy.asarray(is_sent_start)
    counts = TagCounts()
    counts.add(tags, sent_start, lambda token: FilePlace(Path("a"), token))
    scheme = find_scheme(counts, name)
    ent_iob, *_ = decode_tags(tags, sent_start, scheme)

    begins = [begin for sentence in sentences for begin in begin_by_conlleval(sentence)]
    assert (ent_iob == 3).tolist() == begins  # 3 is B for spaCy
    assert (ent_iob == 2).tolist() == [tag == "O" for tag in tags]  # 2 is O


FIVE_SENTENCES = "-DOCSTART- -X- O O\n\na O\n\nb O\n\nc O\n\n-DOCSTART- -X- O O\nd O\n\ne O\n"
"""Of a word each, in two documents: a, b, c and d, e."""


@pytest.mark.parametrize(
    "n_sents, with_docstart, without_docstart",
    [
        (None, ["a b c", "d e"], ["a", "b", "c", "d", "e"]),
        (0, ["a b c", "d e"], ["a b c d e"]),
        (1, ["a", "b", "c", "d", "e"], ["a", "b", "c", "d", "e"]),
        (2, ["a b", "c", "d e"], ["a b", "c d", "e"]),
        (9, ["a b c", "d e"], ["a b c d e"]),
    ],
)
def test_sentences_are_grouped_into_docs_that_end_at_docstart(
    n_sents: int | None, with_docstart: list[str], without_docstart: list[str], tmp_path: Path
) -> None:
    plain_text = FIVE_SENTENCES.replace("-DOCSTART- -X- O O\n", "")

    for text, expected in ((FIVE_SENTENCES, with_docstart), (plain_text, without_docstart)):
        docs = read_corpus(write_text(tmp_path / "a", text), n_sents=n_sents)

        assert [doc.text.strip() for doc in docs] == expected
        assert all(token.is_sent_start for doc in docs for token in doc)


def test_comments_are_left_out_and_the_column_of_tags_can_be_chosen(tmp_path: Path) -> None:
    """A line that begins with "#" is a comment at the start of a sentence, unless it is a row."""
    text = "# id 1 of a corpus\nKim B-PER O\nis O O\n\n# O O\n# B-X O\n\n# id 2\n# more\nA B-X O\n"
    path = write_text(tmp_path / "a", text)

    info = CorpusInfo()
    docs = read_corpus(path, info, column=2)

    assert words_of(docs) == [["Kim", "is"], ["#", "#"], ["A"]]
    assert entities(docs) == [("Kim", "PER"), ("#", "X"), ("A", "X")]
    (problem,) = info.problems
    # The three comments begin with "# id" or are "# more".
    assert (problem.message, problem.n) == ("comments are left out", 3)
    # The second of three columns is also the last but one.
    assert entities(read_corpus(path, column=-2)) == entities(docs)


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_a_file_whose_words_all_begin_with_a_hash_is_read(separator: str, tmp_path: Path) -> None:
    """Its first row is the first line that ends with a tag."""
    path = write_text(tmp_path / "a", f"# tags\n#Rome{separator}B-LOC\n#now{separator}O\n")

    assert words_of(read_corpus(path)) == [["#Rome", "#now"]]


# Texts and their spans


TEXT = "Kim met Ann in Oslo."
SPANS = [(0, 3, "PER"), (8, 11, "PER"), (15, 19, "LOC")]
TEXT_ENTITIES = [("Kim", "PER"), ("Ann", "PER"), ("Oslo", "LOC")]
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
@pytest.mark.parametrize("layout", ["lines", "array", "indented array", "one value"])
def test_texts_and_spans_of_each_tool_are_read(name: str, layout: str, tmp_path: Path) -> None:
    """Two equal tasks, or one alone, each with TEXT and its three entities."""
    task = FORMS[name]
    if layout == "one value" and isinstance(task, list):
        pytest.skip("a list is an array")
    file_text = {
        "lines": json.dumps(task) + "\n" + json.dumps(task),
        "array": json.dumps([task, task]),
        "indented array": json.dumps([task, task], indent=1),
        "one value": json.dumps(task, indent=1),
    }[layout]

    docs = read_corpus(write_text(tmp_path / "export.json", file_text))

    # Tasks of Prodigy with the same hash are one text that was annotated twice.
    n_docs = 1 if layout == "one value" or "_input_hash" in task else 2
    assert [doc.text for doc in docs] == [TEXT] * n_docs
    assert entities(docs) == TEXT_ENTITIES * n_docs
    assert all(token.ent_iob != 0 for doc in docs for token in doc)  # 0: annotation is missing


def test_tokens_of_a_task_are_tokens_of_the_doc(tmp_path: Path) -> None:
    """Whitespace between them becomes tokens, as it is part of the text."""
    task = {
        "text": " a-bc  \nd",
        "tokens": [
            {"text": "a-b", "start": 1, "end": 4},
            {"start": 4, "end": 5},
            {"start": 8, "end": 9},
        ],
        "spans": [{"start": 1, "end": 5, "label": "X"}],
    }

    (doc,) = read_corpus(write_jsonl(tmp_path / "a.jsonl", [task]))

    assert [token.text for token in doc] == [" ", "a-b", "c", " \n", "d"]
    assert doc.text == task["text"]
    assert entities([doc]) == [("a-bc", "X")]


TAG_NAMES = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"]
TAG_NUMBERS = [[TAG_NAMES.index(tag) for tag in tags.split()] for tags in TAGS_OF_SCHEME["IOB2"]]


@pytest.mark.parametrize("key", ["ner_tags", "tags", "labels"])
def test_words_with_names_of_tags_are_read(key: str, tmp_path: Path) -> None:
    rows = []
    for words, tags in zip(WORDS, TAGS_OF_SCHEME["IOB2"], strict=True):
        rows.append({"tokens": words, key: tags.split()})
    path = write_jsonl(tmp_path / "a.jsonl", rows)

    docs = read_corpus(path)
    (doc_of_two_sentences,) = read_corpus(path, n_sents=2)

    assert words_of(docs) == WORDS and entities(docs) == ENTITIES
    assert len([*doc_of_two_sentences.sents]) == 2


@pytest.mark.parametrize("info_file", ["dataset_info.json", "dataset_infos.json", None])
def test_words_with_numbers_of_tags_are_read(info_file: str | None, tmp_path: Path) -> None:
    """The names of the tags are in a file next to the corpus, which may have a byte order mark, or
    in the setting `tag_names`."""
    rows = []
    for words, numbers in zip(WORDS, TAG_NUMBERS, strict=True):
        rows.append({"tokens": words, "ner_tags": numbers})
    rows.append({"tokens": ["[CLS]", "Oslo"], "ner_tags": [-100, TAG_NAMES.index("B-LOC")]})
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    if info_file is not None:
        labels = {"feature": {"names": TAG_NAMES, "_type": "ClassLabel"}, "_type": "Sequence"}
        info: dict[str, Any] = {"features": {"ner_tags": labels}}
        if info_file == "dataset_infos.json":  # has a description for each configuration
            info = {"default": info}
        write_text(tmp_path / info_file, "\ufeff" + json.dumps(info))

    docs = read_corpus(path, tag_names=TAG_NAMES if info_file is None else None)

    assert entities(docs) == [*ENTITIES, ("Oslo", "LOC")]
    # -100 is what Hugging Face writes where a token has no annotation.
    assert iob_letters(docs[-1]) == "-B"


@pytest.mark.parametrize("is_same", [True, False])
def test_names_of_tags_that_depend_on_the_configuration_are_refused(
    is_same: bool, tmp_path: Path
) -> None:
    rows = [{"tokens": words, "ner_tags": numbers} for words, numbers in zip(WORDS, TAG_NUMBERS)]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    infos: dict[str, Any] = {}
    for name, names in (("fine", TAG_NAMES), ("coarse", TAG_NAMES if is_same else TAG_NAMES[::-1])):
        infos[name] = {"features": {"ner_tags": {"feature": {"names": names}}}}
    write_text(tmp_path / "dataset_infos.json", json.dumps(infos))

    if is_same:
        assert entities(read_corpus(path)) == ENTITIES
        return
    with pytest.raises(
        CorpusError, match=r"ner_tags: expected the same names in all .*`tag_names`"
    ):
        read_corpus(path)
    assert entities(read_corpus(path, tag_names=TAG_NAMES)) == ENTITIES


def prodigy(spans: list[Any], **fields: Any) -> dict[str, Any]:
    """A task of Prodigy: TEXT with spans. A span is its start, end and label, and its text if it
    has four items."""
    named_spans = [dict(zip(("start", "end", "label", "text"), span)) for span in spans]
    return {"text": TEXT, "spans": named_spans, "_input_hash": 5, **fields}


def rejected(span: Any) -> dict[str, Any]:
    """A task about one span, whose answer was no."""
    return prodigy([span], answer="reject")


def accepted_one_by_one(*spans: Any) -> list[Any]:
    """Tasks that asked about one span each, and whose answer was yes."""
    return [prodigy([span], answer="accept", _is_binary=True) for span in spans]


EMOJI = "\U0001f600 Kim met \U0001f600\U0001f600 Ann"
BY_UTF_16 = [{"start": 16, "end": 19, "label": "P", "text": "Ann"}]
"""Ann begins at 13. JavaScript counts each emoji twice."""
WRONG_TEXT = {"start": 3, "end": 6, "label": "P", "text": "Bob"}
"""The code units of Kim."""

OUTSIDE_TOKENS = "spans don't begin and end with tokens"
MISPLACED = "spans don't match their text"
SHIFTED = "the offsets of spans are off by at most 10 characters"
SEVERAL_WAYS = "texts were annotated in several ways"


# The six tokens of TEXT are Kim, met, Ann, in, Oslo and the full stop: a letter of IOB for each.
@pytest.mark.parametrize(
    "tasks, letters, message, n_problems",
    [
        ([prodigy([(0, 2, "PER"), (15, 19, "LOC")])], "-OOOBO", OUTSIDE_TOKENS, 1),
        ([prodigy([(5, 10, "PER")])], "O--OOO", OUTSIDE_TOKENS, 1),
        ([prodigy([(0, 2, "X"), (0, 7, "PER")])], "--OOOO", OUTSIDE_TOKENS, 1),
        ([prodigy([(0, 11, "A"), (4, 7, "B"), (8, 11, "C"), SPANS[2]])], "---OBO", "spans overlap",
         1),
        ([prodigy([(0, 3, "PER"), (0, 3, "ORG")])], "-OOOOO", "spans overlap", 1),
        ([prodigy([(0, 7, "A"), (4, 11, "B"), (8, 14, "C")])], "----OO", "spans overlap", 1),
        ([prodigy([(0, 4, "PER")])], "BOOOOO", "spans begin or end with whitespace", 1),
        ([prodigy([(3, 4, "PER")])], "OOOOOO", "spans are only whitespace", 1),
        ([prodigy([(0, 3, "PER")] * 2)], "BOOOOO", "", 0),
        ([prodigy([(0, 3, "P", "Oslo"), SPANS[1]])], "-OBOOO", MISPLACED, 1),
        ([prodigy([(0, 3, "P", "Ann")])], "OOBOOO", SHIFTED, 1),
        ([prodigy([(0, 3, "P", "Ann   in")])], "OOBIOO", SHIFTED, 1),
        # The letter n is at 9, 10 and 13.
        ([prodigy([(4, 7, "P", "n")])], "O-OOOO", MISPLACED, 1),
        ([prodigy([(4, 7, "P", "Os")])], "O-OOOO", MISPLACED, 1),
        ([prodigy([(4, 7, "P", "")])], "OBOOOO", "", 0),
        ([{"text": EMOJI, "spans": BY_UTF_16}], "OOOOOB", "", 0),
        ([{"text": EMOJI, "spans": [*BY_UTF_16, WRONG_TEXT]}], "O-OOOB", MISPLACED, 1),
        # The characters from 5 to 7 are the second emoji, too, with a blank.
        ([{"text": "\U0001f600 b \U0001f600 \U0001f600", "spans": [
            {"start": 5, "end": 7, "label": "P", "text": "\U0001f600"}]}], "OOBO", "", 0),
        ([{"text": TEXT}], "------", "texts without annotation", 1),
        ([{"text": TEXT, "spans": []}, {"text": ""}], "OOOOOO", "texts are empty", 1),
        ([{"text": TEXT, "answer": "accept"}], "OOOOOO", "", 0),
        ([prodigy(SPANS[:1]), rejected(SPANS[1]), prodigy(SPANS, answer="ignore")], "BOOOOO",
         "examples that were rejected or ignored are left out", 2),
        # Yes to one span says nothing of others.
        (accepted_one_by_one(*SPANS[:2]), "B-B---", "", 0),
        # It doesn't count if the whole text is annotated, too.
        ([prodigy(SPANS[:1]), *accepted_one_by_one(SPANS[1])], "BOOOOO", SEVERAL_WAYS, 1),
        ([prodigy(SPANS)] * 2, "BOBOBO", "texts were annotated several times in the same way", 1),
        ([prodigy(SPANS), prodigy(SPANS[:1])], "BO-O-O", SEVERAL_WAYS, 1),
        ([prodigy(SPANS[:1]), prodigy([(0, 7, "PER")])], "--OOOO", SEVERAL_WAYS, 1),
    ],
    ids=[
        "one of two ends within a word", "begins and ends within words", "one within another",
        "two within one", "two labels", "chain of overlaps", "ends with a blank", "only a blank",
        "the same twice", "another text than its own", "its own text is near", "two words",
        "its own text occurs three times", "its own text is within a word", "empty own text",
        "offsets of JavaScript", "and one with another text",
        "code units of one of two emoji", "no annotation",
        "an empty text", "accepted without spans", "rejected and ignored", "yes to one span each",
        "yes to another span", "two equal tasks", "a task with more spans",
        "a task with another span",
    ],
)  # fmt: skip
def test_tokens_whose_annotation_is_unclear_are_missing_it_and_reported(
    tasks: list[Any], letters: str, message: str, n_problems: int, tmp_path: Path
) -> None:
    info = CorpusInfo()
    (doc,) = read_corpus(write_jsonl(tmp_path / "a.jsonl", tasks), info)

    assert iob_letters(doc) == letters
    problems = {problem.message.split(":")[0]: problem.n for problem in info.problems}
    assert problems == ({message: n_problems} if n_problems else {})
    for problem in info.problems:
        assert all("a.jsonl, line " in place for place in problem.places)


def test_a_text_that_two_people_have_not_annotated_has_no_annotation(tmp_path: Path) -> None:
    task = {"text": TEXT, "_input_hash": 5}

    (doc,) = read_corpus(write_jsonl(tmp_path / "a.jsonl", [task, task]))

    assert iob_letters(doc) == "------"


def test_the_id_of_an_entity_is_that_of_the_last_span_with_its_tokens(tmp_path: Path) -> None:
    """Spans of one task, which differ in a blank, and spans of two tasks about the same text."""
    first = {"start": 0, "end": 3, "label": "PER", "id": "Q1"}
    last = {**first, "end": 4, "id": "Q2"}
    tasks = [{**prodigy([]), "spans": [span]} for span in (first, {**first, "id": "Q3"})]

    (doc_of_one,) = read_corpus(
        write_jsonl(tmp_path / "one.jsonl", [{**prodigy([]), "spans": [first, last]}])
    )
    (doc_of_two,) = read_corpus(write_jsonl(tmp_path / "two.jsonl", tasks))

    assert [(ent.text, ent.ent_id_) for ent in doc_of_one.ents] == [("Kim", "Q2")]
    assert [(ent.text, ent.ent_id_) for ent in doc_of_two.ents] == [("Kim", "Q3")]


def test_rejected_spans_become_incorrect_spans(tmp_path: Path) -> None:
    """They say nothing about the other tokens of their doc, whose annotation is missing. Where two
    spans were rejected together, it is unknown which is wrong: the text is left out."""
    kim, ann, oslo = SPANS
    tasks = [prodigy([kim]), rejected(ann), prodigy([kim, oslo], answer="reject")]
    path = write_jsonl(tmp_path / "a.jsonl", tasks)

    info = CorpusInfo()
    accepted_doc, rejected_doc = read_corpus(path, info, incorrect_spans_key="wrong")

    (problem,) = info.problems
    assert problem.places == [f"{path}, line 3: reject: {TEXT!r}"]
    assert iob_letters(accepted_doc) == "BOOOOO"
    assert iob_letters(rejected_doc) == "------"
    (span,) = rejected_doc.spans["wrong"]
    assert (span.text, span.label_) == ("Ann", "PER")


@pytest.mark.parametrize("is_binary", [False, True])
def test_each_rejected_span_of_a_text_becomes_a_doc(is_binary: bool, tmp_path: Path) -> None:
    """Also those with the same tokens. The same answer twice is read once."""
    places = [(0, 3, "PER"), (0, 3, "ORG"), (8, 11, "LOC"), (8, 11, "LOC")]
    tasks = [prodigy([place], answer="reject", _is_binary=is_binary) for place in places]
    path = write_jsonl(tmp_path / "a.jsonl", tasks)

    docs = read_corpus(path, incorrect_spans_key="wrong")

    spans = [(span.text, span.label_) for doc in docs for span in doc.spans["wrong"]]
    assert spans == [("Kim", "PER"), ("Kim", "ORG"), ("Ann", "LOC")] and len(docs) == 3


def studio_result(spans: list[Any]) -> dict[str, Any]:
    """The annotation of an annotator in Label Studio."""
    values = [{"start": start, "end": end, "labels": [label]} for start, end, label in spans]
    return {"result": [{"value": value} for value in values]}


KIM_MET = [(0, 7, "PER")]
CANCELLED = {"result": [], "was_cancelled": True}


@pytest.mark.parametrize(
    "spans_of_second, letters",
    [(SPANS, "BOBOBO"), (SPANS[:1], "BO-O-O"), (KIM_MET, "---O-O")],
    ids=["the same", "fewer", "another"],
)
def test_tokens_on_which_annotators_disagree_are_missing_annotation(
    spans_of_second: list[Any], letters: str, tmp_path: Path
) -> None:
    annotations = [studio_result(SPANS), studio_result(spans_of_second), CANCELLED]
    task = {"data": {"text": TEXT}, "annotations": annotations}

    (doc,) = read_corpus(write_text(tmp_path / "a.json", json.dumps([task])))

    assert iob_letters(doc) == letters


@pytest.mark.parametrize("spans_of_second", [SPANS, SPANS[:1], KIM_MET])
def test_the_annotation_that_is_ground_truth_counts_alone(
    spans_of_second: list[Any], tmp_path: Path
) -> None:
    ground_truth = {**studio_result(spans_of_second), "ground_truth": True}
    task = {"data": {"text": TEXT}, "annotations": [studio_result(SPANS), ground_truth, CANCELLED]}

    info = CorpusInfo()
    (doc,) = read_corpus(write_text(tmp_path / "a.json", json.dumps([task])), info)

    expected = [(TEXT[start:end], label) for start, end, label in spans_of_second]
    assert entities([doc]) == expected
    assert info.problems == []


# What is written is read again


LABELS = st.sampled_from(["PER", "LOC", "sports-team", "\u00e9"])
WORD = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5).filter(
    lambda text: not any(map(str.isspace, text))
)


@st.composite
def docs_of_all_kinds(draw: st.DrawFn) -> Doc:
    """Draw a doc with or without spaces and sentences. Some of its stretches of tokens are
    entities, some have missing annotation, and the others are O."""
    n = draw(st.integers(1, 9))
    words = draw(st.lists(WORD, min_size=n, max_size=n))
    spaces = draw(st.none() | st.lists(st.booleans(), min_size=n, max_size=n))
    sent_start = st.sampled_from([True, False, None])
    sent_starts = draw(st.none() | st.lists(sent_start, min_size=n, max_size=n))
    doc = Doc(WRITER.vocab, words=words, spaces=spaces, sent_starts=sent_starts)

    borders = sorted(draw(st.sets(st.integers(0, n), max_size=6)))
    ids = draw(st.sampled_from([{}, {"kb_id": "Q84"}, {"span_id": "x"}]))
    entities, missing = [], []
    for start, end in pairwise(borders):
        kind = draw(st.sampled_from(["entity", "missing", "outside"]))
        if kind == "entity":
            entities.append(Span(doc, start, end, label=draw(LABELS), **ids))
        elif kind == "missing":
            missing.append(doc[start:end])
    doc.set_ents(entities, missing=missing)
    return doc


ATTRS = ["ORTH", "SPACY", "SENT_START", "ENT_IOB", "ENT_TYPE", "ENT_KB_ID", "ENT_ID"]


@settings(max_examples=150, deadline=None)
@given(docs=st.lists(docs_of_all_kinds(), min_size=1, max_size=4))
def test_docs_written_to_jsonl_are_read_as_they_were(
    docs: list[Doc], tmp_path_factory: Any
) -> None:
    path = tmp_path_factory.mktemp("docs") / "a.jsonl"
    write_tasks(path, map(doc_to_task, docs))

    for doc, doc_read in zip(docs, read_corpus(path), strict=True):
        assert doc_read.text == doc.text
        assert doc_read.has_unknown_spaces == doc.has_unknown_spaces
        assert (doc_read.to_array(ATTRS) == doc.to_array(ATTRS)).all()
        assert entities([doc_read]) == entities([doc])


@given(words=st.lists(st.sampled_from(["a", "b", " ", "  ", "\n"]), min_size=1), data=st.data())
def test_tokens_of_white_space_are_read_as_they_were(
    words: list[str], data: st.DataObject, tmp_path_factory: Any
) -> None:
    """A token may begin with a blank, which isn't the space after the token before."""
    spaces = data.draw(st.lists(st.booleans(), min_size=len(words), max_size=len(words)))
    doc = Doc(WRITER.vocab, words=words, spaces=spaces)
    ents = [Span(doc, i, i + 1, label="PER") for i, word in enumerate(words) if word == "b"]
    doc.set_ents(ents)
    path = tmp_path_factory.mktemp("docs") / "a.jsonl"
    write_tasks(path, [doc_to_task(doc)])

    (doc_read,) = read_corpus(path)

    assert doc_read.text == doc.text and words_of([doc_read]) == [words]
    assert (doc_read.to_array(ATTRS) == doc.to_array(ATTRS)).all()
    for token, json_token in zip(doc, json.loads(path.read_text())["tokens"], strict=True):
        assert json_token["ws"] == (token.whitespace_ == " ")


def test_a_doc_that_nobody_has_annotated_makes_a_task_without_annotation() -> None:
    doc = Doc(WRITER.vocab, words=["Rome", "is", "large"])
    task = doc_to_task(doc)
    assert (task.spans, task.missing) == (None, ())

    doc.set_ents([])  # somebody has, and there are no entities
    task = doc_to_task(doc)
    assert (task.spans, task.missing) == ([], ())


@settings(max_examples=70, deadline=None)
@given(docs=st.lists(docs_of_all_kinds(), min_size=1, max_size=4))
def test_words_and_entities_written_to_columns_are_read_as_they_were(
    docs: list[Doc], tmp_path_factory: Any
) -> None:
    path = tmp_path_factory.mktemp("docs") / "a.conll"
    n_left_out = write_columns(path, docs)

    docs_read = read_corpus(path)

    assert n_left_out == 0  # no word is whitespace
    assert words_of(docs_read) == words_of(docs)
    assert entities_by_token(docs_read) == entities_by_token(docs)


def test_an_entity_that_begins_with_white_space_is_written_from_its_first_word(
    tmp_path: Path,
) -> None:
    """It stays apart from the entity before, which has the same label."""
    doc = Doc(WRITER.vocab, words=["Rome", "\n", "Oslo"])
    doc.set_ents([Span(doc, 0, 1, "LOC"), Span(doc, 1, 3, "LOC")])

    n_left_out = write_columns(tmp_path / "a.conll", [doc])

    assert n_left_out == 1
    assert (tmp_path / "a.conll").read_text() == "Rome\tB-LOC\nOslo\tB-LOC\n\n"


@pytest.mark.parametrize("form", ["prodigy", "doccano"])
def test_empty_lists_of_spans_beside_the_read_ones_are_not_written(
    form: str, tmp_path: Path
) -> None:
    record = {"text": "Kim met Lee", "spans": [], "label": [], "entities": [[0, 3, "PER"]]}
    ((_, task),) = read_tasks(write_jsonl(tmp_path / "read.jsonl", [record]))

    write_tasks(tmp_path / "written.jsonl", [task], form)

    (doc,) = read_corpus(tmp_path / "written.jsonl")
    assert [(ent.text, ent.label_) for ent in doc.ents] == [("Kim", "PER")]


def test_tasks_that_are_written_are_read_as_they_were(tmp_path: Path) -> None:
    """The tasks have parts that docs don't have: scores, other keys, and texts without tokens or
    annotation."""
    spans = [TaskSpan(0, 3, "PER", {"score": 0.1}), TaskSpan(0, 7, "\u00e9", {"rank": [1, None]})]
    tokens = [TaskToken(0, 3, None), TaskToken(4, 7, True), TaskToken(8, 9, False)]
    full_task = Task("Kim met \u20ac", spans, tokens, ((0, 1), (3, 8)), True, {"": {"a": [2]}})
    without_spans = full_task._replace(spans=[], missing=())
    without_annotation = full_task._replace(spans=None, tokens=None)
    tasks = [Task(""), full_task, without_spans, without_annotation]

    write_tasks(tmp_path / "a.jsonl", tasks)

    assert [task for _, task in read_tasks(tmp_path / "a.jsonl")] == tasks


ODD_TEXT = st.text(st.sampled_from("a#-_ \t\n\r\0\ufeff\u2028"), min_size=1, max_size=3)
ODD_WORD = (ODD_TEXT | st.just("-DOCSTART-")).filter(lambda word: not word.isspace())


@settings(max_examples=500, deadline=None)
@given(
    words=st.lists(ODD_WORD, min_size=1),
    label=ODD_TEXT,
    default=st.sampled_from(["outside", "missing"]),
)
@example(words=["#a", "# b"], label="A", default="outside")
@example(words=["-a b", "-"], label="A", default="outside")
@example(words=["\ufeffa"], label="A", default="outside")
def test_columns_are_read_as_written_or_refused(
    words: list[str], label: str, default: str, tmp_path_factory: Any
) -> None:
    """A doc whose first word is an entity; the others are O, or missing annotation."""
    path = tmp_path_factory.mktemp("columns") / "a.conll"
    doc = Doc(WRITER.vocab, words=words)
    doc.set_ents([Span(doc, 0, 1, label=label)], default=default)

    try:
        write_columns(path, [doc])
    except ValueError as error:
        assert re.match(r"expected a (token|label) that columns can have, got ", str(error))
        separators = [text for text in (*words, label) if re.search(r"[\t\n\r\0]| $|^-DOCS", text)]
        assert separators or label.strip("-_") == ""
    else:
        docs_read = read_corpus(path)
        assert words_of(docs_read) == [words]
        assert entities_by_token(docs_read) == entities_by_token([doc])


def entities_by_token(docs: list[Doc]) -> list[list[tuple[int, str]]]:
    """IOB and label of each token, for each doc."""
    return [[(token.ent_iob, token.ent_type_) for token in doc] for doc in docs]


# Folders and spaCy's own files


def test_all_files_of_a_folder_are_read_or_only_its_spacy_files(tmp_path: Path) -> None:
    """README, hidden files, and figures that a command has written there, are left out. If there
    are .spacy files, only these are read, as spaCy does."""
    corpus = tmp_path / "corpus"
    (corpus / "b").mkdir(parents=True)
    write_text(corpus / "b" / "esp.train", columns_text(TAGS_OF_SCHEME["IOB1"]))
    write_jsonl(corpus / "a.jsonl", [FORMS["doccano"]])
    write_text(corpus / "README.md", "About it")
    write_text(corpus / ".hidden", "x")
    write_text(corpus / "watch.svg", "<svg></svg>")
    (corpus / "watch.PNG").write_bytes(b"\x89PNG")

    info = CorpusInfo()
    docs = read_corpus(corpus, info)
    DocBin(docs=docs[:1]).to_disk(corpus / "c.spacy")
    docs_beside_spacy_file = read_corpus(corpus)

    assert entities(docs) == [*TEXT_ENTITIES, *ENTITIES]
    assert len(info.formats) == 2  # columns, and texts with spans
    assert entities(docs_beside_spacy_file) == TEXT_ENTITIES


def assert_same_example(eg: Any, expected: Any) -> None:
    """Check text, spaces, words, sentences and entities of both docs of an example."""
    for doc, expected_doc in (
        (eg.reference, expected.reference),
        (eg.predicted, expected.predicted),
    ):
        assert doc.text == expected_doc.text
        assert doc.has_unknown_spaces == expected_doc.has_unknown_spaces
        # Without the ids of entities
        assert doc.to_array(ATTRS[:5]).tolist() == expected_doc.to_array(ATTRS[:5]).tolist()


def norms(examples: list[Any]) -> list[list[str]]:
    """The norms of the tokens of predicted docs, which depend on the tokenizer."""
    return [[token.norm_ for token in eg.predicted] for eg in examples]


@pytest.fixture(scope="module")
def english() -> Language:
    """A pipeline with the tokenizer of English, whose exceptions have norms."""
    return spacy.blank("en")


@pytest.mark.parametrize(
    "reader_settings",
    [
        {},
        {"gold_preproc": True},
        {"max_length": 8},  # keeps the docs and sentences that have fewer tokens
        {"limit": 1},
        {"augmenter": lambda nlp, eg: [eg, eg]},
    ],
    ids=["defaults", "gold_preproc", "max_length", "limit", "augmenter"],
)
@pytest.mark.parametrize("file", ["columns", "columns, 2 sentences a doc", "texts and spans"])
def test_examples_are_those_of_spacys_corpus(
    file: str, reader_settings: dict[str, Any], english: Language, tmp_path: Path
) -> None:
    """Our reader makes the examples of spaCy's Corpus, from a .spacy file and from the file that it
    was made of. The norms are compared, too: an English tokenizer gives "n't" the norm "not".
    spaCy's Corpus loses `has_unknown_spaces` of docs that it splits into sentences."""
    if file == "texts and spans":
        # Two docs, of 6 and 10 tokens. Their sentences aren't known.
        text = "I don't like New York. Kim does."
        task = {"text": text, "label": [[13, 21, "X"], [23, 26, "PER"]]}
        source, n_sents = write_jsonl(tmp_path / "b.jsonl", [FORMS["doccano"], task]), None
    else:
        source = write_text(tmp_path / "a.conll", columns_text(TAGS_OF_SCHEME["IOB2"]))
        n_sents = 1 if file == "columns" else 2
    spacy_file = tmp_path / "a.spacy"
    docs = list(read_docs(english, source, ReadOptions(n_sents=n_sents)))
    DocBin(docs=docs).to_disk(spacy_file)

    theirs = list(Corpus(spacy_file, **reader_settings)(english))
    from_spacy_file = list(make_reader(spacy_file, **reader_settings)(english))
    read_source = make_reader(source, **reader_settings, n_sents=n_sents)
    from_source = list(read_source(english))

    for ours in (from_spacy_file, from_source):
        for eg, expected in zip(ours, theirs, strict=True):
            expected.reference.has_unknown_spaces = file != "texts and spans"
            assert_same_example(eg, expected)
        assert norms(ours) == norms(theirs)


SURE = extension_key("sure")
WORDS_TO_SPLIT = ["Dr.Kim's", "left", ".", "Ana", "of", "Oslo", "stayed", "."]


def doc_to_split() -> Doc:
    """Two sentences, with spans, weights and metadata. A span crosses the sentences."""
    doc = Doc(READER.vocab, words=WORDS_TO_SPLIT, sent_starts=[1, 0, 0, 1, 0, 0, 0, 0])
    doc.set_ents([Span(doc, 0, 1, "PER"), Span(doc, 3, 6, "ORG")])
    oslo = Span(doc, 5, 6, "LOC", kb_id="Q585", span_id="s1")
    spans = [Span(doc, 0, 1, "PER"), Span(doc, 2, 4, "X"), oslo]
    annotate_spans(doc, "sc", spans, [doc[1:2], doc[6:8]])
    doc.spans["wrong"] = [Span(doc, 6, 7, "PER")]
    user_data: dict[Any, Any] = {"source": "news", WEIGHT: 0.25, SURE: 0.5}
    user_data["._.", "sure", doc[3].idx, None] = 0.75
    user_data["._.", "why", doc[3].idx, doc[3:6].end_char] = "seen"
    doc.user_data = user_data
    return doc


def spans_of(doc: Doc, key: str) -> list[tuple[str, str, str, str]]:
    """The texts, labels and ids of the spans under a key."""
    return [(span.text, span.label_, span.kb_id_, span.id_) for span in doc.spans[key]]


@pytest.mark.parametrize("settings", [{"max_length": 6}, {"gold_preproc": True}])
def test_sentences_of_a_doc_keep_its_spans_and_metadata(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    doc = doc_to_split()
    DocBin(docs=[doc], store_user_data=True).to_disk(tmp_path / "a.spacy")

    examples = list(make_reader(tmp_path / "a.spacy", **settings)(READER))

    first, second = (eg.reference for eg in examples)
    for eg in examples:
        assert eg.reference.has_unknown_spaces and eg.predicted.user_data["source"] == "news"
        words = [token.text for token in eg.reference]
        assert [token.text for token in eg.predicted] == words  # a tokenizer cuts "Dr.Kim's"
    assert words_of([first, second]) == [WORDS_TO_SPLIT[:3], WORDS_TO_SPLIT[3:]]
    assert entities([first, second]) == [("Dr.Kim's", "PER"), ("Ana of Oslo", "ORG")]
    assert spans_of(first, "sc") == [("Dr.Kim's", "PER", "", "")]
    assert spans_of(second, "sc") == [("Oslo", "LOC", "Q585", "s1")]
    # Tokens of the span that crosses the sentences, and those that were missing annotation before
    assert is_missing(first, "sc").tolist() == [False, True, True]
    assert is_missing(second, "sc").tolist() == [True, False, False, True, True]
    assert spans_of(first, "wrong") == []
    assert spans_of(second, "wrong") == [("stayed", "PER", "", "")]
    of_doc = {"source": "news", WEIGHT: 0.25, SURE: 0.5}
    assert first.user_data == of_doc
    of_spans = {("._.", "sure", 0, None): 0.75, ("._.", "why", 0, 11): "seen"}
    assert second.user_data == {**of_doc, **of_spans}


@pytest.mark.parametrize("settings", [{"max_length": 6}, {"gold_preproc": True}])
def test_docs_with_soft_targets_are_not_split(settings: dict[str, Any], tmp_path: Path) -> None:
    doc = doc_to_split()
    doc.user_data[SOFT_TARGETS_KEY] = {"entropy": 0.5}
    DocBin(docs=[doc], store_user_data=True).to_disk(tmp_path / "a.spacy")

    with pytest.raises(ValueError, match="expected docs without soft targets, which can't be spl"):
        list(make_reader(tmp_path / "a.spacy", **settings)(READER))
    (eg,) = make_reader(tmp_path / "a.spacy", max_length=9)(READER)
    assert SOFT_TARGETS_KEY in eg.reference.user_data


@pytest.mark.parametrize("n_added, has_all", [(0, True), (1, False)])
def test_augmented_examples_keep_spans_and_metadata(
    n_added: int, has_all: bool, tmp_path: Path
) -> None:
    """Values that belong to tokens are lost if the augmenter adds tokens."""
    doc = doc_to_split()
    doc.user_data[SOFT_TARGETS_KEY] = {"entropy": 0.5}
    DocBin(docs=[doc], store_user_data=True).to_disk(tmp_path / "a.spacy")

    def augment(nlp: Language, eg: Example) -> Iterator[Example]:
        words = [token.lower_ for token in eg.reference] + ["!"] * n_added
        reference = Doc(nlp.vocab, words=words)
        for key, group in eg.reference.spans.items():
            spans = [Span(reference, span.start, span.end, span.label) for span in group]
            reference.spans[key] = spans
        yield Example(nlp.make_doc(reference.text), reference)

    (eg,) = make_reader(tmp_path / "a.spacy", augmenter=augment)(READER)

    assert eg.reference.has_unknown_spaces and words_of([eg.predicted]) == words_of([eg.reference])
    assert [span.text for span in eg.reference.spans["wrong"]] == ["stayed"]
    assert eg.predicted.user_data["source"] == "news"
    of_doc = {"source": "news", WEIGHT: 0.25, SURE: 0.5}
    assert eg.reference.user_data == (doc.user_data if has_all else of_doc)


@pytest.mark.parametrize("suffix", [".jsonl", ".spacy"])
def test_all_docs_of_a_text_have_the_metadata_of_its_file(suffix: str, tmp_path: Path) -> None:
    """Metadata such as "source" is in both docs of an example, and in the doc of the text alone."""
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "Kim left.", "label": [], "source": "news"}])
    DocBin(docs=read_corpus(path), store_user_data=True).to_disk(tmp_path / "a.spacy")

    (eg,) = make_reader(path.with_suffix(suffix))(READER)
    (text_doc,) = read_texts(READER, path.with_suffix(suffix))

    for doc in (eg.predicted, eg.reference, text_doc):
        assert doc.user_data["source"] == "news"


LOWER_CASE = {"@augmenters": "spacy.lower_case.v1", "level": 1.0}
COPIES = {"@augmenters": "spacy_costner.copies.v1", "augmenter": LOWER_CASE}


@pytest.mark.parametrize(
    "augmenter, n_originals", [(LOWER_CASE, 0), (COPIES, 1)], ids=["lower case", "copies"]
)
def test_augmented_examples_keep_the_tokens_and_sentences_of_the_file(
    augmenter: dict[str, Any], n_originals: int, tmp_path: Path
) -> None:
    """A tokenizer would cut "Dr.Kim's". `copies` adds to the original, which comes first."""
    path = write_text(tmp_path / "a.conll", "Dr.Kim's O\nU.S.A. B-LOC\n\nThe O\nUK B-LOC\n")
    augment = registry.resolve({"augmenter": augmenter})["augmenter"]

    *originals, lower = make_reader(path, n_sents=2, augmenter=augment)(READER)
    read_with_starts = make_reader(path, n_sents=2, augmenter=augment, sentences=True)
    *_, lower_with_starts = read_with_starts(READER)

    for doc in (lower.predicted, lower.reference, lower_with_starts.predicted):
        assert [token.text for token in doc] == ["dr.kim's", "u.s.a.", "the", "uk"]
    for doc in (lower.reference, lower_with_starts.predicted):
        assert [token.is_sent_start for token in doc] == [True, False, True, False]
    assert not lower.predicted.has_annotation("SENT_START")
    assert entities([lower.reference]) == [("u.s.a.", "LOC"), ("uk", "LOC")]
    assert len(originals) == n_originals
    for eg in originals:
        (expected,) = make_reader(path, n_sents=2)(READER)
        assert_same_example(eg, expected)


def test_problems_of_a_corpus_are_warnings_in_training(tmp_path: Path) -> None:
    """The problem is that the span "Kim" doesn't end with the token "Kims"."""
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "Kims", "label": [[0, 3, "PER"]]}])

    with pytest.warns(
        UserWarning, match=r"their tokens are missing annotation \(1\)\n.*line 1: 'Kim'"
    ):
        examples = list(make_reader(path)(READER))

    assert len(examples) == 1


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n_sents": -1}, "n_sents: expected a number of at least 0, got -1"),
        ({"tag_column": 0}, "tag_column: expected a number from 1, or from -1 at the end"),
        ({"token_column": ""}, "token_column: expected a number from 1, .* or a name, got ''"),
        ({"column": 2, "tag_column": 3}, "column: expected only one of column and tag_column"),
        ({"token_column": 2, "tag_column": 2}, "tag_column: expected a column other"),
        ({"scheme": "IOB"}, "scheme: expected one of IO, IOB1, IOB2, .* or labels, got 'IOB'"),
        ({"path": None}, r"\[E913\] Corpus path can't be None"),  # of spaCy
    ],
)
def test_bad_settings_of_the_reader_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_reader(**{"path": Path("a"), **options})


# The command `convert`


@pytest.mark.parametrize("suffix", [".spacy", ".jsonl", ".conll"])
def test_convert_writes_docs_and_shows_what_it_read(suffix: str, tmp_path: Path) -> None:
    path = write_text(tmp_path / "esp.train", columns_text(TAGS_OF_SCHEME["IOB1"]))
    output = tmp_path / f"out{suffix}"

    result = run("convert", path, output, "-n", 2)  # two sentences a doc

    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    # WORDS are sentences of 8 and of 3 words.
    assert lines[0].startswith("esp.train: 3 columns, separated by blanks, IOB1 tags; ")
    assert lines[0].endswith("; 1 docs; 4 entities (LOC 1, ORG 2, PER 1)")
    assert lines[1:3] == ["2 sentences", "11 tokens"]
    (doc,) = read_corpus(output)
    assert entities([doc]) == ENTITIES
    assert len([*doc.sents]) == 2 and doc.has_unknown_spaces


@pytest.mark.parametrize(
    "text, output, options, message",
    [
        ("Kim B-PER\nis\n", "b.spacy", [], "a.conll, line 2: expected 2 columns, got 1"),
        ("Kim B-PER\n", "b.xml", [], "expected a name that ends in .spacy, .jsonl"),
        ("Kim B-PER\n", "a.conll", [], "expected a file other than the input"),
        ("Kim B-PER\n", "b.spacy", ["--tag-column", 1], "tag_column: expected a column other"),
    ],
)
def test_convert_says_what_is_wrong_and_writes_nothing(
    text: str, output: str, options: list[Any], message: str, tmp_path: Path
) -> None:
    result = run("convert", write_text(tmp_path / "a.conll", text), tmp_path / output, *options)

    assert result.exit_code == 1 and message in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["a.conll"]  # nothing was written


def test_convert_shows_which_spans_and_tokens_are_lost(tmp_path: Path) -> None:
    """ "Kim" is no token of "Kims", and columns can't have a token of whitespace."""
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "Kims \n a", "label": [[0, 3, "PER"]]}])

    result = run("convert", path, tmp_path / "a.conll", "--lang", "en")

    assert result.exit_code == 0, result.output
    assert "1 tokens without annotation" in result.output
    assert "line 1: 'Kim' PER in 'Kims'" in result.output
    left_out = "whitespace tokens can't be written in columns: they are left out (1)"
    assert left_out in result.output
    (doc,) = read_corpus(tmp_path / "a.conll")
    assert words_of([doc]) == [["Kims", "a"]] and iob_letters(doc) == "-O"


def test_convert_to_columns_keeps_entities_that_cross_sentences(tmp_path: Path) -> None:
    """The three sentences "at St .", "Louis" and "now" become two."""
    doc = Doc(WRITER.vocab, words=["at", "St", ".", "Louis", "now"], sent_starts=[1, 0, 0, 1, 1])
    doc.set_ents([Span(doc, 1, 4, "LOC"), Span(doc, 4, 5, "TIME")])
    DocBin(docs=[doc]).to_disk(tmp_path / "a.spacy")

    result = run("convert", tmp_path / "a.spacy", tmp_path / "a.conll")

    assert result.exit_code == 0, result.output
    joined = "entities in columns can't cross sentences: their sentences are joined (1)"
    assert joined in result.output
    info = CorpusInfo()
    (doc_read,) = read_corpus(tmp_path / "a.conll", info)
    assert entities([doc_read]) == [("St . Louis", "LOC"), ("now", "TIME")]
    assert sentences(doc_read) == ["at St . Louis", "now"] and not info.problems
    result = run("convert", tmp_path / "a.spacy", tmp_path / "a.jsonl")
    assert "cross sentences" not in result.output


@pytest.mark.parametrize("spans_key", [None, "sc"])
def test_convert_to_jsonl_keeps_incorrect_spans(spans_key: str | None, tmp_path: Path) -> None:
    """Docs without annotation, without entities, and with an entity."""
    texts = ["Rain in Oslo now", "Rain in Rome now", "Kim left Oslo now"]
    kim = {"start": 0, "end": 3, "label": "PER"}
    wrong = {"start": 8, "end": 12, "label": "PER", "answer": "reject"}
    wrong_oslo = {**wrong, "start": 9, "end": 13}
    tasks: list[dict[str, Any]] = [
        {"text": texts[0], "spans": [[8, 12, "PER"]], "answer": "reject"},
        {"text": texts[1], "spans": [wrong], "_is_binary": False},
        {"text": texts[2], "spans": [kim, wrong_oslo]},
    ]
    options = ["--incorrect-spans-key", "wrong"] + ["--spans-key", spans_key] * bool(spans_key)
    path = write_jsonl(tmp_path / "a.jsonl", tasks)

    result = run("convert", path, tmp_path / "b.jsonl", *options)
    refused = run("convert", path, tmp_path / "b.conll", "--incorrect-spans-key", "wrong")

    assert result.exit_code == 0, result.output
    info = CorpusInfo()
    docs = read_corpus(tmp_path / "b.jsonl", info, incorrect_spans_key="wrong", spans_key=spans_key)
    assert [doc.text for doc in docs] == texts and not info.problems
    wrong_spans = [(span.text, span.label_) for doc in docs for span in doc.spans["wrong"]]
    assert wrong_spans == [("Oslo", "PER"), ("Rome", "PER"), ("Oslo", "PER")]
    if spans_key is None:
        assert [iob_letters(doc) for doc in docs] == ["----", "OO-O", "BO-O"]
    else:
        n_missing = [int(is_missing(doc, spans_key).sum()) for doc in docs]
        assert n_missing == [4, 1, 1]
    assert refused.exit_code == 1 and ".jsonl with --incorrect-spans-key" in refused.output


def test_convert_refuses_incorrect_spans_that_jsonl_cannot_have(tmp_path: Path) -> None:
    doc = Doc(WRITER.vocab, words=["Kim", "left"])
    doc.spans["wrong"] = [doc[:1]]
    DocBin(docs=[doc]).to_disk(tmp_path / "a.spacy")
    options = ["--incorrect-spans-key", "wrong"]

    result = run("convert", tmp_path / "a.spacy", tmp_path / "b.jsonl", *options)

    assert result.exit_code == 1
    assert "doc.spans['wrong']: expected spans with a label, got 'Kim'" in result.output
    assert not (tmp_path / "b.jsonl").exists()


# Datasets of Hugging Face


def save_dataset(path: Path, columns: dict[str, Any], tag_names: list[str] | None = None) -> Path:
    """Save a dataset of Hugging Face, and return its path. With `tag_names`, the dataset knows the
    names of the numbers in `ner_tags`."""
    datasets = pytest.importorskip("datasets", reason="the extra `datasets` is not installed")
    dataset = datasets.Dataset.from_dict(columns)
    if tag_names is not None:
        feature = datasets.Sequence(datasets.ClassLabel(names=tag_names))
        dataset = dataset.cast_column("ner_tags", feature)
    dataset.save_to_disk(str(path))
    return path


def test_a_dataset_of_words_and_tags_is_read(tmp_path: Path) -> None:
    """The path of the dataset, or of the folder that has it."""
    columns = {"tokens": WORDS, "ner_tags": TAG_NUMBERS}
    path = save_dataset(tmp_path / "a" / "train", columns, TAG_NAMES)

    info = CorpusInfo()
    docs = read_corpus(path, info)

    assert words_of(docs) == WORDS and entities(docs) == ENTITIES
    assert info.formats == {"Hugging Face dataset of tokens and ner_tags": 1}
    assert entities(read_corpus(path.parent)) == ENTITIES


def test_a_dataset_of_texts_and_spans_is_read(tmp_path: Path) -> None:
    path = save_dataset(tmp_path / "test", {"text": [TEXT], "entities": [DICTS]})

    assert entities(read_corpus(path)) == TEXT_ENTITIES


def test_a_dataset_of_several_splits_is_refused(tmp_path: Path) -> None:
    save_dataset(tmp_path / "train", {"tokens": WORDS, "ner_tags": TAG_NUMBERS}, TAG_NAMES)
    save_dataset(tmp_path / "test", {"text": [TEXT], "entities": [DICTS]})
    write_text(tmp_path / "dataset_dict.json", '{"splits": ["train", "test"]}')

    with pytest.raises(ValueError, match=r"expected one split, got 2: give .*train or .*test"):
        read_corpus(tmp_path)


def test_a_bad_row_of_a_dataset_is_named(tmp_path: Path) -> None:
    """The spans of TEXT are outside of "x"."""
    columns = {"text": [TEXT, "x"], "entities": [DICTS, DICTS]}
    path = save_dataset(tmp_path / "b", columns)

    with pytest.raises(ValueError, match=f"{path}, row 2: entities: expected a start before its"):
        read_corpus(path)


def test_the_missing_library_datasets_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "state.json", "{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"requires the library `datasets`: pip install"):
        read_corpus(tmp_path)


# Sentences that become one doc by the id of their document

TASKS = [
    {"text": "Ana left.", "spans": [{"start": 0, "end": 3, "label": "PER"}], "article": "a"},
    {"text": "Rome. Ana", "spans": [], "meta": {"article": "a"}},
    {"text": "Alone", "spans": []},
    {"text": "Alone again", "spans": []},
    {"text": "Oslo", "article": 7},
]
"""The first two are of one article, the two alone of none, the last isn't annotated."""

TAGGED = [
    {"tokens": ["Ana", "left", "."], "ner_tags": ["B-PER", "O", "O"], "article": "a"},
    {"tokens": [], "ner_tags": [], "article": "x"},
    {"tokens": ["Rome", "Ana"], "ner_tags": ["O", "O"], "article": "a"},
    {"tokens": ["Oslo"], "ner_tags": ["B-LOC"], "article": "b"},
]


def sentences(doc: Doc) -> list[str]:
    """The texts of its sentences."""
    return [sent.text.strip() for sent in doc.sents]


def test_texts_of_a_document_become_the_sentences_of_one_doc(tmp_path: Path) -> None:
    """A text without an id is a document of its own. Missing annotation stays missing."""
    path = write_jsonl(tmp_path / "a.jsonl", TASKS)

    docs = read_corpus(path, doc_id="article")

    assert [doc.text for doc in docs] == ["Ana left. Rome. Ana", "Alone", "Alone again", "Oslo"]
    assert sentences(docs[0]) == ["Ana left.", "Rome. Ana"]
    assert [ent.text for ent in docs[0].ents] == ["Ana"]
    assert not docs[0].has_unknown_spaces
    assert iob_letters(docs[3]) == "-"
    assert [doc.user_data.get(extension_key("article")) for doc in docs] == ["a", None, None, 7]
    assert len(read_corpus(path)) == len(TASKS)  # without `doc_id`


def test_words_of_a_document_become_the_sentences_of_one_doc(tmp_path: Path) -> None:
    """Rows without words are left out, with their ids."""
    docs = read_corpus(write_jsonl(tmp_path / "a.jsonl", TAGGED), doc_id="article")

    assert [sentences(doc) for doc in docs] == [["Ana left .", "Rome Ana"], ["Oslo"]]
    assert all(doc.has_unknown_spaces for doc in docs)
    assert entities(docs) == [("Ana", "PER"), ("Oslo", "LOC")]


def test_docs_of_a_document_become_one_doc(tmp_path: Path) -> None:
    """In .spacy files the id of the document is an extension attribute. Sentences and span groups
    of the docs are kept."""
    first, second, last = (Doc(READER.vocab, words=words.split()) for words in ("a b", "c d", "e"))
    second[1].is_sent_start = True
    second.spans["wrong"] = [second[:1]]
    for doc in (first, second):
        doc.user_data[extension_key("article")] = 1
    DocBin(docs=[first, second, last], store_user_data=True).to_disk(tmp_path / "a.spacy")

    joined, alone = read_corpus(tmp_path / "a.spacy", doc_id="article")

    assert sentences(joined) == ["a b", "c", "d"]
    assert [span.text for span in joined.spans["wrong"]] == ["c"]
    assert alone.text.strip() == "e"


def test_parsed_docs_of_a_document_become_one_doc(tmp_path: Path) -> None:
    docs = []
    for words in (["Ana", "left", "."], ["Oslo", "is", "far"]):
        doc = Doc(READER.vocab, words=words, heads=[1, 1, 1], deps=["nsubj", "ROOT", "dep"])
        doc.user_data[extension_key("article")] = 1
        docs.append(doc)
    DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / "a.spacy")

    (joined,) = read_corpus(tmp_path / "a.spacy", doc_id="article")

    assert sentences(joined) == ["Ana left .", "Oslo is far"]
    assert [token.head.text for token in joined] == ["left"] * 3 + ["is"] * 3
    assert [token.dep_ for token in joined[:3]] == ["nsubj", "ROOT", "dep"]


def test_a_text_of_a_document_without_annotation_is_missing_spans(tmp_path: Path) -> None:
    """The texts that aren't annotated are first, second and last of their documents."""
    annotated = {"text": "Ana left.", "spans": [{"start": 0, "end": 3, "label": "PER"}]}
    unannotated = {"text": "Kim saw Oslo."}
    tasks: list[Any] = []
    for i, pattern in enumerate(["ua", "au", "aua", "u"]):
        tasks += [{**(annotated if c == "a" else unannotated), "article": i} for c in pattern]
    path = write_jsonl(tmp_path / "a.jsonl", tasks)

    docs = read_corpus(path, doc_id="article", spans_key="sc")

    no, yes = [True] * 4, [False] * 3  # whether the tokens of a text are missing annotation
    masks = [is_missing(doc, "sc").tolist() for doc in docs]
    assert masks == [[*no, *yes], [*yes, *no], [*yes, *no, *yes], no]
    assert [len(doc.spans.get("sc", ())) for doc in docs] == [1, 1, 2, 0]


def test_spaces_of_a_document_are_unknown_if_those_of_a_text_are(tmp_path: Path) -> None:
    """Otherwise the component would read the text of the document, "Ana left . Rome.", with its own
    tokenizer, as if somebody had written the space before the first full stop."""
    doc_of_words = Doc(READER.vocab, words=["Ana", "left", "."])
    doc_of_text = READER("Rome.")
    for doc in (doc_of_words, doc_of_text):
        doc.user_data[extension_key("article")] = 1
    DocBin(docs=[doc_of_words, doc_of_text], store_user_data=True).to_disk(tmp_path / "a.spacy")

    (joined,) = read_corpus(tmp_path / "a.spacy", doc_id="article")

    assert joined.has_unknown_spaces


def test_texts_without_annotation_are_joined_by_document(tmp_path: Path) -> None:
    """With the option, unannotated text is read as documents, too, with the tokens of the
    tokenizer. "can't" is the tokens "ca" and "n't", and spaCy gives the second the norm "not"."""
    path = write_jsonl(tmp_path / "a.jsonl", [*TASKS[:2], {"text": "I can't", "article": "b"}])
    DocBin(docs=read_corpus(path, doc_id="article")).to_disk(tmp_path / "without_ids.spacy")
    docs = read_corpus(path, doc_id="article")
    DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / "a.spacy")
    options = ReadOptions(doc_id="article")

    for file in (path, tmp_path / "a.spacy"):
        texts = list(read_texts(spacy.blank("en"), file, options))

        assert [doc.text for doc in texts] == ["Ana left. Rome. Ana", "I can't"]
        assert sentences(texts[0]) == ["Ana left.", "Rome. Ana"]
        assert not any(doc.has_annotation("ENT_IOB") for doc in texts)
        assert texts[0].user_data[extension_key("article")] == "a"
    (_, read) = read_texts(spacy.blank("en"), path, options)
    assert read[-1].norm_ == "not"
    with pytest.raises(ValueError, match="doc_id: expected texts with 'article', got none"):
        list(read_texts(spacy.blank("en"), tmp_path / "without_ids.spacy", options))


def test_both_docs_of_an_example_are_joined(tmp_path: Path) -> None:
    """The predicted doc is made of the joined text."""
    path = write_jsonl(tmp_path / "a.jsonl", TASKS[:4])

    examples = list(make_reader(path, doc_id="article")(READER))

    assert [eg.predicted.text for eg in examples] == [eg.reference.text for eg in examples]
    assert sentences(examples[0].reference) == ["Ana left.", "Rome. Ana"]


def test_the_same_text_in_another_document_is_another_text(tmp_path: Path) -> None:
    """In Prodigy's export, texts that are the same have the same hash."""
    prodigy = {"_view_id": "ner_manual", "answer": "accept", "spans": []}
    tasks: list[Any] = []
    for article, texts in ((1, ["Intro", "Ana left."]), (2, ["Intro", "Rome."])):
        for text in texts:
            task = {**prodigy, "text": text, "_input_hash": len(text), "meta": {"article": article}}
            tasks += [task, task]  # two annotators
    path = write_jsonl(tmp_path / "a.jsonl", tasks)

    for conflicts in (None, "majority"):
        docs = read_corpus(path, doc_id="article", conflicts=conflicts)
        assert [doc.text for doc in docs] == ["Intro Ana left.", "Intro Rome."]
    assert [doc.text for doc in read_corpus(path)] == ["Intro", "Ana left.", "Rome."]


def test_convert_joins_the_texts_of_a_document(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", TASKS[:4])

    result = run("convert", path, tmp_path / "b.spacy", "--doc-id", "article")

    assert result.exit_code == 0 and "3 docs" in result.output
    docs = read_corpus(tmp_path / "b.spacy")
    assert [doc.text for doc in docs] == ["Ana left. Rome. Ana", "Alone", "Alone again"]


@pytest.mark.parametrize("suffix", [".jsonl", ".spacy"])
def test_convert_keeps_metadata(suffix: str, tmp_path: Path) -> None:
    """So the texts of a document can still be joined."""
    tasks: list[Any] = [*TASKS]
    tasks[0] = {**tasks[0], "source": "news"}
    path = write_jsonl(tmp_path / "a.jsonl", tasks)
    output = tmp_path / f"b{suffix}"
    assert run("convert", path, output).exit_code == 0

    docs = read_corpus(output)
    assert [doc.user_data.get("article") for doc in docs] == ["a", "a", None, None, 7]
    assert [doc.user_data.get("source") for doc in docs] == ["news", *[None] * 4]
    joined = read_corpus(output, doc_id="article")
    assert [doc.text for doc in joined] == ["Ana left. Rome. Ana", "Alone", "Alone again", "Oslo"]


@pytest.mark.parametrize("suffix", [".jsonl", ".spacy"])
def test_convert_keeps_attributes_of_docs_but_no_other_data(suffix: str, tmp_path: Path) -> None:
    """Long values aren't metadata. Other data may belong to the annotation, as soft targets do."""
    doc = Doc(READER.vocab, words=["a"])
    doc.user_data[extension_key("article")] = 1
    doc.user_data[extension_key("html")] = "x" * 1000
    doc.user_data[SOFT_TARGETS_KEY] = {"labels": ["PER"]}
    DocBin(docs=[doc], store_user_data=True).to_disk(tmp_path / "a.spacy")
    output = tmp_path / f"b{suffix}"
    assert run("convert", tmp_path / "a.spacy", output).exit_code == 0

    (read_doc,) = read_corpus(output, doc_id="article")
    assert read_doc.user_data[extension_key("article")] == 1
    assert set(read_corpus(output)[0].user_data) <= {"article", extension_key("article")}


def test_texts_of_a_document_have_to_stand_together(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [*TASKS[:3], TASKS[0]])

    with pytest.raises(
        ValueError, match=r"a\.jsonl.*consecutive sentences of a document, got article 'a' again"
    ):
        read_corpus(path, doc_id="article")


def test_an_id_of_documents_that_no_text_has_is_refused(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", TASKS[:3])

    with pytest.raises(ValueError, match="doc_id: expected texts with 'title', got none"):
        read_corpus(path, doc_id="title")


# The column of parts of speech


def test_convert_keeps_parts_of_speech_as_spacy_does(tmp_path: Path) -> None:
    """A tagger can then be trained on them. "-" says that a token has none. spaCy keeps it as a
    part of speech, and we don't."""
    text = "Ana NP O B-PER\nreads VB O O\n\n, - O O\nRome NP O B-LOC\n"
    path = write_text(tmp_path / "a.conll", text)

    assert run("convert", path, tmp_path / "a.spacy").exit_code == 0

    theirs = conll_ner_to_docs(text, no_print=True)
    ours = DocBin().from_disk(tmp_path / "a.spacy").get_docs(READER.vocab)
    assert [token.tag_ for doc in theirs for token in doc] == ["NP", "VB", "-", "NP"]
    assert [token.tag_ for doc in ours for token in doc] == ["NP", "VB", "", "NP"]
    nlp = spacy.blank("xx")
    tagger: Any = nlp.add_pipe("tagger")
    nlp.initialize(lambda: list(Corpus(tmp_path / "a.spacy")(nlp)))
    assert tagger.labels == ("NP", "VB")


@pytest.mark.parametrize(
    "text, column", [("Ana B-NP B-PER\n", 3), ("Ana B-PER NP\n", 2)], ids=["chunk", "tag itself"]
)
def test_chunks_and_tags_of_entities_are_no_parts_of_speech(
    text: str, column: int, tmp_path: Path
) -> None:
    (doc,) = read_corpus(write_text(tmp_path / "b.conll", text), column=column)

    assert [token.tag_ for token in doc] == [""]
    assert entities([doc]) == [("Ana", "PER")]
