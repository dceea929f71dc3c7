"""Rank the places of a corpus by how probably their annotation is wrong."""

from bisect import bisect_left, bisect_right
from collections import Counter
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy
from spacy.tokens import Doc
from thinc.types import Array1d, Floats2d, Ints1d

from ...decoding import LEAST
from ...tags import Entities, Tags
from ..cross_fit import Fold
from ..dev_predictions import select

LABEL, BOUNDARY = "wrong label", "wrong boundary"
MISSING, SPURIOUS = "missing entity", "spurious entity"
KINDS = (LABEL, BOUNDARY, MISSING, SPURIOUS)
INCONSISTENT = "inconsistent"

MISSING_ODDS = 2.0
"""How many times as often an entity is overlooked as another mistake is made, given the same
probabilities. Chosen on made-up mistakes: see docs/audit.md."""

SMOOTHING = 0.2
"""Added to probabilities before the logarithm. Less finds more of the mistakes that are put in by
chance, more those that annotators make. Chosen on both: see docs/audit.md."""

PROBABLE = 0.5
"""The least probability of entities that are suggested beside the best alternative."""

Entity = Tuple[int, int, str]
"""First token, the one after the last, label."""
Cost = Callable[[Optional[Entity], Optional[Entity]], float]
"""Takes what is true and what is annotated to the cost of that mistake. None: no entity."""

Pair = Tuple[Optional[Entity], Optional[Entity]]
"""What is annotated, and what there may be instead."""


class Suspect(NamedTuple):
    """A place whose annotation may be wrong.

    doc (int): The number of the doc, from 0.
    kind (str): One of `KINDS`: what the mistake is if the suggestion is right.
    score (float): The log-odds of the suggestion against the annotation: see `rank`.
    annotated (List[Entity]): The annotated entities, in tokens of the doc.
    suggested (List[Entity]): The entities of the suggestion.
    prob_annotated (float): The probability of the annotation.
    prob_suggested (float): The probability of the suggestion.
    as_annotated (int): How often the words are annotated so elsewhere in the corpus.
    as_suggested (int): How often the words of the suggestion are annotated as it says.
    """

    doc: int
    kind: str
    score: float
    annotated: List[Entity]
    suggested: List[Entity]
    prob_annotated: float
    prob_suggested: float
    as_annotated: int = 0
    as_suggested: int = 0

    @property
    def is_inconsistent(self) -> bool:
        """Whether the same words elsewhere are annotated as the suggestion says more often."""
        return self.as_suggested > self.as_annotated

    @property
    def extent(self) -> Tuple[int, int]:
        """The first token and the one after the last."""
        begins, ends, _ = zip(*self.annotated, *self.suggested)
        return min(begins), max(ends)


def rank(folds: Sequence[Fold], docs: Sequence[Doc], cost: Optional[Cost] = None) -> List[Suspect]:
    """Find the best alternative of each place, and sort places by its score.

        score = log (c(other, given) p(other) + 0.2) - log (c(given, other) p(given) + 0.2)

    c(a, b) is the cost of annotating b where a is right, over the mean cost, and p is the
    probability of exactly these tokens as an entity of that label, or of no entity in them. For
    places without an annotated entity log 2 is added. Places don't overlap: of those that do, the
    first counts.

    folds (Sequence[Fold]): The docs with their posterior.
    docs (Sequence[Doc]): The annotated docs.
    cost (Optional[Cost]): The cost of mistakes.
    RETURNS (List[Suspect]): All places with a score, the most probable mistakes first.
    """
    found = [suspect for fold in folds for suspect in _suspects_of(fold, cost)]
    return compare_elsewhere(sorted(found, key=lambda suspect: -suspect.score), docs)


