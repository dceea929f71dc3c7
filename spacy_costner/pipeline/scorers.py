"""How good the answers are, and what their mistakes cost."""

from collections import defaultdict
from functools import partial
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
    Set,
    Tuple,
)

import numpy
from spacy.scorer import PRFScore, get_ner_prf
from spacy.strings import StringStore
from spacy.tokens import Span
from spacy.training import Example
from thinc.types import Floats1d, Floats2d, Ints1d

from ..costs.label_tree import Tree, TreeSource, make_tree
from ..metrics.calibration import calibration_error, reliability
from ..tags import OUTSIDE, Tags
from ..types import Cost
from .targets import gold_tags
from .token_attrs import read_docs, read_reference

Scores = Dict[str, Any]
Entity = Tuple[str, int, int]
"""A label, and begin and end in tokens of the reference."""

EntityPairs = List[Tuple[Set[Entity], List[Entity]]]
"""The entities of gold and of the answer, for each of some docs."""


def make_cost_scorer(*, cost: Cost, tree: Optional[TreeSource] = None) -> Callable[..., Scores]:
    """Build a scorer that knows what mistakes cost: see `cost_scores`.

        [components.ner.scorer]
        @scorers = "spacy_costner.cost_scorer.v1"
        tree = "assets/tree.json"

        [components.ner.scorer.cost]
        @misc = "spacy_costner.HierarchicalCost.v1"
        tree = "assets/tree.json"

    To choose the best model of `spacy train` by its cost, give that a negative weight, and
    take away the weight of F, which spaCy would otherwise add (it also makes weights with a
    positive sum add up to 1, and rounds them to two digits):

        [training.score_weights]
        ents_cost = -1.0
        ents_f = 0.0

    The training table shows the cost times 100, as it does all scores. A score with weight
    `null` is not in the table but, like the others named there, in the model's meta.json;
    `ents_confusion` is no number and can have no other weight. `spacy evaluate` prints
    spaCy's own scores only, and writes all of them to its --output.

    cost (Cost): What each mistake costs.
    tree (Optional[TreeSource]): The tree of labels, if F is wanted on each of its levels.
    RAISES (ValueError): If a tree in the config is none.
    """
    levels = None if tree is None else make_tree(tree, "spacy_costner.cost_scorer: tree")
    return partial(cost_scores, cost, levels)


def cost_scores(
    cost: Cost,
    tree: Optional[Tree],
    examples: Iterable[Example],
    /,
    *,
    labels: Sequence[str] = (),
    scheme: str = "BILUO",
    confidence: Optional[Mapping[str, Any]] = None,
    **settings: Any,
) -> Scores:
    """Score the entities of some docs.

    Docs without annotation, tokens where it is missing and entities that reach into such
    tokens don't count; nor do empty docs. Labels that the component doesn't have count as
    wrong answers, and need a cost too. What can't be scored is None.

    cost (Cost): What each mistake costs.
    tree (Optional[Tree]): The tree of labels, for `ents_f_level_…`.
    examples (Iterable[Example]): The examples, with predicted docs.
    labels (Sequence[str]): The labels of the component.
    scheme (str): The tag scheme of the component.
    confidence (Optional[Mapping[str, Any]]): The component's settings of confidence, if on.
    **settings (Any): Other settings of the component: none is used.
    RETURNS (Dict[str, Any]): spaCy's `ents_p`, `ents_r`, `ents_f` and `ents_per_type`, and
        - `ents_cost`: average cost of a token; lower is better.
        - `ents_tag_acc`: share of the tokens with the right tag.
        - `ents_sent_acc`: share of the docs with all entities right and no other.
        - `ents_f_level_1`, `ents_f_level_2`, …: F where each label is replaced by the node
          above it at that level of the tree, 1 on top.
        - `ents_ece` and `ents_reliability`, where confidence is on: see `confidence_scores`.
        - `ents_confusion`: tokens by label of gold and then of the answer, "O" included;
          what never happened is left out.
    RAISES (ValueError): If a label has no cost, or is not in the tree.

    Higashiyama et al., eq 11, for `ents_cost`; Suzuki et al. for the accuracies.
    """
    annotated = _annotated(examples)
    return {
        **get_ner_prf(annotated),
        **_token_scores(annotated, cost, labels, scheme),
        **_entity_scores(annotated, tree),
        **({} if confidence is None else _confidence_scores(annotated, confidence, labels)),
    }


