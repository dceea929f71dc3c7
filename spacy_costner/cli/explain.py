"""Explain a linear model and its predictions by the weights of features."""

from pathlib import Path
from typing import Annotated, Any, List, NamedTuple, Optional, Sequence, Union

import numpy
import srsly
from spacy.cli._util import import_code
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import load_model
from thinc.api import to_numpy
from thinc.types import Floats1d
from typer import Option

from .. import chain
from ..metrics import as_json, text_table
from ..ml import SparseWeights, find_features, linear_part
from ..pipeline.component import CostSensitiveNER
from ..saving import check_file
from ..tags import Tags
from ..types import Potentials, first_tokens, last_tokens
from .options import CodeOption, ModelArg, NameOption
from .output import errors_shown, print_result
from .plots import heat_map, save
from .predictions import get_component, run_before


class Weighted(NamedTuple):
    """A feature with its weight for a tag."""

    feature: str
    weight: float


class TagProfile(NamedTuple):
    """The features for and against a tag, the strongest first."""

    tag: str
    in_favour: List[Weighted]
    against: List[Weighted]


class TransitionWeights(NamedTuple):
    """The transition weights, [from, to]. None where the tag scheme forbids a transition."""

    origins: List[str]  # the tags and the start
    targets: List[str]  # the tags and the end
    weights: List[List[Optional[float]]]  # shape: (K + 1, K + 1)


class TokenReasons(NamedTuple):
    """The weights behind the tag of a token in the best path."""

    token: str
    tag: str
    score: float  # the sum of the weights of its features for that tag
    transition: float  # from the previous tag or the start; of the last token, also to the end
    features: List[Weighted]  # those with the largest absolute weights


class Explanation(NamedTuple):
    """The weights of a model: of each tag, of the transitions, and behind the tokens of a text."""

    tags: List[TagProfile]
    transitions: TransitionWeights
    tokens: List[TokenReasons]


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
        print_json = json_path == Path("-")
        file_path = None if print_json else json_path
        for path in (file_path, plot_path):
            check_file(path, [model])
        import_code(code_path)
        explanation = explain(load_model(model), name=name, text=text, n_features=n_features)
        if file_path is not None:
            srsly.write_json(file_path, as_json(explanation))
        if plot_path is not None:
            figure = draw_transitions(explanation.transitions, title="Transition weights")
            save(figure, plot_path)
    print_result(explanation, as_text(explanation), print_json, file_path, plot_path)


def explain(
    nlp: Language, *, name: str = "ner", text: Optional[str] = None, n_features: int = 10
) -> Explanation:
    """Show the weights of a linear model, or of the linear part of a hybrid model: see
    `explain_cli`.

    RAISES (ValueError): If there is no such component, or its model has no sparse features.
    """
    ner = get_component(nlp, name)
    try:
        features, weights = linear_part(ner.model)
    except ValueError as error:
        raise ValueError(f"explain: components.{name}.model: {error}") from error
    names = features.names(nlp.vocab.strings)

    def strongest(values: Floats1d, sign: int) -> List[Weighted]:
        order = numpy.argsort(-sign * values, kind="stable")[:n_features]
        return [Weighted(names[i], float(values[i])) for i in order if sign * values[i] > 0]

    tags = [
        TagProfile(tag, strongest(values, 1), strongest(values, -1))
        for tag, values in zip(ner.chain_tags.names, weights.emissions.T)
    ]
    docs = [] if text is None else run_before(nlp, name, [text])
    tokens = [one for doc in docs for one in reasons(ner, doc, names, n_features)]
    return Explanation(tags, transition_weights(ner.chain_tags, weights), tokens)


def transition_weights(tags: Tags, weights: Union[SparseWeights, Potentials]) -> TransitionWeights:
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
) -> List[TokenReasons]:
    """The best path of a doc and the weights behind it. The prediction may differ from this path if
    the decoding is not Viterbi."""
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
        features = [Weighted(names[own[i]], float(values[i])) for i in order if values[i]]
        name, score = ner.chain_tags.names[tag], float(values.sum())
        result.append(TokenReasons(token.text, name, score, transition, features))
    return result


def as_text(explanation: Explanation) -> str:
    """Format an explanation for the terminal. A forbidden transition is "."."""

    def line(features: Sequence[Weighted]) -> str:
        return "  ".join(f"{one.feature} {one.weight:+.2f}" for one in features) or "-"

    blocks = [
        f"{tag.tag}\n  for      {line(tag.in_favour)}\n  against  {line(tag.against)}"
        for tag in explanation.tags
    ]
    origins, targets, weights = explanation.transitions
    cells = [["." if w is None else f"{w:+.2f}" for w in row] for row in weights]
    rows = [[name, *row] for name, row in zip(origins, cells)]
    blocks.append(text_table([["from \\ to", *targets], *rows]))
    blocks += [
        f"{token.token}  {token.tag}  {token.score:+.2f}, transition {token.transition:+.2f}\n"
        f"  {line(token.features)}"
        for token in explanation.tokens
    ]
    return "\n\n".join(blocks)


def draw_transitions(table: TransitionWeights, *, title: str = "") -> Any:
    """Plot transition weights as a heat map. Forbidden transitions are grey."""
    values = numpy.asarray(table.weights, dtype="float64")
    names = {"ylabel": "from", "xlabel": "to", "unit": "weight", "title": title}
    return heat_map(values, table.origins, table.targets, **names)
