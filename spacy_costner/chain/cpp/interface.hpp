// The functions and classes of the compiled chain, for all instruction sets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
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

// The tags allowed at each token: a mask, (N, K), or one tag a token, (N,).
struct Allowed {
    const uint8_t* mask;  // or null
    const int64_t* tags;
};

// Spans of tokens with given tags: see queries.py.
struct Segments {
    const int64_t* begin;   // (S,)
    const int64_t* end;     // (S,)
    const int64_t* tags;    // one segment after another
    const uint8_t* after;   // (S, K), or null
    int64_t n_segments;
};

// Where sampled paths go, and what they are drawn by.
struct Samples {
    int64_t n;              // for each sequence
    const double* uniform;  // (n, N), from 0 to 1
    int64_t* tags;          // (n, N)
};

// Where the paths of queries that choose among ties go, and what they choose by.
struct Ties {
    const double* log_probs;  // (N, K)
    double tolerance;         // at each token
    int64_t* tags;            // (N,)
};

// What makes an entity of tags: see EntityTags in types.py; and which tokens are whitespace, (N,), or null.
struct EntityTags {
    const int64_t* label_of;  // (K,), -1 for O
    const uint8_t* opening;   // (K,)
    const uint8_t* closing;   // (K,)
    const uint8_t* inside;    // (K, K), [from, to]
    const uint8_t* is_space;
};

// Spans of tokens with a label.
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

// The least probability of entities to search for, and where those of each sequence go, (B,).
struct LikelySearch {
    double floor;
    std::vector<std::vector<LikelyEntity>>* entities;
};

// What queries are about: each takes its part.
struct Arguments {
    Allowed allowed;           // a set of paths, or a path, by its tags
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

// The vector-Jacobian product of a query; may be called several times. It refers to the messages and to the
// arguments.
class Query {
  public:
    virtual ~Query() = default;
    // The sum of the gradients of queries of the same messages, this one among them.
    virtual void backprop(const Queries& queries, const Derivatives& d_values, const Gradient& out) const = 0;
};

// The messages of a batch, for several queries: queries.hpp and max_messages.hpp have their names.
class Messages {
  public:
    virtual ~Messages() = default;
    // Sets the values of a query: numbers of the type of the scores for `marginals`, none for paths, which the
    // arguments have room for. RETURNS its gradient, null if it has none.
    virtual std::unique_ptr<Query> query(const std::string& name, const Arguments& arguments,
                                         double* values) const = 0;
};

std::unique_ptr<Messages> make_forward_backward(const Potentials& scores, int n_threads);
std::unique_ptr<Messages> make_max_messages(const Potentials& scores, int n_threads);

// The score of the given path of each sequence, (B,).
std::unique_ptr<Query> path_score(const Potentials& scores, const int64_t* tags, double* path_scores);

// The tags of the best path of each sequence, (N,), and its score, (B,); outside a set, unless it is null.
void best_path(const Potentials& scores, const Allowed* excluded, int64_t* tags, double* path_scores, int n_threads);

// The tags of the k best paths of each sequence, (k, N), and their scores, (k, B), the best first.
void k_best(const Potentials& scores, int64_t k, int64_t* tags, double* path_scores, int n_threads);

// The names of the instruction sets that run here, fastest first; and which to use from now on.
std::vector<const char*> instruction_sets();
void use_instruction_set(int which);

}  // namespace costner
