"""What a linear model has learned, and what is behind its answers, in the names of features."""

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Union

import numpy
import srsly
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import to_numpy
from thinc.types import Array1d, Floats1d, Floats2d

from .. import chain
from ..ml import SparseWeights, linear_part
from ..pipeline.component import CostSensitiveNER
from ..pipeline.token_attrs import read_presets
from ..tags import Tags
from ..types import Potentials
from .dev_predictions import get_component
from .plots import heat_map

START, END = "(start)", "(end)"


class Weighted(NamedTuple):
    """A feature, and its weight for some tag."""

    feature: str
    weight: float


class TagProfile(NamedTuple):
    """What speaks for and against a tag.

    tag (str): The tag.
    in_favour (List[Weighted]): The features of the largest weights above 0, the largest first.
    against (List[Weighted]): Those of the weights furthest below 0.
    """

    tag: str
    in_favour: List[Weighted]
    against: List[Weighted]


class Steps(NamedTuple):
    """The weights of steps; None where the tag scheme forbids one.

    origins (List[str]): Tags, and the start.
    targets (List[str]): Tags, and the end.
    weights (List[List[Optional[float]]]): [from, to]. Shape: (K + 1, K + 1)
    """

    origins: List[str]
    targets: List[str]
    weights: List[List[Optional[float]]]


class TokenReasons(NamedTuple):
    """Why a token has its tag.

    token (str): The token.
    tag (str): Its tag in the best path.
    score (float): The sum of the weights of all its features for that tag.
    step (float): The weight of the step from the tag before, or from the start; of the last
        token that to the end, too.
    features (List[Weighted]): Its features of the largest weights, of either sign.
    """

    token: str
    tag: str
    score: float
    step: float
    features: List[Weighted]


class Explanation(NamedTuple):
    """All of it.

    tags (List[TagProfile]): The tags.
    transitions (Steps): The steps.
    tokens (List[TokenReasons]): The tokens of a text, if there is one.
    """

    tags: List[TagProfile]
    transitions: Steps
    tokens: List[TokenReasons]

    def to_dict(self) -> Dict[str, Any]:
        """The same as JSON can hold it."""
        return {
            "tags": [
                {
                    "tag": tag.tag,
                    "in_favour": [one._asdict() for one in tag.in_favour],
                    "against": [one._asdict() for one in tag.against],
                }
                for tag in self.tags
            ],
            "transitions": self.transitions._asdict(),
            "tokens": [
                {**token._asdict(), "features": [one._asdict() for one in token.features]}
                for token in self.tokens
            ],
        }


def explain(
    nlp: Language, *, name: str = "ner", text: Optional[str] = None, n_features: int = 10
) -> Explanation:
    """Show what a linear model has learned. Of a hybrid, it is the linear part that is shown.

    nlp (Language): A trained pipeline.
    name (str): The name of the component.
    text (Optional[str]): A text to answer.
    n_features (int): How many features to show of each tag and of each token.
    RETURNS (Explanation): What there is to say.
    RAISES (ValueError): If there is no such component, or its model has no sparse features.
    """
    ner = linear_component(nlp, name)
    features, weights = linear_part(ner.model)
    names = features.names()
    tags = [
        TagProfile(
            tag,
            in_favour=strongest(names, weights.emissions[:, k], n_features),
            against=strongest(names, -weights.emissions[:, k], n_features, sign=-1.0),
        )
        for k, tag in enumerate(ner.tags.names)
    ]
    tokens = [] if text is None else reasons(ner, read(nlp, name, text), names, n_features)
    return Explanation(tags, steps(ner.tags, weights), tokens)


def linear_component(nlp: Language, name: str) -> CostSensitiveNER:
    """The component of a pipeline, with a linear model.

    RAISES (ValueError): If it is missing or something else.
    """
    ner = get_component(nlp, name)
    try:
        linear_part(ner.model)
    except ValueError as error:
        raise ValueError(f"explain: components.{name}.model: {error}") from error
    return ner


def strongest(
    names: Sequence[str], strength: Floats1d, n_features: int, *, sign: float = 1.0
) -> List[Weighted]:
    """The features of the largest numbers above 0.

    names (Sequence[str]): What features are called. Length: V
    strength (Floats1d): A number for each. Shape: (V,)
    n_features (int): How many to name at most.
    sign (float): What the numbers have to be multiplied by to be weights.
    RETURNS (List[Weighted]): The largest first.
    """
    order = numpy.argsort(-strength, kind="stable")[:n_features]
    return [Weighted(names[i], sign * float(strength[i])) for i in order if strength[i] > 0]


