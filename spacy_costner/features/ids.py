"""Maps from hashes to ids, and compression of ids and hashes for saved models.

Ids are consecutive integers starting at 0, and columns use them to refer to values. Hashes are
spaCy's 64-bit hashes. If a hash is only used to check whether the model contains a word, only the
lowest 32 bits are stored.
"""

import zlib
from collections.abc import Sequence

import numpy
from spacy.strings import get_string_id
from thinc.types import Array1d, Ints1d

from .. import sparse
from ..files.compression import inflate

LOWEST_32_BITS = numpy.uint64(0xFFFFFFFF)
"""Mask that selects the bits of a hash to store. In a model with 30,000 words, the probability that
any two of them share these bits is .1, and one in 140,000 unknown words is mistaken for a known
one."""

TRIAL_LEVEL = 1
"""The zlib compression level used to check which of two encodings is shorter."""

SAVED_LEVEL = 7
"""The zlib compression level for saved data. Level 9 is many times slower for sorted hashes and
reduces the size by only 1 to 3%."""

AS_THEY_ARE = b"n"
"""The first byte of packed numbers that are stored directly."""

DIFFERENCES = b"d"
"""The first byte of packed numbers that are stored as differences."""

MOST_ALIKE = 1 << 20
"""The maximum size of an array of identical numbers to unpack if the expected size isn't known.
Larger arrays have to contain different numbers: see `most_numbers`."""


def id_map(keys: Array1d) -> sparse.IdMap:
    """Create a map from each key in an array of shape (V,) to its index. All other keys are mapped
    to -1."""
    ids = sparse.IdMap()
    ids.set(keys, numpy.arange(len(keys), dtype="int32"))
    return ids


def string_id_map(strings: Sequence[str]) -> sparse.IdMap:
    """Create a map from the hash of each string in a list to its index. All other hashes are mapped
    to -1."""
    hashes = [get_string_id(string) for string in strings]
    return id_map(numpy.asarray(hashes, dtype="uint64"))


def pack(numbers: Ints1d) -> bytes:
    """Compress 32-bit integers. The numbers are stored directly or as differences between adjacent
    numbers, whichever is shorter at `TRIAL_LEVEL`. Shape: (N,)"""
    numbers = numbers.astype("<i4")
    # Differences may overflow, but the sums in `unpack` are still correct modulo 2^32.
    differences = numpy.diff(numbers, prepend=numpy.int32(0)).astype("<i4")
    if len(compress(numbers, TRIAL_LEVEL)) <= len(compress(differences, TRIAL_LEVEL)):
        return AS_THEY_ARE + compress(numbers)
    return DIFFERENCES + compress(differences)


def unpack(data: bytes, most: int | None = None) -> Ints1d:
    """Decompress the numbers compressed by `pack`.

    data (bytes): The compressed numbers.
    most (int | None): The maximum expected N. Larger arrays are rejected before they fill the
        memory. None if it isn't known: see `most_numbers`.
    RETURNS (Ints1d): The numbers, in int32. Shape: (N,)
    RAISES (Exception): Any exception, if the data is damaged or contains too many numbers.
    """
    if most is None:
        most = most_numbers(data, MOST_ALIKE)
    kind = data[:1]
    if kind not in (AS_THEY_ARE, DIFFERENCES):
        raise ValueError(
            f"expected packed numbers, which begin with {AS_THEY_ARE!r} or {DIFFERENCES!r}, got "
            f"{kind!r}"
        )
    numbers = decompress(data[1:], "<i4", most)
    if kind == DIFFERENCES:
        return numpy.cumsum(numbers, dtype="int32")
    return numbers.astype("int32")


def most_numbers(data: bytes, n_alike: int) -> int:
    """Return the maximum number of integers that the compressed data is expected to contain. Up to
    `n_alike` integers may be identical. If there are more, each has to take up at least half a bit,
    as in models trained on large corpora. Zeros would only take up a thirtieth of a bit."""
    return max(n_alike, 16 * len(data))


def compress(numbers: Ints1d, level: int = SAVED_LEVEL) -> bytes:
    """Compress integers of shape (N,) byte by byte: the lowest byte of every number first, then the
    next byte of every number, and so on. The high bytes of small numbers are identical and take up
    almost no space. `level` is the zlib compression level."""
    bytes_of_numbers = numbers.reshape(-1, 1).view("uint8")  # (N, itemsize), the lowest byte first
    return zlib.compress(bytes_of_numbers.T.tobytes(), level)


def decompress(data: bytes, dtype: str, most: int) -> Ints1d:
    """Decompress up to `most` numbers of the given dtype that were compressed by `compress`.
    Shape: (N,)

    RAISES (Exception): Any exception, if the data is damaged or contains more than `most` numbers.
    """
    n_bytes = numpy.dtype(dtype).itemsize
    bytes_of_numbers = numpy.frombuffer(inflate(data, n_bytes * most), dtype="uint8")
    by_number = bytes_of_numbers.reshape(n_bytes, -1).T
    return numpy.ascontiguousarray(by_number).view(dtype).reshape(-1)


def pack_hashes(hashes: Array1d) -> bytes:
    """Compress 32-bit hashes. In ascending order, they take up a third less space than in any other
    order. Shape: (N,)"""
    return pack(hashes.astype("<u4").view("<i4"))  # reinterpret as signed integers


def unpack_hashes(data: bytes) -> Array1d:
    """Decompress hashes compressed by `pack_hashes` into a uint32 array. Shape: (N,)

    RAISES (Exception): Any exception, if the data is damaged or contains too many hashes.
    """
    # Hashes behave like random numbers. Even 40 million sorted hashes take up at least one byte
    # each: log2(2^32 / 40e6) + 1.4 bits. (Identical hashes take up less.)
    return unpack(data, most=max(1000, len(data))).view("uint32")
