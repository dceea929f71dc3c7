"""Training targets: the possible paths, the gold paths, and how much they count."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy
from spacy.tokens import Doc, Token
from spacy.training import Example
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, Ints1d
from thinc.util import get_array_module

from .. import chain
from ..ragged import ranges
from ..tags import OUTSIDE, Entities, Tags
from ..token_attrs import TokenAttrs
from ..types import Constraints, CostTable, Gold, Potentials, no_scores
from ..validation import check_cost
from .incorrect_spans import IncorrectSpan, augment_tags, expand
from .soft_targets import SoftTargets

WEIGHT = "spacy_costner.weight"
"""The key in `doc.user_data` of the weight of a training doc, as `costner distill` writes it."""


class Targets(NamedTuple):
    """All that a loss needs of a batch, besides the scores of the model.

    tags (Tags): The tags of the chain.
    gold (Gold): The gold paths, without a cost, as NumPy arrays.
    constraints (Constraints): The possible paths. With incorrect spans these and gold are over the
        tags of `augment_tags`: see `Gold.tied_to`.
    lengths (Ints1d), doc_of (Ints1d): Number of tokens, and doc, of each sequence. Shapes: (B,)
    soft (SoftTargets | None): The targets of docs that a teacher has annotated.
    """

    tags: Tags
    gold: Gold
    constraints: Constraints
    lengths: Ints1d
    doc_of: Ints1d
    soft: SoftTargets | None = None

    def to_loss_inputs(
        self, scores: Potentials, table: CostTable | None = None
    ) -> tuple[Potentials, Gold]:
        """The arguments of a loss, on the device of the scores.

        scores (Potentials): The scores of the model for these sequences.
        table (CostTable | None): The cost of each mistake over `Tags.collapsed`, if the loss uses
            one.
        RETURNS (tuple[Potentials, Gold]): The constrained potentials, and gold.
        """
        gold = self.gold
        if table is not None:
            if gold.collapsed_of is not None:
                # From the tags of annotation, with a single O, to those of the chain: (K, K).
                table = table[numpy.ix_(gold.collapsed_of, gold.collapsed_of)]
            gold = gold._replace(cost=gold_cost(gold.tags, table, gold.token_weights))
        asarray = get_array_module(scores.emissions).asarray
        gold = Gold._make(None if array is None else asarray(array) for array in gold)
        if self.gold.tied_to is not None:
            scores = expand(scores, self.gold.tied_to)
        return chain.constrain(scores, self.constraints), gold

    def exclude(self, spans: Sequence[IncorrectSpan]) -> "Targets":
        """The targets over the tags of `augment_tags`: paths that have an incorrect span are
        possible, but wrong."""
        tags = self.tags
        tied_to, constraints, is_correct = augment_tags(tags, spans, len(self.gold.tags))
        allowed = chain.to_mask(self.gold.token_tags, len(tags))
        gold = self.gold._replace(
            allowed=allowed[:, tied_to] & is_correct,
            opening=tags.opening[tied_to],
            continuing=tags.continuing[tied_to],
            tied_to=tied_to,
            collapsed_of=tags.collapsed_of[tied_to],
        )
        possible = constraints.emissions
        if self.constraints.emissions is not None:
            possible = possible & self.constraints.emissions[:, tied_to]
        return self._replace(gold=gold, constraints=constraints._replace(emissions=possible))

    def leave_out_impossible(self) -> "tuple[Targets, Array1d]":
        """Leave out the sequences whose gold is impossible, as if they were not annotated. Returns
        the targets, and True for these, (B,)."""
        gold = self.gold
        possible = self.constraints.emissions
        if possible is None and self.soft is None:
            return self, numpy.zeros(len(self.lengths), dtype=bool)
        # Of a doc with soft targets, an entity may be across a border of its teacher's sequences.
        n_tags = len(self.tags) if possible is None else possible.shape[1]
        allowed = chain.to_mask(gold.token_tags, n_tags)
        # The best path of scores of 0 is any path that is possible and agrees with gold.
        agreeing = allowed if possible is None else possible & allowed
        scores = no_scores(self.lengths, n_tags, "float32")
        scores = chain.constrain(scores, self.constraints._replace(emissions=agreeing))
        best = chain.best_path(scores)
        is_left_out = numpy.isneginf(best.scores)
        tokens = numpy.repeat(is_left_out, self.lengths)
        is_annotated = (gold.tags >= 0) & ~tokens
        gold = gold._replace(tags=numpy.where(is_annotated, best.tags, -1))
        if is_left_out.any():
            gold = gold._replace(allowed=allowed | tokens[:, None])
        return self._replace(gold=gold), is_left_out


def allowed_tags(path: Ints1d, tags: Tags, lengths: Ints1d) -> Array2d | None:
    """The tags that agree with a gold path. Where annotation is missing, all do, but the token
    after a gold entity can't continue it.

    path (Ints1d): The gold path, -1 where annotation is missing. Shape: (N,)
    tags (Tags): The tags of the chain.
    lengths (Ints1d): The number of tokens of each sequence. Shape: (B,)
    RETURNS (Array2d | None): True for the tags that agree; None if nothing is missing.
        Shape: (N, K)
    """
    is_missing = path < 0
    if not is_missing.any():
        return None
    # All tags that count as the gold tag: O may be split.
    agrees = tags.collapsed_of[path][:, None] == tags.collapsed_of
    allowed = is_missing[:, None] | agrees
    is_after_entity = is_missing & tags.follows_entity(path, lengths)
    allowed[is_after_entity] &= ~tags.continuing
    return allowed


def gold_cost(path: Ints1d, table: CostTable, weights: Floats1d | None) -> Floats2d:
    """The cost of predicting each tag at each token.

    path (Ints1d): The gold path, -1 where gold is missing. Shape: (N,)
    table (CostTable): The cost of each mistake. Shape: (K, K)
    weights (Floats1d | None): The weights of tokens; None: 1. Shape: (N,)
    RETURNS (Floats2d): The costs, 0 where gold is missing. Shape: (N, K)
    """
    costs = table[path]
    if weights is not None:
        costs = costs * weights[:, None]
    costs[path < 0] = 0
    return costs


def read_incorrect_spans(
    examples: Sequence[Example], key: str, tags: Tags, tokens: TokenAttrs
) -> list[IncorrectSpan]:
    """Read the spans that are known not to be entities, under a key in `doc.spans` of the reference
    docs: one for each label. A span without a label is not an entity of any label."""
    first_tokens = (numpy.cumsum(tokens.lengths) - tokens.lengths).tolist()
    incorrect_spans: list[IncorrectSpan] = []
    for i, eg in enumerate(examples):
        spans = list(eg.reference.spans.get(key, ()))
        if not spans:
            continue
        for span in eg.get_aligned_spans_y2x(spans, allow_overlap=True):
            begin = first_tokens[i] + span.start
            end = first_tokens[i] + span.end
            for number, label in enumerate(tags.labels):
                if span.label_ in ("", label):
                    incorrect_spans.append(IncorrectSpan(i, begin, end, number))
    return incorrect_spans


class Weights:
    """The weights of tokens and of examples in training.

    labels (Mapping[str, float] | None): Weight of the tokens of a gold entity, by label; "O" is
        for tokens outside of entities. 1 for labels that are not named.
    boundary (float): Factor for the first and the last token of a gold entity.
    token (str | None): Extension attribute of the reference's tokens with a factor.
    example (str | None): Extension attribute of the reference doc with its weight.
    RAISES (ValueError): If a weight is negative or not finite.
    """

    def __init__(
        self,
        *,
        labels: Mapping[str, float] | None = None,
        boundary: float = 1.0,
        token: str | None = None,
        example: str | None = None,
    ) -> None:
        where = "spacy_costner.Weights"
        self.labels: dict[str, float] = {}
        for label, weight in (labels or {}).items():
            self.labels[label] = check_cost(weight, f"{where}: labels.{label}")
        self.boundary = check_cost(boundary, f"{where}: boundary")
        self.token = token
        self.example = example

    @property
    def weighs_tokens(self) -> bool:
        """Whether tokens have other weights than 1."""
        return bool(self.labels) or self.boundary != 1 or self.token is not None

    def of_tokens(
        self, entities: Entities, tags: Tags, examples: Sequence[Example]
    ) -> Floats1d | None:
        """The weight of each token, (N,); None if all are 1."""
        if not self.weighs_tokens:
            return None
        n_tokens = sum(len(eg.predicted) for eg in examples)
        # The label of each token, -1 for O, which is the last of the weights.
        label_of_token = numpy.full(n_tokens, -1)
        entity_of_token, tokens = ranges(entities.begin, entities.end)
        label_of_token[tokens] = entities.label[entity_of_token]
        label_weights = [self.labels.get(name, 1.0) for name in (*tags.labels, OUTSIDE)]
        weights = numpy.asarray(label_weights, dtype="float32")[label_of_token]
        boundary_tokens = numpy.concatenate([entities.begin, entities.end - 1])
        weights[numpy.unique(boundary_tokens)] *= self.boundary
        if self.token is not None:
            weights *= self._factors_of_tokens(self.token, examples)
        return weights

    def _factors_of_tokens(self, name: str, examples: Sequence[Example]) -> Floats1d:
        """The factors of the tokens of predicted docs, from an extension attribute of the
        reference's tokens; 1 where not aligned. Shape: (N,)"""
        check_extension(Token, "token", name)
        factors: list[float] = []
        for eg in examples:
            factors_of_reference = [token._.get(name) for token in eg.reference]
            aligned = eg.alignment.x2y
            for i, n_aligned in enumerate(aligned.lengths):
                factor = 1.0
                if n_aligned == 1:
                    factor = factors_of_reference[aligned[i][0]]
                factors.append(factor)
        return numpy.asarray(factors, dtype="float32")

    def of_examples(self, examples: Sequence[Example]) -> Floats1d | None:
        """The weight of each example: its extension attribute times what `doc.user_data` has under
        `WEIGHT`; None if all are 1. Shape: (B,)"""
        docs = [eg.reference for eg in examples]
        if self.example is None and not any(WEIGHT in doc.user_data for doc in docs):
            return None
        weights = numpy.asarray([doc.user_data.get(WEIGHT, 1.0) for doc in docs], dtype="float64")
        if self.example is not None:
            check_extension(Doc, "example", self.example)
            weights *= [doc._.get(self.example) for doc in docs]
        return weights


def check_extension(owner: type[Doc] | type[Token], setting: str, name: str) -> None:
    """RAISES (ValueError): If an extension attribute that `Weights` names is not registered."""
    if not owner.has_extension(name):
        raise ValueError(
            f"spacy_costner.Weights: {setting}: expected the name of an extension attribute of "
            f"{owner.__name__}, to be registered with {owner.__name__}.set_extension before "
            f"training, got {name!r}"
        )
