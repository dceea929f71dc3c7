"""Tests of `guarantee --drawn`: a guarantee for new texts, made with docs that were drawn from
them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_costner.metrics import conformal
from spacy_costner.pipeline.promises import Terms
from spacy_costner.readers import TASK_FORMS, CorpusInfo, read_docs, save_tasks
from spacy_costner.workflows import draw, guarantee
from spacy_costner.workflows.calibration.calibration_docs import draw_uniformly
from spacy_costner.workflows.calibration.scored_spans import SCORED_SPAN, score_spans
from spacy_costner.workflows.calibration.set_thresholds import MIN_THRESHOLD, find_part
from spacy_costner.workflows.sampling.drawing import Drawing, DrawnDoc, conformal_weights

from ...support.commands import run
from ...support.pipelines import load

TAG_OF_WORD = {"Khan": "PERSON", "London": "LOC", "Berlin": "LOC", "Sox": "sports-team"}
LIMIT = 0.2


def make_texts(nlp: Language, n: int = 150) -> list[Doc]:
    """Texts with entities, some of which are easier to find for the model than others."""
    rng = numpy.random.default_rng(3)
    texts: list[Doc] = []
    for _ in range(n):
        words = rng.permutation([*TAG_OF_WORD, "lost", "like", "Who", "is", "the", "and"]).tolist()
        texts.append(nlp.make_doc(" ".join(words[: rng.integers(2, 11)])))
    return texts


def answer(nlp: Language, drawn: DrawnDoc) -> Example:
    """The annotated doc of a task, as commands read it."""
    reference = nlp.make_doc(drawn.doc.text)
    spans = []
    for token in reference:
        if token.text in TAG_OF_WORD:
            spans.append(Span(reference, token.i, token.i + 1, TAG_OF_WORD[token.text]))
    reference.set_ents(spans, default="outside")
    reference.user_data |= drawn.drawing.to_dict()
    return Example(nlp.make_doc(drawn.doc.text), reference)


@pytest.fixture
def nlp(unsure: Path) -> Language:
    """A pipeline without a guarantee."""
    return load(unsure)


@pytest.fixture
def drawn(nlp: Language) -> list[DrawnDoc]:
    """The docs of 80 drawings from 150 texts."""
    return draw(nlp, make_texts(nlp), n=80, seed=1)


@pytest.fixture
def answers(nlp: Language, drawn: list[DrawnDoc]) -> list[Example]:
    """The drawn docs with their annotation."""
    return [answer(nlp, doc) for doc in drawn]


def test_the_threshold_is_that_of_the_weighted_docs(
    nlp: Language, drawn: list[DrawnDoc], answers: list[Example]
) -> None:
    """A doc has the weight 1 / (2 D q) for each time that it was drawn, with the probability q from
    D = 150 texts."""
    ner: Any = nlp.get_pipe("ner")
    scored = score_spans(nlp, ner, answers, Terms(miss=LIMIT))
    weights = numpy.asarray(
        [doc.drawing.times / 2 / 150 / doc.drawing.probability for doc in drawn]
    )

    result = guarantee(nlp, answers, miss=LIMIT, drawn=True)

    losses = conformal.miss_losses(scored.gold["score"], scored.gold["doc"], doc_weights=weights)
    expected = conformal.threshold(losses, LIMIT, floor=MIN_THRESHOLD)
    (part,) = result.parts
    assert part.threshold == pytest.approx(expected, rel=1e-3)
    assert conformal_weights([doc.drawing for doc in drawn]) == pytest.approx(weights)
    is_in_set = scored.spans["score"] >= part.threshold
    n_spans = weights[scored.spans["doc"][is_in_set]].sum()
    assert part.spans == pytest.approx(n_spans / weights[scored.gold["doc"]].sum())
    assert result.promise.drawings == 80
    assert result.kept is None  # nothing was guaranteed before


def test_docs_needed_are_enough(nlp: Language, answers: list[Example]) -> None:
    """The message says how many docs a limit takes. That number of docs like the drawn ones is
    enough, and 3 % fewer are not."""
    with pytest.raises(ValueError, match=r"0\.01 takes about") as error:
        guarantee(nlp, answers, miss=0.01, drawn=True)
    (needed_text,) = re.findall(r"takes about ([\d,]+) docs", str(error.value))
    needed = int(needed_text.replace(",", ""))
    result = guarantee(nlp, answers, miss=LIMIT, drawn=True)
    ner: Any = nlp.get_pipe("ner")
    scored = score_spans(nlp, ner, answers, Terms(miss=LIMIT))
    drawings = [Drawing.from_dict(eg.reference.user_data) for eg in answers]
    weights = conformal_weights(drawings)
    losses = conformal.miss_losses(scored.gold["score"], scored.gold["doc"], doc_weights=weights)
    # How often the docs are repeated
    times = needed / result.parts[0].docs
    more = losses._replace(weight=losses.weight * times, n=losses.n * times)
    assert conformal.threshold(more, 0.01, floor=MIN_THRESHOLD) is not None
    fewer = losses._replace(weight=losses.weight * times * 0.97, n=losses.n * times * 0.97)
    assert conformal.threshold(fewer, 0.01, floor=MIN_THRESHOLD) is None


@pytest.mark.parametrize("by", ["doc", "any"])
def test_the_miss_rate_of_the_earlier_promise_is_estimated(
    nlp: Language, drawn: list[DrawnDoc], answers: list[Example], by: str
) -> None:
    """The miss rate is computed here from the sets that the pipeline writes: it is the weighted
    mean over the docs with entities."""
    calibration = [Example(eg.predicted.copy(), eg.reference.copy()) for eg in answers[:30]]
    for eg in calibration:
        eg.reference.user_data.clear()
    guarantee(nlp, calibration, miss=0.3, by=by)
    losses: list[float] = []
    weights: list[float] = []
    for doc, eg in zip(drawn, answers):
        predicted = nlp(eg.reference.text)
        spans = {(span.start, span.label_) for span in predicted.spans["confidence_guaranteed"]}
        if eg.reference.ents:
            missed = [(ent.start, ent.label_) not in spans for ent in eg.reference.ents]
            losses.append(numpy.mean(missed) if by == "doc" else float(any(missed)))
            weights.append(doc.drawing.times / doc.drawing.probability)

    kept = guarantee(nlp, answers, miss=LIMIT, by=by, drawn=True).kept

    assert kept is not None
    assert kept.limit == 0.3
    assert kept.miss_rate.value == pytest.approx(numpy.average(losses, weights=weights))
    assert kept.miss_rate.low <= kept.miss_rate.value <= kept.miss_rate.high
    assert "guaranteed to miss at most 0.3, and misses" in kept.as_text()


def test_drawn_docs_are_refused_without_what_their_promise_needs(
    nlp: Language, answers: list[Example]
) -> None:
    """It needs `drawn`, all drawn docs, a limit of misses without a confidence, and the
    pipeline that the docs were drawn for. False alarms have a confidence by default."""
    with pytest.raises(ValueError, match=r"docs that `draw` drew, .*: set `drawn`"):
        guarantee(nlp, answers, miss=LIMIT)
    with pytest.raises(ValueError, match="expected all 80 drawings with the seed 1, got"):
        guarantee(nlp, answers[1:], miss=LIMIT, drawn=True)
    with pytest.raises(ValueError, match="drawn: expected a miss rate without a confidence"):
        guarantee(nlp, answers, miss=LIMIT, confidence=0.95, drawn=True)
    with pytest.raises(ValueError, match="drawn: expected a miss rate without a confidence"):
        guarantee(nlp, answers, false_alarm=LIMIT, drawn=True)
    nlp.get_pipe("ner").cfg["temperature"]["overall"] = 2.0
    with pytest.raises(ValueError, match="expected the pipeline that the docs were drawn for"):
        guarantee(nlp, answers, miss=LIMIT, drawn=True)


def test_a_label_that_no_drawn_doc_has_needs_docs() -> None:
    """With n docs in which nothing is missed, the lowest limit is 1 / (n + 1): 0.1 for 9 docs."""
    nothing = numpy.zeros(0, dtype=SCORED_SPAN)
    part = find_part(
        nothing,
        nothing,
        n_docs=2,
        n_parts=1,
        terms=Terms(miss=0.1),
        doc_weights=numpy.asarray([0.5, 0.25]),
    )
    assert part.docs == 0 and part.threshold is None
    assert part.docs_needed == 9


def test_training_docs_among_the_texts_count(
    nlp: Language, answers: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training docs that were drawn with the others are not left out, as the rest would be no
    random sample of the texts."""
    monkeypatch.setattr(
        "spacy_costner.workflows.evaluation.recurrence.KnownText.knows", lambda *args: True
    )
    promise = guarantee(nlp, answers, miss=LIMIT, drawn=True).promise
    assert promise.docs == len(answers)


