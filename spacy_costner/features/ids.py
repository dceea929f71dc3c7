"""Ids of values: maps from hashes to ids, and arrays of ids as bytes in saved models."""

import zlib
from collections.abc import Sequence

import numpy
from spacy.strings import get_string_id
from thinc.types import Array1d, Ints1d

from .. import sparse


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
    """Compress whole numbers of 32 bits to bytes: few, if neighbours differ little, as only the
    differences are stored. Shape: (N,)"""
    differences = numpy.diff(numbers, prepend=0).astype("<i4")
    return zlib.compress(differences.tobytes())


def unpack(data: bytes) -> Ints1d:
    """The numbers that `pack` compressed, in int32. Shape: (N,)"""
    differences = numpy.frombuffer(zlib.decompress(data), dtype="<i4")
    return numpy.cumsum(differences, dtype="int32")
