"""Draw docs at random, to be annotated: `estimate` and `guarantee` measure with them.

Each drawing takes one doc, with replacement, so the same doc may be drawn twice. People annotate
the drawn docs as tasks. An estimate is only valid if docs were drawn at random, and if none is left
out later. So the task of a doc says how the doc was drawn, for which pipeline and from which texts,
and this is checked when the annotated docs are read.
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
from .suggestions import CHOSEN_BY, proposal

DIGITS_OF_DIGEST = 16
"""Digests are cut off after so many hexadecimal digits, as people see them in tasks and errors."""

SERVE = "costner serve"
"""What says in the metadata of a doc that `serve` drew it, so that it measures."""

OF_LABEL_STUDIO = -1
"""The addition of texts that `serve` didn't read, but Label Studio: see `Measuring`."""

ROUNDING = 1e-4
"""On another processor or in other batches, the number of entities that the same pipeline expects
in the same texts may differ by this share."""

LEAST_VALUES = {"doc": 0, "times": 1, "drawings": 1, "docs": 1, "expected": 0}
"""The lowest values that these fields of a `Drawing` can have."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How a doc was drawn. It is saved as the "meta" of the task of the doc.

    doc (int): The number of the doc among the texts, from 0.
    times (int): How often the doc was drawn.
    probability (float): The probability with which each drawing takes the doc.
    drawings (int): The number of drawings with the same seed.
    docs (int): The number of texts.
    seed (int): The random seed of the drawings.
    expected (float): The number of entities that the pipeline expects in all texts.
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
        """The drawing as JSON. Fractions become strings, as annotation tools may round numbers."""
        saved = asdict(self)
        saved["probability"] = repr(self.probability)
        saved["expected"] = repr(self.expected)
        return saved

    @classmethod
    def is_in(cls, saved: Mapping[str, Any]) -> bool:
        """Whether the metadata of a doc have a drawing: all of its fields."""
        return all(name in saved for name in cls.__dataclass_fields__)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Drawing":
        """Read a drawing that `to_dict` has made.

        saved (Mapping[str, Any]): The metadata of an annotated doc. They may have other keys, too.
        RETURNS (Drawing): The drawing.
        RAISES (ValueError): If a field is missing, can't be converted to its type, or has a value
            that no drawing has.
        """
        # The classes `int`, `float` and `str`, which convert the values below. They would be their
        # names if this file imported `annotations` from `__future__`.
        types = {name: field.type for name, field in cls.__dataclass_fields__.items()}
        missing = [name for name in types if name not in saved]
        if missing:
            raise ValueError(
                f"expected docs that `estimate --draw` drew, got one without {missing[0]!r} in its "
                "metadata"
            )
        values: dict[str, Any] = {}
        for name, value_type in types.items():
            value = saved[name]
            try:
                converted = value_type(value)  # type: ignore[operator]
            except (ValueError, TypeError, OverflowError):
                converted = None
            # A boolean is an integer for Python, and `int` cuts off the fraction of a number.
            is_cut = isinstance(value, float) and converted != value and value_type is int
            if converted is None or isinstance(value, bool) or is_cut:
                raise ValueError(
                    f"{name}: expected what `estimate --draw` wrote, got {shown(value)}"
                )
            values[name] = converted
        if not 0 < values["probability"] <= 1:  # NaN is refused, too.
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
class Measuring:
    """How `serve` drew a text that measures the model. It is saved as the "meta" of the task of the
    text. Each time that texts are added to a session, a simple random sample of these texts is
    drawn without replacement, to measure.

    drawn_by (str): `SERVE`.
    addition (int): The number of the addition that the text came with, from 0; for texts of Label
        Studio `OF_LABEL_STUDIO`.
    added (int): How many texts were added then; 0 for texts of Label Studio, as `serve` doesn't
        know their number.
    """

    drawn_by: str
    addition: int
    added: int

    def to_dict(self) -> dict[str, Any]:
        """The drawing as JSON."""
        return asdict(self)

    @classmethod
    def is_in(cls, saved: Mapping[str, Any]) -> bool:
        """Whether the metadata of a doc say that `serve` drew it to measure."""
        return saved.get("drawn_by") == SERVE

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Measuring":
        """Read a drawing that `to_dict` has made.

        saved (Mapping[str, Any]): The metadata of an annotated doc. They may have other keys, too.
        RETURNS (Measuring): The drawing.
        RAISES (ValueError): If the doc wasn't drawn by `serve`, or a field is no number that
            `serve` writes.
        """
        if not cls.is_in(saved):
            raise ValueError(
                "expected only texts that measure in a session of `serve`, got others among them"
            )
        for name, least in (("addition", OF_LABEL_STUDIO), ("added", 0)):
            if type(saved.get(name)) is not int or saved[name] < least:
                raise ValueError(
                    f"{name}: expected what `serve` wrote, got {shown(saved.get(name))}"
                )
        return cls(drawn_by=SERVE, addition=saved["addition"], added=saved["added"])


class DrawnDoc(NamedTuple):
    """A doc that was drawn to be annotated."""

    doc: Doc  # with the entities that the model predicts
    drawing: Drawing  # how it was drawn

    def task(self, *, with_predictions: bool = False) -> Task:
        """Make the task of the doc for annotators.

        with_predictions (bool): Whether annotators see the predicted entities, which may influence
            them.
        """
        extra = {"meta": self.drawing.to_dict()}
        if with_predictions:
            return proposal(self.doc, extra)
        # Without the predicted entities: a task with the spans None is one that nobody annotated,
        # and only annotated texts have missing parts.
        return doc_to_task(self.doc, extra)._replace(spans=None, missing=())


def draw(
    nlp: Language, texts: Iterable[Doc], *, n: int = 50, seed: int = 0, name: str = "ner"
) -> list[DrawnDoc]:
    """Draw docs at random, with replacement, to be annotated for `estimate`. Docs in which the
    model expects more mistakes are drawn with a higher probability: see `drawing_probs`.

    nlp (Language): The trained pipeline.
    texts (Iterable[Doc]): The docs, without annotation. Those without tokens are left out.
    n (int): The number of drawings, at least 1. A doc that is drawn twice is annotated once.
    seed (int): The random seed of the drawings.
    name (str): Name of the component.
    RETURNS (list[DrawnDoc]): The docs, in the order in which they were first drawn.
    RAISES (ValueError): If there is no such component, it isn't trained, or its entities aren't in
        `doc.ents`; if there is no doc, or n is out of its range.
    """
    ner = get_trained(nlp, name)
    if n < 1:
        raise ValueError(f"draw: expected at least 1 doc, got {n}")
    docs: list[Doc] = []
    mistakes: list[float] = []  # how many mistakes the model expects in each doc
    n_expected_entities = 0.0  # how many gold entities the model expects in all docs
    digest_of_texts = ""
    for batch, counts in expect_counts(nlp, name, texts):
        docs += batch
        mistakes += counts.mistakes().tolist()
        n_expected_entities += float(counts.annotated.sum())
        for doc in batch:
            digest_of_texts = add_text(digest_of_texts, doc)
    if not docs:
        raise ValueError("expected docs with words, got none")

    probs = drawing_probs(numpy.asarray(mistakes))
    drawn_indices = draw_docs(probs, n, numpy.random.default_rng(seed)).tolist()
    pipeline = digest_component(ner)
    drawn_docs: list[DrawnDoc] = []
    # A counter keeps the order in which the docs were first drawn.
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
    """Read how annotated docs were drawn, and check that none of the drawn docs is left out.

    docs (Sequence[Doc]): The annotated docs: all that `draw` returned for the same texts and the
        same pipeline, for one or several seeds.
    RETURNS (list[Drawing]): How each doc was drawn.
    RAISES (ValueError): If a doc wasn't drawn, or is there twice; if docs were drawn from other
        texts or for another pipeline than the first one, or if some are left out.
    """
    drawings: list[Drawing] = []
    for doc in docs:
        check_not_suggested(doc)
        drawings.append(Drawing.from_dict(doc.user_data))
    if not drawings:
        raise ValueError("expected drawn docs, got none")
    first_drawing = drawings[0]
    n_drawings_of_seed: Counter[int] = Counter()
    seen_drawings: set[tuple[int, int]] = set()  # the seed and the number of each doc so far
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
                f"{n_drawings}: docs that are left out, because they are hard or not annotated "
                "yet, would change the result"
            )
    return drawings


def sample_of(drawings: Sequence[Drawing]) -> Sample:
    """Make the sample of drawn docs for `estimators`. A doc that was drawn twice is there twice.

    drawings (Sequence[Drawing]): How each doc was drawn, at least one.
    """
    probs = [drawing.probability for drawing in drawings]
    times = [drawing.times for drawing in drawings]
    # All docs were drawn from the same texts.
    return Sample(numpy.repeat(probs, times), n_docs=drawings[0].docs)


def sample_of_session(drawings: Sequence[Measuring], n_docs: int) -> Sample:
    """Make the `Sample` that `estimators` needs, of those texts of a session that were drawn to
    measure the model and have been annotated.

    If texts were added to the session several times, each addition b is a part of the sample. It
    has D_b texts, of which n_b are drawn and annotated; n is the sum of all n_b. Each annotated
    text stands for D_b / n_b texts. That is its weight, which is 1 / (n q_i) in a `Sample`. So the
    probabilities are

        q_i = n_b / (n D_b)

    drawings (Sequence[Measuring]): How each of the n annotated texts was drawn.
    n_docs (int): The number of all texts of the session.
    RETURNS (Sample): The sample.
    RAISES (ValueError): If these additions don't have `n_docs` texts together: of an addition no
        text is annotated, or `n_docs` counts other texts. Also if some texts are Label Studio's and
        some aren't.
    """
    # The number of texts of each addition. It is 0 for Label Studio's, which `serve` doesn't count.
    sizes = {drawing.addition: drawing.added for drawing in drawings}
    if [*sizes] == [OF_LABEL_STUDIO]:
        # All texts are Label Studio's, so their number is that of all texts.
        sizes[OF_LABEL_STUDIO] = n_docs
    # A size that is still 0 is that of Label Studio's texts beside others.
    if sum(sizes.values()) != n_docs or 0 in sizes.values():
        raise ValueError(
            f"expected annotated texts that measure from all {n_docs:,} texts, got some from "
            f"{sum(sizes.values()):,}: give texts.jsonl of the session, and annotate texts that "
            "measure until there is one of each file that was added"
        )
    n_annotated = Counter(drawing.addition for drawing in drawings)
    probs: list[float] = []
    for drawing in drawings:
        n_of_addition = n_annotated[drawing.addition]
        probs.append(n_of_addition / len(drawings) / sizes[drawing.addition])
    return Sample(numpy.asarray(probs), n_docs, with_replacement=False, n_parts=len(sizes))


def conformal_weights(drawings: Sequence[Drawing]) -> Floats1d:
    """The weights of drawn docs for `conformal.threshold`. Shape: (docs,)

        weight_i = times_i (UNIFORM / D) / q_i

    The doc i of D texts was drawn `times_i` times, with the probability q_i at each drawing. The
    share UNIFORM of a probability is the same for all docs. So q_i is at least UNIFORM / D, and the
    weight is at most 1 for each time.
    """
    weights = [drawing.times * UNIFORM / drawing.docs / drawing.probability for drawing in drawings]
    return numpy.asarray(weights)


def check_not_suggested(doc: Doc) -> None:
    """Check that a doc was not chosen by `suggest`, which doesn't choose at random.

    RAISES (ValueError): If it was.
    """
    if CHOSEN_BY in doc.user_data:
        raise ValueError(
            "expected docs that were drawn at random, got docs that `suggest` chose: they are the "
            "hardest ones, and say nothing of the others"
        )


def check_drawn_by(
    nlp: Language, ner: CostSensitiveNER, annotated: Sequence[Doc], drawing: Drawing
) -> None:
    """Check that docs were drawn for this pipeline.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component of the pipeline.
    annotated (Sequence[Doc]): The drawn docs, which are annotated now.
    drawing (Drawing): How they were drawn. It has the digest of the component.
    RAISES (ValueError): If they were drawn for another one, or it was trained on them after they
        were drawn.
    """
    if drawing.pipeline == digest_component(ner):
        return
    known = KnownText.of_component(nlp, ner, with_raw_text=False)
    n_known = sum(known.knows(doc) for doc in annotated)
    if n_known > len(annotated) / 2:
        raise ValueError(
            "expected a pipeline that wasn't trained on the drawn docs, got one that knows "
            f"{n_known} of {len(annotated)}: estimate with the pipeline that they were drawn for"
        )
    raise ValueError(
        f"expected the pipeline that the docs were drawn for, with the digest {drawing.pipeline}, "
        f"got one with {digest_component(ner)}: estimate with that one, or draw again"
    )


def check_annotated(docs: Iterable[Doc]) -> None:
    """Check that all tokens of docs are annotated.

    RAISES (ValueError): If the annotation of one is missing.
    """
    for doc in docs:
        if not is_fully_annotated(doc):
            raise ValueError(
                "expected docs that are annotated from the first to the last token, got missing "
                f"annotation in {shown(doc.text)}"
            )


def get_trained(nlp: Language, name: str) -> CostSensitiveNER:
    """Get a trained component whose entities are in `doc.ents`.

    RAISES (ValueError): If there is no component of that name, its entities are elsewhere, or it
        isn't trained.
    """
    ner = get_component(nlp, name)
    check_ents("estimate", ner)
    if not (ner.labels and ner.model.has_dim("nO")):
        raise ValueError(f"components.{name}: expected a trained component, got one without labels")
    return ner


def digest_component(ner: CostSensitiveNER) -> str:
    """The digest of a component: of its labels, its training sentences, its decoding and its
    temperature. The weights aren't part of it. A model with other weights is noticed because it
    expects another number of entities: see `is_same_number`."""
    settings = {name: ner.cfg[name] for name in ("decoding", "temperature")}
    parts = (list(ner.labels), ner.trained_on.tolist(), settings)
    return digest(*parts)[:DIGITS_OF_DIGEST]


def add_text(digest_of_texts: str, doc: Doc) -> str:
    """The digest of a list of texts, after the text of a doc was added to it.

    digest_of_texts (str): The digest of the list before; empty for an empty list.
    """
    return digest(digest_of_texts, doc.text)[:DIGITS_OF_DIGEST]


def is_same_number(number: float, other: float) -> bool:
    """Whether two expected numbers of entities differ no more than by rounding."""
    return abs(number - other) <= ROUNDING * max(number, other, 1.0)
