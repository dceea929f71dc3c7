"""Files that are whole or missing, and data that may be hostile."""
