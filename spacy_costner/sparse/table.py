"""A table of weights for sparse updates, and the settings of AdaGrad.

In shapes, V is the number of rows, and K the number of weights per row, one for each tag.
"""

from typing import NamedTuple

import numpy
from thinc.types import Floats2d, Ints1d


class Table(NamedTuple):
    """Rows of weights with the state of AdaGrad and averaging.

    weights (Floats2d): The weights. Shape: (V, K)
    squares (Floats2d): The sum of the squared gradients of each weight. Shape: (V, K)
    totals (Floats2d): The sum of each weight's values after all updates in the current averaging
        period (see `SparseWeights`). Shape: (V, K)
    last (Ints1d): The number of the last update that was applied to each row. An update only
        modifies the rows with a gradient. Other rows are regularised when they are next used.
        Shape: (V,)
    """

    weights: Floats2d
    squares: Floats2d
    totals: Floats2d
    last: Ints1d

    def interleaved(self) -> "Table":
        """Return a copy that stores all values of a row contiguously in memory. This improves cache
        locality, because an update reads and writes complete rows that are far apart."""
        n_rows, n_tags = self.weights.shape
        # A row consists of weights, squares, totals, and `last` as a 32-bit integer.
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
    """The settings of AdaGrad with regularisation by composite mirror descent (Duchi, Hazan &
    Singer, 2011).

    Let g be the gradient of a weight w, and h the sum of its squared gradients so far. An update is

        a = learn_rate / (sqrt(h) + eps)
        v = w - a g
        w = sign(v) max(|v| - a L1, 0) / (1 + a L2)

    If g is 0, only the last line has an effect. It is not computed until the weight is next used.

    learn_rate (float): The learning rate. The first update of a weight is about this large if its
        gradient is large.
    L1 (float): The penalty for the sum of the absolute weights. It sets small weights to 0.
    L2 (float): The penalty for half the sum of the squared weights.
    eps (float): Added to the square root of h. Updates are small while sqrt(h) is small compared
        with this value.
    """

    learn_rate: float = 0.1
    L1: float = 0.0
    L2: float = 0.0
    eps: float = 1.0

    @property
    def is_regularised(self) -> bool:
        """Whether an update also modifies weights without a gradient."""
        return self.L1 > 0 or self.L2 > 0
