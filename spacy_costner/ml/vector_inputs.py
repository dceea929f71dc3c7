"""Static word vectors as model inputs: the scores they add, and the gradient of their weights.

In shapes, D is the number of dimensions of a vector, U the number of distinct vectors in a batch, O
the number of offsets from a token at which vectors are used as inputs, N the number of tokens, and
K the number of tags.
"""

from typing import NamedTuple

import numpy
from thinc.types import Floats2d, Ints1d, Ints2d

from .. import sparse
from ..features import StaticVectors


class VectorInputs(NamedTuple):
    """The static vectors in the tokens' windows. Let x_t be the vector of token t's word, or 0 if
    it has none, and W_o the weights for offset o, of shape (D, K). The vectors add the following to
    the scores of token t:

        sum over the offsets o of x_{t+o} W_o

    Words are often repeated, so the product of each distinct vector and the weights of each offset
    is only computed once. The products are stored in a table of shape (U O, K), in which row u O +
    o is x_u W_o. The scores of a token are the sum of O rows of this table.

    The weights for all offsets are stored in a single array of shape (O D, K), with D rows for each
    offset.

    vectors (Floats2d): The distinct vectors of the batch. Shape: (U, D)
    rows (Ints2d): The row in the table of products for each token and offset, or -1 if the word has
        no vector. Shape: (N, O)
    """

    vectors: Floats2d
    rows: Ints2d

    @classmethod
    def from_ids(cls, vectors: StaticVectors, vector_ids: Ints2d) -> "VectorInputs":
        """Create the inputs for a batch of tokens.

        vectors (StaticVectors): All vectors.
        vector_ids (Ints2d): The vector id of the word at each offset from each token, or -1.
            Shape: (N, O)
        """
        n_offsets = vector_ids.shape[1]
        has_vector = vector_ids >= 0
        # For each entry with a vector: its index among the distinct vectors, u, and the index of
        # the offset, o. Shapes: (number of these entries,)
        distinct_ids, numbers = number_distinct(vector_ids[has_vector], vectors.n_vectors)
        _, offsets = numpy.nonzero(has_vector)
        rows = numpy.full(vector_ids.shape, -1, dtype="int32")
        rows[has_vector] = numbers * n_offsets + offsets
        return cls(vectors.read(distinct_ids), rows)

    def products(self, weights: Floats2d) -> Floats2d:
        """Compute the table of products of each vector and the weights of each offset.
        Shapes: (O D, K) to (U O, K)"""
        _, dim = self.vectors.shape
        products = self.vectors @ side_by_side(weights, dim)  # (U, O K)
        n_tags = weights.shape[1]
        return products.reshape(self.n_products, n_tags)

    def score(self, weights: Floats2d) -> Floats2d:
        """Compute the scores that the vectors add to the tokens' scores, using the given weights.
        Shapes: (O D, K) to (N, K)"""
        return sparse.sum_rows(self.rows, self.products(weights))

    def gradient(self, d_scores: Floats2d) -> Floats2d:
        """Compute the gradient with respect to the weights, in float32, from the gradient with
        respect to the tokens' scores. Shapes: (N, K) to (O D, K)"""
        d_products = numpy.zeros((self.n_products, d_scores.shape[1]))  # `add_rows` needs float64
        sparse.add_rows(self.rows, d_scores, d_products)
        return self.backprop_products(d_products)

    @property
    def n_products(self) -> int:
        """The number of rows in the table of products, U O."""
        return len(self.vectors) * self.rows.shape[1]

    def backprop_products(self, d_products: Floats2d) -> Floats2d:
        """Compute the gradient with respect to the weights, in float32, from the gradient with
        respect to the table of products. Shapes: (U O, K) to (O D, K)"""
        n_vectors, dim = self.vectors.shape
        n_offsets = self.rows.shape[1]
        n_tags = d_products.shape[1]
        by_vector = d_products.reshape(n_vectors, n_offsets * n_tags).astype("float32")
        # The gradient of the weights, with offsets as adjacent columns as in `products`, (D, O K).
        d_side_by_side = self.vectors.T @ by_vector
        # Move the offsets back to the rows: see `side_by_side`.
        d_weights = d_side_by_side.reshape(dim, n_offsets, n_tags).transpose(1, 0, 2)
        return d_weights.reshape(n_offsets * dim, n_tags)


def side_by_side(weights: Floats2d, dim: int) -> Floats2d:
    """Rearrange the weights of O offsets from stacked rows to adjacent columns. The products of
    vectors with `dim` dimensions and the weights of all offsets can then be computed with a single
    matrix multiplication. Shapes: (O D, K) to (D, O K)"""
    n_tags = weights.shape[1]
    by_dimension = weights.reshape(-1, dim, n_tags).transpose(1, 0, 2)  # (D, O, K)
    return numpy.ascontiguousarray(by_dimension).reshape(dim, -1)


def number_distinct(ids: Ints1d, n_ids: int) -> tuple[Ints1d, Ints1d]:
    """Find the distinct ids in `ids` and number them. Several times faster than `numpy.unique`,
    because it doesn't sort. Ids have to be between 0 and `n_ids` - 1. Returns the distinct ids, and
    the index of each of `ids` among them. Shapes: (N,) to (U,), (N,)"""
    # The last position of each id in `ids`: if an id is repeated, its last position is written
    # last. Other entries are uninitialized and never read.
    last_place = numpy.empty(n_ids, dtype="int32")
    last_place[ids] = numpy.arange(len(ids), dtype="int32")
    is_last = last_place[ids] == numpy.arange(len(ids))
    distinct_ids = ids[is_last]
    number_of_id = last_place  # reuse the memory
    number_of_id[distinct_ids] = numpy.arange(len(distinct_ids), dtype="int32")
    return distinct_ids, number_of_id[ids]
