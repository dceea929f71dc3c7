"""Report the mistakes of a pipeline, and explain its predictions."""
