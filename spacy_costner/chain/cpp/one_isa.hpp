// The kernels for one instruction set. No include guard: kernels.cpp includes it for each, in a
// namespace of its own.

#include "vectors.hpp"
#include "matrix.hpp"
#include "rows.hpp"
#include "forward.hpp"
#include "backward.hpp"
#include "propagation.hpp"
#include "forward_backward.hpp"
#include "queries.hpp"
#include "expectation.hpp"
#include "excluding.hpp"
#include "segments.hpp"
#include "max_product.hpp"
#include "max_messages.hpp"

// The queries of the distribution of paths, by name.
template <class Score, class Real>
std::unique_ptr<QueryBase<Score, Real>> make_query(const ForwardBackward<Score, Real>& owner, const std::string& name,
                                                   const Arguments& arguments, double* values) {
    if (name == "log_partition") return std::make_unique<LogPartition<Score, Real>>(owner, nullptr, values);
    if (name == "path_log_prob") return std::make_unique<LogPartition<Score, Real>>(owner, arguments.allowed.tags, values);
    if (name == "log_marginals") return std::make_unique<LogMarginals<Score, Real>>(owner, arguments.allowed, values);
    if (name == "expectation") return std::make_unique<Expectation<Score, Real>>(owner, *arguments.values, values);
    if (name == "log_partition_excluding") return std::make_unique<Excluding<Score, Real>>(owner, arguments.allowed, values);
    return std::make_unique<SegmentLogProbs<Score, Real>>(owner, arguments.segments, values);
}

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
