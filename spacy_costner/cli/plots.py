"""Plots: heat maps, precision against recall, reliability diagrams. Each is a figure of matplotlib,
and raises an ImportError if that is not installed.

A figure is saved to a file, or embedded in a page as SVG. There the colours below are replaced by
variables of the style sheet, for light and dark mode.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any
from warnings import catch_warnings, filterwarnings
from xml.etree import ElementTree

import numpy
from thinc.types import Floats2d

from ..analysis.explanation import TransitionWeights
from ..metrics import f_beta
from ..metrics.calibration import wilson
from ..validation import require

COLOURS = {
    "ink": "#1c2733",
    "muted": "#66727e",
    "rule": "#d5dbe1",
    "accent": "#2467a6",
    "second": "#8a6a1f",
    "alert": "#c2442a",
}
"""The variables of the style sheet."""

INK, MUTED, RULE, ACCENT, SECOND, ALERT = COLOURS.values()

BLUE, RED, GREY = (0.16, 0.47, 0.77), (0.85, 0.33, 0.2), (0.5, 0.5, 0.5)
"""The colours of heat maps, in light and dark mode."""

SETTINGS: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "figure.figsize": (5.2, 4.9),
    "font.size": 9,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "spacy-costner",
    "text.color": INK,
    "text.parse_math": False,
}


for _axis in ("xtick", "ytick"):
    SETTINGS.update({f"{_axis}.color": MUTED, f"{_axis}.labelcolor": INK})
    SETTINGS.update({f"{_axis}.labelsize": 8, f"{_axis}.major.width": 0.6})


DASHED: Any = {"color": MUTED, "linewidth": 0.8, "linestyle": (0, (4, 3))}

NOTE: Any = {"textcoords": "offset points", "annotation_clip": True, "fontsize": 7}

MAX_NUMBERED = 17
"""Maximum rows or columns of a heat map with numbers in its cells."""

CELL = "cell-"
"""The prefix of the ids of cells. Their labels become titles, shown on hover."""

NOT_IN_XML = {
    code: "\N{REPLACEMENT CHARACTER}"
    for code in (*range(9), 11, 12, *range(14, 32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
}
"""Characters of a label that XML can't have."""

REFERENCE = re.compile(r"(?:^|url\()#([\w-]+)")
"""A reference to an id, in an attribute."""

FRAME, CHOSEN = "frame", "chosen"
"""Ids that become classes: the rectangle of the axes, the highlighted point."""


def require_matplotlib() -> None:
    """RAISES (ImportError): If matplotlib is not installed."""
    require("matplotlib.figure", "report", "plots require matplotlib")


@contextmanager
def drawing() -> Iterator[Any]:
    """Set matplotlib up, and yield its Figure class."""
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS), catch_warnings():
        # Matplotlib's font may lack glyphs of a label that the browser's font has.
        filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield Figure


def save(figure: Any, path: Path) -> None:
    """Save a figure. The suffix of the file determines its format."""
    with drawing():
        figure.savefig(path)


def as_svg(figure: Any, name: str) -> str:
    """The <svg> element of a figure, for a page whose style sheet has our colours as variables.
    The name is the prefix of all ids. Cells of heat maps show their values on hover."""
    buffer = StringIO()
    with drawing():
        no_metadata = dict.fromkeys(["Creator", "Date", "Format", "Type"])
        figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    titles = {}
    for artist in figure.findobj(lambda artist: (artist.get_gid() or "").startswith(CELL)):
        titles[artist.get_gid()] = artist.get_label()
    svg = ElementTree.fromstring(buffer.getvalue().translate(NOT_IN_XML))
    for parent in list(svg.iter()):
        for child in list(parent):
            local_name = child.tag.rpartition("}")[2]
            if local_name in ("metadata", "style"):
                parent.remove(child)
    used_ids: set[str] = set()
    for element in svg.iter():
        for value in element.attrib.values():
            used_ids.update(REFERENCE.findall(value))
    for element in svg.iter():
        # In HTML, the elements of <svg> have its namespace without a prefix.
        element.tag = element.tag.rpartition("}")[2]
        attributes = dict(element.attrib)
        element.attrib.clear()
        gid = attributes.pop("id", "")
        if gid in (FRAME, CHOSEN):
            element.set("class", gid)
        elif gid in titles:
            title = ElementTree.Element("title")
            title.text = titles[gid].translate(NOT_IN_XML)
            element.insert(0, title)
        elif gid in used_ids:
            element.set("id", f"{name}-{gid}")
        for key, value in attributes.items():
            _set_attribute(element, key.rpartition("}")[2], value, name)
    return ElementTree.tostring(svg, encoding="unicode").strip()


