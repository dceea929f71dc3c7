"""A hidden layer over the words in the windows of tokens, next to the weights of a linear CRF.

Its scores are added to the scores of the sparse weights (see `weights`).

In shapes, N is the number of tokens, O of offsets from a token at which words are inputs, M of rows
of weights of the inputs, H of hidden units, and K of tags.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy
import srsly
from thinc.api import Optimizer
from thinc.shims import Shim
from thinc.types import Floats1d, Floats2d, Ints2d

from .. import sparse
from ..features import CHARACTER_TYPES, FeatureBatch, WordCache
from ..types import Potentials
from .vector_inputs import VectorInputs
from .weights import SparseWeights, drop_ids
from .word_sums import WordSums

HIDDEN_VECTOR_DROPOUT = 0.2
"""The share of static vectors that are left out of an update of the layer. Chosen on development
data, as is `UNIT_DROPOUT`: see docs/linear.md."""

UNIT_DROPOUT = 0.2
"""The share of hidden units that are left out of an update, drawn for each token."""


class HiddenInputs(NamedTuple):
    """The inputs of the hidden layer from the words in the window of each token: the type of each
    word, such as "capitalised", and its static vector.

    Its weights have M rows: first a row for each offset and type, then the rows of `VectorInputs`,
    one for each offset and number of a vector.

    type_rows (Ints2d): For each token and offset the weight row for the type of the word there, -1
        for none. Shape: (N, O)
    vectors (VectorInputs): The static vectors of the words.
    """

    type_rows: Ints2d
    vectors: VectorInputs

    @classmethod
    def from_batch(cls, batch: FeatureBatch, dropout: float = 0.0) -> "HiddenInputs":
        """Make the inputs of the tokens of a batch. The share `dropout` of the vectors in their
        windows is left out."""
        assert batch.vectors is not None
        assert batch.hidden_ids is not None and batch.hidden_rows is not None
        # For the same words, `hidden_ids` has the ids of vectors, `hidden_rows` the rows of types.
        vector_ids = batch.hidden_ids  # (N, O)
        if dropout:
            vector_ids = drop_ids(vector_ids, dropout)
        return cls(batch.hidden_rows, VectorInputs.from_ids(batch.vectors, vector_ids))

    @property
    def n_type_rows(self) -> int:
        """The number of rows of weights for types."""
        return count_type_rows(self.type_rows.shape[1])

    def score(self, weights: Floats2d) -> Floats2d:
        """Compute the products of the inputs and the weights of H units.
        Shapes: (M, H) to (N, H)"""
        products = sparse.sum_rows(self.type_rows, weights[: self.n_type_rows])
        products += self.vectors.score(weights[self.n_type_rows :])
        return products

    def gradient(self, d_products: Floats2d) -> Floats2d:
        """Compute the gradient with respect to the weights, in float32, from the gradient with
        respect to the result of `score`. Shapes: (N, H) to (M, H)"""
        d_types = numpy.zeros((self.n_type_rows, d_products.shape[1]))  # `add_rows` needs float64
        sparse.add_rows(self.type_rows, d_products, d_types)
        d_vectors = self.vectors.gradient(d_products)
        return numpy.concatenate([d_types.astype("float32"), d_vectors])


def count_type_rows(n_offsets: int) -> int:
    """Count the rows of weights for the types of words: one for each offset and type."""
    return n_offsets * len(CHARACTER_TYPES)


class HiddenWeights(NamedTuple):
    """The weights of a hidden layer. In the formula of `HiddenLayer` they are V, b and U.

    inner (Floats2d): The weights from the inputs to the units, V. For the rows see `HiddenInputs`.
        Shape: (M, H)
    bias (Floats1d): The bias of each unit, b. Shape: (H,)
    outer (Floats2d): The weights from the units to the scores of tags, U. Shape: (H, K)
    """

    inner: Floats2d
    bias: Floats1d
    outer: Floats2d


class HiddenLayer(Shim):
    """A layer of H hidden units. Let x_t be its input from the word of token t: the static vector
    and, in a one-hot vector next to it, the type. Let V_o be the weights of offset o, b the bias
    and U the weights from units to scores. Then the emissions of token t gain

        relu(sum over the offsets o of x_{t+o} V_o + b) U

    V, b and U are trained by the optimizer of the config, unlike the sparse weights. U is 0 at
    first, so that the layer changes no score. In prediction, x V_o is computed once for each word
    and offset: see `WordSums`.

    width (int): The number of hidden units, H.
    """

    weights: HiddenWeights
    _gradients: list[HiddenWeights]
    _word_sums: WordSums | None

    def __init__(self, width: int) -> None:
        super().__init__(None)
        self.width = width
        self.allocate(0, 0)

    @property
    def is_allocated(self) -> bool:
        """Whether there are weights."""
        return len(self.weights.inner) > 0

    def allocate(self, n_rows: int, n_tags: int) -> None:
        """Create weights for M rows of inputs, `n_rows`, and K tags. The inner weights are drawn at
        random, as in He et al. (2015), Delving deep into rectifiers, equation 10. The others are
        0."""
        standard_deviation = numpy.sqrt(2 / max(n_rows, 1))  # a new layer has no rows yet
        inner = numpy.random.normal(scale=standard_deviation, size=(n_rows, self.width))
        bias = numpy.zeros(self.width, dtype="float32")
        outer = numpy.zeros((self.width, n_tags), dtype="float32")
        # `restart` also drops the gradients of weights that were here before.
        self.restart(HiddenWeights(inner.astype("float32"), bias, outer))

    def restart(self, weights: HiddenWeights) -> None:
        """Restart training with copies of these weights."""
        self._set_weights(HiddenWeights._make(array.copy() for array in weights))
        self._gradients = []

    def _set_weights(self, weights: HiddenWeights) -> None:
        """Set the weights, and drop the sums of words, which were computed from other weights."""
        self.weights = weights
        self._word_sums = None

    def resize(self, n_tags: int) -> None:
        """Add tags after the existing tags, whose scores don't change. The scores of new tags are
        0. `n_tags` is the new number of tags."""
        n_new_tags = n_tags - self.weights.outer.shape[1]
        outer = numpy.pad(self.weights.outer, ((0, 0), (0, n_new_tags)))
        # `restart` also drops gradients that are kept for an update: they have the old shape.
        self.restart(self.weights._replace(outer=outer))

    def score(self, batch: FeatureBatch) -> Floats2d:
        """Compute the scores that the layer adds to the scores of tokens. Shape: (N, K)"""
        units = self._sum_inputs(batch)
        units += self.weights.bias
        numpy.maximum(units, 0, out=units)
        return units @ self.weights.outer

    def _sum_inputs(self, batch: FeatureBatch) -> Floats2d:
        """Compute the sum of the inputs of each unit, without the bias. Shape: (N, H)"""
        if batch.word_cache is None or batch.word_ids is None:
            return HiddenInputs.from_batch(batch).score(self.weights.inner)
        # The batch is predicted: take the sums of each word that were computed before.
        word_sums = self._update_word_sums(batch.word_cache)
        return word_sums.sum_windows(batch.word_ids, batch.lengths)

    def _update_word_sums(self, cache: WordCache) -> WordSums:
        """Return the sums of the inner weights for all words in a cache. They are kept until
        weights change. If several threads add words at once, the sums of the last thread are
        kept."""
        inner = self.weights.inner
        word_sums = self._word_sums
        if word_sums is None or not word_sums.matches(inner, cache):
            slots = cache.hidden_slots  # the inputs of the layer from a word, by offset
            # `WordSums` treats types as features: their weights come before the weights of vectors.
            n_type_rows = count_type_rows(len(slots.by_offset))
            word_sums = WordSums.empty(
                inner,
                n_features=n_type_rows,
                n_vector_rows=len(inner) - n_type_rows,
                cache=cache,
                slots=slots,
            )
        word_sums = word_sums.with_all_words()
        self._word_sums = word_sums
        return word_sums

    def begin_update(self, batch: FeatureBatch) -> tuple[Floats2d, Callable[[Floats2d], None]]:
        """Score tokens in training, with dropout of the vectors in their windows and of their
        hidden units.

        batch (FeatureBatch): The features of the tokens.
        RETURNS (tuple[Floats2d, Callable[[Floats2d], None]]): The scores; and the backprop, which
            takes the gradient with respect to them and keeps it until `finish_update`.
            Shapes: (N, K)
        """
        inner, bias, outer = self.weights
        inputs = HiddenInputs.from_batch(batch, HIDDEN_VECTOR_DROPOUT)
        units = numpy.maximum(inputs.score(inner) + bias, 0)
        # Each unit is multiplied by 0 if it is left out. The others count more, so that the mean of
        # a sum over them stays the same. Shape: (N, H)
        is_kept = numpy.random.uniform(size=units.shape) >= UNIT_DROPOUT
        factors = is_kept * numpy.float32(1 / (1 - UNIT_DROPOUT))
        units *= factors

        def add_gradient(d_scores: Floats2d) -> None:
            """Compute the gradients of V, b and U, and keep them. Shape: (N, K)"""
            d_scores = d_scores.astype("float32")  # a loss may compute in float64
            d_units = (d_scores @ outer.T) * factors
            d_units[units <= 0] = 0  # the backward pass of relu
            gradient = HiddenWeights(
                inner=inputs.gradient(d_units),
                bias=d_units.sum(axis=0),
                outer=units.T @ d_scores,
            )
            self._gradients.append(gradient)

        return units @ outer, add_gradient

    def gradient(self) -> HiddenWeights:
        """Return the gradient that is kept for the next update: the sum over all batches since the
        last one. There has to be at least one."""
        # `zip` gives the gradients of V of all batches, then the gradients of b, then the gradients
        # of U.
        return HiddenWeights._make(numpy.sum(arrays, axis=0) for arrays in zip(*self._gradients))

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update the weights with the gradients that are kept. (`nlp.rehearse` passes a function
        instead of an optimizer, which updates nothing.)"""
        if not self._gradients:
            return
        gradient = self.gradient()
        self._gradients = []
        if not isinstance(optimizer, Optimizer):
            return
        updated: list[Any] = []
        for name, array, d_array in zip(HiddenWeights._fields, self.weights, gradient):
            new_array, _ = optimizer((self.id, name), array, d_array)
            updated.append(new_array)
        self._set_weights(HiddenWeights._make(updated))

    @contextmanager
    def use_params(self, params: dict[tuple[int, str], Any]) -> Iterator[None]:
        """Predict with the averages of the weights in this context, if an optimizer keeps averages.
        `params` are these averages, keyed by the id of the shim and the name of the parameter."""
        weights_in_training = self.weights
        self._set_weights(self._find_averages(params))
        try:
            yield
        finally:
            self._set_weights(weights_in_training)

    def averaged(self, optimizer: Optimizer) -> HiddenWeights:
        """Return the weights to use after training: their averages if the optimizer keeps averages,
        the weights after the last step otherwise."""
        return self._find_averages(optimizer.averages or {})

    def _find_averages(self, averages: dict[tuple[int, str], Any]) -> HiddenWeights:
        """Look up the averages of the weights among all averages of an optimizer. A weight that has
        no average stays as it is."""
        averaged_arrays: list[Any] = []
        for name, array in zip(HiddenWeights._fields, self.weights):
            averaged_arrays.append(averages.get((self.id, name), array))
        return HiddenWeights._make(averaged_arrays)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle: all but the sums of words, which are made again when
        needed."""
        return {**self.__dict__, "_word_sums": None}

    def copy(self) -> "HiddenLayer":
        """Make a copy with a new id, as optimizers keep averages by id."""
        copied = super().copy()  # this one has the same id
        copied.id = HiddenLayer(0).id  # each new shim gets the next id
        return copied

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing: the weights stay on the CPU."""

    def to_bytes(self) -> bytes:
        """Save the weights."""
        return srsly.msgpack_dumps(self.weights._asdict())

    def from_bytes(self, data: bytes) -> "HiddenLayer":
        """Load the weights.

        RAISES (ValueError): If they are damaged, or have another number of hidden units.
        """
        try:
            weights = HiddenWeights(**srsly.msgpack_loads(data))
            shapes = [array.shape for array in weights]
            n_rows = len(weights.inner)
            n_tags = weights.outer.shape[1]
        except Exception as error:
            raise ValueError(
                f"hidden layer: expected saved weights, got damaged data: {error}"
            ) from error
        expected = [(n_rows, self.width), (self.width,), (self.width, n_tags)]
        if shapes != expected:
            raise ValueError(f"hidden layer: expected weights of shapes {expected}, got {shapes}")
        if not all(numpy.isfinite(array).all() for array in weights):
            raise ValueError("hidden layer: expected finite weights")
        self.restart(weights)
        return self


