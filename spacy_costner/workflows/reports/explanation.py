"""Explain a linear model and its predictions by the weights of features.

A linear model has a weight for each pair of a feature and a tag, and for each transition from one
tag to the next. The score of a path is the sum of the weights of its tags with the features of
their tokens, and of its transitions. The best path is the one with the highest score.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import to_numpy
from thinc.types import Array2d, Floats1d, Ints1d

from ... import chain
from ...ml import SparseWeights, find_features, hidden_layer_of, linear_part
from ...pipeline.component import CostSensitiveNER
from ...ragged import first_tokens, last_tokens
from ...tags import Tags
from ...types import Constraints, Potentials
from ..components import get_component, run_before

HIDDEN_LAYER = "hidden layer"
"""The name of the term that the hidden layer adds to a score, in the list of features of a
token."""


class FeatureWeight(NamedTuple):
    """The weight of a feature for a tag.

    feature (str): The name of the feature.
    weight (float): The weight.
    """

    feature: str
    weight: float


class TagWeights(NamedTuple):
    """The strongest features of a tag.

    tag (str): The tag.
    in_favour (list[FeatureWeight]): The features with the highest weights.
    against (list[FeatureWeight]): The features with the lowest weights.
    """

    tag: str
    in_favour: list[FeatureWeight]
    against: list[FeatureWeight]


class TransitionWeights(NamedTuple):
    """The weights of transitions between K tags, [from, to]. A weight is None if the tag scheme
    forbids the transition.

    origins (list[str]): The tags, and the start of a sequence.
    targets (list[str]): The tags, and the end of a sequence.
    weights (list[list[float | None]]): The weights. Shape: (K + 1, K + 1)
    """

    origins: list[str]
    targets: list[str]
    weights: list[list[float | None]]


class TokenReason(NamedTuple):
    """Why a token has its tag in the best path.

    token (str): The text of the token.
    tag (str): The tag.
    score (float): The sum of the weights of all features, and of the terms of static vectors and
        the hidden layer.
    transition (float): The weight of the transition to the tag. At the last token, the weight of
        the transition to the end is added.
    features (list[FeatureWeight]): The features with the largest weights, positive or negative.
    """

    token: str
    tag: str
    score: float
    transition: float
    features: list[FeatureWeight]


class Explanation(NamedTuple):
    """The weights of a model, and the reasons for its prediction of a text.

    tags (list[TagWeights]): The strongest features of each tag.
    transitions (TransitionWeights): The weights of transitions.
    tokens (list[TokenReason]): The reasons for the tag of each token. Empty without a text.
    """

    tags: list[TagWeights]
    transitions: TransitionWeights
    tokens: list[TokenReason]


def explain(
    nlp: Language,
    *,
    name: str = "ner",
    text: str | None = None,
    n_features: int = 10,
) -> Explanation:
    """Explain a linear model, or the linear part of a hybrid model, by its weights.

    nlp (Language): The trained pipeline.
    name (str): Name of the component.
    text (str | None): Text to predict and explain.
    n_features (int): Number of features to show per tag and token.
    RETURNS (Explanation): The strongest features of each tag, the transition weights, and the
        reasons for the tag of each token of the text.
    RAISES (ValueError): If the component is missing, or its model has no sparse features or isn't
        initialized.
    """
    ner = get_component(nlp, name)
    try:
        features, weights = linear_part(ner.model)
    except ValueError as error:
        raise ValueError(f"explain: components.{name}.model: {error}") from error
    feature_names = features.names(nlp.vocab.strings)

    tags: list[TagWeights] = []
    for tag, tag_weights in zip(ner.chain_tags.names, weights.emissions.T):
        in_favour = find_strongest(tag_weights, feature_names, n_features)
        # The lowest weights are the highest ones of the negated weights.
        negated_weights = find_strongest(-tag_weights, feature_names, n_features)
        against = [FeatureWeight(feature, -weight) for feature, weight in negated_weights]
        tags.append(TagWeights(tag, in_favour, against))
    tokens: list[TokenReason] = []
    if text is not None:
        (doc,) = run_before(nlp, name, [text])
        tokens = explain_tokens(ner, doc, feature_names, n_features)
    return Explanation(tags, transition_weights(ner.chain_tags, weights), tokens)


def find_strongest(
    weights: Floats1d, feature_names: Sequence[str], n_features: int
) -> list[FeatureWeight]:
    """Find the features with the highest weights above 0, the highest first. Shape of the weights:
    (features,)"""
    strongest: list[FeatureWeight] = []
    for i in numpy.argsort(-weights, kind="stable")[:n_features]:
        if weights[i] > 0:
            strongest.append(FeatureWeight(feature_names[i], float(weights[i])))
    return strongest


def transition_weights(tags: Tags, weights: SparseWeights | Potentials) -> TransitionWeights:
    """Make the table of the weights of transitions, with None for forbidden ones.

    tags (Tags): The K tags of the chain.
    weights (SparseWeights | Potentials): The weights of a linear model, or the scores of any model
        for a doc. The scores of transitions are the same for all docs.
    RETURNS (TransitionWeights): The table.
    """
    table = transition_table(weights, dtype="float64")
    is_allowed = transition_table(tags.constraints, dtype="bool")
    cells = table.astype("object")  # An array of Python's objects can have None among floats.
    cells[~is_allowed] = None
    return TransitionWeights(
        origins=[*tags.names, "(start)"], targets=[*tags.names, "(end)"], weights=cells.tolist()
    )


def transition_table(parts: SparseWeights | Potentials | Constraints, dtype: str) -> Array2d:
    """Join `transitions`, `start` and `end` in one table, [from, to]. The start is the last row,
    and the end is the last column. The cell where they meet is 0 or False, as no path goes from the
    start directly to the end. Shape: (K + 1, K + 1)"""
    transitions: Array2d = parts.transitions
    n_tags = len(transitions)
    table = numpy.zeros((n_tags + 1, n_tags + 1), dtype=dtype)
    table[:n_tags, :n_tags] = transitions
    table[n_tags, :n_tags] = parts.start
    table[:n_tags, n_tags] = parts.end
    return table


def explain_tokens(
    ner: CostSensitiveNER, doc: Doc, feature_names: Sequence[str], n_features: int
) -> list[TokenReason]:
    """Explain why each token of a doc has its tag in the best path, with up to `n_features`
    features per token. If the decoding of the component isn't Viterbi, its prediction may differ
    from this path."""
    if not len(doc):
        return []
    features_of_model, weights = linear_part(ner.model)
    # As in prediction, entities that the doc already has are certain.
    scores = ner.posterior([doc], preset=True).scores
    path = to_numpy(chain.best_path(scores).tags)
    transitions = transitions_of_path(weights, path, scores.lengths)

    # The terms that static vectors and the hidden layer add to the scores, if the model has them,
    # and the name of each term. Shape: (N, terms, K)
    batch = find_features(ner.model, [doc])
    term_names = features_of_model.vector_names()
    terms = weights.score_vectors(batch)
    layer = hidden_layer_of(ner.model)
    if layer is not None:
        term_names = [*term_names, HIDDEN_LAYER]
        terms = numpy.concatenate([terms, layer.score(batch)[:, None]], axis=1)

    reasons: list[TokenReason] = []
    for i, token in enumerate(doc):
        tag = path[i]
        rows = batch.rows[i]
        rows = rows[rows >= 0]  # A row of -1 stands for a feature that the model doesn't have.
        # The names of its features and terms, and their weights for the tag
        names = [*(feature_names[row] for row in rows), *term_names]
        feature_weights = weights.emissions[rows, tag]
        token_weights: Floats1d = numpy.concatenate([feature_weights, terms[i, :, tag]])
        token_weights = token_weights.astype("float64")
        strongest = numpy.argsort(-numpy.abs(token_weights), kind="stable")[:n_features]
        features: list[FeatureWeight] = []
        for index in strongest:
            if token_weights[index] != 0:
                features.append(FeatureWeight(names[index], float(token_weights[index])))
        reasons.append(
            TokenReason(
                token=token.text,
                tag=ner.chain_tags.names[tag],
                score=float(token_weights.sum()),
                transition=float(transitions[i]),
                features=features,
            )
        )
    return reasons


def transitions_of_path(weights: SparseWeights, path: Ints1d, lengths: Ints1d) -> Floats1d:
    """The weight of the transition to the tag of each token of a path. At the first token of a
    sequence it is the weight of the start; at the last token, the weight of the end is added.

    weights (SparseWeights): The weights of a linear model.
    path (Ints1d): The tag of each token. Shape: (N,)
    lengths (Ints1d): The lengths of the sequences of the doc. Shape: (B,)
    RETURNS (Floats1d): The weights. Shape: (N,)
    """
    first = first_tokens(lengths)
    last = last_tokens(lengths)
    from_previous_tag = weights.transitions[path[:-1], path[1:]]  # shape: (N - 1,)
    transitions = numpy.append(0.0, from_previous_tag)
    transitions[first] = weights.start[path[first]]
    transitions[last] += weights.end[path[last]]
    return transitions
