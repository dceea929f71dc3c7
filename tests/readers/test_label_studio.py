"""Label Studio's JSON export: where the texts are, and what its results say of them."""

import json
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.tokens import Doc

from spacy_costner.readers import CorpusError, CorpusInfo, ReadOptions, read_docs
from spacy_costner.readers.html_text import read_html

NLP = spacy.blank("xx")

TEXT = "Kim met Ann in Oslo."
KIM, ANN, OSLO = (0, 3, "PER"), (8, 11, "PER"), (15, 19, "LOC")
ENTITIES = [("Kim", "PER"), ("Ann", "PER"), ("Oslo", "LOC")]


def region(start: int, end: int, label: str, text: str | None = None, **fields: Any) -> Any:
    """A region of a text, with the text that it quotes; `fields` replace fields of the result."""
    value: dict[str, Any] = {"start": start, "end": end, "labels": [label]}
    if text is not None:
        value["text"] = text
    return {"value": value, "type": "labels", "to_name": "element", **fields}


def html_region(start: int, end: int, label: str, text: str, **fields: Any) -> Any:
    """A region of HTML. We don't read its path, which shows a text node."""
    value = {
        "start": "/p[1]/text()[1]",
        "end": "/p[1]/text()[1]",
        "startOffset": 0,
        "endOffset": end - start,
        "globalOffsets": {"start": start, "end": end},
        "text": text,
        "hypertextlabels": [label],
    }
    return {"value": value, "type": "hypertextlabels", "to_name": "element", **fields}


def utterance_region(begin: tuple[int, int], end: tuple[int, int], label: str, text: str) -> Any:
    """A region of a dialogue, from an offset in an utterance to an offset in one."""
    value = {
        "start": str(begin[0]),
        "startOffset": begin[1],
        "end": str(end[0]),
        "endOffset": end[1],
        "text": text,
        "paragraphlabels": [label],
    }
    return {"value": value, "type": "paragraphlabels", "to_name": "element"}


def task(data: dict[str, Any], *results: Any) -> dict[str, Any]:
    """A task that one person has annotated."""
    return {"data": data, "annotations": [{"result": [*results]}]}


RECTANGLE = {
    "value": {"x": 1.5, "y": 2.0, "width": 3.0, "height": 4.0, "rectanglelabels": ["Logo"]},
    "type": "rectanglelabels",
}
SERIES = {
    "value": {"start": 0, "end": 3, "instant": False, "timeserieslabels": ["Run"]},
    "type": "timeserieslabels",
}


SEVERAL = "texts are annotated in several ways"


def read_tasks(
    folder: Path, *tasks: Any, **options: Any
) -> tuple[list[Doc], dict[str, int], list[str]]:
    """The docs of an export; the number of problems by the beginnings of their messages; and the
    places of all problems."""
    path = folder / "export.json"
    path.write_text(json.dumps(tasks), encoding="utf8")
    info = CorpusInfo()
    docs = list(read_docs(NLP, path, ReadOptions(**options), info))
    problems = {problem.message.split(":")[0]: problem.n for problem in info.problems}
    return docs, problems, [place for problem in info.problems for place in problem.places]


def entities(docs: list[Doc]) -> list[tuple[str, str]]:
    """The text and the label of each entity, of all docs."""
    return [(ent.text, ent.label_) for doc in docs for ent in doc.ents]


def iob_letters(doc: Doc) -> str:
    """A letter for each token: I, O or B, and "-" where annotation is missing."""
    return "".join("-IOB"[token.ent_iob] for token in doc)


# HTML


