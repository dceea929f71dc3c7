"""Reports that take little time to make."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from spacy_costner.cli import svg
from spacy_costner.cli.report import report_page
from spacy_costner.workflows.reports.reporting import Report

FIGURES = {
    "precision-recall": "spacy_costner.cli.plots.precision_recall",
    "transitions": "spacy_costner.cli.plots.draw_transitions",
    "reliability": "spacy_costner.cli.plots.reliability_diagram",
    "confusion": "spacy_costner.cli.report.draw_confusion",
}
"""The functions that draw the figures of a page."""

AXES = SimpleNamespace(get_xlim=lambda: (0.0, 1.0), get_ylim=lambda: (0.0, 1.0))
EMPTY = SimpleNamespace(axes=[AXES])
"""A figure with nothing on it. The script of a page has the limits of its axes."""


@contextmanager
def figures_left_out(*, drawn: tuple[str, ...] = ()) -> Iterator[None]:
    """Pages of reports have empty figures, as it takes a second to draw them. Those in `drawn` are
    drawn."""
    as_svg = svg.as_svg

    def svg_or_nothing(figure: Any, name: str) -> str:
        """The <svg> element of a figure, which is empty if the figure is."""
        return "<svg></svg>" if figure is EMPTY else as_svg(figure, name)

    with ExitStack() as patches:
        for name, function in FIGURES.items():
            if name not in drawn:
                patches.enter_context(patch(function, autospec=True, return_value=EMPTY))
        patches.enter_context(patch("spacy_costner.cli.report.as_svg", svg_or_nothing))
        yield


def page_without_figures(report: Report, *, drawn: tuple[str, ...] = ()) -> str:
    """The page with empty figures, apart from those in `drawn`."""
    with figures_left_out(drawn=drawn):
        return report_page(report)
