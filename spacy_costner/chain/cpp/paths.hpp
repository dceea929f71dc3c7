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
template <class Score>
double score_path(const Chain<Score>& chain, int64_t s, const int64_t* tags) {
    const int64_t n_tags = chain.n_tags, begin = chain.begins[s], past = begin + chain.lengths[s];
    if (begin == past) return 0.0;
    double score = static_cast<double>(chain.start[tags[begin]]) + chain.end[tags[past - 1]];
    for (int64_t t = begin; t < past; t++) score += chain.emissions[t * n_tags + tags[t]];
    for (int64_t t = begin + 1; t < past; t++) score += chain.transitions[tags[t - 1] * n_tags + tags[t]];
    return score;
}

// Counts each tag and transition of a path by a weight.
template <class Score>
void add_path(const Chain<Score>& chain, int64_t s, const int64_t* tags, Score weight, Score* d_emissions,
              Score* d_transitions) {
    const int64_t n_tags = chain.n_tags, begin = chain.begins[s], past = begin + chain.lengths[s];
    for (int64_t t = begin; t < past; t++) d_emissions[t * n_tags + tags[t]] += weight;
    for (int64_t t = begin + 1; t < past; t++) d_transitions[tags[t - 1] * n_tags + tags[t]] += weight;
}

template <class Real>
void fill_with_zeros(const Chain<Real>& chain, const Gradient& out) {
    const int64_t n_tags = chain.n_tags;
    std::fill_n(static_cast<Real*>(out.emissions), chain.n_tokens * n_tags, Real(0));
    std::fill_n(static_cast<Real*>(out.transitions), n_tags * n_tags, Real(0));
    std::fill_n(static_cast<Real*>(out.start), n_tags, Real(0));
    std::fill_n(static_cast<Real*>(out.end), n_tags, Real(0));
}

// The start and the end scores' part of a gradient, from the emissions' part.
template <class Real>
void collect_ends(const Chain<Real>& chain, const Real* d_emissions, Real* d_start, Real* d_end) {
    const int n_tags = chain.n_tags;
    std::fill(d_start, d_start + n_tags, Real(0));
    std::fill(d_end, d_end + n_tags, Real(0));
    for (int64_t s = 0; s < chain.n_sequences; s++) {
        if (chain.lengths[s] == 0) continue;
        const Real* first = d_emissions + chain.begins[s] * n_tags;
        const Real* last = first + static_cast<int64_t>(chain.lengths[s] - 1) * n_tags;
        for (int k = 0; k < n_tags; k++) d_start[k] += first[k];
        for (int k = 0; k < n_tags; k++) d_end[k] += last[k];
    }
}

// The score of the path of each sequence with the given tags.
template <class Score>
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
        Score* d_emissions = static_cast<Score*>(out.emissions);
        fill_with_zeros(chain_, out);
        for (int64_t s = 0; s < chain_.n_sequences; s++)
            if (possible_[s])
                add_path(chain_, s, tags_, static_cast<Score>(d_values[0][s]), d_emissions,
                         static_cast<Score*>(out.transitions));
        collect_ends(chain_, d_emissions, static_cast<Score*>(out.start), static_cast<Score*>(out.end));
    }

  private:
    const Chain<Score> chain_;
    const int64_t* const tags_;
    std::vector<char> possible_;
};

}  // namespace costner
