"""Plot results, such as heat maps, precision-recall curves and reliability diagrams. All plotting
functions return a matplotlib figure and raise an ImportError if matplotlib isn't installed.

Figures can be saved to a file or embedded in an HTML page as SVG (see `svg.as_svg`).
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
"""The colour variables of the style sheet and their values in light mode."""

INK = COLOURS["ink"]
MUTED = COLOURS["muted"]
RULE = COLOURS["rule"]
ACCENT = COLOURS["accent"]
SECOND = COLOURS["second"]
ALERT = COLOURS["alert"]

# RGB colours for heat maps, legible in light and dark mode
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
"""The matplotlib settings for all figures. Text is not converted to paths (svg.fonttype), IDs are
reproducible (svg.hashsalt), and "$" in labels is not parsed as math (text.parse_math)."""

for _axis in ("xtick", "ytick"):
    SETTINGS[f"{_axis}.color"] = MUTED
    SETTINGS[f"{_axis}.labelcolor"] = INK
    SETTINGS[f"{_axis}.labelsize"] = 8
    SETTINGS[f"{_axis}.major.width"] = 0.6

DASHED: Any = {"color": MUTED, "linewidth": 0.8, "linestyle": (0, (4, 3))}
"""The style of reference lines: dashes of 4 points with gaps of 3 points."""

NOTE: Any = {"textcoords": "offset points", "annotation_clip": True, "fontsize": 7}
"""The style of annotations next to points. Annotations are hidden if the point is outside the
axes."""

PLACES_OF_NOTES = [
    ("left", 4, 3),
    ("left", 4, -9),
    ("left", 4, -3),
    ("right", -4, 3),
    ("right", -4, -9),
    ("right", -4, -3),
]
"""Candidate positions for the annotation of a point, in order of preference: the horizontal
alignment of the text, and its offset to the right and upwards, in points."""

MAX_NUMBERED = 17
"""Maximum number of rows or columns for which a heat map shows numbers in its cells."""

GOOD_SHARE = 0.8
"""A point of a curve is good if its F-score is at least this fraction of the curve's best
F-score."""

MIN_DISTANCE = 0.04
"""Minimum distance between an annotated point and the highlighted point."""

N_VALUES = 5
"""The approximate number of annotated points per curve."""

POINTS_BETWEEN = 20
"""The number of points to interpolate between two points of a curve when checking whether an
annotation covers the curve."""

DARK_OPACITY = 0.65
"""Opacity above which the number in a cell is white."""

CELL_PREFIX = "cell-"
"""Prefix of the IDs of heat map cells."""

# The IDs of the axes rectangle and the highlighted point. In a page, they are converted to classes,
# so that the script can find these elements.
FRAME = "frame"
CHOSEN = "chosen"


def require_matplotlib() -> None:
    """Check that matplotlib is installed.

    RAISES (ImportError): If matplotlib isn't installed.
    """
    require("matplotlib.figure", extra="report", missing="plots require matplotlib")


@contextmanager
def drawing() -> Iterator[Any]:
    """Apply the matplotlib settings during a `with` block. Yields matplotlib's `Figure` class."""
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS), catch_warnings():
        # Glyphs that are missing from the matplotlib font are available in the browser's fonts.
        filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield Figure


