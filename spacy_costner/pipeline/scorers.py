"""Scorers: F, the cost of mistakes, and calibration."""

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
from ..training.targets import gold_tags
from ..training.token_attrs import read_docs, read_reference
from ..types import Cost

Scores = Dict[str, Any]
Entity = Tuple[str, int, int]
"""A label, and begin and end in tokens of the reference."""

EntityPairs = List[Tuple[Set[Entity], List[Entity]]]
"""The gold and predicted entities of each doc."""


def make_cost_scorer(*, cost: Cost, tree: Optional[TreeSource] = None) -> Callable[..., Scores]:
    """Build a scorer for the cost of mistakes: see `cost_scores`.

        [components.ner.scorer]
        @scorers = "spacy_costner.cost_scorer.v1"
        tree = "assets/tree.json"

        [components.ner.scorer.cost]
        @misc = "spacy_costner.HierarchicalCost.v1"
        tree = "assets/tree.json"

    To select the best model of `spacy train` by its cost, give the cost a negative weight and
    set the weight of F to 0. spaCy would add it otherwise. (It also normalises weights with a
    positive sum, and rounds them to two digits.)

        [training.score_weights]
        ents_cost = -1.0
        ents_f = 0.0

    The training table shows all scores times 100, the cost too. A score with weight `null` is
    not in the table, but in the model's meta.json. `ents_confusion` is not a number: its weight
    must be `null`. `spacy evaluate` prints spaCy's own scores only. All scores are in its
    --output.

    cost (Cost): The cost.
    tree (Optional[TreeSource]): The label tree, to get F on each of its levels.
    RAISES (ValueError): If the tree in the config is not a tree.
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
    """Score entities and the cost of mistakes.

    Ignored are empty docs, docs without annotation, tokens without annotation and entities that
    include such tokens. Entities of labels that the component doesn't have are mistakes, and need
    a cost, too. Scores that can't be computed are None.

    cost (Cost): The cost.
    tree (Optional[Tree]): The label tree, for `ents_f_level_…`.
    examples (Iterable[Example]): The examples, with predicted docs.
    labels (Sequence[str]): The labels of the component.
    scheme (str): The tag scheme of the component.
    confidence (Optional[Mapping[str, Any]]): The component's confidence settings, if enabled.
    **settings (Any): Other settings of the component. Not used.
    RETURNS (Dict[str, Any]): spaCy's `ents_p`, `ents_r`, `ents_f` and `ents_per_type`, and
        - `ents_cost`: mean cost per token; lower is better.
        - `ents_tag_acc`: share of tokens with the correct tag.
        - `ents_sent_acc`: share of docs with all entities correct and no others.
        - `ents_f_level_1`, `ents_f_level_2`, …: F with each label replaced by its ancestor at
          that level of the label tree, 1 at the top.
        - `ents_ece` and `ents_reliability`, if confidence is enabled: see `confidence_scores`.
        - `ents_confusion`: the confusion matrix in tokens, by gold label and then by predicted
          label, "O" included, without zeros.
    RAISES (ValueError): If a label has no cost, or is not in the label tree.

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
    """Build a scorer for calibration: see `confidence_scores`.

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
    """Score entities and the calibration of their confidences.

    examples (Iterable[Example]): The examples, with predicted docs.
    labels (Sequence[str]): The labels of the component. Entities of inner nodes of a label tree
        are ignored: their confidence is not that of a label.
    confidence (Optional[Mapping[str, Any]]): The component's confidence settings, if enabled.
    **settings (Any): Other settings of the component. Not used.
    RETURNS (Dict[str, Any]): spaCy's `ents_p`, `ents_r`, `ents_f` and `ents_per_type`, and
        - `ents_ece`: expected calibration error, in ten bins; lower is better. None without
          entities, or if confidence is not enabled.
        - `ents_reliability`: number of entities, mean confidence and precision of each bin: see
          `reliability`.
    """
    annotated = _annotated(examples)
    return {**get_ner_prf(annotated), **_confidence_scores(annotated, confidence, labels)}


class DocCounts(NamedTuple):
    """The counts of each of D docs.

    right (Ints1d): Predicted entities that are gold. Shape: (D,)
    wrong (Ints1d): Predicted entities that are not gold. Shape: (D,)
    missed (Ints1d): Gold entities that are not predicted. Shape: (D,)
    cost (Floats1d): The cost of mistakes. Shape: (D,)
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
    """Compute the counts behind `cost_scores` for each doc that is not ignored there.

    examples (Iterable[Example]): The examples, with predicted docs.
    cost (Cost): The cost.
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
    """The gold and predicted tags of tokens.

    tags (Tags): The tags of all labels: those of the component, then those that only the docs
        have.
    gold (Ints1d): The gold tag of each token, -1 where it is not annotated. Shape: (N,)
    predicted (Ints1d): The predicted tag of each token. Shape: (N,)
    lengths (Ints1d): Number of tokens of each doc. Shape: (B,)
    """

    tags: Tags
    gold: Ints1d
    predicted: Ints1d
    lengths: Ints1d

    def look_up(self, table: Floats2d) -> Floats1d:
        """Look up the tags of each token in a table; 0 where it is not annotated.

        table (Floats2d): A value for each pair of tags, [gold, predicted]. Shape: (K, K)
        RETURNS (Floats1d): Shape: (N,)
        """
        return numpy.where(self.gold >= 0, table[self.gold, self.predicted], 0)

    def over_labels(self, table: Floats2d) -> Floats2d:
        """Look up tags, and sum over the tokens of each pair of labels, [gold, predicted], with O
        last. Shape: (labels + 1, labels + 1)"""
        n_labels = len(self.tags.labels) + 1
        sums = numpy.zeros((n_labels, n_labels), dtype=table.dtype)
        label_of = self.tags.label_of
        numpy.add.at(sums, (label_of[self.gold], label_of[self.predicted]), self.look_up(table))
        return sums


def compare_tags(
    examples: Iterable[Example], *, labels: Sequence[str] = (), scheme: str = "BILUO"
) -> TagPairs:
    """Get the gold and predicted tags.

    examples (Iterable[Example]): The examples, with predicted docs.
    labels (Sequence[str]): The labels of the component.
    scheme (str): The tag scheme of the component.
    RETURNS (TagPairs): The tags of the tokens of all predicted docs, concatenated.
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
    """Get the gold and predicted entities of annotated docs.

    examples (Iterable[Example]): The examples, with predicted docs.
    RETURNS (EntityPairs): The entities of each doc.
    """
    return [_entities(eg) for eg in _annotated(examples)]


