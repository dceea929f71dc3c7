"""`python -m spacy costner explain`."""

from pathlib import Path
from typing import Annotated, Optional

import srsly
from spacy.cli._util import import_code
from spacy.util import load_model
from typer import Option

from ..commands.explain import as_text, draw_transitions, explain
from ..commands.plots import save
from ..saving import check_file
from .deprecated import old_option
from .options import CodeOption, ModelArg, NameOption
from .output import errors_shown, print_result

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
    picture_path: Annotated[Optional[Path], old_option("--picture", new="--plot")] = None,
) -> None:
    """
    Show the weights of a linear model: the strongest features for and against each tag, the
    transition weights and, for a text, the features behind the tag of each token.
    """
    plot_path = picture_path or plot_path
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
