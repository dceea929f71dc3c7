"""A guaranteed pipeline: its sets, what it promises, when it stops to promise."""

import json
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
import srsly
from hypothesis import assume, given
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example

from spacy_costner.analysis.annotating import annotate
from spacy_costner.analysis.calibration import calibrate
from spacy_costner.analysis.guarantees import find_part, found_at, guarantee, score_spans
from spacy_costner.analysis.predictions import DevPredictions
from spacy_costner.analysis.reporting import report
from spacy_costner.analysis.tuning import tune
from spacy_costner.cli.report import report_page
from spacy_costner.decoding import FINEST, Posterior, make_viterbi
from spacy_costner.pipeline.annotations import SMOOTHING, guarantee_scores
from spacy_costner.pipeline.promises import FOUND, Terms
from spacy_costner.readers.documents import with_metadata
from spacy_costner.tags import Entities

from .support.commands import run
from .support.linear import SPARSE
from .support.pipelines import TEXTS, examples, load, pipeline, train
from .support.posteriors import posterior
from .support.strategies import seeds

KEY = "confidence_guaranteed"
TAGS = {"Khan": "U-PERSON", "London": "U-LOC", "Berlin": "U-LOC", "Sox": "U-sports-team"}
TERMS = Terms(miss=0.1)


def calibration_docs(nlp: Language, n: int = 60) -> list[Example]:
    """Docs whose entities the model finds more or less easily."""
    rng, docs = numpy.random.default_rng(0), []
    for _ in range(n):
        words = rng.permutation([*TAGS, "lost", "like", "Who", "is", "the", "and"]).tolist()
        words = words[: rng.integers(2, 11)]
        entities = [TAGS.get(word, "O") for word in words]
        docs.append(Example.from_dict(Doc(nlp.vocab, words=words), {"entities": entities}))
        for doc in (docs[-1].predicted, docs[-1].reference):
            doc.user_data["n"] = int(len(words) > 6)  # docs with more of them are harder
    return docs


@pytest.fixture
def guaranteed(unsure: Path) -> Language:
    nlp = load(unsure)
    nlp.get_pipe("ner").cfg["temperature"]["overall"] = 1.2239012345678912
    guarantee(nlp, calibration_docs(nlp), miss=0.1)
    return nlp


Row = namedtuple("Row", "start end label_")


def places(doc: Doc) -> list[Row]:
    """The guaranteed spans."""
    return [Row(span.start, span.end, span.label_) for span in doc.spans[KEY]]


def is_found(ent: Any, spans: list[Any], found: str, by_label: bool) -> bool:
    """The definition."""
    some = [span for span in spans if not by_label or span.label_ == ent.label_]
    if found == "exact":
        return (ent.start, ent.end) in [(span.start, span.end) for span in some]
    tokens = {i for span in some for i in range(span.start, span.end)}
    return {*range(ent.start, ent.end)} <= tokens


@pytest.mark.parametrize("by_group", [None, "n"])
@pytest.mark.parametrize("per_label", [False, True])
@pytest.mark.parametrize("found", FOUND)
def test_the_sets_keep_the_promise_on_the_calibration_docs(
    unsure: Path, found: str, per_label: bool, by_group: str | None
) -> None:
    """What the pipeline writes to docs misses what the threshold was chosen by."""
    nlp, limit = load(unsure), 0.25 if by_group else 0.15
    docs = calibration_docs(nlp)
    terms: Any = {"found": found, "per_label": per_label, "by_group": by_group}
    result = guarantee(nlp, docs, miss=limit, **terms)
    predicted = list(nlp.pipe(eg.predicted.copy() for eg in docs))
    assert len(result.parts) == (3 if per_label else 1) * (2 if by_group else 1)
    for part in result.parts:
        shares, n_spans = [], 0
        for doc, eg in zip(predicted, docs):
            if by_group and str(doc.user_data["n"]) != part.group:
                continue
            gold = [e for e in eg.reference.ents if part.label in ("", e.label_)]
            spans = [s for s in doc.spans[KEY] if part.label in ("", s.label_)]
            n_spans += len(spans)
            by_label = per_label or found == "exact"
            shares.append([not is_found(e, spans, found, by_label) for e in gold])
        mean, n = numpy.mean([numpy.mean(share) for share in shares if share]), part.docs
        assert n == sum(map(bool, shares)) and part.entities == sum(map(len, shares))
        assert (n * mean + 1) / (n + 1) <= limit
        assert part.spans == pytest.approx(n_spans / part.entities)
        assert part.reachable is not None and part.reachable <= limit


