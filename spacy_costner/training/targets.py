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
        """The arguments of a loss: the constrained potentials and gold, on the device of the
        scores. `table` is the cost of each mistake over `Tags.collapsed`, if the loss uses one."""
        gold = self.gold
        if table is not None:
            if gold.collapsed_of is not None:
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
        gold, tags = self.gold, self.tags
        columns, constraints, may_end = augment_tags(tags, spans, len(gold.tags))
        allowed, emissions = chain.to_mask(gold.token_tags, len(tags)), constraints.emissions
        if self.constraints.emissions is not None:
            emissions = emissions & self.constraints.emissions[:, columns]
        return self._replace(
            gold=gold._replace(
                allowed=allowed[:, columns] & may_end,
                opening=tags.opening[columns],
                continuing=tags.continuing[columns],
                tied_to=columns,
                collapsed_of=tags.collapsed_of[columns],
            ),
            constraints=constraints._replace(emissions=emissions),
        )

    def leave_out_impossible(self) -> "tuple[Targets, Array1d]":
        """Leave out the sequences whose gold is impossible, as if they were not annotated. Returns
        the targets, and True for these, (B,)."""
        gold, possible = self.gold, self.constraints.emissions
        if possible is None and self.soft is None:
            return self, numpy.zeros(len(self.lengths), dtype=bool)
        # Of a doc with soft targets, an entity may be across a border of its teacher's sequences.
        n_tags = len(self.tags) if possible is None else possible.shape[1]
        allowed = chain.to_mask(gold.token_tags, n_tags)
        agreeing = allowed if possible is None else possible & allowed
        paths = self.constraints._replace(emissions=agreeing)
        zeros = no_scores(self.lengths, n_tags, "float32")
        best = chain.best_path(chain.constrain(zeros, paths))
        left_out = numpy.isneginf(best.scores)
        tokens = numpy.repeat(left_out, self.lengths)
        gold = gold._replace(tags=numpy.where((gold.tags >= 0) & ~tokens, best.tags, -1))
        if left_out.any():
            gold = gold._replace(allowed=allowed | tokens[:, None])
        return self._replace(gold=gold), left_out


def allowed_tags(path: Ints1d, tags: Tags, lengths: Ints1d) -> Array2d | None:
    """The tags that agree with a gold path, (N, K). Where annotation is missing, -1, all tags do,
    but the token after a gold entity can't continue it. None if nothing is missing."""
    missing = path < 0
    if not missing.any():
        return None
    allowed = missing[:, None] | (tags.collapsed_of[path][:, None] == tags.collapsed_of)
    allowed[missing & tags.follows_entity(path, lengths)] &= ~tags.continuing
    return allowed


def gold_cost(path: Ints1d, table: CostTable, weights: Floats1d | None) -> Floats2d:
    """The cost of predicting each tag at each token, (N, K), from the gold path, (N,), 0 where gold
    is missing, -1; a table of costs, (K, K); and the weights of tokens, (N,)."""
    counts = path >= 0 if weights is None else weights * (path >= 0)
    return table[path] * counts[:, None]


def read_incorrect_spans(
    examples: Sequence[Example], key: str, tags: Tags, tokens: TokenAttrs
) -> list[IncorrectSpan]:
    """Read the spans that are known not to be entities, under a key in `doc.spans` of the reference
    docs: one for each label. A span without a label is not an entity of any label."""
    starts = (numpy.cumsum(tokens.lengths) - tokens.lengths).tolist()
    return [
        (i, start + span.start, start + span.end, number)
        for i, (eg, start) in enumerate(zip(examples, starts))
        if (spans := list(eg.reference.spans.get(key, ())))
        for span in eg.get_aligned_spans_y2x(spans, allow_overlap=True)
        for number, label in enumerate(tags.labels)
        if span.label_ in ("", label)
    ]


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
        where, given = "spacy_costner.Weights", labels or {}
        self.labels = {x: check_cost(y, f"{where}: labels.{x}") for x, y in given.items()}
        self.boundary = check_cost(boundary, f"{where}: boundary")
        self.token, self.example = token, example

    @property
    def weighs_tokens(self) -> bool:
        return bool(self.labels) or self.boundary != 1 or self.token is not None

    def of_tokens(
        self, entities: Entities, tags: Tags, examples: Sequence[Example]
    ) -> Floats1d | None:
        """The weight of each token, (N,); None if all are 1."""
        if not self.weighs_tokens:
            return None
        begin, end, label = entities
        by_label = [self.labels.get(name, 1.0) for name in (*tags.labels, OUTSIDE)]
        label_of = numpy.full(sum(len(eg.predicted) for eg in examples), -1)
        which, token = ranges(begin, end)
        label_of[token] = label[which]
        values = numpy.asarray(by_label, dtype="float32")[label_of]
        values[numpy.unique(numpy.concatenate([begin, end - 1]))] *= self.boundary
        if self.token is None:
            return values
        check_extension(Token, "token", self.token)
        factors: list[float] = []  # of the tokens of predicted docs; 1 where not aligned
        for eg in examples:
            of_reference = [token._.get(self.token) for token in eg.reference]
            aligned = eg.alignment.x2y
            for i, n_aligned in enumerate(aligned.lengths):
                factors.append(of_reference[aligned[i][0]] if n_aligned == 1 else 1.0)
        return values * numpy.asarray(factors, dtype="float32")

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
