"""The report: what it finds, and the page that it makes of it."""

import re
import sys
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.scorer import PRFScore
from spacy.tokens import Doc, DocBin
from spacy.training import Example

from spacy_costner.cli.explain import TransitionWeights
from spacy_costner.cli.plots import COLOURS
from spacy_costner.cli.report import (
    KINDS,
    MOST,
    Confusion,
    Findings,
    Stretch,
    cost,
    fold,
    gather,
    number,
    page,
    percent,
    probability,
    stretches,
)
from spacy_costner.ml import linear_part

from .support.commands import run
from .support.config import TOK2VEC
from .support.fitting import SPARSE, examples_of
from .support.fitting import initialized as dense_or_sparse

TREE = {"place": {"city": {}, "country": {}}, "person": {}}
HIERARCHICAL = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TREE}
SCORER = {"@scorers": "spacy_costner.cost_scorer.v1", "cost": HIERARCHICAL, "tree": TREE}

CORPUS = [
    ("Rome fell .", "B-city O O"),
    ("", ""),
    ("Georgia sank .", "B-country O O"),
    ("Nothing in May .", "O O O O"),
    ("Old Oslo slept .", "B-city I-city O O"),
    ("Lima", "B-city"),
]
ANSWERS = {"Rome": "B-city", "Georgia": "B-city", "May": "B-person", "Oslo": "B-city"}
"""The tags of words that are not O: right, a wrong label, a false alarm, a wrong boundary.
Lima is missed."""

WEIGHT = {"Georgia": 5.0, "Lima": 2.0, "May": 9.0, "Oslo": 7.0, "Rome": 5.0}
"""How sure of them the model is."""


def corpus(nlp: Language, docs: Sequence[Tuple[str, str]] = CORPUS) -> List[Example]:
    return examples_of(nlp, docs)


def pipeline(answers: Dict[str, str] = ANSWERS, **settings: Any) -> Language:
    """A pipeline that gives these answers, and others O."""
    nlp = spacy.blank("en")
    config = {"model": SPARSE, "scheme": "IOB2", "scorer": SCORER, **settings}
    ner = nlp.add_pipe("cost_sensitive_ner", name="ner", config=config)
    for label in ("city", "country", "person"):
        ner.add_label(label)
    nlp.initialize(lambda: corpus(nlp))
    features, weights = linear_part(ner.model)
    weights.emissions[:] = 0
    for i, name in enumerate(features.names()):
        kind, word = name.split("=", 1)
        if kind == "ORTH":
            tag = ner.tags.names.index(answers.get(word, "O"))
            weights.emissions[i, tag] = WEIGHT.get(word, 6.0)
    return nlp


def findings(nlp: Optional[Language] = None, **settings: Any) -> Findings:
    nlp = nlp or pipeline()
    return gather(nlp, corpus(nlp), **settings)


@pytest.fixture(scope="module")
def found() -> Findings:
    return findings()


# What is found


def test_what_it_is_about(found: Findings) -> None:
    about = found.about
    assert (about.pipeline, about.component) == ("en_pipeline", "ner")
    assert (about.docs, about.tokens) == (5, 15)
    assert about.settings == {
        "model": "spacy_costner.SparseCRF.v1",
        "loss": "spacy_costner.Sequential.v1",
        "decoding": "spacy_costner.ViterbiDecoding.v1, bias 0",
        "temperature": "1.000",
        "cost": "spacy_costner.HierarchicalCost.v1",
    }


def counts(scores: Any) -> Tuple[int, int, int]:
    return scores.tp, scores.fp, scores.fn


def test_counts_by_hand(found: Findings) -> None:
    assert counts(found.total) == (1, 3, 3)
    assert {label: counts(score) for label, score in found.labels.items()} == {
        "city": (1, 2, 2),
        "country": (0, 0, 1),
        "person": (0, 1, 0),
    }
    assert [counts(level) for level in found.levels] == [(2, 2, 2), (1, 3, 3)]


def test_scores_are_those_of_spacy_evaluate(found: Findings) -> None:
    nlp = pipeline()
    scores = nlp.evaluate(corpus(nlp))
    for name in ("ents_p", "ents_r", "ents_f", "ents_cost", "ents_sent_acc", "ents_f_level_1"):
        assert found.scores[name] == pytest.approx(scores[name])
    assert found.scores["ents_cost"] == pytest.approx(14 / 15)
    assert found.total.fscore == pytest.approx(scores["ents_f"])


