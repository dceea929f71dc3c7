"""Sentences that become one doc by the id of their document."""

import json
from pathlib import Path
from typing import Any, List

import pytest
import spacy
from spacy.tokens import Doc, DocBin

from spacy_costner.readers import CorpusError, ReadOptions, make_reader, read_docs
from spacy_costner.readers.documents import attribute

from .support.commands import run

NLP = spacy.blank("en")
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


def written(path: Path, values: List[Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, values)), encoding="utf8")
    return path


def read(path: Path, **options: Any) -> List[Doc]:
    return list(read_docs(NLP, path, ReadOptions(**{"doc_id": "article", **options})))


def sentences(doc: Doc) -> List[str]:
    return [sent.text.strip() for sent in doc.sents]


@pytest.mark.filterwarnings("ignore:texts without annotation")
def test_texts_of_a_document(tmp_path: Path) -> None:
    """Each text is a sentence. Texts without an id are documents, each of its own. What isn't
    annotated stays so."""
    docs = read(written(tmp_path / "a.jsonl", TASKS))
    assert [doc.text for doc in docs] == ["Ana left. Rome. Ana", "Alone", "Alone again", "Oslo"]
    assert sentences(docs[0]) == ["Ana left.", "Rome. Ana"]
    assert [ent.text for ent in docs[0].ents] == ["Ana"] and not docs[0].has_unknown_spaces
    assert [token.ent_iob_ for token in docs[3]] == [""]
    assert [doc.user_data.get(attribute("article")) for doc in docs] == ["a", None, None, 7]
    assert len(list(read_docs(NLP, tmp_path / "a.jsonl"))) == 5


def test_tokens_and_tags_of_a_document(tmp_path: Path) -> None:
    docs = read(written(tmp_path / "a.jsonl", TAGGED))
    assert [sentences(doc) for doc in docs] == [["Ana left .", "Rome Ana"], ["Oslo"]]
    assert all(doc.has_unknown_spaces for doc in docs)
    assert [(ent.text, ent.label_) for doc in docs for ent in doc.ents] == [
        ("Ana", "PER"),
        ("Oslo", "LOC"),
    ]


def test_docs_of_a_document(tmp_path: Path) -> None:
    """Of .spacy files the id is an extension attribute; sentences and span groups stay."""
    docs = [Doc(NLP.vocab, words=words.split()) for words in ("a b", "c d", "e")]
    docs[1][1].is_sent_start = True
    docs[1].spans["wrong"] = [docs[1][:1]]
    for doc in docs[:2]:
        doc.user_data["._.", "article", None, None] = 1
    DocBin(docs=docs, store_user_data=True).to_disk(tmp_path / "a.spacy")
    first, second = read(tmp_path / "a.spacy")
    assert sentences(first) == ["a b", "c", "d"]
    assert [span.text for span in first.spans["wrong"]] == ["c"] and second.text.strip() == "e"


def test_examples_and_conversion(tmp_path: Path) -> None:
    """The reader of configs joins, too, and both docs of an example have the same text. What was
    converted is joined."""
    path = written(tmp_path / "a.jsonl", TASKS[:4])
    examples = list(make_reader(path, doc_id="article")(NLP))
    assert [eg.predicted.text for eg in examples] == [eg.reference.text for eg in examples]
    assert [len(list(eg.reference.sents)) for eg in examples[:1]] == [2]
    result = run("convert", path, tmp_path / "b.spacy", "--doc-id", "article")
    assert result.exit_code == 0 and "3 docs" in result.output
    assert [doc.text for doc in read_docs(NLP, tmp_path / "b.spacy")] == [
        eg.reference.text for eg in examples
    ]


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [*TASKS[:3], TASKS[0]])
    with pytest.raises(CorpusError, match=r"a\.jsonl.*one after another, got article 'a' again"):
        read(path)
    with pytest.raises(CorpusError, match="doc_id: expected texts with 'title', got none"):
        read(path, doc_id="title")
