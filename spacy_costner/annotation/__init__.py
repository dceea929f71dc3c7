"""The annotation of docs: where it is, and as arrays."""
