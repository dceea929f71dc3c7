"""Explain a linear model and its predictions by the weights of features.

A linear model has a weight for each feature and tag, and for each transition between tags. The
score of a path is the sum of the weights of its features and transitions, and the best path has the
highest score.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import to_numpy
from thinc.types import Array2d, Floats1d

from .. import chain
from ..ml import SparseWeights, find_features, hidden_layer_of, linear_part
from ..pipeline.component import CostSensitiveNER
from ..ragged import first_tokens, last_tokens
from ..tags import Tags
from ..types import Constraints, Potentials
from .predictions import get_component, run_before

HIDDEN = "hidden layer"
"""What stands for the hidden layer among the features of a token."""


class FeatureWeight(NamedTuple):
    """The weight of a feature for a tag."""

    feature: str
    weight: float


class TagWeights(NamedTuple):
    """The strongest features of a tag."""

    tag: str
    in_favour: list[FeatureWeight]
    against: list[FeatureWeight]


class TransitionWeights(NamedTuple):
    """The transition weights, [from, to]. None where the tag scheme forbids a transition."""

    origins: list[str]  # the tags and the start
    targets: list[str]  # the tags and the end
    weights: list[list[float | None]]  # shape: (K + 1, K + 1)


class TokenReason(NamedTuple):
    """Why a token has its tag in the best path."""

    token: str
    tag: str
    score: float  # the sum of the weights of its features for the tag
    transition: float  # the weight of the transition to the tag; of the last token, also to the end
    features: list[FeatureWeight]  # those with the largest absolute weights


class Explanation(NamedTuple):
    """The weights of a model, and the reasons for its prediction of a text."""

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
    """Show the weights of a linear model, or of the linear part of a hybrid model.

    nlp (Language): The trained pipeline.
    name (str): Name of the component.
    text (str | None): Text to predict and explain.
    n_features (int): Number of features to show per tag and token.
    RETURNS (Explanation): The strongest features of each tag, the transition weights, and the
        reasons for the tag of each token of the text.
    RAISES (ValueError): If there is no such component, or its model has no sparse features.
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
        # The strongest against a tag are the strongest of the negated weights.
        negated = find_strongest(-tag_weights, feature_names, n_features)
        against = [FeatureWeight(feature, -weight) for feature, weight in negated]
        tags.append(TagWeights(tag, in_favour, against))
    tokens: list[TokenReason] = []
    if text is not None:
        (doc,) = run_before(nlp, name, [text])
        tokens = explain_tokens(ner, doc, feature_names, n_features)
    return Explanation(tags, transition_weights(ner.chain_tags, weights), tokens)


def find_strongest(
    weights: Floats1d, feature_names: Sequence[str], n_features: int
) -> list[FeatureWeight]:
    """Find the features with the highest weights above 0.

    weights (Floats1d): The weight of each feature for a tag. Shape: (features,)
    feature_names (Sequence[str]): The names of all features.
    n_features (int): How many to find at most.
    RETURNS (list[FeatureWeight]): The features, the highest weight first.
    """
    strongest: list[FeatureWeight] = []
    for i in numpy.argsort(-weights, kind="stable")[:n_features]:
        if weights[i] > 0:
            strongest.append(FeatureWeight(feature_names[i], float(weights[i])))
    return strongest


def transition_weights(tags: Tags, weights: SparseWeights | Potentials) -> TransitionWeights:
    """Make the table of the weights of transitions, without those that the tag scheme forbids.

    tags (Tags): The tags of the model.
    weights (SparseWeights | Potentials): The weights of a linear model, or what any model computes
        for a doc: its transitions are the same for all docs.
    """
    table = transition_table(weights, "float64")
    is_allowed = transition_table(tags.constraints, "bool")
    cells = table.astype("object")  # Python's floats, so that there can be None
    cells[~is_allowed] = None
    return TransitionWeights([*tags.names, "(start)"], [*tags.names, "(end)"], cells.tolist())


def transition_table(parts: SparseWeights | Potentials | Constraints, dtype: str) -> Array2d:
    """Put transitions, start and end into one table, [from, to]. The start is the last row, and the
    end the last column. Where they meet is 0 or False: no path goes from the start to the end.

    parts (SparseWeights | Potentials | Constraints): Has `transitions`, `start` and `end`: weights,
        scores, or whether they are allowed.
    dtype (str): The type of the table.
    RETURNS (Array2d): The table. Shape: (K + 1, K + 1)
    """
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
    """Explain why each token of a doc has its tag in the best path. The prediction may differ from
    this path if the decoding is not Viterbi.

    ner (CostSensitiveNER): A component whose model is linear, or has a linear part.
    doc (Doc): The doc.
    feature_names (Sequence[str]): The names of all features of the model.
    n_features (int): How many features to show for each token.
    """
    if not len(doc):
        return []
    features_of_model, weights = linear_part(ner.model)
    scores = ner.posterior([doc], preset=True).scores
    path = to_numpy(chain.best_path(scores).tags)

    # The weight of the transition from the tag of the token before to that of each token. A doc may
    # have several sequences: at the first token of each, it is the weight of the start.
    first = first_tokens(scores.lengths)
    last = last_tokens(scores.lengths)
    transitions = numpy.append(0.0, weights.transitions[path[:-1], path[1:]])  # shape: (N,)
    transitions[first] = weights.start[path[first]]
    transitions[last] += weights.end[path[last]]

    reasons: list[TokenReason] = []
    batch = find_features(ner.model, [doc])
    # What static vectors in the window add, if they are inputs, and the hidden layer, if there is
    # one. Shape: (N, names, K)
    other_names = features_of_model.vector_names()
    other_scores = weights.score_vectors(batch)
    hidden = hidden_layer_of(ner.model)
    if hidden is not None:
        other_names = [*other_names, HIDDEN]
        other_scores = numpy.concatenate([other_scores, hidden.score(batch)[:, None]], axis=1)
    for i, token in enumerate(doc):
        tag = path[i]
        rows = batch.rows[i]
        rows = rows[rows >= 0]  # -1: no feature
        names = [*(feature_names[row] for row in rows), *other_names]
        feature_weights = weights.emissions[rows, tag]
        token_weights: Floats1d = numpy.concatenate([feature_weights, other_scores[i, :, tag]])
        token_weights = token_weights.astype("float64")
        strongest = numpy.argsort(-numpy.abs(token_weights), kind="stable")[:n_features]
        features: list[FeatureWeight] = []
        for j in strongest:
            if token_weights[j] != 0:
                features.append(FeatureWeight(names[j], float(token_weights[j])))
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
