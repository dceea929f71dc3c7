# distutils: language = c++
# cython: language_level = 3, boundscheck = False, wraparound = False
"""The recursions of `array`, compiled for the CPU.

The functions have the arguments and results of those in `array`. This file checks the arrays
and passes them to the C++ in cpp/, which processes a few sequences side by side, without
padding and without the GIL. sum_product.hpp and max_product.hpp say how that differs from the
textbook.
"""

cimport cython
cimport numpy as np
from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.memory cimport unique_ptr
from libcpp.vector cimport vector

import numpy

from ..types import Potentials
from .array.max_product import BestPath
from .validation import (
    check_allowed,
    check_derivatives,
    check_potentials,
    check_segments,
    check_tags,
    check_values,
)

np.import_array()


cdef extern from "cpp/interface.hpp" namespace "costner" nogil:
    cdef struct _Potentials "costner::Potentials":
        cbool wide
        const void* emissions
        const void* transitions
        const void* start
        const void* end
        const int32_t* lengths
        int64_t n_sequences
        int64_t n_tokens
        int n_tags

    cdef struct Gradient:
        void* emissions
        void* transitions
        void* start
        void* end

    cdef cppclass SumProduct:
        void log_partition(double* log_z) except +
        void backprop(const double* d_log_z, const Gradient& out) except +

    cdef struct _Allowed "costner::Allowed":
        const uint8_t* mask
        const int64_t* tags

    cdef struct _Segments "costner::Segments":
        const int64_t* begin
        const int64_t* end
        const int64_t* tags
        const uint8_t* after
        int64_t n_segments

    cdef cppclass Query:
        void backprop(const double* d_values, const Gradient& out) except +

    cdef cppclass _ForwardBackward "costner::ForwardBackward":
        void backprop(
            const vector[const Query*]&, const vector[const double*]& d_values, const Gradient& out
        ) except +
        unique_ptr[Query] log_partition(double* log_z) except +
        unique_ptr[Query] log_marginals(const _Allowed& allowed, double* log_p) except +
        unique_ptr[Query] expectation(const _Potentials& values, double* means) except +
        unique_ptr[Query] log_partition_excluding(const _Allowed& allowed, double* log_sums) except +
        unique_ptr[Query] segment_log_probs(const _Segments& segments, double* log_p) except +

    cdef cppclass _MaxMessages "costner::MaxMessages":
        void max_marginals(double* scores) except +
        unique_ptr[Query] segment_max_scores(const _Segments& segments, double* scores) except +

    unique_ptr[SumProduct] make_sum_product(const _Potentials&, int n_threads) except +
    unique_ptr[_ForwardBackward] make_forward_backward(const _Potentials&, int n_threads) except +
    unique_ptr[_MaxMessages] make_max_messages(const _Potentials&, int n_threads) except +
    void _best_path "costner::best_path"(
        const _Potentials&, int64_t* tags, double* out, int n_threads
    ) except +
    void _best_path_excluding "costner::best_path_excluding"(
        const _Potentials&, const _Allowed& allowed, int64_t* tags, double* out, int n_threads
    ) except +
    void _path_score "costner::path_score"(const _Potentials&, const int64_t* tags, double* out) except +
    void add_path_gradient(
        const _Potentials&, const int64_t* tags, const double* path_scores, const double* weights,
        const Gradient& out
    ) except +
    void fill_with_zeros(const _Potentials&, const Gradient& out) except +
    vector[const char*] _instruction_sets "costner::instruction_sets"()
    void _use_instruction_set "costner::use_instruction_set"(int which)


# A thread is only worth starting for so many products of a message and a transition.
cdef int64_t SHARE_OF_A_THREAD = 300_000
cdef int most_threads = 1


def set_threads(int n_threads):
    """Distribute the sequences of a batch over threads.

    n_threads (int): Maximum number of threads; a small batch uses fewer.
    """
    global most_threads
    if n_threads < 1:
        raise ValueError(f"expected at least 1 thread, got {n_threads}")
    most_threads = n_threads


def instruction_sets():
    """The instruction sets that this machine supports, fastest first.

    RETURNS (List[str]): The names.
    """
    return [name.decode("ascii") for name in _instruction_sets()]


def use_instruction_set(name):
    """Set the instruction set of the kernels; the default is the fastest.

    name (str): One of `instruction_sets()`.
    """
    _use_instruction_set(instruction_sets().index(name))


