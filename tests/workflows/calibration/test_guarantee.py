"""Tests of `guarantee`: what it guarantees, the sets that a pipeline then writes, and when the
guarantee is dropped."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import spacy
import srsly
from hypothesis import assume, given
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example

from spacy_costner.cli.guarantee import guarantee_text
from spacy_costner.decoding import LEAST_PROB_OF_SETS, Posterior, make_viterbi
from spacy_costner.pipeline.guaranteed_sets import SMOOTHING, guarantee_scores
from spacy_costner.pipeline.promises import FOUND, Terms
from spacy_costner.readers.documents import with_metadata
from spacy_costner.tags import Entities
from spacy_costner.workflows.apply.annotating import annotate
from spacy_costner.workflows.calibration.calibration_docs import note_earlier_uses
from spacy_costner.workflows.calibration.guarantees import guarantee
from spacy_costner.workflows.calibration.scored_spans import score_spans, thresholds_to_find
from spacy_costner.workflows.calibration.set_thresholds import find_part
from spacy_costner.workflows.calibration.temperature import calibrate
from spacy_costner.workflows.calibration.tuning import tune
from spacy_costner.workflows.evaluation.predictions import DevPredictions
from spacy_costner.workflows.reports.reporting import report

from ...support.commands import run
from ...support.linear import SPARSE
from ...support.pipelines import (
    TEXTS,
    examples,
    load,
    misaligned_examples,
    numbered_examples,
    pipeline,
    train,
)
from ...support.posteriors import posterior
from ...support.reports import page_without_figures
from ...support.strategies import seeds

KEY = "confidence_guaranteed"  # of doc.spans
TAG_OF_WORD = {"Khan": "U-PERSON", "London": "U-LOC", "Berlin": "U-LOC", "Sox": "U-sports-team"}
TERMS = Terms(miss=0.1, found="exact", by="doc")


def calibration_docs(nlp: Language, n: int = 60) -> list[Example]:
    """Annotated docs whose entities the model finds more or less easily. The key n of a doc is 1
    if it has more than 6 words, which is harder, and else 0."""
    rng = numpy.random.default_rng(0)
    examples = []
    for _ in range(n):
        words = rng.permutation([*TAG_OF_WORD, "lost", "like", "Who", "is", "the", "and"]).tolist()
        words = words[: rng.integers(2, 11)]
        tags = [TAG_OF_WORD.get(word, "O") for word in words]
        eg = Example.from_dict(Doc(nlp.vocab, words=words), {"entities": tags})
        for doc in (eg.predicted, eg.reference):
            doc.user_data["n"] = int(len(words) > 6)
        examples.append(eg)
    return examples


@pytest.fixture
def guaranteed(unsure: Path) -> Language:
    """A pipeline that guarantees to miss at most 0.1 of the entities of a doc."""
    nlp = load(unsure)
    nlp.get_pipe("ner").cfg["temperature"]["overall"] = 1.2239012345678912  # all digits are saved
    guarantee(nlp, calibration_docs(nlp), miss=0.1)
    return nlp


class Place(NamedTuple):
    """A span by its tokens; with the names of the attributes of spaCy's spans."""

    start: int
    end: int
    label_: str


def guaranteed_places(doc: Doc) -> list[Place]:
    """The spans of the guaranteed set of a doc."""
    return [Place(span.start, span.end, span.label_) for span in doc.spans[KEY]]


def is_found(ent: Any, spans: list[Any], found: str, by_label: bool) -> bool:
    """The definition of "found": the set has the entity itself ("exact"), or its spans cover each
    token of the entity ("covered"). With `by_label`, only spans with the label of the entity
    count."""
    if by_label:
        spans = [span for span in spans if span.label_ == ent.label_]
    if found == "exact":
        return any((span.start, span.end) == (ent.start, ent.end) for span in spans)
    covered: set[int] = set()
    for span in spans:
        covered.update(range(span.start, span.end))
    return covered.issuperset(range(ent.start, ent.end))


