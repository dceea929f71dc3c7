"""Estimate how many entities texts have, and how good a pipeline is on them, with intervals.

Some of the texts are drawn at random and annotated: see `drawing`. The model says how many entities
it expects in all texts, and the annotated docs correct that: see `estimators` for the formulas. A
measure is one estimated number: a count of entities, or a score such as precision.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import accumulate
from operator import add
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Floats2d, Ints1d

from ...metrics import ratio
from ...readers.files import shown
from ..components import get_component
from ..evaluation.recurrence import KnownText, check_new, note_known
from ..evaluation.valid_data import find_unknown_labels
from .drawing import (
    Drawing,
    Measuring,
    add_text,
    check_annotated,
    check_drawn_by,
    check_not_suggested,
    get_trained,
    is_same_number,
    read_drawings,
    sample_of,
    sample_of_session,
)
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
from .expected_counts import ExpectedCounts, concatenate_counts, expect_counts
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

EntityKey = tuple[int, int, str]
"""Begin and end of an entity in the characters of its text without white space, and its label."""


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


class DrawnCounts(NamedTuple):
    """How many entities of a label, or of all labels, the drawn docs have: see `Count`."""

    annotated: Count  # annotated entities
    correct: Count  # predicted entities that are annotated
    predicted: Count  # predicted entities


class Expected(NamedTuple):
    """What the model expects of all texts, and of the annotated docs among them.

    docs (int): The number of texts.
    digest (str): The digest of the texts: see `add_text`.
    totals (ExpectedCounts): The sums over all texts. Shapes: (1, labels), (1,)
    annotated_counts (ExpectedCounts): The numbers of each annotated doc, in the order of these
        docs. Shapes: (docs, labels), (docs,)
    predicted (list[set[EntityKey]]): The predicted entities of each annotated doc.
    occurrences (list[int]): How often the text of each annotated doc is among the texts.
    """

    docs: int
    digest: str
    totals: ExpectedCounts
    annotated_counts: ExpectedCounts
    predicted: list[set[EntityKey]]
    occurrences: list[int]


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


def expect_texts(
    nlp: Language, name: str, texts: Iterable[Doc], annotated: Sequence[Doc]
) -> Expected:
    """Predict all texts, sum what the model expects of them, and note what it expects of the
    annotated docs. These are found among the texts by their text: the model expects the same of
    docs with the same text.

    nlp (Language): The pipeline.
    name (str): The name of the component.
    texts (Iterable[Doc]): All texts.
    annotated (Sequence[Doc]): The annotated docs.
    RAISES (ValueError): If no text has words.
    """
    # The indices of the annotated docs by their text
    annotated_by_text: dict[str, list[int]] = {}
    for i, doc in enumerate(annotated):
        annotated_by_text.setdefault(text_without_space(doc), []).append(i)
    # What is expected of each annotated doc, by its index
    counts_of_annotated: dict[int, ExpectedCounts] = {}
    predicted: list[set[EntityKey]] = [set() for _ in annotated]
    occurrences = [0] * len(annotated)

    labels = get_component(nlp, name).labels
    totals: ExpectedCounts | None = None
    n_docs = 0
    digest_of_texts = ""
    for batch, counts in expect_counts(nlp, name, texts):
        n_docs += len(batch)
        batch_totals = counts.total()
        if totals is None:
            totals = batch_totals
        else:
            totals = concatenate_counts([totals, batch_totals]).total()
        for i_in_batch, doc in enumerate(batch):
            digest_of_texts = add_text(digest_of_texts, doc)
            for i in annotated_by_text.get(text_without_space(doc), ()):
                counts_of_annotated[i] = counts.of_doc(i_in_batch)
                predicted[i] = entity_keys(doc, labels)
                occurrences[i] += 1
    if totals is None:
        raise ValueError("expected texts with words, got none")

    # An annotated doc that isn't among the texts has zeros here: `check_are_texts` refuses it.
    zeros = ExpectedCounts(*(numpy.zeros_like(column) for column in totals))
    annotated_counts = [counts_of_annotated.get(i, zeros) for i in range(len(annotated))]
    return Expected(
        docs=n_docs,
        digest=digest_of_texts,
        totals=totals,
        annotated_counts=concatenate_counts(annotated_counts),
        predicted=predicted,
        occurrences=occurrences,
    )


def entity_keys(doc: Doc, labels: Collection[str] | None = None) -> set[EntityKey]:
    """Make a key of each entity of a doc: where it begins and ends, and its label. Places are
    counted in characters that are not white space, so the keys of two docs with the same words can
    be compared even if their tokens or white space differ.

    doc (Doc): The doc.
    labels (Collection[str] | None): Only entities with these labels have a key. None: all.
    RETURNS (set[EntityKey]): The keys. In "in  New York", the entity "New York" with the label
        "LOC" has the key (2, 9, "LOC").
    """
    # For each character the number of characters before it that are not white space, and at the end
    # the number of all of them. For "a b" it is 0 1 1 2.
    is_visible = [not character.isspace() for character in doc.text]
    n_visible_before = [0, *accumulate(is_visible)]
    keys: set[EntityKey] = set()
    for ent in doc.ents:
        if labels is None or ent.label_ in labels:
            begin = n_visible_before[ent.start_char]
            end = n_visible_before[ent.end_char]
            keys.add((begin, end, ent.label_))
    return keys


def count_table(keys_of_docs: Iterable[set[EntityKey]], labels: Sequence[str]) -> Floats2d:
    """Count the entities of each doc that have each label. Shape: (docs, labels)"""
    rows: list[list[int]] = []
    for keys in keys_of_docs:
        n_with_label = Counter(label for _, _, label in keys)
        rows.append([n_with_label[label] for label in labels])
    return numpy.asarray(rows, dtype="float64").reshape(-1, len(labels))


def count_drawn(
    labels: Sequence[str], annotated: Sequence[Doc], expected: Expected, times: Ints1d
) -> dict[str, DrawnCounts]:
    """Count the entities of drawn docs that have each label.

    labels (Sequence[str]): The labels of the model. Docs may also have entities with other labels:
        the model expects none of these.
    annotated (Sequence[Doc]): The drawn docs, each once.
    expected (Expected): What the model expects.
    times (Ints1d): How often each doc was drawn. Shape: (docs,)
    RETURNS (dict[str, DrawnCounts]): The counts by label, with a number for each drawing.
    """
    annotated_keys = [entity_keys(doc) for doc in annotated]
    correct_keys: list[set[EntityKey]] = []
    unknown_labels: set[str] = set()
    for predicted, gold in zip(expected.predicted, annotated_keys):
        correct_keys.append(predicted & gold)
        unknown_labels.update(label for _, _, label in gold if label not in labels)
    all_labels = [*labels, *sorted(unknown_labels)]
    # Arrays of the model get columns of zeros for the unknown labels.
    no_rows = (0, 0)
    unknown_columns = (0, len(unknown_labels))
    padding = [no_rows, unknown_columns]

    def make_counts(
        true_numbers: Floats2d, expected_numbers: Floats2d, totals: Floats2d
    ) -> list[Count]:
        """Make the count of each label.

        true_numbers (Floats2d): The number in each annotated doc. Shape: (docs, all labels)
        expected_numbers (Floats2d): The number that is expected there. Shape: (docs, labels)
        totals (Floats2d): The number that is expected in all texts. Shape: (1, labels)
        """
        # A row for each drawing. Shapes: (drawings, all labels)
        true_rows = numpy.repeat(true_numbers, times, axis=0)
        expected_rows = numpy.repeat(numpy.pad(expected_numbers, padding), times, axis=0)
        all_totals = numpy.pad(totals, padding)[0]
        counts: list[Count] = []
        for annotated_of_label, expected_of_label, total in zip(
            true_rows.T, expected_rows.T, all_totals
        ):
            counts.append(Count(annotated_of_label, expected_of_label, total))
        return counts

    # The model expects a number for each of three counts: of annotated entities, of correct
    # predictions, and of all predictions. `annotated_counts` has them for the annotated docs.
    annotated_counts = expected.annotated_counts
    totals = expected.totals
    gold_numbers = count_table(annotated_keys, all_labels)
    correct_numbers = count_table(correct_keys, all_labels)
    # How many entities are predicted is known of all texts: the number that is expected of a doc is
    # the true one.
    predicted_numbers = numpy.pad(annotated_counts.predicted, padding)
    counts_of_labels = zip(
        make_counts(gold_numbers, annotated_counts.annotated, totals.annotated),
        make_counts(correct_numbers, annotated_counts.correct, totals.correct),
        make_counts(predicted_numbers, annotated_counts.predicted, totals.predicted),
    )
    return {label: DrawnCounts(*counts) for label, counts in zip(all_labels, counts_of_labels)}


def sum_labels(counts: Iterable[DrawnCounts]) -> DrawnCounts:
    """Add up the counts of all labels.

    counts (Iterable[DrawnCounts]): The counts of each label.
    """
    # Each of the three is a tuple with the `Count` of each label.
    annotated, correct, predicted = zip(*counts)
    return DrawnCounts(
        annotated=reduce(add, annotated),
        correct=reduce(add, correct),
        predicted=reduce(add, predicted),
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
