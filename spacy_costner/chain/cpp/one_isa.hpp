// The kernels for one instruction set. No include guard: kernels.cpp includes it for each, in a
// namespace of its own.

#include "vectors.hpp"
#include "matrix.hpp"
#include "rows.hpp"
#include "forward.hpp"
#include "backward.hpp"
#include "propagation.hpp"
#include "forward_backward.hpp"
#include "query.hpp"
#include "expectation.hpp"
#include "excluding.hpp"
#include "segments.hpp"
#include "queries.hpp"
#include "max_product.hpp"
#include "max_messages.hpp"

inline std::unique_ptr<Messages> make_forward_backward(const Potentials& scores, int n_threads) {
    if (scores.wide) return std::make_unique<ForwardBackward<double, double>>(scores, n_threads);
    return std::make_unique<ForwardBackward<float, float>>(scores, n_threads);
}

inline std::unique_ptr<Messages> make_max_messages(const Potentials& scores, int n_threads) {
    if (scores.wide) return std::make_unique<MaxMessages<double>>(scores, n_threads);
    return std::make_unique<MaxMessages<float>>(scores, n_threads);
}

inline void best_path(const Potentials& scores, const Allowed* excluded, int64_t* tags, double* path_scores,
                      int n_threads) {
    if (scores.wide)
        MaxProduct<double>(scores, n_threads).best_path(excluded, tags, path_scores);
    else
        MaxProduct<float>(scores, n_threads).best_path(excluded, tags, path_scores);
}

inline InstructionSet functions(const char* name) { return {name, make_forward_backward, make_max_messages, best_path}; }
