"""Losses, costs and decoding that none of the papers put together."""