def save_figure(figure: Any, path: Path) -> None:
    """Save a figure to a file. The format is inferred from the suffix."""
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
    """Plot a heat map. Positive values are blue and negative values are red. If there are no
    negative values, all values are red on a square root scale, so that small values are visible.
    Cells contain numbers if there are at most `MAX_NUMBERED` rows and columns.

    values (Floats2d): The values. NaN is shown in grey. Shape: (rows, columns)
    rows, columns (Sequence[str]): The names of the rows and columns.
    ylabel, xlabel (str): The labels of the axes.
    unit (str): The label of the colour bar.
    number (str): The format string for the numbers in the cells.
    title (str): The title of the figure.
    RETURNS (matplotlib.figure.Figure): The figure.
    """
    n_largest = max(values.shape)  # number of rows or columns, whichever is larger
    is_numbered = n_largest <= MAX_NUMBERED
    # All lengths are in inches. Cells get smaller for larger maps, down to 0.13. Cells with numbers
    # are larger, but at most 0.42, and the map is at most 6.2 wide.
    cell_size = max(0.13, 0.24 - 0.002 * n_largest)
    if is_numbered:
        cell_size = min(0.42, 6.2 / n_largest)
    # A character is about 0.07 wide. The constants leave room for the colour bar and axis labels.
    room_for_names = 0.07 * max(len(name) for name in [*rows, *columns])
    width = room_for_names + 1.5 + cell_size * len(columns)
    height = room_for_names + 0.7 + cell_size * len(rows)
    font_size = 6
    if cell_size >= 0.2:
        font_size = 8
    with drawing() as figure_class:
        figure = figure_class(figsize=(width, height))
        axes = figure.add_subplot(aspect="equal", xlabel=xlabel, ylabel=ylabel, title=title)
        # The centre of a cell is at (column, row). The first row is at the top.
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
        axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=font_size)
        axes.set_yticks(range(len(rows)), rows, fontsize=font_size)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)

        colours = _colours(values)
        shades = colours.to_rgba(values)  # RGBA, shape: (rows, columns, 4)
        for (row, column), value in numpy.ndenumerate(values):
            shade = shades[row, column]
            cell = _draw_cell(axes, row, column, shade)
            if value == 0 or numpy.isnan(value):
                continue  # no number and no tooltip
            # Use indices in the ID, because names may contain characters that aren't allowed.
            cell.set_gid(f"{CELL_PREFIX}{row}-{column}")
            cell.set_label(f"{rows[row]} \N{RIGHTWARDS ARROW} {columns[column]}: {value:,.6g}")
            if is_numbered:
                text = _without_minus_zero(number.format(value))
                _write_in_cell(axes, row, column, text, shade)

        # Limit the height of the colour bar to 2.5 inches.
        shrink = min(1.0, 2.5 / (cell_size * len(rows)))
        bar = figure.colorbar(colours, ax=axes, label=unit, shrink=shrink)
        bar.outline.set_visible(False)
        # Rasterize the colour bar to avoid gaps between its segments.
        bar.solids.set_rasterized(True)
        return figure


def _draw_cell(axes: Any, row: int, column: int, shade: Any) -> Any:
    """Draw a cell of a heat map and return it. `shade` is an RGBA colour."""
    from matplotlib.patches import Rectangle

    # Exclude cells from the layout. Otherwise, matplotlib would recompute the limits and the layout
    # for each of thousands of cells.
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
    """Write a number in the centre of a heat map cell. The text colour is chosen to be legible on
    the cell colour."""
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
    """Remove the minus sign from a formatted number that was rounded to zero, such as "-0.0"."""
    is_zero = number.strip("-0.,") == ""
    if is_zero:
        return number.lstrip("-")
    return number


def draw_transitions(table: TransitionWeights) -> Any:
    """Plot transition weights as a heat map. Forbidden transitions are shown in grey."""
    # Convert None, the weight of forbidden transitions, to NaN.
    weights = numpy.asarray(table.weights, dtype="float64")
    return heat_map(
        weights, table.origins, table.targets, ylabel="from", xlabel="to", unit="weight"
    )


