"""The static vectors of words as inputs of a batch: their part in scores and the gradient."""

from typing import NamedTuple

import numpy
from thinc.types import Floats2d, Ints2d

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
        distinct_ids, index = numpy.unique(vector_ids, return_inverse=True)
        # The id of no vector, -1, is the first of the distinct ones, if it is there.
        n_without = int(numpy.count_nonzero(distinct_ids < 0))
        vector_of_slot = index.reshape(vector_ids.shape) - n_without
        first_row = vector_of_slot * n_offsets
        rows = numpy.where(vector_of_slot < 0, -1, first_row + numpy.arange(n_offsets))
        return cls(vectors.read(distinct_ids[n_without:]), rows.astype("int32"))

    def products(self, weights: Floats2d) -> Floats2d:
        """The products of vectors with the weights of each offset. Shapes: (O D, K) to (U O, K)"""
        return multiply_by_offset(self.vectors, weights)

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


def multiply_by_offset(vectors: Floats2d, weights: Floats2d) -> Floats2d:
    """The products of vectors with the weights of each of O offsets: see `VectorInputs`. Shapes:
    (U, D), (O D, K) to (U O, K)"""
    n_vectors, dim = vectors.shape
    n_tags = weights.shape[1]
    n_offsets = len(weights) // dim
    # Offsets beside each other, so that one product is enough. Shape: (D, O K)
    by_dimension = weights.reshape(n_offsets, dim, n_tags).transpose(1, 0, 2)
    side_by_side = numpy.ascontiguousarray(by_dimension).reshape(dim, n_offsets * n_tags)
    products = sparse.multiply_rows(vectors, side_by_side)
    return products.reshape(n_vectors * n_offsets, n_tags)
