"""Ids of values: maps from hashes to ids, and whole numbers as bytes in saved models."""

import zlib
from collections.abc import Sequence

import numpy
from spacy.strings import get_string_id
from thinc.types import Array1d, Ints1d

from .. import sparse

LOWEST_32_BITS = numpy.uint64(0xFFFFFFFF)
"""Of the hash of a word 32 bits are kept where it says which words a model knows: among 30,000
words, two share them with a probability of .1, and one of 140,000 unknown words is taken for one of
them."""

AS_THEY_ARE = b"n"
DIFFERENCES = b"d"
"""The first byte of packed numbers: what was compressed. Up to 0.3.0 it was missing, and numbers
were compressed as differences, by number and not by byte."""


def id_map(keys: Array1d) -> sparse.IdMap:
    """Make the map from each key to its index in the array, -1 for other keys. Shape: (V,)"""
    ids = sparse.IdMap()
    ids.set(keys, numpy.arange(len(keys), dtype="int32"))
    return ids


def string_id_map(strings: Sequence[str]) -> sparse.IdMap:
    """Make the map from the hash of each string to its index in the list, -1 for other hashes."""
    hashes = [get_string_id(string) for string in strings]
    return id_map(numpy.asarray(hashes, dtype="uint64"))


def pack(numbers: Ints1d) -> bytes:
    """Compress whole numbers of 32 bits to bytes: few, if they are small or if neighbours differ
    little. Shape: (N,)"""
    numbers = numbers.astype("<i4")
    differences = numpy.diff(numbers, prepend=numpy.int32(0)).astype("<i4")
    as_they_are = AS_THEY_ARE + compress(numbers)
    as_differences = DIFFERENCES + compress(differences)
    return min(as_they_are, as_differences, key=len)


def unpack(data: bytes) -> Ints1d:
    """The numbers that `pack` compressed, in int32. Raises an error if they are damaged.
    Shape: (N,)"""
    kind = data[:1]
    if kind == AS_THEY_ARE:
        return decompress(data[1:], "<i4").astype("int32")
    if kind == DIFFERENCES:
        differences = decompress(data[1:], "<i4")
    else:  # up to 0.3.0
        differences = numpy.frombuffer(zlib.decompress(data), dtype="<i4")
    return numpy.cumsum(differences, dtype="int32")


def compress(numbers: Ints1d) -> bytes:
    """Compress whole numbers byte by byte: first the lowest byte of all, and so on. The high bytes
    of small numbers are alike, and take next to nothing. Shape: (N,)"""
    bytes_of_numbers = numbers.reshape(-1, 1).view("uint8")  # (N, itemsize), the lowest first
    return zlib.compress(bytes_of_numbers.T.tobytes(), level=9)


def decompress(data: bytes, dtype: str) -> Ints1d:
    """The numbers that `compress` compressed, of this type. Raises an error if they are damaged.
    Shape: (N,)"""
    n_bytes = numpy.dtype(dtype).itemsize
    bytes_of_numbers = numpy.frombuffer(zlib.decompress(data), dtype="uint8")
    by_number = bytes_of_numbers.reshape(n_bytes, -1).T
    return numpy.ascontiguousarray(by_number).view(dtype).reshape(-1)


def pack_hashes(hashes: Array1d) -> bytes:
    """Compress hashes of 32 bits. Ascending ones take two thirds. Shape: (N,)"""
    return pack(hashes.astype("<u4").view("<i4"))


def unpack_hashes(data: bytes) -> Array1d:
    """The hashes that `pack_hashes` compressed, in uint32. Shape: (N,)"""
    return unpack(data).view("uint32")