def _colours(values: Floats2d) -> Any:
    """Create the colour scale of a heat map as a matplotlib ScalarMappable. See `heat_map`. Zero is
    transparent, and the opacity increases with the absolute value, so that cells are legible in
    light and dark mode. Shape of `values`: (rows, columns)"""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize, PowerNorm

    largest_number = float(numpy.nanmax(numpy.abs(values), initial=0))
    if largest_number == 0:
        largest_number = 1.0  # avoid an empty scale
    # A stop is a position on the scale from 0 to 1 and an RGBA colour. In the middle, at value 0,
    # the colour changes from transparent red to transparent blue.
    stops: Any
    scale: Normalize
    if (values < 0).any():
        stops = [(0, (*RED, 1)), (0.5, (*RED, 0)), (0.5, (*BLUE, 0)), (1, (*BLUE, 1))]
        scale = Normalize(-largest_number, largest_number)
    else:
        # Use a square root scale to make small values visible.
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
    """Plot precision-recall curves with iso-F curves and a highlighted point. Points that aren't
    good (see `GOOD_SHARE`) may be outside the plot.

    curves (Mapping[str, Sequence[tuple[float, float, float]]]): One or two curves, keyed by
        parameter name. Each point consists of a parameter value, precision and recall.
    chosen (tuple[float, float]): The precision and recall of the highlighted point.
    chosen_name (str): The name of the highlighted point in the legend.
    title (str): The title of the figure.
    RETURNS (matplotlib.figure.Figure): The figure.
    """
    # All points and the good points of each curve. The columns are parameter value, precision and
    # recall. Shape: (points, 3)
    tables = [numpy.asarray(points) for points in curves.values()]
    good_tables = [_good_points(table) for table in tables]
    # The axes must include all good points. Shape: (points, 2)
    points_inside = numpy.concatenate([[chosen], *(table[:, 1:] for table in good_tables)])
    low_precision, low_recall = _begin_of_axes(points_inside)

    with drawing() as figure_class:
        figure = figure_class()
        # Extend the axes slightly beyond 1, so that a curve at 1 is fully visible.
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

        # Draw the curves and choose the points to annotate with their values.
        points_and_colours = []
        for name, table, good_points, colour in zip(curves, tables, good_tables, (ACCENT, SECOND)):
            _, precision, recall = table.T
            axes.plot(recall, precision, color=colour, linewidth=1.3, marker=".", markersize=3)
            # Plot an empty curve for the legend entry, which uses a larger marker.
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
        # Compute the layout, because `_write_values` needs pixel coordinates.
        figure.draw_without_rendering()
        _write_values(axes, points_and_colours)
        return figure


def _good_points(points: Floats2d) -> Floats2d:
    """Return the points of a curve with an F-score of at least `GOOD_SHARE` times the best F-score.
    The columns are parameter value, precision and recall. Shape: (points, 3)"""
    _, precision, recall = points.T
    f_scores = f_beta(precision, recall)
    return points[f_scores >= GOOD_SHARE * f_scores.max()]


def _begin_of_axes(points: Floats2d) -> Floats1d:
    """Compute the lower limits of the precision and recall axes: the largest multiple of 0.1 that
    is at least 0.05 below the minimum of the points, or 0. For example, the limit is 0.6 for a
    minimum of 0.73. Shapes: (points, 2) to (2,)"""
    tenths = numpy.floor(10 * points.min(axis=0) - 0.5)
    return numpy.maximum(0, tenths / 10)


def _draw_iso_f_curves(axes: Any, low_recall: float) -> None:
    """Draw iso-F curves for F = 0.1, 0.2, ... 0.9, labelled on the right. For F = f, the precision
    p at recall r is

        p = f r / (2 r - f),   which is at most 1 if r >= f / (2 - f)

    `low_recall` is the lower limit of the recall axis."""
    f_scores = numpy.arange(1, 10) / 10  # shape: (9,)
    # Each curve consists of 100 points and starts where precision is 1 or at the lower limit of the
    # axis.
    first_recall = numpy.maximum(f_scores / (2 - f_scores), low_recall)
    recall = numpy.linspace(first_recall, 1, 100)  # shape: (100, 9)
    precision = f_scores * recall / (2 * recall - f_scores)
    axes.plot(recall, precision, color=RULE, linewidth=0.8, zorder=0)

    names = ["10", "20", "30", "40", "50", "60", "70", "80", "F 90"]
    for name, last_precision in zip(names, precision[-1]):
        end_of_line = (1.005, last_precision)  # at the right edge of the axes
        offset = (4, 3)  # to the right and upwards, in points
        axes.annotate(name, end_of_line, offset, color=MUTED, va="center", **NOTE)