def steps(tags: Tags, weights: Union[SparseWeights, Potentials]) -> Steps:
    """The weights of the steps that the tag scheme allows.

    tags (Tags): The tags.
    weights (Union[SparseWeights, Potentials]): What has transitions, start and end: the
        weights of a linear model, or the scores of any.
    RETURNS (Steps): The weights.
    """
    constraints, n_tags = tags.constraints, len(tags)
    table = numpy.full((n_tags + 1, n_tags + 1), numpy.nan)
    table[:-1, :-1] = _where(constraints.transitions, weights.transitions)
    table[-1, :-1] = _where(constraints.start, weights.start)
    table[:-1, -1] = _where(constraints.end, weights.end)
    values = [[None if numpy.isnan(w) else float(w) for w in row] for row in table]
    return Steps([*tags.names, START], [*tags.names, END], values)


def _where(possible: Optional[Array1d], weights: Floats2d) -> Floats2d:
    return weights if possible is None else numpy.where(possible, weights, numpy.nan)


def read(nlp: Language, name: str, text: str) -> Doc:
    """A doc as the component gets it, from the components before it."""
    with nlp.select_pipes(disable=nlp.pipe_names[nlp.pipe_names.index(name) :]):
        return nlp(text)


def reasons(
    ner: CostSensitiveNER, doc: Doc, names: Sequence[str], n_features: int
) -> List[TokenReasons]:
    """Find the best path of a doc, and say why.

    ner (CostSensitiveNER): The component.
    doc (Doc): The doc, as it comes to the component.
    names (Sequence[str]): What features are called. Length: V
    n_features (int): How many to name of each token at most.
    RETURNS (List[TokenReasons]): One for each token.
    """
    features, weights = linear_part(ner.model)
    path = best_path(ner, doc)
    rows = features.find([doc]).rows
    found = []
    for t, tag in enumerate(path):
        seen = rows[t][rows[t] >= 0]
        own = weights.emissions[seen, tag].astype("float64")
        order = numpy.argsort(-numpy.abs(own), kind="stable")[:n_features]
        step = float(weights.transitions[path[t - 1], tag] if t else weights.start[tag])
        if t == len(path) - 1:
            step += float(weights.end[tag])
        reasons_of = [Weighted(names[seen[i]], float(own[i])) for i in order if own[i]]
        found.append(
            TokenReasons(doc[t].text, ner.tags.names[tag], float(own.sum()), step, reasons_of)
        )
    return found


def best_path(ner: CostSensitiveNER, doc: Doc) -> List[int]:
    """The best path of a doc. With another decoding than Viterbi, the answer may differ."""
    if not len(doc):
        return []
    constraints = ner.constraints(read_presets([doc]))
    potentials = chain.constrain(ner.model.predict([doc]), constraints)
    return to_numpy(chain.best_path(potentials).tags).tolist()


def as_text(explanation: Explanation) -> str:
    """Tables to read."""
    blocks = [
        f"{tag.tag}\n  for      {_list(tag.in_favour)}\n  against  {_list(tag.against)}"
        for tag in explanation.tags
    ]
    blocks.append(_step_table(explanation.transitions))
    blocks += [
        f"{token.token}  {token.tag}  {token.score:+.2f}, step {token.step:+.2f}\n"
        f"  {_list(token.features)}"
        for token in explanation.tokens
    ]
    return "\n\n".join(blocks)


def _list(some: Sequence[Weighted]) -> str:
    return "  ".join(f"{one.feature} {one.weight:+.2f}" for one in some) or "-"


def _step_table(table: Steps) -> str:
    """One line for each tag to come from; "." is forbidden."""
    width = max(len(name) for name in [*table.origins, *table.targets, "-00.00"]) + 2
    cells = [["." if w is None else f"{w:+.2f}" for w in row] for row in table.weights]
    lines = zip(["from \\ to", *table.origins], [table.targets, *cells])
    return "\n".join(
        f"{name:<{width + 2}}" + "".join(f"{cell:>{width}}" for cell in row) for name, row in lines
    )


def write_json(explanation: Explanation, path: Path) -> None:
    """Write all of it to a file."""
    srsly.write_json(path, explanation.to_dict())


def draw_transitions(table: Steps, *, title: str = "") -> Any:
    """Draw the weights of the steps; those that are forbidden are grey.

    table (Steps): The steps.
    title (str): The title.
    RETURNS (Figure): The figure, of matplotlib.
    RAISES (ImportError): If matplotlib is not installed.
    """
    return heat_map(
        numpy.asarray(table.weights, dtype="float64"),
        table.origins,
        table.targets,
        ylabel="from",
        xlabel="to",
        unit="weight",
        title=title,
    )
