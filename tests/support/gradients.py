"""Gradients against central differences, in float64."""

from collections.abc import Callable
from typing import Any

import numpy

from spacy_costner.types import LossResult, Potentials

STEP = 1e-5
TOLERANCE = 2e-6


def central_differences(
    function: Callable[[Potentials], float], potentials: Potentials
) -> Potentials:
    """(f(x + h) - f(x - h)) / 2h for each score x; 0 for forbidden ones."""
    arrays = [array.copy() for array in potentials[:4]]
    moved = Potentials(*arrays, lengths=potentials.lengths)
    gradient = [numpy.zeros(array.shape) for array in arrays]
    for array, differences in zip(arrays, gradient):
        for index in numpy.argwhere(numpy.isfinite(array)):
            place = tuple(index)
            score = array[place]
            array[place] = score + STEP
            above = function(moved)
            array[place] = score - STEP
            below = function(moved)
            array[place] = score
            differences[place] = (above - below) / (2 * STEP)
    return Potentials(*gradient, lengths=potentials.lengths)


def central_difference(value: Callable[[], float], array: numpy.ndarray, index: Any) -> float:
    """The derivative of a value by one of the float32 weights that it depends on."""
    step = 1e-2  # large, as float32 has seven digits
    weight = array[index]
    array[index] = weight + step
    above = value()
    array[index] = weight - step
    below = value()
    array[index] = weight
    return (above - below) / (2 * step)


def check_gradient(
    function: Callable[[Potentials], tuple[Any, Callable[..., Potentials]]],
    potentials: Potentials,
) -> None:
    """Check the callback of a function from potentials to (values of any shape, callback).

    The values are added up with arbitrary weights. Infinite ones count as constant: they
    must not contribute to the gradient, whatever derivative comes in.
    """
    values, backprop = function(potentials)
    weights = numpy.random.default_rng(0).normal(size=numpy.shape(values))

    def weighted(moved: Potentials) -> float:
        values = function(moved)[0]
        return float((weights * numpy.where(numpy.isfinite(values), values, 0.0)).sum())

    _compare(backprop(weights), weighted, potentials)


def check_loss_gradient(
    function: Callable[[Potentials], LossResult],
    value: Callable[[Potentials], float],
    potentials: Potentials,
) -> None:
    """Check that the gradient of a loss is the derivative of its definition."""
    _compare(function(potentials).gradient, value, potentials)


def check_loss_directions(
    function: Callable[[Potentials], LossResult], potentials: Potentials, n_directions: int = 2
) -> None:
    """Check that the gradient of a loss is the derivative of its value, along random directions.
    That is quick where there are many scores."""
    gradient = function(potentials).gradient
    rng = numpy.random.default_rng(0)
    for _ in range(n_directions):
        direction = [rng.normal(size=array.shape) for array in potentials[:4]]
        values = []
        for step in (STEP, -STEP):
            moved = [array + step * d for array, d in zip(potentials, direction)]
            values.append(function(Potentials(*moved, potentials.lengths)).value)
        above, below = values
        # The derivative along a direction is the sum of gradient * direction.
        products = numpy.concatenate([(a * d).ravel() for a, d in zip(gradient, direction)])
        tolerance = TOLERANCE * max(1.0, abs(products).sum(), abs(above))
        assert abs((above - below) / (2 * STEP) - products.sum()) < tolerance


def check_forbidden(gradient: Potentials, potentials: Potentials) -> None:
    """Check that a gradient is finite, and exactly 0 at forbidden steps."""
    for name, array, scores in zip(gradient._fields, gradient[:4], potentials):
        assert array.shape == scores.shape, name
        assert numpy.isfinite(array).all(), name
        assert (array[~numpy.isfinite(scores)] == 0).all(), f"{name}: gradient at forbidden steps"


def _compare(
    gradient: Potentials, function: Callable[[Potentials], float], potentials: Potentials
) -> None:
    """Check a gradient against central differences of a function."""
    expected = central_differences(function, potentials)
    check_forbidden(gradient, potentials)
    for name, array in zip(gradient._fields, gradient[:4]):
        numpy.testing.assert_allclose(
            array, getattr(expected, name), rtol=1e-4, atol=TOLERANCE, err_msg=name
        )
