"""Rank the places of a corpus by how probably their annotation is wrong."""

from collections import Counter
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy
from spacy.tokens import Doc
from thinc.types import Floats1d, Floats2d, Ints1d

from ...decoding import LEAST
from ...tags import Entities, Tags
from ..dev_predictions import select
from .cross_fit import Fold

LABEL, BOUNDARY = "wrong label", "wrong boundary"
MISSING, SPURIOUS = "missing entity", "spurious entity"
KINDS = (LABEL, BOUNDARY, MISSING, SPURIOUS)

MISSING_ODDS = 2.0
"""How many times as often an entity is overlooked as another mistake is made, given the same
probabilities. Chosen on made-up mistakes: see docs/audit.md."""

PROBABLE = 0.5
"""The least probability of entities beside the most probable reading that are proposed with it."""

Entity = Tuple[int, int, str]
"""First token, the one after the last, label."""
Cost = Callable[[Optional[Entity], Optional[Entity]], float]
"""Takes what is true and what is annotated to the cost of that mistake. None: no entity."""


class Suspect(NamedTuple):
    """A place whose annotation may be wrong.

    doc (int): The number of the doc, from 0.
    kind (str): One of `KINDS`: what the mistake is if the other reading is right.
    score (float): The log-odds of the other reading against the annotation: see `rank`.
    annotated (List[Entity]): The annotated entities, in tokens of the doc.
    rather (List[Entity]): The entities of the other reading.
    prob_annotated (float): The probability of the annotation.
    prob_rather (float): The probability of the other reading.
    as_annotated (int): How often the words are annotated so elsewhere in the corpus.
    as_rather (int): How often the words of the other reading are annotated as it says.
    """

    doc: int
    kind: str
    score: float
    annotated: List[Entity]
    rather: List[Entity]
    prob_annotated: float
    prob_rather: float
    as_annotated: int = 0
    as_rather: int = 0

    @property
    def is_inconsistent(self) -> bool:
        """Whether the same words are annotated as the other reading says more often than not."""
        return self.as_rather > self.as_annotated

    @property
    def extent(self) -> Tuple[int, int]:
        """The first token and the one after the last."""
        begins, ends, _ = zip(*self.annotated, *self.rather)
        return min(begins), max(ends)


class Readings(NamedTuple):
    """Readings of places of a fold. A row is an annotated entity or a place without any, and
    something else that it may be.

    given, other (Ints1d): The number of the annotated entity; of the likely one. -1: no entity.
    score (Floats1d): The score of the other one.
    p_given, p_other (Floats1d): Their probabilities. Shapes: (R,)
    """

    given: Ints1d
    other: Ints1d
    score: Floats1d
    p_given: Floats1d
    p_other: Floats1d


def rank(folds: Sequence[Fold], docs: Sequence[Doc], cost: Optional[Cost] = None) -> List[Suspect]:
    """Find the best other reading of each place, and sort places by it.

        score = log (c(other, given) p(other) + 0.01) - log (c(given, other) p(given) + 0.01)

    c(a, b) is the cost of annotating b where a is right, over the mean cost, and p is the
    probability of exactly these tokens as an entity of that label, or of no entity in them. For
    places without an annotated entity log 2 is added. Places don't overlap: of those that do, the
    first counts.

    folds (Sequence[Fold]): The docs with their posterior.
    docs (Sequence[Doc]): The annotated docs.
    cost (Optional[Cost]): The cost of mistakes.
    RETURNS (List[Suspect]): All places with a score, the most probable mistakes first.
    """
    every = [suspect for fold in folds for suspect in _suspects_of(fold, cost)]
    every.sort(key=lambda suspect: -suspect.score)
    taken: Set[Tuple[int, int]] = set()
    kept = []
    for suspect in every:
        tokens = {(suspect.doc, token) for token in range(*suspect.extent)}
        if not tokens & taken:
            taken |= tokens
            kept.append(suspect)
    return compare_elsewhere(kept, docs)


def _suspects_of(fold: Fold, cost: Optional[Cost]) -> Iterator[Suspect]:
    """The best other reading of each place of a fold."""
    dev = fold.dev
    likely, probs = dev.posterior.likely_entities(LEAST)
    known = dev.counts(likely)
    likely, probs = select(likely, known), probs[known]
    names = dev.posterior.tags.labels
    gold, others = ([*_named(some, names)] for some in (dev.gold, likely))
    found = _readings(fold, likely, probs, _weigher(gold, others, cost))
    starts = numpy.cumsum([0, *dev.posterior.potentials.lengths])
    last = numpy.lexsort((found.score, found.given))
    is_best = numpy.append(found.given[last][1:] != found.given[last][:-1], True)
    is_best |= found.given[last] < 0
    for i in last[is_best].tolist():
        place = gold[found.given[i]] if found.given[i] >= 0 else others[found.other[i]]
        rather = [others[found.other[i]]] if found.other[i] >= 0 else []
        annotated, rather = _complete(place, rather, (gold, dev.gold), (others, likely, probs))
        doc = int(numpy.searchsorted(starts, place[0], side="right")) - 1
        yield Suspect(
            doc=int(fold.docs[doc]),
            kind=_kind(annotated, rather),
            score=float(found.score[i]),
            annotated=_shift(annotated, starts[doc]),
            rather=_shift(rather, starts[doc]),
            prob_annotated=float(found.p_given[i]),
            prob_rather=float(found.p_other[i]),
        )


