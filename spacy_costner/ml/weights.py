"""The weights of a linear CRF as a Thinc shim: trained, averaged and saved with a model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

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

AVERAGE = "average"

AVERAGE_POWER = 3.0
"""The default of how averages weigh steps, chosen on development data: see docs/linear.md."""

FIRST_PERIOD, GROWTH = 8, 1.5
"""The number of steps at which the second period of an average begins, and by which factor it has
grown at the next."""

_CATCHING_UP = make_lock()
"""Held while a prediction does in some rows what regularisation has left to do. When it is done
no other prediction changes these rows."""


MOST_BYTES = 1 << 27
"""The size of the sums that are kept: those of the words that were seen first. Sixty thousand words
have 25 MB for 4 labels, but 2 GB for 300."""

Sums = tuple[Floats2d | None, WordCache | None, Floats3d, int]
"""Weights; words, of which the first n have sums of weights at each offset; the sums; n. Shapes:
(V + K + 2, K), (words, offsets, K)"""

NO_SUMS: Sums = (None, None, numpy.zeros((0, 0, 0), dtype="float32"), 0)


class SparseWeights(Shim):
    """A row of K weights for each of V features, and K + 2 more rows: the transitions from each
    tag, the start and the end.

    All weights start at 0 and are trained by AdaGrad, whatever the optimizer of the config is. If
    that keeps averages, so does this: the weights after step t count t^p, so that early ones count
    little. p = 0 is the mean over all steps (Collins, 2002).

    The average is brought up to date at the ends of periods, each half as long again as all steps
    before it. With b the end of the last period, n the current step and w_t the weights after t,

        average_n = (1 - s) average_b + s (w_{b+1} + ... + w_n) / (n - b),  s = 1 - (b / n)^(p + 1)

    Shamir & Zhang (2013), section 4: polynomial-decay averaging.
    """

    table: Table
    step: int
    _pending: list[tuple[Ints2d, Floats2d]]

    def __init__(
        self,
        settings: AdaGrad = AdaGrad(),  # noqa: B008 (immutable)
        average_power: float = AVERAGE_POWER,
    ) -> None:
        super().__init__(None)
        self.settings, self.average_power = settings, average_power
        self._averaged = False
        self._set_table(numpy.zeros((0, 0), dtype="float32"))

    @property
    def is_allocated(self) -> bool:
        """Whether there are weights."""
        return len(self.table.weights) > 0

    @property
    def n_features(self) -> int:
        """V."""
        return max(len(self.table.weights) - self.n_tags - 2, 0)

    @property
    def n_tags(self) -> int:
        """K."""
        return self.table.weights.shape[1]

    @property
    def rows(self) -> Floats2d:
        """All weights, readable, and writable until the next prediction. Shape: (V + K + 2, K)"""
        self._work_out()
        self._sums = NO_SUMS
        return self.table.weights

    @property
    def emissions(self) -> Floats2d:
        """Weights of the features, as `rows`. Shape: (V, K)"""
        return self.rows[: self.n_features]

    @property
    def transitions(self) -> Floats2d:
        """Weights of the transitions, [from, to], readable and writable. Shape: (K, K)"""
        return self._below[:-2]

    @property
    def start(self) -> Floats1d:
        """Weights of the first tag, readable and writable. Shape: (K,)"""
        return self._below[-2]

    @property
    def end(self) -> Floats1d:
        """Weights of the last tag, readable and writable. Shape: (K,)"""
        return self._below[-1]

    @property
    def _below(self) -> Floats2d:
        """The rows below those of the features. Shape: (K + 2, K)"""
        self._work_out(self._last_rows)
        return self.table.weights[self.n_features :]

    @property
    def _last_rows(self) -> Ints1d:
        return numpy.arange(self.n_features, len(self.table.weights), dtype="int32")

    def allocate(self, n_features: int, n_tags: int) -> None:
        """Create weights of 0 for V features and K tags."""
        self._set_table(numpy.zeros((n_features + n_tags + 2, n_tags), dtype="float32"))

    def restart(self, rows: Floats2d) -> None:
        """Begin training again, with these weights. Shape: (V + K + 2, K)"""
        self._set_table(numpy.array(rows, dtype="float32"))

    def set_folds(self, folds: Sequence[Floats2d], fold_of: dict[int, int]) -> None:
        """Set the weights that score docs while another part of the model is trained: for each
        block of docs those of the features, (V, K), trained on the others. `fold_of` has the block
        of each doc, by the hash of its text. Until there are new weights or more tags, these are
        not trained."""
        self.folds, self.fold_of = list(folds), fold_of

    def resize(self, n_tags: int) -> None:
        """Add tags, up to a new K, after the existing ones, which keep their weights."""
        self._end_period()
        table, average, step, old = self.table, self._average, self.step, self.n_tags
        self.allocate(self.n_features, n_tags)
        kept = self.n_features + old
        for before, after in zip((*table[:3], average), (*self.table[:3], self._average)):
            after[:kept, :old] = before[:kept]
            after[-2:, :old] = before[-2:]
        self.table.last[:] = self.step = self._period_begin = step

    def potentials(self, seen: FeatureBatch) -> Potentials:
        """The scores of docs, from their features."""
        self._work_out(seen.rows)
        emissions = sparse.sum_rows(seen.rows, self.table.weights[: self.n_features])
        if seen.word_cache is not None and seen.word_ids is not None:
            emissions += self._sum_words(seen.word_cache, seen.word_ids, seen.lengths)
        below = self._below.copy()
        return Potentials(emissions, below[:-2], below[-2], below[-1], seen.lengths)

    def _sum_words(self, words: WordCache, numbers: Ints1d, lengths: Ints1d) -> Floats2d:
        """The sums of the weights of the words in the windows of tokens, (N, K), from the numbers
        of their words, (N,). The sums of a word at each offset are kept until weights change, up to
        `MOST_BYTES`. If several threads add words at once, each makes what it needs, and the last
        one's is kept."""
        weights, n_offsets = self.table.weights, len(words.slots_by_offset)
        bytes_of_word = max(n_offsets * self.n_tags * weights.itemsize, 1)
        most_words = MOST_BYTES // bytes_of_word
        n_words = min(words.n_words, most_words)
        of, seen, sums, n_done = self._sums
        if of is not weights or seen is not words:
            self._work_out()
            sums, n_done = numpy.zeros((0, n_offsets, self.n_tags), dtype="float32"), 0
        if n_words > n_done:
            if n_words > len(sums):
                n_rows = min(2 * n_words, most_words)
                larger = numpy.empty((n_rows, n_offsets, self.n_tags), dtype="float32")
                larger[:n_done] = sums[:n_done]
                sums = larger
            values = words.table[n_done:n_words]
            length = numpy.asarray([len(values)], dtype="int32")
            for i, slots in enumerate(words.slots_by_offset.values()):
                rows = sparse.gather_window(values, length, *slots)
                sums[n_done:n_words, i] = sparse.sum_rows(rows, weights[: self.n_features])
            self._sums = weights, words, sums, n_words
        has_sums = numbers < n_words
        places = numpy.where(has_sums, numbers * n_offsets, numpy.int32(-1))[:, None]
        rows = sparse.gather_window(places, lengths, *words.window)
        emissions = sparse.sum_rows(rows, sums.reshape(-1, self.n_tags))
        if has_sums.all():
            return emissions
        values = words.table[numbers]
        values[has_sums] = -1
        for offset, (columns, at_word, first_rows) in words.slots_by_offset.items():
            rows = sparse.gather_window(values, lengths, columns, at_word + offset, first_rows)
            emissions += sparse.sum_rows(rows, weights[: self.n_features])
        return emissions

    def begin_update(
        self, seen: FeatureBatch, dropout: float = 0.0
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Score docs in training, where tokens lose a share of their features. The callback keeps
        the gradient."""
        rows, scale = seen.rows, numpy.float32(1)
        if dropout:
            lost = numpy.random.uniform(size=rows.shape) < dropout
            rows, scale = numpy.where(lost, numpy.int32(-1), rows), numpy.float32(1 / (1 - dropout))
        scores = self.potentials(seen._replace(rows=rows))

        def add_gradient(gradient: Potentials) -> None:
            n_slots = max(rows.shape[1], 1)  # one for the rows below, if there are no features
            used = numpy.full((len(rows) + self.n_tags + 2, n_slots), -1, dtype="int32")
            used[: len(rows), : rows.shape[1]], used[len(rows) :, 0] = rows, self._last_rows
            parts = gradient.transitions, gradient.start[None], gradient.end[None]
            d_scores = numpy.concatenate([gradient.emissions * scale, *parts])
            self._pending.append((used, d_scores.astype("float32")))

        return scores._replace(emissions=scores.emissions * scale), add_gradient

    def score_held_out(self, seen: FeatureBatch) -> Potentials:
        """Score each training doc with the weights that were not trained on it: see `set_folds`."""
        emissions = numpy.empty((len(seen.rows), self.n_tags), dtype="float32")
        assert seen.text_ids is not None
        fold = numpy.asarray([self.fold_of.get(i, -1) for i in seen.text_ids.tolist()])
        for i, table in [*enumerate(self.folds), (-1, self.emissions)]:
            tokens = numpy.repeat(fold == i, seen.lengths)
            emissions[tokens] = sparse.sum_rows(seen.rows[tokens], table)
        return self.potentials(seen._replace(rows=seen.rows[:0]))._replace(emissions=emissions)

    def gradient(self) -> tuple[Ints1d, Floats2d]:
        """The rows in which the kept gradient is not 0, (A,), and its values there, (A, K)."""
        rows, d_scores = map(numpy.concatenate, zip(*self._pending))
        return sparse.collect_rows(rows, d_scores, self._place_of)

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update the weights with the kept gradient. The optimizer only says whether averages are
        wanted. `nlp.rehearse` gives a function in its place."""
        if not self._pending:
            return
        rows, gradient = self.gradient()
        self._pending, self._sums = [], NO_SUMS
        self.step += 1
        sparse.adagrad(self.table, rows, gradient, self.step, self.settings)
        averages = getattr(optimizer, "averages", None)
        if averages is not None:
            # The average itself is worked out where it is used.
            averages[self.id, AVERAGE] = numpy.ones(1, dtype="float32")
            if self.average_power and self.step >= max(FIRST_PERIOD, GROWTH * self._period_begin):
                self._end_period()

    @contextmanager
    def use_params(self, params: dict[tuple[int, str], Any]) -> Iterator[None]:
        """Use the average of the weights after each update temporarily, if an optimizer has it."""
        if (self.id, AVERAGE) not in params or not self.step or self._averaged:
            yield
            return
        table = self.table
        self.table, self._averaged = table._replace(weights=self._mean()), True
        try:
            yield
        finally:
            self.table, self._averaged, self._sums = table, False, NO_SUMS

    def averaged(self, optimizer: Optimizer) -> Floats2d:
        """The weights to use after training: their average if the optimizer keeps one, or the last
        ones. Shape: (V + K + 2, K)"""
        with self.use_params(optimizer.averages or {}):
            return self.rows.copy()

    def _mean(self) -> Floats2d:
        """The average of the weights after each update. Shape: (V + K + 2, K)"""
        self._work_out()
        if self.step == self._period_begin:
            return self._average.copy()
        table, n_steps = self.table, self.step - self._period_begin
        share = 1 - (self._period_begin / self.step) ** (self.average_power + 1)
        mean = (self.step - table.last).astype("float32")[:, None] * table.weights
        mean += table.totals
        mean *= numpy.float32(share / n_steps)
        if self._period_begin:
            mean += numpy.float32(1 - share) * self._average
        return mean

    def _end_period(self) -> None:
        """Bring the average up to date."""
        self._average = self._mean()
        self.table.totals[:] = 0
        self.table.last[:] = self._period_begin = self.step

    def _work_out(self, rows: Ints2d | None = None) -> None:
        """Apply the pending regularisation to some rows, or to all."""
        settings = self.settings
        if self._averaged or not self.step or not (settings.L1 or settings.L2):
            return
        if rows is None:
            rows = numpy.flatnonzero(self.table.last < self.step).astype("int32")
        if rows.size:
            with _CATCHING_UP:
                sparse.lazy_regularise(self.table, rows.reshape(-1), self.step, settings)

    def _set_table(self, weights: Floats2d) -> None:
        """Begin training, with these weights."""
        squares, totals, self._average = (numpy.zeros_like(weights) for _ in range(3))
        self.table = Table(weights, squares, totals, numpy.zeros(len(weights), dtype="int32"))
        self.step = self._period_begin = 0
        self._place_of = numpy.full(len(weights), -1, dtype="int32")
        self._sums = NO_SUMS
        self._pending = []
        self.set_folds([], {})

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sums": NO_SUMS}

    def copy(self) -> "SparseWeights":
        """A copy with an identity of its own, so that no optimizer takes it for this one."""
        copied = super().copy()
        copied.id = SparseWeights().id
        return copied

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing: the weights stay on the CPU."""

    def to_bytes(self) -> bytes:
        """Save the weights, in 16 bits each, without rows that are 0 throughout. The state of
        AdaGrad and of averaging is left out: training has to start anew."""
        if not self.is_allocated:
            return srsly.msgpack_dumps({"n_features": None})
        weights = self.rows
        used = numpy.flatnonzero(weights.any(axis=1)).astype("int32")
        scale = float(numpy.abs(weights).max(initial=0)) or 1.0
        kept = (weights[used] / scale).astype("<f2").tobytes()
        saved = {"n_features": self.n_features, "n_tags": self.n_tags, "scale": scale}
        return srsly.msgpack_dumps({**saved, "used": used.tobytes(), "weights": kept})

    def from_bytes(self, data: bytes) -> "SparseWeights":
        """Load the weights. Raises a ValueError if they are damaged."""
        try:
            saved = srsly.msgpack_loads(data)
            if saved["n_features"] is None:
                return self
            n_features, n_tags = saved["n_features"], saved["n_tags"]
            used = numpy.frombuffer(saved["used"], dtype="<i4")
            weights = numpy.frombuffer(saved["weights"], dtype="<f2").reshape(-1, n_tags)
            scale, n_rows = saved["scale"], n_features + n_tags + 2
            if isinstance(scale, bool) or not (0 < scale < numpy.inf):
                raise ValueError(f"expected finite weights, got a scale of {scale!r}")
            if not numpy.isfinite(weights).all():
                raise ValueError("expected finite weights")
            if not (n_features >= 0 and n_rows < 2**31 and len(weights) == len(used)):
                raise ValueError(f"expected {len(used)} of {n_rows} rows, got {len(weights)}")
            in_order = (used[1:] > used[:-1]).all()
            if len(used) and not (in_order and 0 <= used[0] <= used[-1] < n_rows):
                raise ValueError(f"expected rows from 0 to {n_rows - 1} in order")
            self.allocate(n_features, n_tags)
            self.table.weights[used] = weights * numpy.float32(scale)
        except Exception as error:
            raise ValueError(
                f"weights of a linear CRF: expected saved weights, got damaged data: {error}"
            ) from error
        return self
