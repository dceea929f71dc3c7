"""What the recipes of Prodigy write, and what it means: the table in docs/data.md."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import spacy
from spacy.tokens import Doc

from spacy_costner.readers import CorpusError, CorpusInfo, ReadOptions, read_docs

NLP = spacy.blank("xx")
DOCS = Path(__file__).parents[2] / "docs" / "data.md"

TEXT = "Kim met Ann in Oslo."
WORDS = ["Kim", "met", "Ann", "in", "Oslo", "."]

UNANNOTATED = "texts without annotation"
LEFT_OUT = "examples that were rejected or ignored are left out"


def span(text: str, label: str = "PER", **fields: Any) -> dict[str, Any]:
    """A span of TEXT; `fields` are further fields, such as its answer."""
    start = TEXT.index(text)
    return {"start": start, "end": start + len(text), "label": label, **fields}


def record(view: str | None, *spans: Any, answer: str = "accept", **fields: Any) -> dict[str, Any]:
    """A line of Prodigy's export, with the interface that it was annotated in; `fields` are further
    fields."""
    line = {"text": TEXT, "answer": answer, "_input_hash": 5, "_task_hash": 7, **fields}
    if spans:
        line["spans"] = [*spans]
    if view is not None:
        line["_view_id"] = view
    return line


KIM = span("Kim")
SCORED = span("Kim", score=0.5, source="en_core_web_sm")
REJECTED = span("Ann", answer="reject")
OPTIONS = {"options": [{"id": "news", "text": "news"}], "accept": ["news"]}
TOKENS = {"tokens": [{"text": word, **span(word), "id": i} for i, word in enumerate(WORDS)]}


class Shape(NamedTuple):
    """What a recipe writes, and how it is read.

    records (list[Any]): Lines of an export, of one text.
    letters (str | None): The letter of IOB of each token of TEXT, and "-" where annotation is
        missing. None: the text is left out.
    incorrect (Sequence[str]): The spans that are known not to be entities.
    problem (str): The beginning of the message of the problem. "": no problem is reported.
    """

    records: list[Any]
    letters: str | None
    incorrect: Sequence[str] = ()
    problem: str = ""


# The keys are the first two columns of the table in docs/data.md.
SHAPES: dict[str, Shape] = {
    "ner.manual; accept": Shape([record("ner_manual", KIM, **TOKENS)], "BOOOOO"),
    "ner.manual; accept, without spans": Shape([record("ner_manual", **TOKENS)], "OOOOOO"),
    "ner.manual; reject": Shape(
        [record("ner_manual", KIM, answer="reject", _is_binary=False)], None, problem=LEFT_OUT
    ),
    "any; ignore": Shape([record("ner", KIM, answer="ignore")], None, problem=LEFT_OUT),
    "ner.correct; accept": Shape([record("ner_manual", SCORED, **TOKENS)], "BOOOOO"),
    "ner.silver-to-gold; accept": Shape([record("ner_manual", SCORED, _is_binary=False)], "BOOOOO"),
    "ner.teach; accept": Shape([record("ner", SCORED)], "B-----"),
    "ner.teach; reject": Shape([record("ner", SCORED, answer="reject")], "------", ["Kim PER"]),
    "match; accept": Shape([record("ner", KIM, span("Ann"), _is_binary=True)], "B-B---"),
    "match; reject, several spans": Shape(
        [record("ner", KIM, span("Ann"), answer="reject")], None, problem=LEFT_OUT
    ),
    "spans.manual; accept": Shape([record("spans_manual", KIM, **TOKENS)], "BOOOOO"),
    "spans.correct; accept": Shape([record("spans_manual", SCORED)], "BOOOOO"),
    "rel.manual; accept": Shape([record("relations", KIM, relations=[], **TOKENS)], "BOOOOO"),
    "review; accept, of manual annotation": Shape(
        [
            record("ner_manual", KIM),
            record("ner_manual", span("Ann")),
            record("review", KIM, view_id="ner_manual", versions=[{"answer": "accept"}]),
        ],
        "BOOOOO",
    ),
    "review; reject, of manual annotation": Shape(
        [
            record("ner_manual", KIM),
            record("review", KIM, view_id="ner_manual", answer="reject"),
        ],
        None,
        problem=LEFT_OUT,
    ),
    "review; accept, of answers to questions": Shape(
        [record("review", KIM, view_id="ner", versions=[{"answer": "accept"}])], "B-----"
    ),
    "textcat.manual, choice; accept": Shape(
        [record("choice", **OPTIONS)], "------", problem=UNANNOTATED
    ),
    "textcat.teach, mark; accept": Shape(
        [record("classification", span("met", "WORD"), label="news")],
        "------",
        problem=UNANNOTATED,
    ),
    "blocks; accept, with tokens": Shape([record("blocks", **OPTIONS, **TOKENS)], "OOOOOO"),
    "blocks; accept, without tokens": Shape(
        [record("blocks", **OPTIONS)], "------", problem=UNANNOTATED
    ),
    "db-in; without an answer": Shape([{"text": TEXT, "spans": [KIM]}], "BOOOOO"),
    "db-in; some spans have an answer": Shape([record(None, KIM, REJECTED)], "BO-OOO", ["Ann PER"]),
    "db-in; all spans have an answer": Shape(
        [record(None, span("Kim", answer="accept"), REJECTED)],
        "B-----",
        ["Ann PER"],
        "all spans have an answer",
    ),
}


def read(folder: Path, *records: Any, **options: Any) -> tuple[list[Doc], dict[str, int]]:
    """The docs of an export, and the number of problems by the beginnings of their messages."""
    path = folder / "export.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf8")
    info = CorpusInfo()
    docs = list(read_docs(NLP, path, ReadOptions(**options), info))
    return docs, {problem.message.split(":")[0]: problem.n for problem in info.problems}


def iob_letters(doc: Doc) -> str:
    """A letter for each token: I, O or B, and "-" where annotation is missing."""
    return "".join("-IOB"[token.ent_iob] for token in doc)


def incorrect_spans(doc: Doc) -> list[str]:
    """The text and the label of each incorrect span."""
    return [f"{span.text} {span.label_}" for span in doc.spans.get("wrong", ())]


@pytest.mark.parametrize("name", SHAPES)
def test_what_each_recipe_writes_is_read_as_it_is_meant(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    docs, problems = read(tmp_path, *shape.records, incorrect_spans_key="wrong")

    assert [iob_letters(doc) for doc in docs] == ([shape.letters] if shape.letters else [])
    assert [text for doc in docs for text in incorrect_spans(doc)] == [*shape.incorrect]
    assert problems == ({shape.problem: 1} if shape.problem else {})


def test_the_table_of_the_page_has_each_recipe() -> None:
    rows = re.findall(r"^\| `?([a-z].*?)`? \| (.*?) \|", DOCS.read_text(encoding="utf8"), re.M)
    names = [f"{recipe.replace('`', '')}; {answer.replace('`', '')}" for recipe, answer in rows]
    assert [name for name in names if name in SHAPES] == [*SHAPES]


@pytest.mark.parametrize("answer", ["reject", "ignore"])
def test_without_a_key_the_tokens_of_rejected_spans_are_missing(
    answer: str, tmp_path: Path
) -> None:
    (doc,), problems = read(tmp_path, record("ner_manual", KIM, span("Ann", answer=answer)))
    assert iob_letters(doc) == "BO-OOO" and not doc.spans
    assert problems == {"spans were rejected or ignored": 1}


def test_an_ignored_span_is_no_incorrect_span(tmp_path: Path) -> None:
    line = record("ner_manual", KIM, span("Ann", answer="ignore"))
    (doc,), problems = read(tmp_path, line, incorrect_spans_key="wrong")
    assert iob_letters(doc) == "BO-OOO" and not doc.spans
    assert problems == {"spans were rejected or ignored": 1}


def test_a_rejected_span_may_overlap_with_an_entity(tmp_path: Path) -> None:
    """The entity annotates its tokens. A span that is also an entity is neither."""
    spans = [KIM, span("Kim met", answer="reject"), span("Oslo"), span("Oslo", answer="reject")]
    (doc,), problems = read(
        tmp_path, record("ner_manual", *spans), incorrect_spans_key="wrong", spans_key=None
    )
    assert iob_letters(doc) == "B-OO-O" and incorrect_spans(doc) == ["Kim met PER"]
    assert problems == {"spans were accepted and rejected": 1}


def test_rejected_spans_stay_apart_from_overlapping_entities(tmp_path: Path) -> None:
    spans = [KIM, span("Kim met"), span("Ann", answer="reject")]
    (doc,), problems = read(
        tmp_path, record("spans_manual", *spans), incorrect_spans_key="wrong", spans_key="sc"
    )
    assert [found.text for found in doc.spans["sc"]] == ["Kim", "Kim met"]
    assert incorrect_spans(doc) == ["Ann PER"] and not problems


def test_annotators_who_disagree_on_the_answer_to_a_span_make_it_missing(tmp_path: Path) -> None:
    lines = [
        record("ner_manual", KIM, span("Ann", answer="accept")),
        record("ner_manual", KIM, REJECTED),
    ]
    (doc,), problems = read(tmp_path, *lines, incorrect_spans_key="wrong")
    assert iob_letters(doc) == "BO-OOO" and not doc.spans
    assert problems == {"texts were annotated in several ways": 1}


def test_an_unknown_answer_to_a_span_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="line 1: spans: answer: expected accept, reject, ignore"):
        read(tmp_path, record(None, span("Kim", answer="no")))
