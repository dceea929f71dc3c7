"""The posterior of development docs, computed once for all decodings."""

from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
    cast,
)

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch
from thinc.api import to_numpy
from thinc.types import Array1d, Floats1d, Ints1d

from ..decoding import Decoding, Posterior, Temperature
from ..features.memory import ranges
from ..pipeline.annotations import (
    Confidence,
    Prediction,
    annotate,
    guarantee_scores,
    is_new,
    make_prediction,
)
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..tags import Entities
from ..training.token_attrs import read_presets, read_reference, trim
from ..types import map_scores


class DevPredictions(NamedTuple):
    """Annotated docs with their posterior.

    examples (List[Example]): The docs as the component gets them, with their annotation.
    posterior (Posterior): The posterior of the tokens of all docs, concatenated.
    gold (Entities): The annotated entities. Label -1: a label that the component doesn't have.
    known (Array1d): True for tokens that are annotated and have no preset. Shape: (N,)
    """

    examples: List[Example]
    posterior: Posterior
    gold: Entities
    known: Array1d

    def at(self, temperature: Temperature) -> "DevPredictions":
        """The same with the posterior at another temperature."""
        return self._replace(posterior=self.posterior.at(temperature))

    def decode(self, decoding: Decoding) -> Entities:
        """Predict entities. Only those that count: see `counts`."""
        return self.keep(decoding.decode(self.posterior, decoding.settings).entities)

    def keep(self, entities: Entities) -> Entities:
        """What is left of decoded entities without white space, and if only those count that are
        known."""
        found = trim(entities, self.posterior.is_space)
        return select(found, self.counts(found))

    def counts(self, entities: Entities) -> Array1d:
        """True for the entities whose tokens are all known. Shape: (E,)"""
        unknown = numpy.concatenate([[0], numpy.cumsum(~self.known)])
        return unknown[entities.end] == unknown[entities.begin]

    def right(self, entities: Entities) -> Array1d:
        """True for the entities that are annotated. Shape: (E,)"""
        return numpy.isin(self._keys(entities), self._keys(self.gold))

    def _keys(self, entities: Entities) -> Ints1d:
        n_labels = len(self.posterior.tags.labels) + 1
        extents = entities.begin.astype("int64") * (len(self.known) + 1) + entities.end
        return extents * n_labels + (entities.label + 1)


def select(entities: Entities, which: Array1d) -> Entities:
    """Some of the entities.

    which (Array1d): True for these. Shape: (E,)
    """
    return Entities(*(column[which] for column in entities))


def get_component(nlp: Language, name: str) -> CostSensitiveNER:
    """Get a `cost_sensitive_ner` component.

    nlp (Language): The pipeline.
    name (str): The name of the component.
    RETURNS (CostSensitiveNER): The component.
    RAISES (ValueError): If there is none of that name, or it is of another type.
    """
    ours = [other for other, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)]
    if name not in ours:
        raise ValueError(f"expected the name of a cost_sensitive_ner, one of {ours}, got {name!r}")
    return cast(CostSensitiveNER, nlp.get_pipe(name))


def predict_dev(nlp: Language, name: str, examples: Iterable[Example]) -> DevPredictions:
    """Run a pipeline on docs and compute the posterior of a component.

    nlp (Language): The pipeline.
    name (str): The name of the component.
    examples (Iterable[Example]): The annotated docs.
    RETURNS (DevPredictions): The docs with their posterior.
    RAISES (ValueError): If there is no such component, or no annotation.
    """
    ner, examples = get_component(nlp, name), [eg for eg in examples if len(eg.predicted)]
    docs = run_before(nlp, name, [eg.predicted.copy() for eg in examples])
    examples = [Example(doc, eg.reference) for doc, eg in zip(docs, examples)]
    tokens = read_presets(docs)
    reference = read_reference(examples, tokens)
    if not reference.is_annotated.any():
        raise ValueError("expected docs with annotated entities, got none")
    dev = DevPredictions(
        examples=examples,
        posterior=_posterior(ner, docs, nlp.batch_size),
        gold=trim(reference.entities(ner.tags, nlp.vocab.strings), tokens.is_space),
        known=reference.is_annotated & ~tokens.is_annotated,
    )
    return dev._replace(gold=select(dev.gold, dev.counts(dev.gold)))


