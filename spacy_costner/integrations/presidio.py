"""Use our pipelines in Presidio (https://microsoft.github.io/presidio), which redacts personal
data: with the probabilities of their entities as scores, and with their guaranteed sets.

This needs the extra `presidio`; nothing else imports this module. A Presidio entity, such as
"PERSON", is a kind of entity, like our labels. A mapping has Presidio's entity for each of our
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
from ..pipeline.confidence import SOURCE, Confidence
from ..pipeline.prediction import GUARANTEED

try:
    from presidio_analyzer import LocalRecognizer, RecognizerResult
    from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
except ImportError as error:
    raise ImportError(
        "spacy_costner.integrations.presidio: presidio-analyzer is not installed: pip install "
        "'spacy-costner[presidio]'"
    ) from error

MIN_SCORE = 1e-6
"""The lowest score of a result. Presidio would leave out results with the score 0."""

DEFAULT_SCORE = 0.85
"""The score of entities that have no probability. It is Presidio's own default."""


class CostnerNlpEngine(SpacyNlpEngine):
    """A Presidio NLP engine that runs our pipelines, one for each language. See `find_scored_spans`
    for the entities that it finds.

    A label that `model_to_presidio_entity_mapping` doesn't have keeps its name. Nothing is
    downloaded.
    """

    engine_name = "spacy_costner"

    def load(self) -> None:
        """Load the pipelines. Presidio calls this.

        RAISES (ValueError): If a model has no language or no name, if it is neither installed nor a
            folder, or if it has no `cost_sensitive_ner`.
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
        """The entities of a doc. Presidio calls this, and then maps their labels. Raises an error
        if a label can't be mapped: see `entity_of`."""
        configuration = self.ner_model_configuration
        entities = [span for span, _ in find_scored_spans(doc)]
        for span in entities:
            if span.label_ not in configuration.labels_to_ignore:
                # The result isn't needed here: an unknown label raises the error.
                entity_of(span, configuration.model_to_presidio_entity_mapping)
        return entities

    def _get_scores_for_entities(self, doc: Doc) -> list[float]:
        """The scores of the entities of a doc, in the order of `_get_entities`. Presidio calls
        this."""
        default_score = self.ner_model_configuration.default_score
        return [score for _, score in find_scored_spans(doc, default_score)]


