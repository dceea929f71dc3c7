"""The mistakes of a pipeline: where gold and predicted entities differ, with cost and text.

A mistake is a stretch of tokens with overlapping gold and predicted entities that are not the
same: a miss, a false alarm, a wrong label, a wrong boundary.
"""

from collections import Counter
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy
from spacy.tokens import Doc
from thinc.types import Floats1d, Floats2d

from ...pipeline.annotations import ScoredSpans
from ...pipeline.scorers import TagPairs
from ...tags import Entities
from ..dev_predictions import DevPredictions

MISS, FALSE_ALARM = "missed", "false alarm"
WRONG_LABEL, WRONG_BOUNDARY, OTHER = "wrong label", "wrong boundary", "label and boundary"
KINDS = (MISS, FALSE_ALARM, WRONG_LABEL, WRONG_BOUNDARY, OTHER)

MOST_TOKENS = 60
"""Longer sentences are shortened."""

Entity = Tuple[int, int, str]
"""Begin and end in tokens of all docs, and the label."""


class Mark(NamedTuple):
    """An entity in the text of a mistake.

    start (int): Its first character.
    end (int): The one after its last.
    label (str): Its label.
    state (str): "right"; "wrong", if it is part of the mistake; "other", of another one.
    prob (Optional[float]): Its probability, if known.
    """

    start: int
    end: int
    label: str
    state: str
    prob: Optional[float] = None


class Mistake(NamedTuple):
    """A mistake in its sentence.

    doc (int): The number of the doc in the corpus, 0 for the first that isn't empty.
    kind (str): One of `KINDS`.
    cost (float): What it costs.
    text (str): The sentence or, of a long one, the part around the mistake.
    gold (List[Mark]): The annotated entities.
    predicted (List[Mark]): The predicted entities.
    """

    doc: int
    kind: str
    cost: float
    text: str
    gold: List[Mark]
    predicted: List[Mark]


class Mistakes(NamedTuple):
    """All mistakes.

    counts (Dict[str, int]): The number of each kind.
    costs (Dict[str, float]): The cost of each kind.
    shown (List[Mistake]): The costliest. Those of the same cost are sorted by the model's
        confidence in its mistake.
    """

    counts: Dict[str, int]
    costs: Dict[str, float]
    shown: List[Mistake]


class Stretch(NamedTuple):
    """A stretch of tokens with overlapping gold and predicted entities.

    begin (int): The first token.
    end (int): The one after the last.
    gold (List[Entity]): The gold entities.
    predicted (List[Entity]): The predicted entities.
    """

    begin: int
    end: int
    gold: List[Entity]
    predicted: List[Entity]

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        if not self.predicted:
            return MISS
        if not self.gold:
            return FALSE_ALARM
        if [entity[:2] for entity in self.gold] == [entity[:2] for entity in self.predicted]:
            return WRONG_LABEL
        labels = {entity[2] for entity in [*self.gold, *self.predicted]}
        return WRONG_BOUNDARY if len(labels) == 1 else OTHER


def find_mistakes(
    dev: DevPredictions, pairs: TagPairs, table: Floats2d, found: ScoredSpans, n_shown: int
) -> Mistakes:
    """Find the mistakes.

    dev (DevPredictions): The docs, with predicted entities, and their posterior.
    pairs (TagPairs): The gold and predicted tags.
    table (Floats2d): The cost table. Shape: (K, K)
    found (ScoredSpans): The predicted entities.
    n_shown (int): Number of mistakes to show.
    RETURNS (Mistakes): The mistakes.
    """
    gold, predicted = entities_of(pairs)
    wrong = [stretch for stretch in stretches(gold, predicted) if stretch.gold != stretch.predicted]
    costs = cost_of(wrong, pairs.look_up(table))
    probs = gold_probs(dev, [entity for stretch in wrong for entity in stretch.gold])
    if found.probs is not None:
        probs.update(zip(_named(found.entities, found.labels), found.probs.tolist()))
    sure = [mistake_confidence(stretch, probs) for stretch in wrong]
    order = sorted(range(len(wrong)), key=lambda i: (-costs[i], -sure[i], wrong[i].begin))
    in_text = Texts([eg.predicted for eg in dev.examples], gold, predicted, probs)
    kinds = [stretch.kind for stretch in wrong]
    return Mistakes(
        counts={kind: Counter(kinds)[kind] for kind in KINDS},
        costs={kind: float(costs[[k == kind for k in kinds]].sum()) for kind in KINDS},
        shown=[in_text.show(wrong[i], float(costs[i])) for i in order[:n_shown]],
    )


def entities_of(pairs: TagPairs) -> Tuple[List[Entity], List[Entity]]:
    """The gold and predicted entities, the latter without those in unannotated tokens."""
    unknown = pairs.gold < 0
    gold = pairs.tags.decode(numpy.where(unknown, 0, pairs.gold), pairs.lengths)
    predicted = pairs.tags.decode(pairs.predicted, pairs.lengths)
    labels = pairs.tags.labels
    return list(_named(gold, labels)), [
        entity for entity in _named(predicted, labels) if not unknown[entity[0] : entity[1]].any()
    ]


