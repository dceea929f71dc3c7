# distutils: language = c++
# cython: language_level = 3, boundscheck = False, wraparound = False
"""The queries of queries.py: this file checks the arrays and passes them to the C++ in cpp/, which
processes a few sequences side by side, without padding and without the GIL."""

cimport cython
cimport numpy as np

import numpy

from ..types import Potentials
from .validation import (
    check_allowed,
    check_derivatives,
    check_log_probs,
    check_potentials,
    check_segments,
    check_tags,
    check_values,
)

np.import_array()


# A thread is only worth starting for so many products of a message and a transition.
cdef int64_t SHARE_OF_A_THREAD = 300_000
cdef int most_threads = 1


def set_threads(int n_threads):
    """The maximum number of threads; a small batch uses fewer."""
    global most_threads
    most_threads = n_threads


def instruction_sets():
    """The names of the instruction sets that this machine has, fastest first."""
    return [name.decode("ascii") for name in _instruction_sets()]


def use_instruction_set(name):
    """Set the instruction set of the kernels, of `instruction_sets()`; the default is the fastest."""
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
        arrays = [
            np.PyArray_EMPTY(np.PyArray_NDIM(like), np.PyArray_DIMS(like), self.typenum, 0)
            for like in (self.emissions, self.transitions, self.start, self.end)
        ]
        gradient.emissions = np.PyArray_DATA(arrays[0])
        gradient.transitions = np.PyArray_DATA(arrays[1])
        gradient.start = np.PyArray_DATA(arrays[2])
        gradient.end = np.PyArray_DATA(arrays[3])
        return Potentials(*arrays, self.potentials.lengths)


cdef inline cbool _has_type(array, int typenum, int n_dimensions):
    return (
        np.PyArray_CheckExact(array)
        and np.PyArray_TYPE(array) == typenum
        and np.PyArray_NDIM(array) == n_dimensions
        and np.PyArray_ISBEHAVED_RO(array)
    )


cdef inline cbool _are_floats(array, int n_dims):
    return _has_type(array, np.NPY_FLOAT, n_dims) or _has_type(array, np.NPY_DOUBLE, n_dims)


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
cdef class _Query:
    """The arguments of a query as the kernels read them; keeps the arrays alive."""

    cdef _Arguments arguments
    cdef object arrays

    def __cinit__(self, *arrays):
        self.arrays = arrays


cdef _Query _of_tags(_Batch batch, tags, name="tags"):
    """A tag for each token. Shape: (N,)"""
    cdef int64_t n_tokens = batch.scores.n_tokens
    if not _has_type(tags, np.NPY_INT64, 1) or np.PyArray_DIM(tags, 0) != n_tokens:
        check_tags(tags, batch.potentials, name)
    array = _contiguous(tags, np.NPY_INT64, 1)
    cdef _Query query = _Query(array)
    query.arguments.allowed.tags = <const int64_t*>np.PyArray_DATA(array)
    if not are_tags(query.arguments.allowed.tags, n_tokens, batch.scores.n_tags):
        check_tags(tags, batch.potentials, name)
    return query


cdef _Query _of_allowed(_Batch batch, allowed):
    """Sets of tags. Shape: (N, K) or (N,)"""
    if getattr(allowed, "ndim", 2) == 1:
        return _of_tags(batch, allowed, "allowed")
    if not (
        _has_type(allowed, np.NPY_BOOL, 2)
        and np.PyArray_DIM(allowed, 0) == batch.scores.n_tokens
        and np.PyArray_DIM(allowed, 1) == batch.scores.n_tags
    ):
        check_allowed(allowed, batch.potentials)
    array = _contiguous(allowed, np.NPY_BOOL, 2)
    cdef _Query query = _Query(array)
    query.arguments.allowed.mask = <const uint8_t*>np.PyArray_DATA(array)
    return query


cdef _Query _of_values(_Batch batch, values):
    """Values of tags and transitions, in the precision of the batch."""
    check_values(values, batch.potentials)
    dtype = batch.emissions.dtype
    arrays = (array.astype(dtype, copy=False) for array in values[:4])
    cdef _Batch of_values = _Batch(Potentials(*arrays, values.lengths))
    cdef _Query query = _Query(of_values)
    query.arguments.values = &of_values.scores
    return query


