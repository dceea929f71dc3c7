"""Integrations with other packages."""
