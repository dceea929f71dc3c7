"""Prune and quantize the weights of a linear model and save them in a compact format.

Most weights are close to 0. After training, `prune_and_quantize` sets unimportant weights to 0 and
rounds the others. Pipelines are evaluated, calibrated and tuned with these weights, so that the
saved pipeline is identical to the evaluated one. `pack_rows` saves the weights without rounding
them again. When the model is saved, features without weights are removed from the vocabulary: see
`pipeline.serialization.save_model`.

In shapes, V is the number of features, which have one weight row each, and K is the number of tags.
"""

from typing import Any

import numpy
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from ..features.ids import compress, decompress, pack, unpack

DROPPED_SHARE = 0.04
"""The maximum proportion of the sum of squared feature weights to remove. Rows are dropped in order
of their largest weight, starting with the smallest. For Spanish, this drops three out of four rows.
Ordering rows by frequency or squared gradients (LeCun, Denker & Solla, 1990, Optimal brain damage)
didn't perform better."""

NOISE_SHARE = 0.01
"""The maximum mean squared rounding error, as a proportion of the mean squared weight."""

N_BITS = 15
"""The number of bits per saved weight, excluding the sign."""

LEAST_EXPONENT = -149
"""The exponent of the smallest power of 2 that can be represented in float32."""

CHUNK_SIZE = 1 << 12
"""The number of rows to load at a time."""


def prune_and_quantize(rows: Floats2d, n_features: int) -> Floats2d:
    """Set unimportant feature rows to 0 and round the other weights to multiples of a power of 2.
    If any weight isn't finite, all weights are returned unchanged.

    rows (Floats2d): The weights, starting with the feature rows. They aren't modified.
        Shape: (V + other rows, K)
    n_features (int): The number of features, V.
    RETURNS (Floats2d): The new weights, which `pack_rows` saves without loss. Same shape as `rows`.
    """
    if not numpy.isfinite(rows).all():
        return rows.copy()
    feature_rows = rows[:n_features]
    other_rows = rows[n_features:]
    is_kept = find_rows_that_matter(feature_rows)
    kept_rows = feature_rows[is_kept]
    step = rounding_step(kept_rows)
    pruned = numpy.zeros_like(rows)
    pruned[:n_features][is_kept] = numpy.rint(kept_rows / step) * step
    # Only round the other rows to the precision of `pack_rows`.
    numbers, exponent = to_whole_numbers(other_rows)
    pruned[n_features:] = to_floats(numbers, exponent)
    return pruned


def find_rows_that_matter(rows: Floats2d) -> Array1d:
    """Select the weight rows to keep. Rows are dropped in order of their largest absolute weight,
    as long as they account for at most `DROPPED_SHARE` of the sum of squared weights. Rows with the
    same largest weight are either all kept or all dropped. Returns a mask that is True for the rows
    to keep. Shapes: (V, K) to (V,)"""
    largest_of_row = numpy.abs(rows).max(axis=1, initial=0)
    square_of_row = numpy.einsum("vk,vk->v", rows, rows, dtype="float64")  # sum of squares
    ascending = numpy.argsort(largest_of_row, kind="stable")
    can_be_dropped = numpy.cumsum(square_of_row[ascending]) <= DROPPED_SHARE * square_of_row.sum()
    n_dropped = int(can_be_dropped.sum())
    if n_dropped == len(rows):
        return numpy.zeros(len(rows), dtype=bool)  # all weights are 0
    first_kept_row = ascending[n_dropped]
    return largest_of_row >= largest_of_row[first_kept_row]


def rounding_step(weights: Floats2d) -> numpy.float32:
    """Choose the power of 2 to use as the step size for rounding. Shape: (V, K)"""
    n_used = numpy.count_nonzero(weights)  # rounding doesn't affect zeros
    if not n_used:
        return numpy.float32(1)
    mean_square = float(numpy.square(weights, dtype="float64").sum()) / n_used
    # Rounding errors are uniform between -step / 2 and step / 2, so their mean square is step^2 /
    # 12. It may be up to `NOISE_SHARE` of the mean squared weight.
    largest_step = numpy.sqrt(12 * NOISE_SHARE * mean_square)
    # The largest power of 2 up to this step: 2^(exponent - 1) <= largest_step < 2^exponent.
    _, exponent = numpy.frexp(largest_step)
    return numpy.ldexp(numpy.float32(1), max(int(exponent) - 1, LEAST_EXPONENT))


def to_whole_numbers(rows: Floats2d) -> tuple[Ints2d, int]:
    """Convert weights to integers times a power of 2. The integers have `N_BITS` bits and a sign,
    so weights may be rounded. Weights that `prune_and_quantize` has already rounded don't change.

    rows (Floats2d): The weights, which have to be finite. Shape: (V, K)
    RETURNS (tuple[Ints2d, int]): The integers, and the exponent of the power of 2: weight = number
        * 2^exponent. Shape of the integers: (V, K)
    """
    largest_weight = numpy.abs(rows).max(initial=0)
    if not largest_weight:
        return numpy.zeros(rows.shape, dtype="int16"), 0
    _, exponent = numpy.frexp(largest_weight)  # the weight is below 2^exponent
    # With this exponent, the largest number has `N_BITS` bits.
    exponent = int(exponent) - N_BITS
    largest_number = 2**N_BITS - 1
    numbers = numpy.rint(numpy.ldexp(rows, -exponent))
    # `rint` may round the largest numbers up to 2^N_BITS, which is out of range for int16.
    numbers = numbers.clip(-largest_number, largest_number).astype("int16")

    # Divide all numbers by the largest power of 2 that they have in common, because smaller numbers
    # compress better. This power is the lowest bit that is set in any of them: `bits & -bits`.
    bits = int(numpy.bitwise_or.reduce(numbers, axis=None))
    n_shifts = (bits & -bits).bit_length() - 1
    return numbers >> n_shifts, exponent + n_shifts


