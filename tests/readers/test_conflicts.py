"""Texts that are in a corpus several times, with other annotation."""

import json
from pathlib import Path
from typing import Any

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc, DocBin, Span

from spacy_costner.readers import CorpusInfo, ReadOptions, make_reader, read_docs
from spacy_costner.readers.conflicts import merge_texts
from spacy_costner.readers.context import Places, SpanScores

from ..support.commands import run

NLP = spacy.blank("xx")
TEXT = "Kim met Ana Lee in New York"
KIM, ANA, ANA_LEE = (0, 3, "PER"), (8, 11, "PER"), (8, 15, "PER")
LEE, YORK, NEW_YORK = (12, 15, "PER"), (23, 27, "LOC"), (19, 27, "LOC")


def write_annotators(folder: Path, *annotations: list[tuple[int, int, str]]) -> None:
    """Write a file for each annotator, as doccano does, with their spans of TEXT in line 2."""
    for name, spans in zip("abc", annotations):
        lines = [{"text": f"Rain {name}", "label": []}, {"text": TEXT, "label": spans}]
        text = "\n".join(map(json.dumps, lines))
        (folder / f"{name}.jsonl").write_text(text, encoding="utf8")


def read_text_docs(folder: Path, **options: Any) -> tuple[list[Doc], CorpusInfo]:
    """The docs of TEXT in a folder."""
    info = CorpusInfo()
    docs = list(read_docs(NLP, folder, ReadOptions(**options), info))
    return [doc for doc in docs if doc.text == TEXT], info


def letters(doc: Doc) -> str:
    """The IOB letters of a doc, "-" where annotation is missing."""
    return "".join("-IOB"[token.ent_iob] for token in doc)


def test_contradicting_files_are_reported_with_both_places_and_all_docs_are_kept(
    tmp_path: Path,
) -> None:
    write_annotators(tmp_path, [KIM, NEW_YORK], [KIM], [KIM, NEW_YORK])

    docs, info = read_text_docs(tmp_path)

    assert [letters(doc) for doc in docs] == ["BOOOOBI", "BOOOOOO", "BOOOOBI"]
    (problem,) = info.problems
    assert problem.message.startswith("texts are annotated in several ways: all are kept")
    assert "conflicts = first, last, agree, majority" in problem.message
    (place,) = problem.places
    assert place.startswith(f"{tmp_path / 'b.jsonl'}, line 2: '{TEXT}' has 'Kim PER', ")
    assert place.endswith(f"{tmp_path / 'a.jsonl'}, line 2 has 'Kim PER, New York LOC'")


def test_convert_and_training_report_conflicts(tmp_path: Path) -> None:
    write_annotators(tmp_path, [KIM], [ANA])
    result = run("convert", tmp_path, tmp_path.parent / "out.spacy")
    assert "texts are annotated in several ways: all are kept" in result.output
    assert "b.jsonl, line 2" in result.output and "a.jsonl, line 2 has" in result.output
    with pytest.warns(UserWarning, match="texts are annotated in several ways: all are kept"):
        assert len(list(make_reader(tmp_path)(NLP))) == 4
    out = tmp_path.parent / "merged.spacy"
    result = run("convert", tmp_path, out, "--conflicts", "last")
    assert "the last annotation is kept" in result.output
    assert len(DocBin().from_disk(out)) == 3
    reader = make_reader(tmp_path, conflicts="last")
    with pytest.warns(UserWarning, match="the last annotation is kept"):
        assert [len(eg.reference.ents) for eg in reader(NLP)] == [0, 1, 0]


