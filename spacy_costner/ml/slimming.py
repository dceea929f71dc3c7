"""Make the weights of a linear model few and small, and save them in few bytes.

Most weights are nearly 0. After training `slim_down` sets those to 0 that hardly matter, and rounds
the others. A pipeline is evaluated, calibrated and tuned after that, so that it is the one that is
saved. `pack_rows` saves what is left without another loss. The values of features without weights
leave the vocabulary when the model is saved: see `pipeline.serialization.save_model`.
"""

from typing import Any

import numpy
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from ..features.ids import compress, decompress, pack, unpack

DROPPED = 0.04
"""The share of the sum of the squared weights of features that is set to 0, in the rows whose
largest weight is smallest. On Spanish these are three of four rows. Orders by how often a row
occurs or by its squared gradients (LeCun, Denker & Solla, 1990, Optimal brain damage) were no
better."""

ROUNDED = 0.01
"""Rounding adds noise of this share of the mean square of the weights, at most."""

N_BITS = 15
"""The bits of a saved weight, besides its sign."""

LEAST_EXPONENT = -149
"""The exponent of the smallest power of 2 that a float of 32 bits can be."""

CHUNK = 1 << 12
"""Rows that are loaded at a time."""


def slim_down(rows: Floats2d, n_features: int) -> Floats2d:
    """Set rows of weights to 0 that hardly matter, and round the others to multiples of a power of
    2. Only features lose rows. Weights that are not finite stay as they are.

    rows (Floats2d): The weights, those of features first. They aren't changed.
        Shape: (V + other rows, K)
    n_features (int): V.
    RETURNS (Floats2d): The new weights, which are saved exactly. Shape: as that of `rows`
    """
    if not numpy.isfinite(rows).all():
        return rows.copy()
    feature_rows = rows[:n_features]
    other_rows = rows[n_features:]
    is_kept = matters(feature_rows)
    step = rounding_step(feature_rows[is_kept])
    slim = numpy.zeros_like(rows)
    slim[:n_features][is_kept] = numpy.rint(feature_rows[is_kept] / step) * step
    # The others are rounded as little as saving them needs.
    numbers, exponent = to_whole_numbers(other_rows)
    slim[n_features:] = to_floats(numbers, exponent)
    return slim


def matters(rows: Floats2d) -> Array1d:
    """Which rows have to stay. In the order of their largest weights, rows go until those that go
    have `DROPPED` of the sum of the squared weights. Shapes: (V, K) to (V,)"""
    largest = numpy.abs(rows).max(axis=1, initial=0)
    squares = numpy.einsum("vk,vk->v", rows, rows, dtype="float64")  # the sum of each row
    ascending = numpy.argsort(largest, kind="stable")
    is_small = numpy.cumsum(squares[ascending]) <= DROPPED * squares.sum()
    # Rows with the same largest weight stay or go together.
    n_small = int(is_small.sum())
    if n_small == len(rows):
        return numpy.zeros(len(rows), dtype=bool)  # all are 0
    return largest >= largest[ascending[n_small]]


def rounding_step(weights: Floats2d) -> numpy.float32:
    """The power of 2 to whose multiples weights are rounded. Shape: (V, K)"""
    n_used = numpy.count_nonzero(weights)
    if not n_used:
        return numpy.float32(1)
    mean_square = float(numpy.square(weights, dtype="float64").sum()) / n_used
    # Errors of rounding are uniform: the mean of their squares is step^2 / 12, and may be `ROUNDED`
    # of that of the weights. The step is the largest power of 2 that isn't above this.
    largest_step = numpy.sqrt(12 * ROUNDED * mean_square)
    _, exponent = numpy.frexp(largest_step)  # 2^(exponent - 1) <= largest_step < 2^exponent
    return numpy.ldexp(numpy.float32(1), max(int(exponent) - 1, LEAST_EXPONENT))


def to_whole_numbers(rows: Floats2d) -> tuple[Ints2d, int]:
    """Weights as multiples of a power of 2, which are whole numbers of `N_BITS` bits and a sign.
    What `slim_down` returns is not rounded again.

    rows (Floats2d): Finite weights. Shape: (V, K)
    RETURNS (tuple[Ints2d, int]): The numbers, and the exponent of the power of 2: weight = number *
        2^exponent. Shape: (V, K)
    """
    largest = numpy.abs(rows).max(initial=0)
    if not largest:
        return numpy.zeros(rows.shape, dtype="int16"), 0
    _, exponent = numpy.frexp(largest)  # largest < 2^exponent
    exponent = int(exponent) - N_BITS
    most = 2**N_BITS - 1
    numbers = numpy.rint(numpy.ldexp(rows, -exponent)).clip(-most, most).astype("int16")

    # Divide by the largest power of 2 that divides all of them: the lowest bit of any.
    bits = int(numpy.bitwise_or.reduce(numbers, axis=None))
    n_shifts = (bits & -bits).bit_length() - 1
    return numbers >> n_shifts, exponent + n_shifts


