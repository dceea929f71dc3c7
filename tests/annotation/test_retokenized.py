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

from spacy_costner.annotation.span_groups import (
    Place,
    read_group,
    realign,
    replace_spans,
    score_of,
    spans_with_scores,
)
from spacy_costner.pipeline.confidence import prob_of, warn_once
from spacy_costner.pipeline.promises import Thresholds
from spacy_costner.readers.file_parts import TextRow
from spacy_costner.workflows.apply.annotating import annotate
from spacy_costner.workflows.apply.records import span_lists_of, to_record

from ..support.linear import VOCAB, crf
from ..support.pipelines import TEXTS, examples, load, pipeline, promise_of
from ..support.strategies import seeds
from ..support.vocabs import blank_vocab

CONFIDENCE = {"@misc": "spacy_costner.Confidence.v1", "alternatives": 0.05}
CHARACTERS = ("start_char", "end_char", "label")
"""Attributes of a group: where its spans were in the text when they were predicted."""

TEXT = "Khan likes the Red Sox of London and Berlin.\nWho is Shaka Khan?"


@pytest.fixture(scope="module")
def nlp(unsure: Path) -> Language:
    """A pipeline that writes predicted entities, alternatives and a guaranteed set."""
    nlp = load(unsure, confidence=CONFIDENCE)
    nlp.get_pipe("ner").set_guarantee(promise_of({"": Thresholds(0.01, {})}, miss=0.1))
    return nlp


@pytest.fixture
def warnings_anew() -> Iterator[None]:
    """Warnings that are given once are given again in this test."""
    warn_once.cache_clear()
    yield
    warn_once.cache_clear()


def place_of(span: Span) -> Place:
    """First character, last character + 1, label."""
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


def record_of(nlp: Language, doc: Doc) -> dict[str, Any]:
    """The record that `annotate` writes of a doc, with "entities", "alternatives" and
    "guaranteed"."""
    return to_record((TextRow("1", TEXT, None), doc), span_lists_of(nlp), False)


def retokenized_doc(nlp: Language, rng: numpy.random.Generator) -> tuple[Doc, dict[Place, float]]:
    """A predicted doc after one or two random retokenizations; and its probabilities before."""
    doc = nlp(TEXT)
    probs = probs_by_place(doc)
    for _ in range(rng.integers(1, 3)):
        retokenize(doc, rng)
    return doc, probs


@given(seeds)
def test_a_span_of_other_tokens_has_the_probability_of_its_characters(
    nlp: Language, rng: numpy.random.Generator
) -> None:
    """Or None, where no span with these characters and this label was predicted."""
    doc, probs = retokenized_doc(nlp, rng)

    for begin in range(len(doc)):
        for end in range(begin + 1, len(doc) + 1):
            for label in ("LOC", "PERSON", "sports-team"):
                span = Span(doc, begin, end, label=label)
                assert span._.confidence == probs.get(place_of(span)), doc


@given(seeds)
def test_annotate_writes_the_same_spans_of_other_tokens(
    nlp: Language, rng: numpy.random.Generator
) -> None:
    """Entities are those of the doc, which may have lost some with its tokens."""
    before = record_of(nlp, nlp(TEXT))
    assert before["alternatives"] and before["guaranteed"]
    doc, probs = retokenized_doc(nlp, rng)

    after = record_of(nlp, doc)

    assert after["alternatives"] == before["alternatives"]
    assert after["guaranteed"] == before["guaranteed"]
    for ent in after["entities"]:
        assert ent["score"] == probs.get((ent["start"], ent["end"], ent["label"]))


@given(seeds)
def test_a_realigned_doc_can_be_stored(nlp: Language, rng: numpy.random.Generator) -> None:
    """A DocBin stores the tokens of spans: after `realign` they are those of the characters."""
    doc, probs = retokenized_doc(nlp, rng)

    realign(doc)

    for key, group in doc.spans.items():
        texts = [TEXT[span.start_char : span.end_char] for span in group]
        assert [span.text for span in group] == texts, key
    stored_doc = next(DocBin(docs=[doc]).get_docs(Vocab()))
    for ent in stored_doc.ents:
        assert prob_of(ent) == probs.get(place_of(ent))


@pytest.fixture
def ner_with_scores(nlp: Language, tmp_path: Path) -> Any:
    """A component with calibration scores, as `shift` needs."""
    nlp.to_disk(tmp_path)
    ner: Any = spacy.load(tmp_path).get_pipe("ner")
    doc = nlp.make_doc(TEXT)
    ner.set_shift([doc] * 2, numpy.asarray([0.5, 0.25]), "test", approximate=False)
    return ner


