"""Sparse weights in array code. `native` has the same functions, compiled.

N tokens have S slots; each slot of a token names one of V rows of weights, or none, as -1.
Rows of K weights are added up to the token's scores. All arrays are NumPy's. Shapes that don't
go together and indices out of their range raise a ValueError before anything is changed.
"""

from typing import Dict, Tuple

import numpy
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from .checks import below, not_negative, same
from .table import AdaGrad, Table


class IdMap:
    """Map 64-bit keys to numbers. Threads can find keys while others set some."""

    def __init__(self) -> None:
        self._numbers: Dict[int, int] = {}

    def set(self, keys: Array1d, numbers: Ints1d) -> None:
        """Set the numbers of keys.

        keys (Array1d): In uint64. Shape: (N,)
        numbers (Ints1d): Not negative, in int32. Shape: (N,)
        """
        same("length of numbers", len(numbers), len(keys))
        not_negative("numbers", numbers)
        self._numbers.update(zip(keys.tolist(), numbers.tolist()))

    def find(self, keys: Array1d) -> Ints1d:
        """The numbers of keys, -1 for those that have none.

        keys (Array1d): In uint64. Shape: (N,)
        RETURNS (Ints1d): In int32. Shape: (N,)
        """
        get = self._numbers.get
        return numpy.asarray([get(key, -1) for key in keys.tolist()], dtype="int32")


def gather_window(
    values: Ints2d, lengths: Ints1d, columns: Ints1d, offsets: Ints1d, first_rows: Ints1d
) -> Ints2d:
    """Find the rows of tokens, from the values in their windows.

    values (Ints2d): The value of each token in each of C columns; -1 for none. Shape: (N, C)
    lengths (Ints1d): Tokens of each sequence. Tokens of a sequence stand side by side. Shape: (B,)
    columns (Ints1d): The column of each slot. Shape: (S,)
    offsets (Ints1d): The offset of each slot, positive to the right. Shape: (S,)
    first_rows (Ints1d): The row of its value 0. Shape: (S,)
    RETURNS (Ints2d): In int32. Shape: (N, S)
    """
    not_negative("lengths", lengths)
    same("sum of lengths", int(lengths.sum(dtype="int64")), len(values))
    same("length of offsets", len(offsets), len(columns))
    same("length of first_rows", len(first_rows), len(columns))
    not_negative("columns", columns)
    below("columns", columns, values.shape[1])
    ends = numpy.cumsum(lengths)
    begin, end = numpy.repeat(ends - lengths, lengths), numpy.repeat(ends, lengths)
    there = numpy.arange(len(values))[:, None] + offsets
    outside = (there < begin[:, None]) | (there >= end[:, None])
    seen = values[numpy.where(outside, 0, there), columns]
    return numpy.where(outside | (seen < 0), -1, seen + first_rows).astype("int32")


def sum_rows(rows: Ints2d, weights: Floats2d) -> Floats2d:
    """Sum the rows of each token.

    rows (Ints2d): In int32. Shape: (N, S)
    weights (Floats2d): Shape: (V, K)
    RETURNS (Floats2d): Shape: (N, K)
    """
    below("rows", rows, len(weights))
    scores = numpy.zeros((len(rows), weights.shape[1]), dtype="float32")
    for slot in rows.T:
        known = slot >= 0
        scores[known] += weights[slot[known]]
    return scores


def collect_rows(rows: Ints2d, d_scores: Floats2d, place_of: Ints1d) -> Tuple[Ints1d, Floats2d]:
    """Compute the gradient with respect to the rows that are used.

    rows (Ints2d): In int32. Shape: (N, S)
    d_scores (Floats2d): Derivative with respect to the scores, in float32. Shape: (N, K)
    place_of (Ints1d): Scratch: -1 everywhere, before and after. Shape: (V,)
    RETURNS (Tuple[Ints1d, Floats2d]): Each row that is used, once; and its gradient.
        Shapes: (A,), (A, K)
    """
    same("length of d_scores", len(d_scores), len(rows))
    below("rows", rows, len(place_of))
    part = (rows >= 0) & d_scores.any(axis=1)[:, None]
    active, place = numpy.unique(rows[part], return_inverse=True)
    gradient = numpy.zeros((len(active), d_scores.shape[1]), dtype="float32")
    numpy.add.at(gradient, place.reshape(-1), d_scores[numpy.nonzero(part)[0]])
    return active, gradient


