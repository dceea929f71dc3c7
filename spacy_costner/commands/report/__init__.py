"""An HTML report of a trained pipeline on a test corpus."""

from .findings import Findings, gather
from .page import page

__all__ = ["Findings", "gather", "page"]
