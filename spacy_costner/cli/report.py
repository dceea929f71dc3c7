"""Evaluate a pipeline on a test corpus, and write the report as an HTML page.

The command gets the function `report` as `run`, which has the options of the command line: see
`command_line.command`.
"""

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy
import typer
from markupsafe import Markup
from typer import Argument, Option

from ..files.saving import check_file, save_text
from ..pages.formatting import percent
from ..pages.rendering import render
from ..readers import ReadOptions
from ..tags import OUTSIDE
from ..workflows.reports.mistake_costs import Confusion
from ..workflows.reports.reporting import MAX_HEAT_MAP_LABELS, MISS_COSTS, Report, report
from . import plots
from .command_line import command, reads_corpora
from .options import CodeOption, FileTokensOption, GpuOption, ModelArg, load_with_examples
from .output import errors_shown
from .svg import as_svg

MAX_TAGS = 66
"""The maximum number of tags, including the start, for which the heat map of transitions is shown.
16 labels in the scheme BILUO have 66."""

MIN_WHOLE_COST = 10
"""If the highest cost is below this, costs are shown with two significant digits, otherwise as
whole numbers."""


@command(
    report,
    options={"n_mistakes": Option("--mistakes", "-n", min=0)},
    without=("source", "corpus"),
)
@reads_corpora
def report_cli(
    run: partial[Report],  # `report` with the options that `command` adds
    model: ModelArg,
    test_path: Annotated[Path, Argument(help="Test corpus: see `costner convert`", exists=True)],
    output_path: Annotated[Path, Option("--output", "-o", help="Output HTML file")],
    *,
    reading: ReadOptions,
    file_tokens: FileTokensOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Write an HTML report of a pipeline on a test corpus: scores by label and by level of the
    label tree, the precision-recall curve, calibration, the confusion matrix by cost, the
    costliest mistakes in their sentences, and the transition weights. The file is
    self-contained.
    """
    with errors_shown():
        check_file(output_path, inputs=[model, test_path])
        plots.require_matplotlib()
        nlp, examples = load_with_examples(
            model, test_path, use_gpu, code_path, reading=reading, file_tokens=file_tokens
        )
        result = run(nlp, examples, source=model, corpus=str(test_path))
        save_text(output_path, report_page(result))
    if "labels" in result.facts:  # only if annotation and component have no label in common
        typer.echo(f"report: {result.facts['labels']}", err=True)
    for note in result.notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"Written to {output_path}")


def report_page(report: Report) -> str:
    """Render a report as an HTML page that needs no other files.

    RAISES (ImportError): If matplotlib is not installed.
    """
    setting = report.setting
    p_and_r = f"P {percent(setting.precision)}, R {percent(setting.recall)}"
    curves_figure = plots.precision_recall(
        report.curves,
        chosen=(setting.precision, setting.recall),
        chosen_name=f"current setting: {p_and_r}",
    )

    # The figures, keyed by their names in the template. The figure of the guarantee is optional. If
    # another figure is missing, the page says why.
    figures = {"precision-recall": curves_figure}
    if len(report.transitions.origins) <= MAX_TAGS:
        figures["transitions"] = plots.draw_transitions(report.transitions)
    if report.scores["ents_reliability"]:
        figures["reliability"] = plots.reliability_diagram(report.scores["ents_reliability"])
    if report.guarantee and report.promised is not None:
        figures["guarantee"] = plots.promised_and_observed(report.guarantee, chosen=report.promised)
    confusion = sum_others(report.confusion)
    if len(confusion.labels) > 1:
        figures["confusion"] = draw_confusion(confusion, has_cost=bool(report.cost))
    # How many labels have their own row, if the others were summed; 0 if none were.
    n_kept = 0
    if len(confusion.labels) < len(report.confusion.labels):
        n_kept = MAX_HEAT_MAP_LABELS

    # The script of the page moves a point in the figure. For that it must know where the axes begin
    # and end.
    (axes,) = curves_figure.axes
    limits = [*axes.get_xlim(), *axes.get_ylim()]
    data = slider_data(report, limits)
    svgs = {name: Markup(as_svg(figure, name)) for name, figure in figures.items()}
    return render("report.html", report=report, data=data, figures=svgs, n_kept=n_kept)


def draw_confusion(confusion: Confusion, *, has_cost: bool) -> Any:
    """Plot the costs of a confusion matrix as a heat map. If the config has no cost, each wrong tag
    costs 1, and costs are numbers of tokens."""
    unit = "cost" if has_cost else "tokens with a wrong tag"
    number = "{:,.0f}"
    if has_cost and confusion.cost.max() < MIN_WHOLE_COST:
        number = "{:.2g}"
    return plots.heat_map(
        confusion.cost,
        confusion.labels,
        confusion.labels,
        ylabel="annotated",
        xlabel="predicted",
        unit=unit,
        number=number,
    )


def slider_data(report: Report, limits: list[float]) -> dict[str, Any]:
    """The data, as JSON, for the slider of the page with which readers try thresholds. The limits
    are where the axes of the figure begin and end: the lowest and the highest recall, then the
    lowest and the highest precision."""
    # The slider starts at the threshold of the pipeline, or at 0.5 if it has none.
    threshold = 0.5
    if report.parameter == "threshold":
        threshold = report.setting.value
    # The slider has only the thresholds of the report, so start at the nearest one.
    distances = [abs(counts.threshold - threshold) for counts in report.thresholds]
    start = distances.index(min(distances))
    model = shlex.quote(report.facts["pipeline"] or "MODEL")
    name = shlex.quote(report.facts["component"] or "NAME")
    # The page shows the command that sets the chosen threshold. Its script adds --precision or
    # --recall.
    command = (
        f"python -m spacy costner tune {model} dev.spacy --output tuned --name {name} "
        "--parameter threshold"
    )
    return {
        "thresholds": report.thresholds,
        "start": start,
        "total": [report.total.tp, report.total.fp, report.total.fn],
        "miss_costs": MISS_COSTS,  # as numbers of false alarms
        "limits": limits,
        "command": command,
    }


def sum_others(confusion: Confusion) -> Confusion:
    """Make a large confusion matrix small enough to be read. Keep the labels with the costliest
    mistakes, `MAX_HEAT_MAP_LABELS` of them, and sum all other labels in one row and one column. O
    stays. The sum of all costs is the same as before."""
    labels, cost = confusion
    n_others = len(labels) - 1 - MAX_HEAT_MAP_LABELS  # The last label is O, which doesn't count.
    if n_others < 2:  # The sum of a single label would need as much space as the label.
        return confusion
    # The cost of all mistakes in which a label is annotated or predicted. A mistake on the diagonal
    # is in both sums, so it is subtracted once.
    cost_of_label = cost.sum(axis=0) + cost.sum(axis=1) - cost.diagonal()
    costliest_first = numpy.argsort(-cost_of_label[:-1], kind="stable")  # without O
    kept_labels = sorted(costliest_first[:MAX_HEAT_MAP_LABELS])

    # The new index of each label: kept labels come first, then the row of all others, then O.
    others_index = MAX_HEAT_MAP_LABELS
    outside_index = MAX_HEAT_MAP_LABELS + 1
    new_index = numpy.full(len(labels), others_index)
    new_index[kept_labels] = range(MAX_HEAT_MAP_LABELS)
    new_index[-1] = outside_index
    # A matrix with a 1 where an old label gets a new index, and 0 elsewhere. Shape: (old, new). Its
    # product with the costs sums the rows, and the columns, that get the same index.
    is_new_index = numpy.eye(MAX_HEAT_MAP_LABELS + 2)[new_index]
    sums = is_new_index.T @ cost @ is_new_index
    names = [labels[i] for i in kept_labels]
    return Confusion([*names, f"{n_others} others", OUTSIDE], sums)