def to_floats(numbers: Ints2d, exponent: int) -> Floats2d:
    """Convert the result of `to_whole_numbers` back to weights. Shape: (V, K)"""
    return numpy.ldexp(numbers.astype("float32"), exponent)


def pack_rows(rows: Floats2d) -> dict[str, Any]:
    """Convert weights to a compact dictionary for saving. Rows that are all 0 are left out, and
    identical rows are only saved once. (Features that always occur together have identical weights,
    and small weights are often identical after rounding.)

    rows (Floats2d): The weights to save. Shape: (V, K)
    RETURNS (dict[str, Any]): The dictionary for `unpack_rows`. If any weight isn't finite, it
        contains no weights and no exponent, and `unpack_rows` raises an error.
    """
    exponent: int | None = None
    numbers = numpy.zeros(rows.shape, dtype="int16")
    if numpy.isfinite(rows).all():
        numbers, exponent = to_whole_numbers(rows)
    used_rows = numpy.flatnonzero(numbers.any(axis=1)).astype("int32")
    distinct_rows, row_ids = find_distinct(numbers[used_rows])
    return {
        "exponent": exponent,
        "used": pack(used_rows),
        "row_ids": pack(row_ids),
        # Store the numbers in column order, because numbers for the same tag are similar and
        # compress well next to each other.
        "numbers": compress(distinct_rows.T.reshape(-1).astype("<i2")),
    }


def unpack_rows(saved: dict[str, Any], rows: Floats2d) -> None:
    """Load weights saved by `pack_rows`.

    saved (dict[str, Any]): The dictionary returned by `pack_rows`.
    rows (Floats2d): An array of zeros to write the weights to. Shape: (V, K)
    RAISES (ValueError): If the weights are damaged or not finite. Other exceptions may be raised as
        well.
    """
    n_rows, n_tags = rows.shape
    exponent = saved["exponent"]
    # A weight is a number of `N_BITS` bits times 2^exponent and has to be below 2^128, the limit of
    # float32. (`isinstance` would also accept True and False as integers.)
    if type(exponent) is not int or exponent > 128 - N_BITS:
        raise ValueError(f"expected finite weights, got an exponent of {exponent!r}")
    used_rows = unpack(saved["used"], most=n_rows)
    check_rows(used_rows, n_rows)
    row_ids = unpack(saved["row_ids"], most=len(used_rows))
    # The numbers are saved in column order: see `pack_rows`. Shapes: (K, distinct rows) before and
    # (distinct rows, K) after transposing
    columns = decompress(saved["numbers"], "<i2", most=n_tags * len(used_rows)).reshape(n_tags, -1)
    numbers = numpy.ascontiguousarray(columns.T)

    is_id = (row_ids >= 0) & (row_ids < len(numbers))
    if len(row_ids) != len(used_rows) or not is_id.all():
        raise ValueError(f"expected one of {len(numbers)} rows for each of {len(used_rows)}")

    # Process the rows in chunks, because converting all rows to floats would use as much memory as
    # `rows`.
    for first_of_chunk in range(0, len(used_rows), CHUNK_SIZE):
        chunk = slice(first_of_chunk, first_of_chunk + CHUNK_SIZE)
        rows[used_rows[chunk]] = to_floats(numbers[row_ids[chunk]], exponent)


def check_rows(row_numbers: Ints1d, n_rows: int) -> None:
    """Check that the indices of saved rows are ascending, at least 0 and less than `n_rows`. Not
    all indices have to occur, because rows that are all 0 aren't saved.

    RAISES (ValueError): If the indices are invalid.
    """
    if not len(row_numbers):
        return
    is_ascending = (row_numbers[1:] > row_numbers[:-1]).all()
    if not (is_ascending and row_numbers[0] >= 0 and row_numbers[-1] < n_rows):
        raise ValueError(f"expected ascending row indices, from 0 to {n_rows - 1}")


def find_distinct(numbers: Ints2d) -> tuple[Ints2d, Ints1d]:
    """Find the distinct rows in an array.

    numbers (Ints2d): The array to search for duplicate rows. Shape: (R, K)
    RETURNS (tuple[Ints2d, Ints1d]): The distinct rows, in order of first occurrence, and the index
        of each row of the array among them. Shapes: (U, K), (R,)
    """
    # To compare rows quickly, hash each row to the sum of its numbers, each multiplied by a random
    # 64-bit factor for the column, modulo 2^64. Equal rows have equal sums. The probability that
    # any two different rows have equal sums is about R^2 / 2^65.
    factors = numpy.random.default_rng(0).integers(2**64, size=numbers.shape[1], dtype="uint64")
    sums = numpy.zeros(len(numbers), dtype="uint64")
    for column, factor in zip(numbers.T, factors):
        sums += column.astype("uint64") * factor

    # `numpy.unique` orders the distinct rows by their sum (rank). Renumber them in order of first
    # occurrence (id).
    _, first_row, rank_of_row = numpy.unique(sums, return_index=True, return_inverse=True)
    order = numpy.argsort(first_row)
    id_of_rank = numpy.empty(len(order), dtype="int32")
    id_of_rank[order] = numpy.arange(len(order))
    return numbers[first_row[order]], id_of_rank[rank_of_row]
