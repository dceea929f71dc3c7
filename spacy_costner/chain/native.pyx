# distutils: language = c++
# cython: language_level = 3, boundscheck = False, wraparound = False
"""The implementation of the queries in queries.py. This file checks the arrays and passes them to
the C++ code in cpp/, which processes several sequences in parallel, without padding and without the
GIL.

Shapes: N tokens in B sequences, K tags. The C++ code uses pointers to the data of arrays, so the
arrays have to be kept alive. Names that start with an underscore, e.g. `_Segments`, are C++ structs
and functions.
"""

cimport cython
cimport numpy as np

import numpy

from ..types import Potentials

np.import_array()


# The minimum number of products of a message and a transition per thread.
cdef int64_t MIN_PRODUCTS_OF_THREAD = 300_000
cdef int max_threads = 1


def set_threads(int n_threads):
    """Set the maximum number of threads. Small batches use fewer threads."""
    global max_threads
    max_threads = n_threads


def instruction_sets():
    """Return the names of the instruction sets supported by this machine, fastest first."""
    return [name.decode("ascii") for name in _instruction_sets()]


def use_instruction_set(name):
    """Set the instruction set of the kernels. The default is the fastest of `instruction_sets`."""
    _use_instruction_set(instruction_sets().index(name))


@cython.final
cdef class _Batch:
    """Potentials in the form used by the kernels. Keeps the arrays alive."""

    cdef _Potentials scores
    cdef int typenum
    cdef object potentials, emissions, transitions, start, end, lengths

    def __cinit__(self, potentials, str prefix="potentials.", int typenum=-1):
        """Check the potentials and set the pointers to their arrays.

        prefix (str): The prefix of array names in error messages.
        typenum (int): NumPy's type number for all scores. If -1, the type of the emissions is used.
        RAISES (ValueError): If an array has an unexpected shape or type.
        """
        emissions, transitions, start, end, lengths = potentials
        if typenum < 0:
            typenum = np.NPY_DOUBLE if getattr(emissions, "dtype", None) == numpy.float64 else np.NPY_FLOAT
        self.typenum = typenum
        self.potentials = potentials
        self.emissions = _array(prefix, "emissions", emissions, FLOATS, typenum, (-1, -1))
        n_tokens, n_tags = self.emissions.shape
        if n_tags < 1:
            raise ValueError(f"{prefix}emissions: expected scores of at least 1 tag, got 0")
        self.transitions = _array(prefix, "transitions", transitions, FLOATS, typenum, (n_tags, n_tags))
        self.start = _array(prefix, "start", start, FLOATS, typenum, (n_tags,))
        self.end = _array(prefix, "end", end, FLOATS, typenum, (n_tags,))
        # The C++ code uses 32-bit lengths. Check them as 64-bit integers first, so that a length
        # that is too large doesn't overflow.
        wide_lengths = _array(prefix, "lengths", lengths, INTEGERS, np.NPY_INT64, (-1,))
        cdef const int64_t* first_length = <const int64_t*>np.PyArray_DATA(wide_lengths)
        self.scores.n_sequences = np.PyArray_DIM(wide_lengths, 0)
        if not are_lengths(first_length, self.scores.n_sequences, n_tokens):
            raise ValueError(
                f"{prefix}lengths: expected lengths that add up to the {n_tokens} rows of the emissions, got {lengths}"
            )
        self.lengths = _contiguous(wide_lengths, np.NPY_INT32, 1)

        self.scores.wide = typenum == np.NPY_DOUBLE
        self.scores.emissions = np.PyArray_DATA(self.emissions)
        self.scores.transitions = np.PyArray_DATA(self.transitions)
        self.scores.start = np.PyArray_DATA(self.start)
        self.scores.end = np.PyArray_DATA(self.end)
        self.scores.lengths = <const int32_t*>np.PyArray_DATA(self.lengths)
        self.scores.n_tokens = n_tokens
        self.scores.n_tags = n_tags

    cdef int n_threads(self):
        """Return the number of threads to use for this batch."""
        cdef int64_t n_products = self.scores.n_tokens * self.scores.n_tags * self.scores.n_tags
        return max(1, min(max_threads, n_products // MIN_PRODUCTS_OF_THREAD))

    cdef object empty_gradient(self, Gradient* gradient):
        """Create uninitialized arrays for a gradient. Return them as `Potentials` and store their
        pointers in `gradient`."""
        arrays = [
            np.PyArray_EMPTY(np.PyArray_NDIM(like), np.PyArray_DIMS(like), self.typenum, 0)
            for like in (self.emissions, self.transitions, self.start, self.end)
        ]
        gradient.emissions = np.PyArray_DATA(arrays[0])
        gradient.transitions = np.PyArray_DATA(arrays[1])
        gradient.start = np.PyArray_DATA(arrays[2])
        gradient.end = np.PyArray_DATA(arrays[3])
        return Potentials(*arrays, self.potentials.lengths)


# The expected contents of an array for error messages, and NumPy's type characters.
FLOATS = ("float32 or float64", "fd")
INTEGERS = ("integers", "bhilqBHILQ")
TRUTH_VALUES = ("truth values", "?")
REAL_NUMBERS = ("real numbers", "efdg" + INTEGERS[1])


cdef object _array(str prefix, str name, array, tuple kind, int typenum, tuple shape):
    """Convert an array to the form used by the kernels: C-contiguous and of the given type.

    prefix, name (str): The two parts of the array's name in error messages.
    array (Array): The array.
    kind (tuple[str, str]): The expected contents: FLOATS, INTEGERS, TRUTH_VALUES or REAL_NUMBERS.
    typenum (int): NumPy's number for the type required by the kernels.
    shape (tuple[int, ...]): The expected shape, with -1 for dimensions of any size.
    RAISES (ValueError): If the array has unexpected contents or an unexpected shape.
    """
    cdef int n_dimensions = len(shape), i
    cdef np.npy_intp size
    expected_values, type_characters = kind
    if not np.PyArray_Check(array):
        raise ValueError(f"{prefix}{name}: expected an array of {expected_values}, got {type(array).__name__}")
    if array.dtype.char not in type_characters:
        raise ValueError(f"{prefix}{name}: expected {expected_values}, got an array of {array.dtype}")
    if np.PyArray_NDIM(array) != n_dimensions:
        raise ValueError(f"{prefix}{name}: expected {n_dimensions} dimensions, got the shape {array.shape}")
    for i in range(n_dimensions):
        size = shape[i]
        if size != -1 and size != np.PyArray_DIM(array, i):
            raise ValueError(
                f"{prefix}{name}: expected {expected_values} in the shape {shape}, got {array.shape}"
            )
    return _contiguous(array, typenum, n_dimensions)


cdef inline object _contiguous(array, int typenum, int n_dimensions):
    """Return the array if it is C-contiguous and of this type, otherwise a converted copy."""
    return np.PyArray_FROMANY(
        array, typenum, n_dimensions, n_dimensions, np.NPY_ARRAY_IN_ARRAY | np.NPY_ARRAY_FORCECAST
    )


@cython.final
cdef class _Query:
    """The arguments of a query in the form used by the kernels. Keeps the arrays alive."""

    cdef _Arguments arguments
    cdef object arrays

    def __cinit__(self, *arrays):
        self.arrays = arrays


# The functions `_..._query` check the arguments of a query and convert them to a `_Query`.


cdef _Query _tags_query(_Batch batch, tags, str name="tags"):
    """Create a query with one tag per token. Shape: (N,)"""
    cdef int64_t n_tokens = batch.scores.n_tokens
    array = _array("", name, tags, INTEGERS, np.NPY_INT64, (n_tokens,))
    cdef _Query query = _Query(array)
    query.arguments.allowed.tags = <const int64_t*>np.PyArray_DATA(array)
    if not are_tags(query.arguments.allowed.tags, n_tokens, batch.scores.n_tags):
        raise ValueError(f"{name}: expected tags from 0 to {batch.scores.n_tags - 1}, got {tags}")
    return query


cdef _Query _allowed_query(_Batch batch, allowed):
    """Create a query with the tags allowed at each token: a mask, (N, K), or one tag, (N,)."""
    if getattr(allowed, "ndim", 2) == 1:
        return _tags_query(batch, allowed, "allowed")
    array = _array("", "allowed", allowed, TRUTH_VALUES, np.NPY_BOOL, batch.emissions.shape)
    cdef _Query query = _Query(array)
    query.arguments.allowed.mask = <const uint8_t*>np.PyArray_DATA(array)
    return query


cdef _Query _values_query(_Batch batch, values):
    """Create a query with values of tags and transitions, as `Potentials` for the same batch,
    converted to the type of the batch."""
    cdef _Batch value_batch = _Batch(values, "values.", batch.typenum)
    if value_batch.emissions.shape != batch.emissions.shape:
        raise ValueError(
            f"values.emissions: expected the shape {batch.emissions.shape}, got {value_batch.emissions.shape}"
        )
    # In most cases, the arrays are the same object and don't have to be compared.
    has_same_lengths = values.lengths is batch.potentials.lengths
    if not has_same_lengths and not numpy.array_equal(value_batch.lengths, batch.lengths):
        raise ValueError(f"values.lengths: expected {batch.lengths}, got {value_batch.lengths}")
    cdef _Query query = _Query(value_batch)
    query.arguments.values = &value_batch.scores
    return query


cdef _Query _segments_query(_Batch batch, segments):
    """Create a query with segments of paths. See `queries.Segments`."""
    begin = _array("segments.", "begin", segments.begin, INTEGERS, np.NPY_INT64, (-1,))
    end = _array("segments.", "end", segments.end, INTEGERS, np.NPY_INT64, begin.shape)
    tags = _array("segments.", "tags", segments.tags, INTEGERS, np.NPY_INT64, (-1,))
    after = segments.after
    if after is not None:
        shape = (len(begin), batch.scores.n_tags)
        after = _array("segments.", "after", after, TRUTH_VALUES, np.NPY_BOOL, shape)
    cdef _Query query = _Query(begin, end, tags, after)
    cdef _Segments* out = &query.arguments.segments
    out.begin = <const int64_t*>np.PyArray_DATA(begin)
    out.end = <const int64_t*>np.PyArray_DATA(end)
    out.tags = <const int64_t*>np.PyArray_DATA(tags)
    if after is not None:
        out.after = <const uint8_t*>np.PyArray_DATA(after)
    out.n_segments = len(begin)
    if not are_segments(out[0], len(tags), batch.scores):
        raise ValueError(
            f"segments: expected begin < end within one sequence, and a tag from 0 to {batch.scores.n_tags - 1} "
            f"for each token, got {segments}, lengths {batch.lengths}"
        )
    return query


cdef _Query _entity_tags_query(_Batch batch, entity_tags, is_space, columns=()):
    """Create a query with the tags that form entities (see `types.EntityTags`) and the whitespace
    tokens. The query also keeps `columns` alive, which are other arrays that it will point to."""
    cdef int n_tags = batch.scores.n_tags
    label_of = _array("entity_tags.", "label_of", entity_tags.label_of, INTEGERS, np.NPY_INT64, (n_tags,))
    opening = _array("entity_tags.", "opening", entity_tags.opening, TRUTH_VALUES, np.NPY_BOOL, (n_tags,))
    closing = _array("entity_tags.", "closing", entity_tags.closing, TRUTH_VALUES, np.NPY_BOOL, (n_tags,))
    inside = _array("entity_tags.", "inside", entity_tags.inside, TRUTH_VALUES, np.NPY_BOOL, (n_tags, n_tags))
    cdef const int64_t* labels = <const int64_t*>np.PyArray_DATA(label_of)
    cdef int i
    for i in range(n_tags):
        if labels[i] >= n_tags:
            raise ValueError(f"entity_tags.label_of: expected labels below {n_tags}, got {labels[i]}")
    if is_space is not None:
        is_space = _array("", "is_space", is_space, TRUTH_VALUES, np.NPY_BOOL, (batch.scores.n_tokens,))
    cdef _Query query = _Query(label_of, opening, closing, inside, is_space, *columns)
    cdef _EntityTags* out = &query.arguments.entity_tags
    out.label_of = labels
    out.opening = <const uint8_t*>np.PyArray_DATA(opening)
    out.closing = <const uint8_t*>np.PyArray_DATA(closing)
    out.inside = <const uint8_t*>np.PyArray_DATA(inside)
    if is_space is not None:
        out.is_space = <const uint8_t*>np.PyArray_DATA(is_space)
    return query


cdef _Query _entities_query(_Batch batch, entities, entity_tags, is_space):
    """Extend `_entity_tags_query` with entities, as begin, end and label. Shapes: (E,)"""
    begin, end, label = entities
    begin = _array("entities.", "begin", begin, INTEGERS, np.NPY_INT64, (-1,))
    end = _array("entities.", "end", end, INTEGERS, np.NPY_INT64, begin.shape)
    label = _array("entities.", "label", label, INTEGERS, np.NPY_INT64, begin.shape)
    cdef _Query query = _entity_tags_query(batch, entity_tags, is_space, (begin, end, label))
    cdef _Entities* out = &query.arguments.entities
    out.begin = <const int64_t*>np.PyArray_DATA(begin)
    out.end = <const int64_t*>np.PyArray_DATA(end)
    out.label = <const int64_t*>np.PyArray_DATA(label)
    out.n_entities = len(begin)
    if not are_entities(out[0], batch.scores.n_tokens):
        raise ValueError(f"entities: expected begin < end within {batch.scores.n_tokens} tokens, got {entities}")
    return query


cdef object _columns(const vector[vector[_LikelyEntity]]& entities):
    """Convert the entities of all sequences to four arrays: begin, end, label and probability.
    Shapes: (E,)"""
    cdef size_t n_entities = 0, i = 0, s, j  # sequence s, its entity j, entity i overall
    for s in range(entities.size()):
        n_entities += entities[s].size()
    columns = tuple(numpy.empty(n_entities, dtype) for dtype in ("int64", "int64", "int64", "float64"))
    cdef int64_t* begin = <int64_t*>np.PyArray_DATA(columns[0])
    cdef int64_t* end = <int64_t*>np.PyArray_DATA(columns[1])
    cdef int64_t* label = <int64_t*>np.PyArray_DATA(columns[2])
    cdef double* prob = <double*>np.PyArray_DATA(columns[3])
    for s in range(entities.size()):
        for j in range(entities[s].size()):
            begin[i] = entities[s][j].begin
            end[i] = entities[s][j].end
            label[i] = entities[s][j].label
            prob[i] = entities[s][j].prob
            i += 1
    return columns


cdef object _filled(tuple shape, double value, int typenum=np.NPY_DOUBLE):
    """Create a one- or two-dimensional array filled with a value."""
    cdef np.npy_intp[2] sizes = [shape[0], shape[1] if len(shape) == 2 else 1]
    array = np.PyArray_EMPTY(len(shape), sizes, typenum, 0)
    array.fill(value)
    return array


@cython.final
cdef class Vjp:
    """The vector-Jacobian product of a query: a callback that converts the derivative with respect
    to the values to the gradient with respect to the potentials. It keeps the messages (`owner`),
    the potentials and the arguments of the query alive."""

    cdef _Batch batch
    cdef unique_ptr[Query] query
    cdef object owner, arguments, shape

    def __cinit__(self, owner, _Batch batch, _Query arguments, tuple shape):
        self.owner = owner
        self.batch = batch
        self.arguments = arguments
        self.shape = shape

    def __call__(self, d_values):
        return _gradient(self.batch, [(self, d_values)])


cdef object _gradient(_Batch batch, vjps):
    """Compute the sum of the gradients of several queries on the same messages.

    vjps (Iterable[tuple[Vjp, Array]]): The VJP of each query and the derivative with respect to its
        values.
    """
    cdef vector[const Query*] queries
    cdef vector[const double*] pointers
    cdef Gradient gradient_pointers
    cdef Vjp vjp
    kept_alive = []  # the arrays referenced by the pointers
    for vjp, d_values in vjps:
        checked_d_values = _array("", "derivatives", d_values, REAL_NUMBERS, np.NPY_DOUBLE, vjp.shape)
        kept_alive.append(checked_d_values)
        queries.push_back(vjp.query.get())
        pointers.push_back(<const double*>np.PyArray_DATA(checked_d_values))
    gradient = batch.empty_gradient(&gradient_pointers)
    with nogil:
        # All queries share the same messages, so this method can be called on any of them.
        queries[0].backprop(queries, pointers, gradient_pointers)
    return gradient


cdef class _Messages:
    """Messages that are computed once for several queries."""

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

    cdef object values(self, string name, _Query query, shape, default, int typenum=np.NPY_DOUBLE):
        """Run a query and return its values and its VJP.

        name (string): The name of the query, which is the name of the Python method.
        query (_Query): The arguments of the query.
        shape (tuple[int, ...]): The shape of the values.
        default (float): The default of values that the query doesn't set, e.g. for empty sequences.
        typenum (int): NumPy's number for the type of the values.
        """
        values = _filled(shape, default, typenum)
        cdef double* out = <double*>np.PyArray_DATA(values)
        cdef Vjp vjp = Vjp(self, self.batch, query, shape)
        with nogil:
            vjp.query = self.messages.get().query(name, query.arguments, out)
        return values, vjp

    def query(self, str name):
        """Run a query without arguments and ignore its results, for tests."""
        self.values(name.encode("ascii"), _Query(), (self.batch.scores.n_sequences,), 0)

    cdef object run(self, string name, _Query query):
        """Run a query that writes its results to its arguments."""
        with nogil:
            self.messages.get().query(name, query.arguments, NULL)


@cython.final
cdef class ForwardBackward(_Messages):
    """The implementation of `queries.ForwardBackward`, which documents the methods."""

    def backprop(self, *vjps):
        cdef Vjp vjp
        for vjp, _ in vjps:
            if vjp.owner is not self:
                raise ValueError("vjps: expected callbacks of queries of this object")
        return _gradient(self.batch, vjps)

    cdef object values_of_sequences(self, string name, _Query query, double default):
        """Run a query with one value per sequence. See `values`. Shape: (B,)"""
        return self.values(name, query, (self.batch.scores.n_sequences,), default)

    def log_partition(self):
        return self.values_of_sequences(b"log_partition", _Query(), 0)

    def path_log_prob(self, tags):
        return self.values_of_sequences(b"path_log_prob", _tags_query(self.batch, tags), 0)

    def expectation(self, values):
        return self.values_of_sequences(b"expectation", _values_query(self.batch, values), 0)

    def entropy(self):
        return self.values_of_sequences(b"entropy", _Query(), 0)

    def sample_paths(self, uniform):
        """Sample paths based on uniform random numbers between 0 and 1, one per token. Shapes:
        (n, N)"""
        tags = numpy.zeros(uniform.shape, dtype="int64")
        cdef _Query query = _Query(uniform)
        query.arguments.samples.n = np.PyArray_DIM(uniform, 0)
        query.arguments.samples.uniform = <const double*>np.PyArray_DATA(uniform)
        query.arguments.samples.tags = <int64_t*>np.PyArray_DATA(tags)
        self.run(b"sample_paths", query)
        return tags

    def log_partition_excluding(self, allowed):
        query = _allowed_query(self.batch, allowed)
        return self.values_of_sequences(b"log_partition_excluding", query, -numpy.inf)

    def log_marginals(self, allowed):
        query = _allowed_query(self.batch, allowed)
        shape = (self.batch.scores.n_tokens,)
        return self.values(b"log_marginals", query, shape, -numpy.inf)

    def marginals(self):
        shape = (self.batch.scores.n_tokens, self.batch.scores.n_tags)
        return self.values(b"marginals", _Query(), shape, 0, self.batch.typenum)[0]

    def segment_log_probs(self, segments):
        cdef _Query query = _segments_query(self.batch, segments)
        shape = (query.arguments.segments.n_segments,)
        return self.values(b"segment_log_probs", query, shape, -numpy.inf)

    def entity_probs(self, entities, entity_tags, is_space):
        cdef _Query query = _entities_query(self.batch, entities, entity_tags, is_space)
        return self.values(b"entity_probs", query, (query.arguments.entities.n_entities,), 0)[0]

    def likely_entities(self, double floor, entity_tags, is_space):
        cdef _Query query = _entity_tags_query(self.batch, entity_tags, is_space)
        cdef vector[vector[_LikelyEntity]] entities
        entities.resize(self.batch.scores.n_sequences)
        query.arguments.likely.floor = floor
        query.arguments.likely.entities = &entities
        self.run(b"likely_entities", query)
        return _columns(entities)


@cython.final
cdef class MaxMessages(_Messages):
    """The implementation of `queries.MaxMessages`, which documents the methods."""

    def max_marginals(self):
        shape = (self.batch.scores.n_tokens, self.batch.scores.n_tags)
        return self.values(b"max_marginals", _Query(), shape, 0)[0]

    def best_of_tied(self, log_probs, double tolerance):
        log_probs = _array("", "log_probs", log_probs, FLOATS, np.NPY_DOUBLE, self.batch.emissions.shape)
        tags = numpy.zeros(self.n_tokens, dtype="int64")
        cdef _Query query = _Query(log_probs)
        query.arguments.ties.log_probs = <const double*>np.PyArray_DATA(log_probs)
        query.arguments.ties.tolerance = tolerance
        query.arguments.ties.tags = <int64_t*>np.PyArray_DATA(tags)
        self.run(b"best_of_tied", query)
        return tags

    def segment_max_scores(self, segments):
        cdef _Query query = _segments_query(self.batch, segments)
        shape = (2, query.arguments.segments.n_segments)
        return self.values(b"segment_max_scores", query, shape, -numpy.inf)


# Queries without messages. They are documented in queries.py.


def path_score(potentials, tags):
    cdef _Batch batch = _Batch(potentials)
    cdef _Query path = _tags_query(batch, tags)
    scores = _filled((batch.scores.n_sequences,), 0)
    cdef double* out = <double*>np.PyArray_DATA(scores)
    cdef Vjp vjp = Vjp(None, batch, path, scores.shape)
    with nogil:
        vjp.query = _path_score(batch.scores, path.arguments.allowed.tags, out)
    return scores, vjp


def best_path(potentials):
    return _best(_Batch(potentials), None)


def best_path_excluding(potentials, allowed):
    cdef _Batch batch = _Batch(potentials)
    return _best(batch, _allowed_query(batch, allowed))


cdef object _best(_Batch batch, _Query excluded):
    """Find the best path of each sequence and return its tags, (N,), and score, (B,). `excluded`
    specifies the paths to exclude (see `_allowed_query`), or None to include all paths."""
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