cdef _Query _of_segments(_Batch batch, segments):
    begin, end, tags, after = segments
    cdef cbool are_usual = (
        (after is None or _has_type(after, np.NPY_BOOL, 2))
        and _has_type(begin, np.NPY_INT64, 1)
        and _has_type(end, np.NPY_INT64, 1)
        and _has_type(tags, np.NPY_INT64, 1)
        and np.PyArray_DIM(begin, 0) == np.PyArray_DIM(end, 0)
        and (after is None or after.shape == (len(begin), batch.scores.n_tags))
    )
    if not are_usual:
        check_segments(segments, batch.potentials)
    begin, end, tags = (_contiguous(array, np.NPY_INT64, 1) for array in (begin, end, tags))
    after = None if after is None else _contiguous(after, np.NPY_BOOL, 2)
    cdef _Query query = _Query(begin, end, tags, after)
    cdef _Segments* out = &query.arguments.segments
    out.begin = <const int64_t*>np.PyArray_DATA(begin)
    out.end = <const int64_t*>np.PyArray_DATA(end)
    out.tags = <const int64_t*>np.PyArray_DATA(tags)
    if after is not None:
        out.after = <const uint8_t*>np.PyArray_DATA(after)
    out.n_segments = np.PyArray_DIM(begin, 0)
    if not are_segments(out[0], np.PyArray_DIM(tags, 0), batch.scores):
        check_segments(segments, batch.potentials)
    return query


cdef object _filled(tuple shape, double value, int typenum=np.NPY_DOUBLE):
    cdef np.npy_intp[2] sizes = [shape[0], shape[1] if len(shape) == 2 else 1]
    array = np.PyArray_EMPTY(len(shape), sizes, typenum, 0)
    array.fill(value)
    return array


@cython.final
cdef class Vjp:
    """The vector-Jacobian product of a query; keeps alive what it refers to."""

    cdef _Batch batch
    cdef unique_ptr[Query] query
    cdef object owner, arguments, shape, what

    def __cinit__(self, owner, _Batch batch, _Query arguments, shape, what):
        self.owner = owner
        self.batch = batch
        self.arguments = arguments
        self.shape = shape
        self.what = what

    def __call__(self, d_values):
        return _gradient(self.batch, [(self, d_values)])


cdef object _gradient(_Batch batch, vjps):
    """The sum of the gradients of queries of the same messages."""
    cdef vector[const Query*] queries
    cdef vector[const double*] d_values
    cdef Gradient out
    cdef Vjp vjp
    kept = []
    for vjp, d_value in vjps:
        weights = _derivatives(d_value, vjp.shape, vjp.what)
        kept.append(weights)
        queries.push_back(vjp.query.get())
        d_values.push_back(<const double*>np.PyArray_DATA(weights))
    gradient = batch.empty_gradient(&out)
    with nogil:
        queries[0].backprop(queries, d_values, out)
    return gradient


cdef class _Messages:
    """Messages, computed once for several queries."""

    cdef _Batch batch
    cdef unique_ptr[Messages] messages
    cdef readonly int64_t n_tokens

    def __cinit__(self, potentials):
        cdef cbool are_max = isinstance(self, MaxMessages)
        self.batch = _Batch(potentials)
        self.n_tokens = self.batch.scores.n_tokens
        cdef int n_threads = self.batch.n_threads()
        with nogil:
            if are_max:
                self.messages = make_max_messages(self.batch.scores, n_threads)
            else:
                self.messages = make_forward_backward(self.batch.scores, n_threads)

    cdef object values(self, string name, _Query query, shape, default, what, int typenum=np.NPY_DOUBLE):
        """The values of a query, and its VJP."""
        values = _filled(shape, default, typenum)
        cdef double* out = <double*>np.PyArray_DATA(values)
        cdef Vjp vjp = Vjp(self, self.batch, query, shape, what)
        with nogil:
            vjp.query = self.messages.get().query(name, query.arguments, out)
        return values, vjp


    cdef object paths(self, string name, _Query query, object tags):
        """The tags that a query has set."""
        with nogil:
            self.messages.get().query(name, query.arguments, NULL)
        return tags


