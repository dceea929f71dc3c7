"""Decompressing data of unknown origin: a few bytes may be the compressed form of gigabytes."""

import zlib


def inflate(data: bytes, most_bytes: int) -> bytes:
    """Decompress what `zlib.compress` has compressed, if it isn't too large.

    data (bytes): The compressed data.
    most_bytes (int): The largest number of bytes that may come of it. Not many more are made.
    RETURNS (bytes): The data.
    RAISES (ValueError): If it is larger, or its end is missing.
    RAISES (zlib.error): If it is damaged.
    """
    decompressor = zlib.decompressobj()
    # One byte more than allowed, which shows that there are too many.
    inflated = decompressor.decompress(data, most_bytes + 1)
    if len(inflated) > most_bytes:
        raise ValueError(f"expected at most {most_bytes:,} bytes of compressed data, got more")
    if not decompressor.eof:
        raise ValueError("expected compressed data, got an incomplete or truncated stream")
    return inflated
