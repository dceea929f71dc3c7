"""Ragged arrays: sequences of different lengths, one after another, without padding.

In shapes, B is the number of sequences, N the number of tokens in all of them. A sequence may
consist of other items instead of tokens.
"""

import numpy
from thinc.types import Array1d, Array2d, Floats2d, Ints1d


def sequence_ids(lengths: Ints1d) -> Ints1d:
    """The index of the sequence of each token. The lengths [2, 3] give [0, 0, 1, 1, 1].
    Shapes: (B,) to (N,)"""
    return numpy.repeat(numpy.arange(len(lengths)), lengths)


def first_tokens(lengths: Ints1d) -> Ints1d:
    """The first token of each sequence that has tokens, as an index in the ragged array. The
    lengths [2, 0, 3] give [0, 2]. Shapes: (B,) to (number of sequences with tokens,)"""
    begins = lengths.cumsum() - lengths
    return begins[lengths > 0]


def last_tokens(lengths: Ints1d) -> Ints1d:
    """The last token of each sequence that has tokens, as an index in the ragged array. The lengths
    [2, 0, 3] give [1, 4]. Shapes: (B,) to (number of sequences with tokens,)"""
    ends = lengths.cumsum()
    return ends[lengths > 0] - 1


def sum_sequences(rows: Array2d, lengths: Ints1d) -> Floats2d:
    """Sum the rows of the tokens of each sequence, in float64. A sequence without tokens has the
    sum 0. Shapes: (N, M), (B,) to (B, M)"""
    sums = numpy.zeros((len(lengths), rows.shape[1]))
    if len(rows):
        # `reduceat` sums the rows from each index up to the next index. It can't sum zero rows, so
        # sequences without tokens are left out.
        first = first_tokens(lengths)
        sums[lengths > 0] = numpy.add.reduceat(rows, first, axis=0, dtype=sums.dtype)
    return sums


def ranges(begin: Ints1d, end: Ints1d) -> tuple[Ints1d, Ints1d]:
    """List the numbers of several ranges, one range after another.

    The ranges from 3 to 4 and from 8 to 10, with begin [3, 8] and end [5, 11], give the indices
    [0, 0, 1, 1, 1] and the numbers [3, 4, 8, 9, 10].

    begin (Ints1d): The first number of each range. Shape: (R,)
    end (Ints1d): The number after the last one of each range. Shape: (R,)
    RETURNS (tuple[Ints1d, Ints1d]): The index of the range of each number, and the numbers.
        Shapes: (N,)
    """
    sizes = (end - begin).astype("int64")
    range_ids = sequence_ids(sizes)
    # In 0, 1, 2, … over all ranges, each range begins with the sum of the sizes before it. It is
    # shifted, so that it begins with its own first number.
    sizes_before = numpy.cumsum(sizes) - sizes
    shifts = begin - sizes_before
    return range_ids, numpy.arange(len(range_ids)) + shifts[range_ids]


def places_in(ascending: Array1d, keys: Array1d) -> tuple[Ints1d, Ints1d]:
    """Find all places of several keys in an ascending array. For example, the key 5 is at the
    places 1 and 2 of [3, 5, 5, 8].

    ascending (Array1d): The array to search. A value may be in it several times.
    keys (Array1d): The values to look for.
    RETURNS (tuple[Ints1d, Ints1d]): For each place, the index of its key, and the place. The places
        of the first key come first, then the places of the second key, and so on. Shapes: (N,)
    """
    begin = numpy.searchsorted(ascending, keys, side="left")
    end = numpy.searchsorted(ascending, keys, side="right")
    return ranges(begin, end)
