"""Decompress untrusted data, with protection against decompression bombs."""

import zlib


def inflate(data: bytes, most_bytes: int) -> bytes:
    """Decompress the output of `zlib.compress`, up to a maximum size.

    data (bytes): The compressed data, which may be untrusted.
    most_bytes (int): The maximum size of the decompressed data in bytes.
    RETURNS (bytes): The decompressed data.
    RAISES (ValueError): If the decompressed data is too large or incomplete.
    RAISES (zlib.error): If the compressed data is damaged.
    """
    decompressor = zlib.decompressobj()
    # Read one byte more than allowed, to detect data that is too large.
    inflated = decompressor.decompress(data, most_bytes + 1)
    if len(inflated) > most_bytes:
        raise ValueError(f"expected at most {most_bytes:,} bytes when decompressed, got more")
    if not decompressor.eof:
        raise ValueError("expected compressed data, got an incomplete or truncated stream")
    return inflated