def _set_attribute(element: ElementTree.Element, key: str, value: str, name: str) -> None:
    """Set an attribute, with variables of the style sheet for our colours, and with a prefix in
    references to ids."""
    value = value.replace("url(#", f"url(#{name}-")
    if key == "href" and value.startswith("#"):
        value = f"#{name}-{value[1:]}"
    for variable, colour in COLOURS.items():
        value = value.replace(colour, f"var(--{variable})")
    element.set(key, value)


def heat_map(
    values: Floats2d,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    ylabel: str,
    xlabel: str,
    unit: str,
    number: str = "{:.1f}",
    title: str = "",
) -> Any:
    """Plot a heat map: blue above 0, red below. If no value is below 0, red on a square root
    scale, so that small values can be seen. Up to 17 rows and columns have numbers.

    values (Floats2d): The values. NaN is grey. Shape: (rows, columns)
    unit (str): The label of the colour bar.
    number (str): The format of the numbers in the cells.
    """
    n = max(values.shape)
    is_numbered = n <= MAX_NUMBERED
    cell = min(0.42, 6.2 / n) if is_numbered else max(0.13, 0.24 - 0.002 * n)
    margin = 0.07 * max(map(len, [*rows, *columns]))
    width, height = margin + 1.5 + cell * len(columns), margin + 0.7 + cell * len(rows)
    with drawing() as figure_class:
        figure = figure_class(figsize=(width, height))
        axes = figure.add_subplot(aspect="equal", xlabel=xlabel, ylabel=ylabel, title=title)
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
        size = 8 if cell >= 0.2 else 6
        axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=size)
        axes.set_yticks(range(len(rows)), rows, fontsize=size)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        colours = _colours(values)
        shades = colours.to_rgba(values).reshape(-1, 4)
        i, j = numpy.indices(values.shape).reshape(2, -1)
        cells = axes.bar(j, 1, 1, i - 0.5, color=shades, edgecolor=RULE, linewidth=0.4)
        for patch, shade, row, column in zip(cells, shades, i, j):
            if not numpy.nan_to_num(value := values[row, column]):
                continue
            patch.set_gid(f"{CELL}{row}-{column}")  # no label: ids are markup
            patch.set_label(f"{rows[row]} \N{RIGHTWARDS ARROW} {columns[column]}: {value:,.6g}")
            if is_numbered:
                text = number.format(value)
                text = text if text.strip("-0.,") else text.lstrip("-")  # "-0.0" is "0.0"
                ink = "#ffffff" if shade[3] > 0.65 else INK
                axes.text(column, row, text, ha="center", va="center", fontsize=7, color=ink)
        shrink = min(1.0, 2.5 / (cell * len(rows)))
        bar = figure.colorbar(colours, ax=axes, label=unit, shrink=shrink)
        bar.outline.set_visible(False)
        bar.solids.set_rasterized(True)
        return figure


def draw_transitions(table: TransitionWeights) -> Any:
    """Plot transition weights as a heat map. Forbidden transitions are grey."""
    weights = numpy.asarray(table.weights, dtype="float64")
    return heat_map(
        weights, table.origins, table.targets, ylabel="from", xlabel="to", unit="weight"
    )


