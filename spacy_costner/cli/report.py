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
"""Transitions are shown up to this number of tags, the start included: 16 labels in BILUO."""


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

    # Figures by their names in the template, which says so if there is nothing to show.
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
    # The number of labels with rows of their own, if other labels are summed; 0 if none are.
    n_kept = 0
    if len(confusion.labels) < len(report.confusion.labels):
        n_kept = MAX_LABELS

    # The script of the page has to know where the axes begin and end, to draw a point.
    (axes,) = curves.axes
    data = slider_data(report, [*axes.get_xlim(), *axes.get_ylim()])
    svgs = {name: Markup(plots.as_svg(figure, name)) for name, figure in figures.items()}
    return render("report.html", report=report, data=data, figures=svgs, n_kept=n_kept)


def draw_confusion(confusion: Confusion, *, has_cost: bool) -> Any:
    """Plot the costs of a confusion matrix. If the pipeline has no cost, they are numbers of
    tokens, as each wrong tag then costs 1."""
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
    """What the script of the page needs to try thresholds by a slider.

    report (Report): The report.
    limits (list[float]): Where the axes begin and end: the lowest and the highest recall, then the
        lowest and the highest precision.
    RETURNS (dict[str, Any]): The data, for JSON.
    """
    # The slider starts at the threshold of the pipeline, or at 0.5 if it has none.
    threshold = 0.5
    if report.parameter == "threshold":
        threshold = report.setting.value
    distances = [abs(counts.threshold - threshold) for counts in report.thresholds]
    start = distances.index(min(distances))  # the index of the nearest threshold
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
    others as one label. The result has 17 rows at most: 15 labels, the others, and O. The sum of
    all costs stays the same."""
    labels, cost = confusion
    n_others = len(labels) - 1 - MAX_LABELS  # the last label is O
    if n_others < 2:
        return confusion
    # What the mistakes with each label cost, annotated or predicted. A mistake on the diagonal is
    # in both sums, and counts once.
    cost_of_label = cost.sum(axis=0) + cost.sum(axis=1) - cost.diagonal()
    costliest_first = numpy.argsort(-cost_of_label[:-1], kind="stable")
    kept_labels = sorted(costliest_first[:MAX_LABELS])

    # The new row of each old one: kept labels first, then the others, then O
    new_row = numpy.full(len(labels), MAX_LABELS)
    new_row[kept_labels] = range(MAX_LABELS)
    new_row[-1] = MAX_LABELS + 1
    # 1 where an old row becomes a new one, 0 elsewhere. Shape: (labels, 17) The product sums the
    # rows, and the columns, that become one.
    is_new_row = numpy.eye(MAX_LABELS + 2)[new_row]
    sums = is_new_row.T @ cost @ is_new_row
    names = [labels[i] for i in kept_labels]
    return Confusion([*names, f"{n_others} others", OUTSIDE], sums)
