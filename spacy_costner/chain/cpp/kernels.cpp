// Compiles the kernels once for each instruction set and selects one at run time, so that one
// binary runs on every machine and uses its fastest instructions.
//
// ROWS and PANEL are the rows of messages and the vectors of a row that one product keeps in
// registers: with 16 registers 6 times 2 results, with 32 of them 8 times 2.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "chain.hpp"
#include "interface.hpp"
#include "extended.hpp"
#include "memory.hpp"
#include "paths.hpp"
#include "segment_arrays.hpp"
#include "tag_order.hpp"
#include "tag_sets.hpp"

#if defined(__GNUC__)
#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))
#else
#define INLINE inline
#define INLINE_LAMBDA
#endif

#ifndef ON_X86
#if defined(__GNUC__) && defined(__x86_64__)
#define ON_X86 1
#else
#define ON_X86 0
#endif
#endif

namespace costner {

namespace {

// The functions that are compiled for each instruction set.
struct InstructionSet {
    const char* name;
    std::unique_ptr<Messages> (*make_forward_backward)(const Potentials&, int);
    std::unique_ptr<Messages> (*make_max_messages)(const Potentials&, int);
    void (*best_path)(const Potentials&, const Allowed*, int64_t*, double*, int);
};

}  // namespace

#if ON_X86
namespace avx512 {
#define VECTOR_BYTES 64
#define ROWS 8
#define PANEL 2
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,fma"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,fma")
#endif
#include "one_isa.hpp"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef VECTOR_BYTES
#undef ROWS
#undef PANEL
}  // namespace avx512

namespace avx2 {
#define VECTOR_BYTES 32
#define ROWS 6
#define PANEL 2
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#include "one_isa.hpp"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef VECTOR_BYTES
#undef ROWS
#undef PANEL
}  // namespace avx2
#endif

namespace baseline {
#if defined(__GNUC__)
#define VECTOR_BYTES 16
#else
#define VECTOR_BYTES 0
#endif
#define ROWS 4
#define PANEL 2
#include "one_isa.hpp"
}  // namespace baseline

namespace {

std::vector<InstructionSet> find_instruction_sets() {
    std::vector<InstructionSet> found;
#if ON_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        found.push_back(avx512::functions("avx512"));
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back(avx2::functions("avx2"));
#endif
    found.push_back(baseline::functions("baseline"));
    return found;
}

const std::vector<InstructionSet> all_sets = find_instruction_sets();
std::atomic<const InstructionSet*> in_use{&all_sets[0]};

}  // namespace

std::unique_ptr<Messages> make_forward_backward(const Potentials& scores, int n_threads) {
    return in_use.load()->make_forward_backward(scores, n_threads);
}

std::unique_ptr<Messages> make_max_messages(const Potentials& scores, int n_threads) {
    return in_use.load()->make_max_messages(scores, n_threads);
}

void best_path(const Potentials& scores, const Allowed* excluded, int64_t* tags, double* path_scores, int n_threads) {
    in_use.load()->best_path(scores, excluded, tags, path_scores, n_threads);
}

std::unique_ptr<Query> path_score(const Potentials& scores, const int64_t* tags, double* path_scores) {
    if (scores.wide) return std::make_unique<PathScore<double>>(scores, tags, path_scores);
    return std::make_unique<PathScore<float>>(scores, tags, path_scores);
}

std::vector<const char*> instruction_sets() {
    std::vector<const char*> names;
    for (const InstructionSet& set : all_sets) names.push_back(set.name);
    return names;
}

void use_instruction_set(int which) { in_use = &all_sets[which]; }

}  // namespace costner