def _to_percent(share: float, position: int) -> str:
    """Format a tick label as a percentage. Matplotlib calls this function with the value of each
    tick and its position."""
    return f"{100 * share:.4g}"


def _write_values(axes: Any, points_and_colours: Sequence[tuple[Any, str]]) -> None:
    """Annotate points with their parameter values. Annotations must not overlap other text or a
    curve, and are omitted if there is no suitable position. Each item consists of a point
    (parameter value, precision and recall) and a text colour."""
    boxes_of_texts = [text.get_window_extent() for text in axes.texts]
    pixels = _pixels_of_curves(axes)
    for (value, precision, recall), colour in points_and_colours:
        # Try the candidate positions in order, and remove the text if it overlaps something.
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
    """Return the pixel coordinates of all curve points and of interpolated points between them.
    Shape: (pixels, 2)"""
    places = []
    for line in axes.lines:
        # Skip iso-F curves, which have zorder 0. Annotations may overlap them.
        if line.get_zorder() > 0:
            points = line.get_xydata()  # shape: (points, 2)
            # Shape before reshaping: (POINTS_BETWEEN, points - 1, 2)
            between = numpy.linspace(points[:-1], points[1:], POINTS_BETWEEN)
            places += [points, between.reshape(-1, 2)]
    return axes.transData.transform(numpy.concatenate(places))


