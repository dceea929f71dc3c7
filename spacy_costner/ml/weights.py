"""The weights of a linear CRF as a Thinc shim: trained, averaged and saved with a model.

A row of weights has K numbers, one for each tag. In shapes, V is the number of features, M of rows
of static vectors, N of tokens, and S of features that a token has.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy
import srsly
from thinc.api import Optimizer
from thinc.shims import Shim
from thinc.types import Floats1d, Floats2d, Floats3d, Ints1d, Ints2d

from .. import sparse
from ..features import FeatureBatch, WordCache
from ..locks import make_lock
from ..sparse import AdaGrad, Table
from ..types import Potentials
from .slimming import check_rows, pack_rows, slim_down, unpack_rows
from .vector_inputs import VectorInputs
from .word_sums import WordSums

AVERAGE = "average"

AVERAGE_POWER = 3.0
"""The default of how averages weigh steps, chosen on development data: see docs/linear.md."""

VECTOR_RATE = 0.5
"""The learning rate of the weights of static vectors, as a share of that of the other weights.
Chosen on development data, as is `VECTOR_DROPOUT`: see docs/linear.md."""

VECTOR_DROPOUT = 0.3
"""The share of static vectors that are left out of an update. Nearly all words of training docs may
have a vector, but not those of new docs: the features of a word have to be enough without it."""

FIRST_PERIOD = 8
"""The number of steps at which the second period of an average begins."""

GROWTH = 1.5
"""By which factor the number of steps has grown when the next period begins."""

_CATCHING_UP = make_lock()
"""Held while a prediction does in some rows what regularisation has left to do. When it is done
no other prediction changes these rows."""


class PendingGradient(NamedTuple):
    """The gradient of a batch, until the weights are updated.

    rows (Ints2d): The rows of each token and, as if they were tokens, those of the chain.
        Shape: (N + K + 2, S)
    d_scores (Floats2d): The gradient for the scores of these. Shape: (N + K + 2, K)
    d_vector_weights (Floats2d | None): The gradient for the weights of static vectors, if they are
        inputs. Shape: (M, K)
    """

    rows: Ints2d
    d_scores: Floats2d
    d_vector_weights: Floats2d | None


class SparseWeights(Shim):
    """The weights of a linear CRF, K in a row: a row for each of V features; M rows for static
    vectors, if they are inputs, one for each offset and number of a vector; and K + 2 rows: the
    transitions from each tag, the start and the end.

    All weights start at 0 and are trained by AdaGrad, whatever the optimizer of the config is. If
    that keeps averages, so does this: the weights after step t count t^p, so that early ones count
    little. p = 0 is the mean over all steps (Collins, 2002).

    The average is brought up to date at the ends of periods, each half as long again as all steps
    before it. With b the end of the last period, n the current step and w_t the weights after t,

        average_n = (1 - s) average_b + s (w_{b+1} + ... + w_n) / (n - b),  s = 1 - (b / n)^(p + 1)

    Shamir & Zhang (2013), section 4: polynomial-decay averaging.

    settings (AdaGrad): Learning rate and regularisation.
    average_power (float): p.
    keep_all (bool): Whether weights after training are used as they are: see `slim`.
    """

    table: Table
    n_vector_rows: int
    step: int
    _pending: list[PendingGradient]
    _word_sums: WordSums | None

    def __init__(
        self,
        settings: AdaGrad = AdaGrad(),  # noqa: B008 (immutable)
        average_power: float = AVERAGE_POWER,
        keep_all: bool = False,
    ) -> None:
        super().__init__(None)
        self.settings = settings
        self.average_power = average_power
        self.keep_all = keep_all
        self.n_vector_rows = 0
        self._uses_average = False
        self._set_table(numpy.zeros((0, 0), dtype="float32"))

    @property
    def is_allocated(self) -> bool:
        """Whether there are weights."""
        return len(self.table.weights) > 0

    @property
    def n_features(self) -> int:
        """V."""
        return max(len(self.table.weights) - self.n_vector_rows - self.n_tags - 2, 0)

    @property
    def n_tags(self) -> int:
        """K."""
        return self.table.weights.shape[1]

    @property
    def rows(self) -> Floats2d:
        """All weights, readable, and writable until the next prediction.
        Shape: (V + M + K + 2, K)"""
        self._work_out()
        self._word_sums = None  # the caller may write to the weights
        return self.table.weights

    @property
    def emissions(self) -> Floats2d:
        """Weights of the features, as `rows`. Shape: (V, K)"""
        return self.rows[: self.n_features]

    @property
    def vector_weights(self) -> Floats2d:
        """Weights of the static vectors, as `rows`. Shape: (M, K)"""
        return self.rows[self.n_features : self._first_chain_row]

    @property
    def transitions(self) -> Floats2d:
        """Weights of the transitions, [from, to], readable and writable. Shape: (K, K)"""
        return self._chain_weights[:-2]

    @property
    def start(self) -> Floats1d:
        """Weights of the first tag, readable and writable. Shape: (K,)"""
        return self._chain_weights[-2]

    @property
    def end(self) -> Floats1d:
        """Weights of the last tag, readable and writable. Shape: (K,)"""
        return self._chain_weights[-1]

    @property
    def _chain_weights(self) -> Floats2d:
        """The rows below those of features and vectors. Shape: (K + 2, K)"""
        if self.settings.is_regularised:
            self._work_out(self._chain_rows)
        return self.table.weights[self._first_chain_row :]

    @property
    def _first_chain_row(self) -> int:
        """V + M."""
        return self.n_features + self.n_vector_rows

    @property
    def _chain_rows(self) -> Ints1d:
        """The numbers of the rows below those of features and vectors. Shape: (K + 2,)"""
        return numpy.arange(self._first_chain_row, len(self.table.weights), dtype="int32")

    @property
    def _vector_rows(self) -> Ints1d:
        """The numbers of the rows of static vectors. Shape: (M,)"""
        return numpy.arange(self.n_features, self._first_chain_row, dtype="int32")

    def allocate(self, n_features: int, n_tags: int, n_vector_rows: int = 0) -> None:
        """Create weights of 0 for V features, K tags and M rows of static vectors."""
        n_rows = n_features + n_vector_rows + n_tags + 2
        self.n_vector_rows = n_vector_rows
        self._set_table(numpy.zeros((n_rows, n_tags), dtype="float32"))

    def restart(self, rows: Floats2d) -> None:
        """Begin training again, with these weights. Shape: (V + M + K + 2, K)"""
        self._set_table(numpy.array(rows, dtype="float32"))

    def with_rows(self, rows: Floats2d) -> "SparseWeights":
        """Weights of the same features with other rows, to train apart from these. Shape: (V + M +
        K + 2, K)"""
        weights = SparseWeights(self.settings, self.average_power, self.keep_all)
        weights.n_vector_rows = self.n_vector_rows
        weights.restart(rows)
        return weights

    def set_folds(self, folds: Sequence[Floats2d], fold_of_text: dict[int, int]) -> None:
        """Set the weights that score docs while another part of the model is trained: for each
        fold of the docs those of features and vectors, (V + M, K), trained on the other folds.
        `fold_of_text` has the fold of each doc, by the hash of its text. Until there are new
        weights or more tags, these are not trained."""
        self.folds = list(folds)
        self.fold_of_text = fold_of_text

    def resize(self, n_tags: int) -> None:
        """Add tags, up to a new K, after the existing ones, which keep their weights."""
        self._end_period()
        n_old_tags = self.n_tags
        n_old_rows = self._first_chain_row + n_old_tags  # without the start and the end
        step = self.step
        # The arrays with a column for each tag: weights, sums of squares, totals and the average.
        # The fourth of the table, `last`, has no columns.
        old_arrays = (*self.table[:3], self._average)
        self.allocate(self.n_features, n_tags, self.n_vector_rows)

        # The rows of new tags, the transitions from them, come between those of old tags and the
        # last two, which are the start and the end.
        for old, new in zip(old_arrays, (*self.table[:3], self._average)):
            new[:n_old_rows, :n_old_tags] = old[:n_old_rows]
            new[-2:, :n_old_tags] = old[-2:]

        self.step = step
        self._period_begin = step
        self.table.last[:] = step

    def potentials(self, batch: FeatureBatch) -> Potentials:
        """The scores of docs, from their features."""
        return self._score(batch, inputs_of(batch))

    def _score(self, batch: FeatureBatch, inputs: VectorInputs | None) -> Potentials:
        """The scores of docs, from their features and from vectors that are not in word sums."""
        self._work_out(batch.rows)
        if inputs is not None and self.settings.is_regularised:
            self._work_out(self._vector_rows)
        emissions = self._score_tokens(batch.rows, inputs, self.table.weights)
        if batch.word_cache is not None and batch.word_ids is not None:
            word_sums = self._update_word_sums(batch.word_cache)
            emissions += word_sums.sum_windows(batch.word_ids, batch.lengths)
        chain_weights = self._chain_weights.copy()
        return Potentials(
            emissions=emissions,
            transitions=chain_weights[:-2],
            start=chain_weights[-2],
            end=chain_weights[-1],
            lengths=batch.lengths,
        )

    def _score_tokens(
        self, rows: Ints2d, inputs: VectorInputs | None, weights: Floats2d
    ) -> Floats2d:
        """The emissions of tokens, from their rows of weights, of which the first V + M are used,
        and from static vectors. Shapes: (N, S) to (N, K)"""
        emissions = sparse.sum_rows(rows, weights[: self.n_features])
        if inputs is not None:
            emissions += inputs.score(weights[self.n_features : self._first_chain_row])
        return emissions

    def score_vectors(self, batch: FeatureBatch) -> Floats3d:
        """What the static vector at each of O offsets adds to the scores of each token. Shape: (N,
        O, K)"""
        inputs = inputs_of(batch)
        if inputs is None:
            return numpy.zeros((len(batch.rows), 0, self.n_tags), dtype="float32")
        products = inputs.products(self.vector_weights)
        # The last row is for words without a vector, whose row is -1.
        without_vector = numpy.zeros((1, self.n_tags), dtype="float32")
        return numpy.concatenate([products, without_vector])[inputs.rows]

    def _update_word_sums(self, cache: WordCache) -> WordSums:
        """The sums of the weights of words, kept until weights change. If several threads add words
        at once, the sums of the last one are kept."""
        word_sums = self._word_sums
        if word_sums is None or not word_sums.are_of(self.table.weights, cache):
            self._work_out()
            word_sums = WordSums.empty(
                self.table.weights, self.n_features, self.n_vector_rows, cache, cache.slots
            )
        word_sums = word_sums.with_all_words()
        self._word_sums = word_sums
        return word_sums

    def begin_update(
        self, batch: FeatureBatch, dropout: float = 0.0
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Score docs in training, where tokens lose a share of their features. The callback keeps
        the gradient."""
        scale = numpy.float32(1)
        if dropout:
            batch = drop_features(batch, dropout)
            scale = numpy.float32(1 / (1 - dropout))
        batch = drop_vectors(batch, VECTOR_DROPOUT)
        inputs = inputs_of(batch)
        scores = self._score(batch, inputs)
        scores = scores._replace(emissions=scores.emissions * scale)

        def add_gradient(gradient: Potentials) -> None:
            # The chain's weights are features, too: after the tokens come K + 2 more "tokens", each
            # with one of these rows. Shape: (N + K + 2, S)
            rows = batch.rows
            n_slots = max(rows.shape[1], 1)  # there may be no features
            all_rows = numpy.full((len(rows) + self.n_tags + 2, n_slots), -1, dtype="int32")
            all_rows[: len(rows), : rows.shape[1]] = rows
            all_rows[len(rows) :, 0] = self._chain_rows
            d_emissions = (gradient.emissions * scale).astype("float32")
            d_scores = numpy.concatenate(
                [d_emissions, gradient.transitions, gradient.start[None], gradient.end[None]]
            )

            d_vector_weights = None
            if inputs is not None:
                d_vector_weights = inputs.gradient(d_emissions)
            self._pending.append(
                PendingGradient(all_rows, d_scores.astype("float32"), d_vector_weights)
            )

        return scores, add_gradient

    def score_held_out(self, batch: FeatureBatch) -> Potentials:
        """Score each training doc with the weights that were not trained on it: see `set_folds`."""
        assert batch.text_ids is not None  # as in training
        emissions = numpy.empty((len(batch.rows), self.n_tags), dtype="float32")
        fold_of_doc = [self.fold_of_text.get(text_id, -1) for text_id in batch.text_ids.tolist()]
        fold_of_token = numpy.repeat(fold_of_doc, batch.lengths)
        # Docs in no fold, -1, have the weights that were trained on all.
        weights_of_fold = dict(enumerate(self.folds))
        weights_of_fold[-1] = self.rows
        for fold, weights in weights_of_fold.items():
            is_in_fold = fold_of_token == fold
            batch_of_fold = batch.select_tokens(is_in_fold)
            emissions[is_in_fold] = self._score_tokens(
                batch_of_fold.rows, inputs_of(batch_of_fold), weights
            )
        # Transitions, start and end are those that were trained on all docs: the scores of a batch
        # without its tokens have them.
        without_tokens = batch.select_tokens(numpy.zeros(len(batch.rows), dtype=bool))
        return self.potentials(without_tokens)._replace(emissions=emissions)

    def gradient(self) -> tuple[Ints1d, Floats2d]:
        """The rows in which the kept gradient is not 0, (A,), and its values there, (A, K). All
        rows of static vectors are among them, if they are inputs."""
        rows, gradient = self._sparse_gradient()
        d_vector_weights = self._vector_gradient()
        if d_vector_weights is None:
            return rows, gradient
        all_rows = numpy.concatenate([rows, self._vector_rows])
        return all_rows, numpy.concatenate([gradient, d_vector_weights])

    def _sparse_gradient(self) -> tuple[Ints1d, Floats2d]:
        """The same without the rows of static vectors."""
        return sparse.collect_rows(
            numpy.concatenate([pending.rows for pending in self._pending]),
            numpy.concatenate([pending.d_scores for pending in self._pending]),
            self._place_of,
        )

    def _vector_gradient(self) -> Floats2d | None:
        """The kept gradient for the weights of static vectors, (M, K). None if they are no
        inputs."""
        gradients: list[Floats2d] = []
        for pending in self._pending:
            if pending.d_vector_weights is not None:
                gradients.append(pending.d_vector_weights)
        if not gradients:
            return None
        return numpy.sum(gradients, axis=0)

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update the weights with the kept gradient. The optimizer only says whether averages are
        wanted. `nlp.rehearse` gives a function in its place."""
        if not self._pending:
            return
        rows, gradient = self._sparse_gradient()
        d_vector_weights = self._vector_gradient()
        self._pending = []
        self._word_sums = None
        self.step += 1
        sparse.adagrad(self.table, rows, gradient, self.step, self.settings)
        if d_vector_weights is not None:
            vector_rate = VECTOR_RATE * self.settings.learn_rate
            settings = self.settings._replace(learn_rate=vector_rate)
            sparse.adagrad(self.table, self._vector_rows, d_vector_weights, self.step, settings)

        averages = getattr(optimizer, "averages", None)
        if averages is not None:
            # The average itself is worked out where it is used.
            averages[self.id, AVERAGE] = numpy.ones(1, dtype="float32")
            end_of_period = max(FIRST_PERIOD, GROWTH * self._period_begin)
            if self.average_power and self.step >= end_of_period:
                self._end_period()

    @contextmanager
    def use_params(self, params: dict[tuple[int, str], Any]) -> Iterator[None]:
        """Use the average of the weights after each update in this context, if an optimizer has it.
        It is used as it would be saved, so that what is evaluated is what is saved: see `slim`.

        params (dict[tuple[int, str], Any]): The averages that the optimizer keeps, by node and
            name. They say whether there is one of these weights: it is kept here.
        """
        if not self._has_average(params):
            yield
            return
        table_in_training = self.table
        self.table = table_in_training._replace(weights=self.slim(self._mean()))
        self._uses_average = True
        try:
            yield
        finally:
            self.table = table_in_training
            self._uses_average = False
            self._word_sums = None  # which are of the average

    def averaged(self, optimizer: Optimizer) -> Floats2d:
        """The weights to use after training: their average if the optimizer keeps one, or the last
        ones. Shape: (V + M + K + 2, K)"""
        if self._has_average(optimizer.averages or {}):
            return self._mean()
        return self.rows.copy()

    def _has_average(self, params: dict[tuple[int, str], Any]) -> bool:
        """Whether an optimizer has the average of these weights, and it isn't in use already."""
        return (self.id, AVERAGE) in params and self.step > 0 and not self._uses_average

    def slim(self, rows: Floats2d) -> Floats2d:
        """The weights to use after training as they are saved: without those that hardly matter,
        and rounded; or as they are, if all are to be kept. Shape: (V + M + K + 2, K)"""
        if self.keep_all:
            return rows
        return slim_down(rows, self.n_features)

    def select(self, rows: Ints1d) -> "SparseWeights":
        """The weights of some features, and those of static vectors and of the chain, without the
        state of training. Shape: (V',)"""
        all_rows = self.rows
        other_rows = all_rows[self.n_features :]
        return self.with_rows(numpy.concatenate([all_rows[rows], other_rows]))

    def _mean(self) -> Floats2d:
        """The average of the weights after each update. Shape: (V + M + K + 2, K)"""
        self._work_out()
        if self.step == self._period_begin:
            return self._average.copy()
        # average_n of the docstring, where s is `share` and b `_period_begin`. `totals` sums a row
        # up to its last change; after that it is the same until step n.
        n_steps = self.step - self._period_begin
        share = 1 - (self._period_begin / self.step) ** (self.average_power + 1)
        n_unchanged = (self.step - self.table.last).astype("float32")[:, None]
        mean = n_unchanged * self.table.weights
        mean += self.table.totals
        mean *= numpy.float32(share / n_steps)
        if self._period_begin:
            mean += numpy.float32(1 - share) * self._average
        return mean

    def _end_period(self) -> None:
        """Bring the average up to date."""
        self._average = self._mean()
        self.table.totals[:] = 0
        self.table.last[:] = self.step
        self._period_begin = self.step

    def _work_out(self, rows: Ints2d | None = None) -> None:
        """Apply the pending regularisation to some rows, or to all."""
        if not self.settings.is_regularised or self._uses_average or not self.step:
            return
        if rows is None:
            rows = numpy.flatnonzero(self.table.last < self.step).astype("int32")
        if rows.size:
            with _CATCHING_UP:
                sparse.lazy_regularise(self.table, rows.reshape(-1), self.step, self.settings)

    def _set_table(self, weights: Floats2d) -> None:
        """Begin training, with these weights. Shape: (V + M + K + 2, K)"""
        # Not `zeros_like`, which writes: what is never written, as in prediction, takes no memory.
        self.table = Table(
            weights=weights,
            squares=numpy.zeros(weights.shape, dtype="float32"),
            totals=numpy.zeros(weights.shape, dtype="float32"),
            last=numpy.zeros(len(weights), dtype="int32"),
        )
        self.step = 0
        self._period_begin = 0
        self._average = numpy.zeros(weights.shape, dtype="float32")
        self._place_of = numpy.full(len(weights), -1, dtype="int32")  # see `sparse.collect_rows`
        self._word_sums = None
        self._pending = []
        self.set_folds([], {})

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: all but the sums of words, which are made again when needed."""
        return {**self.__dict__, "_word_sums": None}

    def copy(self) -> "SparseWeights":
        """A copy with an identity of its own, so that no optimizer takes it for this one."""
        copied = super().copy()
        copied.id = SparseWeights().id
        return copied

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing: the weights stay on the CPU."""

    def to_bytes(self) -> bytes:
        """Save the weights, in 16 bits at most, without rows that are 0 throughout. The state of
        AdaGrad and of averaging is left out: training has to start anew."""
        if not self.is_allocated:
            return srsly.msgpack_dumps({"n_features": None})
        weights = self.rows
        return srsly.msgpack_dumps(
            {
                "n_features": self.n_features,
                "n_tags": self.n_tags,
                "n_vector_rows": self.n_vector_rows,
                "features": pack_rows(weights[: self.n_features]),
                "vectors": pack_rows(weights[self.n_features : self._first_chain_row]),
                "chain": pack_rows(weights[self._first_chain_row :]),
            }
        )

    def from_bytes(self, data: bytes) -> "SparseWeights":
        """Load the weights. Raises a ValueError if they are damaged."""
        try:
            saved = srsly.msgpack_loads(data)
            if saved["n_features"] is not None:
                self._load(saved)
        except Exception as error:
            raise ValueError(
                f"weights of a linear CRF: expected saved weights, got damaged data: {error}"
            ) from error
        return self

    def _load(self, saved: dict[str, Any]) -> None:
        """Load what was saved, and check that its parts fit each other."""
        n_features = saved["n_features"]
        n_tags = saved["n_tags"]
        # Models that were saved before static vectors could be inputs have none.
        n_vector_rows = saved.get("n_vector_rows", 0)
        n_rows = n_features + n_vector_rows + n_tags + 2
        are_counts = n_features >= 0 and n_vector_rows >= 0
        if not (are_counts and n_rows < 2**31):
            raise ValueError(
                f"expected weights of features and vectors, got {n_features} features and "
                f"{n_vector_rows} rows of vectors"
            )

        self.allocate(n_features, n_tags, n_vector_rows)
        weights = self.table.weights
        if "scale" in saved:  # up to 0.3.0
            load_floats(saved, weights)
        else:
            unpack_rows(saved["features"], weights[:n_features])
            unpack_rows(saved["vectors"], weights[n_features : self._first_chain_row])
            unpack_rows(saved["chain"], weights[self._first_chain_row :])