def test_a_promise_for_drawn_docs_is_saved(
    nlp: Language, answers: list[Example], tmp_path: Path
) -> None:
    guarantee(nlp, answers, miss=LIMIT, drawn=True)
    ner: Any = nlp.get_pipe("ner")
    nlp.to_disk(tmp_path)
    loaded: Any = load(tmp_path).get_pipe("ner")
    assert ner.guarantee.drawings == 80
    # Thresholds are equal but for the last digits.
    threshold = ner.guarantee.groups[""].threshold
    assert loaded.guarantee.groups[""].threshold == pytest.approx(threshold)
    assert replace(loaded.guarantee, groups={}) == replace(ner.guarantee, groups={})


@pytest.mark.parametrize("form", TASK_FORMS)
def test_drawn_docs_keep_their_groups(nlp: Language, tmp_path: Path, form: str) -> None:
    """Tasks have the metadata of the texts, so the guarantee can be given by group. The records of
    earlier choices are dropped, and the record of the drawing replaces values with its names."""
    texts = make_texts(nlp)
    for text in texts:
        text.user_data |= {"source": "web" if len(text) > 5 else "news", "seed": 7, "n": 3}
        text.user_data |= {"chosen_by": "suggest", "drawn_by": "costner serve"}
    drawn = draw(nlp, texts, n=80, seed=1)
    path = tmp_path / f"drawn{TASK_FORMS[form].suffix}"
    save_tasks(path, (doc.task() for doc in drawn), form)

    answers: list[Example] = []
    for task_doc, drawn_doc in zip(read_docs(nlp, path, info=CorpusInfo()), drawn, strict=True):
        eg = answer(nlp, drawn_doc)
        eg.reference.user_data = task_doc.user_data
        answers.append(eg)

    for eg in answers:
        assert eg.reference.user_data["seed"] == 1 and eg.reference.user_data["n"] == 3
    result = guarantee(nlp, answers, miss=0.4, drawn=True, by_group="source")
    assert {part.group for part in result.parts} == {"news", "web"}


