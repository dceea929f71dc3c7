"""Reports that take little time to make."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from spacy_costner.cli.report import report_page
from spacy_costner.workflows.reports.reporting import Report


@contextmanager
def figures_left_out() -> Iterator[None]:
    """Pages of reports have empty figures, as it takes a second to draw them. The curves of
    precision and recall are drawn and not shown: the script of the page has the limits of their
    axes."""

    def draw_nothing(*_: Any, **__: Any) -> None:
        """Stands for a function that draws a figure."""

    with (
        patch("spacy_costner.cli.plots.draw_transitions", draw_nothing),
        patch("spacy_costner.cli.plots.reliability_diagram", draw_nothing),
        patch("spacy_costner.cli.report.draw_confusion", draw_nothing),
        patch("spacy_costner.cli.report.as_svg", lambda *_: "<svg></svg>"),
    ):
        yield


def page_without_figures(report: Report) -> str:
    """The page with empty figures."""
    with figures_left_out():
        return report_page(report)
