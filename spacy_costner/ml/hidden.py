"""A hidden layer over the words in the windows of tokens, beside the weights of a linear CRF."""

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

LOST_VECTORS = 0.2
"""The share of static vectors that are left out of an update of the layer. Chosen on development
data, as is `LOST_UNITS`: see docs/linear.md."""

LOST_UNITS = 0.2
"""The share of its units that a token loses in an update."""


class HiddenInputs(NamedTuple):
    """What a hidden layer sees of the words at O offsets from a token: their types, such as
    "capitalised", and their static vectors. It has M rows of weights: one for each offset and type,
    then those of `VectorInputs`.

    type_rows (Ints2d): The types, as rows of weights, -1 for none. Shape: (N, O)
    vectors (VectorInputs): The static vectors.
    """

    type_rows: Ints2d
    vectors: VectorInputs

    @classmethod
    def of_batch(cls, batch: FeatureBatch, dropout: float = 0.0) -> "HiddenInputs":
        """The inputs of the tokens of a batch, which lose a share of the vectors."""
        assert batch.vectors is not None
        assert batch.hidden_ids is not None and batch.hidden_rows is not None
        vector_ids = batch.hidden_ids
        if dropout:
            vector_ids = drop_ids(vector_ids, dropout)
        return cls(batch.hidden_rows, VectorInputs.of_ids(batch.vectors, vector_ids))

    @property
    def n_type_rows(self) -> int:
        """The number of rows of weights that types have."""
        return count_type_rows(self.type_rows.shape[1])

    def score(self, weights: Floats2d) -> Floats2d:
        """The products of the inputs and the weights of H units. Shapes: (M, H) to (N, H)"""
        products = sparse.sum_rows(self.type_rows, weights[: self.n_type_rows])
        products += self.vectors.score(weights[self.n_type_rows :])
        return products

    def gradient(self, d_products: Floats2d) -> Floats2d:
        """The gradient for the weights from that for the products, in float32. Shapes: (N, H) to
        (M, H)"""
        d_types = numpy.zeros((self.n_type_rows, d_products.shape[1]))
        sparse.add_rows(self.type_rows, d_products, d_types)
        d_vectors = self.vectors.gradient(d_products)
        return numpy.concatenate([d_types.astype("float32"), d_vectors])


def count_type_rows(n_offsets: int) -> int:
    """The number of rows of weights that the types of words have at so many offsets."""
    return n_offsets * len(CHARACTER_TYPES)


class HiddenWeights(NamedTuple):
    """The weights of a hidden layer of H units, with M rows for its inputs and K scores.

    inner (Floats2d): From the inputs to the units: see `HiddenInputs`. Shape: (M, H)
    bias (Floats1d): Of the units. Shape: (H,)
    outer (Floats2d): From the units to the scores. Shape: (H, K)
    """

    inner: Floats2d
    bias: Floats1d
    outer: Floats2d


