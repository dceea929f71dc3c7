"""Report what a pipeline gets wrong, and explain why."""
