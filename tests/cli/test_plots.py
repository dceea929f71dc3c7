"""Tests of figures: what they show, and that they fit the light and the dark mode of a page."""

import math
import re
import sys
from itertools import combinations
from math import nan
from pathlib import Path
from typing import Any

import numpy
import pytest

from spacy_costner.cli.plots import (
    ACCENT,
    COLOURS,
    SECOND,
    drawing,
    heat_map,
    precision_recall,
    reliability_diagram,
    save_figure,
)
from spacy_costner.cli.svg import as_svg
from spacy_costner.metrics.calibration import reliability, wilson_interval

POINTS = [(0.1, 0.5, 0.9), (0.5, 0.8, 0.7), (0.9, 1.0, 0.1)]
"""Values of a threshold, each with the precision and recall that it gives."""
AXES = {"ylabel": "from", "xlabel": "to", "unit": "weight"}


def plot_heat_map(values: list[list[float]], **settings: Any) -> Any:
    """A heat map whose rows are named "row0", "row1", … and whose columns are named "column0",
    "column1", …"""
    n_rows, n_columns = numpy.shape(values)
    rows = [f"row{i}" for i in range(n_rows)]
    columns = [f"column{i}" for i in range(n_columns)]
    return heat_map(numpy.asarray(values), rows, columns, **AXES, **settings)


def texts(figure: Any) -> list[str]:
    """All texts of a figure, as its SVG has them."""
    return re.findall(r"<text [^>]*>([^<]*)</text>", as_svg(figure, "x"))


@pytest.mark.slow
def test_cells_have_their_numbers() -> None:
    """Cells without a value, or with the value 0, have no number. No number is "-0.00". The only
    "0.00" is on the scale of colours."""
    figure = plot_heat_map([[1.25, -2.0], [nan, 0.0], [-0.001, 0.0]], number="{:.2f}")
    shown = texts(figure)
    assert {"1.25", "-2.00", "row0", "row1", "column1", "from", "to", "weight"} <= set(shown)
    assert "nan" not in shown
    assert "-0.00" not in shown
    assert shown.count("0.00") == 1


@pytest.mark.parametrize("n, has_numbers", [(3, True), (4, False)])
def test_only_small_heat_maps_have_numbers(
    monkeypatch: pytest.MonkeyPatch, n: int, has_numbers: bool
) -> None:
    monkeypatch.setattr("spacy_costner.cli.plots.MAX_NUMBERED", 3)
    values = numpy.full((n, n), 1.37).tolist()
    shown = texts(plot_heat_map(values, number="{:.2f}"))
    assert ("1.37" in shown) is has_numbers


