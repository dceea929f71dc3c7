"""Figures: right in what they say, at home in light and dark."""

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
    as_svg,
    drawing,
    heat_map,
    precision_recall,
    reliability_diagram,
    save,
)
from spacy_costner.metrics.calibration import reliability, wilson

POINTS = [(0.1, 0.5, 0.9), (0.5, 0.8, 0.7), (0.9, 1.0, 0.1)]
NAMES = {"ylabel": "from", "xlabel": "to", "unit": "weight"}


def heat(values: list[list[float]], **settings: Any) -> Any:
    rows, columns = numpy.shape(values)
    names = [f"row{i}" for i in range(rows)], [f"column{i}" for i in range(columns)]
    return heat_map(numpy.asarray(values), *names, **NAMES, **settings)


def texts(figure: Any) -> list[str]:
    return re.findall(r"<text [^>]*>([^<]*)</text>", as_svg(figure, "x"))


def test_cells_of_small_heat_maps_have_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = texts(heat([[1.25, -2.0], [nan, 0.0], [-0.001, 0.0]], number="{:.2f}"))
    assert {"1.25", "-2.00", "row0", "row1", "column1", "from", "to", "weight"} <= set(shown)
    assert "nan" not in shown and "-0.00" not in shown and shown.count("0.00") == 1
    monkeypatch.setattr("spacy_costner.cli.plots.MAX_NUMBERED", 3)
    for n in (3, 4):
        shown = texts(heat(numpy.full((n, n), 1.37).tolist(), number="{:.2f}"))
        assert ("1.37" in shown) is (n == 3)


def test_cells_say_their_values_on_hover(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spacy_costner.cli.plots.MAX_NUMBERED", 3)
    values = numpy.zeros((4, 4))
    values[0, 1], values[2, 0], values[3, 3] = 1234.5, -0.25, nan
    names = ["<b>&", *(f"l{i}" for i in range(1, len(values)))]
    text = as_svg(heat_map(values, names, names, **NAMES), "x")
    assert re.findall("<title>(.*?)</title>", text) == [
        "&lt;b&gt;&amp; \N{RIGHTWARDS ARROW} l1: 1,234.5",
        "l2 \N{RIGHTWARDS ARROW} &lt;b&gt;&amp;: -0.25",
    ]


def test_colours_of_a_heat_map() -> None:
    """Blue above 0, red below, grey for none, on a linear scale; otherwise on a square root."""

    def colours(*values: float) -> Any:
        return [cell.get_facecolor() for cell in heat([[*values]]).axes[0].patches]

    down, nought, none, up = colours(-2.0, 0.0, nan, 2.0)
    assert down[0] > down[2] and up[2] > up[0]
    assert down[3] == up[3] == 1 and nought[3] == pytest.approx(0, abs=0.01)
    assert 0 < none[3] < 1 and none[0] == none[1] == none[2]
    assert colours(-4.0, 1.0)[1][3] == pytest.approx(0.25, abs=0.01)
    opacity = [colour[3] for colour in colours(0.0, 1.0, 4.0)]
    assert opacity == pytest.approx([0, 0.5, 1], abs=0.01)
    for values in ([[0.0, 0.0]], [[nan, nan]]):
        assert "<svg" in as_svg(heat(values), "x")


def test_svg_has_variables_and_only_ids_that_are_used() -> None:
    """A variable for each colour, labels as text, and nothing of elsewhere."""
    figure = precision_recall({"a": POINTS, "b": POINTS[:2]}, (0.6, 0.8), chosen_name="now")
    text = as_svg(figure, "x")
    assert {f"var(--{name})" in text for name in COLOURS} == {True}
    assert not re.search("|".join(COLOURS.values()), text)
    labels = ["$x^2$", "\u65e5\u672c", "_"]
    text = as_svg(heat_map(numpy.ones((1, 3)), ["<b>&"], labels, **NAMES), "steps")
    assert "&lt;b&gt;&amp;" in text and "<b>" not in text
    assert "$x^2$" in text and "\u65e5\u672c" in text
    ids = re.findall(r' id="([^"]*)"', text)
    used = set(re.findall(r'(?:url\(|href=")#([\w-]+)', text))
    assert ids and set(ids) == used and len(ids) == len(used)
    assert all(name.startswith("steps-") for name in ids)
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert "http" not in without_names and "matplotlib" not in text and "<style" not in text


def test_curve_goes_through_its_points() -> None:
    figure = precision_recall({"threshold": POINTS}, (0.6, 0.8), chosen_name="now")
    (axes,) = figure.axes
    curves = [line.get_xydata().tolist() for line in axes.lines]
    assert [[recall, precision] for _, precision, recall in POINTS] in curves
    assert [[0.8, 0.6]] in curves
    assert {"now", "values of the threshold", "0.5"} <= set(texts(figure))
    of_f = [curve for curve in curves if len(curve) == 100]
    for f in (0.5, 0.9):
        assert any(all(2 * p * r / (p + r) == pytest.approx(f) for r, p in each) for each in of_f)


@pytest.mark.parametrize("power", [1, 2, 3])
def test_values_are_not_written_over_each_other(power: int) -> None:
    """Two curves with the same ends, and between them the same or close to each other."""
    line = numpy.linspace(0, 1, 60)
    curves = {
        "threshold": [(x, 0.5 + 0.4 * x, 0.9 - 0.5 * x) for x in line],
        "bias": [(10 * x, 0.5 + 0.4 * x**power, 0.9 - 0.5 * x) for x in line],
    }
    figure = precision_recall(curves, (0.7, 0.95), chosen_name="now")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.texts]
    boxes = [box for box in boxes if box.width > 1]  # those of others are outside of the axes
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    values = [text for text in axes.texts if text.get_color() in (ACCENT, SECOND)]
    assert len(values) >= 6 and {text.get_color() for text in values} == {ACCENT, SECOND}
    for curve in axes.lines[-5:]:
        drawn = axes.transData.transform(curve.get_xydata())
        assert not any(text.get_window_extent().count_contains(drawn) for text in values)


