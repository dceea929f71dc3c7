"""Integration with Presidio (https://microsoft.github.io/presidio), which redacts personal data.
Presidio receives our pipelines' entities or guaranteed sets, with probabilities as scores.

Requires the extra `presidio`. No other module imports this module. A Presidio entity, e.g.
"PERSON", is an entity type, like our labels. A mapping assigns a Presidio entity to each of our
labels.
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

from ..annotation.span_groups import spans_with_scores
from ..pipeline.component import CostSensitiveNER
from ..pipeline.confidence import SOURCE, SPANS_KEY, Confidence
from ..pipeline.prediction import GUARANTEED
from ..workflows.components import sets_entities

try:
    from presidio_analyzer import LocalRecognizer, RecognizerResult
    from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
except ImportError as error:
    raise ImportError(
        "spacy_costner.integrations.presidio: presidio-analyzer is not installed: pip install "
        "'spacy-costner[presidio]'"
    ) from error

MIN_SCORE = 1e-6
"""The minimum score of a result. Presidio would drop results with a score of 0."""

DEFAULT_SCORE = 0.85
"""The score of entities without a probability. It is the same as Presidio's default."""

Place = tuple[int, int, str]
"""A span as a tuple of its start and end tokens and its label."""


class CostnerNlpEngine(SpacyNlpEngine):
    """A Presidio NLP engine that runs our pipelines, one per language. See `find_scored_spans` for
    the entities it returns.

    A label that is not in `model_to_presidio_entity_mapping` keeps its name. Pipelines are never
    downloaded.
    """

    engine_name = "spacy_costner"

    def load(self) -> None:
        """Load the pipelines. Called by Presidio.

        RAISES (ValueError): If a model has no language or no name, is neither an installed package
            nor a directory, or has no `cost_sensitive_ner`.
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
        """Return the entities of a doc. Called by Presidio, which then maps their labels.

        RAISES (ValueError): If a label can't be mapped. See `entity_of`.
        """
        configuration = self.ner_model_configuration
        entities = [span for span, _ in self._find_scored_spans(doc)]
        for span in entities:
            if span.label_ not in configuration.labels_to_ignore:
                # The result isn't used, but an unknown label raises an error.
                entity_of(span, configuration.model_to_presidio_entity_mapping)
        return entities

    def _get_scores_for_entities(self, doc: Doc) -> list[float]:
        """Return the scores of the entities of a doc, in the same order as `_get_entities`. Called
        by Presidio."""
        return [score for _, score in self._find_scored_spans(doc)]

    def _find_scored_spans(self, doc: Doc) -> list[tuple[Span, float]]:
        """Return the entities of a doc and their scores. The default score in the configuration
        also determines which of two overlapping entities loses tokens."""
        return find_scored_spans(doc, self.ner_model_configuration.default_score)


class CostnerRecognizer(LocalRecognizer):
    """A Presidio recognizer that runs one of our pipelines alongside any NLP engine."""

    def __init__(
        self,
        pipeline: str | Path,
        *,
        supported_language: str | None = None,
        mapping: Mapping[str, str] | None = None,
        default_score: float = DEFAULT_SCORE,
        name: str | None = None,
    ) -> None:
        """Initialize the recognizer.

        pipeline (str | Path): The package or directory of the pipeline.
        supported_language (str | None): The language. Defaults to the pipeline's language.
        mapping (Mapping[str, str] | None): The Presidio entity of each of our labels. Other labels
            are mapped by Presidio's `NerModelConfiguration` or, if missing, keep their names.
        default_score (float): The score of entities set by other components.
        name (str | None): The name of the recognizer in results. Defaults to the class name.
        RAISES (ValueError): If the pipeline is neither an installed package nor a directory, or if
            it has no `cost_sensitive_ner`.
        """
        check_pipeline(pipeline)
        self.nlp = spacy.load(pipeline)
        self.default_score = default_score
        entity_by_label = dict(NerModelConfiguration().model_to_presidio_entity_mapping)
        entity_by_label.update(mapping or {})
        labels = prepare(self.nlp)
        self.mapping = {label: entity_by_label.get(label, label) for label in labels}
        super().__init__(
            supported_entities=sorted(set(self.mapping.values())),
            supported_language=supported_language or self.nlp.lang,
            name=name,
        )

    def load(self) -> None:
        """Do nothing, because the pipeline is already loaded. Called by Presidio."""

    def analyze(
        self, text: str, entities: list[str], nlp_artifacts: Any = None
    ) -> list[RecognizerResult]:
        """Find entities in a text.

        text (str): The text.
        entities (list[str]): The Presidio entities to find.
        nlp_artifacts (Any): The results of Presidio's NLP engine. Not used.
        RETURNS (list[RecognizerResult]): The entities with their scores.
        RAISES (ValueError): If the pipeline predicts a label that can't be mapped. See `entity_of`.
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


