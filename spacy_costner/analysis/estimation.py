"""Estimate how many entities texts have, and how good a pipeline is on them, with intervals.

Some of the texts are drawn at random and annotated: see `drawing`. The model says what it expects
of all texts, and the drawn docs correct it: see `estimators` for the formulas. A measure is an
estimate of a count or of a score.
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

from ..metrics import ratio
from ..pipeline.component import CostSensitiveNER
from ..readers.files import shown
from .drawing import (
    Drawing,
    add_text,
    check_annotated,
    check_not_suggested,
    check_pipeline,
    get_trained,
    is_same_number,
    read_drawings,
    sample_of,
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
from .fitness import check_new_to, find_unknown_labels
from .predictions import get_component
from .suggestions import text_without_space

MIN_DRAWINGS = 30
"""Fewer drawings are refused: `benchmarks/estimate.py` simulates how often intervals have the
truth."""

MIN_ENTITIES = 20
"""The number of annotated entities of a label in the drawn docs from which on they are counted."""

MIN_OF_EACH = 10
"""The number of correct and of wrong or missed entities from which on their share is estimated."""

ALL = "all"
"""The name of all labels together."""

EntityKey = tuple[int, int, str]
"""Begin and end of an entity in the characters of its text without white space, and its label."""


@dataclass(frozen=True)
class Measure:
    """An estimate of a count or a score, beside what is known without drawn docs and without a
    model.

    estimate (Interval | None): The estimate and its interval. None: it is refused.
    model_alone (float): What the model expects.
    annotated_alone (Interval | None): What the annotated docs say without the model.
    refusal (str): Why there is no estimate; empty if there is one.
    """

    estimate: Interval | None
    model_alone: float
    annotated_alone: Interval | None
    refusal: str = ""


@dataclass(frozen=True)
class LabelEstimate:
    """What is estimated of the entities of a label, or of all.

    label (str): The label, or `ALL`.
    drawn (int): The annotated entities in the drawn docs, each doc as often as it was drawn.
    entities (Measure): The number of annotated entities that all texts would have.
    precision, recall, f (Measure): The scores that the pipeline would have on all texts.
    most_docs (int | None): If no drawn doc has the label: how many docs may have it at most, with
        the confidence. None: some have it.
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
    annotated (int): The number of annotated docs, without those that were drawn again.
    confidence (float): The probability that an interval has the truth.
    labels (list[LabelEstimate]): All labels together first.
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
        """Returns the estimates as JSON."""
        return asdict(self)


class DrawnCounts(NamedTuple):
    """The counts of a label, or of all, in the drawn docs: see `Count`."""

    annotated: Count
    correct: Count
    predicted: Count


