"""Presidio with our pipelines: their scores of entities, and their guaranteed sets for redaction.

https://microsoft.github.io/presidio. Needs the extra `presidio`; nothing else imports this module.
What Presidio calls an entity, such as "PERSON", is a kind of entity. A mapping says which of them
each of our labels becomes.
"""

from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import Any

import numpy
import spacy
from spacy.language import Language
from spacy.tokens import Doc, Span, SpanGroup
from spacy.util import is_package

from .pipeline.annotations import GUARANTEED, SOURCE, Confidence
from .pipeline.component import CostSensitiveNER
from .spans import spans_with_scores

try:
    from presidio_analyzer import LocalRecognizer, RecognizerResult
    from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
except ImportError as error:
    raise ImportError(
        "spacy_costner.presidio: expected presidio-analyzer, it is not installed: "
        "pip install 'spacy-costner[presidio]'"
    ) from error

MIN_SCORE = 1e-6
"""The lowest score of a result: Presidio leaves out results with a score of 0."""


class CostnerNlpEngine(SpacyNlpEngine):
    """An NLP engine of Presidio that runs our pipelines, one for each language.

    It finds entities by `find_scored_spans`. Labels without an entity of Presidio in
    `model_to_presidio_entity_mapping` keep their names. Nothing is downloaded.
    """

    engine_name = "spacy_costner"

    def load(self) -> None:
        """Load the pipelines.

        RAISES (ValueError): If a model is neither installed nor a folder, or has no
            `cost_sensitive_ner`.
        """
        for model in self.models:
            self._validate_model_params(model)
            check_pipeline(model["model_name"])
        super().load()
        mapping = self.ner_model_configuration.model_to_presidio_entity_mapping
        for nlp in self.nlp.values():
            for label in prepare(nlp):
                mapping.setdefault(label, label)

    def _get_entities(self, doc: Doc) -> list[Span]:
        """The entities of a doc, for Presidio, which maps their labels. A label that it would leave
        unmapped is an error."""
        configuration = self.ner_model_configuration
        entities = [span for span, _ in find_scored_spans(doc)]
        for span in entities:
            if span.label_ not in configuration.labels_to_ignore:
                entity_of(span, configuration.model_to_presidio_entity_mapping)
        return entities

    def _get_scores_for_entities(self, doc: Doc) -> list[float]:
        """The scores of the entities, in the order of `_get_entities`."""
        default_score = self.ner_model_configuration.default_score
        return [score for _, score in find_scored_spans(doc, default_score)]


class CostnerRecognizer(LocalRecognizer):
    """A recognizer of Presidio that runs one of our pipelines, beside any NLP engine."""

    def __init__(
        self,
        pipeline: str | Path,
        *,
        supported_language: str | None = None,
        mapping: Mapping[str, str] | None = None,
        default_score: float = 0.85,
        name: str | None = None,
    ) -> None:
        """Initialize the recognizer.

        pipeline (str | Path): The package of the pipeline, or its folder.
        supported_language (str | None): The language; by default the pipeline's.
        mapping (Mapping[str, str] | None): Presidio's entities, by label. Other labels are
            mapped by Presidio's `NerModelConfiguration`, or keep their names.
        default_score (float): The score of entities that other components have set.
        name (str | None): The name in results; by default the class.
        RAISES (ValueError): If the pipeline is not installed and not a folder, has no
            `cost_sensitive_ner`.
        """
        check_pipeline(pipeline)
        self.nlp = spacy.load(pipeline)
        self.default_score = default_score
        entity_by_label = dict(NerModelConfiguration().model_to_presidio_entity_mapping)
        entity_by_label.update(mapping or {})
        self.mapping = {label: entity_by_label.get(label, label) for label in prepare(self.nlp)}
        super().__init__(
            supported_entities=sorted(set(self.mapping.values())),
            supported_language=supported_language or self.nlp.lang,
            name=name,
        )

    def load(self) -> None:
        """Do nothing: the pipeline is loaded."""

    def analyze(
        self, text: str, entities: list[str], nlp_artifacts: Any = None
    ) -> list[RecognizerResult]:
        """Find entities in a text.

        text (str): The text.
        entities (list[str]): The kinds of Presidio's entities that are wanted.
        nlp_artifacts (Any): What Presidio's NLP engine has found. It is not used.
        RETURNS (list[RecognizerResult]): The entities of these kinds, with their scores.
        """
        metadata = {
            RecognizerResult.RECOGNIZER_NAME_KEY: self.name,
            RecognizerResult.RECOGNIZER_IDENTIFIER_KEY: self.id,
        }
        results = []
        for span, score in find_scored_spans(self.nlp(text), self.default_score):
            entity = entity_of(span, self.mapping)
            if entity in entities:
                result = RecognizerResult(
                    entity,
                    span.start_char,
                    span.end_char,
                    score,
                    recognition_metadata=dict(metadata),
                )
                results.append(result)
        return results


