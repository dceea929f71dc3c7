"""The static word vectors as inputs of a batch: the scores that they add, and the gradient of their
weights.

In shapes, D is the number of dimensions of a vector, U of distinct vectors in a batch, O of offsets
from a token at which vectors are inputs, N of tokens, and K of tags.
"""

from typing import NamedTuple

import numpy
from thinc.types import Floats2d, Ints1d, Ints2d

from .. import sparse
from ..features import StaticVectors


class VectorInputs(NamedTuple):
    """The static vectors in the windows of tokens. With x_t the vector of the word of token t, 0 if
    it has none, and W_o the weights of offset o, (D, K), the scores of token t gain

        sum over the offsets o of x_{t+o} W_o

    The same word comes up often. So the product of each distinct vector with the weights of each
    offset is computed once. These products are a table, (U O, K): row u O + o is x_u W_o. The
    scores of a token are a sum of O rows of this table.

    The weights of all offsets are one array, (O D, K): D rows for the first offset, and so on.

    vectors (Floats2d): The distinct vectors of the batch. Shape: (U, D)
    rows (Ints2d): For each token and offset the row of the table of products, -1 if the word there
        has no vector. Shape: (N, O)
    """

    vectors: Floats2d
    rows: Ints2d

    @classmethod
    def from_ids(cls, vectors: StaticVectors, vector_ids: Ints2d) -> "VectorInputs":
        """Make the inputs of tokens.

        vectors (StaticVectors): All vectors.
        vector_ids (Ints2d): For each token and offset the id of the vector of the word there, -1
            for none. Shape: (N, O)
        """
        n_offsets = vector_ids.shape[1]
        has_vector = vector_ids >= 0
        # For each entry with a vector: the index of the vector among the distinct ones, u, and the
        # index of the offset, o. Shapes: (number of such entries,)
        distinct_ids, numbers = number_distinct(vector_ids[has_vector], vectors.n_vectors)
        _, offsets = numpy.nonzero(has_vector)
        rows = numpy.full(vector_ids.shape, -1, dtype="int32")
        rows[has_vector] = numbers * n_offsets + offsets
        return cls(vectors.read(distinct_ids), rows)

    def products(self, weights: Floats2d) -> Floats2d:
        """Compute the table of products: each vector times the weights of each offset.
        Shapes: (O D, K) to (U O, K)"""
        _, dim = self.vectors.shape
        products = self.vectors @ side_by_side(weights, dim)  # (U, O K)
        n_tags = weights.shape[1]
        return products.reshape(self.n_products, n_tags)

    def score(self, weights: Floats2d) -> Floats2d:
        """Compute the scores that vectors add to the scores of tokens, from the weights.
        Shapes: (O D, K) to (N, K)"""
        return sparse.sum_rows(self.rows, self.products(weights))

    def gradient(self, d_scores: Floats2d) -> Floats2d:
        """Compute the gradient with respect to the weights, in float32, from the gradient with
        respect to the scores of tokens. Shapes: (N, K) to (O D, K)"""
        d_products = numpy.zeros((self.n_products, d_scores.shape[1]))  # `add_rows` needs float64
        sparse.add_rows(self.rows, d_scores, d_products)
        return self.backprop_products(d_products)

    @property
    def n_products(self) -> int:
        """The number of rows of the table of products, U O."""
        return len(self.vectors) * self.rows.shape[1]

    def backprop_products(self, d_products: Floats2d) -> Floats2d:
        """Compute the gradient with respect to the weights, in float32, from the gradient with
        respect to the table of products. Shapes: (U O, K) to (O D, K)"""
        n_vectors, dim = self.vectors.shape
        n_offsets = self.rows.shape[1]
        n_tags = d_products.shape[1]
        by_vector = d_products.reshape(n_vectors, n_offsets * n_tags).astype("float32")
        # The gradient of the weights as columns next to each other, (D, O K), as in `products`.
        d_side_by_side = self.vectors.T @ by_vector
        # Turn the offsets into rows below each other again: see `side_by_side`.
        d_weights = d_side_by_side.reshape(dim, n_offsets, n_tags).transpose(1, 0, 2)
        return d_weights.reshape(n_offsets * dim, n_tags)


def side_by_side(weights: Floats2d, dim: int) -> Floats2d:
    """Turn the weights of O offsets from rows below each other into columns next to each other.
    Then one matrix product with vectors of `dim` numbers is enough for all offsets.
    Shapes: (O D, K) to (D, O K)"""
    n_tags = weights.shape[1]
    by_dimension = weights.reshape(-1, dim, n_tags).transpose(1, 0, 2)  # (D, O, K)
    return numpy.ascontiguousarray(by_dimension).reshape(dim, -1)


def number_distinct(ids: Ints1d, n_ids: int) -> tuple[Ints1d, Ints1d]:
    """Find the distinct ids among `ids`, and number them. It doesn't sort, as `numpy.unique` does,
    and is several times as fast. Ids are from 0 to `n_ids` - 1. Returns the distinct ids; and, for
    each of `ids`, its place among them. Shapes: (N,) to (U,), (N,)"""
    # The place in `ids` at which each id comes last: of equal ids, the last one is written last.
    # Other entries are not written, and never read.
    last_place = numpy.empty(n_ids, dtype="int32")
    last_place[ids] = numpy.arange(len(ids), dtype="int32")
    is_last = last_place[ids] == numpy.arange(len(ids))
    distinct_ids = ids[is_last]
    number_of_id = last_place  # use the same memory again
    number_of_id[distinct_ids] = numpy.arange(len(distinct_ids), dtype="int32")
    return distinct_ids, number_of_id[ids]
