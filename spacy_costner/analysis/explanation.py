"""Explain a linear model and its predictions by the weights of features."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import to_numpy
from thinc.types import Array2d, Floats1d

from .. import chain
from ..ml import SparseWeights, find_features, linear_part
from ..pipeline.component import CostSensitiveNER
from ..ragged import first_tokens, last_tokens
from ..tags import Tags
from ..types import Constraints, Potentials
from .predictions import get_component, run_before


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
    transition: float  # from the tag before or from the start; of the last token, also to the end
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

    tags = []
    for tag, of_tag in zip(ner.chain_tags.names, weights.emissions.T):
        in_favour = find_strongest(of_tag, feature_names, n_features)
        # Those of the negated weights, with their own sign again.
        negated = find_strongest(-of_tag, feature_names, n_features)
        against = [FeatureWeight(feature, -weight) for feature, weight in negated]
        tags.append(TagWeights(tag, in_favour, against))
    tokens = []
    if text is not None:
        (doc,) = run_before(nlp, name, [text])
        tokens = explain_tokens(ner, doc, feature_names, n_features)
    return Explanation(tags, transition_weights(ner.chain_tags, weights), tokens)


def find_strongest(
    weights: Floats1d, feature_names: Sequence[str], n_features: int
) -> list[FeatureWeight]:
    """The features with the highest weights above 0, the highest first. Shape: (features,)"""
    order = numpy.argsort(-weights, kind="stable")[:n_features]
    return [FeatureWeight(feature_names[i], float(weights[i])) for i in order if weights[i] > 0]


def transition_weights(tags: Tags, weights: SparseWeights | Potentials) -> TransitionWeights:
    """Get the weights of the allowed transitions, of a linear model or from the scores of any."""
    table = transition_table(weights, "float64")
    is_allowed = transition_table(tags.constraints, "bool")
    rows: list[list[float | None]] = []
    for weights_of_row, allowed_of_row in zip(table.tolist(), is_allowed):
        row = [weight if ok else None for weight, ok in zip(weights_of_row, allowed_of_row)]
        rows.append(row)
    return TransitionWeights([*tags.names, "(start)"], [*tags.names, "(end)"], rows)


def transition_table(parts: SparseWeights | Potentials | Constraints, dtype: str) -> Array2d:
    """Transitions, start and end in one table, [from, to]: the start is the last row, the end the
    last column. Nothing goes from the start to the end. Shape: (K + 1, K + 1)"""
    transitions: Array2d = parts.transitions
    n_tags = len(transitions)
    table = numpy.zeros((n_tags + 1, n_tags + 1), dtype=dtype)
    table[:-1, :-1] = transitions
    table[-1, :-1] = parts.start
    table[:-1, -1] = parts.end
    return table


def explain_tokens(
    ner: CostSensitiveNER, doc: Doc, feature_names: Sequence[str], n_features: int
) -> list[TokenReason]:
    """The best path of a doc and the weights behind it. The prediction may differ from this path if
    the decoding is not Viterbi."""
    if not len(doc):
        return []
    _, weights = linear_part(ner.model)
    scores = ner.posterior([doc], preset=True).scores
    path = to_numpy(chain.best_path(scores).tags)

    # The weight of the transition to each token, (N,). A doc may have several sequences.
    first = first_tokens(scores.lengths)
    last = last_tokens(scores.lengths)
    transitions = numpy.append(0.0, weights.transitions[path[:-1], path[1:]])
    transitions[first] = weights.start[path[first]]
    transitions[last] += weights.end[path[last]]

    reasons = []
    feature_rows = find_features(ner.model, [doc]).rows  # shape: (N, S), -1 for none
    for i, token in enumerate(doc):
        rows = feature_rows[i]
        rows = rows[rows >= 0]
        of_token: Floats1d = weights.emissions[rows, path[i]].astype("float64")
        order = numpy.argsort(-numpy.abs(of_token), kind="stable")[:n_features]
        features = []
        for j in order:
            if of_token[j] != 0:
                features.append(FeatureWeight(feature_names[rows[j]], float(of_token[j])))
        reasons.append(
            TokenReason(
                token=token.text,
                tag=ner.chain_tags.names[path[i]],
                score=float(of_token.sum()),
                transition=float(transitions[i]),
                features=features,
            )
        )
    return reasons
