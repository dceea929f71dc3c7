"""Estimate the number of entities in texts and the accuracy of a pipeline, with confidence
intervals.

Some of the texts are drawn at random and annotated: see `drawing` and `designs`. The annotated docs
are used to correct the model's expected counts for all texts: see `estimators` for the formulas. A
measure is a quantity to estimate: a number of entities, or a score such as precision.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from ...metrics import ratio
from ..evaluation.recurrence import KnownText, note_known
from ..evaluation.valid_data import find_unknown_labels
from .designs import find_design
from .drawing import check_annotated, get_trained
from .drawn_counts import DrawnCounts, count_drawn, expect_texts, sum_labels
from .estimators import (
    Count,
    Interval,
    Sample,
    drawings_for_half,
    estimate_rate,
    estimate_share,
    estimate_total,
    most_docs_with_any,
)

MIN_DRAWINGS = 30
"""The minimum number of draws. With fewer draws, intervals would contain the true value too rarely:
see the simulation in `benchmarks/estimate.py`."""

MIN_ENTITIES = 20
"""The number of entities of a label that the drawn docs must contain to estimate the label's
total."""

MIN_OF_EACH = 10
"""The number of correct entities, and of wrong or missed entities, that the drawn docs must contain
to estimate a score."""

ALL_LABELS = "all"
"""The label of the estimates over all labels."""


@dataclass(frozen=True)
class MeasureEstimate:
    """Estimates of a count or score: using both the model and the drawn docs, and using only one of
    the two.

    estimate (Interval | None): The estimate and its interval. None if there are too few entities.
    model_alone (float): The expected value according to the model, without the drawn docs.
    annotated_alone (Interval | None): The estimate from the annotated docs, without the model.
    refusal (str): The reason why there is no estimate. Empty if there is an estimate.
    """

    estimate: Interval | None
    model_alone: float
    annotated_alone: Interval | None
    refusal: str = ""


@dataclass(frozen=True)
class LabelEstimate:
    """The estimates for the entities of a label, or of all labels.

    label (str): The label, or `ALL_LABELS`.
    drawn (int): The number of annotated entities in the drawn docs. A doc that was drawn more than
        once is counted each time.
    entities (MeasureEstimate): The number of entities that all texts would have if they were
        annotated.
    precision, recall, f (MeasureEstimate): The scores that the pipeline would have on all texts.
    most_docs (int | None): An upper bound on the number of docs with the label, if no drawn doc has
        the label: see `most_docs_with_any`. None otherwise.
    """

    label: str
    drawn: int
    entities: MeasureEstimate
    precision: MeasureEstimate
    recall: MeasureEstimate
    f: MeasureEstimate
    most_docs: int | None = None


@dataclass(frozen=True)
class Estimate:
    """The estimated number of entities in texts, and the estimated scores of a pipeline on them.

    docs (int): The number of texts. Texts that couldn't be drawn are left out: see `notes`.
    drawings (int): The number of draws.
    annotated (int): The number of distinct annotated docs.
    confidence (float): The probability that an interval contains the true value.
    labels (list[LabelEstimate]): The estimates over all labels, followed by the estimates for each
        label.
    drawings_for_half (int): The number of draws needed to halve the width of the intervals.
    notes (list[str]): Reasons why the estimates may be misleading.
    """

    docs: int
    drawings: int
    annotated: int
    confidence: float
    labels: list[LabelEstimate]
    drawings_for_half: int
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Convert the estimates to a JSON-serializable dict."""
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
    """Estimate the number of entities in texts, and the precision, recall and F-score of a
    pipeline. The intervals are valid for any model, even on out-of-domain texts. Entities of
    earlier components count, and later components aren't run.

    nlp (Language): The pipeline that the docs were drawn for.
    drawn (Iterable[Doc]): The annotated docs: either all docs returned by `draw`, for one or
        several seeds, or the evaluation texts that a session of `serve` drew at random.
    texts (Iterable[Doc]): All docs that the annotated docs were drawn from, in their original
        order.
    confidence (float): The probability that an interval contains the true value.
    simple_random (bool): Whether the annotated docs are your own simple random sample without
        replacement, instead of docs drawn by `draw`.
    name (str): Name of the component.
    n_left_out (int): The number of drawn docs that annotators skipped. They are assumed to be
        similar to the others, and a note is added.
    RETURNS (Estimate): The estimates, over all labels and for each label.
    RAISES (ValueError): If the component is missing or isn't trained, or `confidence` is invalid;
        or if there are too few drawn docs, or they weren't drawn at random from these texts for
        this pipeline, aren't fully annotated, or don't contain any of the component's labels.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: expected a number between 0 and 1, got {confidence}")
    ner = get_trained(nlp, name)
    annotated = [doc for doc in drawn if len(doc)]
    check_annotated(annotated)
    # Vectors may be trained on all texts, because this doesn't favour drawn docs over other texts.
    known = KnownText.from_component(nlp, ner, with_raw_text=False)
    design = find_design(nlp, ner, known, annotated, simple_random=simple_random)
    n_drawings = design.times.sum()
    if n_drawings < MIN_DRAWINGS:
        raise ValueError(
            f"expected at least {MIN_DRAWINGS} drawn docs, got {n_drawings}: with fewer, "
            "intervals contain the true number too rarely"
        )

    # Make predictions for the texts, and compute the sampling probabilities of the drawn docs.
    selected = design.select_texts(texts)
    expected = expect_texts(nlp, name, selected, annotated, design.text_indices)
    sample = design.make_sample(expected)

    notes = note_known(known, annotated, "the drawn docs")
    notes += design.notes()
    notes += find_unknown_labels(
        nlp,
        ner,
        [Example(doc, doc) for doc in annotated],
        "the drawn docs",
        predicted_labels=expected.totals.labels,
    )
    if n_left_out:
        notes.append(
            f"annotators left out {n_left_out} of {n_left_out + len(annotated)} drawn docs, which "
            "are assumed to be like the others"
        )

    # Compute the estimates over all labels and for each label.
    counts = count_drawn(ner.labels, annotated, expected, design.times)
    # The number of tokens is known for all texts, so the expected number is the true number.
    lengths = numpy.repeat(expected.annotated_counts.n_tokens, design.times)
    n_tokens = Count(lengths, lengths, float(expected.totals.n_tokens.sum()))
    counts_of_all = sum_labels(counts.values())
    estimates = [estimate_label(ALL_LABELS, counts_of_all, n_tokens, sample, confidence)]
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


def estimate_label(
    label: str, counts: DrawnCounts, n_tokens: Count, sample: Sample, confidence: float
) -> LabelEstimate:
    """Estimate the number of entities and the scores of a label, or of all labels (`ALL_LABELS`),
    using the counts in the drawn docs."""
    annotated, correct, predicted = counts
    # The attribute `annotated` of each `Count` is the true count in each drawn doc.
    n_annotated = int(annotated.annotated.sum())
    n_correct = int(correct.annotated.sum())
    n_false_alarms = int(predicted.annotated.sum()) - n_correct
    n_missed = n_annotated - n_correct

    most_docs = None
    if n_annotated == 0:  # other texts may still contain some
        most_docs = most_docs_with_any(sample, confidence=confidence)

    def measure_score(
        numerator: Count, denominator: Count, n_wrong: int, wrong: str
    ) -> MeasureEstimate:
        """Estimate a score, the ratio of two counts, unless there are too few correct or wrong
        entities in the drawn docs. `wrong` describes the wrong entities in the refusal."""
        model_alone = float(ratio(numerator.expected_total, denominator.expected_total))
        if min(n_correct, n_wrong) < MIN_OF_EACH:
            refusal = (
                f"{n_correct} correct and {n_wrong} {wrong} in the drawn docs, fewer than "
                f"{MIN_OF_EACH} of each"
            )
            return without_estimate(model_alone, refusal)
        score = estimate_share(numerator, denominator, sample, confidence=confidence)
        score_alone = estimate_share(
            numerator.without_model(), denominator.without_model(), sample, confidence=confidence
        )
        return MeasureEstimate(
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
) -> MeasureEstimate:
    """Estimate the number of entities in all texts, unless there are too few in the drawn docs.
    `most_docs` is the upper bound on the number of docs with an entity if no drawn doc has one."""
    model_alone = annotated.expected_total
    n_annotated = int(annotated.annotated.sum())
    if n_annotated == 0:
        return without_estimate(
            model_alone, f"none in the drawn docs: at most {most_docs:,} docs have any"
        )
    if n_annotated < MIN_ENTITIES:
        return without_estimate(
            model_alone, f"{n_annotated} in the drawn docs, fewer than {MIN_ENTITIES}"
        )
    total = estimate_total(annotated, sample, confidence=confidence)
    # Without the model, multiply the entities per token in the annotated docs by the number of
    # tokens in all texts.
    entities_per_token = estimate_rate(
        annotated.without_model(), n_tokens.without_model(), sample, confidence=confidence
    )
    total_alone = Interval(*(bound * n_tokens.expected_total for bound in entities_per_token))
    return MeasureEstimate(
        estimate=as_floats(total), model_alone=model_alone, annotated_alone=as_floats(total_alone)
    )


def without_estimate(model_alone: float, refusal: str) -> MeasureEstimate:
    """Create a `MeasureEstimate` with the reason why there is no estimate."""
    return MeasureEstimate(
        estimate=None, model_alone=model_alone, annotated_alone=None, refusal=refusal
    )


def as_floats(interval: Interval) -> Interval:
    """Convert the interval of a single sample to Python floats."""
    return Interval(*(float(bound) for bound in interval))


def as_share(interval: Interval) -> Interval:
    """Convert the interval of a share to Python floats, clipped to the range from 0 to 1.

    interval (Interval): The interval of a single sample.
    RETURNS (Interval): The clipped interval.
    """
    return Interval(*(min(max(float(bound), 0.0), 1.0) for bound in interval))
