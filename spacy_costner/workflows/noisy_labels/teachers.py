"""Annotate texts with teachers, and read predictions from other sources.

The prediction for a text contains entities and, in `doc.spans`, the confidence of each likely
entity. With soft targets, it also contains the teachers' distribution over tags.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from spacy.util import load_model, minibatch
from spacy.vocab import Vocab

from ...annotation.tokens import first_words
from ...files.saving import save_file
from ...pipeline.component import CostSensitiveNER
from ...pipeline.confidence import Confidence, is_of_predicted
from ...pipeline.prediction import ALTERNATIVES
from ...pipeline.scorers import Entity, as_entity
from ...progress import progress
from ...readers import DEFAULTS, ReadOptions, read_docs, read_texts
from ...readers.context import SpanScores
from ...readers.sentences import copy_without_annotation
from ...training import soft_targets
from ..components import check_ents
from ..config.loading import check_is_pipeline
from ..result_cache import fingerprint

SPANS_KEY = "spacy_costner.answers"
"""The key in `doc.spans` for the likely entities of an answer and their confidence."""

MIN_PROB = 0.05
"""The minimum probability of likely entities that a teacher doesn't predict."""

DOCS_PER_FILE = 250
"""The number of docs in each file of answers."""


def load_teacher(name: str | Path) -> Language:
    """Load a teacher. Its cost-sensitive components are set up to write the probability of each
    predicted and each likely entity to the docs: see `MIN_PROB`.

    RAISES (ValueError): If one of these components writes to `doc.spans` instead of `doc.ents`.
    """
    check_is_pipeline(name)
    nlp = load_model(name)
    for _, pipe in nlp.pipeline:
        if isinstance(pipe, CostSensitiveNER):
            check_ents("distill", pipe)
            pipe.set_confidence(Confidence(alternatives=MIN_PROB))
    return nlp


def save_answers(
    teachers: Sequence[Language],
    vocab: Vocab,
    raw_paths: Sequence[Path],
    output_path: Path,
    *,
    soft: bool = False,
    reading: ReadOptions = DEFAULTS,
) -> Iterator[Doc]:
    """Annotate texts with teachers, and save their answers in files of `DOCS_PER_FILE` docs. The
    name of the folder contains a fingerprint of the teachers and texts. Files that were saved by an
    earlier run are reused, so their texts are not annotated again.

    teachers (Sequence[Language]): The teachers. The first one tokenizes the texts.
    vocab (Vocab): The vocab of the answers.
    raw_paths (Sequence[Path]): The text files.
    output_path (Path): The folder in which the folder of answers is created.
    soft (bool): Whether to add soft targets to the answers.
    reading (ReadOptions): The options for reading the texts.
    YIELDS (Doc): The answers.
    RAISES (ValueError): If soft targets are requested and a teacher can't compute them, or the
        teachers have different labels; if a teacher merges or splits tokens; or if a text can't be
        read.
    """
    if soft:
        label_sets = {frozenset(chain_of(teacher).labels) for teacher in teachers}
        if len(label_sets) > 1:
            got = [sorted(labels) for labels in label_sets]
            raise ValueError(f"soft: expected teachers with the same labels, got {got}")
    teacher_paths = [str(teacher.path) for teacher in teachers]
    text_paths = [str(path) for path in raw_paths]
    # The fingerprint also depends on the contents of the files at these paths.
    key = fingerprint(teacher_paths, text_paths, soft, *reading.settings().items())
    folder = output_path / f"answers-{key[:12]}"
    texts = chain.from_iterable(read_texts(teachers[0], path, reading) for path in raw_paths)
    bar = progress(texts, desc="teacher", unit="doc")
    for i, docs in enumerate(minibatch(bar, DOCS_PER_FILE)):
        path = folder / f"{i:06}.spacy"
        if not path.exists():
            save_docs(path, ask_teachers(teachers, docs, soft=soft))
        yield from DocBin().from_disk(path).get_docs(vocab)


def chain_of(nlp: Language) -> CostSensitiveNER:
    """Return the cost_sensitive_ner component of a teacher. It can compute a distribution over tag
    paths.

    RAISES (ValueError): If the pipeline doesn't have exactly one such component.
    """
    pipes = [pipe for _, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)]
    if len(pipes) != 1:
        raise ValueError(
            "soft: expected teachers with one cost_sensitive_ner, whose distribution is known, got "
            f"the pipeline {nlp.pipe_names}"
        )
    return pipes[0]


