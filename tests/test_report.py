"""The report: what it finds, and the page that it makes of it."""

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example

from spacy_costner.analysis.explanation import TransitionWeights
from spacy_costner.analysis.predictions import get_component
from spacy_costner.analysis.reporting import (
    KINDS,
    MAX_LABELS,
    Confusion,
    Mistake,
    Report,
    group_overlapping,
    kind_of,
    report,
)
from spacy_costner.analysis.tuning import tune, use_decoding
from spacy_costner.cli.pages import cost_number, number, percent, probability
from spacy_costner.cli.plots import COLOURS
from spacy_costner.cli.report import report_page, sum_others
from spacy_costner.ml import linear_part

from .support.browser import Browser, browser, needs_chromium
from .support.commands import run
from .support.fitting import SPARSE, examples_of
from .support.fitting import initialized as dense_or_sparse
from .support.pipelines import SMALL

TREE = {"place": {"city": {}, "country": {}}, "person": {}}
HIERARCHICAL = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TREE}
SCORER = {"@scorers": "spacy_costner.cost_scorer.v1", "cost": HIERARCHICAL, "tree": TREE}
PLAIN = {"@scorers": "spacy.ner_scorer.v1"}

CORPUS = [
    ("Rome fell .", "B-city O O"),
    ("", ""),
    ("Georgia sank .", "B-country O O"),
    ("Nothing in May .", "O O O O"),
    ("Old Oslo slept .", "B-city I-city O O"),
    ("Lima", "B-city"),
]
ANSWERS = {"Rome": "B-city", "Georgia": "B-city", "May": "B-person", "Oslo": "B-city"}
"""The tags of words that are not O: correct, a wrong label, a spurious entity, a wrong boundary.
Lima is missing."""

WEIGHT = {"Georgia": 5.0, "Lima": 2.0, "May": 9.0, "Oslo": 7.0, "Rome": 5.0}
MORE = [
    *CORPUS,
    ("Rome fell in May .", "B-city O O B-person O"),
    ("Oslo and Georgia fell .", "B-city O B-country O O"),
    ("Rome", "B-city"),
]
"""With 9 entities, so that shares have many digits of precision."""


def pipeline(answers: dict[str, str] = ANSWERS, **settings: Any) -> Language:
    """A pipeline that gives these answers, and others O."""
    nlp = spacy.blank("en")
    config = {"model": SPARSE, "scheme": "IOB2", "scorer": SCORER, **settings}
    ner = nlp.add_pipe("cost_sensitive_ner", name="ner", config=config)
    for label in ("city", "country", "person"):
        ner.add_label(label)
    nlp.initialize(lambda: examples_of(nlp, CORPUS))
    features, weights = linear_part(ner.model)
    for i, (kind, _, word) in enumerate(name.partition("=") for name in features.names()):
        if kind == "ORTH":
            tag = ner.tags.names.index(answers.get(word, "O"))
            weights.emissions[i, tag] = WEIGHT.get(word, 6.0)
    return nlp


def evaluated(
    nlp: Language | None = None, docs: Sequence[tuple[str, str]] = CORPUS, **settings: Any
) -> Report:
    nlp = nlp or pipeline()
    return report(nlp, examples_of(nlp, docs), **settings)


@pytest.fixture(scope="module")
def by_hand() -> Report:
    return evaluated()


def counts(scores: Any) -> tuple[int, int, int]:
    return scores.tp, scores.fp, scores.fn


# The evaluation


