"""Draw docs at random, to be annotated: `estimate` and `guarantee` measure with them.

An estimate is valid only because docs were drawn at random, so each task says how its doc was
drawn, and for which pipeline and texts. A drawing takes one doc. There are several, with
replacement, so a doc may be drawn twice.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from thinc.types import Floats1d

from ..pipeline.component import CostSensitiveNER
from ..readers import Task, doc_to_task
from ..readers.files import digest, shown
from .estimators import UNIFORM, Sample, draw_docs, drawing_probs
from .expected_counts import expect_counts
from .fitness import is_known_doc
from .predictions import check_ents, get_component
from .suggestions import CHOSEN_BY, proposal

DIGITS_OF_DIGEST = 16

ROUNDING = 1e-4
"""How far the expected number of entities of the same pipeline and texts may differ, on another
processor or in other batches, as a share of it."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How a doc was drawn: the "meta" of its task.

    doc (int): Its number among the texts, from 0.
    times (int): How often it was drawn.
    probability (float): Its probability at each drawing.
    drawings (int): The number of drawings.
    docs (int): The number of texts.
    seed (int): The seed of the drawings.
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
        """The drawing as JSON. Fractions are written as text, as annotation tools may round
        numbers."""
        fractions = {"probability": repr(self.probability), "expected": repr(self.expected)}
        return {**asdict(self), **fractions}

    @classmethod
    def is_in(cls, saved: Mapping[str, Any]) -> bool:
        """Whether the metadata of a doc say how it was drawn."""
        return all(name in saved for name in cls.__dataclass_fields__)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Drawing":
        """Read a drawing that `to_dict` has made, among other keys.

        saved (Mapping[str, Any]): The metadata of an annotated doc.
        RETURNS (Drawing): The drawing.
        RAISES (ValueError): If it isn't there, or was changed.
        """
        types = {name: field.type for name, field in cls.__dataclass_fields__.items()}
        missing = [name for name in types if name not in saved]
        if missing:
            raise ValueError(
                f"expected docs that `estimate --draw` drew, got one without {missing[0]!r} in its "
                "metadata"
            )
        values: dict[str, Any] = {}
        for name, value_type in types.items():
            try:
                values[name] = value_type(saved[name])  # type: ignore[operator]
            except (ValueError, TypeError):
                raise ValueError(
                    f"{name}: expected what `estimate --draw` wrote, got {shown(saved[name])}"
                ) from None
        return cls(**values)


class DrawnDoc(NamedTuple):
    """A doc to annotate, with the entities that the model predicts, and how it was drawn."""

    doc: Doc
    drawing: Drawing

    def task(self, *, with_predictions: bool = False) -> Task:
        """Make the task of the doc for annotators.

        with_predictions (bool): Whether they see the predicted entities. These may influence them.
        """
        meta = {"meta": self.drawing.to_dict()}
        if with_predictions:
            return proposal(self.doc, meta)
        return doc_to_task(self.doc, meta)._replace(spans=None, missing=())


def draw(
    nlp: Language, texts: Iterable[Doc], *, n: int = 50, seed: int = 0, name: str = "ner"
) -> list[DrawnDoc]:
    """Draw docs with replacement, to be annotated for `estimate`. Docs in which the model expects
    more mistakes are drawn more often: see `drawing_probs`.

    nlp (Language): The trained pipeline.
    texts (Iterable[Doc]): The docs, without annotation. Those without tokens are left out.
    n (int): The number of drawings, at least 1. A doc may be drawn twice, and is then annotated
        once.
    seed (int): The seed of the drawings.
    name (str): Name of the component.
    RETURNS (list[DrawnDoc]): The docs, in the order in which they were first drawn.
    RAISES (ValueError): If there is no such component, or it isn't trained; if there is no doc, or
        n is out of its range.
    """
    ner = get_trained(nlp, name)
    if n < 1:
        raise ValueError(f"draw: expected at least 1 doc, got {n}")
    docs: list[Doc] = []
    mistakes: list[float] = []
    expected = 0.0
    digest_of_texts = ""
    for batch, counts in expect_counts(nlp, name, texts):
        docs += batch
        mistakes += counts.mistakes().tolist()
        expected += float(counts.annotated.sum())
        for doc in batch:
            digest_of_texts = add_text(digest_of_texts, doc)
    if not docs:
        raise ValueError("expected docs with words, got none")

    probs = drawing_probs(numpy.asarray(mistakes))
    indices = draw_docs(probs, n, numpy.random.default_rng(seed)).tolist()
    pipeline = digest_component(ner)
    drawn_docs: list[DrawnDoc] = []
    # A counter keeps the order in which the docs were first drawn.
    for i, times in Counter(indices).items():
        drawing = Drawing(
            doc=i,
            times=times,
            probability=float(probs[i]),
            drawings=n,
            docs=len(docs),
            seed=seed,
            expected=round(expected, 4),
            pipeline=pipeline,
            texts=digest_of_texts,
        )
        drawn_docs.append(DrawnDoc(docs[i], drawing))
    return drawn_docs


