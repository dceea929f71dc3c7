"""Tests of `estimate`: drawing docs, the estimates, what is refused, and the command."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
from spacy.language import Language
from spacy.tokens import Doc, Span

from spacy_costner.readers import (
    TASK_FORMS,
    CorpusInfo,
    Task,
    TaskSpan,
    read_docs,
    read_texts,
    save_tasks,
)
from spacy_costner.serve.session import AnnotationSession
from spacy_costner.serve.store import TEXTS_FILE, AnnotationStore
from spacy_costner.workflows import draw, estimate, suggest
from spacy_costner.workflows.sampling.drawing import DrawnDoc
from spacy_costner.workflows.sampling.estimation import ALL_LABELS, Estimate, LabelEstimate
from spacy_costner.workflows.sampling.expected_counts import expect_counts

from ...support.commands import run
from ...support.pipelines import ents, load, predict_node_above_labels

NAMES = {
    "Shaka": "PERSON",
    "London": "LOC",
    "Berlin": "LOC",
    "Sox": "sports-team",
    "Rhine": "river",
}
"""The words that are entities, with their labels. The pipeline doesn't know "river"."""

N_TEXTS = 200
N_DRAWN = 60


def make_docs(nlp: Language) -> list[Doc]:
    """Texts of 3 to 12 words. The pipeline hasn't learned much, so it is often wrong on them."""
    rng = numpy.random.default_rng(0)
    words = [*NAMES, "I", "like", "who", "lost", "the", "and"]
    docs: list[Doc] = []
    for _ in range(N_TEXTS):
        words_of_doc = rng.choice(words, size=rng.integers(3, 13)).tolist()
        docs.append(nlp.make_doc(" ".join(words_of_doc)))
    return docs


def annotate(doc: Doc) -> Doc:
    """Annotate a doc as people would: all words of `NAMES` are entities."""
    spans = []
    for token in doc:
        if token.text in NAMES:
            spans.append(Span(doc, token.i, token.i + 1, NAMES[token.text]))
    doc.set_ents(spans, default="outside")
    return doc


def answer(nlp: Language, drawn: DrawnDoc, **changes: Any) -> Doc:
    """The annotated doc of a drawn doc, as commands read it, with the metadata of its task.
    `changes` replace some of these."""
    doc = annotate(nlp.make_doc(drawn.doc.text))
    doc.user_data |= {**drawn.drawing.to_dict(), **changes}
    return doc


def row_of(result: Estimate, label: str) -> LabelEstimate:
    """The estimates of one label."""
    (row,) = (row for row in result.labels if row.label == label)
    return row


def value_of(measure: Any) -> float:
    """The value of an estimate that was not refused."""
    assert measure.estimate is not None, measure.refusal
    low, high = measure.estimate.low, measure.estimate.high
    assert low <= measure.estimate.value <= high
    return float(measure.estimate.value)


@pytest.fixture(scope="module")
def nlp(unsure: Path) -> Language:
    """A pipeline that hasn't learned much."""
    return load(unsure)


@pytest.fixture(scope="module")
def drawn(nlp: Language) -> list[DrawnDoc]:
    """The docs of `make_docs` that were drawn for the pipeline."""
    return draw(nlp, make_docs(nlp), n=N_DRAWN, seed=1)


def test_docs_are_drawn_as_their_tasks_say(nlp: Language, drawn: list[DrawnDoc]) -> None:
    """A task says which doc was drawn, how often, with which probability, and how many drawings
    there were of how many texts. A doc that is drawn twice is one task. The probabilities are
    unequal, but none is below half of their mean, 1 / N_TEXTS. The same seed draws the same
    docs."""
    docs = make_docs(nlp)
    drawings = [drawing for _, drawing in drawn]
    assert sum(drawing.times for drawing in drawings) == N_DRAWN
    assert max(drawing.times for drawing in drawings) > 1
    assert len({drawing.probability for drawing in drawings}) > 10

    for doc, drawing in drawn:
        assert docs[drawing.doc].text == doc.text
        assert drawing.probability >= 0.5 / N_TEXTS
        assert (drawing.drawings, drawing.docs, drawing.seed) == (N_DRAWN, N_TEXTS, 1)

    assert [drawing for _, drawing in draw(nlp, docs, n=N_DRAWN, seed=1)] == drawings
    others = draw(nlp, docs, n=N_DRAWN, seed=2)
    assert [drawing.doc for _, drawing in others] != [drawing.doc for drawing in drawings]


def places_in(doc: Doc) -> set[tuple[int, int]]:
    """The first token and the end of each entity with the label LOC."""
    return {(ent.start, ent.end) for ent in doc.ents if ent.label_ == "LOC"}


