"""WebAnno TSV 3.2 and 3.3: a line for each token, with the annotation of all layers."""

import re
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

NAMED_ENTITY = "#T_SP=de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity|identifier|value"
SPAN = "#T_SP=webanno.custom.Span|value"

TWO_SENTENCES = """#Text=Kim Lee left 😊 .
1-1\t0-3\tKim\t*[1]\tPER[1]\t
1-2\t4-7\tLee\t*[1]\tPER[1]\t
1-3\t8-12\tleft\t_\t_\t
1-4\t13-15\t😊\t_\t_\t
1-5\t16-17\t.\t_\t_\t

#Text=London .
2-1\t18-24\tLondon\tQ84\tLOC\t
2-2\t25-26\t.\t_\t_\t
"""


def write(folder: Path, body: str, *layers: str) -> Path:
    """Write a file with these layers; without layers, with the layer of named entities."""
    path = folder / "note.tsv"
    head = "\n".join(["#FORMAT=WebAnno TSV 3.3", *(layers or [NAMED_ENTITY])])
    path.write_bytes(f"{head}\n\n\n{body}".encode())
    return path


def read_corpus(path: Path, **options: Any) -> tuple[Doc, CorpusInfo]:
    """The doc of a file, with options of `ReadOptions`, and what was reported."""
    info = CorpusInfo()
    (doc,) = read_docs(NLP, path, ReadOptions(**options), info)
    return doc, info


def entities(doc: Doc) -> list[tuple[str, str]]:
    """Text and label of the entities."""
    return [(ent.text, ent.label_) for ent in doc.ents]


def test_a_file_is_a_doc_with_its_tokens_sentences_and_entities(tmp_path: Path) -> None:
    """Offsets after the emoji count it twice."""
    doc, info = read_corpus(write(tmp_path, TWO_SENTENCES))

    assert doc.text == "Kim Lee left 😊 . London ."
    assert entities(doc) == [("Kim Lee", "PER"), ("London", "LOC")]
    assert [sent.text for sent in doc.sents] == ["Kim Lee left 😊 .", "London ."]
    assert doc[2].ent_iob_ == "O"
    assert info.formats == {"WebAnno TSV 3.3": 1} and not info.problems


def test_the_format_is_known_by_the_content_of_the_file(tmp_path: Path) -> None:
    """The name of the file says nothing, for commands that read annotation, such as `convert`, and
    for those that read texts by `read_texts`, without their annotation."""
    path = write(tmp_path, TWO_SENTENCES).rename(tmp_path / "note.txt")

    result = run("convert", path, tmp_path / "out.jsonl")
    (doc,) = read_texts(NLP, path)

    assert result.exit_code == 0
    assert "WebAnno TSV 3.3" in result.output
    assert doc.text.startswith("Kim Lee left 😊")
    assert not doc.ents


def test_a_text_may_begin_with_white_space_and_have_several_lines(tmp_path: Path) -> None:
    """The first token begins at 2, though the line of the text begins with it: the two characters
    before it are read as blanks. Each line of `#Text` is a line of the text, and "\\t" is a tab."""
    body = "#Text=This is\\ta\n#Text=test\n1-1\t2-6\tThis\t_\n1-2\t7-9\tis\t_\n1-3\t10-11\ta\tX\n"
    body += "1-4\t12-16\ttest\tY\n"
    doc, info = read_corpus(write(tmp_path, body, SPAN))
    assert doc.text == "  This is\ta\ntest"
    assert entities(doc) == [("a", "X"), ("test", "Y")] and not info.problems


def test_an_entity_may_cross_sentences(tmp_path: Path) -> None:
    body = (
        "#Text=He left\n1-1\t0-2\tHe\tX[1]\n1-2\t3-7\tleft\tX[1]\n\n#Text=us\n2-1\t8-10\tus\tX[1]\n"
    )
    doc, _ = read_corpus(write(tmp_path, body, SPAN))
    assert entities(doc) == [("He left us", "X")]


