"""Measure how the scores of a model depend on the number of training docs, and forecast the scores
with more docs."""
