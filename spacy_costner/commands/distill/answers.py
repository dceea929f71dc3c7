"""The answers of teachers: docs with entities, their confidence and, if asked for, soft targets."""

from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Sequence, Tuple, Union

import numpy
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from spacy.util import minibatch
from spacy.vocab import Vocab

from ...pipeline import soft_targets
from ...pipeline.annotations import Confidence
from ...pipeline.component import CostSensitiveNER
from ...readers import read_docs, read_tasks, task_to_doc
from ...readers.files import shown
from ...readers.found import DEFAULTS, Context, Found
from ...readers.texts import is_text, read_lines
from ...saving import save_file

SPANS_KEY = "spacy_costner.answers"
"""The key in `doc.spans` of what teachers take for entities, with their confidence."""

JSONL = (".jsonl", ".json")
LEAST = 0.05
"""Entities of a lower probability that a teacher doesn't predict are left out."""

N_DOCS = 250
"""The docs of a file of answers."""

Scores = Dict[Tuple[int, int, str], float]
"""Entities by first token, token after the last, and label, with their confidence."""

OnAnswers = Callable[[int], None]
"""Called with a number of docs for which there are answers."""


def is_file(teacher: str) -> bool:
    """Whether a teacher is a file of answers, and not a pipeline."""
    return Path(teacher).suffix in JSONL


def prepare(nlp: Language) -> Language:
    """Have the components of a teacher write probabilities, of other likely entities, too."""
    for _, pipe in nlp.pipeline:
        if isinstance(pipe, CostSensitiveNER):
            pipe.set_confidence(Confidence(alternatives=LEAST))
    return nlp


def chain_of(nlp: Language) -> CostSensitiveNER:
    """The component that has the distribution of a teacher.

    RAISES (ValueError): If there isn't one.
    """
    found = [pipe for _, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)]
    if len(found) != 1:
        raise ValueError(
            "soft: expected teachers with one cost_sensitive_ner, whose distribution is known, got "
            f"the pipeline {nlp.pipe_names}"
        )
    return found[0]


def read_raw(nlp: Language, paths: Sequence[Path]) -> Iterator[Doc]:
    """Read texts. Entities of annotated corpora are not used.

    nlp (Language): The pipeline whose tokenizer is used for texts without tokens.
    paths (Sequence[Path]): Text files, a doc per line, or what `read_docs` reads.
    YIELDS (Doc): The docs, without annotation but for the starts of sentences.
    """
    for path in paths:
        if is_text(path):
            yield from read_lines(nlp, path)
        else:
            yield from (copy(doc, nlp.vocab) for doc in read_docs(nlp, path, found=Found()))


def copy(doc: Doc, vocab: Vocab) -> Doc:
    """A doc of the same tokens and sentences, without other annotation."""
    spaces = None if doc.has_unknown_spaces else [bool(token.whitespace_) for token in doc]
    starts: List[Union[bool, int, None]] = [token.is_sent_start for token in doc]
    return Doc(vocab, words=[token.text for token in doc], spaces=spaces, sent_starts=starts)


def answer(teachers: Sequence[Language], docs: Sequence[Doc], *, soft: bool = False) -> List[Doc]:
    """Have teachers annotate docs.

    teachers (Sequence[Language]): The pipelines: see `prepare`.
    docs (Sequence[Doc]): The docs. Their annotation is not used.
    soft (bool): Whether to compute soft targets.
    RETURNS (List[Doc]): Docs with the entities that a single teacher predicts or, of several, those
        whose mean probability is above one half. `read_scores` reads their probabilities.
    """
    found = [list(nlp.pipe([copy(doc, nlp.vocab) for doc in docs])) for nlp in teachers]
    answers = [copy(doc, doc.vocab) for doc in docs]
    for i, doc in enumerate(answers):
        scores = mean_scores([of_teacher[i] for of_teacher in found])
        ents = entities(found[0][i]) if len(teachers) == 1 else majority(scores)
        doc.set_ents([Span(doc, *entity) for entity in ents])
        write_scores(doc, scores)
    if soft:
        add_soft_targets(teachers, found, answers)
    return answers


def add_soft_targets(
    teachers: Sequence[Language], found: Sequence[List[Doc]], answers: Sequence[Doc]
) -> None:
    """Write the soft targets of teachers to docs; of several, the mean of their distributions."""
    saved = []
    for nlp, docs in zip(teachers, found):
        posterior = chain_of(nlp).posterior(docs)
        saved.append(list(soft_targets.expectations(posterior.potentials, posterior.tags)))
    for i, doc in enumerate(answers):
        doc.user_data[soft_targets.KEY] = soft_targets.mean([each[i] for each in saved])


def entities(doc: Doc) -> List[Tuple[int, int, str]]:
    return [(ent.start, ent.end, ent.label_) for ent in doc.ents]


