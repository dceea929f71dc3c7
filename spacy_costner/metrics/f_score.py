"""Precision, recall and F from counts, of one system or of an array of them."""

import numpy
from thinc.types import FloatsXd


def f_score(right: FloatsXd, wrong: FloatsXd, missed: FloatsXd, beta: float = 1.0) -> FloatsXd:
    """F-beta of entities.

        F = (1 + beta^2) right / ((1 + beta^2) right + wrong + beta^2 missed)

    right (FloatsXd): Predicted entities that are gold.
    wrong (FloatsXd): Predicted entities that are not gold.
    missed (FloatsXd): Gold entities that are not predicted.
    beta (float): How many times as important recall is as precision.
    RETURNS (FloatsXd): F from 0 to 1; 0 where there is nothing. Shape: that of the counts.
    """
    squared = beta**2
    weighted = (1 + squared) * right
    return ratio(weighted, weighted + wrong + squared * missed)


def precision(right: FloatsXd, wrong: FloatsXd) -> FloatsXd:
    """The share of predicted entities that are gold: see `f_score`."""
    return ratio(right, right + wrong)


def recall(right: FloatsXd, missed: FloatsXd) -> FloatsXd:
    """The share of gold entities that are predicted: see `f_score`."""
    return ratio(right, right + missed)


def ratio(numerator: FloatsXd, denominator: FloatsXd) -> FloatsXd:
    """A share, 0 of nothing."""
    return numerator / numpy.where(denominator == 0, 1, denominator)
