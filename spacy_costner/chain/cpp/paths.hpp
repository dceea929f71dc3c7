// The score of given paths, and its gradient.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "chain.hpp"

namespace costner {

// s(y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_{t-1}, y_t] + end[y_T]
inline double score_path(const Chain& chain, int64_t s, const int64_t* tags) {
    const int64_t n_tags = chain.n_tags, begin = chain.begins[s], past = begin + chain.lengths[s];
    if (begin == past) return 0.0;
    double score = chain.start[tags[begin]] + chain.end[tags[past - 1]];
    for (int64_t t = begin; t < past; t++) score += chain.emissions[t * n_tags + tags[t]];
    for (int64_t t = begin + 1; t < past; t++) score += chain.transitions[tags[t - 1] * n_tags + tags[t]];
    return score;
}

// Adds a weight to the count of each tag and transition of a path.
inline void add_path(const Chain& chain, int64_t s, const int64_t* tags, double weight, const Floats& d_emissions,
                     const Floats& d_transitions) {
    const int64_t n_tags = chain.n_tags, begin = chain.begins[s], past = begin + chain.lengths[s];
    for (int64_t t = begin; t < past; t++) d_emissions.add(t * n_tags + tags[t], weight);
    for (int64_t t = begin + 1; t < past; t++) d_transitions.add(tags[t - 1] * n_tags + tags[t], weight);
}

// Computes the start and end gradients from the emission gradient.
inline void collect_ends(const Chain& chain, const Floats& d_emissions, const Gradient& out) {
    const int64_t n_tags = chain.n_tags;
    const Floats d_start = {out.start, d_emissions.wide}, d_end = {out.end, d_emissions.wide};
    d_start.clear(0, n_tags);
    d_end.clear(0, n_tags);
    for (int64_t s = 0; s < chain.n_sequences; s++) {
        if (chain.lengths[s] == 0) continue;
        for (int64_t k = 0; k < n_tags; k++) {
            d_start.add(k, d_emissions[chain.begins[s] * n_tags + k]);
            d_end.add(k, d_emissions[(chain.past(s) - 1) * n_tags + k]);
        }
    }
}

// The score of the path with the given tags for each sequence.
class PathScore final : public Query {
  public:
    PathScore(const Potentials& scores, const int64_t* tags, double* path_scores)
        : chain_(scores), tags_(tags), possible_(scores.n_sequences) {
        for (int64_t s = 0; s < chain_.n_sequences; s++) {
            path_scores[s] = score_path(chain_, s, tags);
            possible_[s] = std::isfinite(path_scores[s]);
        }
    }

    void backprop(const Queries&, const Derivatives& d_values, const Gradient& out) const override {
        const bool wide = chain_.emissions.wide;
        const Floats d_emissions = {out.emissions, wide}, d_transitions = {out.transitions, wide};
        d_emissions.clear(0, chain_.n_tokens * chain_.n_tags);
        d_transitions.clear(0, static_cast<int64_t>(chain_.n_tags) * chain_.n_tags);
        for (int64_t s = 0; s < chain_.n_sequences; s++)
            if (possible_[s]) add_path(chain_, s, tags_, d_values[0][s], d_emissions, d_transitions);
        collect_ends(chain_, d_emissions, out);
    }

  private:
    const Chain chain_;
    const int64_t* const tags_;
    std::vector<char> possible_;
};

}  // namespace costner