def predict(
    ner: CostSensitiveNER, dev: DevPredictions, confidence: Optional[Confidence]
) -> Prediction:
    """Decode the posterior of docs, and set their entities.

    ner (CostSensitiveNER): The component.
    dev (DevPredictions): The docs. They get entities and, with confidence, a span group.
    confidence (Optional[Confidence]): Where the probabilities of entities are written.
    RETURNS (Prediction): The predicted entities.
    """
    docs, posterior = [eg.predicted for eg in dev.examples], dev.posterior
    prediction = make_prediction(ner.decode(posterior), posterior, read_presets(docs), confidence)
    annotate(docs, prediction, ner.vocab.strings, confidence)
    return prediction


def run_before(nlp: Language, name: str, docs: Iterable[Union[str, Doc]]) -> List[Doc]:
    """Run the components before one, on texts or docs."""
    with nlp.select_pipes(disable=nlp.pipe_names[nlp.pipe_names.index(name) :]):
        return list(nlp.pipe(docs))


def record_scores(nlp: Language, scores: Mapping[str, Any], source: str, n_docs: int) -> None:
    """Write the scores of a pipeline that was changed after training to its meta. They replace
    those of training in `nlp.meta["performance"]`, where "measured_on" names the docs.

    nlp (Language): The pipeline.
    scores (Mapping[str, Any]): Its scores.
    source (str): The name of the docs, such as a path.
    n_docs (int): Their number.
    """
    performance = nlp.meta.setdefault("performance", {})
    names = {*performance, *nlp.config["training"].get("score_weights", ())}
    performance.update({name: scores[name] for name in sorted(names & scores.keys())})
    performance["measured_on"] = {"source": source, "docs": n_docs}


def _posterior(ner: CostSensitiveNER, docs: Sequence[Doc], batch_size: int) -> Posterior:
    """The posterior of docs, computed by batches and concatenated."""
    seen = progress(docs, desc="predict", unit="doc")
    batches = [ner.posterior(batch, preset=True) for batch in minibatch(seen, batch_size)]
    scores = [map_scores(to_numpy, posterior.scores) for posterior in batches]
    return Posterior(
        scores[0]._replace(
            emissions=numpy.concatenate([each.emissions for each in scores]),
            lengths=numpy.concatenate([each.lengths for each in scores]),
        ),
        ner.chain_tags,
        temperature=batches[0].temperature,
        is_space=numpy.concatenate([posterior.is_space for posterior in batches]),
    )


BATCH = 64
FOUND = ("exact", "span", "covered", "touched")


class SpanScores(NamedTuple):
    """The spans or the annotated entities of docs.

    label (Ints1d): The index of their label. Shape: (S,)
    doc (Ints1d): Their docs. Shape: (S,)
    score (Floats1d): Of spans the score, or `numpy.inf` if they are in the set whatever the
        threshold. Of annotated entities the highest threshold at which they are found.
        Shape: (S,)
    right (Array1d): Whether spans are right, annotated entities are ever found. Shape: (S,)
    """

    label: Ints1d
    doc: Ints1d
    score: Floats1d
    right: Array1d

    def select(self, which: Array1d) -> "SpanScores":
        """Some of them. Shape of `which`: (S,)"""
        return SpanScores(*(column[which] for column in self))