def test_shift_is_the_same_after_merge_entities(nlp: Language, ner_with_scores: Any) -> None:
    docs = [*ner_with_scores.pipe([nlp.make_doc(text) for text in [*TEXTS[:3], TEXT]])]
    before = ner_with_scores.shift(docs)
    merge_entities = nlp.create_pipe("merge_entities")
    for doc in docs:
        merge_entities(doc)

    after = ner_with_scores.shift(docs)

    assert after.scores.tolist() == before.scores.tolist()
    assert after.counts == before.counts


def test_shift_refuses_docs_without_scores(nlp: Language, ner_with_scores: Any) -> None:
    doc = ner_with_scores(nlp.make_doc(TEXT))
    doc.spans["confidence"].attrs["scores"] = None

    with pytest.raises(ValueError, match=r"doc.spans\['confidence'\].attrs and its scores"):
        ner_with_scores.shift([doc])


@pytest.mark.parametrize("method", ["shift", "posterior"])
def test_methods_of_docs_refuse_a_single_doc(
    method: str, nlp: Language, ner_with_scores: Any
) -> None:
    doc = ner_with_scores(nlp.make_doc(TEXT))

    with pytest.raises(ValueError, match=r"docs: expected several docs, as \[doc\], got a Doc"):
        getattr(ner_with_scores, method)(doc)


@pytest.mark.parametrize("form", ["jsonl", "spacy"])
def test_annotate_writes_the_same_entities_after_merge_entities(
    unsure: Path, tmp_path: Path, form: Any
) -> None:
    nlp = load(unsure, confidence=CONFIDENCE)
    texts = [TEXT, *TEXTS[:3]]
    ents = [ent for doc in nlp.pipe(texts) for ent in doc.ents]
    expected_texts = [ent.text for ent in ents]
    expected_probs = [ent._.confidence for ent in ents]
    nlp.add_pipe("merge_entities")
    nlp.to_disk(tmp_path / "model")
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "in.jsonl").write_text(lines)

    summary = annotate(tmp_path / "model", [tmp_path / "in.jsonl"], tmp_path / "out", form=form)

    assert (summary.failed, summary.errors) == (0, {})
    (output_path,) = (tmp_path / "out").glob(f"in.jsonl-*.{form}")
    read_entities = entities_in_docbin if form == "spacy" else entities_in_jsonl
    entities = read_entities(output_path)
    assert [text for text, _ in entities] == expected_texts
    assert [prob for _, prob in entities] == pytest.approx(expected_probs, abs=1e-5)


def entities_in_docbin(path: Path) -> list[tuple[str, float]]:
    """The texts of entities and their probabilities; they have to be the group as well."""
    entities = []
    for doc in DocBin().from_disk(path).get_docs(Vocab()):
        assert [*doc.spans["confidence"]] == [*doc.ents]
        entities += [(ent.text, ent._.confidence) for ent in doc.ents]
    return entities


def entities_in_jsonl(path: Path) -> list[tuple[str, float]]:
    """The texts of entities and their probabilities."""
    entities = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        for ent in record["entities"]:
            entities.append((record["text"][ent["start"] : ent["end"]], ent["score"]))
    return entities


def test_the_calibration_error_is_the_same_after_merge_entities(unsure: Path) -> None:
    scorer = {"@scorers": "spacy_costner.confidence_scorer.v1"}
    nlp = load(unsure, confidence=CONFIDENCE, scorer=scorer)
    expected = nlp.evaluate(examples(nlp))["ents_ece"]
    assert expected > 0

    nlp.add_pipe("merge_entities")

    assert nlp.evaluate(examples(nlp))["ents_ece"] == pytest.approx(expected, abs=1e-5)


# Groups that others write to


def test_entities_have_no_confidence_where_scores_are_none(nlp: Language) -> None:
    doc = nlp(TEXT)
    for group in doc.spans.values():
        group.attrs["scores"] = None

    assert doc.ents
    assert [ent._.confidence for ent in doc.ents] == [None] * len(doc.ents)
    scores = [ent["score"] for ent in record_of(nlp, doc)["entities"]]
    assert scores == [None] * len(doc.ents)


def test_spans_whose_scores_were_none_have_nan_when_others_are_replaced(nlp: Language) -> None:
    doc = nlp(TEXT)
    doc.spans["confidence"].attrs["scores"] = None

    replace_spans(doc, "confidence", [], None, ["LOC"])

    scores = doc.spans["confidence"].attrs["scores"]
    assert len(scores) and numpy.isnan(scores).all()