def test_estimates_equal_the_definition(nlp: Language, drawn: list[DrawnDoc]) -> None:
    """The estimates of the label LOC are computed here term by term. A doc that was drawn twice
    counts twice.

        total = sum_i e_i + (1/n) sum_{drawn i} (y_i - e_i) / q_i
    """
    row = row_of(estimate(nlp, [answer(nlp, doc) for doc in drawn], make_docs(nlp)), "LOC")

    # For each doc: how many entities the model expects, and how many of its predicted entities it
    # expects to be correct.
    ner: Any = nlp.get_pipe("ner")
    place = ner.labels.index("LOC")
    predicted = list(nlp.pipe(doc.text for doc in make_docs(nlp)))
    expected: list[float] = []
    expected_correct: list[float] = []
    for doc in predicted:
        posterior = ner.posterior([nlp.make_doc(doc.text)])
        opening_probs = posterior.chain_marginals @ posterior.tags.opens_label
        expected.append(float(opening_probs[:, place].sum()))
        predicted_places = [ent for ent in doc.ents if ent.label_ == "LOC"]
        likely, probs = posterior.likely_entities(0.01)
        likely_spans = zip(likely.begin.tolist(), likely.end.tolist(), likely.label.tolist())
        prob_of_span = dict(zip(likely_spans, probs))
        correct_probs = [prob_of_span[ent.start, ent.end, place] for ent in predicted_places]
        expected_correct.append(sum(correct_probs))

    total = sum(expected)
    correct = sum(expected_correct)
    for doc, drawing in drawn:
        weight = drawing.times / drawing.probability / N_DRAWN
        gold = places_in(annotate(nlp.make_doc(doc.text)))
        ours = places_in(predicted[drawing.doc])
        total += weight * (len(gold) - expected[drawing.doc])
        correct += weight * (len(gold & ours) - expected_correct[drawing.doc])

    n_predicted = sum(ent.label_ == "LOC" for doc in predicted for ent in doc.ents)
    assert row.entities.model_alone == pytest.approx(sum(expected), rel=1e-3)
    assert value_of(row.entities) == pytest.approx(total, rel=1e-3)
    assert value_of(row.precision) == pytest.approx(correct / n_predicted, rel=1e-3)
    assert value_of(row.recall) == pytest.approx(correct / total, rel=1e-3)
    assert value_of(row.f) == pytest.approx(2 * correct / (n_predicted + total), rel=1e-3)


def estimate_of_all_docs(nlp: Language) -> Estimate:
    """Estimate with all docs in a simple random sample. The estimates are the true counts and
    scores of the pipeline, and intervals have no width. Returns the estimates."""
    docs = make_docs(nlp)
    result = estimate(nlp, [annotate(doc.copy()) for doc in docs], docs, simple_random=True)

    n_gold = n_predicted = n_correct = 0
    for doc, predicted in zip(make_docs(nlp), nlp.pipe(doc.text for doc in docs)):
        gold = {(ent.start, ent.end, ent.label_) for ent in annotate(doc).ents}
        ours = {(ent.start, ent.end, ent.label_) for ent in predicted.ents}
        n_gold += len(gold)
        n_predicted += len(ours)
        n_correct += len(gold & ours)
    row = row_of(result, ALL_LABELS)
    assert row.entities.estimate == pytest.approx([n_gold] * 3)
    assert row.precision.estimate == pytest.approx([n_correct / n_predicted] * 3)
    assert row.recall.estimate == pytest.approx([n_correct / n_gold] * 3)
    assert row.f.estimate == pytest.approx([2 * n_correct / (n_predicted + n_gold)] * 3)
    assert result.drawings_for_half == N_TEXTS  # there are no more texts
    return result


def test_all_docs_leave_nothing_to_chance(nlp: Language) -> None:
    result = estimate_of_all_docs(nlp)
    assert any("doesn't know the labels river" in note for note in result.notes)


def make_docs_with_line_breaks(nlp: Language) -> list[Doc]:
    """Texts of which each two differ only in whitespace. With `sentence_boundaries`, a line break
    divides the name in the second one, so that other entities are predicted."""
    texts: list[str] = []
    for i in range(40):
        texts += [f"Who is Shaka Khan {i} ?", f"Who is Shaka\nKhan {i} ?"]
    return [nlp.make_doc(text) for text in texts]


def annotate_name(doc: Doc) -> Doc:
    """Annotate the name in a doc of `make_docs_with_line_breaks`, up to a line break."""
    end = 3 if "\n" in doc.text else 4
    doc.set_ents([Span(doc, 2, end, "PERSON")], default="outside")
    return doc


