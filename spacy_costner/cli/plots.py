"""Plot results: heat maps, precision against recall, reliability diagrams and others. Each function
that plots returns a matplotlib figure, and raises an ImportError if that is not installed.

A figure is saved to a file, or embedded in a page as SVG: see `svg.as_svg`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from warnings import catch_warnings, filterwarnings

import numpy
from thinc.types import Floats1d, Floats2d

from ..metrics import f_beta
from ..metrics.calibration import wilson_interval
from ..validation import require
from ..workflows.forecasting.curve_forecast import Forecast
from ..workflows.reports.explanation import TransitionWeights
from ..workflows.sampling.estimation import Estimate, MeasureEstimate

COLOURS = {
    "ink": "#1c2733",
    "muted": "#66727e",
    "rule": "#d5dbe1",
    "accent": "#2467a6",
    "second": "#8a6a1f",
    "alert": "#c2442a",
}
"""The variables of the style sheet, and their values in light mode."""

INK = COLOURS["ink"]
MUTED = COLOURS["muted"]
RULE = COLOURS["rule"]
ACCENT = COLOURS["accent"]
SECOND = COLOURS["second"]
ALERT = COLOURS["alert"]

# The colours of heat maps, as red, green and blue. They are legible in light and in dark mode.
BLUE = (0.16, 0.47, 0.77)
RED = (0.85, 0.33, 0.2)
GREY = (0.5, 0.5, 0.5)

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
"""The matplotlib settings for all figures. Labels stay text (svg.fonttype), ids are the same each
time (svg.hashsalt), and "$" in a label is a dollar sign (text.parse_math)."""

for _axis in ("xtick", "ytick"):
    SETTINGS[f"{_axis}.color"] = MUTED
    SETTINGS[f"{_axis}.labelcolor"] = INK
    SETTINGS[f"{_axis}.labelsize"] = 8
    SETTINGS[f"{_axis}.major.width"] = 0.6

DASHED: Any = {"color": MUTED, "linewidth": 0.8, "linestyle": (0, (4, 3))}
"""The style of a line that others are compared with: dashes of 4 points with gaps of 3 points."""

NOTE: Any = {"textcoords": "offset points", "annotation_clip": True, "fontsize": 7}
"""The style of a small text next to a point. It is left out if the point is outside of the axes."""

PLACES_OF_NOTES = [
    ("left", 4, 3),
    ("left", 4, -9),
    ("left", 4, -3),
    ("right", -4, 3),
    ("right", -4, -9),
    ("right", -4, -3),
]
"""Where the value of a point may be written next to it, the best place first. "left" means that the
left end of the text is at the point. The numbers move the text to the right and upwards, in
points."""

MAX_NUMBERED = 17
"""A heat map with more rows or columns has no numbers in its cells."""

GOOD_SHARE = 0.8
"""A point of a curve is good if its F is at least this share of the best F."""

MIN_DISTANCE = 0.04
"""No value is written next to a point that is nearer to the highlighted point."""

N_VALUES = 5
"""The approximate number of values that are written next to each curve."""

POINTS_BETWEEN = 20
"""The number of places between two points of a curve at which it is checked whether a text covers
the curve."""

DARK_OPACITY = 0.65
"""A cell that is more opaque is dark, and its number is white."""

CELL_PREFIX = "cell-"
"""The ids of the cells of heat maps start with this."""

# The ids of the rectangle of the axes and of the highlighted point. In a page they become classes,
# by which its script finds these elements.
FRAME = "frame"
CHOSEN = "chosen"


def require_matplotlib() -> None:
    """Check that matplotlib is installed.

    RAISES (ImportError): If it isn't installed.
    """
    require("matplotlib.figure", extra="report", missing="plots require matplotlib")


@contextmanager
def drawing() -> Iterator[Any]:
    """In a `with` block, matplotlib has our settings. The value is its class Figure."""
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS), catch_warnings():
        # The matplotlib font may not have all characters of a label. Browsers have other fonts.
        filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield Figure


def save_figure(figure: Any, path: Path) -> None:
    """Save a figure to a file, in the format of its suffix."""
    with drawing():
        figure.savefig(path)


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
    """Plot a heat map. Values above 0 are blue, values below 0 are red. If no value is below 0, all
    are red, on a square root scale, so that small values can be seen. There are numbers in the
    cells if there are at most `MAX_NUMBERED` rows and columns.

    values (Floats2d): The values. NaN is grey. Shape: (rows, columns)
    rows, columns (Sequence[str]): The names of the rows and of the columns.
    ylabel, xlabel (str): What the rows and the columns are.
    unit (str): The label of the colour bar.
    number (str): The format of the numbers in the cells.
    title (str): The title of the figure.
    """
    n_largest = max(values.shape)  # the larger one of the numbers of rows and columns
    is_numbered = n_largest <= MAX_NUMBERED
    # Lengths are in inches. Cells of large maps are smaller, down to 0.13. Cells with numbers are
    # larger, but at most 0.42, so that the map is at most 6.2 wide.
    cell_size = max(0.13, 0.24 - 0.002 * n_largest)
    if is_numbered:
        cell_size = min(0.42, 6.2 / n_largest)
    # A character of a name is about 0.07 wide. The rest is room for the colour bar and the labels
    # of the axes.
    room_for_names = 0.07 * max(len(name) for name in [*rows, *columns])
    width = room_for_names + 1.5 + cell_size * len(columns)
    height = room_for_names + 0.7 + cell_size * len(rows)
    font_size = 6
    if cell_size >= 0.2:
        font_size = 8
    with drawing() as figure_class:
        figure = figure_class(figsize=(width, height))
        axes = figure.add_subplot(aspect="equal", xlabel=xlabel, ylabel=ylabel, title=title)
        # The middle of a cell is at (column, row). The first row is at the top.
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
        axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=font_size)
        axes.set_yticks(range(len(rows)), rows, fontsize=font_size)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)

        colours = _colours(values)
        shades = colours.to_rgba(values)  # red, green, blue, opacity; shape: (rows, columns, 4)
        for (row, column), value in numpy.ndenumerate(values):
            shade = shades[row, column]
            cell = _draw_cell(axes, row, column, shade)
            if value == 0 or numpy.isnan(value):
                continue  # such a cell has no number, and shows nothing on hover
            # The id has numbers instead of names, which may have characters that ids can't have.
            cell.set_gid(f"{CELL_PREFIX}{row}-{column}")
            cell.set_label(f"{rows[row]} \N{RIGHTWARDS ARROW} {columns[column]}: {value:,.6g}")
            if is_numbered:
                text = _without_minus_zero(number.format(value))
                _write_in_cell(axes, row, column, text, shade)

        # The colour bar is at most 2.5 inches high.
        shrink = min(1.0, 2.5 / (cell_size * len(rows)))
        bar = figure.colorbar(colours, ax=axes, label=unit, shrink=shrink)
        bar.outline.set_visible(False)
        # The colours of the bar are a raster image, as there would be gaps between many shapes.
        bar.solids.set_rasterized(True)
        return figure


def _draw_cell(axes: Any, row: int, column: int, shade: Any) -> Any:
    """Draw a cell of a heat map, and return it. A shade is red, green, blue and opacity."""
    from matplotlib.patches import Rectangle

    # The limits and the layout of the axes are set without the cells and their numbers. Otherwise
    # matplotlib would find them again for each of thousands of cells.
    cell = Rectangle(
        (column - 0.5, row - 0.5),
        width=1,
        height=1,
        facecolor=shade,
        edgecolor=RULE,
        linewidth=0.4,
        in_layout=False,
    )
    axes.add_artist(cell)
    return cell


def _write_in_cell(axes: Any, row: int, column: int, text: str, shade: Any) -> None:
    """Write the number of a cell of a heat map in its middle, in a colour that can be read on its
    shade."""
    _, _, _, opacity = shade
    ink = "#ffffff" if opacity > DARK_OPACITY else INK
    axes.text(
        column,
        row,
        text,
        ha="center",
        va="center",
        fontsize=7,
        color=ink,
        in_layout=False,
    )


def _without_minus_zero(number: str) -> str:
    """Remove the minus from a formatted number that was rounded to 0: "0.0" for "-0.0"."""
    is_zero = number.strip("-0.,") == ""
    if is_zero:
        return number.lstrip("-")
    return number


def draw_transitions(table: TransitionWeights) -> Any:
    """Plot transition weights as a heat map. Forbidden transitions are grey."""
    # A forbidden transition has the weight None, which becomes NaN here.
    weights = numpy.asarray(table.weights, dtype="float64")
    return heat_map(
        weights, table.origins, table.targets, ylabel="from", xlabel="to", unit="weight"
    )


def _colours(values: Floats2d) -> Any:
    """The colour scale of a heat map for these values, a matplotlib ScalarMappable: see `heat_map`.
    The value 0 is transparent, and the opacity grows with the distance from 0, so that cells can be
    read in light and dark mode. Shape of the values: (rows, columns)"""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize, PowerNorm

    largest_number = float(numpy.nanmax(numpy.abs(values), initial=0))
    if largest_number == 0:
        largest_number = 1.0  # A scale can't be from 0 to 0.
    # A stop is a place on the scale, from 0 to 1, with the colour and the opacity there. In the
    # middle, at the value 0, the colour changes from transparent red to transparent blue.
    stops: Any
    scale: Normalize
    if (values < 0).any():
        stops = [(0, (*RED, 1)), (0.5, (*RED, 0)), (0.5, (*BLUE, 0)), (1, (*BLUE, 1))]
        scale = Normalize(-largest_number, largest_number)
    else:
        # A square root scale, so that small values can be seen.
        stops = [(0, (*RED, 0)), (1, (*RED, 1))]
        scale = PowerNorm(gamma=0.5, vmin=0, vmax=largest_number)
    colours = LinearSegmentedColormap.from_list("costner", stops)
    return ScalarMappable(scale, colours.with_extremes(bad=(*GREY, 0.22)))


def precision_recall(
    curves: Mapping[str, Sequence[tuple[float, float, float]]],
    chosen: tuple[float, float],
    *,
    chosen_name: str,
    title: str = "",
) -> Any:
    """Plot precision against recall, with iso-F curves and a highlighted point. Points that are not
    good (see `GOOD_SHARE`) may be outside of the plot.

    curves (Mapping[str, Sequence[tuple[float, float, float]]]): One or two curves, keyed by the
        name of a parameter. A point is a value of the parameter, with its precision and its recall.
    chosen (tuple[float, float]): Precision and recall of the highlighted point.
    chosen_name (str): The name of the highlighted point in the legend.
    title (str): The title of the figure.
    """
    # The points of each curve, and its good points. The columns are the value, precision and
    # recall. Shapes: (points, 3)
    tables = [numpy.asarray(points) for points in curves.values()]
    good_tables = [_good_points(table) for table in tables]
    # All good points must be inside of the axes. Shape: (points, 2)
    points_inside = numpy.concatenate([[chosen], *(table[:, 1:] for table in good_tables)])
    low_precision, low_recall = _begin_of_axes(points_inside)

    with drawing() as figure_class:
        figure = figure_class()
        # The axes end a little above 1, so that a curve at 1 is not half hidden.
        axes = figure.add_subplot(
            xlim=(low_recall, 1.005),
            ylim=(low_precision, 1.005),
            title=title,
            xlabel="recall (% of annotated entities)",
            ylabel="precision (% of predicted entities)",
        )
        axes.xaxis.set_major_formatter(_to_percent)
        axes.yaxis.set_major_formatter(_to_percent)
        _draw_iso_f_curves(axes, low_recall)

        # Draw the curves, and choose the points next to which their values are written.
        points_and_colours = []
        for name, table, good_points, colour in zip(curves, tables, good_tables, (ACCENT, SECOND)):
            _, precision, recall = table.T
            axes.plot(recall, precision, color=colour, linewidth=1.3, marker=".", markersize=3)
            # This empty curve only makes the row of the legend, with a larger dot.
            axes.plot([], [], color=colour, marker=".", label=f"values of the {name}")
            from_chosen = good_points[:, 1:] - chosen
            distances = numpy.hypot(from_chosen[:, 0], from_chosen[:, 1])
            distant_points = good_points[distances > MIN_DISTANCE]
            step = max(1, len(distant_points) // N_VALUES)
            points_and_colours += [(point, colour) for point in distant_points[::step]]

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
        # `_write_values` needs the places of texts and points in pixels. Drawing sets them.
        figure.draw_without_rendering()
        _write_values(axes, points_and_colours)
        return figure


def _good_points(points: Floats2d) -> Floats2d:
    """The points of a curve whose F is at least the share `GOOD_SHARE` of its best F. The columns
    are the value, precision and recall. Shapes: (points, 3)"""
    _, precision, recall = points.T
    f_scores = f_beta(precision, recall)
    return points[f_scores >= GOOD_SHARE * f_scores.max()]


def _begin_of_axes(points: Floats2d) -> Floats1d:
    """Where the axes of precision and of recall begin: below the lowest values of all points, at a
    multiple of 0.1 that is at least 0.05 lower, but not below 0. For example, 0.73 gives 0.6.
    Shapes: (points, 2) to (2,)"""
    tenths = numpy.floor(10 * points.min(axis=0) - 0.5)
    return numpy.maximum(0, tenths / 10)


def _draw_iso_f_curves(axes: Any, low_recall: float) -> None:
    """Draw iso-F curves for F = 0.1, 0.2, ... 0.9, labelled on the right. On the curve of F = f,
    the precision p at the recall r is

        p = f r / (2 r - f),   which is at most 1 if r >= f / (2 - f)

    The axes begin at the lowest recall."""
    f_scores = numpy.arange(1, 10) / 10  # shape: (9,)
    # Each curve begins where the precision is 1, or where the axes begin. It has 100 points.
    first_recall = numpy.maximum(f_scores / (2 - f_scores), low_recall)
    recall = numpy.linspace(first_recall, 1, 100)  # shape: (100, 9)
    precision = f_scores * recall / (2 * recall - f_scores)
    axes.plot(recall, precision, color=RULE, linewidth=0.8, zorder=0)

    names = ["10", "20", "30", "40", "50", "60", "70", "80", "F 90"]
    for name, last_precision in zip(names, precision[-1]):
        end_of_line = (1.005, last_precision)  # at the right end of the axes
        offset = (4, 3)  # to the right and upwards, in points
        axes.annotate(name, end_of_line, offset, color=MUTED, va="center", **NOTE)


def _to_percent(share: float, position: int) -> str:
    """The label of a tick of an axis of shares, in percent. Matplotlib calls this function for each
    tick, with its share and its position among the ticks."""
    return f"{100 * share:.4g}"


def _write_values(axes: Any, points_and_colours: Sequence[tuple[Any, str]]) -> None:
    """Write the value of each point next to it, where the text covers no other text and no curve.
    If there is no such place, the value is left out. A point is a value, its precision and its
    recall, and comes with the colour of its text."""
    boxes_of_texts = [text.get_window_extent() for text in axes.texts]
    pixels = _pixels_of_curves(axes)
    for (value, precision, recall), colour in points_and_colours:
        # Try one place after another: write the text, and remove it if it covers something. In a
        # place, one end of the text is at the point, moved by x and y.
        for text_end, x, y in PLACES_OF_NOTES:
            text = axes.annotate(
                f"{value:g}", (recall, precision), (x, y), color=colour, ha=text_end, **NOTE
            )
            box = text.get_window_extent()
            covers_curve = box.count_contains(pixels) > 0
            covers_text = box.count_overlaps(boxes_of_texts) > 0
            if not covers_curve and not covers_text:
                boxes_of_texts.append(box)
                break
            text.remove()


def _pixels_of_curves(axes: Any) -> Floats2d:
    """The pixels of the points of all curves, and of places between these points. Shape:
    (pixels, 2)"""
    places = []
    for line in axes.lines:
        # A text may cover lines of equal F. They have the zorder 0.
        if line.get_zorder() > 0:
            points = line.get_xydata()  # shape: (points, 2)
            # The shape is (POINTS_BETWEEN, points - 1, 2) before it is flattened.
            between = numpy.linspace(points[:-1], points[1:], POINTS_BETWEEN)
            places += [points, between.reshape(-1, 2)]
    return axes.transData.transform(numpy.concatenate(places))


def reliability_diagram(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Plot the share of correct entities against their confidence, for bins of confidence, with
    Wilson intervals of 95 %. Below it is the number of entities in each bin.

    rows (Sequence[Mapping[str, Any]]): The bins: see `metrics.calibration.reliability`. At least
        one of them isn't empty.
    """
    nonempty = [row for row in rows if row["n"] > 0]
    confidence = [row["confidence"] for row in nonempty]
    precision = [row["right"] for row in nonempty]  # the share of correct entities
    intervals = [wilson_interval(row["right"], row["n"]) for row in nonempty]
    low, high = zip(*intervals)

    # The bars below, one for each bin from 0 to 1
    middles = [(row["from"] + row["to"]) / 2 for row in rows]
    counts = [row["n"] for row in rows]
    bar_width = 0.86 / len(rows)  # the rest of the bin is the gap between two bars
    with drawing() as figure_class:
        figure = figure_class()
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
        above.grid(axis="y")
        below.grid(axis="y")
        above.plot([0, 1], [0, 1], **DASHED)  # where confidence is equal to precision
        above.vlines(confidence, low, high, color=ACCENT, linewidth=1.2, alpha=0.5)
        above.plot(confidence, precision, color=ACCENT, linewidth=1.2, marker="o", markersize=4)
        above.set(xlim=(0, 1.01), ylim=(0, 1.02), ylabel="precision (share of correct entities)")
        below.bar(middles, counts, width=bar_width, color=ACCENT, alpha=0.6)
        below.set(xlabel="confidence (probability of the entity)", ylabel="entities")
        return figure