def test_confusion_by_hand(found: Findings) -> None:
    """Distances in the tree; a miss or a false alarm is one more than the longest, 3."""
    assert found.confusion.labels == ["city", "country", "person", "O"]
    assert found.confusion.cost.tolist() == [
        [0, 0, 0, 8],
        [2, 0, 0, 0],
        [0, 0, 0, 0],
        [0, 0, 4, 0],
    ]


def test_mistakes_by_hand(found: Findings) -> None:
    assert found.mistakes.counts == {
        "missed": 1,
        "false alarm": 1,
        "wrong label": 1,
        "wrong boundary": 1,
        "label and boundary": 0,
    }
    assert list(found.mistakes.costs.values()) == [4, 4, 2, 4, 0]
    shown = [(mistake.text, mistake.kind, mistake.cost) for mistake in found.mistakes.shown]
    assert shown == [
        ("Nothing in May .", "false alarm", 4),
        ("Old Oslo slept .", "wrong boundary", 4),
        ("Lima", "missed", 4),
        ("Georgia sank .", "wrong label", 2),
    ]


def test_entities_of_a_mistake(found: Findings) -> None:
    mistake = found.mistakes.shown[1]
    (gold,), (predicted,) = mistake.gold, mistake.predicted
    assert mistake.text[gold.start : gold.end] == "Old Oslo"
    assert mistake.text[predicted.start : predicted.end] == "Oslo"
    assert (gold.label, gold.state, predicted.state) == ("city", "wrong", "wrong")
    assert mistake.doc == 3  # the empty doc is none
    assert predicted.prob is not None and gold.prob is not None
    assert predicted.prob > 0.9 > 0.1 > gold.prob > 0
    posterior = pipeline().get_pipe("ner").posterior([eg.predicted for eg in corpus(pipeline())])
    assert posterior.marginals[11, 1] == pytest.approx(predicted.prob, abs=1e-2)


def test_only_so_many_mistakes_are_shown(found: Findings) -> None:
    few = findings(n_mistakes=1).mistakes
    assert few.shown == found.mistakes.shown[:1] and few.counts == found.mistakes.counts


