// The kernels for one instruction set. No include guard: kernels.cpp includes it for each, in a
// namespace of its own.

#include "vectors.hpp"
#include "matrix.hpp"
#include "rows.hpp"
#include "sum_product.hpp"
#include "posterior.hpp"
#include "queries.hpp"
#include "expectation.hpp"
#include "excluding.hpp"
#include "segments.hpp"
#include "max_product.hpp"
#include "max_messages.hpp"

inline std::unique_ptr<SumProduct> make_sum_product(const Potentials& scores, int n_threads) {
    if (scores.wide) return std::make_unique<SumProductOf<double, double>>(scores, n_threads);
    return std::make_unique<SumProductOf<float, float>>(scores, n_threads);
}

inline std::unique_ptr<ForwardBackward> make_forward_backward(const Potentials& scores, int n_threads) {
    if (scores.wide) return std::make_unique<PosteriorOf<double, double>>(scores, n_threads);
    return std::make_unique<PosteriorOf<float, float>>(scores, n_threads);
}

inline std::unique_ptr<MaxMessages> make_max_messages(const Potentials& scores, int n_threads) {
    if (scores.wide) return std::make_unique<MaxMessagesOf<double>>(scores, n_threads);
    return std::make_unique<MaxMessagesOf<float>>(scores, n_threads);
}

inline void best_path(const Potentials& scores, int64_t* tags, double* path_scores, int n_threads) {
    if (scores.wide)
        MaxProduct<double>(scores, n_threads).best_path(tags, path_scores);
    else
        MaxProduct<float>(scores, n_threads).best_path(tags, path_scores);
}

inline void best_path_excluding(const Potentials& scores, const Allowed& allowed, int64_t* tags, double* path_scores,
                         int n_threads) {
    if (scores.wide)
        MaxProduct<double>(scores, n_threads).best_path_excluding(allowed, tags, path_scores);
    else
        MaxProduct<float>(scores, n_threads).best_path_excluding(allowed, tags, path_scores);
}