def test_cells_of_large_heat_maps_say_their_values_on_hover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cells with 0 or NaN show nothing. The first name has characters of markup, which are
    escaped."""
    monkeypatch.setattr("spacy_costner.cli.plots.MAX_NUMBERED", 3)
    names = ["<b>&", "l1", "l2", "l3"]
    values = numpy.zeros((4, 4))
    values[0, 1] = 1234.5
    values[2, 0] = -0.25
    values[3, 3] = nan

    svg = as_svg(heat_map(values, names, names, **AXES), "x")

    assert re.findall("<title>(.*?)</title>", svg) == [
        "&lt;b&gt;&amp; \N{RIGHTWARDS ARROW} l1: 1,234.5",
        "l2 \N{RIGHTWARDS ARROW} &lt;b&gt;&amp;: -0.25",
    ]


def cell_colours(*values: float) -> Any:
    """The colours of the cells of a heat map with one row: red, green, blue and opacity, from 0 to
    1."""
    cells = plot_heat_map([[*values]]).axes[0].patches
    return [cell.get_facecolor() for cell in cells]


def test_cells_are_blue_above_0_and_red_below() -> None:
    """The value 0 is transparent, and a missing value is grey."""
    below, zero, missing, above = cell_colours(-2.0, 0.0, nan, 2.0)
    red, green, blue, opacity = range(4)
    assert below[red] > below[blue]
    assert above[blue] > above[red]
    assert below[opacity] == above[opacity] == 1
    assert zero[opacity] == pytest.approx(0, abs=0.01)
    assert 0 < missing[opacity] < 1
    assert missing[red] == missing[green] == missing[blue]


def test_opacity_is_linear_where_values_are_below_0() -> None:
    """A cell is opaque at the largest absolute value, 4. The value 1 has a quarter of that
    opacity."""
    _, above = cell_colours(-4.0, 1.0)
    assert above[3] == pytest.approx(1 / 4, abs=0.01)


def test_opacity_is_the_square_root_where_no_value_is_below_0() -> None:
    opacities = [colour[3] for colour in cell_colours(0.0, 1.0, 4.0)]
    assert opacities == pytest.approx([0, math.sqrt(1 / 4), 1], abs=0.01)


@pytest.mark.parametrize("value", [0.0, nan])
def test_heat_maps_without_any_value_are_drawn(value: float) -> None:
    assert "<svg" in as_svg(plot_heat_map([[value, value]]), "x")


def test_colours_of_an_svg_are_variables_of_its_page() -> None:
    figure = precision_recall({"a": POINTS, "b": POINTS[:2]}, (0.6, 0.8), chosen_name="now")
    svg = as_svg(figure, "x")
    for name, colour in COLOURS.items():
        assert f"var(--{name})" in svg
        assert colour not in svg


def test_an_svg_has_labels_as_text_and_needs_nothing_from_elsewhere() -> None:
    """An id is only there if the SVG refers to it. Ids begin with the name of the figure, "steps",
    as a page has several figures."""
    labels = ["$x^2$", "\u65e5\u672c", "_"]
    svg = as_svg(heat_map(numpy.ones((1, 3)), ["<b>&"], labels, **AXES), "steps")

    assert "&lt;b&gt;&amp;" in svg
    assert "<b>" not in svg
    assert "$x^2$" in svg
    assert "\u65e5\u672c" in svg
    ids = re.findall(r' id="([^"]*)"', svg)
    used_ids = set(re.findall(r'(?:url\(|href=")#([\w-]+)', svg))
    assert ids
    assert set(ids) == used_ids
    assert len(ids) == len(used_ids)
    assert all(name.startswith("steps-") for name in ids)
    without_namespaces = re.sub(r'xmlns(:\w+)?="[^"]*"', "", svg)
    for foreign in ("http", "matplotlib", "<style"):
        assert foreign not in without_namespaces


def test_curve_goes_through_its_points() -> None:
    """Recall is drawn from left to right, precision upwards. The chosen point is a line by itself.
    The lines of equal F are behind, with 100 points each."""
    figure = precision_recall({"threshold": POINTS}, (0.6, 0.8), chosen_name="now")

    (axes,) = figure.axes
    curves = [line.get_xydata().tolist() for line in axes.lines]
    assert [[0.9, 0.5], [0.7, 0.8], [0.1, 1.0]] in curves
    assert [[0.8, 0.6]] in curves
    assert {"now", "values of the threshold", "0.5"} <= set(texts(figure))
    lines_of_f = [numpy.asarray(curve) for curve in curves if len(curve) == 100]
    recalls_and_precisions = [line.T for line in lines_of_f]
    f_scores = [2 * p * r / (p + r) for r, p in recalls_and_precisions]
    for f in (0.5, 0.9):
        assert any(scores == pytest.approx(f) for scores in f_scores)


@pytest.mark.parametrize("power", [1, 2, 3])
def test_values_are_not_written_over_each_other(power: int) -> None:
    """The values of a threshold and of a bias are written next to two curves, which have the same
    ends. Between them the curves are the same, if the power is 1, or close to each other."""
    line = numpy.linspace(0, 1, 60)
    curves = {
        "threshold": [(x, 0.5 + 0.4 * x, 0.9 - 0.5 * x) for x in line],
        "bias": [(10 * x, 0.5 + 0.4 * x**power, 0.9 - 0.5 * x) for x in line],
    }
    figure = precision_recall(curves, (0.7, 0.95), chosen_name="now")
    figure.draw_without_rendering()
    (axes,) = figure.axes

    # Texts outside of the axes have boxes without width.
    boxes = [text.get_window_extent() for text in axes.texts]
    visible_boxes = [box for box in boxes if box.width > 1]
    assert not any(a.overlaps(b) for a, b in combinations(visible_boxes, 2))
    values = [text for text in axes.texts if text.get_color() in (ACCENT, SECOND)]
    assert len(values) >= 6  # otherwise there would be little to be written over
    assert {text.get_color() for text in values} == {ACCENT, SECOND}
    # Behind them are the lines of equal F. Each curve has an empty line for the legend, and the
    # last line is the chosen point: 2 * 2 + 1.
    for curve in axes.lines[-5:]:
        points = axes.transData.transform(curve.get_xydata())
        assert not any(text.get_window_extent().count_contains(points) for text in values)


def test_limits_are_those_of_the_good_values() -> None:
    """The best F is 0.75, at precision 0.8 and recall 0.7. At precision 0.5 and recall 0.9, F is at
    least 0.8 of that, so this point is good, too. The axes begin 0.1 below the lowest recall of
    these points, 0.7, and below their lowest precision, 0.5. They end a little above 1."""
    figure = precision_recall({"threshold": POINTS}, (0.6, 0.8), chosen_name="now")
    (axes,) = figure.axes
    assert axes.get_xlim() == pytest.approx((0.6, 1.005))
    assert axes.get_ylim() == pytest.approx((0.4, 1.005))


def test_a_curve_of_zeros_is_drawn() -> None:
    figure = precision_recall({"bias": [(0.0, 0.0, 0.0)]}, (0.0, 0.0), chosen_name="now")
    assert "now" in texts(figure)


def test_reliability_by_bin() -> None:
    """Bins are 0.1 wide. The last one has the confidences 0.91, which is right, and 0.95, which is
    wrong: their mean is 0.93, and half of them are right. The sixth one has 0.55, which is
    right."""
    probs = numpy.asarray([0.91, 0.95, 0.55])
    right = numpy.asarray([True, False, True])

    above, below = reliability_diagram(reliability(probs, right)).axes

    points = numpy.concatenate([line.get_xydata() for line in above.lines])
    for confidence, precision in ((0.55, 1.0), (0.93, 0.5)):
        assert numpy.isclose(points, [confidence, precision]).all(axis=1).any()
    assert [bar.get_height() for bar in below.patches] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 2]


def test_wilson_interval_by_hand() -> None:
    """Five of ten are right. 95 % of a normal distribution are within 1.96 standard deviations, and
    the interval is around 0.5."""
    half_width = 1.96 * math.sqrt(0.25 / 10 + 1.96**2 / 400) / (1 + 1.96**2 / 10)
    assert wilson_interval(0.5, 10) == pytest.approx((0.5 - half_width, 0.5 + half_width))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_wilson_interval_of_one_is_within_0_and_1(share: float) -> None:
    low, high = wilson_interval(share, 1)
    assert -1e-12 < low < high < 1 + 1e-12


def test_wilson_interval_of_many_is_narrow() -> None:
    """It has about the width of the normal one: 2 * 1.96 * sqrt(0.3 * 0.7 / 1000) = 0.057."""
    low, high = wilson_interval(0.3, 1000)
    assert high - low < 0.06


@pytest.mark.parametrize("suffix, begin", [("png", b"\x89PNG\r\n"), ("svg", b"<?xml")])
def test_files_are_written_in_the_format_of_their_name(
    tmp_path: Path, suffix: str, begin: bytes
) -> None:
    path = tmp_path / f"heat.{suffix}"
    save_figure(plot_heat_map([[1.0, -1.0]], title="Weights"), path)
    content = path.read_bytes()
    assert content.startswith(begin)
    assert len(content) > 2000  # the figure is not empty


def test_without_matplotlib_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"spacy-costner\[report\]"), drawing():
        pass
