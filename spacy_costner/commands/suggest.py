"""Suggest the docs to annotate next: those of which a model is least sure."""

from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import numpy
from spacy.attrs import LOWER
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch
from thinc.types import Floats1d

from ..decoding import Posterior
from ..metrics.diverse import Shares, choose_diverse, make_shares
from ..pipeline.annotations import Confidence, annotate, confidence_of, score_spans
from ..pipeline.component import CostSensitiveNER
from ..pipeline.token_attrs import read_presets
from ..readers import Task, doc_to_task
from .dev_predictions import get_component, run_before

LEAST_SHARE = 0.02
"""Words with a smaller part of the largest uncertainty of a word of the doc don't count."""

DECAY = 0.5
"""A word that was unsure in a chosen doc is worth half as much in the next one."""

OVERHEAD = 20.0
"""What a doc costs besides its tokens, in tokens."""

Uncertainty = Tuple[Floats1d, Floats1d]
"""Of each doc and of each token. Shapes: (B,), (N,)"""


class Suggestion(NamedTuple):
    """A doc to annotate.

    place (int): Its place among the docs, from 0.
    score (float): How unsure the model is of it.
    doc (Doc): The doc, with the entities that the model predicts.
    """

    place: int
    score: float
    doc: Doc

    def task(self) -> Task:
        """The prediction as a proposal to annotators, with the probability of each entity."""
        task = doc_to_task(self.doc, {"meta": {"score": round(self.score, 4), "doc": self.place}})
        probs = [confidence_of(ent) for ent in self.doc.ents]
        spans = [
            span._replace(extra={**span.extra, "score": 1.0 if prob is None else round(prob, 4)})
            for span, prob in zip(task.spans or (), probs)
        ]
        return task._replace(spans=spans)


def by_entropy(ner: CostSensitiveNER, posterior: Posterior) -> Uncertainty:
    """The entropy of the path, and of the tag of each token, in nats.

    - sum_y p(y) log p(y)
    """
    probs = posterior.marginals.astype("float64")
    logs = numpy.log(probs, out=numpy.zeros_like(probs), where=probs > 0)
    return posterior.entropy, -(probs * logs).sum(axis=1)


def by_least_confidence(ner: CostSensitiveNER, posterior: Posterior) -> Uncertainty:
    """The probability that another path than the best is right, and another tag than the most
    probable.

        1 - max_y p(y)

    Culotta & McCallum, 2005, "Reducing Labeling Effort for Structured Prediction Tasks".
    """
    doubts = 1.0 - posterior.marginals.max(axis=1).astype("float64")
    return 1.0 - posterior.best_paths(1)[1][0].astype("float64"), numpy.maximum(doubts, 0.0)


def by_cost(ner: CostSensitiveNER, posterior: Posterior) -> Uncertainty:
    """The expected cost of the tags with the lowest expected cost: what min-cost decoding still
    risks.

        min_a sum_t sum_k p(y_t = k) cost[k, a_t]
    """
    costs = numpy.maximum(ner.expected_costs(posterior), 0.0)
    lengths = posterior.potentials.lengths
    sequence = numpy.repeat(numpy.arange(len(lengths)), lengths)
    return numpy.bincount(sequence, costs, minlength=len(lengths)), costs


MEASURES: Dict[str, Callable[[CostSensitiveNER, Posterior], Uncertainty]] = {
    "cost": by_cost,
    "entropy": by_entropy,
    "least-confidence": by_least_confidence,
}
PRICES = ("token", "doc")


class Choice(NamedTuple):
    """How docs are chosen.

    by (str): How unsure the model is of a doc: "cost", "entropy" or "least-confidence".
    per (str): What a doc costs annotators: by "token", or the same for each "doc".
    diverse (bool): Whether a doc is worth less if the model is unsure of the same words there as in
        docs chosen before.
    """

    by: str = "cost"
    per: str = "token"
    diverse: bool = True


