"""HTML pages: rendering templates, formatting numbers, and choosing label colours."""
