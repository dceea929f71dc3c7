"""Saving files as a whole, and reading data of unknown origin."""
