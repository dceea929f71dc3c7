"""What `python -m spacy costner` does: one module a command."""