def make_confidence_scorer() -> Callable[..., Scores]:
    """Build a scorer that knows what confidences are worth: see `confidence_scores`.

    [components.ner.scorer]
    @scorers = "spacy_costner.confidence_scorer.v1"
    """
    return confidence_scores


def confidence_scores(
    examples: Iterable[Example],
    *,
    labels: Sequence[str] = (),
    confidence: Optional[Mapping[str, Any]] = None,
    **settings: Any,
) -> Scores:
    """Score the entities of some docs, and the confidence in them.

    examples (Iterable[Example]): The examples, with predicted docs.
    labels (Sequence[str]): The labels of the component. Confidence in others, nodes of a
        tree, is not that one label is right, and doesn't count.
    confidence (Optional[Mapping[str, Any]]): The component's settings of confidence, if on.
    **settings (Any): Other settings of the component: none is used.
    RETURNS (Dict[str, Any]): spaCy's `ents_p`, `ents_r`, `ents_f` and `ents_per_type`, and
        - `ents_ece`: the expected calibration error of the entities' confidence, in ten bins;
          lower is better. None without entities, or where confidence is off.
        - `ents_reliability`: the number of entities, their mean confidence and the share of
          them that is right, bin by bin: see `reliability`.
    """
    annotated = _annotated(examples)
    return {**get_ner_prf(annotated), **_confidence_scores(annotated, confidence, labels)}


class DocCounts(NamedTuple):
    """What there is to count in each of D docs.

    right (Ints1d): Entities found. Shape: (D,)
    wrong (Ints1d): Entities predicted that are not gold. Shape: (D,)
    missed (Ints1d): Entities of gold that were not predicted. Shape: (D,)
    cost (Floats1d): What the mistakes cost. Shape: (D,)
    tokens (Ints1d): Annotated tokens. Shape: (D,)
    """

    right: Ints1d
    wrong: Ints1d
    missed: Ints1d
    cost: Floats1d
    tokens: Ints1d


def count_docs(
    examples: Iterable[Example],
    cost: Cost,
    *,
    labels: Sequence[str] = (),
    scheme: str = "BILUO",
) -> DocCounts:
    """Count what `cost_scores` scores, doc by doc, for docs that it counts.

    examples (Iterable[Example]): The examples, with predicted docs.
    cost (Cost): What each mistake costs.
    labels (Sequence[str]): The labels of the component.
    scheme (str): The tag scheme of the component.
    RETURNS (DocCounts): The counts.
    RAISES (ValueError): If a label has no cost.
    """
    annotated = _annotated(examples)
    pairs = compare_tags(annotated, labels=labels, scheme=scheme)
    known, table = pairs.gold >= 0, cost(pairs.tags)
    doc = numpy.repeat(numpy.arange(len(annotated)), pairs.lengths)[known]
    found = [_compare(*_entities(eg)) for eg in annotated]
    n_docs = len(annotated)
    return DocCounts(
        right=numpy.asarray([score.tp for score in found], dtype="int64"),
        wrong=numpy.asarray([score.fp for score in found], dtype="int64"),
        missed=numpy.asarray([score.fn for score in found], dtype="int64"),
        cost=numpy.bincount(doc, weights=pairs.look_up(table)[known], minlength=n_docs),
        tokens=numpy.bincount(doc, minlength=n_docs),
    )


