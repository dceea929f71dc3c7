"""Suggest the docs to annotate next: those of which a model is least sure."""

from collections.abc import Iterable, Iterator
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
from ..readers import Task, TaskSpan, doc_to_task
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


def by_entropy(ner: CostSensitiveNER, posterior: Posterior) -> tuple[Floats1d, Floats1d]:
    """The entropy of the path, and of the tag of each token, in nats: - sum_y p(y) log p(y)"""
    probs = posterior.marginals.astype("float64")
    logs = numpy.log(probs, out=numpy.zeros_like(probs), where=probs > 0)
    return posterior.entropy, -(probs * logs).sum(axis=1)


def by_least_confidence(ner: CostSensitiveNER, posterior: Posterior) -> tuple[Floats1d, Floats1d]:
    """The probability of all paths but the best, and of all tags but the best: 1 - max_y p(y)

    Culotta & McCallum, 2005, "Reducing Labeling Effort for Structured Prediction Tasks".
    """
    _, log_probs = posterior.best_paths(1)
    doubts_of_docs = -numpy.expm1(log_probs[0])
    doubts_of_tokens = 1.0 - posterior.marginals.max(axis=1).astype("float64")
    return doubts_of_docs, numpy.maximum(doubts_of_tokens, 0.0)  # rounding may go below 0


def by_cost(ner: CostSensitiveNER, posterior: Posterior) -> tuple[Floats1d, Floats1d]:
    """The lowest expected cost of tags: min_a sum_t sum_k p(y_t = k) cost[k, a_t]"""
    costs = numpy.maximum(ner.expected_costs(posterior), 0.0)
    n_docs = len(posterior.doc_lengths)
    doc_of_token = numpy.repeat(numpy.arange(n_docs), posterior.doc_lengths)
    return numpy.bincount(doc_of_token, costs, minlength=n_docs), costs


MEASURES = {"cost": by_cost, "entropy": by_entropy, "least-confidence": by_least_confidence}

PRICES = ("token", "doc")
"""What the price of a doc is made of."""


class Suggestion(NamedTuple):
    """A doc to annotate, with the entities that the model predicts."""

    place: int  # among the docs, from 0
    score: float  # how unsure the model is of it
    doc: Doc

    def task(self) -> Task:
        """The prediction as a proposal to annotators, with the probability of each entity."""
        task = doc_to_task(self.doc, {"meta": {"score": round(self.score, 4), "doc": self.place}})
        spans: list[TaskSpan] = []
        for span, ent in zip(task.spans or (), self.doc.ents):
            prob = prob_of(ent)
            score = 1.0 if prob is None else round(prob, 4)  # a preset entity has none
            spans.append(span._replace(extra={**span.extra, "score": score}))
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

    nlp (Language): The trained pipeline.
    docs (Iterable[Doc]): The docs, without annotation or with preset entities. Docs without words
        and those with the same text as one before are left out.
    n (int): How many to choose, at least 1; all if there are fewer.
    by (Literal["cost", "entropy", "least-confidence"]): How unsure the model is of a doc.
    per (Literal["token", "doc"]): What a doc costs you: something for each token, or all the same.
    diverse (bool): Whether a doc is worth less if the model is unsure of the same words there as
        in docs chosen before.
    name (str): Name of the component.
    annotated (Iterable[Doc]): Docs that are annotated: their texts are left out.
    RETURNS (list[Suggestion]): The docs, in the order in which they were chosen.
    RAISES (ValueError): If there is no such component, or it isn't trained; if there is no doc, or
        something is out of its range.
    """
    ner = get_component(nlp, name)
    check_ents("suggest", ner)
    if n < 1:
        raise ValueError(f"n: expected at least 1, got {n}")
    if by not in MEASURES:
        raise ValueError(f"by: expected one of {list(MEASURES)}, got {by!r}")
    if per not in PRICES:
        raise ValueError(f"per: expected one of {list(PRICES)}, got {per!r}")
    if not (ner.labels and ner.model.has_dim("nO")):
        raise ValueError(f"components.{name}: expected a trained component, got one without labels")

    places: list[int] = []  # of the docs in the pool, among all docs
    pool: list[Doc] = []
    scores: list[float] = []
    shares: list[Shares] = []
    for batch in minibatch(distinct_docs(docs, annotated), nlp.batch_size):
        places += [place for place, _ in batch]
        annotatable = run_before(nlp, name, [doc for _, doc in batch])
        posterior = ner.posterior(annotatable, preset=True)
        scores_of_docs, scores_of_tokens = MEASURES[by](ner, posterior)
        ends = numpy.cumsum([len(doc) for doc in annotatable])
        for doc, scores_of_doc in zip(annotatable, numpy.split(scores_of_tokens, ends[:-1])):
            shares.append(make_shares(doc.to_array(LOWER), scores_of_doc, LEAST_SHARE))
        scores += numpy.maximum(scores_of_docs, 0.0).tolist()
        pool += annotatable
    if not pool:
        raise ValueError("expected docs with words that are not annotated, got none")

    worth = numpy.asarray(scores)
    if per == "token":
        n_unsure_words = [len(share.features) for share in shares]
        prices = [
            len(doc) + OVERHEAD + PER_WORD * n_words for doc, n_words in zip(pool, n_unsure_words)
        ]
        worth = worth / prices
    chosen = choose_diverse(worth, shares, n, decay=DECAY if diverse else 1.0)
    for batch in minibatch([pool[i] for i in chosen], nlp.batch_size):
        predict(ner, batch, ner.posterior(batch, preset=True), Confidence())
    return [Suggestion(places[i], scores[i], pool[i]) for i in chosen]


def distinct_docs(docs: Iterable[Doc], annotated: Iterable[Doc]) -> Iterator[tuple[int, Doc]]:
    """Docs with words, each text once whatever its white space, and none that is annotated; with
    their places among all docs."""
    texts = {text_without_space(doc) for doc in annotated}
    texts.add("")
    for place, doc in enumerate(docs):
        text = text_without_space(doc)
        if text not in texts:
            texts.add(text)
            yield place, doc


def text_without_space(doc: Doc) -> str:
    """The text of a doc without white space."""
    return "".join(doc.text.split())
