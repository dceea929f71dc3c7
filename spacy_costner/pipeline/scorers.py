"""Scorers: F, the cost of mistakes, and calibration."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import isnan
from typing import Any, NamedTuple

import numpy
from spacy.scorer import PRFScore, get_ner_prf
from spacy.strings import StringStore
from spacy.tokens import Span
from spacy.training import Example
from thinc.types import Floats1d, Floats2d, Ints1d

from ..costs.label_tree import Tree, TreeSource, make_tree
from ..metrics.calibration import calibration_error, reliability
from ..ragged import sequence_ids
from ..spans import on_tokens
from ..tags import OUTSIDE, Tags
from ..token_attrs import read_docs, read_reference
from ..types import Cost
from .annotations import group_of_component

Scores = dict[str, Any]

Entity = tuple[int, int, str]
"""Begin and end in tokens of the reference, and label."""

EntityPairs = list[tuple[set[Entity], list[Entity]]]
"""The gold and predicted entities of each doc."""


def as_entity(span: Span) -> Entity:
    """The tokens and the label of a span."""
    return span.start, span.end, span.label_


def make_cost_scorer(*, cost: Cost, tree: TreeSource | None = None) -> Callable[..., Scores]:
    """Build a scorer for the cost of mistakes: see `cost_scores`.

        [components.ner.scorer]
        @scorers = "spacy_costner.cost_scorer.v1"
        tree = "assets/tree.json"

        [components.ner.scorer.cost]
        @misc = "spacy_costner.HierarchicalCost.v1"
        tree = "assets/tree.json"

    To select the best model of `spacy train` by its cost, give the cost a negative weight and
    F the weight 0. The weight of `ents_confusion` must be `null`, as it is not a number.

        [training.score_weights]
        ents_cost = -1.0
        ents_f = 0.0

    cost (Cost): The cost.
    tree (TreeSource | None): The label tree, to get F on each of its levels.
    RAISES (ValueError): If the tree in the config is not a tree.
    """
    levels = None if tree is None else make_tree(tree, "spacy_costner.cost_scorer: tree")
    return partial(cost_scores, cost, levels)


def cost_scores(
    cost: Cost,
    tree: Tree | None,
    examples: Iterable[Example],
    /,
    *,
    labels: Sequence[str] = (),
    scheme: str = "BILUO",
    confidence: dict[str, Any] | None = None,
    component: str | None = None,
    spans_key: str | None = None,
    **settings: Any,
) -> Scores:
    """Score entities and the cost of mistakes, with the settings of the component.

    Ignored are empty docs, docs without annotation, tokens without annotation and entities that
    include such tokens. Entities of labels that the component doesn't have are mistakes, and need
    a cost, too. Scores that can't be computed are None.

    RETURNS (dict[str, Any]): spaCy's `ents_p`, `ents_r`, `ents_f` and `ents_per_type`, and
        - `ents_cost`: mean cost per token; lower is better.
        - `ents_tag_acc`: share of tokens with the correct tag.
        - `ents_sent_acc`: share of docs with all entities correct and no others.
        - `ents_f_level_1`, `ents_f_level_2`, …: F with each label replaced by its ancestor at
          that level of the label tree, if there is one, 1 at the top.
        - `ents_ece` and `ents_reliability`, if confidence is enabled: see `confidence_scores`.
        - `ents_confusion`: the confusion matrix in tokens, by gold label and then by predicted
          label, "O" included, without zeros.
    RAISES (ValueError): If a label has no cost, or is not in the label tree, or the component has a
        `spans_key`.

    Higashiyama et al., eq 11, for `ents_cost`; Suzuki et al. for the accuracies.
    """
    _check_ents("cost_scorer", spans_key)
    annotated = _annotated(examples)
    scores: Scores = {
        **get_ner_prf(annotated),
        **dict.fromkeys(["ents_cost", "ents_tag_acc", "ents_confusion", "ents_sent_acc"]),
    }
    pairs = compare_tags(annotated, labels=labels, scheme=scheme)
    known = pairs.gold >= 0
    if known.any():
        scores["ents_cost"] = float(pairs.look_up(cost(pairs.tags))[known].mean(dtype="float64"))
        scores["ents_tag_acc"] = float((pairs.gold == pairs.predicted)[known].mean())
        names = [*pairs.tags.labels, OUTSIDE]
        counts = pairs.over_labels(numpy.ones((len(pairs.tags), len(pairs.tags)), dtype="int64"))
        scores["ents_confusion"] = {
            name: {names[i]: int(row[i]) for i in numpy.flatnonzero(row)}
            for name, row in zip(names, counts)
            if row.any()
        }
    entities = entity_pairs(annotated)
    if entities:
        of_docs = [_compare(*pair) for pair in entities]
        scores["ents_sent_acc"] = float(numpy.mean([not (each.fp or each.fn) for each in of_docs]))
    if tree is not None:
        for level in range(1, tree.depth + 1):
            total = count_at_level(entities, tree, level)
            scores[f"ents_f_level_{level}"] = total.fscore if len(total) else None
    if confidence is not None:
        scores.update(_calibration_scores(annotated, confidence, labels, component))
    return scores


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
    confidence: dict[str, Any] | None = None,
    component: str | None = None,
    spans_key: str | None = None,
    **settings: Any,
) -> Scores:
    """Score entities and the calibration of their confidences, with the settings of the component.
    Entities of inner nodes of a label tree are ignored: their confidence is not of a label.

    RETURNS (dict[str, Any]): spaCy's `ents_p`, `ents_r`, `ents_f` and `ents_per_type`, and
        - `ents_ece`: expected calibration error, in ten bins; lower is better. None without
          entities, or if confidence is not enabled.
        - `ents_reliability`: number of entities, mean confidence and precision of each bin: see
          `reliability`.
    RAISES (ValueError): If the component has a `spans_key`.
    """
    _check_ents("confidence_scorer", spans_key)
    annotated = _annotated(examples)
    calibration = _calibration_scores(annotated, confidence, labels, component)
    return {**get_ner_prf(annotated), **calibration}


class DocCounts(NamedTuple):
    """Counts of D docs: entities, the cost of mistakes, and annotated tokens. Shapes: (D,)"""

    tp: Ints1d
    fp: Ints1d
    fn: Ints1d
    cost: Floats1d
    tokens: Ints1d


def count_docs(
    examples: Iterable[Example], cost: Cost, *, labels: Sequence[str] = (), scheme: str = "BILUO"
) -> DocCounts:
    """Compute the counts behind `cost_scores` for each doc that is not ignored there."""
    annotated = _annotated(examples)
    pairs = compare_tags(annotated, labels=labels, scheme=scheme)
    counts = [_compare(*pair) for pair in entity_pairs(annotated)]
    of_doc = [(each.tp, each.fp, each.fn) for each in counts]
    tp, fp, fn = numpy.asarray(of_doc, dtype="int64").reshape(-1, 3).T
    doc, n_docs = sequence_ids(pairs.lengths), len(annotated)
    costs = numpy.bincount(doc, pairs.look_up(cost(pairs.tags)), minlength=n_docs)
    return DocCounts(tp, fp, fn, costs, numpy.bincount(doc[pairs.gold >= 0], minlength=n_docs))


class TagPairs(NamedTuple):
    """The gold and predicted tags of tokens.

    tags (Tags): The tags of all labels: the component's first, then others in the docs.
    gold (Ints1d): The gold tag of each token, -1 where it is not annotated. Shape: (N,)
    predicted (Ints1d): The predicted tag of each token. Shape: (N,)
    lengths (Ints1d): Number of tokens of each doc. Shape: (B,)
    """

    tags: Tags
    gold: Ints1d
    predicted: Ints1d
    lengths: Ints1d

    def look_up(self, table: Floats2d) -> Floats1d:
        """The value of each token in a table of [gold, predicted] tags; 0 where the token is not
        annotated. Shapes: (K, K), (N,)"""
        return numpy.where(self.gold >= 0, table[self.gold, self.predicted], 0)

    def over_labels(self, table: Floats2d) -> Floats2d:
        """Look up tags, and sum over the tokens of each pair of labels, [gold, predicted], with O
        last. Shape: (labels + 1, labels + 1)"""
        label_of, n_labels = self.tags.label_of, len(self.tags.labels) + 1
        sums = numpy.zeros((n_labels, n_labels), dtype=table.dtype)
        numpy.add.at(sums, (label_of[self.gold], label_of[self.predicted]), self.look_up(table))
        return sums


def compare_tags(
    examples: Iterable[Example], *, labels: Sequence[str] = (), scheme: str = "BILUO"
) -> TagPairs:
    """Get the gold and predicted tags of all tokens of the predicted docs."""
    examples = list(examples)
    in_docs = {ent.label_ for eg in examples for doc in (eg.x, eg.y) for ent in doc.ents}
    tags = Tags([*labels, *sorted(in_docs.difference(labels))], scheme)
    tokens, strings = read_docs([eg.x for eg in examples]), StringStore()
    reference = read_reference(examples, tokens)
    gold = tags.gold_path(reference.entities(tags, strings), reference.is_annotated)
    predicted = tags.encode(tokens.entities(tags, strings), len(gold))
    return TagPairs(tags, gold, predicted, tokens.lengths)


def entity_pairs(examples: Iterable[Example]) -> EntityPairs:
    """Get the gold and predicted entities of annotated docs, the latter without those in
    unannotated tokens."""
    return [
        (
            {(ent.start, ent.end, ent.label_) for ent in eg.y.ents},
            [entity for ent in eg.x.ents if (entity := _in_reference(eg, ent)) is not None],
        )
        for eg in _annotated(examples)
    ]


def count_by_label(
    pairs: EntityPairs, lift: Callable[[str], str] = lambda label: label
) -> dict[str, PRFScore]:
    """Count tp, fp and fn of each label, in alphabetical order. `lift` replaces labels, for example
    by their ancestors."""
    counts: dict[str, PRFScore] = defaultdict(PRFScore)
    for pair in pairs:
        gold, predicted = ([(b, e, lift(x)) for b, e, x in entities] for entities in pair)
        for label in {entity[2] for entity in [*gold, *predicted]}:
            own = [[e for e in entities if e[2] == label] for entities in (gold, predicted)]
            counts[label] += _compare(set(own[0]), own[1])
    return dict(sorted(counts.items()))


def count_at_level(pairs: EntityPairs, tree: Tree, level: int) -> PRFScore:
    """Count entities, with ancestors at a level of the tree, 1 at the top, in place of labels."""
    counts = count_by_label(pairs, lambda label: tree.ancestor(label, level))
    return sum(counts.values(), PRFScore())


def _check_ents(scorer: str, spans_key: str | None) -> None:
    if spans_key is not None:
        raise ValueError(
            f"spacy_costner.{scorer}: works on doc.ents, but the component has the spans_key "
            f"{spans_key!r}: use spacy.spancat_scorer.v1"
        )


def _annotated(examples: Iterable[Example]) -> list[Example]:
    return [eg for eg in examples if len(eg.y) and eg.y.has_annotation("ENT_IOB")]


def _calibration_scores(
    examples: list[Example],
    confidence: dict[str, Any] | None,
    labels: Sequence[str],
    component: str | None,
) -> Scores:
    """Compare the probabilities in the group of a component, None: of any, with gold."""
    probs: list[float] = []
    correct: list[bool] = []
    key = None if confidence is None else confidence["spans_key"]
    for eg in examples:
        group = None if key is None else group_of_component(eg.x, key, component)
        if group is None:
            continue
        gold = {(ent.start, ent.end, ent.label_) for ent in eg.y.ents}
        for span, prob in on_tokens(group):
            entity = _in_reference(eg, span)
            if entity is not None and span.label_ in labels and not isnan(prob):
                probs.append(prob)
                correct.append(entity in gold)
    if not probs:
        return {"ents_ece": None, "ents_reliability": None}
    both = numpy.asarray(probs), numpy.asarray(correct)
    return {"ents_ece": calibration_error(*both), "ents_reliability": reliability(*both)}


def _in_reference(eg: Example, ent: Span) -> Entity | None:
    """A predicted entity in tokens of the reference; None if these are not annotated."""
    tokens = eg.alignment.x2y[ent.start : ent.end]
    if not len(tokens):
        return None
    begin, end = int(tokens[0]), int(tokens[-1]) + 1
    known = all(token.ent_iob for token in eg.y[begin:end])
    return (begin, end, ent.label_) if known else None


def _compare(gold: set[Entity], predicted: list[Entity]) -> PRFScore:
    """Count entities. A gold entity that is predicted twice is correct once."""
    n_correct = len(gold.intersection(predicted))
    return PRFScore(tp=n_correct, fp=len(predicted) - n_correct, fn=len(gold) - n_correct)
