"""Presidio from PyPI, end to end: `make test-presidio`. Skipped where it is not installed."""

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

from spacy_costner.pipeline.annotations import SOURCE

from .support.pipelines import TEXTS, pipeline, train

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "pii.md").read_text("utf8")
ENTITIES = ["PERSON", "LOCATION", "ORGANIZATION", "ID"]
MISSING = "presidio-analyzer is not installed: run `make test-presidio`"


def test_importing_without_presidio_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("presidio_analyzer", "spacy_costner.presidio"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "spacy_costner.presidio")
    with pytest.raises(ImportError, match=r"expected presidio-analyzer.*pip install"):
        import spacy_costner.presidio  # noqa: F401


@pytest.fixture(scope="module")
def presidio() -> Any:
    pytest.importorskip("presidio_analyzer", reason=MISSING)
    import spacy_costner.presidio

    return spacy_costner.presidio


@pytest.fixture(scope="module")
def trained() -> Language:
    fix_random_seed(0)
    nlp = pipeline(confidence={"@misc": "spacy_costner.Confidence.v1", "alternatives": 0.01})
    train(nlp)
    return nlp


@pytest.fixture(scope="module")
def saved(trained: Language, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved")
    trained.to_disk(path)
    return path


def add_scored_spans(doc: Doc, name: str, spans: list[Any]) -> None:
    """Write a group as a component does. Each span is (start, end, label, score)."""
    attrs = {"scores": [score for *_, score in spans], "source": SOURCE}
    made = [Span(doc, begin, end, label) for begin, end, label, _ in spans]
    doc.spans[name] = SpanGroup(doc, name=name, attrs=attrs, spans=made)


def in_tokens(found: list[Any]) -> list[Any]:
    return [(span.start, span.end, span.label_, score) for span, score in found]


def test_find_scored_spans_takes_the_guaranteed_set_and_cuts_spans_that_overlap(
    presidio: Any,
) -> None:
    doc = Doc(spacy.blank("en").vocab, words=list("abcdefghij"))
    add_scored_spans(doc, "confidence", [(2, 4, "PER", 0.75), (5, 6, "ORG", 0.5)])
    assert in_tokens(presidio.find_scored_spans(doc)) == [(2, 4, "PER", 0.75), (5, 6, "ORG", 0.5)]
    wide = [(1, 6, "LOC", 0.125), (2, 4, "PER", 0.75), (7, 8, "ORG", 0.0)]
    add_scored_spans(doc, "confidence_guaranteed", wide)
    expected = [(1, 2, "LOC", 0.125), (2, 4, "PER", 0.75), (4, 6, "LOC", 0.125)]
    expected.append((7, 8, "ORG", presidio.LEAST_SCORE))
    assert in_tokens(presidio.find_scored_spans(doc)) == expected
    doc.ents = [Span(doc, 2, 4, "PER"), Span(doc, 5, 6, "ORG"), Span(doc, 8, 10, "ID")]
    assert in_tokens(presidio.find_scored_spans(doc, 0.5)) == [*expected, (8, 10, "ID", 0.5)]
    assert [span.label_ for span in doc.spans["confidence_guaranteed"]] == ["LOC", "PER", "ORG"]


def test_find_scored_spans_finds_entities_by_their_characters_after_tokens_are_merged(
    presidio: Any, trained: Language
) -> None:
    """And all of a token that has a part of an entity."""
    nlp = trained
    docs = [nlp(text) for text in TEXTS[:3]]
    for doc in docs:
        del doc.spans["confidence_alternatives"]
        expected = [
            (span.start_char, span.end_char, span.label_, score)
            for span, score in presidio.find_scored_spans(doc)
        ]
        nlp.create_pipe("merge_entities")(doc)
        merged = [
            (span.start_char, span.end_char, span.label_, score)
            for span, score in presidio.find_scored_spans(doc)
        ]
        assert merged == expected and expected
    (first, _) = presidio.find_scored_spans(docs[1])[0]
    with docs[1].retokenize() as retokenizer:
        retokenizer.merge(docs[1][first.start - 1 : first.end])
    assert presidio.find_scored_spans(docs[1])[0][0].start == first.start - 1


def test_scores_of_two_components_with_one_key_are_both_found(presidio: Any, saved: Path) -> None:
    first, second = (spacy.load(saved) for _ in range(2))
    second.get_pipe("ner").cfg["decoding"]["labels"]["LOC"] = -50.0
    first.add_pipe("ner", name="other", source=second, before="ner")
    presidio.prepare(first)
    with pytest.warns(UserWarning, match=r"ner: doc.spans\['confidence'\] has .* of 'other'"):
        doc = first("I like London. Who is Shaka Khan?")
    scores = {span.label_: score for span, score in presidio.find_scored_spans(doc)}
    assert scores == {ent.label_: ent._.confidence for ent in doc.ents} and len(scores) == 2


def make_analyzer(presidio: Any, path: Path, *languages: str) -> Any:
    from presidio_analyzer import AnalyzerEngine

    models = [{"lang_code": each, "model_name": str(path)} for each in languages]
    engine = presidio.CostnerNlpEngine(models=models)
    return AnalyzerEngine(nlp_engine=engine, supported_languages=list(languages))


def as_tuples(results: list[Any]) -> list[Any]:
    return sorted((r.start, r.end, r.entity_type, round(r.score, 5)) for r in results)


def test_the_engine_and_the_recognizer_return_the_scores_of_the_component(
    presidio: Any, trained: Language, saved: Path
) -> None:
    analyzer = make_analyzer(presidio, saved, "en", "de")
    for text in TEXTS[:3]:
        doc = trained(text)
        assert doc.ents and "confidence_alternatives" in doc.spans
        assert list(analyzer.nlp_engine.nlp["en"](text).spans) == ["confidence"]
        names = {"PERSON": "PERSON", "LOC": "LOCATION", "sports-team": "sports-team"}
        scores = doc.spans["confidence"].attrs["scores"]
        expected = [
            (ent.start_char, ent.end_char, names[ent.label_], round(float(score), 5))
            for ent, score in zip(doc.ents, scores)
        ]
        assert as_tuples(analyzer.analyze(text, language="en")) == expected
        assert as_tuples(analyzer.analyze(text, language="de")) == expected
        recognizer = presidio.CostnerRecognizer(saved, mapping={"PERSON": "NAME"})
        of_recognizer = recognizer.analyze(text, recognizer.supported_entities)
        renamed = [(*place, name.replace("PERSON", "NAME"), p) for *place, name, p in expected]
        assert as_tuples(of_recognizer) == renamed
        assert recognizer.analyze(text, []) == []


def test_batches_processes_and_threads_return_the_same_results(presidio: Any, saved: Path) -> None:
    from presidio_analyzer import BatchAnalyzerEngine

    analyzer, texts = make_analyzer(presidio, saved, "en"), TEXTS[:3] * 8
    expected = [as_tuples(analyzer.analyze(text, language="en")) for text in texts]
    batches = BatchAnalyzerEngine(analyzer)
    for n_process in (1, 2):
        found = batches.analyze_iterator(texts, "en", batch_size=4, n_process=n_process)
        assert [as_tuples(results) for results in found] == expected
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: analyzer.analyze(text, language="en"), texts))
    assert [as_tuples(results) for results in found] == expected


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
    analyzer = make_analyzer(presidio, saved, "en")
    ruler = {"annotate_ents": True, "spans_key": None}
    added = analyzer.nlp_engine.nlp["en"].add_pipe("span_ruler", config=ruler)
    added.add_patterns([{"label": "drug", "pattern": "like"}])
    with pytest.raises(ValueError, match=r"expected an entity of Presidio .* none for 'drug'"):
        analyzer.analyze(TEXTS[1], language="en")
    analyzer.nlp_engine.ner_model_configuration.labels_to_ignore = ["drug"]
    assert len(analyzer.analyze(TEXTS[1], language="en")) == 2


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the commands of the page have been run."""
    pytest.importorskip("presidio_analyzer", reason=MISSING)
    path = tmp_path_factory.mktemp("workplace")
    (path / "scripts").symlink_to(ROOT / "scripts")
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    lines = "".join(re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)).splitlines()
    commands = [line for line in lines if not line.startswith("pip install")]
    assert len(commands) == 5
    for command in commands:
        environ = {**os.environ, "PATH": programs}
        done = subprocess.run(
            command, shell=True, cwd=path, env=environ, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    (path / "nlp.yaml").write_text(re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)[0])
    yield path


def without_decimals(text: str) -> str:
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
    """Not even where spans of the set overlap; in several processes, too."""
    from presidio_analyzer import BatchAnalyzerEngine
    from presidio_anonymizer import AnonymizerEngine
    from presidio_anonymizer.entities import OperatorConfig

    analyzer = make_analyzer(presidio, workplace / "training" / "guaranteed", "en")
    nlp, overlaps = analyzer.nlp_engine.nlp["en"], 0
    docs = DocBin().from_disk(workplace / "corpus" / "pii" / "test.spacy").get_docs(nlp.vocab)
    texts = [doc.text for doc in docs][:300]
    redact = {"DEFAULT": OperatorConfig("redact")}
    batches = BatchAnalyzerEngine(analyzer)
    found = batches.analyze_iterator(texts, "en", batch_size=50, n_process=2, entities=ENTITIES)
    for doc, results in zip(map(nlp, texts), found):
        spans = doc.spans["confidence_guaranteed"]
        tokens = {token.i for span in spans for token in span}
        overlaps += sum(map(len, spans)) > len(tokens)
        left = AnonymizerEngine().anonymize(doc.text, results, redact).text
        expected = "".join(token.text for token in doc if token.i not in tokens)
        assert left.replace(" ", "") == expected.replace(" ", "")
    assert overlaps > 3
