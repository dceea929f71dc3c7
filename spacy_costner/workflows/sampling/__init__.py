"""Choose docs to annotate, and estimate from a random sample."""
