"""Calibrate probabilities, tune the decoding, guarantee error rates, and watch for shifts."""