def _suspects_of(fold: Fold, cost: Optional[Cost]) -> Iterator[Suspect]:
    """The places of a fold, by score."""
    dev, posterior = fold.dev, fold.dev.posterior
    likely, probs = posterior.likely_entities(LEAST)
    known = dev.counts(likely)
    likely, probs = select(likely, known), probs[known]
    gold, others = ([*_named(some, posterior.tags.labels)] for some in (dev.gold, likely))
    given, other = _pair(dev.gold, likely)
    p_gold, p_no_gold = posterior.entity_probs(dev.gold), posterior.outside_probs(*dev.gold[:2])
    p_no_other = posterior.outside_probs(*likely[:2])
    p_given = numpy.where(given < 0, _at(p_no_other, other), _at(p_gold, given))
    p_other = numpy.where(other < 0, _at(p_no_gold, given), _at(probs, other))
    or_none: List[List[Optional[Entity]]] = [[*gold, None], [*others, None]]
    pairs = [(or_none[0][i], or_none[1][j]) for i, j in zip(given.tolist(), other.tolist())]
    if_other, if_given = _weights(pairs, cost)
    score = numpy.log(if_other * p_other + SMOOTHING) - numpy.log(if_given * p_given + SMOOTHING)
    score += numpy.where(given < 0, numpy.log(MISSING_ODDS), 0.0)
    starts = numpy.cumsum([0, *posterior.potentials.lengths])
    taken = numpy.zeros(starts[-1], dtype=bool)
    probable = [others[i] for i in numpy.flatnonzero(probs > PROBABLE)]
    for i in numpy.argsort(-score, kind="stable").tolist():
        annotated, suggested = _complete(pairs[i], gold, probable)
        begin, end = _extent([*annotated, *suggested])
        if taken[begin:end].any():
            continue
        taken[begin:end] = True
        doc = int(numpy.searchsorted(starts, begin, side="right")) - 1
        yield Suspect(
            doc=int(fold.docs[doc]),
            kind=_kind(annotated, suggested),
            score=float(score[i]),
            annotated=_shift(annotated, int(starts[doc])),
            suggested=_shift(suggested, int(starts[doc])),
            prob_annotated=float(p_given[i]),
            prob_suggested=float(p_other[i]),
        )


def _pair(gold: Entities, likely: Entities) -> Tuple[Ints1d, Ints1d]:
    """The alternatives of all places: an annotated entity or none, -1, and another that overlaps
    it, or none. Shapes: (R,)"""
    first = numpy.searchsorted(gold.end, likely.begin, side="right")
    last = numpy.searchsorted(gold.begin, likely.end)
    other = numpy.repeat(numpy.arange(len(first)), numpy.maximum(last - first, 1))
    given = numpy.arange(len(other)) - numpy.searchsorted(other, other) + first[other]
    given = numpy.where((last == first)[other], -1, given)
    same = [_at(a, given) == b[other] for a, b in zip(gold, likely)]
    is_other = (given < 0) | ~numpy.logical_and.reduce(same)
    every = numpy.arange(len(gold.begin))
    none = numpy.full(len(every), -1)
    return (
        numpy.concatenate([every, given[is_other]]),
        numpy.concatenate([none, other[is_other]]),
    )


def _at(values: Array1d, places: Ints1d) -> Array1d:
    """The values at some places; 0 at place -1."""
    return numpy.append(values, 0)[places]


def _weights(pairs: Sequence[Pair], cost: Optional[Cost]) -> Floats2d:
    """What two mistakes cost, in units of the mean cost: annotating what is annotated where the
    other one is right, and the other way round. Shape: (2, R)"""
    if cost is None or not pairs:
        return numpy.ones((2, len(pairs)))
    costs = numpy.asarray([(cost(other, given), cost(given, other)) for given, other in pairs]).T
    return costs / max(costs.mean(), 1e-12)


def _complete(
    pair: Pair, gold: List[Entity], probable: List[Entity]
) -> Tuple[List[Entity], List[Entity]]:
    """The annotated entities that an alternative replaces, and those that it has: the other one of
    the pair and the probable ones in the same tokens."""
    given, other = pair
    begin, end = _extent([entity for entity in pair if entity is not None])
    annotated = _between(gold, begin, end)
    if other is None:
        return annotated, []
    begin, end = _extent([*annotated, other])
    suggested = [other]
    for entity in _between(probable, begin, end) if given is not None else ():
        inside = begin <= entity[0] and entity[1] <= end
        if inside and all(entity[1] <= b or e <= entity[0] for b, e, _ in suggested):
            suggested.append(entity)
    return annotated, sorted(suggested)


