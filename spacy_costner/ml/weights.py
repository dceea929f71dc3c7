"""The weights of a linear CRF as a Thinc shim: trained, averaged and saved with a model.

The weights are one table with a column for each of the K tags. Its rows are, from top to bottom:

- V rows, one for each feature.
- M rows for the static word vectors: one for each offset from a token and each number of a vector.
  M is 0 if vectors are no inputs.
- K + 2 rows of the chain: the transitions from each tag, the first tag (start) and the last (end).

In shapes, N is the number of tokens, and S the number of features that a token can have.
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
"""The name under which an optimizer's `averages` say that the weights have an average."""
AVERAGE_POWER = 3.0
"""The default of p: in averages the weights after step t count t^p. Chosen on development data: see
docs/linear.md."""

VECTOR_RATE = 0.5
"""The learning rate of the weights of static vectors, as a share of the learning rate of other
weights. Chosen on development data, as is `VECTOR_DROPOUT`: see docs/linear.md."""

VECTOR_DROPOUT = 0.3
"""The share of static vectors that are left out of an update. Nearly all words of the training docs
may have a vector, while many words of new docs have none. So the features of a word have to predict
well without its vector."""

FIRST_PERIOD_END = 8
"""The step at which the first period of an average ends: see `SparseWeights`."""

PERIOD_GROWTH = 1.5
"""A later period ends at the step that is this many times the step at which it began."""

_REGULARISATION_LOCK = make_lock()
"""Held while a prediction applies the pending regularisation, so that two threads don't apply it to
the same rows at once."""


class TableSize(NamedTuple):
    """The size of a table of weights.

    n_features (int): The number of features, V.
    n_vector_rows (int): The number of rows of static vectors, M.
    n_tags (int | None): The number of tags, K. None: the number is unknown.
    """

    n_features: int
    n_vector_rows: int
    n_tags: int | None


NOUNS = ("features", "rows of vectors", "tags")
"""The names of the numbers of `TableSize` in messages."""


class PendingGradient(NamedTuple):
    """The gradient of a batch, which is kept until the weights are updated.

    rows (Ints2d): The rows of weights that each token uses, -1 for none. Below the N tokens come
        K + 2 more entries, each with one row of the chain. Shape: (N + K + 2, S)
    d_scores (Floats2d): The gradient with respect to the sum of the weights of each entry of
        `rows`: for a token, its scores. Shape: (N + K + 2, K)
    d_vector_weights (Floats2d | None): The gradient with respect to the weights of static vectors.
        None if they are no inputs. Shape: (M, K)
    """

    rows: Ints2d
    d_scores: Floats2d
    d_vector_weights: Floats2d | None


