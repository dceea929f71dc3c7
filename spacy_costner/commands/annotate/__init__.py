"""Annotate files of texts with a trained pipeline."""

from .files import ON_ERROR, Plan, Settings, Summary, annotate_files
from .inputs import Columns

__all__ = ["ON_ERROR", "Columns", "Plan", "Settings", "Summary", "annotate_files"]
