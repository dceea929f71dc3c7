"""Maps from hashes to ids, and compressing ids and hashes for saved models.

A column knows its values by ids, which are 0, 1, 2 and so on. Hashes are spaCy's, of 64 bits. Where
a hash only has to tell whether a model knows a word, its lowest 32 bits are kept.
"""

import zlib
from collections.abc import Sequence

import numpy
from spacy.strings import get_string_id
from thinc.types import Array1d, Ints1d

from .. import sparse
from ..files.compression import inflate

LOWEST_32_BITS = numpy.uint64(0xFFFFFFFF)
"""Selects the bits of a hash that are kept. In a model that knows 30,000 words, two of them share
these bits with a probability of .1, and one of 140,000 unknown words is taken for a known one."""

TRIAL_LEVEL = 1
"""zlib's level of compression to find out which of two forms is shorter."""

SAVED_LEVEL = 6
"""zlib's level of compression of saved data. Level 9 takes many times as long on sorted hashes and
saves 1 or 2 % of the bytes."""

AS_THEY_ARE = b"n"
"""The first byte of packed numbers that were compressed as they are."""

DIFFERENCES = b"d"
"""The first byte of packed numbers whose differences were compressed."""

MOST_ALIKE = 1 << 20
"""The number of numbers that are unpacked although nothing else says how many there are, even if
they are all alike. More than these have to differ: see `most_numbers`."""


def id_map(keys: Array1d) -> sparse.IdMap:
    """Make a map from each key in an array, (V,), to its index. Other keys are mapped to -1."""
    ids = sparse.IdMap()
    ids.set(keys, numpy.arange(len(keys), dtype="int32"))
    return ids


def string_id_map(strings: Sequence[str]) -> sparse.IdMap:
    """Make a map from the hash of each string in a list to its index. Other hashes are mapped to
    -1."""
    hashes = [get_string_id(string) for string in strings]
    return id_map(numpy.asarray(hashes, dtype="uint64"))


def pack(numbers: Ints1d) -> bytes:
    """Compress whole numbers of 32 bits, (N,). Small numbers take fewer bytes, and so do numbers
    that differ little from the previous one: the form that is shorter at `TRIAL_LEVEL` is
    returned."""
    numbers = numbers.astype("<i4")
    # A difference may be too large for 32 bits. It is then right modulo 2^32, and so is the sum
    # that `unpack` makes.
    differences = numpy.diff(numbers, prepend=numpy.int32(0)).astype("<i4")
    if len(compress(numbers, TRIAL_LEVEL)) <= len(compress(differences, TRIAL_LEVEL)):
        return AS_THEY_ARE + compress(numbers)
    return DIFFERENCES + compress(differences)


def unpack(data: bytes, most: int | None = None) -> Ints1d:
    """Decompress the numbers that `pack` has compressed.

    data (bytes): The compressed numbers.
    most (int | None): The largest N that is expected. More are refused before they fill the memory.
        None: the number is unknown. See `most_numbers`.
    RETURNS (Ints1d): The numbers, in int32. Shape: (N,)
    RAISES (Exception): If the data is damaged, or has too many numbers: an error of any kind.
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
    """The maximum number of numbers that compressed data is expected to have: `n_alike`, which may
    be all alike. More than these take half a bit each, as the numbers of large corpora do. Zeros
    would take a thirtieth of a bit."""
    return max(n_alike, 16 * len(data))


def compress(numbers: Ints1d, level: int = SAVED_LEVEL) -> bytes:
    """Compress whole numbers, (N,), byte by byte: first the lowest byte of every number, then the
    next byte of every number, and so on. The high bytes of small numbers are all alike, and need
    next to no space. `level` is a level of zlib."""
    bytes_of_numbers = numbers.reshape(-1, 1).view("uint8")  # (N, itemsize), the lowest byte first
    return zlib.compress(bytes_of_numbers.T.tobytes(), level)


def decompress(data: bytes, dtype: str, most: int) -> Ints1d:
    """The numbers of this type that `compress` has compressed: at most `most`. Shape: (N,)

    RAISES (Exception): If the data is damaged, or has more numbers: an error of any kind.
    """
    n_bytes = numpy.dtype(dtype).itemsize
    bytes_of_numbers = numpy.frombuffer(inflate(data, n_bytes * most), dtype="uint8")
    by_number = bytes_of_numbers.reshape(n_bytes, -1).T
    return numpy.ascontiguousarray(by_number).view(dtype).reshape(-1)


def pack_hashes(hashes: Array1d) -> bytes:
    """Compress hashes of 32 bits, (N,). If they are ascending, they need two thirds of the space
    that they need in any other order."""
    return pack(hashes.astype("<u4").view("<i4"))  # the same bits as numbers with a sign


def unpack_hashes(data: bytes) -> Array1d:
    """The hashes that `pack_hashes` has compressed, in uint32. Shape: (N,)

    RAISES (Exception): If the data is damaged, or has too many hashes: an error of any kind.
    """
    # Hashes are random numbers. Even if they are sorted, and there are 40 million, each of them
    # takes a byte: log2(2^32 / 40e6) + 1.4 bits. (A few may be alike.)
    return unpack(data, most=max(1000, len(data))).view("uint32")
