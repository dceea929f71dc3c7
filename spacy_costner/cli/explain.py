"""Explain a linear model and its predictions by the weights of features."""

from pathlib import Path
from typing import Annotated, Any, Dict, List, NamedTuple, Optional, Sequence, Union

import numpy
import srsly
from spacy.cli._util import import_code
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import load_model
from thinc.api import to_numpy
from thinc.types import Array1d, Floats1d, Floats2d
from typer import Option

from .. import chain
from ..metrics import as_json, text_table
from ..ml import SparseWeights, find_features, linear_part
from ..pipeline.component import CostSensitiveNER
from ..saving import check_file
from ..tags import Tags
from ..training.token_attrs import read_presets
from ..types import Potentials
from .options import CodeOption, ModelArg, NameOption
from .output import errors_shown, print_result
from .plots import heat_map, save
from .predictions import get_component, run_before

START, END = "(start)", "(end)"


class Weighted(NamedTuple):
    """A feature with its weight for a tag."""

    feature: str
    weight: float


class TagProfile(NamedTuple):
    """The strongest features for and against a tag.

    tag (str): The tag.
    in_favour (List[Weighted]): The features with the highest weights, highest first.
    against (List[Weighted]): The features with the lowest weights, lowest first.
    """

    tag: str
    in_favour: List[Weighted]
    against: List[Weighted]


class TransitionWeights(NamedTuple):
    """The transition weights. None where the tag scheme forbids a transition.

    origins (List[str]): The tags and the start.
    targets (List[str]): The tags and the end.
    weights (List[List[Optional[float]]]): [from, to]. Shape: (K + 1, K + 1)
    """

    origins: List[str]
    targets: List[str]
    weights: List[List[Optional[float]]]


class TokenReasons(NamedTuple):
    """The weights behind the tag of a token.

    token (str): The token.
    tag (str): Its tag in the best path.
    score (float): The sum of the weights of its features for that tag.
    transition (float): The weight of the transition from the previous tag or the start; for the
        last token, plus that of the transition to the end.
    features (List[Weighted]): Its features with the largest absolute weights.
    """

    token: str
    tag: str
    score: float
    transition: float
    features: List[Weighted]


class Explanation(NamedTuple):
    """The explanation of a model.

    tags (List[TagProfile]): The strongest features of each tag.
    transitions (TransitionWeights): The transition weights.
    tokens (List[TokenReasons]): The tokens of the text, if one is given.
    """

    tags: List[TagProfile]
    transitions: TransitionWeights
    tokens: List[TokenReasons]

    def to_dict(self) -> Dict[str, Any]:
        """The explanation as JSON."""
        return as_json(self)


def explain(
    nlp: Language, *, name: str = "ner", text: Optional[str] = None, n_features: int = 10
) -> Explanation:
    """Show the weights of a linear model, or of the linear part of a hybrid model.

    nlp (Language): A trained pipeline.
    name (str): The name of the component.
    text (Optional[str]): A text to predict and explain.
    n_features (int): Number of features to show for each tag and each token.
    RETURNS (Explanation): The explanation.
    RAISES (ValueError): If there is no such component, or its model has no sparse features.
    """
    ner = get_component(nlp, name)
    try:
        features, weights = linear_part(ner.model)
    except ValueError as error:
        raise ValueError(f"explain: components.{name}.model: {error}") from error
    names = features.names(nlp.vocab.strings)
    tags = [
        TagProfile(
            tag,
            in_favour=strongest(names, weights.emissions[:, k], n_features),
            against=strongest(names, -weights.emissions[:, k], n_features, sign=-1.0),
        )
        for k, tag in enumerate(ner.chain_tags.names)
    ]
    docs = [] if text is None else run_before(nlp, name, [text])
    tokens = [one for doc in docs for one in reasons(ner, doc, names, n_features)]
    return Explanation(tags, transition_weights(ner.chain_tags, weights), tokens)


def strongest(
    names: Sequence[str], strength: Floats1d, n_features: int, *, sign: float = 1.0
) -> List[Weighted]:
    """Find the features of the greatest strength above 0.

    names (Sequence[str]): The names of features. Length: V
    strength (Floats1d): The strength of each. Shape: (V,)
    n_features (int): Maximum number of features.
    sign (float): The sign of the weights: weight = sign * strength.
    RETURNS (List[Weighted]): The strongest first.
    """
    order = numpy.argsort(-strength, kind="stable")[:n_features]
    return [Weighted(names[i], sign * float(strength[i])) for i in order if strength[i] > 0]


