"""Scorers: F, the cost of mistakes, and calibration.

They compare the predicted with the gold entities of examples. These may have other tokens, so a
predicted entity is first moved to the tokens of the reference, the annotated doc.
"""

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
from ..ent_iob import MISSING
from ..metrics.calibration import calibration_error, reliability
from ..ragged import sequence_ids
from ..spans import spans_with_scores
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
    label_tree: Tree | None = None
    if tree is not None:
        label_tree = make_tree(tree, "spacy_costner.cost_scorer: tree")
    return partial(cost_scores, cost, label_tree)


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
    scores: Scores = get_ner_prf(annotated)
    for name in ("ents_cost", "ents_tag_acc", "ents_confusion", "ents_sent_acc"):
        scores[name] = None  # until it can be computed

    # Scores of tokens: each with its gold and its predicted tag
    pairs = compare_tags(annotated, labels=labels, scheme=scheme)
    is_annotated = pairs.gold >= 0
    if is_annotated.any():
        costs = pairs.look_up(cost(pairs.tags))
        is_correct = pairs.gold == pairs.predicted
        scores["ents_cost"] = float(costs[is_annotated].mean(dtype="float64"))
        scores["ents_tag_acc"] = float(is_correct[is_annotated].mean())
        scores["ents_confusion"] = _confusion(pairs)

    # Scores of entities
    entities_of_docs = entity_pairs(annotated)
    if entities_of_docs:
        is_doc_correct: list[bool] = []
        for gold, predicted in entities_of_docs:
            counts = compare_entities(gold, predicted)
            is_doc_correct.append(counts.fp == 0 and counts.fn == 0)
        scores["ents_sent_acc"] = float(numpy.mean(is_doc_correct))
    if tree is not None:
        for level in range(1, tree.depth + 1):
            total = count_at_level(entities_of_docs, tree, level)
            has_entities = len(total) > 0
            scores[f"ents_f_level_{level}"] = total.fscore if has_entities else None

    if confidence is not None:
        scores.update(_calibration_scores(annotated, confidence, labels, component))
    return scores


def _confusion(pairs: "TagPairs") -> dict[str, dict[str, int]]:
    """The number of tokens by gold label and then by predicted label, without zeros."""
    labels = [*pairs.tags.labels, OUTSIDE]
    n_tags = len(pairs.tags)
    # Each pair of tags counts 1.
    counts = pairs.over_labels(numpy.ones((n_tags, n_tags), dtype="int64"))
    confusion: dict[str, dict[str, int]] = {}
    for gold_label, counts_of_gold in zip(labels, counts.tolist()):
        for predicted_label, n_tokens in zip(labels, counts_of_gold):
            if n_tokens > 0:
                confusion.setdefault(gold_label, {})[predicted_label] = n_tokens
    return confusion


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
    n_docs = len(annotated)
    tp = numpy.zeros(n_docs, dtype="int64")
    fp = numpy.zeros(n_docs, dtype="int64")
    fn = numpy.zeros(n_docs, dtype="int64")
    for i, (gold, predicted) in enumerate(entity_pairs(annotated)):
        counts = compare_entities(gold, predicted)
        tp[i] = counts.tp
        fp[i] = counts.fp
        fn[i] = counts.fn

    pairs = compare_tags(annotated, labels=labels, scheme=scheme)
    doc_of_token = sequence_ids(pairs.lengths)
    token_costs = pairs.look_up(cost(pairs.tags))
    doc_of_annotated_token = doc_of_token[pairs.gold >= 0]
    return DocCounts(
        tp=tp,
        fp=fp,
        fn=fn,
        cost=numpy.bincount(doc_of_token, token_costs, minlength=n_docs),
        tokens=numpy.bincount(doc_of_annotated_token, minlength=n_docs),
    )


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
        label_of = self.tags.label_of  # that of O is -1, the last
        gold_label = label_of[self.gold]
        predicted_label = label_of[self.predicted]
        n_labels = len(self.tags.labels) + 1
        sums = numpy.zeros((n_labels, n_labels), dtype=table.dtype)
        # `add.at` adds each token, also where several have the same pair of labels.
        numpy.add.at(sums, (gold_label, predicted_label), self.look_up(table))
        return sums


def compare_tags(
    examples: Iterable[Example], *, labels: Sequence[str] = (), scheme: str = "BILUO"
) -> TagPairs:
    """Get the gold and predicted tags of all tokens of the predicted docs, in a scheme. `labels`
    are those of the component, which come before others of the docs."""
    examples = list(examples)
    labels_in_docs: set[str] = set()
    for eg in examples:
        labels_in_docs.update(ent.label_ for ent in eg.predicted.ents)
        labels_in_docs.update(ent.label_ for ent in eg.reference.ents)
    other_labels = sorted(labels_in_docs.difference(labels))
    tags = Tags([*labels, *other_labels], scheme)

    strings = StringStore()  # any has the same hashes of labels
    predicted_tokens = read_docs([eg.predicted for eg in examples])
    gold_tokens = read_reference(examples, predicted_tokens)
    gold_entities = gold_tokens.entities(tags, strings)
    predicted_entities = predicted_tokens.entities(tags, strings)
    return TagPairs(
        tags,
        gold=tags.gold_path(gold_entities, gold_tokens.is_annotated),
        predicted=tags.encode(predicted_entities, len(predicted_tokens.orth)),
        lengths=predicted_tokens.lengths,
    )


