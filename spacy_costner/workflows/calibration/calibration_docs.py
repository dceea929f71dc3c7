"""Check calibration docs and exclude docs that can't support a guarantee."""

from collections.abc import Iterable, Mapping, Sequence

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Floats1d, Ints1d

from ...pipeline.component import CostSensitiveNER
from ...pipeline.guaranteed_sets import group_of
from ..corpora import corpus_path
from ..evaluation.predictions import sources_of_settings
from ..evaluation.recurrence import KnownText, is_same_path, units_of_docs
from ..evaluation.valid_data import is_fully_annotated
from ..sampling.drawing import Drawing, check_annotated, check_drawn_by, read_drawings

WITHOUT_ENTITIES = "docs without entities"
"""The kind of docs that don't count towards a miss rate. They count towards a false alarm rate."""

SHORT_DOC_TOKENS = 5
"""Docs with fewer tokens are considered short. Short docs, such as numbers and headings, often
match training docs by chance."""


def note_earlier_uses(nlp: Language, source: str) -> list[str]:
    """Report earlier uses of the calibration docs that may invalidate a guarantee: model selection,
    calibration or tuning. Docs are identified by their path.

    nlp (Language): The pipeline. Its config and meta contain the paths of the docs that were used.
    source (str): The path of the calibration docs.
    RETURNS (list[str]): One sentence for each earlier use.
    """
    dev_path = corpus_path(nlp.config.interpolate(), "dev_corpus")
    paths_of_use = {
        "are the development docs of training": [] if dev_path is None else [dev_path],
        "were used to calibrate or tune": sources_of_settings(nlp),
    }
    notes = []
    for use, paths in paths_of_use.items():
        if any(is_same_path(path, source) for path in paths):
            notes.append(f"{source} {use}, and may be too easy.")
    return notes


def check_drawn(nlp: Language, ner: CostSensitiveNER, docs: Sequence[Doc]) -> int:
    """Check that docs were drawn for a component, that no drawn doc is missing, and that all docs
    are annotated.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component of `nlp` that the docs must be drawn for.
    docs (Sequence[Doc]): The annotated docs.
    RETURNS (int): The number of drawings.
    RAISES (ValueError): If the docs were drawn for another pipeline, or if a doc is missing or
        isn't fully annotated.
    """
    check_annotated(docs)
    # `read_drawings` raises an error if docs are missing or were drawn for different pipelines, so
    # it's enough to check the pipeline of the first drawing.
    drawings = read_drawings(docs)
    check_drawn_by(nlp, ner, docs, drawings[0])
    return sum(drawing.times for drawing in drawings)


def check_not_drawn(docs: Iterable[Doc]) -> None:
    """Check that docs were not drawn with unequal probabilities.

    docs (Iterable[Doc]): The annotated docs.
    RAISES (ValueError): If any doc was drawn by `draw`.
    """
    for doc in docs:
        if Drawing.is_in(doc.user_data):
            raise ValueError(
                "expected docs that are like new data, got docs that `draw` drew, which favours "
                "docs that the model is uncertain about: set `drawn`"
            )


def draw_uniformly(weights: Floats1d) -> Ints1d:
    """Select a uniform sample from docs that were drawn with unequal probabilities, by rejection
    sampling: each text is equally likely to be selected. The shift test requires a uniform sample.

    weights (Floats1d): The weight of each drawn doc: see `conformal_weights`. Shape: (D,)
    RETURNS (Ints1d): The indices of the selected docs, at least one. Shape: (selected docs,)
    """
    # Select each doc with probability weight / largest weight. Random numbers are below 1, so the
    # doc with the largest weight is always selected.
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
    """Exclude docs that can't support a guarantee:

    - "training docs": docs with known text
    - "copies of other docs": docs with the same text as an earlier doc, if the docs contain many
      copies: see `units_of_docs`
    - "docs with missing tags": docs with unannotated tokens, or without tokens
    - "docs without KEY": docs without a value for the key `by_group`

    ner (CostSensitiveNER): The component whose entities are guaranteed.
    known (KnownText): The text that the component was trained on.
    examples (Sequence[Example]): The annotated docs.
    by_group (str | None): The key of `doc.user_data` that stores the group of a doc.
    keep_all (bool): Whether to keep training docs and copies. Drawn docs are a random sample only
        if all of them are kept.
    RETURNS (tuple[list[Example], dict[str, int]]): The remaining docs, with the component's
        entities in `doc.ents`, and the number of docs of each kind. The counts include
        `WITHOUT_ENTITIES`, although these docs are kept.
    RAISES (ValueError): If spans of the component overlap: see `Annotation.as_entities`.
    """
    without_group = f"docs without {by_group!r}"
    kinds = [
        "training docs",
        "copies of other docs",
        "docs with missing tags",
        WITHOUT_ENTITIES,
    ]
    if by_group is not None:
        kinds.append(without_group)
    counts = dict.fromkeys(kinds, 0)
    docs = [eg.reference for eg in examples]
    is_by_chance = known.explains(known.find_in(docs))
    seen_units: set[int] = set()  # the units of the remaining docs
    used_examples = []
    for example, unit in zip(examples, units_of_docs(docs).tolist()):
        eg = ner.annotation.as_entities(example, ner.own_labels)
        doc = eg.reference
        # A short text may match a training text by chance.
        is_training_doc = known.knows(doc) and not (is_by_chance and len(doc) < SHORT_DOC_TOKENS)
        is_annotated = len(doc) > 0 and is_fully_annotated(doc)
        if is_training_doc and not keep_all:
            counts["training docs"] += 1
        elif unit in seen_units and not keep_all:
            counts["copies of other docs"] += 1
        elif not is_annotated:
            counts["docs with missing tags"] += 1
        elif group_of(doc, by_group) is None:  # never true if `by_group` is None
            counts[without_group] += 1
        else:
            seen_units.add(unit)
            used_examples.append(eg)
            if not doc.ents:
                counts[WITHOUT_ENTITIES] += 1
    return used_examples, counts


def have_entities(used_examples: Sequence[Example], counts: Mapping[str, int]) -> bool:
    """Check whether any of the docs returned by `leave_out_unusable` has an entity.

    used_examples (Sequence[Example]): The remaining docs: see `leave_out_unusable`.
    counts (Mapping[str, int]): The number of docs of each kind: see `leave_out_unusable`.
    RETURNS (bool): Whether any doc has an entity.
    """
    return len(used_examples) > counts[WITHOUT_ENTITIES]


def check_have_entities(used_examples: Sequence[Example], counts: Mapping[str, int]) -> None:
    """Raise an error if none of the docs returned by `leave_out_unusable` has an entity.

    used_examples (Sequence[Example]): The remaining docs: see `leave_out_unusable`.
    counts (Mapping[str, int]): The number of docs of each kind: see `leave_out_unusable`.
    RAISES (ValueError): If no doc has an entity. The message lists the counts.
    """
    if not have_entities(used_examples, counts):
        n_of_kinds = [f"{n} {kind}" for kind, n in counts.items() if n]
        got = ", ".join(n_of_kinds) or "none"
        raise ValueError(
            f"expected annotated docs with entities that training hasn't seen, got {got}"
        )