@cython.final
cdef class _Batch:
    """Potentials as the kernels read them; keeps the arrays alive."""

    cdef _Potentials scores
    cdef int typenum
    cdef object potentials, emissions, transitions, start, end, lengths

    def __cinit__(self, potentials):
        if not _are_potentials(potentials):
            check_potentials(potentials)
        emissions = potentials.emissions
        self.typenum = np.NPY_DOUBLE if emissions.dtype == numpy.float64 else np.NPY_FLOAT
        self.potentials = potentials
        self.emissions = _contiguous(emissions, self.typenum, 2)
        self.transitions = _contiguous(potentials.transitions, self.typenum, 2)
        self.start = _contiguous(potentials.start, self.typenum, 1)
        self.end = _contiguous(potentials.end, self.typenum, 1)
        self.lengths = _contiguous(potentials.lengths, np.NPY_INT32, 1)
        self.scores.wide = self.typenum == np.NPY_DOUBLE
        self.scores.emissions = np.PyArray_DATA(self.emissions)
        self.scores.transitions = np.PyArray_DATA(self.transitions)
        self.scores.start = np.PyArray_DATA(self.start)
        self.scores.end = np.PyArray_DATA(self.end)
        self.scores.lengths = <const int32_t*>np.PyArray_DATA(self.lengths)
        self.scores.n_sequences = np.PyArray_DIM(self.lengths, 0)
        self.scores.n_tokens = np.PyArray_DIM(self.emissions, 0)
        self.scores.n_tags = np.PyArray_DIM(self.emissions, 1)

    cdef int n_threads(self):
        cdef int64_t work = self.scores.n_tokens * self.scores.n_tags * self.scores.n_tags
        return max(1, min(most_threads, work // SHARE_OF_A_THREAD))

    cdef object empty_gradient(self, Gradient* gradient):
        """Potentials that are not initialised."""
        cdef np.npy_intp[2] emissions = [self.scores.n_tokens, self.scores.n_tags]
        cdef np.npy_intp[2] transitions = [self.scores.n_tags, self.scores.n_tags]
        cdef np.npy_intp[1] ends = [self.scores.n_tags]
        d_emissions = np.PyArray_EMPTY(2, emissions, self.typenum, 0)
        d_transitions = np.PyArray_EMPTY(2, transitions, self.typenum, 0)
        d_start = np.PyArray_EMPTY(1, ends, self.typenum, 0)
        d_end = np.PyArray_EMPTY(1, ends, self.typenum, 0)
        gradient.emissions = np.PyArray_DATA(d_emissions)
        gradient.transitions = np.PyArray_DATA(d_transitions)
        gradient.start = np.PyArray_DATA(d_start)
        gradient.end = np.PyArray_DATA(d_end)
        return Potentials(d_emissions, d_transitions, d_start, d_end, self.potentials.lengths)

    cdef object empty_scores(self):
        """Zeros, the scores of sequences without tokens."""
        cdef np.npy_intp[1] shape = [self.scores.n_sequences]
        return np.PyArray_ZEROS(1, shape, np.NPY_DOUBLE, 0)

    cdef object path(self, tags, name="tags"):
        """A tag for each token. Shape: (N,)"""
        cdef int64_t n_tokens = self.scores.n_tokens, n_tags = self.scores.n_tags, t
        cdef const int64_t* tag
        cdef cbool valid = _has_type(tags, np.NPY_INT64, 1) and np.PyArray_DIM(tags, 0) == n_tokens
        if not valid:
            check_tags(tags, self.potentials, name)
        path = _contiguous(tags, np.NPY_INT64, 1)
        tag = <const int64_t*>np.PyArray_DATA(path)
        valid = True
        for t in range(n_tokens):
            valid &= 0 <= tag[t] < n_tags
        if not valid:
            check_tags(tags, self.potentials, name)
        return path

    cdef object sets(self, allowed, _Allowed* out):
        """Fill in the sets of tags. RETURNS the array that holds them."""
        if getattr(allowed, "ndim", 2) == 1:
            array = self.path(allowed, "allowed")
            out.mask = NULL
            out.tags = <const int64_t*>np.PyArray_DATA(array)
            return array
        if not (
            _has_type(allowed, np.NPY_BOOL, 2)
            and np.PyArray_DIM(allowed, 0) == self.scores.n_tokens
            and np.PyArray_DIM(allowed, 1) == self.scores.n_tags
        ):
            check_allowed(allowed, self.potentials)
        array = _contiguous(allowed, np.NPY_BOOL, 2)
        out.mask = <const uint8_t*>np.PyArray_DATA(array)
        out.tags = NULL
        return array

    cdef object weights(self, d_scores):
        return _derivatives(d_scores, (self.scores.n_sequences,), "sequences")


cdef inline cbool _has_type(array, int typenum, int n_dimensions):
    return (
        np.PyArray_CheckExact(array)
        and np.PyArray_TYPE(array) == typenum
        and np.PyArray_NDIM(array) == n_dimensions
        and np.PyArray_ISBEHAVED_RO(array)
    )


cdef inline cbool _are_floats(array, int n_dimensions):
    return _has_type(array, np.NPY_FLOAT, n_dimensions) or _has_type(
        array, np.NPY_DOUBLE, n_dimensions
    )


cdef cbool _are_potentials(potentials):
    """Whether types and shapes are the usual ones; if not, `check_potentials` decides and
    raises the error."""
    emissions, transitions, start, end, lengths = potentials
    cdef np.npy_intp n_tags, total = 0, s
    cdef int32_t length
    if not (
        _are_floats(emissions, 2) and _are_floats(transitions, 2)
        and _are_floats(start, 1) and _are_floats(end, 1) and _has_type(lengths, np.NPY_INT32, 1)
    ):
        return False
    n_tags = np.PyArray_DIM(emissions, 1)
    for s in range(np.PyArray_DIM(lengths, 0)):
        length = (<int32_t*>np.PyArray_GETPTR1(lengths, s))[0]
        if length < 0:
            return False
        total += length
    return (
        n_tags > 0 and np.PyArray_DIM(emissions, 0) == total
        and np.PyArray_DIM(transitions, 0) == n_tags and np.PyArray_DIM(transitions, 1) == n_tags
        and np.PyArray_DIM(start, 0) == n_tags and np.PyArray_DIM(end, 0) == n_tags
    )


cdef object _derivatives(d_values, shape, what):
    if not _are_floats(d_values, len(shape)) or d_values.shape != shape:
        check_derivatives(d_values, shape, what)
    return _contiguous(d_values, np.NPY_DOUBLE, len(shape))


cdef inline object _contiguous(array, int typenum, int n_dimensions):
    return np.PyArray_FROMANY(
        array, typenum, n_dimensions, n_dimensions, np.NPY_ARRAY_IN_ARRAY | np.NPY_ARRAY_FORCECAST
    )


@cython.final
cdef class _LogPartition:
    """The forward messages of a batch; calling it runs the backward pass."""

    cdef _Batch batch
    cdef unique_ptr[SumProduct] messages

    def __cinit__(self, _Batch batch):
        cdef int n_threads = batch.n_threads()
        self.batch = batch
        with nogil:
            self.messages = make_sum_product(batch.scores, n_threads)

    cdef object forward(self):
        cdef SumProduct* messages = self.messages.get()
        log_z = self.batch.empty_scores()
        cdef double* out = <double*>np.PyArray_DATA(log_z)
        with nogil:
            messages.log_partition(out)
        return log_z

    cdef fill_gradient(self, weights, Gradient* out):
        cdef SumProduct* messages = self.messages.get()
        cdef const double* d_log_z = <const double*>np.PyArray_DATA(weights)
        with nogil:
            messages.backprop(d_log_z, out[0])

    def __call__(self, d_log_z):
        cdef Gradient out
        weights = self.batch.weights(d_log_z)
        gradient = self.batch.empty_gradient(&out)
        self.fill_gradient(weights, &out)
        return gradient


def log_partition(potentials):
    """As `array.log_partition`."""
    backprop = _LogPartition(_Batch(potentials))
    return backprop.forward(), backprop


def marginals(potentials):
    """As `array.marginals`."""
    backprop = log_partition(potentials)[1]
    return backprop(numpy.ones(len(potentials.lengths))).emissions


@cython.final
cdef class _Path:
    """A path through each sequence of a batch, and its score."""

    cdef _Batch batch
    cdef object tags, scores

    def __cinit__(self, _Batch batch, tags):
        self.batch = batch
        self.tags = batch.path(tags)
        self.scores = batch.empty_scores()
        cdef const int64_t* path = <const int64_t*>np.PyArray_DATA(self.tags)
        cdef double* out = <double*>np.PyArray_DATA(self.scores)
        with nogil:
            _path_score(batch.scores, path, out)

    cdef add_gradient(self, weights, Gradient* out):
        cdef const int64_t* path = <const int64_t*>np.PyArray_DATA(self.tags)
        cdef const double* scores = <const double*>np.PyArray_DATA(self.scores)
        cdef const double* d_scores = <const double*>np.PyArray_DATA(weights)
        with nogil:
            add_path_gradient(self.batch.scores, path, scores, d_scores, out[0])

    def __call__(self, d_scores):
        cdef Gradient out
        weights = self.batch.weights(d_scores)
        gradient = self.batch.empty_gradient(&out)
        fill_with_zeros(self.batch.scores, out)
        self.add_gradient(weights, &out)
        return gradient


def path_score(potentials, tags):
    """As `array.path_score`."""
    path = _Path(_Batch(potentials), tags)
    return path.scores, path


@cython.final
cdef class _PathLogProb:
    """log p of a path a sequence; calling it gives the gradient, counts on the path minus expected
    counts."""

    cdef _Path path
    cdef _LogPartition messages
    cdef object log_probs

    def __cinit__(self, _Batch batch, tags):
        self.path = _Path(batch, tags)
        self.messages = _LogPartition(batch)
        self.log_probs = self.messages.forward()
        cdef const double* score = <const double*>np.PyArray_DATA(self.path.scores)
        cdef double* log_p = <double*>np.PyArray_DATA(self.log_probs)
        cdef int64_t s
        for s in range(batch.scores.n_sequences):
            log_p[s] = score[s] - log_p[s] if isfinite(score[s]) else score[s]

    def __call__(self, d_log_probs):
        cdef _Batch batch = self.path.batch
        cdef Gradient out
        weights = batch.weights(d_log_probs)
        negated = batch.empty_scores()
        cdef const double* score = <const double*>np.PyArray_DATA(self.path.scores)
        cdef const double* weight = <const double*>np.PyArray_DATA(weights)
        cdef double* negative = <double*>np.PyArray_DATA(negated)
        cdef int64_t s
        for s in range(batch.scores.n_sequences):
            negative[s] = -weight[s] if isfinite(score[s]) else 0
        gradient = batch.empty_gradient(&out)
        self.messages.fill_gradient(negated, &out)
        self.path.add_gradient(weights, &out)
        return gradient


def path_log_prob(potentials, tags):
    """As `array.path_log_prob`."""
    path = _PathLogProb(_Batch(potentials), tags)
    return path.log_probs, path


@cython.final
cdef class ForwardBackward:
    """As `array.ForwardBackward`."""

    cdef _Batch batch
    cdef unique_ptr[_ForwardBackward] messages

    def __cinit__(self, potentials):
        cdef int n_threads
        self.batch = _Batch(potentials)
        n_threads = self.batch.n_threads()
        with nogil:
            self.messages = make_forward_backward(self.batch.scores, n_threads)

    def backprop(self, *vjps):
        """The sum of the gradients of several queries.

        *vjps (Tuple[Vjp, Floats1d]): The callback of each query of this object, and the
            derivative with respect to its values.
        """
        cdef vector[const Query*] queries
        cdef vector[const double*] d_values
        cdef Gradient out
        cdef Vjp vjp
        kept = []
        for vjp, d_value in vjps:
            weights = vjp.derivatives(d_value)
            kept.append(weights)
            queries.push_back(vjp.query.get())
            d_values.push_back(<const double*>np.PyArray_DATA(weights))
        gradient = self.batch.empty_gradient(&out)
        with nogil:
            self.messages.get().backprop(queries, d_values, out)
        return gradient

    def log_partition(self):
        log_z = self.batch.empty_scores()
        cdef double* out = <double*>np.PyArray_DATA(log_z)
        cdef Vjp vjp = Vjp(self, self.batch, log_z.shape, "sequences", None)
        with nogil:
            vjp.query = self.messages.get().log_partition(out)
        return log_z, vjp

    def log_marginals(self, allowed):
        cdef _Allowed sets
        array = self.batch.sets(allowed, &sets)
        log_p = _impossible(self.batch.scores.n_tokens)
        cdef double* out = <double*>np.PyArray_DATA(log_p)
        cdef Vjp vjp = Vjp(self, self.batch, log_p.shape, "tokens", None)
        with nogil:
            vjp.query = self.messages.get().log_marginals(sets, out)
        return log_p, vjp

    def expectation(self, values):
        check_values(values, self.batch.potentials)
        means = self.batch.empty_scores()
        cdef double* out = <double*>np.PyArray_DATA(means)
        cdef _Batch batch_of_values = _Batch(_in_type_of(values, self.batch))
        cdef Vjp vjp = Vjp(self, self.batch, means.shape, "sequences", batch_of_values)
        with nogil:
            vjp.query = self.messages.get().expectation(batch_of_values.scores, out)
        return means, vjp

    def log_partition_excluding(self, allowed):
        cdef _Allowed sets
        array = self.batch.sets(allowed, &sets)
        log_sums = _impossible(self.batch.scores.n_sequences)
        cdef double* out = <double*>np.PyArray_DATA(log_sums)
        cdef Vjp vjp = Vjp(self, self.batch, log_sums.shape, "sequences", None)
        with nogil:
            vjp.query = self.messages.get().log_partition_excluding(sets, out)
        return log_sums, vjp

    def segment_log_probs(self, segments):
        cdef _SegmentArrays arrays = _SegmentArrays(self.batch, segments)
        log_p = _impossible(arrays.segments.n_segments)
        cdef double* out = <double*>np.PyArray_DATA(log_p)
        cdef Vjp vjp = Vjp(self, self.batch, log_p.shape, "segments", arrays)
        with nogil:
            vjp.query = self.messages.get().segment_log_probs(arrays.segments, out)
        return log_p, vjp


@cython.final
cdef class MaxMessages:
    """As `array.MaxMessages`."""

    cdef _Batch batch
    cdef unique_ptr[_MaxMessages] messages

    def __cinit__(self, potentials):
        cdef int n_threads
        self.batch = _Batch(potentials)
        n_threads = self.batch.n_threads()
        with nogil:
            self.messages = make_max_messages(self.batch.scores, n_threads)

    def max_marginals(self):
        cdef np.npy_intp[2] shape = [self.batch.scores.n_tokens, self.batch.scores.n_tags]
        scores = np.PyArray_EMPTY(2, shape, np.NPY_DOUBLE, 0)
        cdef double* out = <double*>np.PyArray_DATA(scores)
        with nogil:
            self.messages.get().max_marginals(out)
        return scores

    def segment_max_scores(self, segments):
        cdef _SegmentArrays arrays = _SegmentArrays(self.batch, segments)
        scores = _empty(2 * arrays.segments.n_segments).reshape(2, arrays.segments.n_segments)
        cdef double* out = <double*>np.PyArray_DATA(scores)
        cdef Vjp vjp = Vjp(self, self.batch, scores.shape, "segments", arrays)
        with nogil:
            vjp.query = self.messages.get().segment_max_scores(arrays.segments, out)
        return scores, vjp


cdef object _in_type_of(values, _Batch batch):
    """Potentials in the precision of a batch."""
    dtype = batch.emissions.dtype
    return Potentials(*(array.astype(dtype, copy=False) for array in values[:4]), values.lengths)


cdef object _empty(np.npy_intp size):
    return np.PyArray_EMPTY(1, &size, np.NPY_DOUBLE, 0)


cdef object _impossible(np.npy_intp size):
    """Log-probabilities of 0. Shape: (size,)"""
    log_p = _empty(size)
    log_p.fill(-numpy.inf)
    return log_p


cdef cbool _are_segments(segments, _Batch batch):
    """Whether segments are in int64 and fit the batch; otherwise `check_segments` decides."""
    begin, end, tags, after = segments
    if not (
        (after is None or _has_type(after, np.NPY_BOOL, 2))
        and _has_type(begin, np.NPY_INT64, 1)
        and _has_type(end, np.NPY_INT64, 1)
        and _has_type(tags, np.NPY_INT64, 1)
    ):
        return False
    cdef int64_t n = np.PyArray_DIM(begin, 0), n_tags = batch.scores.n_tags, total = 0
    cdef int64_t i, first, past, s = 0, start = 0, tag
    if np.PyArray_DIM(end, 0) != n:
        return False
    if after is not None and (
        np.PyArray_DIM(after, 0) != n or np.PyArray_DIM(after, 1) != n_tags
    ):
        return False
    for i in range(n):
        first = (<int64_t*>np.PyArray_GETPTR1(begin, i))[0]
        past = (<int64_t*>np.PyArray_GETPTR1(end, i))[0]
        if first < start:
            s = start = 0
        while s < batch.scores.n_sequences and start + batch.scores.lengths[s] <= first:
            start += batch.scores.lengths[s]
            s += 1
        if (
            s == batch.scores.n_sequences
            or first < 0
            or past <= first
            or past > start + batch.scores.lengths[s]
        ):
            return False
        total += past - first
    if np.PyArray_DIM(tags, 0) != total:
        return False
    for i in range(total):
        tag = (<int64_t*>np.PyArray_GETPTR1(tags, i))[0]
        if tag < 0 or tag >= n_tags:
            return False
    return True


@cython.final
cdef class _SegmentArrays:
    """Segments as the kernels read them; keeps the arrays alive."""

    cdef _Segments segments
    cdef object arrays

    def __cinit__(self, _Batch batch, segments):
        if not _are_segments(segments, batch):
            check_segments(segments, batch.potentials)
        begin = _contiguous(segments.begin, np.NPY_INT64, 1)
        end = _contiguous(segments.end, np.NPY_INT64, 1)
        tags = _contiguous(segments.tags, np.NPY_INT64, 1)
        after = segments.after
        if after is not None:
            after = _contiguous(after, np.NPY_BOOL, 2)
            self.segments.after = <const uint8_t*>np.PyArray_DATA(after)
        self.arrays = (begin, end, tags, after)
        self.segments.begin = <const int64_t*>np.PyArray_DATA(begin)
        self.segments.end = <const int64_t*>np.PyArray_DATA(end)
        self.segments.tags = <const int64_t*>np.PyArray_DATA(tags)
        self.segments.n_segments = np.PyArray_DIM(begin, 0)


@cython.final
cdef class Vjp:
    """The vector-Jacobian product of a query; keeps alive the arrays that it needs."""

    cdef _Batch batch
    cdef unique_ptr[Query] query
    cdef object messages, shape, what, more

    def __cinit__(self, messages, _Batch batch, shape, what, more):
        self.messages = messages
        self.batch = batch
        self.shape = shape
        self.what = what
        self.more = more

    cdef object derivatives(self, d_values):
        return _derivatives(d_values, self.shape, self.what)

    def __call__(self, d_values):
        cdef Gradient out
        weights = self.derivatives(d_values)
        gradient = self.batch.empty_gradient(&out)
        cdef const double* d_out = <const double*>np.PyArray_DATA(weights)
        with nogil:
            self.query.get().backprop(d_out, out)
        return gradient


def best_path(potentials):
    """As `array.best_path`."""
    cdef _Batch batch = _Batch(potentials)
    cdef np.npy_intp[1] shape = [batch.scores.n_tokens]
    cdef int n_threads = batch.n_threads()
    tags = np.PyArray_EMPTY(1, shape, np.NPY_INT64, 0)
    scores = batch.empty_scores()
    cdef int64_t* path = <int64_t*>np.PyArray_DATA(tags)
    cdef double* out = <double*>np.PyArray_DATA(scores)
    with nogil:
        _best_path(batch.scores, path, out, n_threads)
    return BestPath(tags, scores)


def best_path_excluding(potentials, allowed):
    """As `array.best_path_excluding`."""
    cdef _Batch batch = _Batch(potentials)
    cdef np.npy_intp[1] shape = [batch.scores.n_tokens]
    cdef int n_threads = batch.n_threads()
    cdef _Allowed sets
    array = batch.sets(allowed, &sets)
    tags = np.PyArray_EMPTY(1, shape, np.NPY_INT64, 0)
    scores = batch.empty_scores()
    cdef int64_t* path = <int64_t*>np.PyArray_DATA(tags)
    cdef double* out = <double*>np.PyArray_DATA(scores)
    with nogil:
        _best_path_excluding(batch.scores, sets, path, out, n_threads)
    return BestPath(tags, scores)
