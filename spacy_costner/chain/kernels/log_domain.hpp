// Sums over all paths of one sequence in the log domain and in float64: slow, and right for
// any scores. What scaled messages cannot do comes here.
//
//     alpha_t[j]    = log sum_i exp(alpha_{t-1}[i] + transitions[i, j]) + emissions[t, j]
//     beta_{t-1}[i] = log sum_j exp(transitions[i, j] + emissions[t, j] + beta_t[j])
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "chain.hpp"

namespace costner {

template <class Real>
class LogDomain {
  public:
    LogDomain(const Chain<Real>& chain, int64_t sequence)
        : chain_(chain), n_tags_(chain.n_tags), length_(chain.lengths[sequence]),
          begin_(chain.begins[sequence]), terms_(chain.n_tags),
          emissions_(static_cast<std::size_t>(length_) * chain.n_tags), alpha_(emissions_.size()) {
        const Real* from = chain.emissions + begin_ * n_tags_;
        for (std::size_t i = 0; i < emissions_.size(); i++) emissions_[i] = from[i];
        for (int k = 0; k < n_tags_; k++) {
            emissions_[k] += chain.start[k];
            emissions_[(length_ - 1) * n_tags_ + k] += chain.end[k];
        }
        forward();
    }

    double log_partition() {
        return log_sum_exp([&](int k) { return alpha_[(length_ - 1) * n_tags_ + k]; });
    }

    // Sets the emissions' part of the gradient, adds the transitions' part.
    void backprop(double weight, Real* d_emissions, Real* d_transitions) {
        const double log_z = log_partition();
        std::vector<double> beta(n_tags_, 0.0);
        for (int64_t t = length_ - 1; t >= 0; t--) {
            const double* alpha = &alpha_[t * n_tags_];
            for (int k = 0; k < n_tags_; k++)
                d_emissions[(begin_ + t) * n_tags_ + k] =
                    static_cast<Real>(weight * probability(alpha[k] + beta[k], log_z));
            if (t > 0) step_back(t, weight, log_z, beta, d_transitions);
        }
    }

  private:
    void forward() {
        for (int64_t t = 0; t < length_; t++)
            for (int j = 0; j < n_tags_; j++) {
                double& alpha = alpha_[t * n_tags_ + j];
                alpha = emissions_[t * n_tags_ + j];
                if (t == 0) continue;
                const double* before = &alpha_[(t - 1) * n_tags_];
                alpha += log_sum_exp([&](int i) { return before[i] + transition(i, j); });
            }
    }

    // From beta at t to beta at t - 1, with the pairs between them.
    void step_back(int64_t t, double weight, double log_z, std::vector<double>& beta,
                   Real* d_transitions) {
        for (int j = 0; j < n_tags_; j++) beta[j] += emissions_[t * n_tags_ + j];
        const std::vector<double> ahead = beta;
        const double* before = &alpha_[(t - 1) * n_tags_];
        for (int i = 0; i < n_tags_; i++) {
            for (int j = 0; j < n_tags_; j++)
                d_transitions[i * n_tags_ + j] += static_cast<Real>(
                    weight * probability(before[i] + transition(i, j) + ahead[j], log_z));
            beta[i] = log_sum_exp([&](int j) { return transition(i, j) + ahead[j]; });
        }
    }

    double transition(int i, int j) const { return chain_.transitions[i * n_tags_ + j]; }

    static double probability(double log_sum, double log_z) {
        return log_z == -INFINITY ? 0.0 : std::exp(log_sum - log_z);
    }

    template <class Term>
    double log_sum_exp(Term term) {
        double largest = -INFINITY, total = 0.0;
        for (int k = 0; k < n_tags_; k++) {
            terms_[k] = term(k);
            if (!(terms_[k] <= largest)) largest = terms_[k];
        }
        if (!std::isfinite(largest)) return largest;
        for (int k = 0; k < n_tags_; k++) total += std::exp(terms_[k] - largest);
        return largest + std::log(total);
    }

    const Chain<Real>& chain_;
    const int n_tags_;
    const int64_t length_, begin_;
    std::vector<double> terms_, emissions_, alpha_;
};

}  // namespace costner
