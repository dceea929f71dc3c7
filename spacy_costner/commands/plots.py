"""Figures: heat maps, precision against recall, reliability. By matplotlib (extra "report").

A figure is saved to a file, in the colours below, or written into a page, where each of
these colours is a variable of the page's style sheet and nothing is behind the figure:
the same drawing goes with light and dark.
"""

import re
from contextlib import contextmanager
from io import StringIO
from math import dist, sqrt
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Sequence, Tuple
from warnings import catch_warnings, filterwarnings

import numpy
from thinc.types import Floats2d

INK, MUTED, RULE = "#1c2733", "#66727e", "#d5dbe1"
ACCENT, SECOND, ALERT = "#2467a6", "#8a6a1f", "#c2442a"
COLOURS = {
    "ink": INK,
    "muted": MUTED,
    "rule": RULE,
    "accent": ACCENT,
    "second": SECOND,
    "alert": ALERT,
}
"""What the colours are called in the style sheet of a page."""

BLUE, RED, GREY = (0.16, 0.47, 0.77), (0.85, 0.33, 0.2), (0.5, 0.5, 0.5)
"""The colours of heat maps, on light and dark alike."""

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

MOST_NUMBERED = 15
"""Heat maps of more rows or columns don't have their numbers in their cells."""


def require_matplotlib() -> None:
    """Check that there is matplotlib, before work begins that would be lost without.

    RAISES (ImportError): If it is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "drawing needs matplotlib: pip install 'spacy-costner[report]'"
        ) from error


@contextmanager
def drawing() -> Iterator[Any]:
    """Draw in our manner.

    YIELDS (Type[Figure]): The class of matplotlib's figures.
    RAISES (ImportError): If matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS), catch_warnings():
        # A label may be written in letters that matplotlib's font lacks; a browser's has them.
        filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield Figure


def save(figure: Any, path: Path) -> None:
    """Save a figure.

    figure (Figure): The figure.
    path (Path): The picture; its suffix says in which format.
    """
    with drawing():
        figure.savefig(path)


def as_svg(figure: Any, name: str) -> str:
    """Write a figure to stand in a page, which has a variable for each of our colours.

    figure (Figure): The figure.
    name (str): Another one for each figure of the page.
    RETURNS (str): The <svg> element.
    """
    buffer = StringIO()
    with drawing():
        nothing = dict.fromkeys(["Creator", "Date", "Format", "Type"])
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = _with_own_ids(text, name)
    for variable, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{variable})")
    return text


def _with_own_ids(text: str, name: str) -> str:
    """Leave only the ids that something refers to, and have them begin with a name."""
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
    """Draw a table of numbers: blue above 0, red below; where all are 0 or more, red.

    The scale of those goes by the square root, so that small ones can be seen beside large.

    values (Floats2d): The numbers; NaN, which is grey, where there is none. Shape: (R, C)
    rows (Sequence[str]): What the rows are called.
    columns (Sequence[str]): What the columns are called.
    ylabel (str): What the rows are.
    xlabel (str): What the columns are.
    unit (str): What the numbers are.
    number (str): How one is written in its cell.
    title (str): The title.
    RETURNS (Figure): The figure.
    RAISES (ImportError): If matplotlib is not installed.
    """
    numbered = max(values.shape) <= MOST_NUMBERED
    cell = 0.42 if numbered else max(0.13, 0.24 - 0.002 * max(values.shape))
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


Settings = Sequence[Tuple[float, float, float]]
"""The settings of a dial, each with precision and recall."""


def precision_recall(
    curves: Mapping[str, Settings],
    chosen: Tuple[float, float],
    *,
    chosen_name: str,
    title: str = "",
) -> Any:
    """Draw precision against recall, with lines of equal F and a point.

    Settings whose F is much below the best may lie outside of the picture.

    curves (Mapping[str, Settings]): Dials, by name; at most two.
    chosen (Tuple[float, float]): Precision and recall of the point.
    chosen_name (str): What the point is called.
    title (str): The title.
    RETURNS (Figure): The figure.
    RAISES (ImportError): If matplotlib is not installed.
    """
    good = {dial: _good_ones(points) for dial, points in curves.items()}
    seen = [chosen, *(point[1:] for points in good.values() for point in points)]
    with drawing() as figure_class:
        figure = figure_class(figsize=(5.2, 4.9), layout="constrained")
        axes = figure.add_subplot()
        axes.set(
            xlabel="recall (share of annotated entities)",
            ylabel="precision (share of answers)",
            title=title,
            xlim=_limits([recall for _, recall in seen]),
            ylim=_limits([precision for precision, _ in seen]),
        )
        _draw_lines_of_equal_f(axes)
        for (dial, points), colour in zip(curves.items(), (ACCENT, SECOND)):
            _, precision, recall = zip(*points)
            axes.plot(recall, precision, color=colour, linewidth=1.3, marker=".", markersize=3)
            away = [point for point in good[dial] if dist(point[1:], chosen) > 0.04]
            _name_settings(axes, _spread(away, 5), colour)
            axes.plot([], [], color=colour, marker=".", label=f"settings of the {dial}")
        axes.plot([chosen[1]], [chosen[0]], "o", color=ALERT, markersize=7, label=chosen_name)
        figure.legend(loc="outside upper left", frameon=False, fontsize=8)
        return figure