def test_present_setting_lies_on_its_curve() -> None:
    threshold = {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": 0.5}
    for settings, parameter, value in (
        ({}, "bias", 0.0),
        ({"decoding": threshold}, "threshold", 0.5),
    ):
        found = findings(pipeline(**settings))
        assert found.parameter == parameter and found.setting.value == value
        assert (found.setting.precision, found.setting.recall) == (0.25, 0.25)
        assert found.setting in found.curves[parameter]
        assert sorted(found.curves) == ["bias", "threshold"]


def test_cost_is_that_of_scorer_then_loss_then_decoding() -> None:
    margin = {"@losses": "spacy_costner.SoftmaxMargin.v1", "multiplier": 1.0}
    zero_one = {"@misc": "spacy_costner.ZeroOneCost.v1"}
    plain = {"@scorers": "spacy.ner_scorer.v1"}
    min_cost = {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": HIERARCHICAL, "tree": TREE}
    for settings, name, has_tree in (
        ({"loss": {**margin, "cost": zero_one}}, "HierarchicalCost", True),
        ({"loss": {**margin, "cost": zero_one}, "scorer": plain}, "ZeroOneCost", False),
        ({"decoding": min_cost, "scorer": plain}, "HierarchicalCost", True),
        ({"scorer": plain}, "", False),
    ):
        found = findings(pipeline(**settings))
        assert found.pricing.name == (f"spacy_costner.{name}.v1" if name else "")
        assert bool(found.levels) is has_tree


def test_without_cost_tags_are_counted() -> None:
    found = findings(pipeline(scorer={"@scorers": "spacy.ner_scorer.v1"}))
    assert found.levels == [] and found.about.settings["cost"] == "each wrong tag costs 1"
    # city: Old missed, Oslo inside instead of first, Lima missed
    assert found.confusion.cost.tolist() == [
        [1, 0, 0, 2],
        [1, 0, 0, 0],
        [0, 0, 0, 0],
        [0, 0, 1, 0],
    ]
    assert list(found.mistakes.costs.values()) == [1, 1, 1, 2, 0]


@pytest.mark.parametrize("scheme", ["BILUO", "IOB2"])
@pytest.mark.parametrize("seed", range(4))
def test_costs_of_mistakes_add_up(scheme: str, seed: int) -> None:
    hamming = {"@misc": "spacy_costner.HammingCost.v1"}
    nlp = pipeline(scheme=scheme, scorer={**SCORER, "cost": hamming})
    emissions = linear_part(nlp.get_pipe("ner").model)[1].emissions
    emissions[:] = numpy.random.default_rng(seed).normal(size=emissions.shape)
    found = gather(nlp, corpus(nlp))
    total = found.scores["ents_cost"] * found.about.tokens
    assert total > 5
    assert sum(found.mistakes.costs.values()) == pytest.approx(total)
    assert sum(mistake.cost for mistake in found.mistakes.shown) == pytest.approx(total)
    assert found.confusion.cost.sum() == pytest.approx(total)


def test_nodes_of_the_tree_can_be_answers() -> None:
    tree = {"place": {"city": {}, "country": {}, "person": {}}}
    cost_ = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": tree}
    min_cost = {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": cost_, "tree": tree}
    nlp = pipeline(decoding=min_cost, scorer={**SCORER, "cost": cost_, "tree": tree})
    features, weights = linear_part(nlp.get_pipe("ner").model)
    rome = features.names().index("ORTH=Rome")
    weights.emissions[rome] = [-5, 0, -5, 0, -5, 0, -5]  # any label, but surely one
    found = gather(nlp, corpus(nlp))
    assert counts(found.labels["place"]) == (0, 1, 0)
    assert found.parameter is None and numpy.isnan(found.setting.value)
    assert counts(found.levels[0])[0] == 2
    mistake = next(one for one in found.mistakes.shown if one.text == "Rome fell .")
    assert (mistake.kind, mistake.cost, mistake.predicted[0].label) == ("wrong label", 1, "place")
    assert "current setting" in page(found)


def test_labels_that_only_the_corpus_has() -> None:
    nlp = pipeline(scorer={"@scorers": "spacy.ner_scorer.v1"})
    found = gather(nlp, corpus(nlp, [*CORPUS, ("Etna smoked .", "B-volcano O O")]))
    assert counts(found.labels["volcano"]) == (0, 0, 1)
    assert any(mistake.gold and mistake.gold[0].prob is None for mistake in found.mistakes.shown)
    tree = pipeline()
    with pytest.raises(ValueError, match=r"tree: expected a node for every label.*'volcano'"):
        gather(tree, corpus(tree, [*CORPUS, ("Etna smoked .", "B-volcano O O")]))


def test_what_is_not_annotated_does_not_count() -> None:
    nlp = pipeline()
    bare = Doc(nlp.vocab, words=["May", "in", "Rome"])
    partly = Doc(nlp.vocab, words=["May", "fell", "Georgia"], ents=["", "O", "B-city"])
    more = [Example(doc.copy(), doc) for doc in (bare, partly)]
    found = gather(nlp, [*corpus(nlp), *more])
    assert (found.about.docs, found.about.tokens) == (6, 17)
    assert counts(found.total) == (2, 3, 3)
    assert found.mistakes.counts["false alarm"] == 1


def test_tokens_need_not_be_those_of_the_annotation() -> None:
    nlp = pipeline()
    reference = Doc(nlp.vocab, words=["Ro", "me", "fell"], spaces=[False, True, False])
    reference.set_ents([reference.char_span(0, 4, label="city")])
    found = gather(nlp, [Example(nlp.make_doc("Rome fell"), reference)])
    assert counts(found.total) == (1, 0, 0) and found.mistakes.shown == []


def test_pipeline_stays_as_it_is() -> None:
    nlp = pipeline()
    before, texts = nlp.to_bytes(), corpus(nlp)
    gather(nlp, texts)
    assert nlp.to_bytes() == before
    assert not any(eg.predicted.has_annotation("ENT_IOB") for eg in texts if len(eg.predicted))


LONG = " ".join(["so"] * 100)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{LONG} Lima {LONG}", "… " + "so " * 29 + "Lima" + " so" * 29 + " …"),
        (f"Lima {LONG}", "Lima" + " so" * 29 + " …"),
        ("so Lima so", "so Lima so"),
    ],
)
def test_long_texts_are_cut(text: str, expected: str) -> None:
    nlp = pipeline()
    tags = " ".join("B-city" if word == "Lima" else "O" for word in text.split())
    (mistake,) = gather(nlp, corpus(nlp, [(text, tags)])).mistakes.shown
    assert mistake.text == expected
    (mark,) = mistake.gold
    assert mistake.text[mark.start : mark.end] == "Lima"


def test_sentences_are_shown_where_there_are_any() -> None:
    nlp = pipeline()
    nlp.add_pipe("sentencizer", first=True)
    found = gather(nlp, corpus(nlp, [("So it was . In Lima . Yes .", "O O O O O B-city O O O")]))
    assert [mistake.text for mistake in found.mistakes.shown] == ["In Lima ."]


@pytest.mark.parametrize(
    ("gold", "predicted", "kind"),
    [
        ([(0, 2, "a")], [], "missed"),
        ([], [(0, 2, "a")], "false alarm"),
        ([(0, 2, "a")], [(0, 2, "b")], "wrong label"),
        ([(0, 2, "a")], [(1, 2, "a")], "wrong boundary"),
        ([(0, 2, "a")], [(0, 1, "a"), (1, 2, "a")], "wrong boundary"),
        ([(0, 2, "a")], [(1, 2, "b")], "label and boundary"),
    ],
)
def test_kinds(gold: List[Any], predicted: List[Any], kind: str) -> None:
    (stretch,) = stretches(gold, predicted)
    assert stretch == Stretch(0, 2, gold, predicted)
    assert stretch.kind == kind and kind in KINDS


def test_stretches_are_chains_of_overlap() -> None:
    gold = [(0, 2, "a"), (3, 5, "a"), (5, 6, "a"), (8, 9, "b")]
    predicted = [(1, 4, "a"), (6, 7, "a"), (8, 9, "b")]
    assert [
        (s.begin, s.end, len(s.gold), len(s.predicted)) for s in stretches(gold, predicted)
    ] == [
        (0, 5, 2, 1),
        (5, 6, 1, 0),
        (6, 7, 0, 1),
        (8, 9, 1, 1),
    ]


@pytest.mark.parametrize(
    ("docs", "message"),
    [
        ([], "with annotated entities, got none"),
        ([("", "")], "with annotated entities, got none"),
        ([("Rome", "O")], "docs with entities, got none"),
    ],
)
def test_corpus_without_entities(docs: List[Tuple[str, str]], message: str) -> None:
    nlp = pipeline()
    with pytest.raises(ValueError, match=message):
        gather(nlp, corpus(nlp, docs))


# The page


SECTIONS = ["scores", "curve", "confidence", "confusion", "mistakes", "model"]
VOID = {"meta", "br"}


class Checker(HTMLParser):
    """Reads a page, and notes what is not in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: List[str] = []
        self.tags: List[str] = []
        self.attributes: List[Tuple[str, Optional[str]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def values(self, *names: str) -> List[str]:
        return [value or "" for name, value in self.attributes if name in names]


def check(text: str) -> Checker:
    """What every page has to be: whole, of one piece, and with nothing from elsewhere."""
    checker = Checker(text)
    assert checker.open == []
    assert not {"script", "link", "img", "iframe"} & set(checker.tags)
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert "@import" not in text and "url(" not in text.split("</style>")[0]
    ids = checker.values("id")
    assert len(ids) == len(set(ids))
    assert set(checker.values("aria-labelledby")) <= set(ids)
    links = [link for link in checker.values("href", "xlink:href") if link.startswith("#")]
    assert {link[1:] for link in links} <= set(ids)
    assert all(link.startswith(("#", "data:")) for link in checker.values("href", "xlink:href"))
    assert set(SECTIONS) <= set(ids)
    return checker


def test_page_is_in_order(found: Findings) -> None:
    text = page(found)
    checker = check(text)
    assert checker.tags.count("figure") == checker.tags.count("figcaption") == 4
    assert checker.tags.count("svg") == 4
    places = [text.index(f'<section id="{name}"') for name in SECTIONS]
    assert places == sorted(places)


def test_page_says_what_was_found(found: Findings) -> None:
    text = page(found._replace(about=found.about._replace(source="here", corpus="there")))
    for shown in (
        "en_pipeline",
        "here",
        "there: 5 docs, 15 tokens, 4 entities",
        found.about.day.isoformat(),
        "25.00",
        "0.9333",
        "level 2",
        "spacy_costner.HierarchicalCost.v1",
        "false alarm",
        'class="wrong">Old Oslo<span class="label">city',
        "ORTH=Rome",
    ):
        assert shown in text, shown


def test_every_picture_has_axes_and_units(found: Findings) -> None:
    text = page(found)
    for name, labels in {
        "precision-recall": [
            "recall (% of annotated entities)",
            "precision (% of predicted entities)",
        ],
        "reliability": [
            "confidence (probability of the entity)",
            "precision (share of correct entities)",
        ],
        "confusion": ["annotated", "predicted", "cost"],
        "transitions": ["from", "to", "weight"],
    }.items():
        picture = re.search(rf'<figure id="{name}-plot">.*?</figure>', text, flags=re.DOTALL)
        assert picture is not None
        for label in labels:
            assert f">{label}</text>" in picture[0]
        caption = re.search(r"<figcaption[^>]*>(.*?)</figcaption>", picture[0], flags=re.DOTALL)
        assert caption is not None and len(caption[1]) > 100


def many(n: int) -> Confusion:
    cost = numpy.random.default_rng(n).integers(0, 50, (n + 1, n + 1)).astype("float64")
    return Confusion([*(f"l{i}" for i in range(n)), "O"], cost)


@pytest.mark.parametrize("n", [17, 38])
def test_costliest_labels_are_shown_and_the_others_summed(n: int) -> None:
    labels, cost = many(n)
    total = {labels[i]: cost[i].sum() + cost[:, i].sum() - cost[i, i] for i in range(n)}
    names, folded = fold(Confusion(labels, cost))
    *kept, others, outside = names
    assert (len(kept), others, outside) == (MOST, f"{n - MOST} others", "O")
    assert kept == [label for label in labels if label in kept]
    rest = [label for label in labels[:-1] if label not in kept]
    assert min(total[label] for label in kept) >= max(total[label] for label in rest)
    groups = [*([labels.index(label)] for label in kept), list(map(labels.index, rest)), [n]]
    for i, j in numpy.ndindex(folded.shape):
        assert folded[i, j] == cost[numpy.ix_(groups[i], groups[j])].sum()


def test_few_labels_are_not_summed() -> None:
    confusion = many(MOST + 1)
    assert fold(confusion) is confusion


def test_page_of_many_labels(found: Findings) -> None:
    """Its figures have numbers on hover, and no more tags than there is room for."""
    labels = [f"l{i}" for i in range(38)]
    tags = [name for label in labels for name in (f"B-{label}", f"I-{label}")]
    weights = [[1000.0 * i + j for j in range(78)] for i in range(78)]
    text = page(
        found._replace(
            labels={label: PRFScore(tp=i) for i, label in enumerate(labels)},
            confusion=many(38),
            transitions=TransitionWeights(["O", *tags, "(start)"], ["O", *tags, "(end)"], weights),
        )
    )
    check(text)
    matrix, transitions = text.split('id="transitions-plot"')
    (row,) = re.findall(r">O \N{RIGHTWARDS ARROW} 23 others: (\d+)<", matrix)
    assert row == f"{fold(many(38)).cost[-1, -2]:.0f}" and "summed" in matrix
    cells = re.findall(r"<title>(\S+) \N{RIGHTWARDS ARROW} (\S+): ([\d,]+)<", transitions)
    # each of 15 labels has B and I; O to O is 0
    assert len(cells) == 32 * 32 - 1
    assert ("B-l37", "(end)", "75,077") in cells and ("I-l23", "O", "48,000") in cells
    assert not any("l22" in name for cell in cells for name in cell)


def test_markup_is_text() -> None:
    words = "<script>alert(1)</script> & <b>Lima</b> {0} {label}"
    nlp = pipeline(scorer={"@scorers": "spacy.ner_scorer.v1"})
    nlp.meta["name"] = "<i>name</i>"
    tags = " ".join(["O", "O", "B-<u>", "O", "O"])
    found = gather(nlp, corpus(nlp, [(words, tags)]), source="<s>", corpus="<q>")
    text = page(found)
    checker = check(text)
    assert not {"script", "u", "q", "s"} & set(checker.tags) and "<b>Lima" not in text
    for written in ("<b>Lima</b>", "<u>", "<i>name", "<s>", "<q>", "<script>alert(1)"):
        assert escape(written) in text
    assert "{0} {label}" in text


def test_page_without_tree_or_cost() -> None:
    text = page(findings(pipeline(scorer={"@scorers": "spacy.ner_scorer.v1"})))
    check(text)
    assert "level 1" not in text and ">tokens with a wrong tag</text>" in text


def test_page_of_a_pipeline_that_answers_nothing() -> None:
    found = findings(pipeline({}))
    assert counts(found.total) == (0, 0, 4) and found.setting.precision == 1.0
    text = page(found)
    assert check(text).tags.count("svg") == 3
    assert "No entity was predicted" in text


def test_page_of_a_pipeline_without_mistakes() -> None:
    right = {"Rome": "B-city", "Georgia": "B-country", "Old": "B-city", "Oslo": "I-city"}
    found = findings(pipeline({**right, "Lima": "B-city"}))
    assert found.total.fscore == pytest.approx(1) and found.mistakes.shown == []
    text = page(found)
    assert check(text).tags.count("svg") == 3
    assert "All tags are correct." in text and "No mistakes to show." in text


def test_page_of_a_model_without_features() -> None:
    dense = {"@architectures": "spacy_costner.LinearChainCRF.v1", "tok2vec": TOK2VEC}
    nlp, some = dense_or_sparse(model=dense)
    nlp.get_pipe("ner").model.get_ref("output_layer").get_param("transitions")[0, 1] = 2.5
    found = gather(nlp, some)
    assert found.features == [] and found.transitions.weights[0][1] == 2.5
    text = page(found)
    check(text)
    assert "<details" not in text and ">2.5</text>" in text


def test_style_sheet_has_our_colours(found: Findings) -> None:
    light, dark = re.findall(r":root \{(.*?)\}", page(found), flags=re.DOTALL)[:2]
    for name, colour in COLOURS.items():
        assert f"--{name}: {colour};" in light
        assert f"--{name}: #" in dark and f"--{name}: {colour};" not in dark


NONE = "\N{EN DASH}"


def test_numbers() -> None:
    assert (number(1234.5), number(None), number(float("nan"), 2)) == ("1,234", NONE, NONE)
    assert (percent(0.12345), percent(None), percent(1.0, 0)) == ("12.35", NONE, "100")
    assert (cost(3.0), cost(2.5), cost(12345)) == ("3", "2.50", "12,345")
    shown = [probability(p) for p in (0.0, 1e-9, 0.005, 0.5, 0.994, 0.996, 1.0)]
    assert shown == ["0 %", "< 1 %", "0 %", "50 %", "99 %", "> 99 %", "100 %"]


# The command


@pytest.fixture
def paths(tmp_path: Path) -> List[Path]:
    """A pipeline and a corpus on disk."""
    nlp = pipeline()
    nlp.to_disk(tmp_path / "pipeline")
    DocBin(docs=[eg.reference for eg in corpus(nlp)]).to_disk(tmp_path / "test.spacy")
    return [tmp_path / "pipeline", tmp_path / "test.spacy"]


def test_command_line(paths: List[Path], tmp_path: Path) -> None:
    output = tmp_path / "new" / "report.html"
    result = run("report", *paths, "--output", output, "--mistakes", 2)
    assert result.exit_code == 0, result.output
    text = output.read_text(encoding="utf8")
    check(text)
    assert text.count("<li>") == 2 and str(paths[1]) in text
    assert f"Written to {output}" in result.output


@pytest.mark.parametrize("options", [["--name", "parser"], []])
def test_command_line_says_what_is_wrong(
    paths: List[Path], tmp_path: Path, options: List[str]
) -> None:
    if not options:
        DocBin().to_disk(paths[1])
    result = run("report", *paths, "--output", tmp_path / "report.html", *options)
    assert result.exit_code == 1
    assert ("got 'parser'" if options else "got none") in result.output
    assert not (tmp_path / "report.html").exists()


def test_command_line_without_matplotlib(
    paths: List[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("report", *paths, "--output", tmp_path / "report.html")
    assert result.exit_code == 1 and "spacy-costner[report]" in result.output
    assert not (tmp_path / "report.html").exists()
