// The kernels that run on any machine.

#include "kernels.hpp"

namespace costner {
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

const InstructionSet baseline_kernels = {"baseline", baseline::make_forward_backward, baseline::make_max_messages,
                                         baseline::best_path};

}  // namespace costner
