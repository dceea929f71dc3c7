"""Create the training corpus of a student from the predictions of its teachers."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from spacy.tokens import Doc, Span
from spacy.util import minibatch

from ...annotation.iob import MISSING
from ...annotation.spans import missing_spans
from ...pipeline.scorers import Entity
from ...training.targets import WEIGHT
from .incomplete_answers import MIN_COUNT, leave_out_unknown
from .teachers import DOCS_PER_FILE, entities_of, read_scores, save_docs


class EntityCounts(NamedTuple):
    """The number of predicted entities in an answer."""

    n_sure: int  # entities that are kept
    n_missing: int  # entities replaced with missing annotation because of low confidence


class CorpusCounts(NamedTuple):
    """The counts of a corpus of answers."""

    n_docs: int
    n_entities: int  # entities to train on
    n_missing: int  # entities replaced with missing annotation because of low confidence
    n_unknown: int  # tokens with annotation set to missing because the teacher is incomplete


def save_corpus(
    folder: Path, docs: Iterable[Doc], min_confidence: float, outside_words: set[str] | None = None
) -> CorpusCounts:
    """Save the answers of teachers as a training corpus.

    folder (Path): The folder of the corpus. The corpus of an earlier run is removed.
    docs (Iterable[Doc]): The answers. Their entities are modified in place.
    min_confidence (float): The minimum confidence. Annotation with a lower confidence is set to
        missing.
    outside_words (set[str] | None): The words that are outside of entities if answers are
        incomplete. None if the teachers find all entities.
    RETURNS (CorpusCounts): The number of docs and entities, and the number of entities and tokens
        with annotation set to missing.
    RAISES (ValueError): If there are no answers, if `outside_words` is empty, or if
        `min_confidence` is set and all confidences are 1.
    """
    remove_corpus(folder)
    n_docs = 0
    n_entities = 0
    n_missing = 0
    n_unknown = 0
    has_confidences = False
    for i, batch in enumerate(minibatch(docs, DOCS_PER_FILE)):
        for doc in batch:
            if any(score < 1 for score in read_scores(doc).values()):
                has_confidences = True
            if outside_words is not None:
                n_unknown += leave_out_unknown(doc, outside_words)
            counts = leave_out_uncertain(doc, min_confidence)
            n_docs += 1
            n_entities += counts.n_sure
            n_missing += counts.n_missing
        save_docs(folder / f"{i:06}.spacy", batch)
    if not n_docs:
        raise ValueError("expected text for the teacher to annotate, got no docs")
    if outside_words is not None and not outside_words:
        expected = f"expected lowercase words that occur in the texts at least {MIN_COUNT} times"
        raise ValueError(f"incomplete: {expected}, got none: all tokens would be unknown")
    if min_confidence and not has_confidences:
        raise ValueError(
            "min_confidence: expected a teacher with confidences, such as a cost_sensitive_ner, "
            "several teachers, or spans with a score in JSONL, got none below 1"
        )
    return CorpusCounts(n_docs, n_entities, n_missing, n_unknown)


def remove_corpus(folder: Path) -> None:
    """Remove the corpus of an earlier run from its folder."""
    for old_file in folder.glob("*.spacy"):
        old_file.unlink()


def save_gold(folder: Path, docs: Iterable[Doc], weight: float) -> None:
    """Add annotated docs to a training corpus. `weight` is the weight of each doc in training,
    relative to an answer of the teachers."""
    gold = list(docs)
    for doc in gold:
        doc.user_data[WEIGHT] = weight
    save_docs(folder / "gold.spacy", gold)


def leave_out_uncertain(doc: Doc, min_confidence: float) -> EntityCounts:
    """Replace uncertain annotation with missing annotation, so that the student doesn't learn from
    it. The doc is modified in place.

    Annotation is set to missing for the tokens of predicted entities with a confidence below
    `min_confidence`, and of likely entities that are not predicted, if the confidence in their
    absence is below `min_confidence`. The tokens of entities that are kept are not changed.

    RETURNS (EntityCounts): The numbers of predicted entities that are kept and removed.
    """
    scores = read_scores(doc)
    predicted = entities_of(doc)
    sure: list[Entity] = []
    unsure: list[Entity] = []
    for entity in predicted:
        if scores.get(entity, 1.0) >= min_confidence:
            sure.append(entity)
        else:
            unsure.append(entity)
    n_missing = len(unsure)
    for entity, score in scores.items():
        if entity not in predicted and score > 1 - min_confidence:
            unsure.append(entity)

    missing = doc.to_array("ENT_IOB") == MISSING  # whether the annotation of each token is missing
    for begin, end, _ in unsure:
        missing[begin:end] = True
    for begin, end, _ in sure:
        missing[begin:end] = False
    doc.set_ents([Span(doc, *entity) for entity in sure], missing=missing_spans(doc, missing))
    return EntityCounts(n_sure=len(sure), n_missing=n_missing)
