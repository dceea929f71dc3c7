"""Scorers for F, the cost of mistakes, and calibration.

A scorer compares the predicted entities of each example with the gold entities of its reference
doc. The predicted doc and the reference may be tokenized differently. Entities are aligned with the
tokens of the reference before they are compared. Costs are defined for tags, which are aligned with
the tokens of the predicted doc. A *misaligned* entity doesn't begin and end with tokens of the
predicted doc: no predicted entity matches it, and all tokens with which it shares characters have
its tags.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import isnan
from typing import Any, NamedTuple

import numpy
from spacy.scorer import PRFScore, get_ner_prf
from spacy.strings import StringStore
from spacy.tokens import Doc, Span
from spacy.training import Example
from thinc.types import Floats1d, Floats2d, Ints1d

from ..annotation.iob import MISSING
from ..annotation.span_groups import spans_with_scores
from ..annotation.tokens import align_reference, read_token_attrs, with_label_indices
from ..costs.label_tree import Tree, TreeSource, make_tree
from ..metrics.calibration import calibration_error, reliability
from ..ragged import sequence_ids
from ..tags import NO_ENTITIES, OUTSIDE, Entities, Tags
from ..types import Cost
from .confidence import group_of_component

Scores = dict[str, Any]
"""Scores, keyed by name, as returned by `Language.evaluate`."""

Entity = tuple[int, int, str]
"""An entity as a tuple of its start token, its end token (exclusive) and its label."""

EntityPairs = list[tuple[set[Entity], list[Entity]]]
"""The gold and the predicted entities of each doc, with token indices in the reference."""


EntityGetter = Callable[[Doc], Iterable[Span]]
"""A function that returns the annotated entities of a doc, which may overlap."""


def get_ents(doc: Doc) -> Iterable[Span]:
    """Return the entities in `doc.ents`."""
    return doc.ents


def as_entity(span: Span) -> Entity:
    """Return the start, the end and the label of a span as a tuple."""
    return span.start, span.end, span.label_


def make_cost_scorer(*, cost: Cost, tree: TreeSource | None = None) -> Callable[..., Scores]:
    """Create a scorer for the cost of mistakes: see `cost_scores`.

        [components.ner.scorer]
        @scorers = "spacy_costner.cost_scorer.v1"
        tree = "assets/tree.json"

        [components.ner.scorer.cost]
        @misc = "spacy_costner.HierarchicalCost.v1"
        tree = "assets/tree.json"

    To select the best model by cost in `spacy train`, set the weight of the cost to a negative
    value and the weight of F to 0. For scores that are not numbers, such as `ents_confusion`, the
    weight must be `null`.

        [training.score_weights]
        ents_cost = -1.0
        ents_f = 0.0

    cost (Cost): The cost of mistakes, such as `spacy_costner.HierarchicalCost.v1`.
    tree (TreeSource | None): The label tree, for computing F at each of its levels.
    RAISES (ValueError): If the label tree is invalid.
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
    getter: EntityGetter = get_ents,
    **settings: Any,
) -> Scores:
    """Compute entity scores and the cost of mistakes.

    Empty docs, docs and tokens without annotation, and entities that include unannotated tokens are
    ignored. Entities with labels unknown to the component count as mistakes, and the cost has to
    define these labels as well. Annotated entities that don't begin and end with predicted tokens
    are missed, and cost what all tokens with a part of them cost. Scores that can't be computed are
    None.

    cost (Cost): The cost of mistakes.
    tree (Tree | None): The label tree, for computing F at each of its levels.
    examples (Iterable[Example]): The examples to score, with predicted docs.
    labels (Sequence[str]): The labels of the component.
    scheme (str): The tag scheme of the component.
    confidence (dict[str, Any] | None): The component's settings for writing probabilities. None if
        it doesn't write probabilities.
    component (str | None): The name of the component. If None, the probabilities of any component
        are used.
    spans_key (str | None): The component's `spans_key`, which must be None.
    getter (EntityGetter): Function that returns the annotated entities of a reference doc, for the
        scores of entities. Costs compare tags, which are always those of `doc.ents`.
    **settings (Any): Other settings of the component, which are not used.
        (`CostSensitiveNER.score` passes its complete `cfg`.)
    RETURNS (dict[str, Any]): spaCy's `ents_p`, `ents_r`, `ents_f` and `ents_per_type`, and
        - `ents_cost`: mean cost per token; lower is better.
        - `ents_tag_acc`: proportion of tokens with the correct tag.
        - `ents_sent_acc`: proportion of docs with exactly the correct entities.
        - `ents_f_level_1`, `ents_f_level_2`, …: F with each label replaced by its ancestor at this
          level of the label tree, if there is a label tree. The top level is 1.
        - `ents_ece` and `ents_reliability`, if confidence is enabled: see `confidence_scores`.
        - `ents_confusion`: the confusion matrix of the tokens' labels, including "O", keyed by gold
          label and then by predicted label. Zeros are omitted.
    RAISES (ValueError): If a label has no cost or is not in the label tree, or the component has a
        `spans_key`.

    Higashiyama et al., eq. 11, for `ents_cost`; Suzuki et al. for the accuracies.
    """
    _check_ents("cost_scorer", spans_key)
    annotated = select_annotated(examples)
    pairs_of_docs = entity_pairs(annotated, getter)
    scores = _entity_scores(pairs_of_docs)
    for name in ("ents_cost", "ents_tag_acc", "ents_confusion", "ents_sent_acc"):
        scores[name] = None  # remains None if it can't be computed

    # Scores of tokens
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
    if pairs_of_docs:
        is_doc_correct: list[bool] = []
        for gold, predicted in pairs_of_docs:
            counts = compare_entities(gold, predicted)
            is_doc_correct.append(counts.fp == 0 and counts.fn == 0)
        scores["ents_sent_acc"] = float(numpy.mean(is_doc_correct))
    if tree is not None:
        for level in range(1, tree.depth + 1):
            total = count_at_level(pairs_of_docs, tree, level)
            has_entities = len(total) > 0
            scores[f"ents_f_level_{level}"] = total.fscore if has_entities else None

    if confidence is not None:
        scores.update(_calibration_scores(annotated, confidence, labels, component, getter))
    return scores