def entity_pairs(examples: Iterable[Example]) -> EntityPairs:
    """Get the gold and predicted entities of annotated docs, the latter without those in
    unannotated tokens."""
    pairs: EntityPairs = []
    for eg in _annotated(examples):
        gold = {as_entity(ent) for ent in eg.reference.ents}
        predicted: list[Entity] = []
        for ent in eg.predicted.ents:
            entity = _in_reference(eg, ent)
            if entity is not None:
                predicted.append(entity)
        pairs.append((gold, predicted))
    return pairs


def count_by_label(
    pairs: EntityPairs, lift: Callable[[str], str] = lambda label: label
) -> dict[str, PRFScore]:
    """Count tp, fp and fn of each label, in alphabetical order. `lift` replaces labels, for example
    by their ancestors."""
    counts: dict[str, PRFScore] = defaultdict(PRFScore)
    for gold, predicted in pairs:
        gold_by_label = _by_label(gold, lift)
        predicted_by_label = _by_label(predicted, lift)
        for label in gold_by_label.keys() | predicted_by_label.keys():
            gold_of_label = set(gold_by_label[label])
            counts[label] += compare_entities(gold_of_label, predicted_by_label[label])
    return dict(sorted(counts.items()))


def _by_label(
    entities: Iterable[Entity], lift: Callable[[str], str]
) -> defaultdict[str, list[Entity]]:
    """The entities with replaced labels, by these labels."""
    entities_by_label: defaultdict[str, list[Entity]] = defaultdict(list)
    for begin, end, label in entities:
        lifted = lift(label)
        entities_by_label[lifted].append((begin, end, lifted))
    return entities_by_label


def count_at_level(pairs: EntityPairs, tree: Tree, level: int) -> PRFScore:
    """Count entities, with ancestors at a level of the tree, 1 at the top, in place of labels."""
    counts = count_by_label(pairs, lambda label: tree.ancestor(label, level))
    return sum(counts.values(), PRFScore())


def _check_ents(scorer: str, spans_key: str | None) -> None:
    """Refuse to score a component that writes to `doc.spans`. `scorer` is the name of the scorer,
    for the error."""
    if spans_key is not None:
        raise ValueError(
            f"spacy_costner.{scorer}: works on doc.ents, but the component has the spans_key "
            f"{spans_key!r}: use spacy.spancat_scorer.v1"
        )


def _annotated(examples: Iterable[Example]) -> list[Example]:
    """The examples with entity annotation."""
    annotated: list[Example] = []
    for eg in examples:
        if len(eg.reference) and eg.reference.has_annotation("ENT_IOB"):
            annotated.append(eg)
    return annotated


def _calibration_scores(
    examples: list[Example],
    confidence: dict[str, Any] | None,
    labels: Sequence[str],
    component: str | None,
) -> Scores:
    """Compare the probabilities that a component has written to docs with gold: `ents_ece` and
    `ents_reliability`. Without a component's name, whatever stands under the key counts."""
    probs: list[float] = []
    is_correct: list[bool] = []
    if confidence is not None:
        for eg in examples:
            group = group_of_component(eg.predicted, confidence["spans_key"], component)
            if group is None:
                continue
            gold = {as_entity(ent) for ent in eg.reference.ents}
            for span, prob in spans_with_scores(group):
                entity = _in_reference(eg, span)
                if entity is not None and span.label_ in labels and not isnan(prob):
                    probs.append(prob)
                    is_correct.append(entity in gold)

    if not probs:
        return {"ents_ece": None, "ents_reliability": None}
    prob_array = numpy.asarray(probs)
    is_correct_array = numpy.asarray(is_correct)
    return {
        "ents_ece": calibration_error(prob_array, is_correct_array),
        "ents_reliability": reliability(prob_array, is_correct_array),
    }


def _in_reference(eg: Example, ent: Span) -> Entity | None:
    """A predicted entity in tokens of the reference; None if these are not annotated."""
    tokens = eg.alignment.x2y[ent.start : ent.end]
    if not len(tokens):
        return None
    begin = int(tokens[0])
    end = int(tokens[-1]) + 1
    for token in eg.reference[begin:end]:
        if token.ent_iob == MISSING:
            return None
    return begin, end, ent.label_


def compare_entities(gold: set[Entity], predicted: list[Entity]) -> PRFScore:
    """Count the entities of a doc. A gold entity that is predicted twice is correct once."""
    n_correct = len(gold.intersection(predicted))
    return PRFScore(tp=n_correct, fp=len(predicted) - n_correct, fn=len(gold) - n_correct)
