"""Spans and annotated entities of docs, with what decides whether they are in a set or found."""

from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import numpy
from spacy.language import Language
from spacy.training import Example
from spacy.util import minibatch
from thinc.types import Array1d, Floats1d, Ints1d

from ..features.memory import ranges
from ..pipeline.annotations import is_new, span_scores
from ..pipeline.token_attrs import trim
from ..tags import Entities
from .dev_predictions import get_component, predict_dev, select

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
        spans, scores = span_scores(dev.posterior, terms)
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
