"""Predictions for annotated docs: the posterior is computed once, for all decodings and scores.

Entities count if all of their tokens are annotated, and none was preset by another component.
`DevPredictions` keeps what counts, and looks entities up in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.scorer import Scorer
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch
from thinc.api import to_numpy
from thinc.types import Array1d, Floats1d, Floats2d, Ints1d

from ..decoding import Decoding, Posterior, Temperature
from ..pipeline.annotations import Confidence, Prediction, annotate, make_prediction, measure
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..saving import as_json
from ..tags import Entities
from ..token_attrs import read_presets, read_reference
from ..types import map_scores


class DevPredictions(NamedTuple):
    """Annotated docs with their posterior.

    examples (list[Example]): The docs as the component gets them, with their annotation. With a
        `spans_key`, the entities of the annotation are its spans.
    posterior (Posterior): The posterior of the tokens of all docs, concatenated.
    gold (Entities): The annotated entities. Label -1: a label that the component doesn't have.
    is_counted (Array1d): True for tokens that are annotated and have no preset. Shape: (N,)
    other_labels (Sequence[int]): Labels whose entities don't count, as indices.
    originals (Sequence[Example]): The same docs with entities and spans as they were read. Without
        a `spans_key`, those of `examples`.
    """

    examples: list[Example]
    posterior: Posterior
    gold: Entities
    is_counted: Array1d
    other_labels: Sequence[int] = ()
    originals: Sequence[Example] = ()

    def with_temperature(self, temperature: Temperature) -> "DevPredictions":
        """The same with the posterior at another temperature."""
        return self._replace(posterior=self.posterior.with_temperature(temperature))

    def entropies(self) -> Floats1d:
        """The scores of the test for a shift, before `predict` writes to the docs. Shape: (B,)"""
        tokens = read_presets([eg.predicted for eg in self.examples])
        entropies, _ = measure(self.posterior, tokens)
        return entropies

    def decode(self, decoding: Decoding) -> Entities:
        """The predicted entities that count: see `select_counted`."""
        decoded = decoding.decode(self.posterior, decoding.settings)
        return self.select_counted(decoded.entities)

    def select_counted(self, entities: Entities) -> Entities:
        """Decoded entities without white space at their ends, and only those that count."""
        trimmed = entities.trim(self.posterior.is_space)
        return trimmed.select(self.are_counted(trimmed))

    def are_counted(self, entities: Entities) -> Array1d:
        """True for entities of labels that count, whose tokens all count. Shape: (E,)"""
        # How many tokens before each token don't count. Shape: (N + 1,) If all tokens of an entity
        # count, it is the same before its first token and before the one after its last.
        n_ignored = numpy.concatenate([[0], numpy.cumsum(~self.is_counted)])
        has_counted_tokens = n_ignored[entities.end] == n_ignored[entities.begin]
        return has_counted_tokens & ~numpy.isin(entities.label, self.other_labels)

    def doc_of(self, entities: Entities) -> Ints1d:
        """The index of the doc of each entity. Shape: (E,)"""
        doc_ends = numpy.cumsum(self.posterior.doc_lengths)
        # An entity is in the first doc that ends after its first token.
        return numpy.searchsorted(doc_ends, entities.begin, side="right")

    def count_in_docs(self, entities: Entities) -> Ints1d:
        """The number of the entities in each doc. Shape: (B,)"""
        n_docs = len(self.posterior.doc_lengths)
        return numpy.bincount(self.doc_of(entities), minlength=n_docs)

    def is_correct(self, entities: Entities) -> Array1d:
        """True for the entities that are annotated. Shape: (E,)"""
        return numpy.isin(self.entity_keys(entities), self.entity_keys(self.gold))

    def entity_keys(self, entities: Entities) -> Ints1d:
        """A number for each entity, the same for the same tokens and label. All inner nodes of a
        label tree count as one label. Shape: (E,)"""
        # Begin, end and label become the digits of one number, as in (begin * 10 + end) * 10 +
        # label. An end is up to N, and so has N + 1 values. A label is from -1 up to `n_labels`,
        # which is any inner node.
        n_tokens = len(self.is_counted)
        n_labels = len(self.posterior.tags.labels)
        extents = entities.begin.astype("int64") * (n_tokens + 1) + entities.end
        labels_from_0 = numpy.minimum(entities.label, n_labels) + 1
        return extents * (n_labels + 2) + labels_from_0


def get_component(nlp: Language, name: str) -> CostSensitiveNER:
    """Get a `cost_sensitive_ner` of a pipeline by its name.

    RAISES (ValueError): If there is none of that name, or it is of another type.
    """
    components = find_components(nlp)
    if not components:
        raise ValueError(
            "expected a pipeline with a component of factory 'cost_sensitive_ner', got "
            f"{nlp.pipe_names}"
        )
    if name not in components:
        raise ValueError(
            f"expected the name of a cost_sensitive_ner, one of {[*components]}, got {name!r}"
        )
    return components[name]


def find_components(nlp: Language) -> dict[str, CostSensitiveNER]:
    """The components of a pipeline that are a `cost_sensitive_ner`, by name and in its order."""
    return {name: pipe for name, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)}


def replace_predicted(examples: Iterable[Example], docs: Iterable[Doc]) -> list[Example]:
    """Examples with the same annotation, and other predicted docs."""
    return [Example(doc, eg.reference) for eg, doc in zip(examples, docs)]


def check_ents(command: str, ner: CostSensitiveNER) -> None:
    """Check that a component writes `doc.ents`, for a command that works on them.

    RAISES (ValueError): If it has a `spans_key`.
    """
    key = ner.annotation.spans_key
    if key is not None:
        raise ValueError(f"{command}: works on doc.ents, but {ner.name} has the spans_key {key!r}")


def predict_dev(
    nlp: Language, ner: CostSensitiveNER, examples: Iterable[Example]
) -> DevPredictions:
    """Run a pipeline on copies of annotated docs and compute the posterior of a component. With a
    `spans_key` the spans of its own labels are the entities of the docs.

    RAISES (ValueError): If there is no annotation.
    """
    nonempty = [eg for eg in examples if len(eg.predicted)]
    copies = [eg.predicted.copy() for eg in nonempty]
    originals = replace_predicted(nonempty, run_before(nlp, ner.name, copies))
    examples = originals
    if ner.annotation.spans_key is not None:
        examples = [with_spans_as_entities(ner, eg) for eg in originals]
    docs = [eg.predicted for eg in examples]
    tokens = read_presets(docs)
    reference = read_reference(examples, tokens)
    if not reference.is_annotated.any():
        raise ValueError("expected docs with annotated entities, got none")

    batches = minibatch(progress(docs, desc="predict", unit="doc"), nlp.batch_size)
    posterior = concatenate_posteriors([ner.posterior(batch, preset=True) for batch in batches])
    dev = DevPredictions(
        examples,
        posterior,
        gold=reference.entities(ner.tags, nlp.vocab.strings),
        is_counted=reference.is_annotated & ~tokens.is_annotated,
        other_labels=ner.other_labels,
        originals=originals,
    )
    return dev._replace(gold=dev.select_counted(dev.gold))


def with_spans_as_entities(ner: CostSensitiveNER, eg: Example) -> Example:
    """An example of a component with a `spans_key` whose only entities are its spans. The predicted
    doc has none, so that those of other components aren't preset."""
    doc = eg.predicted.copy()
    doc.set_ents([], default="missing")
    return ner.annotation.as_entities(Example(doc, eg.reference), ner.own_labels)