class WithHiddenLayer(NamedTuple):
    """The sparse weights and the hidden layer of a linear CRF, which are trained together. Their
    scores are added.

    weights (SparseWeights): The sparse weights.
    layer (HiddenLayer): The layer.
    """

    weights: SparseWeights
    layer: HiddenLayer

    def potentials(self, batch: FeatureBatch) -> Potentials:
        """Score docs, from their features."""
        scores = self.weights.potentials(batch)
        return scores._replace(emissions=scores.emissions + self.layer.score(batch))

    def begin_update(
        self, batch: FeatureBatch, dropout: float = 0.0
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Score docs in training. The callback keeps the gradients of the linear model and of the
        hidden layer for the next update: see `SparseWeights.begin_update`."""
        scores, add_gradient_of_weights = self.weights.begin_update(batch, dropout)
        layer_scores, add_gradient_of_layer = self.layer.begin_update(batch)

        def add_gradient(gradient: Potentials) -> None:
            add_gradient_of_weights(gradient)
            add_gradient_of_layer(gradient.emissions)

        return scores._replace(emissions=scores.emissions + layer_scores), add_gradient

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update both with the gradients that are kept."""
        self.weights.finish_update(optimizer)
        self.layer.finish_update(optimizer)


class HiddenLayerAlone(NamedTuple):
    """The hidden layer of a linear CRF, which is trained alone: the sparse weights don't change.
    Their scores are in the batches, as `FeatureBatch.linear_scores`.

    layer (HiddenLayer): The layer.
    """

    layer: HiddenLayer

    def begin_update(
        self, batch: FeatureBatch, dropout: float = 0.0
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Score docs in training.

        batch (FeatureBatch): The features, with the scores of the linear model, which stay fixed.
        dropout (float): Not used: dropout is for the features of the linear model.
        RETURNS (tuple): The scores of both added up; and the callback, which keeps the gradient of
            the hidden layer for the next update.
        """
        scores = batch.linear_scores
        assert scores is not None
        layer_scores, add_gradient_of_layer = self.layer.begin_update(batch)

        def add_gradient(gradient: Potentials) -> None:
            add_gradient_of_layer(gradient.emissions)

        return scores._replace(emissions=scores.emissions + layer_scores), add_gradient

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update the layer with the gradients that are kept."""
        self.layer.finish_update(optimizer)
