"""Files of GLiNER, spaCy 2, Rasa and Hugging Face pipelines, and CSV."""

import csv
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc, Span
from spacy.training import docs_to_json

from spacy_costner.readers import CorpusError, CorpusInfo, ReadOptions, read_docs, read_texts

NLP = spacy.blank("xx")


def read_corpus(path: Path, **options: Any) -> tuple[list[Doc], CorpusInfo]:
    """The docs of a file, with options of `ReadOptions`, and what was reported."""
    info = CorpusInfo()
    return list(read_docs(NLP, path, ReadOptions(**options), info)), info


def letters(doc: Doc) -> str:
    """The IOB letters of a doc, "-" where annotation is missing."""
    return "".join("-IOB"[token.ent_iob] for token in doc)


GLINER = [
    {"tokenized_text": ["Kim", "left", "New", "York"], "ner": [[0, 0, "PER"], [2, 3, "LOC"]]},
    {"tokenized_text": ["Rain"], "ner": []},
    {"tokenized_text": ["Rain"]},
]
SPACY2 = [
    {
        "id": 0,
        "paragraphs": [
            {
                "raw": "Kim left  New York. Yes.",
                "sentences": [
                    {
                        "tokens": [
                            {"orth": "Kim", "ner": "U-PER", "head": 1, "dep": "nsubj"},
                            {"orth": "left", "ner": "O", "tag": "VBD"},
                            {"orth": "New", "ner": "B-LOC"},
                            {"orth": "York", "ner": "L-LOC"},
                            {"orth": ".", "ner": "-"},
                        ]
                    },
                    {"tokens": [{"orth": "Yes", "ner": "O"}, {"orth": ".", "ner": "O"}]},
                ],
            },
            {"sentences": [{"tokens": [{"orth": "Rain", "tag": "NN"}]}]},
        ],
    }
]
TRAIN_DATA = [["Kim left", {"entities": [[0, 3, "PER"]]}], ["Rain", {"entities": []}]]
RASA = {
    "rasa_nlu_data": {
        "regex_features": [],
        "common_examples": [
            {
                "text": "to New York",
                "intent": "go",
                "entities": [{"start": 3, "end": 11, "value": "NYC", "entity": "city"}],
            },
            {"text": "hello", "intent": "greet"},
        ],
    }
}
RASA_YAML = """version: "3.1"
nlu:
- intent: go
  examples: |
    - to [New York](city)
    - from [the capital]{"entity": "city", "value": "Oslo"} to [NYC](city:New York)
- intent: greet
  examples: |
    - hello
- synonym: New York
  examples: |
    - NYC
- lookup: city
  examples: |
    - Oslo
"""
RASA_MARKDOWN = """## intent:go
-to [New York](city:New York (NY))
- from [the capital]{"entity": "city", "value": "Oslo"} to [NYC](city:New York)

## intent:greet
- hello

## synonym:New York
- NYC
"""
PIPELINE = {
    "text": "Kim left",
    "entities": [{"entity_group": "PER", "score": 0.9, "word": "kim", "start": 0, "end": 3}],
}
KAGGLE = """Sentence #,Word,POS,Tag
Sentence: 1,Kim,NNP,B-per
,"left, then",VBD,O
Sentence: 2,New,NNP,B-geo
,York,NNP,I-geo
"""
LABEL_STUDIO = (
    "text,id,label,annotator,annotation_id,lead_time\n"
    '"😀 Kim, left",1,'
    '"[{""start"": 3, ""end"": 6, ""text"": ""Kim"", ""labels"": [""PER""]}]",3,1,2\n'
    "Rain,2,,3,2,1\n"
)
TEXTS_OF_RASA = ["to New York", "from the capital to NYC", "hello"]
LETTERS_OF_RASA = ["OBI", "OBIOB", "O"]

