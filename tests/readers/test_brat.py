"""brat standoff: a .txt and an .ann file for each text."""

from pathlib import Path
from typing import Any

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc

from spacy_costner.readers import CorpusError, CorpusInfo, ReadOptions, read_docs, read_texts
from spacy_costner.readers.offsets import utf16_length

from ..support.commands import run

NLP = spacy.blank("xx")

TEXT = "Kim Lee left\nEast and West London.\n"
PERSON = "T1\tPER 0 7\tKim Lee\n"
LONDON = "T3\tLOC 22 33\tWest London\n"


def write_pair(folder: Path, annotation: str, text: str = TEXT, name: str = "note") -> Path:
    """Write a text and its annotation, with the line ends that they have.

    RETURNS (Path): The .ann file.
    """
    (folder / f"{name}.txt").write_bytes(text.encode("utf8"))
    path = folder / f"{name}.ann"
    path.write_bytes(annotation.encode("utf8"))
    return path


def read_corpus(path: Path, **options: Any) -> tuple[list[Doc], CorpusInfo]:
    """The docs of a file or folder, with options of `ReadOptions`, and what was reported."""
    info = CorpusInfo()
    return list(read_docs(NLP, path, ReadOptions(**options), info)), info


def entities(docs: list[Doc]) -> list[tuple[str, str]]:
    """Text and label of the entities of all docs."""
    return [(ent.text, ent.label_) for doc in docs for ent in doc.ents]


def test_a_folder_has_a_doc_for_each_text_with_its_annotation(tmp_path: Path) -> None:
    """Files about the corpus are left out."""
    write_pair(tmp_path, PERSON + LONDON, name="a")
    write_pair(tmp_path, "", "Rain.", name="b")
    (tmp_path / "annotation.conf").write_text("[entities]\nPER\n")

    docs, info = read_corpus(tmp_path)

    assert [doc.text for doc in docs] == [TEXT, "Rain."]
    assert entities(docs[:1]) == [("Kim Lee", "PER"), ("West London", "LOC")]
    assert all(token.ent_iob_ == "O" for token in docs[1])
    assert info.formats == {"brat standoff": 2} and not info.problems


@pytest.mark.parametrize("annotation", ["", "\n", " \r\n", "\ufeff"])
def test_a_blank_annotation_file_says_that_there_are_no_entities(
    annotation: str, tmp_path: Path
) -> None:
    docs, info = read_corpus(write_pair(tmp_path, annotation))
    assert all(token.ent_iob_ == "O" for token in docs[0]) and not info.problems


@pytest.mark.parametrize("name", ["note.ann", "note.txt"])
def test_one_of_the_two_files_can_be_given(name: str, tmp_path: Path) -> None:
    write_pair(tmp_path, PERSON)
    docs, _ = read_corpus(tmp_path / name)
    assert entities(docs) == [("Kim Lee", "PER")]


def test_other_lines_than_those_of_entities_are_left_out(tmp_path: Path) -> None:
    lines = [
        "R1\tLives Arg1:T1 Arg2:T3",
        "*\tEquiv T1 T3",
        "E1\tMove:T3 Who:T1",
        "A1\tNegation E1",
        "M1\tSpeculation E1",
        "N1\tReference T1 Wikidata:Q1\tKim Lee",
        "#1\tAnnotatorNotes T1\tsure?",
        "",
        PERSON,
    ]
    docs, info = read_corpus(write_pair(tmp_path, "\n".join(lines)))
    assert entities(docs) == [("Kim Lee", "PER")] and not info.problems


def test_the_tokens_of_a_discontinuous_entity_are_missing_annotation_and_reported(
    tmp_path: Path,
) -> None:
    """East London, and West London, which share a token: the second is an entity."""
    annotation = f"{PERSON}T2\tLOC 13 17;27 33\tEast London\n{LONDON}"
    path = write_pair(tmp_path, annotation)

    (doc,), info = read_corpus(path)

    assert entities([doc]) == [("Kim Lee", "PER"), ("West London", "LOC")]
    missing = [token.text for token in doc if not token.ent_iob_]
    assert missing == ["East"]
    (problem,) = info.problems
    assert problem.n == 1
    assert problem.places == [f"{path}, line 2: 'East London' LOC"]


def test_an_entity_that_only_white_space_divides_is_whole(tmp_path: Path) -> None:
    """brat divides an entity at the end of a line."""
    annotation = "T1\tMOVE 8 12;13 17\tleft East\n"
    docs, info = read_corpus(write_pair(tmp_path, annotation))
    assert entities(docs) == [("left\nEast", "MOVE")] and not info.problems