class CostnerRecognizer(LocalRecognizer):
    """A Presidio recognizer that runs one of our pipelines, next to any NLP engine."""

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

        pipeline (str | Path): The package of the pipeline, or its folder.
        supported_language (str | None): The language. None: the pipeline's language.
        mapping (Mapping[str, str] | None): Presidio's entities by our labels. Other labels are
            mapped by Presidio's `NerModelConfiguration` or, if it doesn't have them, keep their
            names.
        default_score (float): The score of entities that other components have set.
        name (str | None): The name of the recognizer in results. None: the name of its class.
        RAISES (ValueError): If the pipeline is neither installed nor a folder, or has no
            `cost_sensitive_ner`.
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
        """Do nothing. Presidio calls this, but the pipeline is already loaded."""

    def analyze(
        self, text: str, entities: list[str], nlp_artifacts: Any = None
    ) -> list[RecognizerResult]:
        """Find entities in a text.

        text (str): The text.
        entities (list[str]): The kinds of entities to find, by Presidio's names.
        nlp_artifacts (Any): The results of Presidio's NLP engine, which are not needed.
        RETURNS (list[RecognizerResult]): The entities of these kinds, with their scores.
        RAISES (ValueError): If the pipeline finds a label that can't be mapped: see `entity_of`.
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
    """Find the spans of a doc that Presidio gets. Of a component with a guarantee these are its
    guaranteed set, of other components their entities.

    Where results overlap, Presidio's anonymizer may leave some of their text. So each token is in
    at most one span: where spans overlap, the less probable one loses the tokens that they share.

    doc (Doc): A doc that a pipeline has annotated, after `prepare` has turned its alternatives off:
        they would count as entities here.
    default_score (float): The score of entities without a probability.
    RETURNS (list[tuple[Span, float]]): The spans and their scores, ordered by their begins.
    """
    # The groups that our components have written. A component writes its entities under a key and,
    # if it has a guarantee, its guaranteed set under the same key with a suffix.
    groups: dict[str, SpanGroup] = {}
    for key, group in doc.spans.items():
        if group.attrs.get("source") == SOURCE:
            groups[key] = group

    scored_spans: list[tuple[Span, float]] = []
    our_spans: set[tuple[int, int]] = set()  # in tokens
    for key, group in groups.items():
        # If tokens were merged since, a span may end within a token. It then gets the whole token.
        spans_of_group = spans_with_scores(group, alignment_mode="expand")
        our_spans.update((span.start, span.end) for span, _ in spans_of_group)
        has_guaranteed_set = f"{key}_{GUARANTEED}" in groups
        if has_guaranteed_set:
            continue  # The guaranteed set, another group, counts instead of these entities.
        for span, score in spans_of_group:
            presidio_score = default_score
            if not isnan(score):  # NaN: the span has no probability.
                presidio_score = max(score, MIN_SCORE)
            scored_spans.append((span, presidio_score))

    # The entities of other components
    for ent in doc.ents:
        if (ent.start, ent.end) not in our_spans:
            scored_spans.append((ent, default_score))
    return _without_overlap(doc, scored_spans)


def _without_overlap(doc: Doc, scored_spans: list[tuple[Span, float]]) -> list[tuple[Span, float]]:
    """Remove overlap between spans: give each token to the most probable span that has it. Of other
    spans, the rest is kept, which may be several pieces. Returns the spans with their scores,
    ordered by their begins."""
    is_free = numpy.ones(len(doc), dtype=bool)  # whether no span has the token yet. Shape: (T,)
    disjoint: list[tuple[Span, float]] = []
    for span, score in sorted(scored_spans, key=_score, reverse=True):
        is_free_in_span = is_free[span.start : span.end]
        # Find the pieces of the span: runs of free tokens. A run begins or ends where a token
        # differs from the one before it. For example, True False False True has the edges 0, 1, 3
        # and 4: the first run begins at 0 and ends before 1, the second begins at 3.
        edges = numpy.flatnonzero(numpy.diff(is_free_in_span, prepend=False, append=False))
        edges += span.start
        begins = edges[::2].tolist()
        ends = edges[1::2].tolist()
        for begin, end in zip(begins, ends):
            disjoint.append((Span(doc, begin, end, label=span.label), score))
        is_free_in_span[:] = False  # This changes `is_free`, as the slice is a view of it.
    return sorted(disjoint, key=lambda span_and_score: span_and_score[0].start)


def _score(span_and_score: tuple[Span, float]) -> float:
    """The score of a span, by which spans are sorted."""
    _, score = span_and_score
    return score


def prepare(nlp: Language) -> set[str]:
    """Prepare a pipeline for Presidio. Its components of the factory `cost_sensitive_ner` are set
    to write the probabilities of entities, but not the alternatives to them.

    RETURNS (set[str]): The labels of all components that set `doc.ents`.
    RAISES (ValueError): If the pipeline has no such component.
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
        if "doc.ents" in nlp.get_pipe_meta(name).assigns:
            labels.update(getattr(nlp.get_pipe(name), "labels", ()))
    return labels


def entity_of(span: Span, mapping: Mapping[str, str]) -> str:
    """Look up Presidio's entity for the label of a span. Raises an error if the mapping doesn't
    have the label, as Presidio would silently leave the text of such spans as it is."""
    if span.label_ not in mapping:
        raise ValueError(
            f"mapping: expected a Presidio entity for each label, got none for {span.label_!r}"
        )
    return mapping[span.label_]


def check_pipeline(name: str | Path) -> None:
    """Check that a pipeline is installed, or is a folder. Otherwise Presidio would try to download
    it."""
    if not is_package(str(name)) and not Path(name).is_dir():
        raise ValueError(f"expected an installed pipeline or the folder of one, got {str(name)!r}")
