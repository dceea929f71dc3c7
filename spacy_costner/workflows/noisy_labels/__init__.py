"""Learn from annotators who make mistakes, and find their mistakes."""
