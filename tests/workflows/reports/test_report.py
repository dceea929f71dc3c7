"""Tests of `report`: the numbers and mistakes that it finds, and the page that is made of them."""

import json
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example

from spacy_costner.cli.plots import COLOURS
from spacy_costner.cli.report import report_page, sum_others
from spacy_costner.metrics import bootstrap_intervals
from spacy_costner.ml import linear_part
from spacy_costner.pages.formatting import cost_number, number, percent, probability
from spacy_costner.workflows.calibration.tuning import tune, use_decoding
from spacy_costner.workflows.components import get_component
from spacy_costner.workflows.reports.explanation import TransitionWeights
from spacy_costner.workflows.reports.mistake_costs import Confusion
from spacy_costner.workflows.reports.mistakes import (
    REPORTED_KINDS,
    Mistake,
    group_overlapping,
    kind_of_mistake,
)
from spacy_costner.workflows.reports.reporting import MAX_HEAT_MAP_LABELS, Report, report

from ...support.browser import Browser, needs_chromium
from ...support.commands import run
from ...support.fitting import SPARSE, examples_of
from ...support.fitting import initialized as make_dense_or_sparse
from ...support.pipelines import SMALL, load, misaligned_examples
from ...support.reports import figures_left_out, page_without_figures

# Costs are distances in this tree: city to country 2. A missing or a spurious entity costs one more
# than the longest distance, from city to person, which is 3: 4 for each of its tokens.
TREE = {"place": {"city": {}, "country": {}}, "person": {}}
HIERARCHICAL = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TREE}
COST_SCORER = {"@scorers": "spacy_costner.cost_scorer.v1", "cost": HIERARCHICAL, "tree": TREE}
SCORER_WITHOUT_COST = {"@scorers": "spacy.ner_scorer.v1"}

CORPUS = [
    ("Rome fell .", "B-city O O"),
    ("", ""),
    ("Georgia sank .", "B-country O O"),
    ("Nothing in May .", "O O O O"),
    ("Old Oslo slept .", "B-city I-city O O"),
    ("Lima", "B-city"),
]
ANSWERS = {"Rome": "B-city", "Georgia": "B-city", "May": "B-person", "Oslo": "B-city"}
"""The tags that the pipeline predicts: in CORPUS a correct entity, a wrong label, a spurious entity
and a wrong boundary. All other words are O, so Lima is missing."""

WEIGHTS = {"Georgia": 5.0, "Lima": 2.0, "May": 9.0, "Oslo": 7.0, "Rome": 5.0}
"""How sure the pipeline is of the tag of a word. Of other words: 6."""

CORPUS_OF_9_ENTITIES = [
    *CORPUS,
    ("Rome fell in May .", "B-city O O B-person O"),
    ("Oslo and Georgia fell .", "B-city O B-country O O"),
    ("Rome", "B-city"),
]
"""Shares of 9 have many digits: a wrong one isn't right by rounding."""


def pipeline_that_answers(tag_of_word: dict[str, str] = ANSWERS, **settings: Any) -> Language:
    """A linear pipeline, scored by COST_SCORER, that predicts the given tag for each of these
    words, and O for all other words."""
    nlp = spacy.blank("xx")
    config = {"model": SPARSE, "scheme": "IOB2", "scorer": COST_SCORER, **settings}
    ner = nlp.add_pipe("cost_sensitive_ner", name="ner", config=config)
    for label in ("city", "country", "person"):
        ner.add_label(label)
    nlp.initialize(lambda: examples_of(nlp, CORPUS))
    features, weights = linear_part(ner.model)
    for row, name in enumerate(features.names()):
        kind, _, word = name.partition("=")
        if kind == "ORTH":
            tag = ner.tags.names.index(tag_of_word.get(word, "O"))
            weights.emissions[row, tag] = WEIGHTS.get(word, 6.0)
    return nlp


def pipeline_with_noise() -> Language:
    """A pipeline that predicts entities with all sorts of probabilities, some of which are
    correct."""
    nlp = pipeline_that_answers()
    emissions = linear_part(nlp.get_pipe("ner").model)[1].emissions
    noise = numpy.random.default_rng(0).normal(size=emissions.shape)
    emissions[:] = 0.3 * emissions + 0.5 * noise
    return nlp


def report_on(nlp: Language, docs: Sequence[tuple[str, str]] = CORPUS, **settings: Any) -> Report:
    """The report of a pipeline on docs. A doc is given by its words and its tags."""
    return report(nlp, examples_of(nlp, docs), **settings)


@pytest.fixture(scope="module")
def corpus_report() -> Report:
    """The report on CORPUS of a pipeline that predicts ANSWERS, with the costs of TREE."""
    return report_on(pipeline_that_answers())


def tp_fp_fn(scores: Any) -> tuple[int, int, int]:
    """The numbers of correct, spurious and missing entities."""
    return scores.tp, scores.fp, scores.fn


# The evaluation


def test_report_says_what_was_evaluated(corpus_report: Report) -> None:
    """The empty doc of the corpus doesn't count. The other five docs have 15 tokens."""
    assert corpus_report.pipeline == "xx_pipeline"
    assert corpus_report.docs == 5
    assert corpus_report.tokens == 15
    settings = list(corpus_report.facts.values())[2:]  # after the pipeline and the corpus
    assert settings == [
        "ner",
        "spacy_costner.SparseCRF.v1",
        "spacy_costner.Sequential.v1",
        "spacy_costner.ViterbiDecoding.v1, bias 0",
        "1.000",  # the temperature
        "spacy_costner.HierarchicalCost.v1",
    ]


def test_report_counts_correct_spurious_and_missing_entities(corpus_report: Report) -> None:
    """Rome is correct. Georgia as a city, May and Oslo are spurious. Georgia, Old Oslo and Lima are
    missing. One level up in the tree, Georgia is correct, as both labels are below "place"."""
    assert tp_fp_fn(corpus_report.total) == (1, 3, 3)
    counts_of_label = {label: tp_fp_fn(score) for label, score in corpus_report.labels.items()}
    assert counts_of_label == {"city": (1, 2, 2), "country": (0, 0, 1), "person": (0, 1, 0)}
    counts_of_level = [tp_fp_fn(scores) for scores in corpus_report.levels.values()]
    assert counts_of_level == [(2, 2, 2), (1, 3, 3)]