def _entity_scores(pairs: EntityPairs) -> Scores:
    """Compute the scores of `get_ner_prf` from the gold and the predicted entities of docs."""
    by_label = count_by_label(pairs)
    total = sum(by_label.values(), PRFScore())
    if len(total) == 0:  # the length of a `PRFScore` is tp + fp + fn
        return dict.fromkeys(("ents_p", "ents_r", "ents_f", "ents_per_type"))
    return {
        "ents_p": total.precision,
        "ents_r": total.recall,
        "ents_f": total.fscore,
        "ents_per_type": {label: counts.to_dict() for label, counts in by_label.items()},
    }


def _confusion(pairs: "TagPairs") -> dict[str, dict[str, int]]:
    """Count the tokens for each pair of gold and predicted labels. Returns the counts keyed by gold
    label and then by predicted label. Zeros are omitted."""
    labels = [*pairs.tags.labels, OUTSIDE]
    n_tags = len(pairs.tags)
    # All pairs of tags have the value 1, so the sums are token counts.
    counts = pairs.over_labels(numpy.ones((n_tags, n_tags), dtype="int64"))
    confusion: dict[str, dict[str, int]] = {}
    for gold_label, counts_of_gold in zip(labels, counts.tolist()):
        for predicted_label, n_tokens in zip(labels, counts_of_gold):
            if n_tokens > 0:
                confusion.setdefault(gold_label, {})[predicted_label] = n_tokens
    return confusion


