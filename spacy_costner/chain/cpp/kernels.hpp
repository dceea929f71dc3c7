// The interface of the code that is compiled once per instruction set, and the headers that it includes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "chain.hpp"
#include "extended.hpp"
#include "interface.hpp"
#include "memory.hpp"
#include "paths.hpp"
#include "segment_arrays.hpp"
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

struct InstructionSet {
    const char* name;
    std::unique_ptr<Messages> (*make_forward_backward)(const Potentials&, int);
    std::unique_ptr<Messages> (*make_max_messages)(const Potentials&, int);
    void (*best_path)(const Potentials&, const Allowed*, int64_t*, double*, int);
};

#if ON_X86
extern const InstructionSet avx2_kernels;
#endif
extern const InstructionSet baseline_kernels;

}  // namespace costner
