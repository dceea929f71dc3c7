"""Prune and quantize the weights of a linear model, and save them in few bytes.

Most weights are nearly 0. After training, `prune_and_quantize` sets the weights that hardly matter
to 0, and rounds the others. A pipeline is evaluated, calibrated and tuned with these weights, so
that the saved pipeline is the one that was evaluated. `pack_rows` saves them without rounding them
again. When the model is saved, features without weights leave the vocabulary: see
`pipeline.serialization.save_model`.

In shapes, V is the number of features, each of which has a row of weights, and K of tags.
"""

from typing import Any

import numpy
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from ..features.ids import compress, decompress, pack, unpack

DROPPED_SHARE = 0.04
"""How much is set to 0, as a share of the sum of the squared weights of features. Rows are dropped
in the order of their largest weight, the smallest first: on Spanish, three of four rows. To order
rows by how often they occur or by their squared gradients (LeCun, Denker & Solla, 1990, Optimal
brain damage) was no better."""

NOISE_SHARE = 0.01
"""The maximum noise that rounding adds: its mean square, as a share of the mean square of the
weights."""

N_BITS = 15
"""The bits of a saved weight, without its sign."""

LEAST_EXPONENT = -149
"""The exponent of the smallest power of 2 that a float of 32 bits can be."""

CHUNK_SIZE = 1 << 12
"""The number of rows that are loaded at a time."""


def prune_and_quantize(rows: Floats2d, n_features: int) -> Floats2d:
    """Set the rows of features that hardly matter to 0, and round the other weights to multiples of
    a power of 2. If some weights are not finite, all stay as they are.

    rows (Floats2d): The weights: the rows of features come first. They aren't changed.
        Shape: (V + other rows, K)
    n_features (int): The number of features, V.
    RETURNS (Floats2d): The new weights, which `pack_rows` saves exactly. Shape: as `rows`
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
    # The other rows are rounded as little as possible: to what `pack_rows` can save.
    numbers, exponent = to_whole_numbers(other_rows)
    pruned[n_features:] = to_floats(numbers, exponent)
    return pruned


def find_rows_that_matter(rows: Floats2d) -> Array1d:
    """Find the rows of weights to keep. Rows whose largest weight is small are dropped first, as
    long as the dropped rows have at most `DROPPED_SHARE` of the sum of all squared weights. Rows
    with the same largest weight are kept or dropped together. Returns True for the rows to keep.
    Shapes: (V, K) to (V,)"""
    largest_of_row = numpy.abs(rows).max(axis=1, initial=0)
    square_of_row = numpy.einsum("vk,vk->v", rows, rows, dtype="float64")  # its sum of squares
    ascending = numpy.argsort(largest_of_row, kind="stable")
    can_be_dropped = numpy.cumsum(square_of_row[ascending]) <= DROPPED_SHARE * square_of_row.sum()
    n_dropped = int(can_be_dropped.sum())
    if n_dropped == len(rows):
        return numpy.zeros(len(rows), dtype=bool)  # all weights are 0
    first_kept_row = ascending[n_dropped]
    return largest_of_row >= largest_of_row[first_kept_row]


def rounding_step(weights: Floats2d) -> numpy.float32:
    """Choose the step of rounding: weights are rounded to multiples of this power of 2.
    Shape: (V, K)"""
    n_used = numpy.count_nonzero(weights)  # rounding doesn't change weights of 0: they don't count
    if not n_used:
        return numpy.float32(1)
    mean_square = float(numpy.square(weights, dtype="float64").sum()) / n_used
    # Errors of rounding are uniform between - step / 2 and step / 2: the mean of their squares is
    # step^2 / 12. It may be `NOISE_SHARE` of the mean square of the weights.
    largest_step = numpy.sqrt(12 * NOISE_SHARE * mean_square)
    # The largest power of 2 that isn't above this: 2^(exponent - 1) <= largest_step < 2^exponent.
    _, exponent = numpy.frexp(largest_step)
    return numpy.ldexp(numpy.float32(1), max(int(exponent) - 1, LEAST_EXPONENT))


def to_whole_numbers(rows: Floats2d) -> tuple[Ints2d, int]:
    """Write weights as whole numbers times a power of 2. The numbers have `N_BITS` bits and a sign,
    so that weights may be rounded. Weights that `prune_and_quantize` has rounded stay the same.

    rows (Floats2d): Finite weights. Shape: (V, K)
    RETURNS (tuple[Ints2d, int]): The whole numbers, and the exponent of the power of 2:
        weight = number * 2^exponent. Shape of the numbers: (V, K)
    """
    largest_weight = numpy.abs(rows).max(initial=0)
    if not largest_weight:
        return numpy.zeros(rows.shape, dtype="int16"), 0
    _, exponent = numpy.frexp(largest_weight)  # the weight is below 2^exponent
    # With this exponent the largest number has `N_BITS` bits.
    exponent = int(exponent) - N_BITS
    largest_number = 2**N_BITS - 1
    numbers = numpy.rint(numpy.ldexp(rows, -exponent))
    # `rint` may round the largest ones up to 2^N_BITS, which int16 doesn't have.
    numbers = numbers.clip(-largest_number, largest_number).astype("int16")

    # Divide all numbers by the largest power of 2 that divides each of them, as small numbers take
    # fewer bytes. It is the lowest bit that is 1 in any number: `bits & -bits`.
    bits = int(numpy.bitwise_or.reduce(numbers, axis=None))
    n_shifts = (bits & -bits).bit_length() - 1
    return numbers >> n_shifts, exponent + n_shifts


def to_floats(numbers: Ints2d, exponent: int) -> Floats2d:
    """Compute the weights that `to_whole_numbers` wrote as whole numbers times a power of 2.
    Shape: (V, K)"""
    return numpy.ldexp(numbers.astype("float32"), exponent)


def pack_rows(rows: Floats2d) -> dict[str, Any]:
    """Turn weights into a dictionary that can be saved in few bytes. Rows in which all weights are
    0 are left out, and rows that are equal are saved once. (Features that always occur together
    have equal weights, and small weights are often equal after rounding.)

    rows (Floats2d): The weights. Shape: (V, K)
    RETURNS (dict[str, Any]): The dictionary that `unpack_rows` reads. If some weights are not
        finite, it has no weights and no exponent: `unpack_rows` refuses it.
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
        # Column after column: numbers of the same tag are alike, and compress well next to each
        # other.
        "numbers": compress(distinct_rows.T.reshape(-1).astype("<i2")),
    }


