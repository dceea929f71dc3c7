"""Cost-sensitive named entity recognition for spaCy."""

__version__ = "0.2.0"
