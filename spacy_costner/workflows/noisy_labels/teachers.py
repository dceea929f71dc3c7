"""Predict texts with teachers, and read predictions that anything has made.

The prediction for a text has entities, and in `doc.spans` the confidence of each likely entity.
With soft targets it also has the distribution of the teachers over tags.
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
from ...pipeline.confidence import Confidence
from ...pipeline.scorers import Entity, as_entity
from ...progress import progress
from ...readers import DEFAULTS, ReadOptions, read_tasks, read_texts, task_to_doc
from ...readers.context import Context, CorpusInfo
from ...readers.files import shown
from ...readers.sentences import copy_without_annotation
from ...training import soft_targets
from ..components import check_ents
from ..config.loading import check_is_pipeline
from ..result_cache import fingerprint

SPANS_KEY = "spacy_costner.answers"
"""The key in `doc.spans` of the likely entities of an answer, with their confidence."""

MIN_PROB = 0.05
"""Entities that a teacher doesn't predict are likely from this probability on."""

DOCS_PER_FILE = 250
"""The docs of a file of answers."""


def load_teacher(name: str | Path) -> Language:
    """Load a teacher. Our components in it write the probability of each predicted and each likely
    entity to docs: see `MIN_PROB`.

    RAISES (ValueError): If one of them writes to `doc.spans`, and not to `doc.ents`.
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
    """Have teachers annotate texts, and save their answers: a file for each `DOCS_PER_FILE` docs,
    in a folder with the fingerprint of teachers and text. If an earlier run has saved a file, it is
    read, and the teachers don't run again.

    teachers (Sequence[Language]): The teachers. The first one tokenizes the texts.
    vocab (Vocab): The vocab of the answers.
    raw_paths (Sequence[Path]): The files of the texts.
    output_path (Path): The parent of the folder of answers.
    soft (bool): Whether answers have soft targets.
    reading (ReadOptions): How to read the texts.
    YIELDS (Doc): The answers.
    RAISES (ValueError): If answers are to have soft targets, and a teacher can't compute them, or
        teachers have different labels; if a teacher merges or splits tokens; if a text can't be
        read.
    """
    if soft:
        label_sets = {frozenset(chain_of(teacher).labels) for teacher in teachers}
        if len(label_sets) > 1:
            got = [sorted(labels) for labels in label_sets]
            raise ValueError(f"soft: expected teachers with the same labels, got {got}")
    teacher_paths = [str(teacher.path) for teacher in teachers]
    text_paths = [str(path) for path in raw_paths]
    # The fingerprint also changes with the content of the files under these paths.
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
    """The cost_sensitive_ner of a teacher, which can compute a distribution over paths of tags.

    RAISES (ValueError): If it doesn't have exactly one.
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
    """Have teachers annotate docs, whose own annotation is not used.

    teachers (Sequence[Language]): The teachers.
    docs (Sequence[Doc]): The docs. They don't change.
    soft (bool): Whether to compute soft targets: of several teachers, the mean distribution.
    RETURNS (list[Doc]): The answers. They have the entities that the teacher predicts or, of
        several teachers, those whose mean probability is above one half. `read_scores` reads the
        probabilities.
    RAISES (ValueError): If a teacher merges or splits tokens.
    """
    docs_of_teachers: list[list[Doc]] = []  # the docs as each teacher has predicted them
    for nlp in teachers:
        # With the sentence starts and the metadata, as `spacy apply` gives docs to a pipeline
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
    """Write the mean distribution of teachers to their answers.

    docs_of_teachers (Sequence[Sequence[Doc]]): The docs as each teacher has predicted them.
    """
    targets_of_teachers: list[Iterator[dict[str, Any]]] = []
    for nlp, docs in zip(teachers, docs_of_teachers):
        posterior = chain_of(nlp).posterior(docs)
        # A doc is one sequence or, if the component cuts docs at sentences, several of them.
        targets_of_docs = soft_targets.expectations(
            posterior.potentials, posterior.tags, posterior.doc_of_sequence
        )
        targets_of_teachers.append(targets_of_docs)
    for answer, *targets in zip(answers, *targets_of_teachers):
        answer.user_data[soft_targets.SOFT_TARGETS_KEY] = soft_targets.mean(targets)


