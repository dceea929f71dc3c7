"""Count the entities of drawn docs, and what the model expects of all texts."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
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
"""Begin and end of an entity in the characters of its text without white space, and its label."""


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
