"""Write a report as an HTML page."""

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy
import typer
from markupsafe import Markup
from typer import Argument, Option

from ..analysis.reporting import MAX_LABELS, MISS_COSTS, Confusion, Report, report
from ..pages import percent, render
from ..saving import check_file, save_text
from ..tags import OUTSIDE
from . import plots
from .command_line import command
from .options import CodeOption, FileTokensOption, GpuOption, ModelArg, load
from .output import errors_shown

MAX_TAGS = 66
"""Most tags, the start included, whose transitions are shown: 16 labels in BILUO."""


@command(
    report,
    options={"n_mistakes": Option("--mistakes", "-n", min=0)},
    without=("source", "corpus"),
)
def report_cli(
    run: partial[Report],
    model: ModelArg,
    test_path: Annotated[Path, Argument(help="Test corpus: see `costner convert`", exists=True)],
    output_path: Annotated[Path, Option("--output", "-o", help="Output HTML file")],
    *,
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
        check_file(output_path, [model, test_path])
        plots.require_matplotlib()
        nlp, examples = load(model, test_path, use_gpu, code_path, file_tokens=file_tokens)
        result = run(nlp, examples, source=model, corpus=str(test_path))
        save_text(output_path, report_page(result))
    if "labels" in result.facts:
        typer.echo(f"report: {result.facts['labels']}", err=True)
    for note in result.notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"Written to {output_path}")


def report_page(report: Report) -> str:
    """Render a report as HTML, which needs no other files.

    RAISES (ImportError): If matplotlib is not installed.
    """
    setting = report.setting
    p_and_r = f"P {percent(setting.precision)}, R {percent(setting.recall)}"
    curves = plots.precision_recall(
        report.curves,
        (setting.precision, setting.recall),
        chosen_name=f"current setting: {p_and_r}",
    )
    # By their names in the template, which says so where there is nothing to show.
    figures = {"precision-recall": curves}
    if len(report.transitions.origins) <= MAX_TAGS:
        figures["transitions"] = plots.draw_transitions(report.transitions)
    if report.scores["ents_reliability"]:
        figures["reliability"] = plots.reliability_diagram(report.scores["ents_reliability"])
    if report.guarantee and report.promised is not None:
        figures["guarantee"] = plots.promised_and_observed(report.guarantee, report.promised)
    confusion = sum_others(report.confusion)
    if len(confusion.labels) > 1:
        figures["confusion"] = draw_confusion(confusion, has_cost=bool(report.cost))
    # The labels with rows of their own, if some are summed; else 0.
    n_kept = 0
    if len(confusion.labels) < len(report.confusion.labels):
        n_kept = MAX_LABELS
    # The script of the page has to know where the axes begin and end, to draw a point.
    (axes,) = curves.axes
    data = slider_data(report, [*axes.get_xlim(), *axes.get_ylim()])
    svgs = {name: Markup(plots.as_svg(figure, name)) for name, figure in figures.items()}
    return render("report.html", report=report, data=data, figures=svgs, n_kept=n_kept)


def draw_confusion(confusion: Confusion, *, has_cost: bool) -> Any:
    """Plot the costs of a confusion matrix or, if the pipeline has no cost, numbers of tokens: each
    wrong tag then costs 1."""
    unit = "cost" if has_cost else "tokens with a wrong tag"
    number = "{:,.0f}"
    if has_cost and confusion.cost.max() < 10:
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
    """What the script of the page needs to try thresholds.

    limits (list[float]): The lowest and highest recall, and precision, of the axes.
    """
    # The slider starts at the threshold of the pipeline, or at 0.5 if it has none.
    threshold = 0.5
    if report.parameter == "threshold":
        threshold = report.setting.value
    distances = [abs(tried - threshold) for tried, *_ in report.thresholds]
    start = distances.index(min(distances))
    model = shlex.quote(report.facts["pipeline"] or "MODEL")
    name = shlex.quote(report.facts["component"] or "MODEL")
    # The script adds --precision or --recall.
    command = (
        f"python -m spacy costner tune {model} dev.spacy --output tuned --name {name} "
        "--parameter threshold"
    )
    return {
        "thresholds": report.thresholds,
        "start": start,
        "total": [report.total.tp, report.total.fp, report.total.fn],
        "miss_costs": MISS_COSTS,
        "limits": limits,
        "command": command,
    }


def sum_others(confusion: Confusion) -> Confusion:
    """Make a large confusion matrix legible: keep the labels of the costliest mistakes, and sum the
    others as one label. It has 17 rows at most (15 labels, the others, O), with the same sum."""
    labels, cost = confusion
    n_others = len(labels) - 1 - MAX_LABELS  # the last label is O
    if n_others < 2:
        return confusion
    # What mistakes with a label cost, annotated or predicted. Those on the diagonal count once.
    cost_of_label = cost.sum(axis=0) + cost.sum(axis=1) - cost.diagonal()
    from_costliest = numpy.argsort(-cost_of_label[:-1], kind="stable")
    costliest = sorted(from_costliest[:MAX_LABELS])
    # The new row of each old one: the others are in the row after the costliest.
    new_row = numpy.full(len(labels), MAX_LABELS)
    new_row[costliest] = range(MAX_LABELS)
    new_row[-1] = MAX_LABELS + 1
    # (labels, 17), with a 1 where an old row becomes a new one: the product sums rows and columns.
    is_new_row = numpy.eye(MAX_LABELS + 2)[new_row]
    sums = is_new_row.T @ cost @ is_new_row
    names = [labels[i] for i in costliest]
    return Confusion([*names, f"{n_others} others", OUTSIDE], sums)
