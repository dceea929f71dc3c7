"""The commands of `python -m spacy costner`. Each command is defined in a separate module.

spaCy imports this package via its entry point in the group `spacy_cli`.
"""

import gc
from collections.abc import Callable
from typing import Annotated

import typer
from spacy.cli._util import app
from typer import Option

import spacy_costner

from .annotate import annotate_cli
from .audit import audit_cli
from .calibrate import calibrate_cli
from .check import check_cli
from .command_line import names_options
from .compare import compare_cli
from .convert import convert_cli
from .distill import distill_cli
from .estimate import estimate_cli
from .explain import explain_cli
from .fit import fit_cli
from .forecast import forecast_cli
from .guarantee import guarantee_cli
from .init import init_cli
from .page import page_cli
from .report import report_cli
from .serve import serve_cli
from .suggest import suggest_cli
from .tune import tune_cli
from .vectors import vectors_cli
from .watch import watch_cli

WITH_OVERRIDES = ("check", "fit", "forecast", "compare", "audit", "distill")
"""The commands that support config overrides, such as --paths.train."""

OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Click settings to accept unknown options. The command reads them with `read_overrides`."""

GC_THRESHOLD = 100_000
"""Python looks for unused objects that refer to each other after this many new objects. With
its default of a few hundred, this takes about a tenth of the time of `fit`, because a corpus
consists of many objects, and few of them are unused."""

costner = typer.Typer(name="costner", no_args_is_help=True)


def show_version(is_given: bool) -> None:
    """Print the version and exit if the option --version is set. This is a callback for Typer."""
    if is_given:
        typer.echo(f"spacy-costner {spacy_costner.__version__}")
        raise typer.Exit


@costner.callback()
def costner_cli(
    version: Annotated[
        bool,
        Option("--version", help="Print the version", callback=show_version, is_eager=True),
    ] = False,
) -> None:
    """Cost-sensitive named entity recognition."""
    # Typer uses the docstring as help text. The option is handled by `show_version`.
    gc.set_threshold(GC_THRESHOLD)


app.add_typer(costner)

# The groups of commands in `--help`, in order
START = "Start"
ADJUST = "Adjust"
LOOK = "Look"
DATA = "Data"
SCALE = "Scale"

COMMANDS: list[tuple[str, Callable[..., None], str, str]] = [
    ("init", init_cli, START, "Write a config for your corpora, model and costs."),
    ("check", check_cli, START, "List problems of your data and config before training."),
    ("convert", convert_cli, START, "Convert an annotated corpus, and show what is in it."),
    ("fit", fit_cli, START, "Train a linear model, calibrate and tune it."),
    ("calibrate", calibrate_cli, ADJUST, "Calibrate confidences to how often the model is right."),
    ("tune", tune_cli, ADJUST, "Choose the decision threshold for your aim."),
    ("guarantee", guarantee_cli, ADJUST, "Guarantee a miss rate, or a share of false alarms."),
    ("report", report_cli, LOOK, "Write an HTML report of a pipeline on a test corpus."),
    ("explain", explain_cli, LOOK, "Show the features and weights of a linear model."),
    ("compare", compare_cli, LOOK, "Train with several losses or settings, and compare."),
    ("forecast", forecast_cli, LOOK, "Forecast F with more training docs."),
    ("estimate", estimate_cli, LOOK, "Estimate counts and scores on texts, with intervals."),
    ("watch", watch_cli, LOOK, "Test whether texts are like the calibration docs."),
    ("audit", audit_cli, DATA, "Find probable mistakes in the annotation of a corpus."),
    ("suggest", suggest_cli, DATA, "Choose the docs to annotate next."),
    ("serve", serve_cli, DATA, "Annotate texts in the browser, with active learning."),
    ("vectors", vectors_cli, DATA, "Learn word vectors from raw text."),
    ("annotate", annotate_cli, SCALE, "Annotate many files, on all cores or a Ray cluster."),
    ("page", page_cli, SCALE, "Write a linear pipeline as a page that needs no Python."),
    ("distill", distill_cli, SCALE, "Train a small model on the answers of a large one."),
]
"""The name, function, group and summary of each command, in the order shown in `--help` and on the
website."""

for _name, _function, _group, _summary in COMMANDS:
    _settings: dict[str, bool] = {}
    if _name in WITH_OVERRIDES:
        _settings = OVERRIDES
    add_command = costner.command(
        _name, short_help=_summary, rich_help_panel=_group, context_settings=_settings
    )
    add_command(names_options(_function))
