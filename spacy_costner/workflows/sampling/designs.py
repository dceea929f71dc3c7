"""Sampling designs: how the annotated docs for `estimate` were drawn from the texts.

`draw` samples docs with unequal probabilities. A session of `serve` or a user draws simple random
samples. A design checks that the docs are a valid sample of the texts, and creates the `Sample` for
`estimators`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from thinc.types import Ints1d

from ...pipeline.component import CostSensitiveNER
from ...readers.files import shown
from ..evaluation.recurrence import KnownText, check_new
from .drawing import (
    OF_LABEL_STUDIO,
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
    """The design of a sample of A annotated docs.

    times (Ints1d): The number of times each doc was drawn. Shape: (A,)
    text_indices (Sequence[int] | None): The index of each doc among the nonempty texts, or None if
        it is unknown.
    """

    times: Ints1d
    text_indices: Sequence[int] | None

    def select_texts(self, texts: Iterable[Doc]) -> Iterable[Doc]:
        """Leave out texts that no doc could be drawn from.

        texts (Iterable[Doc]): All texts.
        YIELDS (Doc): The texts that the estimates are for.
        """
        ...

    def notes(self) -> list[str]:
        """Describe the texts that were left out by `select_texts`, after all were read."""
        ...

    def make_sample(self, expected: Expectations) -> Sample:
        """Check that the docs were drawn from these texts, and create the sample.

        expected (Expectations): The expected counts of the texts.
        RETURNS (Sample): The sample.
        RAISES (ValueError): If the docs weren't drawn from these texts.
        """
        ...


def find_design(
    nlp: Language,
    ner: CostSensitiveNER,
    known: KnownText,
    annotated: Sequence[Doc],
    *,
    simple_random: bool,
) -> SamplingDesign:
    """Determine how docs were drawn, and run the checks that don't require the texts.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component to evaluate.
    known (KnownText): The text that the component was trained on.
    annotated (Sequence[Doc]): The annotated docs.
    simple_random (bool): Whether they are the user's own simple random sample.
    RETURNS (SamplingDesign): The design.
    RAISES (ValueError): If the docs weren't drawn at random or for this pipeline, or if the
        pipeline was trained on them.
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
    # All docs were drawn from the same texts for the same pipeline, so only check the first record.
    check_drawn_by(nlp, ner, annotated, drawings[0])
    return UnequalDesign(annotated, drawings)


class SessionDesign:
    """Simple random samples drawn without replacement by a session of `serve`, one for each batch
    of added texts."""

    def __init__(self, annotated: Sequence[Doc], drawings: Sequence[SessionDrawing]) -> None:
        self.times = numpy.ones(len(annotated), dtype="int64")
        self.text_indices: Sequence[int] | None = None
        self._annotated = annotated
        self._drawings = drawings
        self._n_left_out = 0

    def select_texts(self, texts: Iterable[Doc]) -> Iterator[Doc]:
        """See `SamplingDesign`. `serve` draws no evaluation text from a batch of a few texts. The
        texts in the session's folder contain the number of their batch."""
        batches_with_drawing = {drawing.addition for drawing in self._drawings}
        if OF_LABEL_STUDIO in batches_with_drawing:  # not drawn in batches
            yield from texts
            return
        other_batches: dict[int, list[Doc]] = {}
        for doc in texts:
            addition: Any = doc.user_data.get("addition")
            is_of_session = type(addition) is int and "measures" in doc.user_data
            if is_of_session and addition not in batches_with_drawing:
                other_batches.setdefault(addition, []).append(doc)
            else:
                yield doc
        for batch in other_batches.values():
            if any(doc.user_data["measures"] for doc in batch):
                # The evaluation texts haven't been annotated: `make_sample` raises an error.
                yield from batch
            else:
                self._n_left_out += len(batch)

    def notes(self) -> list[str]:
        """See `SamplingDesign`."""
        if not self._n_left_out:
            return []
        return [
            f"{self._n_left_out:,} texts are left out, because they were added a few at a time, "
            "without an evaluation text: the estimates are for the other texts"
        ]

    def make_sample(self, expected: Expectations) -> Sample:
        """See `SamplingDesign`."""
        check_are_texts(self._annotated, expected)
        check_drawn_once(self._annotated, expected)
        return sample_of_session(self._drawings, expected.docs)


