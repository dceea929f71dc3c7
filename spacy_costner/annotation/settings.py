"""The settings that say where in docs the annotation of a component is. They are the same in
training and in prediction.

Entities are in `doc.ents` or, if the component has a `spans_key`, in `doc.spans` under this key. A
*preset* entity is one that a doc has before the component runs.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Array1d, Ints1d

from . import borders
from .borders import Boundaries
from .iob import INSIDE
from .sentence_starts import WITHOUT_SENTENCES, sentence_starts
from .spans import Labels, spans_as_entities
from .tokens import TokenAttrs, read_presets


@dataclass(frozen=True)
class Annotation:
    """Where in docs the annotation of a component is, and where docs are cut into sequences.

    component (str): The name of the component, for messages.
    spans_key (str | None): The key of `doc.spans` of its entities. None: they are in `doc.ents`.
    own_labels (Labels): With a `spans_key`: the labels of the spans that it writes. None: all.
    filter_spans (bool): With a `spans_key`: whether only the longest span is kept where spans with
        own labels overlap in training docs. Otherwise overlapping spans are an error.
    incorrect_spans_key (str | None): The key of `doc.spans` for spans that are known not to be
        entities.
    sentence_boundaries (Boundaries): What begins a sequence of the chain: see `borders`.
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
        """Check that the settings are consistent. Errors: see the class."""
        needs_key = self.own_labels is not None or self.filter_spans
        if needs_key and self.spans_key is None:
            raise ValueError(
                f"{self.component}: own_labels, filter_spans: expected spans_key to be set, too"
            )
        if self.own_labels is not None and not self.own_labels:
            raise ValueError(
                f"{self.component}: own_labels: expected null or some labels, got an empty list"
            )

    def has_other_labels(self, doc: Doc, labels: Collection[str]) -> bool:
        """Whether an annotated doc has a span with a label other than these, which may become an
        entity: see `as_entities`."""
        spans = doc.ents if self.spans_key is None else doc.spans.get(self.spans_key, ())
        return any(span.label_ not in labels for span in spans)

    def as_entities(self, eg: Example, labels: Labels = None) -> Example:
        """Make an example whose reference has the annotation of the component in `doc.ents`. If the
        component has no `spans_key`, it is there already, and the example itself is returned.

        eg (Example): The example, with an annotated reference.
        labels (Labels): The labels of spans that become entities. None: all.
        RETURNS (Example): The same predicted doc, with such a reference.
        RAISES (ValueError): If spans with own labels overlap, and `filter_spans` is not set.
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

    def read_presets(self, docs: Sequence[Doc]) -> TokenAttrs:
        """Read the tokens of docs before prediction, with their preset annotation. A component with
        a `spans_key` has no preset annotation, as the entities in `doc.ents` belong to another
        component."""
        tokens = read_presets(docs)
        if self.spans_key is not None:
            return tokens.without_annotation()
        return tokens

    def cut(self, docs: Sequence[Doc], tokens: TokenAttrs) -> tuple[Ints1d, Ints1d]:
        """Cut docs into the sequences of the chain: see `borders.cut`.

        docs (Sequence[Doc]): The docs with the tokens.
        tokens (TokenAttrs): The tokens, with their preset annotation.
        RETURNS (tuple[Ints1d, Ints1d]): The number of tokens of each sequence, and the index of its
            doc. Shapes: (B,)
        """
        is_border = borders.borders_of_tokens(
            docs,
            self.sentence_boundaries,
            tokens.begins_sentence,
            tokens.is_space,
            tokens.orth,
        )
        # A preset entity is never cut, so a token inside of it isn't a border.
        return borders.cut(tokens.lengths, is_border & (tokens.iob != INSIDE))

    def find_training_borders(self, examples: Sequence[Example]) -> Array1d:
        """Find the borders at which every other epoch of training cuts the predicted docs of
        examples: see `training.segmentations`.

        If the sentence starts of a predicted doc are unknown, the sentence starts of its reference
        count. The doc itself doesn't get them, so that features are the same as in prediction.

        examples (Sequence[Example]): The examples, as they come from the corpus.
        RETURNS (Array1d): True for the tokens that begin a sequence, other than the first of each
            doc. Shape: (N,)
        """
        docs = [eg.predicted for eg in examples]
        is_border = borders.find_borders(docs, self.sentence_boundaries)
        if not self.sentence_boundaries:
            return is_border
        # The tokens of a doc are those from `begin` to `end` in the array for all docs.
        begin = 0
        for eg in examples:
            end = begin + len(eg.predicted)
            # With the setting `sentences = false`, the reader marks docs that must not be cut at
            # the sentences of their reference.
            if WITHOUT_SENTENCES not in eg.predicted.user_data:
                is_border[begin:end] |= sentence_starts(eg)
            begin = end
        return is_border