def count_by_label(
    pairs: EntityPairs, lift: Optional[Callable[[str], str]] = None
) -> Dict[str, PRFScore]:
    """Count correct, wrong and missed entities, as spaCy's scorer does.

    pairs (EntityPairs): The gold and predicted entities.
    lift (Optional[Callable[[str], str]]): Replaces labels, for example by their ancestors.
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
    """Count entities with each label replaced by its ancestor at a level of the label tree.

    pairs (EntityPairs): The gold and predicted entities.
    tree (Tree): The label tree.
    level (int): The level, 1 at the top.
    RETURNS (PRFScore): The counts.
    RAISES (ValueError): If a label is not in the label tree.
    """
    counts = count_by_label(pairs, lambda label: tree.ancestor(label, level))
    return sum(counts.values(), PRFScore())


def _annotated(examples: Iterable[Example]) -> List[Example]:
    return [eg for eg in examples if len(eg.y) and eg.y.has_annotation("ENT_IOB")]


def _token_scores(
    examples: List[Example], cost: Cost, labels: Sequence[str], scheme: str
) -> Scores:
    """The scores of tags.

    ents_cost = 1/N sum_t cost[gold_t, predicted_t]
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
    """The scores of entities, counted as spaCy's scorer does."""
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
    """Gold and predicted entities, the latter without those in unannotated tokens."""
    predicted = [_in_reference(eg, ent) for ent in eg.x.ents]
    gold = {(ent.label_, ent.start, ent.end) for ent in eg.y.ents}
    return gold, [entity for entity in predicted if entity is not None]


def _in_reference(eg: Example, ent: Span) -> Optional[Entity]:
    """A predicted entity in tokens of the reference; None if these are not annotated."""
    tokens = eg.alignment.x2y[ent.start : ent.end]
    if not len(tokens):
        return None
    begin, end = int(tokens[0]), int(tokens[-1]) + 1
    known = all(token.ent_iob for token in eg.y[begin:end])
    return (ent.label_, begin, end) if known else None


def _confidence_scores(
    examples: List[Example], confidence: Optional[Mapping[str, Any]], labels: Sequence[str]
) -> Scores:
    """The scores of confidences."""
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
    both = numpy.asarray(probs), numpy.asarray(right)
    return {"ents_ece": calibration_error(*both), "ents_reliability": reliability(*both)}


def _compare(gold: Set[Entity], predicted: List[Entity]) -> PRFScore:
    left = set(gold)
    for entity in predicted:
        left.discard(entity)
    n_right = len(gold) - len(left)
    return PRFScore(tp=n_right, fp=len(predicted) - n_right, fn=len(left))