def promised_and_observed(rows: Sequence[tuple[float, float, float]], chosen: float) -> Any:
    """Plot observed against guaranteed miss rates. Below it is the size of the sets.

    rows (Sequence[tuple[float, float, float]]): Guaranteed miss rate, observed miss rate, and spans
        in the sets for each annotated entity: see `workflows.calibration.guarantees.observe`.
    chosen (float): The miss rate that the pipeline guarantees, which is highlighted.
    """
    promised, miss_rates, n_spans = zip(*rows)
    sizes: list[int] = []
    colours: list[str] = []
    for limit in promised:
        is_chosen = limit == chosen
        # The area of the dot, in square points
        sizes.append(49 if is_chosen else 16)
        colours.append(ALERT if is_chosen else ACCENT)
    with drawing() as figure_class:
        figure = figure_class()
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        # The line on which the observed rate is the guaranteed one
        above.plot([0, max(promised)], [0, max(promised)], **DASHED)
        for axes, observed in ((above, miss_rates), (below, n_spans)):
            axes.grid(axis="y")
            axes.plot(promised, observed, color=ACCENT, linewidth=1.2)
            axes.scatter(promised, observed, sizes, colours, zorder=3)
        above.set(ylabel="observed miss rate", ylim=(0, None))
        below.set(ylabel="spans per entity", xlabel="guaranteed miss rate")
        below.set(ylim=(0, 1.1 * max(n_spans)))
        return figure


