"""Probabilities of docs whose tokens are merged or split afterwards, judged by characters; and of
several components in one pipeline."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from hypothesis import given
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from spacy.vocab import Vocab

from spacy_costner.analysis.annotating import annotate, span_lists_of, to_record
from spacy_costner.pipeline.annotations import prob_of, warn_once
from spacy_costner.pipeline.promises import Thresholds
from spacy_costner.readers.texts import TextRow
from spacy_costner.spans import Place, read_group, realign, replace_spans, spans_with_scores

from .support.linear import VOCAB, crf
from .support.pipelines import TEXTS, examples, load, pipeline, promise_of
from .support.strategies import seeds

CONFIDENCE = {"@misc": "spacy_costner.Confidence.v1", "alternatives": 0.05}
TEXT = "Khan likes the Red Sox of London and Berlin.\nWho is Shaka Khan?"
COLUMNS = ("start_char", "end_char", "label")


@pytest.fixture(scope="module")
def nlp(unsure: Path) -> Language:
    """It writes predicted entities, alternatives and a guaranteed set."""
    nlp = load(unsure, confidence=CONFIDENCE)
    nlp.get_pipe("ner").set_guarantee(promise_of({"": Thresholds(0.01, {})}, miss=0.1))
    return nlp


@pytest.fixture
def warnings_anew() -> Iterator[None]:
    warn_once.cache_clear()
    yield
    warn_once.cache_clear()


def place_of(span: Span) -> Place:
    return span.start_char, span.end_char, span.label_


def probs_by_place(doc: Doc) -> dict[Place, float]:
    """The probabilities of all groups of a doc whose tokens are as they were."""
    probs = {}
    for group in doc.spans.values():
        for span, prob in zip(group, group.attrs["scores"]):
            probs[place_of(span)] = float(prob)
    return probs


def retokenize(doc: Doc, rng: numpy.random.Generator) -> None:
    """Merge and split tokens at random."""
    with doc.retokenize() as retokenizer:
        i = 0
        while i < len(doc):
            n_tokens = int(rng.integers(1, 4))
            action = rng.choice(["keep", "merge", "split"])
            text = doc[i].text
            if action == "merge" and i + n_tokens <= len(doc):
                retokenizer.merge(doc[i : i + n_tokens])
            elif action == "split" and len(text) > 1:
                cut = int(rng.integers(1, len(text)))
                retokenizer.split(doc[i], [text[:cut], text[cut:]], [(doc[i], 0), (doc[i], 0)])
                n_tokens = 1
            i += n_tokens
    try:
        _ = doc.ents
    except ValueError:  # E093: spaCy may leave an entity without its begin
        doc.set_ents([])


@given(seeds)
def test_random_tokens(nlp: Language, rng: numpy.random.Generator) -> None:
    """Every span with every label has its own probability, or None."""
    doc = nlp(TEXT)
    probs = probs_by_place(doc)
    answer = to_record((TextRow("1", TEXT, None), doc), span_lists_of(nlp), False)
    by_name = {name: answer[name] for name in ("alternatives", "guaranteed")}
    assert all(by_name.values())
    for _ in range(rng.integers(1, 3)):
        retokenize(doc, rng)
    for begin in range(len(doc)):
        for end in range(begin + 1, len(doc) + 1):
            for label in ("LOC", "PERSON", "sports-team"):
                span = Span(doc, begin, end, label=label)
                assert span._.confidence == probs.get(place_of(span)), doc
    answer = to_record((TextRow("1", TEXT, None), doc), span_lists_of(nlp), False)
    assert {name: answer[name] for name in by_name} == by_name
    for ent in answer["entities"]:
        assert ent["score"] == probs.get((ent["start"], ent["end"], ent["label"]))
    # What can be stored has the same tokens as the doc.
    realign(doc)
    for key, group in doc.spans.items():
        texts = [TEXT[span.start_char : span.end_char] for span in group]
        assert [span.text for span in group] == texts, key
    again = next(DocBin(docs=[doc]).get_docs(Vocab()))
    for span in again.ents:
        assert prob_of(span) == probs.get(place_of(span))


@given(seeds)
def test_docs_of_0_3(nlp: Language, rng: numpy.random.Generator) -> None:
    """They have no characters in their attributes: a probability is right, or None."""
    doc = nlp(TEXT)
    probs = probs_by_place(doc)
    for group in doc.spans.values():
        for name in COLUMNS:
            del group.attrs[name]
    assert {ent._.confidence for ent in doc.ents} == {probs[place_of(ent)] for ent in doc.ents}
    retokenize(doc, rng)
    for ent in doc.ents:
        assert ent._.confidence in (None, probs.get(place_of(ent)))


def test_shift_of_merged_docs(nlp: Language, tmp_path: Path) -> None:
    ner: Any = load_with_scores(nlp, tmp_path)
    docs = [*ner.pipe([nlp.make_doc(text) for text in [*TEXTS[:3], TEXT]])]
    expected = ner.shift(docs)
    for doc in docs:
        merge_entities = nlp.create_pipe("merge_entities")
        merge_entities(doc)
    found = ner.shift(docs)
    assert found.scores.tolist() == expected.scores.tolist() and found.counts == expected.counts
    docs[0].spans["confidence"].attrs["scores"] = None
    with pytest.raises(ValueError, match=r"doc.spans\['confidence'\].attrs and its scores"):
        ner.shift(docs)
    with pytest.raises(ValueError, match=r"docs: expected several docs, as \[doc\], got a Doc"):
        ner.shift(docs[1])
    with pytest.raises(ValueError, match=r"docs: expected several docs, as \[doc\], got a Doc"):
        ner.posterior(docs[1])


def load_with_scores(nlp: Language, path: Path) -> Any:
    nlp.to_disk(path)
    ner: Any = spacy.load(path).get_pipe("ner")
    doc = nlp.make_doc(TEXT)
    ner.set_shift([doc] * 2, numpy.asarray([0.5, 0.25]), "test", approximate=False)
    return ner


@pytest.mark.parametrize("form", ["jsonl", "spacy"])
def test_annotate_with_merged_entities(unsure: Path, tmp_path: Path, form: Any) -> None:
    """The entities of the output are those of a pipeline that doesn't merge."""
    nlp = load(unsure, confidence=CONFIDENCE)
    texts = [TEXT, *TEXTS[:3]]
    expected = [(ent.text, ent._.confidence) for doc in nlp.pipe(texts) for ent in doc.ents]
    nlp.add_pipe("merge_entities")
    nlp.to_disk(tmp_path / "model")
    rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "in.jsonl").write_text(rows)
    done = annotate(tmp_path / "model", [tmp_path / "in.jsonl"], tmp_path / "out", form=form)
    assert not done.failed and not done.errors
    (path,) = (tmp_path / "out").glob(f"in.jsonl-*.{form}")
    found = []
    if form == "spacy":
        for doc in DocBin().from_disk(path).get_docs(nlp.vocab):
            assert [*doc.spans["confidence"]] == [*doc.ents]
            found += [(ent.text, ent._.confidence) for ent in doc.ents]
    else:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found += [(row["text"][e["start"] : e["end"]], e["score"]) for e in row["entities"]]
    assert [text for text, _ in found] == [text for text, _ in expected]
    assert [p for _, p in found] == pytest.approx([p for _, p in expected], abs=1e-5)


