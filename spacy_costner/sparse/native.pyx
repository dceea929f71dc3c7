# distutils: language = c++
# cython: language_level = 3, boundscheck = False, wraparound = False
"""Sums and updates of sparse weights. The functions validate their arguments and call the C++
kernels in kernels.hpp without the GIL.

There are V rows of weights, with K weights per row, one for each tag. Each of the N tokens has S
slots. A slot contains the index of a row, or -1. The scores of a token are the sum of its rows. All
arrays are C-contiguous NumPy arrays. If shapes don't match or a value is out of range, a ValueError
is raised before anything is modified.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.vector cimport vector

import numpy


def wrong(name, expected, got):
    """Create the error for an invalid argument."""
    return ValueError(f"{name}: expected {expected}, got {got}")


cdef extern from "kernels.hpp" namespace "costner_sparse" nogil:
    cdef cppclass _IdMap "costner_sparse::IdMap":
        void find(const uint64_t* keys, int64_t n, int32_t* numbers)
        void set(const uint64_t* keys, const int32_t* numbers, int64_t n) except +

    bint _are_below "costner_sparse::are_below"(const int32_t* rows, int64_t n, int64_t n_rows)

    cdef struct _Step "costner_sparse::Step":
        float learn_rate
        float eps
        float l1
        float l2

    cdef struct Table:
        float* weights
        float* squares
        float* totals
        int32_t* last
        int64_t width
        int64_t stride
        int64_t last_stride

    void _gather_window "costner_sparse::gather_window"(
        const int32_t* values, int64_t n_columns, const int32_t* lengths, int64_t n_sequences,
        const int32_t* columns, const int32_t* offsets, const int32_t* first_rows,
        int64_t n_slots, int32_t* rows
    )
    bint _sum_rows "costner_sparse::sum_rows"(
        const int32_t* rows, int64_t n_tokens, int64_t n_slots, const float* weights,
        int64_t stride, int64_t n_rows, int64_t width, float* scores
    ) except +
    cdef cppclass FilledSlots:
        pass
    FilledSlots _find_filled "costner_sparse::find_filled"(
        const int32_t* rows, int64_t n_tokens, int64_t n_slots
    ) except +
    FilledSlots _find_active "costner_sparse::find_active"(
        const int32_t* rows, int64_t n_tokens, int64_t n_slots, const float* d_scores,
        int64_t width, int32_t* place_of, vector[int32_t]& active
    ) except +
    void _add_rows "costner_sparse::add_rows"[Real](
        const FilledSlots& filled, const float* d_scores, int64_t width, Real* gradient
    )
    void _multiply_rows "costner_sparse::multiply_rows"(
        const float* inputs, int64_t n_rows, int64_t dim, const float* weights, int64_t width,
        float* products
    )
    void _lazy_regularise "costner_sparse::lazy_regularise"(
        const Table& table, int64_t row, int32_t now, const _Step& step
    )
    void _adagrad "costner_sparse::adagrad"(
        const Table& table, const int32_t* rows, int64_t n_rows, const float* gradient,
        int32_t now, const _Step& step
    )
    void _average "costner_sparse::average"(
        const Table& table, int64_t n_rows, int32_t begin, int32_t now, double share,
        const float* before, float* average
    )


cdef int _same(str name, int64_t got, int64_t expected) except -1:
    """Check that a length or width has the expected value."""
    if got != expected:
        raise wrong(name, expected, got)
    return 0


cdef int _below(str name, const int32_t[::1] indices, int64_t n) except -1:
    """Check that indices are less than n. Negative indices, which represent missing values, are
    allowed."""
    cdef bint fit = True
    if indices.shape[0]:
        with nogil:
            fit = _are_below(&indices[0], indices.shape[0], n)
    if not fit:
        raise wrong(name, f"less than {n}", int(numpy.max(indices)))
    return 0


cdef int _not_negative(str name, const int32_t[::1] numbers) except -1:
    """Check that numbers are not negative."""
    cdef int64_t i
    for i in range(numbers.shape[0]):
        if numbers[i] < 0:
            raise wrong(name, "at least 0", numbers[i])
    return 0


cdef class IdMap:
    """A map from 64-bit keys, such as word hashes, to numbers, such as IDs. It is thread-safe:
    keys can be looked up while other threads are setting keys."""

    cdef _IdMap numbers

    def set(self, const uint64_t[::1] keys, const int32_t[::1] numbers):
        """Set the numbers of keys. Numbers must not be negative. Shapes: (N,), (N,)"""
        _same("length of numbers", numbers.shape[0], keys.shape[0])
        _not_negative("numbers", numbers)
        if keys.shape[0]:
            with nogil:
                self.numbers.set(&keys[0], &numbers[0], keys.shape[0])

    def find(self, const uint64_t[::1] keys):
        """Look up the numbers of keys. Returns -1 for unknown keys. Shape: (N,)"""
        numbers = numpy.empty(keys.shape[0], dtype="int32")
        cdef int32_t[::1] out = numbers
        if keys.shape[0]:
            with nogil:
                self.numbers.find(&keys[0], keys.shape[0], &out[0])
        return numbers


def gather_window(
    const int32_t[:, ::1] values, const int32_t[::1] lengths, const int32_t[::1] columns,
    const int32_t[::1] offsets, const int32_t[::1] first_rows
):
    """Compute the rows of tokens from the values in their windows. Each slot has a column and an
    offset. It reads the value v in this column of the token at this offset, which must be in the
    same sequence. The row of the slot is `first_row + v`.

    values (Ints2d): The value of each token in each of C columns, or -1. Shape: (N, C)
    lengths (Ints1d): The number of tokens of each sequence. Shape: (B,)
    columns (Ints1d): The column of each slot. Shape: (S,)
    offsets (Ints1d): The offset of each slot, in tokens to the right. Shape: (S,)
    first_rows (Ints1d): The row for the value 0 in each slot. Shape: (S,)
    RETURNS (Ints2d): The row of each slot of each token, or -1. Shape: (N, S)
    """
    n_tokens, n_slots = values.shape[0], columns.shape[0]
    _not_negative("lengths", lengths)
    _same("sum of lengths", _sum(lengths), n_tokens)
    _same("length of offsets", offsets.shape[0], n_slots)
    _same("length of first_rows", first_rows.shape[0], n_slots)
    _not_negative("columns", columns)
    _below("columns", columns, values.shape[1])
    rows = numpy.empty((n_tokens, n_slots), dtype="int32")
    cdef int32_t[:, ::1] out = rows
    if n_tokens and n_slots:
        with nogil:
            _gather_window(
                &values[0, 0], values.shape[1], &lengths[0], lengths.shape[0], &columns[0],
                &offsets[0], &first_rows[0], columns.shape[0], &out[0, 0]
            )
    return rows


cdef int64_t _sum(const int32_t[::1] numbers):
    cdef int64_t i, total = 0
    for i in range(numbers.shape[0]):
        total += numbers[i]
    return total


cdef int _check_rows(const int32_t[:, ::1] rows, int64_t n_rows) except -1:
    """Check that the row indices of tokens are less than the number of rows of weights."""
    cdef bint fit = True
    if rows.shape[0] and rows.shape[1]:
        with nogil:
            fit = _are_below(&rows[0, 0], rows.shape[0] * rows.shape[1], n_rows)
    if not fit:
        raise wrong("rows", f"less than {n_rows}", int(numpy.max(rows)))
    return 0


cdef int64_t _row_stride(str name, const float[:, :] array) except -1:
    """Return the stride between the rows of an array, in floats. The floats within a row must be
    contiguous."""
    if array.shape[1] > 1 and array.strides[1] != sizeof(float):
        raise wrong(name, "rows of adjacent floats", f"a stride of {array.strides[1]} bytes")
    if array.strides[0] % sizeof(float):
        raise wrong(name, "a stride of whole floats", f"{array.strides[0]} bytes")
    return array.strides[0] // <int64_t>sizeof(float)


def sum_rows(const int32_t[:, ::1] rows, const float[:, :] weights):
    """Compute the scores of each token by summing its rows of weights. The weights may be a slice
    of an interleaved table. Shapes: (N, S), (V, K) to (N, K)"""
    cdef int64_t stride = _row_stride("weights", weights)
    # The kernel checks the row indices, because it only has to check filled slots.
    cdef bint fit = True
    scores = numpy.zeros((rows.shape[0], weights.shape[1]), dtype="float32")
    cdef float[:, ::1] out = scores
    if rows.shape[0] and rows.shape[1] and weights.shape[0] and weights.shape[1]:
        with nogil:
            fit = _sum_rows(
                &rows[0, 0], rows.shape[0], rows.shape[1], &weights[0, 0], stride,
                weights.shape[0], weights.shape[1], &out[0, 0]
            )
    else:
        _check_rows(rows, weights.shape[0])
    if not fit:
        _check_rows(rows, weights.shape[0])
    return scores


def multiply_rows(const float[:, ::1] inputs, const float[:, ::1] weights):
    """Multiply two matrices. Unlike with BLAS, each row of the product is bitwise independent of
    the other rows. Shapes: (U, D), (D, K) to (U, K)"""
    _same("length of weights", weights.shape[0], inputs.shape[1])
    products = numpy.zeros((inputs.shape[0], weights.shape[1]), dtype="float32")
    cdef float[:, ::1] out = products
    if inputs.shape[0] and inputs.shape[1] and weights.shape[1]:
        with nogil:
            _multiply_rows(
                &inputs[0, 0], inputs.shape[0], inputs.shape[1], &weights[0, 0],
                weights.shape[1], &out[0, 0]
            )
    return products


def collect_rows(
    const int32_t[:, ::1] rows, const float[:, ::1] d_scores, int32_t[::1] place_of
):
    """Compute the gradient with respect to the rows of weights used in a batch.

    rows (Ints2d): The rows of each token, or -1. Shape: (N, S)
    d_scores (Floats2d): The derivative with respect to the scores of tokens. Shape: (N, K)
    place_of (Ints1d): A reusable buffer. All values must be -1, and are reset to -1 at the end.
        Shape: (V,)
    RETURNS (tuple[Ints1d, Floats2d]): The indices of the A distinct rows with a gradient, and their
        gradients. Shapes: (A,), (A, K)
    """
    cdef FilledSlots filled
    cdef vector[int32_t] active
    cdef int64_t width = d_scores.shape[1]
    _same("length of d_scores", d_scores.shape[0], rows.shape[0])
    _check_rows(rows, place_of.shape[0])
    if rows.shape[0] and rows.shape[1] and width and place_of.shape[0]:
        with nogil:
            filled = _find_active(
                &rows[0, 0], rows.shape[0], rows.shape[1], &d_scores[0, 0], width,
                &place_of[0], active
            )
    active_rows = numpy.empty(active.size(), dtype="int32")
    sums = numpy.zeros((active.size(), width), dtype="float32")
    cdef float[:, ::1] out = sums
    if active.size():
        active_rows[:] = <int32_t[:active.size()]>active.data()
        with nogil:
            _add_rows(filled, &d_scores[0, 0], width, &out[0, 0])
    return active_rows, sums


def add_rows(
    const int32_t[:, ::1] rows, const float[:, ::1] d_scores, double[:, ::1] gradient
):
    """Add the gradient of a batch to the gradient of all weights, in place. Used by L-BFGS.

    rows (Ints2d): The rows of each token, or -1. Shape: (N, S)
    d_scores (Floats2d): The derivative with respect to the scores of tokens. Shape: (N, K)
    gradient (Floats2d): The gradient of all weights in float64, modified in place. Shape: (V, K)
    """
    cdef FilledSlots filled
    _same("length of d_scores", d_scores.shape[0], rows.shape[0])
    _same("width of gradient", gradient.shape[1], d_scores.shape[1])
    _check_rows(rows, gradient.shape[0])
    if rows.shape[0] and rows.shape[1] and gradient.shape[0] and gradient.shape[1]:
        with nogil:
            filled = _find_filled(&rows[0, 0], rows.shape[0], rows.shape[1])
            _add_rows(filled, &d_scores[0, 0], d_scores.shape[1], &gradient[0, 0])


cdef Table _table(
    float[:, :] weights, float[:, :] squares, float[:, :] totals, int32_t[:] last
):
    """Check the sizes of the arrays of a table, and create the struct of pointers for the
    kernels."""
    cdef Table table
    cdef int64_t n_rows = weights.shape[0], width = weights.shape[1]
    _same("length of table.squares", squares.shape[0], n_rows)
    _same("width of table.squares", squares.shape[1], width)
    _same("length of table.totals", totals.shape[0], n_rows)
    _same("width of table.totals", totals.shape[1], width)
    _same("length of table.last", last.shape[0], n_rows)
    table.stride = _row_stride("table.weights", weights)
    _same("stride of table.squares", _row_stride("table.squares", squares), table.stride)
    _same("stride of table.totals", _row_stride("table.totals", totals), table.stride)
    table.last_stride = last.strides[0] // <int64_t>sizeof(int32_t)
    table.weights = &weights[0, 0]
    table.squares = &squares[0, 0]
    table.totals = &totals[0, 0]
    table.last = &last[0]
    table.width = weights.shape[1]
    return table


cdef _Step _step(settings):
    """Create the struct of settings for the kernels."""
    cdef _Step step
    step.learn_rate = settings.learn_rate
    step.eps = settings.eps
    step.l1 = settings.L1
    step.l2 = settings.L2
    return step


def lazy_regularise(table, const int32_t[::1] rows, int32_t now, settings):
    """Apply the pending updates of rows that were skipped because they had no gradient. For each
    update since `last`, the weights are regularised and added to `totals`.

    table (Table): The weights, which are modified in place.
    rows (Ints1d): The row indices, or -1. Rows may be repeated. Shape: (A,)
    now (int): The number of the last update to apply.
    settings (AdaGrad): The regularisation.
    """
    cdef Table c_table = _table(table.weights, table.squares, table.totals, table.last)
    cdef _Step step = _step(settings)
    cdef int64_t i
    _below("rows", rows, len(table.weights))
    with nogil:
        for i in range(rows.shape[0]):
            if rows[i] >= 0:
                _lazy_regularise(c_table, rows[i], now, step)


def adagrad(table, const int32_t[::1] rows, const float[:, ::1] gradient, int32_t now, settings):
    """Update the rows with a gradient using AdaGrad, after applying their pending updates (see
    `lazy_regularise`).

    table (Table): The weights, which are modified in place.
    rows (Ints1d): The row indices, without repetition. Shape: (A,)
    gradient (Floats2d): The gradient of these rows. Shape: (A, K)
    now (int): The number of this update, counting from 1.
    settings (AdaGrad): The learning rate and the regularisation.
    """
    cdef Table c_table = _table(table.weights, table.squares, table.totals, table.last)
    cdef _Step step = _step(settings)
    _not_negative("rows", rows)
    _below("rows", rows, len(table.weights))
    _same("length of gradient", gradient.shape[0], rows.shape[0])
    _same("width of gradient", gradient.shape[1], c_table.width)
    if not rows.shape[0] or not c_table.width:
        return
    with nogil:
        _adagrad(c_table, &rows[0], rows.shape[0], &gradient[0, 0], now, step)


def average(table, int32_t begin, int32_t now, double share, const float[:, ::1] before):
    """Compute an average of the weights after all updates. It consists of the average of earlier
    updates and the mean over the updates since then: `share * mean + (1 - share) * before`. All
    pending regularisation must have been applied.

    table (Table): The weights. Their totals contain the updates after `begin`.
    begin (int): The number of the last update in `before`.
    now (int): The number of the last update, greater than `begin`.
    share (float): The share of the mean.
    before (Floats2d): The average of the updates up to `begin`. Shape: (V, K)
    RETURNS (Floats2d): The average. Shape: (V, K)
    """
    cdef Table c_table = _table(table.weights, table.squares, table.totals, table.last)
    _same("length of before", before.shape[0], len(table.weights))
    _same("width of before", before.shape[1], c_table.width)
    if now <= begin:
        raise wrong("now", f"more than {begin}", now)
    averages = numpy.empty((before.shape[0], before.shape[1]), dtype="float32")
    cdef float[:, ::1] out = averages
    if averages.size:
        with nogil:
            _average(c_table, before.shape[0], begin, now, share, &before[0, 0], &out[0, 0])
    return averages