def test_texts_that_differ_in_whitespace_keep_their_own_counts(unsure: Path) -> None:
    """All texts are annotated, so the estimates are the true counts and scores."""
    nlp = load(unsure, sentence_boundaries=True)
    docs = make_docs_with_line_breaks(nlp)
    annotated = [annotate_name(doc.copy()) for doc in docs]

    result = estimate(nlp, annotated, docs, simple_random=True)

    n_predicted = n_correct = 0
    for doc, predicted in zip(annotated, nlp.pipe(doc.text for doc in docs)):
        n_predicted += len(predicted.ents)
        n_correct += len(set(ents(doc)) & set(ents(predicted)))
    row = row_of(result, ALL_LABELS)
    assert row.entities.estimate == pytest.approx([len(docs)] * 3)
    assert row.precision.estimate == pytest.approx([n_correct / n_predicted] * 3)
    assert row.recall.estimate == pytest.approx([n_correct / len(docs)] * 3)


def test_drawn_docs_keep_the_counts_of_their_text_if_a_tool_changes_whitespace(
    unsure: Path,
) -> None:
    """The line breaks of drawn docs are replaced by spaces. Their texts are then equal to other
    texts, which have other expected counts.

    total = sum_i e_i + (1/n) sum_{drawn i} (y_i - e_i) / q_i
    """
    nlp = load(unsure, sentence_boundaries=True)
    docs = make_docs_with_line_breaks(nlp)
    expected: list[float] = []
    for _, counts in expect_counts(nlp, "ner", docs):
        expected += counts.annotated.sum(axis=1).tolist()
    answers: list[Doc] = []
    total = sum(expected)
    for doc, drawing in draw(nlp, docs, n=N_DRAWN):
        answered = annotate_name(nlp.make_doc(doc.text.replace("\n", " ")))
        answered.user_data |= drawing.to_dict()
        answers.append(answered)
        total += drawing.times / drawing.probability / N_DRAWN * (1 - expected[drawing.doc])

    result = estimate(nlp, answers, docs)

    assert value_of(row_of(result, ALL_LABELS).entities) == pytest.approx(total)


def with_ruler(nlp: Language) -> Language:
    """Add a ruler before the component. Its rivers are correct, and its events are wrong."""
    ruler: Any = nlp.add_pipe("entity_ruler", before="ner")
    ruler.add_patterns(
        [{"label": "river", "pattern": "Rhine"}, {"label": "event", "pattern": "lost"}]
    )
    return nlp


def test_entities_of_an_earlier_component_count(unsure: Path) -> None:
    """Two labels of the ruler are unknown to the component. All rivers are found, so there is no
    note about missed ones."""
    nlp = with_ruler(load(unsure))

    result = estimate_of_all_docs(nlp)

    n_rivers = sum(token.text == "Rhine" for doc in make_docs(nlp) for token in doc)
    n_events = sum(token.text == "lost" for doc in make_docs(nlp) for token in doc)
    assert result.notes == []
    river = row_of(result, "river")
    assert river.entities.model_alone == value_of(river.entities) == pytest.approx(n_rivers)
    assert river.recall.model_alone == 1
    assert f"{n_rivers} correct and 0 missed" in river.recall.refusal
    event = row_of(result, "event")
    assert f"0 correct and {n_events} false alarms" in event.precision.refusal


def test_docs_are_drawn_by_the_entities_that_the_component_expects(unsure: Path) -> None:
    """A ruler's entities are not in the number that the drawings record."""
    nlp = with_ruler(load(unsure))
    drawn = draw(nlp, make_docs(nlp), n=N_DRAWN)
    n_labels = len(nlp.get_pipe("ner").labels)
    expected = 0.0
    for _, counts in expect_counts(nlp, "ner", make_docs(nlp)):
        expected += counts.annotated[:, :n_labels].sum()
    assert drawn[0].drawing.expected == pytest.approx(expected)

    result = estimate(nlp, [answer(nlp, doc) for doc in drawn], make_docs(nlp))
    n_rivers = sum(token.text == "Rhine" for doc in make_docs(nlp) for token in doc)
    assert value_of(row_of(result, "river").entities) == pytest.approx(n_rivers)


def test_predicted_inner_nodes_are_wrong(unsure: Path) -> None:
    nlp = load(unsure)
    predict_node_above_labels(nlp, "name")

    result = estimate_of_all_docs(nlp)

    row = row_of(result, "name")
    assert (row.entities.model_alone, row.precision.model_alone) == (0, 0)
    assert re.match(r"0 correct and \d\d+ false alarms", row.precision.refusal)