def test_scores_have_intervals_over_docs(corpus_report: Report) -> None:
    """They are computed from the counts of each doc. Five docs are too few for intervals, and so
    are copies of five docs."""
    nlp = pipeline_that_answers()
    assert corpus_report.intervals is None
    assert "95 % interval" not in page_without_figures(corpus_report)
    assert report_on(nlp, CORPUS * 6).intervals is None
    different_docs: list[tuple[str, str]] = []
    for i in range(6):
        different_docs += [(f"{words} {i}", f"{tags} O") for words, tags in CORPUS_OF_9_ENTITIES]
    result = report_on(nlp, different_docs)
    intervals = result.intervals
    assert intervals is not None
    assert intervals.f[0] < result.total.fscore < intervals.f[1]
    rows: list[tuple[int, int, int]] = []
    for eg in examples_of(nlp, different_docs):
        gold = {(ent.start, ent.end, ent.label_) for ent in eg.reference.ents}
        ours = {(ent.start, ent.end, ent.label_) for ent in nlp(eg.predicted).ents}
        rows.append((len(gold & ours), len(ours - gold), len(gold - ours)))
    assert intervals == bootstrap_intervals(numpy.asarray(rows, dtype="float64"))
    low, high = intervals.recall
    shown = f"95 % interval {100 * low:.1f} to {100 * high:.1f}"
    assert shown in page_without_figures(result)


def test_report_adds_up_costs_by_labels_and_kinds(corpus_report: Report) -> None:
    """A token that is missed, or a false alarm, costs 4, and a country instead of a city 2. The
    wrong boundary misses one token."""
    labels, cost = corpus_report.confusion

    assert labels == ["city", "country", "person", "O"]
    assert cost.tolist() == [
        [0, 0, 0, 8],  # the first word of Old Oslo, and Lima
        [2, 0, 0, 0],  # Georgia
        [0, 0, 0, 0],
        [0, 0, 4, 0],  # May
    ]
    assert corpus_report.kinds == {  # how many there are, and what they cost
        "missing entity": (1, 4),
        "spurious entity": (1, 4),
        "wrong label": (1, 2),
        "wrong boundary": (1, 4),
        "label and boundary": (0, 0),
    }
    assert list(corpus_report.kinds) == list(REPORTED_KINDS)


def test_report_lists_the_costliest_mistakes_first(corpus_report: Report) -> None:
    """Of mistakes with the same cost, those come first that the pipeline is surest of, by
    WEIGHTS."""
    mistakes = [(mistake.text, mistake.kind, mistake.cost) for mistake in corpus_report.mistakes]
    assert mistakes == [
        ("Nothing in May .", "spurious entity", 4),
        ("Old Oslo slept .", "wrong boundary", 4),
        ("Lima", "missing entity", 4),
        ("Georgia sank .", "wrong label", 2),
    ]
    short = report_on(pipeline_that_answers(), n_mistakes=1)
    assert short.mistakes == corpus_report.mistakes[:1]


def test_report_has_the_scores_of_evaluate(corpus_report: Report) -> None:
    nlp = pipeline_that_answers()
    scores = nlp.evaluate(examples_of(nlp, CORPUS))

    for name in ("ents_p", "ents_r", "ents_f", "ents_cost", "ents_sent_acc", "ents_f_level_1"):
        assert corpus_report.scores[name] == pytest.approx(scores[name])
    # The mistakes cost 4 (May), 4 (Old Oslo), 4 (Lima) and 2 (Georgia). CORPUS has 15 tokens.
    assert scores["ents_cost"] == pytest.approx((4 + 4 + 4 + 2) / 15)


def test_marks_of_a_mistake_have_probabilities_of_their_entities(corpus_report: Report) -> None:
    """Old Oslo is annotated. Oslo is predicted, which is token 11 of the corpus."""
    mistake = corpus_report.mistakes[1]
    (annotated,) = mistake.annotated
    (predicted,) = mistake.predicted
    nlp = pipeline_that_answers()
    docs: Any = [eg.predicted for eg in examples_of(nlp, CORPUS)]
    marginals = nlp.get_pipe("ner").posterior(docs).marginals

    assert mistake.text == "Old Oslo slept ."
    assert mistake.doc == 3  # without the empty doc
    assert annotated[:4] == (0, 8, "city", "error")
    assert predicted[:4] == (4, 8, "city", "error")
    assert annotated.prob is not None and predicted.prob is not None
    assert predicted.prob > 0.9 > 0.1 > annotated.prob > 0
    begins_city = nlp.get_pipe("ner").tags.names.index("B-city")
    # The entity also has to end after Oslo, so it is a little less probable than its first tag.
    assert marginals[11, begins_city] == pytest.approx(predicted.prob, abs=1e-2)


def test_marks_tell_the_mistake_from_others_and_from_correct_entities() -> None:
    """The doc has two mistakes: Lima is missing, May is spurious. Rome is correct."""
    docs = [("Rome saw May and Lima .", "B-city O O O B-city O")]
    missing, spurious = report_on(pipeline_that_answers(), docs).mistakes

    def state_of_entity(mistake: Mistake, marks: Sequence[Any]) -> dict[str, str]:
        """The state of each mark of a mistake, by the text of its entity."""
        return {mistake.text[mark.start : mark.end]: mark.state for mark in marks}

    assert state_of_entity(missing, missing.annotated) == {"Rome": "correct", "Lima": "error"}
    assert state_of_entity(missing, missing.predicted) == {"Rome": "correct", "May": "other"}
    assert state_of_entity(spurious, spurious.annotated) == {"Rome": "correct", "Lima": "other"}
    assert state_of_entity(spurious, spurious.predicted) == {"Rome": "correct", "May": "error"}


