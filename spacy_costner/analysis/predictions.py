"""Predictions for annotated docs: their posterior is computed once, for all decodings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch
from thinc.api import to_numpy
from thinc.types import Array1d, Floats1d, Ints1d

from ..decoding import Decoding, Posterior, Temperature
from ..pipeline.annotations import Confidence, Prediction, annotate, make_prediction, measure
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..tags import Entities
from ..token_attrs import read_presets, read_reference
from ..types import map_scores


class DevPredictions(NamedTuple):
    """Annotated docs with their posterior.

    examples (list[Example]): The docs as the component gets them, with their annotation.
    posterior (Posterior): The posterior of the tokens of all docs, concatenated.
    gold (Entities): The annotated entities. Label -1: a label that the component doesn't have.
    known (Array1d): True for tokens that are annotated and have no preset. Shape: (N,)
    others (Sequence[int]): Labels whose entities don't count, as indices.
    """

    examples: list[Example]
    posterior: Posterior
    gold: Entities
    known: Array1d
    others: Sequence[int] = ()

    def with_temperature(self, temperature: Temperature) -> "DevPredictions":
        """The same with the posterior at another temperature."""
        return self._replace(posterior=self.posterior.with_temperature(temperature))

    def entropies(self) -> Floats1d:
        """The scores of the test for a shift, before `predict` writes to the docs. Shape: (B,)"""
        return measure(self.posterior, read_presets([eg.predicted for eg in self.examples]))[0]

    def decode(self, decoding: Decoding) -> Entities:
        """The predicted entities that count: see `keep`."""
        return self.keep(decoding.decode(self.posterior, decoding.settings).entities)

    def keep(self, entities: Entities) -> Entities:
        """Decoded entities without white space at their ends, and only those that count."""
        entities = entities.trim(self.posterior.is_space)
        return entities.select(self.counts(entities))

    def counts(self, entities: Entities) -> Array1d:
        """True for the entities whose tokens are all known. Shape: (E,)"""
        unknown = numpy.concatenate([[0], numpy.cumsum(~self.known)])
        is_known = unknown[entities.end] == unknown[entities.begin]
        return is_known & ~numpy.isin(entities.label, self.others)

    def is_correct(self, entities: Entities) -> Array1d:
        """True for the entities that are annotated. Shape: (E,)"""
        return numpy.isin(self.keys(entities), self.keys(self.gold))

    def keys(self, entities: Entities) -> Ints1d:
        """A number for each entity, the same for the same tokens and label; inner nodes of a label
        tree are one label. Shape: (E,)"""
        n_labels = len(self.posterior.tags.labels)
        extents = entities.begin.astype("int64") * (len(self.known) + 1) + entities.end
        return extents * (n_labels + 2) + numpy.minimum(entities.label, n_labels) + 1


def get_component(nlp: Language, name: str) -> CostSensitiveNER:
    """Get a `cost_sensitive_ner` of a pipeline by its name.

    RAISES (ValueError): If there is none of that name, or it is of another type.
    """
    ours = [other for other, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)]
    if not ours:
        raise ValueError(
            "expected a pipeline with a component of factory 'cost_sensitive_ner', got "
            f"{nlp.pipe_names}"
        )
    if name not in ours:
        raise ValueError(f"expected the name of a cost_sensitive_ner, one of {ours}, got {name!r}")
    return cast(CostSensitiveNER, nlp.get_pipe(name))


def check_ents(command: str, ner: CostSensitiveNER) -> None:
    """RAISES (ValueError): If a component has a `spans_key`, and a command works on `doc.ents`."""
    if (key := ner.annotation.spans_key) is not None:
        raise ValueError(f"{command}: works on doc.ents, but {ner.name} has the spans_key {key!r}")


def predict_dev(
    nlp: Language, ner: CostSensitiveNER, examples: Iterable[Example]
) -> DevPredictions:
    """Run a pipeline on copies of annotated docs and compute the posterior of a component. With a
    `spans_key` the spans of its own labels are the entities of the docs.

    RAISES (ValueError): If there is no annotation.
    """
    examples = [eg for eg in examples if len(eg.predicted)]
    docs = run_before(nlp, ner.name, [eg.predicted.copy() for eg in examples])
    if ner.annotation.spans_key is not None:  # its spans are the only entities
        for doc in docs:
            doc.set_ents([], default="missing")
    examples = [Example(doc, eg.reference) for doc, eg in zip(docs, examples)]
    examples = [ner.annotation.as_entities(eg, ner.own_labels) for eg in examples]
    tokens = read_presets(docs)
    reference = read_reference(examples, tokens)
    if not reference.is_annotated.any():
        raise ValueError("expected docs with annotated entities, got none")

    batches = minibatch(progress(docs, desc="predict", unit="doc"), nlp.batch_size)
    posteriors = [ner.posterior(batch, preset=True) for batch in batches]
    scores = [map_scores(to_numpy, posterior.scores) for posterior in posteriors]
    first_docs = numpy.cumsum([0, *(len(each.doc_lengths) for each in posteriors)])
    posterior = Posterior(
        scores[0]._replace(
            emissions=numpy.concatenate([each.emissions for each in scores]),
            lengths=numpy.concatenate([each.lengths for each in scores]),
        ),
        ner.chain_tags,
        temperature=posteriors[0].temperature,
        is_space=tokens.is_space,
        doc_of=numpy.concatenate([each.doc_of + i for each, i in zip(posteriors, first_docs)]),
    )
    gold = reference.entities(ner.tags, nlp.vocab.strings)
    known = reference.is_annotated & ~tokens.is_annotated
    dev = DevPredictions(examples, posterior, gold, known, ner.other_labels)
    return dev._replace(gold=dev.keep(gold))


def predict(
    ner: CostSensitiveNER,
    docs: Sequence[Doc],
    posterior: Posterior,
    confidence: Confidence | None,
) -> Prediction:
    """Decode the posterior of docs, by this component or by another, with the component's decoding.
    Write the entities to the docs, also with a `spans_key`, and, with confidence, their
    probabilities to a span group."""
    prediction = make_prediction(
        ner.decode(posterior),
        posterior,
        read_presets(docs),
        confidence,
        other_labels=ner.other_labels,
    )
    for spans_key in dict.fromkeys([None, ner.annotation.spans_key]):
        annotate(docs, prediction, ner.name, confidence, spans_key)
    return prediction


def run_before(nlp: Language, name: str, docs: Iterable[str | Doc]) -> list[Doc]:
    """Run the components before one, on texts or docs."""
    with nlp.select_pipes(disable=nlp.pipe_names[nlp.pipe_names.index(name) :]):
        return list(nlp.pipe(docs))


def turn_on_confidence(nlp: Language, ner: CostSensitiveNER) -> None:
    """Have a component write the probabilities of its entities, if it does not, under a key that no
    other component has. Write that to the config."""
    if ner.confidence is None:
        ours = [pipe for _, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)]
        keys = [pipe.confidence.spans_key for pipe in ours if pipe.confidence is not None]
        key = f"{ner.name}_confidence" if "confidence" in keys else "confidence"
        ner.set_confidence(Confidence(key))
        block = {"@misc": "spacy_costner.Confidence.v1", "spans_key": key}
        nlp.get_pipe_config(ner.name)["confidence"] = block


def record_scores(nlp: Language, scores: Mapping[str, Any], source: str, n_docs: int) -> None:
    """Write the scores of a pipeline that was changed after training to its meta. They replace
    the scores of training in `nlp.meta["performance"]`, where "measured_on" names the docs."""
    performance = nlp.meta.setdefault("performance", {})
    names = {*performance, *nlp.config["training"].get("score_weights", ())}
    measured = {name: scores[name] for name in sorted(names & scores.keys())}
    performance |= {**measured, "measured_on": {"source": source, "docs": n_docs}}
