"""Make predictions for annotated docs, and check whether the docs are valid evaluation data."""