def test_entities_that_overlap_need_a_spans_key(tmp_path: Path) -> None:
    """A token may have several annotations, "LOC[1]|SIDE[2]". With a `spans_key` all of them become
    spans. Without one, the doc has no entities, and a problem is reported."""
    body = (
        "#Text=West London\n1-1\t0-4\tWest\tLOC[1]|SIDE[2]\t\n1-2\t5-11\tLondon\tLOC[1]|CITY[3]\t\n"
    )
    path = write(tmp_path, body, SPAN)
    doc, _ = read_corpus(path, spans_key="sc")
    spans = {(span.text, span.label_) for span in doc.spans["sc"]}
    assert spans == {("West London", "LOC"), ("West", "SIDE"), ("London", "CITY")}

    doc, info = read_corpus(path)
    assert not doc.ents and "overlap" in info.problems[0].message


def test_an_entity_of_a_part_of_a_token_is_missing_annotation(tmp_path: Path) -> None:
    body = (
        "#Text=the Londoner\n1-1\t0-3\tthe\tX\n1-2\t4-12\tLondoner\t_\n1-2.1\t4-10\tLondon\tLOC\n"
    )
    doc, info = read_corpus(write(tmp_path, body, SPAN))
    assert [token.text for token in doc] == ["the", "Londoner"]
    assert entities(doc) == [("the", "X")] and not doc[1].ent_iob_
    assert len(info.problems) == 1


def test_an_entity_without_a_value_is_missing_annotation(tmp_path: Path) -> None:
    path = write(tmp_path, TWO_SENTENCES.replace("Q84\tLOC", "Q84\t*"))
    doc, info = read_corpus(path)
    assert entities(doc) == [("Kim Lee", "PER")]
    assert [token.text for token in doc if not token.ent_iob_] == ["London"]
    (problem,) = info.problems
    # Four lines of the head, seven of the first sentence, `#Text`, and the token.
    assert problem.places == [f"{path}, line 13: 'London'"]


def test_values_and_texts_are_unescaped(tmp_path: Path) -> None:
    body = r"#Text=a\\b c" + "\n" + "1-1\t0-3\ta\\\\b\t" + r"\_\[1\]\|\->\\[7]" + "\t\n"
    body += "1-2\t4-5\tc\t" + r"\_\[1\]\|\->\\[7]|\*[8]" + "\t\n"
    doc, _ = read_corpus(write(tmp_path, body, SPAN), spans_key="sc")
    spans = {(span.text, span.label_) for span in doc.spans["sc"]}
    assert spans == {("a\\b c", "_[1]|->\\"), ("c", "*")}


def test_the_column_of_the_labels_can_be_named(tmp_path: Path) -> None:
    body = "#Text=Kim\n1-1\t0-3\tKim\tNNP\tPER\tA\n"
    layers = ["#T_SP=x.POS|PosValue", "#T_SP=webanno.custom.Span|kind|note"]
    path = write(tmp_path, body, *layers)
    for column in (5, -2):
        doc, _ = read_corpus(path, column=column)
        assert entities(doc) == [("Kim", "PER")]
    # Columns count from 1. The first three are the number, the offsets and the token.
    columns = re.escape("{4: 'POS.PosValue', 5: 'Span.kind', 6: 'Span.note'}, got None")
    with pytest.raises(
        CorpusError, match=f"note.tsv, line 1: expected .* `tag_column`, .*{columns}"
    ):
        read_corpus(path)
    with pytest.raises(CorpusError, match=r"note.tsv, line 1: expected .* `tag_column`, .*got 7"):
        read_corpus(path, column=7)


LEMMA = "#T_SP=de.tudarmstadt.ukp.dkpro.core.api.segmentation.type.Lemma|value"
LEMMAS = "#Text=It may\n1-1\t0-2\tIt\tit\t\n1-2\t3-6\tmay\tmay\t\n"
"""A text that nobody has found an entity in, so that its file has no layer of them."""