def reliability_diagram(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Plot a reliability diagram: precision against confidence in bins, with 95% Wilson intervals.
    A bar chart below it shows the number of entities per bin.

    rows (Sequence[Mapping[str, Any]]): The bins returned by `metrics.calibration.reliability`. At
        least one bin must not be empty.
    RETURNS (matplotlib.figure.Figure): The figure.
    """
    nonempty = [row for row in rows if row["n"] > 0]
    confidence = [row["confidence"] for row in nonempty]
    precision = [row["right"] for row in nonempty]  # the proportion of correct entities
    intervals = [wilson_interval(row["right"], row["n"]) for row in nonempty]
    low, high = zip(*intervals)

    # The bar chart, with one bar per bin
    middles = [(row["from"] + row["to"]) / 2 for row in rows]
    counts = [row["n"] for row in rows]
    bar_width = 0.86 / len(rows)  # leave a gap between bars
    with drawing() as figure_class:
        figure = figure_class()
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
        above.grid(axis="y")
        below.grid(axis="y")
        above.plot([0, 1], [0, 1], **DASHED)  # perfect calibration
        above.vlines(confidence, low, high, color=ACCENT, linewidth=1.2, alpha=0.5)
        above.plot(confidence, precision, color=ACCENT, linewidth=1.2, marker="o", markersize=4)
        above.set(xlim=(0, 1.01), ylim=(0, 1.02), ylabel="precision (share of correct entities)")
        below.bar(middles, counts, width=bar_width, color=ACCENT, alpha=0.6)
        below.set(xlabel="confidence (probability of the entity)", ylabel="entities")
        return figure


def promised_and_observed(rows: Sequence[tuple[float, float, float]], chosen: float) -> Any:
    """Plot observed miss rates against guaranteed miss rates. A second plot below shows the number
    of predicted spans per entity.

    rows (Sequence[tuple[float, float, float]]): Each row contains the guaranteed miss rate, the
        observed miss rate, and the number of predicted spans per annotated entity. See
        `workflows.observe`.
    chosen (float): The miss rate guaranteed by the pipeline, which is highlighted.
    RETURNS (matplotlib.figure.Figure): The figure.
    """
    promised, miss_rates, n_spans = zip(*rows)
    sizes: list[int] = []
    colours: list[str] = []
    for limit in promised:
        is_chosen = limit == chosen
        # The area of the marker, in square points
        sizes.append(49 if is_chosen else 16)
        colours.append(ALERT if is_chosen else ACCENT)
    with drawing() as figure_class:
        figure = figure_class()
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        # The line where the observed rate equals the guaranteed rate
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
    """Plot the martingale of a shift test after each doc, on a logarithmic scale, with the level at
    which an alarm is raised. The martingale is the accumulated capital of the test's bets.

    log_martingale (Sequence[float]): The natural logarithm of the martingale after each doc.
    level (float): The value of the martingale (not its logarithm) at which an alarm is raised.
    RETURNS (matplotlib.figure.Figure): The figure.
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
    """Plot the estimates and intervals for each label. The left plot shows the number of entities
    as a percentage of the estimate, and the right plot shows the F-score. For comparison, crosses
    show estimates from the model only, and thin lines show intervals from the annotated docs only.
    Labels without an estimate are omitted.

    result (Estimate): The estimates to plot.
    RETURNS (matplotlib.figure.Figure): The figure.
    """
    # The rows of the plots: label, measure, and the value that corresponds to 100%
    counts: list[tuple[str, MeasureEstimate, float]] = []
    scores: list[tuple[str, MeasureEstimate, float]] = []
    for label in result.labels:
        if label.entities.estimate is not None:
            counts.append((label.label, label.entities, label.entities.estimate.value))
        if label.f.estimate is not None:
            scores.append((label.label, label.f, 1.0))
    n_rows = max(len(counts), len(scores), 1)
    with drawing() as figure_class:
        height_of_row = 0.4  # all lengths are in inches
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
    """Draw the estimate and interval of a measure in row `y`, with a cross for the estimate from
    the model only, and a thin line below for the interval from the annotated docs only. All values
    are multiplied by `factor`. Only row 0 is added to the legend."""
    estimated = measure.estimate
    annotated_alone = measure.annotated_alone
    assert estimated is not None and annotated_alone is not None  # other measures have no row
    names = ["estimate", "annotated docs alone", "model alone"]
    if y > 0:
        # Matplotlib excludes names with a leading underscore from the legend.
        names = [f"_{name}" for name in names]
    ends = factor * numpy.asarray([estimated.low, estimated.high])
    axes.plot(ends, [y, y], color=ACCENT, linewidth=2.5, label=names[0])
    axes.plot([factor * estimated.value], [y], "o", color=ACCENT, markersize=4)
    y_below = y + 0.25
    ends_alone = factor * numpy.asarray([annotated_alone.low, annotated_alone.high])
    axes.plot(ends_alone, [y_below, y_below], color=MUTED, linewidth=1.2, label=names[1])
    axes.plot([factor * measure.model_alone], [y], "x", color=ALERT, label=names[2])


def draw_forecast(result: Forecast) -> Any:
    """Plot the learning curve: the measured F-scores, and the fitted curve with its interval. The
    forecast is drawn as a dashed line. If there is no forecast, only the measured points are
    plotted."""
    measured = result.overall.measured
    curve = numpy.asarray(result.curve).reshape(-1, 4)
    with drawing() as figure_class:
        figure = figure_class(figsize=(6, 3.6))
        axes = figure.add_subplot(xlabel="training docs", ylabel="F, %", xscale="log")
        axes.grid(axis="y")
        docs, f, low, high = curve.T
        n_fitted = int(numpy.searchsorted(docs, measured[-1].docs))
        axes.fill_between(docs, 100 * low, 100 * high, color=ACCENT, alpha=0.18, linewidth=0)
        # Both lines include the point where the forecast starts.
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
        # Show the numbers of docs as ticks instead of powers of ten.
        ticks = [*measured_docs, *(expected.docs for expected in result.overall.expected[1:])]
        axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
        axes.minorticks_off()
        axes.legend(loc="lower right", frameon=False, fontsize=8)
        return figure
