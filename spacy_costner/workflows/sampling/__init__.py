"""Choose docs to annotate, and estimate counts and scores from a random sample."""