def find_scored_spans(doc: Doc, default_score: float = DEFAULT_SCORE) -> list[tuple[Span, float]]:
    """Find the spans of a doc to pass to Presidio: the guaranteed sets of components with a
    guarantee, the spans of components with a `spans_key`, and all other entities in `doc.ents`. If
    a later component has replaced or removed an entity, `doc.ents` is right, but guaranteed sets
    are never reduced.

    If results overlap, Presidio's anonymizer may not redact all of their text. To avoid this, each
    token is assigned to at most one span: if spans overlap, the less probable span loses the shared
    tokens.

    doc (Doc): A doc processed by a pipeline for which `prepare` was called. It must not
        contain alternatives to entities, which would be treated as entities.
    default_score (float): The score of entities without a probability.
    RETURNS (list[tuple[Span, float]]): The spans and their scores, sorted by start.
    """
    # The span groups written by our components. A component writes its entities under a key and, if
    # it has a guarantee, its guaranteed set under the same key with a suffix.
    groups: dict[str, SpanGroup] = {}
    for key, group in doc.spans.items():
        if group.attrs.get("source") == SOURCE:
            groups[key] = group
    keys_of_sets = {f"{key}_{GUARANTEED}" for key in groups}

    scored_spans: list[tuple[Span, float]] = []
    our_places: set[Place] = set()  # spans that are found without `doc.ents`, or replaced by a set
    score_of_entity: dict[Place, float] = {}
    for key, group in groups.items():
        # If tokens were merged afterwards, a span may end within a token. If so, expand the span.
        spans_of_group = spans_with_scores(group, alignment_mode="expand")
        has_guaranteed_set = f"{key}_{GUARANTEED}" in groups
        if has_guaranteed_set:
            # Use the guaranteed set, which is another group, instead of the entities.
            our_places.update(_place(span) for span, _ in spans_of_group)
            continue
        places_in_ents: set[Place] = set()
        if key not in keys_of_sets and SPANS_KEY not in group.attrs:
            # Spans that were expanded are excluded, because merging tokens can remove an entity
            # from `doc.ents`.
            places_in_ents.update(_place(span) for span, _ in spans_with_scores(group))
        for span, score in spans_of_group:
            presidio_score = default_score
            if not isnan(score):  # NaN means that the span has no probability
                presidio_score = max(score, MIN_SCORE)
            if _place(span) in places_in_ents:
                score_of_entity[_place(span)] = presidio_score
            else:
                scored_spans.append((span, presidio_score))
                our_places.add(_place(span))

    for ent in doc.ents:
        if _place(ent) in score_of_entity:
            scored_spans.append((ent, score_of_entity[_place(ent)]))
        elif _place(ent) not in our_places:  # set by another component
            scored_spans.append((ent, default_score))
    return _without_overlap(doc, scored_spans)


def _place(span: Span) -> Place:
    """Return the tokens and the label of a span, which identify it."""
    return span.start, span.end, span.label_


def _without_overlap(doc: Doc, scored_spans: list[tuple[Span, float]]) -> list[tuple[Span, float]]:
    """Remove overlaps between spans by assigning each token to the most probable span that contains
    it. The remaining parts of other spans are kept, possibly as several pieces. Return the spans
    with their scores, sorted by start."""
    is_free = numpy.ones(len(doc), dtype=bool)  # tokens not assigned to a span yet. Shape: (T,)
    disjoint: list[tuple[Span, float]] = []
    for span, score in sorted(scored_spans, key=_score, reverse=True):
        is_free_in_span = is_free[span.start : span.end]
        # Find the pieces of the span, i.e. runs of free tokens. A run begins or ends where a token
        # differs from the previous one. For example, True False False True has edges at 0, 1, 3
        # and 4: the first run is from 0 to 1 (exclusive), the second one starts at 3.
        edges = numpy.flatnonzero(numpy.diff(is_free_in_span, prepend=False, append=False))
        edges += span.start
        begins = edges[::2].tolist()
        ends = edges[1::2].tolist()
        for begin, end in zip(begins, ends):
            disjoint.append((Span(doc, begin, end, label=span.label), score))
        is_free_in_span[:] = False  # also updates `is_free`, because the slice is a view
    return sorted(disjoint, key=lambda span_and_score: span_and_score[0].start)


def _score(span_and_score: tuple[Span, float]) -> float:
    """Return the score of a span, for sorting."""
    _, score = span_and_score
    return score


def prepare(nlp: Language) -> set[str]:
    """Prepare a pipeline for Presidio. All `cost_sensitive_ner` components are set to write the
    probabilities of entities, but no alternatives.

    RETURNS (set[str]): The labels of all components that set `doc.ents`, including inner nodes of a
        label tree that can be predicted.
    RAISES (ValueError): If the pipeline has no `cost_sensitive_ner` component.
    """
    components = [pipe for _, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)]
    if not components:
        raise ValueError(
            "spacy_costner.integrations.presidio: expected a pipeline with a cost_sensitive_ner, "
            f"got {', '.join(nlp.pipe_names) or 'no components'}"
        )
    for pipe in components:
        confidence = pipe.confidence
        if confidence is None:
            confidence = Confidence()
        scores_only = Confidence(confidence.spans_key, confidence.extension, alternatives=None)
        pipe.set_confidence(scores_only)

    labels: set[str] = set()
    for name in nlp.pipe_names:
        if sets_entities(nlp, name):
            labels.update(getattr(nlp.get_pipe(name), "labels", ()))
    for pipe in components:
        labels.update(pipe.inner_nodes)
    return labels


def entity_of(span: Span, mapping: Mapping[str, str]) -> str:
    """Return the Presidio entity for the label of a span.

    RAISES (ValueError): If the label is not in the mapping. (Presidio would silently leave the text
        of such spans unchanged.)
    """
    if span.label_ not in mapping:
        raise ValueError(
            f"mapping: expected a Presidio entity for each label, got none for {span.label_!r}"
        )
    return mapping[span.label_]


def check_pipeline(name: str | Path) -> None:
    """Check that a pipeline is an installed package or a directory. Presidio would try to download
    any other pipeline.

    RAISES (ValueError): If it is neither.
    """
    if not is_package(str(name)) and not Path(name).is_dir():
        raise ValueError(f"expected an installed pipeline or the folder of one, got {str(name)!r}")