def _good_ones(points: Settings) -> Settings:
    """Those whose F is at least 0.8 of the best; all, if F is 0."""
    f_scores = numpy.asarray([2 * p * r / (p + r) if p + r else 0.0 for _, p, r in points])
    return [point for point, f in zip(points, f_scores) if f >= 0.8 * f_scores.max()]


def _limits(values: Sequence[float]) -> Tuple[float, float]:
    """From a tenth well below all values up to 1."""
    return max(0.0, float(numpy.floor(10 * min(values) - 0.5)) / 10), 1.005


def _draw_lines_of_equal_f(axes: Any) -> None:
    low = axes.get_xlim()[0]
    for f in numpy.arange(1, 10) / 10:
        recall = numpy.linspace(max(f / (2 - f), low, 0.01), 1, 100)
        precision = f * recall / (2 * recall - f)
        axes.plot(recall, precision, color=RULE, linewidth=0.8, zorder=0)
        name = f"F {f:.1f}" if f == 0.9 else f"{f:.1f}"
        _annotate(axes, name, (1.005, float(precision[-1])), MUTED, va="center")


def _name_settings(axes: Any, points: Settings, colour: str) -> None:
    for value, precision, recall in points:
        _annotate(axes, f"{value:g}", (recall, precision), colour)


def _annotate(axes: Any, text: str, place: Tuple[float, float], colour: str, **more: Any) -> None:
    settings = {"textcoords": "offset points", "annotation_clip": True, "fontsize": 7}
    axes.annotate(text, place, xytext=(4, 3), color=colour, **settings, **more)


def _spread(points: Settings, n: int) -> Settings:
    """Points that stand well apart: about as many as asked for."""
    if not points:
        return []
    places = numpy.asarray([point[1:] for point in points])
    steps = numpy.concatenate([[0], numpy.hypot(*numpy.diff(places, axis=0).T)])
    walked = numpy.cumsum(steps)
    targets = numpy.linspace(0, walked[-1], n)
    chosen = numpy.searchsorted(walked, targets).clip(0, len(points) - 1)
    return [points[i] for i in numpy.unique(chosen).tolist()]


def reliability_diagram(rows: Sequence[Mapping[str, Any]], *, title: str = "") -> Any:
    """Draw how many answers are right against how sure they are.

    rows (Sequence[Mapping[str, Any]]): The bins: see `reliability.reliability`.
    title (str): The title.
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
        above.set(xlim=(0, 1.01), ylim=(0, 1.02), ylabel="share of these that are right")
        above.set_title(title)
        width = rows[0]["to"] - rows[0]["from"]
        middles = [(row["from"] + row["to"]) / 2 for row in rows]
        below.bar(middles, [row["n"] for row in rows], width=0.86 * width, color=ACCENT, alpha=0.6)
        below.set(xlabel="confidence (probability of the entity)", ylabel="entities")
        for axes in (above, below):
            axes.grid(axis="y")
            axes.set_axisbelow(True)
        return figure


def wilson(share: float, n: int, z: float = 1.96) -> Tuple[float, float]:
    """Between which shares the true one lies, with 95 % confidence.

        (p + z^2 / 2n ± z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    share (float): The share p that was seen.
    n (int): Of how many.
    z (float): The quantile of the normal distribution.
    RETURNS (Tuple[float, float]): The least and the most.

    Wilson, 1927, "Probable Inference, the Law of Succession, and Statistical Inference".
    """
    middle = share + z * z / (2 * n)
    reach = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (middle - reach) / (1 + z * z / n), (middle + reach) / (1 + z * z / n)