class TagPairs(NamedTuple):
    """The tags of gold and of the answer, side by side.

    tags (Tags): The tags of all labels that there are: those of the component, then those
        that only the docs have.
    gold (Ints1d): The tag of each token, -1 where it is not annotated. Shape: (N,)
    predicted (Ints1d): The tag of the answer. Shape: (N,)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    """

    tags: Tags
    gold: Ints1d
    predicted: Ints1d
    lengths: Ints1d

    def look_up(self, table: Floats2d) -> Floats1d:
        """What a table over tags says of each token; 0 where it is not annotated.

        table (Floats2d): A number for each pair, [gold, predicted]. Shape: (K, K)
        RETURNS (Floats1d): Shape: (N,)
        """
        return numpy.where(self.gold >= 0, table[self.gold, self.predicted], 0)

    def over_labels(self, table: Floats2d) -> Floats2d:
        """The same, added up over the tokens of each pair of labels, [gold, predicted], with O
        last. Shape: (labels + 1, labels + 1)"""
        n_labels = len(self.tags.labels) + 1
        sums = numpy.zeros((n_labels, n_labels), dtype=table.dtype)
        label_of = self.tags.label_of
        numpy.add.at(sums, (label_of[self.gold], label_of[self.predicted]), self.look_up(table))
        return sums


def compare_tags(
    examples: Iterable[Example], *, labels: Sequence[str] = (), scheme: str = "BILUO"
) -> TagPairs:
    """Find the tags of gold and of the answer.

    examples (Iterable[Example]): The examples, with predicted docs.
    labels (Sequence[str]): The labels of the component.
    scheme (str): The tag scheme of the component.
    RETURNS (TagPairs): The tags, of the tokens of all predicted docs one after another.
    """
    examples = list(examples)
    tags = Tags(_all_labels(examples, labels), scheme)
    tokens = read_docs([eg.x for eg in examples])
    strings = StringStore()
    reference = read_reference(examples, tokens)
    gold = gold_tags(reference.entities(tags, strings), reference.is_annotated, tags)
    predicted = tags.encode(tokens.entities(tags, strings), len(gold))
    return TagPairs(tags, gold, predicted, tokens.lengths)


def entity_pairs(examples: Iterable[Example]) -> EntityPairs:
    """Find the entities of gold and of the answer that count.

    examples (Iterable[Example]): The examples, with predicted docs.
    RETURNS (EntityPairs): Those of each doc that is annotated.
    """
    return [_entities(eg) for eg in _annotated(examples)]


def count_by_label(
    pairs: EntityPairs, lift: Optional[Callable[[str], str]] = None
) -> Dict[str, PRFScore]:
    """Count the entities that are right, wrong and missed, by the rules of spaCy's F.

    pairs (EntityPairs): The entities of gold and of the answer.
    lift (Optional[Callable[[str], str]]): What stands for a label, if not it itself.
    RETURNS (Dict[str, PRFScore]): The counts of each label, in alphabetical order.
    """
    counts: Dict[str, PRFScore] = defaultdict(PRFScore)
    for gold, predicted in pairs:
        if lift is not None:
            gold = {(lift(x), begin, end) for x, begin, end in gold}
            predicted = [(lift(x), begin, end) for x, begin, end in predicted]
        for label in {entity[0] for entity in [*gold, *predicted]}:
            own = {entity for entity in gold if entity[0] == label}
            counts[label] += _compare(own, [e for e in predicted if e[0] == label])
    return dict(sorted(counts.items()))


def count_at_level(pairs: EntityPairs, tree: Tree, level: int) -> PRFScore:
    """The same over all labels, with each replaced by the node above it at a level of the tree.

    pairs (EntityPairs): The entities of gold and of the answer.
    tree (Tree): The tree of labels.
    level (int): The level, 1 on top.
    RETURNS (PRFScore): The counts.
    RAISES (ValueError): If a label is not in the tree.
    """
    counts = count_by_label(pairs, lambda label: tree.ancestor(label, level))
    return sum(counts.values(), PRFScore())


def _annotated(examples: Iterable[Example]) -> List[Example]:
    return [eg for eg in examples if len(eg.y) and eg.y.has_annotation("ENT_IOB")]


