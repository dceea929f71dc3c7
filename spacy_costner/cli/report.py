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
from ..saving import check_file, save_text
from ..tags import OUTSIDE
from . import plots
from .command_line import command
from .options import CodeOption, FileTokensOption, GpuOption, ModelArg, load
from .output import errors_shown
from .pages import percent, render

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
        save_text(output_path, page(result))
    if "labels" in result.facts:
        typer.echo(f"report: {result.facts['labels']}", err=True)
    for note in result.notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"Written to {output_path}")


def page(report: Report) -> str:
    """Render a report as HTML, which needs no other files.

    RAISES (ImportError): If matplotlib is not installed.
    """
    setting = report.setting
    curves = plots.precision_recall(
        report.curves,
        (setting.precision, setting.recall),
        chosen_name=f"current setting: P {percent(setting.precision)}, R {percent(setting.recall)}",
    )
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
    svgs = {name: Markup(plots.as_svg(figure, name)) for name, figure in figures.items()}
    # The labels that aren't summed as others.
    n_kept = MAX_LABELS if len(confusion.labels) < len(report.confusion.labels) else 0
    return render(
        "report.html",
        report=report,
        data=slider_data(report, [*curves.axes[0].get_xlim(), *curves.axes[0].get_ylim()]),
        figures=svgs,
        n_kept=n_kept,
    )


def draw_confusion(confusion: Confusion, *, has_cost: bool) -> Any:
    """Plot the costs of a confusion matrix or, if each wrong tag costs 1, numbers of tokens."""
    return plots.heat_map(
        confusion.cost,
        confusion.labels,
        confusion.labels,
        ylabel="annotated",
        xlabel="predicted",
        unit="cost" if has_cost else "tokens with a wrong tag",
        number="{:.2g}" if has_cost and confusion.cost.max() < 10 else "{:,.0f}",
    )


def slider_data(report: Report, limits: list[float]) -> dict[str, Any]:
    """What the script of the page needs to try thresholds. The limits are those of the axes of the
    precision-recall curve: recall, then precision."""
    threshold = report.setting.value if report.parameter == "threshold" else 0.5
    distances = [abs(tried - threshold) for tried, *_ in report.thresholds]
    model = shlex.quote(report.facts["pipeline"] or "MODEL")
    name = shlex.quote(report.facts["component"] or "MODEL")
    return {
        "thresholds": report.thresholds,
        "start": distances.index(min(distances)),
        "total": [report.total.tp, report.total.fp, report.total.fn],
        "miss_costs": MISS_COSTS,
        "limits": limits,
        "command": f"python -m spacy costner tune {model} dev.spacy --output tuned --name {name} "
        "--parameter threshold",
    }


def sum_others(confusion: Confusion) -> Confusion:
    """Sum all but the labels of the costliest mistakes as one, if there are many: at most 17 rows
    (15 labels, the others, O) with the same sum."""
    labels, cost = confusion
    n_others = len(labels) - 1 - MAX_LABELS
    if n_others < 2:
        return confusion
    cost_of_label = cost.sum(axis=0) + cost.sum(axis=1) - cost.diagonal()
    costliest = sorted(numpy.argsort(-cost_of_label[:-1], kind="stable")[:MAX_LABELS])
    # The new row of each old one. Rows are the costliest labels, the others, and O.
    new_row = numpy.full(len(labels), MAX_LABELS)
    new_row[costliest] = range(MAX_LABELS)
    new_row[-1] = MAX_LABELS + 1
    # (labels, 17), with a 1 where an old row becomes a new one: the product sums them.
    is_new_row = numpy.eye(MAX_LABELS + 2)[new_row]
    names = [labels[i] for i in costliest]
    return Confusion([*names, f"{n_others} others", OUTSIDE], is_new_row.T @ cost @ is_new_row)