def check_tokens(docs: Sequence[Doc], predicted: Sequence[Doc]) -> None:
    """Check that a teacher has kept the tokens of docs: its entities are copied by their tokens.

    RAISES (ValueError): If it has merged or split some.
    """
    for doc, predicted_doc in zip(docs, predicted):
        if not numpy.array_equal(doc.to_array("ORTH"), predicted_doc.to_array("ORTH")):
            raise ValueError(
                f"teacher: expected one that keeps all {len(doc)} tokens of {first_words(doc)}, "
                f"got {len(predicted_doc)}: leave out components such as merge_entities"
            )


def entities_of(doc: Doc) -> list[Entity]:
    """The entities of a doc."""
    return [as_entity(ent) for ent in doc.ents]


def mean_scores(docs: Sequence[Doc]) -> dict[Entity, float]:
    """Compute the mean confidence of each entity over teachers. A teacher that predicts an entity
    without a score gives it the confidence 1. A teacher that doesn't find it likely gives it 0.

    docs (Sequence[Doc]): The same doc as each teacher has predicted it.
    RETURNS (dict[Entity, float]): The mean confidence by entity.
    """
    means: dict[Entity, float] = {}
    for doc in docs:
        scores = dict.fromkeys(entities_of(doc), 1.0)
        scores.update(read_scores(doc))
        for entity, score in scores.items():
            means[entity] = means.get(entity, 0.0) + score / len(docs)
    return means


def read_scores(doc: Doc) -> dict[Entity, float]:
    """Read the confidence of entities: from all groups of spans of a doc that have scores in their
    `attrs`. spaCy's spancat, a cost_sensitive_ner and `write_scores` write such groups."""
    scores: dict[Entity, float] = {}
    for group in doc.spans.values():
        scores_of_group = group.attrs.get("scores")
        if scores_of_group is None:
            continue
        for span, score in zip(group, scores_of_group):
            scores[as_entity(span)] = float(score)
    return scores


def write_scores(doc: Doc, scores: dict[Entity, float]) -> None:
    """Write the confidence of likely entities, which may overlap, to a doc. `read_scores` reads
    it."""
    spans = [Span(doc, *entity) for entity in scores]
    attrs = {"scores": list(scores.values())}
    doc.spans[SPANS_KEY] = SpanGroup(doc, name=SPANS_KEY, attrs=attrs, spans=spans)


def majority(scores: dict[Entity, float]) -> list[Entity]:
    """The entities that are more probable than not. They don't overlap: the probabilities of the
    entities with the same token sum to 1 at most.

    scores (dict[Entity, float]): The probability of each likely entity.
    """
    chosen_entities: list[Entity] = []
    most_probable_first = sorted(scores, key=lambda entity: -scores[entity])
    for entity in most_probable_first:
        begin, end, _ = entity
        # Of two overlapping entities with one half each, rounding may put both above one half.
        is_free = True
        for chosen_begin, chosen_end, _ in chosen_entities:
            if begin < chosen_end and chosen_begin < end:
                is_free = False
        if scores[entity] > 0.5 and is_free:
            chosen_entities.append(entity)
    return chosen_entities


def read_answers(nlp: Language, path: Path) -> Iterator[Doc]:
    """Read answers from JSONL, as anything may have made them: see `readers.tasks`. A span may have
    a score, from 0 to 1.

    RAISES (CorpusError): If the file can't be read, or a score is no such number.
    """
    context = Context(nlp, DEFAULTS, CorpusInfo())
    for place, task in read_tasks(path):
        doc = task_to_doc(task, place, context)
        scores: dict[Entity, float] = {}
        for task_span in task.spans or ():
            score = task_span.extra.get("score", 1.0)
            # A boolean is an int for `isinstance`.
            if type(score) not in (int, float) or not 0 <= score <= 1:
                raise place.refuse(f"score: expected a number from 0 to 1, got {shown(score)}")
            # The entity of the doc doesn't have the whitespace at the ends of the span.
            span_text = task.text[task_span.start : task_span.end]
            start = task_span.start + len(span_text) - len(span_text.lstrip())
            end = start + len(span_text.strip())
            span = doc.char_span(start, end, label=task_span.label)
            # It is None if the span begins or ends within a token. Then `task_to_doc` has made its
            # tokens missing annotation.
            if span is not None:
                scores[as_entity(span)] = float(score)
        write_scores(doc, scores)
        if len(doc):
            yield doc


def save_docs(path: Path, docs: Iterable[Doc]) -> None:
    """Save docs with their soft targets and weights, which are in their user data."""
    save_file(path, DocBin(docs=docs, store_user_data=True).to_disk)
