"""Tests with Presidio as it is on PyPI: `make test-presidio`. They are skipped if it isn't
installed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from thinc.api import fix_random_seed

from spacy_costner.pipeline.confidence import SOURCE

from ..support.pipelines import TEXTS, load, pipeline, train

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pii.md").read_text("utf8")
ENTITIES = ["PERSON", "LOCATION", "ORGANIZATION", "ID"]
MISSING = "presidio-analyzer is not installed: run `make test-presidio`"


def test_importing_without_presidio_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)  # as if it were not installed
    # Our module is imported anew. It is set before it is deleted, because an item that isn't there
    # can't be deleted.
    monkeypatch.setitem(sys.modules, "spacy_costner.integrations.presidio", None)
    monkeypatch.delitem(sys.modules, "spacy_costner.integrations.presidio")
    with pytest.raises(ImportError, match=r"presidio-analyzer is not installed.*pip install"):
        import spacy_costner.integrations.presidio  # noqa: F401


@pytest.fixture(scope="module")
def presidio() -> Any:
    """The module `spacy_costner.integrations.presidio`. Without Presidio, the test is skipped."""
    pytest.importorskip("presidio_analyzer", reason=MISSING)
    import spacy_costner.integrations.presidio

    return spacy_costner.integrations.presidio


@pytest.fixture(scope="module")
def trained() -> Language:
    """A pipeline that has learned TEXTS, and writes alternatives."""
    fix_random_seed(0)
    nlp = pipeline(confidence={"@misc": "spacy_costner.Confidence.v1", "alternatives": 0.01})
    train(nlp)
    return nlp


@pytest.fixture(scope="module")
def saved(trained: Language, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the trained pipeline."""
    path = tmp_path_factory.mktemp("saved")
    trained.to_disk(path)
    return path


def add_scored_spans(doc: Doc, name: str, spans: list[Any]) -> None:
    """Write a group of spans to a doc as a component does. A span is (start, end, label, score)."""
    attrs = {"scores": [score for *_, score in spans], "source": SOURCE}
    spans_without_scores = [Span(doc, begin, end, label) for begin, end, label, _ in spans]
    doc.spans[name] = SpanGroup(doc, name=name, attrs=attrs, spans=spans_without_scores)


def in_tokens(scored_spans: list[Any]) -> list[Any]:
    """The first token, the end, the label and the score of each span."""
    return [(span.start, span.end, span.label_, score) for span, score in scored_spans]


CONFIDENCES = [(2, 4, "PER", 0.75), (5, 6, "ORG", 0.5)]
GUARANTEED = [(1, 6, "LOC", 0.125), (2, 4, "PER", 0.75), (7, 8, "ORG", 0.0)]


@pytest.fixture
def doc_with_confidences() -> Doc:
    """A doc of ten tokens, with entities and a group of their confidences."""
    doc = Doc(spacy.blank("xx").vocab, words=list("abcdefghij"))
    add_scored_spans(doc, "confidence", CONFIDENCES)
    doc.ents = list(doc.spans["confidence"])
    return doc


def test_scored_spans_are_the_entities_with_their_confidences(
    presidio: Any, doc_with_confidences: Doc
) -> None:
    assert in_tokens(presidio.find_scored_spans(doc_with_confidences)) == CONFIDENCES


def test_scored_spans_are_the_guaranteed_set_where_there_is_one(
    presidio: Any, doc_with_confidences: Doc
) -> None:
    """Where spans overlap, the less probable one is cut: LOC gives way to PER. A score of 0 becomes
    the lowest that Presidio counts as a result. The group in the doc isn't changed."""
    doc = doc_with_confidences
    add_scored_spans(doc, "confidence_guaranteed", GUARANTEED)

    scored_spans = presidio.find_scored_spans(doc)

    assert in_tokens(scored_spans) == [
        (1, 2, "LOC", 0.125),
        (2, 4, "PER", 0.75),
        (4, 6, "LOC", 0.125),
        (7, 8, "ORG", presidio.MIN_SCORE),
    ]
    assert [span.label_ for span in doc.spans["confidence_guaranteed"]] == ["LOC", "PER", "ORG"]


