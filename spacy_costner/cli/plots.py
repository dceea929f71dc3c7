"""Plots: heat maps, precision against recall, reliability diagrams. Needs matplotlib.

A figure is saved to a file, or embedded in a page as SVG. There the colours below are replaced by
variables of the style sheet, for light and dark mode.
"""

import re
from contextlib import contextmanager
from io import StringIO
from itertools import product
from math import dist
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Sequence, Tuple
from warnings import catch_warnings, filterwarnings

import numpy
from thinc.types import Floats2d

from ..metrics import f_beta, to_percent
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
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "font.size": 9,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "spacy-costner",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 8,
    "xtick.major.width": 0.6,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 8,
    "ytick.major.width": 0.6,
}

MAX_NUMBERED = 17
"""Maximum rows or columns of a heat map with numbers in its cells."""

CELL = "cell: "
"""The prefix of ids that become titles, shown on hover."""


def require_matplotlib() -> None:
    """Check that matplotlib is installed.

    RAISES (ImportError): If it is not installed.
    """
    require("matplotlib.figure", "report", "plots require matplotlib")


@contextmanager
def drawing() -> Iterator[Any]:
    """Set up matplotlib.

    YIELDS (Type[Figure]): Matplotlib's Figure class.
    RAISES (ImportError): If matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS), catch_warnings():
        # Matplotlib's font may lack glyphs of a label that the browser's font has.
        filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield Figure


def save(figure: Any, path: Path) -> None:
    """Save a figure.

    figure (Figure): The figure.
    path (Path): The file. Its suffix determines the format.
    """
    with drawing():
        figure.savefig(path)


def as_svg(figure: Any, name: str) -> str:
    """Render a figure as SVG for a page whose style sheet has our colours as variables.

    figure (Figure): The figure.
    name (str): A name that is unique on the page.
    RETURNS (str): The <svg> element.
    """
    buffer = StringIO()
    with drawing():
        for axes in figure.axes:
            if axes.images:
                _name_cells(axes)
        nothing = dict.fromkeys(["Creator", "Date", "Format", "Type"])
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(rf'<g id="{CELL}([^"]*)">', r"<g><title>\1</title>", text)
    text = _with_own_ids(text, name)
    for variable, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{variable})")
    return text


def _name_cells(axes: Any) -> None:
    """Lay a patch over each cell of a heat map that isn't 0, with row, column and value as id."""
    from matplotlib.patches import Rectangle

    rows, columns = (
        [label.get_text() for label in labels]
        for labels in (axes.get_yticklabels(), axes.get_xticklabels())
    )
    for (i, j), value in numpy.ndenumerate(axes.images[0].get_array().filled(0)):
        if value:
            name = f"{CELL}{rows[i]} \N{RIGHTWARDS ARROW} {columns[j]}: {value:,.6g}"
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, alpha=0, zorder=9, gid=name))


