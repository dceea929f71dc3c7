"""Pages of reports that take little time to make."""

from typing import Any
from unittest.mock import patch

from spacy_costner.analysis.reporting import Report
from spacy_costner.cli.report import report_page


def page_without_figures(report: Report) -> str:
    """The page with empty figures, as it takes a second to draw them. The curves of precision and
    recall are drawn and not shown: the script of the page has the limits of their axes."""

    def draw_nothing(*_: Any, **__: Any) -> None:
        """Stands for a function that draws a figure."""

    with (
        patch("spacy_costner.cli.plots.draw_transitions", draw_nothing),
        patch("spacy_costner.cli.plots.reliability_diagram", draw_nothing),
        patch("spacy_costner.cli.report.draw_confusion", draw_nothing),
        patch("spacy_costner.cli.plots.as_svg", lambda *_: "<svg></svg>"),
    ):
        return report_page(report)
