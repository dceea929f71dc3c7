"""Print the weights of a linear model or write them to a JSON file."""

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
    run: partial[Explanation],  # `explain` with its options set by `command`
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
    """Format an explanation as text: the strongest features for each tag, the transition weights
    and, if a text was given, the features behind the tag of each token."""
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
    """Format the transition weights as a table, with source tags as rows and target tags as
    columns. Forbidden transitions are shown as a dot."""
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
    """Format features and their weights as a single line."""
    if not features:
        return "-"
    return "  ".join(f"{feature} {weight:+.2f}" for feature, weight in features)
