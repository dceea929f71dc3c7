"""Write predictions to docs: entities to `doc.ents` or `doc.spans`, and span groups with
probabilities to `doc.spans`.

A *preset* token was annotated before the component ran, and is not modified. A *free* token is not
preset. The start and the end of an entity are token indices in the batch.

In shapes, B is the number of docs, N the number of tokens in all of them, T the number of tokens of
a single doc, and E the number of entities.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy
from spacy.tokens import Doc, Span, SpanGroup
from spacy.vocab import Vocab
from thinc.types import Array1d, Floats1d, Ints1d

from ..annotation.span_groups import replace_spans, scored_attrs
from ..annotation.tokens import TokenAttrs
from ..tags import Entities
from .confidence import SOURCE, SPANS_KEY, Confidence, free_key
from .prediction import Prediction

SpansAndProbs = tuple[list[Span], Floats1d | None]
"""The spans of a doc and their probabilities, if any."""


def annotate_docs(
    docs: Sequence[Doc],
    prediction: Prediction,
    name: str,
    confidence: Confidence | None,
    spans_key: str | None = None,
) -> None:
    """Write predicted entities to docs. With a confidence, also write their probabilities, the
    alternatives and the guaranteed sets.

    docs (Sequence[Doc]): The docs to annotate, which are modified in place.
    prediction (Prediction): The entities, probabilities and other spans to write.
    name (str): The name of the component.
    confidence (Confidence | None): Where to write the probabilities. If None, they are not written.
    spans_key (str | None): The key in `doc.spans` for the entities. If None, they are written to
        `doc.ents`.
    """
    lengths = prediction.tokens.lengths
    label_hashes = add_labels(docs, prediction.labels)
    predicted = spans_by_doc(docs, prediction.entities, label_hashes, lengths, prediction.probs)
    if spans_key is None:
        spans_of_docs = [spans for spans, _ in predicted]
        write_entities(docs, spans_of_docs, prediction.tokens)
    else:
        # Spans with the labels of other components are kept in the group.
        own_labels: list[str] = []
        for i, label in enumerate(prediction.labels):
            if i not in prediction.other_labels:
                own_labels.append(label)
        for doc, (spans, probs) in zip(docs, predicted):
            replace_spans(doc, spans_key, spans, probs, own_labels)
    if confidence is None:
        return

    # The group of predicted entities stores their probabilities and the measures for the shift
    # test.
    keys = [free_key(doc, confidence.spans_key, name) for doc in docs]
    source = {"source": SOURCE, "component": name}
    if spans_key is not None:
        source[SPANS_KEY] = spans_key
    attrs_of_docs = [{**source, **measures} for measures in measures_by_doc(prediction)]
    write_groups(docs, keys, predicted, attrs_of_docs)

    # The keys of alternatives and guaranteed sets end with the name of the set.
    for set_name, span_set in prediction.sets.items():
        spans_of_set = spans_by_doc(docs, span_set.spans, label_hashes, lengths, span_set.probs)
        keys_of_set: list[str | None] = []
        for key, has_set in zip(keys, span_set.has_set):
            keys_of_set.append(f"{key}_{set_name}" if has_set else None)
        set_attrs = {**source, "set": set_name}
        write_groups(docs, keys_of_set, spans_of_set, [set_attrs] * len(docs))


def write_groups(
    docs: Sequence[Doc],
    keys: Sequence[str | None],
    spans_of_docs: Sequence[SpansAndProbs],
    attrs_of_docs: Sequence[dict[str, Any]],
) -> None:
    """Write a span group to each doc, unless its key is None. In addition to the given attributes,
    a group stores the probability, the character offsets and the label of each span (see
    `scored_attrs`). Lengths: B"""
    rows = zip(docs, keys, spans_of_docs, scored_attrs(spans_of_docs), attrs_of_docs)
    for doc, key, (spans, _), span_attrs, attrs in rows:
        if key is not None:
            doc.spans[key] = SpanGroup(doc, name=key, attrs={**span_attrs, **attrs}, spans=spans)


def measures_by_doc(prediction: Prediction) -> list[dict[str, Any]]:
    """Convert the measures for the shift test to span group attributes for each doc, to be read by
    `add_measures`. The attributes are empty if the prediction has no measures."""
    measures = prediction.measures
    if measures is None:
        return [{} for _ in prediction.tokens.lengths]
    attrs: list[dict[str, Any]] = []
    for entropy, counts_of_doc in zip(measures.entropies.tolist(), measures.expected_counts):
        attrs.append({"entropy": entropy, "expected": counts_of_doc})
    return attrs


def add_labels(docs: Iterable[Doc], labels: Sequence[str]) -> list[int]:
    """Add labels to the string stores of docs, because the vocab of the docs may differ from the
    vocab of the component. Returns the hashes of the labels, which are the same in all vocabs."""
    hashes: list[int] = []
    last_vocab: Vocab | None = None
    for doc in docs:
        if doc.vocab is not last_vocab:
            last_vocab = doc.vocab
            hashes = [last_vocab.strings.add(label) for label in labels]
    return hashes


def write_entities(
    docs: Sequence[Doc], spans_of_docs: Sequence[list[Span]], tokens: TokenAttrs
) -> None:
    """Write entities to `doc.ents`. The entities must not include preset tokens, which are not
    modified."""
    if not tokens.has_annotation:
        for doc, spans in zip(docs, spans_of_docs):
            doc.set_ents(spans)
        return
    is_token_free = ~tokens.is_annotated  # False for preset tokens, (N,)
    begin = 0  # the index of the doc's first token in the batch
    for doc, spans in zip(docs, spans_of_docs):
        end = begin + len(doc)
        set_free_tokens(doc, spans, is_token_free[begin:end])
        begin = end


def set_free_tokens(doc: Doc, spans: list[Span], is_token_free: Array1d) -> None:
    """Set the entities of a doc, which must consist of free tokens. All other free tokens are
    marked as outside of entities. Preset tokens are not modified. Shape of `is_token_free`: (T,)"""
    if is_token_free.all():
        doc.set_ents(spans)
        return
    is_outside = is_token_free.copy()
    for span in spans:
        is_outside[span.start : span.end] = False
    # `set_ents` expects a span for each token outside of entities.
    outside = [doc[i : i + 1] for i in numpy.flatnonzero(is_outside).tolist()]
    doc.set_ents(spans, outside=outside, default="unmodified")


def spans_by_doc(
    docs: Iterable[Doc],
    entities: Entities,
    labels: Sequence[Any],
    lengths: Ints1d,
    probs: Floats1d | None = None,
) -> list[SpansAndProbs]:
    """Convert the entities of a batch to `Span` objects, grouped by doc.

    docs (Iterable[Doc]): The docs of the batch, which are not modified.
    entities (Entities): The entities of all docs in order, with token indices in the batch.
    labels (Sequence[Any]): The names of the labels, or their hashes, which are faster.
    lengths (Ints1d): The number of tokens of each doc. Shape: (B,)
    probs (Floats1d | None): The probabilities of the entities. Shape: (E,)
    RETURNS (list[SpansAndProbs]): The spans of each doc, with their probabilities if `probs` is
        set.
    """
    entity_tuples = entities.as_tuples()
    doc_ends = lengths.cumsum()
    # For each doc, the number of entities that begin before its end. The entities are in order, so
    # the doc's entities are entities[first_entity:stop], where `first_entity` is the `stop` of the
    # previous doc. Shape: (B,)
    stops = entities.begin.searchsorted(doc_ends).tolist()

    spans_of_docs: list[SpansAndProbs] = []
    doc_start = 0  # the index of the doc's first token in the batch
    first_entity = 0  # the first entity of the doc
    for doc, doc_end, stop in zip(docs, doc_ends.tolist(), stops):
        spans = [
            Span(doc, begin - doc_start, end - doc_start, label=labels[label])
            for begin, end, label in entity_tuples[first_entity:stop]
        ]
        doc_probs = None
        if probs is not None:
            doc_probs = probs[first_entity:stop]
        spans_of_docs.append((spans, doc_probs))
        doc_start = doc_end
        first_entity = stop
    return spans_of_docs
