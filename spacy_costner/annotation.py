"""Which annotation of docs a component learns from and writes: in training and in prediction.

Entities are in `doc.ents`, or in `doc.spans` under the component's `spans_key`. A preset entity is
one that the doc has before the component runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from spacy.attrs import SENT_START
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Array1d, Ints1d

from . import borders
from .borders import Boundaries
from .ent_iob import INSIDE
from .readers.inputs import WITHOUT_SENTENCES
from .readers.sentences import starts_at_same_characters
from .spans import Labels, spans_as_entities
from .token_attrs import TokenAttrs, read_presets


@dataclass(frozen=True)
class Annotation:
    """Where the annotation of a component stands in docs, and where docs are cut into sequences:
    the same in training and in prediction.

    component (str): The name of the component, for messages.
    spans_key (str | None): The key of `doc.spans` of its entities. None: they are in `doc.ents`.
    own_labels (Labels): With a `spans_key`: the labels of the spans that it writes. None: all.
    filter_spans (bool): With a `spans_key`: whether the longest of spans of its own labels is kept
        where they overlap in training docs. Otherwise they are an error.
    incorrect_spans_key (str | None): The key of `doc.spans` of spans that are not entities.
    sentence_boundaries (Boundaries): What the chain of a doc is cut at.
    RAISES (ValueError): If own labels are an empty list, or `own_labels` or `filter_spans` are set
        without a `spans_key`.
    """

    component: str = "ner"
    spans_key: str | None = None
    own_labels: Labels = None
    filter_spans: bool = False
    incorrect_spans_key: str | None = None
    sentence_boundaries: Boundaries = False

    def __post_init__(self) -> None:
        needs_key = self.own_labels is not None or self.filter_spans
        if needs_key and self.spans_key is None:
            raise ValueError(
                f"{self.component}: own_labels, filter_spans: expected a spans_key with them"
            )
        if self.own_labels is not None and not self.own_labels:
            raise ValueError(
                f"{self.component}: own_labels: expected null or some labels, got none"
            )

    def as_entities(self, eg: Example, labels: Labels = None) -> Example:
        """Make an example whose entities are the annotation of the component. Without a `spans_key`
        it is the example itself.

        eg (Example): The example.
        labels (Labels): The labels of spans that become entities. None: all.
        RETURNS (Example): The same predicted doc, with a reference that has the entities.
        RAISES (ValueError): If spans overlap, and `filter_spans` is not set.
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
        """Read the tokens of docs that are to be predicted, with the entities that are set already.
        With a `spans_key` none are, as `doc.ents` are those of another component."""
        tokens = read_presets(docs)
        if self.spans_key is not None:
            return tokens.without_annotation()
        return tokens

    def cut(self, docs: Sequence[Doc], tokens: TokenAttrs) -> tuple[Ints1d, Ints1d]:
        """Cut docs into the sequences of the chain: see `borders.cut`.

        docs (Sequence[Doc]): The docs.
        tokens (TokenAttrs): Their tokens, with their presets.
        RETURNS (tuple[Ints1d, Ints1d]): The lengths of the sequences, and the doc of each.
            Shapes: (B,)
        """
        is_border = borders.borders_of_tokens(
            docs,
            self.sentence_boundaries,
            tokens.begins_sentence,
            tokens.is_space,
            tokens.orth,
        )
        # A preset entity is never cut: a token inside of it is no border.
        return borders.cut(tokens.lengths, is_border & (tokens.iob != INSIDE))

    def find_training_borders(self, examples: Sequence[Example]) -> Array1d:
        """Find the tokens of predicted docs that begin a sequence in training.

        If the sentences of a predicted doc are not known, those of its reference count: some epochs
        of training cut docs there, and others don't. So the chain learns from both, while features
        see in training what they see in prediction.

        examples (Sequence[Example]): The examples, as they come from the corpus.
        RETURNS (Array1d): True for these tokens. Shape: (N,)
        """
        docs = [eg.predicted for eg in examples]
        is_border = borders.find_borders(docs, self.sentence_boundaries)
        if not self.sentence_boundaries:
            return is_border
        # The tokens of all docs are concatenated: those of a doc are between these.
        begin = 0
        for eg in examples:
            end = begin + len(eg.predicted)
            if WITHOUT_SENTENCES not in eg.predicted.user_data:
                is_border[begin:end] |= sentence_starts(eg)
            begin = end
        return is_border


def sentence_starts(example: Example) -> Array1d:
    """True for the tokens of the predicted doc that begin a sentence in training, but for the first
    token. The sentences are its own, if they are known, or else those of the reference.
    Shape: (T,)"""
    doc = example.predicted
    reference = example.reference
    if doc.has_annotation("SENT_START"):
        is_start = doc.to_array(SENT_START) == 1
    elif reference.has_annotation("SENT_START") and reference.text == doc.text:
        is_start = starts_at_same_characters(reference, doc)
    else:
        is_start = numpy.zeros(len(doc), dtype=bool)
    is_start[:1] = False
    return is_start