@pytest.mark.parametrize(
    "annotations, expected",
    [
        # What is read: first, last, agree, majority.
        (([KIM, NEW_YORK], [KIM]), ("BOOOOBI", "BOOOOOO", "BOOOO--", "BOOOO--")),
        (([KIM], [KIM], []), ("BOOOOOO", "OOOOOOO", "-OOOOOO", "BOOOOOO")),
        (([KIM], [], []), ("BOOOOOO", "OOOOOOO", "-OOOOOO", "OOOOOOO")),
        (([NEW_YORK], [YORK], []), ("OOOOOBI", "OOOOOOO", "OOOOO--", "OOOOOO-")),
        (([ANA, LEE], [ANA_LEE], [ANA_LEE]), ("OOBBOOO", "OOBIOOO", "OO--OOO", "OOBIOOO")),
        (([KIM], [(0, 3, "ORG")]), ("BOOOOOO", "BOOOOOO", "-OOOOOO", "-OOOOOO")),
        (([KIM, ANA], [ANA, KIM]), ("BOBOOOO",) * 4),
    ],
)
def test_each_text_becomes_one_doc(
    annotations: Any, expected: tuple[str, ...], tmp_path: Path
) -> None:
    write_annotators(tmp_path, *annotations)
    for conflicts, iob in zip(("first", "last", "agree", "majority"), expected, strict=True):
        (doc,), info = read_text_docs(tmp_path, conflicts=conflicts)
        assert letters(doc) == iob
        assert len(info.problems) == 1
        is_same = len({frozenset(spans) for spans in annotations}) == 1
        assert ("in the same way" in info.problems[0].message) == is_same


def test_overlapping_spans_are_merged_under_their_key(tmp_path: Path) -> None:
    write_annotators(tmp_path, [ANA, ANA_LEE], [ANA_LEE])
    (doc,), _ = read_text_docs(tmp_path, spans_key="sc", conflicts="agree")
    assert [span.text for span in doc.spans["sc"]] == ["Ana Lee"]
    assert [span.text for span in doc.spans["sc_missing"]] == ["Ana"]
    docs, info = read_text_docs(tmp_path, spans_key="sc")
    assert len(docs) == 2 and len(info.problems) == 1


