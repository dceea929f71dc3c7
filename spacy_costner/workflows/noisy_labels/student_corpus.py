"""The training corpus of a student, made from the predictions of its teachers."""

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
    """The predicted entities of an answer."""

    n_sure: int  # those that stay
    n_missing: int  # those that became missing annotation, as their confidence is too low


class CorpusCounts(NamedTuple):
    """The counts of a corpus of answers."""

    n_docs: int
    n_entities: int  # those to learn from
    n_missing: int  # those that became missing annotation, as their confidence is too low
    n_unknown: int  # tokens that became missing annotation, as the teacher is incomplete


def save_corpus(
    folder: Path, docs: Iterable[Doc], min_confidence: float, outside_words: set[str] | None = None
) -> CorpusCounts:
    """Save the answers of teachers as a training corpus.

    folder (Path): The folder of the corpus. The corpus of an earlier run in it is removed.
    docs (Iterable[Doc]): The answers.
    min_confidence (float): Annotation with a lower confidence becomes missing.
    outside_words (set[str] | None): The words that are outside of entities, for incomplete answers.
        None: the teachers find all entities.
    RETURNS (CorpusCounts): The numbers of docs, of entities, of entities that are left out as
        uncertain, and of tokens that are left out because incomplete answers don't show whether
        they are outside.
    RAISES (ValueError): If there are no answers; if `outside_words` is empty, so that nothing would
        be outside; or if there is a `min_confidence`, and all confidences are 1.
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
    """Add annotated docs to a training corpus. In training each counts `weight` times as much as an
    answer of the teachers."""
    gold = list(docs)
    for doc in gold:
        doc.user_data[WEIGHT] = weight
    save_docs(folder / "gold.spacy", gold)


def leave_out_uncertain(doc: Doc, min_confidence: float) -> EntityCounts:
    """Replace the uncertain annotation of a teacher with missing annotation, from which a student
    learns nothing. The doc is changed.

    The annotation of a token is missing in two cases. It is in a predicted entity whose confidence
    is below `min_confidence`. Or it is in a likely entity that the teacher doesn't predict, and
    whose absence has a confidence below `min_confidence`. Tokens of the entities that stay keep
    their annotation.

    RETURNS (EntityCounts): The numbers of predicted entities that stay, and that don't.
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

    missing = doc.to_array("ENT_IOB") == MISSING  # whether the annotation of each token is
    for begin, end, _ in unsure:
        missing[begin:end] = True
    for begin, end, _ in sure:
        missing[begin:end] = False
    doc.set_ents([Span(doc, *entity) for entity in sure], missing=missing_spans(doc, missing))
    return EntityCounts(n_sure=len(sure), n_missing=n_missing)