def test_limits_are_those_of_the_good_values() -> None:
    axes = precision_recall({"threshold": POINTS}, (0.6, 0.8), chosen_name="now").axes[0]
    assert axes.get_xlim()[0] == pytest.approx(0.6) and axes.get_ylim()[0] == pytest.approx(0.4)
    figure = precision_recall({"bias": [(0.0, 0.0, 0.0)]}, (0.0, 0.0), chosen_name="now")
    assert "now" in texts(figure)


def test_reliability_by_bin() -> None:
    probs, right = numpy.asarray([0.91, 0.95, 0.55]), numpy.asarray([True, False, True])
    above, below = reliability_diagram(reliability(probs, right)).axes
    points = sorted(point for line in above.lines for point in line.get_xydata().tolist())
    assert [0.55, 1.0] in points and any(numpy.allclose(point, [0.93, 0.5]) for point in points)
    assert [bar.get_height() for bar in below.patches] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 2]


def test_wilson_by_hand() -> None:
    low, high = wilson(0.5, 10)
    middle, reach = 0.5, 1.96 * numpy.sqrt(0.25 / 10 + 1.96**2 / 400) / (1 + 1.96**2 / 10)
    assert (low, high) == pytest.approx((middle - reach, middle + reach))
    for share in (0.0, 1.0):
        low, high = wilson(share, 1)
        assert -1e-12 < low < high < 1 + 1e-12
    assert numpy.subtract(*wilson(0.3, 1000)[::-1]) < 0.06


def test_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for suffix in ("png", "svg"):
        path = tmp_path / f"heat.{suffix}"
        save(heat([[1.0, -1.0]], title="Weights"), path)
        assert len(path.read_bytes()) > 2000
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"spacy-costner\[report\]"), drawing():
        pass
