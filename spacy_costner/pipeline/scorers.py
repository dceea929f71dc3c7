"""Scorers: F, the cost of mistakes, and calibration.

A scorer compares the predicted entities of examples with the gold entities of their references, the
annotated docs. A predicted doc may be tokenized differently from its reference. Entities are
compared in tokens of the reference. Tags, which have costs, are compared in tokens of the predicted
doc.
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

from ..annotation.iob import MISSING
from ..annotation.span_groups import spans_with_scores
from ..annotation.tokens import read_reference, read_token_attrs
from ..costs.label_tree import Tree, TreeSource, make_tree
from ..metrics.calibration import calibration_error, reliability
from ..ragged import sequence_ids
from ..tags import OUTSIDE, Tags
from ..types import Cost
from .confidence import group_of_component

Scores = dict[str, Any]
"""Scores by name, as `Language.evaluate` returns them."""

Entity = tuple[int, int, str]
"""The first token of an entity, the token after its last, and its label."""

EntityPairs = list[tuple[set[Entity], list[Entity]]]
"""The gold entities and the predicted entities of each doc, in tokens of the reference."""


def as_entity(span: Span) -> Entity:
    """A span as a tuple of its tokens and its label."""
    return span.start, span.end, span.label_


def make_cost_scorer(*, cost: Cost, tree: TreeSource | None = None) -> Callable[..., Scores]:
    """Build a scorer for the cost of mistakes: see `cost_scores`.

        [components.ner.scorer]
        @scorers = "spacy_costner.cost_scorer.v1"
        tree = "assets/tree.json"

        [components.ner.scorer.cost]
        @misc = "spacy_costner.HierarchicalCost.v1"
        tree = "assets/tree.json"

    To make `spacy train` select the best model by its cost, give the cost a negative weight and F
    the weight 0. Scores that are not numbers, such as `ents_confusion`, can only have the weight
    `null`.

        [training.score_weights]
        ents_cost = -1.0
        ents_f = 0.0

    cost (Cost): The cost of mistakes, such as `spacy_costner.HierarchicalCost.v1`.
    tree (TreeSource | None): The label tree, to get F at each of its levels.
    RAISES (ValueError): If the tree in the config is not a tree.
    """
    label_tree: Tree | None = None
    if tree is not None:
        label_tree = make_tree(tree, where="spacy_costner.cost_scorer: tree")
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
    """Score entities and the cost of mistakes.

    Empty docs, docs without annotation, tokens without annotation, and entities that include such
    tokens are ignored. An entity whose label the component doesn't have is a mistake, and the cost
    has to know its label, too. A score that can't be computed is None.

    cost (Cost): The cost of mistakes.
    tree (Tree | None): The label tree, for F at each of its levels.
    examples (Iterable[Example]): The examples, with predicted docs.
    labels (Sequence[str]): The labels of the component.
    scheme (str): The tag scheme of the component.
    confidence (dict[str, Any] | None): The settings that say where it writes probabilities. None:
        it writes none.
    component (str | None): The name of the component. None: any component.
    spans_key (str | None): The setting `spans_key` of the component, which has to be None.
    **settings (Any): Other settings of the component, which are not used. (`CostSensitiveNER.score`
        gives its whole `cfg`.)
    RETURNS (dict[str, Any]): spaCy's `ents_p`, `ents_r`, `ents_f` and `ents_per_type`, and
        - `ents_cost`: mean cost per token; lower is better.
        - `ents_tag_acc`: share of tokens with the correct tag.
        - `ents_sent_acc`: share of docs with all entities correct and no others.
        - `ents_f_level_1`, `ents_f_level_2`, …: if there is a label tree, F with each label
          replaced by its ancestor at that level of the tree. The top level is 1.
        - `ents_ece` and `ents_reliability`, if confidence is enabled: see `confidence_scores`.
        - `ents_confusion`: the confusion matrix in tokens, by gold label and then by predicted
          label, "O" included, without zeros.
    RAISES (ValueError): If a label has no cost, or is not in the label tree, or the component has a
        `spans_key`.

    Higashiyama et al., eq. 11, for `ents_cost`; Suzuki et al. for the accuracies.
    """
    _check_ents("cost_scorer", spans_key)
    annotated = select_annotated(examples)
    scores: Scores = get_ner_prf(annotated)
    for name in ("ents_cost", "ents_tag_acc", "ents_confusion", "ents_sent_acc"):
        scores[name] = None  # stays None if it can't be computed

    # Scores of tokens, from the gold tag and the predicted tag of each token
    pairs = compare_tags(annotated, labels=labels, scheme=scheme)
    is_annotated = pairs.gold >= 0
    if is_annotated.any():
        cost_table = cost(pairs.tags)
        costs = pairs.look_up(cost_table)
        is_correct = pairs.gold == pairs.predicted
        scores["ents_cost"] = float(costs[is_annotated].mean(dtype="float64"))
        scores["ents_tag_acc"] = float(is_correct[is_annotated].mean())
        scores["ents_confusion"] = _confusion(pairs)

    # Scores of entities
    pairs_of_docs = entity_pairs(annotated)
    if pairs_of_docs:
        is_doc_correct: list[bool] = []
        for gold, predicted in pairs_of_docs:
            counts = compare_entities(gold, predicted)
            is_doc_correct.append(counts.fp == 0 and counts.fn == 0)
        scores["ents_sent_acc"] = float(numpy.mean(is_doc_correct))
    if tree is not None:
        for level in range(1, tree.depth + 1):
            total = count_at_level(pairs_of_docs, tree, level)
            has_entities = len(total) > 0  # the length of a `PRFScore` is tp + fp + fn
            scores[f"ents_f_level_{level}"] = total.fscore if has_entities else None

    if confidence is not None:
        scores.update(_calibration_scores(annotated, confidence, labels, component))
    return scores


def _confusion(pairs: "TagPairs") -> dict[str, dict[str, int]]:
    """The number of tokens with each gold label and each predicted label, by gold label and then by
    predicted label. Zeros are left out."""
    labels = [*pairs.tags.labels, OUTSIDE]
    n_tags = len(pairs.tags)
    # A table in which each pair of tags has the value 1, so that the sums count tokens.
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
    """Score entities, and the calibration of their confidences. The calibration ignores entities
    whose label is an inner node of a label tree, as their confidence belongs to several labels.

    examples (Iterable[Example]): The examples, with predicted docs.
    labels (Sequence[str]): The labels of the component.
    confidence (dict[str, Any] | None): The settings that say where it writes probabilities. None:
        it writes none.
    component (str | None): The name of the component. None: any component.
    spans_key (str | None): The setting `spans_key` of the component, which has to be None.
    **settings (Any): Other settings of the component, which are not used.
    RETURNS (dict[str, Any]): spaCy's `ents_p`, `ents_r`, `ents_f` and `ents_per_type`, and
        - `ents_ece`: the expected calibration error, in ten bins; lower is better.
        - `ents_reliability`: the number of entities, the mean confidence and the precision of each
          bin: see `reliability`.
        Both are None if there are no predicted entities, or confidence is not enabled.
    RAISES (ValueError): If the component has a `spans_key`.
    """
    _check_ents("confidence_scorer", spans_key)
    annotated = select_annotated(examples)
    calibration = _calibration_scores(annotated, confidence, labels, component)
    return {**get_ner_prf(annotated), **calibration}


class DocCounts(NamedTuple):
    """Counts for each of D docs. Shapes: (D,)

    tp (Ints1d): The number of predicted entities that are correct.
    fp (Ints1d): The number of predicted entities that are wrong.
    fn (Ints1d): The number of gold entities that are not predicted.
    cost (Floats1d): The cost of the mistakes.
    tokens (Ints1d): The number of annotated tokens.
    """

    tp: Ints1d
    fp: Ints1d
    fn: Ints1d
    cost: Floats1d
    tokens: Ints1d


def count_docs(
    examples: Iterable[Example], cost: Cost, *, labels: Sequence[str] = (), scheme: str = "BILUO"
) -> DocCounts:
    """Count for each doc what `cost_scores` counts for all docs together.

    examples (Iterable[Example]): The examples, with predicted docs.
    cost (Cost): The cost of mistakes.
    labels (Sequence[str]): The labels of the component.
    scheme (str): The tag scheme of the component.
    RETURNS (DocCounts): The counts of the docs that `cost_scores` doesn't ignore.
    RAISES (ValueError): If a label has no cost.
    """
    annotated = select_annotated(examples)
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
    cost_table = cost(pairs.tags)
    token_costs = pairs.look_up(cost_table)
    doc_of_annotated_token = doc_of_token[pairs.gold >= 0]
    return DocCounts(
        tp=tp,
        fp=fp,
        fn=fn,
        # The cost of a token without annotation is 0, so all tokens can be summed.
        cost=numpy.bincount(doc_of_token, weights=token_costs, minlength=n_docs),
        tokens=numpy.bincount(doc_of_annotated_token, minlength=n_docs),
    )


class TagPairs(NamedTuple):
    """The gold and the predicted tag of each token.

    tags (Tags): The tags of all labels: first the labels of the component, then other labels of
        docs.
    gold (Ints1d): The gold tag of each token; -1 if it is not annotated. Shape: (N,)
    predicted (Ints1d): The predicted tag of each token. Shape: (N,)
    lengths (Ints1d): The number of tokens of each doc. Shape: (B,)
    """

    tags: Tags
    gold: Ints1d
    predicted: Ints1d
    lengths: Ints1d

    def look_up(self, table: Floats2d) -> Floats1d:
        """Look up a value for each token in a table with the index [gold tag, predicted tag]. A
        token that is not annotated has the value 0. Shapes: (K, K) to (N,)"""
        return numpy.where(self.gold >= 0, table[self.gold, self.predicted], 0)

    def over_labels(self, table: Floats2d) -> Floats2d:
        """Look up a value for each token in a table, and sum the values of all tokens with the same
        gold label and predicted label. The sums have the index [gold label, predicted label], with
        O at the end. Shapes: (K, K) to (labels + 1, labels + 1)"""
        # O has the label -1, which as an index is the last row or column. A token that is not
        # annotated has the gold tag -1 and so gets a wrong label, but `look_up` gives it the value
        # 0.
        label_of = self.tags.label_of
        gold_label = label_of[self.gold]
        predicted_label = label_of[self.predicted]
        n_labels = len(self.tags.labels) + 1
        sums = numpy.zeros((n_labels, n_labels), dtype=table.dtype)
        # `add.at` adds the values of all tokens, even if several have the same pair of labels.
        numpy.add.at(sums, (gold_label, predicted_label), self.look_up(table))
        return sums


def compare_tags(
    examples: Iterable[Example], *, labels: Sequence[str] = (), scheme: str = "BILUO"
) -> TagPairs:
    """Get the gold and the predicted tag of each token of the predicted docs.

    examples (Iterable[Example]): The examples, with predicted docs.
    labels (Sequence[str]): The labels of the component. Other labels of the docs come after them.
    scheme (str): The tag scheme of the component.
    RETURNS (TagPairs): The gold and the predicted tags of all tokens.
    """
    examples = list(examples)
    labels_in_docs: set[str] = set()
    for eg in examples:
        labels_in_docs.update(ent.label_ for ent in eg.predicted.ents)
        labels_in_docs.update(ent.label_ for ent in eg.reference.ents)
    other_labels = sorted(labels_in_docs.difference(labels))
    tags = Tags([*labels, *other_labels], scheme)

    strings = StringStore()  # for the hashes of labels, which are the same in any store
    predicted_tokens = read_token_attrs([eg.predicted for eg in examples])
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
    """Get the gold and the predicted entities of each annotated doc. Predicted entities that
    include tokens without annotation are left out.

    examples (Iterable[Example]): The examples, with predicted docs.
    RETURNS (EntityPairs): The entities, in tokens of the references.
    """
    pairs: EntityPairs = []
    for eg in select_annotated(examples):
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
    """Count the correct, wrong and missed entities of each label.

    pairs (EntityPairs): The gold and the predicted entities of each doc.
    lift (Callable[[str], str]): Replaces a label before it is compared, for example with its
        ancestor in a label tree. By default, labels stay the same.
    RETURNS (dict[str, PRFScore]): The counts of each label, in alphabetical order.
    """
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
    """Replace the labels of entities, and group the entities by their new labels."""
    entities_by_label: defaultdict[str, list[Entity]] = defaultdict(list)
    for begin, end, label in entities:
        new_label = lift(label)
        entities_by_label[new_label].append((begin, end, new_label))
    return entities_by_label


def count_at_level(pairs: EntityPairs, tree: Tree, level: int) -> PRFScore:
    """Count entities, with each label replaced by its ancestor at a level of the label tree. The
    top level is 1."""
    counts = count_by_label(pairs, lambda label: tree.ancestor(label, level))
    return sum(counts.values(), PRFScore())


def _check_ents(scorer: str, spans_key: str | None) -> None:
    """Check that a component writes entities to `doc.ents`, as only these can be scored: a
    `spans_key` is a ValueError that names the scorer."""
    if spans_key is not None:
        raise ValueError(
            f"spacy_costner.{scorer}: works on doc.ents, but the component has the spans_key "
            f"{spans_key!r}: use spacy.spancat_scorer.v1"
        )


def select_annotated(examples: Iterable[Example]) -> list[Example]:
    """The examples whose reference has tokens and annotation of entities."""
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
    """Compute `ents_ece` and `ents_reliability` from the probabilities that a component has written
    to docs: see `confidence_scores`. If `component` is None, the probabilities of all components
    under the key of the confidence are used."""
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
                # Inner nodes of a label tree aren't labels. A span without a score has NaN.
                is_scored = span.label_ in labels and not isnan(prob)
                if entity is not None and is_scored:
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
    """Align a predicted entity with the tokens of the reference. None: some of these tokens are not
    annotated, or the entity can't be aligned."""
    tokens = eg.alignment.x2y[ent.start : ent.end]  # indices of tokens of the reference
    if not len(tokens):
        return None
    begin = int(tokens[0])
    end = int(tokens[-1]) + 1
    for token in eg.reference[begin:end]:
        if token.ent_iob == MISSING:
            return None
    return begin, end, ent.label_


def compare_entities(gold: set[Entity], predicted: list[Entity]) -> PRFScore:
    """Count the correct, wrong and missed entities of a doc. If a gold entity is predicted twice,
    one of the two is wrong."""
    n_correct = len(gold.intersection(predicted))
    return PRFScore(tp=n_correct, fp=len(predicted) - n_correct, fn=len(gold) - n_correct)