class Expected(NamedTuple):
    """What the model expects of all texts, and of the annotated docs among them.

    docs (int): The number of texts.
    texts (str): Their digest.
    totals (ExpectedCounts): The sums over all texts. Shapes: (1, labels), (1,)
    of_annotated (ExpectedCounts): Those of the annotated docs. Shapes: (docs, labels), (docs,)
    predicted (list[set[EntityKey]]): The predicted entities of the annotated docs.
    occurrences (list[int]): How often the text of each annotated doc is among the texts.
    """

    docs: int
    texts: str
    totals: ExpectedCounts
    of_annotated: ExpectedCounts
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
) -> Estimate:
    """Estimate the number of entities in texts, and the precision, recall and F of a pipeline on
    them. Intervals are valid whatever the model is worth, also on text that is unlike its training
    docs.

    nlp (Language): The pipeline that the docs were drawn for.
    drawn (Iterable[Doc]): The annotated docs: all that `draw` gave, of one or several seeds.
    texts (Iterable[Doc]): All docs that they were drawn from, in the same order.
    confidence (float): The probability that an interval has the truth.
    simple_random (bool): The annotated docs are a simple random sample of your own, without
        replacement, in place of docs that --draw drew.
    name (str): Name of the component.
    RETURNS (Estimate): The estimates, for all labels together and for each.
    RAISES (ValueError): If there are too few drawn docs, they weren't drawn at random from these
        texts for this pipeline, or they aren't all annotated.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: expected a number between 0 and 1, got {confidence}")
    ner = get_trained(nlp, name)
    annotated = [doc for doc in drawn if len(doc)]
    check_annotated(annotated)
    if simple_random:
        check_simple_random(ner, annotated)
        times = numpy.ones(len(annotated), dtype="int64")
    else:
        drawings = read_drawings(annotated)
        check_pipeline(ner, annotated, drawings[0])
        times = numpy.asarray([drawing.times for drawing in drawings])
    if times.sum() < MIN_DRAWINGS:
        raise ValueError(
            f"expected at least {MIN_DRAWINGS} drawn docs, got {times.sum()}: intervals of fewer "
            "have the truth too seldom"
        )
    notes = find_unknown_labels(
        nlp, ner, [Example(doc, doc) for doc in annotated], "the drawn docs"
    )

    expected = expect_texts(nlp, name, texts, annotated)
    if simple_random:
        check_found(annotated, expected)
        n_drawn = len(annotated)
        probs = numpy.full(n_drawn, 1 / expected.docs)
        sample = Sample(probs, expected.docs, with_replacement=False)
    else:
        check_texts(drawings[0], expected)
        sample = sample_of(drawings)
    counts = count_drawn(ner.labels, annotated, expected, times)
    lengths = numpy.repeat(expected.of_annotated.n_tokens, times)
    n_tokens = Count(lengths, lengths, float(expected.totals.n_tokens.sum()))
    of_all = sum_labels(counts.values())
    estimates = [estimate_label(ALL, of_all, n_tokens, sample, confidence)]
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


def check_simple_random(ner: CostSensitiveNER, annotated: Sequence[Doc]) -> None:
    """Check that docs that people drew themselves may be a simple random sample.

    RAISES (ValueError): If `suggest` or `draw` chose one of them, or they are training docs.
    """
    for doc in annotated:
        check_not_suggested(doc)
        if Drawing.is_in(doc.user_data):
            raise ValueError(
                "expected simple random docs of your own, got docs that `estimate --draw` drew, "
                "with other probabilities: leave out --simple-random"
            )
    # Vectors may be learned from all texts: what counts is that drawn docs are as all others.
    check_new_to(ner, annotated, "the drawn docs", with_raw_text=False)


def check_texts(drawing: Drawing, expected: Expected) -> None:
    """Check that docs were drawn from these texts.

    RAISES (ValueError): If they were drawn from others, or for a pipeline that expects another
        number of entities in them.
    """
    if drawing.texts != expected.texts:
        raise ValueError(
            f"expected the {drawing.docs:,} texts that the docs were drawn from, with the digest "
            f"{drawing.texts}, got {expected.docs:,} texts with {expected.texts}"
        )
    n_expected = float(expected.totals.annotated.sum())
    if not is_same_number(drawing.expected, n_expected):
        raise ValueError(
            "expected the pipeline that the docs were drawn for, which expects "
            f"{drawing.expected:,.1f} entities in the texts, got one that expects "
            f"{n_expected:,.1f}: estimate with that one, or draw again"
        )


def check_found(annotated: Sequence[Doc], expected: Expected) -> None:
    """Check that annotated docs are among the texts.

    RAISES (ValueError): If one isn't, or is annotated more often than it is among the texts.
    """
    n_annotated = Counter(text_without_space(doc) for doc in annotated)
    for doc, n_in_texts in zip(annotated, expected.occurrences):
        if n_in_texts == 0:
            raise ValueError(f"expected docs that are among the texts, got {shown(doc.text)}")
        if n_annotated[text_without_space(doc)] > n_in_texts:
            raise ValueError(
                "expected each doc once, as it was drawn without replacement, got "
                f"{shown(doc.text)} again"
            )


def expect_texts(
    nlp: Language, name: str, texts: Iterable[Doc], annotated: Sequence[Doc]
) -> Expected:
    """Sum what the model expects of texts, and find the annotated docs among the texts.

    They are found by their text, as the model expects the same of docs with the same text.

    nlp (Language): The pipeline.
    name (str): The name of the component.
    texts (Iterable[Doc]): All texts.
    annotated (Sequence[Doc]): The annotated docs.
    RAISES (ValueError): If no text has words.
    """
    # The indices of the annotated docs with each text
    annotated_with_text: dict[str, list[int]] = {}
    for i, doc in enumerate(annotated):
        annotated_with_text.setdefault(text_without_space(doc), []).append(i)
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
        sums = counts.total()
        totals = sums if totals is None else concatenate_counts([totals, sums]).total()
        for i, doc in enumerate(batch):
            digest_of_texts = add_text(digest_of_texts, doc)
            for j in annotated_with_text.get(text_without_space(doc), ()):
                counts_of_annotated[j] = counts.of_doc(i)
                predicted[j] = entity_keys(doc, labels)
                occurrences[j] += 1
    if totals is None:
        raise ValueError("expected texts with words, got none")

    # An annotated doc that isn't among the texts has zeros. It is an error later: `check_found`.
    zeros = ExpectedCounts(*(numpy.zeros_like(column) for column in totals))
    in_order = [counts_of_annotated.get(j, zeros) for j in range(len(annotated))]
    of_annotated = concatenate_counts(in_order)
    return Expected(n_docs, digest_of_texts, totals, of_annotated, predicted, occurrences)


def entity_keys(doc: Doc, labels: Collection[str] | None = None) -> set[EntityKey]:
    """The entities of a doc, by characters that don't depend on its tokens and white space.

    doc (Doc): The doc.
    labels (Collection[str] | None): Only entities of these labels. None: all.
    """
    # The number of characters before each character that are no white space. Shape: (C + 1,)
    n_before = [0, *accumulate(not character.isspace() for character in doc.text)]
    keys: set[EntityKey] = set()
    for ent in doc.ents:
        if labels is None or ent.label_ in labels:
            keys.add((n_before[ent.start_char], n_before[ent.end_char], ent.label_))
    return keys


def count_table(keys_of_docs: Iterable[set[EntityKey]], labels: Sequence[str]) -> Floats2d:
    """The number of entities with each label in each doc. Shape: (docs, labels)"""
    rows: list[list[int]] = []
    for keys in keys_of_docs:
        n_with_label = Counter(label for _, _, label in keys)
        rows.append([n_with_label[label] for label in labels])
    return numpy.asarray(rows, dtype="float64").reshape(-1, len(labels))


def count_drawn(
    labels: Sequence[str], annotated: Sequence[Doc], expected: Expected, times: Ints1d
) -> dict[str, DrawnCounts]:
    """Count the entities of drawn docs with each label.

    labels (Sequence[str]): The labels of the model. Docs may be annotated with others, too, of
        which it expects nothing.
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
    padding = [(0, 0), (0, len(unknown_labels))]  # adds columns for the unknown labels

    def make_counts(table: Floats2d, of_annotated: Floats2d, totals: Floats2d) -> list[Count]:
        """Make the count of each label.

        table (Floats2d): The count in each annotated doc. Shape: (docs, all labels)
        of_annotated (Floats2d): What is expected of it. Shape: (docs, labels)
        totals (Floats2d): What is expected of all texts. Shape: (1, labels)
        """
        # A row for each drawing. Shapes: (drawings, all labels)
        drawn_table = numpy.repeat(table, times, axis=0)
        expected_table = numpy.repeat(numpy.pad(of_annotated, padding), times, axis=0)
        total_row = numpy.pad(totals, padding)[0]
        return [Count(*columns) for columns in zip(drawn_table.T, expected_table.T, total_row)]

    of_annotated = expected.of_annotated
    totals = expected.totals
    gold_table = count_table(annotated_keys, all_labels)
    correct_table = count_table(correct_keys, all_labels)
    # How many entities are predicted is known of all texts: nothing is left to estimate.
    predicted_table = numpy.pad(of_annotated.predicted, padding)
    counts_of_labels = zip(
        make_counts(gold_table, of_annotated.annotated, totals.annotated),
        make_counts(correct_table, of_annotated.correct, totals.correct),
        make_counts(predicted_table, of_annotated.predicted, totals.predicted),
    )
    return {label: DrawnCounts(*counts) for label, counts in zip(all_labels, counts_of_labels)}