def test_annotated_inner_nodes_that_are_predicted_are_known(unsure: Path) -> None:
    nlp = load(unsure)
    predict_node_above_labels(nlp, "name")
    docs = make_docs(nlp)
    annotated = [annotate(doc.copy()) for doc in docs]
    annotated[0].set_ents([Span(annotated[0], 0, 1, "name")], default="outside")

    (note,) = estimate(nlp, annotated, docs, simple_random=True).notes

    assert re.search(r"know the labels river \(\d+\): these", note)


def test_labels_that_the_pipeline_does_not_know_are_counted(
    nlp: Language, drawn: list[DrawnDoc]
) -> None:
    """The model expects no entity of such a label, and misses all of them."""
    result = estimate(nlp, [answer(nlp, doc) for doc in drawn], make_docs(nlp))
    row = row_of(result, "river")
    assert row.entities.model_alone == 0
    n_rivers = sum(doc.text.split().count("Rhine") for doc in make_docs(nlp))
    interval = row.entities.estimate
    assert interval is not None and interval.low < n_rivers < interval.high
    assert "0 correct" in row.recall.refusal
    assert any("doesn't know the labels river" in note for note in result.notes)


def test_labels_with_few_entities_in_the_drawn_docs_are_not_estimated(
    nlp: Language, drawn: list[DrawnDoc]
) -> None:
    """If no drawn doc has a label, it says how many docs may have it. If there are some entities,
    but too few, it says that."""
    answers = [answer(nlp, doc) for doc in drawn]
    for i, doc in enumerate(answers):
        ents = [ent for ent in doc.ents if ent.label_ != "PERSON"]
        if i > 2:
            ents = [ent for ent in ents if ent.label_ != "sports-team"]
        doc.set_ents(ents, default="outside")

    result = estimate(nlp, answers, make_docs(nlp))

    person = row_of(result, "PERSON")
    assert person.drawn == 0 and person.entities.estimate is None
    # If this share of the texts had the label, and all of them the lowest probability of being
    # drawn, half of the mean, then no drawing would take any with the probability 0.05:
    # (1 - share / 2)^60 = 0.05
    assert person.most_docs == int(2 * (1 - 0.05 ** (1 / 60)) * N_TEXTS)
    team = row_of(result, "sports-team")
    assert 0 < team.drawn < 20
    assert f"{team.drawn} in the drawn docs, fewer than 20" in team.entities.refusal


def test_number_of_entities_without_the_model_is_positive(nlp: Language) -> None:
    """Of 40 annotated docs, only one has entities."""
    docs = [nlp.make_doc(f"I like the {i}") for i in range(N_TEXTS)]
    docs[0] = nlp.make_doc("London Berlin " * 15)
    annotated = [annotate(doc.copy()) for doc in docs[:40]]

    row = row_of(estimate(nlp, annotated, docs, simple_random=True), "LOC")

    assert row.drawn == 30
    value, low, high = row.entities.annotated_alone or (0, 0, 0)
    assert 0 < low < value < high
    assert high / value == pytest.approx(value / low)


def test_drawings_of_several_seeds_are_one_sample(nlp: Language, drawn: list[DrawnDoc]) -> None:
    """The sample has 60 + 40 drawings. Four times as many would halve the intervals."""
    docs = make_docs(nlp)
    more = draw(nlp, docs, n=40, seed=2)
    result = estimate(nlp, [answer(nlp, doc) for doc in [*drawn, *more]], docs)
    assert result.drawings == 100
    assert result.drawings_for_half == 400
    once = estimate(nlp, [answer(nlp, doc) for doc in drawn], docs)
    assert width(result) < width(once)


def width(result: Estimate) -> float:
    """The width of the interval of the number of all entities."""
    interval = row_of(result, ALL_LABELS).entities.estimate
    assert interval is not None
    return float(interval.high - interval.low)


def test_higher_confidence_takes_a_wider_interval(nlp: Language, drawn: list[DrawnDoc]) -> None:
    answers = [answer(nlp, doc) for doc in drawn]
    sure = estimate(nlp, answers, make_docs(nlp), confidence=0.99)
    unsure = estimate(nlp, answers, make_docs(nlp), confidence=0.8)
    assert width(sure) > 1.5 * width(unsure)