THRESHOLD_OF_HALF = {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": 0.5}


@pytest.mark.parametrize(
    ("settings", "parameter", "value"),
    [({}, "bias", 0.0), ({"decoding": THRESHOLD_OF_HALF}, "threshold", 0.5)],
    ids=["viterbi", "threshold"],
)
def test_present_setting_lies_on_its_curve(
    settings: dict[str, Any], parameter: str, value: float
) -> None:
    """Four entities are predicted and four are annotated, and one of these is the same: precision
    and recall are 1/4."""
    result = report_on(pipeline_that_answers(**settings))

    assert result.parameter == parameter
    assert result.setting == (value, 0.25, 0.25)
    assert result.setting in result.curves[parameter]
    assert sorted(result.curves) == ["bias", "threshold"]


def data_in_page(html: str) -> Any:
    """The data in the page that its scripts read."""
    (data,) = re.findall(r'(?s)<script type="application/json" id="data">(.*?)</script>', html)
    return json.loads(data)


@pytest.fixture(scope="module")
def data_of_noise() -> Any:
    """The data that scripts read on the page of `pipeline_with_noise`."""
    result = report_on(pipeline_with_noise(), CORPUS_OF_9_ENTITIES)
    return data_in_page(page_without_figures(result))


def test_the_page_has_the_counts_of_the_pipeline_as_it_is(data_of_noise: Any) -> None:
    tp, fp, fn = data_of_noise["total"]
    nlp = pipeline_with_noise()
    scores = nlp.evaluate(examples_of(nlp, CORPUS_OF_9_ENTITIES))
    assert scores["ents_p"] == pytest.approx(tp / (tp + fp))
    assert scores["ents_r"] == pytest.approx(tp / (tp + fn))


def test_sliders_have_the_points_of_tune(data_of_noise: Any) -> None:
    nlp = pipeline_with_noise()
    examples = examples_of(nlp, CORPUS_OF_9_ENTITIES)

    points = tune(nlp, examples, parameter="threshold").points

    expected_points = []
    for threshold, tp, fp, fn in data_of_noise["thresholds"]:
        precision = tp / (tp + fp) if tp + fp else 1.0
        expected_points.append((threshold, precision, tp / (tp + fn)))
    assert points == expected_points


def test_misaligned_entities_are_missing_at_every_threshold(unsure: Path) -> None:
    result = report(load(unsure), misaligned_examples(load(unsure), 4))

    for counts in result.thresholds:
        assert counts.n_correct + counts.n_missing == 8
    assert any(note.startswith("4 of 8 entities don't begin and end") for note in result.notes)


def pipeline_after_rules() -> Language:
    """A pipeline that predicts Rome, Georgia and Oslo as cities. Rules before it set May as a
    DATE, which is a label that the component doesn't have."""
    tag_of_word = {"Rome": "B-city", "Georgia": "B-city", "Oslo": "B-city"}
    nlp = pipeline_that_answers(tag_of_word, scorer=SCORER_WITHOUT_COST)
    ruler: Any = nlp.add_pipe("entity_ruler", before="ner")
    ruler.add_patterns([{"label": "DATE", "pattern": "May"}])
    return nlp


def docs_with_dates(n: int) -> list[tuple[str, str]]:
    """Docs with a correct city and a date, with a wrong label, and with a missing city, n times."""
    docs: list[tuple[str, str]] = []
    for i in range(n):
        docs.append((f"Rome fell in May {i}", "B-city O O B-DATE O"))
        docs.append((f"Georgia sank {i}", "B-country O O"))
        docs.append((f"Lima slept {i} .", "B-city O O O"))
    return docs


def test_entities_of_earlier_components_are_left_out_of_curves_and_present_setting() -> None:
    """They count in the scores of the head. The page says so, unless the rules match nothing."""
    left_out = "set by earlier components aren't counted in this section"

    result = report_on(pipeline_after_rules(), docs_with_dates(4))
    html = page_without_figures(result)

    assert tp_fp_fn(result.total) == (8, 4, 8)
    assert tp_fp_fn(result.setting_counts) == (4, 4, 8)
    assert result.setting == (0.0, 4 / 8, 4 / 12)
    assert result.setting in result.curves["bias"]
    assert data_in_page(html)["total"] == [4, 4, 8]
    for counts in result.thresholds:
        assert counts.n_correct + counts.n_missing == 12
    assert left_out in html.replace("\n", " ")
    without_matches = report_on(pipeline_after_rules(), [("Rome fell .", "B-city O O")])
    assert left_out not in page_without_figures(without_matches).replace("\n", " ")


def test_labels_of_earlier_components_are_not_called_missed() -> None:
    docs = [*docs_with_dates(1), ("Etna smoked", "B-volcano O")]
    notes = report_on(pipeline_after_rules(), docs).notes
    (note,) = (note for note in notes if "doesn't know the labels" in note)
    assert "doesn't know the labels volcano (1): these" in note


def test_sliders_have_the_scores_of_a_pipeline_with_that_threshold(data_of_noise: Any) -> None:
    """Every seventh threshold is tried. The counts must differ, as otherwise the test says
    little."""
    rows = data_of_noise["thresholds"]
    _, *counts_of_thresholds = zip(*rows)  # of correct, spurious and missing entities
    for counts in counts_of_thresholds:
        assert len(set(counts)) > 2
    nlp = pipeline_with_noise()
    examples = examples_of(nlp, CORPUS_OF_9_ENTITIES)

    for threshold, tp, fp, fn in rows[::7]:
        decoding = {**THRESHOLD_OF_HALF, "threshold": threshold, "labels": {}}
        use_decoding(nlp, get_component(nlp, "ner"), decoding)
        scores = nlp.evaluate(examples)
        assert scores["ents_p"] == pytest.approx(tp / max(tp + fp, 1))
        assert scores["ents_r"] == pytest.approx(tp / (tp + fn))
        assert scores["ents_f"] == pytest.approx(2 * tp / (2 * tp + fp + fn))


def test_page_has_the_command_that_tunes_the_threshold() -> None:
    """The name of the folder has a space, so it is quoted in the command."""
    result = report_on(pipeline_that_answers(), source="my models/ner")
    command = data_in_page(page_without_figures(result))["command"]
    assert command == (
        "python -m spacy costner tune 'my models/ner' dev.spacy --output tuned"
        " --name ner --parameter threshold"
    )


def test_slider_starts_at_the_threshold_of_the_pipeline(corpus_report: Report) -> None:
    """It starts at the nearest step of 0.01. If the pipeline has no threshold, it starts at 0.5,
    which is row 49, as row 0 is 0.01."""
    decoding = {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": 0.123}
    with_threshold = report_on(pipeline_that_answers(decoding=decoding))

    data = data_in_page(page_without_figures(corpus_report))
    assert data["start"] == 49
    assert data["thresholds"][49][0] == 0.5
    data = data_in_page(page_without_figures(with_threshold))
    assert data["thresholds"][data["start"]][0] == 0.12


LOSS_WITH_COST = {
    "@losses": "spacy_costner.SoftmaxMargin.v1",
    "multiplier": 1.0,
    "cost": {"@misc": "spacy_costner.ZeroOneCost.v1"},
}
DECODING_WITH_COST = {
    "@misc": "spacy_costner.MinCostDecoding.v1",
    "cost": HIERARCHICAL,
    "tree": TREE,
}


@pytest.mark.parametrize(
    ("settings", "cost_name", "has_tree"),
    [
        ({"loss": LOSS_WITH_COST}, "HierarchicalCost", True),  # the cost of COST_SCORER
        ({"loss": LOSS_WITH_COST, "scorer": SCORER_WITHOUT_COST}, "ZeroOneCost", False),
        ({"decoding": DECODING_WITH_COST, "scorer": SCORER_WITHOUT_COST}, "HierarchicalCost", True),
    ],
    ids=["scorer and loss", "loss", "decoding"],
)
def test_cost_is_found_in_scorer_then_loss_then_decoding(
    settings: dict[str, Any], cost_name: str, has_tree: bool
) -> None:
    result = report_on(pipeline_that_answers(**settings))
    assert result.cost == f"spacy_costner.{cost_name}.v1"
    assert bool(result.levels) is has_tree


def test_without_cost_tags_are_counted() -> None:
    result = report_on(pipeline_that_answers(scorer=SCORER_WITHOUT_COST))
    html = page_without_figures(result, drawn=("confusion",))

    assert (result.cost, result.levels) == ("", {})
    assert result.confusion.cost.tolist() == [
        [1, 0, 0, 2],  # city: Oslo begins where it should continue; Old and Lima are missing
        [1, 0, 0, 0],  # country: Georgia is a city
        [0, 0, 0, 0],
        [0, 0, 1, 0],  # O: May is a person
    ]
    assert result.kinds == {
        "missing entity": (1, 1),
        "spurious entity": (1, 1),
        "wrong label": (1, 1),
        "wrong boundary": (1, 2),  # both tags of Old Oslo
        "label and boundary": (0, 0),
    }
    check_page(html)
    assert "each wrong tag costs 1" in html
    assert ">tokens with a wrong tag</text>" in html
    assert "wrong tags: 2" in html  # the tags of Old Oslo, in the list of mistakes
    assert "level 1" not in html


@pytest.mark.parametrize("scheme", ["BILUO", "IOB2"])
@pytest.mark.parametrize("seed", range(2))
def test_costs_of_mistakes_kinds_and_confusions_have_the_same_sum(scheme: str, seed: int) -> None:
    hamming = {"@misc": "spacy_costner.HammingCost.v1"}
    nlp = pipeline_that_answers(scheme=scheme, scorer={**COST_SCORER, "cost": hamming})
    emissions = linear_part(nlp.get_pipe("ner").model)[1].emissions
    emissions[:] = numpy.random.default_rng(seed).normal(size=emissions.shape)

    result = report_on(nlp)

    total = result.scores["ents_cost"] * result.tokens
    assert total > 5  # there are many mistakes to add up
    assert sum(kind.cost for kind in result.kinds.values()) == pytest.approx(total)
    assert sum(mistake.cost for mistake in result.mistakes) == pytest.approx(total)
    assert result.confusion.cost.sum() == pytest.approx(total)


def min_cost_pipeline_that_answers_place() -> Language:
    """A pipeline that decodes by minimum expected cost. It is sure that Rome is an entity, but not
    of which label. So it predicts "place", the node above all labels."""
    tree = {"place": {"city": {}, "country": {}, "person": {}}}
    cost = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": tree}
    nlp = pipeline_that_answers(
        decoding={"@misc": "spacy_costner.MinCostDecoding.v1", "cost": cost, "tree": tree},
        scorer={**COST_SCORER, "cost": cost, "tree": tree},
    )
    features, weights = linear_part(nlp.get_pipe("ner").model)
    rome = features.names().index("ORTH=Rome")
    weights.emissions[rome] = [-5, 0, -5, 0, -5, 0, -5]  # O, then B and I of each label
    return nlp


def test_answers_that_are_inner_nodes_are_counted_as_mistakes_and_at_their_level() -> None:
    """An inner node has the counts of its level of the tree. On level 1, all labels are places:
    Rome and Georgia are correct, Oslo and May are spurious, and Old Oslo and Lima are missing. In
    the total, no entity is correct: Rome is predicted as a place, and is annotated as a city."""
    result = report_on(min_cost_pipeline_that_answers_place())
    (mistake,) = (mistake for mistake in result.mistakes if mistake.text == "Rome fell .")

    assert tp_fp_fn(result.total) == (0, 4, 4)
    assert tp_fp_fn(result.labels["place"]) == (2, 2, 2)
    assert result.levels["level 1"].tp == 2
    assert mistake.kind == "wrong label"
    assert mistake.cost == 1  # from place to city
    assert mistake.predicted[0].label == "place"


def test_an_inner_node_that_is_annotated_is_counted_as_a_label() -> None:
    """Once Etna is annotated as a place, "place" counts as any label does. Etna is correct, as the
    model doesn't know the word and isn't sure of a label. Rome is predicted as a place, and is
    spurious for this label. Georgia, which is predicted as a city, doesn't count for it."""
    docs = [*CORPUS, ("Etna", "B-place")]
    result = report_on(min_cost_pipeline_that_answers_place(), docs)
    assert tp_fp_fn(result.labels["place"]) == (1, 1, 0)


def test_minimum_cost_decoding_has_no_parameter_on_the_curves() -> None:
    """Other decodings have a threshold or a bias, and the curves show the current one."""
    result = report_on(min_cost_pipeline_that_answers_place())
    html = page_without_figures(result)

    assert result.parameter is None
    assert numpy.isnan(result.setting.value)
    assert "current setting (minimum cost)" in html.replace("\n", " ")


def test_labels_that_only_the_corpus_has_are_missing_entities() -> None:
    """The model doesn't have the label volcano, so it has no probability for its entities."""
    docs = [*CORPUS, ("Etna smoked .", "B-volcano O O")]
    result = report_on(pipeline_that_answers(scorer=SCORER_WITHOUT_COST), docs)

    assert tp_fp_fn(result.labels["volcano"]) == (0, 0, 1)
    without_probability = []
    for mistake in result.mistakes:
        for mark in mistake.annotated:
            if mark.prob is None:
                without_probability.append(mistake.text[mark.start : mark.end])
    assert without_probability == ["Etna"]
    assert "labels" not in result.facts


def test_a_corpus_that_shares_no_label_with_the_pipeline_is_reported() -> None:
    docs = [("Etna smoked .", "B-volcano O O")]
    result = report_on(pipeline_that_answers(scorer=SCORER_WITHOUT_COST), docs)
    assert "no label in common" in result.facts["labels"]
    assert "volcano" in result.facts["labels"]


def test_a_tree_without_a_label_of_the_corpus_is_refused() -> None:
    docs = [*CORPUS, ("Etna smoked .", "B-volcano O O")]
    with pytest.raises(ValueError, match=r"tree: expected a node for every label.*'volcano'"):
        report_on(pipeline_that_answers(), docs)


def test_what_is_not_annotated_does_not_count() -> None:
    """Two docs are added. The first has no annotation and doesn't count. The second counts with two
    tokens and with Georgia, which is annotated as a city here, so that it is correct. Its first
    token, May, isn't annotated: it is predicted, but isn't counted as spurious."""
    nlp = pipeline_that_answers()
    bare = Doc(nlp.vocab, words=["May", "in", "Rome"])
    partly = Doc(nlp.vocab, words=["May", "fell", "Georgia"], ents=["", "O", "B-city"])
    examples = [Example(doc.copy(), doc) for doc in (bare, partly)]

    result = report(nlp, [*examples_of(nlp, CORPUS), *examples])

    assert (result.docs, result.tokens) == (5 + 1, 15 + 2)
    assert tp_fp_fn(result.total) == (1 + 1, 3, 3)
    assert result.kinds["spurious entity"].n_mistakes == 1  # the spurious entity of CORPUS


@pytest.mark.slow
def test_tokens_may_differ_from_the_tokens_of_the_annotation() -> None:
    """The pipeline predicts "Rome" as a city. In the annotation this city is two tokens, "Ro" and
    "me". Entities are compared by their characters."""
    nlp = pipeline_that_answers()
    reference = Doc(nlp.vocab, words=["Ro", "me", "fell"], spaces=[False, True, False])
    reference.set_ents([reference.char_span(0, 4, label="city")])

    result = report(nlp, [Example(nlp.make_doc("Rome fell"), reference)])

    assert tp_fp_fn(result.total) == (1, 0, 0)
    assert result.mistakes == []


def test_misaligned_entities_are_mistakes() -> None:
    """Nothing is predicted, so all entities of the head are missing: London and Berlin, which is a
    part of the token "Berlin2024x", in each doc."""
    nlp = pipeline_that_answers({})
    examples = misaligned_examples(nlp, 10)
    for eg in examples:
        eg.reference.set_ents([Span(eg.reference, i, i + 1, "city") for i in (2, 4)])

    result = report(nlp, examples)

    assert tp_fp_fn(result.total) == (0, 0, 20)
    assert result.kinds["missing entity"] == (20, 20 * 4)
    assert result.confusion.labels == ["city", "O"]
    assert result.confusion.cost[0, 1] == result.scores["ents_cost"] * result.tokens == 20 * 4
    assert result.tokens == 10 * 6


@pytest.mark.parametrize(
    "label, kind, cost", [("city", "wrong boundary", 0), ("person", "label and boundary", 3)]
)
def test_a_predicted_entity_with_the_token_of_a_misaligned_one_is_wrong(
    label: str, kind: str, cost: int
) -> None:
    """Only "Ro" is annotated. The token Rome is predicted. Its tag may be right, but the entity
    isn't. Georgia is correct."""
    nlp = pipeline_that_answers({"Rome": f"B-{label}", "Georgia": "B-country"})
    words = ["Ro", "me", "fell", "."]
    spaces = [False, True, True, False]
    reference = Doc(nlp.vocab, words=words, spaces=spaces, ents=["B-city", "O", "O", "O"])

    examples = [*examples_of(nlp, [("Georgia", "B-country")])]
    examples.append(Example(nlp.make_doc("Rome fell ."), reference))

    result = report(nlp, examples)

    assert tp_fp_fn(result.total) == (1, 1, 1)
    (mistake,) = result.mistakes
    (annotated,) = mistake.annotated
    (predicted,) = mistake.predicted
    assert (mistake.kind, mistake.cost) == (kind, cost)
    assert annotated == (0, 4, "city", "error", 0.0)
    assert predicted[:4] == (0, 4, label, "error")
    assert predicted.prob is not None and predicted.prob > 0.9
    assert page_without_figures(result).count("can't be predicted</i>") == 1


def test_entities_over_a_border_cannot_be_predicted() -> None:
    """Lima Oslo is annotated as one entity, but a sentence begins at Oslo."""
    nlp = pipeline_that_answers(sentence_boundaries=True)
    words = ["Rome", "fell", "in", "Lima", "Oslo", "."]
    tags = ["B-city", "O", "O", "B-city", "I-city", "O"]
    sent_starts: Any = [True, False, False, False, True, False]
    reference = Doc(nlp.vocab, words=words, ents=tags, sent_starts=sent_starts)
    predicted = Doc(nlp.vocab, words=words, sent_starts=sent_starts)

    result = report(nlp, [*examples_of(nlp, CORPUS), Example(predicted, reference)])

    assert result.facts["across boundaries"].startswith("1 annotated entities can't be predicted")
    impossible = []
    for mistake in result.mistakes:
        for mark in mistake.annotated:
            if mark.prob == 0:
                impossible.append((mistake.text[mark.start : mark.end], mark.label))
    assert impossible == [("Lima Oslo", "city")]
    assert page_without_figures(result).count("can't be predicted</i>") == 1
    assert "across boundaries" not in report_on(nlp).facts


SO_100_TIMES = " ".join(["so"] * 100)


@pytest.mark.parametrize(
    ("text", "text_of_mistake"),
    [
        (f"{SO_100_TIMES} Lima {SO_100_TIMES}", "… " + "so " * 29 + "Lima" + " so" * 29 + " …"),
        (f"Lima {SO_100_TIMES}", "Lima" + " so" * 29 + " …"),
        ("so Lima so", "so Lima so"),
        ("So it was . In Lima . Yes .", "In Lima ."),
    ],
    ids=["cut on both sides", "cut at the end", "short", "one sentence of three"],
)
def test_sentences_are_shown_and_long_ones_cut(text: str, text_of_mistake: str) -> None:
    """At most 60 tokens are shown: the mistake and (60 - 1) // 2 = 29 tokens on each side."""
    nlp = pipeline_that_answers()
    nlp.add_pipe("sentencizer", first=True)
    tags = " ".join("B-city" if word == "Lima" else "O" for word in text.split())

    (mistake,) = report_on(nlp, [(text, tags)]).mistakes

    assert mistake.text == text_of_mistake
    assert mistake.predicted == []
    (lima,) = mistake.annotated
    assert mistake.text[lima.start : lima.end] == "Lima"


def test_entities_that_overlap_in_a_chain_are_a_group() -> None:
    annotated = [(0, 2, "a"), (3, 5, "a"), (5, 6, "a"), (8, 9, "b")]
    predicted = [(1, 4, "a"), (6, 7, "a"), (8, 9, "b")]
    assert group_overlapping(annotated, predicted) == [
        ([(0, 2, "a"), (3, 5, "a")], [(1, 4, "a")]),  # both overlap with 1 to 4
        ([(5, 6, "a")], []),  # next to others isn't over them
        ([], [(6, 7, "a")]),
        ([(8, 9, "b")], [(8, 9, "b")]),
    ]


def test_another_label_at_another_place_is_a_kind_of_its_own() -> None:
    kind = kind_of_mistake([(0, 2, "a")], [(1, 2, "b")])
    assert kind == "label and boundary" == REPORTED_KINDS[-1]


def test_corpus_without_entities_is_refused() -> None:
    with pytest.raises(ValueError, match="with annotated entities, got none"):
        report_on(pipeline_that_answers(), [("", "")])
    with pytest.raises(ValueError, match="docs with entities, got none"):
        report_on(pipeline_that_answers(), [("Rome", "O")])


# The page


SECTIONS = ["scores", "curve", "confidence", "confusion", "mistakes", "model"]
NO_NUMBER = "\N{EN DASH}"


def check_page(html: str) -> list[str]:
    """Check that a page is well formed and needs nothing from elsewhere. Returns the tags of its
    elements."""
    assert html.startswith("<!DOCTYPE html>")
    text = re.sub("<!DOCTYPE html>|<meta .*?>|&middot;", "", html)  # what XML doesn't have
    root = ElementTree.fromstring(re.sub("(?s)(?<=<script>).*?(?=</script>)", "", text))
    tags = [element.tag.split("}")[-1] for element in root.iter()]
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]

    assert not {"link", "img", "iframe"} & set(tags)
    assert tags.count("script") == 2  # the data, and what reads it
    assert '<form hidden=""' in html  # without scripts
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert "@import" not in html
    assert "url(" not in html.split("</style>")[0]
    assert len(ids) == len(set(ids))
    assert set(SECTIONS) <= set(ids)
    for element in root.iter():
        for name, value in element.attrib.items():
            if name.split("}")[-1] == "href":
                assert value.startswith("data:") or (value[0] == "#" and value[1:] in ids)
            if name == "aria-labelledby":
                assert value in ids
    return tags


@pytest.mark.slow
def test_page_shows_facts_and_figures_of_the_report(corpus_report: Report) -> None:
    facts = {**corpus_report.facts, "pipeline": "here", "corpus": "there: 5 docs"}

    html = report_page(corpus_report._replace(facts=facts))

    assert check_page(html).count("svg") == 4
    positions = [html.index(f'<section id="{section}"') for section in SECTIONS]
    assert positions == sorted(positions)
    captions = re.findall(r"<figcaption[^>]*>(.*?)</figcaption>", html, flags=re.DOTALL)
    assert len(captions) == 4
    assert min(len(caption) for caption in captions) > 100
    for text in (
        "xx_pipeline",
        "here",
        "there: 5 docs",
        "25.00",  # precision, recall and F in percent
        "0.9333",  # the cost of a token, 14 / 15
        "level 2",
        "spurious entity",
        "spacy_costner.HierarchicalCost.v1",
        ">annotated</text>",
        ">weight</text>",
        'class="error">Old Oslo<span class="label">city <i>',
        ">recall (% of annotated entities)</text>",
        ">precision (% of predicted entities)</text>",
        ">confidence (probability of the entity)</text>",
        ">precision (share of correct entities)</text>",
    ):
        assert text in html, text


def test_tables_of_the_page_have_scores_and_counts(corpus_report: Report) -> None:
    """A row has precision, recall and F, then the numbers of annotated, predicted and correct
    entities."""
    html = page_without_figures(corpus_report)
    cells = {}
    for name, row in re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', html, re.DOTALL):
        # Labels are in later tables, too: the first counts.
        cells.setdefault(name, re.findall("<td[^>]*>(.*?)</td>", row))

    assert cells["city"] == ["33.33", "33.33", "33.33", "3", "3", "1"]
    assert cells["country"] == ["0.00", NO_NUMBER, "0.00", "1", "0", "0"]
    assert cells["all"] == ["25.00", "25.00", "25.00", "4", "4", "1"]
    assert cells["missing entity"] == ["1", "4"]  # how many, and what they cost


def random_confusion(n_labels: int) -> Confusion:
    """Random costs of the labels l0, l1, ... and O."""
    shape = (n_labels + 1, n_labels + 1)
    cost = numpy.random.default_rng(n_labels).integers(0, 50, shape).astype("float64")
    return Confusion([*(f"l{i}" for i in range(n_labels)), "O"], cost)


def test_costliest_labels_are_shown_and_the_others_summed() -> None:
    n_labels = MAX_HEAT_MAP_LABELS + 2
    labels, cost = random_confusion(n_labels)
    cost_of_label = {
        labels[i]: cost[i].sum() + cost[:, i].sum() - cost[i, i] for i in range(n_labels)
    }

    names, summed_cost = sum_others(random_confusion(n_labels))

    *shown, others, outside = names
    hidden = [label for label in labels[:-1] if label not in shown]
    assert len(shown) == MAX_HEAT_MAP_LABELS
    assert (others, outside) == ("2 others", "O")
    assert shown == [label for label in labels if label in shown]  # in their order
    lowest_shown = min(cost_of_label[label] for label in shown)
    assert lowest_shown >= max(cost_of_label[label] for label in hidden)
    # The rows of `cost` that each row of `summed_cost` is the sum of.
    groups = [[labels.index(label)] for label in shown]
    groups.append([labels.index(label) for label in hidden])
    groups.append([n_labels])
    for i, j in numpy.ndindex(summed_cost.shape):
        assert summed_cost[i, j] == cost[numpy.ix_(groups[i], groups[j])].sum()


def test_a_single_label_too_many_is_shown() -> None:
    """If only one label had to be summed, the row "1 others" would save no row."""
    confusion = random_confusion(MAX_HEAT_MAP_LABELS + 1)
    assert sum_others(confusion) is confusion


def transitions_of(n_tags: int) -> TransitionWeights:
    """Transition weights between `n_tags` tags. From the tag t<i> to the tag t<j> the weight is
    1000 i + j."""
    names = [f"t{i}" for i in range(n_tags)]
    weights = [[1000.0 * i + j for j in range(n_tags)] for i in range(n_tags)]
    return TransitionWeights(names, names, weights)


def test_page_of_many_labels_sums_them_and_has_numbers_on_hover(
    corpus_report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are 8 labels: 3 are shown, and 5 are summed."""
    monkeypatch.setattr("spacy_costner.cli.report.MAX_TAGS", 6)
    monkeypatch.setattr("spacy_costner.cli.report.MAX_HEAT_MAP_LABELS", 3)
    confusion = random_confusion(8)
    result = corpus_report._replace(confusion=confusion, transitions=transitions_of(6))

    html = page_without_figures(result, drawn=("confusion", "transitions"))

    assert check_page(html).count("svg") == 4
    assert "are summed" in html
    assert "too many tags for a figure" not in html
    hovers = re.findall(r"<title>([^<]+) \N{RIGHTWARDS ARROW} ([^<]+): ([\d,]+)<", html)
    assert ("t5", "t1", "5,001") in hovers
    cost_of_others = sum_others(confusion).cost[-1, -2]  # of O, the last row
    assert ("O", "5 others", f"{cost_of_others:.0f}") in hovers


def test_page_of_too_many_tags_has_no_figure_of_transitions(
    corpus_report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says so, and has the other three figures. There is one tag too many."""
    monkeypatch.setattr("spacy_costner.cli.report.MAX_TAGS", 6)
    result = corpus_report._replace(confusion=random_confusion(38), transitions=transitions_of(7))

    html = page_without_figures(result)

    assert check_page(html).count("svg") == 3
    assert "too many tags for a figure" in html
    assert "are summed" in html


def test_markup_is_text() -> None:
    """Markup may be in texts and labels of the corpus, in the names of the pipeline, and in
    paths."""
    words = "<script>alert(1)</script> & <b>Lima</b> {{0}} {%x%}"
    nlp = pipeline_that_answers(scorer=SCORER_WITHOUT_COST)
    nlp.meta["name"] = "<i>name</i>"
    nlp.meta["version"] = "<sub>1"

    result = report_on(nlp, [(words, "O O B-<u> O O")], source="<s>", corpus="<q>")
    html = page_without_figures(result._replace(cost="<del>"))

    assert not {"u", "q", "s", "sub", "del"} & set(check_page(html))
    assert "<b>Lima" not in html
    for markup in ("<b>Lima</b>", "<u>", "<i>name", "<s>", "<q>", "<script>alert(1)", "<sub>1"):
        assert escape(markup) in html
    # The words before the path are "python -m spacy costner tune".
    assert data_in_page(html)["command"].split()[5] == "'<s>'"
    assert "{{0}} {%x%}" in html  # no template of its own


def test_report_leaves_pipeline_and_docs_as_they_are() -> None:
    nlp = pipeline_that_answers()
    examples = examples_of(nlp, [("Rome fell .", "B-city O O")])
    pipeline_before = nlp.to_bytes()

    report(nlp, examples)

    assert nlp.to_bytes() == pipeline_before
    assert not examples[0].predicted.has_annotation("ENT_IOB")


def test_page_without_predictions() -> None:
    result = report_on(pipeline_that_answers({}))
    html = page_without_figures(result, drawn=("precision-recall",))

    assert tp_fp_fn(result.total) == (0, 0, 4)
    assert result.setting.precision == 1.0
    assert check_page(html).count("svg") == 3
    assert "No entities were predicted" in html
    assert "<dt>Precision</dt><dd>\N{EN DASH}<small></small></dd><dd>of 0 predicted" in html


def test_page_without_mistakes() -> None:
    right = {"Rome": "B-city", "Georgia": "B-country", "Old": "B-city", "Oslo": "I-city"}
    result = report_on(pipeline_that_answers({**right, "Lima": "B-city"}))
    html = page_without_figures(result)

    assert result.total.fscore == pytest.approx(1)
    assert result.mistakes == []
    assert check_page(html).count("svg") == 3
    assert "All tags are correct." in html
    assert "No mistakes to show." in html


def test_page_shows_the_transitions_of_a_dense_model() -> None:
    nlp, examples = make_dense_or_sparse(**SMALL)
    output_layer = nlp.get_pipe("ner").model.get_ref("output_layer")
    output_layer.get_param("transitions")[0, 1] = 2.5

    result = report(nlp, examples)

    assert result.transitions.weights[0][1] == 2.5
    assert ">2.5</text>" in page_without_figures(result, drawn=("transitions",))


def test_page_keeps_line_breaks_of_texts(corpus_report: Report) -> None:
    rome = Mistake(0, REPORTED_KINDS[0], 1.0, "so\nRome", [(3, 7, "city", "error", 0.5)], [])
    html = page_without_figures(corpus_report._replace(mistakes=[rome]))
    assert '<dd>so\n<mark class="error">Rome<span class="label">city <i>50 %</i>' in html
    assert "<dd>so\nRome</dd>" in html  # what is predicted: no entity
    assert "white-space: pre-line" in html


def test_style_sheet_has_the_colours_of_the_figures(corpus_report: Report) -> None:
    """Figures have the colours of the light mode. The dark mode has other colours."""
    html = page_without_figures(corpus_report)
    for name, colour in COLOURS.items():
        ((light, dark),) = re.findall(rf"--{name}: light-dark\((#\w+), (#\w+)\);", html)
        assert light == colour != dark


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (number(1234.5), "1,234"),
        (number(None), NO_NUMBER),
        (number(float("nan"), 2), NO_NUMBER),
        (percent(0.12345), "12.35"),
        (percent(None), NO_NUMBER),
        (percent(1.0, 0), "100"),
        (cost_number(3.0), "3"),
        (cost_number(2.5), "2.50"),
        (cost_number(12345), "12,345"),
        (probability(0.0), "0 %"),
        (probability(1e-9), "< 1 %"),
        (probability(0.005), "< 1 %"),
        (probability(0.5), "50 %"),
        (probability(0.994), "99 %"),
        (probability(0.996), "> 99 %"),
        (probability(1.0), "100 %"),
    ],
)
def test_numbers_are_rounded_for_readers(text: str, expected: str) -> None:
    assert text == expected