class HiddenLayer(Shim):
    """A layer of H hidden units. With x_t the static vector of the word of token t and its type, as
    a vector of a 1 and zeros, and V_o the weights of offset o, the emissions of token t gain

        relu(sum over the offsets o of x_{t+o} V_o + b) U

    V, b and U are trained by the optimizer of the config, unlike the sparse weights. U is 0 at
    first, so that the layer changes no score. In prediction, x V_o is computed once for each word
    and offset: see `WordSums`.

    width (int): H.
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
        """Create weights for M rows of inputs and K tags. Those of the units are drawn by chance,
        as in He et al. (2015), Delving deep into rectifiers, equation 10."""
        standard_deviation = numpy.sqrt(2 / max(n_rows, 1))
        inner = numpy.random.normal(scale=standard_deviation, size=(n_rows, self.width))
        bias = numpy.zeros(self.width, dtype="float32")
        outer = numpy.zeros((self.width, n_tags), dtype="float32")
        self.restart(HiddenWeights(inner.astype("float32"), bias, outer))

    def restart(self, weights: HiddenWeights) -> None:
        """Begin training again, with copies of these weights."""
        self._set(HiddenWeights._make(array.copy() for array in weights))
        self._gradients = []

    def _set(self, weights: HiddenWeights) -> None:
        """Set the weights."""
        self.weights = weights
        self._word_sums = None

    def resize(self, n_tags: int) -> None:
        """Add tags, up to a new K, after the existing ones. Their scores are 0."""
        n_new_tags = n_tags - self.weights.outer.shape[1]
        outer = numpy.pad(self.weights.outer, ((0, 0), (0, n_new_tags)))
        self.restart(self.weights._replace(outer=outer))

    def score(self, batch: FeatureBatch) -> Floats2d:
        """The scores of tokens. Shape: (N, K)"""
        units = self._sum_inputs(batch)
        units += self.weights.bias
        numpy.maximum(units, 0, out=units)
        return units @ self.weights.outer

    def _sum_inputs(self, batch: FeatureBatch) -> Floats2d:
        """The products of the inputs and their weights. Shape: (N, H)"""
        if batch.word_cache is None or batch.word_ids is None:
            return HiddenInputs.of_batch(batch).score(self.weights.inner)
        word_sums = self._update_word_sums(batch.word_cache)
        return word_sums.sum_windows(batch.word_ids, batch.lengths)

    def _update_word_sums(self, cache: WordCache) -> WordSums:
        """The products of words, kept until weights change. If several threads add words at once,
        those of the last one are kept."""
        inner = self.weights.inner
        word_sums = self._word_sums
        if word_sums is None or not word_sums.are_of(inner, cache):
            slots = cache.hidden_slots
            n_type_rows = count_type_rows(len(slots.by_offset))
            word_sums = WordSums.empty(inner, n_type_rows, len(inner) - n_type_rows, cache, slots)
        word_sums = word_sums.with_all_words()
        self._word_sums = word_sums
        return word_sums

    def begin_update(self, batch: FeatureBatch) -> tuple[Floats2d, Callable[[Floats2d], None]]:
        """Score tokens in training, where they lose a share of the vectors in their windows and of
        their units. The callback keeps the gradient. Shapes: (N, K)"""
        inner, bias, outer = self.weights
        inputs = HiddenInputs.of_batch(batch, LOST_VECTORS)
        units = numpy.maximum(inputs.score(inner) + bias, 0)
        # What the units are multiplied by: 0 if they are lost. Shape: (N, H)
        is_kept = numpy.random.uniform(size=units.shape) >= LOST_UNITS
        factors = is_kept * numpy.float32(1 / (1 - LOST_UNITS))
        units *= factors

        def add_gradient(d_scores: Floats2d) -> None:
            d_units = (d_scores @ outer.T) * factors
            d_units[units <= 0] = 0
            gradient = HiddenWeights(
                inner=inputs.gradient(d_units),
                bias=d_units.sum(axis=0),
                outer=units.T @ d_scores,
            )
            self._gradients.append(gradient)

        return units @ outer, add_gradient

    def gradient(self) -> HiddenWeights:
        """The sum of the kept gradients."""
        return HiddenWeights._make(numpy.sum(parts, axis=0) for parts in zip(*self._gradients))

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update the weights with the kept gradients. A function in place of an optimizer, as
        `nlp.rehearse` gives, changes nothing."""
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
        self._set(HiddenWeights._make(updated))

    @contextmanager
    def use_params(self, params: dict[tuple[int, str], Any]) -> Iterator[None]:
        """Use the averages of the weights temporarily, if an optimizer has them."""
        current = self.weights
        self._set(self._find_averages(params))
        try:
            yield
        finally:
            self._set(current)

    def averaged(self, optimizer: Optimizer) -> HiddenWeights:
        """The weights to use after training: their averages if the optimizer keeps some, or the
        last ones."""
        return self._find_averages(optimizer.averages or {})

    def _find_averages(self, averages: dict[tuple[int, str], Any]) -> HiddenWeights:
        """The averages of the weights; the weights themselves where there is none."""
        found: list[Any] = []
        for name, array in zip(HiddenWeights._fields, self.weights):
            found.append(averages.get((self.id, name), array))
        return HiddenWeights._make(found)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_word_sums": None}

    def copy(self) -> "HiddenLayer":
        """A copy with an identity of its own, so that no optimizer takes it for this one."""
        copied = super().copy()
        copied.id = HiddenLayer(0).id
        return copied

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing: the weights stay on the CPU."""

    def to_bytes(self) -> bytes:
        """Save the weights."""
        return srsly.msgpack_dumps(self.weights._asdict())

    def from_bytes(self, data: bytes) -> "HiddenLayer":
        """Load the weights. Raises a ValueError if they are damaged, or of another width."""
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
    """The weights of a linear CRF and a hidden layer, whose scores are added.

    weights (SparseWeights): The weights.
    hidden (HiddenLayer): The layer.
    """

    weights: SparseWeights
    hidden: HiddenLayer

    def potentials(self, batch: FeatureBatch) -> Potentials:
        """The scores of docs, from their features."""
        scores = self.weights.potentials(batch)
        return scores._replace(emissions=scores.emissions + self.hidden.score(batch))

    def begin_update(
        self, batch: FeatureBatch, dropout: float = 0.0
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Score docs in training. The callback keeps the gradient."""
        scores, add_gradient_of_weights = self.weights.begin_update(batch, dropout)
        hidden_scores, add_gradient_of_hidden = self.hidden.begin_update(batch)

        def add_gradient(gradient: Potentials) -> None:
            add_gradient_of_weights(gradient)
            add_gradient_of_hidden(gradient.emissions.astype("float32"))

        return scores._replace(emissions=scores.emissions + hidden_scores), add_gradient

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update both with the kept gradient."""
        self.weights.finish_update(optimizer)
        self.hidden.finish_update(optimizer)


class HiddenLayerAlone(NamedTuple):
    """A hidden layer that is trained on top of weights that don't change. Batches have the scores
    of these.

    hidden (HiddenLayer): The layer.
    """

    hidden: HiddenLayer

    def begin_update(
        self, batch: FeatureBatch, dropout: float = 0.0
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Score docs in training. The callback keeps the gradient."""
        scores = batch.linear_scores
        assert scores is not None
        hidden_scores, add_gradient_of_hidden = self.hidden.begin_update(batch)

        def add_gradient(gradient: Potentials) -> None:
            add_gradient_of_hidden(gradient.emissions.astype("float32"))

        return scores._replace(emissions=scores.emissions + hidden_scores), add_gradient

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update the layer with the kept gradient."""
        self.hidden.finish_update(optimizer)
