"""The pictures of a report, each with its caption."""

from html import escape
from typing import List, NamedTuple, Optional

from ..explain import draw_transitions
from ..plots import as_svg, heat_map, precision_recall, reliability_diagram
from .findings import Findings
from .words import number, percent


class Picture(NamedTuple):
    """A picture to stand in a page.

    name (str): Its name, which its ids begin with.
    svg (str): The <svg> element.
    caption (str): What it shows, in HTML.
    may_scroll (bool): Whether it is rather moved than made smaller where there is no room.
    """

    name: str
    svg: str
    caption: str
    may_scroll: bool = False


def curve(findings: Findings) -> Picture:
    """Precision against recall, and where the pipeline stands now."""
    value, precision, recall = findings.setting
    setting = f"{findings.dial} {value:g}" if findings.dial else "minimum cost"
    scores = f"P {percent(precision)}, R {percent(recall)}"
    figure = precision_recall(
        findings.curves, (precision, recall), chosen_name=f"present setting: {scores}"
    )
    caption = (
        f"Precision against recall, both as shares from 0 to 1. The large point is the pipeline as "
        f"it is set now ({escape(setting)}); the curves are what other settings of the threshold "
        "and of the bias would give on these docs, with some settings written beside them. Grey "
        "lines join points of equal F. Settings of much lower F are left out."
    )
    return Picture("precision-recall", as_svg(figure, "precision-recall"), caption)


def reliability_picture(findings: Findings) -> Optional[Picture]:
    """Confidence against the share that is right; None if nothing was predicted."""
    rows = findings.scores["ents_reliability"]
    if rows is None:
        return None
    caption = (
        "Of the answers of about equal confidence, the share that is right; and, below, how many "
        "such answers there are. On the dashed line confidence means what it says; below it the "
        "model is too sure of itself. Vertical lines are 95 % intervals (Wilson). Expected "
        f"calibration error: {number(findings.scores['ents_ece'], 4)}, at temperature "
        f"{escape(findings.about.settings['temperature'])}."
    )
    return Picture("reliability", as_svg(reliability_diagram(rows), "reliability"), caption)


def confusion_picture(findings: Findings) -> Optional[Picture]:
    """What was taken for what; None if there was no mistake."""
    labels, cost = findings.confusion
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
        f"What mistakes cost (<code>{escape(findings.pricing.name)}</code>), added up over all "
        "tokens, by annotated label (rows) and predicted label (columns)."
        if priced
        else "Tokens with a wrong tag, by annotated label (rows) and predicted label (columns)."
    )
    caption = (
        f"{how} O is no entity: its column has what was missed, its row false alarms, the diagonal "
        "wrong boundaries. The colour goes by the square root. Labels that were never mistaken "
        "are left out."
    )
    return Picture("confusion", as_svg(figure, "confusion"), caption, may_scroll=True)


def transitions_picture(findings: Findings) -> Picture:
    """The weights of transitions."""
    caption = (
        "The weight of the step from each tag (rows) to each (columns), as a score in nats: above "
        "0, blue, the model likes the step; below 0, red, it doesn't. Grey steps are forbidden by "
        "the tag scheme."
    )
    figure = draw_transitions(findings.steps)
    return Picture("transitions", as_svg(figure, "transitions"), caption, may_scroll=True)


def pictures(findings: Findings) -> List[Optional[Picture]]:
    """All pictures, in the order of the page; None where there is nothing to draw.

    findings (Findings): What there is to say.
    RETURNS (List[Optional[Picture]]): Curve, reliability, confusion, transitions.
    RAISES (ImportError): If matplotlib is not installed.
    """
    return [
        curve(findings),
        reliability_picture(findings),
        confusion_picture(findings),
        transitions_picture(findings),
    ]