@pytest.mark.parametrize("by_group", [None, "n"])
@pytest.mark.parametrize("per_label", [False, True])
@pytest.mark.parametrize("found", FOUND)
def test_the_sets_keep_the_promise_on_the_calibration_docs(
    unsure: Path, found: str, per_label: bool, by_group: str | None
) -> None:
    """Conformal risk control guarantees a limit if (n m + 1) / (n + 1) is at most the limit, where
    m is the mean share of missed entities of the n docs that have entities. The sets that the
    pipeline writes to the docs keep that for each group and each label."""
    nlp = load(unsure)
    limit = 0.25 if by_group else 0.15  # groups have fewer docs
    examples = calibration_docs(nlp)

    result = guarantee(
        nlp, examples, miss=limit, found=found, per_label=per_label, by_group=by_group
    )

    docs = list(nlp.pipe(eg.predicted.copy() for eg in examples))
    n_labels = 3 if per_label else 1
    n_groups = 2 if by_group else 1
    assert len(result.parts) == n_labels * n_groups
    by_label = per_label or found == "exact"
    for part in result.parts:
        shares_missed = []  # of the docs of the group that have entities of the label
        n_entities = 0
        n_spans = 0
        for doc, eg in zip(docs, examples):
            if by_group and str(doc.user_data["n"]) != part.group:
                continue
            gold = [ent for ent in eg.reference.ents if part.label in ("", ent.label_)]
            spans = [span for span in doc.spans[KEY] if part.label in ("", span.label_)]
            n_entities += len(gold)
            n_spans += len(spans)
            if gold:
                missed = [not is_found(ent, spans, found, by_label) for ent in gold]
                shares_missed.append(numpy.mean(missed))
        n = len(shares_missed)
        assert part.docs == n
        assert part.entities == n_entities
        assert (n * numpy.mean(shares_missed) + 1) / (n + 1) <= limit
        assert part.spans == pytest.approx(n_spans / n_entities)  # spans for each entity
        assert part.reachable is not None and part.reachable <= limit


def test_the_promise_is_saved_in_the_meta(guaranteed: Language, tmp_path: Path) -> None:
    guaranteed.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)

    promise = loaded.meta["guarantee"]["ner"]
    thresholds = promise["groups"][""]  # without groups there is one, ""
    assert promise["miss"] == 0.1
    assert promise["docs"] == 60  # with those without entities, which don't count
    assert promise["source"]
    assert promise["not_counted"]["docs without entities"] >= 1
    assert [0.1, thresholds["threshold"]] in thresholds["levels"]
    assert loaded.get_pipe("ner").guarantee.groups[""].levels == thresholds["levels"]


def test_guaranteed_spans_are_sorted_and_have_their_probabilities(guaranteed: Language) -> None:
    """The set has the predicted entities and others, and no span twice. It is empty for an empty
    doc."""
    ner: Any = guaranteed.get_pipe("ner")

    doc = guaranteed("I like London and Berlin.")

    places = guaranteed_places(doc)
    assert places == sorted(places, key=lambda place: (place.start, place.end))
    assert len(set(places)) == len(places) > len(doc.ents)
    assert {(ent.start, ent.end, ent.label_) for ent in doc.ents} <= set(places)

    spans = Entities(
        begin=numpy.asarray([place.start for place in places]),
        end=numpy.asarray([place.end for place in places]),
        label=numpy.asarray([ner.labels.index(place.label_) for place in places]),
    )
    probs = ner.posterior([doc]).entity_probs(spans)
    assert doc.spans[KEY].attrs["scores"] == pytest.approx(probs, rel=1e-4)

    assert not guaranteed("").spans[KEY]


@pytest.mark.parametrize(
    ("found", "by"), [("exact", "doc"), ("exact", "any"), ("covered", "doc")], ids=str
)
@given(posterior=posterior())
def test_scores_of_spans_by_definition(posterior: Posterior, found: str, by: str) -> None:
    """The score of a span with a label is its probability, smoothed over the labels. If entities
    only have to be covered, the likeliest label gets the probability of all labels together, and
    the others have no score. If the miss rate is by doc, the score is divided by the square root of
    the number of entities that are expected in the sequence."""
    spans, probs = posterior.likely_entities(LEAST_PROB_OF_SETS, lowest_floor=LEAST_PROB_OF_SETS)
    prob_of = {(begin, end, label): p for begin, end, label, p in zip(*spans, probs)}
    n_labels = len(posterior.tags.labels)
    sequence_ends = numpy.cumsum(posterior.potentials.lengths)

    scored_spans, scores = guarantee_scores(posterior, replace(TERMS, found=found, by=by))

    expected = {}
    for begin, end in {(begin, end) for begin, end, _ in prob_of}:
        probs_of_labels = [prob_of.get((begin, end, label), 0.0) for label in range(n_labels)]
        prob_of_any = sum(probs_of_labels)
        sequence_begin = max([0, *(stop for stop in sequence_ends if stop <= begin)])
        sequence_end = min(stop for stop in sequence_ends if stop > begin)
        n_expected = 0.0
        for (other_begin, _, _), p in prob_of.items():
            if sequence_begin <= other_begin < sequence_end:
                n_expected += p
        for label, p in enumerate(probs_of_labels):
            score = (1 - SMOOTHING) * p + SMOOTHING * prob_of_any / n_labels
            if found == "covered":
                is_likeliest = label == numpy.argmax(probs_of_labels)
                score = prob_of_any if is_likeliest else 0.0
            if by == "doc":
                score /= max(1.0, n_expected) ** 0.5
            if score >= LEAST_PROB_OF_SETS / 10:
                expected[begin, end, label] = score

    places = zip(*(column.tolist() for column in scored_spans))
    assert dict(zip(places, scores.tolist())) == pytest.approx(expected)