def test_spans_of_others_move_with_the_tokens(nlp: Language) -> None:
    doc = nlp.make_doc("a b c d e")
    spans = [Span(doc, 0, 2, "X", kb_id="Q1"), Span(doc, 3, 5, "Y"), Span(doc, 1, 3, "Z")]
    doc.spans["sc"] = SpanGroup(doc, spans=spans, attrs={"scores": [0.5, 0.25, 0.75]})
    replace_spans(doc, "sc", [], None, ["OURS"])  # which notes the characters of the spans

    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[0:2])
    replace_spans(doc, "sc", [Span(doc, 1, 2, "OURS")], numpy.asarray([0.9]), ["OURS"])

    group = doc.spans["sc"]
    rows = []
    for span, score in spans_with_scores(group):
        rows.append((span.text, span.label_, span.kb_id_, score))
    # Z is left out: it begins within the merged token. The tokens of Y were beyond the end of the
    # shorter doc, its characters are not.
    assert rows == [("a b", "X", "Q1", 0.5), ("c", "OURS", "", 0.9), ("d e", "Y", "", 0.25)]
    assert [span.text for span in group] == ["a b", "c", "d e"]


def test_a_span_that_others_append_has_no_score(nlp: Language) -> None:
    doc = nlp.make_doc("a b c")
    replace_spans(doc, "sc", [Span(doc, 1, 2, "OURS")], numpy.asarray([0.9]), ["OURS"])

    doc.spans["sc"].append(Span(doc, 2, 3, "THEIRS"))

    scored_span, appended_span = read_group(doc.spans["sc"])
    assert (scored_span.label, scored_span.score) == ("OURS", 0.9)
    assert appended_span.label == "THEIRS"
    assert numpy.isnan(appended_span.score)


def test_a_span_that_others_replace_loses_its_score(nlp: Language) -> None:
    """The group still has as many spans as scores."""
    doc = nlp.make_doc("a b c")
    replace_spans(doc, "sc", [Span(doc, 1, 2, "OURS")], numpy.asarray([0.9]), ["OURS"])

    doc.spans["sc"][0] = Span(doc, 2, 3, "THEIRS")

    (read_span,) = read_group(doc.spans["sc"])
    assert read_span.place == (4, 5, "THEIRS")  # the characters of "c"
    assert numpy.isnan(read_span.score)
    ((span, score),) = spans_with_scores(doc.spans["sc"])
    assert span.text == "c"
    assert numpy.isnan(score)


def test_a_span_without_a_score_has_none_rather_than_nan(nlp: Language) -> None:
    doc = nlp.make_doc("a b c")
    doc.spans["sc"] = [Span(doc, 0, 1, "THEIRS")]
    replace_spans(doc, "sc", [Span(doc, 1, 2, "OURS")], numpy.asarray([0.9]), ["OURS"])

    assert score_of(doc.spans["sc"], (0, 1, "THEIRS")) is None
    assert score_of(doc.spans["sc"], (2, 3, "OURS")) == 0.9


# Several components


@pytest.fixture
def nlp_of_two(unsure: Path, warnings_anew: None) -> Language:
    """A pipeline with the components "ner" and "es", of which the second finds what the first
    left: LOC, that the first doesn't predict because of its bias."""
    nlp = load(unsure, confidence=CONFIDENCE)
    nlp.get_pipe("ner").cfg["decoding"]["labels"]["LOC"] = -50.0
    settings = {"confidence": CONFIDENCE}
    other = spacy.load(unsure, vocab=nlp.vocab, config={"components": {"ner": settings}})
    nlp.add_pipe("ner", name="es", source=other)
    return nlp


def test_the_second_component_warns_once_that_it_writes_to_other_keys(
    nlp_of_two: Language,
) -> None:
    message = r"es: doc.spans\['confidence'\] has .* of 'ner'"
    with pytest.warns(UserWarning, match=message) as warned:
        first_docs = [*nlp_of_two.pipe([TEXT, *TEXTS])]
    assert len(warned) == 1

    # A warning would be an error here.
    second_docs = [*nlp_of_two.pipe([TEXT, *TEXTS])]
    assert sorted(second_docs[0].spans) == sorted(first_docs[0].spans)


@pytest.mark.filterwarnings("ignore:es. doc.spans:UserWarning")
def test_each_component_scores_its_own_entities(nlp_of_two: Language) -> None:
    docs = [*nlp_of_two.pipe([TEXT, *TEXTS])]

    for key in ("confidence", "confidence_es"):
        groups = [doc.spans[key] for doc in docs]
        assert sum(len(group) for group in groups) > 0
        for group in groups:
            assert group.name == key
            scores = group.attrs["scores"].tolist()
            assert [span._.confidence for span in group] == scores
    for doc in docs:
        assert all(ent._.confidence is not None for ent in doc.ents)
        assert "confidence_es_alternatives" in doc.spans


