"""Sampling designs: how the annotated docs were drawn from the texts, for `estimate`.

`draw` draws docs with unequal probabilities, a session of `serve` and users draw simple random
samples. A design checks that the docs are such a sample of the texts, and makes the `Sample` for
`estimators`.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from thinc.types import Ints1d

from ...pipeline.component import CostSensitiveNER
from ...readers.files import shown
from ..evaluation.recurrence import KnownText, check_new
from .drawing import (
    Drawing,
    SessionDrawing,
    check_drawn_by,
    check_not_suggested,
    is_same_number,
    read_drawings,
    sample_of,
    sample_of_session,
)
from .drawn_counts import Expectations
from .estimators import Sample
from .suggestions import text_without_space


class SamplingDesign(Protocol):
    """How A annotated docs were drawn.

    times (Ints1d): How often each of them was drawn. Shape: (A,)
    """

    times: Ints1d

    def make_sample(self, expected: Expectations) -> Sample:
        """Check that the docs were drawn from these texts, and make the sample. It is a ValueError
        if they were not."""
        ...


def find_design(
    nlp: Language,
    ner: CostSensitiveNER,
    known: KnownText,
    annotated: Sequence[Doc],
    *,
    simple_random: bool,
) -> SamplingDesign:
    """Find how docs were drawn, and make the checks that don't need the texts.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component that is evaluated.
    known (KnownText): The text that it was trained on.
    annotated (Sequence[Doc]): The annotated docs.
    simple_random (bool): Whether they are the user's own simple random sample.
    RETURNS (SamplingDesign): The design.
    RAISES (ValueError): If the docs were not drawn at random or not for this pipeline, or if it was
        trained on them.
    """
    if any(SessionDrawing.is_in(doc.user_data) for doc in annotated):
        session_drawings = [SessionDrawing.from_dict(doc.user_data) for doc in annotated]
        check_new(known, annotated, "the evaluation texts")
        return SessionDesign(annotated, session_drawings)
    if simple_random:
        check_simple_random(annotated)
        check_new(known, annotated, "the drawn docs")
        return SimpleRandomDesign(annotated)
    drawings = read_drawings(annotated)
    # All drawings are from the same texts and for the same pipeline, so check only the first.
    check_drawn_by(nlp, ner, annotated, drawings[0])
    return UnequalDesign(annotated, drawings)


class SessionDesign:
    """A session of `serve` drew simple random samples without replacement, one of each addition of
    texts."""

    def __init__(self, annotated: Sequence[Doc], drawings: Sequence[SessionDrawing]) -> None:
        self.times = numpy.ones(len(annotated), dtype="int64")
        self._annotated = annotated
        self._drawings = drawings

    def make_sample(self, expected: Expectations) -> Sample:
        """See `SamplingDesign`."""
        check_are_texts(self._annotated, expected)
        check_drawn_once(self._annotated, expected)
        return sample_of_session(self._drawings, expected.docs)


class SimpleRandomDesign:
    """The user drew a simple random sample, without replacement."""

    def __init__(self, annotated: Sequence[Doc]) -> None:
        self.times = numpy.ones(len(annotated), dtype="int64")
        self._annotated = annotated

    def make_sample(self, expected: Expectations) -> Sample:
        """See `SamplingDesign`."""
        check_are_texts(self._annotated, expected)
        check_drawn_once(self._annotated, expected)
        # All docs had the same probability.
        probs = numpy.full(len(self._annotated), 1 / expected.docs)
        return Sample(probs, expected.docs, with_replacement=False)


class UnequalDesign:
    """`draw` drew the docs with unequal probabilities, with replacement."""

    def __init__(self, annotated: Sequence[Doc], drawings: Sequence[Drawing]) -> None:
        self.times = numpy.asarray([drawing.times for drawing in drawings])
        self._annotated = annotated
        self._drawings = drawings

    def make_sample(self, expected: Expectations) -> Sample:
        """See `SamplingDesign`."""
        check_drawn_from(self._drawings[0], expected)
        # An annotator may have changed the text of a doc.
        check_are_texts(self._annotated, expected)
        return sample_of(self._drawings)


def check_simple_random(annotated: Sequence[Doc]) -> None:
    """Check that neither `suggest` nor `draw` chose any of the docs, which have to be a simple
    random sample."""
    for doc in annotated:
        check_not_suggested(doc)
        if Drawing.is_in(doc.user_data):
            raise ValueError(
                "expected your own simple random sample, got docs that `draw` drew with unequal "
                "probabilities: leave out `simple_random`"
            )


def check_drawn_from(drawing: Drawing, expected: Expectations) -> None:
    """Check that docs were drawn from these texts and for this pipeline: the digest of the texts
    and the expected number of entities are equal."""
    if drawing.texts != expected.digest:
        raise ValueError(
            f"expected the {drawing.docs:,} texts that the docs were drawn from, with the digest "
            f"{drawing.texts}, got {expected.docs:,} texts with {expected.digest}"
        )
    n_expected = float(expected.totals.annotated.sum())
    if not is_same_number(drawing.expected, n_expected):
        raise ValueError(
            "expected the pipeline that the docs were drawn for, which expects "
            f"{drawing.expected:,.1f} entities in the texts, got a pipeline that expects "
            f"{n_expected:,.1f}: use the pipeline that they were drawn for, or draw again"
        )


def check_are_texts(annotated: Sequence[Doc], expected: Expectations) -> None:
    """Check that annotated docs are among the texts."""
    for doc, n_texts in zip(annotated, expected.occurrences):
        if n_texts == 0:
            raise ValueError(f"expected docs that are among the texts, got {shown(doc.text)}")


def check_drawn_once(annotated: Sequence[Doc], expected: Expectations) -> None:
    """Check that docs may have been drawn without replacement: equal docs aren't more than equal
    texts."""
    n_docs_with_text = Counter(text_without_space(doc) for doc in annotated)
    for doc, n_texts in zip(annotated, expected.occurrences):
        if n_docs_with_text[text_without_space(doc)] > n_texts:
            raise ValueError(
                "expected each doc once, as it was drawn without replacement, got "
                f"{shown(doc.text)} again"
            )