def _named(entities: Entities, labels: Sequence[str]) -> Iterable[Entity]:
    columns = (column.tolist() for column in entities)
    return ((begin, end, labels[label]) for begin, end, label in zip(*columns))


def stretches(gold: Sequence[Entity], predicted: Sequence[Entity]) -> List[Stretch]:
    """Group overlapping entities.

    gold (Sequence[Entity]): Gold entities, in order and without overlap.
    predicted (Sequence[Entity]): Predicted entities, likewise.
    RETURNS (List[Stretch]): The stretches, in order.
    """
    found: List[Stretch] = []
    both = [(*entity, False) for entity in gold] + [(*entity, True) for entity in predicted]
    for begin, end, label, is_predicted in sorted(both):
        if not found or begin >= found[-1].end:
            found.append(Stretch(begin, end, [], []))
        found[-1] = found[-1]._replace(end=max(end, found[-1].end))
        (found[-1].predicted if is_predicted else found[-1].gold).append((begin, end, label))
    return found


def cost_of(wrong: Sequence[Stretch], costs: Floats1d) -> Floats1d:
    """The cost of each stretch: the sum over its tokens.

    wrong (Sequence[Stretch]): The stretches.
    costs (Floats1d): The cost of each token. Shape: (N,)
    RETURNS (Floats1d): Shape: (stretches,)
    """
    total = numpy.concatenate([[0], numpy.cumsum(costs, dtype="float64")])
    return total[[s.end for s in wrong]] - total[[s.begin for s in wrong]]


def gold_probs(dev: DevPredictions, entities: Sequence[Entity]) -> Dict[Entity, float]:
    """The probabilities of entities whose labels the model has."""
    index = {label: i for i, label in enumerate(dev.posterior.tags.labels)}
    ours = [(begin, end, label) for begin, end, label in entities if label in index]
    columns = [(begin, end, index[label]) for begin, end, label in ours]
    arrays = numpy.asarray(columns, dtype="int64").reshape(-1, 3).T
    return dict(zip(ours, dev.posterior.entity_probs(Entities(*arrays)).tolist()))


def mistake_confidence(stretch: Stretch, probs: Dict[Entity, float]) -> float:
    """The model's confidence in its mistake: the probability of the predicted entity or, if there
    is none, that of no gold entity."""
    if stretch.predicted:
        return max(probs.get(entity, 0.0) for entity in stretch.predicted)
    return 1 - max(probs.get(entity, 0.0) for entity in stretch.gold)


class Texts:
    """Renders stretches in their text."""

    def __init__(
        self,
        docs: Sequence[Doc],
        gold: Sequence[Entity],
        predicted: Sequence[Entity],
        probs: Dict[Entity, float],
    ) -> None:
        self.docs = docs
        self.gold = gold
        self.predicted = predicted
        self.probs = probs
        lengths = [len(doc) for doc in docs]
        self.starts = numpy.cumsum([0, *lengths])[:-1]
        self.right = set(gold) & set(predicted)

    def show(self, stretch: Stretch, cost: float) -> Mistake:
        i = int(numpy.searchsorted(self.starts, stretch.begin, side="right")) - 1
        doc, start = self.docs[i], int(self.starts[i])
        begin, end = window(doc, stretch.begin - start, stretch.end - start)
        before = "… " if begin > 0 and not doc[begin].is_sent_start else ""
        after = " …" if end < len(doc) and not doc[end].is_sent_start else ""
        text = before + doc[begin:end].text + after

        def marks(entities: Sequence[Entity], own: Sequence[Entity]) -> List[Mark]:
            return [
                Mark(
                    doc[max(b - start, begin)].idx - doc[begin].idx + len(before),
                    _end_of(doc, min(e - start, end)) - doc[begin].idx + len(before),
                    label,
                    self._state((b, e, label), own),
                    self.probs.get((b, e, label)),
                )
                for b, e, label in _within(entities, start + begin, start + end)
            ]

        return Mistake(
            doc=i,
            kind=stretch.kind,
            cost=cost,
            text=text,
            gold=marks(self.gold, stretch.gold),
            predicted=marks(self.predicted, stretch.predicted),
        )

    def _state(self, entity: Entity, own: Sequence[Entity]) -> str:
        return "right" if entity in self.right else "wrong" if entity in own else "other"


def _end_of(doc: Doc, end: int) -> int:
    return doc[end - 1].idx + len(doc[end - 1])


def _within(entities: Sequence[Entity], begin: int, end: int) -> Sequence[Entity]:
    """The entities with tokens in a stretch."""
    first = numpy.searchsorted([entity[1] for entity in entities], begin, side="right")
    last = numpy.searchsorted([entity[0] for entity in entities], end)
    return entities[int(first) : int(last)]


def window(doc: Doc, begin: int, end: int) -> Tuple[int, int]:
    """The sentences around some tokens or, if these are too long, some tokens on each side.

    RETURNS (Tuple[int, int]): The first token and the one after the last.
    """
    first, last = 0, len(doc)
    if doc.has_annotation("SENT_START"):
        first, last = doc[begin].sent.start, doc[end - 1].sent.end
    if last - first <= MOST_TOKENS:
        return first, last
    more = max(MOST_TOKENS - (end - begin), 10) // 2
    return max(begin - more, first), min(end + more, last)