def test_scorer_of_merged_docs(unsure: Path) -> None:
    scorer = {"@scorers": "spacy_costner.confidence_scorer.v1"}
    nlp = load(unsure, confidence=CONFIDENCE, scorer=scorer)
    expected = nlp.evaluate(examples(nlp))["ents_ece"]
    nlp.add_pipe("merge_entities")
    assert expected > 0
    assert nlp.evaluate(examples(nlp))["ents_ece"] == pytest.approx(expected, abs=1e-5)


# Groups that others write to


def test_scores_may_be_none(nlp: Language, warnings_anew: None) -> None:
    doc = nlp(TEXT)
    for group in doc.spans.values():
        group.attrs["scores"] = None
    assert [ent._.confidence for ent in doc.ents] == [None] * len(doc.ents)
    answer = to_record((TextRow("1", TEXT, None), doc), span_lists_of(nlp), False)
    assert [ent["score"] for ent in answer["entities"]] == [None] * len(doc.ents)
    replace_spans(doc, "confidence", [], None, ["LOC"])
    scores = doc.spans["confidence"].attrs["scores"]
    assert len(scores) and numpy.isnan(scores).all()


def test_spans_of_others_move_with_the_tokens(nlp: Language) -> None:
    doc = nlp.make_doc("a b c d e")
    spans = [Span(doc, 0, 2, "X", kb_id="Q1"), Span(doc, 3, 5, "Y"), Span(doc, 1, 3, "Z")]
    doc.spans["sc"] = SpanGroup(doc, spans=spans, attrs={"scores": [0.5, 0.25, 0.75]})
    replace_spans(doc, "sc", [], None, ["OURS"])  # which adds the characters
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[0:2])
    replace_spans(doc, "sc", [Span(doc, 1, 2, "OURS")], numpy.asarray([0.9]), ["OURS"])
    group = doc.spans["sc"]
    found = [
        (span.text, span.label_, span.kb_id_, score) for span, score in spans_with_scores(group)
    ]
    # Z begins within a token. Y lost its place beyond the end of the doc, and has it again.
    assert found == [("a b", "X", "Q1", 0.5), ("c", "OURS", "", 0.9), ("d e", "Y", "", 0.25)]
    assert [span.text for span in group] == ["a b", "c", "d e"]
    group.append(Span(doc, 3, 4, "THEIRS"))
    added = read_group(group)[-1]
    assert (added.label, len(read_group(group))) == ("THEIRS", 4) and numpy.isnan(added.score)
    assert read_group(group)[1].score == 0.9


