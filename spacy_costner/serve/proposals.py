"""Propose entities for texts, and convert entities between token and character offsets."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from spacy.language import Language
from spacy.tokens import Doc

from ..pipeline.confidence import Confidence, prob_of
from ..readers import Task, TaskSpan
from ..workflows.components import get_component, run_before
from ..workflows.evaluation.predictions import predict
from ..workflows.sampling.suggestions import PRICE_PER_DOC, by_cost
from .session_training import COMPONENT
from .store import SessionError


class ProposedSpan(NamedTuple):
    """A proposed or annotated entity.

    start (int): The index of the first token.
    end (int): The index after the last token.
    label (str): The entity label.
    prob (float | None): The probability of a proposed entity. None for annotated entities.
    """

    start: int
    end: int
    label: str
    prob: float | None = None


@dataclass(frozen=True)
class Proposal:
    """A text to show on the annotation page.

    key (str): The key of the text.
    tokens (Sequence[tuple[str, str]]): The tokens and their trailing whitespace.
    spans (Sequence[ProposedSpan]): The annotated entities, or the proposed entities if the text has
        no answer.
    is_evaluation (bool): Whether it is an evaluation text.
    version (int): The version of the answer. 0 if the text has no answer.
    """

    key: str
    tokens: Sequence[tuple[str, str]]
    spans: Sequence[ProposedSpan]
    is_evaluation: bool
    version: int

    def as_dict(self) -> dict[str, Any]:
        """Convert the proposal to a JSON-serializable dict."""
        return {**asdict(self), "spans": [span._asdict() for span in self.spans]}


def propose_spans(
    nlp: Language, tokenizer: Language, text: str, labels: Collection[str]
) -> list[ProposedSpan]:
    """Predict the entities of a text and their probabilities.

    nlp (Language): The trained pipeline.
    tokenizer (Language): A pipeline with the session's tokenizer.
    text (str): The text to predict.
    labels (Collection[str]): The labels of the session. Other labels are ignored.
    RETURNS (list[ProposedSpan]): The entities, aligned with the session's tokens.
    """
    ner = get_component(nlp, COMPONENT)
    docs = run_before(nlp, COMPONENT, [nlp.make_doc(text)])
    posterior = ner.posterior(docs)
    # `Confidence` stores the probabilities on the doc, where `prob_of` can read them.
    predict(ner, docs, posterior, Confidence())
    (doc,) = docs
    # A pipeline that wasn't trained in the session may use a different tokenizer. Expand entities
    # to the session's token boundaries, and skip an entity if it overlaps with the previous one.
    session_doc = tokenizer.make_doc(text)
    spans: list[ProposedSpan] = []
    last_end = 0
    for ent in doc.ents:
        span = session_doc.char_span(ent.start_char, ent.end_char, alignment_mode="expand")
        if span is None or span.start < last_end or ent.label_ not in labels:
            continue
        spans.append(ProposedSpan(span.start, span.end, ent.label_, prob_of(ent)))
        last_end = span.end
    return spans


def predict_tasks(
    nlp: Language | None, tokenizer: Language, texts: Sequence[str]
) -> list[tuple[Task, float | None]]:
    """Predict the entities of a batch of texts from another tool.

    nlp (Language | None): The trained pipeline. None if there is no model yet.
    tokenizer (Language): A pipeline with the session's tokenizer.
    texts (Sequence[str]): The texts to predict.
    RETURNS (list[tuple[Task, float | None]]): The predicted entities and the certainty for each
        text. See `AnnotationSession.predict_texts`.
    RAISES (ValueError): If spaCy can't create a `Doc` from a text.
    """
    results: list[tuple[Task, float | None]] = [(Task(text, []), None) for text in texts]
    places: list[int] = []  # indices of the texts to predict
    docs: list[Doc] = []
    # Create docs even if there is no model, to report texts that spaCy can't process.
    doc_maker = nlp or tokenizer
    for place, text in enumerate(texts):
        if len(text) > doc_maker.max_length:
            continue
        doc = doc_maker.make_doc(text)
        if len(doc):
            places.append(place)
            docs.append(doc)
    if nlp is None or not docs:
        return results
    ner = get_component(nlp, COMPONENT)
    docs = run_before(nlp, COMPONENT, docs)
    posterior = ner.posterior(docs)
    uncertainties = by_cost(ner, posterior).docs.tolist()
    # `Confidence` stores the probabilities on the docs, where `prob_of` can read them.
    predict(ner, docs, posterior, Confidence())
    for place, doc, uncertainty in zip(places, docs, uncertainties):
        spans = [
            TaskSpan(ent.start_char, ent.end_char, ent.label_, {"score": prob_of(ent)})
            for ent in doc.ents
        ]
        price = len(doc) + PRICE_PER_DOC  # the annotation effort, in tokens
        certainty = 1.0 / (1.0 + uncertainty / price)
        results[place] = (Task(texts[place], spans), certainty)
    return results


def annotated_spans(doc: Doc, task: Task) -> list[ProposedSpan]:
    """Convert the spans of an answer to token offsets. Spans that don't match token boundaries, for
    example in answers from another tool, are expanded.

    doc (Doc): The tokenized text.
    task (Task): The text and its annotated spans.
    RETURNS (list[ProposedSpan]): The spans with token offsets.
    """
    spans: list[ProposedSpan] = []
    for task_span in task.spans or ():
        span = doc.char_span(task_span.start, task_span.end, alignment_mode="expand")
        if span is not None:
            spans.append(ProposedSpan(span.start, span.end, task_span.label))
    return spans


def check_spans(doc: Doc, spans: Iterable[ProposedSpan], labels: Sequence[str]) -> list[TaskSpan]:
    """Validate the spans of an answer and convert them to character offsets.

    doc (Doc): The tokenized text.
    spans (Iterable[ProposedSpan]): The spans of the answer, in any order.
    labels (Sequence[str]): The labels of the session.
    RETURNS (list[TaskSpan]): The spans in document order, without leading or trailing whitespace.
    RAISES (SessionError): If a span is out of range, consists only of whitespace, has an unknown
        label, or overlaps with another span.
    """
    task_spans: list[TaskSpan] = []
    last_end = 0
    for start, end, label, _ in sorted(spans, key=lambda span: (span.start, span.end)):
        if not 0 <= start < end <= len(doc):
            expected = f"expected a start before its end in a text of {len(doc)} tokens"
            raise SessionError(f"spans: {expected}, got {start} to {end}")
        if start < last_end:
            raise SessionError(f"spans: expected no overlapping spans, got two at {start}")
        if label not in labels:
            raise SessionError(f"label: expected one of {labels}, got {label!r}")
        last_end = end
        span = doc[start:end]
        stripped_text = span.text.strip()
        if not stripped_text:
            raise SessionError(f"spans: expected words, got whitespace at {start}")
        n_leading_spaces = len(span.text) - len(span.text.lstrip())
        start_char = span.start_char + n_leading_spaces
        task_spans.append(TaskSpan(start_char, start_char + len(stripped_text), label))
    return task_spans
