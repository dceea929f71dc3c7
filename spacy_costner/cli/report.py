"""Evaluate a pipeline on a test corpus and write an HTML report.

The decorator `command` adds the options of `report`. `run` is `report` with these options set.
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
"""Maximum number of tags, including the start state, for which the heat map of transitions is
shown. This corresponds to 16 labels in the BILUO scheme."""

MIN_WHOLE_COST = 10
"""If the highest cost is below this value, costs are shown with two significant digits. Otherwise,
they are rounded to whole numbers."""


@command(
    report,
    options={"n_mistakes": Option("--mistakes", "-n", min=0)},
    without=("source", "corpus"),
)
@reads_corpora
def report_cli(
    run: partial[Report],  # `report` with its options set by `command`
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
    if "labels" in result.facts:  # only set if no label of the component is annotated
        typer.echo(f"report: {result.facts['labels']}", err=True)
    for note in result.notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"Written to {output_path}")


def report_page(report: Report) -> str:
    """Render a report as a self-contained HTML page.

    RAISES (ImportError): If matplotlib isn't installed.
    """
    setting = report.setting
    p_and_r = f"P {percent(setting.precision)}, R {percent(setting.recall)}"
    curves_figure = plots.precision_recall(
        report.curves,
        chosen=(setting.precision, setting.recall),
        chosen_name=f"current setting: {p_and_r}",
    )

    # The figures, keyed by their names in the template. If a figure other than the optional
    # guarantee is missing, the page explains why.
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
    # The number of labels with a separate row, or 0 if no labels were merged
    n_kept = 0
    if len(confusion.labels) < len(report.confusion.labels):
        n_kept = MAX_HEAT_MAP_LABELS

    # The page's script moves a point in the figure and needs the axis limits for this.
    (axes,) = curves_figure.axes
    limits = [*axes.get_xlim(), *axes.get_ylim()]
    data = slider_data(report, limits)
    svgs = {name: Markup(as_svg(figure, name)) for name, figure in figures.items()}
    return render("report.html", report=report, data=data, figures=svgs, n_kept=n_kept)


def draw_confusion(confusion: Confusion, *, has_cost: bool) -> Any:
    """Plot the costs of a confusion matrix as a heat map. If no costs are configured, each wrong
    tag costs 1, so the plot shows numbers of tokens."""
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
    """Create the JSON data for the threshold slider on the page. `limits` contains the axis limits
    of the precision-recall plot: minimum and maximum recall, then minimum and maximum precision."""
    # The initial threshold is the pipeline's threshold, or 0.5 if it has none.
    threshold = 0.5
    if report.parameter == "threshold":
        threshold = report.setting.value
    # The slider only supports the thresholds in the report, so start at the nearest one.
    distances = [abs(counts.threshold - threshold) for counts in report.thresholds]
    start = distances.index(min(distances))
    model = shlex.quote(report.facts["pipeline"] or "MODEL")
    name = shlex.quote(report.facts["component"] or "NAME")
    # The page shows the command for setting the selected threshold. A script on the page adds
    # --precision or --recall.
    command = (
        f"python -m spacy costner tune {model} dev.spacy --output tuned --name {name} "
        "--parameter threshold"
    )
    counts = report.setting_counts
    return {
        "thresholds": report.thresholds,
        "start": start,
        "total": [counts.tp, counts.fp, counts.fn],
        "miss_costs": MISS_COSTS,  # in units of false alarms
        "limits": limits,
        "command": command,
    }


def sum_others(confusion: Confusion) -> Confusion:
    """Reduce the size of a large confusion matrix. Keep O and the `MAX_HEAT_MAP_LABELS` labels with
    the highest cost, and merge all other labels into one row and one column. The total cost doesn't
    change."""
    labels, cost = confusion
    n_others = len(labels) - 1 - MAX_HEAT_MAP_LABELS  # the last label is O
    if n_others < 2:  # merging a single label wouldn't save space
        return confusion
    # For each label, the total cost of all mistakes in which it is annotated or predicted. The
    # diagonal is included in both sums, so subtract it once.
    cost_of_label = cost.sum(axis=0) + cost.sum(axis=1) - cost.diagonal()
    costliest_first = numpy.argsort(-cost_of_label[:-1], kind="stable")  # without O
    kept_labels = sorted(costliest_first[:MAX_HEAT_MAP_LABELS])

    # Map each label to its new index: first the kept labels, then the merged labels, then O.
    others_index = MAX_HEAT_MAP_LABELS
    outside_index = MAX_HEAT_MAP_LABELS + 1
    new_index = numpy.full(len(labels), others_index)
    new_index[kept_labels] = range(MAX_HEAT_MAP_LABELS)
    new_index[-1] = outside_index
    # A one-hot matrix that maps old to new indices. Multiplying by it sums the rows and columns of
    # labels with the same new index. Shape: (old, new)
    is_new_index = numpy.eye(MAX_HEAT_MAP_LABELS + 2)[new_index]
    sums = is_new_index.T @ cost @ is_new_index
    names = [labels[i] for i in kept_labels]
    return Confusion([*names, f"{n_others} others", OUTSIDE], sums)