CHANGES = {
    "training": lambda nlp: nlp.update(examples(nlp), sgd=nlp.create_optimizer()),
    "rehearsal": lambda nlp: nlp.get_pipe("ner").rehearse(examples(nlp)),
    "add_label": lambda nlp: nlp.get_pipe("ner").add_label("DRUG"),
    "calibrate": lambda nlp: calibrate(nlp, examples(nlp)),
    "tune": lambda nlp: tune(nlp, examples(nlp)),
    "set_decoding": lambda nlp: nlp.get_pipe("ner").set_decoding(make_viterbi(bias=1.0)),
    # It is noticed when the next doc is predicted.
    "temperature": lambda nlp: (nlp.get_pipe("ner").cfg["temperature"].update(overall=2), nlp("a")),
    "initialize": lambda nlp: nlp.initialize(lambda: examples(nlp)),
}
KEEP_OR_REPLACE_SHIFT_SCORES = ["calibrate", "tune", "set_decoding"]
"""After these the scores of the test for a shift are as before, or new ones."""


@pytest.fixture
def changed(guaranteed: Language, tmp_path: Path, request: pytest.FixtureRequest) -> Language:
    """The guaranteed pipeline, saved and loaded again, after the change that a test gives as its
    parameter."""
    guaranteed.to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    assert KEY in nlp("London").spans
    with pytest.warns(UserWarning, match="ner: the guarantee is dropped"):
        CHANGES[request.param](nlp)
    return nlp


@pytest.mark.parametrize("changed", CHANGES, indirect=True)
def test_a_change_of_predictions_drops_the_promise(changed: Language) -> None:
    assert changed.get_pipe("ner").guarantee is None
    assert not changed.meta["guarantee"]
    assert KEY not in changed("London").spans


@pytest.mark.parametrize("changed", KEEP_OR_REPLACE_SHIFT_SCORES, indirect=True)
def test_another_decoding_or_calibration_leaves_the_test_for_a_shift(changed: Language) -> None:
    assert "entropy" in changed("London").spans["confidence"].attrs


@pytest.mark.parametrize(
    "changed", sorted(CHANGES.keys() - {*KEEP_OR_REPLACE_SHIFT_SCORES}), indirect=True
)
def test_another_model_drops_the_test_for_a_shift(changed: Language) -> None:
    doc = changed("London")
    assert "entropy" not in doc.spans["confidence"].attrs
    message = "ner: shift: expected scores of calibration docs, got"
    with pytest.raises(ValueError, match=message):
        changed.get_pipe("ner").shift([doc])