@pytest.mark.filterwarnings("ignore:es. doc.spans:UserWarning")
def test_annotate_writes_scores_and_alternatives_of_both_components(nlp_of_two: Language) -> None:
    doc = nlp_of_two(TEXT)

    record = record_of(nlp_of_two, doc)

    score_by_place = {}
    for ent in record["entities"]:
        score_by_place[ent["start"], ent["end"], ent["label"]] = ent["score"]
    assert score_by_place == {place_of(ent): ent._.confidence for ent in doc.ents}
    alternatives = [(span["start"], span["end"], span["label"]) for span in record["alternatives"]]
    expected = [place_of(span) for span in doc.spans["confidence_alternatives"]]
    expected += [place_of(span) for span in doc.spans["confidence_es_alternatives"]]
    assert alternatives == expected


@pytest.mark.filterwarnings("ignore:es. doc.spans:UserWarning")
def test_the_second_component_tests_its_own_entropies_for_a_shift(nlp_of_two: Language) -> None:
    for name in ("ner", "es"):
        ner: Any = nlp_of_two.get_pipe(name)
        calibration_docs = [nlp_of_two.make_doc(TEXT)] * 2
        scores = numpy.asarray([0.5, 0.25])
        ner.set_shift(calibration_docs, scores, "test", approximate=False)
    docs = [*nlp_of_two.pipe(TEXTS[:3])]

    shift = nlp_of_two.get_pipe("es").shift(docs)

    entropies = [doc.spans["confidence_es"].attrs["entropy"] for doc in docs]
    expected = [entropy for entropy in entropies if not numpy.isnan(entropy)]
    assert shift.scores.tolist() == pytest.approx(expected, rel=1e-3)


# Docs of other vocabs, and settings


def test_docs_of_other_vocabs_are_predicted_the_same(unsure: Path) -> None:
    """Alone, and in one batch with docs of the vocab of the pipeline. Words have other numbers in
    another vocab, and lines end at "\\n", which is looked up there."""
    nlp = load(unsure, confidence=CONFIDENCE, sentence_boundaries=True)
    words = [token.text for token in nlp.make_doc(TEXT)]
    expected = nlp(Doc(nlp.vocab, words=words))
    assert expected.ents and "\n" in words
    first_vocab, second_vocab, third_vocab = (blank_vocab() for _ in range(3))

    batch = [
        Doc(first_vocab, words=words),
        Doc(nlp.vocab, words=words),
        Doc(second_vocab, words=words),
        Doc(second_vocab, words=["\r\n", *words]),
    ]
    docs = [*nlp.pipe(batch), nlp(Doc(third_vocab, words=words))]

    expected_probs = [ent._.confidence for ent in expected.ents]
    for doc in docs:
        assert [ent.label_ for ent in doc.ents] == [ent.label_ for ent in expected.ents]
        probs = [ent._.confidence for ent in doc.ents]
        assert probs == pytest.approx(expected_probs, abs=1e-4)


def test_words_are_looked_up_in_the_vocab_of_their_doc() -> None:
    """Sparse features look them up. The words "unheard" and "of" are in no other vocab."""
    words_of_docs = [["a", "b"], ["unheard", "b"], ["of"]]
    model = crf()
    model.attrs["build_vocab"](model, [Doc(VOCAB, words=words) for words in words_of_docs])

    docs = [Doc(blank_vocab(), words=words) for words in words_of_docs]
    emissions = model.predict(docs).emissions

    expected = [model.predict([Doc(VOCAB, words=words)]).emissions for words in words_of_docs]
    numpy.testing.assert_allclose(emissions, numpy.concatenate(expected))


@pytest.mark.parametrize("setting", ["token", "example"])
def test_weights_of_an_extension_that_is_not_there_are_refused(setting: str) -> None:
    weights = {"@misc": "spacy_costner.Weights.v1", setting: "nowhere"}
    nlp = pipeline(weights=weights, loss={"@losses": "spacy_costner.Pointwise.v1"})
    batch = examples(nlp)
    nlp.initialize(lambda: batch)

    with pytest.raises(ValueError, match=f"{setting}: expected the name of an .*'nowhere'"):
        nlp.update(batch)


NO_OWN_LABELS = pytest.mark.parametrize("labels", [["NOPE"], ["LOC", "NOPE"], []], ids=str)


@NO_OWN_LABELS
def test_training_refuses_own_labels_that_are_no_labels(labels: list[str]) -> None:
    with pytest.raises(ValueError, match=r"ner: .*own_labels: expected"):
        nlp = pipeline(spans_key="sc", own_labels=labels)
        nlp.initialize(lambda: examples(nlp))


@NO_OWN_LABELS
def test_a_trained_pipeline_refuses_own_labels_that_are_no_labels(
    unsure: Path, labels: list[str]
) -> None:
    with pytest.raises(ValueError, match=r"ner: .*own_labels: expected"):
        load(unsure, spans_key="sc", own_labels=labels)
