"""HTML pages: templates, the numbers in them, the colours of labels."""