# Several components


def two_in_one(path: Path, **settings: Any) -> Language:
    """A pipeline with two components, of which the second finds what the first left."""
    nlp = load(path, **settings)
    nlp.get_pipe("ner").cfg["decoding"]["labels"]["LOC"] = -50.0
    other = spacy.load(path, vocab=nlp.vocab, config={"components": {"ner": settings}})
    nlp.add_pipe("ner", name="es", source=other)
    return nlp


def test_two_components_have_keys_of_their_own(unsure: Path, warnings_anew: None) -> None:
    nlp = two_in_one(unsure, confidence=CONFIDENCE)
    with pytest.warns(UserWarning, match=r"es: doc.spans\['confidence'\] has .* of 'ner'") as said:
        docs = [*nlp.pipe([TEXT, *TEXTS])]
    assert len(said) == 1
    n_found = [0, 0]
    for doc in docs:
        for i, key in enumerate(("confidence", "confidence_es")):
            group = doc.spans[key]
            n_found[i] += len(group)
            scores = group.attrs["scores"].tolist()
            assert [span._.confidence for span in group] == scores and key == group.name
        assert all(ent._.confidence is not None for ent in doc.ents)
        assert "confidence_es_alternatives" in doc.spans
    assert all(n_found), "both components find entities"
    docs = [*nlp.pipe([TEXT, *TEXTS])]  # said once
    # A doc that is predicted again has the same keys.
    assert sorted(nlp(nlp.make_doc(TEXT)).spans) == sorted(docs[0].spans)
    by_place: dict[Any, Any] = {}
    answer = to_record((TextRow("1", TEXT, None), docs[0]), span_lists_of(nlp), False)
    for ent in answer["entities"]:
        by_place[ent["start"], ent["end"], ent["label"]] = ent["score"]
    assert by_place == {place_of(ent): ent._.confidence for ent in docs[0].ents}
    listed = [(span["start"], span["end"], span["label"]) for span in answer["alternatives"]]
    expected = [place_of(x) for x in docs[0].spans["confidence_alternatives"]]
    expected += [place_of(x) for x in docs[0].spans["confidence_es_alternatives"]]
    assert listed == expected