def test_entities_without_a_score_get_the_default(presidio: Any, doc_with_confidences: Doc) -> None:
    """Another component has set the entity ID."""
    doc = doc_with_confidences
    doc.ents = [Span(doc, 2, 4, "PER"), Span(doc, 5, 6, "ORG"), Span(doc, 8, 10, "ID")]
    scored_spans = presidio.find_scored_spans(doc, 0.3)
    assert in_tokens(scored_spans) == [*CONFIDENCES, (8, 10, "ID", 0.3)]


def test_entities_that_other_components_replaced_or_removed_are_found_as_they_are(
    presidio: Any, doc_with_confidences: Doc
) -> None:
    """PER has become ID, which has no confidence, and ORG is no entity any more."""
    doc = doc_with_confidences
    doc.ents = [Span(doc, 2, 4, "ID")]
    assert in_tokens(presidio.find_scored_spans(doc, 0.3)) == [(2, 4, "ID", 0.3)]


def test_the_guaranteed_set_stays_where_other_components_replaced_or_removed_entities(
    presidio: Any, doc_with_confidences: Doc
) -> None:
    """The entity ID is added, with the default score. It has a token of LOC."""
    doc = doc_with_confidences
    add_scored_spans(doc, "confidence_guaranteed", GUARANTEED)
    doc.ents = [Span(doc, 5, 6, "ID")]
    assert in_tokens(presidio.find_scored_spans(doc, 0.3)) == [
        (1, 2, "LOC", 0.125),
        (2, 4, "PER", 0.75),
        (4, 5, "LOC", 0.125),
        (5, 6, "ID", 0.3),
        (7, 8, "ORG", presidio.MIN_SCORE),
    ]


def test_an_entity_ruler_after_the_component_relabels_entities(presidio: Any, saved: Path) -> None:
    nlp = spacy.load(saved)
    ruler = nlp.add_pipe("entity_ruler", config={"overwrite_ents": True})
    ruler.add_patterns([{"label": "CITY", "pattern": "London"}])
    presidio.prepare(nlp)

    doc = nlp(TEXTS[1])  # I like London and Berlin.

    (london, london_score), (berlin, berlin_score) = presidio.find_scored_spans(doc)
    assert (london.text, london.label_, london_score) == ("London", "CITY", presidio.DEFAULT_SCORE)
    assert (berlin.text, berlin.label_) == ("Berlin", "LOC")
    assert berlin_score == berlin._.confidence


def test_labels_of_a_span_ruler_that_sets_entities_are_among_the_labels(
    presidio: Any, saved: Path
) -> None:
    nlp = spacy.load(saved)
    nlp.add_pipe("span_ruler", "spans").add_patterns([{"label": "animal", "pattern": "cat"}])
    ruler = nlp.add_pipe("span_ruler", config={"annotate_ents": True})
    ruler.add_patterns([{"label": "drug", "pattern": "like"}])
    assert presidio.prepare(nlp) == {"LOC", "PERSON", "sports-team", "drug"}


