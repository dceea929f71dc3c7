"""The plots of a report, each with its caption."""

from html import escape
from typing import Any, NamedTuple, Optional

import numpy

from ...tags import OUTSIDE
from ..explain import TransitionWeights, draw_transitions
from ..plots import as_svg, heat_map, precision_recall, promised_and_observed, reliability_diagram
from .findings import Confusion, Findings
from .words import number, percent

MOST = 15
"""Labels with rows of their own in a figure, if there are more."""


FOLDED = (
    f" The {MOST} labels with the costliest mistakes have rows and columns of their own; those of "
    "the others are summed, with the mistakes among them on the diagonal."
)


class Plot(NamedTuple):
    """A plot on the page.

    name (str): Its name, the prefix of its ids.
    figure (Figure): The figure.
    caption (str): The caption, in HTML.
    may_scroll (bool): Whether to scroll it, rather than scale it down, on narrow screens.
    """

    name: str
    figure: Any
    caption: str
    may_scroll: bool = False

    @property
    def svg(self) -> str:
        """The <svg> element."""
        return as_svg(self.figure, self.name)


def curve(findings: Findings) -> Plot:
    """Precision against recall, and the point of the pipeline."""
    value, precision, recall = findings.setting
    setting = f"{findings.parameter} {value:g}" if findings.parameter else "minimum cost"
    scores = f"P {percent(precision)}, R {percent(recall)}"
    figure = precision_recall(
        findings.curves, (precision, recall), chosen_name=f"current setting: {scores}"
    )
    caption = (
        f"Precision against recall, in percent. The large point is the pipeline with its current "
        f"setting ({escape(setting)}). The curves show other values of the threshold and of the "
        "bias on these docs, some with their value. Grey lines are lines of equal F. Values with a "
        "much lower F are left out."
    )
    return Plot("precision-recall", figure, caption)


def reliability_plot(findings: Findings) -> Optional[Plot]:
    """Confidence against precision; None if nothing was predicted."""
    rows = findings.scores["ents_reliability"]
    if rows is None:
        return None
    caption = (
        "Precision of predicted entities by confidence, and the number of entities in each bin. On "
        "the dashed line, confidences are calibrated; below it, the model is overconfident. "
        "Vertical lines are 95 % confidence intervals (Wilson). Expected calibration error: "
        f"{number(findings.scores['ents_ece'], 4)}, at temperature "
        f"{escape(findings.about.settings['temperature'])}."
    )
    return Plot("reliability", reliability_diagram(rows), caption)


def guarantee_plot(findings: Findings) -> Optional[Plot]:
    """Promised and observed miss rates; None if nothing is promised."""
    if not findings.guarantee:
        return None
    chosen = float(findings.about.settings["guaranteed miss rate"])
    caption = (
        "Miss rate of guaranteed sets on these docs, against the rate that was promised on the "
        "calibration docs, and the size of the sets. Below the dashed line, less is missed than "
        "promised; a promise of the mean may be exceeded by chance. The large point is the "
        "pipeline's own promise."
    )
    return Plot("guarantee", promised_and_observed(findings.guarantee, chosen), caption)


def confusion_plot(findings: Findings) -> Optional[Plot]:
    """The confusion matrix; None if there are no mistakes."""
    labels, cost = fold(findings.confusion)
    if not findings.mistakes.shown and not cost.any():
        return None
    priced = bool(findings.pricing.name)
    unit = "cost" if priced else "tokens with a wrong tag"
    figure = heat_map(
        cost,
        labels,
        labels,
        ylabel="annotated",
        xlabel="predicted",
        unit=unit,
        number="{:,.0f}" if cost.max() >= 10 or not priced else "{:.2g}",
    )
    how = (
        f"Cost of mistakes (<code>{escape(findings.pricing.name)}</code>), summed over all tokens, "
        "by annotated label (rows) and predicted label (columns)."
        if priced
        else "Tokens with a wrong tag, by annotated label (rows) and predicted label (columns)."
    )
    caption = (
        f"{how} O stands for no entity: its column has the missed entities, its row the false "
        "alarms. The diagonal has the wrong boundaries. Colours are on a square root scale. Labels "
        "without mistakes are left out."
        f"{'' if labels == findings.confusion.labels else FOLDED}"
    )
    return Plot("confusion", figure, caption, may_scroll=True)


def fold(confusion: Confusion) -> Confusion:
    """Sum all but the labels of the costliest mistakes as one, if there are many.

    confusion (Confusion): The confusion matrix.
    RETURNS (Confusion): One with at most 17 rows: 15 labels, the others, O. Its sum is the same.
    """
    labels, cost = confusion
    n_others = len(labels) - 1 - MOST
    if n_others < 2:
        return confusion
    by_label = cost.sum(axis=0) + cost.sum(axis=1) - cost.diagonal()
    kept = sorted(numpy.argsort(-by_label[:-1], kind="stable")[:MOST])
    target = numpy.full(len(labels), MOST)
    target[[*kept, -1]] = [*range(MOST), MOST + 1]
    summed = numpy.eye(MOST + 2)[target]
    names = [*(labels[i] for i in kept), f"{n_others} others", OUTSIDE]
    return Confusion(names, summed.T @ cost @ summed)


def transitions_plot(findings: Findings) -> Plot:
    """The transition weights; if there are many labels, those of the most frequent."""
    caption = (
        "Weight of the transition from each tag (rows) to each tag (columns), in nats. Blue: above "
        "0, the model favours the transition. Red: below 0. Grey: forbidden by the tag scheme."
    )
    table = findings.transitions
    labels = [name.partition("-")[2] for name in table.origins]
    if len({*labels} - {""}) > MOST + 1:
        counts = findings.labels
        order = sorted(counts, key=lambda label: -counts[label].tp - counts[label].fn)
        shown = [i for i, label in enumerate(labels) if label in ["", *order[:MOST]]]
        table = TransitionWeights(
            [table.origins[i] for i in shown],
            [table.targets[i] for i in shown],
            [[table.weights[i][j] for j in shown] for i in shown],
        )
        caption += f" Tags of the {MOST} most frequent labels; <code>explain</code> shows all."
    return Plot("transitions", draw_transitions(table), caption, may_scroll=True)
