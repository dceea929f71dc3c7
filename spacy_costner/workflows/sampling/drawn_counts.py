"""Count the entities in drawn docs, and compute the expected counts of all texts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import accumulate
from operator import add
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from thinc.types import Floats2d, Ints1d

from ..components import get_component
from .drawing import add_text
from .estimators import Count
from .expected_counts import ExpectedCounts, concatenate_counts, expect_counts
from .suggestions import text_without_space

EntityKey = tuple[int, int, str]
"""The start and end of an entity, as character offsets into the text of the doc without whitespace,
and the label of the entity."""


class DrawnCounts(NamedTuple):
    """The number of entities of a label, or of all labels, in the drawn docs: see `Count`.

    annotated (Count): Annotated entities.
    correct (Count): Predicted entities that are annotated.
    predicted (Count): Predicted entities.
    """

    annotated: Count
    correct: Count
    predicted: Count


class Expectations(NamedTuple):
    """The expected counts of all texts, and of the annotated docs among them.

    docs (int): The number of texts.
    digest (str): The digest of the texts: see `add_text`.
    totals (ExpectedCounts): The sums over all texts. Shapes: (1, labels), (1,)
    n_expected (float): The expected number of entities with labels of the component in all texts:
        see `Drawing`.
    annotated_counts (ExpectedCounts): The expected counts of each annotated doc.
        Shapes: (docs, labels), (docs,)
    predicted (list[set[EntityKey]]): The predicted entities of each annotated doc.
    occurrences (list[int]): For each annotated doc, the number of texts that it matches: see
        `expect_texts`.
    """

    docs: int
    digest: str
    totals: ExpectedCounts
    n_expected: float
    annotated_counts: ExpectedCounts
    predicted: list[set[EntityKey]]
    occurrences: list[int]


def expect_texts(
    nlp: Language,
    name: str,
    texts: Iterable[Doc],
    annotated: Sequence[Doc],
    text_indices: Sequence[int] | None = None,
) -> Expectations:
    """Make predictions for all texts, sum their expected counts, and collect the expected counts of
    the annotated docs. An annotated doc matches the text with its index or, if indices are unknown,
    all texts with the same words: annotation tools may change whitespace. If a doc matches several
    texts, its expected counts are those of an equal text, or of the first one if none is equal.

    nlp (Language): The pipeline.
    name (str): The name of the component.
    texts (Iterable[Doc]): All texts, without annotation.
    annotated (Sequence[Doc]): The annotated docs.
    text_indices (Sequence[int] | None): The index of each annotated doc among the nonempty texts,
        or None if it is unknown.
    RETURNS (Expectations): The expected counts.
    RAISES (ValueError): If all texts are empty.
    """
    # The indices of the annotated docs, keyed by their text without whitespace
    annotated_by_text: dict[str, list[int]] = {}
    for i, doc in enumerate(annotated):
        annotated_by_text.setdefault(text_without_space(doc), []).append(i)
    # The expected counts of each annotated doc, keyed by its index
    counts_of_annotated: dict[int, ExpectedCounts] = {}
    predicted: list[set[EntityKey]] = [set() for _ in annotated]
    occurrences = [0] * len(annotated)

    totals: ExpectedCounts | None = None
    n_docs = 0
    digest_of_texts = ""
    for batch, counts in expect_counts(nlp, name, texts):
        batch_totals = counts.total()
        if totals is None:
            totals = batch_totals
        else:
            totals = concatenate_counts([totals, batch_totals]).total()
        for i_in_batch, doc in enumerate(batch):
            digest_of_texts = add_text(digest_of_texts, doc)
            for i in annotated_by_text.get(text_without_space(doc), ()):
                if text_indices is not None and text_indices[i] != n_docs + i_in_batch:
                    continue
                occurrences[i] += 1
                # Whitespace can change the predictions, for example if it contains a line break.
                if i not in counts_of_annotated or doc.text == annotated[i].text:
                    counts_of_annotated[i] = counts.of_doc(i_in_batch)
                    predicted[i] = entity_keys(doc)
        n_docs += len(batch)
    if totals is None:
        raise ValueError("expected texts with words, got none")

    # Use zeros for annotated docs that aren't among the texts. They are rejected by
    # `check_are_texts`.
    zeros = totals.zeros()
    annotated_counts = [counts_of_annotated.get(i, zeros) for i in range(len(annotated))]
    return Expectations(
        docs=n_docs,
        digest=digest_of_texts,
        totals=totals,
        n_expected=totals.sum_annotated(get_component(nlp, name).labels),
        annotated_counts=concatenate_counts(annotated_counts),
        predicted=predicted,
        occurrences=occurrences,
    )


def entity_keys(doc: Doc) -> set[EntityKey]:
    """Return a key for each entity in a doc: its start, end and label. Offsets ignore whitespace,
    so the keys of two docs with the same words can be compared even if their tokenization or
    whitespace differs.

    doc (Doc): The doc.
    RETURNS (set[EntityKey]): The keys. In "in  New York", the key of the "LOC" entity "New York" is
        (2, 9, "LOC").
    """
    # The number of non-whitespace characters before each character, followed by their total number.
    # For "a b" it is 0 1 1 2.
    is_visible = [not character.isspace() for character in doc.text]
    n_visible_before = [0, *accumulate(is_visible)]
    keys: set[EntityKey] = set()
    for ent in doc.ents:
        begin = n_visible_before[ent.start_char]
        end = n_visible_before[ent.end_char]
        keys.add((begin, end, ent.label_))
    return keys


def count_table(keys_of_docs: Iterable[set[EntityKey]], labels: Sequence[str]) -> Floats2d:
    """Count the entities of each doc by label. Shape: (docs, labels)"""
    rows: list[list[int]] = []
    for keys in keys_of_docs:
        n_with_label = Counter(label for _, _, label in keys)
        rows.append([n_with_label[label] for label in labels])
    return numpy.asarray(rows, dtype="float64").reshape(-1, len(labels))


def count_drawn(
    labels: Sequence[str], annotated: Sequence[Doc], expected: Expectations, times: Ints1d
) -> dict[str, DrawnCounts]:
    """Count the entities in drawn docs by label.

    labels (Sequence[str]): The labels of the component. Other labels of annotated or predicted
        entities are counted, too.
    annotated (Sequence[Doc]): The distinct drawn docs with their annotation.
    expected (Expectations): The expected counts.
    times (Ints1d): The number of times each doc was drawn. Shape: (docs,)
    RETURNS (dict[str, DrawnCounts]): The counts by label, with one value per draw.
    """
    annotated_keys = [entity_keys(doc) for doc in annotated]
    correct_keys: list[set[EntityKey]] = []
    # The labels of other components and inner nodes are among the labels of the totals.
    other_labels = set(expected.totals.labels)
    for predicted, gold in zip(expected.predicted, annotated_keys):
        correct_keys.append(predicted & gold)
        other_labels.update(label for _, _, label in gold)
    all_labels = [*labels, *sorted(other_labels.difference(labels))]

    def make_counts(
        true_numbers: Floats2d, expected_numbers: Floats2d, totals: Floats2d
    ) -> list[Count]:
        """Create the label counts from the true and expected counts in the annotated docs,
        and the expected totals over all texts. Shapes: (docs, labels), (docs, labels),
        (1, labels)"""
        # One row per draw. Shapes: (drawings, labels)
        true_rows = numpy.repeat(true_numbers, times, axis=0)
        expected_rows = numpy.repeat(expected_numbers, times, axis=0)
        counts: list[Count] = []
        for annotated_of_label, expected_of_label, total in zip(
            true_rows.T, expected_rows.T, totals[0]
        ):
            counts.append(Count(annotated_of_label, expected_of_label, total))
        return counts

    # Three counts: annotated entities, correct predictions, and all predictions
    annotated_counts = expected.annotated_counts.with_labels(all_labels)
    totals = expected.totals.with_labels(all_labels)
    gold_numbers = count_table(annotated_keys, all_labels)
    correct_numbers = count_table(correct_keys, all_labels)
    # The number of predictions is known for all texts, so the expected number is the true number.
    predicted_numbers = annotated_counts.predicted
    counts_of_labels = zip(
        make_counts(gold_numbers, annotated_counts.annotated, totals.annotated),
        make_counts(correct_numbers, annotated_counts.correct, totals.correct),
        make_counts(predicted_numbers, annotated_counts.predicted, totals.predicted),
    )
    return {label: DrawnCounts(*counts) for label, counts in zip(all_labels, counts_of_labels)}


def sum_labels(counts: Iterable[DrawnCounts]) -> DrawnCounts:
    """Sum the counts of all labels.

    counts (Iterable[DrawnCounts]): The counts of each label.
    RETURNS (DrawnCounts): The sums.
    """
    # Three tuples, each containing the `Count` of each label
    annotated, correct, predicted = zip(*counts)
    return DrawnCounts(
        annotated=reduce(add, annotated),
        correct=reduce(add, correct),
        predicted=reduce(add, predicted),
    )