def ask_teachers(
    teachers: Sequence[Language], docs: Sequence[Doc], *, soft: bool = False
) -> list[Doc]:
    """Annotate docs with teachers. Existing annotation in the docs is ignored.

    teachers (Sequence[Language]): The teachers.
    docs (Sequence[Doc]): The docs. They are not modified.
    soft (bool): Whether to compute soft targets: the mean distribution of all teachers.
    RETURNS (list[Doc]): The answers. Their entities are the predictions of a single teacher or,
        with several teachers, all entities with a mean probability above 0.5. Use `read_scores` to
        read the probabilities.
    RAISES (ValueError): If a teacher merges or splits tokens.
    """
    docs_of_teachers: list[list[Doc]] = []  # the predicted docs of each teacher
    for nlp in teachers:
        # Keep the sentence starts and the metadata, as `spacy apply` does.
        copies = [copy_without_annotation(doc, nlp.vocab, sentences=True) for doc in docs]
        predicted = list(nlp.pipe(copies))
        check_tokens(docs, predicted)
        docs_of_teachers.append(predicted)

    answers: list[Doc] = []
    for doc, *predictions in zip(docs, *docs_of_teachers):
        scores = mean_scores(predictions)
        ents = entities_of(predictions[0]) if len(teachers) == 1 else majority(scores)
        answer = copy_without_annotation(doc, sentences=True)
        answer.set_ents([Span(answer, *entity) for entity in ents])
        write_scores(answer, scores)
        answers.append(answer)
    if soft:
        write_soft_targets(answers, teachers, docs_of_teachers)
    return answers


def write_soft_targets(
    answers: Sequence[Doc], teachers: Sequence[Language], docs_of_teachers: Sequence[Sequence[Doc]]
) -> None:
    """Write the teachers' mean distribution to the answers.

    answers (Sequence[Doc]): The answers. They are modified.
    teachers (Sequence[Language]): The teachers.
    docs_of_teachers (Sequence[Sequence[Doc]]): The predicted docs of each teacher.
    """
    targets_of_teachers: list[Iterator[dict[str, Any]]] = []
    for nlp, docs in zip(teachers, docs_of_teachers):
        posterior = chain_of(nlp).posterior(docs)
        # A doc is one sequence, or several if the component splits docs into sentences.
        targets_of_docs = soft_targets.expectations(
            posterior.potentials, posterior.tags, posterior.doc_of_sequence
        )
        targets_of_teachers.append(targets_of_docs)
    for answer, *targets in zip(answers, *targets_of_teachers):
        answer.user_data[soft_targets.SOFT_TARGETS_KEY] = soft_targets.mean(targets)


def check_tokens(docs: Sequence[Doc], predicted: Sequence[Doc]) -> None:
    """Check that a teacher didn't change the tokens of docs, because its entities are copied by
    token index.

    RAISES (ValueError): If the teacher merged or split tokens.
    """
    for doc, predicted_doc in zip(docs, predicted):
        if not numpy.array_equal(doc.to_array("ORTH"), predicted_doc.to_array("ORTH")):
            raise ValueError(
                f"teacher: expected one that keeps all {len(doc)} tokens of {first_words(doc)}, "
                f"got {len(predicted_doc)}: leave out components such as merge_entities"
            )


def entities_of(doc: Doc) -> list[Entity]:
    """Return the entities of a doc."""
    return [as_entity(ent) for ent in doc.ents]


def mean_scores(docs: Sequence[Doc]) -> dict[Entity, float]:
    """Compute the mean confidence of each entity over all teachers. If a teacher predicts an entity
    without a score, its confidence is 1. If the entity isn't likely according to a teacher, its
    confidence is 0.

    docs (Sequence[Doc]): The predictions of each teacher for the same doc.
    RETURNS (dict[Entity, float]): The mean confidence by entity.
    """
    means: dict[Entity, float] = {}
    for doc in docs:
        for entity, score in scores_of_teacher(doc).items():
            means[entity] = means.get(entity, 0.0) + score / len(docs)
    return means


