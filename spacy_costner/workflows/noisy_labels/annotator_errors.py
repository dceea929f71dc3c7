"""Describe the errors of annotators: how they annotate entities of each label, and how they score
on checked texts."""

from collections.abc import Sequence
from typing import NamedTuple

from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Floats2d, Floats3d

from ...pipeline.scorers import Entity
from .answered_texts import AnsweredText, AnsweredTexts, with_entities
from .student_evaluation import EntityScores, score_ents


class AnnotatorErrors(NamedTuple):
    """The errors of an annotator.

    name (str): The annotator's file or pipeline.
    n_texts (int): The number of texts annotated by the annotator.
    n_checked (int): The number of these texts that were checked.
    n_repeated (int): The number of answers that are ignored because there is an earlier answer for
        the same text.
    precision (float | None), recall (float | None), f_score (float | None): The scores of the
        answers on checked texts. None if the annotator hasn't annotated any checked tokens.
    found (dict[str, dict[str, float]]): For each gold label, the share of entities whose first
        token is in one of the annotator's entities, by the annotator's label.
    missed (dict[str, float]): For each gold label, the share of entities whose first token isn't in
        any of the annotator's entities.
    false_alarms (float): The number of the annotator's entities that start outside gold entities,
        per 1,000 tokens outside gold entities.
    """

    name: str
    n_texts: int
    n_checked: int
    n_repeated: int
    precision: float | None
    recall: float | None
    f_score: float | None
    found: dict[str, dict[str, float]]
    missed: dict[str, float]
    false_alarms: float


def describe_errors(texts: AnsweredTexts, counts: Sequence[Floats3d]) -> list[AnnotatorErrors]:
    """Describe the errors of each annotator.

    texts (AnsweredTexts): The texts with their answers.
    counts (Sequence[Floats3d]): For each annotator, the expected number of tokens by state, true
        tag and observed tag: see `training.noise_channel`. Shape: (S, C, C)
    RETURNS (list[AnnotatorErrors]): The errors of each annotator.
    """
    errors: list[AnnotatorErrors] = []
    for number, name in enumerate(texts.annotators):
        n_checked = sum(number in text.answers for text in texts.checked)
        n_unchecked = sum(number in text.answers for text in texts.unchecked)
        scores = score_answers(texts, number)
        precision, recall, f_score = (None, None, None) if scores is None else scores
        # Sum over the states, i.e. the annotator's tag of the previous token. Shape: (C, C)
        counts_of_tags = counts[number].sum(axis=0)
        found, missed = find_shares(counts_of_tags, texts.labels)
        n_outside = max(counts_of_tags[0].sum(), 1.0)
        begins = counts_of_tags[0, 1::2].sum()
        errors.append(
            AnnotatorErrors(
                name=name,
                n_texts=n_checked + n_unchecked,
                n_checked=n_checked,
                n_repeated=texts.n_repeated[number],
                precision=precision,
                recall=recall,
                f_score=f_score,
                found=found,
                missed=missed,
                false_alarms=1000 * float(begins / n_outside),
            )
        )
    return errors


def find_shares(
    counts: Floats2d, labels: Sequence[str]
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Compute how often an annotator finds or misses the first token of an entity, by label.

    counts (Floats2d): The number of tokens by true tag and observed tag, in IOB2. Shape: (C, C)
    labels (Sequence[str]): The labels.
    RETURNS (tuple[dict[str, dict[str, float]], dict[str, float]]): The fields `found` and `missed`
        of `AnnotatorErrors`. Labels without entities are omitted.
    """
    found: dict[str, dict[str, float]] = {}
    missed: dict[str, float] = {}
    for number, label in enumerate(labels):
        counts_of_label = counts[1 + 2 * number]  # at B-label
        n_entities = counts_of_label.sum()
        if n_entities <= 0:
            continue
        missed[label] = float(counts_of_label[0] / n_entities)
        shares: dict[str, float] = {}
        for other_number, other in enumerate(labels):
            # B-other and I-other
            n = counts_of_label[1 + 2 * other_number : 3 + 2 * other_number].sum()
            shares[other] = float(n / n_entities)
        found[label] = shares
    return found, missed


def score_answers(texts: AnsweredTexts, number: int) -> EntityScores | None:
    """Score the answers of the annotator with this index on the checked texts. Tokens that it
    didn't annotate don't count. Returns None if no token counts."""
    examples: list[Example] = []
    for text in texts.checked:
        if number in text.answers:
            is_missing = text.observed[number] < 0
            answer = with_entities(text.doc, texts.entities(text, number), is_missing)
            examples.append(Example(answer, gold_known_to(texts, text, number)))
    if not any(eg.reference.has_annotation("ENT_IOB") for eg in examples):
        return None
    return score_ents([eg.predicted for eg in examples], examples)


def gold_known_to(texts: AnsweredTexts, text: AnsweredText, number: int) -> Doc:
    """Copy a checked text with the gold annotation of the tokens that the annotator with this index
    annotated. All other tokens are missing annotation, and so are all tokens of entities that
    contain them."""
    is_missing = (text.true_tags < 0) | (text.observed[number] < 0)
    entities: list[Entity] = []
    for entity in texts.true_entities(text):
        if text.is_annotated(number, entity):
            entities.append(entity)
        else:
            begin, end, _ = entity
            is_missing[begin:end] = True
    return with_entities(text.doc, entities, is_missing)