def test_by_hand(by_hand: Report) -> None:
    """Distances in the tree; a miss or a false alarm costs one more than the longest, 3."""
    assert (by_hand.pipeline, by_hand.docs, by_hand.tokens) == ("en_pipeline", 5, 15)
    assert [*by_hand.facts.values()][2:] == [
        "ner", "spacy_costner.SparseCRF.v1", "spacy_costner.Sequential.v1",
        "spacy_costner.ViterbiDecoding.v1, bias 0", "1.000", "spacy_costner.HierarchicalCost.v1",
    ]  # fmt: skip
    assert counts(by_hand.total) == (1, 3, 3)
    of_labels = {label: counts(score) for label, score in by_hand.labels.items()}
    assert of_labels == {"city": (1, 2, 2), "country": (0, 0, 1), "person": (0, 1, 0)}
    assert [counts(level) for level in by_hand.levels.values()] == [(2, 2, 2), (1, 3, 3)]
    labels, cost = by_hand.confusion
    assert labels == ["city", "country", "person", "O"]
    assert cost.tolist() == [[0, 0, 0, 8], [2, 0, 0, 0], [0, 0, 0, 0], [0, 0, 4, 0]]
    assert by_hand.kinds == dict(zip(KINDS, [(1, 4), (1, 4), (1, 2), (1, 4), (0, 0)]))
    assert [(one.text, one.kind, one.cost) for one in by_hand.mistakes] == [
        ("Nothing in May .", "spurious entity", 4),
        ("Old Oslo slept .", "wrong boundary", 4),
        ("Lima", "missing entity", 4),
        ("Georgia sank .", "wrong label", 2),
    ]
    assert evaluated(n_mistakes=1).mistakes == by_hand.mistakes[:1]
    nlp = pipeline()
    scores = nlp.evaluate(examples_of(nlp, CORPUS))
    for name in ("ents_p", "ents_r", "ents_f", "ents_cost", "ents_sent_acc", "ents_f_level_1"):
        assert by_hand.scores[name] == pytest.approx(scores[name])
    assert scores["ents_cost"] == pytest.approx(14 / 15)


def test_entities_of_a_mistake(by_hand: Report) -> None:
    mistake = by_hand.mistakes[1]
    (*gold, p_gold), (*predicted, p_predicted) = *mistake.annotated, *mistake.predicted
    assert mistake.text == "Old Oslo slept ."
    assert (gold, predicted) == ([0, 8, "city", "error"], [4, 8, "city", "error"])
    assert mistake.doc == 3  # the empty doc is none
    assert p_gold is not None and p_predicted is not None
    assert p_predicted > 0.9 > 0.1 > p_gold > 0
    nlp = pipeline()
    docs: Any = [eg.predicted for eg in examples_of(nlp, CORPUS)]
    marginals = nlp.get_pipe("ner").posterior(docs).marginals
    assert marginals[11, 1] == pytest.approx(p_predicted, abs=1e-2)
    docs = [("Rome saw May and Lima .", "B-city O O O B-city O")]
    missing, spurious = evaluated(pipeline(ANSWERS), docs).mistakes
    states = [
        {one.text[start:end]: state for start, end, _, state, _ in marks}
        for one in (missing, spurious)
        for marks in (one.annotated, one.predicted)
    ]
    others = [{"Lima": "error"}, {"May": "other"}, {"Lima": "other"}, {"May": "error"}]
    assert states == [{"Rome": "correct", **other} for other in others]


