"""A table of weights of which each update changes only a few rows, and the settings of AdaGrad.

In shapes, V is the number of rows, and K of weights in a row, one for each tag.
"""

from typing import NamedTuple

import numpy
from thinc.types import Floats2d, Ints1d


class Table(NamedTuple):
    """Rows of weights, with the state of AdaGrad and of averaging.

    weights (Floats2d): The weights. Shape: (V, K)
    squares (Floats2d): For each weight the sum of its squared gradients so far. Shape: (V, K)
    totals (Floats2d): For each weight the sum of its values after each update, since the beginning
        of the period of the average (see `SparseWeights`). Shape: (V, K)
    last (Ints1d): For each row the number of the update up to which its weights and totals
        are right. An update changes only the rows that have a gradient. Other rows are regularised
        when they are next used. Shape: (V,)
    """

    weights: Floats2d
    squares: Floats2d
    totals: Floats2d
    last: Ints1d

    def interleaved(self) -> "Table":
        """Make a copy in which the numbers of a row are contiguous in memory. An update reads and
        writes all of a row, and rows are far apart: so it is fetched at once."""
        n_rows, n_tags = self.weights.shape
        # A row has its weights, their squares, their totals, and `last` as an integer of 32 bits.
        cells = numpy.empty((n_rows, 3 * n_tags + 1), dtype="float32")
        table = Table(
            weights=cells[:, :n_tags],
            squares=cells[:, n_tags : 2 * n_tags],
            totals=cells[:, 2 * n_tags : 3 * n_tags],
            last=cells.view("int32")[:, -1],
        )
        for copied, array in zip(table, self):
            copied[:] = array
        return table


class AdaGrad(NamedTuple):
    """The learning rate and regularisation of AdaGrad, by composite mirror descent (Duchi, Hazan &
    Singer, 2011).

    Let g be the gradient of a weight w, and h the sum of its squared gradients so far. An update is

        a = learn_rate / (sqrt(h) + eps)
        v = w - a g
        w = sign(v) max(|v| - a L1, 0) / (1 + a L2)

    In updates in which g is 0, only the last line has an effect. It is computed later, when the
    weight is next used.

    learn_rate (float): The size of the first update of a weight, if its gradient is large.
    L1 (float): The penalty of the sum of the absolute weights. It sets weights to 0.
    L2 (float): The penalty of half the sum of the squared weights.
    eps (float): The updates of a weight are small as long as its gradients so far are small
        compared with this number.
    """

    learn_rate: float = 0.1
    L1: float = 0.0
    L2: float = 0.0
    eps: float = 1.0

    @property
    def is_regularised(self) -> bool:
        """Whether an update also changes weights that have no gradient."""
        return self.L1 > 0 or self.L2 > 0
