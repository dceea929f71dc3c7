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
        distinct_ids, number_of_slot = number_distinct(vector_ids[has_vector], vectors.n_vectors)
        rows = numpy.full(vector_ids.shape, -1, dtype="int32")
        _, offset_of_slot = numpy.nonzero(has_vector)
        rows[has_vector] = number_of_slot * n_offsets + offset_of_slot
        return cls(vectors.read(distinct_ids), rows)

    def products(self, weights: Floats2d) -> Floats2d:
        """The products of vectors with the weights of each offset. Shapes: (O D, K) to (U O, K)"""
        n_vectors, dim = self.vectors.shape
        products = self.vectors @ side_by_side(weights, dim)
        return products.reshape(n_vectors * self.rows.shape[1], weights.shape[1])

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
    # What isn't written is never read. Of equal ids, the last one is written last, and stays.
    last_place = numpy.empty(n_ids, dtype="int32")
    last_place[ids] = numpy.arange(len(ids), dtype="int32")
    distinct_ids = ids[last_place[ids] == numpy.arange(len(ids))]
    number_of_id = last_place
    number_of_id[distinct_ids] = numpy.arange(len(distinct_ids), dtype="int32")
    return distinct_ids, number_of_id[ids]
