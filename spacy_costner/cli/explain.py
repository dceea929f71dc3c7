"""Print the weights of a linear model, or write them to a JSON file."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import srsly
from typer import Option

from ..analysis.explanation import Explanation, FeatureWeight, explain
from ..analysis.loading import load_pipeline
from ..saving import as_json, check_file
from .command_line import command
from .options import CodeOption, ModelArg
from .output import errors_shown, print_result
from .tables import text_table


@command(
    explain,
    options={"text": Option("--text", "-t"), "n_features": Option("--features", "-n", min=1)},
)
def explain_cli(
    run: partial[Explanation],
    model: ModelArg,
    *,
    json_path: Annotated[
        Path | None, Option("--json", help="Output JSON file, or - for the terminal")
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
        check_file(file_path, [model])
        explanation = run(load_pipeline(model, code_path))
        if file_path is not None:
            srsly.write_json(file_path, as_json(explanation))
    print_result(explanation, explanation_text(explanation), print_json, file_path)


def explanation_text(explanation: Explanation) -> str:
    """Format an explanation for the terminal. A forbidden transition is "."."""
    blocks = []
    for of_tag in explanation.tags:
        in_favour = feature_line(of_tag.in_favour)
        against = feature_line(of_tag.against)
        blocks.append(f"{of_tag.tag}\n  for      {in_favour}\n  against  {against}")

    transitions = explanation.transitions
    rows = [["from \\ to", *transitions.targets]]
    for origin, weights in zip(transitions.origins, transitions.weights):
        cells = ["." if weight is None else f"{weight:+.2f}" for weight in weights]
        rows.append([origin, *cells])
    blocks.append(text_table(rows))

    for reason in explanation.tokens:
        head = f"{reason.token}  {reason.tag}  {reason.score:+.2f}"
        blocks.append(
            f"{head}, transition {reason.transition:+.2f}\n  {feature_line(reason.features)}"
        )
    return "\n\n".join(blocks)


def feature_line(features: Sequence[FeatureWeight]) -> str:
    """Features and their weights in a line."""
    if not features:
        return "-"
    return "  ".join(f"{feature} {weight:+.2f}" for feature, weight in features)