@pytest.mark.parametrize(
    "html, content",
    [
        ("<p>The <b>HTML</b></p>", "The HTML"),
        ("a<br/>b<br>c</br>d", "a\nb\nc\nd"),
        ("Kim &amp; Lee&nbsp;&lt;3 &#233;", "Kim & Lee\xa0<3 é"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("<!-- no --><p>\n  a\n</p>\n", "\n  a\n\n"),
        ("<p>a<style>b {}</style><script>c</script></p>", "ab {}"),
        ("<select><option>a<option>b</select>c<iframe>d</iframe>", "abc"),
        ("<pre>\na\n</pre><textarea>\n&lt;b></textarea>", "a\n<b>"),
        ("a < b <3 &lt", "a < b <3 <"),
        # Wrong HTML, as browsers read it
        ("a<!b>c<?d>e</>f</ g>h", "acefh"),
        ("a<![CDATA[b>c]]>d", "ac]]>d"),
        ("a<!-->b<!--c--!>d<!--e", "abd"),
        ("a<b c='>' d=\">\" e=f>g", "ag"),
        ("a<b c='>", "a"),
        ("a<B\n/>b<BR/>c", "ab\nc"),
        ("<p>a<noscript><i>b</i></noscript><script>'</p>'</script >c", "a<i>b</i>c"),
        # What is before the body counts nothing, and whitespace in the body does. These offsets are
        # from issue 6446 of Label Studio.
        (
            "<!DOCTYPE html>\n<html>\n<head>\n<meta charset='UTF-8'>\n<title>サンプル</title>"
            "<style>p {}</style>\n</head>\n<body>\n\n    <h1>こんにちは</h1>\n    <p>これは</p>",
            "\n\n    こんにちは\n    これは",
        ),
        ("\n <title>t</title>\n <p>a</p>", "a"),
        ("\n &nbsp;a", "\xa0a"),
    ],
)
def test_offsets_count_the_text_of_html(html: str, content: str) -> None:
    assert read_html(html).content == content


def test_a_part_of_a_page_has_no_head() -> None:
    assert read_html(" <title>t</title><p>a</p>", is_page=False).content == " ta"


@pytest.mark.parametrize(
    "html, text",
    [
        ("<p>Kim left</p><p>Oslo</p>", "Kim left\nOslo"),
        ("<p>Kim</p> <p>Oslo</p>", "Kim Oslo"),
        ("<table><tr><td>Kim</td><td>Oslo</td></tr></table>", "Kim\nOslo"),
        ("Kim<div>Lee</div>Ann", "Kim\nLee\nAnn"),
        ("K<b>i</b>m", "Kim"),
        ("<p>a<style>b {}</style>c</p>", "ac"),
        ("<select><option>a<option>b</select>", "a\nb"),
    ],
)
def test_blocks_of_html_are_separated_and_style_sheets_left_out(html: str, text: str) -> None:
    html_text = read_html(html)
    assert html_text.text == text
    # Each character of the text but a line break that separates blocks is in the content.
    for i, character in enumerate(html_text.content):
        start, end = html_text.range_in_text(i, i + 1)
        assert html_text.text[start:end] in (character, "")


HTML = "<p>Kim &amp; <b>Ann</b></p><p>Oslo,<br>in May</p>"
"""Its content is "Kim & AnnOslo,\nin May"."""


def test_regions_of_html_are_read_by_their_global_offsets(tmp_path: Path) -> None:
    regions = [
        html_region(0, 3, "PER", "Kim"),
        html_region(6, 9, "PER", "Ann"),
        html_region(9, 13, "LOC", "Oslo"),
        # A browser shows lines, which the region quotes as the characters \ and n.
        html_region(9, 21, "EVENT", "Oslo,\\nin May"),
    ]
    other_type = {**regions[0], "type": "labels", "value": {**regions[0]["value"]}}
    other_type["value"]["labels"] = other_type["value"].pop("hypertextlabels")

    docs, problems, _ = read_tasks(
        tmp_path, task({"html": HTML}, *regions[:3]), task({"html": HTML}, regions[3], other_type)
    )

    assert entities(docs) == [*ENTITIES, ("Kim", "PER"), ("Oslo,\nin May", "EVENT")]
    assert [doc.text for doc in docs] == ["Kim & Ann\nOslo,\nin May"] * 2
    assert iob_letters(docs[0]) == "BOBOBOOOO" and problems == {SEVERAL: 1}


def test_html_that_is_a_part_of_a_page_is_read_with_its_head(tmp_path: Path) -> None:
    """As with inline="true". The text that the region quotes shows it."""
    html = "<title>News</title><p>Kim left.</p>"
    docs, problems, _ = read_tasks(tmp_path, task({"html": html}, html_region(4, 7, "PER", "Kim")))
    assert entities(docs) == [("Kim", "PER")] and docs[0].text == "News\nKim left."
    assert not problems


@pytest.mark.parametrize("start", [4, 3])
def test_global_offsets_count_characters_or_code_units(start: int, tmp_path: Path) -> None:
    """Versions before 1.8 count code units: the emoji has two."""
    docs, problems, _ = read_tasks(
        tmp_path,
        task({"html": "<p>a 😀</p><p>Kim</p>"}, html_region(start, start + 3, "PER", "Kim")),
    )
    assert entities(docs) == [("Kim", "PER")] and not problems


def test_regions_of_html_without_global_offsets_make_their_text_missing(tmp_path: Path) -> None:
    """Only versions before 1.0 have such regions: their paths are for a page with marks."""
    old_region = html_region(0, 3, "PER", "Kim")
    del old_region["value"]["globalOffsets"]
    docs, problems, _ = read_tasks(
        tmp_path, task({"html": HTML}, old_region, html_region(6, 9, "PER", "Ann"))
    )
    assert iob_letters(docs[0]) == "--B------"
    assert problems == {"HTML regions have no globalOffsets": 1}


def test_html_without_entities_is_read_as_that_of_other_tasks(tmp_path: Path) -> None:
    docs, problems, _ = read_tasks(
        tmp_path, task({"html": HTML}), task({"html": HTML}, html_region(0, 3, "PER", "Kim"))
    )
    assert docs[0].text == docs[1].text and iob_letters(docs[0]) == "OOOOOOOOO"
    assert problems == {SEVERAL: 1}


def test_text_with_tags_and_without_regions_is_reported(tmp_path: Path) -> None:
    docs, problems, _ = read_tasks(tmp_path, task({"text": HTML}))
    assert docs[0].text == HTML
    assert problems == {"texts have HTML tags, but no region shows how to read them": 1}


# Dialogues


DIALOGUE = [
    {"author": "Ann", "text": "Hi Kim"},
    {"author": "Kim", "text": "😀 Ann!"},
    {"author": "Ann", "text": "In Oslo?"},
]


@pytest.mark.parametrize("offset", [2, 3], ids=["characters", "code units"])
def test_a_dialogue_is_read_as_its_utterances(offset: int, tmp_path: Path) -> None:
    """Each is a line of the doc. Offsets may count code units, of which the emoji has two."""
    regions = [
        utterance_region((0, 3), (0, 6), "PER", "Kim"),
        utterance_region((1, offset), (1, offset + 3), "PER", "Ann"),
        utterance_region((2, 3), (2, 7), "LOC", "Oslo"),
    ]
    docs, problems, _ = read_tasks(tmp_path, task({"turns": DIALOGUE, "audio": "a.wav"}, *regions))

    assert entities(docs) == ENTITIES and not problems
    assert docs[0].text == "Hi Kim\n😀 Ann!\nIn Oslo?"
    assert "-" not in iob_letters(docs[0])


def test_a_region_of_a_dialogue_may_have_several_utterances(tmp_path: Path) -> None:
    """Its offsets may be numbers, and its labels under "labels" (issue 6122)."""
    value = {"start": 0, "startOffset": 3, "end": 2, "endOffset": 2, "labels": ["X"]}
    result = {"value": value, "type": "paragraphlabels"}
    docs, problems, _ = read_tasks(tmp_path, task({"dialogue": DIALOGUE}, result))
    assert entities(docs) == [("Kim\n😀 Ann!\nIn", "X")] and not problems


def test_the_text_of_utterances_is_what_regions_quote(tmp_path: Path) -> None:
    dialogue = [{"speaker": "Kim", "says": "Ann"}, {"speaker": "Ann", "says": "Oslo"}]
    docs, _, _ = read_tasks(
        tmp_path,
        task({"dialogue": dialogue}, utterance_region((1, 0), (1, 4), "LOC", "Oslo")),
        task({"dialogue": dialogue}),
    )
    assert [doc.text for doc in docs] == ["Ann\nOslo"] * 2
    assert entities(docs) == [("Oslo", "LOC")]


# Other results


@pytest.mark.parametrize("result", [RECTANGLE, SERIES, {"type": "new"}, {}])
def test_results_that_are_not_read_make_their_text_missing_and_are_counted(
    result: dict[str, Any], tmp_path: Path
) -> None:
    tasks = [task({"text": TEXT}, region(*KIM), result, result), task({"text": TEXT}, result)]
    docs, problems, _ = read_tasks(tmp_path, *tasks)

    assert [iob_letters(doc) for doc in docs] == ["B-----", "------"]
    assert problems == {f"regions of type {result.get('type')!r} are not read": 3}


def test_regions_of_another_element_are_left_out_and_counted(tmp_path: Path) -> None:
    """A picture with a caption, for example."""
    data = {"picture": "https://example.com/a.png", "caption": TEXT}
    rectangle = {**RECTANGLE, "to_name": "picture"}
    docs, problems, places = read_tasks(
        tmp_path, task(data, region(*KIM, "Kim"), rectangle), task(data, rectangle)
    )
    assert [iob_letters(doc) for doc in docs] == ["BOOOOO", "OOOOOO"]
    elsewhere = "regions of type 'rectanglelabels' mark something other than the text"
    assert problems == {elsewhere: 2, SEVERAL: 1}
    assert places[0].endswith(f"export.json, line 1: {TEXT!r}")


def test_answers_and_relations_say_nothing_of_entities(tmp_path: Path) -> None:
    """Neither those about the text, nor those about a region, which have its offsets and id."""
    kim = region(*KIM, "Kim", id="a")
    value = {"start": 0, "end": 3, "text": "Kim"}
    answers = [
        {"value": {"choices": ["news"]}, "type": "choices", "to_name": "element", "id": "b"},
        {"value": {**value, "choices": ["sure"]}, "type": "choices", "id": "a"},
        {"value": {"text": ["note"]}, "type": "textarea", "id": "c"},
        {"value": {"rating": 3}, "type": "rating"},
        {"from_id": "a", "to_id": "a", "type": "relation", "direction": "right"},
    ]
    docs, problems, _ = read_tasks(tmp_path, task({"text": TEXT}, kim, *answers))
    assert iob_letters(docs[0]) == "BOOOOO" and not problems


def test_regions_without_label_make_their_tokens_missing(tmp_path: Path) -> None:
    """A region whose label was removed, and one of which only an answer is left."""
    kim = region(*KIM, "Kim", id="a")
    del kim["value"]["labels"]
    value = {"start": 8, "end": 11, "text": "Ann", "choices": ["sure"]}
    answer = {"value": value, "type": "choices", "to_name": "element", "id": "b"}
    docs, problems, _ = read_tasks(
        tmp_path, task({"text": TEXT}, kim, answer, region(*OSLO, "Oslo", id="c"))
    )
    assert iob_letters(docs[0]) == "-O-OBO"
    assert problems == {"regions have no label": 2}


@pytest.mark.parametrize("key", ["was_cancelled", "skipped"])
def test_drafts_predictions_and_skipped_annotations_do_not_count(key: str, tmp_path: Path) -> None:
    """Old versions mark skipped annotations with another key."""
    unsubmitted = {
        "drafts": [{"result": [region(*ANN)]}],
        "predictions": [{"result": [region(*OSLO)]}],
    }
    skipped = {"result": [region(*ANN)], key: True}
    annotated = task({"text": TEXT}, region(*KIM)) | unsubmitted
    annotated["annotations"].append(skipped)
    tasks = [annotated, {"data": {"text": TEXT}, "annotations": [skipped], **unsubmitted}]
    docs, _, _ = read_tasks(tmp_path, *tasks)
    assert [iob_letters(doc) for doc in docs] == ["BOOOOO", "------"]


def test_a_text_whose_class_alone_was_asked_for_has_no_annotation(tmp_path: Path) -> None:
    """Where the export has regions, the text has no entities."""
    choice = {"value": {"choices": ["news"]}, "type": "choices", "to_name": "element"}
    classified = task({"text": TEXT}, choice)
    nothing_found = task({"text": TEXT}, choice)

    (doc,), problems, _ = read_tasks(tmp_path, classified)
    assert iob_letters(doc) == "------"
    assert [*problems] == ["texts without annotation"]

    docs, _, _ = read_tasks(tmp_path, nothing_found, task({"text": TEXT}, region(*KIM), choice))
    assert [iob_letters(doc) for doc in docs] == ["OOOOOO", "BOOOOO"]


# Which text


def test_the_text_is_the_field_that_regions_quote(tmp_path: Path) -> None:
    """Also in tasks without regions, and where another field has the key "text"."""
    data = {"text": "A title", "r_TEXT": TEXT, "meta": {"source": "x"}}
    docs, problems, _ = read_tasks(
        tmp_path, task({**data, "r_TEXT": "Oslo."}), task(data, region(*OSLO, "Oslo"))
    )
    assert [doc.text for doc in docs] == ["Oslo.", TEXT]
    assert entities(docs) == [("Oslo", "LOC")] and not problems
    assert docs[0].user_data == {"text": "A title", "source": "x"}


def test_each_text_of_a_task_is_a_doc(tmp_path: Path) -> None:
    """The elements of the interface show two fields."""
    data = {"question": "Is Kim in Oslo?", "answer": TEXT}
    regions = [
        region(3, 6, "PER", "Kim", to_name="q"),
        region(*ANN, "Ann", to_name="a"),
        region(*OSLO, "Oslo", to_name="a"),
    ]
    docs, problems, _ = read_tasks(tmp_path, task(data, *regions))
    assert [doc.text for doc in docs] == [*data.values()]
    assert [iob_letters(doc) for doc in docs] == ["OBOOO", "OOBOBO"] and not problems


def test_a_quoted_line_break_is_written_as_two_characters(tmp_path: Path) -> None:
    """The characters \\ and n: it is no other text."""
    docs, problems, _ = read_tasks(
        tmp_path, task({"text": "Kim\nLee left"}, region(0, 7, "PER", "Kim\\nLee"))
    )
    assert entities(docs) == [("Kim\nLee", "PER")] and not problems


def test_a_region_that_quotes_other_words_costs_its_tokens(tmp_path: Path) -> None:
    """As in issue 1931: the offsets are for whole words, the text is the selection."""
    text = "Some simple text with explanations in Oslo"
    docs, problems, _ = read_tasks(
        tmp_path,
        task({"text": text}, region(5, 16, "ORG", "ple tex"), region(38, 42, "LOC", "Oslo")),
    )
    assert iob_letters(docs[0]) == "O--OOOB"
    assert problems == {"spans don't match their text": 1}


DATA = "/".join(["", "data", ""])  # joined here, as this file would name a folder of a machine
LOCATIONS = [
    "https://example.com/texts/1",
    "s3://bucket/text",
    f"{DATA}upload/3/b5608bfa-kim.txt",
    "b5608bfa-kim.txt\n",
    f"{DATA}local-files/?d=texts/kim",
]


@pytest.mark.parametrize("location", LOCATIONS)
@pytest.mark.parametrize("start", [0, 204_443])
def test_the_place_of_a_text_is_no_text(location: str, start: int, tmp_path: Path) -> None:
    """With valueType="url" the export has only the place, and regions quote nothing."""
    result = region(start, start + 3, "PER")
    with pytest.raises(CorpusError, match=r"line 1: data: .* got a URL or a file name, .*text_key"):
        read_tasks(tmp_path, task({"text": location}, result))


def test_a_url_is_a_text_if_regions_quote_the_field_or_the_user_names_it(tmp_path: Path) -> None:
    tasks = [task({"text": LOCATIONS[0]}), task({"text": TEXT}, region(*KIM, "Kim"))]
    docs, _, _ = read_tasks(tmp_path, *tasks)
    assert docs[0].text == LOCATIONS[0]
    docs, _, _ = read_tasks(tmp_path, tasks[0], text_key="text")
    assert docs[0].text == LOCATIONS[0]


def test_the_place_of_a_text_in_json_min_is_no_text(tmp_path: Path) -> None:
    record = {"id": 1, "text": LOCATIONS[2], "annotator": 1, "annotation_id": 1}
    with pytest.raises(CorpusError, match="text: expected a text, got a URL or a file name"):
        read_tasks(tmp_path, record)


def test_the_user_may_name_the_text(tmp_path: Path) -> None:
    data = {"title": "Kim left", "body": TEXT}
    docs, _, _ = read_tasks(tmp_path, task(data, region(*KIM)), text_key="body")
    assert [doc.text for doc in docs] == [TEXT] and entities(docs) == [("Kim", "PER")]
    # Regions without a quote may be of both.
    docs, _, _ = read_tasks(tmp_path, task(data, region(*KIM, "Kim")), text_key="title")
    assert [doc.text for doc in docs] == ["Kim left"] and entities(docs) == [("Kim", "PER")]


@pytest.mark.parametrize(
    "result, message",
    [
        (region(*KIM), "data: expected a text under 'text', got ['title', 'body']: set text_key"),
        (
            region(*KIM, "Kim"),
            "data: expected regions that quote one text, got 'body' and 'title': set text_key",
        ),
    ],
)
def test_a_text_that_nothing_shows_has_to_be_named(
    result: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(CorpusError) as error:
        read_tasks(tmp_path, task({"title": "Kim left", "body": TEXT}, result))
    assert f"line 1: {message}" in str(error.value)