def score(
    nlp: Language,
    name: str,
    examples: List[Example],
    terms: Dict[str, Any],
    on_docs: Callable[[int], Any] = lambda n: None,
) -> Tuple[SpanScores, SpanScores]:
    """Score spans and annotated entities.

    nlp (Language): The pipeline.
    name (str): The name of the component.
    examples (List[Example]): Completely annotated docs.
    terms (Dict[str, Any]): "miss", "found", "by" and "per_label", as in `guarantee.Terms`.
    on_docs (Callable[[int], Any]): Called with the number of docs of each batch that is done.
    RETURNS (Tuple[SpanScores, SpanScores]): The spans and the annotated entities.
    """
    found, rows, n_docs = terms["found"], [], 0
    by_label = terms["per_label"] or found == "exact"
    for batch in minibatch(examples, BATCH):
        dev = predict_dev(nlp, name, batch)
        spans, scores = guarantee_scores(dev.posterior, terms)
        if terms["miss"] is not None:
            answer = get_component(nlp, name).decode(dev.posterior).entities
            predicted = trim(answer, dev.posterior.is_space)
            new = is_new(spans, predicted)
            always = numpy.full(len(predicted.begin), numpy.inf)
            spans = _join(predicted, select(spans, new))
            scores = numpy.append(always, scores[new])
        n = len(dev.known)
        right = found_at(spans, dev.gold, numpy.ones(len(dev.gold.begin)), found, by_label, n) > 0
        reached = found_at(dev.gold, spans, scores, found, by_label, n)
        ends = numpy.cumsum(dev.posterior.potentials.lengths)
        columns = [
            (each, numpy.searchsorted(ends, each.begin, side="right") + n_docs, values, correct)
            for each, values, correct in ((spans, scores, right), (dev.gold, reached, reached > 0))
        ]
        rows.append([SpanScores(each.label, *rest) for each, *rest in columns])
        n_docs += len(batch)
        on_docs(len(batch))
    found_spans, gold = (SpanScores(*map(numpy.concatenate, zip(*parts))) for parts in zip(*rows))
    return found_spans, gold


def _join(first: Entities, second: Entities) -> Entities:
    return Entities(*(numpy.concatenate(pair) for pair in zip(first, second)))


def found_at(
    wanted: Entities, spans: Entities, scores: Floats1d, found: str, by_label: bool, n_tokens: int
) -> Floats1d:
    """The highest threshold at which entities are found by spans with at least that score.

    wanted (Entities): The entities.
    spans (Entities): The spans.
    scores (Floats1d): Their scores, above 0. Shape: (S,)
    found (str): What counts as found: see `guarantee.Terms`.
    by_label (bool): Whether only spans with the same label count.
    n_tokens (int): N.
    RETURNS (Floats1d): 0 for those that are never found. Shape: (E,)
    """
    if by_label:  # each label has tokens of its own
        wanted, spans = (
            Entities(begin + shift, end + shift, label)
            for begin, end, label in (wanted, spans)
            for shift in [(label.astype("int64") + 1) * (n_tokens + 1)]
        )
    if found in ("exact", "span"):
        width = int(max((end - begin).max(initial=0) for begin, end, _ in (wanted, spans))) + 1
        keys = [begin.astype("int64") * width + end - begin for begin, end, _ in (wanted, spans)]
        both, which = numpy.unique(numpy.concatenate(keys), return_inverse=True)
        best = numpy.zeros(len(both))
        numpy.maximum.at(best, which[len(keys[0]) :], scores)
        return best[which[: len(keys[0])]]
    last = max(int(end.max(initial=0)) for end in (wanted.end, spans.end))
    best = numpy.zeros(last)
    which, token = ranges(spans.begin, spans.end)
    numpy.maximum.at(best, token, scores[which])
    which, token = ranges(wanted.begin, wanted.end)
    if not len(which):
        return numpy.zeros(0)
    reduce = numpy.minimum if found == "covered" else numpy.maximum
    return reduce.reduceat(best[token], numpy.flatnonzero(numpy.diff(which, prepend=-1)))
