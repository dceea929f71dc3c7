"""Check calibration docs, and leave out docs that a guarantee can't be based on."""

from collections.abc import Iterable, Mapping, Sequence

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Floats1d, Ints1d

from ...pipeline.component import CostSensitiveNER
from ...pipeline.guaranteed_sets import group_of
from ..corpora import corpus_path
from ..evaluation.recurrence import KnownText, is_same_path, units_of_docs
from ..evaluation.valid_data import is_fully_annotated
from ..sampling.drawing import Drawing, check_annotated, check_drawn_by, read_drawings

SHORT_DOC_TOKENS = 5
"""Docs with fewer tokens are short. Short docs, such as numbers and headings, are often equal to
training docs by chance."""


def note_earlier_uses(nlp: Language, source: str) -> list[str]:
    """Note if the calibration docs were used before, so that a guarantee may not hold: to choose
    the model, or to calibrate or tune it.

    nlp (Language): The pipeline, whose config and meta have the paths of the docs that were used.
    source (str): The path of the calibration docs.
    RETURNS (list[str]): A sentence for each use. Docs are recognised by their path.
    """
    # `calibrate` and `tune` record here on which docs the scores in the meta were measured.
    measured_on = nlp.meta.get("performance", {}).get("measured_on", {})
    path_of_use = {
        "are the development docs of training": corpus_path(nlp.config.interpolate(), "dev_corpus"),
        "were used to calibrate or tune": measured_on.get("source"),
    }
    notes = []
    for use, path in path_of_use.items():
        if path is not None and is_same_path(path, source):
            notes.append(f"{source} {use}, and may be too easy.")
    return notes


def check_drawn(nlp: Language, ner: CostSensitiveNER, docs: Sequence[Doc]) -> int:
    """Check that docs were drawn for a component, that no drawn doc is missing, and that all of
    them are annotated.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component of `nlp` that the docs have to be drawn for.
    docs (Sequence[Doc]): The annotated docs.
    RETURNS (int): The number of drawings.
    RAISES (ValueError): If the docs were drawn for another pipeline, or one is missing or isn't
        fully annotated.
    """
    check_annotated(docs)
    # `read_drawings` refuses docs if some are missing, or if they were drawn for several pipelines.
    # So the pipeline of the first drawing is the pipeline of all drawings.
    drawings = read_drawings(docs)
    check_drawn_by(nlp, ner, docs, drawings[0])
    return sum(drawing.times for drawing in drawings)


def check_not_drawn(docs: Iterable[Doc]) -> None:
    """Check that docs were not drawn with unequal probabilities.

    docs (Iterable[Doc]): The annotated docs.
    RAISES (ValueError): If `draw` drew one of them.
    """
    for doc in docs:
        if Drawing.is_in(doc.user_data):
            raise ValueError(
                "expected docs that are like new data, got docs that `draw` drew, which favours "
                "docs that the model is uncertain about: set `drawn`"
            )


def draw_uniformly(weights: Floats1d) -> Ints1d:
    """Choose some of the docs that were drawn with unequal probabilities, so that each text has the
    same probability in the end. This is rejection sampling. The test for a shift needs such docs.

    weights (Floats1d): The weight of each drawn doc: see `conformal_weights`. Shape: (D,)
    RETURNS (Ints1d): The indices of the chosen docs, at least one. Shape: (chosen docs,)
    """
    # A doc is chosen with the probability weight / largest weight. Random numbers are below 1, so
    # the doc with the largest weight is always chosen.
    random_numbers = numpy.random.default_rng(seed=0).random(len(weights))
    return numpy.flatnonzero(random_numbers * weights.max() < weights)


def leave_out_unusable(
    ner: CostSensitiveNER,
    known: KnownText,
    examples: Sequence[Example],
    by_group: str | None,
    *,
    keep_all: bool = False,
) -> tuple[list[Example], dict[str, int]]:
    """Leave out docs that a guarantee can't be based on:

    - "training docs": docs with known text
    - "copies of other docs": docs with the text of an earlier doc, if the docs are copies of each
      other: see `units_of_docs`
    - "docs with missing tags": docs with unannotated tokens, or without tokens
    - "docs without KEY": docs without a value of the key `by_group`

    ner (CostSensitiveNER): The component whose entities have the guarantee.
    known (KnownText): The text that the component was trained on.
    examples (Sequence[Example]): The annotated docs.
    by_group (str | None): The key of `doc.user_data` whose value is the group of a doc.
    keep_all (bool): Whether to keep training docs and copies. Drawn docs are a random sample only
        if all of them are kept.
    RETURNS (tuple[list[Example], dict[str, int]]): The docs that are kept, with the entities of the
        component in `doc.ents`; and the number of docs of each kind. It also counts "docs without
        entities", which are kept, but don't count in a miss rate.
    RAISES (ValueError): If spans of the component overlap: see `Annotation.as_entities`.
    """
    without_group = f"docs without {by_group!r}"
    kinds = [
        "training docs",
        "copies of other docs",
        "docs with missing tags",
        "docs without entities",
    ]
    if by_group is not None:
        kinds.append(without_group)
    counts = dict.fromkeys(kinds, 0)
    docs = [eg.reference for eg in examples]
    is_by_chance = known.explains(known.find_in(docs))
    seen_units: set[int] = set()  # the units of the docs that are kept
    used_examples = []
    for example, unit in zip(examples, units_of_docs(docs).tolist()):
        eg = ner.annotation.as_entities(example, ner.own_labels)
        doc = eg.reference
        # A short text may be equal to a training text by chance.
        is_training_doc = known.knows(doc) and not (is_by_chance and len(doc) < SHORT_DOC_TOKENS)
        is_annotated = len(doc) > 0 and is_fully_annotated(doc)
        if is_training_doc and not keep_all:
            counts["training docs"] += 1
        elif unit in seen_units and not keep_all:
            counts["copies of other docs"] += 1
        elif not is_annotated:
            counts["docs with missing tags"] += 1
        elif group_of(doc, by_group) is None:  # never, if `by_group` is None
            counts[without_group] += 1
        else:
            seen_units.add(unit)
            used_examples.append(eg)
            if not doc.ents:
                counts["docs without entities"] += 1
    return used_examples, counts


def have_entities(used_examples: Sequence[Example], counts: Mapping[str, int]) -> bool:
    """Whether at least one of the docs that `leave_out_unusable` keeps has an entity.

    used_examples (Sequence[Example]): The docs that are kept: see `leave_out_unusable`.
    counts (Mapping[str, int]): The number of docs of each kind: see `leave_out_unusable`.
    RETURNS (bool): Whether one has.
    """
    return len(used_examples) > counts["docs without entities"]


def check_have_entities(used_examples: Sequence[Example], counts: Mapping[str, int]) -> None:
    """Check that at least one of the docs that `leave_out_unusable` keeps has an entity.

    used_examples (Sequence[Example]): The docs that are kept: see `leave_out_unusable`.
    counts (Mapping[str, int]): The number of docs of each kind: see `leave_out_unusable`.
    RAISES (ValueError): If no doc has an entity. The message has the counts.
    """
    if not have_entities(used_examples, counts):
        n_of_kinds = [f"{n} {kind}" for kind, n in counts.items() if n]
        got = ", ".join(n_of_kinds) or "none"
        raise ValueError(
            f"expected annotated docs with entities that training hasn't seen, got {got}"
        )
