"""A trained pipeline on a test corpus, in one HTML page to look at."""

from .findings import Findings, gather
from .page import page

__all__ = ["Findings", "gather", "page"]