def mean_scores(docs: Sequence[Doc]) -> Scores:
    """The mean confidence of each entity over teachers: 1 where a teacher predicts it without a
    score, 0 where it isn't among the likely ones."""
    total: Scores = {}
    for doc in docs:
        own = {**dict.fromkeys(entities(doc), 1.0), **read_scores(doc)}
        for entity, score in own.items():
            total[entity] = total.get(entity, 0.0) + score / len(docs)
    return total


def read_scores(doc: Doc) -> Scores:
    """The scores of spans, of any group that has them in its `attrs`, as those of spaCy's spancat
    and of `span._.confidence` do."""
    return {
        (span.start, span.end, span.label_): float(score)
        for group in doc.spans.values()
        if group.attrs.get("scores") is not None
        for span, score in zip(group, group.attrs["scores"])
    }


def majority(scores: Scores) -> List[Tuple[int, int, str]]:
    """The entities that are more probable than not. They don't overlap, as each teacher gives the
    entities of a token probabilities that sum to 1 at most."""
    chosen: List[Tuple[int, int, str]] = []
    for start, end, label in sorted(scores, key=lambda entity: -scores[entity]):
        is_free = all(end <= other[0] or other[1] <= start for other in chosen)
        if scores[start, end, label] > 0.5 and is_free:
            chosen.append((start, end, label))
    return chosen


def write_scores(doc: Doc, scores: Scores) -> None:
    """Write the scores of spans, some of which are entities."""
    spans, attrs = [Span(doc, *entity) for entity in scores], {"scores": [*scores.values()]}
    doc.spans[SPANS_KEY] = SpanGroup(doc, name=SPANS_KEY, attrs=attrs, spans=spans)


def save_answers(
    folder: Path,
    raw: Iterable[Doc],
    make: Callable[[List[Doc]], List[Doc]],
    on_answers: OnAnswers,
) -> List[Path]:
    """Save the answers for docs, a file for each `N_DOCS` of them. Files that are there are used.

    folder (Path): Where they go. Files are written under another name and renamed.
    raw (Iterable[Doc]): The docs.
    make (Callable): Makes the answers for docs.
    on_answers (Callable): Called for each file.
    RETURNS (List[Path]): The files.
    """
    paths: List[Path] = []
    for docs in minibatch(raw, N_DOCS):
        paths.append(folder / f"{len(paths):06}.spacy")
        if not paths[-1].exists():
            save_docs(paths[-1], make(docs))
        on_answers(len(docs))
    return paths


def save_docs(path: Path, docs: Iterable[Doc]) -> None:
    """Save docs with their user data."""
    save_file(path, DocBin(docs=docs, store_user_data=True).to_disk)


def read_file(nlp: Language, path: Path) -> Iterator[Doc]:
    """Read answers from JSONL, as anything may have made them: see `readers.jsonl`. A span may have
    a score, from 0 to 1.

    nlp (Language): The pipeline whose tokenizer is used for texts without tokens.
    path (Path): The file.
    YIELDS (Doc): The docs, as those of `answer`.
    RAISES (CorpusError): If it can't be read, or a score is no such number.
    """
    context = Context(nlp, DEFAULTS, Found())
    for place, task in read_tasks(path):
        doc, scores = task_to_doc(task, place, context), {}
        for span in task.spans or ():
            score, aligned = span.extra.get("score", 1.0), doc.char_span(span.start, span.end)
            if type(score) not in (int, float) or not 0 <= score <= 1:
                raise place.refuse(f"score: expected a number from 0 to 1, got {shown(score)}")
            if aligned is not None:
                scores[aligned.start, aligned.end, span.label] = float(score)
        write_scores(doc, scores)
        if len(doc):
            yield doc


def leave_out_uncertain(doc: Doc, min_confidence: float) -> Tuple[int, int]:
    """Set entities whose confidence is below a minimum to missing, with all their tokens, and so
    those that are not predicted whose confidence is above 1 less that minimum.

    doc (Doc): An answer. It is changed.
    min_confidence (float): The minimum.
    RETURNS (Tuple[int, int]): The number of entities that are left, and of those that are not.
    """
    scores, ents = read_scores(doc), entities(doc)
    sure = [entity for entity in ents if scores.get(entity, 1.0) >= min_confidence]
    doubtful = doc.to_array("ENT_IOB") == 0
    for start, end, label in {*ents, *scores} - {*sure}:
        if (start, end, label) in ents or scores[start, end, label] > 1 - min_confidence:
            doubtful[start:end] = True
    for start, end, _ in sure:
        doubtful[start:end] = False
    missing = [doc[int(i) : int(i) + 1] for i in numpy.flatnonzero(doubtful)]
    doc.set_ents([Span(doc, *entity) for entity in sure], missing=missing)
    return len(sure), len(ents) - len(sure)
