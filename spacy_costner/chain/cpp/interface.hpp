// The functions and classes of the compiled chain, for all instruction sets.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace costner {

// The potentials of a batch as Python passes them, C-contiguous; see types.py.
// B sequences stand one after another; N tokens in all, K tags.
struct Potentials {
    bool wide;                // float64, else float32
    const void* emissions;    // (N, K)
    const void* transitions;  // (K, K), [from, to]
    const void* start;        // (K,)
    const void* end;          // (K,)
    const int32_t* lengths;   // (B,)
    int64_t n_sequences;
    int64_t n_tokens;
    int n_tags;
};

// Where the derivative with respect to each potential goes; shapes and type as in Potentials.
struct Gradient {
    void* emissions;
    void* transitions;
    void* start;
    void* end;
};

// Sum-product of a batch: keeps the forward messages for any number of backward passes.
class SumProduct {
  public:
    virtual ~SumProduct() = default;
    virtual void log_partition(double* log_z) = 0;                          // (B,)
    virtual void backprop(const double* d_log_z, const Gradient& out) = 0;  // (B,)
};

std::unique_ptr<SumProduct> make_sum_product(const Potentials& scores, int n_threads);

// The tags allowed at each token: a mask, (N, K), or one tag a token, (N,).
struct Allowed {
    const uint8_t* mask;  // or null
    const int64_t* tags;
};

// Spans of tokens with given tags; see array/segments.py.
struct Segments {
    const int64_t* begin;   // (S,)
    const int64_t* end;     // (S,)
    const int64_t* tags;    // one segment after another
    const uint8_t* after;   // (S, K), or null
    int64_t n_segments;
};

// The vector-Jacobian product of a query of the posterior; may be called several times. It refers
// to the posterior and to the arrays of the query.
class Query {
  public:
    virtual ~Query() = default;
    virtual void backprop(const double* d_values, const Gradient& out) const = 0;
};

// The distribution of paths: forward and backward messages.
class ForwardBackward {
  public:
    virtual ~ForwardBackward() = default;
    // The sum of the gradients of several queries.
    virtual void backprop(const std::vector<const Query*>& queries, const std::vector<const double*>& d_values,
                          const Gradient& out) const = 0;
    virtual std::unique_ptr<Query> log_partition(double* log_z) const = 0;  // (B,)
    virtual std::unique_ptr<Query> log_marginals(const Allowed& allowed, double* log_p) const = 0;  // (N,)
    virtual std::unique_ptr<Query> expectation(const Potentials& values, double* means) const = 0;  // (B,)
    virtual std::unique_ptr<Query> log_partition_excluding(const Allowed& allowed, double* log_sums) const = 0;  // (B,)
    virtual std::unique_ptr<Query> segment_log_probs(const Segments& segments, double* log_p) const = 0;  // (S,)
};

std::unique_ptr<ForwardBackward> make_forward_backward(const Potentials& scores, int n_threads);

// Max-product messages of both directions.
class MaxMessages {
  public:
    virtual ~MaxMessages() = default;
    virtual void max_marginals(double* scores) = 0;                                 // (N, K)
    virtual std::unique_ptr<Query> segment_max_scores(const Segments& segments, double* scores) = 0;  // (2, S)
};

std::unique_ptr<MaxMessages> make_max_messages(const Potentials& scores, int n_threads);

// The tags of the best path of each sequence, (N,), and its score, (B,).
void best_path(const Potentials& scores, int64_t* tags, double* path_scores, int n_threads);

// The same for the best path outside a set.
void best_path_excluding(const Potentials& scores, const Allowed& allowed, int64_t* tags, double* path_scores,
                  int n_threads);

// The score of the given path of each sequence, (B,).
void path_score(const Potentials& scores, const int64_t* tags, double* path_scores);

// Adds the derivative of the weighted sum of the scores of legal paths.
void add_path_gradient(const Potentials& scores, const int64_t* tags, const double* path_scores,
                       const double* weights, const Gradient& out);
void fill_with_zeros(const Potentials& scores, const Gradient& out);

// The names of the instruction sets that run here, fastest first; and which to use from now on.
std::vector<const char*> instruction_sets();
void use_instruction_set(int which);

}  // namespace costner
