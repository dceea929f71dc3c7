"""Predictions for annotated docs, and whether these docs are valid evaluation data."""
