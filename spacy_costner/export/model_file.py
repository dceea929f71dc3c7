"""The binary format of model files for web pages, which `javascript/model_file.js` reads.

The file is compressed with gzip. Uncompressed, it consists of:

    8 bytes     "costner" and a line break
    4 bytes     the version of the format
    4 bytes     the length of the header
    the header  UTF-8 encoded JSON, which describes each array under "arrays"
    the arrays  concatenated
    4 bytes     the CRC-32 of all preceding bytes

All numbers are little-endian. To improve compression, integers are stored by byte position: the
lowest bytes of all integers first, then the next bytes, and so on, because small integers have the
same high bytes. If it makes the file smaller, the differences between adjacent integers are stored
instead, which is marked as "differences" in the header.
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
"""The version of the format. A page rejects files with another version."""

MAGIC = b"costner\n"
"""The first bytes of the uncompressed file, which identify a model file."""

DTYPES = ("float64", "int32", "uint32", "int16", "uint8")
"""The array types supported by the JavaScript reader."""


def pack_file(header: Mapping[str, Any], arrays: Mapping[str, ArrayXd]) -> bytes:
    """Create a model file. The result is deterministic.

    header (Mapping[str, Any]): All data except arrays, in JSON format.
    arrays (Mapping[str, ArrayXd]): The arrays, by name.
    RETURNS (bytes): The contents of the file.
    RAISES (ValueError): If the type of an array is not in `DTYPES`, or if a number in the header is
        not finite.
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
    """Convert an array to bytes, and return whether they contain the differences between adjacent
    numbers. Differences are used for one-dimensional integer arrays if they take less space, e.g.
    for ascending numbers.

    RAISES (ValueError): If the type of the array is not in `DTYPES`.
    """
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
    """Convert integers to bytes, starting with the lowest byte of each integer, then the next byte
    of each integer, and so on. For example, the 16-bit integers 1 and 258 become 1, 2, 0, 1."""
    flat = numbers.astype(numbers.dtype.newbyteorder("<")).reshape(-1, 1)
    bytes_of_numbers = numpy.ascontiguousarray(flat).view("uint8")  # (N, itemsize)
    return bytes_of_numbers.T.tobytes()
