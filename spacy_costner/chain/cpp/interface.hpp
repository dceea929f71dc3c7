// What the compiled chain offers to Cython, whichever instruction set runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace costner {

// The potentials of a batch as Python hands them over, C-contiguous; see types.py.
// B sequences stand one after another; N tokens in all, K tags.
struct Scores {
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

// Where the derivative with respect to each potential goes; shapes and type as in Scores.
struct Gradient {
    void* emissions;
    void* transitions;
    void* start;
    void* end;
};

// Sums over all paths of a batch: forward messages kept for as many backward passes as asked.
class SumProduct {
  public:
    virtual ~SumProduct() = default;
    virtual void log_partition(double* log_z) = 0;                          // (B,)
    virtual void backprop(const double* d_log_z, const Gradient& out) = 0;  // (B,)
};

std::unique_ptr<SumProduct> make_sum_product(const Scores& scores, int n_threads);

// Sets of tags, one a token: truth values, (N, K), or the tag of each set of one, (N,).
struct Sets {
    const uint8_t* truths;  // or null
    const int64_t* tags;
};

// Runs of tokens with given tags; see `Segments`.
struct Runs {
    const int64_t* begin;   // (S,)
    const int64_t* end;     // (S,)
    const int64_t* tags;    // one run after another
    const uint8_t* after;   // (S, K), or null
    int64_t n_runs;
};

// A question that was asked of a posterior, for as many ways back as asked. It holds on to the
// posterior and to the arrays that came with it.
class Query {
  public:
    virtual ~Query() = default;
    virtual void backprop(const double* d_answers, const Gradient& out) const = 0;
};

// The distribution of paths: messages from both sides.
class ForwardBackward {
  public:
    virtual ~ForwardBackward() = default;
    // The gradient of some answers together.
    virtual void backprop(const std::vector<const Query*>& asked, const std::vector<const double*>& d_answers,
                          const Gradient& out) const = 0;
    virtual std::unique_ptr<Query> log_partition(double* log_z) const = 0;                              // (B,)
    virtual std::unique_ptr<Query> log_marginals(const Sets& allowed, double* log_p) const = 0;         // (N,)
    virtual std::unique_ptr<Query> expectation(const Scores& values, double* means) const = 0;          // (B,)
    virtual std::unique_ptr<Query> outside(const Sets& allowed, double* log_sums) const = 0;            // (B,)
    virtual std::unique_ptr<Query> segments(const Runs& runs, double* log_p) const = 0;                 // (S,)
};

std::unique_ptr<ForwardBackward> make_forward_backward(const Scores& scores, int n_threads);

// The best paths: messages from both sides.
class MaxMessages {
  public:
    virtual ~MaxMessages() = default;
    virtual void max_marginals(double* scores) = 0;                                 // (N, K)
    virtual std::unique_ptr<Query> segments(const Runs& runs, double* scores) = 0;  // (2, S)
};

std::unique_ptr<MaxMessages> make_max_messages(const Scores& scores, int n_threads);

// The tags of the best path of each sequence, (N,), and its score, (B,).
void best_path(const Scores& scores, int64_t* tags, double* path_scores, int n_threads);

// The same of the best that leaves a set at least once.
void best_path_excluding(const Scores& scores, const Sets& allowed, int64_t* tags, double* path_scores,
                  int n_threads);

// The score of the given path of each sequence, (B,).
void path_score(const Scores& scores, const int64_t* tags, double* path_scores);

// Adds the derivative of the weighted sum of the scores of legal paths.
void add_path_gradient(const Scores& scores, const int64_t* tags, const double* path_scores,
                       const double* weights, const Gradient& out);
void fill_with_zeros(const Scores& scores, const Gradient& out);

// The names of the instruction sets that run here, fastest first; and which to use from now on.
std::vector<const char*> instruction_sets();
void use_instruction_set(int which);

}  // namespace costner