def test_inner_nodes_of_a_label_tree_are_among_the_labels(
    presidio: Any, saved: Path, tmp_path: Path
) -> None:
    """They are mapped like labels. With a high temperature, the model isn't sure of any label."""
    tree: Any = {"anything": {"LOC": {}, "PERSON": {}, "sports-team": {}}}
    cost = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": tree}
    decoding = {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": cost, "tree": tree}
    nlp = load(saved, decoding=decoding)
    assert presidio.prepare(nlp) == {"LOC", "PERSON", "sports-team", "anything"}
    nlp.get_pipe("ner").cfg["temperature"]["overall"] = 20.0
    nlp.to_disk(tmp_path)

    recognizer = presidio.CostnerRecognizer(tmp_path, mapping={"anything": "THING"})

    results = recognizer.analyze(TEXTS[1], recognizer.supported_entities)
    assert "THING" in [result.entity_type for result in results]
    found_by_engine = make_analyzer(presidio, tmp_path, "en").analyze(TEXTS[1], language="en")
    assert "anything" in [result.entity_type for result in found_by_engine]


def test_spans_of_a_component_that_sets_no_entities_are_found(presidio: Any, saved: Path) -> None:
    """The component writes to `doc.spans` instead of `doc.ents`."""
    nlp = load(saved, spans_key="places")
    presidio.prepare(nlp)

    doc = nlp(TEXTS[1])

    assert not doc.ents
    spans = [span for span, _ in presidio.find_scored_spans(doc)]
    assert spans == [*doc.spans["places"]] and spans


def test_find_scored_spans_finds_entities_by_their_characters_after_tokens_are_merged(
    presidio: Any, trained: Language
) -> None:
    merge_entities = trained.create_pipe("merge_entities")
    for text in TEXTS[:3]:
        doc = trained(text)
        del doc.spans["confidence_alternatives"]
        expected = in_characters(presidio.find_scored_spans(doc))
        assert expected

        merge_entities(doc)

        assert in_characters(presidio.find_scored_spans(doc)) == expected


def in_characters(scored_spans: list[Any]) -> list[Any]:
    """The first character, the end, the label and the score of each span."""
    return [(span.start_char, span.end_char, span.label_, score) for span, score in scored_spans]


def test_a_token_that_has_a_part_of_an_entity_is_in_its_span(
    presidio: Any, trained: Language
) -> None:
    """The first token of the entity was merged with the token before it."""
    doc = trained(TEXTS[1])
    del doc.spans["confidence_alternatives"]
    (entity, _), *_ = presidio.find_scored_spans(doc)
    first_token = entity.start

    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[first_token - 1 : entity.end])

    (merged, _), *_ = presidio.find_scored_spans(doc)
    assert merged.start == first_token - 1


def test_scores_of_two_components_with_one_key_are_both_found(presidio: Any, saved: Path) -> None:
    """Because of its bias, the first component predicts no LOC. The second one does."""
    nlp = spacy.load(saved)
    without_places = spacy.load(saved)
    without_places.get_pipe("ner").cfg["decoding"]["labels"]["LOC"] = -50.0
    nlp.add_pipe("ner", name="other", source=without_places, before="ner")
    presidio.prepare(nlp)

    with pytest.warns(UserWarning, match=r"ner: doc.spans\['confidence'\] has .* of 'other'"):
        doc = nlp("I like London. Who is Shaka Khan?")

    scores = {span.label_: score for span, score in presidio.find_scored_spans(doc)}
    assert len(scores) == 2
    assert scores == {ent.label_: ent._.confidence for ent in doc.ents}


def make_analyzer(presidio: Any, path: Path, *languages: str) -> Any:
    """Presidio's analyzer, with a saved pipeline for each language."""
    from presidio_analyzer import AnalyzerEngine

    models = [{"lang_code": language, "model_name": str(path)} for language in languages]
    engine = presidio.CostnerNlpEngine(models=models)
    return AnalyzerEngine(nlp_engine=engine, supported_languages=list(languages))


def as_tuples(results: list[Any]) -> list[Any]:
    """The first character, the end, the entity and the score of each result, in the order of the
    text."""
    return sorted((r.start, r.end, r.entity_type, round(r.score, 5)) for r in results)