class SparseWeights(Shim):
    """The weights of a linear CRF: the table that the head of this file describes, and the state of
    its training.

    All weights start at 0 and are trained by AdaGrad, with any optimizer in the config. If
    the optimizer of the config keeps averages, an average of these weights is kept, too. In it the
    weights after step t count t^p, so that early ones count little. With p = 0 it is the mean over
    all steps (Collins, 2002).

    To keep the average exactly would take a pass over the whole table at each step. So the steps
    are divided into periods: the first ends at step `FIRST_PERIOD_END`, each later one takes half
    as many steps as all periods before it. In a period all steps count the same, and at its end the
    average is updated. With b the step at which the last period ended, n the current step and w_t
    the weights after step t,

        average_n = (1 - s) average_b + s (w_{b+1} + ... + w_n) / (n - b),  s = 1 - (b / n)^(p + 1)

    Shamir & Zhang (2013), section 4: polynomial-decay averaging.

    settings (AdaGrad): Learning rate and regularisation.
    average_power (float): p, how much later steps count more in the average.
    keep_all (bool): Whether all weights are kept after training. Otherwise small ones are set to 0
        and the others rounded: see `prune_and_quantize`.
    table (Table): The weights, and the state of AdaGrad and of the average.
    n_vector_rows (int): The number of rows of static vectors, M.
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
        super().__init__(None)  # A shim may wrap a model of another library; this one doesn't.
        self.settings = settings
        self.average_power = average_power
        self.keep_all = keep_all
        self.n_vector_rows = 0
        self._uses_average = False  # whether `table` has the average now: see `use_params`
        # There are no weights until `allocate` or `from_bytes` makes some.
        self._set_table(numpy.zeros((0, 0), dtype="float32"))

    @property
    def is_allocated(self) -> bool:
        """Whether there are weights."""
        return len(self.table.weights) > 0

    @property
    def n_features(self) -> int:
        """The number of features, V in shapes."""
        # At least 0: as long as there are no weights, there are no rows of the chain.
        return max(len(self.table.weights) - self.n_vector_rows - self.n_tags - 2, 0)

    @property
    def n_tags(self) -> int:
        """The number of tags, K in shapes."""
        return self.table.weights.shape[1]

    @property
    def rows(self) -> Floats2d:
        """The table of all weights, not a copy. Pending regularisation is applied to it first. You
        can write to it before the next prediction; after that, read the property again.
        Shape: (V + M + K + 2, K)"""
        self._apply_regularisation()
        self._word_sums = None  # they would be wrong if the caller writes to the weights
        return self.table.weights

    @property
    def emissions(self) -> Floats2d:
        """The part of `rows` that has the weights of features. Shape: (V, K)"""
        return self.rows[: self.n_features]

    @property
    def vector_weights(self) -> Floats2d:
        """The part of `rows` that has the weights of static vectors. Shape: (M, K)"""
        return self.rows[self.n_features : self._first_chain_row]

    @property
    def transitions(self) -> Floats2d:
        """The weights of the transitions, [from, to]. You can write to them. Shape: (K, K)"""
        return self._chain_weights[:-2]

    @property
    def start(self) -> Floats1d:
        """The weights of the tags at the first token. You can write to them. Shape: (K,)"""
        return self._chain_weights[-2]

    @property
    def end(self) -> Floats1d:
        """The weights of the tags at the last token. You can write to them. Shape: (K,)"""
        return self._chain_weights[-1]

    @property
    def _chain_weights(self) -> Floats2d:
        """The weights of the chain, which are the lowest rows of the table. Pending regularisation
        is applied to them first. Shape: (K + 2, K)"""
        self._apply_regularisation(self._chain_rows)
        return self.table.weights[self._first_chain_row :]

    @property
    def _first_chain_row(self) -> int:
        """The index of the first row of the chain: V + M."""
        return self.n_features + self.n_vector_rows

    @property
    def _chain_rows(self) -> Ints1d:
        """The indices of the rows of the chain. Shape: (K + 2,)"""
        return numpy.arange(self._first_chain_row, len(self.table.weights), dtype="int32")

    @property
    def _vector_rows(self) -> Ints1d:
        """The indices of the rows of static vectors. Shape: (M,)"""
        return numpy.arange(self.n_features, self._first_chain_row, dtype="int32")

    def allocate(self, n_features: int, n_tags: int, n_vector_rows: int = 0) -> None:
        """Create weights of 0.

        n_features (int): The number of features, V.
        n_tags (int): The number of tags, K.
        n_vector_rows (int): The number of rows for static vectors, M.
        """
        n_rows = n_features + n_vector_rows + n_tags + 2
        self.n_vector_rows = n_vector_rows
        self._set_table(numpy.zeros((n_rows, n_tags), dtype="float32"))

    def restart(self, rows: Floats2d) -> None:
        """Restart training from a copy of these weights. Shape: (V + M + K + 2, K)"""
        self._set_table(numpy.array(rows, dtype="float32"))

    def with_rows(self, rows: Floats2d) -> "SparseWeights":
        """Make `SparseWeights` with the settings of these and a copy of other rows of weights, of
        any number of features. Training one of the two doesn't change the other.
        Shape: (V + M + K + 2, K)"""
        weights = SparseWeights(self.settings, self.average_power, self.keep_all)
        weights.n_vector_rows = self.n_vector_rows
        weights.restart(rows)  # it copies them
        return weights

    def set_folds(
        self, emissions_of_folds: Sequence[Floats2d], fold_of_text: dict[int, int]
    ) -> None:
        """Set the weights that score training docs while another part of the model is trained. The
        training docs are divided into folds. Each fold has weights that were trained on the docs
        of all other folds, so that a doc is scored by weights that have not seen it.

        As long as there are folds, updates don't change any weights. `restart`, `allocate` and
        `resize` remove the folds.

        emissions_of_folds (Sequence[Floats2d]): For each fold the weights of features and vectors.
            Shape of each: (V + M, K)
        fold_of_text (dict[int, int]): The fold of each doc, keyed by the hash of its text.
        """
        self.emissions_of_folds = list(emissions_of_folds)
        self.fold_of_text = fold_of_text

    def resize(self, n_tags: int) -> None:
        """Add tags with weights of 0 after the existing tags, which keep their weights. `n_tags` is
        the new number of tags. Folds, and gradients that are kept for the next update, are
        dropped."""
        # This brings all rows to the current step, and sets `totals` to 0, as `allocate` does.
        self._end_period()
        n_old_tags = self.n_tags
        n_old_rows = self._first_chain_row + n_old_tags  # without the start and the end
        step = self.step
        # The weights, the state of AdaGrad, and the average
        old_arrays = self._arrays_to_resize()
        self.allocate(self.n_features, n_tags, self.n_vector_rows)

        # The transitions from the new tags are rows between the transitions from the old tags and
        # the last two rows, which are the start and the end.
        for old_array, new_array in zip(old_arrays, self._arrays_to_resize()):
            new_array[:n_old_rows, :n_old_tags] = old_array[:n_old_rows]
            new_array[-2:, :n_old_tags] = old_array[-2:]

        self.step = step
        self._period_begin = step
        self.table.last[:] = step

    def _arrays_to_resize(self) -> tuple[Floats2d, ...]:
        """The arrays whose numbers `resize` keeps. They have a column for each tag.
        Shapes: (V + M + K + 2, K)"""
        return (self.table.weights, self.table.squares, self._average)

    def potentials(self, batch: FeatureBatch) -> Potentials:
        """Score docs, from their features."""
        return self._score(batch, vector_inputs_of(batch))

    def _score(self, batch: FeatureBatch, vectors: VectorInputs | None) -> Potentials:
        """Score docs, from their features and from these static vectors. `vectors` is None if the
        model has no vectors, or if the batch has a word cache: its sums of words include them."""
        # Regularisation is lazy: rows catch up with it before they are used.
        self._apply_regularisation(batch.rows)
        if vectors is not None:
            self._apply_regularisation(self._vector_rows)
        emissions = self._score_tokens(batch.rows, vectors, self.table.weights)
        if batch.word_cache is not None and batch.word_ids is not None:
            # `batch.rows` is without the features that depend on a word alone: the cache has them.
            word_sums = self._update_word_sums(batch.word_cache)
            emissions += word_sums.sum_windows(batch.word_ids, batch.lengths)
        # A copy, as updates change the table in place, and the scores must stay as they are.
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
        """Compute the emissions of tokens from the rows of weights that each token uses, -1 for
        none, and from the static vectors in the windows of the tokens, if any. `weights` has the
        weights of features and vectors. Rows below them are not used.
        Shapes: (N, S), (V + M or more, K) to (N, K)"""
        emissions = sparse.sum_rows(rows, weights[: self.n_features])
        if vectors is not None:
            emissions += vectors.score(weights[self.n_features : self._first_chain_row])
        return emissions

    def score_vectors(self, batch: FeatureBatch) -> Floats3d:
        """Compute the scores that the static vector at each of O offsets adds to the scores of each
        token. O is 0 if `vector_inputs_of` finds no vectors. Shape: (N, O, K)"""
        inputs = vector_inputs_of(batch)
        if inputs is None:
            return numpy.zeros((len(batch.rows), 0, self.n_tags), dtype="float32")
        # `products` has a row for each distinct vector and offset, and `inputs.rows` the row of
        # each token and offset, (N, O). Without a vector it is -1: a last row of zeros is added.
        products = inputs.products(self.vector_weights)
        without_vector = numpy.zeros((1, self.n_tags), dtype="float32")
        return numpy.concatenate([products, without_vector])[inputs.rows]

    def _update_word_sums(self, cache: WordCache) -> WordSums:
        """Return the weight sums for all words in a cache. They are kept until `_word_sums` is set
        to None, which all that changes weights in place does. If several threads add words at once,
        the sums of the last thread are kept."""
        word_sums = self._word_sums
        if word_sums is None or not word_sums.matches(self.table.weights, cache):
            # The words together have all rows, and none of them may still wait for its
            # regularisation.
            self._apply_regularisation()
            # `cache.slots` are for a linear model. A hidden layer has other slots.
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
        dropout (float): The share of the features of tokens that is left out. Of their static
            vectors, `VECTOR_DROPOUT` is left out.
        RETURNS (tuple[Potentials, Callable[[Potentials], None]]): The scores; and the backprop,
            which takes the gradient with respect to them and keeps it until `finish_update`.
        """
        # As in any dropout, the rest counts more, so that the mean of scores stays the same. Not so
        # after `VECTOR_DROPOUT`: a word without a vector has lower scores in new docs, too.
        scale = numpy.float32(1)
        if dropout:
            batch = apply_dropout(batch, dropout)
            scale = numpy.float32(1 / (1 - dropout))
        batch = apply_vector_dropout(batch, VECTOR_DROPOUT)
        vectors = vector_inputs_of(batch)
        scores = self._score(batch, vectors)
        scores = scores._replace(emissions=scores.emissions * scale)

        def add_gradient(gradient: Potentials) -> None:
            """Keep the gradient of the weights, from the gradient of the scores."""
            d_emissions = (gradient.emissions * scale).astype("float32")
            # In the order of `PendingGradient.rows`: tokens, then the chain. Shape: (N + K + 2, K)
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
        """Append the K + 2 rows of the chain to the rows that tokens use, as if each were the only
        feature of one more token. Shapes: (N, S) to (N + K + 2, S)"""
        n_tokens, n_slots = rows.shape
        # Even if tokens have no features, S = 0, a row of the chain needs a slot.
        shape = (n_tokens + self.n_tags + 2, max(n_slots, 1))
        all_rows = numpy.full(shape, -1, dtype="int32")
        all_rows[:n_tokens, :n_slots] = rows
        all_rows[n_tokens:, 0] = self._chain_rows
        return all_rows

    def score_held_out(self, batch: FeatureBatch) -> Potentials:
        """Score each training doc by weights that were not trained on it: see `set_folds`."""
        assert batch.text_ids is not None  # as in training
        fold_of_doc = [self.fold_of_text.get(text_id, -1) for text_id in batch.text_ids.tolist()]
        fold_of_token = numpy.repeat(fold_of_doc, batch.lengths)
        weights_of_fold = dict(enumerate(self.emissions_of_folds))
        # A doc in no fold, -1, was in no training: the weights that saw all folds score it.
        weights_of_fold[-1] = self.rows

        emissions = numpy.empty((len(batch.rows), self.n_tags), dtype="float32")
        for fold, weights in weights_of_fold.items():
            is_in_fold = fold_of_token == fold
            batch_of_fold = batch.select_tokens(is_in_fold)
            emissions[is_in_fold] = self._score_tokens(
                batch_of_fold.rows, vector_inputs_of(batch_of_fold), weights
            )
        # Transitions, start and end are those that were trained on all docs. The potentials of no
        # tokens have them.
        without_tokens = batch.select_tokens(numpy.zeros(len(batch.rows), dtype=bool))
        return self.potentials(without_tokens)._replace(emissions=emissions)

    def gradient(self) -> tuple[Ints1d, Floats2d]:
        """Return the gradient that is kept for the next update, without rows that no token used.
        There has to be one: `begin_update` and its backprop come before.

        RETURNS (tuple[Ints1d, Floats2d]): The numbers of A rows of weights, and the gradient of
            these rows. If static vectors are inputs, all their rows are among them.
            Shapes: (A,), (A, K)
        """
        rows, gradient = self._sparse_gradient()
        d_vector_weights = self._vector_gradient()
        if d_vector_weights is None:
            return rows, gradient
        all_rows = numpy.concatenate([rows, self._vector_rows])
        return all_rows, numpy.concatenate([gradient, d_vector_weights])

    def _sparse_gradient(self) -> tuple[Ints1d, Floats2d]:
        """The part of `gradient` for features and the chain, not for static vectors: the numbers of
        A' rows, and their gradient. Shapes: (A',), (A', K)"""
        return sparse.collect_rows(
            numpy.concatenate([pending.rows for pending in self._pending]),
            numpy.concatenate([pending.d_scores for pending in self._pending]),
            self._place_of,  # memory to work in
        )

    def _vector_gradient(self) -> Floats2d | None:
        """The part of `gradient` for static vectors. None if they are no inputs. Shape: (M, K)"""
        gradients: list[Floats2d] = []
        for pending in self._pending:
            if pending.d_vector_weights is not None:
                gradients.append(pending.d_vector_weights)
        if not gradients:
            return None
        return numpy.sum(gradients, axis=0)

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update the weights with the gradients that are kept. The optimizer only decides whether
        averages are kept; AdaGrad does the update. (`nlp.rehearse` passes a function instead of an
        optimizer, which has no averages.)"""
        if not self._pending:
            return
        rows, gradient = self._sparse_gradient()
        d_vector_weights = self._vector_gradient()
        self._pending = []
        self._word_sums = None
        if not self.step:
            # Only training needs the other parts of a row in the same memory as its weights. For a
            # prediction they would take memory.
            self.table = self.table.interleaved()
        self.step += 1
        sparse.adagrad(self.table, rows, gradient, self.step, self.settings)
        if d_vector_weights is not None:
            # A lower learning rate for these rows was better on development data.
            vector_rate = VECTOR_RATE * self.settings.learn_rate
            settings = self.settings._replace(learn_rate=vector_rate)
            sparse.adagrad(self.table, self._vector_rows, d_vector_weights, self.step, settings)

        averages = getattr(optimizer, "averages", None)
        if averages is not None:
            # This entry only shows that there is an average. It is computed where it is used.
            averages[self.id, AVERAGE] = numpy.ones(1, dtype="float32")
            period_end = max(FIRST_PERIOD_END, PERIOD_GROWTH * self._period_begin)
            # With `average_power` 0, a mean over all steps, the first period never ends.
            if self.average_power and self.step >= period_end:
                self._end_period()

    @contextmanager
    def use_params(self, params: dict[tuple[int, str], Any]) -> Iterator[None]:
        """Predict with the average of the weights in this context, if an optimizer keeps averages.
        The average is pruned and quantized, so that the evaluated weights are the weights of the
        saved model: see `prune_and_quantize`.

        params (dict[tuple[int, str], Any]): The averages that the optimizer keeps, keyed by the id
            of the shim and the name of the parameter. For these weights they only show that there
            is an average, which is kept here.
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
            self._word_sums = None  # they are sums of the average

    def averaged(self, optimizer: Optimizer) -> Floats2d:
        """Return the weights to use after training: their average if the optimizer keeps averages,
        the weights after the last step otherwise. Shape: (V + M + K + 2, K)"""
        if self._has_average(optimizer.averages or {}):
            return self._compute_average()
        return self.rows.copy()

    def _has_average(self, params: dict[tuple[int, str], Any]) -> bool:
        """Whether there is an average of these weights that `use_params` isn't using already.
        `params` are the averages that the optimizer keeps."""
        return (self.id, AVERAGE) in params and self.step > 0 and not self._uses_average

    def prune_and_quantize(self, rows: Floats2d) -> Floats2d:
        """Set the weights that hardly matter to 0 and round the others, as in a saved model. With
        `keep_all`, weights stay as they are. Shape: (V + M + K + 2, K)"""
        if self.keep_all:
            return rows
        return prune_and_quantize(rows, self.n_features)

    def select(self, rows: Ints1d) -> "SparseWeights":
        """Make `SparseWeights` of some features only. The rows of static vectors and of the chain
        stay. `rows` has the indices of the V' features to keep. Shape: (V',)"""
        all_rows = self.rows
        other_rows = all_rows[self.n_features :]
        return self.with_rows(numpy.concatenate([all_rows[rows], other_rows]))

    def _compute_average(self) -> Floats2d:
        """Compute the average of the weights at the current step, by the formula in the docstring
        of the class. Shape: (V + M + K + 2, K)"""
        self._apply_regularisation()
        if self.step == self._period_begin:
            return self._average.copy()
        n_steps = self.step - self._period_begin  # n - b
        share = 1 - (self._period_begin / self.step) ** (self.average_power + 1)  # s
        # w_{b+1} + ... + w_n: `totals` sums each row up to its last change. From then on the row
        # was the same in each step.
        n_unchanged_steps = (self.step - self.table.last).astype("float32")[:, None]
        average = n_unchanged_steps * self.table.weights
        average += self.table.totals

        average *= numpy.float32(share / n_steps)
        if self._period_begin:  # in the first period s is 1
            average += numpy.float32(1 - share) * self._average
        return average

    def _end_period(self) -> None:
        """End a period of the average at the current step, and begin the next one."""
        self._average = self._compute_average()
        self.table.totals[:] = 0
        self.table.last[:] = self.step
        self._period_begin = self.step

    def _apply_regularisation(self, rows: Ints2d | None = None) -> None:
        """Apply the pending regularisation to the rows with these indices (-1 stands for none), or
        to all rows. An update regularises only the rows that it uses; the others wait until they
        are next used."""
        # Nothing is pending in an average, or before the first step.
        if not self.settings.is_regularised or self._uses_average or not self.step:
            return
        if rows is None:
            rows = numpy.flatnonzero(self.table.last < self.step).astype("int32")
        if rows.size:
            # Threads that predict must not apply it to the same rows at once.
            with _REGULARISATION_LOCK:
                sparse.lazy_regularise(self.table, rows.reshape(-1), self.step, self.settings)

    def _set_table(self, weights: Floats2d) -> None:
        """Begin training with these weights. Shape: (V + M + K + 2, K)"""
        # `numpy.zeros` takes memory only where it is written, which prediction never does.
        # `zeros_like` would take it at once.
        self.table = Table(
            weights=weights,
            squares=numpy.zeros(weights.shape, dtype="float32"),
            totals=numpy.zeros(weights.shape, dtype="float32"),
            last=numpy.zeros(len(weights), dtype="int32"),
        )
        self.step = 0
        self._period_begin = 0  # b in the formula of the class
        self._average = numpy.zeros(weights.shape, dtype="float32")  # average_b
        self._place_of = numpy.full(len(weights), -1, dtype="int32")  # see `sparse.collect_rows`
        self._word_sums = None
        self._pending = []
        self.set_folds(emissions_of_folds=[], fold_of_text={})

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle: all but the sums of words, which are made again when
        needed."""
        return {**self.__dict__, "_word_sums": None}

    def copy(self) -> "SparseWeights":
        """Make a copy with a new id, as optimizers keep averages by id."""
        copied = super().copy()  # this one has the same id
        copied.id = SparseWeights().id  # each new shim gets the next id
        return copied

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing: the weights stay on the CPU."""

    def to_bytes(self) -> bytes:
        """Save the weights, in 16 bits at most, without the rows in which all weights are 0. The
        state of AdaGrad and of averaging isn't saved: training a loaded model resets them."""
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
        """Load the weights. If the saved model had no weights, this one has none afterwards.

        data (bytes): The bytes that `to_bytes` returned.
        expected (TableSize | None): The size that other parts of the model have. None: any size.
        RETURNS (SparseWeights): These weights.
        RAISES (ValueError): If they are damaged, or of another size.
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
        """Load the saved parts, and check that they are consistent, and of the expected size."""
        n_features = saved["n_features"]
        n_tags = saved["n_tags"]
        n_vector_rows = saved["n_vector_rows"]
        n_rows = n_features + n_vector_rows + n_tags + 2
        # A negative `n_tags` is an error in `allocate`. The sum of the others may hide their sign.
        are_counts = n_features >= 0 and n_vector_rows >= 0
        # Numbers of rows are integers of 32 bits.
        if not (are_counts and n_rows < 2**31):
            raise ValueError(
                f"expected weights of features and vectors, got {n_features} features and "
                f"{n_vector_rows} rows of vectors"
            )

        # Before memory is taken for them: compressed weights of 0 are a thousandth of their size.
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
    """Make the inputs of static vectors of a batch. None if vectors are no inputs, or if they are a
    part of the sums of words, as in a batch with a word cache."""
    if batch.vectors is None or batch.vector_ids is None:
        return None
    return VectorInputs.from_ids(batch.vectors, batch.vector_ids)


def apply_dropout(batch: FeatureBatch, dropout: float) -> FeatureBatch:
    """Apply dropout to the features of tokens, and to the vectors in their windows."""
    batch = batch._replace(rows=drop_ids(batch.rows, dropout))
    return apply_vector_dropout(batch, dropout)


def apply_vector_dropout(batch: FeatureBatch, dropout: float) -> FeatureBatch:
    """Apply dropout to the vectors in the windows of tokens."""
    if batch.vector_ids is None:  # vectors are no inputs
        return batch
    return batch._replace(vector_ids=drop_ids(batch.vector_ids, dropout))


def drop_ids(ids: Ints2d, dropout: float) -> Ints2d:
    """Replace a share of ids, drawn at random, with -1, which stands for none. Shape: (N, S)"""
    is_lost = numpy.random.uniform(size=ids.shape) < dropout
    return numpy.where(is_lost, numpy.int32(-1), ids)