def concatenate_posteriors(posteriors: Sequence[Posterior]) -> Posterior:
    """Concatenate the posteriors of several batches, in the memory of the CPU."""
    emissions: list[Floats2d] = []
    lengths: list[Ints1d] = []
    is_space: list[Array1d] = []
    doc_of: list[Ints1d] = []
    n_docs = 0  # in the batches before
    for posterior in posteriors:
        scores = map_scores(to_numpy, posterior.scores)
        emissions.append(scores.emissions)
        lengths.append(scores.lengths)
        is_space.append(posterior.is_space)
        doc_of.append(posterior.doc_of + n_docs)
        n_docs += len(posterior.doc_lengths)
    # All batches have the same transitions, start and end: those of the last one are kept.
    all_scores = scores._replace(
        emissions=numpy.concatenate(emissions), lengths=numpy.concatenate(lengths)
    )
    return replace(
        posteriors[0],
        scores=all_scores,
        is_space=numpy.concatenate(is_space),
        doc_of=numpy.concatenate(doc_of),
    )


def predict(
    ner: CostSensitiveNER,
    docs: Sequence[Doc],
    posterior: Posterior,
    confidence: Confidence | None,
) -> Prediction:
    """Decode docs with the decoding of a component, and write the entities to the docs: to
    `doc.ents` and, if the component has a `spans_key`, also to `doc.spans`.

    ner (CostSensitiveNER): The component.
    docs (Sequence[Doc]): The docs.
    posterior (Posterior): Their posterior: that of the component, or of a model of the same labels.
    confidence (Confidence | None): Where to write the probabilities of the entities. None: nowhere.
    RETURNS (Prediction): The entities and their probabilities.
    """
    tokens = read_presets(docs)
    prediction = make_prediction(
        ner.decode(posterior), posterior, tokens, confidence, other_labels=ner.other_labels
    )
    annotate(docs, prediction, ner.name, confidence)
    spans_key = ner.annotation.spans_key
    if spans_key is not None:
        annotate(docs, prediction, ner.name, confidence, spans_key)
    return prediction


