"""Draw random docs to annotate for `estimate` and `guarantee`.

Each draw selects one doc, with replacement, so the same doc may be drawn more than once. The drawn
docs are annotated as tasks. An estimate is only valid if docs were drawn at random and none of them
is omitted later. Therefore, the task of each doc contains a record of the draws, the pipeline and
the texts. The record is verified when the annotated docs are read.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from thinc.types import Floats1d

from ...pipeline.component import CostSensitiveNER
from ...readers import Task, doc_to_task
from ...readers.files import digest, shown
from ..components import check_ents, get_component
from ..evaluation.recurrence import KnownText
from ..evaluation.valid_data import is_fully_annotated
from .estimators import UNIFORM, Sample, draw_docs, drawing_probs
from .expected_counts import expect_counts
from .suggestions import CHOSEN_BY, proposal, task_metadata

DIGITS_OF_DIGEST = 16
"""The number of hexadecimal digits of a digest. Digests are short because they are displayed in
tasks and error messages."""

SERVE = "costner serve"
"""The value of "drawn_by" in the metadata of evaluation docs drawn by a session of `serve`."""

OF_LABEL_STUDIO = -1
"""The value of `addition` for texts that were read by Label Studio instead of `serve`: see
`SessionDrawing`."""

TOLERANCE_OF_EXPECTED = 1e-4
"""The maximum relative difference between two expected numbers of entities that were computed by
the same pipeline for the same texts, on different processors or in different batches."""

LEAST_VALUES = {"doc": 0, "times": 1, "drawings": 1, "docs": 1, "expected": 0}
"""The minimum values of these fields of a `Drawing`."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """The record of how a doc was drawn. It is saved as the "meta" of the doc's task.

    doc (int): The index of the doc among the texts.
    times (int): The number of times the doc was drawn.
    probability (float): The probability of selecting the doc in a draw.
    drawings (int): The number of draws with the same seed.
    docs (int): The number of texts.
    seed (int): The random seed of the draws.
    expected (float): The number of entities with labels of the component that it expects in all
        texts.
    pipeline (str): The digest of the pipeline: see `digest_component`.
    texts (str): The digest of the texts.
    """

    doc: int
    times: int
    probability: float
    drawings: int
    docs: int
    seed: int
    expected: float
    pipeline: str
    texts: str

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to a JSON-serializable dict. Floats are saved as strings, because
        annotation tools may round numbers."""
        saved = asdict(self)
        saved["probability"] = repr(self.probability)
        saved["expected"] = repr(self.expected)
        return saved

    @classmethod
    def is_in(cls, saved: Mapping[str, Any]) -> bool:
        """Check whether the metadata of a doc contains all fields of a record.

        saved (Mapping[str, Any]): The metadata.
        RETURNS (bool): True if all fields are present.
        """
        return all(name in saved for name in cls.__dataclass_fields__)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Drawing":
        """Read a record written by `to_dict`.

        saved (Mapping[str, Any]): The metadata of an annotated doc. Other keys are ignored.
        RETURNS (Drawing): The record.
        RAISES (ValueError): If a field is missing, can't be converted to its type, or is out of
            range.
        """
        # The classes `int`, `float` and `str`, used below to convert values. If this module used
        # `from __future__ import annotations`, these would be strings.
        types = {name: field.type for name, field in cls.__dataclass_fields__.items()}
        missing = [name for name in types if name not in saved]
        if missing:
            raise ValueError(
                f"expected docs that `draw` drew, got a doc without {missing[0]!r} in its metadata"
            )
        values: dict[str, Any] = {}
        for name, value_type in types.items():
            value = saved[name]
            try:
                converted = value_type(value)  # type: ignore[operator]
            except (ValueError, TypeError, OverflowError):
                converted = None
            # A bool is also an int in Python, and `int` truncates floats.
            is_cut = isinstance(value, float) and converted != value and value_type is int
            if converted is None or isinstance(value, bool) or is_cut:
                raise ValueError(
                    f"{name}: expected the value that `draw` wrote, got {shown(value)}"
                )
            values[name] = converted
        if not 0 < values["probability"] <= 1:  # also rejects NaN
            raise ValueError(
                "probability: expected a number above 0 and at most 1, got "
                f"{shown(saved['probability'])}"
            )
        for name, least in LEAST_VALUES.items():
            if not least <= values[name] < inf:
                raise ValueError(
                    f"{name}: expected a number of at least {least}, got {shown(saved[name])}"
                )
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class SessionDrawing:
    """The record of how an evaluation text was drawn by a session of `serve`. It is saved as the
    "meta" of the text's task. Whenever texts are added to a session, a simple random sample of them
    is drawn without replacement for evaluation.

    drawn_by (str): `SERVE`.
    addition (int): The index of the batch of texts that was added, starting from 0.
        `OF_LABEL_STUDIO` for texts from Label Studio.
    added (int): The number of texts in this batch. 0 for texts from Label Studio, where it is
        unknown.
    """

    drawn_by: str
    addition: int
    added: int

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to a JSON-serializable dict."""
        return asdict(self)

    @classmethod
    def is_in(cls, saved: Mapping[str, Any]) -> bool:
        """Check whether the metadata of a doc was written by a session of `serve`.

        saved (Mapping[str, Any]): The metadata.
        RETURNS (bool): True if the doc was drawn by `serve`.
        """
        return saved.get("drawn_by") == SERVE

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "SessionDrawing":
        """Read a record written by `to_dict`.

        saved (Mapping[str, Any]): The metadata of an annotated doc. Other keys are ignored.
        RETURNS (SessionDrawing): The record.
        RAISES (ValueError): If the doc wasn't drawn by `serve`, or a field isn't a number or is out
            of range.
        """
        if not cls.is_in(saved):
            raise ValueError(
                "expected only evaluation texts of a session of `serve`, got other texts, too"
            )
        for name, least in (("addition", OF_LABEL_STUDIO), ("added", 0)):
            if type(saved.get(name)) is not int or saved[name] < least:
                raise ValueError(
                    f"{name}: expected the value that `serve` wrote, got {shown(saved.get(name))}"
                )
        return cls(drawn_by=SERVE, addition=saved["addition"], added=saved["added"])


class DrawnDoc(NamedTuple):
    """A doc that was drawn for annotation.

    doc (Doc): The doc, with the predicted entities.
    drawing (Drawing): The record of how it was drawn.
    """

    doc: Doc
    drawing: Drawing

    def task(self, *, with_predictions: bool = False) -> Task:
        """Create the annotation task for the doc, with the record of the drawing and the metadata
        of the doc: see `task_metadata`.

        with_predictions (bool): Whether to pre-annotate the task with the predicted entities, which
            may influence annotators.
        RETURNS (Task): The task.
        """
        extra = {"meta": task_metadata(self.doc, self.drawing.to_dict())}
        if with_predictions:
            return proposal(self.doc, extra)
        # Remove the predicted entities. A task without annotation has no spans and no missing
        # parts.
        return doc_to_task(self.doc, extra)._replace(spans=None, missing=())


def draw(
    nlp: Language, texts: Iterable[Doc], *, n: int = 50, seed: int = 0, name: str = "ner"
) -> list[DrawnDoc]:
    """Draw random docs to annotate for `estimate`, with replacement. Docs with more expected
    mistakes have a higher probability: see `drawing_probs`.

    nlp (Language): The trained pipeline.
    texts (Iterable[Doc]): The docs, without annotation. Docs without tokens are skipped.
    n (int): The number of draws, at least 1. A doc that is drawn more than once is only annotated
        once.
    seed (int): The random seed of the draws.
    name (str): Name of the component.
    RETURNS (list[DrawnDoc]): The docs, in the order they were first drawn.
    RAISES (ValueError): If the component is missing, isn't trained, or has a `spans_key`; if all
        docs are empty; or if `n` is invalid.
    """
    ner = get_trained(nlp, name)
    if n < 1:
        raise ValueError(f"n: expected at least 1, got {n}")
    docs: list[Doc] = []
    mistakes: list[float] = []  # the expected number of mistakes per doc
    n_expected_entities = 0.0  # the expected number of gold entities in all docs
    digest_of_texts = ""
    for batch, counts in expect_counts(nlp, name, texts):
        docs += batch
        mistakes += counts.mistakes().tolist()
        n_expected_entities += counts.sum_annotated(ner.labels)
        for doc in batch:
            digest_of_texts = add_text(digest_of_texts, doc)
    if not docs:
        raise ValueError("expected docs with words, got none")

    probs = drawing_probs(numpy.asarray(mistakes))
    drawn_indices = draw_docs(probs, n, numpy.random.default_rng(seed)).tolist()
    pipeline = digest_component(ner)
    drawn_docs: list[DrawnDoc] = []
    # A Counter preserves the order in which docs were first drawn.
    for i, times in Counter(drawn_indices).items():
        drawing = Drawing(
            doc=i,
            times=times,
            probability=float(probs[i]),
            drawings=n,
            docs=len(docs),
            seed=seed,
            expected=round(n_expected_entities, 4),
            pipeline=pipeline,
            texts=digest_of_texts,
        )
        drawn_docs.append(DrawnDoc(docs[i], drawing))
    return drawn_docs


def read_drawings(docs: Sequence[Doc]) -> list[Drawing]:
    """Read the records of annotated docs, and check that no drawn doc is missing.

    docs (Sequence[Doc]): The annotated docs. They must be all docs that `draw` returned for the
        same texts and pipeline, with one or several seeds.
    RETURNS (list[Drawing]): The record of each doc.
    RAISES (ValueError): If a doc wasn't drawn or occurs more than once; if docs were drawn from
        different texts or for different pipelines; or if a drawn doc is missing.
    """
    drawings: list[Drawing] = []
    for doc in docs:
        check_not_suggested(doc)
        drawings.append(Drawing.from_dict(doc.user_data))
    if not drawings:
        raise ValueError("expected drawn docs, got none")
    first_drawing = drawings[0]
    n_drawings_of_seed: Counter[int] = Counter()
    seen_drawings: set[tuple[int, int]] = set()  # (seed, doc) of the records checked so far
    for drawing in drawings:
        for name in ("pipeline", "texts", "docs", "expected"):
            if getattr(drawing, name) != getattr(first_drawing, name):
                raise ValueError(
                    "expected docs that were drawn for one pipeline from the same texts, got "
                    f"{name} {getattr(first_drawing, name)} and {getattr(drawing, name)}"
                )
        seed_and_doc = (drawing.seed, drawing.doc)
        if seed_and_doc in seen_drawings:
            raise ValueError(f"expected each drawn doc once, got doc {drawing.doc} twice")
        seen_drawings.add(seed_and_doc)
        n_drawings_of_seed[drawing.seed] += drawing.times
    for drawing in drawings:
        n_drawings = n_drawings_of_seed[drawing.seed]
        if n_drawings != drawing.drawings:
            raise ValueError(
                f"expected all {drawing.drawings} drawings with the seed {drawing.seed}, got "
                f"{n_drawings}: without the missing docs, which may be hard or not annotated yet, "
                "the result would be biased"
            )
    return drawings


def sample_of(drawings: Sequence[Drawing]) -> Sample:
    """Create the sample for `estimators`. A doc that was drawn more than once is repeated.

    drawings (Sequence[Drawing]): The record of each doc. Must not be empty.
    RETURNS (Sample): The sample.
    """
    probs = [drawing.probability for drawing in drawings]
    times = [drawing.times for drawing in drawings]
    # All docs were drawn from the same texts.
    return Sample(numpy.repeat(probs, times), n_docs=drawings[0].docs)


def sample_of_session(drawings: Sequence[SessionDrawing], n_docs: int) -> Sample:
    """Create the sample of a session's annotated evaluation texts for `estimators`.

    Each batch b of texts that was added to the session is a stratum. n_b of its D_b texts are drawn
    and annotated, and n is the sum of all n_b. Each annotated text represents D_b / n_b texts. This
    is its weight, which is 1 / (n q_i) in a `Sample`, so the probabilities are

        q_i = n_b / (n D_b)

    drawings (Sequence[SessionDrawing]): The records of the n annotated texts.
    n_docs (int): The number of all texts in the session.
    RETURNS (Sample): The sample.
    RAISES (ValueError): If these batches don't contain `n_docs` texts in total, because a batch has
        no annotated texts, or `n_docs` includes other texts. Also if only some of the texts are
        from Label Studio.
    """
    # The number of texts in each addition. It is 0 for Label Studio, where `serve` doesn't count
    # them.
    sizes = {drawing.addition: drawing.added for drawing in drawings}
    if [*sizes] == [OF_LABEL_STUDIO]:
        # All texts are from Label Studio.
        sizes[OF_LABEL_STUDIO] = n_docs
    # If a size is still 0, only some of the texts are from Label Studio.
    if sum(sizes.values()) != n_docs or 0 in sizes.values():
        raise ValueError(
            f"expected annotated evaluation texts from all {n_docs:,} texts, got some from "
            f"{sum(sizes.values()):,}: use texts.jsonl of the session, and annotate at least one "
            "evaluation text of each file that was added"
        )
    n_annotated = Counter(drawing.addition for drawing in drawings)
    probs: list[float] = []
    for drawing in drawings:
        n_of_addition = n_annotated[drawing.addition]
        probs.append(n_of_addition / len(drawings) / sizes[drawing.addition])
    return Sample(numpy.asarray(probs), n_docs, with_replacement=False, n_parts=len(sizes))


def conformal_weights(drawings: Sequence[Drawing]) -> Floats1d:
    """Compute the weights of drawn docs for `conformal.threshold`.

        weight_i = times_i (UNIFORM / D) / q_i

    Doc i of D texts was drawn `times_i` times, with probability q_i per draw. Because a fraction
    UNIFORM of the total probability is distributed uniformly, q_i is at least UNIFORM / D, and the
    weight is at most `times_i`.

    drawings (Sequence[Drawing]): The record of each doc.
    RETURNS (Floats1d): The weights. Shape: (docs,)
    """
    weights = [drawing.times * UNIFORM / drawing.docs / drawing.probability for drawing in drawings]
    return numpy.asarray(weights)


def check_not_suggested(doc: Doc) -> None:
    """Check that a doc was not chosen by `suggest`, which doesn't choose docs at random.

    doc (Doc): The doc.
    RAISES (ValueError): If it was chosen by `suggest`.
    """
    if CHOSEN_BY in doc.user_data:
        raise ValueError(
            "expected docs that were drawn at random, got docs that `suggest` chose: they are "
            "harder than others, so the result would be biased"
        )


def check_drawn_by(
    nlp: Language, ner: CostSensitiveNER, annotated: Sequence[Doc], drawing: Drawing
) -> None:
    """Check that docs were drawn for this pipeline.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component of the pipeline.
    annotated (Sequence[Doc]): The drawn docs with their annotation.
    drawing (Drawing): A record of the docs. It contains the digest of the component.
    RAISES (ValueError): If the docs were drawn for another pipeline, or the component has been
        trained on them since.
    """
    if drawing.pipeline == digest_component(ner):
        return
    known = KnownText.from_component(nlp, ner, with_raw_text=False)
    n_known = sum(known.knows(doc) for doc in annotated)
    if n_known > len(annotated) / 2:
        raise ValueError(
            "expected a pipeline that wasn't trained on the drawn docs, got a pipeline that knows "
            f"{n_known} of {len(annotated)}: use the pipeline that they were drawn for"
        )
    raise ValueError(
        f"expected the pipeline that the docs were drawn for, with the digest {drawing.pipeline}, "
        f"got {digest_component(ner)}: use the pipeline that they were drawn for, or draw again"
    )


def check_annotated(docs: Iterable[Doc]) -> None:
    """Check that all tokens of docs are annotated.

    docs (Iterable[Doc]): The docs.
    RAISES (ValueError): If a token has no annotation.
    """
    for doc in docs:
        if not is_fully_annotated(doc):
            raise ValueError(
                "expected docs that are annotated from the first to the last token, got missing "
                f"annotation in {shown(doc.text)}"
            )


def get_trained(nlp: Language, name: str) -> CostSensitiveNER:
    """Get a trained component that writes entities to `doc.ents`.

    nlp (Language): The pipeline.
    name (str): The name of the component.
    RETURNS (CostSensitiveNER): The component.
    RAISES (ValueError): If the component is missing, has a `spans_key`, or isn't trained.
    """
    ner = get_component(nlp, name)
    check_ents("estimate", ner)
    if not (ner.labels and ner.model.has_dim("nO")):
        raise ValueError(f"components.{name}: expected a trained component, got one without labels")
    return ner


def digest_component(ner: CostSensitiveNER) -> str:
    """Compute the digest of a component's labels, training sentences, decoding and temperature. The
    weights are not included. Different weights are detected by comparing the expected number of
    entities: see `is_same_number`."""
    settings = {name: ner.cfg[name] for name in ("decoding", "temperature")}
    parts = (list(ner.labels), ner.trained_on.tolist(), settings)
    return digest(*parts)[:DIGITS_OF_DIGEST]


def add_text(digest_of_texts: str, doc: Doc) -> str:
    """Add the text of a doc to the digest of a list of texts.

    digest_of_texts (str): The digest of the list so far. Empty for an empty list.
    doc (Doc): The doc.
    RETURNS (str): The updated digest.
    """
    return digest(digest_of_texts, doc.text)[:DIGITS_OF_DIGEST]


def is_same_number(number: float, other: float) -> bool:
    """Check whether two expected numbers of entities are equal up to rounding errors.

    number (float), other (float): The numbers.
    RETURNS (bool): Whether they are equal.
    """
    return abs(number - other) <= TOLERANCE_OF_EXPECTED * max(number, other, 1.0)
