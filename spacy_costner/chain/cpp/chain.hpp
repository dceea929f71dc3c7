// A batch of chains, and the order in which its tags are stored and its sequences are processed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "function_ref.hpp"
#include "interface.hpp"

namespace costner {

// Scores passed by Python, float32 or float64.
struct Scores {
    const void* first;
    bool wide;  // float64

    template <class Score>
    const Score* as() const { return static_cast<const Score*>(first); }
    double operator[](int64_t i) const { return wide ? as<double>()[i] : as<float>()[i]; }
};

// Derivatives returned to Python, float32 or float64.
struct Floats {
    void* first;
    bool wide;

    template <class Score>
    Score* as() const { return static_cast<Score*>(first); }
    double operator[](int64_t i) const { return wide ? as<double>()[i] : as<float>()[i]; }
    void add(int64_t i, double x) const {
        if (wide) as<double>()[i] += x;
        else as<float>()[i] += static_cast<float>(x);
    }
    void clear(int64_t begin, int64_t n) const {
        if (wide) std::fill_n(as<double>() + begin, n, 0.0);
        else std::fill_n(as<float>() + begin, n, 0.0f);
    }
};

// The potentials of a batch, and the first token of each sequence.
struct Chain {
    const Scores emissions, transitions, start, end;
    const int32_t* const lengths;
    std::vector<int64_t> begins;  // the first token of each sequence
    const int64_t n_sequences, n_tokens;
    const int n_tags;

    explicit Chain(const Potentials& scores)
        : emissions{scores.emissions, scores.wide},
          transitions{scores.transitions, scores.wide},
          start{scores.start, scores.wide},
          end{scores.end, scores.wide},
          lengths(scores.lengths),
          begins(scores.n_sequences),
          n_sequences(scores.n_sequences),
          n_tokens(scores.n_tokens),
          n_tags(scores.n_tags) {
        int64_t token = 0;
        for (int64_t s = 0; s < n_sequences; s++) {
            begins[s] = token;
            token += lengths[s];
        }
    }

    int64_t past(int64_t s) const { return begins[s] + lengths[s]; }  // the token after the last token of a sequence
};

// Returns the order in which the kernels store the tags: order[p] is the tag at position p. Tags with the same numbers
// of incoming and outgoing transitions are grouped, so that forbidden transitions leave entire panels of the matrix
// empty. For BILUO, the order is all I, all L, all B, then O and all U. If there are only a few panels, none of them
// would be empty, and the order is not changed.
std::vector<int> order_tags(const Chain& chain, bool has_many_panels);

// Sequences that are processed in parallel, longest first.
struct Group {
    const int64_t* sequences;  // their indices in the batch
    int size;
};

// Returns a group without the sequences that underflow. The indices of the remaining sequences are written to `kept`.
inline Group without(const Group& group, const char* underflow, int64_t* kept) {
    Group others = {kept, 0};
    for (int r = 0; r < group.size; r++)
        if (!underflow[group.sequences[r]]) kept[others.size++] = group.sequences[r];
    return others;
}

// Returns the position of each tag, i.e. the inverse of order_tags.
inline std::vector<int> places_in(const std::vector<int>& order) {
    std::vector<int> places(order.size());
    for (std::size_t p = 0; p < order.size(); p++) places[order[p]] = static_cast<int>(p);
    return places;
}

// A range of numbers in an array.
template <class Number>
struct Range {
    const Number *first, *past;

    const Number* begin() const { return first; }
    const Number* end() const { return past; }
    int64_t size() const { return past - first; }
};

// Checks whether any element of a mask is true.
inline bool any(const std::vector<char>& mask) {
    return std::find(mask.begin(), mask.end(), 1) != mask.end();
}

// Negates a mask.
inline std::vector<char> none_of(std::vector<char> mask) {
    for (char& truth : mask) truth = !truth;
    return mask;
}

// Divides sequences into groups of similar length, to avoid that short sequences wait for the longest one. Empty
// sequences are not in any group.
class Schedule {
  public:
    // left_out: Whether each sequence is excluded because it is processed elsewhere. If empty, none is excluded.
    Schedule(const int32_t* lengths, int64_t n_sequences, int most_rows, int n_threads,
             const std::vector<char>& left_out = {});
    Schedule(const Schedule&) = delete;

    const std::vector<Group>& groups() const { return groups_; }

    // Returns the number of tokens in the largest group, i.e. the number of rows of memory needed per thread.
    int64_t most_tokens_in_a_group(const int32_t* lengths) const;

  private:
    std::vector<int64_t> order_;
    std::vector<Group> groups_;
};

// Calls work(group, thread) for every group. Thread i processes the groups i, i + n_threads, and so on, so the results
// don't depend on timing. If the system can't start more threads, the current thread does the remaining work.
void in_threads(const std::vector<Group>& groups, int n_threads, FunctionRef<void(const Group&, int)> work);

}  // namespace costner