def evaluate_dev(nlp: Language, ner: CostSensitiveNER, dev: DevPredictions) -> dict[str, Any]:
    """The scores that `nlp.evaluate` would return for development docs. The docs are not predicted
    again: the component decodes their posterior, and then the components after it run."""
    docs = [eg.predicted.copy() for eg in dev.originals]
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


def run_before(nlp: Language, name: str, docs: Iterable[str | Doc]) -> list[Doc]:
    """Run the components before the one with this name, on texts or docs."""
    index = nlp.pipe_names.index(name)
    with nlp.select_pipes(disable=nlp.pipe_names[index:]):
        return list(nlp.pipe(docs))


def run_after(nlp: Language, name: str, docs: Iterable[Doc]) -> list[Doc]:
    """Run the components after the one with this name, on docs that it has annotated."""
    index = nlp.pipe_names.index(name)
    with nlp.select_pipes(disable=nlp.pipe_names[: index + 1]):
        return list(nlp.pipe(docs))


def turn_on_confidence(nlp: Language, ner: CostSensitiveNER) -> None:
    """Have a component write the probabilities of its entities to `doc.spans`, if it does not yet.
    The key is one that no other component has. The setting is written to the config, too."""
    if ner.confidence is not None:
        return
    taken_keys = set()
    for component in find_components(nlp).values():
        if component.confidence is not None:
            taken_keys.add(component.confidence.spans_key)
    key = "confidence"
    if key in taken_keys:
        key = f"{ner.name}_confidence"
    ner.set_confidence(Confidence(key))
    block = {"@misc": "spacy_costner.Confidence.v1", "spans_key": key}
    nlp.get_pipe_config(ner.name)["confidence"] = block


def record_scores(nlp: Language, scores: Mapping[str, Any], source: str, n_docs: int) -> None:
    """Write the scores of a pipeline that was changed after training to its meta. They replace
    the scores of training in `nlp.meta["performance"]`, where "measured_on" names the docs."""
    performance = nlp.meta.setdefault("performance", {})
    # Those that spaCy writes: the scores that are there, and those with a weight.
    names = set(performance)
    names.update(nlp.config["training"].get("score_weights", {}))
    for name in sorted(names):
        if name in scores:
            performance[name] = scores[name]
    performance["measured_on"] = {"source": source, "docs": n_docs}
