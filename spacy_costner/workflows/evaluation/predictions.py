"""Make predictions for annotated docs. The posterior is computed once and can be decoded and scored
in several ways.

Two kinds of tokens don't count in scores: tokens without annotation and, except for guarantees,
preset tokens, which were annotated by an earlier component. An entity counts if all of its tokens
count, unless the component learns its label but doesn't write it. Annotated entities that don't
begin and end with tokens of the predicted docs count, too: they are always missed. `DevPredictions`
contains the posterior and the tokens and entities that count.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.scorer import Scorer
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch
from thinc.api import to_numpy
from thinc.types import Array1d, Floats1d, Floats2d, Ints1d

from ...annotation.tokens import (
    align_reference,
    align_spans,
    read_presets,
    with_label_indices,
)
from ...decoding import Decoding, Posterior, Temperature
from ...files.saving import as_json
from ...pipeline.component import CostSensitiveNER
from ...pipeline.confidence import Confidence
from ...pipeline.doc_entropy import measure_docs
from ...pipeline.doc_writer import annotate_docs
from ...pipeline.prediction import Prediction, make_prediction
from ...progress import progress
from ...tags import NO_ENTITIES, Entities, concatenate_entities
from ...types import map_scores
from ..components import find_components, run_after, run_before


class DevPredictions(NamedTuple):
    """Annotated docs with their posterior.

    examples (list[Example]): The predicted docs as passed to the component, and the annotated docs.
        If the component has a `spans_key`, its spans become the entities of the annotated docs, and
        the predicted docs have no entities.
    posterior (Posterior): The posterior of the concatenated tokens of all docs.
    gold (Entities): The annotated entities that count and that predicted entities can match. The
        label is -1 if it is unknown to the component. If the component filters spans, they aren't
        sorted and may overlap: see `Annotation.dropped_spans`.
    is_counted (Array1d): Whether each token is annotated and, unless preset tokens count, not
        preset. Shape: (N,)
    other_labels (Sequence[int]): The indices of labels that the component learns but doesn't write.
        Their entities don't count.
    originals (Sequence[Example]): The predicted docs with the annotations set by earlier
        components, and the original annotated docs. Without a `spans_key`, they are identical to
        `examples`.
    misaligned (Entities): The annotated entities that count but don't begin and end with tokens of
        the predicted docs, so that no predicted entity matches them: see `AlignedReference`.
    """

    examples: list[Example]
    posterior: Posterior
    gold: Entities
    is_counted: Array1d
    other_labels: Sequence[int] = ()
    originals: Sequence[Example] = ()
    misaligned: Entities = NO_ENTITIES

    @property
    def n_annotated(self) -> int:
        """The number of annotated entities that count, including misaligned entities."""
        return len(self.gold.begin) + len(self.misaligned.begin)

    def with_temperature(self, temperature: Temperature) -> "DevPredictions":
        """Return a copy with the posterior at another temperature.

        temperature (Temperature): The new temperature.
        """
        return self._replace(posterior=self.posterior.with_temperature(temperature))

    def entropies(self) -> Floats1d:
        """Compute each doc's score for the shift test: see `doc_entropy.measure_docs`. Must be
        called before `predict` writes entities to the docs, because they would count as presets.
        Shape: (B,)"""
        tokens = read_presets([eg.predicted for eg in self.examples])
        entropies, _ = measure_docs(self.posterior, tokens)
        return entropies

    def decode(self, decoding: Decoding) -> Entities:
        """Decode the posterior. Returns the predicted entities that count.

        decoding (Decoding): The decoding to apply.
        """
        decoded = decoding.decode(self.posterior, decoding.settings)
        return self.select_counted(decoded.entities)

    def select_counted(self, entities: Entities) -> Entities:
        """Strip whitespace from the ends of entities and select the entities that count."""
        trimmed = entities.trim(self.posterior.is_space)
        return trimmed.select(self.are_counted(trimmed))

    def are_counted(self, entities: Entities) -> Array1d:
        """Check which entities have a label that counts and only contain tokens that count. Shape:
        (E,)"""
        has_counted_tokens = ~entities.contain(~self.is_counted)
        return has_counted_tokens & ~numpy.isin(entities.label, self.other_labels)

    def doc_of_entity(self, entities: Entities) -> Ints1d:
        """Return the index of the doc that contains each entity. Shape: (E,)"""
        doc_ends = numpy.cumsum(self.posterior.doc_lengths)
        # An entity is in the first doc that ends after the entity's first token.
        return numpy.searchsorted(doc_ends, entities.begin, side="right")

    def count_in_docs(self, entities: Entities) -> Ints1d:
        """Count the entities in each doc. Shape: (B,)"""
        n_docs = len(self.posterior.doc_lengths)
        return numpy.bincount(self.doc_of_entity(entities), minlength=n_docs)

    def is_correct(self, entities: Entities) -> Array1d:
        """Check which entities are annotated. Shape: (E,)"""
        return numpy.isin(self.entity_keys(entities), self.entity_keys(self.gold))

    def entity_keys(self, entities: Entities) -> Ints1d:
        """Compute a numeric key for each entity. Two entities have the same key if they have the
        same tokens and label. All inner nodes of a label tree count as one label. Shape: (E,)"""
        # Combine start, end and label into a single number, like the digits 2, 5 and 1 into 251.
        # The end ranges from 0 to N. The label ranges from -1 to `n_labels`, which represents any
        # inner node, and is shifted by 1 so that it starts at 0.
        n_tokens = len(self.is_counted)
        n_labels = len(self.posterior.tags.labels)
        begins_and_ends = entities.begin.astype("int64") * (n_tokens + 1) + entities.end
        label_digits = numpy.minimum(entities.label, n_labels) + 1
        return begins_and_ends * (n_labels + 2) + label_digits


def replace_predicted(examples: Iterable[Example], docs: Iterable[Doc]) -> list[Example]:
    """Replace the predicted docs of examples.

    examples (Iterable[Example]): The examples. Their annotated docs are kept.
    docs (Iterable[Doc]): The new predicted docs, in the same order.
    RETURNS (list[Example]): The new examples.
    """
    return [Example(doc, eg.reference) for eg, doc in zip(examples, docs)]


def predict_dev(
    nlp: Language,
    ner: CostSensitiveNER,
    examples: Iterable[Example],
    *,
    count_presets: bool = False,
) -> DevPredictions:
    """Run the earlier components of a pipeline on copies of annotated docs, and compute the
    posterior of a component. Docs without tokens are skipped.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): A component of `nlp`. If it has a `spans_key`, the annotated spans with
        its own labels are used as entities.
    examples (Iterable[Example]): The annotated docs.
    count_presets (bool): Whether preset tokens count. The component can't change them, so they
        should only count if its predictions are used together with the preset entities.
    RETURNS (DevPredictions): The docs with their posterior.
    RAISES (ValueError): If no token is annotated, or spans of the component overlap: see
        `Annotation.as_entities`.
    """
    nonempty = [eg for eg in examples if len(eg.predicted)]
    copies = [eg.predicted.copy() for eg in nonempty]
    # With a `spans_key`, the entities of these examples are replaced below.
    originals = replace_predicted(nonempty, run_before(nlp, ner.name, copies))
    examples = originals
    if ner.annotation.spans_key is not None:
        examples = [with_spans_as_entities(ner, eg) for eg in originals]
    docs = [eg.predicted for eg in examples]
    presets = read_presets(docs)
    reference = align_reference(examples, presets)
    dropped_spans = [ner.annotation.dropped_spans(eg.reference, ner.own_labels) for eg in originals]
    dropped, misaligned_dropped = align_spans(originals, dropped_spans)
    if not reference.is_annotated.any():
        raise ValueError("expected docs with annotated entities, got none")

    batches = minibatch(progress(docs, desc="predict", unit="doc"), nlp.batch_size)
    is_excluded = presets.is_annotated & (not count_presets)  # shape: (N,)
    posterior = concatenate_posteriors([ner.posterior(batch, preset=True) for batch in batches])
    strings = nlp.vocab.strings
    dev = DevPredictions(
        examples,
        posterior,
        gold=concatenate_entities(
            reference.tokens.entities(ner.tags, strings),
            with_label_indices(dropped, ner.tags, strings),
        ),
        is_counted=reference.is_annotated & ~is_excluded,
        other_labels=ner.other_labels,
        originals=originals,
    )
    # A token that a misaligned entity shares with unannotated text doesn't count, but the entity
    # itself is annotated. So only exclude entities with excluded tokens or other labels.
    misaligned = concatenate_entities(
        with_label_indices(reference.misaligned, ner.tags, strings),
        with_label_indices(misaligned_dropped, ner.tags, strings),
    ).trim(posterior.is_space)
    is_ignored = misaligned.contain(is_excluded)
    is_ignored |= numpy.isin(misaligned.label, ner.other_labels)
    return dev._replace(
        gold=dev.select_counted(dev.gold), misaligned=misaligned.select(~is_ignored)
    )


def note_misaligned(predictions: Sequence[DevPredictions]) -> list[str]:
    """Create a note about the misaligned entities in all given predictions: see
    `misaligned_note`."""
    n_misaligned = sum(len(dev.misaligned.begin) for dev in predictions)
    n_annotated = sum(dev.n_annotated for dev in predictions)
    return misaligned_note(n_misaligned, n_annotated)


def misaligned_note(n_misaligned: int, n_annotated: int) -> list[str]:
    """Create a note about annotated entities that don't begin and end with tokens of the predicted
    docs.

    n_misaligned (int): The number of these entities.
    n_annotated (int): The number of all annotated entities.
    RETURNS (list[str]): One sentence, or an empty list if there are no such entities.
    """
    if n_misaligned == 0:
        return []
    return [
        f"{n_misaligned:,} of {n_annotated:,} entities don't begin and end with tokens of the "
        "pipeline, so no predicted entity matches them"
    ]


def with_spans_as_entities(ner: CostSensitiveNER, eg: Example) -> Example:
    """Create an example for a component with a `spans_key`, with the component's spans as entities
    of the annotated doc. The entities of the predicted doc are removed, because entities of other
    components would count as presets."""
    doc = eg.predicted.copy()
    doc.set_ents([], default="missing")
    return ner.annotation.as_entities(Example(doc, eg.reference), ner.own_labels)


def concatenate_posteriors(posteriors: Sequence[Posterior]) -> Posterior:
    """Concatenate the posteriors of one or more batches. The resulting arrays are in CPU memory."""
    emissions: list[Floats2d] = []
    lengths: list[Ints1d] = []
    is_space: list[Array1d] = []
    doc_of_sequence: list[Ints1d] = []
    n_docs = 0  # the number of docs in previous batches
    for posterior in posteriors:
        scores = map_scores(to_numpy, posterior.scores)
        emissions.append(scores.emissions)
        lengths.append(scores.lengths)
        is_space.append(posterior.is_space)
        doc_of_sequence.append(posterior.doc_of_sequence + n_docs)
        n_docs += len(posterior.doc_lengths)
    # All batches were predicted by the same model, so the transition, start and end scores of the
    # last batch apply to all of them.
    all_scores = scores._replace(
        emissions=numpy.concatenate(emissions), lengths=numpy.concatenate(lengths)
    )
    return replace(
        posteriors[0],
        scores=all_scores,
        is_space=numpy.concatenate(is_space),
        doc_of_sequence=numpy.concatenate(doc_of_sequence),
    )


def predict(
    ner: CostSensitiveNER,
    docs: Sequence[Doc],
    posterior: Posterior,
    confidence: Confidence | None,
) -> Prediction:
    """Decode docs with the decoding of a component, and write the entities to `doc.ents` and, if
    the component has a `spans_key`, to `doc.spans`.

    ner (CostSensitiveNER): The component that provides the decoding.
    docs (Sequence[Doc]): The docs to update.
    posterior (Posterior): The posterior of the docs, from the component's model or another model
        with the same labels.
    confidence (Confidence | None): Where to write the probabilities of the entities. If None, they
        aren't written.
    RETURNS (Prediction): The entities and their probabilities.
    """
    tokens = read_presets(docs)
    prediction = make_prediction(
        ner.decode(posterior), posterior, tokens, confidence, other_labels=ner.other_labels
    )
    annotate_docs(docs, prediction, ner.name, confidence)
    spans_key = ner.annotation.spans_key
    if spans_key is not None:
        annotate_docs(docs, prediction, ner.name, confidence, spans_key)
    return prediction


def evaluate_dev(nlp: Language, ner: CostSensitiveNER, dev: DevPredictions) -> dict[str, Any]:
    """Compute the scores that `nlp.evaluate` would return for annotated docs, except for the speed,
    but reuse the existing posterior. The component decodes the posterior, and then the later
    components are run.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component of `nlp` that predicted the docs.
    dev (DevPredictions): The docs with their posterior.
    RETURNS (dict[str, Any]): The JSON-serializable scores, keyed by name.
    """
    docs = [eg.predicted.copy() for eg in dev.originals]
    # Like `CostSensitiveNER.predict`, but without the guaranteed set and the shift test, which
    # aren't needed for scores. Spans under a key have probabilities even without a confidence.
    prediction = make_prediction(
        ner.decode(dev.posterior),
        dev.posterior,
        ner.annotation.read_presets(docs),
        ner.confidence,
        other_labels=ner.other_labels,
        is_scored=ner.annotation.spans_key is not None,
    )
    ner.set_annotations(docs, prediction)
    examples = replace_predicted(dev.originals, run_after(nlp, ner.name, docs))
    scores = Scorer(nlp).score(examples)
    return dict(as_json(scores))


def turn_on_confidence(nlp: Language, ner: CostSensitiveNER) -> list[str]:
    """Enable the confidences of a component, if they aren't already enabled. The component then
    writes the probabilities of its entities to `doc.spans`. The key is changed if another
    `cost_sensitive_ner` has the same one, unless this component already writes to the key, and the
    other one runs later and isn't calibrated. The setting is also written to the config of the
    pipeline.

    nlp (Language): The pipeline, whose config is updated.
    ner (CostSensitiveNER): The component of `nlp`.
    RETURNS (list[str]): A note if the key is changed, or an empty list.
    """
    component_of_key: dict[str, str] = {}  # the names of components whose keys are taken
    runs_earlier = True
    for name, component in find_components(nlp).items():
        if name == ner.name:
            runs_earlier = False
        elif component.confidence is not None:
            is_calibrated = component.calibration_scores is not None
            if ner.confidence is None or runs_earlier or is_calibrated:
                component_of_key[component.confidence.spans_key] = name
    confidence = ner.confidence or Confidence()
    notes: list[str] = []
    if confidence.spans_key in component_of_key:
        other_name = component_of_key[confidence.spans_key]
        key = f"{ner.name}_confidence"
        notes.append(
            f"{ner.name} now writes probabilities to doc.spans[{key!r}], because {other_name} "
            f"writes to {confidence.spans_key!r}"
        )
        confidence = replace(confidence, spans_key=key)
    if confidence == ner.confidence:
        return notes
    ner.set_confidence(confidence)
    block = {"@misc": "spacy_costner.Confidence.v1", **asdict(confidence)}
    nlp.get_pipe_config(ner.name)["confidence"] = block
    return notes


def record_scores(nlp: Language, scores: Mapping[str, Any], source: str, n_docs: int) -> None:
    """Write the scores of a pipeline that was calibrated or tuned to its meta. They replace the
    scores from training in `nlp.meta["performance"]`. The docs are added to `sources_of_settings`.

    nlp (Language): The pipeline, whose meta is updated.
    scores (Mapping[str, Any]): The scores: see `evaluate_dev`.
    source (str): The name of the scored docs, saved under "measured_on".
    n_docs (int): The number of scored docs.
    """
    sources = sources_of_settings(nlp)
    if source not in sources:
        sources.append(source)
    nlp.meta["tuned_on"] = sources
    performance = nlp.meta.setdefault("performance", {})
    # Like spaCy, only write scores that are already in the meta or have a weight in the config.
    names = set(performance)
    names.update(nlp.config["training"].get("score_weights", {}))
    for name in sorted(names):
        if name in scores:
            performance[name] = scores[name]
    performance["measured_on"] = {"source": source, "docs": n_docs}


def sources_of_settings(nlp: Language) -> list[str]:
    """Return the names of all docs that a pipeline was calibrated or tuned on, in order of first
    use: a new list.

    nlp (Language): The pipeline. Its meta contains the names, under "tuned_on". Versions before
        0.5.0 only saved the last name, in the scores.
    """
    if "tuned_on" in nlp.meta:
        return [*nlp.meta["tuned_on"]]
    measured_on = nlp.meta.get("performance", {}).get("measured_on")
    return [] if measured_on is None else [measured_on["source"]]
