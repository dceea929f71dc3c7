"""Whole numbers in few bytes."""

import zlib

import numpy
from thinc.types import Ints1d


def pack(numbers: Ints1d) -> bytes:
    """Whole numbers of 32 bits as bytes, few if neighbours differ little.

    numbers (Ints1d): Shape: (N,)
    RETURNS (bytes): What `unpack` takes.
    """
    return zlib.compress(numpy.diff(numbers, prepend=0).astype("<i4").tobytes())


def unpack(data: bytes) -> Ints1d:
    """The numbers that were packed, in int32. Shape: (N,)"""
    return numpy.cumsum(numpy.frombuffer(zlib.decompress(data), dtype="<i4"), dtype="int32")