def _token_scores(
    examples: List[Example], cost: Cost, labels: Sequence[str], scheme: str
) -> Scores:
    """The scores that compare tag with tag.

    ents_cost = 1/N sum_t cost[gold_t, answered_t]
    """
    pairs = compare_tags(examples, labels=labels, scheme=scheme)
    known = pairs.gold >= 0
    if not known.any():
        return dict.fromkeys(["ents_cost", "ents_tag_acc", "ents_confusion"])
    return {
        "ents_cost": float(pairs.look_up(cost(pairs.tags))[known].mean(dtype="float64")),
        "ents_tag_acc": float((pairs.gold == pairs.predicted)[known].mean()),
        "ents_confusion": _confusion(pairs),
    }


def _all_labels(examples: List[Example], labels: Sequence[str]) -> List[str]:
    """The labels of the component, then those that only the docs have."""
    found = {ent.label_ for eg in examples for doc in (eg.x, eg.y) for ent in doc.ents}
    return [*labels, *sorted(found.difference(labels))]


def _confusion(pairs: TagPairs) -> Dict[str, Dict[str, int]]:
    names = [*pairs.tags.labels, OUTSIDE]
    counts = pairs.over_labels(numpy.ones((len(pairs.tags), len(pairs.tags)), dtype="int64"))
    return {
        name: {names[i]: int(row[i]) for i in numpy.flatnonzero(row)}
        for name, row in zip(names, counts)
        if row.any()
    }


def _entity_scores(examples: List[Example], tree: Optional[Tree]) -> Scores:
    """The scores that compare entity with entity, by the rules of spaCy's F."""
    pairs = entity_pairs(examples)
    compared = [_compare(*pair) for pair in pairs]
    right = [not (score.fp or score.fn) for score in compared]
    scores: Scores = {"ents_sent_acc": float(numpy.mean(right)) if right else None}
    if tree is not None:
        for level in range(1, tree.depth + 1):
            total = count_at_level(pairs, tree, level)
            scores[f"ents_f_level_{level}"] = total.fscore if len(total) else None
    return scores


def _entities(eg: Example) -> Tuple[Set[Entity], List[Entity]]:
    """Gold and predicted entities, the latter without those in tokens that are not annotated."""
    predicted = [_in_reference(eg, ent) for ent in eg.x.ents]
    gold = {(ent.label_, ent.start, ent.end) for ent in eg.y.ents}
    return gold, [entity for entity in predicted if entity is not None]


def _in_reference(eg: Example, ent: Span) -> Optional[Entity]:
    """An predicted entity in the tokens of the reference; None if these are not annotated."""
    tokens = eg.alignment.x2y[ent.start : ent.end]
    if not len(tokens):
        return None
    begin, end = int(tokens[0]), int(tokens[-1]) + 1
    known = all(token.ent_iob for token in eg.y[begin:end])
    return (ent.label_, begin, end) if known else None


def _confidence_scores(
    examples: List[Example], confidence: Optional[Mapping[str, Any]], labels: Sequence[str]
) -> Scores:
    """Confidence against how many answers are right."""
    probs, right = [], []
    for eg in examples:
        if confidence is None or confidence["spans_key"] not in eg.x.spans:
            continue
        gold = {(ent.label_, ent.start, ent.end) for ent in eg.y.ents}
        group = eg.x.spans[confidence["spans_key"]]
        for span, prob in zip(group, group.attrs["scores"]):
            entity = _in_reference(eg, span)
            if entity is not None and span.label_ in labels:
                probs.append(float(prob))
                right.append(entity in gold)
    if not probs:
        return {"ents_ece": None, "ents_reliability": None}
    answers = numpy.asarray(probs), numpy.asarray(right)
    return {
        "ents_ece": calibration_error(*answers),
        "ents_reliability": reliability(*answers),
    }


def _compare(gold: Set[Entity], predicted: List[Entity]) -> PRFScore:
    left = set(gold)
    for entity in predicted:
        left.discard(entity)
    n_right = len(gold) - len(left)
    return PRFScore(tp=n_right, fp=len(predicted) - n_right, fn=len(left))