def test_overlapping_entities_are_spans_under_the_key(tmp_path: Path) -> None:
    path = write_pair(tmp_path, f"{LONDON}T4\tCITY 27 33\tLondon\n")
    (doc,), _ = read_corpus(path, spans_key="sc")
    assert [span.text for span in doc.spans["sc"]] == ["West London", "London"]


def test_offsets_count_both_characters_of_a_line_end(tmp_path: Path) -> None:
    text = TEXT.replace("\n", "\r\n")
    annotation = "T1\tPER 0 7\tKim Lee\r\nT3\tLOC 23 34\tWest London\r\n"
    docs, info = read_corpus(write_pair(tmp_path, annotation, text))
    assert entities(docs) == [("Kim Lee", "PER"), ("West London", "LOC")] and not info.problems


def test_an_entity_that_is_not_where_its_text_is_is_missing_annotation_or_read_nearby(
    tmp_path: Path,
) -> None:
    """The text has "Lee" at 4 to 7, "Kim" at 0, and "West London" elsewhere."""
    annotation = f"T1\tPER 4 7\tKim\nT2\tMOVE 8 12\tLondon\n{LONDON}"
    (doc,), info = read_corpus(write_pair(tmp_path, annotation))

    assert entities([doc]) == [("Kim", "PER"), ("West London", "LOC")]
    assert [token.text for token in doc if not token.ent_iob] == ["left"]
    shifted, misplaced = info.problems
    assert "characters: the spans are read where their text is" in shifted.message
    assert "spans don't match their text: their tokens are missing" in misplaced.message


def test_fragments_that_overlap_are_one_entity(tmp_path: Path) -> None:
    """brat writes the text of both fragments (its issue 956)."""
    text = "Both the erbA IRES and the erbA/myb IRES virus constructs transformed"
    annotation = "T40\tORG 27 46;41 46\terbA/myb IRES virus virus\nT41\tORG 9 18\terbA IRES\n"
    docs, info = read_corpus(write_pair(tmp_path, annotation, text))
    assert entities(docs) == [("erbA IRES", "ORG"), ("erbA/myb IRES virus", "ORG")]
    assert not info.problems


@given(
    words=st.lists(
        # Words of letters, emoji, combining marks and what browsers count twice
        st.text(st.sampled_from("aé\u0301😀𝔸ב\u200d語"), min_size=1, max_size=4),
        min_size=1,
        max_size=8,
    ),
    in_code_units=st.booleans(),
    data=st.data(),
)
def test_each_word_comes_back_from_characters_and_from_code_units(
    words: list[str], in_code_units: bool, data: st.DataObject, tmp_path_factory: Any
) -> None:
    """Some tools count as browsers do, in UTF-16 code units: JavaScript counts 😀 as two units,
    Python counts it as one character. Each word is an entity or isn't."""
    text = ""
    lines: list[str] = []
    expected: list[tuple[int, int]] = []
    for i, word in enumerate(words):
        start = len(text)
        word += str(i)  # no word occurs twice
        text += word
        if data.draw(st.booleans()):
            expected.append((start, len(text)))
            first, end = start, len(text)
            if in_code_units:
                first, end = utf16_length(text[:start]), utf16_length(text)
            lines.append(f"T{i}\tX {first} {end}\t{word}\n")
        text += " "
    folder = tmp_path_factory.mktemp("brat")

    (doc,), info = read_corpus(write_pair(folder, "".join(lines), text), spans_key="sc")

    places = [(span.start_char, span.end_char) for span in doc.spans["sc"]]
    assert places == expected and not info.problems


