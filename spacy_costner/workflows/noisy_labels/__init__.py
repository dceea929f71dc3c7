"""Learn from annotators that err, and find their mistakes."""
