"""Calibrate probabilities, tune decoding, guarantee error rates, and detect shifts."""