EXPECTED_LINE = "expected an id, TAB, a label, offsets, TAB and a text"
MALFORMED: dict[str, tuple[str, str]] = {
    "no text": ("T9\tPER 0 3\n", EXPECTED_LINE),
    "blanks for a TAB": ("T9 PER 0 3 Kim\n", EXPECTED_LINE),
    "no label": ("T9\t0 3\tKim\n", EXPECTED_LINE),
    "one offset": ("T9\tPER 3\tKim\n", EXPECTED_LINE),
    # `int` refuses more than 4,300 digits.
    "a number of many digits": (f"T9\tPER 0 {'9' * 5000}\tKim\n", EXPECTED_LINE),
    "a negative offset": ("T9\tPER -1 3\tKim\n", EXPECTED_LINE),
    "an end before its start": ("T9\tPER 3 0\tKim\n", "got 3 to 0"),
    "after the text": ("T9\tPER 30 40\tLondon\n", "in a text of 35 characters, got 30 to 40"),
    "prose": ("Kim Lee left\n", EXPECTED_LINE),
    "a null character": ("T9\tPER 0 3\tK\0m\n", "expected UTF-8 text, got a null character"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_line_is_refused_by_file_and_line(case: str, tmp_path: Path) -> None:
    line, message = MALFORMED[case]
    path = write_pair(tmp_path, f"{PERSON}{line}{LONDON}")
    with pytest.raises(CorpusError) as error:
        read_corpus(tmp_path)
    assert str(error.value).startswith(f"{path}, line 2: ")
    assert message in str(error.value)


def test_an_end_after_the_text_is_refused_also_where_a_browser_counts_more(tmp_path: Path) -> None:
    """The emoji are three characters and six code units."""
    path = write_pair(tmp_path, "T1\tX 0 5\tKim\n", "😀😀😀")
    with pytest.raises(CorpusError, match="line 1: expected offsets in a text of 3 characters"):
        read_corpus(path)


def test_a_text_without_its_annotation_is_left_out_and_reported(tmp_path: Path) -> None:
    write_pair(tmp_path, PERSON)
    (tmp_path / "other.txt").write_text("Nobody has annotated this.")
    docs, info = read_corpus(tmp_path)
    assert [doc.text for doc in docs] == [TEXT]
    (problem,) = info.problems
    assert "without an .ann file" in problem.message and "other.txt" in problem.places[0]


def test_a_pair_whose_name_begins_as_one_about_the_corpus_is_read(tmp_path: Path) -> None:
    path = write_pair(tmp_path, PERSON)
    for suffix in (".ann", ".txt"):
        path.with_suffix(suffix).rename(tmp_path / f"citations{suffix}")
    (tmp_path / "CITATION").write_text("Cite us.")
    docs, _ = read_corpus(tmp_path)
    assert [doc.text for doc in docs] == [TEXT]


def test_corpora_are_read_whatever_their_names(tmp_path: Path) -> None:
    """Only text files describe a corpus."""
    for name in ("citation_train.conllup", "license.bio", "README.iob"):
        (tmp_path / name).write_text("Kim B-PER\n")
    for name in ("LICENSE", "README_es.txt", "CITATION.cff"):
        (tmp_path / name).write_text("About this corpus.")
    docs, _ = read_corpus(tmp_path)
    assert len(docs) == 3


def test_annotation_without_its_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "note.ann"
    path.write_text(PERSON)
    with pytest.raises(CorpusError, match=r"note\.ann: expected its text in note\.txt"):
        read_corpus(tmp_path)


def test_texts_to_annotate_are_read_without_their_annotation(tmp_path: Path) -> None:
    write_pair(tmp_path, PERSON)
    (doc,) = read_texts(NLP, tmp_path)
    assert doc.text == TEXT and not doc.ents


def test_a_text_beside_its_annotation_still_has_a_text_a_line(tmp_path: Path) -> None:
    """`read_texts` of the .txt file itself."""
    write_pair(tmp_path, PERSON)
    docs = list(read_texts(NLP, tmp_path / "note.txt"))
    assert [doc.text for doc in docs] == TEXT.splitlines()


def test_convert_counts_discontinuous_entities(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_pair(folder, f"{PERSON}T2\tLOC 13 17;27 33\tEast London\n")

    result = run("convert", folder, tmp_path / "out.spacy")

    assert result.exit_code == 0, result.output
    assert "brat standoff" in result.output and "1 entities" in result.output
    assert (
        "entities have several fragments: their tokens are missing annotation (1)" in result.output
    )
    (doc,), _ = read_corpus(tmp_path / "out.spacy")
    assert entities([doc]) == [("Kim Lee", "PER")]


def test_code_units_are_converted_though_an_entity_has_another_text(tmp_path: Path) -> None:
    """Kim begins at the code unit 3, and Ann ends at 14, where the text has 13 characters."""
    annotation = "T1\tPER 3 6\tKim\nT2\tPER 11 14\tBob\n"
    (doc,), info = read_corpus(write_pair(tmp_path, annotation, "😀 Kim met Ann"))
    assert entities([doc]) == [("Kim", "PER")]
    assert [token.text for token in doc if not token.ent_iob] == ["Ann"]
    assert [problem.n for problem in info.problems] == [1]