def scores_of_teacher(doc: Doc) -> dict[Entity, float]:
    """Return the confidence of the entities in a teacher's prediction, and of the alternatives of
    its cost_sensitive_ner. What later components change is final: entities that they remove have no
    confidence, and neither do alternatives that overlap entities of other components."""
    entities = entities_of(doc)
    scores = dict.fromkeys(entities, 1.0)
    predicted: dict[Any, set[Entity]] = {}  # the entities with a score, by component
    groups_of_alternatives: list[SpanGroup] = []
    for key, group in doc.spans.items():
        if is_of_predicted(group):
            scores_of_group = scores_in(group)
            predicted[group.attrs.get("component")] = set(scores_of_group)
            for entity in entities:
                scores[entity] = scores_of_group.get(entity, scores[entity])
        if key == SPANS_KEY or group.attrs.get("set") == ALTERNATIVES:
            groups_of_alternatives.append(group)

    for group in groups_of_alternatives:
        own = predicted.get(group.attrs.get("component"), set())
        others = [entity for entity in entities if entity not in own]
        for entity, score in scores_in(group).items():
            if not any(overlap(entity, other) for other in others):
                scores.setdefault(entity, score)
    return scores


def read_scores(doc: Doc) -> dict[Entity, float]:
    """Read the confidence of likely entities that `write_scores` wrote to an answer."""
    return scores_in(doc.spans[SPANS_KEY]) if SPANS_KEY in doc.spans else {}


def scores_in(group: SpanGroup) -> dict[Entity, float]:
    """Return the scores in the `attrs` of a span group, or an empty dict if it has none. Groups
    with scores are written by spaCy's spancat, by cost_sensitive_ner and by `write_scores`."""
    scores: dict[Entity, float] = {}
    for span, score in zip(group, group.attrs.get("scores", ())):
        scores[as_entity(span)] = float(score)
    return scores


def overlap(entity: Entity, other: Entity) -> bool:
    """Check whether two entities have a token in common."""
    return entity[0] < other[1] and other[0] < entity[1]


def write_scores(doc: Doc, scores: dict[Entity, float]) -> None:
    """Write the confidence of likely entities, which may overlap, to a doc. Use `read_scores` to
    read it."""
    spans = [Span(doc, *entity) for entity in scores]
    attrs = {"scores": list(scores.values())}
    doc.spans[SPANS_KEY] = SpanGroup(doc, name=SPANS_KEY, attrs=attrs, spans=spans)


def majority(scores: dict[Entity, float]) -> list[Entity]:
    """Return the entities with a probability above 0.5. If several of them overlap, only the most
    probable is returned. This is rare: the probabilities of all entities that contain the same
    token sum to at most 1, except for rounding and for votes of different annotators.

    scores (dict[Entity, float]): The probability of each likely entity.
    RETURNS (list[Entity]): The entities, the most probable first.
    """
    chosen_entities: list[Entity] = []
    most_probable_first = sorted(scores, key=lambda entity: -scores[entity])
    for entity in most_probable_first:
        # Two overlapping entities with a probability of 0.5 each may exceed it after rounding. In a
        # vote, they may have different voters if annotation is missing.
        is_free = not any(overlap(entity, chosen) for chosen in chosen_entities)
        if scores[entity] > 0.5 and is_free:
            chosen_entities.append(entity)
    return chosen_entities


def read_answers(nlp: Language, path: Path, reading: ReadOptions = DEFAULTS) -> Iterator[Doc]:
    """Read answers from a corpus, which may come from any source. In texts and spans, a span may
    have a score from 0 to 1, its confidence. Entities without a score have the confidence 1.

    nlp (Language): The pipeline that tokenizes the texts.
    path (Path): The corpus, usually a JSONL file.
    reading (ReadOptions): The options for reading the corpus.
    YIELDS (Doc): The answers. Rejected and ignored texts and empty docs are skipped. A warning is
        issued for each problem: see `read_docs`.
    RAISES (CorpusError): If the corpus can't be read, or a score isn't a number from 0 to 1.
    """
    scores_of_docs = SpanScores()
    for doc in read_docs(nlp, path, reading, scores=scores_of_docs):
        scores = dict.fromkeys(entities_of(doc), 1.0)
        scores.update(scores_of_docs.get(doc, {}))
        write_scores(doc, scores)
        yield doc


def save_docs(path: Path, docs: Iterable[Doc]) -> None:
    """Save docs, including the soft targets and weights in their user data."""
    save_file(path, DocBin(docs=docs, store_user_data=True).to_disk)
