"""The spaCy side: from docs and examples to targets, and from predictions to docs."""
