"""A hidden layer over the words in the tokens' windows, in addition to the weights of a linear CRF.

The scores of the layer are added to the scores of the sparse weights (see `weights`).

In shapes, N is the number of tokens, O the number of offsets from a token at which words are used
as inputs, M the number of weight rows for the inputs, H the number of hidden units, and K the
number of tags.
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
"""The dropout rate for the static vectors in the layer's inputs. Chosen on development data, like
`UNIT_DROPOUT`: see docs/linear.md."""

UNIT_DROPOUT = 0.2
"""The dropout rate for hidden units. The units to drop are drawn separately for each token."""


class HiddenInputs(NamedTuple):
    """The inputs to the hidden layer for each token: the type of each word in its window, such as
    "capitalised", and the word's static vector.

    The weights of the inputs have M rows: one row for each offset and type, followed by the rows of
    `VectorInputs`, one for each offset and vector dimension.

    type_rows (Ints2d): The weight row for the word type at each offset from each token, or -1.
        Shape: (N, O)
    vectors (VectorInputs): The static vectors of the words.
    """

    type_rows: Ints2d
    vectors: VectorInputs

    @classmethod
    def from_batch(cls, batch: FeatureBatch, dropout: float = 0.0) -> "HiddenInputs":
        """Create the inputs for the tokens of a batch. `dropout` is the dropout rate for the
        vectors in their windows."""
        assert batch.vectors is not None
        assert batch.hidden_ids is not None and batch.hidden_rows is not None
        # `hidden_ids` contains the vector ids and `hidden_rows` the type rows of the same words.
        vector_ids = batch.hidden_ids  # (N, O)
        if dropout:
            vector_ids = drop_ids(vector_ids, dropout)
        return cls(batch.hidden_rows, VectorInputs.from_ids(batch.vectors, vector_ids))

    @property
    def n_type_rows(self) -> int:
        """The number of weight rows for types."""
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
    """Return the number of weight rows for word types: one for each offset and type."""
    return n_offsets * len(CHARACTER_TYPES)


class HiddenWeights(NamedTuple):
    """The weights of a hidden layer. They're called V, b and U in the formula of `HiddenLayer`.

    inner (Floats2d): The weights from the inputs to the units, V. See `HiddenInputs` for the rows.
        Shape: (M, H)
    bias (Floats1d): The bias of each unit, b. Shape: (H,)
    outer (Floats2d): The weights from the units to the scores of tags, U. Shape: (H, K)
    """

    inner: Floats2d
    bias: Floats1d
    outer: Floats2d


class HiddenLayer(Shim):
    """A layer of H hidden units. Let x_t be the input from token t's word: its static vector,
    concatenated with a one-hot vector of its type. Let V_o be the weights for offset o, b the bias
    and U the weights from the units to the scores. The layer adds the following to the emissions of
    token t:

        relu(sum over the offsets o of x_{t+o} V_o + b) U

    Unlike the sparse weights, V, b and U are trained by the optimizer in the config. U is
    initialized to 0, so that the layer doesn't change any scores at first. For predictions, x V_o
    is computed once for each word and offset: see `WordSums`.

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
        """Whether the weights have been created."""
        return len(self.weights.inner) > 0

    def allocate(self, n_rows: int, n_tags: int) -> None:
        """Create weights for `n_rows` input rows (M) and `n_tags` tags (K). The inner weights are
        drawn at random as in He et al. (2015), Delving deep into rectifiers, equation 10. The
        others are 0."""
        standard_deviation = numpy.sqrt(2 / max(n_rows, 1))  # new layers have no rows yet
        inner = numpy.random.normal(scale=standard_deviation, size=(n_rows, self.width))
        bias = numpy.zeros(self.width, dtype="float32")
        outer = numpy.zeros((self.width, n_tags), dtype="float32")
        # Optimizers store moments and averages by id. Don't reuse those of the previous weights.
        self.id = make_id()
        # `restart` also discards the gradients of the previous weights.
        self.restart(HiddenWeights(inner.astype("float32"), bias, outer))

    def restart(self, weights: HiddenWeights) -> None:
        """Restart training from a copy of the given weights."""
        self._set_weights(HiddenWeights._make(array.copy() for array in weights))
        self._gradients = []

    def _set_weights(self, weights: HiddenWeights) -> None:
        """Set the weights and discard the word sums, which were computed from the previous
        weights."""
        self.weights = weights
        self._word_sums = None

    def resize(self, n_tags: int) -> None:
        """Add tags after the existing tags. The scores of existing tags don't change, and the
        scores of new tags are 0. `n_tags` is the new number of tags."""
        n_new_tags = n_tags - self.weights.outer.shape[1]
        outer = numpy.pad(self.weights.outer, ((0, 0), (0, n_new_tags)))
        # Optimizers store moments and averages by id. Those of the previous weights have the old
        # shape.
        self.id = make_id()
        # `restart` also discards pending gradients, which have the old shape.
        self.restart(self.weights._replace(outer=outer))

    def score(self, batch: FeatureBatch) -> Floats2d:
        """Compute the scores that the layer adds to the scores of tokens. Shape: (N, K)"""
        units = self._sum_inputs(batch)
        units += self.weights.bias
        numpy.maximum(units, 0, out=units)
        return units @ self.weights.outer

    def _sum_inputs(self, batch: FeatureBatch) -> Floats2d:
        """Compute the weighted sum of the inputs to each unit, without the bias. Shape: (N, H)"""
        if batch.word_cache is None or batch.word_ids is None:
            return HiddenInputs.from_batch(batch).score(self.weights.inner)
        # The batch has word ids, so use the cached sums of the words.
        word_sums = self._update_word_sums(batch.word_cache)
        return word_sums.sum_windows(batch.word_ids, batch.lengths)

    def _update_word_sums(self, cache: WordCache) -> WordSums:
        """Return the sums of the inner weights for all words in a cache. They're cached until the
        weights change. If several threads add words at once, the last thread's sums are kept."""
        inner = self.weights.inner
        word_sums = self._word_sums
        if word_sums is None or not word_sums.matches(inner, cache):
            slots = cache.hidden_slots  # the slots of the layer's inputs
            # `WordSums` treats types as features, because their weights come before the vector
            # weights.
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
        """Score tokens in training, with dropout for the vectors in their windows and for the
        hidden units.

        batch (FeatureBatch): The features of the tokens.
        RETURNS (tuple[Floats2d, Callable[[Floats2d], None]]): The scores, and a backprop callback
            that receives their gradient and stores it until `finish_update`. Shapes: (N, K)
        """
        return self._begin(batch, HIDDEN_VECTOR_DROPOUT, UNIT_DROPOUT)

    def begin_rehearsal(self, batch: FeatureBatch) -> tuple[Floats2d, Callable[[Floats2d], None]]:
        """Score tokens in rehearsal, with the same scores as in prediction: without dropout. See
        `begin_update`."""
        return self._begin(batch, vector_dropout=0.0, unit_dropout=0.0)

    def _begin(
        self, batch: FeatureBatch, vector_dropout: float, unit_dropout: float
    ) -> tuple[Floats2d, Callable[[Floats2d], None]]:
        """Score tokens with dropout for the vectors in their windows and for the hidden units. The
        backprop callback stores the gradient: see `begin_update`."""
        inner, bias, outer = self.weights
        inputs = HiddenInputs.from_batch(batch, vector_dropout)
        units = numpy.maximum(inputs.score(inner) + bias, 0)
        # Dropped units are multiplied by 0. The others are scaled up, so that the expected values
        # don't change. Shape: (N, H)
        is_kept = numpy.random.uniform(size=units.shape) >= unit_dropout
        factors = is_kept * numpy.float32(1 / (1 - unit_dropout))
        units *= factors

        def add_gradient(d_scores: Floats2d) -> None:
            """Compute the gradients of V, b and U and store them. Shape: (N, K)"""
            d_scores = d_scores.astype("float32")  # losses may use float64
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
        """Return the pending gradient for the next update, summed over all batches since the last
        update. There has to be at least one batch."""
        # `zip` returns the gradients of V for all batches first, then of b, then of U.
        return HiddenWeights._make(numpy.sum(arrays, axis=0) for arrays in zip(*self._gradients))

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update the weights with the pending gradients. (`nlp.rehearse` passes in a function
        instead of an optimizer, in which case nothing is updated.)"""
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
        """Use the averages of the weights for predictions within this context, if the optimizer
        uses averages. `params` are the averages, keyed by shim id and parameter name."""
        weights_in_training = self.weights
        self._set_weights(self._find_averages(params))
        try:
            yield
        finally:
            self._set_weights(weights_in_training)

    def averaged(self, optimizer: Optimizer) -> HiddenWeights:
        """Return the weights to use after training: their averages if the optimizer uses averages,
        otherwise the weights after the last step."""
        return self._find_averages(optimizer.averages or {})

    def _find_averages(self, averages: dict[tuple[int, str], Any]) -> HiddenWeights:
        """Look up the averages of the weights in the optimizer's averages. Weights without an
        average are returned unchanged."""
        averaged_arrays: list[Any] = []
        for name, array in zip(HiddenWeights._fields, self.weights):
            averaged_arrays.append(averages.get((self.id, name), array))
        return HiddenWeights._make(averaged_arrays)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling, without the word sums, which are recomputed when
        needed."""
        return {**self.__dict__, "_word_sums": None}

    def copy(self) -> "HiddenLayer":
        """Create a copy with a new id, because optimizers store averages by id."""
        copied = super().copy()  # has the same id
        copied.id = make_id()
        return copied

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing, because the weights stay on the CPU."""

    def to_bytes(self) -> bytes:
        """Serialize the weights to a bytestring."""
        return srsly.msgpack_dumps(self.weights._asdict())

    def from_bytes(
        self, data: bytes, n_rows: int | None = None, n_tags: int | None = None
    ) -> "HiddenLayer":
        """Load the weights from a bytestring.

        data (bytes): The bytestring returned by `to_bytes`.
        n_rows (int | None): The number of input rows that the features require. None: any number.
        n_tags (int | None): The number of tags. None: any number.
        RETURNS (HiddenLayer): The modified object.
        RAISES (ValueError): If the weights are damaged, or the number of hidden units, input rows
            or tags is different.
        """
        try:
            weights = HiddenWeights(**srsly.msgpack_loads(data))
            shapes = [array.shape for array in weights]
            # A layer without rows doesn't have weights yet: see `is_allocated`.
            has_weights = len(weights.inner) > 0
            if n_rows is None or not has_weights:
                n_rows = len(weights.inner)
            if n_tags is None or not has_weights:
                n_tags = weights.outer.shape[1]
        except Exception as error:
            raise ValueError(
                f"hidden layer: expected saved weights, got damaged data: {error}"
            ) from error
        expected = [(n_rows, self.width), (self.width,), (self.width, n_tags)]
        if shapes != expected:
            raise ValueError(
                f"hidden layer: expected weights of shapes {expected}, got {shapes}; train again "
                "for another hidden or hidden_window"
            )
        if not all(numpy.isfinite(array).all() for array in weights):
            raise ValueError("hidden layer: expected finite weights")
        self.restart(weights)
        return self


def make_id() -> int:
    """Return an id that no other shim has."""
    return Shim(None).id  # every new shim gets a new id


class WithHiddenLayer(NamedTuple):
    """The sparse weights and the hidden layer of a linear CRF, which are trained together. Their
    scores are added up.

    weights (SparseWeights): The sparse weights.
    layer (HiddenLayer): The hidden layer.
    """

    weights: SparseWeights
    layer: HiddenLayer

    def potentials(self, batch: FeatureBatch) -> Potentials:
        """Score docs based on their features."""
        scores = self.weights.potentials(batch)
        return scores._replace(emissions=scores.emissions + self.layer.score(batch))

    def begin_update(
        self, batch: FeatureBatch, dropout: float = 0.0
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Score docs in training. The backprop callback stores the gradients of the sparse weights
        and the hidden layer for the next update: see `SparseWeights.begin_update`."""
        return self._add_up(
            self.weights.begin_update(batch, dropout), self.layer.begin_update(batch)
        )

    def begin_rehearsal(
        self, batch: FeatureBatch
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Score docs in rehearsal: see `SparseWeights.begin_rehearsal`."""
        return self._add_up(self.weights.begin_rehearsal(batch), self.layer.begin_rehearsal(batch))

    def _add_up(
        self,
        of_weights: tuple[Potentials, Callable[[Potentials], None]],
        of_layer: tuple[Floats2d, Callable[[Floats2d], None]],
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Add up the scores of the weights and the layer, and combine their callbacks."""
        scores, add_gradient_of_weights = of_weights
        layer_scores, add_gradient_of_layer = of_layer

        def add_gradient(gradient: Potentials) -> None:
            add_gradient_of_weights(gradient)
            add_gradient_of_layer(gradient.emissions)

        return scores._replace(emissions=scores.emissions + layer_scores), add_gradient

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update the sparse weights and the hidden layer with the pending gradients."""
        self.weights.finish_update(optimizer)
        self.layer.finish_update(optimizer)


class HiddenLayerAlone(NamedTuple):
    """The hidden layer of a linear CRF when only the layer is trained and the sparse weights are
    fixed. The scores of the sparse weights are stored in the batches, as
    `FeatureBatch.linear_scores`.

    layer (HiddenLayer): The hidden layer.
    """

    layer: HiddenLayer

    def begin_update(
        self, batch: FeatureBatch, dropout: float = 0.0
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Score docs in training.

        batch (FeatureBatch): The features, including the fixed scores of the linear model.
        dropout (float): Not used, because it only applies to the features of the linear model.
        RETURNS (tuple): The sum of both scores, and a backprop callback that stores the gradient of
            the hidden layer for the next update.
        """
        scores = batch.linear_scores
        assert scores is not None
        layer_scores, add_gradient_of_layer = self.layer.begin_update(batch)

        def add_gradient(gradient: Potentials) -> None:
            add_gradient_of_layer(gradient.emissions)

        return scores._replace(emissions=scores.emissions + layer_scores), add_gradient

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update the layer with the pending gradients."""
        self.layer.finish_update(optimizer)