def test_what_is_missing_contradicts_nothing(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [
        {"text": TEXT, "spans": [KIM], "missing": [[4, 27]]},
        {"text": TEXT, "spans": [KIM, NEW_YORK], "missing": [[4, 15]]},
        {"text": TEXT},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf8")
    docs, info = read_text_docs(tmp_path)
    assert len(docs) == 3
    assert [problem.message for problem in info.problems] == [
        "texts without annotation: it is missing in the whole doc"
    ]
    (merged, unannotated), _ = read_text_docs(tmp_path, conflicts="majority")
    assert letters(merged) == "B---OBI" and letters(unannotated) == "-------"


def test_docs_are_found_by_line_row_and_number(tmp_path: Path) -> None:
    """In columns, spaces aren't known, so that each token has one after it. Tokens may differ."""
    (tmp_path / "a.conll").write_text("Rain O\n\nKim B-PER\nleft O\n\nRain B-MISC\n")
    _, info = read_text_docs(tmp_path)
    assert f"{tmp_path / 'a.conll'}, line 6: 'Rain ' has 'Rain MISC'" in info.problems[0].places[0]
    assert f"{tmp_path / 'a.conll'}, line 1 has no entities" in info.problems[0].places[0]

    doc = Doc(NLP.vocab, words=["New", "York"], spaces=[True, False], ents=["B-LOC", "I-LOC"])
    other = Doc(NLP.vocab, words=["New York"], ents=["B-ORG"], spaces=[False])
    path = tmp_path.parent / "docs.spacy"
    DocBin(docs=[doc, other]).to_disk(path)
    for conflicts, expected in (("first", ["LOC"]), ("last", ["ORG"]), ("agree", [])):
        info = CorpusInfo()
        (merged,) = read_docs(NLP, path, ReadOptions(conflicts=conflicts), info)
        assert [ent.label_ for ent in merged.ents] == expected
        assert info.problems[0].places[0].startswith(f"{path}, doc 2: 'New York'")


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="conflicts: expected one of first, last, agree, majority"):
        ReadOptions(conflicts="newest")


ANNOTATIONS = ([KIM, NEW_YORK], [KIM, NEW_YORK], [NEW_YORK])
PRODIGY = {"text": TEXT, "_input_hash": 5, "_view_id": "ner_manual", "answer": "accept"}


def as_objects(spans: list[tuple[int, int, str]]) -> list[dict[str, Any]]:
    """Spans as JSON objects that Prodigy's and Label Studio's files may contain."""
    return [{"start": start, "end": end, "labels": [label]} for start, end, label in spans]


def label_studio_json() -> str:
    annotations = []
    for spans in ANNOTATIONS:
        annotations.append({"result": [{"value": value} for value in as_objects(spans)]})
    return json.dumps([{"data": {"text": TEXT}, "annotations": annotations}])


def label_studio_csv() -> str:
    rows = ["text,id,label"]
    for spans in ANNOTATIONS:
        quoted = json.dumps(as_objects(spans)).replace('"', '""')
        rows.append(f'{TEXT},7,"{quoted}"')
    return "\n".join(rows)


def prodigy(**values: Any) -> str:
    """A line of Prodigy's export for each annotation, and an answer to a yes-no question."""
    lines = [{**PRODIGY, "spans": as_objects(spans), **values} for spans in ANNOTATIONS]
    lines.append({**PRODIGY, "spans": as_objects([ANA]), "_view_id": "ner", **values})
    return "\n".join(map(json.dumps, lines))


@pytest.mark.parametrize(
    "name, text",
    [("a.json", label_studio_json()), ("a.csv", label_studio_csv()), ("a.jsonl", prodigy())],
)
def test_annotations_that_a_file_has_for_a_text_are_merged_as_told(
    name: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text, encoding="utf8")
    for conflicts, iob in (
        (None, "-OOOOBI"),
        ("first", "BOOOOBI"),
        ("last", "OOOOOBI"),
        ("agree", "-OOOOBI"),
        ("majority", "BOOOOBI"),
    ):
        (doc,), info = read_text_docs(tmp_path, conflicts=conflicts)
        assert letters(doc) == iob
        assert ["in several ways" in problem.message for problem in info.problems] == [True]


def test_annotations_in_a_file_and_in_other_files_are_counted_together(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(prodigy(), encoding="utf8")
    for name in ("b", "c"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": TEXT, "label": [NEW_YORK]}))
    (doc,), _ = read_text_docs(tmp_path, conflicts="majority")
    assert letters(doc) == "OOOOOBI"


def test_annotations_of_a_sentence_are_merged_before_the_sentences_of_a_document(
    tmp_path: Path,
) -> None:
    rain = {**PRODIGY, "text": "Rain", "_input_hash": 6, "spans": [], "article": 1}
    text = f"{prodigy(article=1)}\n{json.dumps(rain)}"
    (tmp_path / "a.jsonl").write_text(text, encoding="utf8")
    for conflicts, iob in (("majority", "BOOOOBIO"), ("last", "OOOOOBIO"), ("agree", "-OOOOBIO")):
        options = ReadOptions(conflicts=conflicts, doc_id="article")
        (doc,) = read_docs(NLP, tmp_path, options, CorpusInfo())
        assert doc.text == f"{TEXT} Rain" and letters(doc) == iob


def test_a_review_is_read_alone_with_each_choice(tmp_path: Path) -> None:
    review = {**PRODIGY, "spans": as_objects([ANA_LEE]), "_view_id": "review"}
    text = f"{prodigy()}\n{json.dumps({**review, 'view_id': 'ner_manual'})}"
    (tmp_path / "a.jsonl").write_text(text, encoding="utf8")
    for conflicts in (None, "first", "agree", "majority"):
        (doc,), info = read_text_docs(tmp_path, conflicts=conflicts)
        assert letters(doc) == "OOBIOOO" and not info.problems


def write_lines(folder: Path, *records: dict[str, Any]) -> None:
    lines = [json.dumps({"text": TEXT, **record}) for record in records]
    (folder / "a.jsonl").write_text("\n".join(lines), encoding="utf8")


@pytest.mark.parametrize("conflicts, kept", [("agree", []), ("majority", ["New York LOC"])])
def test_merged_docs_have_the_incorrect_spans_of_all(
    conflicts: str, kept: list[str], tmp_path: Path
) -> None:
    """Except for Kim, who is kept as an entity, because a rejected span isn't a vote against it."""

    def spans(*accepted: tuple[int, int, str], rejected: tuple[int, int, str]) -> dict[str, Any]:
        (wrong,) = as_objects([rejected])
        return {"spans": [*as_objects([*accepted]), {**wrong, "answer": "reject"}]}

    new_york_org = (*NEW_YORK[:2], "ORG")
    write_lines(
        tmp_path,
        spans(KIM, NEW_YORK, rejected=(8, 11, "LOC")),
        spans(KIM, NEW_YORK, rejected=ANA_LEE),
        spans(new_york_org, rejected=KIM),
    )

    (doc,), _ = read_text_docs(tmp_path, conflicts=conflicts, incorrect_spans_key="wrong")

    assert [f"{ent.text} {ent.label_}" for ent in doc.ents] == ["Kim PER", *kept]
    wrong = [f"{span.text} {span.label_}" for span in doc.spans["wrong"]]
    assert wrong == ["Ana LOC", "Ana Lee PER"]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)])