def find_scored_spans(doc: Doc, default_score: float = 0.85) -> list[tuple[Span, float]]:
    """Find the spans of a doc for Presidio: the guaranteed set or, if nothing is promised, the
    entities.

    Where results overlap, Presidio's anonymizer may leave some of their text. So each token is in
    one span only: where spans overlap, the less probable one loses the tokens that they share.

    doc (Doc): A doc that a pipeline has annotated.
    default_score (float): The score of entities without one, such as those of other components.
    RETURNS (list[tuple[Span, float]]): The spans and their scores, ordered by begin.
    """
    # The groups that our components have written: the entities of each component and, under the
    # same key with a suffix, its guaranteed set.
    groups: dict[str, SpanGroup] = {}
    for key, group in doc.spans.items():
        if group.attrs.get("source") == SOURCE:
            groups[key] = group

    scored: list[tuple[Span, float]] = []
    our_entities: set[tuple[int, int]] = set()  # the begin and the end of each, in tokens
    for key, group in groups.items():
        # Tokens may have been merged since. A span that has a part of a token gets all of it.
        spans_of_group = spans_with_scores(group, alignment_mode="expand")
        our_entities.update((span.start, span.end) for span, _ in spans_of_group)
        has_guaranteed_set = f"{key}_{GUARANTEED}" in groups
        if has_guaranteed_set:
            continue  # The set has a group of its own, which counts in place of the entities.
        for span, score in spans_of_group:
            presidio_score = max(score, MIN_SCORE)
            if isnan(score):  # It has none.
                presidio_score = default_score
            scored.append((span, presidio_score))

    for ent in doc.ents:
        if (ent.start, ent.end) not in our_entities:
            scored.append((ent, default_score))
    return _without_overlap(doc, scored)


def _without_overlap(doc: Doc, scored: list[tuple[Span, float]]) -> list[tuple[Span, float]]:
    """Give each token to the most probable of its spans. Returns what is left of the spans, with
    their scores, ordered by begin."""
    is_free = numpy.ones(len(doc), dtype=bool)  # the tokens that no span has yet
    disjoint: list[tuple[Span, float]] = []
    for span, score in sorted(scored, key=_score, reverse=True):
        is_free_in_span = is_free[span.start : span.end]
        # What is left of a span may be several runs of free tokens. A run begins and ends where a
        # token differs from the one before it: of T F F T at 0 1 3 4. Begins have even indices
        # there, ends have odd ones.
        edges = numpy.flatnonzero(numpy.diff(is_free_in_span, prepend=False, append=False))
        edges += span.start
        begins = edges[::2].tolist()
        ends = edges[1::2].tolist()
        for begin, end in zip(begins, ends):
            disjoint.append((Span(doc, begin, end, label=span.label), score))
        is_free_in_span[:] = False  # a view of `is_free`
    return sorted(disjoint, key=lambda span_and_score: span_and_score[0].start)


def _score(span_and_score: tuple[Span, float]) -> float:
    """The key to sort spans with scores by their scores."""
    _, score = span_and_score
    return score


def prepare(nlp: Language) -> set[str]:
    """Prepare a pipeline for Presidio: have its `cost_sensitive_ner` write the scores of entities,
    but not the alternatives to them.

    RETURNS (set[str]): The labels of all components that set entities.
    RAISES (ValueError): If there is no `cost_sensitive_ner`.
    """
    components = [pipe for _, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)]
    if not components:
        raise ValueError(
            "spacy_costner.presidio: expected a pipeline with a cost_sensitive_ner, got "
            f"{', '.join(nlp.pipe_names) or 'no components'}"
        )
    for pipe in components:
        confidence = pipe.confidence
        if confidence is None:
            confidence = Confidence()
        scores_only = Confidence(confidence.spans_key, confidence.extension, alternatives=None)
        pipe.set_confidence(scores_only)

    labels: set[str] = set()
    for name in nlp.pipe_names:
        if "doc.ents" in nlp.get_pipe_meta(name).assigns:
            labels.update(getattr(nlp.get_pipe(name), "labels", ()))
    return labels


def entity_of(span: Span, mapping: Mapping[str, str]) -> str:
    """Look up Presidio's entity for the label of a span.

    RAISES (ValueError): If there is none: Presidio would leave the text of the span as it is.
    """
    if span.label_ not in mapping:
        raise ValueError(
            f"mapping: expected an entity of Presidio for each label, got none for {span.label_!r}"
        )
    return mapping[span.label_]


def check_pipeline(name: str | Path) -> None:
    """Check that a pipeline is there, so that Presidio doesn't download one.

    RAISES (ValueError): If it isn't.
    """
    if not is_package(str(name)) and not Path(name).is_dir():
        raise ValueError(f"expected an installed pipeline or the folder of one, got {str(name)!r}")
