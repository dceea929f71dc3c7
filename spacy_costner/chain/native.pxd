"""The C++ declarations from cpp/ used by native.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.memory cimport unique_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

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

    cdef struct _Allowed "costner::Allowed":
        const uint8_t* mask
        const int64_t* tags

    cdef struct _Segments "costner::Segments":
        const int64_t* begin
        const int64_t* end
        const int64_t* tags
        const uint8_t* after
        int64_t n_segments

    cdef struct _Samples "costner::Samples":
        int64_t n
        const double* uniform
        int64_t* tags

    cdef struct _Ties "costner::Ties":
        const double* log_probs
        double tolerance
        int64_t* tags

    cdef struct _EntityTags "costner::EntityTags":
        const int64_t* label_of
        const uint8_t* opening
        const uint8_t* closing
        const uint8_t* inside
        const uint8_t* is_space

    cdef struct _Entities "costner::Entities":
        const int64_t* begin
        const int64_t* end
        const int64_t* label
        int64_t n_entities

    cdef struct _LikelyEntity "costner::LikelyEntity":
        int64_t begin
        int64_t end
        int64_t label
        double prob

    cdef struct _LikelySearch "costner::LikelySearch":
        double floor
        vector[vector[_LikelyEntity]]* entities

    cdef struct _Arguments "costner::Arguments":
        _Allowed allowed
        _Segments segments
        _Samples samples
        _Ties ties
        const _Potentials* values
        _EntityTags entity_tags
        _Entities entities
        _LikelySearch likely

    cdef cppclass Query:
        void backprop(const vector[const Query*]&, const vector[const double*]&, const Gradient&) except +

    cdef cppclass Messages:
        unique_ptr[Query] query(const string& name, const _Arguments&, double* values) except +

    unique_ptr[Messages] make_forward_backward(const _Potentials&, int n_threads) except +
    unique_ptr[Messages] make_max_messages(const _Potentials&, int n_threads) except +
    unique_ptr[Query] _path_score "costner::path_score"(
        const _Potentials&, const int64_t* tags, double* scores
    ) except +
    void _best_path "costner::best_path"(
        const _Potentials&, const _Allowed* excluded, int64_t* tags, double* scores, int n_threads
    ) except +
    void _k_best "costner::k_best"(
        const _Potentials&, int64_t k, int64_t* tags, double* scores, int n_threads
    ) except +
    vector[const char*] _instruction_sets "costner::instruction_sets"()
    void _use_instruction_set "costner::use_instruction_set"(int which)

cdef extern from "cpp/segment_arrays.hpp" namespace "costner" nogil:
    cbool are_lengths(const int64_t* lengths, int64_t n, int64_t n_tokens)
    cbool are_tags(const int64_t* tags, int64_t n, int n_tags)
    cbool are_segments(const _Segments&, int64_t n, const _Potentials&)
    cbool are_entities(const _Entities&, int64_t n_tokens)