class SimpleRandomDesign:
    """A simple random sample without replacement, drawn by the user."""

    def __init__(self, annotated: Sequence[Doc]) -> None:
        self.times = numpy.ones(len(annotated), dtype="int64")
        self.text_indices: Sequence[int] | None = None
        self._annotated = annotated

    def select_texts(self, texts: Iterable[Doc]) -> Iterable[Doc]:
        """See `SamplingDesign`."""
        return texts

    def notes(self) -> list[str]:
        """See `SamplingDesign`."""
        return []

    def make_sample(self, expected: Expectations) -> Sample:
        """See `SamplingDesign`."""
        check_are_texts(self._annotated, expected)
        check_drawn_once(self._annotated, expected)
        # All docs have the same probability.
        probs = numpy.full(len(self._annotated), 1 / expected.docs)
        return Sample(probs, expected.docs, with_replacement=False)


class UnequalDesign:
    """A sample drawn by `draw`, with unequal probabilities and with replacement."""

    def __init__(self, annotated: Sequence[Doc], drawings: Sequence[Drawing]) -> None:
        self.times = numpy.asarray([drawing.times for drawing in drawings])
        self.text_indices: Sequence[int] | None = [drawing.doc for drawing in drawings]
        self._annotated = annotated
        self._drawings = drawings

    def select_texts(self, texts: Iterable[Doc]) -> Iterable[Doc]:
        """See `SamplingDesign`."""
        return texts

    def notes(self) -> list[str]:
        """See `SamplingDesign`."""
        return []

    def make_sample(self, expected: Expectations) -> Sample:
        """See `SamplingDesign`."""
        check_drawn_from(self._drawings[0], expected)
        # The text of a doc may have been changed during annotation.
        check_are_texts(self._annotated, expected)
        return sample_of(self._drawings)


def check_simple_random(annotated: Sequence[Doc]) -> None:
    """Check that none of the docs was chosen by `suggest` or `draw`. They have to be a simple
    random sample."""
    for doc in annotated:
        check_not_suggested(doc)
        if Drawing.is_in(doc.user_data):
            raise ValueError(
                "expected your own simple random sample, got docs that `draw` drew with unequal "
                "probabilities: leave out `simple_random`"
            )


def check_drawn_from(drawing: Drawing, expected: Expectations) -> None:
    """Check that docs were drawn from these texts for this pipeline, by comparing the digest of the
    texts and the expected number of entities."""
    if drawing.texts != expected.digest:
        raise ValueError(
            f"expected the {drawing.docs:,} texts that the docs were drawn from, with the digest "
            f"{drawing.texts}, got {expected.docs:,} texts with {expected.digest}"
        )
    if not is_same_number(drawing.expected, expected.n_expected):
        raise ValueError(
            "expected the pipeline that the docs were drawn for, which expects "
            f"{drawing.expected:,.1f} entities in the texts, got a pipeline that expects "
            f"{expected.n_expected:,.1f}: use the pipeline that they were drawn for, or draw again"
        )


def check_are_texts(annotated: Sequence[Doc], expected: Expectations) -> None:
    """Check that all annotated docs are among the texts."""
    for doc, n_texts in zip(annotated, expected.occurrences):
        if n_texts == 0:
            raise ValueError(f"expected docs that are among the texts, got {shown(doc.text)}")


def check_drawn_once(annotated: Sequence[Doc], expected: Expectations) -> None:
    """Check that docs could have been drawn without replacement, i.e. that no text occurs more
    often in the docs than in the texts."""
    n_docs_with_text = Counter(text_without_space(doc) for doc in annotated)
    for doc, n_texts in zip(annotated, expected.occurrences):
        if n_docs_with_text[text_without_space(doc)] > n_texts:
            raise ValueError(
                "expected each doc once, as it was drawn without replacement, got "
                f"{shown(doc.text)} again"
            )