def to_floats(numbers: Ints2d, exponent: int) -> Floats2d:
    """The weights that `to_whole_numbers` took apart. Shape: (V, K)"""
    return numpy.ldexp(numbers.astype("float32"), exponent)


def pack_rows(rows: Floats2d) -> dict[str, Any]:
    """Save weights: the rows that are not 0, as whole numbers, those that are equal once. Features
    that always occur together have equal weights, and small weights are often equal after rounding.
    Weights that are not finite have no exponent: a model that has them is refused. Shape: (V, K)
    """
    exponent: int | None = None
    numbers = numpy.zeros(rows.shape, dtype="int16")
    if numpy.isfinite(rows).all():
        numbers, exponent = to_whole_numbers(rows)
    used_rows = numpy.flatnonzero(numbers.any(axis=1)).astype("int32")
    distinct, row_ids = find_distinct(numbers[used_rows])
    return {
        "exponent": exponent,
        "used": pack(used_rows),
        "row_ids": pack(row_ids),
        # Weights of the same tag are alike: they stand side by side.
        "numbers": compress(distinct.T.reshape(-1).astype("<i2")),
    }


def unpack_rows(saved: dict[str, Any], rows: Floats2d) -> None:
    """Load the weights that `pack_rows` saved into an array of 0. Raises an error if they are
    damaged. Shape: (V, K)"""
    n_rows, n_tags = rows.shape
    exponent = saved["exponent"]
    # Floats of 32 bits are below 2^128. Not isinstance: True and False are integers, too.
    if type(exponent) is not int or exponent > 128 - N_BITS:
        raise ValueError(f"expected finite weights, got an exponent of {exponent!r}")
    used_rows = unpack(saved["used"])
    row_ids = unpack(saved["row_ids"])
    # They are saved column after column: see `pack_rows`. Shape: (distinct rows, K)
    numbers = numpy.ascontiguousarray(decompress(saved["numbers"], "<i2").reshape(n_tags, -1).T)

    check_rows(used_rows, n_rows)
    is_id = (row_ids >= 0) & (row_ids < len(numbers))
    if len(row_ids) != len(used_rows) or not is_id.all():
        raise ValueError(f"expected one of {len(numbers)} rows for each of {len(used_rows)}")

    # All rows at once would take the memory of the weights again.
    for first in range(0, len(used_rows), CHUNK):
        chunk = slice(first, first + CHUNK)
        rows[used_rows[chunk]] = to_floats(numbers[row_ids[chunk]], exponent)


def check_rows(rows: Ints1d, n_rows: int) -> None:
    """Check that the numbers of saved rows ascend, and that each is one of `n_rows`. Rows that
    aren't saved have no number here."""
    is_ascending = (rows[1:] > rows[:-1]).all()
    if len(rows) and not (is_ascending and 0 <= rows[0] <= rows[-1] < n_rows):
        raise ValueError(f"expected rows from 0 to {n_rows - 1} in order")


def find_distinct(numbers: Ints2d) -> tuple[Ints2d, Ints1d]:
    """The different rows, in the order of their first occurrence, and which of them each row is.
    Shapes: (V, K) to (D, K), (V,)"""
    # A row is known by a sum of its numbers, times random numbers of 64 bits, modulo 2^64. That two
    # rows which differ have the same sum has a probability of about V^2 / 2^65.
    factors = numpy.random.default_rng(0).integers(2**64, size=numbers.shape[1], dtype="uint64")
    sums = numpy.zeros(len(numbers), dtype="uint64")
    for column, factor in zip(numbers.T, factors):
        sums += column.astype("uint64") * factor

    # `numpy.unique` numbers the different rows by the ranks of their sums. Here they have ids, in
    # the order of their first rows.
    _, first_row, rank_of_row = numpy.unique(sums, return_index=True, return_inverse=True)
    order = numpy.argsort(first_row)
    id_of_rank = numpy.empty(len(order), dtype="int32")
    id_of_rank[order] = numpy.arange(len(order))
    return numbers[first_row[order]], id_of_rank[rank_of_row]
