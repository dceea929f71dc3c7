// The score of given paths, and its gradient.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "chain.hpp"

namespace costner {

// s(y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_{t-1}, y_t] + end[y_T]
template <class Real>
void score_paths(const Chain<Real>& chain, const int64_t* tags, double* scores) {
    const int64_t n_tags = chain.n_tags;
    for (int64_t s = 0; s < chain.n_sequences; s++) {
        const int64_t begin = chain.begins[s], past = begin + chain.lengths[s];
        scores[s] = 0.0;
        if (begin == past) continue;
        double score = static_cast<double>(chain.start[tags[begin]]) + chain.end[tags[past - 1]];
        for (int64_t t = begin; t < past; t++) score += chain.emissions[t * n_tags + tags[t]];
        for (int64_t t = begin + 1; t < past; t++)
            score += chain.transitions[tags[t - 1] * n_tags + tags[t]];
        scores[s] = score;
    }
}

template <class Real>
void fill_with_zeros(const Chain<Real>& chain, const Gradient& out) {
    const int64_t n_tags = chain.n_tags;
    std::fill_n(static_cast<Real*>(out.emissions), chain.n_tokens * n_tags, Real(0));
    std::fill_n(static_cast<Real*>(out.transitions), n_tags * n_tags, Real(0));
    std::fill_n(static_cast<Real*>(out.start), n_tags, Real(0));
    std::fill_n(static_cast<Real*>(out.end), n_tags, Real(0));
}

// Adds the derivative of sum_s weights[s] s(y_s), over legal paths: each tag and transition of a
// path counts its weight.
template <class Real>
void add_steps(const Chain<Real>& chain, const int64_t* tags, const double* scores,
               const double* weights, const Gradient& out) {
    const int64_t n_tags = chain.n_tags;
    Real* d_emissions = static_cast<Real*>(out.emissions);
    Real* d_transitions = static_cast<Real*>(out.transitions);
    for (int64_t s = 0; s < chain.n_sequences; s++) {
        const int64_t begin = chain.begins[s], past = begin + chain.lengths[s];
        if (begin == past || !std::isfinite(scores[s])) continue;
        const Real weight = static_cast<Real>(weights[s]);
        static_cast<Real*>(out.start)[tags[begin]] += weight;
        static_cast<Real*>(out.end)[tags[past - 1]] += weight;
        for (int64_t t = begin; t < past; t++) d_emissions[t * n_tags + tags[t]] += weight;
        for (int64_t t = begin + 1; t < past; t++)
            d_transitions[tags[t - 1] * n_tags + tags[t]] += weight;
    }
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

}  // namespace costner