def write_folder(folder: Path, *layers: str) -> None:
    """Write a file with these layers and an entity, and one with lemmas, which is read first."""
    write(folder, LEMMAS, LEMMA).rename(folder / "a.tsv")
    body = "#Text=Kim\n1-1\t0-3\tKim\tkim\tPER\n"
    write(folder, body, LEMMA, *layers).rename(folder / "b.tsv")


@pytest.mark.parametrize("feature", ["NamedEntity.value", "Span.value"])
@pytest.mark.parametrize("options", [{}, {"tag_column": True}])
def test_labels_are_of_the_same_layer_in_all_files(
    feature: str, options: dict[str, Any], tmp_path: Path
) -> None:
    layer = SPAN if feature == "Span.value" else NAMED_ENTITY.replace("|identifier", "")
    write_folder(tmp_path, layer)
    info = CorpusInfo()
    layer_option = feature.partition(".")[0] if options else None

    lemmas, kim = read_docs(NLP, tmp_path, ReadOptions(tag_column=layer_option), info)

    assert entities(kim) == [("Kim", "PER")]
    assert [token.ent_iob_ for token in lemmas] == ["", ""]
    assert info.problems[0].message == (
        f"files don't have {feature}, which other files have: their annotation is missing"
    )
    assert info.problems[0].places == [f"{tmp_path / 'a.tsv'}, line 1"]
    # A layer that the user has added is a guess, so it is said.
    (format_name,) = info.formats
    assert ("labels of Span.value" in format_name) == (feature == "Span.value")


def test_a_column_that_has_other_features_in_other_files_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, SPAN)
    lemmas, _ = read_docs(NLP, tmp_path, ReadOptions(column=4), CorpusInfo())
    assert entities(lemmas) == [("It", "it"), ("may", "may")]  # the same feature: it is followed
    with pytest.raises(CorpusError, match=r"got -1, which is Lemma.value in .*a.tsv, Span.value"):
        list(read_docs(NLP, tmp_path, ReadOptions(column=-1), CorpusInfo()))
    with pytest.raises(CorpusError, match=r"option `tag_column`.*5: 'Span.value'}, got Spam"):
        list(read_docs(NLP, tmp_path, ReadOptions(tag_column="Spam"), CorpusInfo()))


def test_lemmas_alone_are_no_entities(tmp_path: Path) -> None:
    doc, info = read_corpus(write(tmp_path, LEMMAS, LEMMA))
    assert [token.ent_iob_ for token in doc] == ["", ""]
    assert info.problems[0].message.startswith("files have no layer for labels")


def test_version_3_2_is_read(tmp_path: Path) -> None:
    """Its exports may have a column for relations, and no TAB at the end of lines."""
    path = write(
        tmp_path,
        "#Text=The [Red] Sox\n1-1\t0-3\tThe\t_\t_\t_\n1-2\t4-9\t\\[Red\\]\tORG[1]\t_\t_\n"
        "1-3\t10-13\tSox\tORG[1]\tof\t1-2[1_0]\n",
        NAMED_ENTITY.replace("|identifier", ""),
        "#T_RL=webanno.custom.Rel|kind|BT_de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity",
    )
    path.write_text(path.read_text().replace("TSV 3.3", "TSV 3.2"))
    doc, info = read_corpus(path)
    assert entities(doc) == [("[Red] Sox", "ORG")]
    assert info.formats == {"WebAnno TSV 3.2": 1} and not info.problems