@pytest.fixture
def saved_pipeline(tmp_path: Path) -> Iterator[Path]:
    """The folder of the pipeline that predicts ANSWERS. Pages have empty figures."""
    pipeline_that_answers().to_disk(tmp_path / "pipeline")
    with figures_left_out():
        yield tmp_path / "pipeline"


def save_docs(path: Path, corpus: Sequence[tuple[str, str]]) -> Path:
    """Save docs to a .spacy file. A doc is given by its words and its tags. Returns the path."""
    DocBin(docs=[eg.reference for eg in examples_of(spacy.blank("xx"), corpus)]).to_disk(path)
    return path


def test_command_writes_the_page(saved_pipeline: Path, tmp_path: Path) -> None:
    corpus = save_docs(tmp_path / "test.spacy", CORPUS)
    output = tmp_path / "new" / "report.html"

    result = run("report", saved_pipeline, corpus, "--output", output, "--mistakes", 2)

    assert result.exit_code == 0, result.output
    assert f"Written to {output}" in result.output
    recurrence = "5 of 5 texts (100 %) recur in the training corpus"
    assert f"note: {corpus}: {recurrence}: scores on them are too high\n" in result.stderr
    html = output.read_text(encoding="utf8")
    check_page(html)
    assert html.count("<li>") == 2  # mistakes
    assert f"{corpus}: 5 docs, 15 tokens, 4 entities" in html


