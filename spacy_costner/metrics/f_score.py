"""Precision, recall and F, of one system or of an array of them."""

import numpy
from thinc.types import FloatsXd


def f_score(right: FloatsXd, wrong: FloatsXd, missed: FloatsXd, beta: float = 1.0) -> FloatsXd:
    """F-beta of entities.

        F = (1 + beta^2) right / ((1 + beta^2) right + wrong + beta^2 missed)

    right (FloatsXd): Predicted entities that are gold.
    wrong (FloatsXd): Predicted entities that are not gold.
    missed (FloatsXd): Gold entities that are not predicted.
    beta (float): How many times as important recall is as precision.
    RETURNS (FloatsXd): F from 0 to 1; 0 where all counts are 0. Shape: that of the counts.
    """
    squared = beta**2
    weighted = (1 + squared) * right
    return ratio(weighted, weighted + wrong + squared * missed)


def f_beta(p: FloatsXd, r: FloatsXd, beta: float = 1.0) -> FloatsXd:
    """F-beta from precision and recall, their weighted harmonic mean: the same as `f_score`.

        F = (1 + beta^2) P R / (beta^2 P + R)

    p (FloatsXd): Precision.
    r (FloatsXd): Recall.
    beta (float): How many times as important recall is as precision.
    RETURNS (FloatsXd): F from 0 to 1; 0 where both are 0. Shape: that of P and R.
    """
    squared = beta**2
    return ratio((1 + squared) * p * r, squared * p + r)


def precision(right: FloatsXd, wrong: FloatsXd) -> FloatsXd:
    """The share of predicted entities that are gold: see `f_score`."""
    return ratio(right, right + wrong)


def recall(right: FloatsXd, missed: FloatsXd) -> FloatsXd:
    """The share of gold entities that are predicted: see `f_score`."""
    return ratio(right, right + missed)


def ratio(numerator: FloatsXd, denominator: FloatsXd) -> FloatsXd:
    """Divide; 0 where the denominator is 0."""
    return numerator / numpy.where(denominator == 0, 1, denominator)
