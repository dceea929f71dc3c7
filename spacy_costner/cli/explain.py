"""The command `explain`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy
import srsly
from typer import Option

from ..analysis.explanation import TransitionWeights, explain
from ..analysis.loading import load_pipeline
from ..saving import as_json, check_file
from .command_line import command
from .options import CodeOption, ModelArg
from .output import errors_shown, print_result
from .plots import heat_map, save
from .tables import text_table


@command(
    explain,
    options={"text": Option("--text", "-t"), "n_features": Option("--features", "-n", min=1)},
)
def explain_cli(
    run: partial[Any],
    model: ModelArg,
    *,
    json_path: Annotated[
        Path | None, Option("--json", help="Output JSON file, or - for the terminal")
    ] = None,
    plot_path: Annotated[
        Path | None,
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
        nlp = load_pipeline(model, code_path)
        explanation = run(nlp)
        if file_path is not None:
            srsly.write_json(file_path, as_json(explanation))
        if plot_path is not None:
            save(
                draw_transitions(explanation["transitions"], title="Transition weights"), plot_path
            )
    print_result(explanation, as_text(explanation), print_json, file_path, plot_path)


def as_text(explanation: dict[str, Any]) -> str:
    """Format an explanation for the terminal. A forbidden transition is "."."""

    def line(features: Sequence[dict[str, Any]]) -> str:
        return "  ".join("{feature} {weight:+.2f}".format(**one) for one in features) or "-"

    blocks = [
        f"{tag['tag']}\n  for      {line(tag['in_favour'])}\n  against  {line(tag['against'])}"
        for tag in explanation["tags"]
    ]
    origins, targets, weights = explanation["transitions"]
    cells = [["." if w is None else f"{w:+.2f}" for w in row] for row in weights]
    rows = [[name, *row] for name, row in zip(origins, cells)]
    blocks.append(text_table([["from \\ to", *targets], *rows]))
    head = "{token}  {tag}  {score:+.2f}, transition {transition:+.2f}"
    tokens = explanation["tokens"]
    blocks += [f"{head.format(**token)}\n  {line(token['features'])}" for token in tokens]
    return "\n\n".join(blocks)


def draw_transitions(table: TransitionWeights, *, title: str = "") -> Any:
    """Plot transition weights as a heat map. Forbidden transitions are grey."""
    values = numpy.asarray(table.weights, dtype="float64")
    names = {"ylabel": "from", "xlabel": "to", "unit": "weight", "title": title}
    return heat_map(values, table.origins, table.targets, **names)
