"""Decompress data of unknown origin: a few compressed bytes may become gigabytes."""

import zlib


def inflate(data: bytes, most_bytes: int) -> bytes:
    """Decompress the result of `zlib.compress`, if it isn't too large.

    data (bytes): The compressed data, of unknown origin.
    most_bytes (int): The largest allowed number of decompressed bytes. Decompression stops after
        one byte more.
    RETURNS (bytes): The decompressed data.
    RAISES (ValueError): If the decompressed data is larger, or its end is missing.
    RAISES (zlib.error): If the compressed data is damaged.
    """
    decompressor = zlib.decompressobj()
    # One byte more than allowed shows that the data is too large.
    inflated = decompressor.decompress(data, most_bytes + 1)
    if len(inflated) > most_bytes:
        raise ValueError(f"expected at most {most_bytes:,} bytes when decompressed, got more")
    if not decompressor.eof:
        raise ValueError("expected compressed data, got an incomplete or truncated stream")
    return inflated
