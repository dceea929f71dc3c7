"""The weights of a linear CRF, as a Thinc shim that is trained, averaged and saved with the model.

The weights are stored in a single table with one column for each of the K tags. From top to bottom,
it contains:

- V rows for the features.
- M rows for the static word vectors: one for each combination of an offset and a vector dimension.
  M is 0 if vectors aren't used as inputs.
- K + 2 rows for the chain: one row for the transitions from each tag, one for the first tag (start)
  and one for the last tag (end).

In shapes, N is the number of tokens, and S is the maximum number of features per token.
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
from .pruning import pack_rows, prune_and_quantize, unpack_rows
from .vector_inputs import VectorInputs
from .word_sums import WordSums

AVERAGE = "average"
"""The key in an optimizer's `averages` that indicates that there is an average of the weights."""
AVERAGE_POWER = 3.0
"""The default value of p: step t has the weight t^p in the average. Chosen on development data: see
docs/linear.md."""

VECTOR_RATE = 0.5
"""The learning rate for the weights of static vectors, as a fraction of the learning rate for other
weights. Chosen on development data, like `VECTOR_DROPOUT`: see docs/linear.md."""

VECTOR_DROPOUT = 0.3
"""The dropout rate for static vectors. Almost all words in the training docs may have a vector,
while many words in new docs don't. The model therefore has to learn to predict without them."""

FIRST_PERIOD_END = 8
"""The step at which the first averaging period ends: see `SparseWeights`."""

PERIOD_GROWTH = 1.5
"""Later averaging periods end at this multiple of the step at which they started."""

_REGULARISATION_LOCK = make_lock()
"""Held while a prediction applies pending regularisation, so that two threads don't apply it to the
same rows."""


class TableSize(NamedTuple):
    """The size of a weight table.

    n_features (int): The number of features, V.
    n_vector_rows (int): The number of rows for static vectors, M.
    n_tags (int | None): The number of tags, K. None if it isn't known.
    """

    n_features: int
    n_vector_rows: int
    n_tags: int | None


NOUNS = ("features", "rows of vectors", "tags")
"""The names of the fields of `TableSize` in error messages."""


class PendingGradient(NamedTuple):
    """The gradient of a batch, which is stored until the weights are updated.

    rows (Ints2d): The weight rows used by each token, -1 for none. The N tokens are followed by
        K + 2 entries with a single row of the chain each. Shape: (N + K + 2, S)
    d_scores (Floats2d): The gradient with respect to the weight sum of each entry in `rows`. For
        tokens, these are the scores. Shape: (N + K + 2, K)
    d_vector_weights (Floats2d | None): The gradient with respect to the weights of static vectors.
        None if vectors aren't used as inputs. Shape: (M, K)
    """

    rows: Ints2d
    d_scores: Floats2d
    d_vector_weights: Floats2d | None


