"""Active learning: choose the docs to annotate next by uncertainty sampling.

Docs are chosen from a pool. The worth of a doc is its score (the uncertainty of the model), divided
by its price (the effort of annotating it). The chosen docs should be diverse: a doc is worth less
if the model is uncertain about the same words as in docs that were already chosen. For this
purpose, the score of a doc is divided among its words into *shares* (`Shares`). Entities that are
already set on a doc are called *preset* and assumed to be correct.
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
from ...pipeline.component import CostSensitiveNER
from ...pipeline.confidence import Confidence, prob_of
from ...readers import Task, TaskSpan, doc_to_task
from ...readers.documents import short_values
from ..components import check_ents, find_components, get_component, run_before, sets_entities
from ..evaluation.predictions import predict
from .diverse import Shares, choose_diverse, make_shares

MIN_SHARE = 0.02
"""A word is uncertain if the total uncertainty of its occurrences in the doc is above this fraction
of the highest total."""

DECAY = 0.5
"""The factor by which the worth of a word is multiplied for each chosen doc in which the word is
uncertain."""

PRICE_PER_DOC = 20.0
"""The fixed price of each doc, in tokens. It is added to the number of tokens in the doc."""

PRICE_PER_WORD = 10.0
"""The price of an uncertain word, in tokens. Without it, lists of names would be suggested
first."""


class NoDocsError(ValueError):
    """Raised if there are no docs in the pool to choose from."""


class Uncertainty(NamedTuple):
    """The uncertainty of a model about D docs with N tokens, according to one of
    `UNCERTAINTY_MEASURES`.

    docs (Floats1d): The uncertainty about each doc. Shape: (D,)
    tokens (Floats1d): The uncertainty about each token of all docs. Shape: (N,)
    """

    docs: Floats1d
    tokens: Floats1d


def by_entropy(ner: CostSensitiveNER, posterior: Posterior) -> Uncertainty:
    """Measure uncertainty by entropy, in nats: the entropy of each doc's path, and of each token's
    tag.

        - sum_y p(y) log p(y)

    The sum is over all paths y of the doc, or over all tags y of the token. (`ner` isn't used.)
    """
    probs = posterior.marginals.astype("float64")  # (N, number of tags)
    # Use 0 as the logarithm of 0, so that 0 log 0 = 0.
    logs = numpy.log(probs, out=numpy.zeros_like(probs), where=probs > 0)
    return Uncertainty(posterior.entropy, -(probs * logs).sum(axis=1))


def by_least_confidence(ner: CostSensitiveNER, posterior: Posterior) -> Uncertainty:
    """Measure uncertainty by the probability that the best path of a doc, or the best tag of a
    token, is wrong.

        1 - max_y p(y)

    The maximum is over all paths y of the doc, or over all tags y of the token. (`ner` isn't used.)

    Culotta & McCallum, 2005, "Reducing Labeling Effort for Structured Prediction Tasks".
    """
    # The log-probability of the best path of each doc. Shape: (1, D)
    _, log_probs = posterior.best_paths(k=1)
    doc_uncertainties = -numpy.expm1(log_probs[0])  # 1 - p, without the rounding error near 0
    token_uncertainties = 1.0 - posterior.marginals.max(axis=1).astype("float64")
    # Rounding errors may make a probability slightly larger than 1.
    return Uncertainty(doc_uncertainties, numpy.maximum(token_uncertainties, 0.0))


def by_cost(ner: CostSensitiveNER, posterior: Posterior) -> Uncertainty:
    """Measure uncertainty by expected cost. The cost of a token is the expected cost of its tag a_t
    on the path with the lowest expected cost. The cost of a doc is the sum over its tokens.

        sum_k p(y_t = k) cost[k, a_t]

    The costs are taken from the decoding. If it doesn't minimise expected costs, the cost of each
    wrong tag is 1: see `CostSensitiveNER.expected_costs`.

    ner (CostSensitiveNER): The component.
    posterior (Posterior): The posterior of the docs.
    RETURNS (Uncertainty): The expected costs of docs and tokens.
    """
    # Rounding errors may make an expected cost slightly negative.
    token_costs = numpy.maximum(ner.expected_costs(posterior), 0.0)
    n_docs = len(posterior.doc_lengths)
    doc_of_token = numpy.repeat(numpy.arange(n_docs), posterior.doc_lengths)
    doc_costs = numpy.bincount(doc_of_token, weights=token_costs, minlength=n_docs)
    return Uncertainty(doc_costs, token_costs)


UncertaintyMeasure = Callable[[CostSensitiveNER, Posterior], Uncertainty]
"""Maps a component and the posterior of docs to the uncertainty about the docs."""

UNCERTAINTY_MEASURES: dict[str, UncertaintyMeasure] = {
    "cost": by_cost,
    "entropy": by_entropy,
    "least-confidence": by_least_confidence,
}
"""The uncertainty measures, keyed by the value of the argument `by` of `suggest`."""

CHOSEN_BY = "chosen_by"
"""The metadata key of docs that were suggested rather than drawn at random."""

SAMPLING_KEYS = (CHOSEN_BY, "drawn_by", "drawings")
"""The metadata keys that determine whether a doc was chosen by `suggest` or drawn by `serve` or
`draw`. Each task has its own record, so the keys of an earlier record aren't copied to it."""

PRICES = ("token", "doc")
"""The values of the argument `per` of `suggest`: "token" if the price of a doc depends on its
tokens, or "doc" if all docs have the same price."""


class Candidate(NamedTuple):
    """A doc in the pool that can be chosen.

    doc_index (int): The index of the doc in the pool.
    doc (Doc): The doc.
    score (float): The uncertainty about the doc.
    shares (Shares): The uncertain words, and their shares of the score.
    """

    doc_index: int
    doc: Doc
    score: float
    shares: Shares


class Suggestion(NamedTuple):
    """A doc to annotate.

    doc_index (int): The index of the doc in the pool.
    score (float): The uncertainty about the doc. Without a model, see `suggest_first`.
    doc (Doc): The doc. With a model, a copy with the predicted entities.
    """

    doc_index: int
    score: float
    doc: Doc

    def task(self) -> Task:
        """Create a task from the doc, pre-annotated with the predicted entities. Without a model,
        the task has no annotation."""
        record = {"score": round(self.score, 4), "doc": self.doc_index, CHOSEN_BY: "suggest"}
        return proposal(self.doc, {"meta": task_metadata(self.doc, record)})


def task_metadata(doc: Doc, record: Mapping[str, Any]) -> dict[str, Any]:
    """Combine the metadata of a doc with the record of how it was chosen.

    doc (Doc): The doc. Only short values in `doc.user_data` are used: see `short_values`.
    record (Mapping[str, Any]): The record, whose values replace metadata with the same keys.
    RETURNS (dict[str, Any]): The "meta" of the task, without other `SAMPLING_KEYS`.
    """
    metadata = short_values(doc.user_data)
    for key in SAMPLING_KEYS:
        metadata.pop(key, None)
    return {**metadata, **record}


def proposal(doc: Doc, extra: Mapping[str, Any]) -> Task:
    """Create a task from a doc, pre-annotated with its predicted entities and their probabilities.
    If the doc has no annotation, neither does the task.

    doc (Doc): The predicted doc.
    extra (Mapping[str, Any]): Additional keys of the task.
    RETURNS (Task): The task.
    """
    task = doc_to_task(doc, extra)
    if task.spans is None:  # without a model
        return task
    spans: list[TaskSpan] = []
    # The spans of the task are aligned with the entities of the doc.
    for span, ent in zip(task.spans, doc.ents):
        prob = prob_of(ent)
        if prob is None:  # a preset entity
            prob = 1.0
        score = round(prob, 4)
        spans.append(span._replace(extra={**span.extra, "score": score}))
    return task._replace(spans=spans)


def price_of(candidate: Candidate) -> float:
    """Return the price of annotating a doc, in tokens."""
    # Only uncertain words have a share: see `measure_pool`.
    n_uncertain_words = len(candidate.shares.features)
    return len(candidate.doc) + PRICE_PER_DOC + PRICE_PER_WORD * n_uncertain_words


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
    """Choose the docs that are most worth annotating, and predict the entities of copies of them.

    nlp (Language): The trained pipeline.
    docs (Iterable[Doc]): The pool of docs without annotation or with preset entities. Docs without
        words, and docs with the same text as an earlier doc, are skipped.
    n (int): Number of docs to choose, at least 1. If there are fewer in the pool, all are chosen.
    by (Literal["cost", "entropy", "least-confidence"]): The measure of uncertainty about a doc.
    per (Literal["token", "doc"]): Whether the price of a doc depends on its tokens, or is the same
        for all docs.
    diverse (bool): Whether a doc is worth less if its uncertain words are also uncertain in other
        chosen docs.
    name (str): Name of the component.
    annotated (Iterable[Doc]): Docs that are already annotated. Docs with the same text are skipped.
    RETURNS (list[Suggestion]): The docs, in the order they were chosen.
    RAISES (ValueError): If the component is missing, isn't trained or has a `spans_key`; if the
        pool is empty; or if an argument is invalid.
    """
    check_other_components(nlp, name)
    ner = get_component(nlp, name)
    check_ents("suggest", ner)
    if n < 1:
        raise ValueError(f"n: expected at least 1, got {n}")
    if by not in UNCERTAINTY_MEASURES:
        raise ValueError(f"by: expected one of {list(UNCERTAINTY_MEASURES)}, got {by!r}")
    if per not in PRICES:
        raise ValueError(f"per: expected one of {list(PRICES)}, got {per!r}")
    if not (ner.labels and ner.model.has_dim("nO")):
        raise ValueError(f"components.{name}: expected a trained component, got one without labels")

    pool = measure_pool(nlp, name, distinct_docs(docs, annotated), UNCERTAINTY_MEASURES[by])
    if not pool:
        raise NoDocsError("expected unannotated docs with words, got none")
    # The worth of a doc is its score, divided by its price unless all docs have the same price.
    worth = numpy.asarray([candidate.score for candidate in pool])
    if per == "token":
        worth = worth / [price_of(candidate) for candidate in pool]
    shares = [candidate.shares for candidate in pool]
    decay = DECAY if diverse else 1.0
    suggestions: list[Suggestion] = []
    for i in choose_diverse(worth, shares, n, decay=decay):
        candidate = pool[i]
        suggestions.append(Suggestion(candidate.doc_index, candidate.score, candidate.doc))
    # Set the predicted entities and their probabilities, which are used by `Suggestion.task`.
    chosen_docs = [suggestion.doc for suggestion in suggestions]
    for batch in minibatch(chosen_docs, nlp.batch_size):
        posterior = ner.posterior(batch, preset=True)
        predict(ner, batch, posterior, Confidence())
    return suggestions


def suggest_first(
    docs: Iterable[Doc], *, n: int = 200, annotated: Iterable[Doc] = ()
) -> list[Suggestion]:
    """Without a model, choose docs to annotate that together contain many frequent words. The value
    of a word is the square root of the number of docs that contain it, or 0 if there is only one.

    docs (Iterable[Doc]): The pool. Docs without words, and docs with the same text as an earlier
        doc, are skipped.
    n (int): Number of docs to choose, at least 1. If there are fewer in the pool, all are chosen.
    annotated (Iterable[Doc]): Docs that are already annotated. Docs with the same text are skipped.
    RETURNS (list[Suggestion]): The docs, in the order they were chosen. The score of a doc is the
        sum of the values of its distinct words.
    RAISES (ValueError): If the pool is empty, or `n` is invalid.
    """
    if n < 1:
        raise ValueError(f"n: expected at least 1, got {n}")
    doc_indices: list[int] = []
    pool: list[Doc] = []
    for doc_index, doc in distinct_docs(docs, annotated):
        doc_indices.append(doc_index)
        pool.append(doc)
    if not pool:
        raise NoDocsError("expected unannotated docs with words, got none")

    words_of_docs = [numpy.unique(doc.to_array(LOWER)) for doc in pool]
    n_docs_with_word = Counter(chain.from_iterable(words.tolist() for words in words_of_docs))
    scores: list[float] = []
    prices: list[float] = []
    shares: list[Shares] = []
    for doc, words in zip(pool, words_of_docs):
        n_docs = numpy.asarray([n_docs_with_word[word] for word in words.tolist()])
        # Words that only occur in one doc are not useful to a model.
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
    """Check for other components that set entities, such as spaCy's `ner`. They don't provide a
    posterior, so `suggest` can't use them. Warn if any of them runs before the component `name`.

    RAISES (ValueError): If the pipeline has such components, but no cost-sensitive component.
    """
    ours = find_components(nlp)
    others: list[str] = []
    for other_name in nlp.pipe_names:
        if other_name not in ours and sets_entities(nlp, other_name):
            others.append(other_name)
    if others and not ours:
        raise ValueError(
            "suggest: expected a pipeline with a component of factory 'cost_sensitive_ner', got "
            f"{others}, which have no measure of uncertainty. Train a small model on their "
            "predictions with `distill`, or choose texts without a model with `suggest_first`"
        )
    if name not in ours:  # an error is raised by `get_component`
        return
    n_before = nlp.pipe_names.index(name)
    names_before = [
        other_name for other_name in others if nlp.pipe_names.index(other_name) < n_before
    ]
    if names_before:
        warnings.warn(
            f"{names_before} set entities before {name}: suggest assumes that they are correct. To "
            "have them corrected, too, save the pipeline without these components: "
            f"spacy.load(..., exclude={names_before})",
            stacklevel=3,
        )


def measure_pool(
    nlp: Language, name: str, docs: Iterable[tuple[int, Doc]], measure: UncertaintyMeasure
) -> list[Candidate]:
    """Measure the uncertainty of a component about copies of docs and the words in them. Earlier
    components annotate the copies first. `docs` contains pairs of a doc's index and the doc.
    Returns a candidate for each doc."""
    ner = get_component(nlp, name)
    pool: list[Candidate] = []
    for batch in minibatch(docs, nlp.batch_size):
        copies = [doc.copy() for _, doc in batch]
        batch_docs = run_before(nlp, name, copies)
        posterior = ner.posterior(batch_docs, preset=True)
        uncertainty = measure(ner, posterior)
        # Rounding errors may make an uncertainty slightly negative, which `choose_diverse` doesn't
        # accept.
        scores = numpy.maximum(uncertainty.docs, 0.0).tolist()
        # The token scores of the whole batch are in one array, so select the tokens of each doc.
        begin = 0
        for (index, _), doc, score in zip(batch, batch_docs, scores):
            end = begin + len(doc)
            token_scores = uncertainty.tokens[begin:end]
            begin = end
            # The feature of a token is its lowercase form. Words with a low uncertainty have no
            # share.
            shares = make_shares(doc.to_array(LOWER), token_scores, least=MIN_SHARE)
            pool.append(Candidate(index, doc, score, shares))
    return pool


def distinct_docs(docs: Iterable[Doc], annotated: Iterable[Doc]) -> Iterator[tuple[int, Doc]]:
    """Skip docs without words, and docs with the same text as an earlier doc or an annotated doc,
    ignoring whitespace. Yields the index and the doc for each remaining doc."""
    left_out = {text_without_space(doc) for doc in annotated}
    left_out.add("")  # the text of docs without words
    for index, doc in enumerate(docs):
        text = text_without_space(doc)
        if text not in left_out:
            left_out.add(text)
            yield index, doc


def text_without_space(doc: Doc) -> str:
    """Return the text of a doc without whitespace. It is the same for docs with the same words.

    doc (Doc): The doc.
    RETURNS (str): The text.
    """
    return without_space(doc.text)


def without_space(text: str) -> str:
    """Remove all whitespace from a text.

    text (str): The text.
    RETURNS (str): The text without whitespace.
    """
    return "".join(text.split())