@cython.final
cdef class ForwardBackward(_Messages):
    """As `queries.ForwardBackward`."""

    def backprop(self, *vjps):
        cdef Vjp vjp
        for vjp, _ in vjps:
            if vjp.owner is not self:
                raise ValueError("vjps: expected callbacks of queries of this object")
        return _gradient(self.batch, vjps)

    cdef object of_sequences(self, string name, _Query query, double default):
        return self.values(name, query, (self.batch.scores.n_sequences,), default, "sequences")

    def log_partition(self):
        return self.of_sequences(b"log_partition", _Query(), 0)

    def path_log_prob(self, tags):
        return self.of_sequences(b"path_log_prob", _of_tags(self.batch, tags), 0)

    def expectation(self, values):
        return self.of_sequences(b"expectation", _of_values(self.batch, values), 0)

    def entropy(self):
        return self.of_sequences(b"entropy", _Query(), 0)

    def sample_paths(self, uniform):
        """The paths that numbers from 0 to 1 choose. Shape: (n, N)"""
        tags = numpy.zeros(uniform.shape, dtype="int64")
        cdef _Query query = _Query(uniform)
        query.arguments.samples.n = np.PyArray_DIM(uniform, 0)
        query.arguments.samples.uniform = <const double*>np.PyArray_DATA(uniform)
        query.arguments.samples.tags = <int64_t*>np.PyArray_DATA(tags)
        return self.paths(b"sample_paths", query, tags)

    def log_partition_excluding(self, allowed):
        query = _of_allowed(self.batch, allowed)
        return self.of_sequences(b"log_partition_excluding", query, -numpy.inf)

    def log_marginals(self, allowed):
        query = _of_allowed(self.batch, allowed)
        shape = (self.batch.scores.n_tokens,)
        return self.values(b"log_marginals", query, shape, -numpy.inf, "tokens")

    def marginals(self):
        shape = (self.batch.scores.n_tokens, self.batch.scores.n_tags)
        return self.values(b"marginals", _Query(), shape, 0, None, self.batch.typenum)[0]

    def segment_log_probs(self, segments):
        cdef _Query query = _of_segments(self.batch, segments)
        shape = (query.arguments.segments.n_segments,)
        return self.values(b"segment_log_probs", query, shape, -numpy.inf, "segments")


@cython.final
cdef class MaxMessages(_Messages):
    """As `queries.MaxMessages`."""

    def max_marginals(self):
        shape = (self.batch.scores.n_tokens, self.batch.scores.n_tags)
        return self.values(b"max_marginals", _Query(), shape, 0, None)[0]

    def best_of_tied(self, log_probs, double tolerance):
        check_log_probs(log_probs, self.batch.potentials)
        log_probs = _contiguous(log_probs, np.NPY_DOUBLE, 2)
        tags = numpy.zeros(self.n_tokens, dtype="int64")
        cdef _Query query = _Query(log_probs)
        query.arguments.ties.log_probs = <const double*>np.PyArray_DATA(log_probs)
        query.arguments.ties.tolerance = tolerance
        query.arguments.ties.tags = <int64_t*>np.PyArray_DATA(tags)
        return self.paths(b"best_of_tied", query, tags)

    def segment_max_scores(self, segments):
        cdef _Query query = _of_segments(self.batch, segments)
        shape = (2, query.arguments.segments.n_segments)
        return self.values(b"segment_max_scores", query, shape, -numpy.inf, "segments")


def path_score(potentials, tags):
    cdef _Batch batch = _Batch(potentials)
    cdef _Query path = _of_tags(batch, tags)
    scores = _filled((batch.scores.n_sequences,), 0)
    cdef double* out = <double*>np.PyArray_DATA(scores)
    cdef Vjp vjp = Vjp(None, batch, path, scores.shape, "sequences")
    with nogil:
        vjp.query = _path_score(batch.scores, path.arguments.allowed.tags, out)
    return scores, vjp


def best_path(potentials):
    return _best(_Batch(potentials), None)


def best_path_excluding(potentials, allowed):
    cdef _Batch batch = _Batch(potentials)
    return _best(batch, _of_allowed(batch, allowed))


cdef object _best(_Batch batch, _Query excluded):
    cdef int n_threads = batch.n_threads()
    cdef const _Allowed* allowed = NULL
    if excluded is not None:
        allowed = &excluded.arguments.allowed
    cdef np.npy_intp n_tokens = batch.scores.n_tokens
    tags = np.PyArray_EMPTY(1, &n_tokens, np.NPY_INT64, 0)
    scores = _filled((batch.scores.n_sequences,), 0)
    cdef int64_t* path = <int64_t*>np.PyArray_DATA(tags)
    cdef double* out = <double*>np.PyArray_DATA(scores)
    with nogil:
        _best_path(batch.scores, allowed, path, out, n_threads)
    return tags, scores


def k_best(potentials, int64_t k):
    cdef _Batch batch = _Batch(potentials)
    cdef int n_threads = batch.n_threads()
    tags = numpy.zeros((k, batch.scores.n_tokens), dtype="int64")
    scores = _filled((k, batch.scores.n_sequences), -numpy.inf)
    cdef int64_t* paths = <int64_t*>np.PyArray_DATA(tags)
    cdef double* out = <double*>np.PyArray_DATA(scores)
    with nogil:
        _k_best(batch.scores, k, paths, out, n_threads)
    return tags, scores