def draw_martingale(log_martingale: Sequence[float], level: float) -> Any:
    """Plot the martingale of a test for a shift after each doc, on a logarithmic scale, and the
    level at which the test alarms. The martingale is what the bets of the test have won so far.

    log_martingale (Sequence[float]): The natural logarithm of the martingale after each doc.
    level (float): The martingale at which the test alarms, not its logarithm.
    """
    powers_of_ten = numpy.asarray(log_martingale) / numpy.log(10)
    n_docs = range(1, len(log_martingale) + 1)
    with drawing() as figure_class:
        figure = figure_class(figsize=(6, 3))
        axes = figure.add_subplot(xlabel="docs, in their order", ylabel="martingale, power of ten")
        axes.plot(n_docs, powers_of_ten, color=ACCENT)
        axes.axhline(numpy.log10(level), **DASHED)
        return figure


def draw_estimates(result: Estimate) -> Any:
    """Plot the estimates of each label with their intervals: on the left the number of entities, in
    percent of the estimate, on the right F. A cross shows the estimate of the model alone. Below it
    is the interval of the annotated docs alone. Labels without an estimate have no row.

    result (Estimate): The estimates.
    """
    # The rows: a label, a measure of it, and the number that is 100 %
    counts: list[tuple[str, MeasureEstimate, float]] = []
    scores: list[tuple[str, MeasureEstimate, float]] = []
    for label in result.labels:
        if label.entities.estimate is not None:
            counts.append((label.label, label.entities, label.entities.estimate.value))
        if label.f.estimate is not None:
            scores.append((label.label, label.f, 1.0))
    n_rows = max(len(counts), len(scores), 1)
    with drawing() as figure_class:
        height_of_row = 0.4  # in inches, as all of these lengths
        figure = figure_class(figsize=(8, 1.5 + height_of_row * n_rows))
        left, right = figure.subplots(1, 2)
        left.set(xlabel="number of entities, % of the estimate")
        right.set(xlabel="F, %")
        for axes, rows in ((left, counts), (right, scores)):
            axes.grid(axis="x")
            for y, (_, measure, number_of_100_percent) in enumerate(rows):
                _draw_measure(axes, y, measure, factor=100 / number_of_100_percent)
            axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
            axes.invert_yaxis()
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        return figure