# The name of a file, its content, its format, the words of its docs and their IOB letters.
FILES: dict[str, tuple[str, str, list[str], list[str]]] = {
    "gliner.json": (
        json.dumps(GLINER), "GLiNER's training data", ["Kim left New York", "Rain", "Rain"],
        ["BOBI", "O", "-"],
    ),
    "gliner.jsonl": (
        "\n".join(map(json.dumps, GLINER)), "GLiNER's training data",
        ["Kim left New York", "Rain", "Rain"], ["BOBI", "O", "-"],
    ),
    "spacy2.json": (
        json.dumps(SPACY2), "spaCy 2's training data", ["Kim left   New York . Yes .", "Rain"],
        ["BOOBI-OO", "-"],
    ),
    "train_data.json": (json.dumps(TRAIN_DATA), "JSON of texts and spans", ["Kim left", "Rain"],
     ["BO", "O"]),
    "spans.json": (
        json.dumps([["Kim left", [[0, 3, "PER"]]], ["Rain", []]]), "JSON of texts and spans",
        ["Kim left", "Rain"], ["BO", "O"],
    ),
    "annotator.json": (
        json.dumps({"classes": ["PER"], "annotations": [*TRAIN_DATA, None]}),
        "spaCy 2's TRAIN_DATA", ["Kim left", "Rain"], ["BO", "O"],
    ),
    "rasa.json": (json.dumps(RASA), "Rasa's training data", ["to New York", "hello"],
     ["OBI", "O"]),
    "nlu.yml": (RASA_YAML, "Rasa's training data", TEXTS_OF_RASA, LETTERS_OF_RASA),
    "nlu.md": (RASA_MARKDOWN, "Rasa's training data", TEXTS_OF_RASA, LETTERS_OF_RASA),
    "pipeline.jsonl": (json.dumps(PIPELINE), "JSONL of texts and spans", ["Kim left"], ["BO"]),
    "kaggle.csv": (KAGGLE, "CSV of tokens and tags", ["Kim left, then", "New York"],
     ["BO", "BI"]),
    "semicolons.csv": (
        "Text;Pos;Ner\nKim;NNP;B-PER\n;;\nRain;NN;O\n", "CSV of tokens and tags", ["Kim", "Rain"],
        ["B", "O"],
    ),
    "no_header.csv": ("Kim,B-PER\nleft,O\n\nRain,O\n", "CSV of tokens and tags",
     ["Kim left", "Rain"], ["BO", "O"]),
    "studio.csv": (LABEL_STUDIO, "CSV of texts and spans", ["😀 Kim , left", "Rain"],
     ["OBOO", "-"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_of_other_programs_are_read(name: str, tmp_path: Path) -> None:
    content, format_name, words, expected = FILES[name]
    path = tmp_path / name
    path.write_text(content, encoding="utf8")

    docs, info = read_corpus(path)

    assert [" ".join(token.text for token in doc) for doc in docs] == words
    assert [letters(doc) for doc in docs] == expected
    assert [*info.formats] == [format_name]
    is_complete = "-" not in "".join(expected)
    assert not is_complete or not info.problems
    # Commands that annotate texts read them, too, without annotation.
    assert [doc.text for doc in read_texts(NLP, path)] == [doc.text for doc in docs]


def test_text_sentences_and_labels_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(SPACY2))
    (doc, _), _ = read_corpus(tmp_path)
    assert doc.text == "Kim left  New York. Yes."
    assert [sent.text for sent in doc.sents] == ["Kim left  New York.", "Yes."]
    assert [(ent.text, ent.label_) for ent in doc.ents] == [("Kim", "PER"), ("New York", "LOC")]


def test_a_table_without_sentences_is_one_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("token,tag\nKim,B-PER\nleft,O\n")
    (doc,), info = read_corpus(path)
    assert letters(doc) == "BO"
    assert "each is read as one sentence" in info.problems[0].message


def test_the_column_of_the_tags_of_a_table_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("token,outer,inner\nKim,B-PER,O\n\nleft,O,O\n")
    with pytest.raises(
        CorpusError, match=r"line 1: .*in the options `token_column` and `tag_column`, got"
    ):
        read_corpus(path)
    for column in (2, -2, "outer"):
        docs, _ = read_corpus(path, tag_column=column)
        assert [letters(doc) for doc in docs] == ["B", "O"]


@pytest.mark.parametrize("columns", [("Wort", "Marke"), (1, "marke"), ("wort", -1)])
def test_a_header_in_another_language_is_read_by_its_names(
    columns: tuple[int | str, int | str], tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("Wort,Satz,Marke\nKim,1,PER\nlebt,1,O\n")
    (doc,), _ = read_corpus(path, token_column=columns[0], tag_column=columns[1])
    assert [token.text for token in doc] == ["Kim", "lebt"] and letters(doc) == "BO"


def test_a_first_token_that_is_also_a_name_of_a_column_is_a_token(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("Word,O\nof,O\nOslo,LOC\n")
    (doc,), _ = read_corpus(path)
    assert [token.text for token in doc] == ["Word", "of", "Oslo"] and letters(doc) == "OOB"


REGION = {"start": 0, "end": 3, "text": "Kim", "labels": ["PER"]}
OTHER_REGION = {"start": 9, "end": 13, "text": "Oslo", "labels": ["LOC"]}


@pytest.mark.parametrize("controls", [("label", "place"), ("person", "place"), ("label", "labels")])
@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_spans_of_all_controls_of_label_studio_are_read(
    suffix: str, controls: tuple[str, str], tmp_path: Path
) -> None:
    path = tmp_path / f"a{suffix}"
    lists = dict(zip(controls, ([REGION], [OTHER_REGION])))
    record = {"text": "Kim left Oslo.", "id": 7, **lists, "annotator": 1, "annotation_id": 3}
    if suffix == ".json":
        path.write_text(json.dumps([record]))
    else:
        fields = [
            value if isinstance(value, str) else json.dumps(value) for value in record.values()
        ]
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([[*record], fields])
    (doc,), _ = read_corpus(path)
    assert letters(doc) == "BOBO"


def test_tokens_of_regions_without_a_label_are_missing_annotation(tmp_path: Path) -> None:
    """In Label Studio's JSON-MIN. A list in which no region has a label is no list of spans."""
    path = tmp_path / "a.json"
    unlabeled = {"start": 4, "end": 8, "text": "left"}
    record = {"text": "Kim left Oslo.", "id": 1, "annotation_id": 3}
    lists = {
        "ner": [REGION],
        "place": [OTHER_REGION, unlabeled],
        "sure": [{**REGION, "labels": []}],
    }
    path.write_text(json.dumps([{**record, **lists}]))
    (doc,), _ = read_corpus(path)
    assert letters(doc) == "B-BO"


def test_line_ends_of_a_text_in_a_table_count_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'text,id,label\r\n"x\r\ny\r\na b c",7,"[[6,7,""PER""]]"\r\n')
    (doc,), _ = read_corpus(path)
    assert doc.text == "x\r\ny\r\na b c"
    assert [ent.text for ent in doc.ents] == ["a"]


def test_a_text_of_rasa_can_have_several_entities(tmp_path: Path) -> None:
    """Entities with the same tokens can only be read as overlapping spans."""
    path = tmp_path / "nlu.yml"
    entities = '[{"entity": "city", "role": "to"}, {"entity": "place"}]'
    path.write_text(f"nlu:\n- intent: go\n  examples: |\n    - to [Oslo]{entities} now\n")
    (doc,), _ = read_corpus(path, spans_key="sc")
    assert doc.text == "to Oslo now"
    assert [(span.text, span.label_) for span in doc.spans["sc"]] == [
        ("Oslo", "city"),
        ("Oslo", "place"),
    ]


def test_annotations_of_one_text_in_a_table_are_merged(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    row = '"Kim left",1,"[{""start"": 0, ""end"": 3, ""labels"": [""%s""]}]"\n'
    path.write_text("text,id,label\n" + row % "PER" + row % "ORG")
    (doc,), info = read_corpus(path)
    assert letters(doc) == "-O" and "in several ways" in info.problems[0].message


# The name of a file, its content, the line of the error and a part of the message.
MALFORMED: dict[str, tuple[str, str, int, str]] = {
    "a word of a number": ("a.jsonl", '{"tokenized_text": ["a", 1], "ner": []}', 1, "words, got 1"),
    "a word too many": ("a.jsonl", '{"tokenized_text": ["a"], "ner": [[0, 1, "X"]]}', 1,
     "ner: expected the first and last of 1 words and a label, got [0, 1, 'X']"),
    "no label": ("a.jsonl", '{"tokenized_text": ["a"], "ner": [[0, 0, ""]]}', 1, "the label of a"),
    "another record": ("a.jsonl", '{"tokenized_text": ["a"], "ner": []}\n{"text": "a"}', 2,
     "expected a GLiNER example"),
    "no tokens": ("a.jsonl", '{"paragraphs": [{"sentences": [{}]}]}', 1, "tokens: expected a list"),
    "another word": (
        "a.jsonl", '{"paragraphs": [{"raw": "b", "sentences": [{"tokens": [{"orth": "a"}]}]}]}', 1,
        "raw: expected the token 'a', got 'b'"),
    "a tag of IOB": (
        "a.jsonl",
        '{"paragraphs": [{"sentences": [{"tokens": [{"orth": "a", "ner": "B-X"},'
        ' {"orth": "b", "ner": "O"}]}]}]}', 1, "ner: expected I- or L- after B- or I-, got 'O'"),
    "tags of tokens": ("a.jsonl",
     '{"text": "Kim", "entities": [{"entity": "B-PER", "start": 0, "end": 3}]}', 1,
     "entities with an aggregation_strategy"),
    "an entity of Rasa": ("a.json", '{"rasa_nlu_data": {"common_examples": [{"text": "a",'
     ' "entities": [{"start": 0, "end": 9, "entity": "x"}]}]}}', 1, "a text of 1 characters"),
    "no YAML": ("a.yml", "nlu:\n- intent: [\n", 1, "expected YAML"),
    "an object of Rasa": (
        "a.yml", "nlu:\n- intent: a\n  examples: |\n    - hi\n    - a [b]{c}\n", 5,
     "expected entities as JSON objects, got '[{c}]'"),
    "no entity of Rasa": ("a.yml", "nlu:\n- intent: a\n  examples: |\n    - a [b]](c)\n", 4,
     "expected entities such as [Oslo](city), got 'a [b]](c)'"),
    "no example of Rasa": ("a.yml", "nlu:\n- intent: a\n  examples: |\n    hi\n", 1,
     "expected lines that begin with -, got 'hi'"),
    "no examples": ("a.yml", "nlu:\n- intent: a\n", 1, "lines that begin with -, got None"),
    "fewer fields": ("a.csv", "token,tag\nKim,B-PER\nleft\n", 3, "expected 2 fields, got 1"),
    "an open quote": ("a.csv", 'token,tag\nKim,"B-PER\nleft,O\n', 3, "expected CSV: unexpected"),
    "tokens that are quotes": (
        "a.csv", 'Word;Tag\nHe;O\n";O\nOslo;B-LOC\n";O\n.;O\n', 5,
     "expected fields without line breaks, and a quote written as \"\"\"\", got ';O\\nOslo;B-LOC"),
    "parts of speech that are quotes": (
        "a.csv", 'Word,POS,Tag\nHe,",O\nOslo,NNP,B-LOC\nx,",O\n', 4, "fields without line breaks"),
    "a header alone": ("a.csv", "token,tag\n", 1, "expected a header and rows below it"),
    "no tag": ("a.csv", "token,tag\nKim,PER\nOslo,\n", 3, "expected a tag, or - if it is missing"),
    "a header or a token": ("a.csv", "mot,classe\nKim,PER\nest,O\n", 1,
     "`token_column` and `tag_column`, got ['mot', 'classe']"),
    "names of sentences": ("a.csv", "1,Kim,PER\n1,lebt,O\n1,in,O\n1,Oslo,PER\n", 1,
     "expected the first column to have tokens, or to number the tokens of each sentence"),
    "no token": ("a.csv", "token,tag\nKim,O\n,O\n", 3, "expected a token, got ['', 'O']"),
    "spans that aren't JSON": (
        "a.csv", 'text,label\nKim,"[[0, 3, ""PER""]]"\nLee,PER\n', 3,
        "label: expected spans, got 'PER'"),
    "no text": ("a.csv", 'body,label\nKim,"[[0, 3, ""PER""]]"\n', 1, "expected a column 'text'"),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_file_is_refused_by_its_line(case: str, tmp_path: Path) -> None:
    name, content, line, message = MALFORMED[case]
    path = tmp_path / name
    path.write_text(content, encoding="utf8")
    with pytest.raises(CorpusError) as error:
        read_corpus(path)
    assert str(error.value).startswith(f"{path}, line {line}: ")
    assert message in str(error.value)


WORDS = st.lists(st.sampled_from(["Kim", "é", "😀", '"', ",", "O", "x-y"]), min_size=1, max_size=6)
FORMATS = ["docs_to_json", "gliner", "csv"]


def written(doc: Doc, format_name: str, path: Path) -> Path:
    """Write a doc as spaCy, GLiNER's users and Python's csv do. RETURNS (Path): The file."""
    if format_name == "csv":
        path = path.with_suffix(".csv")
        with path.open("w", encoding="utf8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["sentence", "word", "tag"])
            for token in doc:
                tag = f"{token.ent_iob_}-{token.ent_type_}" if token.ent_type else "O"
                writer.writerow([1, token.text, tag])
        return path
    record: Any = docs_to_json([doc])
    if format_name == "gliner":
        entities = [[ent.start, ent.end - 1, ent.label_] for ent in doc.ents]
        record = {"tokenized_text": [token.text for token in doc], "ner": entities}
    path.write_text(json.dumps(record))
    return path


@given(words=WORDS, data=st.data())
def test_what_others_write_is_read_as_it_was(
    words: list[str], data: st.DataObject, tmp_path_factory: Any
) -> None:
    spaces = data.draw(st.lists(st.booleans(), min_size=len(words), max_size=len(words)))
    sent_starts = [i == 0 for i in range(len(words))]
    doc = Doc(NLP.vocab, words=words, spaces=spaces, sent_starts=sent_starts)
    borders = sorted(data.draw(st.sets(st.integers(0, len(words)), max_size=5)))
    labels = st.sampled_from(["PER", "my-label"])
    doc.set_ents([Span(doc, a, b, label=data.draw(labels)) for a, b in pairwise(borders)])
    folder = tmp_path_factory.mktemp("docs")
    for format_name in FORMATS:
        (doc_read,), info = read_corpus(written(doc, format_name, folder / "a.json"))
        attrs = ["ORTH", "ENT_IOB", "ENT_TYPE"]
        if format_name == "docs_to_json":  # the others don't know where spaces were
            attrs.append("SPACY")
        assert (doc_read.to_array(attrs) == doc.to_array(attrs)).all()
        assert not info.problems
