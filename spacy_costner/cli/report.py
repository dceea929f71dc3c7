"""The command `report`."""

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
    report, options={"n_mistakes": Option("--mistakes", "-n", min=0)}, without=("source", "corpus")
)
def report_cli(
    run: partial[Any],
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
        sources: Any = {"source": model, "corpus": str(test_path)}
        result = run(nlp, examples, **sources)
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
    value, p, r = report.setting
    current = f"current setting: P {percent(p)}, R {percent(r)}"
    curves = plots.precision_recall(report.curves, (p, r), chosen_name=current)
    figures = {"precision-recall": curves}
    if len(report.transitions.origins) <= MAX_TAGS:
        figures["transitions"] = plots.draw_transitions(report.transitions)
    if report.scores["ents_reliability"]:
        figures["reliability"] = plots.reliability_diagram(report.scores["ents_reliability"])
    if report.guarantee and report.promised is not None:
        figures["guarantee"] = plots.promised_and_observed(report.guarantee, report.promised)
    labels, costs = sum_others(report.confusion)
    if len(labels) > 1:
        unit = "cost" if report.cost else "tokens with a wrong tag"
        digits = "{:.2g}" if report.cost and costs.max() < 10 else "{:,.0f}"
        names = {"ylabel": "annotated", "xlabel": "predicted", "unit": unit, "number": digits}
        figures["confusion"] = plots.heat_map(costs, labels, labels, **names)
    now = value if report.parameter == "threshold" else 0.5
    away = [abs(threshold - now) for threshold, *_ in report.thresholds]
    model, name = (shlex.quote(report.facts[x] or "MODEL") for x in ("pipeline", "component"))
    data = {
        "thresholds": report.thresholds,
        "start": away.index(min(away)),
        "total": [report.total.tp, report.total.fp, report.total.fn],
        "miss_costs": MISS_COSTS,
        "limits": [*curves.axes[0].get_xlim(), *curves.axes[0].get_ylim()],
        "command": f"python -m spacy costner tune {model} dev.spacy --output tuned --name {name} "
        "--parameter threshold",
    }
    svgs = {name: Markup(plots.as_svg(figure, name)) for name, figure in figures.items()}
    n_kept = MAX_LABELS if len(labels) < len(report.confusion[0]) else 0
    return render("report.html", report=report, data=data, figures=svgs, n_kept=n_kept)


def sum_others(confusion: Confusion) -> Confusion:
    """Sum all but the labels of the costliest mistakes as one, if there are many: at most 17 rows
    (15 labels, the others, O) with the same sum."""
    labels, cost = confusion
    n_others = len(labels) - 1 - MAX_LABELS
    if n_others < 2:
        return confusion
    by_label = cost.sum(axis=0) + cost.sum(axis=1) - cost.diagonal()
    kept = sorted(numpy.argsort(-by_label[:-1], kind="stable")[:MAX_LABELS])
    target = numpy.full(len(labels), MAX_LABELS)
    target[[*kept, -1]] = [*range(MAX_LABELS), MAX_LABELS + 1]
    summed = numpy.eye(MAX_LABELS + 2)[target]
    names = [*(labels[i] for i in kept), f"{n_others} others", OUTSIDE]
    return Confusion(names, summed.T @ cost @ summed)