def _between(entities: List[Entity], begin: int, end: int) -> List[Entity]:
    """The entities with tokens between these. They are sorted by their ends, too."""
    first = bisect_right(entities, begin, key=lambda entity: entity[1])
    return entities[first : bisect_left(entities, end, key=lambda entity: entity[0])]


def _extent(entities: Sequence[Entity]) -> Tuple[int, int]:
    return min(entity[0] for entity in entities), max(entity[1] for entity in entities)


def _named(entities: Entities, labels: Sequence[str]) -> Iterator[Entity]:
    for begin, end, label in zip(*(column.tolist() for column in entities)):
        yield begin, end, labels[label]


def _shift(entities: Sequence[Entity], start: int) -> List[Entity]:
    return [(begin - int(start), end - int(start), label) for begin, end, label in entities]


def _kind(annotated: Sequence[Entity], suggested: Sequence[Entity]) -> str:
    if not suggested:
        return SPURIOUS
    if not annotated:
        return MISSING
    same = [entity[:2] for entity in annotated] == [entity[:2] for entity in suggested]
    return LABEL if same else BOUNDARY


def compare_elsewhere(suspects: Sequence[Suspect], docs: Sequence[Doc]) -> List[Suspect]:
    """Count how the same words are annotated elsewhere in the corpus.

    suspects (Sequence[Suspect]): The places.
    docs (Sequence[Doc]): The docs.
    RETURNS (List[Suspect]): The same with the counts.
    """
    words = [[token.text for token in doc] for doc in docs]
    keys = {tuple(words[s.doc][b:e]) for s in suspects for b, e, _ in (*s.annotated, *s.suggested)}
    labelled: Dict[Tuple[str, ...], Counter] = {key: Counter() for key in keys}
    sizes: Dict[str, Set[int]] = {}
    for key in keys:
        sizes.setdefault(key[0], set()).add(len(key))
    for doc, own in zip(docs, words):
        ents = {(ent.start, ent.end): ent.label_ for ent in doc.ents}
        for i, word in enumerate(own):
            for size in sizes.get(word, ()):
                counts = labelled.get(tuple(own[i : i + size]))
                if counts is not None and i + size <= len(own):
                    counts[ents.get((i, i + size), "")] += 1
    return [_with_counts(suspect, words[suspect.doc], labelled) for suspect in suspects]


def _with_counts(
    suspect: Suspect, words: List[str], labelled: Dict[Tuple[str, ...], Counter]
) -> Suspect:
    """The counts of the words of the first entity that annotation and suggestion differ in. The
    place itself doesn't count."""
    annotated, suggested = set(suspect.annotated), set(suspect.suggested)
    (begin, end, _) = min(suggested - annotated or annotated - suggested)
    counts = labelled[tuple(words[begin:end])]

    def label_in(entities: Sequence[Entity]) -> str:
        return next((label for b, e, label in entities if (b, e) == (begin, end)), "")

    own, other = label_in(suspect.annotated), label_in(suspect.suggested)
    return suspect._replace(as_annotated=counts[own] - 1, as_suggested=counts[other])


def make_cost(table: Floats2d, tags: Tags) -> Cost:
    """The cost of a mistake, from a cost table: the sum over the tokens of both entities.

    table (Floats2d): The cost of each pair of tags, [true, annotated]. Shape: (K, K)
    tags (Tags): Their tags.
    RETURNS (Cost): The cost of annotating one entity in place of another.
    """

    def path(entity: Optional[Entity], begin: int, end: int) -> Ints1d:
        if entity is None:
            return numpy.zeros(end - begin, dtype="int32")
        columns = (entity[0] - begin, entity[1] - begin, tags.labels.index(entity[2]))
        entities = Entities(*(numpy.asarray([column]) for column in columns))
        return tags.encode(entities, end - begin)

    def cost(true: Optional[Entity], annotated: Optional[Entity]) -> float:
        extent = _extent([entity for entity in (true, annotated) if entity is not None])
        return float(table[path(true, *extent), path(annotated, *extent)].sum())

    return cost