def test_the_test_for_a_shift_has_docs_with_the_same_chance() -> None:
    """The last 4000 docs were drawn with four times the probability of the others, so about a
    quarter of them is kept. The number that is kept has the deviation sqrt(4000 * 0.25 * 0.75),
    which is 27."""
    weights = numpy.asarray([1.0] * 1000 + [0.25] * 4000)
    chosen = draw_uniformly(weights)
    assert (chosen < 1000).sum() == 1000
    assert (chosen >= 1000).sum() == pytest.approx(1000, abs=100)


@pytest.mark.slow
def test_the_command_makes_a_promise_and_measures_the_one_before(
    unsure: Path, nlp: Language, answers: list[Example], tmp_path: Path
) -> None:
    """The second guarantee can't be given. The message then says how well the first one holds. It
    names options."""
    path = tmp_path / "answers.jsonl"
    lines: list[str] = []
    for eg in answers:
        doc = eg.reference
        ents = [{"start": e.start_char, "end": e.end_char, "label": e.label_} for e in doc.ents]
        lines.append(json.dumps({"text": doc.text, "spans": ents, "meta": doc.user_data}))
    path.write_text("\n".join(lines))
    output = tmp_path / "promised"
    result = run("guarantee", unsure, path, "--drawn", "--miss", LIMIT, "-o", output)
    assert result.exit_code == 0, result.output
    assert f"Guaranteed for the texts that {path} was drawn from: at most 0.2" in result.output
    assert "on average over drawings" in result.output
    again = run("guarantee", output, path, "--drawn", "--miss", 0.01, "-o", tmp_path / "again")
    assert again.exit_code == 1
    assert "0.01 takes about" in again.output
    assert "The previous set was guaranteed to miss at most 0.2, and misses" in again.output
    without = run("guarantee", unsure, path, "--miss", LIMIT, "-o", tmp_path / "without")
    assert without.exit_code == 1
    assert "got docs that `estimate --draw` drew" in without.output
    assert "set --drawn" in without.output