def test_few_drawings_are_refused(nlp: Language) -> None:
    docs = make_docs(nlp)
    answers = [answer(nlp, doc) for doc in draw(nlp, docs, n=29)]
    with pytest.raises(ValueError, match="at least 30 drawn docs, got 29"):
        estimate(nlp, answers, docs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pipeline": "0" * 16}, "expected the pipeline that the docs were drawn for"),
        ({"texts": "0" * 16}, "expected the 200 texts that the docs were drawn from"),
        (
            {"expected": "1.5"},
            "which expects 1.5 entities in the texts, got a pipeline that expects",
        ),
        ({"probability": "often"}, "probability: expected the value that `draw` wrote"),
        ({"probability": True}, "probability: expected the value that `draw` wrote, got True"),
        ({"probability": 2}, "probability: expected a number above 0 and at most 1, got 2"),
        ({"probability": "0.0"}, "probability: expected a number above 0 and at most 1, got '0.0'"),
        ({"probability": "nan"}, "probability: expected a number above 0 and at most 1, got 'nan'"),
        ({"times": 0}, "times: expected a number of at least 1, got 0"),
        ({"times": 1.5}, "times: expected the value that `draw` wrote, got 1.5"),
        ({"times": True}, "times: expected the value that `draw` wrote, got True"),
        ({"doc": -1}, "doc: expected a number of at least 0, got -1"),
        ({"docs": float("inf")}, "docs: expected the value that `draw` wrote, got inf"),
        ({"expected": "inf"}, "expected: expected a number of at least 0, got 'inf'"),
        ({"drawings": 61}, "expected all 61 drawings with the seed 1, got 60"),
        ({"chosen_by": "suggest"}, "got docs that `suggest` chose"),
    ],
)
def test_other_docs_than_those_drawn_are_refused(
    nlp: Language, drawn: list[DrawnDoc], changes: dict[str, Any], message: str
) -> None:
    answers = [answer(nlp, doc, **changes) for doc in drawn]
    with pytest.raises(ValueError, match=message):
        estimate(nlp, answers, make_docs(nlp))


@pytest.mark.parametrize(
    ("name", "other"), [("pipeline", "0" * 16), ("texts", "0" * 16), ("docs", 7), ("expected", 1.5)]
)
def test_docs_of_different_drawings_are_refused(
    nlp: Language, drawn: list[DrawnDoc], name: str, other: Any
) -> None:
    """The last doc was drawn for another pipeline, or from other texts: others of them, another
    number, or with another number of expected entities."""
    answers = [answer(nlp, doc) for doc in drawn[:-1]]
    answers.append(answer(nlp, drawn[-1], **{name: other}))
    message = f"drawn for one pipeline from the same texts, got {name} .* and {other}"
    with pytest.raises(ValueError, match=message):
        estimate(nlp, answers, make_docs(nlp))


def test_incomplete_answers_are_refused(nlp: Language, drawn: list[DrawnDoc]) -> None:
    """One drawn doc is missing, is there twice, isn't annotated, or has another text; or a doc is
    there that wasn't drawn. If a doc is missing, so are its drawings, one or more of 60. A
    confidence in percent is refused, too."""
    answers = [answer(nlp, doc) for doc in drawn]
    docs = make_docs(nlp)
    with pytest.raises(ValueError, match=r"all 60 drawings .* got 5\d"):
        estimate(nlp, answers[1:], docs)
    with pytest.raises(ValueError, match=r"each drawn doc once, got doc \d+ twice"):
        estimate(nlp, [*answers, answers[0]], docs)
    with pytest.raises(ValueError, match="got missing annotation in 'Nobody'"):
        estimate(nlp, [*answers, nlp.make_doc("Nobody")], docs)
    with pytest.raises(ValueError, match="without 'doc' in its metadata"):
        estimate(nlp, [*answers, annotate(nlp.make_doc("Nobody"))], docs)
    changed = annotate(nlp.make_doc(f"{answers[0].text} indeed"))
    changed.user_data |= answers[0].user_data
    with pytest.raises(ValueError, match="expected docs that are among the texts, got"):
        estimate(nlp, [changed, *answers[1:]], docs)
    with pytest.raises(ValueError, match="confidence: expected a number between 0 and 1, got 95"):
        estimate(nlp, answers, docs, confidence=95)