def load_floats(saved: dict[str, Any], weights: Floats2d) -> None:
    """Load weights that were saved up to 0.3.0, as floats of 16 bits, into an array of 0. Shape:
    (V + M + K + 2, K)"""
    n_rows, n_tags = weights.shape
    scale = saved["scale"]
    used_rows = numpy.frombuffer(saved["used"], dtype="<i4")
    saved_weights = numpy.frombuffer(saved["weights"], dtype="<f2").reshape(-1, n_tags)
    if isinstance(scale, bool) or not (0 < scale < numpy.inf):
        raise ValueError(f"expected finite weights, got a scale of {scale!r}")
    if not numpy.isfinite(saved_weights).all():
        raise ValueError("expected finite weights")
    if len(saved_weights) != len(used_rows):
        raise ValueError(f"expected {len(used_rows)} of {n_rows} rows, got {len(saved_weights)}")
    check_rows(used_rows, n_rows)
    weights[used_rows] = saved_weights * numpy.float32(scale)


def inputs_of(batch: FeatureBatch) -> VectorInputs | None:
    """The static vectors of a batch, if they are inputs and not in its word cache."""
    if batch.vectors is None or batch.vector_ids is None:
        return None
    return VectorInputs.of_ids(batch.vectors, batch.vector_ids)


def drop_features(batch: FeatureBatch, dropout: float) -> FeatureBatch:
    """A batch whose tokens lose a share of their features, and of the vectors in their windows."""
    batch = batch._replace(rows=drop_ids(batch.rows, dropout))
    return drop_vectors(batch, dropout)


def drop_vectors(batch: FeatureBatch, dropout: float) -> FeatureBatch:
    """A batch whose tokens lose a share of the vectors in their windows, if vectors are inputs."""
    if batch.vector_ids is None:
        return batch
    return batch._replace(vector_ids=drop_ids(batch.vector_ids, dropout))


def drop_ids(ids: Ints2d, dropout: float) -> Ints2d:
    """Ids of which a share is lost, and -1. Shape: (N, S)"""
    is_lost = numpy.random.uniform(size=ids.shape) < dropout
    return numpy.where(is_lost, numpy.int32(-1), ids)