def test_the_engine_and_the_recognizer_return_the_scores_of_the_component(
    presidio: Any, trained: Language, saved: Path
) -> None:
    """Labels are replaced by Presidio's entities, or by the entities in the mapping that the
    recognizer was given."""
    analyzer = make_analyzer(presidio, saved, "en", "de")
    recognizer = presidio.CostnerRecognizer(saved, mapping={"PERSON": "NAME"})
    entity_of_label = {"PERSON": "PERSON", "LOC": "LOCATION", "sports-team": "sports-team"}
    for text in TEXTS[:3]:
        doc = trained(text)
        assert doc.ents
        expected = []
        for ent, score in zip(doc.ents, doc.spans["confidence"].attrs["scores"]):
            entity = entity_of_label[ent.label_]
            expected.append((ent.start_char, ent.end_char, entity, round(float(score), 5)))

        for language in ("en", "de"):
            assert as_tuples(analyzer.analyze(text, language=language)) == expected
        results = recognizer.analyze(text, recognizer.supported_entities)
        renamed = [(*place, name.replace("PERSON", "NAME"), p) for *place, name, p in expected]
        assert as_tuples(results) == renamed


@pytest.mark.parametrize("default_score", [0.05, 0.3, 0.9])
def test_the_engine_returns_a_score_for_each_entity_with_any_default_score(
    presidio: Any, doc_with_confidences: Doc, default_score: float
) -> None:
    """The entity ID of another component overlaps the guaranteed set, which has probabilities of
    0.125 and 0.75. The default score says which of them loses tokens."""
    from presidio_analyzer.nlp_engine import NerModelConfiguration

    doc = doc_with_confidences
    add_scored_spans(doc, "confidence_guaranteed", GUARANTEED)
    doc.ents = [Span(doc, 3, 7, "ID")]
    configuration = NerModelConfiguration(default_score=default_score)
    configuration.model_to_presidio_entity_mapping = {
        label: label for label in ("PER", "LOC", "ORG", "ID")
    }
    engine = presidio.CostnerNlpEngine(models=[], ner_model_configuration=configuration)

    entities, scores = engine._get_entities(doc), engine._get_scores_for_entities(doc)

    found = in_tokens(list(zip(entities, scores)))
    assert found == in_tokens(presidio.find_scored_spans(doc, default_score))
    assert len(entities) == len(scores)
    assert {score for *_, label, score in found if label == "ID"} == {default_score}


def test_the_engine_computes_no_alternatives(presidio: Any, trained: Language, saved: Path) -> None:
    """The same pipeline computes alternatives when it is used without Presidio."""
    analyzer = make_analyzer(presidio, saved, "en")
    assert "confidence_alternatives" in trained(TEXTS[1]).spans
    assert list(analyzer.nlp_engine.nlp["en"](TEXTS[1]).spans) == ["confidence"]


def test_the_recognizer_finds_nothing_where_no_entity_is_asked_for(
    presidio: Any, saved: Path
) -> None:
    assert presidio.CostnerRecognizer(saved).analyze(TEXTS[1], []) == []


def test_batches_processes_and_threads_return_the_same_results(presidio: Any, saved: Path) -> None:
    from presidio_analyzer import BatchAnalyzerEngine

    analyzer = make_analyzer(presidio, saved, "en")
    texts = TEXTS[:3] * 8
    expected = [as_tuples(analyzer.analyze(text, language="en")) for text in texts]

    batches = BatchAnalyzerEngine(analyzer)
    for n_process in (1, 2):
        results_of_texts = batches.analyze_iterator(texts, "en", batch_size=4, n_process=n_process)
        assert [as_tuples(results) for results in results_of_texts] == expected
    with ThreadPoolExecutor(4) as pool:
        in_threads = list(pool.map(lambda text: analyzer.analyze(text, language="en"), texts))
    assert [as_tuples(results) for results in in_threads] == expected


def test_pipelines_without_a_component_are_refused(
    presidio: Any, saved: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"expected an installed pipeline or .*, got 'nowhere'"):
        presidio.CostnerNlpEngine(models=[{"lang_code": "en", "model_name": "nowhere"}]).load()
    with pytest.raises(ValueError, match=r"expected an installed pipeline or .*, got 'nowhere'"):
        presidio.CostnerRecognizer("nowhere")
    nlp = spacy.blank("en")
    nlp.to_disk(tmp_path)
    with pytest.raises(ValueError, match="expected a pipeline with a cost_sensitive_ner"):
        presidio.CostnerRecognizer(tmp_path)