def test_shift_and_scores_of_the_second_component(unsure: Path, warnings_anew: None) -> None:
    nlp = two_in_one(unsure, confidence=CONFIDENCE)
    second: Any = nlp.get_pipe("es")
    scores = numpy.asarray([0.5, 0.25])
    for name in ("ner", "es"):
        ner: Any = nlp.get_pipe(name)
        ner.set_shift([nlp.make_doc(TEXT)] * 2, scores, "test", approximate=False)
    with pytest.warns(UserWarning, match="es: doc.spans"):
        docs = [*nlp.pipe(TEXTS[:3])]
    entropies = [doc.spans["confidence_es"].attrs["entropy"] for doc in docs]
    found = second.shift(docs).scores.tolist()
    assert found == pytest.approx([e for e in entropies if not numpy.isnan(e)], rel=1e-3)


# Docs of other vocabs, and settings


def test_docs_of_other_vocabs(unsure: Path) -> None:
    """They are predicted as others are, also in one batch with them."""
    nlp = load(unsure, confidence=CONFIDENCE, sentence_boundaries=True)
    words = [token.text for token in nlp.make_doc(TEXT)]
    expected = nlp(Doc(nlp.vocab, words=words))
    assert expected.ents and "\n" in words
    vocabs = [spacy.blank("xx").vocab for _ in range(2)]
    docs = [Doc(vocab, words=words) for vocab in (vocabs[0], nlp.vocab, vocabs[1])]
    docs.append(Doc(vocabs[1], words=["\r\n", *words]))
    for doc in [*nlp.pipe(docs), nlp(Doc(spacy.blank("xx").vocab, words=words))]:
        assert [ent.label_ for ent in doc.ents] == [ent.label_ for ent in expected.ents]
        found = [ent._.confidence for ent in doc.ents]
        assert found == pytest.approx([ent._.confidence for ent in expected.ents], abs=1e-4)


def test_new_words_of_other_vocabs() -> None:
    """Sparse features look up each word in the vocab of a doc that has it."""
    words = [["a", "b"], ["unheard", "b"], ["of"]]
    docs = [Doc(spacy.blank("xx").vocab, words=of_doc) for of_doc in words]
    model = crf()
    model.attrs["build_vocab"](model, [Doc(VOCAB, words=of_doc) for of_doc in words])
    found = model.predict(docs).emissions
    expected = [model.predict([Doc(VOCAB, words=of_doc)]).emissions for of_doc in words]
    numpy.testing.assert_allclose(found, numpy.concatenate(expected))


@pytest.mark.parametrize("setting", ["token", "example"])
def test_weights_name_an_extension(setting: str) -> None:
    weights = {"@misc": "spacy_costner.Weights.v1", setting: "nowhere"}
    loss = {"@losses": "spacy_costner.Pointwise.v1"}
    nlp = pipeline(weights=weights, loss=loss)
    batch = examples(nlp)
    nlp.initialize(lambda: batch)
    with pytest.raises(ValueError, match=f"{setting}: expected the name of an .*'nowhere'"):
        nlp.update(batch)


@pytest.mark.parametrize("labels", [["NOPE"], ["LOC", "NOPE"], []])
def test_own_labels_are_labels(unsure: Path, labels: list[str]) -> None:
    """In training, and when a trained pipeline is loaded."""
    message = r"ner: .*own_labels: expected"
    with pytest.raises(ValueError, match=message):
        nlp = pipeline(spans_key="sc", own_labels=labels)
        nlp.initialize(lambda: examples(nlp))
    with pytest.raises(ValueError, match=message):
        load(unsure, spans_key="sc", own_labels=labels)
