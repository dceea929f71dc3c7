"""Predict annotated docs, and check whether they are valid evaluation data."""
