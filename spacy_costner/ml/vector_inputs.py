"""The static vectors of words as inputs of a batch: their part in scores and the gradient."""

from typing import NamedTuple

import numpy
from thinc.types import Floats2d, Ints1d, Ints2d

from .. import sparse
from ..features import StaticVectors


class VectorInputs(NamedTuple):
    """The static vectors in the windows of tokens. With W_o the weights of offset o, the scores of
    token t gain

        sum over the offsets o of x_{t+o} W_o

    where x is 0 for words without a vector. A word comes up often. So the products of its vector
    with the W_o of all O offsets are computed once, and summed as rows of a table: row u O + o is
    x_u W_o, for vector u of U.

    Weights are a row for each offset and each of the D numbers of a vector, (O D, K).

    vectors (Floats2d): The distinct vectors of a batch. Shape: (U, D)
    rows (Ints2d): The row of the products at each offset from a token, -1 for none. Shape: (N, O)
    """

    vectors: Floats2d
    rows: Ints2d

    @classmethod
    def of_ids(cls, vectors: StaticVectors, vector_ids: Ints2d) -> "VectorInputs":
        """The inputs of tokens, from the id of the vector at each offset, -1 for none. Shape:
        (N, O)"""
        n_offsets = vector_ids.shape[1]
        has_vector = vector_ids >= 0
        # For each token and offset with a vector: u, its number among the distinct ones, and o.
        distinct_ids, numbers = number_distinct(vector_ids[has_vector], vectors.n_vectors)
        _, offsets = numpy.nonzero(has_vector)
        rows = numpy.full(vector_ids.shape, -1, dtype="int32")
        rows[has_vector] = numbers * n_offsets + offsets
        return cls(vectors.read(distinct_ids), rows)

    def products(self, weights: Floats2d) -> Floats2d:
        """The products of vectors with the weights of each offset. Shapes: (O D, K) to (U O, K)"""
        _, dim = self.vectors.shape
        products = self.vectors @ side_by_side(weights, dim)  # (U, O K)
        n_tags = weights.shape[1]
        return products.reshape(self.n_products, n_tags)

    def score(self, weights: Floats2d) -> Floats2d:
        """What vectors add to the scores of tokens. Shapes: (O D, K) to (N, K)"""
        return sparse.sum_rows(self.rows, self.products(weights))

    def gradient(self, d_scores: Floats2d) -> Floats2d:
        """The gradient for the weights from that for the scores of tokens, in float32. Shapes:
        (N, K) to (O D, K)"""
        d_products = numpy.zeros((self.n_products, d_scores.shape[1]))
        sparse.add_rows(self.rows, d_scores, d_products)
        return self.backprop_products(d_products)

    @property
    def n_products(self) -> int:
        """U O."""
        return len(self.vectors) * self.rows.shape[1]

    def backprop_products(self, d_products: Floats2d) -> Floats2d:
        """The gradient for the weights from that for the products, in float32. Shapes: (U O, K) to
        (O D, K)"""
        n_vectors, dim = self.vectors.shape
        n_offsets = self.rows.shape[1]
        n_tags = d_products.shape[1]
        by_vector = d_products.reshape(n_vectors, n_offsets * n_tags).astype("float32")
        # The weights as `side_by_side` has them, and then again offset by offset.
        d_weights = (self.vectors.T @ by_vector).reshape(dim, n_offsets, n_tags)
        return d_weights.transpose(1, 0, 2).reshape(n_offsets * dim, n_tags)


def side_by_side(weights: Floats2d, dim: int) -> Floats2d:
    """The weights of O offsets beside each other, so that one product with vectors of D numbers is
    enough. Shape: (O D, K) to (D, O K)"""
    n_tags = weights.shape[1]
    by_dimension = weights.reshape(-1, dim, n_tags).transpose(1, 0, 2)
    return numpy.ascontiguousarray(by_dimension).reshape(dim, -1)


def number_distinct(ids: Ints1d, n_ids: int) -> tuple[Ints1d, Ints1d]:
    """The distinct ones of ids below `n_ids`, (U,), and the number of each id among them, (N,). It
    doesn't sort, as `numpy.unique` does, and is several times as fast."""
    # Where each id stands last in `ids`: of equal ids, the last one is written last, and stays.
    # What isn't written is never read.
    last_place = numpy.empty(n_ids, dtype="int32")
    last_place[ids] = numpy.arange(len(ids), dtype="int32")
    is_last = last_place[ids] == numpy.arange(len(ids))
    distinct_ids = ids[is_last]
    number_of_id = last_place  # the same memory, which isn't needed any more
    number_of_id[distinct_ids] = numpy.arange(len(distinct_ids), dtype="int32")
    return distinct_ids, number_of_id[ids]