def _draw_measure(axes: Any, y: int, measure: MeasureEstimate, factor: float) -> None:
    """Draw an estimate with its interval in row y, and a cross for the estimate of the model alone.
    Below them is the interval of the annotated docs alone. All numbers are multiplied by the
    factor. The lines of row 0 make the legend."""
    estimated = measure.estimate
    annotated_alone = measure.annotated_alone
    assert estimated is not None and annotated_alone is not None  # only such measures have rows
    names = ["estimate", "annotated docs alone", "model alone"]
    if y > 0:
        # Matplotlib leaves names that begin with "_" out of the legend.
        names = [f"_{name}" for name in names]
    ends = factor * numpy.asarray([estimated.low, estimated.high])
    axes.plot(ends, [y, y], color=ACCENT, linewidth=2.5, label=names[0])
    axes.plot([factor * estimated.value], [y], "o", color=ACCENT, markersize=4)
    y_below = y + 0.25
    ends_alone = factor * numpy.asarray([annotated_alone.low, annotated_alone.high])
    axes.plot(ends_alone, [y_below, y_below], color=MUTED, linewidth=1.2, label=names[1])
    axes.plot([factor * measure.model_alone], [y], "x", color=ALERT, label=names[2])


def draw_forecast(result: Forecast) -> Any:
    """Plot the learning curve of F: the measured points, and the fitted curve with its interval,
    which is dashed where it is a forecast. Without a forecast there are only points."""
    measured = result.overall.measured
    curve = numpy.asarray(result.curve).reshape(-1, 4)
    with drawing() as figure_class:
        figure = figure_class(figsize=(6, 3.6))
        axes = figure.add_subplot(xlabel="training docs", ylabel="F, %", xscale="log")
        axes.grid(axis="y")
        docs, f, low, high = curve.T
        n_fitted = int(numpy.searchsorted(docs, measured[-1].docs))
        axes.fill_between(docs, 100 * low, 100 * high, color=ACCENT, alpha=0.18, linewidth=0)
        # Both lines have the point where the forecast begins.
        axes.plot(docs[: n_fitted + 1], 100 * f[: n_fitted + 1], color=ACCENT, linewidth=1.3)
        axes.plot(
            docs[n_fitted:],
            100 * f[n_fitted:],
            color=ACCENT,
            linewidth=1.3,
            linestyle=(0, (4, 3)),
            label=f"forecast, with {100 * result.confidence:g} % interval",
        )
        measured_docs = [point.docs for point in measured]
        measured_f = [100 * point.f for point in measured]
        axes.plot(measured_docs, measured_f, "o", color=INK, markersize=4, label="measured")
        # The ticks are numbers of docs, without powers of ten.
        ticks = [*measured_docs, *(expected.docs for expected in result.overall.expected[1:])]
        axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
        axes.minorticks_off()
        axes.legend(loc="lower right", frameon=False, fontsize=8)
        return figure