class SparseWeights(Shim):
    """The weights of a linear CRF: the table described in the module docstring and its training
    state.

    All weights are initialized to 0 and trained with AdaGrad, regardless of the optimizer in the
    config. If that optimizer uses averages, an average of these weights is stored as well. Step t
    has the weight t^p in the average, so that early steps have less influence. With p = 0, it's the
    mean over all steps (Collins, 2002).

    Computing the exact average would require a pass over the whole table in every step. Instead,
    steps are divided into periods. The first period ends at step `FIRST_PERIOD_END`, and each later
    period is half as long as all previous periods combined. All steps within a period have the same
    weight, and the average is updated at the end of the period. Let b be the step at which the last
    period ended, n the current step and w_t the weights after step t. Then

        average_n = (1 - s) average_b + s (w_{b+1} + ... + w_n) / (n - b),  s = 1 - (b / n)^(p + 1)

    Shamir & Zhang (2013), section 4: polynomial-decay averaging.

    settings (AdaGrad): The learning rate and regularisation.
    average_power (float): The exponent p. Larger values give later steps more weight in the
        average.
    keep_all (bool): Whether to keep all weights after training. Otherwise, small weights are set to
        0 and the others are rounded: see `prune_and_quantize`.
    table (Table): The weights and the state of AdaGrad and averaging.
    n_vector_rows (int): The number of rows for static vectors, M.
    step (int): The number of updates so far, n.
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
        super().__init__(None)  # unlike most shims, this one doesn't wrap another model
        self.settings = settings
        self.average_power = average_power
        self.keep_all = keep_all
        self.n_vector_rows = 0
        self._uses_average = False  # whether `table` contains the average: see `use_params`
        # The weights are created by `allocate` or `from_bytes`.
        self._set_table(numpy.zeros((0, 0), dtype="float32"))

    @property
    def is_allocated(self) -> bool:
        """Whether the weights have been created."""
        return len(self.table.weights) > 0

    @property
    def n_features(self) -> int:
        """The number of features, V in shapes."""
        # At least 0, because there are no chain rows before the weights are created.
        return max(len(self.table.weights) - self.n_vector_rows - self.n_tags - 2, 0)

    @property
    def n_tags(self) -> int:
        """The number of tags, K in shapes."""
        return self.table.weights.shape[1]

    @property
    def rows(self) -> Floats2d:
        """The table of all weights (not a copy), after applying any pending regularisation. The
        array can be modified until the next prediction. After that, access the property again.
        Shape: (V + M + K + 2, K)"""
        self._apply_regularisation()
        self._word_sums = None  # the caller may modify the weights
        return self.table.weights

    @property
    def emissions(self) -> Floats2d:
        """The rows that contain the feature weights. Shape: (V, K)"""
        return self.rows[: self.n_features]

    @property
    def vector_weights(self) -> Floats2d:
        """The rows that contain the weights of static vectors. Shape: (M, K)"""
        return self.rows[self.n_features : self._first_chain_row]

    @property
    def transitions(self) -> Floats2d:
        """The weights of the transitions, indexed by [from, to]. Can be modified. Shape: (K, K)"""
        return self._chain_weights[:-2]

    @property
    def start(self) -> Floats1d:
        """The weights of the tags at the first token. Can be modified. Shape: (K,)"""
        return self._chain_weights[-2]

    @property
    def end(self) -> Floats1d:
        """The weights of the tags at the last token. Can be modified. Shape: (K,)"""
        return self._chain_weights[-1]

    @property
    def _chain_weights(self) -> Floats2d:
        """The weights of the chain, after applying any pending regularisation. These are the last
        rows of the table. Shape: (K + 2, K)"""
        self._apply_regularisation(self._chain_rows)
        return self.table.weights[self._first_chain_row :]

    @property
    def _first_chain_row(self) -> int:
        """The index of the first row of the chain: V + M."""
        return self.n_features + self.n_vector_rows

    @property
    def _chain_rows(self) -> Ints1d:
        """The row indices of the chain. Shape: (K + 2,)"""
        return numpy.arange(self._first_chain_row, len(self.table.weights), dtype="int32")

    @property
    def _vector_rows(self) -> Ints1d:
        """The row indices of the static vectors. Shape: (M,)"""
        return numpy.arange(self.n_features, self._first_chain_row, dtype="int32")

    def allocate(self, n_features: int, n_tags: int, n_vector_rows: int = 0) -> None:
        """Initialize all weights to 0.

        n_features (int): The number of features, V.
        n_tags (int): The number of tags, K.
        n_vector_rows (int): The number of rows for static vectors, M.
        """
        n_rows = n_features + n_vector_rows + n_tags + 2
        self.n_vector_rows = n_vector_rows
        self._set_table(numpy.zeros((n_rows, n_tags), dtype="float32"))

    def restart(self, rows: Floats2d) -> None:
        """Restart training from a copy of the given weights. Shape: (V + M + K + 2, K)"""
        self._set_table(numpy.array(rows, dtype="float32"))

    def with_rows(self, rows: Floats2d) -> "SparseWeights":
        """Create new `SparseWeights` with the same settings and a copy of the given rows, which can
        have any number of features. The two objects can be trained independently.
        Shape: (V + M + K + 2, K)"""
        weights = SparseWeights(self.settings, self.average_power, self.keep_all)
        weights.n_vector_rows = self.n_vector_rows
        weights.restart(rows)  # copies the rows
        return weights

    def set_folds(
        self, emissions_of_folds: Sequence[Floats2d], fold_of_text: dict[int, int]
    ) -> None:
        """Set the weights for scoring training docs while another part of the model is trained. The
        training docs are divided into folds. The weights of each fold were trained on all other
        folds, so that each doc is scored by weights that weren't trained on it.

        While folds are set, updates don't change any weights. `restart`, `allocate` and `resize`
        remove the folds.

        emissions_of_folds (Sequence[Floats2d]): The weights of features and vectors for each fold.
            Shape of each: (V + M, K)
        fold_of_text (dict[int, int]): The fold of each doc, keyed by the hash of its text.
        """
        self.emissions_of_folds = list(emissions_of_folds)
        self.fold_of_text = fold_of_text

    def resize(self, n_tags: int) -> None:
        """Add tags with weights of 0 after the existing tags. The weights of existing tags don't
        change. `n_tags` is the new number of tags. Folds and pending gradients are discarded."""
        # Bring all rows up to the current step and reset `totals` to 0.
        self._end_period()
        n_old_tags = self.n_tags
        n_old_rows = self._first_chain_row + n_old_tags  # without start and end
        step = self.step
        # The weights, the AdaGrad state and the average
        old_arrays = self._arrays_to_resize()
        self.allocate(self.n_features, n_tags, self.n_vector_rows)

        # Insert the transitions from the new tags between the transitions from the old tags and the
        # last two rows (start and end).
        for old_array, new_array in zip(old_arrays, self._arrays_to_resize()):
            new_array[:n_old_rows, :n_old_tags] = old_array[:n_old_rows]
            new_array[-2:, :n_old_tags] = old_array[-2:]

        self.step = step
        self._period_begin = step
        self.table.last[:] = step

    def _arrays_to_resize(self) -> tuple[Floats2d, ...]:
        """Return the arrays whose values `resize` has to preserve. They have one column per tag.
        Shapes: (V + M + K + 2, K)"""
        return (self.table.weights, self.table.squares, self._average)

    def potentials(self, batch: FeatureBatch) -> Potentials:
        """Score docs based on their features."""
        return self._score(batch, vector_inputs_of(batch))

    def _score(self, batch: FeatureBatch, vectors: VectorInputs | None) -> Potentials:
        """Score docs based on their features and static vectors. `vectors` is None if the model
        doesn't use vectors, or if the batch has a word cache, because the word sums already include
        the vectors."""
        # Regularisation is lazy, so apply any pending regularisation to the rows before using them.
        self._apply_regularisation(batch.rows)
        if vectors is not None:
            self._apply_regularisation(self._vector_rows)
        emissions = self._score_tokens(batch.rows, vectors, self.table.weights)
        if batch.word_cache is not None and batch.word_ids is not None:
            # `batch.rows` doesn't include the features that depend only on the word.
            word_sums = self._update_word_sums(batch.word_cache)
            emissions += word_sums.sum_windows(batch.word_ids, batch.lengths)
        # Copy the weights, because updates modify the table in place and the scores must not
        # change.
        chain_weights = self._chain_weights.copy()
        return Potentials(
            emissions=emissions,
            transitions=chain_weights[:-2],
            start=chain_weights[-2],
            end=chain_weights[-1],
            lengths=batch.lengths,
        )

    def _score_tokens(
        self, rows: Ints2d, vectors: VectorInputs | None, weights: Floats2d
    ) -> Floats2d:
        """Compute the emissions of tokens from the weight rows that each token uses (-1 for none)
        and from the static vectors in its window, if any. `weights` contains the weights of
        features and vectors. Any further rows are ignored.
        Shapes: (N, S), (V + M or more, K) to (N, K)"""
        emissions = sparse.sum_rows(rows, weights[: self.n_features])
        if vectors is not None:
            emissions += vectors.score(weights[self.n_features : self._first_chain_row])
        return emissions

    def score_vectors(self, batch: FeatureBatch) -> Floats3d:
        """Compute how much the static vector at each of O offsets adds to the scores of each token.
        O is 0 if `vector_inputs_of` returns None. Shape: (N, O, K)"""
        inputs = vector_inputs_of(batch)
        if inputs is None:
            return numpy.zeros((len(batch.rows), 0, self.n_tags), dtype="float32")
        # `products` has one row for each distinct vector and offset. `inputs.rows` contains the row
        # for each token and offset, (N, O), or -1 if there is no vector. The index -1 refers to the
        # row of zeros that is added at the end.
        products = inputs.products(self.vector_weights)
        without_vector = numpy.zeros((1, self.n_tags), dtype="float32")
        return numpy.concatenate([products, without_vector])[inputs.rows]

    def _update_word_sums(self, cache: WordCache) -> WordSums:
        """Return the weight sums of all words in a cache. They're cached until the weights are
        modified in place, which sets `_word_sums` to None. If several threads add words at once,
        the last thread's sums are kept."""
        word_sums = self._word_sums
        if word_sums is None or not word_sums.matches(self.table.weights, cache):
            # Apply all pending regularisation, because the words may use any row.
            self._apply_regularisation()
            # Use the slots of the linear model. Hidden layers use `cache.hidden_slots`.
            word_sums = WordSums.empty(
                self.table.weights, self.n_features, self.n_vector_rows, cache, cache.slots
            )
        word_sums = word_sums.with_all_words()
        self._word_sums = word_sums
        return word_sums

    def begin_update(
        self, batch: FeatureBatch, dropout: float = 0.0
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Score docs in training.

        batch (FeatureBatch): The features of the docs.
        dropout (float): The dropout rate for features. Static vectors are dropped at the rate
            `VECTOR_DROPOUT` as well.
        RETURNS (tuple[Potentials, Callable[[Potentials], None]]): The scores, and a backprop
            callback that receives their gradient and stores it until `finish_update`.
        """
        # Scale the scores to keep their mean, as is usual for dropout. This doesn't apply to
        # `VECTOR_DROPOUT`, because words without vectors have lower scores in new docs, too.
        scale = numpy.float32(1)
        if dropout:
            batch = apply_dropout(batch, dropout)
            scale = numpy.float32(1 / (1 - dropout))
        return self._begin(apply_vector_dropout(batch, VECTOR_DROPOUT), scale)

    def begin_rehearsal(
        self, batch: FeatureBatch
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Score docs in rehearsal, with the same scores as in prediction: without dropout. See
        `begin_update`."""
        return self._begin(batch, scale=numpy.float32(1))

    def _begin(
        self, batch: FeatureBatch, scale: numpy.float32
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Score docs whose features to drop have been removed, and multiply the scores of tokens by
        `scale`. The backprop callback stores the gradient: see `begin_update`."""
        vectors = vector_inputs_of(batch)
        scores = self._score(batch, vectors)
        scores = scores._replace(emissions=scores.emissions * scale)

        def add_gradient(gradient: Potentials) -> None:
            """Compute the gradient of the weights from the gradient of the scores and store it."""
            d_emissions = (gradient.emissions * scale).astype("float32")
            # Same order as `PendingGradient.rows`: tokens, then the chain. Shape: (N + K + 2, K)
            d_scores = numpy.concatenate(
                [d_emissions, gradient.transitions, gradient.start[None], gradient.end[None]]
            )
            d_vector_weights = None
            if vectors is not None:
                d_vector_weights = vectors.gradient(d_emissions)
            pending = PendingGradient(
                rows=self._append_chain_rows(batch.rows),
                d_scores=d_scores.astype("float32"),
                d_vector_weights=d_vector_weights,
            )
            self._pending.append(pending)

        return scores, add_gradient

    def _append_chain_rows(self, rows: Ints2d) -> Ints2d:
        """Append the K + 2 rows of the chain to the tokens' rows, as if each were the only feature
        of an additional token. Shapes: (N, S) to (N + K + 2, S)"""
        n_tokens, n_slots = rows.shape
        # The chain rows need at least one slot, even if tokens have no features (S = 0).
        shape = (n_tokens + self.n_tags + 2, max(n_slots, 1))
        all_rows = numpy.full(shape, -1, dtype="int32")
        all_rows[:n_tokens, :n_slots] = rows
        all_rows[n_tokens:, 0] = self._chain_rows
        return all_rows

    def score_held_out(self, batch: FeatureBatch) -> Potentials:
        """Score each training doc with weights that weren't trained on it: see `set_folds`."""
        assert batch.text_ids is not None  # set in training
        fold_of_doc = [self.fold_of_text.get(text_id, -1) for text_id in batch.text_ids.tolist()]
        fold_of_token = numpy.repeat(fold_of_doc, batch.lengths)
        weights_of_fold = dict(enumerate(self.emissions_of_folds))
        # Docs without a fold (-1) weren't used in training. Score them with the weights that were
        # trained on all folds.
        weights_of_fold[-1] = self.rows

        emissions = numpy.empty((len(batch.rows), self.n_tags), dtype="float32")
        for fold, weights in weights_of_fold.items():
            is_in_fold = fold_of_token == fold
            batch_of_fold = batch.select_tokens(is_in_fold)
            emissions[is_in_fold] = self._score_tokens(
                batch_of_fold.rows, vector_inputs_of(batch_of_fold), weights
            )
        # Use the transitions, start and end that were trained on all docs. Get them by scoring an
        # empty batch.
        without_tokens = batch.select_tokens(numpy.zeros(len(batch.rows), dtype=bool))
        return self.potentials(without_tokens)._replace(emissions=emissions)

    def gradient(self) -> tuple[Ints1d, Floats2d]:
        """Return the pending gradient for the next update, excluding rows that no token used.
        `begin_update` and its backprop callback have to be called first.

        RETURNS (tuple[Ints1d, Floats2d]): The indices of A weight rows and their gradient. If
            static vectors are used as inputs, all of their rows are included. Shapes: (A,), (A, K)
        """
        rows, gradient = self._sparse_gradient()
        d_vector_weights = self._vector_gradient()
        if d_vector_weights is None:
            return rows, gradient
        all_rows = numpy.concatenate([rows, self._vector_rows])
        return all_rows, numpy.concatenate([gradient, d_vector_weights])

    def _sparse_gradient(self) -> tuple[Ints1d, Floats2d]:
        """Compute the part of `gradient` for features and the chain, without static vectors: the
        indices of A' rows and their gradient. Shapes: (A',), (A', K)"""
        return sparse.collect_rows(
            numpy.concatenate([pending.rows for pending in self._pending]),
            numpy.concatenate([pending.d_scores for pending in self._pending]),
            self._place_of,  # working memory
        )

    def _vector_gradient(self) -> Floats2d | None:
        """Compute the part of `gradient` for static vectors, or None if they aren't used as inputs.
        Shape: (M, K)"""
        gradients: list[Floats2d] = []
        for pending in self._pending:
            if pending.d_vector_weights is not None:
                gradients.append(pending.d_vector_weights)
        if not gradients:
            return None
        return numpy.sum(gradients, axis=0)

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update the weights with the pending gradients. The update always uses AdaGrad. The
        optimizer only determines whether averages are used. (`nlp.rehearse` passes in a function
        without averages instead of an optimizer.)"""
        if not self._pending:
            return
        rows, gradient = self._sparse_gradient()
        d_vector_weights = self._vector_gradient()
        self._pending = []
        self._word_sums = None
        if not self.step:
            # Interleave the table before the first update. Only training uses all parts of a row,
            # so this saves memory if the model is only used for predictions.
            self.table = self.table.interleaved()
        self.step += 1
        sparse.adagrad(self.table, rows, gradient, self.step, self.settings)
        if d_vector_weights is not None:
            # A lower learning rate for these rows performed better on development data.
            vector_rate = VECTOR_RATE * self.settings.learn_rate
            settings = self.settings._replace(learn_rate=vector_rate)
            sparse.adagrad(self.table, self._vector_rows, d_vector_weights, self.step, settings)

        averages = getattr(optimizer, "averages", None)
        if averages is not None:
            # This entry only indicates that there is an average, which is computed on demand.
            averages[self.id, AVERAGE] = numpy.ones(1, dtype="float32")
            period_end = max(FIRST_PERIOD_END, PERIOD_GROWTH * self._period_begin)
            # If `average_power` is 0, the average is a mean over all steps, so the first period
            # never ends.
            if self.average_power and self.step >= period_end:
                self._end_period()

    @contextmanager
    def use_params(self, params: dict[tuple[int, str], Any]) -> Iterator[None]:
        """Use the average of the weights for predictions within this context, if the optimizer uses
        averages. The average is pruned and quantized, so that the evaluated weights are identical
        to the weights of the saved model: see `prune_and_quantize`.

        params (dict[tuple[int, str], Any]): The optimizer's averages, keyed by shim id and
            parameter name. The entry for these weights only indicates that there is an average,
            which is stored here.
        """
        if not self._has_average(params):
            yield
            return
        table_in_training = self.table
        self.table = table_in_training._replace(
            weights=self.prune_and_quantize(self._compute_average())
        )
        self._uses_average = True
        try:
            yield
        finally:
            self.table = table_in_training
            self._uses_average = False
            self._word_sums = None  # computed from the average

    def averaged(self, optimizer: Optimizer) -> Floats2d:
        """Return the weights to use after training: the average if the optimizer uses averages,
        otherwise the weights after the last step. Shape: (V + M + K + 2, K)"""
        if self._has_average(optimizer.averages or {}):
            return self._compute_average()
        return self.rows.copy()

    def _has_average(self, params: dict[tuple[int, str], Any]) -> bool:
        """Check whether there is an average of these weights that `use_params` isn't already using.
        `params` are the optimizer's averages."""
        return (self.id, AVERAGE) in params and self.step > 0 and not self._uses_average

    def prune_and_quantize(self, rows: Floats2d) -> Floats2d:
        """Set unimportant weights to 0 and round the others, as in a saved model. If `keep_all` is
        True, the weights aren't changed. Shape: (V + M + K + 2, K)"""
        if self.keep_all:
            return rows
        return prune_and_quantize(rows, self.n_features)

    def select(self, rows: Ints1d) -> "SparseWeights":
        """Create `SparseWeights` with only some of the features. The rows for static vectors and
        the chain are kept. `rows` contains the indices of the V' features to keep. Shape: (V',)"""
        all_rows = self.rows
        other_rows = all_rows[self.n_features :]
        return self.with_rows(numpy.concatenate([all_rows[rows], other_rows]))

    def _compute_average(self) -> Floats2d:
        """Compute the average of the weights at the current step, using the formula in the class
        docstring. Shape: (V + M + K + 2, K)"""
        self._apply_regularisation()
        if self.step == self._period_begin:
            return self._average.copy()
        share = 1 - (self._period_begin / self.step) ** (self.average_power + 1)  # s
        return sparse.average(self.table, self._period_begin, self.step, share, self._average)

    def _end_period(self) -> None:
        """End an averaging period at the current step and start the next one."""
        self._average = self._compute_average()
        self.table.totals[:] = 0
        self.table.last[:] = self.step
        self._period_begin = self.step

    def _apply_regularisation(self, rows: Ints2d | None = None) -> None:
        """Apply pending regularisation to the rows with the given indices (-1 is ignored), or to
        all rows. Updates only regularise the rows that they use. For other rows, regularisation is
        postponed until they're used again."""
        # There is no pending regularisation in an average or before the first step.
        if not self.settings.is_regularised or self._uses_average or not self.step:
            return
        if rows is None:
            rows = numpy.flatnonzero(self.table.last < self.step).astype("int32")
        if rows.size:
            # Threads must not apply it to the same rows at once.
            with _REGULARISATION_LOCK:
                sparse.lazy_regularise(self.table, rows.reshape(-1), self.step, self.settings)

    def _set_table(self, weights: Floats2d) -> None:
        """Set the weights and reset the training state. Shape: (V + M + K + 2, K)"""
        # `numpy.zeros` only uses memory once the array is written to, which never happens in
        # predictions. `zeros_like` would use it immediately.
        self.table = Table(
            weights=weights,
            squares=numpy.zeros(weights.shape, dtype="float32"),
            totals=numpy.zeros(weights.shape, dtype="float32"),
            last=numpy.zeros(len(weights), dtype="int32"),
        )
        self.step = 0
        self._period_begin = 0  # b in the class docstring
        self._average = numpy.zeros(weights.shape, dtype="float32")  # average_b
        self._place_of = numpy.full(len(weights), -1, dtype="int32")  # see `sparse.collect_rows`
        self._word_sums = None
        self._pending = []
        self.set_folds(emissions_of_folds=[], fold_of_text={})

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling, without the word sums, which are recomputed when
        needed."""
        return {**self.__dict__, "_word_sums": None}

    def copy(self) -> "SparseWeights":
        """Create a copy with a new id, because optimizers store averages by id."""
        copied = super().copy()  # has the same id
        copied.id = SparseWeights().id  # every new shim gets a new id
        return copied

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing, because the weights stay on the CPU."""

    def to_bytes(self) -> bytes:
        """Serialize the weights to a bytestring, with at most 16 bits per weight and without rows
        that are all 0. The state of AdaGrad and averaging isn't saved, so training a loaded model
        starts with a new state."""
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

    def from_bytes(self, data: bytes, expected: TableSize | None = None) -> "SparseWeights":
        """Load the weights from a bytestring. If the saved model had no weights, any existing
        weights are removed.

        data (bytes): The bytestring returned by `to_bytes`.
        expected (TableSize | None): The size that the other parts of the model require. None: any
            size.
        RETURNS (SparseWeights): The modified object.
        RAISES (ValueError): If the weights are damaged or have a different size.
        """
        try:
            saved = srsly.msgpack_loads(data)
            if saved["n_features"] is not None:
                self._load(saved, expected)
            else:
                self.n_vector_rows = 0
                self._set_table(numpy.zeros((0, 0), dtype="float32"))
        except Exception as error:
            raise ValueError(
                f"weights of a linear CRF: expected saved weights, got damaged data: {error}"
            ) from error
        return self

    def _load(self, saved: dict[str, Any], expected: TableSize | None) -> None:
        """Load the saved parts and check that they're consistent and have the expected size."""
        n_features = saved["n_features"]
        n_tags = saved["n_tags"]
        n_vector_rows = saved["n_vector_rows"]
        n_rows = n_features + n_vector_rows + n_tags + 2
        # A negative `n_tags` raises an error in `allocate`, but if only one of the others is
        # negative, their sum may still be valid.
        are_counts = n_features >= 0 and n_vector_rows >= 0
        # Row indices are stored as int32.
        if not (are_counts and n_rows < 2**31):
            raise ValueError(
                f"expected weights of features and vectors, got {n_features} features and "
                f"{n_vector_rows} rows of vectors"
            )

        # Check the size before allocating memory, because weights of 0 are compressed to a
        # thousandth of their size.
        size = TableSize(n_features, n_vector_rows, n_tags)
        for noun, n, n_expected in zip(NOUNS, size, expected or size):
            if n_expected is not None and n != n_expected:
                raise ValueError(f"expected weights for {n_expected} {noun}, got {n}")

        self.allocate(n_features, n_tags, n_vector_rows)
        weights = self.table.weights
        unpack_rows(saved["features"], weights[:n_features])
        unpack_rows(saved["vectors"], weights[n_features : self._first_chain_row])
        unpack_rows(saved["chain"], weights[self._first_chain_row :])


def vector_inputs_of(batch: FeatureBatch) -> VectorInputs | None:
    """Create the static vector inputs of a batch. Returns None if vectors aren't used as inputs or
    are included in the word sums, which is the case if the batch has a word cache."""
    if batch.vectors is None or batch.vector_ids is None:
        return None
    return VectorInputs.from_ids(batch.vectors, batch.vector_ids)


def apply_dropout(batch: FeatureBatch, dropout: float) -> FeatureBatch:
    """Apply dropout to the features of tokens and the vectors in their windows."""
    batch = batch._replace(rows=drop_ids(batch.rows, dropout))
    return apply_vector_dropout(batch, dropout)


def apply_vector_dropout(batch: FeatureBatch, dropout: float) -> FeatureBatch:
    """Apply dropout to the vectors in the tokens' windows."""
    if batch.vector_ids is None:  # vectors aren't used
        return batch
    return batch._replace(vector_ids=drop_ids(batch.vector_ids, dropout))


def drop_ids(ids: Ints2d, dropout: float) -> Ints2d:
    """Replace a random fraction of ids with -1. Shape: (N, S)"""
    is_lost = numpy.random.uniform(size=ids.shape) < dropout
    return numpy.where(is_lost, numpy.int32(-1), ids)
