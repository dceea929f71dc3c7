"""Adapters for other packages."""
