// The functions and classes of the compiled chain, independent of the instruction set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace costner {

// The C-contiguous potentials of a batch, as passed by Python. See types.py. B sequences are concatenated, with N
// tokens in total and K tags.
struct Potentials {
    bool wide;                // float64 if true, otherwise float32
    const void* emissions;    // (N, K)
    const void* transitions;  // (K, K), [from, to]
    const void* start;        // (K,)
    const void* end;          // (K,)
    const int32_t* lengths;   // (B,)
    int64_t n_sequences;
    int64_t n_tokens;
    int n_tags;
};

// The output arrays for the derivative with respect to each potential, with the same shapes and type as in Potentials.
struct Gradient {
    void* emissions;
    void* transitions;
    void* start;
    void* end;
};

// The tags allowed at each token: a mask, (N, K), or one tag per token, (N,).
struct Allowed {
    const uint8_t* mask;  // or null
    const int64_t* tags;
};

// Spans of tokens with given tags. See queries.py.
struct Segments {
    const int64_t* begin;   // (S,)
    const int64_t* end;     // (S,)
    const int64_t* tags;    // concatenated
    const uint8_t* after;   // (S, K), or null
    int64_t n_segments;
};

// The output array for sampled paths, and the random numbers.
struct Samples {
    int64_t n;              // the number of paths per sequence
    const double* uniform;  // (n, N), between 0 and 1
    int64_t* tags;          // (n, N)
};

// The arguments and the output array of queries that break ties between paths.
struct Ties {
    const double* log_probs;  // (N, K)
    double tolerance;         // at each token
    int64_t* tags;            // (N,)
};

// The tags that form entities (see EntityTags in types.py), and the whitespace tokens, (N,), or null.
struct EntityTags {
    const int64_t* label_of;  // (K,), -1 for O
    const uint8_t* opening;   // (K,)
    const uint8_t* closing;   // (K,)
    const uint8_t* inside;    // (K, K), [from, to]
    const uint8_t* is_space;
};

// Labeled spans of tokens.
struct Entities {
    const int64_t* begin;  // (E,)
    const int64_t* end;    // (E,)
    const int64_t* label;  // (E,)
    int64_t n_entities;
};

struct LikelyEntity {
    int64_t begin, end, label;
    double prob;
};

// The minimum probability of entities to find, and the output lists for each sequence, (B,).
struct LikelySearch {
    double floor;
    std::vector<std::vector<LikelyEntity>>* entities;
};

// The arguments of queries. Each query uses only some of them.
struct Arguments {
    Allowed allowed;           // a set of paths, or a single path, defined by its tags
    Segments segments;
    Samples samples;
    Ties ties;
    const Potentials* values;  // of tags and transitions
    EntityTags entity_tags;
    Entities entities;
    LikelySearch likely;
};

class Query;
using Queries = std::vector<const Query*>;
using Derivatives = std::vector<const double*>;  // with respect to the values of each query

// The vector-Jacobian product of a query. It can be called several times. It refers to the messages and the arguments,
// which have to be kept alive.
class Query {
  public:
    virtual ~Query() = default;
    // Computes the sum of the gradients of queries on the same messages, including this query.
    virtual void backprop(const Queries& queries, const Derivatives& d_values, const Gradient& out) const = 0;
};

// The messages of a batch, used by several queries. See queries.hpp and max_messages.hpp for the names of queries.
class Messages {
  public:
    virtual ~Messages() = default;
    // Computes the values of a query. For `marginals`, they have the type of the scores. Paths are written to the
    // arguments instead. RETURNS the gradient, or null if there is none.
    virtual std::unique_ptr<Query> query(const std::string& name, const Arguments& arguments,
                                         double* values) const = 0;
};

std::unique_ptr<Messages> make_forward_backward(const Potentials& scores, int n_threads);
std::unique_ptr<Messages> make_max_messages(const Potentials& scores, int n_threads);

// Computes the score of the given path of each sequence, (B,).
std::unique_ptr<Query> path_score(const Potentials& scores, const int64_t* tags, double* path_scores);

// Finds the best path of each sequence, and writes its tags, (N,), and score, (B,). Paths in `excluded` are excluded,
// unless it is null.
void best_path(const Potentials& scores, const Allowed* excluded, int64_t* tags, double* path_scores, int n_threads);

// Finds the k best paths of each sequence, best first, and writes their tags, (k, N), and scores, (k, B).
void k_best(const Potentials& scores, int64_t k, int64_t* tags, double* path_scores, int n_threads);

// The names of the instruction sets supported by this machine, fastest first, and the function to select one.
std::vector<const char*> instruction_sets();
void use_instruction_set(int which);

}  // namespace costner