def test_present_setting_lies_on_its_curve(by_hand: Report) -> None:
    threshold = {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": 0.5}
    for result, parameter, value in (
        (by_hand, "bias", 0.0),
        (evaluated(pipeline(decoding=threshold)), "threshold", 0.5),
    ):
        assert result.parameter == parameter and result.setting == (value, 0.25, 0.25)
        assert result.setting in result.curves[parameter]
        assert sorted(result.curves) == ["bias", "threshold"]


def unsure() -> Language:
    """A pipeline with entities of all probabilities, some of them correct."""
    nlp = pipeline()
    emissions = linear_part(nlp.get_pipe("ner").model)[1].emissions
    noise = numpy.random.default_rng(0).normal(size=emissions.shape)
    emissions[:] = 0.3 * emissions + 0.5 * noise
    return nlp


def without_figures(report: Report) -> str:
    """The page, but figures, which take a second, are empty."""
    with patch("spacy_costner.cli.plots.as_svg", lambda *_: "<svg></svg>"):
        return report_page(report)


def data_of(html: str) -> Any:
    (data,) = re.findall(r'(?s)<script type="application/json" id="data">(.*?)</script>', html)
    return json.loads(data)


def test_sliders_have_the_scores_of_tune_and_evaluate() -> None:
    nlp = unsure()
    batch, ner = examples_of(nlp, MORE), get_component(nlp, "ner")
    data = data_of(without_figures(report(nlp, batch, source="my models/ner")))
    now = nlp.evaluate(batch)
    tp, fp, fn = data["total"]
    assert (now["ents_p"], now["ents_r"]) == pytest.approx((tp / (tp + fp), tp / (tp + fn)))
    assert min(len({*column}) for column in [*zip(*data["thresholds"])][1:]) > 2
    for value, tp, fp, fn in data["thresholds"][::7]:
        block = {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": value, "labels": {}}
        use_decoding(nlp, ner, block)
        scores = nlp.evaluate(batch)
        p, r, f = tp / max(tp + fp, 1), tp / (tp + fn), 2 * tp / (2 * tp + fp + fn)
        assert [scores[f"ents_{x}"] for x in "prf"] == pytest.approx([p, r, f])
    points = tune(nlp, batch, parameter="threshold").points
    for point, (value, tp, fp, fn) in zip(points, data["thresholds"]):
        assert point == (value, tp / (tp + fp) if tp + fp else 1.0, tp / (tp + fn))
    command = "python -m spacy costner tune 'my models/ner' dev.spacy --output tuned"
    assert data["command"] == f"{command} --name ner --parameter threshold"
    assert (data["start"], data["thresholds"][data["start"]][0]) == (49, 0.5)
    set_to = {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": 0.123}
    data = data_of(without_figures(evaluated(pipeline(decoding=set_to))))
    assert data["thresholds"][data["start"]][0] == 0.12


def test_cost_is_that_of_scorer_then_loss_then_decoding() -> None:
    margin = {"@losses": "spacy_costner.SoftmaxMargin.v1", "multiplier": 1.0}
    zero_one = {"@misc": "spacy_costner.ZeroOneCost.v1"}
    min_cost = {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": HIERARCHICAL, "tree": TREE}
    for settings, name, has_tree in (
        ({"loss": {**margin, "cost": zero_one}}, "HierarchicalCost", True),
        ({"loss": {**margin, "cost": zero_one}, "scorer": PLAIN}, "ZeroOneCost", False),
        ({"decoding": min_cost, "scorer": PLAIN}, "HierarchicalCost", True),
    ):
        result = evaluated(pipeline(**settings))
        assert result.cost == f"spacy_costner.{name}.v1" and bool(result.levels) is has_tree


def test_without_cost_tags_are_counted() -> None:
    result = evaluated(pipeline(scorer=PLAIN))
    assert (result.cost, result.levels) == ("", {})
    # city: Old missing, Oslo inside instead of first, Lima missing
    assert result.confusion[1].tolist() == [[1, 0, 0, 2], [1, 0, 0, 0], [0] * 4, [0, 0, 1, 0]]
    assert result.kinds == dict(zip(KINDS, [(1, 1), (1, 1), (1, 1), (1, 2), (0, 0)]))
    html = report_page(result)
    check(html)
    assert "each wrong tag costs 1" in html and ">tokens with a wrong tag</text>" in html
    assert "level 1" not in html and "wrong tags: 2" in html


@pytest.mark.parametrize("scheme", ["BILUO", "IOB2"])
@pytest.mark.parametrize("seed", range(2))
def test_costs_of_mistakes_add_up(scheme: str, seed: int) -> None:
    hamming = {"@misc": "spacy_costner.HammingCost.v1"}
    nlp = pipeline(scheme=scheme, scorer={**SCORER, "cost": hamming})
    emissions = linear_part(nlp.get_pipe("ner").model)[1].emissions
    emissions[:] = numpy.random.default_rng(seed).normal(size=emissions.shape)
    result = evaluated(nlp)
    total = result.scores["ents_cost"] * result.tokens
    assert total > 5
    assert sum(cost for _, cost in result.kinds.values()) == pytest.approx(total)
    assert sum(mistake.cost for mistake in result.mistakes) == pytest.approx(total)
    assert result.confusion[1].sum() == pytest.approx(total)


def test_nodes_of_the_tree_can_be_answers() -> None:
    tree = {"place": {"city": {}, "country": {}, "person": {}}}
    cost = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": tree}
    min_cost = {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": cost, "tree": tree}
    nlp = pipeline(decoding=min_cost, scorer={**SCORER, "cost": cost, "tree": tree})
    features, weights = linear_part(nlp.get_pipe("ner").model)
    rome = features.names().index("ORTH=Rome")
    weights.emissions[rome] = [-5, 0, -5, 0, -5, 0, -5]  # any label, but surely one
    result = evaluated(nlp)
    # Rome is under it, and so are Georgia, where the label is wrong, Oslo and May.
    assert counts(result.labels["place"]) == (2, 2, 2) and counts(result.total) == (0, 4, 4)
    etna = evaluated(nlp, [*CORPUS, ("Etna", "B-place")])  # if annotated, it is a label
    assert counts(etna.labels["place"]) == (1, 1, 0)
    assert result.parameter is None and numpy.isnan(result.setting.value)
    assert counts(result.levels["level 1"])[0] == 2
    mistake = next(one for one in result.mistakes if one.text == "Rome fell .")
    assert (mistake.kind, mistake.cost) == ("wrong label", 1)
    assert mistake.predicted[0][2] == "place"
    assert "current setting (minimum cost)" in without_figures(result).replace("\n", " ")


def test_labels_that_only_the_corpus_has() -> None:
    docs = [*CORPUS, ("Etna smoked .", "B-volcano O O")]
    result = evaluated(pipeline(scorer=PLAIN), docs)
    assert counts(result.labels["volcano"]) == (0, 0, 1)
    unknown = [
        one.text[mark[0] : mark[1]]
        for one in result.mistakes
        for mark in one.annotated
        if mark[-1] is None
    ]
    assert unknown == ["Etna"]
    assert "labels" not in result.facts
    none = evaluated(pipeline(scorer=PLAIN), docs[-1:])
    assert "no label in common" in none.facts["labels"] and "volcano" in none.facts["labels"]
    with pytest.raises(ValueError, match=r"tree: expected a node for every label.*'volcano'"):
        evaluated(pipeline(), docs)


def test_what_is_not_annotated_does_not_count() -> None:
    nlp = pipeline()
    bare = Doc(nlp.vocab, words=["May", "in", "Rome"])
    partly = Doc(nlp.vocab, words=["May", "fell", "Georgia"], ents=["", "O", "B-city"])
    more = [Example(doc.copy(), doc) for doc in (bare, partly)]
    result = report(nlp, [*examples_of(nlp, CORPUS), *more])
    assert (result.docs, result.tokens) == (6, 17)
    assert counts(result.total) == (2, 3, 3) and result.kinds["spurious entity"][0] == 1
    # Tokens need not be those of the annotation.
    reference = Doc(nlp.vocab, words=["Ro", "me", "fell"], spaces=[False, True, False])
    reference.set_ents([reference.char_span(0, 4, label="city")])
    result = report(nlp, [Example(nlp.make_doc("Rome fell"), reference)])
    assert counts(result.total) == (1, 0, 0) and result.mistakes == []


def test_entities_over_a_border_cannot_be_predicted() -> None:
    nlp = pipeline(sentence_boundaries=True)
    words = ["Rome", "fell", "in", "Lima", "Oslo", "."]
    ents = ["B-city", "O", "O", "B-city", "I-city", "O"]
    starts: Any = [i in (0, 4) for i in range(len(words))]
    doc = Doc(nlp.vocab, words=words, ents=ents, sent_starts=starts)
    predicted = Doc(nlp.vocab, words=words, sent_starts=starts)
    result = report(nlp, [*examples_of(nlp, CORPUS), Example(predicted, doc)])
    assert result.facts["over borders"].startswith("1 annotated entities can't be predicted")
    marks = [mark for mistake in result.mistakes for mark in mistake.annotated]
    (over,) = (mark for mark in marks if mark[-1] == 0)
    assert over[1] - over[0] == len("Lima Oslo") and over[2] == "city"
    assert without_figures(result).count("can't be predicted</i>") == 1
    assert "over borders" not in evaluated(nlp).facts


LONG = " ".join(["so"] * 100)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (f"{LONG} Lima {LONG}", "… " + "so " * 29 + "Lima" + " so" * 29 + " …"),
        (f"Lima {LONG}", "Lima" + " so" * 29 + " …"),
        ("so Lima so", "so Lima so"),
        ("So it was . In Lima . Yes .", "In Lima ."),
    ],
)
def test_sentences_are_shown_and_long_ones_cut(words: str, shown: str) -> None:
    nlp = pipeline()
    nlp.add_pipe("sentencizer", first=True)
    tags = " ".join("B-city" if word == "Lima" else "O" for word in words.split())
    (mistake,) = evaluated(nlp, [(words, tags)]).mistakes
    assert mistake.text == shown and mistake.predicted == []
    assert [mistake.text[start:end] for start, end, *_ in mistake.annotated] == ["Lima"]


def test_groups_are_chains_of_overlap() -> None:
    gold = [(0, 2, "a"), (3, 5, "a"), (5, 6, "a"), (8, 9, "b")]
    predicted = [(1, 4, "a"), (6, 7, "a"), (8, 9, "b")]
    assert group_overlapping(gold, predicted) == [
        (gold[:2], predicted[:1]),
        (gold[2:3], []),
        ([], predicted[1:2]),
        (gold[3:], predicted[2:]),
    ]
    assert kind_of([(0, 2, "a")], [(1, 2, "b")]) == "label and boundary" == KINDS[-1]


def test_corpus_without_entities() -> None:
    with pytest.raises(ValueError, match="with annotated entities, got none"):
        evaluated(docs=[("", "")])
    with pytest.raises(ValueError, match="docs with entities, got none"):
        evaluated(docs=[("Rome", "O")])


# The page


SECTIONS = ["scores", "curve", "confidence", "confusion", "mistakes", "model"]


def check(html: str) -> list[str]:
    """Every page is well formed and needs nothing from elsewhere. Returns its tags."""
    assert html.startswith("<!DOCTYPE html>")
    text = re.sub("<!DOCTYPE html>|<meta .*?>|&middot;", "", html)
    root = ElementTree.fromstring(re.sub("(?s)(?<=<script>).*?(?=</script>)", "", text))
    tags = [element.tag.split("}")[-1] for element in root.iter()]
    assert not {"link", "img", "iframe"} & set(tags) and tags.count("script") == 2
    assert '<form hidden=""' in html  # without scripts
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert "@import" not in html and "url(" not in html.split("</style>")[0]
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids)) and set(SECTIONS) <= set(ids)
    for name, value in (each for element in root.iter() for each in element.attrib.items()):
        if name.split("}")[-1] == "href":
            assert value.startswith("data:") or (value[0] == "#" and value[1:] in ids)
        assert name != "aria-labelledby" or value in ids
    return tags


def test_page_says_what_the_report_has(by_hand: Report) -> None:
    facts = {**by_hand.facts, "pipeline": "here", "corpus": "there: 5 docs"}
    html = report_page(by_hand._replace(facts=facts))
    assert check(html).count("svg") == 4
    places = [html.index(f'<section id="{name}"') for name in SECTIONS]
    assert places == sorted(places)
    for shown in (
        "en_pipeline", "here", "there: 5 docs", "25.00", "0.9333", "level 2", "spurious entity",
        "spacy_costner.HierarchicalCost.v1", ">annotated</text>", ">weight</text>",
        'class="error">Old Oslo<span class="label">city <i>',
        ">recall (% of annotated entities)</text>",
        ">precision (% of predicted entities)</text>",
        ">confidence (probability of the entity)</text>",
        ">precision (share of correct entities)</text>",
    ):  # fmt: skip
        assert shown in html, shown
    captions = re.findall(r"<figcaption[^>]*>(.*?)</figcaption>", html, flags=re.DOTALL)
    assert len(captions) == 4 and min(map(len, captions)) > 100
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', html, flags=re.DOTALL)
    cells = {name: re.findall("<td[^>]*>(.*?)</td>", row) for name, row in rows[::-1]}
    assert cells["city"] == ["33.33", "33.33", "33.33", "3", "3", "1"]
    assert cells["country"] == ["0.00", NONE, "0.00", "1", "0", "0"]
    assert cells["all"] == ["25.00", "25.00", "25.00", "4", "4", "1"]
    assert cells["missing entity"] == ["1", "4"]


def many(n: int) -> Confusion:
    cost = numpy.random.default_rng(n).integers(0, 50, (n + 1, n + 1)).astype("float64")
    return Confusion([*(f"l{i}" for i in range(n)), "O"], cost)


def test_costliest_labels_are_shown_and_the_others_summed() -> None:
    n = MAX_LABELS + 2
    labels, cost = many(n)
    total = {labels[i]: cost[i].sum() + cost[:, i].sum() - cost[i, i] for i in range(n)}
    names, summed = sum_others(many(n))
    *kept, others, outside = names
    assert (len(kept), others, outside) == (MAX_LABELS, "2 others", "O")
    assert kept == [label for label in labels if label in kept]
    rest = [label for label in labels[:-1] if label not in kept]
    assert min(total[label] for label in kept) >= max(total[label] for label in rest)
    groups = [*([labels.index(label)] for label in kept), list(map(labels.index, rest)), [n]]
    for i, j in numpy.ndindex(summed.shape):
        assert summed[i, j] == cost[numpy.ix_(groups[i], groups[j])].sum()


def test_page_of_many_labels(by_hand: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figures have numbers on hover, and no more tags than there is room for."""
    few = many(MAX_LABELS + 1)
    assert sum_others(few) is few
    monkeypatch.setattr("spacy_costner.cli.report.MAX_TAGS", 6)
    for n, render, n_svgs in ((7, without_figures, 3), (6, report_page, 4)):
        names = [f"t{i}" for i in range(n)]
        weights = [[1000.0 * i + j for j in range(n)] for i in range(n)]
        transitions = TransitionWeights(names, names, weights)
        html = render(by_hand._replace(confusion=many(38), transitions=transitions))
        assert check(html).count("svg") == n_svgs
        assert ("too many tags for a figure" in html) is (n == 7) and "are summed" in html
    cells = re.findall(r"<title>([^<]+) \N{RIGHTWARDS ARROW} ([^<]+): ([\d,]+)<", html)
    assert ("t5", "t1", "5,001") in cells
    assert ("O", "23 others", f"{sum_others(many(38))[1][-1, -2]:.0f}") in cells


def test_markup_is_text() -> None:
    """Of the corpus, its labels, the pipeline, and the paths."""
    words = "<script>alert(1)</script> & <b>Lima</b> {{0}} {%x%}"
    nlp = pipeline(scorer=PLAIN)
    nlp.meta["name"], nlp.meta["version"] = "<i>name</i>", "<sub>1"
    batch, before = examples_of(nlp, [(words, "O O B-<u> O O")]), nlp.to_bytes()
    result = report(nlp, batch, source="<s>", corpus="<q>")
    assert nlp.to_bytes() == before and not batch[0].predicted.has_annotation("ENT_IOB")
    html = without_figures(result._replace(cost="<del>"))
    tags = set(check(html))
    assert not {"u", "q", "s", "sub", "del"} & tags and "<b>Lima" not in html
    for written in ("<b>Lima</b>", "<u>", "<i>name", "<s>", "<q>", "<script>alert(1)", "<sub>1"):
        assert escape(written) in html
    assert data_of(html)["command"].split()[5] == "'<s>'"
    assert "{{0}} {%x%}" in html


def test_pages_without_predictions_and_without_mistakes() -> None:
    nothing = evaluated(pipeline({}))
    assert counts(nothing.total) == (0, 0, 4) and nothing.setting.precision == 1.0
    html = without_figures(nothing)
    assert check(html).count("svg") == 3 and "No entity was predicted" in html
    answers = {"Rome": "B-city", "Georgia": "B-country", "Old": "B-city", "Oslo": "I-city"}
    perfect = evaluated(pipeline({**answers, "Lima": "B-city"}))
    assert perfect.total.fscore == pytest.approx(1) and perfect.mistakes == []
    html = without_figures(perfect)
    assert check(html).count("svg") == 3
    assert "All tags are correct." in html and "No mistakes to show." in html


def test_transitions_of_a_dense_model() -> None:
    nlp, batch = dense_or_sparse(**SMALL)
    nlp.get_pipe("ner").model.get_ref("output_layer").get_param("transitions")[0, 1] = 2.5
    result = report(nlp, batch)
    assert result.transitions.weights[0][1] == 2.5
    assert ">2.5</text>" in report_page(result)


def test_style_sheet(by_hand: Report) -> None:
    """It has the colours of the figures, and keeps the line breaks of texts."""
    mistake = Mistake(0, KINDS[0], 1.0, "so\nRome", [(3, 7, "city", "error", 0.5)], [])
    html = without_figures(by_hand._replace(mistakes=[mistake]))
    assert '<dd>so\n<mark class="error">Rome<span class="label">city <i>50 %</i>' in html
    assert "<dd>so\nRome</dd>" in html and "white-space: pre-line" in html
    for name, colour in COLOURS.items():
        ((light, dark),) = re.findall(rf"--{name}: light-dark\((#\w+), (#\w+)\);", html)
        assert light == colour != dark


NONE = "\N{EN DASH}"


def test_numbers() -> None:
    assert (number(1234.5), number(None), number(float("nan"), 2)) == ("1,234", NONE, NONE)
    assert (percent(0.12345), percent(None), percent(1.0, 0)) == ("12.35", NONE, "100")
    assert [*map(cost_number, (3.0, 2.5, 12345))] == ["3", "2.50", "12,345"]
    shown = [probability(p) for p in (0.0, 1e-9, 0.005, 0.5, 0.994, 0.996, 1.0)]
    assert shown == ["0 %", "< 1 %", "0 %", "50 %", "99 %", "> 99 %", "100 %"]


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spacy_costner.cli.plots.as_svg", lambda *_: "<svg></svg>")
    nlp, model, corpus = pipeline(), tmp_path / "pipeline", tmp_path / "test.spacy"
    nlp.to_disk(model)
    DocBin(docs=[eg.reference for eg in examples_of(nlp, CORPUS)]).to_disk(corpus)
    output = tmp_path / "new" / "report.html"
    result = run("report", model, corpus, "--output", output, "--mistakes", 2)
    assert result.exit_code == 0 and f"Written to {output}" in result.output, result.output
    html = output.read_text(encoding="utf8")
    check(html)
    assert html.count("<li>") == 2 and f"{corpus}: 5 docs, 15 tokens, 4 entities" in html
    assert result.stderr == ""
    DocBin(docs=[Doc(nlp.vocab, ["Etna"], ents=["B-place"])]).to_disk(corpus)
    result = run("report", model, corpus, "--output", output)
    assert result.exit_code == 0 and "no label in common" in result.stderr
    other = tmp_path / "other.html"
    result = run("report", model, corpus, "--output", other, "--name", "parser")
    assert result.exit_code == 1 and "got 'parser'" in result.output and not other.exists()


def shown(tab: Browser) -> dict[str, str]:
    """What the page says of its sliders, as text."""
    return tab.run(
        "Object.fromEntries([...document.querySelectorAll('form [id]')]"
        ".map(each => [each.id, each.textContent]))"
    )


def expected(row: Sequence[Any], cost: float, total: Sequence[int]) -> dict[str, str]:
    """What it should say."""
    value, tp, fp, fn = row
    return {
        "threshold-text": f"{value:g}", "fn": str(fn), "fp": str(fp),
        "f": f"{percent(2 * tp / (2 * tp + fp + fn))} %", "r": f"{percent(tp / (tp + fn))} %",
        "p": f"{percent(tp / (tp + fp))} %" if tp + fp else NONE,
        "p-note": f"of {tp + fp} predicted",
        "cost": f"{cost * fn + fp:g}", "cost-now": f"{cost * total[2] + total[1]:g}",
    }  # fmt: skip


RING = """
(() => {
  const at = (each, ...names) => names.map(name => Number(each.getAttribute(name)));
  const [x, y] = at(svg.querySelector(".tried"), "cx", "cy");
  const points = [...svg.querySelectorAll("use")].map(each => at(each, "x", "y"));
  return Math.min(...points.map(([u, v]) => Math.hypot(x - u, y - v)));
})()
"""
"""The distance of the ring from the closest point of a curve."""


DOT_IN_RING = """
(() => {
  const dot = svg.querySelector(".chosen use").getBBox(), ring = svg.querySelector(".tried");
  const style = getComputedStyle(ring);
  const inner = ring.r.baseVal.value - parseFloat(style.strokeWidth) / 2;
  return style.fill === "none" && inner > dot.width / 2;
})()
"""
"""Whether the point of the current setting is seen where the ring is around it."""


@needs_chromium
@pytest.mark.slow
def test_sliders_move_in_a_browser(tmp_path: Path) -> None:
    html = report_page(evaluated(unsure(), MORE))
    data, path, colours = data_of(html), tmp_path / "report.html", []
    rows, total = data["thresholds"], data["total"]
    path.write_text(html, encoding="utf8")

    def check_page(tab: Browser, row: Any, cost: float) -> None:
        texts, wanted = shown(tab), expected(row, cost, total)
        texts["cost-now"] = re.findall(r"now (\S+);", texts["cost-note"])[0]
        assert {name: texts[name] for name in wanted} == wanted
        least = min(cost * fn + fp for _, _, fp, fn in rows)
        assert f"least {least:g} at" in texts["cost-note"]
        share, aim = float(texts["command"].split()[-1]), texts["aim"]
        assert texts["command"].startswith(f"{data['command']} --{aim} ")
        _, tp, fp, fn = row
        p, r = tp / (tp + fp) if tp + fp else 1.0, tp / (tp + fn)
        name, exact = ("precision", p) if r < total[0] / (total[0] + total[2]) else ("recall", r)
        assert aim == name and exact - 1e-4 < share <= exact

    with browser(tmp_path) as tab:
        for width, dark in ((1200, False), (420, True)):
            tab.open(path, width, dark)
            assert tab.run("document.documentElement.scrollWidth") <= width
            assert tab.run("[...document.querySelectorAll('input')].every(e => e.labels.length)")
            colours.append(tab.run("getComputedStyle(document.body).backgroundColor"))
            check_page(tab, rows[49], 1)
            assert tab.run(DOT_IN_RING)
            tab.run("byId('miss').focus()")
            for key, times, cost in (("ArrowRight", 2, 3), ("Home", 1, 0.05), ("End", 1, 50)):
                tab.press(key, times)
                row = min(rows, key=lambda row: abs(row[0] - 1 / (1 + cost)))
                check_page(tab, row, cost)
            tab.press("Tab")
            for key, times, i in (("Home", 1, 0), ("ArrowRight", 30, 30)):
                tab.press(key, times)
                check_page(tab, rows[i], 50)
                assert tab.run(RING) < 0.1
    assert len({*colours}) == 2