def make_confidence_scorer() -> Callable[..., Scores]:
    """Create a scorer for calibration: see `confidence_scores`.

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
    """Compute entity scores and evaluate the calibration of confidences. Entities labelled with an
    inner node of a label tree are ignored for calibration, because their confidence covers several
    labels.

    examples (Iterable[Example]): The examples to score, with predicted docs.
    labels (Sequence[str]): The labels of the component.
    confidence (dict[str, Any] | None): The component's settings for writing probabilities. None if
        it doesn't write probabilities.
    component (str | None): The name of the component. If None, the probabilities of any component
        are used.
    spans_key (str | None): The component's `spans_key`, which must be None.
    **settings (Any): Other settings of the component, which are not used.
    RETURNS (dict[str, Any]): spaCy's `ents_p`, `ents_r`, `ents_f` and `ents_per_type`, and
        - `ents_ece`: the expected calibration error with ten bins; lower is better.
        - `ents_reliability`: the number of entities, the mean confidence and the precision of each
          bin: see `reliability`.
        Both are None if there are no predicted entities or confidence is not enabled.
    RAISES (ValueError): If the component has a `spans_key`.
    """
    _check_ents("confidence_scorer", spans_key)
    annotated = select_annotated(examples)
    calibration = _calibration_scores(annotated, confidence, labels, component)
    return {**get_ner_prf(annotated), **calibration}


class DocCounts(NamedTuple):
    """The counts and costs of D docs. Shapes: (D,)

    tp (Ints1d): The number of correctly predicted entities.
    fp (Ints1d): The number of wrongly predicted entities.
    fn (Ints1d): The number of missed gold entities.
    cost (Floats1d): The total cost of mistakes.
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
    """Count the entities and annotated tokens of each doc, and compute the cost of its mistakes. As
    in `cost_scores`, docs without annotation are ignored.

    examples (Iterable[Example]): The examples, with predicted docs.
    cost (Cost): The cost of mistakes.
    labels (Sequence[str]): The labels of the component.
    scheme (str): The tag scheme of the component.
    RETURNS (DocCounts): The counts of each annotated doc.
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
        # Tokens without annotation have a cost of 0, so all tokens can be summed.
        cost=numpy.bincount(doc_of_token, weights=token_costs, minlength=n_docs),
        tokens=numpy.bincount(doc_of_annotated_token, minlength=n_docs),
    )


class TagPairs(NamedTuple):
    """The gold and the predicted tag of each token.

    tags (Tags): The tags of all labels: the component's labels, followed by other labels in the
        docs.
    gold (Ints1d): The gold tag of each token, or -1 if the token is not annotated. Shape: (N,)
    predicted (Ints1d): The predicted tag of each token. Shape: (N,)
    lengths (Ints1d): The number of tokens of each doc. Shape: (B,)
    misaligned (Entities): The entities in `gold` that no predicted entity matches, even if the tags
        are the same. A token that two of them share belongs to the first.
    """

    tags: Tags
    gold: Ints1d
    predicted: Ints1d
    lengths: Ints1d
    misaligned: Entities = NO_ENTITIES

    def look_up(self, table: Floats2d) -> Floats1d:
        """Look up the value of each token in a table indexed by [gold tag, predicted tag]. Tokens
        without annotation have the value 0. Shapes: (K, K) to (N,)"""
        return numpy.where(self.gold >= 0, table[self.gold, self.predicted], 0)

    def over_labels(self, table: Floats2d) -> Floats2d:
        """Look up the value of each token in a table indexed by [gold tag, predicted tag], and sum
        the values by label. The sums are indexed by [gold label, predicted label], with O last.
        Shapes: (K, K) to (labels + 1, labels + 1)"""
        # The label of O is -1, which indexes the last row or column. Tokens without annotation have
        # the gold tag -1 and therefore an arbitrary gold label here, but their value is 0.
        label_of = self.tags.label_of
        gold_label = label_of[self.gold]
        predicted_label = label_of[self.predicted]
        n_labels = len(self.tags.labels) + 1
        sums = numpy.zeros((n_labels, n_labels), dtype=table.dtype)
        # Unlike `+=`, `add.at` adds all values if several tokens have the same pair of labels.
        numpy.add.at(sums, (gold_label, predicted_label), self.look_up(table))
        return sums


def compare_tags(
    examples: Iterable[Example], *, labels: Sequence[str] = (), scheme: str = "BILUO"
) -> TagPairs:
    """Get the gold and the predicted tag of each token in the predicted docs.

    examples (Iterable[Example]): The examples, with predicted docs.
    labels (Sequence[str]): The labels of the component. Other labels in the docs are appended.
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
    n_tokens = len(predicted_tokens.orth)
    reference = align_reference(examples, predicted_tokens)
    gold_entities = reference.tokens.entities(tags, strings)
    gold = tags.gold_path(gold_entities, reference.tokens.is_annotated)
    misaligned = NO_ENTITIES
    if len(reference.misaligned.begin):
        hashed = _without_shared_tokens(reference.misaligned)
        misaligned = with_label_indices(hashed, tags, strings)
        # The tokens of these entities have no aligned annotation.
        misaligned_tags = tags.encode(misaligned, n_tokens)
        gold = numpy.where(misaligned_tags > 0, misaligned_tags, gold)
    predicted_entities = predicted_tokens.entities(tags, strings)
    return TagPairs(
        tags,
        gold=gold,
        predicted=tags.encode(predicted_entities, n_tokens),
        lengths=predicted_tokens.lengths,
        misaligned=misaligned,
    )