Weigh = Callable[[Ints1d, Ints1d], Floats2d]
"""Takes the `given` and `other` of readings to the costs of two mistakes: annotating what is given
where the other is right, and the other way round. Shape: (2, R)"""


def _weigher(gold: List[Entity], others: List[Entity], cost: Optional[Cost]) -> Weigh:
    """Weigh by a cost, in units of the mean cost."""

    def weigh(given: Ints1d, other: Ints1d) -> Floats2d:
        if cost is None or not len(given):
            return numpy.ones((2, len(given)))
        pairs = [
            (gold[i] if i >= 0 else None, others[j] if j >= 0 else None)
            for i, j in zip(given.tolist(), other.tolist())
        ]
        costs = numpy.asarray([(cost(b, a), cost(a, b)) for a, b in pairs]).T
        return costs / max(costs.mean(), 1e-12)

    return weigh


def _readings(fold: Fold, likely: Entities, probs: Floats1d, weigh: Weigh) -> Readings:
    """All readings of all places."""
    posterior, gold = fold.dev.posterior, fold.dev.gold
    p_gold = posterior.entity_probs(gold)
    first = numpy.searchsorted(gold.end, likely.begin, side="right")
    n_overlapping = numpy.searchsorted(gold.begin, likely.end) - first
    other = numpy.repeat(numpy.arange(len(probs)), n_overlapping)
    nth = numpy.arange(len(other)) - numpy.repeat(
        numpy.cumsum(n_overlapping) - n_overlapping, n_overlapping
    )
    given = first[other] + nth
    pairs = [(a[given], b[other]) for a, b in zip(gold, likely)]
    is_other = ~numpy.logical_and.reduce([a == b for a, b in pairs])
    given, other = given[is_other], other[is_other]
    free = numpy.flatnonzero(n_overlapping == 0)
    everyone, none = numpy.arange(len(p_gold)), numpy.full(len(p_gold), -1)
    columns = [
        (given, other, p_gold[given], probs[other]),
        (everyone, none, p_gold, posterior.outside_probs(gold.begin, gold.end)),
        (
            numpy.full(len(free), -1),
            free,
            posterior.outside_probs(likely.begin[free], likely.end[free]),
            probs[free],
        ),
    ]
    given, other, p_given, p_other = (numpy.concatenate(some) for some in zip(*columns))
    if_other, if_given = weigh(given, other)
    score = numpy.log(if_other * p_other + LEAST) - numpy.log(if_given * p_given + LEAST)
    score += numpy.where(given < 0, numpy.log(MISSING_ODDS), 0.0)
    return Readings(given, other, score, p_given, p_other)


def _complete(
    place: Entity,
    rather: List[Entity],
    gold: Tuple[List[Entity], Entities],
    likely: Tuple[List[Entity], Entities, Floats1d],
) -> Tuple[List[Entity], List[Entity]]:
    """All annotated entities that a reading replaces, and the other probable ones in these tokens
    that it has."""
    named, entities = gold
    begin, end = _extent([place, *rather])
    first = int(numpy.searchsorted(entities.end, begin, side="right"))
    annotated = named[first : int(numpy.searchsorted(entities.begin, end))]
    begin, end = _extent([place, *rather, *annotated])
    others, entities, probs = likely
    first = int(numpy.searchsorted(entities.begin, begin))
    last = int(numpy.searchsorted(entities.begin, end))
    if rather:
        for i in range(first, last):
            apart = all(others[i][1] <= b or e <= others[i][0] for b, e, _ in rather)
            if probs[i] > PROBABLE and others[i][1] <= end and apart:
                rather = [*rather, others[i]]
    return annotated, sorted(rather)


def _extent(entities: Sequence[Entity]) -> Tuple[int, int]:
    return min(entity[0] for entity in entities), max(entity[1] for entity in entities)


def _named(entities: Entities, labels: Sequence[str]) -> Iterator[Entity]:
    for begin, end, label in zip(*(column.tolist() for column in entities)):
        yield begin, end, labels[label]


def _shift(entities: Sequence[Entity], start: int) -> List[Entity]:
    return [(begin - int(start), end - int(start), label) for begin, end, label in entities]


def _kind(annotated: Sequence[Entity], rather: Sequence[Entity]) -> str:
    if not rather:
        return SPURIOUS
    if not annotated:
        return MISSING
    same = [entity[:2] for entity in annotated] == [entity[:2] for entity in rather]
    return LABEL if same else BOUNDARY


def compare_elsewhere(suspects: Sequence[Suspect], docs: Sequence[Doc]) -> List[Suspect]:
    """Count how the same words are annotated elsewhere in the corpus.

    suspects (Sequence[Suspect]): The places.
    docs (Sequence[Doc]): The docs.
    RETURNS (List[Suspect]): The same with the counts.
    """
    words = [[token.text for token in doc] for doc in docs]
    keys = {tuple(words[s.doc][b:e]) for s in suspects for b, e, _ in (*s.annotated, *s.rather)}
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
    """The counts of the words of the first entity that the two readings differ in. The place itself
    doesn't count."""
    annotated, rather = set(suspect.annotated), set(suspect.rather)
    (begin, end, _) = min(rather - annotated or annotated - rather)
    counts = labelled[tuple(words[begin:end])]

    def label_in(entities: Sequence[Entity]) -> str:
        return next((label for b, e, label in entities if (b, e) == (begin, end)), "")

    own, other = label_in(suspect.annotated), label_in(suspect.rather)
    return suspect._replace(as_annotated=counts[own] - 1, as_rather=counts[other])


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