# The head has four lines, and `#Text` is line 5: tokens are in lines 6 and 7.
MALFORMED: dict[str, tuple[str, int, str]] = {
    "another number of columns": ("1-1\t0-3\tKim\tPER\n", 6, "a token and 2 features, got"),
    "no offsets": ("1-1\tKim\t_\t_\n", 6, "a number, offsets, a token"),
    "many digits": (f"1-1\t0-{'9' * 5000}\tKim\t_\t_\n", 6, "a number, offsets, a token"),
    "an end before its start": ("1-1\t0-3\tKim\t_\t_\n1-2\t7-4\tLee\t_\t_\n", 7, "got 7-4"),
    "after the sentence": ("1-1\t0-3\tKim\t_\t_\n1-2\t4-70\tLee\t_\t_\n", 7, "ends at 7, got 4-70"),
    "another token": ("1-1\t0-3\tKim\t_\t_\n1-2\t4-7\tLea\t_\t_\n", 7, "expected 'Lea' at its"),
    "a bracket": ("1-1\t0-3\tKim\t_\t_\n1-2\t4-7\tLee\t_\tPER[x]\n", 7, "got 'PER[x]'"),
    "a null character": ("1-1\t0-3\tK\0m\t_\t_\n", 6, "got a null character"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_line_is_refused_by_file_and_line(case: str, tmp_path: Path) -> None:
    lines, number, message = MALFORMED[case]
    path = write(tmp_path, f"#Text=Kim Lee\n{lines}")
    with pytest.raises(CorpusError) as error:
        read_corpus(path)
    assert str(error.value).startswith(f"{path}, line {number}: ")
    assert message in str(error.value)


def test_a_word_without_a_token_and_sentences_out_of_order_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "#Text=Kim Lee\n1-1\t0-3\tKim\t_\t_\n")
    with pytest.raises(CorpusError, match=r"expected each word of the text.*got ' Lee'"):
        read_corpus(path)
    path = write(tmp_path, TWO_SENTENCES.replace("18-24", "8-14"))
    with pytest.raises(CorpusError, match="line 13: expected a sentence that begins at 17 or soon"):
        read_corpus(path)


def test_a_sentence_far_behind_the_one_before_is_refused(tmp_path: Path) -> None:
    """The blanks between them would take all memory."""
    offsets = f"{10**14}-{10**14 + 3}"
    path = write(tmp_path, f"#Text=Kim\n1-1\t{offsets}\tKim\t_\t_\n")
    with pytest.raises(CorpusError, match="line 6: expected a sentence that begins at 0 or soon"):
        read_corpus(path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "note.tsv"
    path.write_text("#FORMAT=WebAnno TSV 3.1\n")
    with pytest.raises(CorpusError, match=r"line 1: expected WebAnno TSV 3\.2 or 3\.3, got '3.1'"):
        read_corpus(path)


WORDS = st.text(st.sampled_from("aé\u0301😀𝔸ב\u200d語|[]_*\\;"), min_size=1, max_size=4)
SENTENCES = st.lists(st.lists(WORDS, min_size=1, max_size=4), min_size=1, max_size=4)


def escape(text: str) -> str:
    """A text as WebAnno writes it."""
    return re.sub(r"([\\\[\]|_;*])", r"\\\1", text)


@given(sentences=SENTENCES, data=st.data())
def test_each_token_and_entity_comes_back(
    sentences: list[list[str]], data: st.DataObject, tmp_path_factory: Any
) -> None:
    """Words of letters, emoji, combining marks, and what is escaped. Each word is in an entity with
    any label, which may go on to the next word, also of another sentence."""
    text = ""
    lines: list[str] = []
    expected: list[list[Any]] = []  # start, end, label
    for sentence_number, sentence in enumerate(sentences, start=1):
        lines += ["", f"#Text={escape(' '.join(sentence))}"]
        for word_number, word in enumerate(sentence, start=1):
            start = len(text)
            text += word
            if expected and data.draw(st.booleans()):
                expected[-1][1] = len(text)
            else:
                expected.append([start, len(text), data.draw(WORDS)])
            units = f"{utf16_length(text[:start])}-{utf16_length(text)}"
            value = f"{escape(expected[-1][2])}[{len(expected)}]"
            lines.append(f"{sentence_number}-{word_number}\t{units}\t{escape(word)}\t{value}\t")
            text += " "
    path = write(tmp_path_factory.mktemp("webanno"), "\n".join(lines), SPAN)

    doc, info = read_corpus(path)

    assert [[ent.start_char, ent.end_char, ent.label_] for ent in doc.ents] == expected
    assert [token.text for token in doc] == [word for sentence in sentences for word in sentence]
    assert [len(sent) for sent in doc.sents] == [len(sentence) for sentence in sentences]
    assert not info.problems
