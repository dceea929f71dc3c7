"""Save files atomically, and decompress untrusted data."""