def suggest(
    nlp: Language,
    docs: Iterable[Doc],
    n: int = 100,
    choice: Choice = Choice(),  # noqa: B008
    *,
    name: str = "ner",
    annotated: Iterable[Doc] = (),
) -> List[Suggestion]:
    """Choose the docs whose annotation is worth most, and predict their entities.

    nlp (Language): A trained pipeline.
    docs (Iterable[Doc]): The docs, without annotation or with preset entities. Docs without words
        and those with the same text as one before are left out.
    n (int): How many to choose, at least 1; all if there are fewer.
    choice (Choice): How they are chosen.
    name (str): The name of the component.
    annotated (Iterable[Doc]): Docs that are annotated: those with the same text are left out.
    RETURNS (List[Suggestion]): The docs, in the order in which they were chosen.
    RAISES (ValueError): If there is no such component, or it isn't trained; if there is no doc, or
        something is out of its range.
    """
    check(n, choice)
    ner = get_component(nlp, name)
    if not (ner.labels and ner.model.has_dim("nO")):
        raise ValueError(f"components.{name}: expected a trained component, got one without labels")
    found: List[Suggestion] = []
    shares: List[Shares] = []
    for batch in minibatch(_distinct(docs, annotated), nlp.batch_size):
        some = run_before(nlp, name, [doc for _, doc in batch])
        measured = measure(ner, some, choice.by)
        for (place, _), doc, (score, share) in zip(batch, some, measured):
            found.append(Suggestion(place, score, doc))
            shares.append(share)
    if not found:
        raise ValueError("expected docs with words that are not annotated, got none")
    prices = [len(one.doc) + OVERHEAD if choice.per == "token" else 1.0 for one in found]
    values = numpy.asarray([one.score for one in found]) / prices
    order = choose_diverse(values, shares, n, decay=DECAY if choice.diverse else 1.0)
    predict(ner, [found[i].doc for i in order], nlp.batch_size)
    return [found[i] for i in order]


def check(n: int, choice: Choice) -> None:
    """Check the arguments.

    RAISES (ValueError): If one is out of its range.
    """
    if n < 1:
        raise ValueError(f"n: expected at least 1, got {n}")
    for field, known in (("by", [*MEASURES]), ("per", [*PRICES])):
        if getattr(choice, field) not in known:
            raise ValueError(f"{field}: expected one of {known}, got {getattr(choice, field)!r}")


def _distinct(docs: Iterable[Doc], annotated: Iterable[Doc]) -> Iterator[Tuple[int, Doc]]:
    """The docs with words, each text once whatever its white space, with their places."""
    seen = {_without_space(doc) for doc in annotated}
    for i, doc in enumerate(docs):
        text = _without_space(doc)
        if text and text not in seen:
            seen.add(text)
            yield i, doc


def _without_space(doc: Doc) -> str:
    return "".join(doc.text.split())


def measure(ner: CostSensitiveNER, docs: Sequence[Doc], by: str) -> Iterator[Tuple[float, Shares]]:
    """Measure how unsure a component is of docs.

    ner (CostSensitiveNER): The component.
    docs (Sequence[Doc]): The docs, not all of them empty.
    by (str): The measure.
    YIELDS (Tuple[float, Shares]): For each doc, how unsure it is, and the shares of words in that.
    """
    of_docs, of_tokens = MEASURES[by](ner, ner.posterior(docs, preset=True))
    ends = numpy.cumsum([len(doc) for doc in docs])
    for score, tokens, doc in zip(of_docs.tolist(), numpy.split(of_tokens, ends[:-1]), docs):
        yield max(score, 0.0), make_shares(doc.to_array(LOWER), tokens, LEAST_SHARE)


def predict(ner: CostSensitiveNER, docs: Sequence[Doc], batch_size: int) -> None:
    """Write the entities of docs and their probabilities to the docs.

    ner (CostSensitiveNER): The component.
    docs (Sequence[Doc]): The docs with tokens.
    batch_size (int): How many to predict together.
    """
    settings: Any = Confidence()
    for batch in minibatch(docs, batch_size):
        tokens, posterior = read_presets(batch), ner.posterior(batch, preset=True)
        prediction = score_spans(ner.decode(posterior), posterior, tokens, settings)
        annotate(batch, prediction, ner.vocab.strings, settings)