def test_command_warns_of_labels_that_the_pipeline_lacks(
    saved_pipeline: Path, tmp_path: Path
) -> None:
    corpus = save_docs(tmp_path / "test.spacy", [("Etna", "B-place")])
    result = run("report", saved_pipeline, corpus, "--output", tmp_path / "report.html")
    assert result.exit_code == 0
    assert "no label in common" in result.stderr


def test_command_refuses_a_name_that_no_component_has(saved_pipeline: Path, tmp_path: Path) -> None:
    corpus = save_docs(tmp_path / "test.spacy", CORPUS)
    output = tmp_path / "report.html"
    result = run("report", saved_pipeline, corpus, "--output", output, "--name", "parser")
    assert result.exit_code == 1
    assert "got 'parser'" in result.output
    assert not output.exists()


# The page in a browser


def texts_of_sliders(tab: Browser) -> dict[str, str]:
    """What the page says about its sliders: the text of each element that has an id."""
    return tab.run(
        "Object.fromEntries([...document.querySelectorAll('form [id]')]"
        ".map(element => [element.id, element.textContent]))"
    )


def expected_texts(row: Sequence[Any], cost_of_miss: float, total: Sequence[int]) -> dict[str, str]:
    """What the page should say about a threshold.

    row (Sequence[Any]): The threshold, with its numbers of correct, spurious and missing entities.
    cost_of_miss (float): What a miss costs, in false alarms.
    total (Sequence[int]): The same numbers of the pipeline as it is.
    """
    threshold, tp, fp, fn = row
    _, fp_now, fn_now = total
    precision = f"{percent(tp / (tp + fp))} %" if tp + fp else NO_NUMBER
    return {
        "threshold-text": f"{threshold:g}",
        "fn": str(fn),
        "fp": str(fp),
        "f": f"{percent(2 * tp / (2 * tp + fp + fn))} %",
        "r": f"{percent(tp / (tp + fn))} %",
        "p": precision,
        "p-note": f"of {tp + fp} predicted",
        "cost": f"{cost_of_miss * fn + fp:g}",
        "cost-now": f"{cost_of_miss * fn_now + fp_now:g}",
    }


