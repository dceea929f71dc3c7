// Runs of tokens with given tags, by the sequences that they are in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "chain.hpp"
#include "interface.hpp"

namespace costner {

// Some of the runs, by number.
struct RunNumbers {
    const int64_t *first, *past;

    const int64_t* begin() const { return first; }
    const int64_t* end() const { return past; }
};

class RunsOfSequences {
  public:
    // order: The tag at each place, in the kernels' order.
    template <class Real>
    RunsOfSequences(const Runs& runs, const Chain<Real>& chain, const std::vector<int>& order)
        : runs_(runs), order_(order), place_of_(order.size()), offsets_(chain.n_sequences + 1),
          numbers_(runs.n_runs), first_tags_(runs.n_runs) {
        for (std::size_t p = 0; p < order.size(); p++) place_of_[order[p]] = static_cast<int>(p);
        std::vector<int64_t> sequence(runs.n_runs);
        int64_t n_tags = 0;
        for (int64_t i = 0; i < runs.n_runs; i++) {
            first_tags_[i] = n_tags;
            n_tags += runs.end[i] - runs.begin[i];
            const auto& begins = chain.begins;
            sequence[i] = std::upper_bound(begins.begin(), begins.end(), runs.begin[i]) - begins.begin() - 1;
            offsets_[sequence[i] + 1]++;
        }
        for (int64_t s = 0; s < chain.n_sequences; s++) offsets_[s + 1] += offsets_[s];
        std::vector<int64_t> next = offsets_;
        for (int64_t i = 0; i < runs.n_runs; i++) numbers_[next[sequence[i]]++] = i;
    }

    int64_t size() const { return runs_.n_runs; }

    // The runs in sequence s.
    RunNumbers operator[](int64_t s) const {
        return {numbers_.data() + offsets_[s], numbers_.data() + offsets_[s + 1]};
    }

    int64_t begin(int64_t i) const { return runs_.begin[i]; }
    int64_t end(int64_t i) const { return runs_.end[i]; }

    // The tag of run i at a token, by its place.
    int tag(int64_t i, int64_t token) const {
        return place_of_[runs_.tags[first_tags_[i] + token - runs_.begin[i]]];
    }

    bool may_follow(int64_t i, int place) const {
        return !runs_.after || runs_.after[i * static_cast<int64_t>(order_.size()) + order_[place]];
    }

  private:
    const Runs runs_;
    const std::vector<int>& order_;
    std::vector<int> place_of_;
    std::vector<int64_t> offsets_, numbers_, first_tags_;
};

}  // namespace costner
