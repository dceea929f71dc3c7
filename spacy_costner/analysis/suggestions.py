"""Suggest the docs to annotate next: those of which a model is least sure."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy
from spacy.attrs import LOWER
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch
from thinc.types import Floats1d

from ..decoding import Posterior
from ..pipeline.annotations import Confidence, prob_of
from ..pipeline.component import CostSensitiveNER
from ..readers import Task, doc_to_task
from .diverse import Shares, choose_diverse, make_shares
from .predictions import check_ents, get_component, predict, run_before

LEAST_SHARE = 0.02
"""Words with a smaller part of the largest uncertainty of a word of the doc don't count."""

DECAY = 0.5
"""A word that was unsure in a chosen doc is worth half as much in the next one."""

OVERHEAD = 20.0
"""What a doc costs besides its tokens, in tokens."""

PER_WORD = 10.0
"""What each of its words that the model is unsure of costs besides, in tokens. Without it, lists of
names come first."""

N_SHOWN = 10


def by_entropy(ner: CostSensitiveNER, posterior: Posterior) -> tuple[Floats1d, Floats1d]:
    """The entropy of the path, and of the tag of each token, in nats: - sum_y p(y) log p(y)"""
    probs = posterior.marginals.astype("float64")
    logs = numpy.log(probs, out=numpy.zeros_like(probs), where=probs > 0)
    return posterior.entropy, -(probs * logs).sum(axis=1)


def by_least_confidence(ner: CostSensitiveNER, posterior: Posterior) -> tuple[Floats1d, Floats1d]:
    """The probability of all paths but the best, and of all tags but the best: 1 - max_y p(y)

    Culotta & McCallum, 2005, "Reducing Labeling Effort for Structured Prediction Tasks".
    """
    doubts = 1.0 - posterior.marginals.max(axis=1).astype("float64")
    return -numpy.expm1(posterior.best_paths(1)[1][0]), numpy.maximum(doubts, 0.0)


def by_cost(ner: CostSensitiveNER, posterior: Posterior) -> tuple[Floats1d, Floats1d]:
    """The lowest expected cost of tags: min_a sum_t sum_k p(y_t = k) cost[k, a_t]"""
    costs = numpy.maximum(ner.expected_costs(posterior), 0.0)
    lengths = posterior.doc_lengths
    sequence = numpy.repeat(numpy.arange(len(lengths)), lengths)
    return numpy.bincount(sequence, costs, minlength=len(lengths)), costs


MEASURES = {"cost": by_cost, "entropy": by_entropy, "least-confidence": by_least_confidence}


class Suggestion(NamedTuple):
    """A doc to annotate, with the entities that the model predicts."""

    place: int  # among the docs, from 0
    score: float  # how unsure the model is of it
    doc: Doc

    def task(self) -> Task:
        """The prediction as a proposal to annotators, with the probability of each entity."""
        task = doc_to_task(self.doc, {"meta": {"score": round(self.score, 4), "doc": self.place}})
        probs = [prob_of(ent) for ent in self.doc.ents]
        spans = [
            span._replace(extra={**span.extra, "score": 1.0 if prob is None else round(prob, 4)})
            for span, prob in zip(task.spans or (), probs)
        ]
        return task._replace(spans=spans)


def suggest(
    nlp: Language,
    docs: Iterable[Doc],
    *,
    n: int = 200,
    by: Literal["cost", "entropy", "least-confidence"] = "cost",
    per: Literal["token", "doc"] = "token",
    diverse: bool = True,
    name: str = "ner",
    annotated: Iterable[Doc] = (),
) -> list[Suggestion]:
    """Choose the docs whose annotation is worth most, and predict their entities.

    docs (Iterable[Doc]): The docs, without annotation or with preset entities. Docs without words
        and those with the same text as one before are left out.
    n (int): How many to choose, at least 1; all if there are fewer.
    diverse (bool): Whether a doc is worth less if the model is unsure of the same words there as
        in docs chosen before.
    by (Literal["cost", "entropy", "least-confidence"]): How unsure the model is.
    per (Literal["token", "doc"]): Price of a doc.
    name (str): Name of the component.
    RETURNS (list[Suggestion]): The docs, in the order in which they were chosen.
    RAISES (ValueError): If there is no such component, or it isn't trained; if there is no doc, or
        something is out of its range.
    """
    ner = get_component(nlp, name)
    check_ents("suggest", ner)
    if n < 1:
        raise ValueError(f"n: expected at least 1, got {n}")
    for setting, value, words in (("by", by, [*MEASURES]), ("per", per, ["token", "doc"])):
        if value not in words:
            raise ValueError(f"{setting}: expected one of {words}, got {value!r}")
    if not (ner.labels and ner.model.has_dim("nO")):
        raise ValueError(f"components.{name}: expected a trained component, got one without labels")

    seen = {"".join(doc.text.split()) for doc in annotated} | {""}
    places = []  # of docs with words, each text once whatever its white space

    def distinct() -> Iterable[Doc]:
        for place, doc in enumerate(docs):
            text = "".join(doc.text.split())
            if text not in seen:
                seen.add(text)
                places.append(place)
                yield doc

    pool: list[Doc] = []
    scores: list[float] = []
    shares: list[Shares] = []
    for batch in minibatch(distinct(), nlp.batch_size):
        batch = run_before(nlp, name, batch)
        of_docs, of_tokens = MEASURES[by](ner, ner.posterior(batch, preset=True))
        ends = numpy.cumsum([len(doc) for doc in batch])
        for doc, tokens in zip(batch, numpy.split(of_tokens, ends[:-1])):
            shares.append(make_shares(doc.to_array(LOWER), tokens, LEAST_SHARE))
        scores += numpy.maximum(of_docs, 0.0).tolist()
        pool += batch
    if not pool:
        raise ValueError("expected docs with words that are not annotated, got none")
    prices = [len(doc) + OVERHEAD + PER_WORD * len(of.features) for doc, of in zip(pool, shares)]
    values = numpy.asarray(scores) / (prices if per == "token" else 1.0)
    order = choose_diverse(values, shares, n, decay=DECAY if diverse else 1.0)
    for some in minibatch([pool[i] for i in order], nlp.batch_size):
        predict(ner, some, ner.posterior(some, preset=True), Confidence())
    return [Suggestion(places[i], scores[i], pool[i]) for i in order]