def transition_weights(tags: Tags, weights: Union[SparseWeights, Potentials]) -> TransitionWeights:
    """Get the weights of the transitions that the tag scheme allows.

    tags (Tags): The tags.
    weights (Union[SparseWeights, Potentials]): The weights of a linear model or the scores of
        any, with transitions, start and end.
    RETURNS (TransitionWeights): The weights.
    """
    constraints, n_tags = tags.constraints, len(tags)
    table = numpy.full((n_tags + 1, n_tags + 1), numpy.nan)
    table[:-1, :-1] = _where(constraints.transitions, weights.transitions)
    table[-1, :-1] = _where(constraints.start, weights.start)
    table[:-1, -1] = _where(constraints.end, weights.end)
    values = [[None if numpy.isnan(w) else float(w) for w in row] for row in table]
    return TransitionWeights([*tags.names, START], [*tags.names, END], values)


def _where(possible: Optional[Array1d], weights: Floats2d) -> Floats2d:
    return weights if possible is None else numpy.where(possible, weights, numpy.nan)


def reasons(
    ner: CostSensitiveNER, doc: Doc, names: Sequence[str], n_features: int
) -> List[TokenReasons]:
    """Find the best path of a doc and the weights behind it.

    ner (CostSensitiveNER): The component.
    doc (Doc): The doc, as the component gets it.
    names (Sequence[str]): The names of features. Length: V
    n_features (int): Maximum number of features for each token.
    RETURNS (List[TokenReasons]): One for each token.
    """
    _, weights = linear_part(ner.model)
    path, tags = best_path(ner, doc), ner.chain_tags.names
    rows = find_features(ner.model, [doc]).rows
    found = []
    for t, tag in enumerate(path):
        seen = rows[t][rows[t] >= 0]
        own = weights.emissions[seen, tag].astype("float64")
        order = numpy.argsort(-numpy.abs(own), kind="stable")[:n_features]
        transition = float(weights.transitions[path[t - 1], tag] if t else weights.start[tag])
        if t == len(path) - 1:
            transition += float(weights.end[tag])
        reasons_of = [Weighted(names[seen[i]], float(own[i])) for i in order if own[i]]
        found.append(TokenReasons(doc[t].text, tags[tag], float(own.sum()), transition, reasons_of))
    return found


def best_path(ner: CostSensitiveNER, doc: Doc) -> List[int]:
    """The best path of a doc. The prediction may differ if the decoding is not Viterbi."""
    if not len(doc):
        return []
    constraints = ner.constraints(read_presets([doc]))
    potentials = chain.constrain(ner.model.predict([doc]), constraints)
    return to_numpy(chain.best_path(potentials).tags).tolist()


def as_text(explanation: Explanation) -> str:
    """Format an explanation for the terminal."""
    blocks = [
        f"{tag.tag}\n  for      {_list(tag.in_favour)}\n  against  {_list(tag.against)}"
        for tag in explanation.tags
    ]
    blocks.append(_transition_table(explanation.transitions))
    blocks += [
        f"{token.token}  {token.tag}  {token.score:+.2f}, transition {token.transition:+.2f}\n"
        f"  {_list(token.features)}"
        for token in explanation.tokens
    ]
    return "\n\n".join(blocks)


def _list(some: Sequence[Weighted]) -> str:
    return "  ".join(f"{one.feature} {one.weight:+.2f}" for one in some) or "-"


def _transition_table(table: TransitionWeights) -> str:
    """One line for each tag to come from; "." is forbidden."""
    cells = [["." if w is None else f"{w:+.2f}" for w in row] for row in table.weights]
    rows = [[name, *row] for name, row in zip(table.origins, cells)]
    return text_table([["from \\ to", *table.targets], *rows])


def draw_transitions(table: TransitionWeights, *, title: str = "") -> Any:
    """Plot transition weights. Forbidden transitions are grey.

    table (TransitionWeights): The transition weights.
    title (str): The title.
    RETURNS (Figure): The figure.
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


TERMINAL = Path("-")


def explain_cli(
    model: ModelArg,
    text: Annotated[
        Optional[str], Option("--text", "-t", help="Text to predict and explain")
    ] = None,
    name: NameOption = "ner",
    n_features: Annotated[
        int, Option("--features", "-n", help="Number of features to show per tag and token", min=1)
    ] = 10,
    json_path: Annotated[
        Optional[Path], Option("--json", help="Output JSON file, or - for the terminal")
    ] = None,
    plot_path: Annotated[
        Optional[Path],
        Option("--plot", help="Output file for a plot of transition weights (requires matplotlib)"),
    ] = None,
    code_path: CodeOption = None,
) -> None:
    """
    Show the weights of a linear model: the strongest features for and against each tag, the
    transition weights and, for a text, the features behind the tag of each token.
    """
    with errors_shown():
        print_json = json_path == TERMINAL
        file_path = None if print_json else json_path
        for path in (file_path, plot_path):
            check_file(path, [model])
        import_code(code_path)
        found = explain(load_model(model), name=name, text=text, n_features=n_features)
        if file_path is not None:
            srsly.write_json(file_path, found.to_dict())
        if plot_path is not None:
            save(draw_transitions(found.transitions, title="Transition weights"), plot_path)
    print_result(found, as_text(found), print_json, file_path, plot_path)
