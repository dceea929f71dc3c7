"""Print the weights of a linear model, or write them to a JSON file."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import srsly
from typer import Option

from ..files.saving import as_json, check_file, save_file
from ..workflows.config.loading import load_pipeline
from ..workflows.reports.explanation import Explanation, FeatureWeight, TransitionWeights, explain
from .command_line import command
from .options import CodeOption, ModelArg
from .output import errors_shown, print_result
from .tables import text_table


@command(
    explain,
    options={"text": Option("--text", "-t"), "n_features": Option("--features", "-n", min=1)},
)
def explain_cli(
    run: partial[Explanation],  # `explain` with the options that `command` adds
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
        file_path = json_path
        if print_json:
            file_path = None
        check_file(file_path, [model])
        explanation = run(load_pipeline(model, code_path))
        if file_path is not None:
            save_file(file_path, partial(srsly.write_json, data=as_json(explanation)))
    print_result(explanation, explanation_text(explanation), print_json, file_path)


def explanation_text(explanation: Explanation) -> str:
    """Write an explanation for the terminal: the strongest features of each tag, the weights of
    transitions and, if there is a text, why each of its tokens has its tag."""
    blocks = []
    for weights in explanation.tags:
        in_favour = feature_line(weights.in_favour)
        against = feature_line(weights.against)
        blocks.append(f"{weights.tag}\n  for      {in_favour}\n  against  {against}")
    blocks.append(transitions_text(explanation.transitions))
    for reason in explanation.tokens:
        scores = f"{reason.score:+.2f}, transition {reason.transition:+.2f}"
        features = feature_line(reason.features)
        blocks.append(f"{reason.token}  {reason.tag}  {scores}\n  {features}")
    return "\n\n".join(blocks)


def transitions_text(transitions: TransitionWeights) -> str:
    """Write a table of the weights of transitions, from the tag of a row to the tag of a column. A
    forbidden transition is a point."""
    rows = [["from \\ to", *transitions.targets]]
    for origin, weights in zip(transitions.origins, transitions.weights):
        cells = [origin]
        for weight in weights:
            if weight is None:
                cells.append(".")
            else:
                cells.append(f"{weight:+.2f}")
        rows.append(cells)
    return text_table(rows)


def feature_line(features: Sequence[FeatureWeight]) -> str:
    """Write features with their weights on one line."""
    if not features:
        return "-"
    return "  ".join(f"{feature} {weight:+.2f}" for feature, weight in features)