def test_a_pipeline_that_was_trained_on_the_drawn_docs_is_refused(
    nlp: Language, drawn: list[DrawnDoc], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The docs were drawn for a pipeline with another digest. This one seems to know all of them,
    so it was trained since."""
    monkeypatch.setattr(
        "spacy_costner.workflows.evaluation.recurrence.KnownText.knows", lambda *args: True
    )
    digest_of_another = "0" * 16
    answers = [answer(nlp, doc, pipeline=digest_of_another) for doc in drawn]
    with pytest.raises(ValueError, match="expected a pipeline that wasn't trained on the drawn"):
        estimate(nlp, answers, make_docs(nlp))


def test_own_random_docs_have_to_be_random(nlp: Language, drawn: list[DrawnDoc]) -> None:
    """Docs are no simple random sample if `suggest` chose them, if `draw` drew them with other
    probabilities, if one isn't among the texts, or if one is there more often than among the
    texts."""
    docs = make_docs(nlp)
    suggested: list[Doc] = []
    for suggestion in suggest(nlp, make_docs(nlp), n=40):
        doc = annotate(nlp.make_doc(suggestion.doc.text))
        doc.user_data |= suggestion.task().extra["meta"]
        suggested.append(doc)
    own = [annotate(nlp.make_doc(doc.text)) for doc in docs[:40]]
    elsewhere = annotate(nlp.make_doc("Shaka likes Oslo"))

    for answers, message in (
        (suggested, "got docs that `suggest` chose"),
        ([answer(nlp, doc) for doc in drawn], "leave out `simple_random`"),
        ([*own, elsewhere], "among the texts, got 'Shaka likes Oslo'"),
        ([*own, annotate(nlp.make_doc(docs[0].text))], "expected each doc once"),
    ):
        with pytest.raises(ValueError, match=message):
            estimate(nlp, answers, docs, simple_random=True)

    assert estimate(nlp, own, docs, simple_random=True).drawings == 40


# Texts that measure in a session of `serve`


def answer_to_measure(store: AnnotationStore, n_left_out: int = 0) -> None:
    """Annotate all evaluation texts, in their order, and leave out the first ones."""
    measuring = [stored for stored in store.texts.values() if stored.is_evaluation]
    for i, stored in enumerate(measuring):
        spans = [
            TaskSpan(name["start"], name["end"], name["label"]) for name in find_names(stored.text)
        ]
        store.save(
            stored.key, Task(stored.text, spans), is_evaluation=True, is_left_out=i < n_left_out
        )


@pytest.fixture
def store(nlp: Language, tmp_path: Path) -> AnnotationStore:
    """The folder of a session with the different ones of `make_docs`."""
    store = AnnotationStore(tmp_path / "session")
    store.add_texts(doc.text for doc in make_docs(nlp))
    return store


def read_measured(nlp: Language, store: AnnotationStore) -> list[Doc]:
    return list(read_docs(nlp, store.measure_path, info=CorpusInfo()))


def read_all(nlp: Language, store: AnnotationStore) -> list[Doc]:
    return list(read_texts(nlp, store.folder / TEXTS_FILE))


def test_evaluation_texts_are_a_simple_random_sample(nlp: Language, store: AnnotationStore) -> None:
    answer_to_measure(store)
    measured = read_measured(nlp, store)
    texts = read_all(nlp, store)
    assert len(measured) == 30 and len(texts) == len(store.texts) > 150

    result = estimate(nlp, measured, texts)

    own = [annotate(nlp.make_doc(doc.text)) for doc in measured]
    assert result == estimate(nlp, own, texts, simple_random=True)
    assert result.drawings == 30 and result.notes[1:] == []


def test_texts_that_were_added_later_are_a_part_with_its_own_share(
    nlp: Language, store: AnnotationStore
) -> None:
    """Of the texts that were added first at least 30 measure, which is more than a tenth of them,
    and of later ones a tenth. The total is the sum of the totals of both parts. If one part has no
    answers, there is no total."""
    n_first = len(store.texts)
    later = [f"{doc.text} again" for doc in make_docs(nlp)]
    store.add_texts(later)
    n_later = len(store.texts) - n_first
    answer_to_measure(store)
    measured = read_measured(nlp, store)
    texts = read_all(nlp, store)

    result = estimate(nlp, measured, texts)

    n_annotated = Counter(doc.user_data["addition"] for doc in measured)
    assert n_annotated == {0: 30, 1: round(n_later / 10)}
    expected = sum(counts.annotated.sum() for _, counts in expect_counts(nlp, "ner", texts))
    total = expected
    for batch, counts in expect_counts(nlp, "ner", measured):
        for i, doc in enumerate(batch):
            error = len(annotate(nlp.make_doc(doc.text)).ents) - counts.annotated[i].sum()
            addition = doc.user_data["addition"]
            total += error * (n_first, n_later)[addition] / n_annotated[addition]
    assert value_of(row_of(result, ALL_LABELS).entities) == pytest.approx(total)

    of_first = [doc for doc in measured if doc.user_data["addition"] == 0]
    with pytest.raises(ValueError, match=f"from all {len(texts)} texts, got some from {n_first}"):
        estimate(nlp, of_first, texts)


def test_texts_that_were_added_without_an_evaluation_text_are_left_out(
    nlp: Language, store: AnnotationStore
) -> None:
    """None of up to five texts is drawn. The estimates are for the other texts, and a note says so.
    A later addition with evaluation texts that aren't annotated is an error as before."""
    answer_to_measure(store)
    measured = read_measured(nlp, store)
    n_texts = len(store.texts)
    expected = estimate(nlp, measured, read_all(nlp, store))
    store.add_texts([f"Who likes London {i}" for i in range(5)])
    store.add_texts(["Who likes Paris"])
    assert sum(text.is_evaluation for text in store.texts.values()) == len(measured)

    result = estimate(nlp, measured, read_all(nlp, store))

    assert result.labels == expected.labels
    assert result.docs == n_texts
    (note,) = [note for note in result.notes if note not in expected.notes]
    assert note.startswith("6 texts are left out, because they were added a few at a time")
    store.add_texts([f"Who likes Rome {i}" for i in range(6)])
    with pytest.raises(ValueError, match=rf"from all {n_texts + 6} texts, got some from {n_texts}"):
        estimate(nlp, measured, read_all(nlp, store))


def test_evaluation_texts_of_label_studio_are_a_sample_of_all(
    nlp: Language, tmp_path: Path
) -> None:
    """`serve` doesn't know all texts. Those that are given count. Each of the 400 texts measures
    with a share of a tenth, so about 40 do."""
    session = AnnotationSession(AnnotationStore(tmp_path), labels=[], lang="xx")
    docs = [nlp.make_doc(f"{doc.text} {i}") for i, doc in enumerate(make_docs(nlp) * 2)]
    for i, doc in enumerate(docs):
        spans = [
            TaskSpan(name["start"], name["end"], name["label"]) for name in find_names(doc.text)
        ]
        session.answer_task(f"task-{i}-annotation-{i}", Task(doc.text, spans))
    measured = read_measured(nlp, session.store)
    assert 30 <= len(measured) <= 60

    result = estimate(nlp, measured, docs)

    own = [annotate(nlp.make_doc(doc.text)) for doc in measured]
    assert result == estimate(nlp, own, docs, simple_random=True)


def test_other_answers_of_a_session_are_refused(nlp: Language, store: AnnotationStore) -> None:
    answer_to_measure(store)
    measured = read_measured(nlp, store)
    texts = read_all(nlp, store)
    others = [annotate(nlp.make_doc(texts[0].text))]
    changed = annotate(nlp.make_doc(measured[0].text))
    changed.user_data |= {**measured[0].user_data, "added": "7"}
    negative = annotate(nlp.make_doc(measured[0].text))
    negative.user_data |= {**measured[0].user_data, "added": -7}
    for answers, message in (
        ([*measured, *others], "expected only evaluation texts of a session of `serve`"),
        ([changed, *measured[1:]], "added: expected the value that `serve` wrote, got '7'"),
        ([negative, *measured[1:]], "added: expected the value that `serve` wrote, got -7"),
        (measured[1:], "expected at least 30 drawn docs, got 29"),
    ):
        with pytest.raises(ValueError, match=message):
            estimate(nlp, answers, texts)


def test_the_command_takes_the_folder_of_a_session(unsure: Path, store: AnnotationStore) -> None:
    """It counts the texts that were left out. Of the first texts 30 measure, and 6 of the 60 that
    are added. 3 of these 36 are left out, which leaves 33."""
    answer_to_measure(store)
    whole = run("estimate", unsure, store.folder, "--json")
    assert whole.exit_code == 0, whole.output
    assert json.loads(whole.stdout)["annotated"] == 30

    store.add_texts([f"Who likes London {i}" for i in range(60)])
    answer_to_measure(store, n_left_out=3)
    result = run("estimate", unsure, store.folder, "--texts", store.folder / TEXTS_FILE)
    assert result.exit_code == 0, result.output
    assert "note: annotators left out 3 of 36 drawn docs, which are assumed to be" in result.stdout
    assert f"33 drawings, 33 annotated docs of {len(store.texts)}" in result.stdout


def find_names(text: str) -> list[dict[str, Any]]:
    """Find all words of `NAMES` in a text. Returns their spans in characters."""
    spans: list[dict[str, Any]] = []
    for word, label in NAMES.items():
        for match in re.finditer(word, text):
            spans.append({"start": match.start(), "end": match.end(), "label": label})
    return spans


def answer_tasks(path: Path, form: str) -> None:
    """Do what people do in an annotation tool: mark all words of `NAMES`."""
    saved = path.read_text("utf8")
    if form == "label-studio":
        tasks = json.loads(saved)
        for task in tasks:
            spans = find_names(task["data"]["text"])
            results = [{"value": {**span, "labels": [span["label"]]}} for span in spans]
            task["annotations"] = [{"result": results}]
        path.write_text(json.dumps(tasks))
        return

    tasks = [json.loads(line) for line in saved.splitlines()]
    for task in tasks:
        spans = find_names(task["text"])
        if form == "prodigy":
            task |= {"spans": spans, "answer": "accept"}
        else:
            task["label"] = [[span["start"], span["end"], span["label"]] for span in spans]
    path.write_text("\n".join(map(json.dumps, tasks)))


def save_drawn(drawn: Sequence[DrawnDoc], folder: Path, form: str) -> Path:
    """Save the tasks of drawn docs in the form of an annotation tool."""
    path = folder / f"drawn{TASK_FORMS[form].suffix}"
    save_tasks(path, [doc.task() for doc in drawn], form)
    return path


@pytest.mark.parametrize("form", TASK_FORMS)
def test_answers_of_all_tools_are_read(
    nlp: Language, drawn: list[DrawnDoc], tmp_path: Path, form: str
) -> None:
    """The estimate is the same for the files of all tools. Tasks that aren't annotated yet are
    refused."""
    path = save_drawn(drawn, tmp_path, form)
    unanswered = list(read_docs(nlp, path, info=CorpusInfo()))
    with pytest.raises(ValueError, match=r"expected docs that are annotated .* got missing"):
        estimate(nlp, unanswered, make_docs(nlp))
    answer_tasks(path, form)
    result = estimate(nlp, read_docs(nlp, path), make_docs(nlp))
    assert result == estimate(nlp, [answer(nlp, doc) for doc in drawn], make_docs(nlp))


def test_tasks_show_the_predictions_only_on_request(drawn: list[DrawnDoc]) -> None:
    """Each predicted entity is then shown with its probability."""
    for drawn_doc in drawn:
        assert drawn_doc.task().spans is None
        spans = drawn_doc.task(with_predictions=True).spans
        assert spans is not None
        assert [span.label for span in spans] == [ent.label_ for ent in drawn_doc.doc.ents]
        assert all(0 < span.extra["score"] <= 1 for span in spans)


@pytest.fixture
def texts_path(nlp: Language, tmp_path: Path) -> Path:
    """A file of the texts, with one text on each line."""
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(doc.text for doc in make_docs(nlp)))
    return path


