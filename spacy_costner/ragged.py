"""Arrays in which sequences of any lengths stand one after another, without padding.

B is the number of sequences, N the number of tokens in all of them. What is said of tokens holds
for any parts, such as the words of a list.
"""

import numpy
from thinc.types import Array1d, Array2d, Floats2d, Ints1d


def sequence_ids(lengths: Ints1d) -> Ints1d:
    """The sequence of each token, counted from 0: lengths [2, 3] give [0, 0, 1, 1, 1].
    Shapes: (B,) to (N,)"""
    return numpy.repeat(numpy.arange(len(lengths)), lengths)


def first_tokens(lengths: Ints1d) -> Ints1d:
    """The first token of each sequence that has tokens, counted over the batch: lengths [2, 0, 3]
    give [0, 2]."""
    begins = lengths.cumsum() - lengths
    return begins[lengths > 0]


def last_tokens(lengths: Ints1d) -> Ints1d:
    """The last token of each sequence that has tokens, counted over the batch: lengths [2, 0, 3]
    give [1, 4]."""
    ends = lengths.cumsum()
    return ends[lengths > 0] - 1


def sum_sequences(rows: Array2d, lengths: Ints1d) -> Floats2d:
    """The sum of the rows of each sequence, in float64: 0 for a sequence without tokens.
    Shapes: (N, M), (B,) to (B, M)"""
    sums = numpy.zeros((len(lengths), rows.shape[1]))
    if len(rows):
        # `reduceat` sums from the first token of each sequence to that of the next one. It can't
        # sum over no tokens.
        first = first_tokens(lengths)
        sums[lengths > 0] = numpy.add.reduceat(rows, first, axis=0, dtype=sums.dtype)
    return sums


def ranges(begin: Ints1d, end: Ints1d) -> tuple[Ints1d, Ints1d]:
    """The numbers of ranges, one range after another.

    For example, begin [3, 8] and end [5, 11] give [0, 0, 1, 1, 1] and [3, 4, 8, 9, 10].

    begin (Ints1d): The first number of each range. Shape: (R,)
    end (Ints1d): The number after the last one of each range. Shape: (R,)
    RETURNS (tuple[Ints1d, Ints1d]): For each number the index of its range; the numbers.
        Shapes: (N,)
    """
    sizes = (end - begin).astype("int64")
    range_ids = sequence_ids(sizes)
    # Counting up over all ranges, each range starts at the sum of the sizes before it. It has to
    # start at its `begin`.
    shifts = begin - (numpy.cumsum(sizes) - sizes)
    return range_ids, numpy.arange(len(range_ids)) + shifts[range_ids]


def places_in(ascending: Array1d, keys: Array1d) -> tuple[Ints1d, Ints1d]:
    """Find all places of keys in an ascending array. For example, the key 5 is at the places 1 and
    2 of [3, 5, 5, 8].

    ascending (Array1d): The array to search, in which a value may stand several times.
    keys (Array1d): The values to look for.
    RETURNS (tuple[Ints1d, Ints1d]): For each place the index of its key; the places. Shapes: (N,)
    """
    begin = numpy.searchsorted(ascending, keys, side="left")
    end = numpy.searchsorted(ascending, keys, side="right")
    return ranges(begin, end)