DISTANCE_OF_RING = """
(() => {
  const numbers = (element, ...names) => names.map(name => Number(element.getAttribute(name)));
  const [x, y] = numbers(svg.querySelector(".tried"), "cx", "cy");
  const points = [...svg.querySelectorAll("use")].map(element => numbers(element, "x", "y"));
  return Math.min(...points.map(([u, v]) => Math.hypot(x - u, y - v)));
})()
"""
"""The distance of the ring from the closest point of a curve."""


DOT_IS_IN_RING = """
(() => {
  const dot = svg.querySelector(".chosen use").getBBox(), ring = svg.querySelector(".tried");
  const style = getComputedStyle(ring);
  const inner = ring.r.baseVal.value - parseFloat(style.strokeWidth) / 2;
  return style.fill === "none" && inner > dot.width / 2;
})()
"""
"""Whether the point of the current setting is seen where the ring is around it."""


class SliderPage:
    """The page in a tab of the browser, and what its sliders should say."""

    def __init__(self, tab: Browser, data: dict[str, Any]) -> None:
        self.tab = tab
        self.thresholds = data["thresholds"]  # rows: threshold, tp, fp, fn
        self.total = data["total"]  # tp, fp, fn of the pipeline now
        self.command = data["command"]

    def check(self, row: Sequence[Any], cost_of_miss: float) -> None:
        """Check the texts of the page, whose sliders stand at the threshold of a row and at a cost
        of a miss."""
        texts = texts_of_sliders(self.tab)
        texts["cost-now"] = re.findall(r"now (\S+);", texts["cost-note"])[0]
        for name, text in expected_texts(row, cost_of_miss, self.total).items():
            assert texts[name] == text
        least_cost = min(cost_of_miss * fn + fp for _, _, fp, fn in self.thresholds)
        assert f"lowest {least_cost:g} at" in texts["cost-note"]
        self.check_command(row, texts)

    def check_command(self, row: Sequence[Any], texts: dict[str, str]) -> None:
        """Check the command of the page. It tunes for the precision of the row if the recall of the
        row is lower than the present one, and otherwise for its recall. The number is rounded down,
        so that it can be reached. If no predicted entity is correct, there is no such command."""
        _, tp, fp, fn = row
        assert self.tab.run("byId('tuning').hidden") is (tp == 0)
        precision = tp / (tp + fp) if tp + fp else 1.0
        recall = tp / (tp + fn)
        tp_now, _, fn_now = self.total
        if recall < tp_now / (tp_now + fn_now):
            aim, share = "precision", precision
        else:
            aim, share = "recall", recall
        assert texts["aim"] == aim
        assert texts["command"].startswith(f"{self.command} --{aim} ")
        share_of_command = float(texts["command"].split()[-1])
        assert share - 1e-4 < share_of_command <= share