def _with_own_ids(text: str, name: str) -> str:
    """Remove ids that nothing refers to, and prefix the others with a name."""
    used = set(re.findall(r'(?:url\(|href=")#([\w-]+)', text))
    text = re.sub(
        r' id="([^"]*)"',
        lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "",
        text,
    )
    return re.sub(r'(url\(|href=")#', rf"\g<1>#{name}-", text)


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
    scale, so that small values can be seen.

    values (Floats2d): The values. NaN is grey. Shape: (R, C)
    rows (Sequence[str]): The names of the rows.
    columns (Sequence[str]): The names of the columns.
    ylabel (str): The label of the y axis.
    xlabel (str): The label of the x axis.
    unit (str): The label of the colour bar.
    number (str): The format of the numbers in the cells.
    title (str): The title.
    RETURNS (Figure): The figure.
    RAISES (ImportError): If matplotlib is not installed.
    """
    n = max(values.shape)
    numbered = n <= MAX_NUMBERED
    cell = min(0.42, 6.2 / n) if numbered else max(0.13, 0.24 - 0.002 * n)
    margin = 0.07 * max(map(len, [*rows, *columns]))
    width, height = margin + 1.5 + cell * len(columns), margin + 0.7 + cell * len(rows)
    with drawing() as figure_class:
        figure = figure_class(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(values, **_colours(values), interpolation="none", aspect="equal")
        size = 8 if cell >= 0.2 else 6
        axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=size)
        axes.set_yticks(range(len(rows)), rows, fontsize=size)
        axes.tick_params(length=0)
        axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
        axes.spines[:].set_visible(False)
        for i in range(len(rows) + 1):
            axes.axhline(i - 0.5, color=RULE, linewidth=0.4)
        for i in range(len(columns) + 1):
            axes.axvline(i - 0.5, color=RULE, linewidth=0.4)
        if numbered:
            _write_numbers(axes, image, number)
        bar = figure.colorbar(image, label=unit, shrink=min(1.0, 2.5 / (cell * len(rows))))
        bar.outline.set_visible(False)
        bar.solids.set_rasterized(True)
        return figure


def _colours(values: Floats2d) -> Dict[str, Any]:
    from matplotlib.colors import LinearSegmentedColormap, Normalize, PowerNorm

    known = values[numpy.isfinite(values)]
    most = float(numpy.abs(known).max(initial=0)) or 1.0
    if (known < 0).any():
        ends, norm = [(*RED, 1), (*RED, 0), (*BLUE, 0), (*BLUE, 1)], Normalize(-most, most)
        places = [0, 0.5, 0.5, 1]
    else:
        ends, norm = [(*RED, 0), (*RED, 1)], PowerNorm(0.5, 0, most)
        places = [0, 1]
    colours = LinearSegmentedColormap.from_list("ours", list(zip(places, ends)))
    return {"cmap": colours.with_extremes(bad=(*GREY, 0.22)), "norm": norm}


def _write_numbers(axes: Any, image: Any, number: str) -> None:
    values = image.get_array()
    opacity = image.to_rgba(values)[..., 3]
    for (i, j), value in numpy.ndenumerate(values.filled(0)):
        text = number.format(value)
        if not text.strip("-0.,"):
            text = text.lstrip("-")
        if value:
            colour = "#ffffff" if opacity[i, j] > 0.65 else INK
            axes.text(j, i, text, ha="center", va="center", fontsize=7, color=colour)


Points = Sequence[Tuple[float, float, float]]
"""Values of a parameter, each with precision and recall."""


def precision_recall(
    curves: Mapping[str, Points],
    chosen: Tuple[float, float],
    *,
    chosen_name: str,
    title: str = "",
) -> Any:
    """Plot precision against recall, with lines of equal F and a highlighted point.

    Points with an F far below the best may be outside of the plot.

    curves (Mapping[str, Points]): One or two curves: for each parameter its points.
    chosen (Tuple[float, float]): Precision and recall of the highlighted point.
    chosen_name (str): Its name in the legend.
    title (str): The title.
    RETURNS (Figure): The figure.
    RAISES (ImportError): If matplotlib is not installed.
    """
    good = {name: _good_ones(points) for name, points in curves.items()}
    seen = [chosen, *(point[1:] for points in good.values() for point in points)]
    with drawing() as figure_class:
        figure = figure_class(figsize=(5.2, 4.9), layout="constrained")
        axes = figure.add_subplot()
        axes.set(
            xlabel="recall (% of annotated entities)",
            ylabel="precision (% of predicted entities)",
            title=title,
            xlim=_limits([recall for _, recall in seen]),
            ylim=_limits([precision for precision, _ in seen]),
        )
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(to_percent)
        _draw_lines_of_equal_f(axes)
        labels = []
        for (name, points), colour in zip(curves.items(), (ACCENT, SECOND)):
            _, precision, recall = zip(*points)
            axes.plot(recall, precision, color=colour, linewidth=1.3, marker=".", markersize=3)
            away = [point for point in good[name] if dist(point[1:], chosen) > 0.04]
            labels += [(point, colour) for point in _spread(away, 5)]
            axes.plot([], [], color=colour, marker=".", label=f"values of the {name}")
        axes.plot([chosen[1]], [chosen[0]], "o", color=ALERT, markersize=7, label=chosen_name)
        figure.legend(loc="outside upper left", frameon=False, fontsize=8)
        figure.draw_without_rendering()
        _label_points(axes, labels)
        return figure


def _good_ones(points: Points) -> Points:
    """The points with an F of at least 0.8 of the best."""
    _, p, r = numpy.asarray(points).T
    f_scores = f_beta(p, r)
    return [point for point, f in zip(points, f_scores) if f >= 0.8 * f_scores.max()]


def _limits(values: Sequence[float]) -> Tuple[float, float]:
    """From a multiple of 0.1 below all values to 1."""
    return max(0.0, float(numpy.floor(10 * min(values) - 0.5)) / 10), 1.005


def _draw_lines_of_equal_f(axes: Any) -> None:
    low = axes.get_xlim()[0]
    for f in numpy.arange(1, 10) / 10:
        recall = numpy.linspace(max(f / (2 - f), low, 0.01), 1, 100)
        precision = f * recall / (2 * recall - f)
        axes.plot(recall, precision, color=RULE, linewidth=0.8, zorder=0)
        name = f"F {100 * f:.0f}" if f == 0.9 else f"{100 * f:.0f}"
        _annotate(axes, name, (1.005, float(precision[-1])), MUTED, va="center")


def _label_points(axes: Any, labels: Sequence[Tuple[Tuple[float, float, float], str]]) -> None:
    """Write the value of each point in its colour, on a side where it is over no other text and
    over no curve. Without such a side, leave it out."""
    taken = [text.get_window_extent() for text in axes.texts]
    curves = [line.get_xydata() for line in axes.lines if line.get_zorder()]
    between = [numpy.linspace(curve[:-1], curve[1:], 20).reshape(-1, 2) for curve in curves]
    drawn = axes.transData.transform(numpy.concatenate([*curves, *between]))
    for (value, precision, recall), colour in labels:
        for (side, x), y in product((("left", 4), ("right", -4)), (3, -9, -3)):
            place = {"xytext": (x, y), "ha": side}
            text = _annotate(axes, f"{value:g}", (recall, precision), colour, **place)
            box = text.get_window_extent()
            if not box.count_contains(drawn) and box.count_overlaps(taken) == 0:
                taken.append(box)
                break
            text.remove()


def _annotate(axes: Any, text: str, place: Tuple[float, float], colour: str, **more: Any) -> Any:
    settings = {"xytext": (4, 3), "annotation_clip": True, "fontsize": 7, **more}
    return axes.annotate(text, place, textcoords="offset points", color=colour, **settings)


def _spread(points: Points, n: int) -> Points:
    """About n points at equal distances along the curve."""
    if not points:
        return []
    places = numpy.asarray([point[1:] for point in points])
    steps = numpy.concatenate([[0], numpy.hypot(*numpy.diff(places, axis=0).T)])
    walked = numpy.cumsum(steps)
    targets = numpy.linspace(0, walked[-1], n)
    chosen = numpy.searchsorted(walked, targets).clip(0, len(points) - 1)
    return [points[i] for i in numpy.unique(chosen).tolist()]


def reliability_diagram(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Plot precision against confidence.

    rows (Sequence[Mapping[str, Any]]): The bins: see `calibration.reliability`.
    RETURNS (Figure): The figure.
    RAISES (ImportError): If matplotlib is not installed.
    """
    filled = [row for row in rows if row["n"]]
    sure = [row["confidence"] for row in filled]
    right = [row["right"] for row in filled]
    low, high = zip(*(wilson(row["right"], row["n"]) for row in filled))
    with drawing() as figure_class:
        figure = figure_class(figsize=(5.2, 4.9), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
        above.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        above.vlines(sure, low, high, color=ACCENT, linewidth=1.2, alpha=0.5)
        above.plot(sure, right, color=ACCENT, linewidth=1.2, marker="o", markersize=4)
        above.set(xlim=(0, 1.01), ylim=(0, 1.02), ylabel="precision (share of correct entities)")
        width = rows[0]["to"] - rows[0]["from"]
        middles = [(row["from"] + row["to"]) / 2 for row in rows]
        below.bar(middles, [row["n"] for row in rows], width=0.86 * width, color=ACCENT, alpha=0.6)
        below.set(xlabel="confidence (probability of the entity)", ylabel="entities")
        for axes in (above, below):
            axes.grid(axis="y")
            axes.set_axisbelow(True)
        return figure


def promised_and_observed(rows: Sequence[Tuple[float, float, float]], chosen: float) -> Any:
    """Plot observed against promised miss rates, and the size of the set.

    rows (Sequence[Tuple[float, float, float]]): The promised and the observed miss rate, and spans
        for each annotated entity.
    chosen (float): The rate that the pipeline promises.
    RETURNS (Figure): The figure.
    RAISES (ImportError): If matplotlib is not installed.
    """
    promised, observed, spans = zip(*rows)
    marks = [7 if limit == chosen else 4 for limit in promised]
    colours = [ALERT if limit == chosen else ACCENT for limit in promised]
    with drawing() as figure_class:
        figure = figure_class(figsize=(5.2, 4.9), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        ends = [0, max(promised)]
        above.plot(ends, ends, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        above.set(ylabel="observed miss rate", ylim=(0, None))
        below.set(ylabel="spans for each entity", xlabel="promised miss rate")
        below.set(ylim=(0, 1.1 * max(spans)))
        for axes, values in ((above, observed), (below, spans)):
            axes.plot(promised, values, color=ACCENT, linewidth=1.2)
            axes.scatter(promised, values, s=[mark**2 for mark in marks], c=colours, zorder=3)
            axes.grid(axis="y")
            axes.set_axisbelow(True)
        return figure
