"""Predict many files."""