@needs_chromium
@pytest.mark.slow
def test_sliders_move_in_a_browser(tab: Browser, tmp_path: Path) -> None:
    """The page is tested on a wide screen in light mode, and on a narrow one in dark mode. If a
    miss costs c, the best threshold is 1 / (1 + c). At first a miss costs 1, so the threshold is
    0.5, which is row 49. The slider of costs has the steps of MISS_COSTS: from 1 it is two
    steps to 3; the first is 0.05, the last is 50."""
    html = report_page(report_on(pipeline_with_noise(), CORPUS_OF_9_ENTITIES))
    path = tmp_path / "report.html"
    path.write_text(html, encoding="utf8")
    backgrounds = set()

    page = SliderPage(tab, data_in_page(html))
    for width, dark in ((1200, False), (420, True)):
        tab.open(path, width, dark)
        assert tab.run("document.documentElement.scrollWidth") <= width
        assert tab.run("[...document.querySelectorAll('input')].every(e => e.labels.length)")
        backgrounds.add(tab.run("getComputedStyle(document.body).backgroundColor"))
        page.check(page.thresholds[49], cost_of_miss=1)
        assert tab.run(DOT_IS_IN_RING)
        tab.run("byId('miss').focus()")
        for key, times, cost in (("ArrowRight", 2, 3), ("Home", 1, 0.05), ("End", 1, 50)):
            tab.press(key, times)
            distances = [abs(row[0] - 1 / (1 + cost)) for row in page.thresholds]
            page.check(page.thresholds[numpy.argmin(distances)], cost)
        tab.press("Tab")  # to the slider of the threshold
        for key, times, i in (("Home", 1, 0), ("ArrowRight", 30, 30)):
            tab.press(key, times)
            page.check(page.thresholds[i], cost_of_miss=50)
            assert tab.run(DISTANCE_OF_RING) < 0.1
    assert len(backgrounds) == 2