def test_what_is_written(guaranteed: Language, tmp_path: Path) -> None:
    ner: Any = guaranteed.get_pipe("ner")
    guaranteed.to_disk(tmp_path)
    copy = spacy.load(tmp_path)
    promise = copy.meta["guarantee"]["ner"]
    assert promise["miss"] == 0.1 and promise["docs"] == 60 and promise["source"]
    assert promise["not_counted"]["docs without entities"] >= 1
    assert [0.1, promise["groups"][""]["threshold"]] in promise["groups"][""]["levels"]
    assert copy.get_pipe("ner").guarantee.groups[""].levels == promise["groups"][""]["levels"]
    doc = copy(TEXTS[1])
    found, scores = places(doc), doc.spans[KEY].attrs["scores"]
    assert found == sorted(found, key=lambda place: place[:2]) and len(set(found)) == len(found)
    assert {(ent.start, ent.end, ent.label_) for ent in doc.ents} <= set(found)
    assert len(scores) == len(found) > len(doc.ents)
    rows = numpy.asarray([(*place[:2], ner.labels.index(place.label_)) for place in found])
    probs = ner.posterior([doc]).entity_probs(Entities(*rows.T))
    assert scores == pytest.approx(probs, rel=1e-4)
    assert not copy("").spans[KEY]


@given(posterior())
def test_scores_by_definition(posterior: Posterior) -> None:
    spans, probs = posterior.likely_entities(FINEST, least=FINEST)
    table = {entity: p for *entity_, p in zip(*spans, probs) for entity in [tuple(entity_)]}
    n_labels = len(posterior.tags.labels)
    ends = numpy.cumsum(posterior.potentials.lengths)
    for found, by in (("exact", "doc"), ("exact", "any"), ("covered", "doc")):
        got, scores = guarantee_scores(posterior, replace(TERMS, found=found, by=by))
        expected = {}
        for begin, end in {(b, e) for b, e, _ in table}:
            own = {label: table.get((begin, end, label), 0.0) for label in range(n_labels)}
            first = max([0, *(stop for stop in ends if stop <= begin)])
            last = min(stop for stop in ends if stop > begin)
            n = sum(p for (b, _, _), p in table.items() if first <= b < last)
            for label, p in own.items():
                score = (1 - SMOOTHING) * p + SMOOTHING * sum(own.values()) / n_labels
                if found == "covered":
                    score = sum(own.values()) if label == max(own, key=lambda x: own[x]) else 0.0
                score /= max(1.0, n) ** 0.5 if by == "doc" else 1.0
                if score >= FINEST / 10:
                    expected[begin, end, label] = score
        rows = dict(zip(zip(*(column.tolist() for column in got)), scores.tolist()))
        assert rows == pytest.approx(expected)