def sum_labels(counts: Iterable[DrawnCounts]) -> DrawnCounts:
    """The counts of all labels together."""
    columns = [reduce(add, counts_of_labels) for counts_of_labels in zip(*counts)]
    return DrawnCounts(*columns)


def estimate_label(
    label: str, counts: DrawnCounts, n_tokens: Count, sample: Sample, confidence: float
) -> LabelEstimate:
    """Estimate the count and the scores of a label, or of all.

    label (str): The label, or `ALL`.
    counts (DrawnCounts): Its counts.
    n_tokens (Count): The number of tokens, which is known of all texts: the annotated docs alone
        say how many entities a token has.
    sample (Sample): The drawn docs.
    confidence (float): The probability that an interval has the truth.
    RETURNS (LabelEstimate): The estimates.
    """
    annotated, correct, predicted = counts
    n_annotated = int(annotated.annotated.sum())
    n_correct = int(correct.annotated.sum())
    n_false_alarms = int(predicted.annotated.sum()) - n_correct
    n_missed = n_annotated - n_correct

    # The count. Without the model: entities per token, times all tokens.
    entities_per_token = estimate_ratio(
        annotated.without_model(), n_tokens.without_model(), sample, confidence=confidence
    )
    total_alone = Interval(*(bound * n_tokens.expected_total for bound in entities_per_token))
    refusal = ""
    most_docs = None
    if n_annotated == 0:
        most_docs = most_docs_with_any(sample, confidence=confidence)
        refusal = f"no drawn doc has one: at most {most_docs:,} docs do"
    elif n_annotated < MIN_ENTITIES:
        refusal = f"{n_annotated} in the drawn docs, fewer than {MIN_ENTITIES}"
    if refusal:
        entities = Measure(None, annotated.expected_total, None, refusal)
    else:
        total = estimate_total(annotated, sample, confidence=confidence)
        entities = Measure(as_floats(total), annotated.expected_total, as_floats(total_alone))

    def measure(numerator: Count, denominator: Count, n_wrong: int, wrong: str) -> Measure:
        """Estimate a score, unless there are too few correct or wrong entities in the drawn docs.

        numerator, denominator (Count): The score is their ratio.
        n_wrong (int): The number of wrong entities in the drawn docs.
        wrong (str): What they are called in the refusal.
        """
        model_alone = float(ratio(numerator.expected_total, denominator.expected_total))
        if min(n_correct, n_wrong) < MIN_OF_EACH:
            refusal = (
                f"{n_correct} correct and {n_wrong} {wrong} in the drawn docs, fewer than "
                f"{MIN_OF_EACH} of each"
            )
            return Measure(None, model_alone, None, refusal)
        score = estimate_share(numerator, denominator, sample, confidence=confidence)
        score_alone = estimate_share(
            numerator.without_model(), denominator.without_model(), sample, confidence=confidence
        )
        return Measure(as_share(score), model_alone, as_share(score_alone))

    return LabelEstimate(
        label=label,
        drawn=n_annotated,
        entities=entities,
        precision=measure(correct, predicted, n_false_alarms, "false alarms"),
        recall=measure(correct, annotated, n_missed, "missed"),
        # F = 2 correct / (predicted + annotated)
        f=measure(
            correct + correct, predicted + annotated, n_false_alarms + n_missed, "wrong or missed"
        ),
        most_docs=most_docs,
    )


def as_floats(interval: Interval) -> Interval:
    """An interval of one sample, in Python's numbers."""
    return Interval(*(float(bound) for bound in interval))


def as_share(interval: Interval) -> Interval:
    """The interval of a share in Python's numbers, cut off at 0 and 1."""
    return Interval(*(min(max(float(bound), 0.0), 1.0) for bound in interval))
