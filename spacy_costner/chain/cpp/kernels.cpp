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

struct InstructionSet {
    const char* name;
    std::unique_ptr<SumProduct> (*make_sum_product)(const Potentials&, int);
    std::unique_ptr<ForwardBackward> (*make_forward_backward)(const Potentials&, int);
    std::unique_ptr<MaxMessages> (*make_max_messages)(const Potentials&, int);
    void (*best_path)(const Potentials&, int64_t*, double*, int);
    void (*best_path_excluding)(const Potentials&, const Allowed&, int64_t*, double*, int);
};

std::vector<InstructionSet> find_instruction_sets() {
    std::vector<InstructionSet> found;
#if ON_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        found.push_back({"avx512", avx512::make_sum_product, avx512::make_forward_backward, avx512::make_max_messages,
                         avx512::best_path, avx512::best_path_excluding});
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        found.push_back({"avx2", avx2::make_sum_product, avx2::make_forward_backward, avx2::make_max_messages,
                         avx2::best_path, avx2::best_path_excluding});
#endif
    found.push_back({"baseline", baseline::make_sum_product, baseline::make_forward_backward, baseline::make_max_messages,
                         baseline::best_path, baseline::best_path_excluding});
    return found;
}

const std::vector<InstructionSet> all_sets = find_instruction_sets();
std::atomic<const InstructionSet*> in_use{&all_sets[0]};

}  // namespace

std::unique_ptr<SumProduct> make_sum_product(const Potentials& scores, int n_threads) {
    return in_use.load()->make_sum_product(scores, n_threads);
}

std::unique_ptr<ForwardBackward> make_forward_backward(const Potentials& scores, int n_threads) {
    return in_use.load()->make_forward_backward(scores, n_threads);
}

std::unique_ptr<MaxMessages> make_max_messages(const Potentials& scores, int n_threads) {
    return in_use.load()->make_max_messages(scores, n_threads);
}

void best_path(const Potentials& scores, int64_t* tags, double* path_scores, int n_threads) {
    in_use.load()->best_path(scores, tags, path_scores, n_threads);
}

void best_path_excluding(const Potentials& scores, const Allowed& allowed, int64_t* tags, double* path_scores,
                  int n_threads) {
    in_use.load()->best_path_excluding(scores, allowed, tags, path_scores, n_threads);
}

void path_score(const Potentials& scores, const int64_t* tags, double* path_scores) {
    if (scores.wide)
        score_paths(Chain<double>(scores), tags, path_scores);
    else
        score_paths(Chain<float>(scores), tags, path_scores);
}

void add_path_gradient(const Potentials& scores, const int64_t* tags, const double* path_scores,
                       const double* weights, const Gradient& out) {
    if (scores.wide)
        add_steps(Chain<double>(scores), tags, path_scores, weights, out);
    else
        add_steps(Chain<float>(scores), tags, path_scores, weights, out);
}

void fill_with_zeros(const Potentials& scores, const Gradient& out) {
    if (scores.wide)
        fill_with_zeros(Chain<double>(scores), out);
    else
        fill_with_zeros(Chain<float>(scores), out);
}

std::vector<const char*> instruction_sets() {
    std::vector<const char*> names;
    for (const InstructionSet& set : all_sets) names.push_back(set.name);
    return names;
}

void use_instruction_set(int which) { in_use = &all_sets[which]; }

}  // namespace costner
