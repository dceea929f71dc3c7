// The kernels for 256-bit vectors. Their includes are compiled for every machine, so they come first.

#include "kernels.hpp"

#if ON_X86
namespace costner {
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

}  // namespace avx2

const InstructionSet avx2_kernels = {"avx2", avx2::make_forward_backward, avx2::make_max_messages, avx2::best_path};

}  // namespace costner
#endif
