"""Cost-sensitive named entity recognition for spaCy."""

__version__ = "0.3.0"
