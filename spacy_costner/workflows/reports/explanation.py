"""Explain a linear model and its predictions based on the model's weights.

A linear model has a weight for each pair of a feature and a tag, and for each transition between
two tags. The score of a path is the sum of its transition weights and, for each token, the weights
of the token's features for its tag. The best path is the path with the highest score.
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
"""The name of the hidden layer's contribution to a score, in the list of a token's features."""


class FeatureWeight(NamedTuple):
    """The weight of a feature for a tag.

    feature (str): The name of the feature.
    weight (float): The weight.
    """

    feature: str
    weight: float


class TagWeights(NamedTuple):
    """The strongest features for a tag.

    tag (str): The tag.
    in_favour (list[FeatureWeight]): The features with the largest positive weights.
    against (list[FeatureWeight]): The features with the largest negative weights.
    """

    tag: str
    in_favour: list[FeatureWeight]
    against: list[FeatureWeight]


class TransitionWeights(NamedTuple):
    """The weights of transitions between K tags, indexed as [from, to]. The weight is None if the
    tag scheme doesn't allow the transition.

    origins (list[str]): The tags, and the start of a sequence.
    targets (list[str]): The tags, and the end of a sequence.
    weights (list[list[float | None]]): The weights. Shape: (K + 1, K + 1)
    """

    origins: list[str]
    targets: list[str]
    weights: list[list[float | None]]


class TokenReason(NamedTuple):
    """The reasons for a token's tag in the best path.

    token (str): The text of the token.
    tag (str): The tag.
    score (float): The sum of the weights of all features, and of the contributions of static
        vectors and the hidden layer.
    transition (float): The weight of the transition to the tag. For the last token, this includes
        the weight of the transition to the end.
    features (list[FeatureWeight]): The features with the largest absolute weights.
    """

    token: str
    tag: str
    score: float
    transition: float
    features: list[FeatureWeight]


class Explanation(NamedTuple):
    """The weights of a model, and the reasons for its prediction for a text.

    tags (list[TagWeights]): The strongest features for each tag.
    transitions (TransitionWeights): The transition weights.
    tokens (list[TokenReason]): The reasons for the tag of each token. Empty if there is no text.
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
    """Explain a linear model, or the linear part of a hybrid model, based on its weights.

    nlp (Language): The trained pipeline.
    name (str): Name of the component.
    text (str | None): Text to predict and explain.
    n_features (int): Number of features to show per tag and token.
    RETURNS (Explanation): The strongest features for each tag, the transition weights, and the
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
        # The lowest weights are the highest negated weights.
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
    """Return the features with the highest positive weights, in descending order. Shape of the
    weights: (features,)"""
    strongest: list[FeatureWeight] = []
    for i in numpy.argsort(-weights, kind="stable")[:n_features]:
        if weights[i] > 0:
            strongest.append(FeatureWeight(feature_names[i], float(weights[i])))
    return strongest


def transition_weights(tags: Tags, weights: SparseWeights | Potentials) -> TransitionWeights:
    """Create the table of transition weights. The weight is None if a transition isn't allowed.

    tags (Tags): The K tags of the chain.
    weights (SparseWeights | Potentials): The weights of a linear model, or the scores of any model
        for a doc. Transition scores are the same for all docs.
    RETURNS (TransitionWeights): The table.
    """
    table = transition_table(weights, dtype="float64")
    is_allowed = transition_table(tags.constraints, dtype="bool")
    cells = table.astype("object")  # an object array can contain None
    cells[~is_allowed] = None
    return TransitionWeights(
        origins=[*tags.names, "(start)"], targets=[*tags.names, "(end)"], weights=cells.tolist()
    )


def transition_table(parts: SparseWeights | Potentials | Constraints, dtype: str) -> Array2d:
    """Combine `transitions`, `start` and `end` into a table, indexed as [from, to]. The last row is
    the start, and the last column is the end. The last cell of the diagonal is 0 or False, because
    there is no transition from the start to the end. Shape: (K + 1, K + 1)"""
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
    """Explain each token's tag in the best path of a doc, with up to `n_features` features per
    token. The component may predict a different path if it doesn't use Viterbi decoding."""
    if not len(doc):
        return []
    features_of_model, weights = linear_part(ner.model)
    # As in prediction, existing entities in the doc are treated as certain.
    scores = ner.posterior([doc], preset=True).scores
    path = to_numpy(chain.best_path(scores).tags)
    transitions = transitions_of_path(weights, path, scores.lengths)

    # The contributions of any static vectors and hidden layer to the scores, and the names of these
    # terms. Shape: (N, terms, K)
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
        rows = rows[rows >= 0]  # -1 is an unknown feature
        # The names of the token's features and other terms, and their weights for the tag
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
    """Return the weight of the transition to each token's tag in a path. For the first token of a
    sequence, this is the start weight. For the last token, the end weight is added.

    weights (SparseWeights): The weights of a linear model.
    path (Ints1d): The tag of each token. Shape: (N,)
    lengths (Ints1d): The lengths of the sequences in the doc. Shape: (B,)
    RETURNS (Floats1d): The weights. Shape: (N,)
    """
    first = first_tokens(lengths)
    last = last_tokens(lengths)
    from_previous_tag = weights.transitions[path[:-1], path[1:]]  # shape: (N - 1,)
    transitions = numpy.append(0.0, from_previous_tag)
    transitions[first] = weights.start[path[first]]
    transitions[last] += weights.end[path[last]]
    return transitions
