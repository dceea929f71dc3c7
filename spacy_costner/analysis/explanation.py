"""Explain a linear model and its predictions by the weights of features."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import to_numpy
from thinc.types import Floats1d

from .. import chain
from ..ml import SparseWeights, find_features, linear_part
from ..pipeline.component import CostSensitiveNER
from ..ragged import first_tokens, last_tokens
from ..tags import Tags
from ..types import Potentials
from .predictions import get_component, run_before


class TransitionWeights(NamedTuple):
    """The transition weights, [from, to]. None where the tag scheme forbids a transition."""

    origins: list[str]  # the tags and the start
    targets: list[str]  # the tags and the end
    weights: list[list[float | None]]  # shape: (K + 1, K + 1)


def explain(
    nlp: Language,
    *,
    name: str = "ner",
    text: str | None = None,
    n_features: int = 10,
) -> dict[str, Any]:
    """Show the weights of a linear model, or of the linear part of a hybrid model.

    name (str): Name of the component.
    text (str | None): Text to predict and explain.
    n_features (int): Number of features to show per tag and token.
    RETURNS (dict[str, Any]): For each of "tags" the "tag" and its strongest features, "in_favour"
        and "against"; "transitions", the `TransitionWeights`; for each of "tokens" the "token", the
        "tag" in the best path, the "score", which is the sum of the weights of its features for
        that tag, the weight of its "transition", and the "features" of the largest absolute
        weights. Features have "feature", a name, and "weight".
    RAISES (ValueError): If there is no such component, or its model has no sparse features.
    """
    ner = get_component(nlp, name)
    try:
        features, weights = linear_part(ner.model)
    except ValueError as error:
        raise ValueError(f"explain: components.{name}.model: {error}") from error
    names = features.names(nlp.vocab.strings)

    def strongest(values: Floats1d, sign: int) -> list[dict[str, Any]]:
        order = numpy.argsort(-sign * values, kind="stable")[:n_features]
        return [weighted(names[i], values[i]) for i in order if sign * values[i] > 0]

    tags = [
        {"tag": tag, "in_favour": strongest(values, 1), "against": strongest(values, -1)}
        for tag, values in zip(ner.chain_tags.names, weights.emissions.T)
    ]
    docs = [] if text is None else run_before(nlp, name, [text])
    tokens = [one for doc in docs for one in reasons(ner, doc, names, n_features)]
    transitions = transition_weights(ner.chain_tags, weights)
    return {"tags": tags, "transitions": transitions, "tokens": tokens}


def weighted(feature: str, weight: float) -> dict[str, Any]:
    return {"feature": feature, "weight": float(weight)}


def transition_weights(tags: Tags, weights: SparseWeights | Potentials) -> TransitionWeights:
    """Get the weights of the allowed transitions, of a linear model or from the scores of any."""
    n = len(tags) + 1
    allowed, table = numpy.zeros((n, n), dtype=bool), numpy.zeros((n, n))
    parts: Any = [(allowed, tags.constraints), (table, weights)]
    for whole, part in parts:
        whole[:-1, :-1], whole[-1, :-1], whole[:-1, -1] = part.transitions, part.start, part.end
    values = [[w if ok else None for w, ok in zip(*rows)] for rows in zip(table.tolist(), allowed)]
    return TransitionWeights([*tags.names, "(start)"], [*tags.names, "(end)"], values)


def reasons(
    ner: CostSensitiveNER, doc: Doc, names: Sequence[str], n_features: int
) -> list[dict[str, Any]]:
    """The best path of a doc and the weights behind it. The prediction may differ from this path if
    the decoding is not Viterbi. A token's transition is that from the tag before or from the start;
    of the last token, also to the end."""
    if not len(doc):
        return []
    _, weights = linear_part(ner.model)
    scores = ner.posterior([doc], preset=True).scores
    path = to_numpy(chain.best_path(scores).tags)
    first, last = first_tokens(scores.lengths), last_tokens(scores.lengths)
    steps = numpy.append(0.0, weights.transitions[path[:-1], path[1:]])
    steps[first] = weights.start[path[first]]
    steps[last] += weights.end[path[last]]
    transitions = steps.tolist()
    result = []
    rows = find_features(ner.model, [doc]).rows
    for token, tag, transition, row in zip(doc, path.tolist(), transitions, rows):
        own = row[row >= 0]
        values = weights.emissions[own, tag].astype("float64")
        order = numpy.argsort(-numpy.abs(values), kind="stable")[:n_features]
        features = [weighted(names[own[i]], values[i]) for i in order if values[i]]
        name, score = ner.chain_tags.names[tag], float(values.sum())
        of_token = {"token": token.text, "tag": name, "score": score, "transition": transition}
        result.append({**of_token, "features": features})
    return result
