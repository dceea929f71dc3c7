"""Estimate how many entities texts have, and how good a pipeline is on them, with intervals.

Some of the texts are drawn at random and annotated: see `drawing`. The model says how many entities
it expects in all texts, and the annotated docs correct that: see `estimators` for the formulas. A
measure is one estimated number: a count of entities, or a score such as precision.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from ...metrics import ratio
from ...readers.files import shown
from ..evaluation.recurrence import KnownText, check_new, note_known
from ..evaluation.valid_data import find_unknown_labels
from .drawing import (
    Drawing,
    Measuring,
    check_annotated,
    check_drawn_by,
    check_not_suggested,
    get_trained,
    is_same_number,
    read_drawings,
    sample_of,
    sample_of_session,
)
from .drawn_counts import DrawnCounts, Expected, count_drawn, expect_texts, sum_labels
from .estimators import (
    Count,
    Interval,
    Sample,
    drawings_for_half,
    estimate_ratio,
    estimate_share,
    estimate_total,
    most_docs_with_any,
)
from .suggestions import text_without_space

MIN_DRAWINGS = 30
"""The least number of drawings. Intervals of fewer drawings would contain the true number too
seldom: `benchmarks/estimate.py` simulates that."""

MIN_ENTITIES = 20
"""The number of entities of a label is estimated if the drawn docs have at least so many."""

MIN_OF_EACH = 10
"""A score is estimated if the drawn docs have at least so many correct entities, and so many wrong
or missed ones."""

ALL = "all"
"""Stands in the place of a label for all labels together."""


@dataclass(frozen=True)
class Measure:
    """An estimate of a count or a score, by the model and the drawn docs together. Beside it is
    what each of the two says alone.

    estimate (Interval | None): The estimate and its interval. None: there are too few entities.
    model_alone (float): What the model expects, without drawn docs.
    annotated_alone (Interval | None): The estimate of the annotated docs without the model.
    refusal (str): Why there is no estimate; empty if there is one.
    """

    estimate: Interval | None
    model_alone: float
    annotated_alone: Interval | None
    refusal: str = ""


@dataclass(frozen=True)
class LabelEstimate:
    """What is estimated of the entities of a label, or of all labels.

    label (str): The label, or `ALL`.
    drawn (int): The number of annotated entities in the drawn docs. A doc that was drawn twice
        counts twice.
    entities (Measure): The number of entities that all texts would have if they were annotated.
    precision, recall, f (Measure): The scores that the pipeline would have on all texts.
    most_docs (int | None): If no drawn doc has the label, the highest number of docs that may have
        it: see `most_docs_with_any`. None if a drawn doc has the label.
    """

    label: str
    drawn: int
    entities: Measure
    precision: Measure
    recall: Measure
    f: Measure
    most_docs: int | None = None


@dataclass(frozen=True)
class Estimate:
    """How many entities texts have, and how good a pipeline is on them.

    docs (int): The number of texts.
    drawings (int): The number of drawings.
    annotated (int): The number of annotated docs. One that was drawn twice counts once.
    confidence (float): The probability that an interval contains the true number.
    labels (list[LabelEstimate]): The estimates for all labels together, then for each label.
    drawings_for_half (int): How many drawings intervals of half the width take.
    notes (list[str]): What may make the estimates misleading.
    """

    docs: int
    drawings: int
    annotated: int
    confidence: float
    labels: list[LabelEstimate]
    drawings_for_half: int
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The estimates as JSON."""
        return asdict(self)


