"""Ids of values: maps from hashes to ids, and arrays of ids as bytes."""

import zlib
from collections.abc import Sequence

import numpy
from spacy.strings import get_string_id
from thinc.types import Array1d, Ints1d

from .. import sparse


def id_map(keys: Array1d) -> sparse.IdMap:
    """Map each key to its index. Shape: (V,)"""
    ids = sparse.IdMap()
    ids.set(keys, numpy.arange(len(keys), dtype="int32"))
    return ids


def string_id_map(strings: Sequence[str]) -> sparse.IdMap:
    """Map the hash of each string to its index."""
    return id_map(numpy.asarray([get_string_id(string) for string in strings], dtype="uint64"))


def pack(numbers: Ints1d) -> bytes:
    """Whole numbers of 32 bits as bytes, few if neighbours differ little. Shape: (N,)"""
    return zlib.compress(numpy.diff(numbers, prepend=0).astype("<i4").tobytes())


def unpack(data: bytes) -> Ints1d:
    """The numbers that were packed, in int32. Shape: (N,)"""
    return numpy.cumsum(numpy.frombuffer(zlib.decompress(data), dtype="<i4"), dtype="int32")