def test_the_score_of_a_merged_entity_is_the_mean_of_the_docs_that_contain_it(
    order: tuple[int, ...], tmp_path: Path
) -> None:
    def spans(**score_of_name: float | None) -> dict[str, Any]:
        scored = []
        for name, score in score_of_name.items():
            (span,) = as_objects([{"kim": KIM, "ana": ANA, "new_york": NEW_YORK}[name]])
            scored.append(span if score is None else {**span, "score": score})
        return {"spans": scored}

    records = [spans(kim=0.5, ana=0.9), spans(kim=0.75, new_york=0.25), spans(new_york=None)]
    write_lines(tmp_path, *[records[i] for i in order])
    scores = SpanScores()

    options = ReadOptions(conflicts="majority")
    (doc,) = read_docs(NLP, tmp_path, options, CorpusInfo(), scores=scores)

    assert letters(doc) == "BOOOOBI"
    assert scores[doc] == {(0, 1, "PER"): 0.625, (5, 7, "LOC"): 0.625}


IOB = st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y", "-"]), min_size=5, max_size=5)


def annotated(tags: list[str]) -> Doc:
    """A doc of five words. An I without its entity begins one."""
    doc = Doc(NLP.vocab, words=list("abcde"))
    ents: list[Span] = []
    for i, tag in enumerate(tags):
        if tag[0] == "I" and ents and ents[-1].end == i and ents[-1].label_ == tag[2:]:
            ents[-1] = Span(doc, ents[-1].start, i + 1, label=tag[2:])
        elif tag[0] in "IB":
            ents.append(Span(doc, i, i + 1, label=tag[2:]))
    missing = [doc[i : i + 1] for i, tag in enumerate(tags) if tag == "-"]
    doc.set_ents(ents, missing=missing, default="outside")
    return doc


@given(tags=IOB, other_tags=st.lists(IOB, max_size=2))
def test_what_all_or_most_say_is_kept(tags: list[str], other_tags: list[list[str]]) -> None:
    """Three docs are the same, and up to two others differ."""

    def merge(conflicts: str, docs: list[Doc]) -> list[tuple[int, str]]:
        merged = list(merge_texts(docs, conflicts, None, Places(), CorpusInfo()))
        is_unannotated = all(tag == "-" for tag in tags)
        assert len(merged) == 1 or is_unannotated
        return [(token.ent_iob, token.ent_type_) for token in merged[0]]

    expected = [(token.ent_iob, token.ent_type_) for token in annotated(tags)]
    same = [annotated(tags) for _ in range(3)]
    assert merge("agree", same) == expected
    full = [[tag if tag != "-" else "O" for tag in each] for each in other_tags]
    if "-" not in tags:
        docs = [annotated(tags) for _ in range(3)] + list(map(annotated, full))
        assert merge("majority", docs) == expected
        # Nothing is invented: what is kept is said by all, or it is missing.
        said = [[(t.ent_iob, t.ent_type_) for t in doc] for doc in map(annotated, [tags, *full])]
        for values in zip(merge("agree", [annotated(tags), *map(annotated, full)]), *said):
            merged_value, *all_said = values
            assert merged_value == (0, "") or set(all_said) == {merged_value}