def _colours(values: Floats2d) -> Any:
    """The colours of a heat map, a ScalarMappable. Opacity grows with the value, so that cells are
    legible in light and dark mode."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize, PowerNorm

    most = float(numpy.nanmax(numpy.abs(values), initial=0)) or 1.0
    stops: Any = [(0, (*RED, 0)), (1, (*RED, 1))]
    norm: Normalize = PowerNorm(0.5, 0, most)
    if (values < 0).any():
        stops = [(0, (*RED, 1)), (0.5, (*RED, 0)), (0.5, (*BLUE, 0)), (1, (*BLUE, 1))]
        norm = Normalize(-most, most)
    colours = LinearSegmentedColormap.from_list("ours", stops)
    return ScalarMappable(norm, colours.with_extremes(bad=(*GREY, 0.22)))


def precision_recall(
    curves: Mapping[str, Sequence[tuple[float, float, float]]],
    chosen: tuple[float, float],
    *,
    chosen_name: str,
    title: str = "",
) -> Any:
    """Plot precision against recall, with lines of equal F and a highlighted point. One or two
    curves have the values of a parameter, each with precision and recall. Points with an F below
    0.8 of the best may be outside of the plot."""
    # Rows of value, precision and recall. Shapes: (points, 3)
    tables = [numpy.asarray(points) for points in curves.values()]
    good_tables = []
    for table in tables:
        f_scores = f_beta(table[:, 1], table[:, 2])
        good_tables.append(table[f_scores >= 0.8 * f_scores.max()])
    # The axes begin at a multiple of 0.1 below the lowest precision and recall of these points.
    lowest_of_tables = [table[:, 1:].min(axis=0) for table in good_tables]
    lowest = numpy.min([chosen, *lowest_of_tables], axis=0)
    low_precision, low_recall = numpy.maximum(0, numpy.floor(10 * lowest - 0.5) / 10)
    with drawing() as figure_class:
        figure = figure_class()
        axes = figure.add_subplot(
            xlim=(low_recall, 1.005),
            ylim=(low_precision, 1.005),
            title=title,
            xlabel="recall (% of annotated entities)",
            ylabel="precision (% of predicted entities)",
        )
        axes.xaxis.set_major_formatter(_to_percent)
        axes.yaxis.set_major_formatter(_to_percent)
        _draw_lines_of_f(axes, low_recall)
        labels = []
        for name, table, good, colour in zip(curves, tables, good_tables, (ACCENT, SECOND)):
            _, precision, recall = table.T
            axes.plot(recall, precision, color=colour, linewidth=1.3, marker=".", markersize=3)
            axes.plot([], [], color=colour, marker=".", label=f"values of the {name}")
            # About five values a curve are written, none of them at the highlighted point.
            distances = numpy.hypot(*(good[:, 1:] - chosen).T)
            distant = good[distances > 0.04]
            labels += [(point, colour) for point in distant[:: max(1, len(distant) // 5)]]
        chosen_precision, chosen_recall = chosen
        axes.plot(
            [chosen_recall],
            [chosen_precision],
            "o",
            color=ALERT,
            markersize=7,
            label=chosen_name,
            gid=CHOSEN,
        )
        axes.patch.set_gid(FRAME)
        figure.legend(loc="outside upper left", frameon=False, fontsize=8)
        figure.draw_without_rendering()
        _label_points(axes, labels)
        return figure


def _draw_lines_of_f(axes: Any, low_recall: float) -> None:
    """Draw the lines of F = 0.1 ... 0.9, with their names at the right.

    p = f r / (2 r - f),  which is at most 1 if r >= f / (2 - f)
    """
    f = numpy.arange(1, 10) / 10
    first_recall = numpy.maximum(f / (2 - f), max(low_recall, 0.01))
    recall = numpy.linspace(first_recall, 1, 100)  # shape: (100, 9), a column for each F
    precision = f * recall / (2 * recall - f)
    axes.plot(recall, precision, color=RULE, linewidth=0.8, zorder=0)
    for name, y in zip([*range(10, 90, 10), "F 90"], precision[-1]):
        axes.annotate(name, (1.005, y), (4, 3), color=MUTED, va="center", **NOTE)


def _to_percent(share: float, position: int) -> str:
    """The label of a tick of an axis of shares."""
    return f"{100 * share:.4g}"


def _label_points(axes: Any, labels: Sequence[tuple[Any, str]]) -> None:
    """Write the value of each point in its colour, on a side where it is over no other text and
    over no curve. Without such a side, leave it out."""
    taken_boxes = [text.get_window_extent() for text in axes.texts]
    # Points of the curves and between them, in pixels. The lines of F, at zorder 0, may be covered.
    points = []
    for line in axes.lines:
        if line.get_zorder() > 0:
            curve = line.get_xydata()
            points += [curve, numpy.linspace(curve[:-1], curve[1:], 20).reshape(-1, 2)]
    pixels = axes.transData.transform(numpy.concatenate(points))
    offsets = [("left", 4), ("right", -4)]
    for (value, precision, recall), colour in labels:
        for (side, x), y in product(offsets, (3, -9, -3)):
            text = axes.annotate(
                f"{value:g}", (recall, precision), (x, y), color=colour, ha=side, **NOTE
            )
            box = text.get_window_extent()
            if not box.count_contains(pixels) and box.count_overlaps(taken_boxes) == 0:
                taken_boxes.append(box)
                break
            text.remove()


def reliability_diagram(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Plot precision against confidence, with 95 % confidence intervals, and the size of each bin:
    see `calibration.reliability`."""
    filled = [row for row in rows if row["n"]]
    confidence = [row["confidence"] for row in filled]
    precision = [row["right"] for row in filled]
    intervals = [wilson(row["right"], row["n"]) for row in filled]
    low, high = zip(*intervals)
    middles = [(row["from"] + row["to"]) / 2 for row in rows]
    with drawing() as figure_class:
        figure = figure_class()
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
        above.grid(axis="y")
        below.grid(axis="y")
        above.plot([0, 1], [0, 1], **DASHED)
        above.vlines(confidence, low, high, color=ACCENT, linewidth=1.2, alpha=0.5)
        above.plot(confidence, precision, color=ACCENT, linewidth=1.2, marker="o", markersize=4)
        above.set(xlim=(0, 1.01), ylim=(0, 1.02), ylabel="precision (share of correct entities)")
        counts = [row["n"] for row in rows]
        below.bar(middles, counts, width=0.86 / len(rows), color=ACCENT, alpha=0.6)
        below.set(xlabel="confidence (probability of the entity)", ylabel="entities")
        return figure