def unpack_rows(saved: dict[str, Any], rows: Floats2d) -> None:
    """Load the weights that `pack_rows` turned into a dictionary.

    saved (dict[str, Any]): The dictionary.
    rows (Floats2d): An array of 0, which the weights are written into. Shape: (V, K)
    RAISES (ValueError): If the weights are damaged or not finite. Other errors may be raised, too.
    """
    n_rows, n_tags = rows.shape
    exponent = saved["exponent"]
    # A weight is a number of `N_BITS` bits times 2^exponent, and below 2^128 as a float of 32 bits.
    # (`isinstance` would accept True and False as integers.)
    if type(exponent) is not int or exponent > 128 - N_BITS:
        raise ValueError(f"expected finite weights, got an exponent of {exponent!r}")
    used_rows = unpack(saved["used"], most=n_rows)
    check_rows(used_rows, n_rows)
    row_ids = unpack(saved["row_ids"], most=len(used_rows))
    # They are saved column after column: see `pack_rows`. Shapes: (K, distinct rows) and turned
    columns = decompress(saved["numbers"], "<i2", most=n_tags * len(used_rows)).reshape(n_tags, -1)
    numbers = numpy.ascontiguousarray(columns.T)

    is_id = (row_ids >= 0) & (row_ids < len(numbers))
    if len(row_ids) != len(used_rows) or not is_id.all():
        raise ValueError(f"expected one of {len(numbers)} rows for each of {len(used_rows)}")

    # In chunks, as all rows as floats would take as much memory as `rows`.
    for first_of_chunk in range(0, len(used_rows), CHUNK_SIZE):
        chunk = slice(first_of_chunk, first_of_chunk + CHUNK_SIZE)
        rows[used_rows[chunk]] = to_floats(numbers[row_ids[chunk]], exponent)


def check_rows(row_numbers: Ints1d, n_rows: int) -> None:
    """Check that the indices of saved rows ascend, and that each is at least 0 and less than
    `n_rows`. Numbers may be missing: rows of 0 aren't saved.

    RAISES (ValueError): If they don't.
    """
    if not len(row_numbers):
        return
    is_ascending = (row_numbers[1:] > row_numbers[:-1]).all()
    if not (is_ascending and row_numbers[0] >= 0 and row_numbers[-1] < n_rows):
        raise ValueError(f"expected ascending row indices, from 0 to {n_rows - 1}")


def find_distinct(numbers: Ints2d) -> tuple[Ints2d, Ints1d]:
    """Find the distinct rows of an array.

    numbers (Ints2d): The array. Shape: (R, K)
    RETURNS (tuple[Ints2d, Ints1d]): The distinct rows, in the order in which they first occur; and
        for each row of the array its place among them. Shapes: (U, K), (R,)
    """
    # To compare rows fast, each gets one number: the sum of its numbers, each times a random number
    # of 64 bits for its column, modulo 2^64. Equal rows have equal sums. That two different rows
    # have equal sums has a probability of about R^2 / 2^65.
    factors = numpy.random.default_rng(0).integers(2**64, size=numbers.shape[1], dtype="uint64")
    sums = numpy.zeros(len(numbers), dtype="uint64")
    for column, factor in zip(numbers.T, factors):
        sums += column.astype("uint64") * factor

    # `numpy.unique` numbers the distinct rows in the order of their sums: the rank. The id of a row
    # is its number in the order of first occurrence.
    _, first_row, rank_of_row = numpy.unique(sums, return_index=True, return_inverse=True)
    order = numpy.argsort(first_row)
    id_of_rank = numpy.empty(len(order), dtype="int32")
    id_of_rank[order] = numpy.arange(len(order))
    return numbers[first_row[order]], id_of_rank[rank_of_row]
