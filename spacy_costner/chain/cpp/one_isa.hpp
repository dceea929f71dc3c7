// The kernels for one instruction set, in the namespace that includes this file. The included files therefore have no
// include guards. A product keeps ROWS rows of messages and PANEL vectors per row in registers, e.g. 6 times 2 results
// with 16 registers.

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
#include "entities.hpp"
#include "queries.hpp"
#include "max_product.hpp"
#include "max_messages.hpp"

inline std::unique_ptr<Messages> make_forward_backward(const Potentials& scores, int n_threads) {
    if (scores.wide) return std::make_unique<ForwardBackward<double>>(scores, n_threads);
    return std::make_unique<ForwardBackward<float>>(scores, n_threads);
}

inline std::unique_ptr<Messages> make_max_messages(const Potentials& scores, int n_threads) {
    return std::make_unique<MaxMessages>(scores, n_threads);
}

inline void best_path(const Potentials& scores, const Allowed* excluded, int64_t* tags, double* path_scores,
                      int n_threads) {
    MaxProduct(scores, n_threads).best_path(excluded, tags, path_scores);
}