def promised_and_observed(rows: Sequence[tuple[float, float, float]], chosen: float) -> Any:
    """Plot observed against promised miss rates, and spans for each annotated entity: see
    `observe`. The rate that the pipeline promises is highlighted."""
    promised, miss_rates, n_spans = zip(*rows)
    sizes = [49 if limit == chosen else 16 for limit in promised]
    colours = [ALERT if limit == chosen else ACCENT for limit in promised]
    with drawing() as figure_class:
        figure = figure_class()
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        above.plot([0, max(promised)], [0, max(promised)], **DASHED)
        for axes, observed in ((above, miss_rates), (below, n_spans)):
            axes.grid(axis="y")
            axes.plot(promised, observed, color=ACCENT, linewidth=1.2)
            axes.scatter(promised, observed, sizes, colours, zorder=3)
        above.set(ylabel="observed miss rate", ylim=(0, None))
        below.set(ylabel="spans for each entity", xlabel="promised miss rate")
        below.set(ylim=(0, 1.1 * max(n_spans)))
        return figure


def draw_martingale(logs: Sequence[float], level: float) -> Any:
    """Draw the martingale after each doc, from its logarithm, and the level at which it alarms."""
    with drawing() as figure_class:
        figure = figure_class(figsize=(6, 3))
        axes = figure.add_subplot(xlabel="docs, in their order", ylabel="martingale, power of ten")
        axes.plot(range(1, len(logs) + 1), numpy.asarray(logs) / numpy.log(10), color=ACCENT)
        axes.axhline(numpy.log10(level), **DASHED)
        return figure