def test_the_test_for_a_shift_needs_a_confidence(guaranteed: Language, tmp_path: Path) -> None:
    guaranteed.to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    ner: Any = nlp.get_pipe("ner")
    doc = nlp("London")
    ner.set_confidence(None)

    message = "ner: shift: expected a confidence"
    with (
        pytest.warns(UserWarning, match="ner: the guarantee is dropped"),
        pytest.raises(ValueError, match=message),
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


def test_scores_of_calibration_docs_of_other_settings_are_dropped(guaranteed: Language) -> None:
    guaranteed("London")  # looks at the settings
    ner: Any = guaranteed.get_pipe("ner")
    other_settings = {**ner.calibration_scores.holds_for, "scheme": "IOB2"}
    ner.calibration_scores = replace(ner.calibration_scores, holds_for=other_settings)
    guaranteed("London")
    assert ner.calibration_scores is None


@pytest.mark.parametrize(
    "settings",
    [
        {"decoding": {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": 0.4}},
        {"decoding": {"@misc": "spacy_costner.ViterbiDecoding.v1", "bias": 0.4}},
        {"confidence": None},
    ],
    ids=["another decoding", "another bias", "no confidences"],
)
def test_loading_with_another_config_drops_the_promise(
    guaranteed: Language, tmp_path: Path, settings: dict[str, Any]
) -> None:
    guaranteed.to_disk(tmp_path)
    with pytest.warns(UserWarning, match="guarantee is dropped, as it does not hold after an"):
        nlp = load(tmp_path, **settings)
    assert not nlp.meta["guarantee"]


def test_a_promise_that_was_edited_on_disk_is_refused(guaranteed: Language, tmp_path: Path) -> None:
    guaranteed.to_disk(tmp_path)
    cfg = json.loads((tmp_path / "ner" / "cfg").read_text())
    cfg["guarantee"]["miss"] = 0.001
    (tmp_path / "ner" / "cfg").write_text(json.dumps(cfg))
    with pytest.raises(ValueError, match=r"was saved with this cfg, digest"):
        spacy.load(tmp_path)


def test_processes_and_threads_keep_the_promise(guaranteed: Language) -> None:
    """If the guarantee were dropped there would be a warning, and warnings are errors here."""
    expected = [guaranteed_places(doc) for doc in guaranteed.pipe(TEXTS)]
    in_processes = [guaranteed_places(doc) for doc in guaranteed.pipe(TEXTS, n_process=2)]
    with ThreadPoolExecutor(4) as threads:
        in_threads = [guaranteed_places(doc) for doc in threads.map(guaranteed, TEXTS * 4)]

    assert any(expected)
    assert in_processes == expected
    assert in_threads == expected * 4


@pytest.mark.parametrize("way", ["from_bytes", "sourced"])
def test_copies_of_the_component_keep_the_promise(
    guaranteed: Language, tmp_path: Path, way: str
) -> None:
    if way == "from_bytes":
        copy = pipeline(confidence={"@misc": "spacy_costner.Confidence.v1"})
        copy.from_bytes(guaranteed.to_bytes())
    else:  # as `spacy assemble` does
        sourced = spacy.blank("xx")
        sourced.add_pipe("ner", source=guaranteed)
        sourced.to_disk(tmp_path)
        copy = spacy.load(tmp_path)

    expected = [guaranteed_places(doc) for doc in guaranteed.pipe(TEXTS)]
    assert [guaranteed_places(doc) for doc in copy.pipe(TEXTS)] == expected
    assert copy.get_pipe("ner").guarantee.miss == 0.1


GROUPED_TEXT = "Who like Khan the Sox lost and London is Berlin"


class Grouped(NamedTuple):
    """A saved pipeline with a guarantee for each value of the key n of docs, and the set that
    GROUPED_TEXT should have in each group."""

    model: Path
    places_of_group: dict[str, list[Place]]


@pytest.fixture
def grouped(unsure: Path, tmp_path: Path) -> Grouped:
    """A pipeline with a guarantee for the groups 0 and 1. The threshold of group 1 is set to 0.9,
    so that the two groups have different sets."""
    nlp = load(unsure)
    promise = guarantee(nlp, calibration_docs(nlp, 120), miss=0.2, by_group="n").promise
    promise.groups["1"] = replace(promise.groups["1"], threshold=0.9)
    nlp.get_pipe("ner").set_guarantee(promise)
    nlp.to_disk(tmp_path / "model")

    places_of_group = {}
    for group in ("0", "1"):
        # The same guarantee for all docs.
        ner: Any = nlp.get_pipe("ner")
        ner.set_guarantee(replace(promise, by_group=None, groups={"": promise.groups[group]}))
        places_of_group[group] = guaranteed_places(nlp(GROUPED_TEXT))
    assert places_of_group["0"] != places_of_group["1"]
    return Grouped(tmp_path / "model", places_of_group)


def test_groups_have_thresholds_of_their_own(unsure: Path) -> None:
    """A doc without the key doesn't count."""
    nlp = load(unsure)
    examples = calibration_docs(nlp, 120)
    examples[0].reference.user_data.clear()

    promise = guarantee(nlp, examples, miss=0.2, by_group="n").promise

    assert promise.not_counted["docs without 'n'"] == 1
    assert promise.docs == 119
    assert promise.groups["0"].threshold != promise.groups["1"].threshold


@pytest.mark.filterwarnings("ignore:.*no guaranteed set")
@pytest.mark.parametrize(
    "options", [{}, {"n_process": 2, "batch_size": 1}], ids=["one process", "two processes"]
)
def test_each_doc_has_the_set_of_its_group(grouped: Grouped, options: dict[str, int]) -> None:
    """A doc without the key has no set, and neither has a doc of a group (2) that nothing was
    guaranteed for."""
    nlp = spacy.load(grouped.model)
    metadata: Any = [{"n": 0}, {"n": 1}, {"n": 2}, {}]
    docs = [with_metadata(nlp.make_doc(GROUPED_TEXT), keys) for keys in metadata]

    first, second, unknown, without = nlp.pipe(docs, **options)

    assert guaranteed_places(first) == grouped.places_of_group["0"]
    assert guaranteed_places(second) == grouped.places_of_group["1"]
    assert KEY not in unknown.spans
    assert KEY not in without.spans


def test_annotate_writes_the_sets_of_groups_and_warns_of_docs_without(
    grouped: Grouped, tmp_path: Path
) -> None:
    lines: Any = [{"n": 0}, {"n": 1}, {"n": 2}, {}]
    srsly.write_jsonl(tmp_path / "in.jsonl", [{"text": GROUPED_TEXT, **line} for line in lines])

    warning = "no guaranteed set for docs whose 'n' is 2, None: there is no guarantee"
    with pytest.warns(UserWarning, match=warning):
        annotate(grouped.model, [tmp_path / "in.jsonl"], tmp_path / "out")

    (path,) = (tmp_path / "out").glob("in.jsonl-*.jsonl")
    first, second, unknown, without = srsly.read_jsonl(path)
    for row, group in ((first, "0"), (second, "1")):
        labels = [place.label_ for place in grouped.places_of_group[group]]
        assert [span["label"] for span in row["guaranteed"]] == labels
    assert unknown["guaranteed"] is None
    assert without["guaranteed"] is None


def example_with_missing_tag(nlp: Language) -> Example:
    """A doc where Khan is annotated as a person, and "lost" has no annotation."""
    doc = Doc(nlp.vocab, words=["Khan", "is", "lost"])
    return Example.from_dict(doc, {"entities": ["U-PERSON", "O", "-"]})


def test_docs_with_missing_tags_do_not_count(unsure: Path) -> None:
    nlp = load(unsure)
    partial = example_with_missing_tag(nlp)

    promise = guarantee(nlp, [*calibration_docs(nlp), partial, partial], miss=0.1).promise

    assert promise.not_counted["docs with missing tags"] == 2
    assert promise.docs == 60


MISALIGNED = "60 of 120 entities don't begin and end with tokens of the pipeline"


def test_misaligned_entities_are_missed(unsure: Path) -> None:
    """No set finds Berlin, so at least half of the entities are missed."""
    nlp = load(unsure)
    examples = misaligned_examples(nlp, 60)
    with pytest.raises(ValueError, match=rf"0\.5083 or more with these 60 docs.* {MISALIGNED}"):
        guarantee(nlp, examples, miss=0.1)

    result = guarantee(nlp, examples, miss=0.6)

    assert result.parts[0].entities == result.promise.entities == 120
    assert [note.startswith(MISALIGNED) for note in result.notes] == [True]


def test_misaligned_entities_are_covered_with_all_of_their_tokens(unsure: Path) -> None:
    nlp = load(unsure)
    examples = misaligned_examples(nlp, 60)

    result = guarantee(nlp, examples, miss=0.1, found="covered")

    assert result.parts[0].entities == 120
    n_missed = 0
    for eg, doc in zip(examples, nlp.pipe(eg.predicted.copy() for eg in examples)):
        covered: set[int] = set()  # characters
        for span in doc.spans[KEY]:
            covered.update(range(span.start_char, span.end_char))
        for ent in eg.reference.ents:
            n_missed += not covered.issuperset(range(ent.start_char, ent.end_char))
    assert (n_missed / 2 + 1) / (60 + 1) <= 0.1


@pytest.mark.parametrize(
    "terms, expected",
    [
        # The preset Khan is right. Shaka is a part of the person Shaka Khan, and "Khan" can still
        # be in the set. London has another label. Oslo and Rome have a label that the component
        # doesn't know, but only the preset Rome is right. The token Sox is blocked.
        (TERMS, [numpy.inf, 0, 0, 0, numpy.inf, 0]),
        (replace(TERMS, found="covered"), [numpy.inf, "set", numpy.inf, numpy.inf, numpy.inf, 0]),
        (
            replace(TERMS, found="covered", per_label=True),
            [numpy.inf, 0, 0, numpy.inf, numpy.inf, 0],
        ),
    ],
)
def test_annotated_entities_are_found_by_preset_entities(
    unsure: Path, terms: Terms, expected: list[Any]
) -> None:
    """The threshold at which each annotated entity is found is infinite if preset entities find
    it."""
    nlp = load(unsure)
    words = ["Khan", "and", "Shaka", "Khan", "and", "London", "Oslo", "Rome", "Sox"]
    tags = ["U-PERSON", "O", "B-PERSON", "L-PERSON", "O", "U-LOC", "U-GPE", "U-GPE", "U-LOC"]
    eg = Example.from_dict(Doc(nlp.vocab, words=words), {"entities": tags})
    doc = eg.predicted
    preset = {0: "PERSON", 2: "LOC", 5: "PERSON", 6: "CITY", 7: "GPE"}
    doc.set_ents(
        [Span(doc, i, i + 1, label=label) for i, label in preset.items()],
        blocked=[doc[8:9]],
        default="missing",
    )

    scored = score_spans(nlp, nlp.get_pipe("ner"), [eg], terms)

    assert scored.n_presets == 5
    for threshold, expected_threshold in zip(scored.gold["score"], expected, strict=True):
        if expected_threshold == "set":
            assert threshold > 0
        else:
            assert threshold == expected_threshold


@pytest.mark.parametrize("found, threshold", [("exact", 0), ("covered", numpy.inf)])
def test_preset_entities_only_cover_misaligned_ones(
    unsure: Path, found: str, threshold: float
) -> None:
    nlp = load(unsure)
    examples = misaligned_examples(nlp, 1)
    doc = examples[0].predicted
    doc.set_ents([Span(doc, 4, 5, label="LOC")], default="missing")

    scored = score_spans(nlp, nlp.get_pipe("ner"), examples, replace(TERMS, found=found))

    assert scored.gold["score"].tolist()[1:] == [threshold]


@pytest.fixture
def ruled(unsure: Path) -> Language:
    """A pipeline with rules that come first. One is right, and one has a label that the component
    doesn't know."""
    nlp = load(unsure)
    ruler: Any = nlp.add_pipe("entity_ruler", first=True)
    ruler.add_patterns([{"label": "PERSON", "pattern": "Khan"}])
    ruler.add_patterns([{"label": "CITY", "pattern": "Berlin"}])
    return nlp


@pytest.mark.parametrize("found, limit", [("exact", 0.5), ("covered", 0.15)])
def test_sets_and_preset_entities_keep_the_promise_together(
    ruled: Language, found: str, limit: float
) -> None:
    """With "exact", Berlin is always missed."""
    examples = calibration_docs(ruled)

    result = guarantee(ruled, examples, miss=limit, found=found)

    assert any("in doc.ents and not in the sets: only both" in note for note in result.notes)
    shares_missed = []
    n_entities = n_spans = n_missed_by_the_set = 0
    for eg, doc in zip(examples, ruled.pipe(eg.predicted.copy() for eg in examples)):
        gold = eg.reference.ents
        n_entities += len(gold)
        n_spans += len(doc.spans[KEY])
        if gold:
            group = [*doc.spans[KEY]]
            both = [*group, *doc.ents]
            by_label = found == "exact"
            shares_missed.append(
                numpy.mean([not is_found(ent, both, found, by_label) for ent in gold])
            )
            n_missed_by_the_set += sum(not is_found(ent, group, found, by_label) for ent in gold)
    n = len(shares_missed)
    (part,) = result.parts
    assert (part.docs, part.entities) == (n, n_entities)
    assert (n * numpy.mean(shares_missed) + 1) / (n + 1) <= limit
    assert part.spans == pytest.approx(n_spans / n_entities)
    assert n_missed_by_the_set > 0.2 * n_entities  # Khan and Berlin


def test_a_wrong_rule_cannot_be_guaranteed(unsure: Path) -> None:
    """The rule cuts Shaka Khan, so at least half of the entities are missed."""
    nlp = load(unsure)
    ruler: Any = nlp.add_pipe("entity_ruler", first=True)
    ruler.add_patterns([{"label": "LOC", "pattern": "Shaka"}])
    gold = {"entities": [(7, 17, "PERSON"), (26, 32, "LOC")]}
    examples = [
        Example.from_dict(nlp.make_doc(f"Who is Shaka Khan? I like London. {i}"), gold)
        for i in range(60)
    ]
    with pytest.raises(ValueError, match=r"0\.5083 or more with these 60 docs"):
        guarantee(nlp, examples, miss=0.1)


def test_it_is_an_error_if_no_docs_count(unsure: Path) -> None:
    nlp = load(unsure)
    with pytest.raises(ValueError, match="that training hasn't seen, got 1 docs with missing tags"):
        guarantee(nlp, [example_with_missing_tag(nlp)], miss=0.1)
    with pytest.raises(ValueError, match=r"annotated docs with entities.* got none"):
        guarantee(nlp, [], miss=0.1)


def test_all_docs_that_were_used_to_calibrate_or_tune_are_noted(
    unsure: Path, tmp_path: Path
) -> None:
    """The note needs a pipeline that is saved in between."""
    nlp = load(unsure)
    calibrate(nlp, examples(nlp), source="a.spacy")
    nlp.to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    for _ in range(2):
        tune(nlp, examples(nlp), parameter="threshold", source="b.spacy")
    assert nlp.meta["tuned_on"] == ["a.spacy", "b.spacy"]
    assert nlp.meta["performance"]["measured_on"]["source"] == "b.spacy"

    for source, n_notes in {"a.spacy": 1, "./b.spacy": 1, "c.spacy": 0}.items():
        result = guarantee(nlp, numbered_examples(nlp, 20), miss=0.9, source=source)
        note = f"{source} were used to calibrate or tune, and may be too easy."
        assert result.notes.count(note) == n_notes


def test_docs_that_an_earlier_version_was_tuned_on_are_noted(unsure: Path) -> None:
    """It saved only the last source, in the scores. The next one doesn't replace it."""
    nlp = load(unsure)
    nlp.meta["performance"] = {"measured_on": {"source": "a.spacy", "docs": 3}}
    assert note_earlier_uses(nlp, "a.spacy")
    calibrate(nlp, examples(nlp), source="b.spacy")
    assert note_earlier_uses(nlp, "a.spacy")
    assert note_earlier_uses(nlp, "b.spacy")


def test_training_docs_are_refused() -> None:
    """A model with label memory recognises its training docs. Of the three docs here, two are
    training docs, and the empty one counts as a doc with missing tags."""
    features = {**SPARSE["features"], "memory": {"LOWER": 1}}
    nlp = pipeline(model={**SPARSE, "features": features})
    train(nlp, steps=3)
    with pytest.raises(
        ValueError, match="that training hasn't seen, got 2 training docs, 1 docs with miss"
    ):
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
        ({"miss": 0.001, "confidence": 0.95}, r"0\.001 takes about [23],\d\d\d docs"),
        ({"false_alarm": 0.001}, "false_alarm: expected a limit that can be guaranteed"),
    ],
)
def test_terms_that_cannot_be_promised_are_refused(unsure: Path, terms: Any, message: str) -> None:
    """There are 60 docs, and between 50 and 59 of them have entities. On average over calibration
    docs, even sets that miss nothing guarantee no less than 1 / (n + 1), about 0.017. With a
    confidence of 0.95, 0.001 takes n docs with 0.999^n < 0.05, which is about 3,000. After the
    error, nothing is guaranteed."""
    nlp = load(unsure)
    with pytest.raises(ValueError, match=message):
        guarantee(nlp, calibration_docs(nlp), **terms)
    assert nlp.get_pipe("ner").guarantee is None
    assert "guarantee" not in nlp.meta


def test_too_few_docs_cannot_be_enough(unsure: Path) -> None:
    """A limit of 0.05 takes at least 1 / 0.05 - 1 = 19 docs, even if nothing is missed. With 18
    docs, the lowest limit is 1 / 19 = 0.0526, which is rounded up."""
    nlp = load(unsure)
    examples = [eg for eg in calibration_docs(nlp) if eg.reference.ents]

    message = r"0\.0527 or more with these 18 docs; 0\.05 takes about 19 docs"
    with pytest.raises(ValueError, match=message):
        guarantee(nlp, examples[:18], miss=0.05, found="covered")

    result = guarantee(nlp, examples[:19], miss=0.05, found="covered")
    assert result.parts[0].docs == 19


def test_two_groups_share_what_may_fail(unsure: Path) -> None:
    """A confidence of 0.7 for both groups is a confidence of 0.85 for each, as 1 - 0.3 / 2 = 0.85.
    What is guaranteed for a group only depends on its own docs."""
    nlp = load(unsure)
    examples = calibration_docs(nlp, 120)
    expected = []
    for n in (0, 1):
        examples_of_group = [eg for eg in examples if eg.reference.user_data["n"] == n]
        (part,) = guarantee(nlp, examples_of_group, miss=0.4, confidence=0.85).parts
        expected.append(part._replace(group=str(n)))

    result = guarantee(nlp, examples, miss=0.4, confidence=0.7, by_group="n")

    assert result.parts == expected


def test_three_labels_share_what_may_fail(unsure: Path) -> None:
    """A confidence of 0.7 for all three labels is a confidence of 0.9 for each label, not of 0.7,
    as 1 - 0.3 / 3 = 0.9."""
    nlp = load(unsure)
    ner: Any = nlp.get_pipe("ner")
    examples = calibration_docs(nlp, 120)

    result = guarantee(nlp, examples, miss=0.4, confidence=0.7, per_label=True)

    scored = score_spans(nlp, ner, examples, result.promise)

    def parts_with(confidence: float) -> list[Any]:
        """What is guaranteed for each label with this confidence, if it were the only label."""
        terms = replace(result.promise, confidence=confidence)
        parts = []
        for i, label in enumerate(ner.labels):
            spans = scored.spans[scored.spans["label"] == i]
            gold = scored.gold[scored.gold["label"] == i]
            part = find_part(spans, gold, terms=terms, n_docs=len(examples), n_parts=1)
            parts.append(part._replace(label=label))
        return parts

    assert result.parts == parts_with(0.9)
    assert result.parts != parts_with(0.7)


@given(posterior(), seeds, st.sampled_from(FOUND), st.booleans())
def test_an_entity_is_found_at_the_highest_threshold_that_leaves_spans_which_find_it(
    posterior: Posterior, rng: numpy.random.Generator, found: str, per_label: bool
) -> None:
    """Tests `thresholds_to_find` on 6 random entities and 6 random spans with scores from 0.1 to
    0.8."""
    n_labels = len(posterior.tags.labels)
    n_tokens = len(posterior.scores.emissions)
    assume(n_tokens)

    def random_entities(least_label: int) -> Entities:
        """Six random entities. `least_label` is the lowest index of a label."""
        begin = rng.integers(n_tokens, size=6)
        end = [b + 1 + rng.integers(min(3, n_tokens - b)) for b in begin]
        label = rng.integers(least_label, n_labels, size=6)
        return Entities(begin, numpy.asarray(end), label)

    gold = random_entities(-1)  # a label that the model lacks
    spans = random_entities(0)
    scores = rng.integers(1, 9, size=6) / 10
    dev = DevPredictions([], posterior, random_entities(0), numpy.ones(n_tokens, dtype=bool))
    terms = replace(TERMS, found=found, per_label=per_label)

    thresholds = thresholds_to_find(dev, gold, spans, scores, terms)

    places = [Place(*span) for span in zip(*spans)]
    by_label = per_label or found == "exact"
    for entity, threshold in zip(zip(*gold), thresholds):
        thresholds_that_find_it = [0.0]
        for score in scores:
            left = [place for place, p in zip(places, scores) if p >= score]
            if is_found(Place(*entity), left, found, by_label):
                thresholds_that_find_it.append(score)
        assert threshold == max(thresholds_that_find_it)


def test_a_limit_of_false_alarms_leaves_probable_spans_and_few_wrong_ones(unsure: Path) -> None:
    """The mean share of wrong spans in a set is below the limit of 0.3, but isn't 0. A limit of
    false alarms is always guaranteed with a confidence. If none is given, it is 0.95."""
    nlp = load(unsure)
    examples = calibration_docs(nlp, 200)

    promise = guarantee(nlp, examples, false_alarm=0.3).promise

    shares_wrong = []
    for eg, doc in zip(examples, nlp.pipe(eg.predicted.copy() for eg in examples)):
        scores = doc.spans[KEY].attrs["scores"]
        assert min(scores, default=1.0) >= promise.groups[""].threshold
        gold = {(ent.start, ent.end, ent.label_) for ent in eg.reference.ents}
        is_wrong = [place not in gold for place in guaranteed_places(doc)]
        shares_wrong.append(numpy.mean(is_wrong) if is_wrong else 0.0)
    assert 0 < numpy.mean(shares_wrong) < 0.3
    assert promise.confidence == 0.95


def test_docs_without_entities_count_for_false_alarms(unsure: Path) -> None:
    """Their spans are false alarms."""
    examples = calibration_docs(load(unsure), 200)
    n_without = sum(not eg.reference.ents for eg in examples)

    result = guarantee(load(unsure), examples, false_alarm=0.3)
    assert result.parts[0].docs == 200
    assert "not counted" not in guarantee_text(result)

    result = guarantee(load(unsure), examples, miss=0.3)
    assert result.parts[0].docs == 200 - n_without
    assert f"not counted: {n_without} docs without entities" in guarantee_text(result)


def test_the_command_says_and_saves_what_is_promised(unsure: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "docs.spacy"
    DocBin(docs=[eg.reference for eg in calibration_docs(load(unsure))]).to_disk(corpus)

    done = run("guarantee", unsure, corpus, "--miss", 0.1, "--output", tmp_path / "out")

    assert "at most 0.1 of the entities of a doc are missed" in done.stdout
    assert spacy.load(tmp_path / "out").meta["guarantee"]["ner"]["miss"] == 0.1


def test_the_command_says_that_it_replaces_a_promise(unsure: Path, tmp_path: Path) -> None:
    """The output may be the pipeline itself: then the earlier guarantee is lost."""
    corpus = tmp_path / "docs.spacy"
    DocBin(docs=[eg.reference for eg in calibration_docs(load(unsure))]).to_disk(corpus)
    out = tmp_path / "out"

    first = run("guarantee", unsure, corpus, "--miss", 0.1, "--output", out)
    second = run("guarantee", out, corpus, "--miss", 0.2, "--output", out)

    assert "replaced" not in first.stdout
    replaced = "note: an earlier guarantee is replaced: at most 0.1 of the entities of a doc are m"
    assert replaced in second.stdout
    assert spacy.load(out).meta["guarantee"]["ner"]["miss"] == 0.2


@pytest.mark.slow
@pytest.mark.parametrize("by_group", [None, "n"])
def test_the_report_compares_promised_and_observed(
    guaranteed: Language, by_group: str | None
) -> None:
    docs = calibration_docs(guaranteed, 120)
    guarantee(guaranteed, docs, miss=0.1, found="exact", by_group=by_group)
    examples = calibration_docs(guaranteed, 30)

    result = report(guaranteed, examples)

    # The report has a row for each limit with a saved threshold. 0.1 is the guaranteed one.
    (observed,) = (row for row in result.guarantee if row.limit == 0.1)
    docs = guaranteed.pipe(eg.predicted.copy() for eg in examples)
    shares_missed = []
    for eg, doc in zip(examples, docs):
        gold = eg.reference.ents
        if gold:
            missed = [not is_found(ent, doc.spans[KEY], "exact", by_label=True) for ent in gold]
            shares_missed.append(numpy.mean(missed))
    assert observed.miss_rate == pytest.approx(numpy.mean(shares_missed))
    assert result.facts["guaranteed miss rate"] == "0.1"

    html = " ".join(page_without_figures(result).split())
    assert 'id="guarantee-plot"' in html
    assert f"Tested without labels: {result.shift}." in html
    assert "30 docs" in result.shift


def test_the_report_observes_nothing_on_docs_that_do_not_count(guaranteed: Language) -> None:
    """These docs have missing tags, or belong to no group of the guarantee."""
    assert report(guaranteed, [example_with_missing_tag(guaranteed)]).guarantee == []
    guarantee(guaranteed, calibration_docs(guaranteed, 120), miss=0.2, by_group="n")
    without_group = calibration_docs(guaranteed, 5)
    for eg in without_group:
        eg.reference.user_data.clear()
    assert report(guaranteed, without_group).guarantee == []
