"""Weights of which each update changes a few rows, and how AdaGrad updates them."""

from typing import NamedTuple

from thinc.types import Floats2d, Ints1d


class Table(NamedTuple):
    """Rows of weights, and what AdaGrad and averaging keep for each of them.

    weights (Floats2d): The weights. Shape: (V, K)
    squares (Floats2d): The sums of their squared gradients so far. Shape: (V, K)
    totals (Floats2d): The sums of the weights after each update of the period that is averaged.
        Shape: (V, K)
    last (Ints1d): The update up to which each row is regularised: rows without a gradient wait
        until they are next used. Shape: (V,)
    """

    weights: Floats2d
    squares: Floats2d
    totals: Floats2d
    last: Ints1d


class AdaGrad(NamedTuple):
    """The learning rate and regularisation of AdaGrad, by composite mirror descent (Duchi, Hazan &
    Singer, 2011).

    With g the gradient of a weight w and h the sum of its squares so far,

        a = learn_rate / (sqrt(h) + eps)
        v = w - a g
        w = sign(v) max(|v| - a L1, 0) / (1 + a L2)

    In updates in which g = 0 only the last line has an effect. It is computed when the weight is
    next used.

    learn_rate (float): The size of the first update of a weight, if its gradient is large.
    L1 (float): Weight of the sum of the absolute weights; sets weights to 0.
    L2 (float): Weight of half the sum of the squared weights.
    eps (float): Makes the updates of a weight small as long as its gradients are.
    """

    learn_rate: float = 0.05
    L1: float = 0.0
    L2: float = 0.0
    eps: float = 1e-8

    @property
    def is_regularised(self) -> bool:
        """Whether weights change that have no gradient."""
        return self.L1 > 0 or self.L2 > 0
