"""The binary form of model files for pages, which `javascript/model_file.js` reads.

It is compressed by gzip. Below that it has

    8 bytes     "costner" and a line break
    4 bytes     the version of this form
    4 bytes     the length of the header
    the header  JSON in UTF-8, which describes each array under "arrays"
    the arrays  one after another
    4 bytes     the CRC-32 of all bytes before it

All numbers have their lowest byte first. Whole numbers are written byte by byte, first the lowest
byte of all of them, and so on, as the high bytes of small numbers are alike. Where that is shorter,
the differences of neighbouring numbers are written instead. The header then has "differences".
"""

import gzip
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy
from thinc.types import ArrayXd

VERSION = 2
"""The version of the form. A page refuses files of another version."""

MAGIC = b"costner\n"
"""The first bytes of the content, by which a page knows a model file."""

DTYPES = ("float64", "int32", "uint32", "int16", "uint8")
"""The types of arrays that JavaScript reads."""


def pack_file(header: Mapping[str, Any], arrays: Mapping[str, ArrayXd]) -> bytes:
    """Make a model file. The same arguments give the same bytes.

    header (Mapping[str, Any]): Everything that is not in arrays, as JSON.
    arrays (Mapping[str, ArrayXd]): The arrays, by name.
    RETURNS (bytes): The file.
    RAISES (ValueError): If the type of an array is not one of `DTYPES`, or a number of the header
        is not finite.
    """
    entries: dict[str, dict[str, Any]] = {}
    parts: list[bytes] = []
    offset = 0
    for name, array in arrays.items():
        part, has_differences = _pack_array(array)
        entries[name] = {"dtype": array.dtype.name, "shape": array.shape, "offset": offset}
        if has_differences:
            entries[name]["differences"] = True
        parts.append(part)
        offset += len(part)

    header_as_json = json.dumps(
        {**header, "arrays": entries}, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    header_bytes = header_as_json.encode("utf8")
    sizes = struct.pack("<II", VERSION, len(header_bytes))
    content = b"".join([MAGIC, sizes, header_bytes, *parts])
    checksum = struct.pack("<I", zlib.crc32(content))
    return gzip.compress(content + checksum, compresslevel=9, mtime=0)


def _pack_array(array: ArrayXd) -> tuple[bytes, bool]:
    """Turn an array into bytes. Also returns whether the bytes have the differences of neighbouring
    numbers. These are used where they take less space, as for ascending numbers, but only for whole
    numbers in one dimension. Refuses a type that is not one of `DTYPES`."""
    if array.dtype.name not in DTYPES:
        raise ValueError(f"expected an array of {' or '.join(DTYPES)}, got {array.dtype}")
    if array.dtype.kind == "f":
        return array.astype("<f8").tobytes(), False
    as_they_are = _by_byte(array)
    if array.ndim != 1 or not len(array):
        return as_they_are, False
    differences = array.copy()
    differences[1:] -= array[:-1]  # modulo the range of the type, as in JavaScript
    as_differences = _by_byte(differences)
    if len(zlib.compress(as_differences)) < len(zlib.compress(as_they_are)):
        return as_differences, True
    return as_they_are, False


def _by_byte(numbers: ArrayXd) -> bytes:
    """Turn whole numbers into bytes: first the lowest byte of each number, then the next byte of
    each, and so on. The numbers 1 and 258, of 16 bits, become 1, 2, 0, 1."""
    flat = numbers.astype(numbers.dtype.newbyteorder("<")).reshape(-1, 1)
    bytes_of_numbers = numpy.ascontiguousarray(flat).view("uint8")  # (N, itemsize)
    return bytes_of_numbers.T.tobytes()