def estimate(
    nlp: Language,
    drawn: Iterable[Doc],
    texts: Iterable[Doc],
    *,
    confidence: float = 0.95,
    simple_random: bool = False,
    name: str = "ner",
    n_left_out: int = 0,
) -> Estimate:
    """Estimate the number of entities in texts, and the precision, recall and F of a pipeline on
    them. Intervals are valid whatever the model is worth, also on text that is unlike its training
    docs.

    nlp (Language): The pipeline that the docs were drawn for.
    drawn (Iterable[Doc]): The annotated docs: all that `draw` returned, for one or several seeds,
        or the texts that a session of `serve` drew at random to measure the model.
    texts (Iterable[Doc]): All docs that they were drawn from, in the same order.
    confidence (float): The probability that an interval contains the true number.
    simple_random (bool): The annotated docs are a simple random sample of your own, without
        replacement, in place of docs that --draw drew.
    name (str): Name of the component.
    n_left_out (int): How many other docs were drawn, but left out by the annotators. A note says
        so, as they are taken to be like the others.
    RETURNS (Estimate): The estimates, for all labels together and for each.
    RAISES (ValueError): If there is no such trained component; if `confidence` is out of its range;
        if there are too few drawn docs, they weren't drawn at random from these texts for this
        pipeline, they aren't all annotated, or they have none of its labels.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: expected a number between 0 and 1, got {confidence}")
    ner = get_trained(nlp, name)
    annotated = [doc for doc in drawn if len(doc)]
    check_annotated(annotated)
    times = numpy.ones(len(annotated), dtype="int64")  # how often each doc was drawn
    is_of_session = any(Measuring.is_in(doc.user_data) for doc in annotated)
    # The vectors may be learned from all texts, as they then know drawn docs no better than others.
    known = KnownText.of_component(nlp, ner, with_raw_text=False)
    # The docs were drawn in one of three ways. First check what can be checked without the texts.
    if is_of_session:
        measuring = [Measuring.from_dict(doc.user_data) for doc in annotated]
        check_new(known, annotated, "the texts that measure")
    elif simple_random:
        check_simple_random(annotated)
        check_new(known, annotated, "the drawn docs")
    else:
        drawings = read_drawings(annotated)
        # All drawings are from the same texts, for the same pipeline: the first one stands for all.
        first_drawing = drawings[0]
        check_drawn_by(nlp, ner, annotated, first_drawing)
        times = numpy.asarray([drawing.times for drawing in drawings])
    if times.sum() < MIN_DRAWINGS:
        raise ValueError(
            f"expected at least {MIN_DRAWINGS} drawn docs, got {times.sum()}: intervals of fewer "
            "have the truth too seldom"
        )
    notes = note_known(known, annotated, "the drawn docs")
    notes += find_unknown_labels(
        nlp, ner, [Example(doc, doc) for doc in annotated], "the drawn docs"
    )
    if n_left_out:
        notes.append(
            f"annotators left out {n_left_out} of {n_left_out + len(annotated)} drawn docs: these "
            "are taken to be like the others"
        )

    # Predict the texts, and find out with which probabilities the docs were drawn from them.
    expected = expect_texts(nlp, name, texts, annotated)
    if is_of_session:
        check_are_texts(annotated, expected)
        check_drawn_once(annotated, expected)
        sample = sample_of_session(measuring, expected.docs)
    elif simple_random:
        check_are_texts(annotated, expected)
        check_drawn_once(annotated, expected)
        # Each doc had the same chance.
        probs = numpy.full(len(annotated), 1 / expected.docs)
        sample = Sample(probs, expected.docs, with_replacement=False)
    else:
        check_drawn_from(first_drawing, expected)
        # An annotator may have changed the text of a doc.
        check_are_texts(annotated, expected)
        sample = sample_of(drawings)

    # Estimate, for all labels together and for each label.
    counts = count_drawn(ner.labels, annotated, expected, times)
    # The number of tokens is known of all texts: what is expected of a doc is the true number.
    lengths = numpy.repeat(expected.annotated_counts.n_tokens, times)
    n_tokens = Count(lengths, lengths, float(expected.totals.n_tokens.sum()))
    counts_of_all = sum_labels(counts.values())
    estimates = [estimate_label(ALL, counts_of_all, n_tokens, sample, confidence)]
    for label, counts_of_label in counts.items():
        estimates.append(estimate_label(label, counts_of_label, n_tokens, sample, confidence))
    return Estimate(
        docs=expected.docs,
        drawings=sample.n_drawn,
        annotated=len(annotated),
        confidence=confidence,
        labels=estimates,
        drawings_for_half=drawings_for_half(sample),
        notes=notes,
    )


def check_simple_random(annotated: Sequence[Doc]) -> None:
    """Check that docs that the user drew may be a simple random sample.

    annotated (Sequence[Doc]): The docs, which are annotated now.
    RAISES (ValueError): If `suggest` or `draw` chose one of them.
    """
    for doc in annotated:
        check_not_suggested(doc)
        if Drawing.is_in(doc.user_data):
            raise ValueError(
                "expected simple random docs of your own, got docs that `estimate --draw` drew, "
                "with other probabilities: leave out `simple_random`"
            )


def check_drawn_from(drawing: Drawing, expected: Expected) -> None:
    """Check that docs were drawn from the texts that were predicted now, and for this pipeline.

    drawing (Drawing): How the docs were drawn: the digest of the texts, and the number of entities
        that the pipeline expected in them.
    expected (Expected): What the pipeline expects of the texts now.
    RAISES (ValueError): If they were drawn from other texts, or for a pipeline that expects another
        number of entities in the texts.
    """
    if drawing.texts != expected.digest:
        raise ValueError(
            f"expected the {drawing.docs:,} texts that the docs were drawn from, with the digest "
            f"{drawing.texts}, got {expected.docs:,} texts with {expected.digest}"
        )
    n_expected = float(expected.totals.annotated.sum())
    if not is_same_number(drawing.expected, n_expected):
        raise ValueError(
            "expected the pipeline that the docs were drawn for, which expects "
            f"{drawing.expected:,.1f} entities in the texts, got one that expects "
            f"{n_expected:,.1f}: estimate with that one, or draw again"
        )


def check_are_texts(annotated: Sequence[Doc], expected: Expected) -> None:
    """Check that annotated docs are among the texts.

    annotated (Sequence[Doc]): The annotated docs.
    expected (Expected): What the model expects of the texts. It says how often the text of each
        annotated doc is among them.
    RAISES (ValueError): If the text of a doc is not among them.
    """
    for doc, n_texts in zip(annotated, expected.occurrences):
        if n_texts == 0:
            raise ValueError(f"expected docs that are among the texts, got {shown(doc.text)}")


def check_drawn_once(annotated: Sequence[Doc], expected: Expected) -> None:
    """Check that docs may have been drawn without replacement. See `check_are_texts` for the
    arguments.

    RAISES (ValueError): If more docs have the same text than there are such texts.
    """
    n_docs_with_text = Counter(text_without_space(doc) for doc in annotated)
    for doc, n_texts in zip(annotated, expected.occurrences):
        if n_docs_with_text[text_without_space(doc)] > n_texts:
            raise ValueError(
                "expected each doc once, as it was drawn without replacement, got "
                f"{shown(doc.text)} again"
            )


def estimate_label(
    label: str, counts: DrawnCounts, n_tokens: Count, sample: Sample, confidence: float
) -> LabelEstimate:
    """Estimate the number of entities and the scores of a label, or of all labels.

    label (str): The label, or `ALL`.
    counts (DrawnCounts): The entities of the drawn docs.
    n_tokens (Count): The tokens of the drawn docs and of all texts.
    sample (Sample): The drawn docs.
    confidence (float): The probability that an interval contains the true number.
    """
    annotated, correct, predicted = counts
    # The field `annotated` of each `Count` has the true number in each drawn doc.
    n_annotated = int(annotated.annotated.sum())
    n_correct = int(correct.annotated.sum())
    n_false_alarms = int(predicted.annotated.sum()) - n_correct
    n_missed = n_annotated - n_correct

    most_docs = None
    if n_annotated == 0:  # all texts may still have some: in how many docs at most?
        most_docs = most_docs_with_any(sample, confidence=confidence)

    def measure_score(numerator: Count, denominator: Count, n_wrong: int, wrong: str) -> Measure:
        """Estimate a score, the ratio of two counts, unless the drawn docs have too few correct or
        too few wrong entities.

        numerator (Count), denominator (Count): The two counts.
        n_wrong (int): The number of wrong entities in the drawn docs.
        wrong (str): What wrong entities are called in the refusal.
        """
        # What the model says without the drawn docs
        model_alone = float(ratio(numerator.expected_total, denominator.expected_total))
        if min(n_correct, n_wrong) < MIN_OF_EACH:
            refusal = (
                f"{n_correct} correct and {n_wrong} {wrong} in the drawn docs, fewer than "
                f"{MIN_OF_EACH} of each"
            )
            return refused(model_alone, refusal)
        score = estimate_share(numerator, denominator, sample, confidence=confidence)
        score_alone = estimate_share(
            numerator.without_model(), denominator.without_model(), sample, confidence=confidence
        )
        return Measure(
            estimate=as_share(score),
            model_alone=model_alone,
            annotated_alone=as_share(score_alone),
        )

    return LabelEstimate(
        label=label,
        drawn=n_annotated,
        entities=measure_number(annotated, n_tokens, sample, confidence, most_docs),
        precision=measure_score(correct, predicted, n_false_alarms, "false alarms"),
        recall=measure_score(correct, annotated, n_missed, "missed"),
        # F = 2 correct / (predicted + annotated)
        f=measure_score(
            correct + correct, predicted + annotated, n_false_alarms + n_missed, "wrong or missed"
        ),
        most_docs=most_docs,
    )


def measure_number(
    annotated: Count, n_tokens: Count, sample: Sample, confidence: float, most_docs: int | None
) -> Measure:
    """Estimate the number of entities in all texts, unless the drawn docs have too few.

    annotated (Count): The annotated entities. Its field `annotated` has their number in each drawn
        doc.
    n_tokens (Count): The tokens of the drawn docs and of all texts.
    sample (Sample): The drawn docs.
    confidence (float): The probability that the interval contains the true number.
    most_docs (int | None): How many docs may have an entity if no drawn doc has one.
    """
    model_alone = annotated.expected_total
    n_annotated = int(annotated.annotated.sum())
    if n_annotated == 0:
        return refused(model_alone, f"no drawn doc has one: at most {most_docs:,} docs do")
    if n_annotated < MIN_ENTITIES:
        return refused(model_alone, f"{n_annotated} in the drawn docs, fewer than {MIN_ENTITIES}")
    total = estimate_total(annotated, sample, confidence=confidence)
    # The estimate without the model is the number of entities per token of the annotated docs,
    # multiplied by the number of tokens of all texts.
    entities_per_token = estimate_ratio(
        annotated.without_model(), n_tokens.without_model(), sample, confidence=confidence
    )
    total_alone = Interval(*(bound * n_tokens.expected_total for bound in entities_per_token))
    return Measure(
        estimate=as_floats(total), model_alone=model_alone, annotated_alone=as_floats(total_alone)
    )


def refused(model_alone: float, refusal: str) -> Measure:
    """A measure without an estimate, and the reason for that."""
    return Measure(estimate=None, model_alone=model_alone, annotated_alone=None, refusal=refusal)


def as_floats(interval: Interval) -> Interval:
    """The interval of one sample with Python's numbers in place of arrays."""
    return Interval(*(float(bound) for bound in interval))


def as_share(interval: Interval) -> Interval:
    """The interval of a share with Python's numbers. What is below 0 or above 1 is cut off."""
    return Interval(*(min(max(float(bound), 0.0), 1.0) for bound in interval))
