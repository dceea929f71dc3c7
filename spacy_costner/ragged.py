"""Ragged arrays: concatenated sequences of different lengths, without padding.

In shapes, B is the number of sequences and N the total number of tokens. A sequence may consist of
other items instead of tokens.
"""

import numpy
from thinc.types import Array1d, Array2d, Floats2d, Ints1d


def sequence_ids(lengths: Ints1d) -> Ints1d:
    """Return the index of each token's sequence, e.g. [0, 0, 1, 1, 1] for the lengths [2, 3].
    Shapes: (B,) to (N,)"""
    return numpy.repeat(numpy.arange(len(lengths)), lengths)


def first_tokens(lengths: Ints1d) -> Ints1d:
    """Return the index of the first token of each non-empty sequence, e.g. [0, 2] for the lengths
    [2, 0, 3]. Shapes: (B,) to (number of non-empty sequences,)"""
    begins = lengths.cumsum() - lengths
    return begins[lengths > 0]


def last_tokens(lengths: Ints1d) -> Ints1d:
    """Return the index of the last token of each non-empty sequence, e.g. [1, 4] for the lengths
    [2, 0, 3]. Shapes: (B,) to (number of non-empty sequences,)"""
    ends = lengths.cumsum()
    return ends[lengths > 0] - 1


def sum_sequences(rows: Array2d, lengths: Ints1d) -> Floats2d:
    """Sum the rows of each sequence in float64. The sum of an empty sequence is 0.
    Shapes: (N, M), (B,) to (B, M)"""
    sums = numpy.zeros((len(lengths), rows.shape[1]))
    if len(rows):
        # `reduceat` sums the rows between consecutive indices. Empty sequences are omitted, because
        # it doesn't support empty sums.
        first = first_tokens(lengths)
        sums[lengths > 0] = numpy.add.reduceat(rows, first, axis=0, dtype=sums.dtype)
    return sums


def ranges(begin: Ints1d, end: Ints1d) -> tuple[Ints1d, Ints1d]:
    """Concatenate several ranges of numbers.

    For example, for the ranges 3 to 4 and 8 to 10, i.e. `begin` [3, 8] and `end` [5, 11], the
    indices are [0, 0, 1, 1, 1] and the numbers are [3, 4, 8, 9, 10].

    begin (Ints1d): The first number of each range. Shape: (R,)
    end (Ints1d): The end of each range (exclusive). Shape: (R,)
    RETURNS (tuple[Ints1d, Ints1d]): The index of each number's range, and the numbers.
        Shapes: (N,)
    """
    sizes = (end - begin).astype("int64")
    range_ids = sequence_ids(sizes)
    # Start with 0, 1, 2, …, where each range starts at the total size of the ranges before it.
    # Then shift each range so that it starts at its first number.
    sizes_before = numpy.cumsum(sizes) - sizes
    shifts = begin - sizes_before
    return range_ids, numpy.arange(len(range_ids)) + shifts[range_ids]


def places_in(ascending: Array1d, keys: Array1d) -> tuple[Ints1d, Ints1d]:
    """Find all positions of several keys in an ascending array, e.g. the positions 1 and 2 of the
    key 5 in [3, 5, 5, 8].

    ascending (Array1d): The array to search. It may contain duplicates.
    keys (Array1d): The values to search for.
    RETURNS (tuple[Ints1d, Ints1d]): The index of the key and the position of each match, sorted by
        key index. Shapes: (N,)
    """
    begin = numpy.searchsorted(ascending, keys, side="left")
    end = numpy.searchsorted(ascending, keys, side="right")
    return ranges(begin, end)