def _without_shared_tokens(misaligned: Entities) -> Entities:
    """Remove the tokens that misaligned entities share with the previous entity, and the entities
    that have no other tokens. The entities must be in order."""
    begin = misaligned.begin.copy()
    begin[1:] = numpy.maximum(begin[1:], misaligned.end[:-1])
    return misaligned._replace(begin=begin).select(begin < misaligned.end)


def entity_pairs(examples: Iterable[Example], getter: EntityGetter = get_ents) -> EntityPairs:
    """Get the gold and the predicted entities of each annotated doc. Predicted entities are skipped
    if they include tokens without annotation or can't be aligned with the reference.

    examples (Iterable[Example]): The examples, with predicted docs.
    getter (EntityGetter): Function that returns the annotated entities of a reference doc.
    RETURNS (EntityPairs): The entities, with token indices in the references.
    """
    pairs: EntityPairs = []
    for eg in select_annotated(examples):
        gold = {as_entity(ent) for ent in getter(eg.reference)}
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
    lift (Callable[[str], str]): Function that maps a label to the label to use for the comparison,
        for example to its ancestor in a label tree. By default, labels are not changed.
    RETURNS (dict[str, PRFScore]): The counts, keyed by label in alphabetical order.
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
    """Map the labels of entities with `lift` and group the entities by their new labels."""
    entities_by_label: defaultdict[str, list[Entity]] = defaultdict(list)
    for begin, end, label in entities:
        new_label = lift(label)
        entities_by_label[new_label].append((begin, end, new_label))
    return entities_by_label


def count_at_level(pairs: EntityPairs, tree: Tree, level: int) -> PRFScore:
    """Count the correct, wrong and missed entities, with each label replaced by its ancestor at the
    given level of the label tree. The top level is 1."""
    counts = count_by_label(pairs, lambda label: tree.ancestor(label, level))
    return sum(counts.values(), PRFScore())


def _check_ents(scorer: str, spans_key: str | None) -> None:
    """Check that a component writes to `doc.ents`, as required by the scorer. Raise a ValueError if
    the component has a `spans_key`."""
    if spans_key is not None:
        raise ValueError(
            f"spacy_costner.{scorer}: works on doc.ents, but the component has the spans_key "
            f"{spans_key!r}: use spacy.spancat_scorer.v1"
        )


def select_annotated(examples: Iterable[Example]) -> list[Example]:
    """Return the examples with a non-empty reference that has entity annotation."""
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
    getter: EntityGetter = get_ents,
) -> Scores:
    """Compute `ents_ece` and `ents_reliability` from the probabilities that a component has written
    to the predicted docs: see `confidence_scores`. If `component` is None, the probabilities under
    the `spans_key` of the confidence are used, regardless of the component."""
    probs: list[float] = []
    is_correct: list[bool] = []
    if confidence is not None:
        for eg in examples:
            group = group_of_component(eg.predicted, confidence["spans_key"], component)
            if group is None:
                continue
            gold = {as_entity(ent) for ent in getter(eg.reference)}
            for span, prob in spans_with_scores(group):
                entity = _in_reference(eg, span)
                # Inner nodes of a label tree are not in `labels`. A missing score is NaN.
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
    """Align a predicted entity with the tokens of the reference. Return None if the entity can't be
    aligned or includes tokens without annotation."""
    tokens = eg.alignment.x2y[ent.start : ent.end]  # token indices in the reference
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
    one of the predictions counts as wrong."""
    n_correct = len(gold.intersection(predicted))
    return PRFScore(tp=n_correct, fp=len(predicted) - n_correct, fn=len(gold) - n_correct)
