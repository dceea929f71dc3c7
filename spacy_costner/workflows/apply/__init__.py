"""Annotate large numbers of files with a trained pipeline."""