def test_a_label_that_presidio_has_no_entity_for_is_refused(
    presidio: Any, trained: Language, saved: Path
) -> None:
    """If Presidio is told to ignore the label, the other two entities of the model are found."""
    analyzer = make_analyzer(presidio, saved, "en")
    # Without `overwrite = False`, the ruler removes the other entities.
    settings = {"annotate_ents": True, "spans_key": None, "overwrite": False}
    ruler = analyzer.nlp_engine.nlp["en"].add_pipe("span_ruler", config=settings)
    ruler.add_patterns([{"label": "drug", "pattern": "like"}])
    with pytest.raises(ValueError, match=r"expected a Presidio entity .* none for 'drug'"):
        analyzer.analyze(TEXTS[1], language="en")
    analyzer.nlp_engine.ner_model_configuration.labels_to_ignore = ["drug"]
    assert len(analyzer.analyze(TEXTS[1], language="en")) == 2


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which the commands of the page were run."""
    pytest.importorskip("presidio_analyzer", reason=MISSING)
    path = tmp_path_factory.mktemp("workplace")
    (path / "scripts").symlink_to(ROOT / "scripts")
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    lines = "".join(re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)).splitlines()
    commands = [line for line in lines if not line.startswith("pip install")]
    assert len(commands) == 5
    for command in commands:
        environ = {**os.environ, "PATH": programs}
        process = subprocess.run(
            command, shell=True, cwd=path, env=environ, capture_output=True, text=True
        )
        assert process.returncode == 0, f"{command}\n{process.stdout}{process.stderr}"
    (path / "nlp.yaml").write_text(re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)[0])
    yield path


def without_decimals(text: str) -> str:
    """A text without its decimal numbers, which differ from machine to machine."""
    return re.sub(r"\d\.\d+", "", text)


def test_the_page_prints_what_it_says(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workplace)
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, "docs/pii.md", "exec"), names)
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    answers = re.findall(r"^    (.*)$", prose, re.MULTILINE)
    assert without_decimals(capsys.readouterr().out).splitlines() == [
        without_decimals(line) for line in answers
    ]
    results = names["recognizer"].analyze(names["text"], ["PERSON", "CUSTOMER_NUMBER"])
    assert [names["text"][r.start : r.end] for r in results] == ["Anna Keller", "may"]


def test_the_anonymizer_leaves_no_token_of_the_guaranteed_set(
    presidio: Any, workplace: Path
) -> None:
    """Spans of the set may overlap. It is tested in one process and in several."""
    from presidio_analyzer import BatchAnalyzerEngine
    from presidio_anonymizer import AnonymizerEngine
    from presidio_anonymizer.entities import OperatorConfig

    analyzer = make_analyzer(presidio, workplace / "training" / "guaranteed", "en")
    nlp = analyzer.nlp_engine.nlp["en"]
    docs = DocBin().from_disk(workplace / "corpus" / "pii" / "test.spacy").get_docs(nlp.vocab)
    texts = [doc.text for doc in docs][:300]
    redact = {"DEFAULT": OperatorConfig("redact")}

    batches = BatchAnalyzerEngine(analyzer)
    results_of_texts = batches.analyze_iterator(
        texts, "en", batch_size=50, n_process=2, entities=ENTITIES
    )

    n_docs_with_overlap = 0
    for doc, results in zip(map(nlp, texts), results_of_texts):
        spans = doc.spans["confidence_guaranteed"]
        tokens_of_set: set[int] = set()
        for span in spans:
            tokens_of_set.update(range(span.start, span.end))
        n_docs_with_overlap += sum(map(len, spans)) > len(tokens_of_set)
        anonymized = AnonymizerEngine().anonymize(doc.text, results, redact).text
        other_words = [token.text for token in doc if token.i not in tokens_of_set]
        assert anonymized.replace(" ", "") == "".join(other_words).replace(" ", "")
    assert n_docs_with_overlap > 3
