"""Predict annotated docs. Their posterior is computed once, and can then be decoded and scored in
several ways.

Two kinds of tokens don't count in scores: tokens without annotation, and preset tokens, whose
annotation was set by an earlier component. An entity counts if all of its tokens count, unless the
component learns its label but doesn't write it. `DevPredictions` has the posterior, and the tokens
and entities that count.
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

from ...annotation.tokens import read_presets, read_reference
from ...decoding import Decoding, Posterior, Temperature
from ...files.saving import as_json
from ...pipeline.component import CostSensitiveNER
from ...pipeline.confidence import Confidence
from ...pipeline.doc_entropy import measure_docs
from ...pipeline.doc_writer import annotate_docs
from ...pipeline.prediction import Prediction, make_prediction
from ...progress import progress
from ...tags import Entities
from ...types import map_scores
from ..components import find_components, run_after, run_before


class DevPredictions(NamedTuple):
    """Annotated docs with their posterior.

    examples (list[Example]): The predicted docs as the component gets them, and the annotated docs.
        If the component has a `spans_key`, the predicted docs have no entities, and the entities of
        the annotated docs are its spans.
    posterior (Posterior): The posterior of the tokens of all docs, concatenated.
    gold (Entities): The annotated entities that count. The label is -1 if the component doesn't
        have it.
    is_counted (Array1d): True for tokens that are annotated and have no preset. Shape: (N,)
    other_labels (Sequence[int]): Labels whose entities don't count, as the component learns but
        doesn't write them. Indices of its labels.
    originals (Sequence[Example]): The predicted docs with the annotation of earlier components, and
        the annotated docs as they were read. Without a `spans_key` they are `examples`.
    """

    examples: list[Example]
    posterior: Posterior
    gold: Entities
    is_counted: Array1d
    other_labels: Sequence[int] = ()
    originals: Sequence[Example] = ()

    def with_temperature(self, temperature: Temperature) -> "DevPredictions":
        """The same docs, with their posterior at another temperature.

        temperature (Temperature): The temperature.
        """
        return self._replace(posterior=self.posterior.with_temperature(temperature))

    def entropies(self) -> Floats1d:
        """The scores of the docs in the test for a shift: see `doc_entropy.measure_docs`. Call this
        before `predict` writes entities to the docs, which would count as presets. Shape: (B,)"""
        tokens = read_presets([eg.predicted for eg in self.examples])
        entropies, _ = measure_docs(self.posterior, tokens)
        return entropies

    def decode(self, decoding: Decoding) -> Entities:
        """Decode the posterior. Returns the predicted entities that count.

        decoding (Decoding): The decoding.
        """
        decoded = decoding.decode(self.posterior, decoding.settings)
        return self.select_counted(decoded.entities)

    def select_counted(self, entities: Entities) -> Entities:
        """Remove whitespace from the ends of entities, and leave out entities that don't count."""
        trimmed = entities.trim(self.posterior.is_space)
        return trimmed.select(self.are_counted(trimmed))

    def are_counted(self, entities: Entities) -> Array1d:
        """True for entities of labels that count, whose tokens all count. Shape: (E,)"""
        # The number of ignored tokens before each token, and at the end the number of all of them.
        # Shape: (N + 1,). All tokens of an entity count if this number is equal at its begin and at
        # its end.
        n_ignored_before = numpy.concatenate([[0], numpy.cumsum(~self.is_counted)])
        has_counted_tokens = n_ignored_before[entities.end] == n_ignored_before[entities.begin]
        return has_counted_tokens & ~numpy.isin(entities.label, self.other_labels)

    def doc_of_entity(self, entities: Entities) -> Ints1d:
        """The index of the doc of each entity. Shape: (E,)"""
        doc_ends = numpy.cumsum(self.posterior.doc_lengths)
        # An entity is in the first doc that ends after its first token.
        return numpy.searchsorted(doc_ends, entities.begin, side="right")

    def count_in_docs(self, entities: Entities) -> Ints1d:
        """The number of entities in each doc. Shape: (B,)"""
        n_docs = len(self.posterior.doc_lengths)
        return numpy.bincount(self.doc_of_entity(entities), minlength=n_docs)

    def is_correct(self, entities: Entities) -> Array1d:
        """True for the entities that are annotated. Shape: (E,)"""
        return numpy.isin(self.entity_keys(entities), self.entity_keys(self.gold))

    def entity_keys(self, entities: Entities) -> Ints1d:
        """A number for each entity. Two entities have the same number if they have the same tokens
        and label. All inner nodes of a label tree count as one label. Shape: (E,)"""
        # Begin, end and label become the digits of one number, as 2, 5 and 1 become 251. The digit
        # of an end has the values 0 to N. A label has the values -1 to `n_labels`, which stands for
        # any inner node; 1 is added to begin at 0.
        n_tokens = len(self.is_counted)
        n_labels = len(self.posterior.tags.labels)
        begins_and_ends = entities.begin.astype("int64") * (n_tokens + 1) + entities.end
        label_digits = numpy.minimum(entities.label, n_labels) + 1
        return begins_and_ends * (n_labels + 2) + label_digits


def replace_predicted(examples: Iterable[Example], docs: Iterable[Doc]) -> list[Example]:
    """Replace the predicted docs of examples.

    examples (Iterable[Example]): The examples, whose annotated docs are kept.
    docs (Iterable[Doc]): The new predicted docs, in the same order.
    RETURNS (list[Example]): The new examples.
    """
    return [Example(doc, eg.reference) for eg, doc in zip(examples, docs)]


