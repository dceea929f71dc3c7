"""Measure how uncertain a model is about each doc. The shift test uses this to compare new docs
with calibration docs: see `metrics.shift`.

In shapes, B is the number of docs, and N the number of tokens in all of them.
"""

from collections.abc import Sequence
from math import isnan
from typing import NamedTuple

import numpy
from spacy.tokens import Doc
from thinc.types import Floats1d, Floats2d

from ..annotation.span_groups import read_group
from ..annotation.tokens import TokenAttrs, first_words
from ..decoding import Posterior
from ..metrics.shift import EntityCounts
from .confidence import group_of_component


class ShiftMeasures(NamedTuple):
    """The measures of a batch of docs for the shift test: see `measure_docs`.

    entropies (Floats1d): The entropy of the tag path of each doc, divided by 1 + the expected
        number of entities. NaN for docs with only preset tokens. Shape: (B,)
    expected_counts (Floats2d): The expected number of entities for each label that the component
        assigns. Shape: (B, labels)
    """

    entropies: Floats1d
    expected_counts: Floats2d


def measure_docs(
    posterior: Posterior, tokens: TokenAttrs, other_labels: Sequence[int] = ()
) -> ShiftMeasures:
    """Measure how uncertain the model is about each doc, for the shift test.

    The measure is the entropy H of the doc's tag path, divided by 1 + the expected number n of
    entities:

        H / (1 + n),  H = log Z - E[s(y)],  n = sum_t p(y_t opens an entity)

    Here, y is a path with the tag y_t at token t, s(y) is its score, and Z is the sum of exp(s(y))
    over all paths.

    H is not divided by the number of tokens, because the entropy per token may even be lower in
    unfamiliar text, where models find few entities. Preset tokens are ignored. The measure is NaN
    for docs with only preset tokens.

    posterior (Posterior): The probabilities of tags and entities.
    tokens (TokenAttrs): The tokens with their preset annotation.
    other_labels (Sequence[int]): The labels that the component doesn't write, as indices.
    RETURNS (ShiftMeasures): The measures and the expected numbers of entities.
    """
    tags = posterior.tags
    # The entropy of each sequence of the chain. The tags of preset tokens are fixed, so these
    # tokens don't contribute to it. For confident models, rounding may result in a negative
    # entropy. `Posterior.entropy` has no rounding errors, but is twenty times slower.
    log_partition, _ = posterior.forward_backward.log_partition()
    expected_score, _ = posterior.forward_backward.expectation(posterior.potentials)
    entropies = numpy.maximum(log_partition - expected_score, 0.0)
    # The entropy of a doc is the sum over its sequences. Shape: (B,)
    doc_entropies = numpy.bincount(
        posterior.doc_of_sequence, entropies, minlength=len(tokens.lengths)
    )

    # For each token and label, the probability that the token opens an entity with the label.
    # Shape: (N, labels)
    opening_probs = posterior.chain_marginals @ tags.opens_label
    n_free_tokens = tokens.lengths  # the number of tokens per doc that are not preset, (B,)
    if tokens.has_annotation:
        opening_probs[tokens.is_annotated] = 0
        doc_of_free_token = posterior.doc_of_token[~tokens.is_annotated]
        n_free_tokens = numpy.bincount(doc_of_free_token, minlength=len(tokens.lengths))
    expected_counts = posterior.sum_by_doc(opening_probs)

    entropies_by_entity = doc_entropies / (1 + expected_counts.sum(axis=1))
    entropies_by_entity[n_free_tokens == 0] = numpy.nan
    if other_labels:
        expected_counts = numpy.delete(expected_counts, other_labels, axis=1)
    return ShiftMeasures(entropies_by_entity, expected_counts)


def add_measures(
    doc: Doc, key: str, name: str, labels: Sequence[str], counts: EntityCounts
) -> float | None:
    """Read the measures of a doc (see `measure_docs`) from the span group that a component has
    written. Returns the entropy and adds the expected entity counts to `counts`.

    doc (Doc): A doc that the component has processed.
    key (str): The `spans_key` of the component's confidence.
    name (str): The name of the component.
    labels (Sequence[str]): The labels that the component writes.
    counts (EntityCounts): The expected entity counts by label. The counts of this doc are added in
        place.
    RETURNS (float | None): The entropy of the doc divided by 1 + the expected number of entities.
        None if all tokens of the doc are preset.
    RAISES (ValueError): If the doc doesn't have the group, or the group has no entropy or scores.
    """
    group = group_of_component(doc, key, name)
    if group is None or "entropy" not in group.attrs or group.attrs.get("scores") is None:
        raise ValueError(
            f"expected docs that the pipeline has predicted, got {first_words(doc)} without an "
            f"entropy in doc.spans[{key!r}].attrs and its scores: run nlp.pipe first"
        )

    # The expected number of correct entities is the sum of the probabilities. The probability of an
    # inner node of a label tree covers all labels below it, but no entity is annotated with the
    # node, so it is expected to be wrong.
    for span in read_group(group):
        correct = span.score if span.label in labels else 0.0
        _add_counts(counts, span.label, correct=correct, predicted=1.0)
    # The attribute stores the expected number of annotated entities for each label.
    for label, expected_number in zip(labels, group.attrs["expected"].tolist()):
        _add_counts(counts, label, annotated=expected_number)
    entropy = group.attrs["entropy"]
    if isnan(entropy):
        return None
    return entropy


def _add_counts(
    counts: EntityCounts,
    label: str,
    *,
    correct: float = 0.0,
    predicted: float = 0.0,
    annotated: float = 0.0,
) -> None:
    """Add expected numbers of correct, predicted and annotated entities to the counts of a
    label."""
    n_correct, n_predicted, n_annotated = counts.get(label, (0.0, 0.0, 0.0))
    counts[label] = [n_correct + correct, n_predicted + predicted, n_annotated + annotated]