def test_the_command_draws_and_estimates(unsure: Path, texts_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "drawn.jsonl"
    drawing = run("estimate", unsure, texts_path, "--draw", 60, "-o", path, "--seed", 1)
    assert drawing.exit_code == 0, drawing.output
    assert "60 drawings: " in drawing.output
    answer_tasks(path, "prodigy")

    plot_path = tmp_path / "plot.svg"
    printed = run("estimate", unsure, path, "--texts", texts_path, "--plot", plot_path)
    assert printed.exit_code == 0, printed.output
    assert "95 % interval" in printed.output
    assert "240 drawings in total would halve the intervals" in printed.output  # 4 * 60
    assert "river: recall: 0 correct and " in printed.output
    # A row for the number of entities, and one for F
    assert plot_path.read_text("utf8").count("LOC") == 2

    as_json = run("estimate", unsure, path, "--texts", texts_path, "--json")
    result = json.loads(as_json.stdout)
    nlp = load(unsure)
    expected = estimate(nlp, read_docs(nlp, path), make_docs(nlp))
    assert result["labels"][0]["label"] == ALL_LABELS
    (value, low, high) = expected.labels[0].entities.estimate or ()
    assert result["labels"][0]["entities"]["estimate"] == {"value": value, "low": low, "high": high}


@pytest.mark.filterwarnings("default:texts without annotation")
def test_the_command_says_what_is_wrong(unsure: Path, texts_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "drawn.jsonl"
    run("estimate", unsure, texts_path, "--draw", 60, "-o", path)
    unanswered = run("estimate", unsure, path, "--texts", texts_path)
    assert unanswered.exit_code == 1
    assert f"{path}: expected docs that are annotated" in unanswered.output
    for arguments in (
        [texts_path, "--draw", 60],  # without --output
        [texts_path, "--draw", 60, "-o", path, "--texts", texts_path],  # to draw and to estimate
        [path],  # without --texts
    ):
        assert run("estimate", unsure, *arguments).exit_code == 2


def test_texts_without_words_are_refused(nlp: Language, drawn: list[DrawnDoc]) -> None:
    nothing = [nlp.make_doc("")]
    with pytest.raises(ValueError, match="docs with words, got none"):
        draw(nlp, nothing)
    with pytest.raises(ValueError, match="texts with words, got none"):
        estimate(nlp, [answer(nlp, doc) for doc in drawn], nothing)
    with pytest.raises(ValueError, match="n: expected at least 1, got 0"):
        draw(nlp, nothing, n=0)