def predict_dev(
    nlp: Language, ner: CostSensitiveNER, examples: Iterable[Example]
) -> DevPredictions:
    """Run the earlier components of a pipeline on copies of annotated docs, and compute the
    posterior of a component. Docs without tokens are left out.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): A component of `nlp`. If it has a `spans_key`, the entities of its docs
        are the spans with its own labels.
    examples (Iterable[Example]): The annotated docs.
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
    reference = read_reference(examples, presets)
    if not reference.is_annotated.any():
        raise ValueError("expected docs with annotated entities, got none")

    batches = minibatch(progress(docs, desc="predict", unit="doc"), nlp.batch_size)
    posterior = concatenate_posteriors([ner.posterior(batch, preset=True) for batch in batches])
    dev = DevPredictions(
        examples,
        posterior,
        gold=reference.entities(ner.tags, nlp.vocab.strings),
        is_counted=reference.is_annotated & ~presets.is_annotated,
        other_labels=ner.other_labels,
        originals=originals,
    )
    return dev._replace(gold=dev.select_counted(dev.gold))


def with_spans_as_entities(ner: CostSensitiveNER, eg: Example) -> Example:
    """Make an example for a component with a `spans_key`, in which the spans of its key are the
    entities of the annotated doc. The predicted doc loses its entities, as entities of other
    components would count as presets."""
    doc = eg.predicted.copy()
    doc.set_ents([], default="missing")
    return ner.annotation.as_entities(Example(doc, eg.reference), ner.own_labels)


def concatenate_posteriors(posteriors: Sequence[Posterior]) -> Posterior:
    """Join the posteriors of several batches, at least one, to one. Its arrays are in the memory of
    the CPU."""
    emissions: list[Floats2d] = []
    lengths: list[Ints1d] = []
    is_space: list[Array1d] = []
    doc_of_sequence: list[Ints1d] = []
    n_docs = 0  # the number of docs in the batches before this one
    for posterior in posteriors:
        scores = map_scores(to_numpy, posterior.scores)
        emissions.append(scores.emissions)
        lengths.append(scores.lengths)
        is_space.append(posterior.is_space)
        doc_of_sequence.append(posterior.doc_of_sequence + n_docs)
        n_docs += len(posterior.doc_lengths)
    # One model predicted all batches, so all have the same transitions, start and end: here the
    # arrays of the last batch are kept.
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
    """Decode docs with the decoding of a component, and write the entities to the docs: to
    `doc.ents` and, if the component has a `spans_key`, also to `doc.spans`.

    ner (CostSensitiveNER): The component whose decoding is used.
    docs (Sequence[Doc]): The docs to write to.
    posterior (Posterior): The posterior of the docs, from the model of the component or another
        model with the same labels.
    confidence (Confidence | None): Where to write the probabilities of the entities. None: nowhere.
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
    """Compute the scores that `nlp.evaluate` would return for annotated docs, except the speed,
    without computing their posterior again. The component decodes the posterior, and then the later
    components run.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component of `nlp` that predicted the docs.
    dev (DevPredictions): The docs with their posterior.
    RETURNS (dict[str, Any]): The scores by name, as they are in JSON.
    """
    docs = [eg.predicted.copy() for eg in dev.originals]
    # As in `CostSensitiveNER.predict`, but without the guaranteed set and the test for a shift,
    # which scores don't need. Spans under a key have probabilities even without a confidence.
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


def turn_on_confidence(nlp: Language, ner: CostSensitiveNER) -> None:
    """Turn on the confidences of a component: it writes the probabilities of its entities to
    `doc.spans`, under a key that no other `cost_sensitive_ner` uses. Nothing changes if they are on
    already. The setting is also written to the config of the pipeline.

    nlp (Language): The pipeline, whose config is updated.
    ner (CostSensitiveNER): The component of `nlp`.
    """
    taken_keys = set()
    for name, component in find_components(nlp).items():
        if name != ner.name and component.confidence is not None:
            taken_keys.add(component.confidence.spans_key)
    confidence = ner.confidence or Confidence()
    if confidence.spans_key in taken_keys:
        confidence = replace(confidence, spans_key=f"{ner.name}_confidence")
    if confidence == ner.confidence:
        return
    ner.set_confidence(confidence)
    block = {"@misc": "spacy_costner.Confidence.v1", **asdict(confidence)}
    nlp.get_pipe_config(ner.name)["confidence"] = block


def record_scores(nlp: Language, scores: Mapping[str, Any], source: str, n_docs: int) -> None:
    """Write the scores of a pipeline that was changed after training to its meta. They replace the
    scores of training in `nlp.meta["performance"]`.

    nlp (Language): The pipeline, whose meta is updated.
    scores (Mapping[str, Any]): The scores: see `evaluate_dev`.
    source (str): The name of the docs that were scored. It is written as "measured_on".
    n_docs (int): The number of these docs.
    """
    performance = nlp.meta.setdefault("performance", {})
    # Write only the scores that spaCy would write: scores that are in the meta already, and scores
    # with a weight in the config.
    names = set(performance)
    names.update(nlp.config["training"].get("score_weights", {}))
    for name in sorted(names):
        if name in scores:
            performance[name] = scores[name]
    performance["measured_on"] = {"source": source, "docs": n_docs}
