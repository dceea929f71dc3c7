"""The settings for reading annotation from docs, during training and prediction.

Entities are stored in `doc.ents` or, if the component has a `spans_key`, in `doc.spans` under this
key. A *preset* entity is an entity that is set on a doc before the component runs.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from spacy.tokens import Doc, Span
from spacy.training import Example
from thinc.types import Array1d, Ints1d

from . import borders
from .borders import Boundaries
from .iob import INSIDE
from .sentence_starts import WITHOUT_SENTENCES, sentence_starts
from .spans import Labels, is_missing, keep_longest, spans_as_entities
from .tokens import TokenAttrs, read_presets


@dataclass(frozen=True)
class Annotation:
    """Settings that define where the annotation of a component is stored in docs, and where docs
    are split into sequences.

    component (str): The name of the component, for messages.
    spans_key (str | None): The key of the entities in `doc.spans`. If None, `doc.ents` is used.
    own_labels (Labels): The labels of the spans to write. If None, spans with any label are
        written. Requires a `spans_key`.
    filter_spans (bool): Whether to keep only the longest of overlapping spans in training docs. In
        evaluation, all of them count. Otherwise, overlapping spans raise an error. Only applies to
        spans with a label in `own_labels`. Requires a `spans_key`.
    incorrect_spans_key (str | None): The key in `doc.spans` for spans that are known not to be
        entities.
    sentence_boundaries (Boundaries): Where a sequence of the chain starts: see `borders`.
    RAISES (ValueError): If `own_labels` is an empty list, or `own_labels` or `filter_spans` is set
        without a `spans_key`.
    """

    component: str = "ner"
    spans_key: str | None = None
    own_labels: Labels = None
    filter_spans: bool = False
    incorrect_spans_key: str | None = None
    sentence_boundaries: Boundaries = False

    def __post_init__(self) -> None:
        """Check that the settings are consistent. Raise a ValueError otherwise."""
        needs_key = self.own_labels is not None or self.filter_spans
        if needs_key and self.spans_key is None:
            raise ValueError(
                f"{self.component}: own_labels, filter_spans: expected spans_key to be set, too"
            )
        if self.own_labels is not None and not self.own_labels:
            raise ValueError(
                f"{self.component}: own_labels: expected null or some labels, got an empty list"
            )

    def is_annotated(self, doc: Doc) -> bool:
        """Check whether any token of a doc is annotated as an entity or as outside of entities: in
        `doc.ents` or, with a `spans_key`, in `doc.spans`."""
        if self.spans_key is None:
            return bool(doc.has_annotation("ENT_IOB"))
        # Tokens of spans are annotated, even if they are also marked as missing annotation.
        has_spans = bool(doc.spans.get(self.spans_key, ()))
        return has_spans or not is_missing(doc, self.spans_key).all()

    def has_other_labels(self, doc: Doc, labels: Collection[str]) -> bool:
        """Check whether an annotated doc has entities or, with a `spans_key`, spans with labels
        other than the given ones."""
        spans = doc.ents if self.spans_key is None else doc.spans.get(self.spans_key, ())
        return any(span.label_ not in labels for span in spans)

    def as_entities(self, eg: Example, labels: Labels = None) -> Example:
        """Create an example with the component's annotation in the `doc.ents` of the reference. The
        example is returned unchanged if the component has no `spans_key`.

        eg (Example): The example, with an annotated reference.
        labels (Labels): The labels of the spans to convert to entities. If None, all spans are
            converted.
        RETURNS (Example): The example with the same predicted doc and the new reference.
        RAISES (ValueError): If spans with a label in `own_labels` overlap and `filter_spans` is not
            set.
        """
        if self.spans_key is None:
            return eg
        try:
            reference = spans_as_entities(
                eg.reference,
                self.spans_key,
                labels,
                own_labels=self.own_labels,
                longest=self.filter_spans,
            )
        except ValueError as error:
            raise ValueError(f"{self.component}: {error}") from None
        return Example(eg.predicted, reference)

    def dropped_spans(self, doc: Doc, labels: Labels = None) -> list[Span]:
        """Return the annotated spans that `as_entities` drops because they overlap with longer
        spans. A model isn't trained on them, but they are annotated entities, so they count in
        evaluation.

        doc (Doc): The annotated doc, before or after `as_entities`.
        labels (Labels): The labels passed to `as_entities`.
        RETURNS (list[Span]): The spans. Empty if `filter_spans` is not set.
        """
        if self.spans_key is None or not self.filter_spans:
            return []
        labels_without_overlap = labels if self.own_labels is None else self.own_labels
        _, dropped_spans = keep_longest(doc, self.spans_key, labels_without_overlap)
        return dropped_spans

    def read_presets(self, docs: Sequence[Doc]) -> TokenAttrs:
        """Read the tokens of docs and their preset annotation before prediction. For a component
        with a `spans_key`, there is no preset annotation, because `doc.ents` belongs to another
        component."""
        tokens = read_presets(docs)
        if self.spans_key is not None:
            return tokens.without_annotation()
        return tokens

    def cut(self, docs: Sequence[Doc], tokens: TokenAttrs) -> tuple[Ints1d, Ints1d]:
        """Split docs into the sequences of the chain: see `borders.cut`.

        docs (Sequence[Doc]): The docs.
        tokens (TokenAttrs): The tokens of the docs, with their preset annotation.
        RETURNS (tuple[Ints1d, Ints1d]): The number of tokens and the doc index of each sequence.
            Shapes: (B,)
        """
        is_border = borders.borders_of_tokens(
            docs,
            self.sentence_boundaries,
            tokens.begins_sentence,
            tokens.is_space,
            tokens.orth,
        )
        # Preset entities are never split, so their inner tokens can't be borders.
        return borders.cut(tokens.lengths, is_border & (tokens.iob != INSIDE))

    def find_training_borders(self, examples: Sequence[Example]) -> Array1d:
        """Find the borders at which predicted docs are split in every other training epoch: see
        `training.segmentations`.

        If the sentence starts of a predicted doc are unknown, the sentence starts of its reference
        are used. They are not set on the predicted doc, so that features are the same as during
        prediction.

        examples (Sequence[Example]): The examples, as yielded by the corpus.
        RETURNS (Array1d): A mask of the tokens that start a sequence, excluding the first token of
            each doc. Shape: (N,)
        """
        docs = [eg.predicted for eg in examples]
        is_border = borders.find_borders(docs, self.sentence_boundaries)
        if not self.sentence_boundaries:
            return is_border
        # `begin` and `end` are the token indices of a doc in the array of all docs.
        begin = 0
        for eg in examples:
            end = begin + len(eg.predicted)
            # With the setting `sentences = false`, the reader marks docs that must not be split at
            # the sentence starts of their references.
            if WITHOUT_SENTENCES not in eg.predicted.user_data:
                is_border[begin:end] |= sentence_starts(eg)
            begin = end
        return is_border