def add_rows(rows: Ints2d, d_scores: Floats2d, gradient: Floats2d) -> None:
    """Add the gradient with respect to the rows to a dense one.

    rows (Ints2d): In int32. Shape: (N, S)
    d_scores (Floats2d): Derivative with respect to the scores, in float32. Shape: (N, K)
    gradient (Floats2d): What is added to, in float64. Shape: (V, K)
    """
    same("length of d_scores", len(d_scores), len(rows))
    same("width of gradient", gradient.shape[1], d_scores.shape[1])
    below("rows", rows, len(gradient))
    for slot in rows.T:
        known = slot >= 0
        numpy.add.at(gradient, slot[known], d_scores[known])


def lazy_regularise(table: Table, rows: Ints1d, now: int, settings: AdaGrad) -> None:
    """Apply the regularisation of rows up to a step, without gradients since `last`.

    With u the size of a weight and c = L1 / L2, n steps of length a take it to

        u_n = (u + c) (1 + a L2)^-n - c, until that is 0

    table (Table): The weights.
    rows (Ints1d): The rows; may repeat, and be -1. Shape: (A,)
    now (int): The step.
    settings (AdaGrad): The regularisation.
    """
    _check_table(table)
    below("rows", rows, len(table.weights))
    rows = numpy.unique(rows[rows >= 0])
    rows = rows[table.last[rows] < now]
    n_steps = (now - table.last[rows]).astype("float64")[:, None]
    table.last[rows] = now
    size, sign = numpy.abs(table.weights[rows]).astype("float64"), numpy.sign(table.weights[rows])
    step = settings.learn_rate / (numpy.sqrt(table.squares[rows]) + settings.eps)
    total, left = _idle(size, n_steps, step * settings.L1, step * settings.L2, settings)
    table.totals[rows] += sign * total
    table.weights[rows] = sign * left


def _check_table(table: Table) -> None:
    n_rows, width = table.weights.shape
    for name in ("squares", "totals"):
        array = getattr(table, name)
        same(f"length of table.{name}", len(array), n_rows)
        same(f"width of table.{name}", array.shape[1], width)
    same("length of table.last", len(table.last), n_rows)


def _idle(
    size: Floats2d, n_steps: Floats2d, shrink: Floats2d, decay: Floats2d, settings: AdaGrad
) -> Tuple[Floats2d, Floats2d]:
    """The sum of the sizes that weights have in idle steps, and the last of them."""
    if not (settings.L1 or settings.L2):
        return n_steps * size, size
    if not settings.L2:
        n_left = numpy.minimum(n_steps, size // shrink)
        total = n_left * size - shrink * n_left * (n_left + 1) / 2
        return total, numpy.where(n_left < n_steps, 0, size - n_steps * shrink)
    c, rate = shrink / decay, numpy.log1p(decay)
    n_left = n_steps + numpy.zeros_like(size)
    if settings.L1:
        n_left = numpy.minimum(n_left, numpy.floor(numpy.log1p(size / c) / rate))
    lost = -numpy.expm1(-n_left * rate)
    total = (size + c) * lost / decay - c * n_left
    return total, numpy.where(n_left < n_steps, 0, size - (size + c) * lost)


def adagrad(table: Table, rows: Ints1d, gradient: Floats2d, now: int, settings: AdaGrad) -> None:
    """Update some rows. See `AdaGrad`.

    table (Table): Where it happens.
    rows (Ints1d): The rows, each once. Shape: (A,)
    gradient (Floats2d): Their gradient, in float32. Shape: (A, K)
    now (int): The number of the step, from 1.
    settings (AdaGrad): The learning rate and the regularisation.
    """
    not_negative("rows", rows)
    below("rows", rows, len(table.weights))
    same("length of gradient", len(gradient), len(rows))
    same("width of gradient", gradient.shape[1], table.weights.shape[1])
    lazy_regularise(table, rows, now - 1, settings)
    table.squares[rows] += gradient**2
    step = settings.learn_rate / (numpy.sqrt(table.squares[rows]) + settings.eps)
    moved = table.weights[rows] - step * gradient
    left = numpy.maximum(numpy.abs(moved) - step * settings.L1, 0)
    table.weights[rows] = numpy.copysign(left / (1 + step * settings.L2), moved)
    table.totals[rows] += table.weights[rows]
    table.last[rows] = now
