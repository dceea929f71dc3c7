"""Annotate files of texts with a trained pipeline."""

from .answers import annotate_texts
from .files import ON_ERROR, Plan, Settings, Summary, annotate_files, load_pipeline
from .inputs import Columns

__all__ = [
    "ON_ERROR",
    "Columns",
    "Plan",
    "Settings",
    "Summary",
    "annotate_files",
    "annotate_texts",
    "load_pipeline",
]
