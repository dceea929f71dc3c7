"""Suggest the docs to annotate next: those of which a model is least sure.

Docs are chosen from a pool. The worth of a doc is its score, which says how unsure the model is of
it, divided by its price, which says how much work its annotation is. Docs that are chosen together
should be diverse: a doc is worth less if the model is unsure of the same words in it as in docs
that are already chosen. So the score of a doc is divided among its words, and these parts are its
*shares* (`Shares`). Entities that a doc has before are *preset*: they are taken for right.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy
from spacy.attrs import LOWER
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch
from thinc.types import Floats1d

from ...decoding import Posterior
from ...pipeline.annotations import Confidence, prob_of
from ...pipeline.component import CostSensitiveNER
from ...readers import Task, TaskSpan, doc_to_task
from ..components import check_ents, find_components, get_component, run_before
from ..evaluation.predictions import predict
from .diverse import Shares, choose_diverse, make_shares

MIN_SHARE = 0.02
"""The model counts as unsure of a word if its uncertainty there, summed over the occurrences of the
word in the doc, is above this share of the highest sum."""

DECAY = 0.5
"""If the model is unsure of a word in a chosen doc, the word is worth half as much in the next doc
with it, and so on."""

PRICE_PER_DOC = 20.0
"""A doc takes as much work as this many tokens, in addition to its own tokens."""

PRICE_PER_WORD = 10.0
"""Each word of which the model is unsure takes as much work as this many more tokens. Without it,
lists of names would be suggested first."""


class NoDocsError(ValueError):
    """There are no docs to choose from."""


class Uncertainty(NamedTuple):
    """How unsure a model is of D docs and of their N tokens, by one of `MEASURES`."""

    docs: Floats1d  # shape: (D,)
    tokens: Floats1d  # the tokens of all docs, one after another. Shape: (N,)


def by_entropy(ner: CostSensitiveNER, posterior: Posterior) -> Uncertainty:
    """Measure uncertainty by entropy, in nats: of the path of a doc, and of the tag of a token.

        - sum_y p(y) log p(y)

    The sum is over all paths y of the doc, or over all tags y of the token. (`ner` isn't used.)
    """
    probs = posterior.marginals.astype("float64")  # (N, number of tags)
    # The logarithm of the probability 0 is left at 0, as 0 log 0 counts as 0.
    logs = numpy.log(probs, out=numpy.zeros_like(probs), where=probs > 0)
    return Uncertainty(posterior.entropy, -(probs * logs).sum(axis=1))


def by_least_confidence(ner: CostSensitiveNER, posterior: Posterior) -> Uncertainty:
    """Measure uncertainty by the probability that the best path of a doc, or the best tag of a
    token, is wrong.

        1 - max_y p(y)

    The maximum is over all paths y of the doc, or over all tags y of the token. (`ner` isn't used.)

    Culotta & McCallum, 2005, "Reducing Labeling Effort for Structured Prediction Tasks".
    """
    # The logarithm of the probability of the best path of each doc. Shape: (1, D)
    _, log_probs = posterior.best_paths(k=1)
    doc_uncertainties = -numpy.expm1(log_probs[0])  # 1 - p, without the rounding error near 0
    token_uncertainties = 1.0 - posterior.marginals.max(axis=1).astype("float64")
    # By rounding, a probability may be slightly above 1.
    return Uncertainty(doc_uncertainties, numpy.maximum(token_uncertainties, 0.0))


def by_cost(ner: CostSensitiveNER, posterior: Posterior) -> Uncertainty:
    """Measure uncertainty by cost. The cost of a token is the expected cost of its tag a_t on the
    path with the lowest expected cost. The cost of a doc is the sum over its tokens.

        sum_k p(y_t = k) cost[k, a_t]

    The costs are those of the decoding or, if it doesn't minimise expected costs, 1 for each wrong
    tag: see `CostSensitiveNER.expected_costs`.
    """
    # By rounding, an expected cost may be slightly below 0.
    token_costs = numpy.maximum(ner.expected_costs(posterior), 0.0)
    n_docs = len(posterior.doc_lengths)
    doc_of_token = numpy.repeat(numpy.arange(n_docs), posterior.doc_lengths)
    doc_costs = numpy.bincount(doc_of_token, weights=token_costs, minlength=n_docs)
    return Uncertainty(doc_costs, token_costs)


Measure = Callable[[CostSensitiveNER, Posterior], Uncertainty]
"""Maps a component and the posterior of docs to its uncertainty."""

MEASURES: dict[str, Measure] = {
    "cost": by_cost,
    "entropy": by_entropy,
    "least-confidence": by_least_confidence,
}
"""The measures of uncertainty, by the values of the argument `by` of `suggest`."""

CHOSEN_BY = "chosen_by"
"""This key in the metadata of a doc says that the doc was suggested, and not drawn at random."""

PRICES = ("token", "doc")
"""What the price of docs depends on: their tokens and words, or nothing, so that all docs have the
same price."""


class Candidate(NamedTuple):
    """A doc of the pool that may be chosen."""

    doc_index: int  # the index of the doc among all docs
    doc: Doc
    score: float  # how unsure the model is of the doc
    shares: Shares  # the words that the model is unsure of, and the share of the score of each


class Suggestion(NamedTuple):
    """A doc to annotate."""

    place: int  # the index of the doc among all docs
    score: float  # how unsure the model is of the doc; without a model see `suggest_first`
    doc: Doc  # with the entities that the model predicts, if there is one

    def task(self) -> Task:
        """Make a task of the doc, which proposes the predicted entities to annotators. If there is
        no model yet, the task has no annotation."""
        meta = {"score": round(self.score, 4), "doc": self.place, CHOSEN_BY: "suggest"}
        return proposal(self.doc, {"meta": meta})


def proposal(doc: Doc, extra: Mapping[str, Any]) -> Task:
    """Make a task of a doc that proposes its predicted entities, with their probabilities, to
    annotators. If the doc has no annotation, neither has the task.

    doc (Doc): The predicted doc.
    extra (Mapping[str, Any]): Other keys of the task.
    """
    task = doc_to_task(doc, extra)
    if task.spans is None:  # Nothing was predicted, as there is no model yet.
        return task
    spans: list[TaskSpan] = []
    # The spans of the task are the entities of the doc, in the same order.
    for span, ent in zip(task.spans, doc.ents):
        prob = prob_of(ent)
        if prob is None:  # The entity is preset.
            prob = 1.0
        score = round(prob, 4)
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
    RAISES (ValueError): If there is no such component, or it isn't trained or has a `spans_key`; if
        there is no doc, or something is out of its range.
    """
    check_other_components(nlp, name)
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

    pool = measure_pool(nlp, name, distinct_docs(docs, annotated), MEASURES[by])
    if not pool:
        raise NoDocsError("expected docs with words that are not annotated, got none")
    # The worth of a doc is its score, divided by its price if prices differ.
    worth = numpy.asarray([candidate.score for candidate in pool])
    if per == "token":
        prices: list[float] = []
        for candidate in pool:
            # Only words of which the model is unsure have a share: see `measure_pool`.
            n_unsure_words = len(candidate.shares.features)
            price = len(candidate.doc) + PRICE_PER_DOC + PRICE_PER_WORD * n_unsure_words
            prices.append(price)
        worth = worth / prices

    shares = [candidate.shares for candidate in pool]
    decay = DECAY if diverse else 1.0
    suggestions: list[Suggestion] = []
    for i in choose_diverse(worth, shares, n, decay=decay):
        candidate = pool[i]
        suggestions.append(Suggestion(candidate.doc_index, candidate.score, candidate.doc))
    # Write the predicted entities to the docs. `Suggestion.task` proposes them to annotators, with
    # the probabilities that are written because of `Confidence`.
    chosen_docs = [suggestion.doc for suggestion in suggestions]
    for batch in minibatch(chosen_docs, nlp.batch_size):
        posterior = ner.posterior(batch, preset=True)
        predict(ner, batch, posterior, Confidence())
    return suggestions


def suggest_first(
    docs: Iterable[Doc], *, n: int = 200, annotated: Iterable[Doc] = ()
) -> list[Suggestion]:
    """Choose docs to annotate before there is a model, so that together they have many of the
    frequent words. The worth of a word is the square root of the number of docs that have it, or 0
    if only one doc has it.

    docs (Iterable[Doc]): The docs. Those without words and those with the same text as one before
        are left out.
    n (int): How many to choose, at least 1; all if there are fewer.
    annotated (Iterable[Doc]): Docs that are annotated: their texts are left out.
    RETURNS (list[Suggestion]): The docs, in the order in which they were chosen. The score of a doc
        is the sum of the worth of its different words.
    RAISES (ValueError): If there is no doc, or `n` is out of its range.
    """
    if n < 1:
        raise ValueError(f"n: expected at least 1, got {n}")
    doc_indices: list[int] = []
    pool: list[Doc] = []
    for doc_index, doc in distinct_docs(docs, annotated):
        doc_indices.append(doc_index)
        pool.append(doc)
    if not pool:
        raise NoDocsError("expected docs with words that are not annotated, got none")

    words_of_docs = [numpy.unique(doc.to_array(LOWER)) for doc in pool]
    n_docs_with_word = Counter(chain.from_iterable(words.tolist() for words in words_of_docs))
    scores: list[float] = []
    prices: list[float] = []
    shares: list[Shares] = []
    for doc, words in zip(pool, words_of_docs):
        n_docs = numpy.asarray([n_docs_with_word[word] for word in words.tolist()])
        # What a model learns of a word is of no use if the word never occurs again.
        worth_of_words = numpy.where(n_docs > 1, numpy.sqrt(n_docs), 0.0)
        scores.append(float(worth_of_words.sum()))
        prices.append(len(doc) + PRICE_PER_DOC)
        shares.append(make_shares(words, worth_of_words))
    suggestions: list[Suggestion] = []
    worth = numpy.asarray(scores) / numpy.asarray(prices)
    for i in choose_diverse(worth, shares, n, decay=DECAY):
        suggestions.append(Suggestion(doc_indices[i], scores[i], pool[i]))
    return suggestions


def check_other_components(nlp: Language, name: str) -> None:
    """Look for other components that set entities, such as spaCy's `ner`. They don't say how sure
    they are, so `suggest` can't use them. There is a warning if such a component runs before ours.

    nlp (Language): The pipeline.
    name (str): The name of our component.
    RAISES (ValueError): If the pipeline has such components, but none of ours.
    """
    ours = find_components(nlp)
    others: list[str] = []
    for other_name in nlp.pipe_names:
        has_entities = "doc.ents" in nlp.get_pipe_meta(other_name).assigns
        if has_entities and other_name not in ours:
            others.append(other_name)
    if others and not ours:
        raise ValueError(
            "suggest: expected a pipeline with a component of factory 'cost_sensitive_ner', got "
            f"entities of {others}, which say nothing of how sure they are. Train a small model on "
            "its answers with `costner distill`, or choose texts without a model: suggest --start"
        )
    if name not in ours:  # `get_component` says so with an error of its own.
        return
    n_before = nlp.pipe_names.index(name)
    names_before = [
        other_name for other_name in others if nlp.pipe_names.index(other_name) < n_before
    ]
    if names_before:
        warnings.warn(
            f"{names_before} set entities before {name}: suggest takes them for right. If they are "
            "to be corrected, too, save the pipeline without: "
            f"spacy.load(..., exclude={names_before})",
            stacklevel=3,
        )


def measure_pool(
    nlp: Language, name: str, docs: Iterable[tuple[int, Doc]], measure: Measure
) -> list[Candidate]:
    """Measure how unsure a component is of docs and of their words. Returns a candidate for each
    doc.

    nlp (Language): The pipeline. The components before this one annotate the docs.
    name (str): The name of the component.
    docs (Iterable[tuple[int, Doc]]): The index and the doc of each doc that may be chosen.
    measure (Measure): One of `MEASURES`.
    """
    ner = get_component(nlp, name)
    pool: list[Candidate] = []
    for batch in minibatch(docs, nlp.batch_size):
        batch_docs = run_before(nlp, name, [doc for _, doc in batch])
        posterior = ner.posterior(batch_docs, preset=True)
        uncertainty = measure(ner, posterior)
        # By rounding, an uncertainty may be slightly below 0, which `choose_diverse` doesn't take.
        scores = numpy.maximum(uncertainty.docs, 0.0).tolist()
        # The tokens of all docs of the batch stand one after another. Cut out the tokens of each
        # doc.
        begin = 0
        for (index, _), doc, score in zip(batch, batch_docs, scores):
            end = begin + len(doc)
            token_scores = uncertainty.tokens[begin:end]
            begin = end
            # The feature of a token is its word in lower case. Words of which the model is hardly
            # unsure have no share.
            shares = make_shares(doc.to_array(LOWER), token_scores, least=MIN_SHARE)
            pool.append(Candidate(index, doc, score, shares))
    return pool


def distinct_docs(docs: Iterable[Doc], annotated: Iterable[Doc]) -> Iterator[tuple[int, Doc]]:
    """Leave out docs without words, and docs with the same text as an earlier doc or an annotated
    one. Texts that differ only in white space are the same.

    docs (Iterable[Doc]): The docs.
    annotated (Iterable[Doc]): The annotated docs.
    YIELDS (tuple[int, Doc]): Each doc that is not left out, after its index in `docs`.
    """
    left_out = {text_without_space(doc) for doc in annotated}
    left_out.add("")  # the text of docs without words
    for index, doc in enumerate(docs):
        text = text_without_space(doc)
        if text not in left_out:
            left_out.add(text)
            yield index, doc


def text_without_space(doc: Doc) -> str:
    """The text of a doc without white space. Docs with the same words have the same one."""
    return without_space(doc.text)


def without_space(text: str) -> str:
    """A text without white space."""
    return "".join(text.split())