def read_drawings(docs: Sequence[Doc]) -> list[Drawing]:
    """Read how annotated docs were drawn, and check that all docs of each drawing are there.

    docs (Sequence[Doc]): The annotated docs, of one or several drawings from the same texts for the
        same pipeline, each with another seed.
    RETURNS (list[Drawing]): How each doc was drawn.
    RAISES (ValueError): If a doc wasn't drawn, or wasn't fully annotated, is there twice, or
        missing.
    """
    drawings: list[Drawing] = []
    for doc in docs:
        check_not_suggested(doc)
        drawings.append(Drawing.from_dict(doc.user_data))
    if not drawings:
        raise ValueError("expected drawn docs, got none")
    first = drawings[0]
    n_drawn: Counter[int] = Counter()  # by seed
    seen: set[tuple[int, int]] = set()  # the seed and the number of each doc so far
    for drawing in drawings:
        for name in ("pipeline", "texts", "docs", "expected"):
            if getattr(drawing, name) != getattr(first, name):
                raise ValueError(
                    "expected docs that were drawn for one pipeline from the same texts, got "
                    f"{name} {getattr(first, name)} and {getattr(drawing, name)}"
                )
        seed_and_doc = (drawing.seed, drawing.doc)
        if seed_and_doc in seen:
            raise ValueError(f"expected each drawn doc once, got doc {drawing.doc} twice")
        seen.add(seed_and_doc)
        n_drawn[drawing.seed] += drawing.times
    for drawing in drawings:
        if n_drawn[drawing.seed] != drawing.drawings:
            raise ValueError(
                f"expected all {drawing.drawings} drawings with the seed {drawing.seed}, got "
                f"{n_drawn[drawing.seed]}: docs that are left out, because they are hard or not "
                "annotated yet, would change the result"
            )
    return drawings


def sample_of(drawings: Sequence[Drawing]) -> Sample:
    """Make the sample of all drawings: a doc that was drawn twice is there twice."""
    probs = [drawing.probability for drawing in drawings]
    times = [drawing.times for drawing in drawings]
    return Sample(numpy.repeat(probs, times), drawings[0].docs)


def conformal_weights(drawings: Sequence[Drawing]) -> Floats1d:
    """The weights of drawn docs for `conformal.threshold`: at most 1 for each time that a doc was
    drawn, as q_i is at least UNIFORM / D. Shape: (docs,)

    times_i (UNIFORM / D) / q_i
    """
    weights = [drawing.times * UNIFORM / drawing.docs / drawing.probability for drawing in drawings]
    return numpy.asarray(weights)


def check_not_suggested(doc: Doc) -> None:
    """Check that a doc may have been drawn at random.

    RAISES (ValueError): If `suggest` chose it.
    """
    if CHOSEN_BY in doc.user_data:
        raise ValueError(
            "expected docs that were drawn at random, got docs that `suggest` chose: they are the "
            "hardest ones, and say nothing of the others"
        )


def check_pipeline(ner: CostSensitiveNER, annotated: Sequence[Doc], drawing: Drawing) -> None:
    """Check that docs were drawn for this pipeline.

    RAISES (ValueError): If they were drawn for another one, or it was trained on them after they
        were drawn.
    """
    if drawing.pipeline == digest_component(ner):
        return
    trained_on = set(ner.trained_on.tolist())
    n_known = sum(is_known_doc(trained_on, doc) for doc in annotated)
    if 2 * n_known > len(annotated):
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
        if not doc.to_array("ENT_IOB").all():  # 0: the tag is missing
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
    """The digest of what a component was trained on, and of how it predicts. Weights aren't part of
    it. Another model is noticed as it expects another number of entities: see `ROUNDING`."""
    settings = {name: ner.cfg[name] for name in ("decoding", "temperature")}
    parts = (list(ner.labels), ner.trained_on.tolist(), settings)
    return digest(*parts)[:DIGITS_OF_DIGEST]


def add_text(digest_of_texts: str, doc: Doc) -> str:
    """The digest of several texts and the text of a doc after them."""
    return digest(digest_of_texts, doc.text)[:DIGITS_OF_DIGEST]


def is_same_number(number: float, other: float) -> bool:
    """Whether two expected numbers of entities differ by rounding alone."""
    return abs(number - other) <= ROUNDING * max(number, other, 1.0)