CHANGES = {
    "training": lambda nlp: nlp.update(examples(nlp), sgd=nlp.create_optimizer()),
    "rehearsal": lambda nlp: nlp.get_pipe("ner").rehearse(examples(nlp)),
    "add_label": lambda nlp: nlp.get_pipe("ner").add_label("DRUG"),
    "calibrate": lambda nlp: calibrate(nlp, examples(nlp)),
    "tune": lambda nlp: tune(nlp, examples(nlp)),
    "set_decoding": lambda nlp: nlp.get_pipe("ner").set_decoding(make_viterbi(bias=1.0)),
    "temperature": lambda nlp: (nlp.get_pipe("ner").cfg["temperature"].update(overall=2), nlp("a")),
    "initialize": lambda nlp: nlp.initialize(lambda: examples(nlp)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_drop_the_promise(guaranteed: Language, tmp_path: Path, name: str) -> None:
    """And the scores of the test for a shift, but for another decoding and other scores."""
    guaranteed.to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    doc = nlp("London")
    assert KEY in doc.spans
    with pytest.warns(UserWarning, match="ner: the guarantee is dropped"):
        CHANGES[name](nlp)
    ner: Any = nlp.get_pipe("ner")
    assert ner.guarantee is None and not nlp.meta["guarantee"]
    assert KEY not in nlp("London").spans
    has_scores = name in ("calibrate", "tune", "set_decoding")
    assert ("entropy" in nlp("London").spans["confidence"].attrs) is has_scores
    if not has_scores:
        with pytest.raises(
            ValueError, match="ner: shift: expected scores of calibration docs, got"
        ):
            ner.shift([doc])


def test_a_promise_that_was_made_after_an_edit_is_dropped_when_the_edit_is_undone(
    guaranteed: Language, tmp_path: Path
) -> None:
    guaranteed.to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    ner: Any = nlp.get_pipe("ner")
    nlp("London")  # looks at the settings as they were saved
    temperature = ner.cfg["temperature"]["overall"]
    promise = ner.guarantee
    ner.cfg["temperature"]["overall"] = temperature + 1
    ner.set_guarantee(promise)
    ner.cfg["temperature"]["overall"] = temperature
    with pytest.warns(UserWarning, match="ner: the guarantee is dropped"):
        doc = nlp("London")
    assert KEY not in doc.spans


def test_another_config_drops_the_promise_and_edits_are_refused(
    guaranteed: Language, tmp_path: Path
) -> None:
    guaranteed.to_disk(tmp_path)
    for block in (
        {"decoding": {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": 0.4}},
        {"decoding": {"@misc": "spacy_costner.ViterbiDecoding.v1", "bias": 0.4}},
        {"confidence": None},
    ):
        with pytest.warns(UserWarning, match="guarantee is dropped, as it does not hold after an"):
            nlp = load(tmp_path, **block)
        assert not nlp.meta["guarantee"]
    cfg = json.loads((tmp_path / "ner" / "cfg").read_text())
    cfg["guarantee"]["miss"] = 0.001
    (tmp_path / "ner" / "cfg").write_text(json.dumps(cfg))
    with pytest.raises(ValueError, match="digest"):
        spacy.load(tmp_path)


def test_processes_threads_and_other_pipelines(guaranteed: Language, tmp_path: Path) -> None:
    """With warnings as errors: the promise stays."""
    expected = [*map(places, guaranteed.pipe(TEXTS))]
    assert any(expected)
    assert [*map(places, guaranteed.pipe(TEXTS, n_process=2))] == expected
    with ThreadPoolExecutor(4) as threads:
        assert [*map(places, threads.map(guaranteed, TEXTS * 4))] == expected * 4
    copy = pipeline(confidence={"@misc": "spacy_costner.Confidence.v1"})
    copy.from_bytes(guaranteed.to_bytes())
    sourced = spacy.blank("en")  # as `spacy assemble` does
    sourced.add_pipe("ner", source=guaranteed)
    sourced.to_disk(tmp_path)
    for nlp in (copy, spacy.load(tmp_path)):
        assert [*map(places, nlp.pipe(TEXTS))] == expected
        assert nlp.get_pipe("ner").guarantee.miss == 0.1


@pytest.mark.filterwarnings("ignore:.*no guaranteed set")
def test_promises_by_group(unsure: Path, tmp_path: Path) -> None:
    """Each group has its own set; other docs have none, with a warning, and `annotate` says so."""
    nlp = load(unsure)
    docs = calibration_docs(nlp, 120)
    docs[0].reference.user_data.clear()
    result = guarantee(nlp, docs, miss=0.2, by_group="n")
    assert result.promise.not_counted["docs without 'n'"] == 1
    groups = result.promise.groups
    assert groups["0"].threshold != groups["1"].threshold and result.promise.docs == 119
    groups["1"] = replace(groups["1"], threshold=0.9)  # far from the other
    nlp.get_pipe("ner").set_guarantee(result.promise)
    nlp.to_disk(tmp_path / "model")
    text = "Who like Khan the Sox lost and London is Berlin"
    lines = [{"text": text, **keys} for keys in ({"n": 0}, {"n": 1}, {"n": 2}, {})]
    srsly.write_jsonl(tmp_path / "in.jsonl", lines)
    expected = []
    for group in ("0", "1"):
        one = spacy.load(tmp_path / "model")
        ner: Any = one.get_pipe("ner")
        thresholds = {"": ner.guarantee.groups[group]}
        ner.set_guarantee(replace(ner.guarantee, by_group=None, groups=thresholds))
        expected.append(places(one(text)))
    assert expected[0] != expected[1]
    for options in ({}, {"n_process": 2, "batch_size": 1}):
        copy = spacy.load(tmp_path / "model")
        made = [with_metadata(copy.make_doc(line["text"]), line) for line in lines]
        found = list(copy.pipe(made, **options))
        assert [*map(places, found[:2])] == expected
        assert not any(KEY in doc.spans for doc in found[2:])
    warning = "no guaranteed set for docs whose 'n' is 2, None: nothing is promised"
    with pytest.warns(UserWarning, match=warning):
        annotate(tmp_path / "model", [tmp_path / "in.jsonl"], tmp_path / "out")
    rows = [*srsly.read_jsonl(next((tmp_path / "out").glob("*.jsonl")))]
    for row, spans in zip(rows, expected):
        assert [e["label"] for e in row["guaranteed"]] == [place.label_ for place in spans]
    assert [row["guaranteed"] for row in rows[2:]] == [None, None]


def test_docs_that_do_not_count_are_counted(unsure: Path) -> None:
    """Docs with missing tags, and training docs, which label memory knows."""
    nlp = load(unsure)
    words = ["Khan", "is", "lost"]
    partial = Example.from_dict(Doc(nlp.vocab, words=words), {"entities": ["U-PERSON", "O", "-"]})
    result = guarantee(nlp, [*calibration_docs(nlp), partial, partial], miss=0.1)
    assert result.promise.not_counted["docs with missing tags"] == 2
    assert result.promise.docs == 60
    with pytest.raises(ValueError, match="not trained on, got 1 docs with missing tags"):
        guarantee(nlp, [partial], miss=0.1)
    with pytest.raises(ValueError, match=r"annotated docs with entities.* got none"):
        guarantee(nlp, [], miss=0.1)
    features = {**SPARSE["features"], "memory": {"LOWER": 1}}
    nlp = pipeline(model={**SPARSE, "features": features})
    train(nlp, steps=3)
    with pytest.raises(ValueError, match="not trained on, got 2 training docs, 1 docs with miss"):
        guarantee(nlp, examples(nlp)[1:], miss=0.1)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({}, "expected miss or false_alarm, got none"),
        ({"miss": 0.1, "false_alarm": 0.1}, "got miss and false_alarm"),
        ({"miss": 0.0}, "miss: expected a number between 0 and 1, got 0.0"),
        ({"miss": 0.1, "confidence": 1.0}, "confidence: expected a number"),
        ({"miss": 0.1, "found": "most"}, "found: expected exact or covered, got 'most'"),
        ({"miss": 0.1, "by": "entity"}, "by: expected doc or any, got 'entity'"),
        ({"false_alarm": 0.1, "by": "any"}, "by: expected doc, got 'any'"),
        ({"miss": 0.001}, r"got 0.001. 0\.0\d+ or more with these 5\d docs; "),
        ({"miss": 0.001, "confidence": 0.95}, "0.001 takes about [23],"),
        ({"false_alarm": 0.001}, "false_alarm: expected a limit that can be promised"),
    ],
)
def test_what_is_refused(unsure: Path, terms: Any, message: str) -> None:
    nlp = load(unsure)
    with pytest.raises(ValueError, match=message):
        guarantee(nlp, calibration_docs(nlp), **terms)
    assert nlp.get_pipe("ner").guarantee is None and "guarantee" not in nlp.meta


def test_too_few_docs_can_not_be_enough(unsure: Path) -> None:
    """n < 1 / limit - 1, however good the scores."""
    nlp = load(unsure)
    docs = [eg for eg in calibration_docs(nlp) if eg.reference.ents]
    message = r"0\.0527 or more with these 18 docs; 0\.05 takes about 19 docs"
    with pytest.raises(ValueError, match=message):
        guarantee(nlp, docs[:18], miss=0.05, found="covered")
    assert guarantee(nlp, docs[:19], miss=0.05, found="covered").parts[0].docs == 19


def test_groups_or_labels_share_what_may_fail(unsure: Path) -> None:
    nlp, terms = load(unsure), {"miss": 0.4, "confidence": 0.7}
    docs = calibration_docs(nlp, 120)
    result = guarantee(nlp, docs, **terms, by_group="n")
    parts = {n: [eg for eg in docs if eg.reference.user_data["n"] == n] for n in (0, 1)}
    alone = [guarantee(nlp, own, miss=0.4, confidence=0.85).parts[0] for own in parts.values()]
    assert result.parts == [part._replace(group=str(n)) for n, part in enumerate(alone)]

    terms["per_label"] = True
    result = guarantee(nlp, docs, **terms)
    tables = score_spans(nlp, nlp.get_pipe("ner"), docs, result.promise)[:2]
    expected: list[list[Any]] = []
    for confidence in (0.9, 0.7):
        promise = replace(result.promise, confidence=confidence)
        expected.append([])
        for i, label in enumerate(nlp.get_pipe("ner").labels):
            rows = [table[table["label"] == i] for table in tables]
            found = find_part(*rows, terms=promise, n_docs=len(docs), n_parts=1)
            expected[-1].append(found._replace(label=label))
    assert result.parts == expected[0] != expected[1]


@given(posterior(), seeds, st.sampled_from(FOUND), st.booleans())
def test_found_by_definition(
    posterior: Posterior, rng: numpy.random.Generator, found: str, per_label: bool
) -> None:
    """An entity is found at the highest threshold at which the spans that are left find it."""
    n_labels, n_tokens = len(posterior.tags.labels), len(posterior.scores.emissions)
    assume(n_tokens)

    def draw(least: int) -> Entities:
        begin = rng.integers(n_tokens, size=6)
        end = [b + 1 + rng.integers(min(3, n_tokens - b)) for b in begin]
        return Entities(begin, numpy.asarray(end), rng.integers(least, n_labels, size=6))

    wanted, spans, scores = draw(-1), draw(0), rng.integers(1, 9, size=6) / 10
    rows, by_label = [Row(*row) for row in zip(*spans)], per_label or found == "exact"
    dev = DevPredictions([], posterior, draw(0), numpy.ones(n_tokens, dtype=bool))
    got = found_at(dev, wanted, spans, scores, replace(TERMS, found=found, per_label=per_label))
    for entity, at in zip(zip(*wanted), got):
        left = {t: [row for row, p in zip(rows, scores) if p >= t] for t in scores}
        hits = [t for t in scores if is_found(Row(*entity), left[t], found, by_label)]
        assert at == max(hits, default=0.0)


def test_false_alarms(unsure: Path) -> None:
    """The set is the probable spans alone, and the mean share that is wrong is well below."""
    nlp = load(unsure)
    docs = calibration_docs(nlp, 200)
    result = guarantee(nlp, docs, false_alarm=0.3)
    assert result.promise.confidence == 0.95
    least, shares = result.promise.groups[""].threshold, []
    for doc, eg in zip(nlp.pipe(eg.predicted.copy() for eg in docs), docs):
        gold = {(e.start, e.end, e.label_) for e in eg.reference.ents}
        assert all(p >= least for p in doc.spans[KEY].attrs["scores"])
        shares.append(numpy.mean([place not in gold for place in places(doc)] or [0.0]))
    assert 0 < numpy.mean(shares) < 0.3


def test_the_command(unsure: Path, tmp_path: Path) -> None:
    nlp = load(unsure)
    docs = tmp_path / "docs.spacy"
    DocBin(docs=[eg.reference for eg in calibration_docs(nlp)]).to_disk(docs)
    out = run("guarantee", unsure, docs, "--miss", 0.1, "--output", tmp_path / "out").stdout
    assert "at most 0.1 of the entities of a doc are missed" in out
    assert spacy.load(tmp_path / "out").meta["guarantee"]["ner"]["miss"] == 0.1


@pytest.mark.parametrize("by_group", [None, "n"])
def test_the_report_compares_promised_and_observed(
    guaranteed: Language, by_group: str | None
) -> None:
    guarantee(guaranteed, calibration_docs(guaranteed, 120), miss=0.1, by_group=by_group)
    docs = calibration_docs(guaranteed, 30)
    found = report(guaranteed, docs)
    assert found.facts["guaranteed miss rate"] == "0.1"
    at_limit = next(row for row in found.guarantee if row[0] == 0.1)
    missed = [
        numpy.mean([not is_found(ent, doc.spans[KEY], "exact", True) for ent in eg.reference.ents])
        for eg, doc in zip(docs, guaranteed.pipe(eg.predicted.copy() for eg in docs))
        if eg.reference.ents
    ]
    assert at_limit[1] == pytest.approx(numpy.mean(missed))
    html = " ".join(report_page(found).split())
    assert 'id="guarantee-plot"' in html
    assert f"Tested without labels: {found.shift}." in html and "30 docs" in found.shift
